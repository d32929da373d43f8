//! Large answers over HTTP/2 in large writes.
//!
//! h2 writes and flushes each frame of 16 KiB by itself. Beneath it, each is two records of TLS, since a frame has nine bytes more than
//! a record, and a call of the system, which costs more than the encryption. So frames are gathered here: four full records are one
//! call.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is gathered at most: four full records of TLS, which rustls takes at once.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// A write from here on begins to gather. What is smaller leaves at once: answers, events of watches.
const LARGE_BYTES_MIN: usize = 8 << 10;

/// A stream whose large writes are gathered.
///
/// A flush right behind a write is put off, and the task is woken so that it flushes once more: h2 flushes after each frame, and once
/// more when it has no more of them. Any other flush is one.
pub(crate) struct Gather<S> {
    stream: S,
    /// It gathers at all.
    is_on: bool,
    /// What waits; without memory where nothing does.
    waiting: Vec<u8>,
    /// So many bytes of it are written.
    written: usize,
    /// From the first large write to the flush behind the last one.
    is_large: bool,
    /// There was a write since the last flush.
    is_newer: bool,
}

impl<S> Gather<S> {
    /// `is_on`: HTTP/2 is spoken.
    pub(crate) fn new(stream: S, is_on: bool) -> Self {
        Self { stream, is_on, waiting: Vec::new(), written: 0, is_large: false, is_newer: false }
    }
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    /// Takes as much of a large write as there is room for.
    fn poll_gather(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= GATHERED_BYTES_MAX {
            ready!(self.poll_drain(cx))?;
        }
        let before = self.waiting.len();
        if before > 0 {
            // More than one frame: an event of a watch is one.
            self.waiting.reserve_exact(GATHERED_BYTES_MAX - before);
        }
        for slice in slices {
            let room = GATHERED_BYTES_MAX - self.waiting.len();
            self.waiting.extend_from_slice(slice.get(..room).unwrap_or(slice));
        }
        (self.is_large, self.is_newer) = (true, true);
        Poll::Ready(Ok(self.waiting.len() - before))
    }

    /// Writes what waits.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let rest = self.waiting.get(self.written..).unwrap_or_default()
            && !rest.is_empty()
        {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.waiting.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if this.is_on && (this.is_large || len >= LARGE_BYTES_MIN) {
            return this.poll_gather(cx, slices);
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.is_newer) {
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_drain(cx))?;
        if std::mem::take(&mut this.is_large) {
            this.waiting = Vec::new();
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use futures::task::{ArcWake, waker};
    use proptest::prelude::*;

    use super::*;

    /// Takes what it has room for, in turn, and nothing where that is none.
    #[derive(Default)]
    struct Sink {
        taken: Vec<u8>,
        writes: usize,
        flushes: usize,
        rooms: Vec<usize>,
    }

    impl AsyncWrite for Sink {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.writes += 1;
            let room = self.rooms.pop().unwrap_or(usize::MAX).min(buf.len());
            if room == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.taken.extend_from_slice(&buf[..room]);
            Poll::Ready(Ok(room))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(gather: &mut Gather<Sink>, cx: &mut Context<'_>, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if let Poll::Ready(written) = Pin::new(&mut *gather).poll_write(cx, bytes) {
                bytes = &bytes[written.unwrap()..];
            }
        }
    }

    fn flush(gather: &mut Gather<Sink>, cx: &mut Context<'_>) {
        while Pin::new(&mut *gather).poll_flush(cx).is_pending() {}
    }

    #[test]
    fn frames_of_a_large_answer_are_gathered() {
        let woken = Arc::new(Woken::default());
        let waker = waker(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut gather = Gather::new(Sink::default(), true);
        // As h2 writes 128 KiB.
        for _ in 0..8 {
            write(&mut gather, &mut cx, &[7; 9 + (16 << 10)]);
            flush(&mut gather, &mut cx);
        }
        assert_eq!((gather.stream.writes, gather.stream.flushes), (2, 0));
        // Whoever flushes no more is asked to.
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        flush(&mut gather, &mut cx);
        assert_eq!((gather.stream.writes, gather.stream.flushes), (3, 1));
        assert_eq!(gather.stream.taken.len(), 8 * (9 + (16 << 10)));
        assert_eq!(gather.waiting.capacity(), 0, "no connection keeps memory");
    }

    #[test]
    fn what_is_small_leaves_at_once() {
        let woken = Arc::new(Woken::default());
        let waker = waker(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut gather = Gather::new(Sink::default(), true);
        for at in 1..4 {
            write(&mut gather, &mut cx, &[7; 1_000]);
            flush(&mut gather, &mut cx);
            assert_eq!((gather.stream.writes, gather.stream.flushes), (at, at));
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_shutdown_leaves_nothing_behind() {
        let mut cx = Context::from_waker(futures::task::noop_waker_ref());
        let mut gather = Gather::new(Sink::default(), true);
        write(&mut gather, &mut cx, &[7; 20_000]);
        flush(&mut gather, &mut cx);
        assert!(gather.stream.taken.is_empty());
        assert!(Pin::new(&mut gather).poll_shutdown(&mut cx).is_ready());
        assert_eq!(gather.stream.taken.len(), 20_000);
    }

    proptest! {
        /// However much is taken at a time, and wherever it is flushed.
        #[test]
        fn what_is_written_arrives_in_order(
            writes in prop::collection::vec((1..40_000_usize, 0..3_usize), 0..30),
            rooms in prop::collection::vec(0..70_000_usize, 0..60),
        ) {
            let mut cx = Context::from_waker(futures::task::noop_waker_ref());
            let mut gather = Gather::new(Sink { rooms, ..Sink::default() }, true);
            let mut all = Vec::new();
            for (at, (len, flushes)) in writes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|byte| (at + byte) as u8).collect();
                write(&mut gather, &mut cx, &bytes);
                all.extend_from_slice(&bytes);
                for _ in 0..flushes {
                    flush(&mut gather, &mut cx);
                }
                if flushes == 2 {
                    prop_assert!(gather.stream.taken == all, "all is there after the second flush");
                }
            }
            flush(&mut gather, &mut cx);
            flush(&mut gather, &mut cx);
            prop_assert!(gather.stream.taken == all);
        }
    }
}
