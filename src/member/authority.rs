//! Who signs the client certificates of a member's users: the member says, in a ConfigMap that its API server writes.
//!
//! Such a certificate, made for a `CertificateSigningRequest`, logs in to the fleet as well, and is somebody in that member.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use http::{HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    config::MemberName,
    member::{Member, registry::Registry},
    upstream::{Class, Outgoing, OutgoingError, UpstreamError, collect},
};
use kubefold_serving::tls::{TlsError, client_verifier};
use kubefold_wire::{body::empty, path::ApiPath, resource::Gvr};

/// Where a kube-apiserver says whose client certificates it accepts. kubefold may list config maps there, and get none.
///
/// Source: kubernetes/kubernetes `pkg/controlplane/controller/clusterauthenticationtrust`.
const NAMESPACE: &str = "kube-system";
const QUERY: &str = "fieldSelector=metadata.name%3Dextension-apiserver-authentication&limit=1";
const KEY: &str = "client-ca-file";
/// A config map has at most 1 MiB, which JSON may write with escapes.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Of the authorities of one member.
const BUNDLE_BYTES_MAX: usize = 64 << 10;
/// An authority that was read is read again after so long; so is one that kubefold may not read.
const KNOWN_FOR: Duration = Duration::from_mins(5);
/// One that could not be read for another cause is read again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// A member that takes longer is asked again later.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often it is looked who is to be asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The authorities of one member's clients, as far as they are known.
#[derive(Default)]
pub(super) struct ClientAuthority(Mutex<State>);

#[derive(Default)]
struct State {
    /// PEM, and the incarnation that said so. `None`: it accepts no certificates.
    said: Option<(Option<Arc<str>>, u64)>,
    /// From then on it is asked again.
    due: Option<Instant>,
    complaint: Option<String>,
}

/// Why a member's authority is not known.
#[derive(Debug, thiserror::Error)]
enum AuthorityError {
    #[error("no answer in {}s", ANSWER_MAX.as_secs())]
    Late,
    #[error("it does not show kubefold the ConfigMap kube-system/extension-apiserver-authentication ({0})")]
    Hidden(StatusCode),
    #[error("its answer is no list of ConfigMaps: {0}")]
    Form(#[from] serde_json::Error),
    #[error("its authorities have more than {BUNDLE_BYTES_MAX} bytes")]
    TooLarge,
    #[error(transparent)]
    Unfit(#[from] TlsError),
    #[error("{}", .0.cause())]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Request(#[from] OutgoingError),
}

#[derive(Deserialize)]
struct Maps {
    items: Vec<Map>,
}

#[derive(Deserialize)]
struct Map {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// The authorities of the clients of all members, in PEM, in configuration order.
pub fn client_authorities(registry: &Registry) -> Vec<(MemberName, Arc<str>)> {
    let members = registry.members();
    members.iter().filter_map(|member| Some((member.name().clone(), member.client_authority()?))).collect()
}

/// Keeps the authorities of all members, until cancelled.
pub async fn keep_authorities(registry: &Registry) {
    let mut shared_before = BTreeSet::new();
    loop {
        let members = registry.members();
        let changed = join_all(members.iter().map(|member| member.ask_authority())).await;
        if changed.contains(&true) {
            registry.authorities_changed();
        }
        let shared = shared(&client_authorities(registry));
        // Said once until it is others.
        if shared != shared_before && !shared.is_empty() {
            let members = shared.iter().map(MemberName::as_str).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                members,
                "these members have one authority of client certificates, so that its certificates are nobody's; give it to \
                 --client-ca-file, and its users are somebody in the whole fleet"
            );
        }
        shared_before = shared;
        sleep(LOOK_EVERY).await;
    }
}

/// The members of which another one has the same authority: the same key under the same name.
fn shared(known: &[(MemberName, Arc<str>)]) -> BTreeSet<MemberName> {
    let mut holders: BTreeMap<Vec<u8>, BTreeSet<&MemberName>> = BTreeMap::new();
    for (member, bundle) in known {
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten() {
            let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&certificate) else { continue };
            let of = [parsed.subject().as_raw(), parsed.public_key().raw].concat();
            holders.entry(of).or_default().insert(member);
        }
    }
    holders.into_values().filter(|members| members.len() > 1).flatten().cloned().collect()
}

impl Member {
    /// Whose client certificates it accepts, as far as it has said so as the cluster that it is now. While it is down, too.
    fn client_authority(&self) -> Option<Arc<str>> {
        if self.config().absent || self.twin_of().is_some() {
            return None;
        }
        let (bundle, incarnation) = self.client_authority.0.lock().said.clone()?;
        bundle.filter(|_| incarnation == self.incarnation())
    }

    /// Asks it if that is due. Says whether it said something else than before.
    async fn ask_authority(&self) -> bool {
        let incarnation = self.incarnation();
        let is_due = {
            let state = self.client_authority.0.lock();
            let is_known = state.said.as_ref().is_some_and(|(_, said_by)| *said_by == incarnation);
            // What another cluster said is nothing: this one is asked at once.
            let waits = state.due.is_some_and(|due| Instant::now() < due);
            !waits || (state.said.is_some() && !is_known)
        };
        if !is_due || self.config().absent || !self.health().is_reachable() {
            return false;
        }
        let asked = timeout(ANSWER_MAX, self.fetch_authority()).await.unwrap_or(Err(AuthorityError::Late));
        let mut state = self.client_authority.0.lock();
        match asked {
            Ok(bundle) => {
                let said = Some((bundle, incarnation));
                let is_other = state.said != said;
                *state = State { said, due: Some(Instant::now() + KNOWN_FOR), complaint: None };
                is_other
            }
            Err(error) => {
                let is_hidden = matches!(error, AuthorityError::Hidden(_));
                state.due = Some(Instant::now() + if is_hidden { KNOWN_FOR } else { AGAIN_AFTER });
                // What another cluster said.
                state.said.take_if(|(_, said_by)| *said_by != incarnation);
                let complaint = Some(error.to_string());
                if state.complaint != complaint {
                    tracing::info!(member = %self.name(), %error, "cannot learn whose client certificates a member accepts");
                }
                state.complaint = complaint;
                false
            }
        }
    }

    async fn fetch_authority(&self) -> Result<Option<Arc<str>>, AuthorityError> {
        let maps = ApiPath::within(&Gvr::new("", "v1", "configmaps"), NAMESPACE);
        let request = Outgoing::own(Method::GET, maps, QUERY, empty())?;
        let request = request.with(header::ACCEPT, HeaderValue::from_static("application/json"));
        let (head, body) = self.send(request, Class::Read).await?.into_parts();
        if !head.status.is_success() {
            return Err(AuthorityError::Hidden(head.status));
        }
        bundle(&collect(body, ANSWER_BYTES_MAX).await?)
    }
}

/// What a list of config maps has of authorities.
fn bundle(body: &[u8]) -> Result<Option<Arc<str>>, AuthorityError> {
    let Maps { items } = serde_json::from_slice(body)?;
    let Some(bundle) = items.into_iter().find_map(|mut map| map.data.remove(KEY)) else { return Ok(None) };
    if bundle.len() > BUNDLE_BYTES_MAX {
        return Err(AuthorityError::TooLarge);
    }
    if bundle.trim().is_empty() {
        return Ok(None);
    }
    client_verifier(bundle.as_bytes())?;
    Ok(Some(bundle.into()))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
    use serde_json::json;

    use super::*;

    fn authority(name: &str, key: &KeyPair) -> String {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(key).unwrap().pem()
    }

    #[test]
    fn a_config_map_says_whose_certificates_count() {
        let of = |maps: serde_json::Value| bundle(json!({ "items": maps }).to_string().as_bytes());
        let pem = authority("ca", &KeyPair::generate().unwrap());
        assert_eq!(of(json!([{"data": {"client-ca-file": pem}}])).unwrap().as_deref(), Some(pem.as_str()));
        for none in [json!([]), json!([{}]), json!([{"data": {"client-ca-file": ""}}])] {
            assert_eq!(of(none).unwrap(), None);
        }
        assert!(matches!(of(json!([{"data": {"client-ca-file": "nonsense"}}])), Err(AuthorityError::Unfit(_))));
        let large = "x".repeat(BUNDLE_BYTES_MAX + 1);
        assert!(matches!(of(json!([{"data": {"client-ca-file": large}}])), Err(AuthorityError::TooLarge)));
        assert!(matches!(bundle(b"<html>"), Err(AuthorityError::Form(_))));
    }

    /// Certificates differ that were made anew for one key; what one signs the other one does, too.
    #[test]
    fn one_authority_of_two_members_is_found() {
        let keys = [(); 3].map(|()| KeyPair::generate().unwrap());
        let known: Vec<_> = [("east", 0), ("west", 1), ("north", 2), ("south", 1)]
            .map(|(member, key)| (MemberName::new(member).unwrap(), authority("kubernetes", &keys[key]).into()))
            .into();
        let shared: Vec<_> = shared(&known).into_iter().map(|member| member.to_string()).collect();
        assert_eq!(shared, ["south", "west"]);
    }
}
