//! URLs as Go reads and writes them, with the words in which it refuses them. Texts that are no UTF-8 once they are unescaped
//! are shown with replacement characters.
//!
//! Source: Go 1.26 `net/url/url.go`, `net/url/encoding_table.go`.

use std::net::{Ipv4Addr, Ipv6Addr};

use kubefold_wire::golang::quoted;

/// How many parameters a query may have.
const PARAMETERS_MAX: usize = 10_000;

/// Why a text is no URL.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadUrl {
    #[error("net/url: invalid control character in URL")]
    Control,
    #[error("empty url")]
    Empty,
    #[error("missing protocol scheme")]
    NoScheme,
    #[error("invalid URI for request")]
    NotAbsolute,
    #[error("invalid URL escape {}", quoted(.0))]
    Escape(String),
    #[error("invalid character {} in host name", quoted(.0))]
    HostCharacter(String),
    #[error("net/url: invalid userinfo")]
    User,
    #[error("invalid IP-literal")]
    Literal,
    #[error("missing ']' in host")]
    Bracket,
    #[error("invalid port {} after host", quoted(.0))]
    Port(String),
    #[error("invalid host: ParseAddr({}): unable to parse IP", quoted(.0))]
    Address(String),
}

/// A URL with the text that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("parse {}: {why}", quoted(url))]
pub(super) struct NoUrl {
    url: String,
    why: BadUrl,
}

/// A part of a URL, by which it is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    /// The zone of an address.
    Zone,
    User,
    Query,
    Fragment,
}

impl Part {
    /// Whether a byte stands there as it is.
    fn has_plain(self, byte: u8) -> bool {
        let more: &[u8] = match self {
            Self::Path => b"$&+,/:;=@",
            Self::Host | Self::Zone => b"!\"$&'()*+,:;<=>[]",
            Self::User => b"$&+,;=",
            Self::Query => b"",
            Self::Fragment => b"!$&()*+,/:;=?@",
        };
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || more.contains(&byte)
    }
}

/// An absolute URL, or an absolute path.
#[derive(Clone, Debug)]
pub(super) struct Url {
    pub(super) scheme: String,
    /// With its port.
    pub(super) host: String,
    pub(super) escaped_path: String,
    query: String,
    /// The whole, as Go writes it.
    shown: String,
}

impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        self.shown == other.shown
    }
}

/// What a URL has before its path is taken apart.
#[derive(Default)]
struct Read<'u> {
    scheme: String,
    opaque: &'u str,
    /// As it is written again.
    user: Option<String>,
    host: Vec<u8>,
    path: Escaped,
    query: &'u str,
    /// It ends with the question mark.
    has_empty_query: bool,
    /// It has a scheme and no authority.
    omits_host: bool,
}

/// A path or a fragment: what it says, and how it is written.
#[derive(Default)]
struct Escaped {
    said: Vec<u8>,
    written: String,
}

impl Escaped {
    fn read(text: &str, part: Part) -> Result<Self, BadUrl> {
        let said = unescaped(text, part)?;
        // Brackets and the like need no escape where they stand, and get none.
        let is_plain = |byte: u8| part.has_plain(byte) || b"!$&'()*+,;=:@[]%".contains(&byte);
        let written = if text.bytes().all(is_plain) { text.to_owned() } else { escaped(&said, part) };
        Ok(Self { said, written })
    }
}

impl Url {
    /// Reads an absolute URI or an absolute path, with its fragment.
    pub(super) fn read(text: &str) -> Result<Self, NoUrl> {
        let no = |url: &str| {
            let url = url.to_owned();
            move |why| NoUrl { url, why }
        };
        Read::of(text, true).map_err(no(text))?;
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        let read = Read::of(url, false).map_err(no(url))?;
        let fragment = Escaped::read(fragment, Part::Fragment).map_err(no(text))?;
        Ok(Self {
            shown: read.shown(&fragment),
            escaped_path: if read.path.said == b"*" { "*".to_owned() } else { read.path.written },
            scheme: read.scheme,
            host: lossy(read.host),
            query: read.query.to_owned(),
        })
    }

    /// Whether a text is an absolute URI or an absolute path. What stands for a fragment in it is not looked at by itself.
    pub(super) fn is_one(text: &str) -> bool {
        Read::of(text, true).is_ok()
    }

    /// The host without its port, and the port.
    pub(super) fn host_and_port(&self) -> (&str, &str) {
        let colon = self.host.rfind(':').filter(|at| is_port(self.host.get(*at..).unwrap_or_default()));
        let (host, port) = match colon {
            Some(at) => (self.host.get(..at).unwrap_or_default(), self.host.get(at + 1..).unwrap_or_default()),
            None => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    /// The parameters of the query in their order. What cannot be read is left out.
    pub(super) fn parameters(&self) -> Vec<(String, String)> {
        if self.query.matches('&').count() >= PARAMETERS_MAX {
            return Vec::new();
        }
        let each = self.query.split('&').filter(|part| !part.is_empty() && !part.contains(';'));
        let parameter = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let [name, value] = [name, value].map(|text| unescaped(text, Part::Query).ok().map(lossy));
            name.zip(value)
        };
        each.filter_map(parameter).collect()
    }
}

impl<'u> Read<'u> {
    /// `is_request`: only what is absolute is a URL.
    fn of(url: &'u str, is_request: bool) -> Result<Self, BadUrl> {
        if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(BadUrl::Control);
        }
        if url.is_empty() && is_request {
            return Err(BadUrl::Empty);
        }
        if url == "*" {
            let path = Escaped { said: b"*".to_vec(), written: "*".to_owned() };
            return Ok(Self { path, ..Self::default() });
        }
        let (scheme, rest) = scheme(url)?;
        let mut read = Self { scheme: scheme.to_ascii_lowercase(), ..Self::default() };
        let rest = match rest.split_once('?') {
            Some((rest, query)) => {
                (read.query, read.has_empty_query) = (query, query.is_empty());
                rest
            }
            None => rest,
        };
        let has_scheme = !read.scheme.is_empty();
        if !rest.starts_with('/') {
            if has_scheme {
                read.opaque = rest;
                return Ok(read);
            }
            return Err(BadUrl::NotAbsolute);
        }
        let may_have_authority = has_scheme || (!is_request && !rest.starts_with("///"));
        let path = match rest.strip_prefix("//").filter(|_| may_have_authority) {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                read.authority(authority)?;
                path
            }
            None => {
                read.omits_host = has_scheme;
                rest
            }
        };
        read.path = Escaped::read(path, Part::Path)?;
        Ok(read)
    }

    fn authority(&mut self, authority: &str) -> Result<(), BadUrl> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = read_host(&self.scheme, host)?;
        let Some(user) = user else { return Ok(()) };
        if !user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)) {
            return Err(BadUrl::User);
        }
        let again = |text: &str| unescaped(text, Part::User).map(|said| escaped(&said, Part::User));
        self.user = Some(match user.split_once(':') {
            Some((name, password)) => format!("{}:{}", again(name)?, again(password)?),
            None => again(user)?,
        });
        Ok(())
    }

    fn shown(&self, fragment: &Escaped) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out += &format!("{}:", self.scheme);
        }
        if self.opaque.is_empty() {
            let has_authority = !self.host.is_empty() || self.user.is_some();
            if has_authority || (!self.scheme.is_empty() && !self.omits_host && !self.path.said.is_empty()) {
                out += "//";
            }
            if let Some(user) = &self.user {
                out += &format!("{user}@");
            }
            out += &escaped(&self.host, Part::Host);
            out += &self.path.written;
        }
        out += self.opaque;
        if self.has_empty_query || !self.query.is_empty() {
            out += &format!("?{}", self.query);
        }
        if !fragment.said.is_empty() {
            out += &format!("#{}", fragment.written);
        }
        out
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// What stands before the first colon, if that may be a scheme, and what follows.
fn scheme(url: &str) -> Result<(&str, &str), BadUrl> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    match url.split_once(':') {
        Some(("", _)) => Err(BadUrl::NoScheme),
        Some((scheme, rest))
            if scheme.bytes().all(is_part) && scheme.starts_with(|first: char| first.is_ascii_alphabetic()) =>
        {
            Ok((scheme, rest))
        }
        _ => Ok(("", url)),
    }
}

/// Whether it is empty, or a colon with digits or without.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn read_host(scheme: &str, host: &str) -> Result<Vec<u8>, BadUrl> {
    match host.rfind('[') {
        Some(0) => return read_literal(host),
        Some(_) => return Err(BadUrl::Literal),
        None => {}
    }
    if let Some(first) = host.find(':') {
        let at = if matches!(scheme, "http" | "https") { first } else { host.rfind(':').unwrap_or(first) };
        read_port(host.get(at..).unwrap_or_default())?;
    }
    unescaped(host, Part::Host)
}

fn read_port(text: &str) -> Result<(), BadUrl> {
    if is_port(text) { Ok(()) } else { Err(BadUrl::Port(text.to_owned())) }
}

/// An address of IPv6 in brackets, with its zone, and its port.
fn read_literal(host: &str) -> Result<Vec<u8>, BadUrl> {
    let (inside, port) = host.strip_prefix('[').and_then(|rest| rest.rsplit_once(']')).ok_or(BadUrl::Bracket)?;
    read_port(port)?;
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    let mut all = unescaped(address, Part::Host)?;
    all.extend(unescaped(zone, Part::Zone)?);
    let text = lossy(all.clone());
    let (address, has_zone) = match text.split_once('%') {
        Some((address, zone)) => (address, !zone.is_empty()),
        None => (text.as_str(), true),
    };
    if !text.contains(':') && address.parse::<Ipv4Addr>().is_ok() && address == text {
        return Err(BadUrl::Literal);
    }
    if !has_zone || address.parse::<Ipv6Addr>().is_err() {
        return Err(BadUrl::Address(text));
    }
    Ok([b"[", all.as_slice(), b"]", port.as_bytes()].concat())
}

/// What a part of a URL says.
fn unescaped(text: &str, part: Part) -> Result<Vec<u8>, BadUrl> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [byte, after @ ..] = rest {
        match byte {
            b'%' => {
                let shown = || lossy(rest.get(..3).unwrap_or(rest).to_vec());
                out.push(unescaped_byte(rest, part).ok_or_else(|| BadUrl::Escape(shown()))?);
                rest = rest.get(3..).unwrap_or_default();
                continue;
            }
            b'+' if part == Part::Query => out.push(b' '),
            byte if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && !part.has_plain(*byte) => {
                return Err(BadUrl::HostCharacter(char::from(*byte).to_string()));
            }
            byte => out.push(*byte),
        }
        rest = after;
    }
    Ok(out)
}

/// What the escape says with which a text begins; `None`: it is none that may be there.
fn unescaped_byte(text: &[u8], part: Part) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let byte = hex(*high)? << 4 | hex(*low)?;
    // A host has escapes for what is no ASCII, and for the percent sign before a zone.
    let is_allowed = match part {
        Part::Host => byte >= 0x80 || byte == b'%',
        Part::Zone => matches!(byte, b'%' | b' ') || Part::Host.has_plain(byte),
        _ => true,
    };
    is_allowed.then_some(byte)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn escaped(bytes: &[u8], part: Part) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if part.has_plain(*byte) {
            out.push(char::from(*byte));
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    out
}
