//! A member as an object: what is written in it, and what that makes of it.

use std::{collections::BTreeMap, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    config::{Access, MemberConfig, OWN_NAMESPACE, SpecError, member_of},
    karmada::Metadata,
};
use kubefold_wire::{access::text, golang::Quoted};

/// A cluster of the fleet.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct MemberObject {
    /// Its name is that of the member: a DNS label.
    #[serde(default)]
    pub(super) metadata: Metadata,
    /// What is configured of it.
    #[serde(default)]
    pub(super) spec: MemberSpec,
    /// How it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<MemberStatus>,
}

/// What is configured of a member. One that stands in clusters.yaml has weight, labels and absent only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemberSpec {
    /// The URL of the cluster's API server: `https://host:port`, optionally with a path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) server: String,
    /// The certificate authorities that sign the server's certificate: PEM, or base64 of PEM. Default: `ca.crt` of the Secret,
    /// or those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ca_bundle: Option<String>,
    /// The name in the server's certificate. Default: the host of server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tls_server_name: Option<String>,
    /// An http:// or socks5:// proxy on the way to the server.
    #[serde(default, rename = "proxyURL", skip_serializing_if = "Option::is_none")]
    pub(super) proxy_url: Option<String>,
    /// The Secret of kubefold-system with kubefold's credential in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) credentials_secret_ref: Option<SecretRef>,
    /// Its share of replicas that are divided by static weights: from 0 (no share) to 1000000.
    #[serde(default = "one")]
    pub(super) weight: u32,
    /// Labels, by which policies choose it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    /// Objects that do not tolerate these go to other members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) taints: Vec<Taint>,
    /// It is declared gone for now: reads do not wait for it and show none of its objects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) absent: bool,
    /// It is declared a new cluster in the place of an earlier one of its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) rebuilt: bool,
    /// Time limits of requests to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadlines: Option<Deadlines>,
    /// The maximum of concurrent requests to it, without watches: from 1 to 100000. Default 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) in_flight_max: Option<u32>,
    /// kubefold renews the tokens in the Secret at half of their life. They are those of ServiceAccounts that may make tokens for
    /// themselves, such as `kubefold join` makes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) renew_tokens: bool,
    /// The ClusterProfile that it is made of. kubefold alone writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cluster_profile_ref: Option<ProfileRef>,
}

fn one() -> u32 {
    1
}

impl MemberSpec {
    /// What is shown of a member of `clusters.yaml`.
    pub(super) fn shown(config: &MemberConfig) -> Self {
        Self { weight: config.weight.0, labels: config.labels.clone(), absent: config.absent, ..Self::default() }
    }

    /// That of a ClusterProfile, without the way to the cluster.
    pub(super) fn of_profile(from: ProfileRef, labels: BTreeMap<String, String>, secret: SecretRef) -> Self {
        let (profile, secret) = (Some(from), Some(secret));
        Self { labels, cluster_profile_ref: profile, credentials_secret_ref: secret, ..Self::default() }
    }
}

impl Default for MemberSpec {
    fn default() -> Self {
        Self {
            server: String::new(),
            ca_bundle: None,
            tls_server_name: None,
            proxy_url: None,
            credentials_secret_ref: None,
            weight: one(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            absent: false,
            rebuilt: false,
            deadlines: None,
            in_flight_max: None,
            renew_tokens: false,
            cluster_profile_ref: None,
        }
    }
}

/// The ClusterProfile of which a member is made. kubefold alone writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct ProfileRef {
    /// The member that has the ClusterProfile.
    pub(super) member: String,
    /// Its namespace there.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// The UID of kube-system in the member that has it.
    #[serde(rename = "clusterUID")]
    pub(super) cluster_uid: String,
}

impl fmt::Display for ProfileRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterProfile {}/{} of {}", self.namespace, self.name, self.member)
    }
}

/// A Secret of kubefold-system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct SecretRef {
    /// Its name.
    pub(super) name: String,
}

/// What keeps objects away from a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Taint {
    /// The taint's key.
    key: String,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// NoSchedule (the default): objects get no new parts there. NoExecute: the parts that they have there move, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
}

/// Time limits, as Go durations (`1m30s`), from `1ms` to `1h`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Deadlines {
    /// The time to connect, TLS included. Default `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connect: Option<String>,
    /// The time to the head of a read's answer. Default `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<String>,
    /// The time for a write. Default `40s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write: Option<String>,
    /// The interval between two health probes. Default `2s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<String>,
}

/// How a member is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemberStatus {
    /// ready, degraded, down or unknown.
    pub(super) state: String,
    /// Where it is configured: clusters.yaml, Member, or a ClusterProfile.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) source: String,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) cause: String,
    /// Its Kubernetes version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) version: String,
    /// The UID of its namespace kube-system, which says which cluster it is.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "String::is_empty")]
    pub(super) cluster_uid: String,
    /// Its nodes, if kubefold follows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nodes: Option<usize>,
    /// Its pods, if kubefold follows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pods: Option<usize>,
    /// How long the kind that is furthest behind has not been followed, such as 12s; 0s: all are current.
    pub(super) lag: String,
    /// Ready: it answers and is ready. Accepted, of a member that is no entry of clusters.yaml: it has a credential, and belongs to
    /// the fleet. TokensRenewed: the tokens in its Secret are renewed.
    /// ClusterProfiles, of the member that has them: all of them are members.
    pub(super) conditions: Vec<Condition>,
}

impl MemberStatus {
    /// The condition of a type.
    pub(super) fn condition(&self, of: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.r#type == of)
    }
}

/// One statement about a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition {
    /// Ready, Accepted, TokensRenewed or ClusterProfiles.
    pub(super) r#type: String,
    /// True, False or Unknown.
    pub(super) status: String,
    /// Why it is so, in one word.
    pub(super) reason: String,
    /// Why it is so.
    pub(super) message: String,
    /// When the status changed last.
    pub(super) last_transition_time: String,
}

/// Why a member that is an object does not belong to the fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The spec names none.
    #[error("spec.credentialsSecretRef names no Secret; make one in {OWN_NAMESPACE}, and name it there")]
    NoSecretNamed,
    /// There is no such Secret.
    #[error("there is no Secret {name} in {OWN_NAMESPACE}; make it with the key token, or with tls.crt and tls.key", name = Quoted(.0))]
    SecretNotFound(
        /// Its name.
        String,
    ),
    /// The Secret has nothing to log in with.
    #[error("the Secret {name} has neither token nor tls.crt and tls.key", name = Quoted(.0))]
    NoCredential(
        /// Its name.
        String,
    ),
    /// What the Secret has is wrong, or does not go with the spec.
    #[error("the Secret {} in {OWN_NAMESPACE}: {why}", Quoted(.name))]
    Credential {
        /// Its name.
        name: String,
        /// In the words of clusters.yaml.
        why: String,
    },
    /// The spec is none: another version wrote it.
    #[error("{0}")]
    Spec(
        /// In the words of clusters.yaml.
        String,
    ),
    /// It is of a ClusterProfile that kubefold cannot use.
    #[error("{from}: {why}")]
    Profile {
        /// Which one.
        from: ProfileRef,
        /// In the words of clusters.yaml.
        why: String,
    },
    /// The ClusterProfile says no way that kubefold can go.
    #[error(
        "{0} has no access provider \"secretreader\", and kubefold runs no plug-ins; have the cluster manager offer it, or join the cluster as a Member object"
    )]
    NoProvider(
        /// Which one.
        ProfileRef,
    ),
    /// The member of the ClusterProfile has no credential for it.
    #[error("{from}: the Secret {namespace}/{name} there {what}")]
    ProfileSecret {
        /// Which ClusterProfile.
        from: ProfileRef,
        /// The namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: SecretFault,
    },
    /// What the Secret has is wrong, or does not go with the ClusterProfile.
    #[error("{from}: {why}")]
    ProfileCredential {
        /// Which ClusterProfile.
        from: ProfileRef,
        /// In the words of clusters.yaml.
        why: String,
    },
    /// The Secret of the ClusterProfile was not read yet.
    #[error("{0}: its Secret was not read yet")]
    ProfileUnread(
        /// Which one.
        ProfileRef,
    ),
    /// The file has it.
    #[error("clusters.yaml has a member of this name; delete this object, or take the entry out of the file")]
    NameTaken,
}

/// What is wrong with the Secret of a ClusterProfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SecretFault {
    /// There is none.
    #[error("does not exist; make it with the key token")]
    Missing,
    /// It has no credential.
    #[error("has neither token nor tls.crt and tls.key")]
    Empty,
}

impl Refusal {
    /// In one word.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoSecretNamed
            | Self::SecretNotFound(_)
            | Self::ProfileUnread(_)
            | Self::ProfileSecret { what: SecretFault::Missing, .. } => "SecretNotFound",
            Self::NoCredential(_)
            | Self::Credential { .. }
            | Self::ProfileCredential { .. }
            | Self::ProfileSecret { what: SecretFault::Empty, .. } => "CredentialInvalid",
            Self::NoProvider(_) => "NoAccessProvider",
            Self::Profile { .. } => "ProfileInvalid",
            Self::Spec(_) => "Invalid",
            Self::NameTaken => "NameTaken",
        }
    }
}

impl MemberObject {
    /// Says whether it is written by people, and not the shown side of an entry of clusters.yaml.
    pub(super) fn is_joined(&self) -> bool {
        !self.spec.server.is_empty() || self.spec.cluster_profile_ref.is_some()
    }

    /// Where it is configured.
    pub(super) fn source(&self) -> String {
        match &self.spec.cluster_profile_ref {
            Some(profile) => profile.to_string(),
            None if self.is_joined() => "Member".to_owned(),
            None => "clusters.yaml".to_owned(),
        }
    }

    /// The member without a credential.
    ///
    /// Errors: what is wrong with it first.
    pub(super) fn without_credential(&self) -> Result<MemberConfig, SpecError> {
        member_of(self.fields())
    }

    /// The member with the credential of its Secret, `None` if that is not there.
    ///
    /// Errors: why it is none.
    pub(super) fn with_credential(&self, secret: Option<&Value>) -> Result<MemberConfig, Refusal> {
        let Some(SecretRef { name }) = &self.spec.credentials_secret_ref else { return Err(Refusal::NoSecretNamed) };
        let secret = secret.ok_or_else(|| Refusal::SecretNotFound(name.clone()))?;
        let wrong = |why: String| Refusal::Credential { name: name.clone(), why };
        let credential = Credential::of(secret).map_err(|error| wrong(error.to_string()))?;
        if credential.token.is_none() && credential.certificate.is_none() {
            return Err(Refusal::NoCredential(name.clone()));
        }
        self.without_credential().map_err(|error| Refusal::Spec(error.to_string()))?;
        let mut fields = self.fields();
        let mut put =
            |field: &str, value: Option<String>| value.map(|value| fields.insert(field.to_owned(), value.into()));
        put("token", credential.token);
        put("clientCertificateData", credential.certificate.clone());
        put("clientKeyData", credential.key);
        if self.spec.ca_bundle.is_none() {
            put("certificateAuthorityData", credential.authority);
        }
        let mut member = member_of(fields).map_err(|error| wrong(error.to_string()))?;
        if let (Some(impersonator), Access::Server(server)) = (credential.impersonator, &mut member.access) {
            if credential.certificate.is_some() {
                // A kube-apiserver would know kubefold by the certificate.
                return Err(wrong("both tls.crt and impersonator-token are given; keep one of the two".to_owned()));
            }
            server.impersonator_token = Some(impersonator);
        }
        Ok(member)
    }

    /// The fields of an entry of clusters.yaml.
    fn fields(&self) -> Map<String, Value> {
        // Texts and numbers: serialization has no way to fail.
        let spec = serde_json::to_value(&self.spec).unwrap_or_default();
        let Value::Object(mut fields) = spec else { return Map::new() };
        fields.remove("credentialsSecretRef");
        fields.remove("clusterProfileRef");
        if let Some(bundle) = fields.remove("caBundle") {
            fields.insert("certificateAuthorityData".to_owned(), bundle);
        }
        fields.insert("name".to_owned(), self.metadata.name.clone().into());
        fields
    }
}

/// The keys of a Secret that are read.
pub(super) const SECRET_KEYS: [&str; 5] = ["token", "impersonator-token", "tls.crt", "tls.key", "ca.crt"];

/// The texts of a Secret with which kubefold logs in. The keys are those of Kubernetes' own types of Secrets: a Secret of a
/// ServiceAccount's token can be taken as it is.
struct Credential {
    token: Option<String>,
    impersonator: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    authority: Option<String>,
}

/// A value of a Secret is no text. It is not told which bytes it has.
#[derive(Debug, thiserror::Error)]
#[error("{0} is no text")]
struct Unreadable(&'static str);

impl Credential {
    fn of(secret: &Value) -> Result<Self, Unreadable> {
        let value = |key: &'static str| {
            let encoded = text(secret, &format!("/data/{key}"));
            if encoded.is_empty() {
                return Ok(None);
            }
            let bytes = STANDARD.decode(encoded).map_err(|_| Unreadable(key))?;
            String::from_utf8(bytes).map(Some).map_err(|_| Unreadable(key))
        };
        let trimmed = |key| Ok(value(key)?.map(|token| token.trim().to_owned()));
        Ok(Self {
            token: trimmed("token")?,
            impersonator: trimmed("impersonator-token")?,
            certificate: value("tls.crt")?,
            key: value("tls.key")?,
            authority: value("ca.crt")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(spec: &Value) -> MemberObject {
        serde_json::from_value(json!({"metadata": {"name": "east"}, "spec": spec})).unwrap()
    }

    fn secret(texts: &[(&str, &str)]) -> Value {
        let data: Map<String, Value> =
            texts.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
        json!({"data": data})
    }

    #[test]
    fn a_member_is_its_spec_and_the_credential_of_its_secret() {
        let east = member(&json!({"server": "https://east:6443/", "weight": 3, "labels": {"region": "eu"},
            "taints": [{"key": "full"}], "deadlines": {"read": "5s"}, "inFlightMax": 7,
            "credentialsSecretRef": {"name": "east"}}));
        let both = secret(&[("token", "abc\n"), ("impersonator-token", "def")]);
        let config = east.with_credential(Some(&both)).unwrap();
        assert_eq!((config.name.as_str(), config.weight.0, config.in_flight_max), ("east", 3, 7));
        assert_eq!((config.labels["region"].as_str(), config.taints.len()), ("eu", 1));
        let Access::Server(server) = &config.access else { panic!("{config:?}") };
        assert_eq!((server.server.as_str(), server.token.as_deref()), ("https://east:6443", Some("abc")));
        assert_eq!(server.impersonator_token.as_deref(), Some("def"));
        let told = format!("{config:?}");
        assert!(!told.contains("abc") && !told.contains("def"), "{told}");
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_what_it_has() {
        let east = member(&json!({"server": "https://east", "credentialsSecretRef": {"name": "s"}}));
        let refused = |secret: Option<&Value>| {
            let refusal = east.with_credential(secret).unwrap_err();
            (refusal.reason(), refusal.to_string())
        };
        assert_eq!(refused(None).0, "SecretNotFound");
        assert_eq!(refused(Some(&secret(&[("ca.crt", "x")]))).0, "CredentialInvalid");
        for (texts, why) in [
            (&[("tls.crt", "hunter2")][..], "clientCertificateData"),
            (&[("token", "hunter2"), ("ca.crt", "hunter2")], "certificateAuthorityData"),
        ] {
            let (reason, told) = refused(Some(&secret(texts)));
            assert!(reason == "CredentialInvalid" && told.contains(why) && !told.contains("hunter2"), "{told}");
        }
        let (reason, told) = refused(Some(&json!({"data": {"token": "/w=="}})));
        assert!(reason == "CredentialInvalid" && told.contains("token is no text"), "{told}");
        let nameless = member(&json!({"server": "https://east"}));
        assert_eq!(nameless.with_credential(None).unwrap_err().reason(), "SecretNotFound");
    }

    #[test]
    fn a_spec_is_refused_in_the_words_of_the_file() {
        let told = |spec: Value| member(&spec).without_credential().unwrap_err().to_string();
        assert!(told(json!({"server": "east:6443"})).contains("is not a valid address"));
        assert!(told(json!({"server": "https://east", "caBundle": "x"})).contains("certificateAuthorityData"));
        assert!(told(json!({"server": "https://east", "weight": 2_000_000})).contains("2000000"));
        assert!(told(json!({"server": "https://east", "taints": [{"key": "k", "effect": "Never"}]})).contains("Never"));
    }
}
