//! What is known of a row.

use std::{borrow::Cow, sync::LazyLock};

use kubefold_wire::{locate::Paths, selector::text_of};

/// What is known of a row without a look into its document.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The member that has it.
    pub cluster: &'a str,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Its own name.
    pub name: &'a str,
    /// Its UID in its member.
    pub uid: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// The group of its kind.
    pub group: &'a str,
    /// The JSON of its labels, if it has any.
    pub labels: Option<&'a str>,
    /// Its revision.
    pub revision: u64,
    /// When it was deleted; 0 while it exists. Units: microseconds of Unix time.
    pub deleted_us: i64,
}

impl Facts<'_> {
    /// The JSON of the labels that a document has.
    pub fn labels_of(json: &str) -> Option<&str> {
        static LABELS: LazyLock<Paths> = LazyLock::new(|| Paths::new([(0, ["metadata", "labels"].as_slice())]));
        first(&LABELS, json)
    }

    /// When the document says that the object was created.
    pub(super) fn created<'j>(&self, json: &'j str) -> Option<Cow<'j, str>> {
        static CREATED: LazyLock<Paths> =
            LazyLock::new(|| Paths::new([(0, ["metadata", "creationTimestamp"].as_slice())]));
        first(&CREATED, json).and_then(text_of)
    }
}

/// What a path leads to first.
pub(super) fn first<'j>(paths: &Paths, json: &'j str) -> Option<&'j str> {
    let mut found = Vec::new();
    paths.locate_valid(json, &mut found).ok()?;
    json.get(found.first()?.range.clone())
}
