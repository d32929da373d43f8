//! A TCP relay before a server, for the ways in which networks fail.
//!
//! It fails below TLS, where the faults of an embedded member cannot: packets that are lost on open connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Member, Port};

/// Bytes of one read, and reads under way in one direction: what a delayed connection holds.
const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS_MAX: usize = 64;

/// A relay on a port of its own. It works on a runtime of its own too, so that it does not depend on the test's.
pub struct Relay {
    port: Port,
    upstreams: Arc<Upstreams>,
    weather: watch::Sender<Weather>,
    /// Ends the listener and every connection through it; `None` while cut.
    line: parking_lot::Mutex<Option<Line>>,
    /// Taken in `drop`, where an async context forbids the blocking drop.
    runtime: Option<Runtime>,
}

/// What happens to bytes on their way.
#[derive(Clone, Copy, Default)]
struct Weather {
    hangs: bool,
    delay: Duration,
}

/// The servers behind it. Each connection goes to the next one that accepts it.
struct Upstreams {
    addresses: Vec<String>,
    next: AtomicUsize,
}

impl Upstreams {
    async fn connect(&self) -> Option<TcpStream> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for at in 0..self.addresses.len() {
            let address = self.addresses.get((first + at) % self.addresses.len())?;
            if let Ok(upstream) = TcpStream::connect(address).await {
                return Some(upstream);
            }
        }
        None
    }
}

struct Line {
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Relay {
    /// Relays to a member.
    pub async fn before(member: &Member) -> Self {
        Self::to(&member.addr()).await
    }

    /// Relays to any address.
    pub async fn to(upstream: &str) -> Self {
        Self::among(&[upstream.to_owned()]).await
    }

    /// Relays to several addresses in turn, as a load balancer does.
    pub async fn among(upstreams: &[String]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("relay")
            .enable_all()
            .build()
            .expect("a runtime");
        let relay = Self {
            port: Port::reserve(),
            upstreams: Arc::new(Upstreams { addresses: upstreams.to_vec(), next: AtomicUsize::new(0) }),
            weather: watch::Sender::new(Weather::default()),
            line: parking_lot::Mutex::new(None),
            runtime: Some(runtime),
        };
        relay.restore().await;
        relay
    }

    /// Where it listens, also while it does not.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    /// Closes every connection and refuses new ones, from the return of this call on.
    pub async fn cut(&self) {
        let line = self.line.lock().take();
        if let Some(Line { tasks, end }) = line {
            end.cancel();
            tasks.close();
            tasks.wait().await;
        }
    }

    /// Closes every connection once; new ones are served.
    pub async fn sever(&self) {
        self.cut().await;
        self.listen().await;
    }

    /// Accepts connections but moves no byte more, on old connections and new ones.
    pub fn hang(&self) {
        self.weather.send_modify(|weather| weather.hangs = true);
    }

    /// Delivers every byte this much later; for bytes that come in from now on.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Ends whatever was done to it: it listens, and bytes move at once. Connections that hung go on.
    pub async fn restore(&self) {
        self.weather.send_replace(Weather::default());
        self.listen().await;
    }

    async fn listen(&self) {
        if self.line.lock().is_some() {
            return;
        }
        let runtime = self.runtime.as_ref().expect("taken only in drop").handle();
        let addr = self.addr();
        let listener = runtime.spawn(TcpListener::bind(addr)).await.expect("a task").expect("our own port");
        let line = Line { tasks: TaskTracker::new(), end: CancellationToken::new() };
        let accept = accept(
            listener,
            Arc::clone(&self.upstreams),
            self.weather.subscribe(),
            line.tasks.clone(),
            line.end.clone(),
        );
        line.tasks.spawn_on(line.end.clone().run_until_cancelled_owned(accept), runtime);
        *self.line.lock() = Some(line);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: TcpListener,
    upstreams: Arc<Upstreams>,
    weather: watch::Receiver<Weather>,
    tasks: TaskTracker,
    end: CancellationToken,
) {
    while let Ok((downstream, _)) = listener.accept().await {
        let carry = carry(downstream, Arc::clone(&upstreams), weather.clone());
        tasks.spawn(end.clone().run_until_cancelled_owned(carry));
    }
}

async fn carry(downstream: TcpStream, upstreams: Arc<Upstreams>, mut weather: watch::Receiver<Weather>) {
    // A relay that hangs does not so much as connect.
    if weather.wait_for(|weather| !weather.hangs).await.is_err() {
        return;
    }
    let Some(upstream) = upstreams.connect().await else { return };
    downstream.set_nodelay(true).ok();
    upstream.set_nodelay(true).ok();
    let ((from_down, to_down), (from_up, to_up)) = (downstream.into_split(), upstream.into_split());
    tokio::join!(carry_one_way(from_down, to_up, weather.clone()), carry_one_way(from_up, to_down, weather));
}

/// Reading and writing run apart, so that a delay delays without narrowing the pipe.
async fn carry_one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, weather: watch::Receiver<Weather>) {
    let (send, mut due) = mpsc::channel::<(Instant, Bytes)>(CHUNKS_MAX);
    let mut sky = weather.clone();
    let read = async move {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK_BYTES);
            let Ok(1..) = from.read_buf(&mut buffer).await else { return };
            let at = Instant::now() + weather.borrow().delay;
            if send.send((at, buffer.split().freeze())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((at, bytes)) = due.recv().await {
            sleep_until(at).await;
            if sky.wait_for(|weather| !weather.hangs).await.is_err() || to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // The end of a stream is on its way like any byte.
        if sky.wait_for(|weather| !weather.hangs).await.is_ok() {
            to.shutdown().await.ok();
        }
    };
    tokio::join!(read, write);
}
