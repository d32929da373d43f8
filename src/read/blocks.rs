//! Large lists in gzip, of blocks that were compressed before.
//!
//! A block is some objects that follow each other, compressed without a look at what is before it. So it is the same bytes in
//! every list in which these objects follow each other in these states, and it is kept. Where a block ends its objects decide:
//! when one of them changes, the blocks behind it stay as they are.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};
use http_body::Frame;
use http_body_util::BodyExt;
use quick_cache::{Weighter, sync::Cache};

use crate::{
    answer::form::Form,
    read::{
        answer::CHUNK_BYTES,
        walk::{Step, Walk},
    },
    store::{Entry, Written},
};
use kubefold_serving::encode::{GZIP_ABOVE_BYTES, GZIP_LEVEL};
use kubefold_wire::{
    body::{Body, BodyError},
    media::Media,
    protobuf::{EncodeError, ListOpening, record_len},
};

/// Compressed blocks that a process keeps. Units: bytes.
const KEPT_BYTES_MAX: u64 = 32 << 20;
/// So many blocks there may be of them; more only cost a larger table.
const KEPT_BLOCKS: usize = 4096;
/// What a block has at least, before it is compressed. Units: bytes of JSON.
const BLOCK_BYTES_MIN: usize = 32 << 10;
/// From then on, one object of so many ends it.
const ENDS_ONE_OF: u64 = 4;
/// Compressed bytes that one list in protobuf holds on to.
const HELD_BYTES_MAX: usize = 8 << 20;
/// A member of gzip without name and time. Source: RFC 1952, section 2.3; 4 is the fastest way, 255 no system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// A last block of deflate without bytes. Source: RFC 1951, section 3.2.6.
const DEFLATE_END: [u8; 2] = [3, 0];

/// Compressed blocks, within a budget of the process.
pub(super) struct Blocks(Cache<BlockKey, Arc<Block>, Weight>);

/// What a block is of. No two states of objects have one revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BlockKey {
    written: Written,
    media: Media,
    /// The list begins with it.
    is_first: bool,
    revisions: Box<[u64]>,
}

struct Block {
    /// Whole blocks of deflate.
    bytes: Bytes,
    /// Of what is compressed, and how much that is.
    crc: Crc,
}

#[derive(Clone)]
struct Weight;

impl Weighter<BlockKey, Arc<Block>> for Weight {
    fn weight(&self, key: &BlockKey, block: &Arc<Block>) -> u64 {
        (size_of::<BlockKey>() + size_of::<Block>() + size_of_val(&*key.revisions) + block.bytes.len()) as u64
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Blocks").field(&self.0.len()).finish()
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Self(Cache::with_weighter(KEPT_BLOCKS, KEPT_BYTES_MAX, Weight))
    }
}

/// What came of a list.
pub(super) enum Packed {
    /// It is so small that it is not compressed.
    Plain(Vec<u8>),
    /// The body, in gzip.
    Gzip(Body),
}

/// Where the objects of a list come from.
pub(super) enum Objects<'a> {
    /// A walk, which goes on while they go out.
    Walk(Box<Walk>),
    /// They are collected.
    Collected(&'a [Arc<Entry>]),
}

impl Objects<'_> {
    /// Takes those of the next block; the last ones are followed by none.
    async fn cut(&mut self) -> Vec<Arc<Entry>> {
        let mut cut = Cut::default();
        match self {
            Self::Walk(walk) => drop(walk.run(|entry| cut.take(entry)).await),
            Self::Collected(rest) => {
                let count = rest.iter().take_while(|entry| cut.take(entry).is_continue()).count();
                *rest = rest.get(count..).unwrap_or_default();
            }
        }
        cut.entries
    }
}

/// What a list in gzip is made with.
#[derive(Clone)]
pub(super) struct Packing {
    /// What was compressed before.
    pub(super) blocks: Arc<Blocks>,
    /// Some objects may be what the parts that a caller may see make: blocks with folds are not those of others.
    pub(super) is_limited: bool,
}

/// Makes the body of a list in JSON. `head` is what is before its objects, which are written under their own names.
pub(super) async fn json(packing: Packing, head: Vec<u8>, mut objects: Objects<'_>, form: Form) -> Packed {
    let (mut plain, mut queued) = (head.clone(), VecDeque::new());
    while plain.len() <= GZIP_ABOVE_BYTES {
        let entries = objects.cut().await;
        if entries.is_empty() {
            form.end_items(queued.is_empty(), &mut plain);
            break;
        }
        write_json(&form, &entries, queued.is_empty(), &mut plain);
        queued.push_back(Piece::of(entries));
    }
    if plain.len() <= GZIP_ABOVE_BYTES {
        return Packed::Plain(plain);
    }
    let walk = match objects {
        Objects::Walk(walk) => Some(walk),
        Objects::Collected([]) => None,
        Objects::Collected(_) => {
            while let entries = objects.cut().await
                && !entries.is_empty()
            {
                queued.push_back(Piece::of(entries));
            }
            None
        }
    };
    Packed::Gzip(PackedBody::new(Packer::new(packing, form), head, queued, walk).boxed_unsync())
}

/// The same in protobuf, of objects that are collected. `head` is the JSON of the list without them. `None`: it is so small that it is
/// not compressed.
///
/// Costs: blocks of up to [`HELD_BYTES_MAX`] are held while it goes out; others are made again if they are not kept.
/// Errors: an object has what its type has not.
pub(super) async fn protobuf(
    packing: Packing,
    head: &[u8],
    items: &[Arc<Entry>],
    form: &Form,
) -> Result<Option<Body>, EncodeError> {
    // A message is smaller than its JSON.
    if items.iter().map(|entry| entry.json().len()).sum::<usize>() <= GZIP_ABOVE_BYTES {
        return Ok(None);
    }
    let opening = ListOpening::new(std::str::from_utf8(head).unwrap_or_default())?;
    let mut packer = Packer::new(packing, form.clone());
    let (mut objects, mut queued, mut total, mut held) = (Objects::Collected(items), VecDeque::new(), 0, 0);
    while let entries = objects.cut().await
        && !entries.is_empty()
    {
        let (block, is_new) = packer.block(&entries, queued.is_empty())?;
        let len = block.crc.amount();
        total += len as usize;
        held += block.bytes.len();
        let block = (held <= HELD_BYTES_MAX).then_some(block);
        queued.push_back(Piece { entries, block, len: Some(len) });
        if is_new {
            tokio::task::yield_now().await;
        }
    }
    if total <= GZIP_ABOVE_BYTES {
        return Ok(None);
    }
    let mut start = Vec::new();
    opening.open(total, &mut start);
    Ok(Some(PackedBody::new(packer, start, queued, None).boxed_unsync()))
}

/// Objects of one block.
struct Piece {
    entries: Vec<Arc<Entry>>,
    /// The block, if it was made and is held.
    block: Option<Arc<Block>>,
    /// What the client was told that it comes to. Units: bytes.
    len: Option<u32>,
}

impl Piece {
    fn of(entries: Vec<Arc<Entry>>) -> Self {
        Self { entries, block: None, len: None }
    }
}

/// Takes the objects of one block from a list.
#[derive(Default)]
struct Cut {
    entries: Vec<Arc<Entry>>,
    bytes: usize,
    is_whole: bool,
}

impl Cut {
    /// Breaks at the first object of the next block.
    fn take(&mut self, entry: &Arc<Entry>) -> ControlFlow<()> {
        let len = entry.json().len();
        if self.is_whole || (self.bytes + len > CHUNK_BYTES && !self.entries.is_empty()) {
            self.is_whole = true;
            return ControlFlow::Break(());
        }
        self.entries.push(Arc::clone(entry));
        self.bytes += len;
        self.is_whole = self.bytes >= BLOCK_BYTES_MIN && spread(entry.revision.0).is_multiple_of(ENDS_ONE_OF);
        ControlFlow::Continue(())
    }
}

/// A number of which every bit depends on every bit of `number`. Source: the finaliser of SplitMix64.
fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Makes blocks of one form, or finds them.
struct Packer {
    packing: Packing,
    form: Form,
    /// Made when it is needed: a list whose blocks are kept does without.
    deflate: Option<Compress>,
    raw: Vec<u8>,
}

impl Packer {
    fn new(packing: Packing, form: Form) -> Self {
        Self { packing, form, deflate: None, raw: Vec::new() }
    }

    /// The block of these objects, and whether it had to be made.
    ///
    /// Errors: an object has what its type has not.
    fn block(&mut self, entries: &[Arc<Entry>], is_first: bool) -> Result<(Arc<Block>, bool), EncodeError> {
        let is_shared = !self.packing.is_limited || entries.iter().all(|entry| !entry.folded);
        let key = self.form.written().filter(|_| is_shared).map(|written| BlockKey {
            written,
            media: self.form.media(),
            is_first,
            revisions: entries.iter().map(|entry| entry.revision.0).collect(),
        });
        if let Some(kept) = key.as_ref().and_then(|key| self.packing.blocks.0.get(key)) {
            return Ok((kept, false));
        }
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        if self.form.is_protobuf() {
            write_messages(&self.form, entries, &mut raw)?;
        } else {
            write_json(&self.form, entries, is_first, &mut raw);
        }
        let block = Arc::new(self.compressed(&raw));
        self.raw = raw;
        if let Some(key) = key {
            self.packing.blocks.0.insert(key, Arc::clone(&block));
        }
        Ok((block, true))
    }

    /// Compresses without a look at what was before.
    fn compressed(&mut self, raw: &[u8]) -> Block {
        let deflate = self.deflate.get_or_insert_with(|| Compress::new(Compression::new(GZIP_LEVEL), false));
        deflate.reset();
        let mut out = Vec::with_capacity(raw.len() / 4 + 64);
        let mut rest = raw;
        loop {
            let before = deflate.total_in();
            // It fails for streams that end alone, and this one does not.
            let _status = deflate.compress_vec(rest, &mut out, FlushCompress::Sync);
            rest = usize::try_from(deflate.total_in() - before)
                .ok()
                .and_then(|taken| rest.get(taken..))
                .unwrap_or_default();
            // Room that is left says that all is written.
            if rest.is_empty() && out.len() < out.capacity() {
                break;
            }
            out.reserve(raw.len() / 4 + 64);
        }
        out.shrink_to_fit();
        let mut crc = Crc::new();
        crc.update(raw);
        Block { bytes: out.into(), crc }
    }
}

fn write_json(form: &Form, entries: &[Arc<Entry>], is_first: bool, out: &mut Vec<u8>) {
    for (at, entry) in entries.iter().enumerate() {
        out.push(if is_first && at == 0 { b'[' } else { b',' });
        form.item(entry, None, out);
    }
}

fn write_messages(form: &Form, entries: &[Arc<Entry>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut message = Vec::new();
    for entry in entries {
        message.clear();
        form.message(entry, None, entry.revision, &mut message)?;
        out.reserve(record_len(message.len()));
        ListOpening::begin_item(message.len(), out);
        out.extend_from_slice(&message);
    }
    Ok(())
}

/// A list as it goes out: a block at a time, and a step of the walk at most.
struct PackedBody {
    packer: Packer,
    /// What is before the objects; absent once it is written.
    start: Option<Vec<u8>>,
    queued: VecDeque<Piece>,
    /// Where more objects come from.
    walk: Option<Box<Walk>>,
    cut: Cut,
    /// Of all that was written.
    crc: Crc,
    is_first: bool,
    /// A block was compressed, and now it is others' turn.
    worked: bool,
    done: bool,
}

impl PackedBody {
    fn new(packer: Packer, start: Vec<u8>, queued: VecDeque<Piece>, walk: Option<Box<Walk>>) -> Self {
        let (cut, crc) = (Cut::default(), Crc::new());
        Self { packer, start: Some(start), queued, walk, cut, crc, is_first: true, worked: false, done: false }
    }

    /// The objects of the next block; none: there are no more.
    fn next_piece(&mut self, cx: &Context<'_>) -> Poll<Option<Piece>> {
        if let Some(piece) = self.queued.pop_front() {
            return Poll::Ready(Some(piece));
        }
        let Self { walk, cut, .. } = self;
        match walk.as_mut().map_or(Step::Done, |walk| walk.step(|entry| cut.take(entry))) {
            Step::Paused => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Step::Stopped => {}
            Step::Done => self.walk = None,
        }
        let entries = std::mem::take(&mut self.cut).entries;
        Poll::Ready((!entries.is_empty()).then(|| Piece::of(entries)))
    }

    /// The next bytes. Without a piece they are the last ones.
    fn write(&mut self, piece: Option<Piece>) -> Result<Bytes, BodyError> {
        let Some(Piece { entries, block, len }) = piece else {
            self.done = true;
            let mut end = Vec::new();
            if self.packer.form.is_protobuf() {
                ListOpening::close(&mut end);
            } else {
                self.packer.form.end_items(self.is_first, &mut end);
            }
            let block = self.packer.compressed(&end);
            self.crc.combine(&block.crc);
            let (crc, len) = (self.crc.sum().to_le_bytes(), self.crc.amount().to_le_bytes());
            return Ok([&*block.bytes, &DEFLATE_END, &crc, &len].concat().into());
        };
        let block = match block {
            Some(block) => block,
            None => {
                let (block, is_new) = self.packer.block(&entries, self.is_first)?;
                self.worked = is_new;
                block
            }
        };
        if len.is_some_and(|len| len != block.crc.amount()) {
            // The client was told another length: the answer must not go on.
            return Err("a block has another length than it had when it was measured".into());
        }
        self.is_first = false;
        self.crc.combine(&block.crc);
        Ok(block.bytes.clone())
    }
}

impl http_body::Body for PackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        if let Some(start) = this.start.take() {
            let block = this.packer.compressed(&start);
            this.crc.combine(&block.crc);
            return Poll::Ready(Some(Ok(Frame::data([&GZIP_HEAD, &*block.bytes].concat().into()))));
        }
        if std::mem::take(&mut this.worked) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = std::task::ready!(this.next_piece(cx));
        let bytes = this.write(piece);
        this.done |= bytes.is_err();
        Poll::Ready(Some(bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}

#[cfg(test)]
mod tests;
