//! Header hygiene toward a member: it sees the caller, and never a header that decides about identity
//! and came from the caller.
//!
//! The order matters. What `Connection` names goes first: set after our own headers it could name those
//! (CVE-2021-31999).

use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::config::MemberName;
use kubefold_serving::caller::Caller;
use kubefold_wire::golang::Quoted;

/// Headers that are about one connection (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [&str; 6] =
    ["connection", "proxy-connection", "keep-alive", "proxy-authorization", "transfer-encoding", "upgrade"];

/// Whom a request is made for; what kubefold sends in its own name has none.
pub(super) const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";

/// What a header name may hold as it is; `%` is escaped.
///
/// Source: client-go `transport/round_trippers.go` `legalHeaderKeyBytes`, `headerKeyEscape`.
const KEY_ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// A caller whom no header can name. Nothing may be sent then: it would run as kubefold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonateError {
    /// No user name.
    #[error("the caller has no name")]
    NoUser,
    /// Another member's word for who it is.
    #[error("user {user} is known by the word of member {domain}, and acts in that member alone", user = Quoted(.user))]
    OtherDomain {
        /// The user.
        user: String,
        /// The member that said so.
        domain: String,
    },
    /// A part of the identity that is no header value.
    #[error("the caller's {part} {value} cannot be passed to a member: {why}", value = Quoted(.value))]
    Unfit {
        /// `user name`, `group`, `UID` or `extra`.
        part: &'static str,
        /// The text.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Makes `headers` say to a member that `caller` asks, and nobody else.
///
/// Errors: an identity that is empty or no header value, or that another member made; the headers must not be used then.
pub(super) fn impersonate(
    headers: &mut HeaderMap,
    caller: &Caller,
    member: &MemberName,
) -> Result<(), ImpersonateError> {
    strip(headers);
    if caller.user.is_empty() {
        return Err(ImpersonateError::NoUser);
    }
    if let Some(domain) = caller.domain.as_ref().filter(|_| !caller.counts_in(member.as_str())) {
        return Err(ImpersonateError::OtherDomain { user: caller.user.clone(), domain: domain.clone() });
    }
    headers.insert(IMPERSONATE_USER, value("user name", &caller.user)?);
    for group in &caller.groups {
        headers.append(GROUP, value("group", group)?);
    }
    if let Some(uid) = &caller.uid {
        headers.insert(UID, value("UID", uid)?);
    }
    for (key, values) in &caller.extra {
        let name = extra_name(key)?;
        for extra in values {
            headers.append(&name, value("extra", extra)?);
        }
    }
    Ok(())
}

/// Removes what must not pass: hop-by-hop headers and those that `Connection` names, then every header
/// that speaks about identity.
fn strip(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    headers.remove(header::AUTHORIZATION);
    let about_identity = |name: &&HeaderName| {
        let name = name.as_str();
        name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    let names: Vec<HeaderName> = headers.keys().filter(about_identity).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    strip_bearer_protocol(headers);
}

/// A page in a browser can set no header: it hides its token among the protocols that it would speak.
///
/// Source: kubernetes/apiserver `pkg/authentication/request/websocket/protocol.go`.
fn strip_bearer_protocol(headers: &mut HeaderMap) {
    const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
    let said: Vec<HeaderValue> = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().cloned().collect();
    if !said.iter().any(|value| value.as_bytes().windows(BEARER.len()).any(|at| at == BEARER.as_bytes())) {
        return;
    }
    let words = said.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let kept: Vec<&str> = words.map(str::trim).filter(|word| !word.starts_with(BEARER)).collect();
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = HeaderValue::from_str(&kept.join(", ")).ok().filter(|kept| !kept.is_empty()) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// Removes what is about one connection, in either direction.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    // `TE: trailers` is what HTTP/2 allows of TE, and what lets a member send trailers.
    let trailers = headers.get_all(header::TE).iter().any(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    headers.remove(header::TE);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

fn extra_name(key: &str) -> Result<HeaderName, ImpersonateError> {
    let unfit = |why| ImpersonateError::Unfit { part: "extra key", value: key.to_owned(), why };
    if key.is_empty() {
        return Err(unfit("it is empty"));
    }
    let escaped = percent_encode(key.to_lowercase().as_bytes(), &KEY_ESCAPED).to_string();
    HeaderName::try_from(format!("{EXTRA}{escaped}")).map_err(|_| unfit("it is too long"))
}

/// Visible ASCII with inner spaces only. Anything else might be read differently on the other side: Go trims
/// values, and an empty group would vanish.
fn value(part: &'static str, text: &str) -> Result<HeaderValue, ImpersonateError> {
    let unfit = |why| ImpersonateError::Unfit { part, value: text.to_owned(), why };
    if text.is_empty() && part != "extra" {
        return Err(unfit("it is empty"));
    }
    if text.trim() != text {
        return Err(unfit("it begins or ends with white space"));
    }
    if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(unfit("it has characters beyond visible ASCII"));
    }
    HeaderValue::from_str(text).map_err(|_| unfit("it is no header value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller { user: "jane".into(), groups: vec!["dev".into(), "system:authenticated".into()], ..Caller::default() }
    }

    fn east() -> MemberName {
        MemberName::new("east").unwrap()
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_group_is_named() {
        let mut headers = HeaderMap::new();
        impersonate(&mut headers, &caller(), &east()).unwrap();
        assert_eq!(all(&headers, "impersonate-user"), ["jane"]);
        assert_eq!(all(&headers, "impersonate-group"), ["dev", "system:authenticated"]);
        assert!(!headers.contains_key("impersonate-uid"));
    }

    #[test]
    fn what_a_caller_says_about_identity_is_gone() {
        let mut sent = headers(&[
            ("authorization", "Bearer stolen"),
            ("impersonate-user", "system:admin"),
            ("impersonate-group", "system:masters"),
            ("impersonate-uid", "1"),
            ("impersonate-extra-scopes", "all"),
            ("x-remote-user", "system:admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-a", "b"),
            ("x-remote-uid", "1"),
            ("accept", "application/json"),
        ]);
        impersonate(&mut sent, &caller(), &east()).unwrap();
        let mut names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "impersonate-group", "impersonate-user"]);
        assert_eq!(all(&sent, "impersonate-user"), ["jane"]);
    }

    #[test]
    fn a_token_among_the_protocols_of_a_websocket_is_gone() {
        let protocol = |said: &[&'static str]| {
            let pairs: Vec<_> = said.iter().map(|value| ("sec-websocket-protocol", *value)).collect();
            let mut sent = headers(&pairs);
            impersonate(&mut sent, &caller(), &east()).unwrap();
            all(&sent, "sec-websocket-protocol")
        };
        assert_eq!(
            protocol(&["base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io"]),
            ["v5.channel.k8s.io"]
        );
        assert_eq!(protocol(&["v5.channel.k8s.io, v4.channel.k8s.io"]), ["v5.channel.k8s.io, v4.channel.k8s.io"]);
        assert!(protocol(&["base64url.bearer.authorization.k8s.io.c2VjcmV0"]).is_empty());
    }

    #[test]
    fn connection_cannot_name_our_headers_away() {
        // CVE-2021-31999: `Connection: Impersonate-User` made a proxy drop what it had set.
        let mut sent = headers(&[
            ("connection", "keep-alive, Impersonate-User,Impersonate-Group , X-Custom"),
            ("x-custom", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
        ]);
        impersonate(&mut sent, &caller(), &east()).unwrap();
        assert_eq!(all(&sent, "impersonate-user"), ["jane"]);
        assert_eq!(all(&sent, "impersonate-group").len(), 2);
        assert_eq!(all(&sent, "te"), ["trailers"]);
        for gone in ["connection", "x-custom", "keep-alive", "transfer-encoding"] {
            assert!(!sent.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn no_identity_is_no_request() {
        let nobody = Caller { groups: vec!["system:masters".into()], ..Caller::default() };
        assert_eq!(impersonate(&mut HeaderMap::new(), &nobody, &east()), Err(ImpersonateError::NoUser));
        for user in ["jane\r\nimpersonate-group: system:masters", "jänner", " jane", "\u{7f}"] {
            let unfit = Caller { user: user.into(), ..Caller::default() };
            assert!(impersonate(&mut HeaderMap::new(), &unfit, &east()).is_err(), "{user:?}");
        }
        let empty_group = Caller { groups: vec![String::new()], ..caller() };
        assert!(impersonate(&mut HeaderMap::new(), &empty_group, &east()).is_err());
    }

    /// The attack: equal names of service accounts in two clusters are two persons.
    #[test]
    fn whom_one_member_knows_is_nobody_in_another() {
        let [own, other] = ["east", "west"].map(|name| Caller { domain: Some(name.into()), ..caller() });
        assert_eq!(impersonate(&mut HeaderMap::new(), &own, &east()), Ok(()));
        let refused = impersonate(&mut HeaderMap::new(), &other, &east()).unwrap_err().to_string();
        assert_eq!(refused, "user \"jane\" is known by the word of member west, and acts in that member alone");
        assert!(
            own.groups.iter().any(|group| group == "dev") && !own.is_in("dev"),
            "its groups are that member's, too"
        );
    }

    #[test]
    fn extra_keys_are_escaped_as_client_go_does() {
        // client-go `transport/round_trippers_test.go` TestHeaderEscapeRoundTrip.
        let cases = [
            ("alpha", "impersonate-extra-alpha"),
            ("Alpha", "impersonate-extra-alpha"),
            ("alpha bravo", "impersonate-extra-alpha%20bravo"),
            ("example.com/Roles", "impersonate-extra-example.com%2froles"),
            ("a%b", "impersonate-extra-a%25b"),
        ];
        for (key, header) in cases {
            let mut headers = HeaderMap::new();
            let extra = [(key.to_owned(), vec!["x".to_owned(), "y".to_owned()])].into();
            impersonate(&mut headers, &Caller { extra, ..caller() }, &east()).unwrap();
            assert_eq!(all(&headers, header), ["x", "y"], "{key}");
        }
    }
}
