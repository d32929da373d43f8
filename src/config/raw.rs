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
