//! Whose requests count that come by the host: its kube-apiserver says so in a ConfigMap, which is watched.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use futures::StreamExt;
use http::HeaderName;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep_until};

use crate::host::error::{AGAIN_AFTER, HostError, answered};
use kubefold_serving::{
    front_proxy::ProxyHeaders,
    tls::{Believed, ClientAuthority, FrontProxies, client_verifier},
};

/// Source: kubernetes/kubernetes `pkg/controlplane/controller/clusterauthenticationtrust`.
const NAMESPACE: &str = "kube-system";
const SELECTED: &str = "metadata.name=extension-apiserver-authentication";
/// The length of a watch. kube's client gives an idle connection 295 s.
const WATCH_S: u32 = 240;

/// Whom the host's kube-apiserver lets in, as far as it tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Its front proxies: the aggregator.
    pub front_proxies: Option<FrontProxies>,
    /// The authority of its users' certificates.
    pub client_authority: Option<ClientAuthority>,
}

impl Trust {
    /// Reads the ConfigMap. What is broken in it counts for nothing: `faults` says what.
    ///
    /// Source: kubernetes/apiserver `pkg/authentication/request/headerrequest/requestheader_controller.go`.
    fn read(data: &BTreeMap<String, String>, cluster: &Arc<str>) -> Read {
        let mut read = Read::default();
        let bundle = |key: &'static str, faults: &mut Vec<String>| {
            let bundle = data.get(key).filter(|bundle| !bundle.is_empty())?;
            let fault = client_verifier(bundle.as_bytes()).err();
            faults.extend(fault.as_ref().map(|error| format!("{key}: {error}")));
            fault.is_none().then(|| bundle.clone())
        };
        let believed = Believed::OfCluster(Arc::clone(cluster));
        let client_authority = bundle("client-ca-file", &mut read.faults);
        read.trust.client_authority = client_authority.map(|bundle| ClientAuthority { bundle, believed });
        let Some(bundle) = bundle("requestheader-client-ca-file", &mut read.faults) else { return read };
        let mut list = |key: &'static str| {
            let text = data.get(key).map_or("", String::as_str);
            let list = if text.is_empty() { Ok(Vec::new()) } else { serde_json::from_str::<Vec<String>>(text) };
            list.map_err(|error| read.faults.push(format!("{key}: {error}"))).ok()
        };
        let names = list("requestheader-allowed-names");
        let [user, groups, uid, extra] = [
            "requestheader-username-headers",
            "requestheader-group-headers",
            "requestheader-uid-headers",
            "requestheader-extra-headers-prefix",
        ]
        .map(|key| list(key).map(|list| list.iter().filter_map(|name| name.parse().ok()).collect::<Vec<HeaderName>>()));
        // Without one of them it is not known what is allowed, and an empty list of names allows everybody.
        let (Some(names), Some(user), Some(groups), Some(uid), Some(extra)) = (names, user, groups, uid, extra) else {
            return read;
        };
        let extra_prefixes = extra.iter().map(ToString::to_string).collect();
        let headers = Arc::new(ProxyHeaders { user, groups, uid, extra_prefixes });
        read.trust.front_proxies = Some(FrontProxies { bundle, names, headers, cluster: Some(Arc::clone(cluster)) });
        read
    }
}

/// What was read.
#[derive(Default)]
pub(super) struct Read {
    pub(super) trust: Trust,
    pub(super) faults: Vec<String>,
}

/// Tells what the host says, now and whenever it says something else. What it said last counts while it does not answer.
pub(super) async fn follow(client: &Client, cluster: &Arc<str>, tell: impl Fn(Trust)) -> Infallible {
    let maps = Api::namespaced(client.clone(), NAMESPACE);
    let mut complaint = None;
    let told = |map: Option<&ConfigMap>| {
        let data = map.and_then(|map| map.data.as_ref());
        let Read { trust, faults } = data.map(|data| Trust::read(data, cluster)).unwrap_or_default();
        for fault in faults {
            tracing::warn!(fault, "the host's ConfigMap kube-system/extension-apiserver-authentication cannot be used");
        }
        tell(trust);
    };
    loop {
        let begun = Instant::now();
        match follow_once(&maps, &told).await {
            Ok(()) => complaint = None,
            Err(error) => {
                let cause = error.to_string();
                if complaint.as_ref() != Some(&cause) {
                    tracing::warn!(
                        cause,
                        "cannot read the host's ConfigMap kube-system/extension-apiserver-authentication; what it said \
                         last counts. `kubefold aggregation manifest` has the RoleBinding for it"
                    );
                    complaint = Some(cause);
                }
            }
        }
        sleep_until(begun + AGAIN_AFTER).await;
    }
}

/// One list, and one watch from there on.
async fn follow_once(maps: &Api<ConfigMap>, told: &impl Fn(Option<&ConfigMap>)) -> Result<(), HostError> {
    let listed = answered(maps.list(&ListParams::default().fields(SELECTED))).await?;
    told(listed.items.first());
    let from = listed.metadata.resource_version.unwrap_or_default();
    let params = WatchParams::default().fields(SELECTED).timeout(WATCH_S);
    let mut events = Box::pin(answered(maps.watch(&params, &from)).await?);
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(map) | WatchEvent::Modified(map) => told(Some(&map)),
            WatchEvent::Deleted(_) => told(None),
            WatchEvent::Bookmark(_) => {}
            // The revision is too old, or the server goes: it is listed anew.
            WatchEvent::Error(_) => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
impl Trust {
    pub(super) fn of(data: &[(&str, &str)], cluster: &str) -> Read {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Self::read(&data, &cluster.into())
    }
}
