//! A tunnel: two connections whose bytes are each other's, until one of them ends.
//!
//! Nothing in them is read, so that frames, pings and resets of any protocol pass. The end of one direction is told
//! and the other goes on, as long as something moves in it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    time::sleep,
};

/// A kubelet's own: so long may a stream be without a byte.
///
/// Source: kubernetes/kubernetes `pkg/kubelet/apis/config/v1beta1/defaults.go`, `StreamingConnectionIdleTimeout`.
const IDLE_MAX: Duration = Duration::from_secs(4 * 60 * 60);
/// The same once one direction has ended.
const HALF_CLOSED_IDLE_MAX: Duration = Duration::from_secs(60);
/// What is under way in one direction.
const BUFFER_BYTES: usize = 32 << 10;

/// How a tunnel ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides said that they were done.
    Closed,
    /// One of them broke.
    Broken(io::Error),
    /// Nothing moved for too long.
    Idle,
}

/// Copies until the end. Both connections are closed when it returns.
///
/// Cancel: safe; both are closed.
pub(crate) async fn join<A, B>(one: A, other: B) -> End
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let moved = Arc::new(Moved::default());
    let mut one = Watched { io: one, moved: Arc::clone(&moved) };
    let mut other = Watched { io: other, moved: Arc::clone(&moved) };
    tokio::select! {
        ended = copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER_BYTES, BUFFER_BYTES) => match ended {
            Ok(_) => End::Closed,
            Err(error) => End::Broken(error),
        },
        () = moved.stops() => End::Idle,
    }
}

/// What moved in a tunnel.
#[derive(Default)]
struct Moved {
    times: AtomicU64,
    half_closed: AtomicBool,
}

impl Moved {
    /// Waits until nothing has moved for too long: at most for twice the limit.
    async fn stops(&self) {
        loop {
            let (seen, half_closed) = (self.times.load(Ordering::Relaxed), self.half_closed.load(Ordering::Relaxed));
            if half_closed {
                sleep(HALF_CLOSED_IDLE_MAX).await;
            } else {
                // In short steps: the limit may become the other one in between.
                let mut waited = Duration::ZERO;
                while waited < IDLE_MAX && !self.half_closed.load(Ordering::Relaxed) {
                    sleep(HALF_CLOSED_IDLE_MAX).await;
                    waited += HALF_CLOSED_IDLE_MAX;
                }
                if waited < IDLE_MAX {
                    continue;
                }
            }
            if seen == self.times.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn count(&self) {
        self.times.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection that counts what moves on it.
struct Watched<T> {
    io: T,
    moved: Arc<Moved>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        self.moved.count();
        if buffer.filled().len() == before {
            self.moved.half_closed.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(context, bytes))?;
        self.moved.count();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::Instant,
    };
    use tokio_util::task::TaskTracker;

    use super::*;

    fn tunnel() -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<End>) {
        let ((client, one), (other, member)) = (duplex(1024), duplex(1024));
        (client, member, TaskTracker::new().spawn(join(one, other)))
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_one_direction_is_told_and_the_other_goes_on() {
        let (mut client, mut member, tunnel) = tunnel();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = String::new();
        member.read_to_string(&mut asked).await.unwrap();
        assert_eq!(asked, "question");
        for _ in 0..10 {
            sleep(HALF_CLOSED_IDLE_MAX / 2).await;
            member.write_all(b".").await.unwrap();
        }
        drop(member);
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        assert_eq!(told, "..........");
        assert!(matches!(tunnel.await.unwrap(), End::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_move_ends_and_what_moves_now_and_then_does_not() {
        let (mut client, mut member, tunnel) = tunnel();
        for _ in 0..5 {
            sleep(IDLE_MAX - Duration::from_secs(120)).await;
            client.write_all(b"x").await.unwrap();
            member.read_u8().await.unwrap();
        }
        let since = Instant::now();
        assert!(matches!(tunnel.await.unwrap(), End::Idle));
        assert!(since.elapsed() >= IDLE_MAX - Duration::from_secs(120) && since.elapsed() <= 2 * IDLE_MAX);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "both are closed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_never_ends_is_not_waited_for_long() {
        let (client, member, tunnel) = tunnel();
        drop(client);
        let since = Instant::now();
        assert!(matches!(tunnel.await.unwrap(), End::Idle));
        assert!(since.elapsed() <= 4 * HALF_CLOSED_IDLE_MAX, "{:?}", since.elapsed());
        drop(member);
    }
}
