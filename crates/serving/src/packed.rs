//! Large lists, of blocks that were written before: in gzip, or as they are.
//!
//! A block is some objects that follow each other, compressed without a look at what is before it. So it is the same bytes in
//! every list in which these objects follow each other in these states, and it is kept. Where a block ends its objects decide:
//! when one of them changes, the blocks behind it stay as they are.
//!
//! A [`Layout`] says how objects are written and what a block of them is called; a [`Walk`] gives them. A [`Run`] is all that such a
//! list wrote between its beginning and its end, for whoever knows that the next list has the same objects.

mod run;

use std::{
    collections::VecDeque,
    hash::Hash,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt;
use quick_cache::{Weighter, sync::Cache};

pub use run::{Recorder, Run};

use crate::encode::{GZIP_ABOVE_BYTES, GZIP_LEVEL, in_gzip};
use kubefold_wire::{
    body::{Body, BodyError, full},
    protobuf::{EncodeError, ListOpening, record_len},
};

/// What a block has at least, before it is compressed. Units: bytes of JSON.
const BLOCK_BYTES_MIN: usize = 32 << 10;
/// What a block of more than one object has at most. Units: bytes of JSON.
pub const BLOCK_BYTES_MAX: usize = 128 << 10;
/// From [`BLOCK_BYTES_MIN`] on, one object of so many ends a block.
const ENDS_ONE_OF: u64 = 4;
/// Blocks that one list in protobuf holds on to while it goes out. Units: bytes.
const HELD_BYTES_MAX: usize = 8 << 20;
/// The same, where they are not compressed: each takes more, and less to make again.
const HELD_PLAIN_BYTES_MAX: usize = 32 << 20;
/// A member of gzip without name and time. Source: RFC 1952, section 2.3; 4 is the fastest way, 255 no system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// A last block of deflate without bytes. Source: RFC 1951, section 3.2.6.
const DEFLATE_END: [u8; 2] = [3, 0];

/// How the objects of a list are written.
pub trait Layout: Send + Unpin + 'static {
    /// An object. Cheap to clone.
    type Item: Clone + Send + Sync + Unpin + 'static;
    /// What a block is of.
    type Key: BlockKey;

    /// About how long the JSON of an object is. Units: bytes.
    fn len(item: &Self::Item) -> usize;

    /// A number that the object has in this state alone.
    fn revision(item: &Self::Item) -> u64;

    /// What tells a block of these objects from every other. The list may begin with it. `None`: no other list has it.
    fn key(&self, items: &[Self::Item], is_first: bool) -> Option<Self::Key>;

    /// Says whether objects are messages of protobuf, rather than JSON.
    fn is_protobuf(&self) -> bool;

    /// Appends the JSON of an object.
    fn item(&self, item: &Self::Item, out: &mut Vec<u8>);

    /// Appends the message of an object.
    ///
    /// Errors: it has what its type has not.
    fn message(&self, item: &Self::Item, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Appends what is behind the objects in JSON.
    fn end(&self, is_empty: bool, out: &mut Vec<u8>);
}

/// What a block is of.
pub trait BlockKey: Eq + Hash + Send + Sync + 'static {
    /// The memory that it takes, and keeps from being freed. Units: bytes.
    fn weight(&self) -> usize;
}

/// What a step of a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its reader has enough for now.
    Stopped,
    /// It looked at as many objects as one step may: others get their turn now.
    Paused,
    /// There are no more objects.
    Done,
}

/// Where the objects of a list come from.
pub trait Walk<T>: Send + Unpin {
    /// Gives objects to `take` until that breaks: an object at which it breaks comes again.
    fn step(&mut self, take: &mut dyn FnMut(&T) -> ControlFlow<()>) -> Step;
}

/// Objects that are collected.
impl<T: Send + Unpin + 'static> Walk<T> for std::vec::IntoIter<T> {
    fn step(&mut self, take: &mut dyn FnMut(&T) -> ControlFlow<()>) -> Step {
        while let Some(item) = self.as_slice().first() {
            if take(item).is_break() {
                return Step::Stopped;
            }
            self.next();
        }
        Step::Done
    }
}

/// Blocks, within a budget.
pub struct Blocks<K>(Cache<Of<K>, Arc<Block>, Weight>);

/// What a block is of, and in what.
#[derive(PartialEq, Eq, Hash)]
struct Of<K> {
    objects: K,
    is_gzip: bool,
}

/// Some objects of a list as they are sent.
#[derive(Debug)]
pub struct Block {
    /// Whole blocks of deflate, or the objects as they are.
    bytes: Bytes,
    /// Of what is compressed, and how much that is. Absent: nothing is.
    crc: Option<Crc>,
}

impl Block {
    /// How much a client has of it. Units: bytes.
    fn raw_len(&self) -> usize {
        self.crc.as_ref().map_or(self.bytes.len(), |crc| crc.amount() as usize)
    }
}

#[derive(Clone)]
struct Weight;

impl<K: BlockKey> Weighter<Of<K>, Arc<Block>> for Weight {
    fn weight(&self, key: &Of<K>, block: &Arc<Block>) -> u64 {
        (key.objects.weight() + size_of::<Block>() + block.bytes.len()) as u64
    }
}

impl<K: BlockKey> std::fmt::Debug for Blocks<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Blocks").field(&self.0.len()).finish()
    }
}

impl<K: BlockKey> Blocks<K> {
    /// Keeps so many bytes at most, of about so many blocks.
    pub fn new(bytes_max: usize, blocks: usize) -> Self {
        Self(Cache::with_weighter(blocks, bytes_max as u64, Weight))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// What came of a list.
pub enum Packed {
    /// It is so small that it is not compressed.
    Plain(Vec<u8>),
    /// The body, in gzip.
    Gzip(Body),
}

impl Packed {
    /// An answer with it, which is otherwise what `response` makes of a body.
    pub fn response(self, response: impl FnOnce(Body) -> Response<Body>) -> Response<Body> {
        match self {
            Self::Plain(json) => response(full(json)),
            Self::Gzip(body) => in_gzip(response(body)),
        }
    }
}

impl<T: Sync> Walk<T> for &[T] {
    fn step(&mut self, take: &mut dyn FnMut(&T) -> ControlFlow<()>) -> Step {
        while let Some((item, rest)) = self.split_first() {
            if take(item).is_break() {
                return Step::Stopped;
            }
            *self = rest;
        }
        Step::Done
    }
}

/// Makes the body of a list in JSON. `head` is what is before its objects.
///
/// Costs: objects up to [`GZIP_ABOVE_BYTES`] are written twice. The others wait in `walk` until they go out.
pub async fn json<L: Layout>(mut packer: Packer<L>, head: Vec<u8>, mut walk: impl Walk<L::Item> + 'static) -> Packed {
    let (mut plain, mut queued) = (head.clone(), VecDeque::new());
    while plain.len() <= GZIP_ABOVE_BYTES {
        let items = cut::<L>(&mut walk).await;
        if items.is_empty() {
            packer.layout.end(queued.is_empty(), &mut plain);
            break;
        }
        packer.write_json(&items, queued.is_empty(), &mut plain);
        queued.push_back(Piece { items, block: None, raw_len: None });
    }
    if plain.len() <= GZIP_ABOVE_BYTES {
        return Packed::Plain(plain);
    }
    packer.raw = plain;
    Packed::Gzip(PackedBody::new(packer, head, queued, walk).boxed_unsync())
}

/// The body of a list in JSON as it is, a block at a time. `head` is what is before its objects.
pub fn plain<L: Layout>(packer: Packer<L>, head: Vec<u8>, walk: impl Walk<L::Item> + 'static) -> Body {
    PackedBody::new(packer, head, VecDeque::new(), walk).boxed_unsync()
}

/// The body of a list whose objects are those of a run, as the packer writes them. `head` is what is before the objects in JSON, and
/// in protobuf the JSON of the list without them.
///
/// Errors: it is no list.
pub fn again<L: Layout>(packer: Packer<L>, head: Vec<u8>, run: &Run) -> Result<Body, EncodeError> {
    let start = if packer.layout.is_protobuf() { opened(&opening(&head)?, run.raw_len()) } else { head };
    let piece = |block: &Arc<Block>| Piece { items: Vec::new(), block: Some(Arc::clone(block)), raw_len: None };
    let queued = run.blocks().iter().map(piece).collect();
    Ok(PackedBody::new(packer, start, queued, Vec::new().into_iter()).boxed_unsync())
}

/// The same as [`json`] and [`plain`] in protobuf, of objects that are collected. `head` is the JSON of the list without them. `None`:
/// it is so small that it is not compressed.
///
/// Costs: 8 MiB of blocks in gzip, or 32 MiB of others, are held while it goes out; those beyond are made again if they are not kept.
/// Errors: an object has what its type has not.
pub async fn protobuf<L: Layout>(
    mut packer: Packer<L>,
    head: &[u8],
    items: &[L::Item],
) -> Result<Option<Body>, EncodeError> {
    // A message is smaller than its JSON.
    if items.iter().map(L::len).sum::<usize>() <= GZIP_ABOVE_BYTES {
        return Ok(None);
    }
    let opening = opening(head)?;
    let held_max = if packer.is_gzip { HELD_BYTES_MAX } else { HELD_PLAIN_BYTES_MAX };
    let mut walk = items;
    let (mut queued, mut total, mut held) = (VecDeque::new(), 0, 0);
    while let items = cut::<L>(&mut walk).await
        && !items.is_empty()
    {
        let (block, is_new) = packer.block(&items, queued.is_empty())?;
        let raw_len = block.raw_len();
        total += raw_len;
        held += block.bytes.len();
        let block = (held <= held_max).then_some(block);
        queued.push_back(Piece { items, block, raw_len: Some(raw_len) });
        if is_new {
            tokio::task::yield_now().await;
        }
    }
    if total <= GZIP_ABOVE_BYTES {
        return Ok(None);
    }
    Ok(Some(PackedBody::new(packer, opened(&opening, total), queued, Vec::new().into_iter()).boxed_unsync()))
}

fn opening(head: &[u8]) -> Result<ListOpening, EncodeError> {
    ListOpening::new(std::str::from_utf8(head).unwrap_or_default())
}

/// What is before items of so many bytes.
fn opened(opening: &ListOpening, items_len: usize) -> Vec<u8> {
    let mut start = Vec::new();
    opening.open(items_len, &mut start);
    start
}

/// Takes the objects of the next block; the last ones are followed by none.
async fn cut<L: Layout>(walk: &mut impl Walk<L::Item>) -> Vec<L::Item> {
    let mut cut = Cut::<L>::default();
    while walk.step(&mut |item| cut.take(item)) == Step::Paused {
        tokio::task::yield_now().await;
    }
    cut.items
}

/// Objects of one block.
struct Piece<T> {
    items: Vec<T>,
    /// The block, if it was made and is held.
    block: Option<Arc<Block>>,
    /// What the client was told that it comes to. Units: bytes.
    raw_len: Option<usize>,
}

/// Takes the objects of one block from a list.
struct Cut<L: Layout> {
    items: Vec<L::Item>,
    bytes: usize,
    is_whole: bool,
}

impl<L: Layout> Default for Cut<L> {
    fn default() -> Self {
        Self { items: Vec::new(), bytes: 0, is_whole: false }
    }
}

impl<L: Layout> Cut<L> {
    /// Breaks at the first object of the next block.
    fn take(&mut self, item: &L::Item) -> ControlFlow<()> {
        let len = L::len(item);
        if self.is_whole || (self.bytes + len > BLOCK_BYTES_MAX && !self.items.is_empty()) {
            self.is_whole = true;
            return ControlFlow::Break(());
        }
        self.items.push(item.clone());
        self.bytes += len;
        self.is_whole = self.bytes >= BLOCK_BYTES_MIN && spread(L::revision(item)).is_multiple_of(ENDS_ONE_OF);
        ControlFlow::Continue(())
    }
}

/// A number of which every bit depends on every bit of `number`. Source: the finaliser of SplitMix64.
fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Makes the blocks of one list, or finds them.
pub struct Packer<L: Layout> {
    blocks: Arc<Blocks<L::Key>>,
    layout: L,
    is_gzip: bool,
    recorder: Option<Recorder>,
    /// Made when it is needed: a list whose blocks are kept does without.
    deflate: Option<Compress>,
    raw: Vec<u8>,
}

impl<L: Layout> Packer<L> {
    /// Compresses blocks, and looks for them among these.
    pub fn new(blocks: Arc<Blocks<L::Key>>, layout: L) -> Self {
        Self { blocks, layout, is_gzip: true, recorder: None, deflate: None, raw: Vec::new() }
    }

    /// The same, which compresses or does not.
    #[must_use]
    pub fn in_gzip(self, is_gzip: bool) -> Self {
        Self { is_gzip, ..self }
    }

    /// Says whether it compresses.
    pub fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// Gives what it writes to a recorder, too.
    #[must_use]
    pub fn recorded_by(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// The block of these objects, and whether it had to be made.
    ///
    /// Errors: an object has what its type has not.
    fn block(&mut self, items: &[L::Item], is_first: bool) -> Result<(Arc<Block>, bool), EncodeError> {
        // To copy JSON costs less than to look for a block.
        let is_kept = self.is_gzip || self.layout.is_protobuf();
        let key = if is_kept { self.layout.key(items, is_first) } else { None };
        let key = key.map(|objects| Of { objects, is_gzip: self.is_gzip });
        if let Some(kept) = key.as_ref().and_then(|key| self.blocks.0.get(key)) {
            return Ok((kept, false));
        }
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        if self.layout.is_protobuf() {
            self.write_messages(items, &mut raw)?;
        } else {
            self.write_json(items, is_first, &mut raw);
        }
        let block = if self.is_gzip {
            let block = self.compressed(&raw);
            self.raw = raw;
            block
        } else {
            Block { bytes: raw.into_boxed_slice().into(), crc: None }
        };
        let block = Arc::new(block);
        if let Some(key) = key {
            self.blocks.0.insert(key, Arc::clone(&block));
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
        Block { bytes: out.into(), crc: Some(crc) }
    }

    /// What is not worth compressing: the beginning and the end of a list, which no other has.
    fn edge(&mut self, raw: Vec<u8>) -> Block {
        if !self.is_gzip {
            return Block { bytes: raw.into(), crc: None };
        }
        let Some(len) = u16::try_from(raw.len()).ok() else { return self.compressed(&raw) };
        let mut crc = Crc::new();
        crc.update(&raw);
        // Source: RFC 1951, section 3.2.4.
        let bytes = [&[0][..], &len.to_le_bytes(), &(!len).to_le_bytes(), &raw].concat();
        Block { bytes: bytes.into(), crc: Some(crc) }
    }

    fn write_json(&self, items: &[L::Item], is_first: bool, out: &mut Vec<u8>) {
        for (at, item) in items.iter().enumerate() {
            out.push(if is_first && at == 0 { b'[' } else { b',' });
            self.layout.item(item, out);
        }
    }

    fn write_messages(&self, items: &[L::Item], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut message = Vec::new();
        for item in items {
            message.clear();
            self.layout.message(item, &mut message)?;
            out.reserve(record_len(message.len()));
            ListOpening::begin_item(message.len(), out);
            out.extend_from_slice(&message);
        }
        Ok(())
    }
}

/// A list as it goes out: a block at a time, and a step of the walk at most.
struct PackedBody<L: Layout, W> {
    packer: Packer<L>,
    /// What is before the objects; absent once it is written.
    start: Option<Vec<u8>>,
    queued: VecDeque<Piece<L::Item>>,
    /// Where more objects come from.
    walk: Option<W>,
    cut: Cut<L>,
    /// Of all that was written.
    crc: Crc,
    is_first: bool,
    /// A block was compressed, and now it is others' turn.
    worked: bool,
    done: bool,
}

impl<L: Layout, W: Walk<L::Item>> PackedBody<L, W> {
    fn new(packer: Packer<L>, start: Vec<u8>, queued: VecDeque<Piece<L::Item>>, walk: W) -> Self {
        let (cut, crc) = (Cut::default(), Crc::new());
        let (start, walk) = (Some(start), Some(walk));
        Self { packer, start, queued, walk, cut, crc, is_first: true, worked: false, done: false }
    }

    /// The objects of the next block; none: there are no more.
    fn next_piece(&mut self, cx: &Context<'_>) -> Poll<Option<Piece<L::Item>>> {
        if let Some(piece) = self.queued.pop_front() {
            return Poll::Ready(Some(piece));
        }
        let Self { walk, cut, .. } = self;
        match walk.as_mut().map_or(Step::Done, |walk| walk.step(&mut |item| cut.take(item))) {
            Step::Paused => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Step::Stopped => {}
            Step::Done => self.walk = None,
        }
        let items = std::mem::take(&mut self.cut).items;
        Poll::Ready((!items.is_empty()).then_some(Piece { items, block: None, raw_len: None }))
    }

    /// The next bytes. Without a piece they are the last ones.
    fn write(&mut self, piece: Option<Piece<L::Item>>) -> Result<Bytes, BodyError> {
        let Some(Piece { items, block, raw_len }) = piece else { return Ok(self.end()) };
        let block = match block {
            Some(block) => block,
            None => {
                let (block, is_new) = self.packer.block(&items, self.is_first)?;
                self.worked = is_new;
                block
            }
        };
        if raw_len.is_some_and(|len| len != block.raw_len()) {
            // The client was told another length: the answer must not go on.
            return Err("a block has another length than it had when it was measured".into());
        }
        self.is_first = false;
        if !self.packer.recorder.as_mut().is_none_or(|recorder| recorder.add(&block)) {
            self.packer.recorder = None;
        }
        Ok(self.counted(&block))
    }

    fn start(&mut self, raw: Vec<u8>) -> Bytes {
        let block = self.packer.edge(raw);
        let bytes = self.counted(&block);
        if self.packer.is_gzip { [&GZIP_HEAD, &*bytes].concat().into() } else { bytes }
    }

    fn end(&mut self) -> Bytes {
        self.done = true;
        if let Some(recorder) = self.packer.recorder.take() {
            recorder.finish();
        }
        let mut raw = Vec::new();
        if self.packer.layout.is_protobuf() {
            ListOpening::close(&mut raw);
        } else {
            self.packer.layout.end(self.is_first, &mut raw);
        }
        let block = self.packer.edge(raw);
        let bytes = self.counted(&block);
        if !self.packer.is_gzip {
            return bytes;
        }
        let (crc, len) = (self.crc.sum().to_le_bytes(), self.crc.amount().to_le_bytes());
        [&*bytes, &DEFLATE_END, &crc, &len].concat().into()
    }

    /// The bytes of a block that goes out now.
    fn counted(&mut self, block: &Block) -> Bytes {
        if let Some(crc) = &block.crc {
            self.crc.combine(crc);
        }
        block.bytes.clone()
    }
}

impl<L: Layout, W: Walk<L::Item>> http_body::Body for PackedBody<L, W> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        if let Some(start) = this.start.take() {
            return Poll::Ready(Some(Ok(Frame::data(this.start(start)))));
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
mod tests {
    use super::*;

    /// Objects that nobody writes.
    struct Numbers;

    #[derive(PartialEq, Eq, Hash)]
    struct Number(u64);

    impl BlockKey for Number {
        fn weight(&self) -> usize {
            size_of::<Self>()
        }
    }

    impl Layout for Numbers {
        type Item = u64;
        type Key = Number;

        fn len(_: &u64) -> usize {
            1 << 10
        }

        fn revision(item: &u64) -> u64 {
            *item
        }

        fn key(&self, items: &[u64], _: bool) -> Option<Number> {
            items.first().copied().map(Number)
        }

        fn is_protobuf(&self) -> bool {
            false
        }

        fn item(&self, item: &u64, out: &mut Vec<u8>) {
            out.extend_from_slice(&spread(*item).to_le_bytes().repeat(128));
        }

        fn message(&self, _: &u64, _: &mut Vec<u8>) -> Result<(), EncodeError> {
            Err(EncodeError::UnknownKind)
        }

        fn end(&self, _: bool, out: &mut Vec<u8>) {
            out.push(b']');
        }
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        const BYTES_MAX: usize = 32 << 20;
        let blocks = Arc::new(Blocks::new(BYTES_MAX, 4096));
        let mut packer = Packer::new(Arc::clone(&blocks), Numbers);
        let noise: Vec<u8> = (0..1_000_000_u64).map(|at| spread(at) as u8).collect();
        for number in 0..200 {
            let block = packer.compressed(&noise);
            assert!(block.bytes.len() > 900_000);
            blocks.0.insert(Of { objects: Number(number), is_gzip: true }, Arc::new(block));
        }
        assert!(blocks.0.weight() <= BYTES_MAX as u64 && blocks.0.len() > 20, "{blocks:?}");
    }

    #[tokio::test]
    async fn blocks_are_of_some_size_and_made_once() {
        let blocks = Arc::new(Blocks::new(32 << 20, 4096));
        let list = async || {
            let walk = (0..4_000).collect::<Vec<u64>>().into_iter();
            let packed = json(Packer::new(Arc::clone(&blocks), Numbers), b"{".to_vec(), walk).await;
            let Packed::Gzip(body) = packed else { panic!("4 MB are not small") };
            body.collect().await.unwrap().to_bytes()
        };
        let first = list().await;
        let made = blocks.count();
        // From a quarter of the most to all of it: 4,000 KB.
        assert!((4_000 / 128..4_000 / 32).contains(&made), "{made}");
        assert_eq!((list().await == first, blocks.count()), (true, made));
    }
}
