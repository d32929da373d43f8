//! ClusterProfiles of the SIG Multicluster's inventory, and the members that they are.
//!
//! Source: KEP-4322 (the API), KEP-5339 (access providers, and the Secret reader).

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;

use super::object::{MemberObject, MemberSpec, ProfileRef, Refusal, SecretRef};
use crate::{config::ClusterProfiles, karmada::Metadata};
use kubefold_wire::{
    golang::Quoted,
    names::{is_dns_subdomain, label_value, qualified_name},
};

/// The access provider whose credential is in a Secret. Others are plug-ins, which kubefold does not run.
const SECRET_READER: &str = "secretreader";
/// The extension of an access provider that says which Secret it is.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";
/// Of the Secrets of kubefold-system that are copies.
const COPY_PREFIX: &str = "cluster-profile.";

/// A member as its ClusterProfile describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Profile {
    /// Its name, which is that of the ClusterProfile.
    pub(super) name: String,
    /// The spec of its object.
    pub(super) spec: MemberSpec,
    /// The name of the Secret with its credential, beside the ClusterProfile.
    pub(super) secret: String,
    /// Why kubefold cannot reach it by what the ClusterProfile says.
    pub(super) refusal: Option<Refusal>,
}

/// A ClusterProfile of which no member is made, or whose member cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    /// Its name.
    pub(super) name: String,
    /// In one word.
    pub(super) reason: &'static str,
    /// Why.
    pub(super) why: String,
}

/// What an inventory has.
pub(super) struct Found {
    /// The UID of the cluster that has it.
    pub(super) cluster_uid: Arc<str>,
    /// The clusters, with what is wrong with each.
    pub(super) profiles: Vec<Profile>,
    /// The Secrets that they name, as far as they are there.
    pub(super) secrets: BTreeMap<String, Value>,
    /// What cannot be read.
    pub(super) problems: Vec<Problem>,
}

/// As much of a ClusterProfile as is read. `v1alpha2` has no `credentialProviders`, which are the same as access providers.
#[derive(Deserialize)]
struct ClusterProfile {
    metadata: ProfileMetadata,
    #[serde(default)]
    status: ProfileStatus,
}

#[derive(Deserialize)]
struct ProfileMetadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProfileStatus {
    properties: Vec<Property>,
    access_providers: Vec<Provider>,
    credential_providers: Vec<Provider>,
}

#[derive(Deserialize)]
struct Property {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Provider {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: String,
    insecure_skip_tls_verify: bool,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
    extensions: Vec<Extension>,
}

#[derive(Deserialize)]
struct Extension {
    name: String,
    extension: Value,
}

impl Profile {
    /// Reads a ClusterProfile of an inventory, which is in the cluster of this UID.
    ///
    /// Errors: it is none.
    pub(super) fn read(text: &str, source: &ClusterProfiles, cluster_uid: &str) -> serde_json::Result<Self> {
        let ClusterProfile { metadata: ProfileMetadata { name, labels }, status } = serde_json::from_str(text)?;
        let from = ProfileRef {
            member: source.member.to_string(),
            namespace: source.namespace.clone(),
            name: name.clone(),
            cluster_uid: cluster_uid.to_owned(),
        };
        let all = labels_of(&status.properties, labels);
        let copy = SecretRef { name: copy_name(&name) };
        let spec = MemberSpec::of_profile(from.clone(), all, copy);
        let mut providers = status.access_providers.into_iter().chain(status.credential_providers);
        let Some(provider) = providers.find(|provider| provider.name == SECRET_READER) else {
            return Ok(Self { secret: name.clone(), name, spec, refusal: Some(Refusal::NoProvider(from)) });
        };
        let secret = provider.cluster.secret().unwrap_or_else(|| name.clone());
        let refusal = provider.cluster.refusal(&from, &secret);
        let mut this = Self { name, spec: provider.cluster.reach(spec), secret, refusal };
        if this.refusal.is_none() {
            let wrong = this.object().without_credential().err().filter(|error| !error.is_of_name());
            this.refusal = wrong.map(|error| Refusal::Profile { from, why: error.to_string() });
        }
        Ok(this)
    }

    /// Its object, as it is made.
    pub(super) fn object(&self) -> MemberObject {
        let metadata = Metadata { name: self.name.clone(), ..Metadata::default() };
        MemberObject { metadata, spec: self.spec.clone(), status: None }
    }
}

impl Cluster {
    /// The name of the Secret, if it is said.
    fn secret(&self) -> Option<String> {
        let of_exec = self.extensions.iter().find(|extension| extension.name == EXEC_EXTENSION)?;
        let name = of_exec.extension.get("clusterName")?.as_str()?;
        Some(name.to_owned()).filter(|name| !name.is_empty())
    }

    fn refusal(&self, from: &ProfileRef, secret: &str) -> Option<Refusal> {
        let refuse = |why: &str| Some(Refusal::Profile { from: from.clone(), why: why.to_owned() });
        match () {
            () if self.insecure_skip_tls_verify => {
                refuse("it has insecure-skip-tls-verify; kubefold's credential would be for whoever answers there")
            }
            () if self.certificate_authority_data.is_empty() && !self.certificate_authority.is_empty() => {
                refuse("it has a path as certificate-authority; write certificate-authority-data")
            }
            () if !is_dns_subdomain(secret) => refuse(&format!("{} is no name of a Secret", Quoted(secret))),
            () => None,
        }
    }

    /// The spec with the way to this cluster.
    fn reach(self, spec: MemberSpec) -> MemberSpec {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        MemberSpec {
            server: self.server,
            ca_bundle: given(self.certificate_authority_data),
            tls_server_name: given(self.tls_server_name),
            proxy_url: given(self.proxy_url),
            ..spec
        }
    }
}

/// The name of the copy of a Secret in kubefold-system.
pub(super) fn copy_name(profile: &str) -> String {
    format!("{COPY_PREFIX}{profile}")
}

/// The ClusterProfile whose Secret a Secret of kubefold-system is a copy of.
pub(super) fn copied(secret: &str) -> Option<&str> {
    secret.strip_prefix(COPY_PREFIX)
}

/// Properties and labels that are labels of a member. Where both have a key, the label counts.
fn labels_of(properties: &[Property], labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let properties = properties.iter().map(|property| (property.name.clone(), property.value.clone()));
    let is_own = |key: &str| {
        key.split_once('/').is_some_and(|(prefix, _)| prefix == "kubefold.io" || prefix.ends_with(".kubefold.io"))
    };
    let fits = |key: &str, value: &str| qualified_name(key).is_empty() && label_value(value).is_empty() && !is_own(key);
    properties.chain(labels).filter(|(key, value)| fits(key, value)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source() -> ClusterProfiles {
        ClusterProfiles {
            member: crate::config::MemberName::new("hub").unwrap(),
            namespace: "fleet".to_owned(),
            selector: String::new(),
            secret_namespace: "fleet".to_owned(),
        }
    }

    fn read(status: &Value) -> Profile {
        let profile = json!({"metadata": {"name": "spoke-1", "labels": {"env": "prod", "kubefold.io/x": "y"}},
            "spec": {"clusterManager": {"name": "ours"}}, "status": status});
        Profile::read(&profile.to_string(), &source(), "uid").unwrap()
    }

    fn provider(cluster: &Value) -> Value {
        json!({"accessProviders": [{"name": "gke", "cluster": {"server": "https://gke"}},
            {"name": "secretreader", "cluster": cluster}]})
    }

    #[test]
    fn a_profile_is_a_member_by_its_secret_reader() {
        let mut status = provider(&json!({"server": "https://spoke:6443", "tls-server-name": "spoke.example.com",
            "proxy-url": "http://proxy:3128", "extensions": [{"name": "client.authentication.k8s.io/exec",
                "extension": {"clusterName": "one"}}]}));
        status["properties"] = json!([{"name": "topology.kubernetes.io/region", "value": "eu"},
            {"name": "env", "value": "test"}, {"name": "note", "value": "no label value"}]);
        let profile = read(&status);
        assert_eq!((profile.name.as_str(), profile.secret.as_str(), &profile.refusal), ("spoke-1", "one", &None));
        let spec = json!(profile.spec);
        assert_eq!(spec["labels"], json!({"env": "prod", "topology.kubernetes.io/region": "eu"}));
        assert_eq!((spec["server"].as_str(), spec["weight"].as_u64()), (Some("https://spoke:6443"), Some(1)));
        assert_eq!(spec["tlsServerName"], "spoke.example.com");
        assert_eq!(spec["proxyURL"], "http://proxy:3128");
        assert_eq!(spec["credentialsSecretRef"]["name"], "cluster-profile.spoke-1");
        let from = json!({"member": "hub", "namespace": "fleet", "name": "spoke-1", "clusterUID": "uid"});
        assert_eq!(spec["clusterProfileRef"], from);
        // What is not said is the name of the profile; v1alpha1's older list is read, too.
        let older = json!({"credentialProviders": [{"name": "secretreader", "cluster": {"server": "https://a"}}]});
        assert_eq!((read(&older).secret, read(&older).refusal), ("spoke-1".to_owned(), None));
    }

    #[test]
    fn a_profile_that_kubefold_cannot_use_says_why() {
        let told = |status: Value| {
            let refusal = read(&status).refusal.unwrap();
            (refusal.reason(), refusal.to_string())
        };
        for status in [json!({}), json!({"accessProviders": [{"name": "gke", "cluster": {"server": "https://a"}}]})] {
            let (reason, told) = told(status);
            assert!(reason == "NoAccessProvider" && told.contains("has no access provider \"secretreader\""), "{told}");
        }
        for (cluster, why) in [
            (json!({"server": "a:6443"}), "is not a valid address"),
            (json!({}), "server"),
            (json!({"server": "https://a", "insecure-skip-tls-verify": true}), "insecure-skip-tls-verify"),
            (json!({"server": "https://a", "certificate-authority": "/etc/ca"}), "certificate-authority-data"),
            (json!({"server": "https://a", "certificate-authority-data": "x"}), "certificateAuthorityData"),
            (json!({"server": "https://a", "proxy-url": "ftp://x"}), "ftp"),
            (
                json!({"server": "https://a", "extensions": [{"name": "client.authentication.k8s.io/exec",
                    "extension": {"clusterName": "../x"}}]}),
                "\"../x\" is no name of a Secret",
            ),
        ] {
            let (reason, told) = told(provider(&cluster));
            assert!(reason == "ProfileInvalid" && told.contains(why), "{why}: {told}");
            assert!(told.starts_with("ClusterProfile fleet/spoke-1 of hub: "), "{told}");
        }
    }
}
