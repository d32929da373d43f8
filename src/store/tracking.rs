//! What is remembered of a member's changes: the values.

use std::{collections::HashMap, sync::Arc};

use crate::store::{entry::Entry, part::Part};

/// An object as its member gave it. It holds on to what the store has, and copies nothing.
#[derive(Clone, Debug)]
pub enum MemberDocument {
    /// Of a member-local object.
    Local(Arc<Entry>),
    /// Of a folded one.
    Part(Arc<Part>),
}

impl MemberDocument {
    /// Its revision in its member.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Local(entry) => entry.provenance.member_rv(),
            Self::Part(part) => part.member_rv,
        }
    }

    /// Its UID in its member.
    pub fn uid(&self) -> &str {
        match self {
            Self::Local(entry) => entry.uid(),
            Self::Part(part) => &part.uid,
        }
    }

    /// Appends the member's own bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Local(entry) => entry.write_original(out),
            Self::Part(part) => out.extend_from_slice(part.document.text().as_bytes()),
        }
    }
}

/// Where a member's objects in a store stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The UID of the member's cluster.
    pub cluster_uid: Arc<str>,
    /// The member's revision, from which its watch can go on.
    pub revision: u64,
    /// The generation of the definition by which the objects were read; 0 where the kind has none.
    pub definition: u64,
}

/// What changed since it was asked for last.
#[derive(Clone, Debug)]
pub struct Changes {
    /// Where the objects stand with these changes.
    pub position: Position,
    /// Anything may have changed: `FleetStore::documents` has all objects, and the next `FleetStore::take_changes` what
    /// changes while they are read.
    pub is_whole: bool,
    /// The changed objects by own key; `None`: it is gone.
    pub objects: HashMap<String, Option<MemberDocument>>,
}

/// What is remembered of a member's changes.
#[derive(Debug)]
pub(super) struct Tracking {
    pub(super) definition: u64,
    pub(super) is_whole: bool,
    pub(super) changed: HashMap<String, Option<MemberDocument>>,
}
