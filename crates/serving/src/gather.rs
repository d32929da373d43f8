//! Large answers over HTTP/2, and an event for many watches of a connection, in large writes.
//!
//! h2 writes and flushes each frame by itself. Beneath it, a frame of 16 KiB is two records of TLS, since a frame has nine bytes more
//! than a record, and a call of the system, which costs more than the encryption. So frames are gathered here: four full records are
//! one call.
//!
//! The end of a large body is a record of its own. Where a record has the last bytes and the end, libcurl 7.88, as Debian 12 has it,
//! takes the bytes and waits for a second until it looks for the end.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use kubefold_wire::body::{Body, BodyError};

/// What is gathered at most: four full records of TLS, which rustls takes at once.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// A write from here on begins to gather. What is smaller leaves at once: an answer, an event of a watch.
const LARGE_BYTES_MIN: usize = 8 << 10;
/// The end of a body of more bytes, or of nobody knows how many, is a frame of its own.
const ENDS_APART_BYTES: u64 = 1 << 20;
/// A frame without a payload. Source: RFC 9113, 4.1.
const FRAME_HEAD_BYTES: usize = 9;
/// Its type and its flag. Source: RFC 9113, 6.1.
const DATA: u8 = 0;
const END_STREAM: u8 = 1;
/// An event that comes so soon behind another one is of a burst: more are about to come, and it waits for them.
const BURST: Duration = Duration::from_micros(100);

/// A stream whose large writes are gathered.
///
/// A flush right behind a write is put off, and the task is woken so that it flushes once more: h2 flushes after each frame, and once
/// more when it has no more of them. Any other flush is one. In a burst of events that one is put off, too, until the task runs again:
/// behind the tasks of the other watches that have the event.
pub(crate) struct Gather<S> {
    stream: S,
    /// It gathers at all.
    is_on: bool,
    /// What waits; without memory where nothing does.
    waiting: Vec<u8>,
    /// So many bytes of it are written.
    written: usize,
    /// From the first write that is gathered to the flush behind the last one.
    is_gathering: bool,
    /// There was a write since the last flush.
    is_newer: bool,
    burst: Burst,
    /// When the last event came.
    last_event: Option<Instant>,
}

/// How far a burst of events is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Burst {
    /// There is none, or the task ran once more since.
    None,
    /// It began since the task runs.
    Begun,
    /// And was flushed.
    PutOff,
}

impl<S> Gather<S> {
    /// `is_on`: HTTP/2 is spoken.
    pub(crate) fn new(stream: S, is_on: bool) -> Self {
        Self {
            stream,
            is_on,
            waiting: Vec::new(),
            written: 0,
            is_gathering: false,
            is_newer: false,
            burst: Burst::None,
            last_event: None,
        }
    }
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    /// Takes as much of so many bytes of a large write as there is room for.
    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        mut bytes: usize,
    ) -> Poll<io::Result<usize>> {
        if self.waiting.len() >= GATHERED_BYTES_MAX {
            ready!(self.poll_drain(cx))?;
        }
        let before = self.waiting.len();
        if before > 0 {
            // More than one frame: an event of a watch is one.
            self.waiting.reserve_exact(GATHERED_BYTES_MAX - before);
        }
        for slice in slices {
            let room = bytes.min(GATHERED_BYTES_MAX - self.waiting.len());
            let taken = slice.get(..room).unwrap_or(slice);
            self.waiting.extend_from_slice(taken);
            bytes -= taken.len();
        }
        (self.is_gathering, self.is_newer) = (true, true);
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

impl<S> Gather<S> {
    /// Says whether a write is to wait for more.
    fn gathers(&mut self, slices: &[IoSlice<'_>], len: usize) -> bool {
        if self.is_gathering || len >= LARGE_BYTES_MIN {
            return true;
        }
        if !slices.first().is_some_and(|slice| is_event(slice)) {
            return false;
        }
        let now = Instant::now();
        let is_burst = self.last_event.replace(now).is_some_and(|last| now.duration_since(last) < BURST);
        if is_burst {
            self.burst = Burst::Begun;
        }
        is_burst
    }
}

/// Says whether a write begins with a piece of a body of which more is to come. Source: RFC 9113, 4.1 and 6.1.
fn is_event(frames: &[u8]) -> bool {
    matches!(frames, [_, _, _, DATA, flags, ..] if flags & END_STREAM == 0)
}

/// Says whether the last frame of a write is the end of a body and nothing else. Bytes of a body may look so: then they are two writes.
fn ends_body(slices: &[IoSlice<'_>]) -> bool {
    let last = slices.iter().rfind(|slice| !slice.is_empty());
    let head = last.and_then(|slice| slice.last_chunk::<FRAME_HEAD_BYTES>());
    matches!(head, Some([0, 0, 0, DATA, flags, ..]) if flags & END_STREAM != 0)
}

/// The same body, whose last bytes do not have its end if they are many: h2 sends that in a frame of its own then.
pub(crate) fn ending_apart(body: Body) -> Body {
    let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= ENDS_APART_BYTES);
    if is_small { body } else { EndingApart(body).boxed_unsync() }
}

struct EndingApart(Body);

impl http_body::Body for EndingApart {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // h2 reads before it writes, whenever the task runs.
        this.burst = Burst::None;
        Pin::new(&mut this.stream).poll_read(cx, buf)
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
        if this.is_on && this.gathers(slices, len) {
            let end = if ends_body(slices) { FRAME_HEAD_BYTES } else { 0 };
            if len > end {
                return this.poll_gather(cx, slices, len - end);
            }
            ready!(this.poll_drain(cx))?;
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
        if this.burst == Burst::Begun {
            // The task has been woken.
            this.burst = Burst::PutOff;
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_drain(cx))?;
        if std::mem::take(&mut this.is_gathering) {
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

    use futures::{
        FutureExt as _,
        task::{ArcWake, waker},
    };
    use proptest::prelude::*;

    use super::*;

    /// Takes what it has room for, in turn, and nothing where that is none.
    #[derive(Default)]
    struct Sink {
        taken: Vec<u8>,
        writes: usize,
        /// What the last of them took.
        last: usize,
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
            self.last = room;
            Poll::Ready(Ok(room))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.poll_write(cx, &all)
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Sink {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
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
    fn the_end_of_a_large_body_is_a_write_of_its_own() {
        const END: [u8; 9] = [0, 0, 0, 0, 1, 0, 0, 0, 3];
        let mut cx = Context::from_waker(futures::task::noop_waker_ref());
        let mut gather = Gather::new(Sink::default(), true);
        // By itself, and in one write with the last bytes.
        for before in [&[][..], &[7; 9 + 30]] {
            write(&mut gather, &mut cx, &[7; 9 + (16 << 10)]);
            flush(&mut gather, &mut cx);
            let writes = gather.stream.writes;
            write(&mut gather, &mut cx, &[before, &END].concat());
            assert_eq!((gather.stream.writes, gather.stream.last), (writes + 2, END.len()));
            assert!(gather.stream.taken.ends_with(&[before, &END].concat()));
            flush(&mut gather, &mut cx);
            flush(&mut gather, &mut cx);
            assert_eq!(gather.waiting.capacity(), 0);
        }
        // It waits with what is before it.
        gather.stream.rooms = vec![usize::MAX, 0];
        write(&mut gather, &mut cx, &[7; 20_000]);
        let taken = gather.stream.taken.len();
        assert!(Pin::new(&mut gather).poll_write(&mut cx, &END).is_pending());
        assert_eq!(gather.stream.taken.len(), taken);
        write(&mut gather, &mut cx, &END);
        assert_eq!((gather.stream.taken.len(), gather.stream.last), (taken + 20_000 + END.len(), END.len()));
    }

    #[test]
    fn large_bodies_end_apart() {
        let is_at_end = |body: &Body| body.is_end_stream();
        let of = |bytes: usize| kubefold_wire::body::full(vec![7; bytes]);
        assert!(is_at_end(&ending_apart(of(0))));
        for (bytes, is_apart) in [(1 << 20, false), ((1 << 20) + 1, true)] {
            let mut body = ending_apart(of(bytes));
            assert_eq!(body.size_hint().exact(), Some(bytes as u64));
            let mut frame = || body.frame().now_or_never().unwrap();
            assert_eq!(frame().unwrap().unwrap().into_data().unwrap().len(), bytes);
            assert_ne!(is_at_end(&body), is_apart, "{bytes}");
            assert!(body.frame().now_or_never().unwrap().is_none());
        }
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

    /// As h2 writes a piece of a body: its head, then the piece.
    fn tell(gather: &mut Gather<Sink>, cx: &mut Context<'_>, flags: u8) {
        let head = [0, 4, 0, 0, flags, 0, 0, 0, 1];
        let slices = [IoSlice::new(&head), IoSlice::new(&[7; 1_024])];
        assert!(matches!(Pin::new(&mut *gather).poll_write_vectored(cx, &slices), Poll::Ready(Ok(1_033))));
        flush(gather, cx);
    }

    /// As h2 does whenever its task runs.
    fn read(gather: &mut Gather<Sink>, cx: &mut Context<'_>) {
        assert!(Pin::new(gather).poll_read(cx, &mut ReadBuf::new(&mut [0; 8])).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn the_events_of_a_burst_are_one_write() {
        let woken = Arc::new(Woken::default());
        let waker = waker(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut gather = Gather::new(Sink::default(), true);
        let seen = |gather: &Gather<Sink>| (gather.stream.writes, gather.stream.flushes);
        let woken = || woken.0.load(Ordering::Relaxed);
        read(&mut gather, &mut cx);
        tell(&mut gather, &mut cx, 0);
        flush(&mut gather, &mut cx);
        assert_eq!((seen(&gather), woken()), ((1, 2), 0), "nobody knows yet that more will come");

        // The task runs for one more, and then for all the others.
        read(&mut gather, &mut cx);
        tell(&mut gather, &mut cx, 0);
        flush(&mut gather, &mut cx);
        assert_eq!((seen(&gather), woken()), ((1, 2), 1));
        read(&mut gather, &mut cx);
        (0..30).for_each(|_| tell(&mut gather, &mut cx, 0));
        flush(&mut gather, &mut cx);
        assert_eq!(seen(&gather), (2, 3), "once more is enough");
        assert_eq!(gather.stream.taken.len(), 32 * 1_033);

        // A task that does not read keeps nothing either.
        tell(&mut gather, &mut cx, 0);
        flush(&mut gather, &mut cx);
        flush(&mut gather, &mut cx);
        assert_eq!(seen(&gather), (3, 4));

        // What comes later is no burst, and the end of a body is no event.
        tokio::time::advance(BURST).await;
        tell(&mut gather, &mut cx, 0);
        tell(&mut gather, &mut cx, 1);
        assert_eq!(seen(&gather), (5, 6));
        assert_eq!(gather.stream.taken.len(), 35 * 1_033);
        assert_eq!(gather.waiting.capacity(), 0);
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
            writes in prop::collection::vec((1..40_000_usize, 0..3_usize, any::<bool>()), 0..30),
            rooms in prop::collection::vec(0..70_000_usize, 0..60),
        ) {
            let mut cx = Context::from_waker(futures::task::noop_waker_ref());
            let mut gather = Gather::new(Sink { rooms, ..Sink::default() }, true);
            let mut all = Vec::new();
            for (at, (len, flushes, ends)) in writes.into_iter().enumerate() {
                let mut bytes: Vec<u8> = (0..len).map(|byte| (at + byte) as u8).collect();
                if ends {
                    bytes.extend([0, 0, 0, DATA, END_STREAM, 0, 0, 0, 1]);
                }
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
