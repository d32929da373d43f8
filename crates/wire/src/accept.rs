//! Content negotiation as a kube-apiserver does it.
//!
//! Source: munnerz/goautoneg `autoneg.go`; kubernetes/apiserver `pkg/endpoints/handlers/negotiation/negotiate.go`.

use http::{HeaderMap, StatusCode, header};

use crate::status::{Reason, Status};

/// One alternative of an `Accept` header. A `Content-Type` parses as one, too.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// `application/json`, `application/*`, `*/*`.
    pub media_type: String,
    /// Its parameters but `q`; of equal names, only the last.
    pub params: Vec<(String, String)>,
    /// How much it is wanted.
    pub q: f32,
}

/// Another kind than the endpoint's own, which a clause asks for by `as`, `g` and `v`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transform<'a> {
    /// `g`
    pub group: &'a str,
    /// `v`
    pub version: &'a str,
    /// `as`
    pub kind: &'a str,
}

/// A Table, as kubectl asks for it first.
pub const TABLE_V1: Transform<'static> = Transform { group: "meta.k8s.io", version: "v1", kind: "Table" };
/// A Table, as old clients ask for it.
pub const TABLE_V1BETA1: Transform<'static> = Transform { group: "meta.k8s.io", version: "v1beta1", kind: "Table" };
/// Metadata of one object.
pub const PARTIAL_OBJECT: Transform<'static> =
    Transform { group: "meta.k8s.io", version: "v1", kind: "PartialObjectMetadata" };
/// Metadata of a list's objects.
pub const PARTIAL_OBJECT_LIST: Transform<'static> =
    Transform { group: "meta.k8s.io", version: "v1", kind: "PartialObjectMetadataList" };
/// The same, as old clients ask for it.
pub const PARTIAL_OBJECT_V1BETA1: Transform<'static> = Transform { version: "v1beta1", ..PARTIAL_OBJECT };
/// The same, as old clients ask for it.
pub const PARTIAL_OBJECT_LIST_V1BETA1: Transform<'static> = Transform { version: "v1beta1", ..PARTIAL_OBJECT_LIST };
/// Aggregated discovery.
pub const AGGREGATED_DISCOVERY_V2: Transform<'static> =
    Transform { group: "apidiscovery.k8s.io", version: "v2", kind: "APIGroupDiscoveryList" };

/// What the first acceptable clause asks for, in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The offered kind that is wanted, or `None` for the endpoint's own.
    pub transform: Option<Transform<'static>>,
    /// Whether it is to be indented for people.
    pub pretty: bool,
}

/// Clauses beyond this many are not looked at; the longest known client sends five.
const CLAUSES_MAX: usize = 64;

/// Parses an `Accept` header into its clauses, the most wanted first, with goautoneg's quirks.
///
/// Only spaces are trimmed, clauses without a slash (but `*`) are skipped, a `q` that is no number counts as 0, and
/// of equally wanted clauses those with wildcards come last.
pub fn parse_accept(accept: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = accept.split(',').take(CLAUSES_MAX).filter_map(parse_clause).collect();
    // Go's sort is an insertion sort up to twelve items, and `before` is no strict order, so the very algorithm
    // shows in the result.
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && before(&clauses[at], &clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

/// Picks what to answer with in JSON: the first clause that takes JSON and asks for the endpoint's own kind or for
/// one of `offers`. `None` is 406 ([`not_acceptable`]). An empty header takes anything.
pub fn negotiate(accept: &str, offers: &[Transform<'static>]) -> Option<Negotiated> {
    if accept.is_empty() {
        return Some(Negotiated { transform: None, pretty: false });
    }
    parse_accept(accept).iter().find_map(|clause| clause.accepts(offers))
}

/// Picks a media type of those that an endpoint has: the first that the most wanted clause takes. `None` is 406. An empty header
/// takes anything.
pub fn choose<'o>(accept: &str, offers: &[&'o str]) -> Option<&'o str> {
    let accept = if accept.is_empty() { "*/*" } else { accept };
    parse_accept(accept).iter().find_map(|clause| offers.iter().copied().find(|offer| clause.takes(offer)))
}

/// The `Accept` header as a Go server reads it: the first of several, empty if there is none.
pub fn accept_header(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Whether a person reads the answer, and so wants it indented: by `?pretty=` or by user agent.
pub fn wants_pretty(query: Option<&str>, headers: &HeaderMap) -> bool {
    let asked = query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix("pretty="));
    if let Some(value) = asked.filter(|value| !value.is_empty()) {
        return matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|start| agent.starts_with(start))
}

/// Whether any alternative asks for aggregated discovery; a kube-apiserver prefers it wherever it stands
/// (`pkg/endpoints/discovery/aggregated/wrapper.go`). v2beta1 is not offered, as since Kubernetes 1.35.
pub fn wants_aggregated(headers: &HeaderMap) -> bool {
    let clauses = parse_accept(accept_header(headers));
    clauses.iter().any(|clause| {
        clause.takes("application/json") && clause.transform().is_some_and(|wanted| wanted == AGGREGATED_DISCOVERY_V2)
    })
}

/// 406 in Kubernetes' words, for an endpoint that has JSON only.
pub fn not_acceptable() -> Status {
    Status::new(
        StatusCode::NOT_ACCEPTABLE,
        Reason::NotAcceptable,
        "only the following media types are accepted: application/json",
    )
}

impl Clause {
    /// The value of a parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether it takes a media type such as `application/json`, by name or by wildcard.
    pub fn takes(&self, media_type: &str) -> bool {
        let of_any = |kind: &str| media_type.split('/').next() == Some(kind);
        self.media_type == media_type
            || self.media_type == "*/*"
            || self.media_type.strip_suffix("/*").is_some_and(of_any)
    }

    /// The kind that it asks for, if it is not the endpoint's own.
    pub fn transform(&self) -> Option<Transform<'_>> {
        let [group, version, kind] = ["g", "v", "as"].map(|name| self.param(name));
        group.or(version).or(kind)?;
        let [group, version, kind] = [group, version, kind].map(Option::unwrap_or_default);
        Some(Transform { group, version, kind })
    }

    fn accepts(&self, offers: &[Transform<'static>]) -> Option<Negotiated> {
        let stream_is_known = matches!(self.param("stream"), None | Some("" | "watch"));
        let server_version_is_unset = self.param("sv").unwrap_or_default().is_empty();
        if !self.takes("application/json") || !stream_is_known || !server_version_is_unset {
            return None;
        }
        let transform = match self.transform() {
            None => None,
            Some(wanted) => Some(*offers.iter().find(|offer| **offer == wanted)?),
        };
        Some(Negotiated { transform, pretty: self.param("pretty") == Some("1") })
    }
}

fn parse_clause(text: &str) -> Option<Clause> {
    let mut parts = text.split(';');
    let full = parts.next()?.trim_matches(' ');
    let media_type = match full.split_once('/') {
        Some((_, subtype)) if subtype.contains('/') => return None,
        Some((kind, subtype)) if !subtype.is_empty() => {
            format!("{}/{}", kind.trim_matches(' '), subtype.trim_matches(' '))
        }
        _ if full.trim_end_matches('/') == "*" => "*/*".to_owned(),
        _ => return None,
    };
    let mut clause = Clause { media_type, params: Vec::new(), q: 1.0 };
    for part in parts {
        let Some((name, value)) = part.split_once('=') else { continue };
        if value.is_empty() || value.find('=').is_some_and(|at| at + 1 < value.len()) {
            continue;
        }
        let (name, value) = (name.trim_matches(' '), value.trim_end_matches('='));
        if name == "q" {
            clause.q = value.parse().unwrap_or(0.0);
        } else {
            clause.params.retain(|(known, _)| known != name);
            clause.params.push((name.to_owned(), value.trim_matches(' ').to_owned()));
        }
    }
    Some(clause)
}

/// `acceptSlice.Less` of goautoneg.
fn before(a: &Clause, b: &Clause) -> bool {
    let any_type = |clause: &Clause| clause.media_type.starts_with("*/");
    let any_subtype = |clause: &Clause| clause.media_type.ends_with("/*");
    a.q > b.q || (!any_type(a) && any_type(b)) || (!any_subtype(a) && any_subtype(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn types(accept: &str) -> Vec<String> {
        parse_accept(accept).into_iter().map(|clause| clause.media_type).collect()
    }

    fn chosen(accept: &str) -> Option<Option<&'static str>> {
        negotiate(accept, &[TABLE_V1, TABLE_V1BETA1]).map(|found| found.transform.map(|offer| offer.version))
    }

    #[test]
    fn the_most_wanted_clause_comes_first_and_wildcards_come_last() {
        // The example of goautoneg's own test, from Chrome.
        let chrome = "application/xml,application/xhtml+xml,text/html;q=0.9,text/plain;q=0.8,image/png,*/*;q=0.5";
        let sorted = ["application/xml", "application/xhtml+xml", "image/png", "text/html", "text/plain", "*/*"];
        assert_eq!(types(chrome), sorted);
        assert_eq!(types("application/*, a/b"), ["a/b", "application/*"]);
        assert_eq!(types("*, bad, a/b/c, , */"), ["*/*", "*/*"]);
        assert_eq!(types("a/b;q=x, c/d;q=0.1"), ["c/d", "a/b"]);
    }

    #[test]
    fn kubectl_gets_a_table_where_one_is_offered_and_json_where_none_is() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                       application/json";
        assert_eq!(chosen(kubectl), Some(Some("v1")));
        assert_eq!(negotiate(kubectl, &[]).map(|found| found.transform), Some(None));
        assert_eq!(chosen("application/json; as=Table; v=v1beta1; g=meta.k8s.io"), Some(Some("v1beta1")));
    }

    #[test]
    fn nothing_and_anything_mean_json() {
        for accept in ["", "*/*", "*", "application/*", "application/vnd.kubernetes.protobuf,application/json"] {
            assert_eq!(chosen(accept), Some(None), "{accept}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            "application/json;stream=other",
            "application/json;sv=v1",
            "text/html",
            "bad",
        ] {
            assert_eq!(chosen(accept), None, "{accept}");
        }
        assert_eq!(not_acceptable().message, "only the following media types are accepted: application/json");
    }

    #[test]
    fn people_get_indented_answers() {
        let mut headers = HeaderMap::new();
        assert!(!wants_pretty(None, &headers));
        assert!(wants_pretty(Some("a=b&pretty=true"), &headers));
        headers.insert(header::USER_AGENT, http::HeaderValue::from_static("curl/8.0"));
        assert!(wants_pretty(Some("pretty="), &headers));
        assert!(!wants_pretty(Some("pretty=false"), &headers));
    }

    proptest! {
        #[test]
        fn any_header_parses_and_anyone_who_takes_anything_is_answered(accept in "[ -~]{0,60}", known in "([a*]/?[b*]?;?q?=?[0-9.]{0,3},? ?){0,20}") {
            prop_assert!(parse_accept(&accept).len() <= CLAUSES_MAX && parse_accept(&known).len() <= CLAUSES_MAX);
            let anything = format!("{accept},*/*");
            prop_assert!(negotiate(&anything, &[TABLE_V1]).is_some());
        }
    }
}
