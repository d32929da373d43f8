//! Header hygiene downstream, in the order that keeps a client from speaking with the server's voice.
//!
//! Source: k8s-semantics section 7; CVE-2021-31999 and golang/go#50580 for what the wrong order costs.

use http::{HeaderMap, HeaderName, header};

use crate::audit::AUDIT_ID;

const AUDIT_ID_MAX: usize = 64;

/// Headers of one hop, whether or not `Connection` names them (RFC 9110 section 7.6.1).
pub const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Where a request came from, by the word of who sent it: members write it into their audit logs.
///
/// Source: kubernetes/apimachinery `pkg/util/net/http.go` `SourceIPs`.
const FORWARDED: [HeaderName; 3] =
    [header::FORWARDED, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("x-real-ip")];

/// Makes the headers of an authenticated request safe to act on and to send on.
///
/// Whom the client asks to be, [`crate::impersonation::Impersonation`] reads before: on what it sent, so that naming
/// `Impersonate-User` in `Connection` hides nothing.
pub fn clean(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    let asserts = |name: &&HeaderName| ["x-remote-", "impersonate-"].iter().any(|said| name.as_str().starts_with(said));
    let asserted: Vec<HeaderName> = headers.keys().filter(asserts).cloned().collect();
    for name in asserted.iter().chain(&FORWARDED) {
        headers.remove(name);
    }
    headers.remove(header::AUTHORIZATION);
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| HeaderName::from_bytes(token.trim().as_bytes()).ok())
        .collect();
    // The id of a request is not the connection's, whatever that says.
    for name in named.iter().filter(|name| **name != AUDIT_ID).chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The client's `Audit-ID` or a new one; set on the request, so that the servers it is sent on to log the same.
///
/// Source: kubernetes/apiserver `pkg/endpoints/filters/audit_init.go`.
pub fn audit_id(headers: &mut HeaderMap) -> http::HeaderValue {
    let sent = headers.get(AUDIT_ID).filter(|value| !value.is_empty() && value.len() <= AUDIT_ID_MAX);
    let id = sent.cloned().or_else(|| uuid::Uuid::new_v4().to_string().try_into().ok());
    let id = id.unwrap_or_else(|| http::HeaderValue::from_static("-"));
    headers.insert(AUDIT_ID, id.clone());
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn hop_by_hop_asserted_and_secret_headers_go_and_others_stay() {
        let mut sent = headers(&[
            ("connection", "keep-alive, X-Mine"),
            ("connection", "x-yours"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("x-mine", "1"),
            ("x-yours", "1"),
            ("x-remote-user", "root"),
            ("x-remote-extra-scopes", "all"),
            ("impersonate-user", "root"),
            ("impersonate-extra-scopes", "all"),
            ("authorization", "Bearer secret"),
            ("forwarded", "for=192.0.2.1"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-real-ip", "192.0.2.1"),
            ("accept", "application/json"),
            ("user-agent", "kubectl"),
        ]);
        clean(&mut sent);
        let left: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["accept", "user-agent"]);
    }

    #[test]
    fn a_connection_does_not_name_the_audit_id_away() {
        let mut sent = headers(&[("connection", "Upgrade, Audit-ID"), ("audit-id", "mine")]);
        clean(&mut sent);
        assert_eq!(sent.get(AUDIT_ID).unwrap(), "mine");
    }

    #[test]
    fn an_audit_id_is_kept_or_made() {
        let mut sent = headers(&[("audit-id", "mine")]);
        assert_eq!(audit_id(&mut sent), "mine");
        for bad in [headers(&[]), headers(&[("audit-id", "")]), headers(&[("audit-id", &"x".repeat(65))])] {
            let mut bad = bad;
            let id = audit_id(&mut bad);
            assert_eq!(id.len(), 36);
            assert_eq!(bad.get(AUDIT_ID), Some(&id));
        }
    }
}
