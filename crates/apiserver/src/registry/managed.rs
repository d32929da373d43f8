//! Who owns which fields: what the room `patch` wants to know of a kind.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    kinds::Kind,
    patch::{Subject, Versions, managed},
    registry::{Part, Registry, WriteOptions, meta, versions::Conversions},
    schema::{Type, arrange},
};
use kubefold_wire::{media::is_built_in, resource::api_version};

/// A kind and its other versions.
pub(super) struct Described<'k> {
    kind: &'k Kind,
    api_version: String,
    others: Others<'k>,
}

struct Others<'k> {
    kind: &'k Kind,
    conversions: &'k Conversions,
    versions: Vec<Arc<Kind>>,
}

/// The type of a kind's objects, if it is known.
pub(super) fn typed(kind: &Kind) -> Option<Type<'_>> {
    kind.types.named(&kind.type_name)
}

/// An object of a built-in kind as Kubernetes writes it.
pub(super) fn arranged(kind: &Kind, object: Value) -> Value {
    match typed(kind).filter(|typed| typed.go().is_some()) {
        Some(typed) => arrange(typed, object),
        None => object,
    }
}

impl Registry {
    pub(super) fn described<'k>(&self, kind: &'k Kind, conversions: &'k Conversions) -> Described<'k> {
        let catalog = self.catalog();
        let same = |known: &&Arc<Kind>| known.stored_group() == kind.stored_group() && known.kind == kind.kind;
        let versions = catalog.kinds().iter().filter(same).cloned().collect();
        let others = Others { kind, conversions, versions };
        Described { kind, api_version: api_version(&kind.group, &kind.version), others }
    }

    /// Says in an object whose its fields are, as of a write of this client. A write of nobody changes no owners.
    pub(super) fn track(
        &self,
        kind: &Kind,
        live: Option<&Value>,
        new: &mut Value,
        options: &WriteOptions,
        now: &str,
        conversions: &Conversions,
    ) {
        if options.manager.is_empty() {
            if let Some(live) = live {
                meta::set(new, "managedFields", live.pointer("/metadata/managedFields").cloned());
            }
            return;
        }
        let described = self.described(kind, conversions);
        let write = managed::Track { live, manager: &options.manager, now, subject: described.subject(options.part) };
        managed::track(write, new);
    }
}

impl Described<'_> {
    pub(super) fn subject(&self, part: Part) -> Subject<'_> {
        let custom = !is_built_in(&self.kind.group);
        Subject {
            api_version: &self.api_version,
            kind: &self.kind.kind,
            schema: typed(self.kind),
            custom,
            subresource: if part == Part::Status { "status" } else { "" },
            reset: match part {
                Part::Whole if self.kind.has_status => &[&["status"]],
                Part::Whole => &[],
                Part::Status if custom => &[&["spec"], &["metadata"]],
                Part::Status => &[&["spec"]],
                Part::Special => &[],
            },
            versions: &self.others,
        }
    }
}

impl Versions for Others<'_> {
    fn convert(&self, object: &Value, api_version_asked: &str) -> Option<(Value, Option<Type<'_>>)> {
        let is_asked = |known: &&Arc<Kind>| api_version(&known.group, &known.version) == api_version_asked;
        let version = self.versions.iter().find(is_asked)?;
        if self.kind.strategy.converter().is_some() {
            return Some((self.conversions.of(object, api_version_asked)?, typed(version)));
        }
        let stored = self.kind.strategy.to_storage(object.clone()).ok()?;
        let mut value = version.strategy.from_storage(stored).ok()?;
        meta::set_type(&mut value, version);
        Some((value, typed(version)))
    }
}
