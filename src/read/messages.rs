//! Lists in protobuf, made of the messages of their objects.
//!
//! Such a list begins with its length. So the lengths of all messages are found first; who has listed the objects before has made
//! them known. Then the messages are written, a chunk at a time. Those of a small list are kept between the two and after.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;

use crate::{
    answer::form::Form,
    read::answer::CHUNK_BYTES,
    store::{Entry, FleetStore},
};
use kubefold_wire::{
    body::{Body, BodyError},
    protobuf::{EncodeError, ListOpening, record_len},
};

/// Messages of lists up to this size are kept, in JSON's bytes: an eighth of what a process keeps, so that a large list lets those of
/// others in place.
const KEPT_LIST_BYTES_MAX: usize = 4 << 20;

/// The body of a list. `head` is its JSON without its items, `echo` the name under which objects are shown.
///
/// Costs: 24 bytes for each object while it goes out, and a chunk. Others get their turn after each chunk.
/// Errors: an object has what its type has not.
pub(super) async fn body(
    store: &FleetStore,
    head: &[u8],
    items: &[Arc<Entry>],
    echo: Option<String>,
    form: &Form,
) -> Result<Body, EncodeError> {
    let opening = ListOpening::new(std::str::from_utf8(head).unwrap_or_default())?;
    let is_kept = items.iter().map(|entry| entry.json().len()).sum::<usize>() <= KEPT_LIST_BYTES_MAX;
    let own = form.own_message(echo.as_deref()).filter(|_| is_kept);
    let (mut measured, mut total, mut since) = (Vec::with_capacity(items.len()), 0, 0);
    let mut scratch = Vec::new();
    for entry in items {
        if since >= CHUNK_BYTES {
            since = 0;
            tokio::task::yield_now().await;
        }
        since += entry.json().len();
        let len = match own {
            Some(of) => store.message(entry, of)?.len(),
            None => form.message_len(entry, echo.as_deref(), &mut scratch)?,
        };
        total += record_len(len);
        measured.push(Item { entry: Arc::clone(entry), len });
    }
    let mut out = Vec::with_capacity(total.min(CHUNK_BYTES) + OUTSIDE_BYTES);
    opening.open(total, &mut out);
    let form = form.clone();
    Ok(MessagesBody { out, items: measured.into_iter(), echo, form, done: false }.boxed_unsync())
}

/// What surrounds the items of a list, and a message in a chunk.
const OUTSIDE_BYTES: usize = 512;

/// An object, and how long its message is.
struct Item {
    entry: Arc<Entry>,
    len: usize,
}

/// A list as it goes out.
struct MessagesBody {
    out: Vec<u8>,
    items: std::vec::IntoIter<Item>,
    echo: Option<String>,
    form: Form,
    done: bool,
}

impl MessagesBody {
    /// Writes a chunk. An object that is larger than one has one of its own.
    fn chunk(&mut self) -> Result<Vec<u8>, BodyError> {
        let mut out = std::mem::take(&mut self.out);
        while let Some(Item { entry, len }) = self.items.as_slice().first() {
            if !out.is_empty() && out.len() + record_len(*len) > CHUNK_BYTES {
                return Ok(out);
            }
            if out.capacity() == 0 {
                out.reserve(CHUNK_BYTES.max(*len) + OUTSIDE_BYTES);
            }
            ListOpening::begin_item(*len, &mut out);
            let start = out.len();
            self.form.message(entry, self.echo.as_deref(), entry.revision, &mut out)?;
            if out.len() - start != *len {
                // The client was told another length: the answer must not go on.
                return Err("a message has another length than it had when it was measured".into());
            }
            self.items.next();
        }
        ListOpening::close(&mut out);
        self.done = true;
        Ok(out)
    }
}

impl http_body::Body for MessagesBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        let chunk = this.chunk();
        this.done |= chunk.is_err();
        Poll::Ready(Some(chunk.map(|chunk| Frame::data(chunk.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}

#[cfg(test)]
mod tests;
