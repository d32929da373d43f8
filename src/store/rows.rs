//! Objects of members, one by one: under their own names and as their members sent them, whatever the fleet view makes of them.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use crate::{
    config::MemberName,
    store::{entry::Entry, naming::Naming, part::Part, revision::Revision},
};
use kubefold_wire::resource::Gvr;

/// One object of one member.
#[derive(Clone, Debug)]
pub struct Row {
    entry: Arc<Entry>,
    /// Its share, where the entry is made of several members' parts.
    part: Option<Arc<Part>>,
}

impl Row {
    /// The objects that an entry stands for: itself, or its parts.
    pub fn all_of(entry: &Arc<Entry>) -> SmallVec<[Self; 1]> {
        match entry.parts.as_ref().filter(|_| entry.folded) {
            None if entry.folded => SmallVec::new(),
            None => SmallVec::from_iter([Self { entry: Arc::clone(entry), part: None }]),
            Some(parts) => {
                let of_part = |part: &Arc<Part>| Self { entry: Arc::clone(entry), part: Some(Arc::clone(part)) };
                parts.list.iter().map(of_part).collect()
            }
        }
    }

    /// Those of them that have this UID of their own.
    ///
    /// Shape: as cheap as a comparison for an entry that has none, which is nearly all of those that are looked at.
    pub fn of_uid(entry: &Arc<Entry>, uid: &str) -> SmallVec<[Self; 1]> {
        if !entry.folded && entry.uid() != uid {
            return SmallVec::new();
        }
        let mut rows = Self::all_of(entry);
        rows.retain(|row| row.uid() == uid);
        rows
    }

    /// A visible object as a whole.
    pub fn visible(entry: Arc<Entry>) -> Self {
        Self { entry, part: None }
    }

    /// The visible object that it is, or is a part of.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The member that has it.
    pub fn member(&self) -> Option<&MemberName> {
        self.part.as_ref().map(|part| &part.member).or_else(|| self.entry.holders.first())
    }

    /// Its own name.
    pub fn name<'a>(&'a self, naming: &Naming, gvr: &Gvr) -> Cow<'a, str> {
        match self.part {
            Some(_) => Cow::Borrowed(self.entry.name()),
            None => naming.own(gvr, self.entry.name()),
        }
    }

    /// Its own UID.
    pub fn uid(&self) -> &str {
        self.part.as_ref().map_or_else(|| self.entry.uid(), |part| &part.uid)
    }

    /// The fleet's revision of this state of it, or of all parts.
    pub fn revision(&self) -> Revision {
        self.entry.parts.as_ref().map_or(self.entry.revision, |parts| parts.revision.max(self.entry.revision))
    }

    /// Its labels, where they are known without a look into its document. `None`: only the document has them.
    pub fn labels(&self) -> Option<Option<&str>> {
        self.part.is_none().then(|| self.entry.labels())
    }

    /// Its document as its member sent it, `kind` and `apiVersion` included.
    pub fn document(&self) -> Cow<'_, str> {
        if let Some(part) = &self.part {
            return part.document.text();
        }
        let mut out = Vec::with_capacity(self.entry.json().len());
        self.entry.write_original(&mut out);
        Cow::Owned(String::from_utf8(out).unwrap_or_default())
    }
}
