//! What fills the watch caches of standbys: docs/design/members.md#watch-caches.
//!
//! It comes in frames: a length of four bytes, then a byte that says what it is, and the rest. All numbers are little-endian.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use tokio_util::codec::{Decoder, LengthDelimitedCodec};

use crate::{
    store::{Change, Entry, KindSpec, KnownHolders, Revision},
    stores::told::{SHOWN_PATH, Unreadable, codec},
};
use kubefold_wire::{
    options::query_value,
    resource::{Gvk, Gvr},
};

/// Where a process tells what it shows of one kind, and every event of it. Only replicas are answered there.
pub const WATCH_CACHE_PATH: &str = "/kubefold/v1/watchcache";
/// The form of the frames.
const FORMAT: u32 = 1;

/// Says whether only replicas are answered at a path.
pub fn is_for_replicas(path: &str) -> bool {
    path == SHOWN_PATH || path == WATCH_CACHE_PATH
}

/// What is asked for at [`WATCH_CACHE_PATH`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchCacheAsked {
    /// Of this kind.
    pub gvr: Gvr,
    /// The events behind a revision, if the members have this digest still; otherwise all objects first.
    pub after: Option<(Revision, u64)>,
}

impl WatchCacheAsked {
    /// What a path and query ask for. `None`: it is another path, or another version's.
    pub fn of(path: &str, query: &str) -> Option<Self> {
        let number = |name: &str| query_value(query, name)?.parse().ok();
        if path != WATCH_CACHE_PATH || number("format") != Some(FORMAT.into()) {
            return None;
        }
        let of = query_value(query, "resource")?;
        let mut of = of.split('/');
        let gvr = Gvr::new(of.next()?, of.next()?, of.next()?);
        Some(Self { gvr, after: number("after").map(Revision).zip(number("members")) })
    }

    /// Path and query.
    pub fn to_target(&self) -> String {
        let Gvr { group, version, resource } = &self.gvr;
        let after = self.after.map(|(after, members)| format!("&after={after}&members={members}")).unwrap_or_default();
        format!("{WATCH_CACHE_PATH}?format={FORMAT}&resource={group}/{version}/{resource}{after}")
    }
}

/// One frame that came.
#[derive(Debug)]
pub(super) enum Frame {
    /// The first: which kind it is, and a digest of the members whose objects these are. The objects follow, or else events alone.
    Begins { spec: KindSpec, is_whole: bool, members: u64 },
    /// One of the objects.
    Object(Box<Entry>),
    /// Those were all, as of a revision.
    Filled(Revision),
    /// An event.
    Changed(Change),
    /// Members of which the last known state is shown, from now on.
    Stale(Vec<String>),
    /// No member serves the kind any more.
    Ended,
}

const BEGINS: u8 = b'b';
const OBJECT: u8 = b'o';
const FILLED: u8 = b'f';
const PUT: u8 = b'p';
const REMOVED: u8 = b'd';
const REACHED: u8 = b'r';
const STALE: u8 = b's';
const ENDED: u8 = b'e';

/// Frames on their way out.
#[derive(Debug, Default)]
pub(super) struct Written(pub(super) Vec<u8>);

impl Written {
    pub(super) fn begins(&mut self, spec: &KindSpec, is_whole: bool, members: u64) {
        self.frame(BEGINS, |out| {
            out.put_u64_le(members);
            out.extend_from_slice(&[u8::from(is_whole), u8::from(spec.namespaced)]);
            out.extend_from_slice(spec.gvk.kind.as_bytes());
        });
    }

    pub(super) fn object(&mut self, entry: &Entry) {
        self.frame(OBJECT, |out| entry.encode(out));
    }

    pub(super) fn filled(&mut self, revision: Revision) {
        self.frame(FILLED, |out| out.put_u64_le(revision.0));
    }

    pub(super) fn put(&mut self, entry: &Entry) {
        self.frame(PUT, |out| entry.encode(out));
    }

    pub(super) fn removed(&mut self, key: &[u8], revision: Revision) {
        self.frame(REMOVED, |out| {
            out.put_u64_le(revision.0);
            out.extend_from_slice(key);
        });
    }

    pub(super) fn reached(&mut self, revision: Revision) {
        self.frame(REACHED, |out| out.put_u64_le(revision.0));
    }

    pub(super) fn stale(&mut self, members: &[String]) {
        self.frame(STALE, |out| out.extend_from_slice(members.join(",").as_bytes()));
    }

    pub(super) fn ended(&mut self) {
        self.frame(ENDED, |_| {});
    }

    fn frame(&mut self, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let Self(out) = self;
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, tag]);
        write(out);
        // Objects are bounded far below 4 GiB.
        let len = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(room) = out.get_mut(start..start + 4) {
            room.copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Reads the frames of one connection.
pub(super) struct Frames {
    gvr: Gvr,
    codec: LengthDelimitedCodec,
    buffer: BytesMut,
    holders: KnownHolders,
}

impl Frames {
    /// Of a kind.
    pub(super) fn of(gvr: Gvr) -> Self {
        Self { gvr, codec: codec(), buffer: BytesMut::new(), holders: KnownHolders::default() }
    }

    /// Takes in what has come.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that has come completely.
    ///
    /// Errors: it is none of these.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Unreadable> {
        let frame: io::Result<Option<BytesMut>> = self.codec.decode(&mut self.buffer);
        let Some(frame) = frame.map_err(|_| Unreadable)? else { return Ok(None) };
        self.read(&frame).map(Some).ok_or(Unreadable)
    }

    fn read(&mut self, frame: &[u8]) -> Option<Frame> {
        let (tag, mut rest) = frame.split_first()?;
        let text = |bytes| std::str::from_utf8(bytes).ok();
        Some(match *tag {
            BEGINS => {
                let members = rest.try_get_u64_le().ok()?;
                let ([is_whole, namespaced], kind) = rest.split_first_chunk()?;
                let Gvr { group, version, .. } = &self.gvr;
                let gvk = Gvk::new(group, version, text(kind)?);
                let spec = KindSpec::new(self.gvr.clone(), gvk, *namespaced == 1);
                Frame::Begins { spec, is_whole: *is_whole == 1, members }
            }
            OBJECT => Frame::Object(Box::new(Entry::decode(rest, &mut self.holders)?)),
            PUT => Frame::Changed(Change::Put(Box::new(Entry::decode(rest, &mut self.holders)?))),
            FILLED => Frame::Filled(Revision(rest.try_get_u64_le().ok()?)),
            REACHED => Frame::Changed(Change::Reached(Revision(rest.try_get_u64_le().ok()?))),
            REMOVED => {
                let revision = Revision(rest.try_get_u64_le().ok()?);
                Frame::Changed(Change::Removed(text(rest)?.to_owned(), revision))
            }
            STALE => Frame::Stale(text(rest)?.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()),
            ENDED => Frame::Ended,
            _ => return None,
        })
    }
}
