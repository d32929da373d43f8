//! What members serve as documents: pieces of aggregated discovery, and a member's whole catalog for a later process.

use std::sync::Arc;

use kubefold_wire::discovery::{
    GroupDiscovery, GroupDiscoveryList, KindDiscovery, Metadata, ResourceDiscovery, SubresourceDiscovery, Text,
    VersionDiscovery,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    parse::{ParseError, parse_aggregated, parse_server_version},
    served::{Freshness, Group, MemberCatalog, Resource, ResponseKind, Scope, Subresource, Version},
};

/// A member's catalog as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// Aggregated discovery of all its groups, the core group first.
    groups: Box<RawValue>,
    /// What it answered on `/version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Box<RawValue>>,
}

impl MemberCatalog {
    /// As a document that [`Self::parse`] reads.
    pub fn document(&self) -> String {
        let groups = self.groups.iter().map(|group| GroupDiscovery::from(&**group)).collect();
        let raw = |value: serde_json::Result<Box<RawValue>>| value.unwrap_or_else(|_| RawValue::NULL.to_owned());
        let version = self.server.as_ref().map(|server| raw(serde_json::value::to_raw_value(&server.document)));
        let kept = Kept { groups: raw(serde_json::value::to_raw_value(&GroupDiscoveryList::new(groups))), version };
        // Text and lists of text: serialization has no way to fail.
        serde_json::to_string(&kept).unwrap_or_default()
    }

    /// Reads what [`Self::document`] wrote.
    ///
    /// Errors: it is another document.
    pub fn parse(document: &str) -> Result<Self, ParseError> {
        let kept: Kept = serde_json::from_str(document).map_err(|source| ParseError::of("kept catalog", source))?;
        let groups = parse_aggregated(kept.groups.get().as_bytes())?.into_iter().map(Arc::new).collect();
        let server = kept.version.map(|version| parse_server_version(version.get().as_bytes())).transpose()?;
        Ok(Self { groups, server: server.map(Arc::new) })
    }
}

impl Freshness {
    /// As discovery has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::Stale => "Stale",
        }
    }
}

impl Scope {
    /// As discovery has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaced => "Namespaced",
            Self::Cluster => "Cluster",
        }
    }
}

impl<'a> From<&'a Group> for GroupDiscovery<'a> {
    fn from(group: &'a Group) -> Self {
        let versions = group.versions.iter().map(VersionDiscovery::from).collect();
        Self { metadata: Metadata { name: Text::Borrowed(&group.name) }, versions }
    }
}

impl<'a> From<&'a Version> for VersionDiscovery<'a> {
    fn from(version: &'a Version) -> Self {
        Self {
            version: Text::Borrowed(&version.version),
            resources: version.resources.iter().map(ResourceDiscovery::from).collect(),
            freshness: version.freshness.as_str().into(),
        }
    }
}

impl<'a> From<&'a Resource> for ResourceDiscovery<'a> {
    fn from(resource: &'a Resource) -> Self {
        Self {
            resource: Text::Borrowed(&resource.resource),
            response_kind: resource.kind.as_ref().map(KindDiscovery::from),
            scope: resource.scope.as_str().into(),
            singular_resource: Text::Borrowed(&resource.singular),
            verbs: words(&resource.verbs),
            short_names: words(&resource.short_names),
            categories: words(&resource.categories),
            subresources: resource.subresources.iter().map(SubresourceDiscovery::from).collect(),
        }
    }
}

impl<'a> From<&'a Subresource> for SubresourceDiscovery<'a> {
    fn from(subresource: &'a Subresource) -> Self {
        Self {
            subresource: Text::Borrowed(&subresource.subresource),
            response_kind: subresource.kind.as_ref().map(KindDiscovery::from),
            accepted_types: subresource.accepted.iter().map(KindDiscovery::from).collect(),
            verbs: words(&subresource.verbs),
        }
    }
}

impl<'a> From<&'a ResponseKind> for KindDiscovery<'a> {
    fn from(kind: &'a ResponseKind) -> Self {
        let [group, version, kind] = [&kind.group, &kind.version, &kind.kind].map(|word| Text::Borrowed(&**word));
        Self { group, version, kind }
    }
}

/// Words as a document has them.
pub fn words(words: &[Arc<str>]) -> Vec<Text<'_>> {
    words.iter().map(|word| Text::Borrowed(&**word)).collect()
}
