//! A list in protobuf as it goes out: a chunk at a time, each item's message where its length said that it is.

use std::vec::IntoIter;

use super::{
    error::EncodeError,
    message::{ListOpening, record_len},
};

/// What surrounds the items of a list, and a message in a chunk. Units: bytes.
const OUTSIDE_BYTES: usize = 512;

/// An item, and the length of its message. Units: bytes.
#[derive(Clone, Debug)]
pub struct Measured<T> {
    /// The item.
    pub item: T,
    /// The length.
    pub len: usize,
}

/// Why a list does not go on.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// An item has no message.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The client was told another length.
    #[error("a message has another length than it had when it was measured")]
    Length,
}

/// The rest of a list.
#[derive(Debug)]
pub struct ListChunks<T> {
    out: Vec<u8>,
    items: IntoIter<Measured<T>>,
    bytes_max: usize,
    is_done: bool,
}

impl<T> ListChunks<T> {
    /// A list of these items, in chunks of at most `bytes_max` bytes. An item that is larger has a chunk of its own.
    pub fn new(opening: &ListOpening, items: Vec<Measured<T>>, bytes_max: usize) -> Self {
        let total: usize = items.iter().map(|item| record_len(item.len)).sum();
        let mut out = Vec::with_capacity(total.min(bytes_max) + OUTSIDE_BYTES);
        opening.open(total, &mut out);
        Self { out, items: items.into_iter(), bytes_max, is_done: false }
    }

    /// The next chunk; `None` after the last one, and after an error. `write` appends the message of an item.
    pub fn next(
        &mut self,
        write: impl FnMut(&T, &mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Option<Result<Vec<u8>, ChunkError>> {
        if self.is_done {
            return None;
        }
        let chunk = self.chunk(write);
        self.is_done |= chunk.is_err();
        Some(chunk)
    }

    /// Says whether there is no chunk any more.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    fn chunk(
        &mut self,
        mut write: impl FnMut(&T, &mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Result<Vec<u8>, ChunkError> {
        let mut out = std::mem::take(&mut self.out);
        while let Some(Measured { item, len }) = self.items.as_slice().first() {
            if !out.is_empty() && out.len() + record_len(*len) > self.bytes_max {
                return Ok(out);
            }
            if out.capacity() == 0 {
                out.reserve(self.bytes_max.max(*len) + OUTSIDE_BYTES);
            }
            ListOpening::begin_item(*len, &mut out);
            let start = out.len();
            write(item, &mut out)?;
            if out.len() - start != *len {
                return Err(ChunkError::Length);
            }
            self.items.next();
        }
        ListOpening::close(&mut out);
        self.is_done = true;
        Ok(out)
    }
}
