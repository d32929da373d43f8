//! Who may ask: whoever has the token of the address that the terminal shows, from a page of this very address.
//!
//! A web page of somebody else can send requests to loopback addresses, and by DNS rebinding under a name of its own. So the
//! `Host` must be an address and not a name, and what a browser says of where a request is from must be this page.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use anyhow::bail;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use parking_lot::Mutex;

use crate::{cli::login::secret, respond::UiRefused};
use kubefold_wire::options::query_value;

/// The parameter that has the token in the address of the page.
const PARAMETER: &str = "token";
const BEARER: &str = "Bearer ";

/// What proves that somebody may ask.
pub(super) struct Secrets {
    /// For as long as the program runs.
    token: String,
    /// In the address that the program opens: other users of the machine see the command line of a browser. It is good for one page.
    first: String,
}

impl Secrets {
    /// Errors: the machine gives no random numbers.
    pub(super) fn random() -> anyhow::Result<Self> {
        let (token, first) = (secret()?, secret()?);
        if token == first {
            bail!("this machine gives the same random number twice");
        }
        Ok(Self { token, first })
    }

    /// The address for a person.
    pub(super) fn address(&self, listens: SocketAddr) -> String {
        format!("http://{listens}/?{PARAMETER}={}", self.token)
    }

    /// The address for a browser that this program opens.
    pub(super) fn first_address(&self, listens: SocketAddr) -> String {
        format!("http://{listens}/?{PARAMETER}={}", self.first)
    }
}

/// How somebody has proved that he may ask.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// By the address of the page: the answer sets the cookie.
    Address,
    /// By the cookie, or by the token in a header.
    Session,
}

/// Admits requests.
pub(super) struct Gate {
    listens: SocketAddr,
    token: String,
    first: Mutex<Option<String>>,
    cookie: String,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("listens", &self.listens).finish_non_exhaustive()
    }
}

impl Gate {
    /// `listens` is the bound address.
    pub(super) fn new(listens: SocketAddr, secrets: Secrets) -> Self {
        let Secrets { token, first } = secrets;
        // Cookies of one host are of all its ports.
        let cookie = format!("kubefold-ui-{}", listens.port());
        Self { listens, token, first: Mutex::new(Some(first)), cookie }
    }

    /// Admits a request by its head.
    ///
    /// Errors: it is not for this host, is from another page, or has no token that counts.
    pub(super) fn admit(&self, asked: &Parts) -> Result<Proof, UiRefused> {
        let host = self.host(asked)?;
        let of_address =
            (asked.uri.path() == "/").then(|| query_value(asked.uri.query().unwrap_or_default(), PARAMETER)).flatten();
        let navigates = of_address.is_some() && value(&asked.headers, "sec-fetch-mode") == Some("navigate");
        from_this_page(&asked.headers, host, navigates)?;
        if let Some(given) = of_address {
            return if self.is_of_address(&given) { Ok(Proof::Address) } else { Err(UiRefused::NoToken) };
        }
        let cookies = asked.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let by_cookie = pairs.any(|(name, value)| name == self.cookie && same(value, &self.token));
        let by_header = value(&asked.headers, header::AUTHORIZATION.as_str())
            .and_then(|value| value.strip_prefix(BEARER))
            .is_some_and(|given| same(given, &self.token));
        if by_cookie || by_header { Ok(Proof::Session) } else { Err(UiRefused::NoToken) }
    }

    /// Admits what changes something: a browser says of each such request which page it is from. A program has the token itself.
    ///
    /// Errors: a browser does not say so.
    pub(super) fn admit_order(&self, asked: &Parts) -> Result<(), UiRefused> {
        let is_program = !asked.headers.contains_key(header::COOKIE);
        if is_program || asked.headers.contains_key(header::ORIGIN) { Ok(()) } else { Err(UiRefused::OtherPage) }
    }

    /// The header that makes a browser one that may ask: no script reads it, and no other site's request has it.
    pub(super) fn cookie(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie, self.token)
    }

    fn is_of_address(&self, given: &str) -> bool {
        if same(given, &self.token) {
            return true;
        }
        let mut first = self.first.lock();
        let is_first = first.as_deref().is_some_and(|first| same(given, first));
        if is_first {
            *first = None;
        }
        is_first
    }

    /// The one `Host` of a request, which names this listener by an address or as `localhost`.
    fn host<'a>(&self, asked: &'a Parts) -> Result<&'a str, UiRefused> {
        let mut hosts = asked.headers.get_all(header::HOST).iter();
        let (Some(host), None, None) = (hosts.next(), hosts.next(), asked.uri.authority()) else {
            return Err(UiRefused::Host { listens: self.listens });
        };
        let host = host.to_str().unwrap_or_default();
        // A browser leaves out the port of HTTP's own.
        let (name, port) = match host.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']')) {
            Some((name, port)) => (name, port.parse().unwrap_or_default()),
            None => (host, 80),
        };
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let is_known = match address {
            // Behind 0.0.0.0 this machine has addresses that the program does not know. A name is never one of them.
            Some(address) => !self.listens.ip().is_loopback() || address.is_loopback(),
            None => name.eq_ignore_ascii_case("localhost"),
        };
        if is_known && port == self.listens.port() { Ok(host) } else { Err(UiRefused::Host { listens: self.listens }) }
    }
}

/// Refuses what another page than this asks. Somebody may come here from another page by the address with the token.
///
/// Source: Fetch Metadata (W3C), `Sec-Fetch-Site`; Fetch (WHATWG), `Origin`.
fn from_this_page(headers: &HeaderMap, host: &str, navigates: bool) -> Result<(), UiRefused> {
    let is_own =
        |origin: &HeaderValue| origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://")) == Some(host);
    if !headers.get_all(header::ORIGIN).iter().all(is_own) {
        return Err(UiRefused::OtherPage);
    }
    match value(headers, "sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if navigates => Ok(()),
        Some(_) => Err(UiRefused::OtherPage),
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn same(given: &str, secret: &str) -> bool {
    verify_slices_are_equal(given.as_bytes(), secret.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const OWN: &str = "127.0.0.1:4000";

    fn gate() -> Gate {
        Gate::new(OWN.parse().unwrap(), Secrets { token: "secret".into(), first: "once".into() })
    }

    fn admitted(gate: &Gate, uri: &str, headers: &[(&str, &str)]) -> Result<Proof, &'static str> {
        let request = headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        gate.admit(&request.body(()).unwrap().into_parts().0).map_err(|refused| match refused {
            UiRefused::Host { .. } => "host",
            UiRefused::OtherPage => "page",
            UiRefused::NoToken => "token",
            other => panic!("{other}"),
        })
    }

    #[test]
    fn only_the_token_opens_it() {
        let gate = gate();
        for (uri, header, expected) in [
            ("/", None, Err("token")),
            ("/fleet/api", None, Err("token")),
            ("/?token=secret", None, Ok(Proof::Address)),
            ("/?token=secre", None, Err("token")),
            ("/?token=", None, Err("token")),
            ("/fleet/api?token=secret", None, Err("token")),
            ("/fleet/api", Some(("cookie", "a=b; kubefold-ui-4000=secret")), Ok(Proof::Session)),
            ("/fleet/api", Some(("cookie", "kubefold-ui-4001=secret")), Err("token")),
            ("/fleet/api", Some(("cookie", "kubefold-ui-4000=secret2")), Err("token")),
            ("/fleet/api", Some(("authorization", "Bearer secret")), Ok(Proof::Session)),
            ("/fleet/api", Some(("authorization", "Basic secret")), Err("token")),
        ] {
            let headers: Vec<_> = [("host", OWN)].into_iter().chain(header).collect();
            assert_eq!(admitted(&gate, uri, &headers), expected, "{uri} {header:?}");
        }
        // A wrong address does not fall back on a cookie: a page that somebody was lured to says why.
        let both = [("host", OWN), ("cookie", "kubefold-ui-4000=secret")];
        assert_eq!(admitted(&gate, "/?token=other", &both), Err("token"));
        assert_eq!(gate.cookie(), "kubefold-ui-4000=secret; Path=/; HttpOnly; SameSite=Strict");
    }

    #[test]
    fn the_address_that_a_browser_was_opened_with_is_good_once() {
        let gate = gate();
        assert_eq!(admitted(&gate, "/?token=once", &[("host", OWN)]), Ok(Proof::Address));
        assert_eq!(admitted(&gate, "/?token=once", &[("host", OWN)]), Err("token"));
        assert_eq!(admitted(&gate, "/fleet/api", &[("host", OWN), ("authorization", "Bearer once")]), Err("token"));
    }

    #[test]
    fn a_name_that_leads_here_is_refused() {
        for (host, expected) in [
            ("127.0.0.1:4000", Ok(Proof::Session)),
            ("localhost:4000", Ok(Proof::Session)),
            ("[::1]:4000", Ok(Proof::Session)),
            ("127.0.0.1:4001", Err("host")),
            ("127.0.0.1", Err("host")),
            ("evil.example:4000", Err("host")),
            ("127.0.0.1.evil.example:4000", Err("host")),
            ("192.0.2.1:4000", Err("host")),
            ("localhost.evil.example:4000", Err("host")),
            ("", Err("host")),
        ] {
            let headers = [("host", host), ("authorization", "Bearer secret")];
            assert_eq!(admitted(&gate(), "/fleet/api", &headers), expected, "{host}");
        }
        let token = ("authorization", "Bearer secret");
        assert_eq!(admitted(&gate(), "/fleet/api", &[token]), Err("host"));
        assert_eq!(admitted(&gate(), "/fleet/api", &[("host", OWN), ("host", OWN), token]), Err("host"));
        assert_eq!(admitted(&gate(), "http://evil.example/fleet/api", &[("host", OWN), token]), Err("host"));
        let everywhere =
            Gate::new("0.0.0.0:4000".parse().unwrap(), Secrets { token: "secret".into(), first: "once".into() });
        assert_eq!(admitted(&everywhere, "/", &[("host", "192.0.2.1:4000"), token]), Ok(Proof::Session));
        assert_eq!(admitted(&everywhere, "/", &[("host", "evil.example:4000"), token]), Err("host"));
    }

    #[test]
    fn another_page_is_refused() {
        let token = ("authorization", "Bearer secret");
        for (headers, expected) in [
            (vec![("origin", "http://127.0.0.1:4000")], Ok(Proof::Session)),
            (vec![("sec-fetch-site", "same-origin")], Ok(Proof::Session)),
            (vec![("sec-fetch-site", "none")], Ok(Proof::Session)),
            (vec![("origin", "http://localhost:4000")], Err("page")),
            (vec![("origin", "https://127.0.0.1:4000")], Err("page")),
            (vec![("origin", "http://127.0.0.1:4001")], Err("page")),
            (vec![("origin", "http://evil.example")], Err("page")),
            (vec![("origin", "null")], Err("page")),
            (vec![("origin", "http://127.0.0.1:4000"), ("origin", "http://evil.example")], Err("page")),
            (vec![("sec-fetch-site", "cross-site")], Err("page")),
            (vec![("sec-fetch-site", "same-site")], Err("page")),
            (vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], Err("page")),
        ] {
            let all: Vec<_> = [("host", OWN), token].into_iter().chain(headers.iter().copied()).collect();
            assert_eq!(admitted(&gate(), "/fleet/api", &all), expected, "{headers:?}");
        }
        let link = [("host", OWN), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(admitted(&gate(), "/?token=secret", &link), Ok(Proof::Address), "a link with the token");
        let image = [("host", OWN), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")];
        assert_eq!(admitted(&gate(), "/?token=secret", &image), Err("page"));
    }

    #[test]
    fn what_is_logged_of_it_has_no_token() {
        let secrets = Secrets { token: "secret".into(), first: "once".into() };
        assert_eq!(secrets.address(OWN.parse().unwrap()), "http://127.0.0.1:4000/?token=secret");
        assert_eq!(secrets.first_address(OWN.parse().unwrap()), "http://127.0.0.1:4000/?token=once");
        let shown = format!("{:?}", gate());
        assert!(!shown.contains("secret") && !shown.contains("once"), "{shown}");
        let (one, other) = (Secrets::random().unwrap(), Secrets::random().unwrap());
        assert!(one.token.len() >= 43 && one.token != other.token);
    }
}
