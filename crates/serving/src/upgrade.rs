//! A connection that changes its protocol: what is to be done with it travels with the answer 101.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, header};
use hyper::upgrade::Upgraded;
use parking_lot::Mutex;

use crate::credential::Credential;

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

/// In a request's extensions: the client asked for another protocol, in these words. As with [`WebSocketAsked`], the
/// headers are gone.
#[derive(Clone, Debug)]
pub struct UpgradeAsked(HeaderValue);

impl UpgradeAsked {
    /// Reads it off a request's headers. An upgrade to HTTP/2 in the clear may be ignored (RFC 9113 section 3.1), and is.
    pub fn by(headers: &HeaderMap) -> Option<Self> {
        let connection = headers.get_all(header::CONNECTION).iter();
        let mut words = connection.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        if !words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade")) {
            return None;
        }
        let wanted = headers.get(header::UPGRADE).filter(|value| !value.is_empty())?;
        (!wanted.as_bytes().eq_ignore_ascii_case(b"h2c")).then(|| Self(wanted.clone()))
    }

    /// As a header.
    pub fn header(&self) -> &HeaderValue {
        &self.0
    }

    /// Says whether a protocol that a server switched to is among those that were asked for.
    pub fn names(&self, protocol: &HeaderValue) -> bool {
        let mut wanted = self.0.as_bytes().split(|byte| *byte == b',');
        wanted.any(|word| word.trim_ascii().eq_ignore_ascii_case(protocol.as_bytes().trim_ascii()))
    }
}

/// Says whether a browser sends this for a page of another site. A browser adds a client certificate by itself, and asks
/// nobody before it opens a WebSocket, so that any page could open one in its user's name.
///
/// Every browser says so in `Sec-Fetch-Site`, which no page can set. The `Origin` alone says nothing: a dashboard's server
/// sends on that of its own page.
pub fn is_of_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    matches!(site, Some(b"cross-site" | b"same-site"))
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

    /// The same work, which ends when the credential does that it was asked for with, if it has not before.
    pub fn with(self, credential: Credential) -> Self {
        Self::new(move |connection| {
            Box::pin(async move {
                tokio::select! {
                    () = self.run(connection) => {}
                    () = credential.ended() => {}
                }
            })
        })
    }

    /// The same work, which holds something until it ends, or is given up.
    pub fn holding(self, held: impl Send + 'static) -> Self {
        Self::new(move |connection| {
            Box::pin(async move {
                self.run(connection).await;
                drop(held);
            })
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_the_same_origin_may_open_a_websocket() {
        let is_other = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            is_of_another_site(&headers)
        };
        assert!(!is_other(&[]), "kubectl, client-go and most others");
        assert!(!is_other(&[("origin", "http://localhost:4466")]), "Headlamp's server");
        assert!(!is_other(&[("origin", "http://localhost:4466"), ("sec-fetch-site", "same-origin")]));
        assert!(is_other(&[("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")]));
        assert!(is_other(&[("origin", "null"), ("sec-fetch-site", "cross-site")]));
        assert!(is_other(&[("origin", "https://evil.fleet.example"), ("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn an_upgrade_is_asked_for_by_both_headers() {
        let asked = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            UpgradeAsked::by(&headers)
        };
        let both = asked(&[("connection", "keep-alive"), ("connection", "x, Upgrade"), ("upgrade", "SPDY/3.1")]);
        let both = both.unwrap();
        assert!(both.names(&HeaderValue::from_static("spdy/3.1")));
        assert!(!both.names(&HeaderValue::from_static("websocket")));
        for none in [
            &[("connection", "upgrade")][..],
            &[("upgrade", "websocket")],
            &[("connection", "upgrades"), ("upgrade", "websocket")],
            &[("connection", "upgrade"), ("upgrade", "h2c")],
            &[("connection", "upgrade"), ("upgrade", "")],
        ] {
            assert!(asked(none).is_none(), "{none:?}");
        }
    }
}
