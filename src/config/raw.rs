//! `clusters.yaml` as it is written: every value with the line that it stands on, nothing checked yet.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawConfig {
    #[serde(default)]
    pub(super) members: Vec<Spanned<RawMember>>,
    pub(super) names: Option<Spanned<String>>,
    pub(super) shared: Option<Vec<Spanned<RawShared>>>,
    #[serde(default)]
    pub(super) policies: Vec<Spanned<RawPolicy>>,
}

/// One entry of `members`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawMember {
    pub(super) name: Spanned<String>,
    pub(super) kubeconfig: Option<Spanned<String>>,
    pub(super) context: Option<Spanned<String>>,
    pub(super) server: Option<Spanned<String>>,
    pub(super) certificate_authority: Option<Spanned<String>>,
    pub(super) certificate_authority_data: Option<Spanned<String>>,
    pub(super) client_certificate: Option<Spanned<String>>,
    pub(super) client_certificate_data: Option<Spanned<String>>,
    pub(super) client_key: Option<Spanned<String>>,
    pub(super) client_key_data: Option<Spanned<String>>,
    pub(super) token: Option<Spanned<String>>,
    pub(super) token_file: Option<Spanned<String>>,
    pub(super) tls_server_name: Option<Spanned<String>>,
    #[serde(rename = "proxyURL")]
    pub(super) proxy_url: Option<Spanned<String>>,
    pub(super) in_cluster: Option<Spanned<bool>>,
    pub(super) weight: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) taints: Vec<Spanned<RawTaint>>,
    #[serde(default)]
    pub(super) absent: bool,
    #[serde(default)]
    pub(super) deadlines: RawDeadlines,
    pub(super) in_flight_max: Option<Spanned<i64>>,
}

/// `deadlines` of a member, as Go durations.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawDeadlines {
    pub(super) connect: Option<Spanned<String>>,
    pub(super) read: Option<Spanned<String>>,
    pub(super) write: Option<Spanned<String>>,
    pub(super) probe: Option<Spanned<String>>,
}

/// One entry of `shared`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawShared {
    #[serde(default)]
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

/// One entry of `taints` of a member.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTaint {
    pub(super) key: Spanned<String>,
    pub(super) value: Option<Spanned<String>>,
    pub(super) effect: Option<Spanned<String>>,
}

/// One entry of `policies`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPolicy {
    pub(super) name: Spanned<String>,
    #[serde(rename = "match")]
    pub(super) matches: Option<Spanned<RawMatch>>,
    pub(super) strategy: Option<Spanned<String>>,
    pub(super) members: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) member_selector: Option<Spanned<String>>,
    pub(super) weights: Option<Spanned<String>>,
    pub(super) min: Option<Spanned<i64>>,
    pub(super) max: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) per_member: BTreeMap<String, Spanned<RawTerms>>,
    pub(super) spread: Option<Spanned<String>>,
    pub(super) partial: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) tolerations: Vec<Spanned<RawToleration>>,
}

/// `match` of a policy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawMatch {
    #[serde(default)]
    pub(super) kinds: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) namespaces: Vec<Spanned<String>>,
    pub(super) labels: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

/// One value of `perMember` of a policy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTerms {
    pub(super) weight: Option<Spanned<i64>>,
    pub(super) min: Option<Spanned<i64>>,
    pub(super) max: Option<Spanned<i64>>,
    pub(super) registry: Option<Spanned<String>>,
    pub(super) patch: Option<Spanned<serde_json::Value>>,
}

/// One entry of `tolerations` of a policy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawToleration {
    pub(super) key: Option<Spanned<String>>,
    pub(super) operator: Option<Spanned<String>>,
    pub(super) value: Option<Spanned<String>>,
    pub(super) effect: Option<Spanned<String>>,
}
