//! What a member's etcd held when the member had started, and the way back to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Api;

/// Between looks at what the kube-apiserver takes down itself.
const INTERVAL: Duration = Duration::from_millis(50);
/// What the servers need to see in their watches what etcd has told the kube-apiserver, and to end what they were about:
/// some milliseconds, or more on a busy machine.
const SETTLING: Duration = Duration::from_millis(200);
/// For what a member's servers make at their start to be complete.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(20);
/// Operations in one transaction: etcd's default for `--max-txn-ops`.
const OPERATIONS_MAX: usize = 128;
/// The kinds whose objects a kube-apiserver forgets as soon as etcd has: it reads them with every use, or follows them by a
/// watch. Others live on in its memory: limits and quotas for a while after their end, and the node ports that it has given.
const FORGOTTEN: &[&str] = &[
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "controllerrevisions",
    "controllers",
    "cronjobs",
    "daemonsets",
    "deployments",
    "endpointslices",
    "events",
    "horizontalpodautoscalers",
    "ingress",
    "ipaddresses",
    "jobs",
    "leases",
    "minions",
    "mutatingwebhookconfigurations",
    "namespaces",
    "networkpolicies",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets",
    "pods",
    "podtemplates",
    "replicasets",
    "rolebindings",
    "roles",
    "secrets",
    "serviceaccounts",
    "services",
    "statefulsets",
    "validatingwebhookconfigurations",
];

/// What the servers keep for themselves, and go on to write; and the accounts that the controllers work as. What has changed there
/// since the start, the servers wanted: the first version of `extension-apiserver-authentication` is replaced a while later, and
/// whoever puts it back makes a kube-apiserver write once more, in the middle of a test.
const OWN: &[&str] = &[
    "/registry/configmaps/kube-system/extension-apiserver-authentication",
    "/registry/leases/kube-node-lease/",
    "/registry/leases/kube-system/apiserver-",
    "/registry/masterleases/",
    "/registry/peerserverleases/",
    "/registry/serviceaccounts/kube-system/",
];
/// What a kube-apiserver makes at its start without that `/readyz` waits for it.
const MADE_LATE: &[&str] = &[
    "/registry/configmaps/kube-system/extension-apiserver-authentication",
    "/registry/configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
    "/registry/ipaddresses/10.96.0.1",
    "/registry/namespaces/default",
    "/registry/namespaces/kube-node-lease",
    "/registry/namespaces/kube-public",
    "/registry/namespaces/kube-system",
    "/registry/ranges/servicenodeports",
    "/registry/servicecidrs/kubernetes",
    "/registry/services/specs/default/kubernetes",
];
/// What controllers add to that.
const MADE_LATE_BY_CONTROLLERS: &[&str] = &[
    "/registry/configmaps/default/kube-root-ca.crt",
    "/registry/configmaps/kube-node-lease/kube-root-ca.crt",
    "/registry/configmaps/kube-public/kube-root-ca.crt",
    "/registry/configmaps/kube-system/kube-root-ca.crt",
    "/registry/serviceaccounts/default/default",
    "/registry/serviceaccounts/kube-node-lease/default",
    "/registry/serviceaccounts/kube-public/default",
    "/registry/serviceaccounts/kube-system/default",
];
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/// A kube-apiserver makes and removes those of defined types itself.
const SERVICES: &str = "/registry/apiregistration.k8s.io/apiservices/";

/// etcd's keys, and its values in base64, since those of most kinds are no text.
type Pairs = BTreeMap<String, String>;

/// All objects of a member when it had started.
#[derive(Debug)]
pub(crate) struct Baseline(Pairs);

/// What leads back to a baseline.
#[derive(Debug, Default)]
struct Way {
    /// In the words of etcd's transactions.
    operations: Vec<Value>,
    /// Whether the kube-apiserver has something of the test's API groups to remove.
    is_pending: bool,
}

impl Baseline {
    /// The objects of a member that has just become ready, once its servers have made all that they make at their start.
    ///
    /// Errors: etcd's, or what is not there in time.
    pub(crate) async fn of(etcd: &Api, controllers: bool) -> Result<Self, String> {
        let end = Instant::now() + COMPLETE_TIMEOUT;
        let late = MADE_LATE.iter().chain(MADE_LATE_BY_CONTROLLERS.iter().filter(|_| controllers));
        let mut before = pairs(etcd).await?;
        loop {
            tokio::time::sleep(SETTLING).await;
            let now = pairs(etcd).await?;
            match late.clone().find(|key| !now.contains_key(**key)) {
                None if now == before => return Ok(Self(now)),
                missing if Instant::now() > end => return Err(format!("it still changes; missing: {missing:?}")),
                _ => before = now,
            }
        }
    }

    /// Makes a member as it was, under servers that run; without an end if they never stop what a test began.
    ///
    /// Errors: a change that the kube-apiserver would not forget.
    pub(crate) async fn restore(&self, etcd: &Api, member: &Api) -> Result<(), String> {
        let mut groups = BTreeSet::new();
        let mut is_settled = true;
        loop {
            let now = pairs(etcd).await?;
            let definitions = now.keys().filter_map(|key| key.strip_prefix(DEFINITIONS)?.split_once('.'));
            groups.extend(definitions.map(|(_, group)| group.to_owned()));
            let way = self.way_from(&now, &groups)?;
            for operations in way.operations.chunks(OPERATIONS_MAX) {
                call(etcd, "txn", &json!({"success": operations})).await?;
            }
            if !way.operations.is_empty() || way.is_pending || are_served(member, &groups).await? {
                is_settled = false;
                tokio::time::sleep(INTERVAL).await;
            } else if is_settled {
                return Ok(());
            } else {
                is_settled = true;
                tokio::time::sleep(SETTLING).await;
            }
        }
    }

    /// `groups`: the API groups that are defined by objects of the test.
    fn way_from(&self, now: &Pairs, groups: &BTreeSet<String>) -> Result<Way, String> {
        let mut way = Way::default();
        let changed = |(key, value): &(&String, &String)| self.0.get(*key) != Some(value);
        let is_gone = |key: &&String| !now.contains_key(*key);
        let changed = now.iter().filter(changed).map(|(key, _)| key).chain(self.0.keys().filter(is_gone));
        for key in changed.filter(|key| !OWN.iter().any(|own| key.starts_with(own))) {
            let kind = key.split('/').nth(2).unwrap_or_default();
            let is_defined = key.starts_with(DEFINITIONS) || groups.contains(kind);
            let is_registered = key.strip_prefix(SERVICES).and_then(|name| name.split_once('.'));
            if is_registered.is_some_and(|(_, group)| groups.contains(group)) {
                way.is_pending = true;
            } else if is_defined || FORGOTTEN.contains(&kind) {
                let name = STANDARD.encode(key);
                way.operations.push(match self.0.get(key) {
                    Some(value) => json!({"requestPut": {"key": name, "value": value}}),
                    None => json!({"requestDeleteRange": {"key": name}}),
                });
            } else {
                return Err(format!("{key} has changed"));
            }
        }
        Ok(way)
    }
}

/// Whether a member serves or describes one of these API groups.
async fn are_served(member: &Api, groups: &BTreeSet<String>) -> Result<bool, String> {
    if groups.is_empty() {
        return Ok(false);
    }
    let served = member.try_request(Method::GET, "/apis", "").await?.to_string();
    let described = member.try_request(Method::GET, "/openapi/v3", "").await?.to_string();
    let is_there =
        |group: &String| served.contains(&format!("\"{group}\"")) || described.contains(&format!("apis/{group}/"));
    Ok(groups.iter().any(is_there))
}

async fn pairs(etcd: &Api) -> Result<Pairs, String> {
    let all = json!({"key": STANDARD.encode("/registry/"), "rangeEnd": STANDARD.encode("/registry0")});
    let answer = call(etcd, "range", &all).await?;
    let pair = |pair: &Value| {
        let key = STANDARD.decode(pair["key"].as_str()?).ok()?;
        Some((String::from_utf8(key).ok()?, pair["value"].as_str().unwrap_or_default().to_owned()))
    };
    let pairs = answer["kvs"].as_array().into_iter().flatten();
    pairs.map(|one| pair(one).ok_or_else(|| format!("etcd: no key and value in {one}"))).collect()
}

/// Calls etcd through its JSON gateway.
async fn call(etcd: &Api, method: &str, body: &Value) -> Result<Value, String> {
    let answer = etcd.try_request(Method::POST, &format!("/v3/kv/{method}"), body.to_string()).await?;
    match answer.status {
        StatusCode::OK => Ok(answer.json()),
        _ => Err(format!("etcd: {answer}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(&str, &str)]) -> Pairs {
        of.iter().map(|(key, value)| (format!("/registry/{key}"), (*value).to_owned())).collect()
    }

    fn way(now: &[(&str, &str)], groups: &[&str]) -> Result<Way, String> {
        let before = pairs(&[
            ("apiregistration.k8s.io/apiservices/v1.apps", "1"),
            ("clusterroles/view", "1"),
            ("leases/kube-system/apiserver-1", "1"),
            ("namespaces/default", "1"),
            ("ranges/servicenodeports", "1"),
        ]);
        let mut all = before.clone();
        all.extend(pairs(now));
        all.retain(|_, value| value != "gone");
        Baseline(before).way_from(&all, &groups.iter().map(|group| (*group).to_owned()).collect())
    }

    #[test]
    fn what_is_new_is_deleted_and_what_has_changed_or_is_gone_is_put_back() {
        let way =
            way(&[("pods/default/web", "1"), ("clusterroles/view", "2"), ("namespaces/default", "gone")], &[]).unwrap();
        let key = |key: &str| STANDARD.encode(format!("/registry/{key}"));
        let put = |name: &str| json!({"requestPut": {"key": key(name), "value": "1"}});
        let deleted = json!({"requestDeleteRange": {"key": key("pods/default/web")}});
        assert_eq!(way.operations, [put("clusterroles/view"), deleted, put("namespaces/default")]);
        assert!(!way.is_pending);
    }

    #[test]
    fn what_a_kube_apiserver_writes_itself_is_no_change() {
        let authentication = ("configmaps/kube-system/extension-apiserver-authentication", "2");
        let leases = [("leases/kube-system/apiserver-1", "2"), ("leases/kube-node-lease/node-0", "1")];
        let way = way(&[&leases[..], &[authentication]].concat(), &[]).unwrap();
        assert!(way.operations.is_empty() && !way.is_pending, "{way:?}");
    }

    #[test]
    fn a_defined_type_goes_with_its_objects_and_is_awaited() {
        let definition = ("apiextensions.k8s.io/customresourcedefinitions/things.left.io", "1");
        let (object, service) =
            (("left.io/things/default/a", "1"), ("apiregistration.k8s.io/apiservices/v1.left.io", "1"));
        let first = way(&[definition, object, service], &["left.io"]).unwrap();
        assert_eq!((first.operations.len(), first.is_pending), (2, true), "{first:?}");
        let then = way(&[service], &["left.io"]).unwrap();
        assert_eq!((then.operations.len(), then.is_pending), (0, true), "{then:?}");
    }

    #[test]
    fn what_lives_on_in_a_kube_apiserver_is_refused() {
        for (key, value) in [
            ("ranges/servicenodeports", "2"),
            ("resourcequotas/default/small", "1"),
            ("apiregistration.k8s.io/apiservices/v1.apps", "2"),
            ("apiregistration.k8s.io/apiservices/v1.metrics.k8s.io", "1"),
            ("nobodys.io/things/default/a", "1"),
        ] {
            assert_eq!(way(&[(key, value)], &[]).unwrap_err(), format!("/registry/{key} has changed"));
        }
    }
}
