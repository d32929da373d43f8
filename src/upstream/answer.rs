//! The body of a member's answer. While it lives, its stream, its connection and its place are taken.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Sleep, sleep};

use crate::{
    config::MemberName,
    upstream::{
        error::{Failure, UpstreamError},
        places::Place,
        pool::Lease,
        probe_state::ProbeState,
    },
};

/// What an answer holds on to until its end.
pub(super) struct Held {
    pub(super) member: MemberName,
    pub(super) probe_state: Arc<ProbeState>,
    pub(super) lease: Lease,
    pub(super) place: Option<Place>,
    /// Counts its bytes.
    pub(super) bytes: Option<Counter>,
    /// How long it may stall while somebody waits for more; a watch may for ever.
    pub(super) stall_max: Option<Duration>,
}

/// The body of a member's answer, as it comes: frames, trailers, and an error where it breaks off.
///
/// Dropping it before its end resets the stream, so that the member stops sending.
pub struct UpResponseBody {
    incoming: Incoming,
    held: Option<Held>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl UpResponseBody {
    pub(super) fn new(incoming: Incoming, held: Held) -> Self {
        Self { incoming, held: Some(held), stall: None }
    }

    /// Frees what was held; the connection is kept only after a clean end.
    fn release(&mut self, failure: Option<Failure>) -> Option<UpstreamError> {
        self.stall = None;
        let Held { member, probe_state, lease, place, bytes: _, stall_max: _ } = self.held.take()?;
        drop(place);
        let Some(failure) = failure else {
            lease.finish();
            return None;
        };
        probe_state.failed(&failure);
        Some(UpstreamError::new(&member, failure))
    }

    /// The failure of an answer that stalls, once it has stalled for too long.
    fn poll_stall(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        let Some(max) = self.held.as_ref().and_then(|held| held.stall_max) else { return Poll::Pending };
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(max)));
        stall.as_mut().poll(context).map(|()| Failure::BodyTimeout(max))
    }
}

impl Body for UpResponseBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                // The clock runs only while somebody waits: a slow reader is not a stalled member.
                this.stall = None;
                let counter = this.held.as_ref().and_then(|held| held.bytes.as_ref());
                if let (Some(counter), Some(data)) = (counter, frame.data_ref()) {
                    counter.inc_by(data.len() as u64);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let failure = Failure::Body { source: Arc::new(error) };
                Poll::Ready(this.release(Some(failure)).map(Err))
            }
            Poll::Ready(None) => {
                this.release(None);
                Poll::Ready(None)
            }
            Poll::Pending => {
                let Poll::Ready(failure) = this.poll_stall(context) else { return Poll::Pending };
                Poll::Ready(this.release(Some(failure)).map(Err))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for UpResponseBody {
    fn drop(&mut self) {
        // A server that sees an empty body never polls it.
        if self.incoming.is_end_stream() {
            self.release(None);
        }
    }
}

/// Reads a whole body of at most `bytes_max` bytes.
///
/// Errors: those of the body; [`Failure::BodyTooLarge`]. Cancel: safe; the stream is reset.
pub async fn collect(mut body: UpResponseBody, bytes_max: usize) -> Result<Bytes, UpstreamError> {
    let mut whole = BytesMut::new();
    let mut first = Bytes::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if first.len() + whole.len() + data.remaining() > bytes_max {
            let error = body.release(Some(Failure::BodyTooLarge { bytes_max }));
            return error.map_or_else(|| Ok(Bytes::new()), Err);
        }
        // Most answers are one frame: they are not copied.
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}
