//! `clusters.yaml` as it is written: every value with its line, nothing validated yet.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::config::{
    aliases::RawAlias,
    collections::RawCollection,
    kinds::RawKind,
    shadow::RawShadowResources,
    spread::{RawSpread, RawSpreadLevel},
};

/// The whole of `clusters.yaml`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawConfig {
    /// The clusters. Their order breaks ties: the first one that has a shared object supplies its body. At least one,
    /// at most 256.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawMember>"))]
    pub(super) members: Vec<Spanned<RawMember>>,
    /// How member-local objects are named: `suffixed` (`web-0@east`; the default), or `plain` for a fleet of one
    /// member. kubefold refuses a reload that changes it.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) names: Option<Spanned<String>>,
    /// Objects that every cluster has under one name; the fleet view folds them into one. The list replaces the
    /// default: namespaces, custom resource definitions, API services, and the objects that every cluster makes for
    /// itself. kubefold refuses a reload that changes it.
    #[cfg_attr(test, schemars(with = "Option<Vec<RawShared>>"))]
    pub(super) shared: Option<Vec<Spanned<RawShared>>>,
    /// Where objects go (docs/policies.md). The first policy that matches an object applies to it. Without one, the
    /// kind decides.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawPolicy>"))]
    pub(super) policies: Vec<Spanned<RawPolicy>>,
    /// What becomes of an object that no policy selects: `default` (placed as its kind is; the default), or `refuse` (a create is
    /// refused with 422). Shared objects, Events, objects with an owner, and those that are pinned (`web@east`) need no policy.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) unmatched: Option<Spanned<String>>,
    /// Custom resources that can be divided (docs/policies.md). Others are never divided: kubefold does not know their fields.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawKind>"))]
    pub(super) kinds: Vec<Spanned<RawKind>>,
    /// ServiceAccounts of members that are somebody in the whole fleet. Without an entry, the token of a ServiceAccount acts in
    /// its own member alone, as that ServiceAccount.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawSubject>"))]
    pub(super) subjects: Vec<Spanned<RawSubject>>,
    /// Authorities whose client certificates log in, beside `--client-ca-file` and those of the members.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawClientAuthority>"))]
    pub(super) client_authorities: Vec<Spanned<RawClientAuthority>>,
    /// Who may use what kubefold itself does, beside the groups `kubefold:admins` and `system:masters`: plans, and all that
    /// `viewers` may. In the members they have no rights by it.
    #[serde(default)]
    pub(super) admins: RawPeople,
    /// Who may see what kubefold tells of itself, beside the group `kubefold:viewers`: status and metrics, with the names of all
    /// members.
    #[serde(default)]
    pub(super) viewers: RawPeople,
    /// Further groups and versions in which ShadowResources are served (docs/shadow-resources.md), so that manifests of another
    /// system apply unchanged. kubefold refuses a reload that changes them.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawAlias>"))]
    pub(super) aliases: Vec<Spanned<RawAlias>>,
    /// Further collections: several kinds in one list (docs/search.md), beside `any`, `workloads` and `kuberesources`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawCollection>"))]
    pub(super) collections: Vec<Spanned<RawCollection>>,
    /// What ShadowResources show of their items: columns, and labels to select by.
    #[serde(default)]
    pub(super) shadow_resources: RawShadowResources,
    /// The host cluster, whose kube-aggregator serves groups of this fleet. Default: none.
    #[cfg_attr(test, schemars(with = "Option<RawAggregation>"))]
    pub(super) aggregation: Option<Spanned<RawAggregation>>,
    /// What kubefold keeps of the members' objects in its state directory, for a quick start (docs/mirror.md).
    #[cfg_attr(test, schemars(with = "Option<RawMirror>"))]
    pub(super) mirror: Option<Spanned<RawMirror>>,
    /// An inventory of clusters that are members, too (docs/cluster-profiles.md). Default: none.
    #[cfg_attr(test, schemars(with = "Option<RawClusterProfiles>"))]
    pub(super) cluster_profiles: Option<Spanned<RawClusterProfiles>>,
}

/// An inventory: the clusters that ClusterProfiles of a member describe are members, too (docs/cluster-profiles.md).
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawClusterProfiles {
    /// The member that has the ClusterProfiles and the Secrets with kubefold's credentials.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) member: Spanned<String>,
    /// The namespace of the ClusterProfiles. Whoever may write them there says who is in the fleet.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) namespace: Spanned<String>,
    /// The ClusterProfiles that count, as a label selector over their labels: `x-k8s.io/cluster-manager=ours`. Default: all of the
    /// namespace.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) selector: Option<Spanned<String>>,
    /// The namespace of the Secrets. Default: that of the ClusterProfiles.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) secret_namespace: Option<Spanned<String>>,
}

/// What kubefold keeps of the members' objects in its state directory, so that it knows them when it starts again
/// (docs/mirror.md). A change counts from the next start on.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawMirror {
    /// `false`: nothing is kept, and each start lists all members anew. Default: `true`.
    pub(super) enabled: Option<bool>,
    /// Resources of which nothing is kept: `events`, `leases.coordination.k8s.io`, or `*.example.com` for all of a group.
    /// Secrets need no entry: they are kept only with a key file of your own (`--state-key-file`), encrypted.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) exclude: Vec<Spanned<String>>,
    /// Resources whose objects are in the mirror's tables alone, and take no memory: written as in `exclude`. They are listed and
    /// searched there, and only read in the fleet view. What kubefold needs itself cannot be named: everything of core but
    /// `events`, and the groups of workloads, placement and access. Default: none.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) stored: Vec<Spanned<String>>,
    /// How many bytes of JSON the objects of all kinds in memory may have, at least `1Mi`. A start that finds more than that in the
    /// mirror has the largest kinds of `storable` in its tables alone, as many as it takes. Default: no such bound.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) memory: Option<Spanned<String>>,
    /// Resources whose objects may be in the mirror's tables alone once `memory` is too little: written as in `stored`, and of the
    /// same kinds. It is given together with `memory`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) storable: Vec<Spanned<String>>,
    /// How large the file may become, at least `1Mi`. What has no room is not kept. Default: `4Gi`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) max_bytes: Option<Spanned<String>>,
    /// How long deleted objects are kept, for searches with `deleted=true` alone: a Go duration from `1m` to `8760h`, such as `168h`.
    /// They have a quarter of `maxBytes`; the oldest go first. Secrets are never kept so. Default: they are not kept.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) keep_deleted: Option<Spanned<String>>,
}

/// The host cluster, whose kube-aggregator serves groups of this fleet (docs/aggregation.md). Exactly one of `kubeconfig` and
/// `inCluster` says how kubefold reaches it. Who is somebody in the host is the same in the fleet.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawAggregation {
    /// A kubeconfig file with kubefold's login at the host. kubefold reads it again when it changes.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) kubeconfig: Option<Spanned<String>>,
    /// A context of the kubeconfig. Default: its current context.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) context: Option<Spanned<String>>,
    /// `true`: the host is the cluster that kubefold itself runs in, and kubefold asks with the pod's ServiceAccount.
    #[cfg_attr(test, schemars(with = "Option<bool>"))]
    pub(super) in_cluster: Option<Spanned<bool>>,
    /// The member that is the host, if the host is one. kubefold never reads `groups` from it, and the host's
    /// ServiceAccounts act in it.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) member: Option<Spanned<String>>,
    /// The Service by which the host reaches kubefold, `namespace/name`. Default: `kubefold/kubefold`. kubefold's own serving
    /// certificate has its name.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) service: Option<Spanned<String>>,
    /// Groups of the fleet that the host serves beside `kubefold.io/v1alpha1`, such as `apps.example.com/v1`. The host must
    /// have no such group itself.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) groups: Vec<Spanned<String>>,
}

/// An authority that signs client certificates.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawClientAuthority {
    /// A file with the certificates of the authority (PEM). kubefold reads it again when it changes.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) file: Spanned<String>,
    /// The member in whose domain its certificates are: they are somebody in that member alone, as if it had signed them,
    /// `system:` names included. Default: the whole fleet, as with `--client-ca-file`; only people count there.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) member: Option<Spanned<String>>,
}

/// Users and groups, as they log in: `oidc:jane`. Nobody is meant whom kubefold knows by a member's word alone.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPeople {
    /// Names of users.
    #[serde(default)]
    pub(super) users: Vec<String>,
    /// Names of groups.
    #[serde(default)]
    pub(super) groups: Vec<String>,
}

/// A ServiceAccount of a member, and who it is in the fleet. Every member judges by its RBAC what that user may do.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSubject {
    /// The member that the ServiceAccount is in.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) member: Spanned<String>,
    /// The ServiceAccount's namespace.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) namespace: Spanned<String>,
    /// The ServiceAccount's name.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) name: Spanned<String>,
    /// The user that it is in the fleet. A role binding in a member names this user.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) user: Spanned<String>,
    /// The user's groups in the fleet.
    #[serde(default)]
    pub(super) groups: Vec<String>,
}

/// A cluster. Exactly one of `kubeconfig`, `server` and `inCluster` says how kubefold reaches it.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawMember {
    /// A DNS label of at most 63 characters. The member's objects are named `web-0@<name>`. `lenient` and `strict`
    /// are reserved.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) name: Spanned<String>,
    /// A kubeconfig file with its own credentials: certificates, tokens, exec plugins, proxies. kubefold reads it
    /// again when it changes.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) kubeconfig: Option<Spanned<String>>,
    /// A context of the kubeconfig. Default: its current context.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) context: Option<Spanned<String>>,
    /// The URL of the API server, `https://host:port`, optionally with a path.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) server: Option<Spanned<String>>,
    /// With `server`: a file with the certificate authorities that sign the server's certificate (PEM). Default: those
    /// of the system.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) certificate_authority: Option<Spanned<String>>,
    /// The content of `certificateAuthority`: PEM, or base64 of PEM.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) certificate_authority_data: Option<Spanned<String>>,
    /// With `server`: a file with kubefold's client certificate (PEM chain). It needs a client key.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_certificate: Option<Spanned<String>>,
    /// The content of `clientCertificate`: PEM, or base64 of PEM.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_certificate_data: Option<Spanned<String>>,
    /// A file with the key of the client certificate (PEM).
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_key: Option<Spanned<String>>,
    /// The content of `clientKey`: PEM, or base64 of PEM.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) client_key_data: Option<Spanned<String>>,
    /// With `server`: a bearer token. Prefer `tokenFile`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) token: Option<Spanned<String>>,
    /// With `server`: a file with a bearer token. kubefold reads it again when it changes.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) token_file: Option<Spanned<String>>,
    /// A file with the bearer token of a second identity, with which kubefold sends the requests of its callers (impersonation);
    /// its own reads use the other credential, which needs no right to impersonate then. kubefold reads it again when it
    /// changes. Not with a client certificate, which would count instead.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) impersonator_token_file: Option<Spanned<String>>,
    /// `true`: kubefold renews the tokens in `tokenFile` and `impersonatorTokenFile` at half their life; they are those of
    /// ServiceAccounts that may make tokens for themselves. `kubefold join` sets it. Default false.
    #[serde(default)]
    pub(super) renew_tokens: bool,
    /// With `server`: the name in the server's certificate. Default: the host of `server`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) tls_server_name: Option<Spanned<String>>,
    /// With `server`: an `http://` or `socks5://` proxy. Default: the proxy of the environment (`HTTPS_PROXY`,
    /// `NO_PROXY`).
    #[serde(rename = "proxyURL")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) proxy_url: Option<Spanned<String>>,
    /// `true`: the cluster that kubefold itself runs in, with the pod's ServiceAccount.
    #[cfg_attr(test, schemars(with = "Option<bool>"))]
    pub(super) in_cluster: Option<Spanned<bool>>,
    /// The member's share of divided numbers, relative to the other members: from 0 (no share) to 1000000. Default 1.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) weight: Option<Spanned<i64>>,
    /// Labels by which policies select members.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, String>"))]
    pub(super) labels: BTreeMap<String, Spanned<String>>,
    /// Objects that do not tolerate these taints go to other members.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<RawTaint>"))]
    pub(super) taints: Vec<Spanned<RawTaint>>,
    /// Declares the member gone for now: reads do not wait for it and show none of its objects. Default false.
    #[serde(default)]
    pub(super) absent: bool,
    /// Declares that this is a new cluster in the place of an earlier one of the member's name: it gets the namespaces, definitions and
    /// other shared objects that were made through the fleet. Without it, a member that is another cluster gets nothing: it may be
    /// a mistake in a kubeconfig. Default false.
    #[serde(default)]
    pub(super) rebuilt: bool,
    /// Time limits of requests to this member.
    #[serde(default)]
    pub(super) deadlines: RawDeadlines,
    /// The maximum of concurrent requests to this member, without watches. kubefold answers one more with 429. One user has
    /// at most a [share](design/members.md#shares), and a tenth is kubefold's own. From 1 to 100000, default 200.
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    pub(super) in_flight_max: Option<Spanned<i64>>,
}

/// Time limits, as Go durations (`1m30s`), from `1ms` to `1h`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawDeadlines {
    /// The time to connect, TLS included. Default `5s`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) connect: Option<Spanned<String>>,
    /// The time to the head of a read's answer, for each page of a list, and for an answer that stalls. Default `30s`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) read: Option<Spanned<String>>,
    /// The time for a write. A kube-apiserver works on one for up to 34 s, so a shorter limit leads to unknown
    /// outcomes. Default `40s`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) write: Option<Spanned<String>>,
    /// The interval between two health probes. Default `2s`. With more than 50 members it is at least 40 ms for each member.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) probe: Option<Spanned<String>>,
}

/// A rule that makes objects shared.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawShared {
    /// The API group. Default: the core group.
    #[serde(default)]
    pub(super) group: String,
    /// The plural resource, such as `clusterroles`.
    pub(super) resource: String,
    /// Only objects in this namespace. Default: in all namespaces.
    pub(super) namespace: Option<String>,
    /// Only objects with this name or, with a trailing `*`, this prefix. Default: all names.
    pub(super) name: Option<String>,
}

/// A taint of a member.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTaint {
    /// The taint's key.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) key: Spanned<String>,
    /// The taint's value. Default: empty.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) value: Option<Spanned<String>>,
    /// `NoSchedule` (the default): objects get no new parts there. `NoExecute`: the parts that they have there move, too.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) effect: Option<Spanned<String>>,
}

/// A placement policy.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPolicy {
    /// The name, for the annotation `kubefold.io/placement-policy`.
    #[schemars(with = "String")]
    pub(super) name: Spanned<String>,
    /// The objects that the policy applies to. Default: only objects that name the policy.
    #[serde(rename = "match")]
    #[schemars(with = "Option<RawMatch>")]
    pub(super) matches: Option<Spanned<RawMatch>>,
    /// `divide`, `duplicate` or `one`. Default: the strategy of the kind.
    #[schemars(with = "Option<String>")]
    pub(super) strategy: Option<Spanned<String>>,
    /// The names of the members that objects may go to. Default: all members.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) members: Option<Spanned<Vec<Spanned<String>>>>,
    /// The members that objects may go to, as a label selector over the members' labels, such as `region in (eu,us)`.
    #[schemars(with = "Option<String>")]
    pub(super) member_selector: Option<Spanned<String>>,
    /// Groups of members, in place of `members` and `memberSelector`: all of an object goes to the first group that can take it.
    /// A group can take an object if it has a candidate, and all of a divided number fits there (`max`, and the free capacity if
    /// `weights` go by it). Objects without pods that are in every member, and companions, go to the members of all groups.
    #[schemars(with = "Option<Vec<RawGroup>>")]
    pub(super) groups: Option<Spanned<Vec<Spanned<RawGroup>>>>,
    /// `static` (the weights of the members; the default), `capacity` (the free capacity of each member: allocatable minus requests)
    /// or `use` (allocatable minus what its metrics API says is used; no member gets more than its requests leave room for. Without
    /// metrics as `capacity`).
    #[schemars(with = "Option<String>")]
    pub(super) weights: Option<Spanned<String>>,
    /// The minimum of a divided number in each part, as far as the total allows.
    #[schemars(with = "Option<i64>")]
    pub(super) min: Option<Spanned<i64>>,
    /// The maximum of a divided number in each part.
    #[schemars(with = "Option<i64>")]
    pub(super) max: Option<Spanned<i64>>,
    /// Terms for single members, by member name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, RawTerms>")]
    pub(super) per_member: BTreeMap<String, Spanned<RawTerms>>,
    /// A member label, or a list of labels with numbers of groups. A divided number is spread evenly over the values of the first
    /// label, then of the next within each of those, and last by weight. Members that lack a label get no part.
    #[schemars(with = "Option<Vec<RawSpreadLevel>>")]
    pub(super) spread: Option<Spanned<RawSpread>>,
    /// `all` (every member by its weight; the default), or `fewest`: the fewest members that can carry the whole number, those
    /// with the most free capacity first. It needs `weights: capacity`.
    #[schemars(with = "Option<String>")]
    pub(super) prefer: Option<Spanned<String>>,
    /// If not everything fits: `true` places what fits, with a warning; `false` (the default) refuses with 422.
    #[schemars(with = "Option<bool>")]
    pub(super) partial: Option<Spanned<bool>>,
    /// `ConfigMap`, `Secret`, or both: objects of these kinds that a workload's pods name and that only one member has are
    /// carried along to the members that get a part of the workload. Default: none.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) carry: Vec<Spanned<String>>,
    /// The members' taints that the objects tolerate.
    #[serde(default)]
    #[schemars(with = "Vec<RawToleration>")]
    pub(super) tolerations: Vec<Spanned<RawToleration>>,
    /// Moves objects away from a member that does not answer. Default: only `kubefold drain` does.
    pub(super) failover: Option<RawFailover>,
    /// Divides objects anew from time to time, and brings overrides that changed to parts that stand. Default: only
    /// `kubefold rebalance` does.
    pub(super) rebalance: Option<RawRebalance>,
}

/// When objects leave a member that does not answer.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawFailover {
    /// How long the member has not answered, as a Go duration from `1s` to `168h`: `5m`.
    #[schemars(with = "String")]
    pub(super) after: Spanned<String>,
    /// `true`: also objects that may then run twice, such as StatefulSets and what mounts claims. Default false.
    #[serde(default)]
    pub(super) force: bool,
}

/// When objects are divided anew.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawRebalance {
    /// How often kubefold looks, as a Go duration from `1s` to `168h`: `10m`. It moves what two looks in a row find, and brings
    /// overrides at the first.
    #[schemars(with = "String")]
    pub(super) every: Spanned<String>,
    /// The part of an object's replicas that must be in the wrong member before the object moves: from `0%` to `100%`. Replicas
    /// that no node of their member has room for move in any case. Default `10%`.
    #[schemars(with = "Option<String>")]
    pub(super) threshold: Option<Spanned<String>>,
}

/// A group of members of a policy. Exactly one of the fields is given.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawGroup {
    /// The names of the group's members.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) members: Option<Spanned<Vec<Spanned<String>>>>,
    /// The group's members, as a label selector over the members' labels.
    #[schemars(with = "Option<String>")]
    pub(super) member_selector: Option<Spanned<String>>,
}

/// The objects that a policy matches. At least one condition is required, and all of them must hold.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawMatch {
    /// Kinds: a built-in one by its name, `Deployment`, others with their group, `Widget.example.com`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) kinds: Vec<Spanned<String>>,
    /// Namespaces. A trailing `*` makes a prefix.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) namespaces: Vec<Spanned<String>>,
    /// A label selector over the object's labels.
    #[schemars(with = "Option<String>")]
    pub(super) labels: Option<Spanned<String>>,
    /// Annotations that the object must have.
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

/// The terms of a policy for one member.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTerms {
    /// Replaces the member's own weight. Only with `weights: static`.
    #[schemars(with = "Option<i64>")]
    pub(super) weight: Option<Spanned<i64>>,
    /// Replaces the policy's `min`.
    #[schemars(with = "Option<i64>")]
    pub(super) min: Option<Spanned<i64>>,
    /// Replaces the policy's `max`.
    #[schemars(with = "Option<i64>")]
    pub(super) max: Option<Spanned<i64>>,
    /// Replaces the registry of every image in this member's part: a host, optionally with port and path.
    #[schemars(with = "Option<String>")]
    pub(super) registry: Option<Spanned<String>>,
    /// A JSON patch (RFC 6902) of this member's part.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(super) patch: Option<Spanned<serde_json::Value>>,
}

/// A toleration, like a pod's.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawToleration {
    /// The key. Without it, every taint (requires `operator: Exists`).
    #[schemars(with = "Option<String>")]
    pub(super) key: Option<Spanned<String>>,
    /// `Equal` (the default) or `Exists`.
    #[schemars(with = "Option<String>")]
    pub(super) operator: Option<Spanned<String>>,
    /// The value that `Equal` compares. Default: empty.
    #[schemars(with = "Option<String>")]
    pub(super) value: Option<Spanned<String>>,
    /// `NoSchedule` or `NoExecute`. Default: every effect.
    #[schemars(with = "Option<String>")]
    pub(super) effect: Option<Spanned<String>>,
    /// How long a taint `NoExecute` is tolerated, from when kubefold first sees it. Units: seconds. Default: for ever.
    #[schemars(with = "Option<i64>")]
    pub(super) toleration_seconds: Option<Spanned<i64>>,
}
