//! Whose a token is: a member's whose keys signed it. A token is shown to nobody else: whoever sees one may use it.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use http::{HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::{
    authn::SigningKeys,
    config::MemberName,
    member::Member,
    upstream::{Class, Outgoing, OutgoingError, UpstreamError, collect},
};

/// Where a kube-apiserver shows its public keys, and in which form alone.
///
/// Source: kubernetes/kubernetes `pkg/routes/openidmetadata.go`.
const KEYS: &str = "/openid/v1/jwks";
const KEYS_MEDIA: &str = "application/jwk-set+json";
const KEYS_BYTES_MAX: usize = 1 << 20;
/// A token that no known key signed has a member asked again after so long: it may have new keys.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Keys are taken for the member's for so long.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// A member that takes longer is left out.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The public keys of one member, as far as they are known.
#[derive(Default)]
pub(super) struct Keys {
    fetched: Mutex<Option<Fetched>>,
    /// Held while the member is asked.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Fetched {
    keys: Result<Arc<SigningKeys>, Arc<KeysError>>,
    at: Instant,
    incarnation: u64,
}

/// Why a member's keys are not known.
#[derive(Debug, thiserror::Error)]
enum KeysError {
    #[error("no answer in {}s", ANSWER_MAX.as_secs())]
    Late,
    #[error("it does not show kubefold its keys ({0} at {KEYS})")]
    Hidden(StatusCode),
    #[error("it answered with no keys: {0}")]
    Form(#[from] serde_json::Error),
    #[error("{}", .0.cause())]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Request(#[from] OutgoingError),
}

/// Who may be shown a token.
#[derive(Debug, Default)]
pub struct Signers {
    /// Members whose keys signed it: one, unless clusters share their keys.
    pub members: Vec<MemberName>,
    /// Why others are not known to be none.
    pub silent: Vec<String>,
}

/// Looks whose keys signed a token. Members are asked for their keys, which are public, where no known key did.
///
/// Cancel: safe.
pub async fn signers(members: &[Arc<Member>], token: &str) -> Signers {
    let is_known = |member: &&Arc<Member>| {
        let fetched = member.keys.fetched.lock().clone();
        let fetched = fetched.filter(|fetched| fetched.is_of(member, KNOWN_FOR));
        fetched.and_then(|fetched| fetched.keys.ok()).is_some_and(|keys| keys.signed(token))
    };
    let known: Vec<MemberName> = members.iter().filter(is_known).map(|member| member.name().clone()).collect();
    if !known.is_empty() {
        return Signers { members: known, silent: Vec::new() };
    }
    let mut signers = Signers::default();
    for (member, keys) in members.iter().zip(join_all(members.iter().map(|member| member.signing_keys())).await) {
        match keys {
            Ok(keys) if keys.signed(token) => signers.members.push(member.name().clone()),
            Ok(_) => {}
            Err(cause) => signers.silent.push(format!("member {}: {cause}", member.name())),
        }
    }
    signers
}

impl Fetched {
    fn is_of(&self, member: &Member, within: Duration) -> bool {
        self.incarnation == member.incarnation() && self.at.elapsed() < within
    }
}

impl Member {
    /// The keys as of a moment ago. Equal questions at the same time are one.
    async fn signing_keys(&self) -> Result<Arc<SigningKeys>, Arc<KeysError>> {
        let _turn = self.keys.turn.lock().await;
        let known = self.keys.fetched.lock().clone().filter(|fetched| fetched.is_of(self, AGAIN_AFTER));
        if let Some(known) = known {
            return known.keys;
        }
        let (at, incarnation) = (Instant::now(), self.incarnation());
        let keys = timeout(ANSWER_MAX, self.fetch_keys()).await.unwrap_or(Err(KeysError::Late));
        let keys = keys.map(Arc::new).map_err(Arc::new);
        *self.keys.fetched.lock() = Some(Fetched { keys: keys.clone(), at, incarnation });
        keys
    }

    async fn fetch_keys(&self) -> Result<SigningKeys, KeysError> {
        let request = Outgoing::document(KEYS)?.with(header::ACCEPT, HeaderValue::from_static(KEYS_MEDIA));
        let (head, body) = self.send(request, Class::Read).await?.into_parts();
        if !head.status.is_success() {
            return Err(KeysError::Hidden(head.status));
        }
        Ok(serde_json::from_slice(&collect(body, KEYS_BYTES_MAX).await?)?)
    }
}
