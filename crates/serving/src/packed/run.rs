//! All that a list wrote between its beginning and its end, for the next list of the same objects.

use std::sync::Arc;

use bytes::Bytes;
use flate2::Crc;

use crate::packed::{BLOCK_BYTES_MAX, Block};

/// What a block of a [`Run`] has at least, but for its last one: each costs a turn of the connection. Units: bytes.
const RUN_BLOCK_BYTES: usize = 512 << 10;

/// All that is between the beginning and the end of a list, as it is sent.
#[derive(Debug)]
pub struct Run {
    blocks: Vec<Arc<Block>>,
    raw_len: usize,
    bytes: usize,
}

impl Run {
    /// The memory that it takes. Units: bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn blocks(&self) -> &[Arc<Block>] {
        &self.blocks
    }

    /// How much a client has of it. Units: bytes.
    pub(super) fn raw_len(&self) -> usize {
        self.raw_len
    }
}

/// Takes a run from a list as it goes out.
pub struct Recorder {
    run: Run,
    /// The blocks that are not in the run yet, one behind the other.
    bytes: Vec<u8>,
    crc: Option<Crc>,
    bytes_max: usize,
    take: Box<dyn FnOnce(Run) + Send>,
}

impl Recorder {
    /// Gives the run to `take` when the list is written, unless it has more bytes than these.
    pub fn new(bytes_max: usize, take: impl FnOnce(Run) + Send + 'static) -> Self {
        let run = Run { blocks: Vec::new(), raw_len: 0, bytes: 0 };
        Self { run, bytes: Vec::new(), crc: None, bytes_max, take: Box::new(take) }
    }

    /// Takes a block. Says whether there may be more.
    pub(super) fn add(&mut self, block: &Block) -> bool {
        self.run.bytes += block.bytes.len();
        if self.run.bytes > self.bytes_max {
            return false;
        }
        self.run.raw_len += block.raw_len();
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(RUN_BLOCK_BYTES + BLOCK_BYTES_MAX);
        }
        self.bytes.extend_from_slice(&block.bytes);
        if let Some(crc) = &block.crc {
            self.crc.get_or_insert_default().combine(crc);
        }
        if self.bytes.len() >= RUN_BLOCK_BYTES {
            self.end_block();
        }
        true
    }

    fn end_block(&mut self) {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes).into_boxed_slice());
        self.run.blocks.push(Arc::new(Block { bytes, crc: self.crc.take() }));
    }

    pub(super) fn finish(mut self) {
        if !self.bytes.is_empty() {
            self.end_block();
        }
        (self.take)(self.run);
    }
}
