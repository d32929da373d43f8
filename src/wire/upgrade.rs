//! A connection that changes its protocol: what is to be done with it travels with the answer 101.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use http::{HeaderMap, header};
use hyper::upgrade::Upgraded;
use parking_lot::Mutex;

type Work = Box<dyn FnOnce(Upgraded) -> BoxFuture<'static, ()> + Send>;

/// In a request's extensions: the client asked for a WebSocket. The headers that said so are of one hop, and gone.
#[derive(Clone, Copy, Debug)]
pub struct WebSocketAsked;

impl WebSocketAsked {
    /// Source: kubernetes/streaming `pkg/httpstream/wsstream/conn.go`, `IsWebSocketRequest`.
    pub fn by(headers: &HeaderMap) -> Option<Self> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let upgrades = text(header::CONNECTION).to_ascii_lowercase().contains("upgrade");
        (upgrades && text(header::UPGRADE).eq_ignore_ascii_case("websocket")).then_some(Self)
    }
}

/// In an answer's extensions: whoever holds the connection runs this on it once it is upgraded, and holds its seat
/// until that ends.
#[derive(Clone)]
pub struct OnceUpgraded(Arc<Mutex<Option<Work>>>);

impl OnceUpgraded {
    /// Makes work of a function.
    pub fn new(work: impl FnOnce(Upgraded) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(work)))))
    }

    /// Begins the work; a second time there is none.
    pub fn run(&self, connection: Upgraded) -> BoxFuture<'static, ()> {
        let work = self.0.lock().take();
        work.map_or_else(|| -> BoxFuture<'static, ()> { Box::pin(async {}) }, |work| work(connection))
    }
}

impl fmt::Debug for OnceUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnceUpgraded")
    }
}
