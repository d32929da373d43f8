//! What an earlier process showed of a kind when it ended: docs/design/revisions.md#restarts.
//!
//! An object that looks as it did then has the revision that it had then. Where all of them do, and there are no others, the log begins
//! where the earlier one ended, and watches go on.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use aws_lc_rs::digest::{Context, SHA256};

use crate::store::{entry::Entry, revision::Revision, snapshot::Snapshot};

/// What the encoded form begins with.
const FORMAT: u64 = 1;
const NUMBER_LEN: usize = size_of::<u64>();

/// What a process showed of a kind when it ended. It has no object, and knows each again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The revision of the newest event.
    pub(super) head: Revision,
    /// The last revision that was given out for any kind. What is told of later ones is not known.
    pub(super) last: Revision,
    /// By a number that stands for the key.
    objects: HashMap<u64, Known>,
}

/// How one object was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// A number that stands for all of it but the revision.
    form: u64,
    revision: Revision,
    /// Since when its parts were as they were; 0 of an object without parts.
    parts: Revision,
}

impl Earlier {
    /// What a snapshot shows, where `last` is the last revision that was given out.
    ///
    /// Shape: reads the bytes of all objects.
    pub(super) fn of(snapshot: &Snapshot, last: Revision) -> Self {
        let known = |entry: &Arc<Entry>| {
            let parts = entry.parts.as_ref().map_or(Revision(0), |parts| parts.revision);
            (digest_of(entry.key()), Known { form: entry.form(), revision: entry.revision, parts })
        };
        let (head, last) = (snapshot.revision, last.max(snapshot.revision));
        Self { head, last, objects: snapshot.objects.values().map(known).collect() }
    }

    /// As bytes. Shape: 32 for each object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity((3 + 4 * self.objects.len()) * NUMBER_LEN);
        let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
        [FORMAT, self.head.0, self.last.0].into_iter().for_each(&mut put);
        for (key, Known { form, revision, parts }) in &self.objects {
            [*key, *form, revision.0, parts.0].into_iter().for_each(&mut put);
        }
        out
    }

    /// The same from bytes. `None`: they are none of this version's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<NUMBER_LEN>();
        let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let ([FORMAT, head, last], rows) = numbers.split_first_chunk()? else { return None };
        let (rows, too_few) = rows.as_chunks();
        if !rest.is_empty() || !too_few.is_empty() {
            return None;
        }
        let known = |[key, form, revision, parts]: &[u64; 4]| {
            (*key, Known { form: *form, revision: Revision(*revision), parts: Revision(*parts) })
        };
        Some(Self { head: Revision(*head), last: Revision(*last), objects: rows.iter().map(known).collect() })
    }
}

/// A store that fills, and what an earlier process showed of it.
#[derive(Debug)]
pub(super) struct Recognizing {
    pub(super) earlier: Earlier,
    /// Objects of the store that look as they did, by what stands for their keys.
    recognized: HashSet<u64>,
}

impl Recognizing {
    /// Nothing is in the store yet.
    pub(super) fn new(earlier: Earlier) -> Self {
        Self { earlier, recognized: HashSet::new() }
    }

    /// Gives an object that looks as it did the revision that it had; it takes the place of `before`.
    pub(super) fn replaces(&mut self, before: Option<&Entry>, after: Option<&mut Entry>) {
        let Some(key) = before.or(after.as_deref()).map(|entry| digest_of(entry.key())) else { return };
        self.recognized.remove(&key);
        let Some((entry, known)) = after.zip(self.earlier.objects.get(&key)) else { return };
        if known.form == entry.form() && entry.stamp_all(known.revision, known.parts) {
            self.recognized.insert(key);
        }
    }

    pub(super) fn is_whole(&self, objects: usize) -> bool {
        self.recognized.len() == objects && objects == self.earlier.objects.len()
    }
}

impl Entry {
    /// A number that stands for all of it but its revision: the document, the revision that it has in its member, and whose parts it
    /// is made of. So one that was changed there and back is another.
    fn form(&self) -> u64 {
        let (before, behind) = self.around_revision();
        let mut context = Context::new(&SHA256);
        [before, behind].into_iter().flatten().for_each(|piece| context.update(piece));
        context.update(&self.provenance.member_rv().to_le_bytes());
        for part in self.parts.iter().flat_map(|parts| parts.list.iter()) {
            context.update(part.member.as_str().as_bytes());
            context.update(part.uid.as_bytes());
            context.update(&part.member_rv.to_le_bytes());
        }
        first_of(context)
    }

    /// Makes this the state of `revision`, whose parts have been as they are since `parts`. Says whether that could be done, as
    /// [`Self::stamp`] does.
    fn stamp_all(&mut self, revision: Revision, parts: Revision) -> bool {
        let is_stamped = self.stamp(revision);
        if let Some(of) = self.parts.as_mut().and_then(Arc::get_mut).filter(|_| is_stamped) {
            of.revision = parts;
        }
        is_stamped
    }
}

/// A number that stands for some bytes, in any process.
pub fn digest_of(bytes: &[u8]) -> u64 {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    first_of(context)
}

fn first_of(context: Context) -> u64 {
    u64::from_le_bytes(context.finish().as_ref().first_chunk().copied().unwrap_or_default())
}
