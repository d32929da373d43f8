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
    protobuf::{EncodeError, ListChunks, ListOpening, Measured},
};

/// Messages of lists up to this size are kept, in JSON's bytes: an eighth of what a process keeps, so that a large list lets those of
/// others in place.
pub(super) const KEPT_LIST_BYTES_MAX: usize = 4 << 20;

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
    let (mut measured, mut since) = (Vec::with_capacity(items.len()), 0);
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
        measured.push(Measured { item: Arc::clone(entry), len });
    }
    let chunks = ListChunks::new(&opening, measured, CHUNK_BYTES);
    Ok(MessagesBody { chunks, echo, form: form.clone() }.boxed_unsync())
}

/// A list as it goes out.
struct MessagesBody {
    chunks: ListChunks<Arc<Entry>>,
    echo: Option<String>,
    form: Form,
}

impl http_body::Body for MessagesBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { chunks, echo, form } = self.get_mut();
        let chunk = chunks.next(|entry, out| form.message(entry, echo.as_deref(), entry.revision, out));
        Poll::Ready(chunk.map(|chunk| chunk.map(|chunk| Frame::data(chunk.into())).map_err(BodyError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_done()
    }
}

#[cfg(test)]
mod tests;
