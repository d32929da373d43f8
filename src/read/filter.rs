//! Which objects a reader sees, and under which name.

use std::{borrow::Cow, sync::Arc};

use crate::{
    store::{Audience, Entry, FleetStore, Interest, KindSpec, Record, Sight, Transition},
    view::FleetSelector,
};
use kubefold_wire::{
    selector::{FieldSelector, Subject},
    watch::EventType,
};

/// A namespace and selectors, and the name that the answer echoes.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Empty for all.
    pub(super) namespace: String,
    pub(super) labels: FleetSelector,
    pub(super) fields: FieldSelector,
    /// Member-local objects have their member's name behind their own.
    pub(super) suffixed: bool,
    /// The caller's own name for the one object that is selected, where that is not its visible name.
    pub(super) echo: Option<String>,
    /// What the reader may see; absent where it is everything.
    pub(super) limit: Option<Limit>,
}

/// An object as a reader sees it: itself, or what some of its parts make.
pub(super) type Seen<'e> = Cow<'e, Arc<Entry>>;

/// Says whether two states of an object, of which other parts may have changed, are the same to a reader.
pub(super) fn makes_the_same(was: &Seen<'_>, is: &Seen<'_>) -> bool {
    let may_be = was.revision == is.revision || matches!(is, Cow::Owned(_));
    may_be && was.is_same_but_for_revision(is)
}

/// The members of which a reader may see something, and who knows what their parts alone make.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) audience: Audience,
    /// They are all members that there are.
    pub(super) is_all: bool,
    pub(super) store: Arc<FleetStore>,
}

impl Filter {
    /// Says whether only the namespace decides.
    pub(super) fn is_namespace_only(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.limit.is_none()
    }

    /// Says whether what is selected may be counted without a look at it.
    pub(super) fn is_countable(&self) -> bool {
        let sees_all = self.limit.as_ref().is_none_or(|limit| limit.is_all);
        sees_all && self.labels.is_everything() && self.fields.is_everything()
    }

    /// The only namespace in which something can match; empty: any.
    pub(super) fn sought_namespace(&self) -> &str {
        if self.namespace.is_empty() { self.fields.namespace().unwrap_or_default() } else { &self.namespace }
    }

    /// What a watcher that selects so may see at most.
    pub(super) fn interest(&self, spec: &KindSpec) -> Interest {
        match (self.fields.name(), self.sought_namespace(), self.fields.node()) {
            (Some(name), "", _) if !spec.namespaced => Interest::Object(name.into()),
            (Some(name), namespace, _) if !namespace.is_empty() => {
                Interest::Object(format!("{namespace}/{name}").into())
            }
            (_, _, Some(node)) => Interest::Node(node.into()),
            (_, "", None) => Interest::Everything,
            (_, namespace, None) => Interest::Namespace(namespace.into()),
        }
    }

    /// Whose objects the reader may see.
    pub(super) fn audience(&self) -> &Audience {
        self.limit.as_ref().map_or(&Audience::Everyone, |limit| &limit.audience)
    }

    /// An object as the reader sees it, where he selects it.
    pub(super) fn selected<'e>(&self, entry: &'e Arc<Entry>) -> Option<Seen<'e>> {
        self.seen(entry).filter(|seen| self.matches(seen))
    }

    /// An object as the reader sees it: itself, or what some of its parts make.
    pub(super) fn seen<'e>(&self, entry: &'e Arc<Entry>) -> Option<Seen<'e>> {
        let Some(Limit { audience, store, .. }) = &self.limit else { return Some(Cow::Borrowed(entry)) };
        match audience.sight(entry) {
            Sight::Whole => Some(Cow::Borrowed(entry)),
            Sight::Parts | Sight::Nothing => store.seen_by(audience, entry).map(Cow::Owned),
        }
    }

    /// What an event is to a watcher that selects so: entering the selector is ADDED, leaving it DELETED with the state before.
    pub(super) fn judge(&self, record: &Record) -> Option<Transition> {
        let now = self.selected(&record.entry);
        match record.event_type {
            EventType::Modified => {
                let before = record.previous.as_ref().and_then(|previous| self.selected(previous));
                match (before, now) {
                    (Some(before), Some(now)) => (!makes_the_same(&before, &now)).then_some(Transition::Modified),
                    (None, Some(_)) => Some(Transition::Added),
                    (Some(_), None) => Some(Transition::Left),
                    (None, None) => None,
                }
            }
            EventType::Deleted => now.is_some().then_some(Transition::Deleted),
            _ => now.is_some().then_some(Transition::Added),
        }
    }

    fn matches(&self, entry: &Entry) -> bool {
        if !self.namespace.is_empty() && entry.namespace() != self.namespace {
            return false;
        }
        if !self.fields.is_everything() && !self.fields.matches(&self.subject(entry)) {
            return false;
        }
        if self.labels.is_everything() {
            return true;
        }
        let holders: smallvec::SmallVec<[&str; 4]> = entry.holders.iter().map(|name| name.as_str()).collect();
        self.labels.matches(entry.labels(), &holders)
    }

    fn subject<'a>(&self, entry: &'a Entry) -> Subject<'a> {
        let member = entry.holders.first().filter(|_| self.suffixed && !entry.folded);
        Subject {
            namespace: entry.namespace(),
            name: entry.name(),
            json: entry.json(),
            suffix: ["@", member.map_or("", |member| member.as_str())],
        }
    }
}
