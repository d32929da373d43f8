//! Discovery documents, of both forms: as they are written, and as they are read.
//!
//! Source: KEP-3352; field order as in kubernetes/api `apidiscovery/v2/types.go` and kubernetes/apimachinery
//! `pkg/apis/meta/v1/types.go`.

use std::{borrow::Cow, fmt::Write as _};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::HeaderValue;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256, Sha512};

use crate::resource::api_version;

/// The media type of the aggregated form.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A piece of text of a document.
pub type Text<'a> = Cow<'a, str>;

/// `APIGroupDiscoveryList`, v2; v2beta1 has the same fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupDiscoveryList<'a> {
    #[serde(skip_deserializing)]
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_deserializing, skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    #[serde(default)]
    metadata: Metadata<'a>,
    /// The groups.
    #[serde(default, deserialize_with = "list_or_null")]
    pub items: Vec<GroupDiscovery<'a>>,
}

/// Metadata of which only the name is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Metadata<'a> {
    /// The name; empty is not written.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Text<'a>,
}

/// A group in the aggregated form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupDiscovery<'a> {
    /// Its name; empty for the core group.
    #[serde(default)]
    pub metadata: Metadata<'a>,
    /// Its versions, the preferred one first.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionDiscovery<'a>>,
}

/// A version of a group in the aggregated form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionDiscovery<'a> {
    /// Such as `v1`.
    pub version: Text<'a>,
    /// Its resources.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceDiscovery<'a>>,
    /// `Current` or `Stale`.
    #[serde(default)]
    pub freshness: Text<'a>,
}

/// A resource in the aggregated form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDiscovery<'a> {
    /// Plural.
    pub resource: Text<'a>,
    /// The kind of its objects; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<KindDiscovery<'a>>,
    /// `Namespaced` or `Cluster`.
    #[serde(default)]
    pub scope: Text<'a>,
    /// Singular; may be empty.
    #[serde(default)]
    pub singular_resource: Text<'a>,
    /// What can be done with it.
    #[serde(default, deserialize_with = "list_or_null")]
    pub verbs: Vec<Text<'a>>,
    /// Such as `po`.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<Text<'a>>,
    /// Such as `all`.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<Text<'a>>,
    /// What stands below it.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<SubresourceDiscovery<'a>>,
}

/// A subresource in the aggregated form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubresourceDiscovery<'a> {
    /// Such as `status`.
    pub subresource: Text<'a>,
    /// The kind of its objects; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<KindDiscovery<'a>>,
    /// The kinds that it takes.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub accepted_types: Vec<KindDiscovery<'a>>,
    /// What can be done with it.
    #[serde(default, deserialize_with = "list_or_null")]
    pub verbs: Vec<Text<'a>>,
}

/// A kind in the aggregated form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KindDiscovery<'a> {
    /// Group; empty is core.
    #[serde(default)]
    pub group: Text<'a>,
    /// Version.
    #[serde(default)]
    pub version: Text<'a>,
    /// Kind.
    #[serde(default)]
    pub kind: Text<'a>,
}

/// `APIVersions`, of `/api`. It has no `apiVersion`, since release 1.1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApiVersions<'a> {
    #[serde(skip_deserializing)]
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_deserializing, skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    /// The versions of the core group.
    #[serde(default, deserialize_with = "list_or_null")]
    pub versions: Vec<Text<'a>>,
    #[serde(rename = "serverAddressByClientCIDRs", skip_deserializing)]
    server_addresses: Vec<ServerAddress<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    #[serde(rename = "serverAddress")]
    server_address: Text<'a>,
}

/// `APIGroupList`, of `/apis`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApiGroupList<'a> {
    #[serde(skip_deserializing)]
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_deserializing, skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    /// All groups but the core.
    #[serde(default, deserialize_with = "list_or_null")]
    pub groups: Vec<ApiGroup<'a>>,
}

/// `APIGroup`, of `/apis/<group>`; in a list it does not say its type.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroup<'a> {
    #[serde(skip_deserializing, skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_deserializing, skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    /// Its name.
    pub name: Text<'a>,
    /// Its versions.
    #[serde(default, deserialize_with = "list_or_null")]
    pub versions: Vec<ApiGroupVersion<'a>>,
    /// The version that clients should speak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_version: Option<ApiGroupVersion<'a>>,
}

/// A version of a group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiGroupVersion<'a> {
    /// Such as `apps/v1`.
    #[serde(default)]
    pub group_version: Text<'a>,
    /// Such as `v1`.
    #[serde(default)]
    pub version: Text<'a>,
}

/// `APIResourceList`, of `/api/v1` and `/apis/<group>/<version>`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceList<'a> {
    #[serde(skip_deserializing)]
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_deserializing, skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    /// Such as `apps/v1`.
    #[serde(default)]
    pub group_version: Text<'a>,
    /// Resources, each with its subresources behind it.
    #[serde(default, deserialize_with = "list_or_null")]
    pub resources: Vec<ApiResource<'a>>,
}

/// A resource, or a subresource such as `pods/status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiResource<'a> {
    /// Plural.
    pub name: Text<'a>,
    /// Singular; empty for a subresource.
    #[serde(default)]
    pub singular_name: Text<'a>,
    /// Whether its objects are in namespaces.
    #[serde(default)]
    pub namespaced: bool,
    /// Group of the kind; empty where it is the list's.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub group: Text<'a>,
    /// Version of the kind; empty where it is the list's.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub version: Text<'a>,
    /// Kind; empty where there is none.
    #[serde(default)]
    pub kind: Text<'a>,
    /// What can be done with it.
    #[serde(default, deserialize_with = "list_or_null")]
    pub verbs: Vec<Text<'a>>,
    /// Such as `po`.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<Text<'a>>,
    /// Such as `all`.
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<Text<'a>>,
    /// See [`storage_version_hash`]; empty where it is not known.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub storage_version_hash: Text<'a>,
}

/// A hash of the version in which objects of a kind are stored: whoever migrates stored objects sees that it has changed.
///
/// Source: kubernetes/apiserver `pkg/endpoints/discovery/storageversionhash.go`.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let hash = Sha256::digest(format!("{group}/{version}/{kind}"));
    BASE64_STANDARD.encode(hash.get(..8).unwrap_or_default())
}

/// Go writes `null` for an empty slice.
fn list_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl<'a> GroupDiscoveryList<'a> {
    /// The document of these groups.
    pub fn new(items: Vec<GroupDiscovery<'a>>) -> Self {
        let (kind, api_version) = ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2");
        Self { kind, api_version, metadata: Metadata::default(), items }
    }
}

impl<'a> ApiVersions<'a> {
    /// The document of a server at this host.
    pub fn new(versions: Vec<Text<'a>>, host: &'a str) -> Self {
        let server_address = ServerAddress { client_cidr: "0.0.0.0/0", server_address: host.into() };
        Self { kind: "APIVersions", api_version: "", versions, server_addresses: vec![server_address] }
    }
}

impl<'a> ApiGroupList<'a> {
    /// The document of these groups.
    pub fn new(groups: Vec<ApiGroup<'a>>) -> Self {
        Self { kind: "APIGroupList", api_version: "v1", groups }
    }
}

impl<'a> ApiGroup<'a> {
    /// A group of these versions, as it stands in a list.
    pub fn new(name: &'a str, versions: impl Iterator<Item = &'a str>, preferred: Option<&'a str>) -> Self {
        let named = |version: &'a str| ApiGroupVersion {
            group_version: api_version(name, version).into(),
            version: version.into(),
        };
        Self {
            kind: "",
            api_version: "",
            name: name.into(),
            versions: versions.map(named).collect(),
            preferred_version: preferred.map(named),
        }
    }

    /// The same as a document of its own.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { kind: "APIGroup", api_version: "v1", ..self }
    }
}

impl<'a> ApiResourceList<'a> {
    /// The document of a version of a group. The core group's has no `apiVersion`, since release 1.1.
    pub fn new(group: &str, version: &str, resources: Vec<ApiResource<'a>>) -> Self {
        let own_version = if group.is_empty() { "" } else { "v1" };
        let group_version = api_version(group, version).into();
        Self { kind: "APIResourceList", api_version: own_version, group_version, resources }
    }
}

/// Compact JSON with the newline that Go's encoder ends a document with.
pub fn compact(document: &impl Serialize) -> Bytes {
    // Texts and lists only: serialization has no way to fail.
    let mut json = serde_json::to_vec(document).unwrap_or_default();
    json.push(b'\n');
    json.into()
}

/// JSON for people, two spaces deep, as `json.MarshalIndent` gives it.
pub fn pretty(document: &impl Serialize) -> Bytes {
    serde_json::to_vec_pretty(document).unwrap_or_default().into()
}

/// A compact document again, for people.
pub fn indented(json: &[u8]) -> Bytes {
    serde_json::from_slice::<serde_json::Value>(json)
        .map_or_else(|_| Bytes::copy_from_slice(json), |value| pretty(&value))
}

/// An aggregated document and its tag.
#[derive(Clone, Debug)]
pub struct Aggregated {
    /// The document.
    pub json: Bytes,
    /// Of the bytes alone: equal documents have equal tags, whoever gives them.
    pub etag: HeaderValue,
}

impl Aggregated {
    /// Encodes a document.
    ///
    /// Source of the tag: kubernetes/apiserver `pkg/endpoints/discovery/aggregated/etag.go`, which hashes the list
    /// before its kind is set.
    pub fn new(items: Vec<GroupDiscovery<'_>>) -> Self {
        #[derive(Serialize)]
        struct Bare<'a> {
            metadata: Metadata<'a>,
            items: &'a [GroupDiscovery<'a>],
        }
        let document = GroupDiscoveryList::new(items);
        let bare = serde_json::to_vec(&Bare { metadata: Metadata::default(), items: &document.items });
        let mut etag = String::with_capacity(130);
        etag.push('"');
        for byte in Sha512::digest(bare.unwrap_or_default()) {
            // Writing to a string does not fail.
            let _ = write!(etag, "{byte:02X}");
        }
        etag.push('"');
        let etag = HeaderValue::from_str(&etag).unwrap_or_else(|_| HeaderValue::from_static("\"\""));
        Self { json: compact(&document), etag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_the_fields_and_order_of_a_kube_apiserver() {
        let text = |json: Bytes| String::from_utf8(json.to_vec()).unwrap();
        let group = || ApiGroup::new("apps", ["v1"].into_iter(), Some("v1"));
        assert_eq!(
            text(compact(&group().alone())),
            r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#
                .to_owned()
                + "\n"
        );
        let list = text(compact(&ApiGroupList::new(vec![group()])));
        assert!(list.starts_with(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":["#));
        let versions = text(compact(&ApiVersions::new(vec!["v1".into()], "h:1")));
        assert_eq!(
            versions.trim_end(),
            r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"h:1"}]}"#
        );
        let core = text(compact(&ApiResourceList::new("", "v1", Vec::new())));
        assert_eq!(core.trim_end(), r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[]}"#);
        let none = Aggregated::new(Vec::new());
        assert_eq!(
            text(none.json).trim_end(),
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}"#
        );
        let hash = Sha512::digest(br#"{"metadata":{},"items":[]}"#);
        let wanted: String = hash.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(none.etag.to_str().unwrap(), format!("\"{wanted}\""));
    }

    #[test]
    fn null_is_an_empty_list() {
        let list: ApiResourceList<'_> =
            serde_json::from_str(r#"{"kind":"APIResourceList","groupVersion":"v1","resources":null}"#).unwrap();
        assert!(list.resources.is_empty());
        let group: ApiGroup<'_> = serde_json::from_str(r#"{"name":"a","versions":null}"#).unwrap();
        assert!(group.versions.is_empty() && group.preferred_version.is_none());
    }
}
