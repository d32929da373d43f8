//! The visible form of a placed object, but for the sums: it is made once for a state of its home. An event of another part
//! puts the sums' digits in and reads no document.

use smallvec::SmallVec;

use crate::{
    placement::fold::{FoldKind, Numbers, Sums},
    store::{
        entry::{Edits, Entry},
        incoming::push_revision,
        parts::Parts,
    },
};

/// What a placed object looks like, with the home's own numbers.
#[derive(Debug)]
pub(super) struct Template {
    body: Entry,
    referents: SmallVec<[u64; 8]>,
    numbers: Numbers,
}

impl Template {
    /// `None`: the body is no object.
    pub(super) fn of(body: Entry) -> Option<Self> {
        let numbers = Numbers::of(body.text_and_metadata().0).ok()?;
        Some(Self { referents: body.referents().collect(), numbers, body })
    }

    /// The UID that it shows.
    pub(super) fn uid(&self) -> &str {
        self.body.uid()
    }

    /// The object, with what its parts come to.
    pub(super) fn with(&self, sums: &Sums, parts: &Parts, kind: FoldKind, edits: &mut Edits) -> Entry {
        let mut draft = self.body.draft(&self.referents);
        edits.clear();
        edits.put(draft.resource_version.clone(), |out| push_revision(parts.revision, out));
        for edit in sums.edits(draft.document, &self.numbers, &parts.list, kind, parts.behind.len()) {
            edits.add(&edit);
        }
        draft.revision = parts.revision;
        draft.build(edits)
    }
}
