//! What is kept of members' objects over a restart.

use std::time::Duration;

use serde_saphyr::Spanned;

use crate::config::{
    Problem,
    checked::{Checked, fault},
    duration,
    raw::RawMirror,
};
use kubefold_wire::{names::is_dns_subdomain, quantity::Quantity, resource::Gvr};

/// The size of the file where none is given. Units: bytes.
const BYTES_MAX_DEFAULT: u64 = 4 << 30;
/// With less there would be no room for the objects that every cluster has. Units: bytes.
const BYTES_LEAST: u64 = 1 << 20;
/// What was deleted is looked through each minute.
const KEEP_DELETED_LEAST: Duration = Duration::from_mins(1);
const KEEP_DELETED_MOST: Duration = Duration::from_hours(365 * 24);
/// Groups of which kubefold places, folds or reads the objects itself, as it does in core but for events.
const NEEDED: [&str; 12] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "discovery.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// What is kept of members' objects over a restart, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Something is kept.
    pub enabled: bool,
    /// What is not.
    pub exclude: Vec<ResourcePattern>,
    /// What is in its tables alone, and in no memory.
    pub stored: Vec<ResourcePattern>,
    /// What may be there alone once others have more than `memory_max`.
    pub storable: Vec<ResourcePattern>,
    /// The objects in memory have no more than this as JSON, as far as `storable` allows. Units: bytes.
    pub memory_max: Option<u64>,
    /// The file has no more than this. Units: bytes.
    pub bytes_max: u64,
    /// What is deleted is kept for so long; absent where it is not kept at all.
    pub keep_deleted: Option<Duration>,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            exclude: Vec::new(),
            stored: Vec::new(),
            storable: Vec::new(),
            memory_max: None,
            bytes_max: BYTES_MAX_DEFAULT,
            keep_deleted: None,
        }
    }
}

/// Resources by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    /// The plural; `*` is every resource of the group.
    resource: String,
    /// Empty is core.
    group: String,
}

impl ResourcePattern {
    /// That one resource, in whatever version.
    pub fn of(gvr: &Gvr) -> Self {
        Self { resource: gvr.resource.to_string(), group: gvr.group.to_string() }
    }

    /// Says whether it names that resource, in whatever version.
    pub fn names(&self, gvr: &Gvr) -> bool {
        *self.group == *gvr.group && (self.resource == "*" || *self.resource == *gvr.resource)
    }

    /// Says whether it names what kubefold needs in memory, or what has no text that SQL can search: Secrets are encrypted.
    fn is_needed(&self) -> bool {
        match (self.group.as_str(), self.resource.as_str()) {
            ("", resource) => resource != "events",
            (group, _) => NEEDED.contains(&group),
        }
    }

    /// Reads `events`, `leases.coordination.k8s.io` or `*.example.com`; `None` if it is none.
    fn parse(text: &str) -> Option<Self> {
        let (resource, group) = match text.split_once('.') {
            Some((resource, group)) if is_dns_subdomain(group) => (resource, group),
            Some(_) => return None,
            None => (text, ""),
        };
        let is_plural =
            !resource.is_empty() && resource.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let fits = is_plural || resource == "*" && !group.is_empty();
        fits.then(|| Self { resource: resource.to_owned(), group: group.to_owned() })
    }
}

/// Checks the section.
pub(super) fn mirror(raw: Option<&Spanned<RawMirror>>) -> Checked<MirrorConfig> {
    let Some(raw) = raw.map(|raw| &raw.value) else { return Ok(MirrorConfig::default()) };
    let pattern = |at: &Spanned<String>| match ResourcePattern::parse(&at.value) {
        Some(pattern) => Ok(pattern),
        None => fault(at, Problem::Resource { resource: at.value.clone() }),
    };
    let exclude: Vec<ResourcePattern> = raw.exclude.iter().map(pattern).collect::<Checked<_>>()?;
    let in_tables = |field: &'static str, at: &Spanned<String>| match (pattern(at)?, at.value.clone()) {
        (pattern, resource) if pattern.is_needed() => fault(at, Problem::NeverStored { resource, field }),
        (pattern, resource) if exclude.contains(&pattern) => fault(at, Problem::StoredExcluded { resource, field }),
        (pattern, _) => Ok(pattern),
    };
    let stored = raw.stored.iter().map(|at| in_tables("stored", at)).collect::<Checked<_>>()?;
    let storable: Vec<ResourcePattern> =
        raw.storable.iter().map(|at| in_tables("storable", at)).collect::<Checked<_>>()?;
    let memory_max = raw.memory.as_ref().map(|at| bytes_of("memory", at)).transpose()?;
    match (&raw.memory, raw.storable.first()) {
        (Some(at), None) | (None, Some(at)) => return fault(at, Problem::MemoryAlone),
        _ => {}
    }
    Ok(MirrorConfig {
        enabled: raw.enabled.unwrap_or(true),
        exclude,
        stored,
        storable,
        memory_max,
        bytes_max: raw.max_bytes.as_ref().map(|at| bytes_of("maxBytes", at)).transpose()?.unwrap_or(BYTES_MAX_DEFAULT),
        keep_deleted: raw.keep_deleted.as_ref().map(keep_deleted).transpose()?,
    })
}

fn keep_deleted(at: &Spanned<String>) -> Checked<Duration> {
    match duration::parse(&at.value).filter(|keep| (KEEP_DELETED_LEAST..=KEEP_DELETED_MOST).contains(keep)) {
        Some(keep) => Ok(keep),
        None => fault(at, Problem::KeepDeleted { value: at.value.clone() }),
    }
}

fn bytes_of(field: &'static str, at: &Spanned<String>) -> Checked<u64> {
    let bytes = Quantity::parse(&at.value).ok().and_then(|quantity| u64::try_from(quantity.value()).ok());
    match bytes.filter(|bytes| *bytes >= BYTES_LEAST) {
        Some(bytes) => Ok(bytes),
        None => fault(at, Problem::MirrorBytes { field, value: at.value.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_a_resource_of_one_group_or_all_of_a_group() {
        let names = |pattern: &str, group: &str, resource: &str| {
            ResourcePattern::parse(pattern).unwrap().names(&Gvr::new(group, "v1", resource))
        };
        assert!(names("events", "", "events") && !names("events", "events.k8s.io", "events"));
        assert!(names("leases.coordination.k8s.io", "coordination.k8s.io", "leases"));
        assert!(names("*.example.com", "example.com", "widgets") && !names("*.example.com", "", "widgets"));
        for text in ["", "*", "Event", "events/status", "a.", "*.Example"] {
            assert_eq!(ResourcePattern::parse(text), None, "{text}");
        }
    }
}
