//! One visible object: its final bytes, spliced once, and the few facts that reads need.

mod copied;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use crate::{
    config::MemberName,
    store::{parts::Parts, revision::Revision},
};
use kubefold_wire::splice::{Edit, splice};

pub use copied::KnownHolders;

/// The members that hold an object: one for a member-local object. Objects of the same members may share it.
pub type Holders = Arc<[MemberName]>;

/// `namespace/name`, or `name` of a cluster-scoped object: its order is Kubernetes' storage order. All states of an object
/// share one key, and a tree of objects holds on to keys alone where it branches.
pub type Key = arcstr::ArcStr;

/// A visible object.
///
/// One buffer holds the final JSON; of a member-local object what was replaced in it, so that the member's own bytes can be
/// had again without keeping them twice; and the hashes of what the object refers to.
#[derive(Debug)]
pub struct Entry {
    key: Key,
    buffer: Box<[u8]>,
    namespace_len: u32,
    json_len: u32,
    /// How many hashes end the buffer.
    referents: u32,
    type_meta_len: u32,
    labels: Range<u32>,
    resource_version: Range<u32>,
    uid: Range<u32>,
    metadata: Range<u32>,
    node: Range<u32>,
    /// The event that brought this state.
    pub revision: Revision,
    /// Who holds it.
    pub holders: Holders,
    /// Says whether it is one object made of several members' parts.
    pub folded: bool,
    /// It carries a `deletionTimestamp`.
    pub deleting: bool,
    /// Of a folded object what it is made of.
    pub(super) parts: Option<Arc<Parts>>,
    pub(super) provenance: Provenance,
    /// The length of its protobuf message, once one was made; 0 before: every message has metadata.
    pub(super) message_len: AtomicU32,
    /// Its message, while that is kept.
    pub(super) message: ArcSwapOption<Bytes>,
}

// With the counts of an `Arc` it is 160 bytes, which is a size that the allocator has: one more would cost 32.
const _: () = assert!(size_of::<Entry>() <= 144);

/// Bytes of one hash in a buffer.
const HASH_LEN: usize = size_of::<u64>();
/// Bytes in front of what an edit replaced: where that was, how long its successor is, and how long it was.
const UNDO_LEN: usize = 3 * size_of::<u32>();

/// Where the bytes came from. Changed under the sequencer's lock only; readers never look.
#[derive(Debug, Default)]
pub(super) struct Provenance {
    member_rv: AtomicU64,
    incarnation: AtomicU32,
    seen: AtomicU32,
}

impl Provenance {
    pub(super) fn set(&self, member_rv: u64, incarnation: u32, seen: u32) {
        self.member_rv.store(member_rv, Relaxed);
        self.incarnation.store(incarnation, Relaxed);
        self.seen.store(seen, Relaxed);
    }

    pub(super) fn member_rv(&self) -> u64 {
        self.member_rv.load(Relaxed)
    }

    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation.load(Relaxed)
    }

    pub(super) fn seen(&self) -> u32 {
        self.seen.load(Relaxed)
    }

    pub(super) fn see(&self, seen: u32) {
        self.seen.store(seen, Relaxed);
    }
}

impl Entry {
    /// `namespace/name` in Kubernetes' storage order, or `name`.
    pub fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// The same, to be kept.
    pub fn shared_key(&self) -> &Key {
        &self.key
    }

    /// Empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        self.key.get(..self.namespace_len as usize).unwrap_or_default()
    }

    /// The visible name.
    pub fn name(&self) -> &str {
        let start = if self.namespace_len == 0 { 0 } else { self.namespace_len as usize + 1 };
        self.key.get(start..).unwrap_or_default()
    }

    /// The whole object as get and watch give it, `kind` and `apiVersion` included.
    pub fn json(&self) -> &[u8] {
        self.slice(0, self.json_len)
    }

    /// The same as text, and where `metadata` lies in it.
    pub fn text_and_metadata(&self) -> (&str, Range<usize>) {
        (text(self.json()), self.metadata.start as usize..self.metadata.end as usize)
    }

    /// The labels' JSON, if it has any.
    pub fn labels(&self) -> Option<&str> {
        self.part(&self.labels)
    }

    /// The visible UID.
    pub fn uid(&self) -> &str {
        self.part(&self.uid).unwrap_or_default().trim_matches('"')
    }

    /// The visible name of the node that a pod runs on. Absent for a pod on none, and for other kinds.
    pub(super) fn node(&self) -> Option<&str> {
        self.part(&self.node).map(|quoted| quoted.trim_matches('"')).filter(|node| !node.is_empty())
    }

    /// Bytes that the object costs to hold.
    pub fn size(&self) -> usize {
        let parts = self.parts.as_ref().map_or(0, |parts| parts.size());
        self.buffer.len() + self.key.len() + size_of::<Self>() + parts
    }

    /// The same object, made of other parts.
    pub(super) fn with_parts(&self, parts: Parts) -> Self {
        Self {
            key: self.key.clone(),
            buffer: self.buffer.clone(),
            labels: self.labels.clone(),
            resource_version: self.resource_version.clone(),
            uid: self.uid.clone(),
            metadata: self.metadata.clone(),
            node: self.node.clone(),
            holders: Arc::clone(&self.holders),
            parts: Some(Arc::new(parts)),
            provenance: Provenance::default(),
            message_len: AtomicU32::default(),
            message: ArcSwapOption::default(),
            ..*self
        }
    }

    /// What another entry is made from that is this one with edits to its JSON.
    pub(super) fn draft<'a>(&'a self, referents: &'a [u64]) -> Draft<'a> {
        let place = |at: &Range<u32>| at.start as usize..at.end as usize;
        let place_of_some = |at: &Range<u32>| Some(place(at)).filter(|at| !at.is_empty());
        Draft {
            namespace: self.namespace(),
            name: self.name(),
            suffix: [""; 3],
            document: text(self.json()),
            lead: "",
            type_meta_len: self.type_meta_len as usize,
            labels: place_of_some(&self.labels),
            resource_version: place(&self.resource_version),
            uid: place(&self.uid),
            metadata: place(&self.metadata),
            node: place_of_some(&self.node),
            revision: self.revision,
            holders: Arc::clone(&self.holders),
            folded: self.folded,
            deleting: self.deleting,
            referents,
        }
    }

    /// Takes the key that an earlier state of the object has, so that there is one of it.
    pub(super) fn share_key(&mut self, key: &Key) {
        if self.key == *key {
            self.key = key.clone();
        }
    }

    /// Hashes of what the object refers to.
    pub(super) fn referents(&self) -> impl Iterator<Item = u64> {
        let start = self.buffer.len() - HASH_LEN * self.referents as usize;
        let hashes = self.buffer.get(start..).unwrap_or_default().chunks_exact(HASH_LEN);
        hashes.filter_map(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
    }

    /// Makes this the state of `revision`, by which the entry was not dressed. Says whether that could be done: a revision
    /// of more digits has no room.
    pub(super) fn stamp(&mut self, revision: Revision) -> bool {
        let at = self.resource_version.start as usize + 1..(self.resource_version.end as usize).saturating_sub(1);
        let digits = revision.to_string();
        let Some(room) = self.buffer.get_mut(at).filter(|room| room.len() == digits.len()) else { return false };
        room.copy_from_slice(digits.as_bytes());
        self.revision = revision;
        true
    }

    /// Appends the object as an item of a list: built-in kinds leave `kind` and `apiVersion` out there, as Kubernetes does.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        let json = self.json();
        if self.type_meta_len == 0 {
            out.extend_from_slice(json);
        } else {
            out.push(b'{');
            out.extend_from_slice(json.get(1 + self.type_meta_len as usize..).unwrap_or_default());
        }
    }

    /// Appends the whole object as of `revision`: its own, or that of its deletion.
    pub fn write_at(&self, revision: Revision, out: &mut Vec<u8>) {
        let json = self.json();
        if revision == self.revision {
            out.extend_from_slice(json);
            return;
        }
        let at = self.resource_version.start as usize..self.resource_version.end as usize;
        out.extend_from_slice(json.get(..at.start).unwrap_or_default());
        out.push(b'"');
        out.extend_from_slice(revision.to_string().as_bytes());
        out.push(b'"');
        out.extend_from_slice(json.get(at.end..).unwrap_or_default());
    }

    /// Appends `metadata` alone as of `revision`.
    pub fn write_metadata_at(&self, revision: Revision, out: &mut Vec<u8>) {
        let json = self.json();
        let (all, at) = (&self.metadata, &self.resource_version);
        let piece = |start: u32, end: u32| json.get(start as usize..end as usize).unwrap_or_default();
        if revision == self.revision {
            out.extend_from_slice(piece(all.start, all.end));
            return;
        }
        out.extend_from_slice(piece(all.start, at.start));
        out.push(b'"');
        out.extend_from_slice(revision.to_string().as_bytes());
        out.push(b'"');
        out.extend_from_slice(piece(at.end, all.end));
    }

    /// Appends the whole object under another name, for an answer that echoes the name asked.
    ///
    /// `metadata.name` is found again, as this happens once an answer and not once an object.
    pub fn write_named(&self, name: &str, revision: Revision, out: &mut Vec<u8>) {
        let mut plain = Vec::with_capacity(self.json_len as usize);
        self.write_at(revision, &mut plain);
        if name == self.name() {
            out.append(&mut plain);
            return;
        }
        let paths = kubefold_wire::locate::Paths::new([(0, ["metadata", "name"].as_slice())]);
        let mut found = Vec::new();
        let located = std::str::from_utf8(&plain).is_ok_and(|json| paths.locate(json, &mut found).is_ok());
        let mut edits: Vec<Edit<'_>> = match found.first() {
            Some(at) if located => vec![Edit::new(at.range.clone(), kubefold_wire::splice::string(name))],
            _ => Vec::new(),
        };
        splice(&plain, &mut edits, out);
    }

    /// Says whether two states differ in nothing but their revision.
    pub fn is_same_but_for_revision(&self, other: &Self) -> bool {
        self.around_revision() == other.around_revision()
    }

    pub(super) fn around_revision(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        let at = &self.resource_version;
        (self.json().get(..at.start as usize), self.json().get(at.end as usize..))
    }

    /// Appends the member's own bytes, as they were before any splice. For member-local objects only.
    pub(super) fn write_original(&self, out: &mut Vec<u8>) {
        self.original().for_each(|piece| out.extend_from_slice(piece));
    }

    /// Says whether `text`, with `lead` behind its brace, is the member's own document.
    pub(super) fn is_original(&self, text: &str, lead: &str) -> bool {
        let mut wanted = [b"{".as_slice(), lead.as_bytes(), text.as_bytes().get(1..).unwrap_or_default()].into_iter();
        let mut rest: &[u8] = &[];
        for mut piece in self.original() {
            while !piece.is_empty() {
                if rest.is_empty() {
                    let Some(next) = wanted.next() else { return false };
                    rest = next;
                    continue;
                }
                let len = piece.len().min(rest.len());
                if piece.get(..len) != rest.get(..len) {
                    return false;
                }
                (piece, rest) = (piece.get(len..).unwrap_or_default(), rest.get(len..).unwrap_or_default());
            }
        }
        rest.is_empty() && wanted.all(<[u8]>::is_empty)
    }

    /// The pieces that the member's own document is made of.
    fn original(&self) -> impl Iterator<Item = &[u8]> {
        let json = self.json();
        let hashes = HASH_LEN * self.referents as usize;
        let undo = self.buffer.get(self.json_len as usize..self.buffer.len() - hashes).unwrap_or_default();
        let mut state = Some((undo, 0));
        std::iter::from_fn(move || {
            let (undo, copied) = state?;
            let Some((head, rest)) = undo.split_at_checked(UNDO_LEN) else {
                state = None;
                return Some([json.get(copied..).unwrap_or_default(), &[]]);
            };
            let number = |at: usize| {
                head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes) as usize
            };
            let (start, len, original) = (number(0), number(4), number(8));
            let (original, rest) = rest.split_at_checked(original).unwrap_or_default();
            state = Some((rest, start + len));
            Some([json.get(copied..start).unwrap_or_default(), original])
        })
        .flatten()
    }

    fn part(&self, range: &Range<u32>) -> Option<&str> {
        (range.start < range.end).then(|| text(self.slice(range.start, range.end)))
    }

    fn slice(&self, start: u32, end: u32) -> &[u8] {
        self.buffer.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// Keys and documents were text when they came in.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Edits of one document, collected without an allocation per edit.
#[derive(Debug, Default)]
pub(super) struct Edits {
    list: Vec<(Range<u32>, Range<u32>)>,
    text: Vec<u8>,
}

impl Edits {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.text.clear();
    }

    /// Replaces `at` by what `write` appends.
    pub(super) fn put(&mut self, at: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.list.push((narrow(at), narrow(start..self.text.len())));
    }

    /// Replaces the value at `at`, which is `raw`, also where an earlier edit has written anew the object that holds it.
    pub(super) fn put_value(&mut self, at: Range<usize>, raw: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let place = narrow(at.clone());
        let Some(held) = self.list.iter().position(|(edit, _)| edit.start < place.start && place.end <= edit.end)
        else {
            return self.put(at, write);
        };
        let Some((edit, with)) = self.list.get(held).cloned() else { return };
        let text = self.text.get(with.start as usize..with.end as usize).unwrap_or_default().to_vec();
        let Some(found) = memchr::memmem::find(&text, raw.as_bytes()) else { return };
        self.list.remove(held);
        self.put(edit.start as usize..edit.end as usize, |out| {
            out.extend_from_slice(text.get(..found).unwrap_or_default());
            write(out);
            out.extend_from_slice(text.get(found + raw.len()..).unwrap_or_default());
        });
    }

    /// The document's text at `at` with the edits that lie in it.
    pub(super) fn spliced(&self, document: &str, at: &Range<usize>) -> Vec<u8> {
        let within =
            self.list.iter().filter(|(edit, _)| at.start <= edit.start as usize && edit.end as usize <= at.end);
        let mut edits: Vec<Edit<'_>> = within
            .map(|(edit, text)| {
                let text = self.text.get(text.start as usize..text.end as usize).unwrap_or_default();
                Edit::new(edit.start as usize - at.start..edit.end as usize - at.start, text)
            })
            .collect();
        let mut out = Vec::with_capacity(at.len());
        splice(document.as_bytes().get(at.clone()).unwrap_or_default(), &mut edits, &mut out);
        out
    }

    pub(super) fn add(&mut self, edit: &Edit<'_>) {
        self.put(edit.at.clone(), |out| out.extend_from_slice(&edit.with));
    }
}

fn narrow(range: Range<usize>) -> Range<u32> {
    // Documents are bounded far below 4 GiB (`EVENT_BYTES_MAX`).
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    number(range.start)..number(range.end)
}

/// What an entry is made from.
pub(super) struct Draft<'a> {
    pub(super) namespace: &'a str,
    /// The visible name, in pieces.
    pub(super) name: &'a str,
    pub(super) suffix: [&'a str; 3],
    /// The member's document.
    pub(super) document: &'a str,
    /// What comes behind its brace to make it whole, and is no edit: the original is the whole form.
    pub(super) lead: &'a str,
    /// Length of a leading `"kind":..,"apiVersion":..,` that list items leave out.
    pub(super) type_meta_len: usize,
    /// Where labels, resourceVersion, UID and metadata lie in the document. Edits may replace or contain them.
    pub(super) labels: Option<Range<usize>>,
    pub(super) resource_version: Range<usize>,
    pub(super) uid: Range<usize>,
    pub(super) metadata: Range<usize>,
    /// Where the name of a pod's node lies, if it has one.
    pub(super) node: Option<Range<usize>>,
    pub(super) revision: Revision,
    pub(super) holders: Holders,
    pub(super) folded: bool,
    pub(super) deleting: bool,
    /// Hashes of what the document refers to.
    pub(super) referents: &'a [u64],
}

impl Draft<'_> {
    /// Splices the document once: one buffer of the exact size.
    pub(super) fn build(self, edits: &mut Edits) -> Entry {
        edits.list.sort_unstable_by_key(|(at, _)| (at.start, at.end));
        let document = self.document.as_bytes();
        let grown: usize = edits.list.iter().map(|(_, text)| text.len()).sum();
        let replaced: usize = edits.list.iter().map(|(at, _)| at.len()).sum();
        let json_len = document.len() + self.lead.len() + grown - replaced;
        // A folded object's documents are its parts' to keep.
        let undo = if self.folded { 0 } else { replaced + UNDO_LEN * edits.list.len() };
        let hashes = HASH_LEN * self.referents.len();
        let mut buffer = Vec::with_capacity(json_len + undo + hashes);

        let mut places = Places::new(&self);
        let mut copied = 0;
        if !self.lead.is_empty() {
            buffer.push(b'{');
            buffer.extend_from_slice(self.lead.as_bytes());
            copied = 1;
        }
        for (at, text) in &edits.list {
            let (start, end) = (at.start as usize, at.end as usize);
            buffer.extend_from_slice(document.get(copied..start).unwrap_or_default());
            let out = buffer.len();
            let text = edits.text.get(text.start as usize..text.end as usize).unwrap_or_default();
            places.edited(start, end, out, text.len());
            buffer.extend_from_slice(text);
            copied = end;
        }
        buffer.extend_from_slice(document.get(copied..).unwrap_or_default());
        let json_len = buffer.len();
        if !self.folded {
            push_undo(document, self.lead.len(), edits, &mut buffer);
        }
        self.referents.iter().for_each(|hash| buffer.extend_from_slice(&hash.to_le_bytes()));

        Entry {
            key: self.key(),
            buffer: buffer.into_boxed_slice(),
            referents: narrow(0..self.referents.len()).end,
            namespace_len: narrow(0..self.namespace.len()).end,
            json_len: narrow(0..json_len).end,
            type_meta_len: narrow(0..self.type_meta_len).end,
            labels: narrow(places.labels.out.clone()),
            resource_version: narrow(places.resource_version.out.clone()),
            uid: narrow(places.uid.out.clone()),
            metadata: narrow(places.metadata.out.clone()),
            node: narrow(places.node.out.clone()),
            revision: self.revision,
            holders: self.holders,
            folded: self.folded,
            deleting: self.deleting,
            parts: None,
            provenance: Provenance::default(),
            message_len: AtomicU32::default(),
            message: ArcSwapOption::default(),
        }
    }

    fn key(&self) -> Key {
        let [at, member, end] = self.suffix;
        match self.namespace {
            "" if at.is_empty() => self.name.into(),
            "" => [self.name, at, member, end].concat().into(),
            namespace => [namespace, "/", self.name, at, member, end].concat().into(),
        }
    }
}

fn push_undo(document: &[u8], lead: usize, edits: &Edits, buffer: &mut Vec<u8>) {
    let mut shift = i64::from(narrow(0..lead).end);
    for (at, text) in &edits.list {
        let original = document.get(at.start as usize..at.end as usize).unwrap_or_default();
        let start = u32::try_from(i64::from(at.start) + shift).unwrap_or_default();
        for number in [start, text.end - text.start, narrow(0..original.len()).end] {
            buffer.extend_from_slice(&number.to_le_bytes());
        }
        buffer.extend_from_slice(original);
        shift += i64::from(text.end - text.start) - i64::from(at.end - at.start);
    }
}

/// Follows five ranges of the document to where they lie after the edits.
struct Places {
    labels: Place,
    resource_version: Place,
    uid: Place,
    metadata: Place,
    node: Place,
}

#[derive(Clone)]
struct Place {
    at: Range<usize>,
    out: Range<usize>,
}

impl Places {
    fn new(draft: &Draft<'_>) -> Self {
        let lead = draft.lead.len();
        let place = |at: Range<usize>| match at.is_empty() {
            true => Place { out: 0..0, at },
            false => Place { out: at.start + lead..at.end + lead, at },
        };
        Self {
            labels: place(draft.labels.clone().unwrap_or(0..0)),
            resource_version: place(draft.resource_version.clone()),
            uid: place(draft.uid.clone()),
            metadata: place(draft.metadata.clone()),
            node: place(draft.node.clone().unwrap_or(0..0)),
        }
    }

    /// Notes that `start..end` became `len` bytes at `out`. Edits come in order.
    fn edited(&mut self, start: usize, end: usize, out: usize, len: usize) {
        let Self { labels, resource_version, uid, metadata, node } = self;
        for place in [labels, resource_version, uid, metadata, node] {
            place.edited(start, end, out, len);
        }
    }
}

impl Place {
    fn edited(&mut self, start: usize, end: usize, out: usize, len: usize) {
        if self.at.is_empty() || start >= self.at.end {
            return;
        }
        let after = out + len;
        if end <= self.at.start {
            // The edit lies wholly before: everything behind it moves.
            self.out = after + (self.at.start - end)..after + (self.at.end - end);
        } else if start <= self.at.start && end >= self.at.end {
            // Replaced as a whole (or removed, when nothing comes in its place).
            self.out = out..after;
            self.at = 0..0;
        } else {
            // Inside: it grows or shrinks.
            self.out.end = after + (self.at.end - end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(document: &str, edits: &[(Range<usize>, &str)]) -> Entry {
        let mut list = Edits::default();
        for (at, with) in edits {
            list.put(at.clone(), |out| out.extend_from_slice(with.as_bytes()));
        }
        let range = |text: &str| document.find(text).map(|at| at..at + text.len()).unwrap();
        Draft {
            namespace: "ns",
            name: "a",
            suffix: ["@", "east", ""],
            document,
            lead: "",
            type_meta_len: r#""kind":"Pod","#.len(),
            labels: Some(range(r#"{"l":"1"}"#)),
            resource_version: range("\"77\""),
            uid: range("\"u-1\""),
            metadata: range(r#"{"name":"a","labels":{"l":"1"},"uid":"u-1","resourceVersion":"77"}"#),
            node: Some(range("\"é\"")),
            revision: Revision(5),
            holders: Holders::default(),
            folded: false,
            deleting: false,
            referents: &[7, u64::MAX],
        }
        .build(&mut list)
    }

    #[test]
    fn an_entry_is_spliced_once_and_gives_the_original_back() {
        let document =
            r#"{"kind":"Pod","metadata":{"name":"a","labels":{"l":"1"},"uid":"u-1","resourceVersion":"77"},"x":"é"}"#;
        let name = document.find("\"a\"").unwrap();
        let rv = document.find("\"77\"").unwrap();
        let label = document.find("\"1\"").unwrap();
        let entry_of_five =
            || entry(document, &[(rv..rv + 4, "\"5\""), (name..name + 3, "\"a@east\""), (label..label, "\"k\":0,")]);
        let entry = entry_of_five();
        let expected = r#"{"kind":"Pod","metadata":{"name":"a@east","labels":{"l":"k":0,"1"},"uid":"u-1","resourceVersion":"5"},"x":"é"}"#;
        assert_eq!(std::str::from_utf8(entry.json()).unwrap(), expected);
        assert_eq!((entry.key(), entry.namespace(), entry.name()), (b"ns/a@east".as_slice(), "ns", "a@east"));
        assert_eq!((entry.uid(), entry.labels()), ("u-1", Some(r#"{"l":"k":0,"1"}"#)));
        assert_eq!(entry.node(), Some("é"));
        let mut original = Vec::new();
        entry.write_original(&mut original);
        assert_eq!(std::str::from_utf8(&original).unwrap(), document);
        assert!(entry.is_original(document, ""));
        assert_eq!(entry.referents().collect::<Vec<_>>(), [7, u64::MAX]);
        assert!(entry.is_original(&document.replace(r#""kind":"Pod","#, ""), r#""kind":"Pod","#));
        assert!(!entry.is_original(&document.replace("77", "78"), ""));
        assert!(!entry.is_original(&document[..document.len() - 1], "") && !entry.is_original("{", ""));
        let mut out = Vec::new();
        entry.write_at(Revision(123_456), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected.replace("\"5\"", "\"123456\""));
        let metadata = r#"{"name":"a@east","labels":{"l":"k":0,"1"},"uid":"u-1","resourceVersion":"5"}"#;
        for (revision, metadata) in [(5, metadata.to_owned()), (1234, metadata.replace("\"5\"", "\"1234\""))] {
            let mut out = Vec::new();
            entry.write_metadata_at(Revision(revision), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), metadata);
        }
        let mut stamped = entry_of_five();
        assert!(stamped.stamp(Revision(6)) && !stamped.stamp(Revision(10)), "no room for another digit");
        assert_eq!(stamped.json(), expected.replace("\"5\"", "\"6\"").as_bytes());
        let mut item = Vec::new();
        entry.write_item(&mut item);
        assert_eq!(String::from_utf8(item).unwrap(), expected.replace(r#""kind":"Pod","#, ""));
    }
}
