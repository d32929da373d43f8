//! `clusters.yaml` as it is written: every value with the line that it stands on, nothing checked yet.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

/// `clusters.yaml` as a whole.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawConfig {
    /// The clusters, in the order that breaks ties: the first that holds a shared object supplies its body. At
    /// least one, at most 256.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawMember>"))]
    pub(super) members: Vec<Spanned<RawMember>>,
    /// How native objects are named: `suffixed` (`web-0@east`; the default), or `plain` for a fleet of one member.
    /// A reload that changes it is refused.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) names: Option<Spanned<String>>,
    /// Objects that every cluster has under one name, folded into one. Giving the list replaces the default:
    /// namespaces, custom resource definitions, API services, and what every cluster makes for itself. A reload
    /// that changes it is refused.
    #[cfg_attr(test, schemars(with = "Option<Vec<RawShared>>"))]
    pub(super) shared: Option<Vec<Spanned<RawShared>>>,
    /// Where objects go (docs/writes.md). Of those that match an object the first holds; without one the kind
    /// decides.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawPolicy>"))]
    pub(super) policies: Vec<Spanned<RawPolicy>>,
}

/// A cluster. Exactly one of `kubeconfig`, `server` and `inCluster` says how it is reached.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawMember {
    /// A DNS label of at most 63 characters; its objects are seen as `web-0@<name>`. `lenient` and `strict` are
    /// taken.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) name: Spanned<String>,
    /// A kubeconfig with its own credentials: certificates, tokens, exec plugins, proxies. Read again as it
    /// changes.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) kubeconfig: Option<Spanned<String>>,
    /// A context of the kubeconfig, in place of its current one.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) context: Option<Spanned<String>>,
    /// The API server's URL, `https://host:port`, perhaps with a path.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) server: Option<Spanned<String>>,
    /// With `server`: a file with the authorities that sign its certificate (PEM). Without it and without
    /// `certificateAuthorityData`, those of the system.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) certificate_authority: Option<Spanned<String>>,
    /// The same written out: PEM, or base64 of PEM.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) certificate_authority_data: Option<Spanned<String>>,
    /// With `server`: a file with kubefold's client certificate (PEM chain); needs `clientKey`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_certificate: Option<Spanned<String>>,
    /// The same written out.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_certificate_data: Option<Spanned<String>>,
    /// The key of the client certificate.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_key: Option<Spanned<String>>,
    /// The same written out.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_key_data: Option<Spanned<String>>,
    /// With `server`: a bearer token. Prefer `tokenFile`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) token: Option<Spanned<String>>,
    /// With `server`: a file with a bearer token, read again as it changes.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) token_file: Option<Spanned<String>>,
    /// With `server`: the name in the server's certificate, where it is not the host's.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) tls_server_name: Option<Spanned<String>>,
    /// With `server`: an `http://` or `socks5://` proxy, in place of the environment's (`HTTPS_PROXY`, `NO_PROXY`).
    #[serde(rename = "proxyURL")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) proxy_url: Option<Spanned<String>>,
    /// The cluster that kubefold itself runs in, as its ServiceAccount.
    #[cfg_attr(test, schemars(with = "Option<bool>"))]
    pub(super) in_cluster: Option<Spanned<bool>>,
    /// Its share of what is divided, relative to the others'; from 0 (takes nothing) to 1000000. Default 1.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) weight: Option<Spanned<i64>>,
    /// What policies select members by.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, String>"))]
    pub(super) labels: BTreeMap<String, Spanned<String>>,
    /// Objects that do not tolerate these go elsewhere.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawTaint>"))]
    pub(super) taints: Vec<Spanned<RawTaint>>,
    /// Declares the member gone for now: reads do not wait for it, and show nothing of it. Default false.
    #[serde(default)]
    pub(super) absent: bool,
    /// Time limits toward this member.
    #[serde(default)]
    pub(super) deadlines: RawDeadlines,
    /// Requests under way to it at once, watches apart; one more is answered with 429. From 1 to 100000, default
    /// 200.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) in_flight_max: Option<Spanned<i64>>,
}

/// Time limits, written as Go writes durations (`1m30s`), from `1ms` to `1h`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawDeadlines {
    /// To connect, TLS included. Default `5s`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) connect: Option<Spanned<String>>,
    /// For the head of a read's answer, for each page of a list, and for an answer that stalls. Default `30s`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) read: Option<Spanned<String>>,
    /// For a write. A kube-apiserver works on one for up to 34 s, so that less makes outcomes unknown. Default
    /// `40s`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) write: Option<Spanned<String>>,
    /// Between two health probes. Default `2s`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) probe: Option<Spanned<String>>,
}

/// A rule for objects that are shared.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawShared {
    /// The API group; empty is core.
    #[serde(default)]
    pub(super) group: String,
    /// The plural resource, such as `clusterroles`.
    pub(super) resource: String,
    /// Only in this namespace. Default: in all.
    pub(super) namespace: Option<String>,
    /// Only this name or, with a last `*`, this prefix. Default: every name.
    pub(super) name: Option<String>,
}

/// A taint of a member.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTaint {
    /// Its key.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) key: Spanned<String>,
    /// Its value. Default: none.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) value: Option<Spanned<String>>,
    /// `NoSchedule`, the only one that there is.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) effect: Option<Spanned<String>>,
}

/// A placement policy.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPolicy {
    /// What `kubefold.io/placement-policy` calls it.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) name: Spanned<String>,
    /// Which objects it is for. Without it: only those that name it.
    #[serde(rename = "match")]
    #[cfg_attr(test, schemars(with = "Option<RawMatch>"))]
    pub(super) matches: Option<Spanned<RawMatch>>,
    /// `divide`, `duplicate` or `one`. Default: that of the kind.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) strategy: Option<Spanned<String>>,
    /// The only members that objects may go to.
    #[cfg_attr(test, schemars(with = "Option<Vec<String>>"))]
    pub(super) members: Option<Spanned<Vec<Spanned<String>>>>,
    /// The same by a label selector over the members' labels, such as `region in (eu,us)`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) member_selector: Option<Spanned<String>>,
    /// `static` (those of the members; the default) or `capacity` (what is free in each).
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) weights: Option<Spanned<String>>,
    /// The least of a divided number in each part, as far as the total goes.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) min: Option<Spanned<i64>>,
    /// The most of a divided number in each part.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) max: Option<Spanned<i64>>,
    /// Terms of single members, by name.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, RawTerms>"))]
    pub(super) per_member: BTreeMap<String, Spanned<RawTerms>>,
    /// A member label: a divided number goes evenly over its values first, then by weight.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) spread: Option<Spanned<String>>,
    /// Place what fits, with a warning, where not all of it does. Default false: 422.
    #[cfg_attr(test, schemars(with = "Option<bool>"))]
    pub(super) partial: Option<Spanned<bool>>,
    /// Which members' taints the objects bear.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawToleration>"))]
    pub(super) tolerations: Vec<Spanned<RawToleration>>,
}

/// What a policy matches: everything that is given must hold, and something must be given.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawMatch {
    /// `Deployment`, or with the group `Widget.example.com`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) kinds: Vec<Spanned<String>>,
    /// Namespaces; a last `*` is a prefix.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) namespaces: Vec<Spanned<String>>,
    /// A label selector over the object's labels.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) labels: Option<Spanned<String>>,
    /// Annotations that the object has.
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

/// Terms of one member in a policy.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTerms {
    /// In place of the member's own; with `weights: static` alone.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) weight: Option<Spanned<i64>>,
    /// In place of the policy's.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) min: Option<Spanned<i64>>,
    /// In place of the policy's.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) max: Option<Spanned<i64>>,
    /// What stands in place of the registry of every image in the part there: a host, perhaps with port and path.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) registry: Option<Spanned<String>>,
    /// A JSON patch (RFC 6902) of the part there.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Value>"))]
    pub(super) patch: Option<Spanned<serde_json::Value>>,
}

/// A toleration, as that of a pod.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawToleration {
    /// The key; without it, every taint (with `operator: Exists`).
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) key: Option<Spanned<String>>,
    /// `Equal` (the default) or `Exists`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) operator: Option<Spanned<String>>,
    /// The value that `Equal` compares. Default: none.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) value: Option<Spanned<String>>,
    /// `NoSchedule`, or nothing, which is the same.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) effect: Option<Spanned<String>>,
}
