//! Media types: what answers are offered in, how that is refused, and the bodies that writes may bring.
//!
//! A kube-apiserver negotiates twice. Its router (go-restful) knows the media types of each path of a built-in kind and
//! no wildcards but `*/*`; the handler behind it negotiates in full. Custom resources have the handler alone.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/negotiation`, `pkg/endpoints/installer.go`; emicklei/go-restful
//! `route.go`, `jsr311.go`.

use http::{HeaderMap, Method, StatusCode, header};

use crate::{
    accept::{Clause, TABLE_V1, Transform, accept_header, parse_accept, wants_pretty},
    protobuf::{self, MessageType},
    status::{Reason, Status},
};

/// Every media type of a kube-apiserver.
const ALL: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
/// Patches of built-in kinds.
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// The groups whose kinds a kube-apiserver brings itself. Other groups under `k8s.io` are custom resources.
const BUILT_IN_GROUPS: [&str; 23] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// A media type of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Media {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Media {
    /// As `Content-Type` names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// Watches are streams, and of YAML there is none.
    pub fn streams(self) -> bool {
        self != Self::Yaml
    }
}

/// How an answer's JSON is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// In what.
    pub media: Media,
    /// In what else, where protobuf has no form for it. Absent: nothing else is accepted.
    pub otherwise: Option<Media>,
    /// Indented for people. YAML always is.
    pub pretty: bool,
    /// Compressed, where it is large.
    pub gzip: bool,
}

impl Encoding {
    /// The same for what turned out to have no form in protobuf.
    #[must_use]
    pub fn without_protobuf(self) -> Self {
        let media = if self.media == Media::Protobuf { self.otherwise.unwrap_or(Media::Json) } else { self.media };
        Self { media, ..self }
    }
}

/// What the first acceptable clause asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The offered kind that is wanted, or `None` for the endpoint's own.
    pub transform: Option<Transform<'static>>,
    /// How it is to be written.
    pub encoding: Encoding,
}

impl Negotiated {
    /// The same for a kind: what protobuf has no form for, as custom resources and Tables, is written in what else is accepted.
    #[must_use]
    pub fn of_kind(mut self, api_version: &str, kind: &str) -> Self {
        let has_message = match self.transform {
            None => MessageType::of(api_version, kind).is_some(),
            Some(Transform { group, version, kind }) => MessageType::of(&format!("{group}/{version}"), kind).is_some(),
        };
        if self.encoding.media == Media::Protobuf && !has_message {
            self.encoding.media = self.encoding.otherwise.unwrap_or(Media::Protobuf);
        }
        self
    }
}

/// Negotiates an answer about resources: conversions are offered, and `sv=v1` is taken.
///
/// Errors: 406.
pub fn negotiate(
    headers: &HeaderMap,
    query: Option<&str>,
    offers: &[Transform<'static>],
) -> Result<Negotiated, Status> {
    pick(headers, query, offers, "v1").ok_or_else(refusal)
}

/// How a failure is written: no conversion is offered, and where nothing fits, it is indented JSON.
pub fn of_failure(headers: &HeaderMap, query: Option<&str>) -> Encoding {
    pick(headers, query, &[], "")
        .map_or(Encoding { media: Media::Json, otherwise: None, pretty: true, gzip: false }, |wanted| wanted.encoding)
}

fn pick(
    headers: &HeaderMap,
    query: Option<&str>,
    offers: &[Transform<'static>],
    server_version: &str,
) -> Option<Negotiated> {
    let accept = accept_header(headers);
    let (pretty, gzip) = (wants_pretty(query, headers), takes_gzip(headers));
    let wanted = |media, transform, indented| Negotiated {
        transform,
        encoding: Encoding { media, otherwise: None, pretty: pretty || indented, gzip },
    };
    if accept.is_empty() {
        return Some(wanted(Media::Json, None, false));
    }
    let fits = |clause: &Clause, media: Media| {
        let stream = clause.param("stream").unwrap_or_default();
        let version = clause.param("sv").unwrap_or_default();
        if !clause.takes(media.as_str())
            || !(stream.is_empty() || (stream == "watch" && media.streams()))
            || !(version.is_empty() || version == server_version)
        {
            return None;
        }
        let transform = match clause.transform() {
            None => None,
            // There is no message of it.
            Some(asked) if asked.kind == TABLE_V1.kind && media == Media::Protobuf => return None,
            Some(asked) => Some(*offers.iter().find(|offer| **offer == asked)?),
        };
        Some(wanted(media, transform, clause.param("pretty") == Some("1")))
    };
    let clauses = parse_accept(accept);
    let first =
        |medias: &[Media]| clauses.iter().find_map(|clause| medias.iter().find_map(|media| fits(clause, *media)));
    let mut chosen = first(&[Media::Json, Media::Yaml, Media::Protobuf])?;
    if chosen.encoding.media == Media::Protobuf {
        let other = first(&[Media::Json, Media::Yaml]).filter(|other| other.transform == chosen.transform);
        chosen.encoding.otherwise = other.map(|other| other.encoding.media);
    }
    Some(chosen)
}

/// A token `gzip` as it stands: no weights and no wildcard.
///
/// Source: kubernetes/apiserver `responsewriters/writers.go`, `negotiateContentEncoding`.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let encodings = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    encodings.split(',').any(|token| token.trim() == "gzip")
}

fn refused(types: &str) -> Status {
    let message = format!("only the following media types are accepted: {types}");
    Status::new(StatusCode::NOT_ACCEPTABLE, Reason::NotAcceptable, message)
}

/// 406 for what there is in no media type that is accepted.
pub fn refusal() -> Status {
    refused(ALL)
}

/// 406 for a watch in what does not stream.
pub fn no_stream() -> Status {
    refused(STREAMS)
}

/// Says whether a kube-apiserver brings the kinds of this group itself.
pub fn is_built_in(group: &str) -> bool {
    BUILT_IN_GROUPS.contains(&group)
}

/// Refuses what the router of a kube-apiserver refuses, before any handler looks at the request.
///
/// `whole` says that the path is a collection's: those watch, too, and so have more types.
///
/// Errors: 415 and 406 for built-in kinds, 415 for patches of others.
pub fn routable(group: &str, method: &Method, whole: bool, headers: &HeaderMap) -> Result<(), Status> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_built_in(group) {
        let known = PATCHES.iter().filter(|patch| !patch.contains("strategic"));
        let named = content_type.split(';').next().unwrap_or_default().trim();
        if method == Method::PATCH && !known.clone().any(|patch| *patch == named) {
            let known: Vec<&str> = known.copied().collect();
            return Err(unknown_format(&known.join(", ")));
        }
        return Ok(());
    }
    if method == Method::PATCH && !matches(content_type, |media| PATCHES.contains(&media)) {
        let message = "415: Unsupported Media Type";
        let status = Status::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Reason::UnsupportedMediaType, message);
        return Err(status.detailed());
    }
    let accept = accept_header(headers);
    if accept.is_empty() || matches(accept, |media| ALL.split(", ").any(|known| known == media)) {
        return Ok(());
    }
    let available = if whole && method == Method::GET { format!("{ALL}, {STREAMS}") } else { ALL.to_owned() };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    Err(Status::new(StatusCode::NOT_ACCEPTABLE, Reason::NotAcceptable, message).detailed())
}

/// go-restful's own reading of a header: whatever stands behind a semicolon does not count.
fn matches(header: &str, known: impl Fn(&str) -> bool) -> bool {
    header
        .split(',')
        .map(|part| part.split(';').next().unwrap_or_default().trim_matches(' '))
        .any(|media| media == "*/*" || known(media))
}

fn unknown_format(types: &str) -> Status {
    let message = format!("the body of the request was in an unknown format - accepted media types include: {types}");
    Status::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Reason::UnsupportedMediaType, message)
}

/// The format of a write's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Or none named.
    Json,
    /// As people write it.
    Yaml,
    /// As typed Go clients send it.
    Protobuf,
}

/// Reads the `Content-Type` of a write that is no patch.
///
/// Errors: 415.
pub fn format_of(headers: &HeaderMap) -> Result<Format, Status> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "" if content_type.is_empty() => Ok(Format::Json),
        "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(unknown_format(ALL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::{PARTIAL_OBJECT, PARTIAL_OBJECT_LIST};

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn media(accept: &str) -> Option<Media> {
        negotiate(&headers(&[(header::ACCEPT, accept)]), None, &[]).ok().map(|wanted| wanted.encoding.media)
    }

    #[test]
    fn who_prefers_protobuf_gets_it_where_there_is_some() {
        let of = |accept: &str, api_version: &str, kind: &str| {
            let wanted = negotiate(&headers(&[(header::ACCEPT, accept)]), None, &[TABLE_V1, PARTIAL_OBJECT]).unwrap();
            wanted.of_kind(api_version, kind).encoding.media
        };
        for accept in ["", "*/*", "application/json;sv=v1", "application/json,application/vnd.kubernetes.protobuf"] {
            assert_eq!(media(accept), Some(Media::Json), "{accept}");
        }
        assert_eq!(media("application/yaml,application/json"), Some(Media::Yaml));
        for (rest, of_custom) in [
            ("", Media::Protobuf),
            (",application/json", Media::Json),
            (",application/yaml", Media::Yaml),
            (",application/json;as=Table;g=meta.k8s.io;v=v1", Media::Protobuf),
            (";stream=watch,application/json;stream=watch", Media::Json),
        ] {
            let accept = format!("application/vnd.kubernetes.protobuf{rest}");
            assert_eq!(of(&accept, "v1", "Pod"), Media::Protobuf, "{accept}");
            assert_eq!(of(&accept, "example.com/v1", "Pod"), of_custom, "{accept}");
        }
        for accept in ["application/yaml;stream=watch", "application/json;sv=v2", "application/cbor"] {
            assert_eq!(media(accept), None, "{accept}");
        }
        let both = |kind: &str| {
            let of = format!("as={kind};g=meta.k8s.io;v=v1");
            format!("application/vnd.kubernetes.protobuf;{of},application/json;{of},application/json")
        };
        assert_eq!(of(&both("PartialObjectMetadata"), "example.com/v1", "Pod"), Media::Protobuf);
        assert_eq!(of(&both("Table"), "v1", "Pod"), Media::Json);
        let table = headers(&[(header::ACCEPT, "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1")]);
        assert_eq!(negotiate(&table, None, &[TABLE_V1]), Err(refusal()));
    }

    #[test]
    fn metadata_clients_get_metadata() {
        let of = |kind: &str| {
            format!(
                "application/vnd.kubernetes.protobuf;as={kind};g=meta.k8s.io;v=v1,application/json;as={kind};g=meta.k8s.io;v=v1,application/json"
            )
        };
        let offers = [PARTIAL_OBJECT, PARTIAL_OBJECT_LIST];
        for offer in offers {
            let accept = headers(&[(header::ACCEPT, &of(offer.kind))]);
            let wanted = negotiate(&accept, None, &offers).unwrap();
            assert_eq!((wanted.transform, wanted.encoding.media), (Some(offer), Media::Protobuf));
        }
    }

    #[test]
    fn a_failure_is_told_in_what_was_asked_for_or_in_indented_json() {
        let failure = |accept: &str| of_failure(&headers(&[(header::ACCEPT, accept)]), None);
        assert_eq!(failure("application/yaml").media, Media::Yaml);
        let raw = Encoding { media: Media::Json, otherwise: None, pretty: true, gzip: false };
        for accept in ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/cbor"] {
            assert_eq!(failure(accept), raw, "{accept}");
        }
        assert!(!failure("application/json").pretty);
    }

    #[test]
    fn gzip_is_taken_only_where_it_is_named() {
        for (encodings, taken) in [("gzip", true), ("deflate, gzip", true), ("gzip;q=1", false), ("*", false)] {
            assert_eq!(takes_gzip(&headers(&[(header::ACCEPT_ENCODING, encodings)])), taken, "{encodings}");
        }
    }

    #[test]
    fn the_router_of_built_in_kinds_knows_no_wildcard_of_subtypes() {
        let ask = |group: &str, accept: &str| {
            let headers = headers(&[(header::ACCEPT, accept)]);
            routable(group, &Method::GET, true, &headers).map_err(|status| status.message)
        };
        assert_eq!(ask("", "application/json;as=Foo"), Ok(()));
        assert_eq!(ask("example.com", "application/*"), Ok(()));
        assert!(ask("apps", "application/*").unwrap_err().ends_with("protobuf;stream=watch"));
        let patch = |group: &str, of: &str| {
            let headers = headers(&[(header::CONTENT_TYPE, of)]);
            routable(group, &Method::PATCH, false, &headers).map_err(|status| status.code.as_u16())
        };
        assert_eq!(patch("", "application/strategic-merge-patch+json"), Ok(()));
        assert_eq!(patch("example.com", "application/strategic-merge-patch+json"), Err(415));
        assert_eq!(patch("", "application/json"), Err(415));
    }
}
