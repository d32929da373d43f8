//! The tokens in the Secrets of members that are objects, renewed while they are good.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::sleep;

use super::{Members, object::MemberObject, objects, secret};
use crate::{
    config::OWN_NAMESPACE,
    member::{
        Member, MemberId,
        renewal::{HeldToken, RenewalError, Renewed, renewed},
    },
    own::OwnObjects,
};
use kubefold_apiserver::registry::WriteOptions;
use kubefold_wire::{access::text, status::Status};

/// How often it is looked whether a token is to be renewed.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The keys of a Secret that have tokens, and whether the token is the impersonator's.
const KEYS: [(&str, bool); 2] = [("token", false), ("impersonator-token", true)];

/// What became of the tokens of a member, for its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// They are good until then, in Unix seconds, if nothing goes wrong later.
    Good {
        /// When the first of them ends.
        ends_s: u64,
    },
    /// One of them is not renewed.
    Failed {
        /// Why.
        why: String,
    },
}

impl Renewal {
    /// Status, reason and message of the condition.
    pub(super) fn told(&self) -> (&'static str, &'static str, String) {
        match self {
            Self::Good { ends_s } => {
                let end = i64::try_from(*ends_s).ok().and_then(|end| Timestamp::from_second(end).ok());
                let end = end.map(|end| end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default();
                ("True", "TokensRenewed", format!("the tokens in its Secret are good until {end}"))
            }
            Self::Failed { why } => ("False", "RenewalFailed", why.clone()),
        }
    }
}

impl Members {
    /// Renews the tokens of Secrets of members that say so, when a member is reached and at half of a token's life, until
    /// cancelled.
    pub async fn renew_tokens(self: Arc<Self>, own: Arc<OwnObjects>) {
        let mut known: BTreeSet<MemberId> = BTreeSet::new();
        loop {
            let all = objects(own.registry(), "").await.unwrap_or_default();
            let wanted: Vec<MemberObject> =
                all.into_iter().filter(|object| object.spec.renew_tokens && object.is_joined()).collect();
            let registry = self.stores.registry();
            let reached: Vec<_> = wanted
                .iter()
                .filter_map(|object| Some((object, registry.get(&object.metadata.name)?)))
                .filter(|reached| reached.1.health().is_reachable())
                .collect();
            let renewing = reached.iter().map(|(object, member)| {
                let is_first = !known.contains(&member.id());
                Box::pin(renew_member(&own, object, member, is_first))
            });
            let outcomes = join_all(renewing).await;
            known = reached.iter().map(|(_, member)| member.id()).collect();
            let mut is_new = false;
            {
                let mut state = self.state.lock();
                let names: BTreeSet<&str> = wanted.iter().map(|object| object.metadata.name.as_str()).collect();
                state.renewals.retain(|name, _| names.contains(name.as_str()));
                for ((object, _), (renewal, is_renewed)) in reached.iter().zip(outcomes) {
                    is_new |= is_renewed;
                    note(&mut state.renewals, &object.metadata.name, renewal);
                }
            }
            if is_new && let Err(status) = self.refresh(&own).await {
                tracing::warn!(error = status.message, "a token was renewed and is not in force yet");
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Says so in the log once until it is another reason.
fn note(renewals: &mut BTreeMap<String, Renewal>, member: &str, renewal: Renewal) {
    let before = renewals.insert(member.to_owned(), renewal.clone());
    if let Renewal::Failed { why } = &renewal
        && before.as_ref() != Some(&renewal)
    {
        tracing::warn!(member, why, "cannot renew the tokens that kubefold logs in with");
    }
}

/// Renews the tokens of one member; says whether any is new.
pub(super) async fn renew_member(
    own: &OwnObjects,
    object: &MemberObject,
    member: &Member,
    is_first: bool,
) -> (Renewal, bool) {
    let Some(named) = &object.spec.credentials_secret_ref else {
        return (Renewal::Failed { why: "spec.credentialsSecretRef names no Secret".to_owned() }, false);
    };
    let failed = |why: String| Renewal::Failed { why: format!("the Secret {}: {why}", named.name) };
    let there = match secret(own.system().registry(), &named.name).await {
        Ok(Some(there)) => there,
        Ok(None) => return (failed("it does not exist".to_owned()), false),
        Err(refusal) => return (failed(refusal.to_string()), false),
    };
    let (mut ends, mut faults, mut is_new) = (Vec::new(), Vec::new(), false);
    for (key, impersonates) in KEYS {
        let encoded = text(&there, &format!("/data/{key}"));
        if encoded.is_empty() {
            continue;
        }
        let held = Held { secret: &named.name, key, encoded, impersonates };
        match renew(own, member, &held, is_first).await {
            Ok(Renewed { token, ends_s }) => {
                is_new |= token.is_some();
                ends.push(ends_s);
            }
            Err(error) => faults.push(format!("{key}: {error}")),
        }
    }
    let renewal = match ends.into_iter().min() {
        _ if !faults.is_empty() => failed(faults.join("; ")),
        Some(ends_s) => Renewal::Good { ends_s },
        None => failed("it has no token; renewTokens is for tokens of ServiceAccounts".to_owned()),
    };
    (renewal, is_new)
}

/// A token of a Secret.
struct Held<'a> {
    secret: &'a str,
    key: &'static str,
    /// As it is in the Secret.
    encoded: &'a str,
    impersonates: bool,
}

/// Why a token of a Secret is not renewed.
#[derive(Debug, thiserror::Error)]
enum SecretError {
    /// It is none, or the member makes no other.
    #[error(transparent)]
    Renewal(#[from] RenewalError),
    /// The Secret does not take it.
    #[error("{}", .0.message)]
    Storage(Box<Status>),
}

/// Renews one token, and puts it into its Secret unless somebody else has put another one there.
async fn renew(own: &OwnObjects, member: &Member, held: &Held<'_>, is_first: bool) -> Result<Renewed, SecretError> {
    let bytes = STANDARD.decode(held.encoded).map_err(|_| RenewalError::Form)?;
    let token = String::from_utf8(bytes).map_err(|_| RenewalError::Form)?;
    let asked = HeldToken { token: token.trim(), impersonates: held.impersonates };
    let done = renewed(member, asked, is_first).await?;
    let Some(new) = &done.token else { return Ok(done) };
    let registry = own.system().registry();
    let Some(kind) = registry.kind("", "Secret") else { return Ok(done) };
    let change = |secret: &mut Value| {
        if text(secret, &format!("/data/{}", held.key)) == held.encoded {
            secret["data"][held.key] = STANDARD.encode(new).into();
        }
        Ok(())
    };
    let options = WriteOptions::default();
    let written = registry.modify_all(&kind, OWN_NAMESPACE, held.secret, &options, change).await;
    written.map_err(|status| SecretError::Storage(Box::new(status)))?;
    tracing::info!(member = %member.name(), secret = held.secret, key = held.key, "renewed a token");
    Ok(done)
}
