//! The connections to one member for one use: few for requests, more for watches.
//!
//! A kube-apiserver allows 100 streams per HTTP/2 connection; the next connection opens before that.
//! Over HTTP/1.1 each request has a connection of its own, kept for the next one when it ends well.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::upstream::{
    dial::{Dialer, Opened},
    error::Failure,
};
use kubefold_serving::shares::Full;
use kubefold_wire::body::Body;

/// Streams on a connection before another one opens.
pub(super) const STREAMS_MAX: usize = 90;
/// HTTP/1.1 connections kept without a request.
const IDLE_MAX: usize = 32;

/// The connections for one use.
pub(super) struct Pool {
    dialer: Dialer,
    lines: Mutex<Lines>,
    /// Held while a connection opens, so that a hundred requests open one. Holds the last failure, which
    /// those that waited for it share.
    opening: tokio::sync::Mutex<Option<(Instant, Failure)>>,
    connections_max: usize,
    what: &'static str,
}

#[derive(Default)]
struct Lines {
    http2: Vec<Line>,
    idle: Vec<http1::SendRequest<Body>>,
    speaks_http1: bool,
}

struct Line {
    sender: http2::SendRequest<Body>,
    streams: Arc<AtomicUsize>,
    streams_max: Arc<AtomicUsize>,
}

/// A place on a connection. Holding it counts; dropping it frees the place.
pub(super) enum Lease {
    /// One stream of many.
    Http2 {
        /// The connection.
        sender: http2::SendRequest<Body>,
        /// Counts for as long as it is held.
        _slot: Slot,
    },
    /// A whole connection, and where to bring it back.
    Http1(http1::SendRequest<Body>, Weak<Pool>),
}

/// One stream under way.
pub(super) struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub(super) fn new(dialer: Dialer, connections_max: usize, what: &'static str) -> Arc<Self> {
        let opening = tokio::sync::Mutex::new(None);
        Arc::new(Self { dialer, lines: Mutex::default(), opening, connections_max, what })
    }

    /// Finds or opens a place.
    ///
    /// Errors: those of a new connection; [`Failure::Saturated`] when all are full.
    /// Cancel: safe.
    pub(super) async fn lease(self: &Arc<Self>) -> Result<Lease, Failure> {
        let began = Instant::now();
        if let Some(lease) = self.free_place()? {
            return Ok(lease);
        }
        if self.speaks_http1() {
            return self.open().await;
        }
        let mut last = self.opening.lock().await;
        if let Some(lease) = self.free_place()? {
            return Ok(lease);
        }
        if self.speaks_http1() {
            drop(last);
            return self.open().await;
        }
        if let Some((at, failure)) = last.as_ref().filter(|(at, _)| *at >= began) {
            tracing::trace!(?at, "shares the failure of a connection that it waited for");
            return Err(failure.clone());
        }
        let opened = self.open().await;
        *last = opened.as_ref().err().map(|failure| (Instant::now(), failure.clone()));
        opened
    }

    /// Forgets every connection: requests under way end in peace, new ones connect anew.
    pub(super) fn retire(&self) {
        let mut lines = self.lines.lock();
        lines.http2.clear();
        lines.idle.clear();
    }

    /// True if the member agreed on nothing better than HTTP/1.1.
    pub(super) fn speaks_http1(&self) -> bool {
        self.lines.lock().speaks_http1
    }

    /// HTTP/2 connections open now.
    pub(super) fn connections(&self) -> usize {
        let mut lines = self.lines.lock();
        lines.http2.retain(|line| !line.sender.is_closed());
        lines.http2.len()
    }

    fn free_place(self: &Arc<Self>) -> Result<Option<Lease>, Failure> {
        let mut lines = self.lines.lock();
        lines.idle.retain(|sender| !sender.is_closed());
        if let Some(sender) = lines.idle.pop() {
            return Ok(Some(Lease::Http1(sender, Arc::downgrade(self))));
        }
        lines.http2.retain(|line| !line.sender.is_closed());
        let Some(line) = lines.http2.iter().min_by_key(|line| line.streams.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        let allowed = line.streams_max.load(Ordering::Relaxed);
        if line.streams.load(Ordering::Relaxed) < STREAMS_MAX.min(allowed.max(1)) {
            return Ok(Some(line.lease()));
        }
        if lines.http2.len() < self.connections_max {
            return Ok(None);
        }
        Err(Failure::Saturated { what: self.what, full: Full::All { max: self.connections_max * STREAMS_MAX } })
    }

    async fn open(self: &Arc<Self>) -> Result<Lease, Failure> {
        // Rare and large (TLS state): boxed, so that the path of every other request stays small.
        match Box::pin(self.dialer.dial()).await? {
            Opened::Http2(sender, streams_max) => {
                let line = Line { sender, streams: Arc::default(), streams_max };
                let lease = line.lease();
                let mut lines = self.lines.lock();
                lines.http2.push(line);
                lines.speaks_http1 = false;
                Ok(lease)
            }
            Opened::Http1(sender) => {
                self.lines.lock().speaks_http1 = true;
                Ok(Lease::Http1(sender, Arc::downgrade(self)))
            }
        }
    }
}

impl Line {
    fn lease(&self) -> Lease {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Lease::Http2 { sender: self.sender.clone(), _slot: Slot(self.streams.clone()) }
    }
}

impl Lease {
    /// Sends; a request that never started comes back in the error.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Box<TrySendError<Request<Body>>>> {
        match self {
            Self::Http2 { sender, .. } => sender.try_send_request(request).await.map_err(Box::new),
            Self::Http1(sender, _) => {
                // A connection that came back may still be finishing; one that broke gives the request back below.
                let _closed = sender.ready().await;
                sender.try_send_request(request).await.map_err(Box::new)
            }
        }
    }

    /// True if the URI must be whole: HTTP/1.1 takes the path, and the host from a header.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self, Self::Http2 { .. })
    }

    /// Gives the place back after an answer that was read to its end.
    pub(super) fn finish(self) {
        let Self::Http1(sender, pool) = self else { return };
        let Some(pool) = pool.upgrade() else { return };
        let mut lines = pool.lines.lock();
        if !sender.is_closed() && lines.idle.len() < IDLE_MAX {
            lines.idle.push(sender);
        }
    }
}
