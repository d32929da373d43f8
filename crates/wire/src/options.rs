//! `ListOptions`: what a list or watch asks for, validated as Kubernetes does.
//!
//! Source: kubernetes/apimachinery `pkg/apis/meta/internalversion/validation/validation.go`.

use http::StatusCode;

use crate::{
    golang::Quoted,
    resource::Gvr,
    selector::{FieldSelector, LabelSelector, SelectorError},
    status::{Cause, Reason, Status},
    token::ContinueToken,
};

/// Where in time a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Unset: the newest.
    Newest,
    /// `0`: whatever is at hand.
    Any,
    /// A revision.
    Revision(u64),
}

/// How a list's revision is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Unset.
    Unset,
    /// At least that.
    NotOlderThan,
    /// Exactly that.
    Exact,
}

/// Parsed and validated options; `L` is how labels are selected.
#[derive(Clone, Debug)]
pub struct Options<L = LabelSelector> {
    /// Where in time.
    pub at: At,
    /// How that is meant.
    pub matching: Match,
    /// Objects of a page.
    pub limit: Option<usize>,
    /// Where a paged list goes on.
    pub token: Option<ContinueToken>,
    /// By labels.
    pub labels: L,
    /// By fields.
    pub fields: FieldSelector,
    /// Below zero: over at once.
    pub timeout_seconds: Option<i64>,
    /// Whether a watch may tell how far it is.
    pub bookmarks: bool,
    /// Whether a watch begins with the objects that are there.
    pub send_initial_events: Option<bool>,
}

/// The decoded value of a query parameter; of several the first, as Go's `url.Values.Get`.
pub fn query_value(query: &str, name: &str) -> Option<String> {
    values(query, name).next()
}

/// The decoded values of a query parameter, in order.
pub fn query_values(query: &str, name: &str) -> Vec<String> {
    values(query, name).collect()
}

fn values(query: &str, name: &str) -> impl Iterator<Item = String> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    query.split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name).then(|| decode(value))
    })
}

impl Options {
    /// Reads the query of a list or watch of that resource. `watch` says that the path or the query asks for a watch.
    ///
    /// Errors: of several mistakes the one that a kube-apiserver tells: it reads numbers, then selectors' grammar, then
    /// looks at what goes together, then at the fields, then at tokens and revisions.
    pub fn parse(query: &str, watch: bool, gvr: &Gvr) -> Result<Self, Status> {
        Self::parse_with(query, watch, gvr, LabelSelector::parse)
    }
}

impl<L> Options<L> {
    /// The same, where `labels` reads the label selector.
    ///
    /// Errors: as [`Options::parse`].
    pub fn parse_with(
        query: &str,
        watch: bool,
        gvr: &Gvr,
        labels: impl FnOnce(&str) -> Result<L, SelectorError>,
    ) -> Result<Self, Status> {
        let text = |name: &str| query_value(query, name).unwrap_or_default();
        let timeout_seconds = number(query, "timeoutSeconds")?;
        let limit = number(query, "limit")?;
        let labels = labels(&text("labelSelector")).map_err(|error| selector(&error))?;
        let fields = FieldSelector::parse(&text("fieldSelector"), &gvr.group, &gvr.resource);
        let fields = match fields {
            Err(SelectorError::Field(_)) | Ok(_) => fields,
            Err(error) => return Err(selector(&error)),
        };
        let mut raw = Raw {
            revision: text("resourceVersion"),
            matching: text("resourceVersionMatch"),
            token: text("continue"),
            send_initial_events: boolean(query, "sendInitialEvents"),
        };
        let is_legacy = raw.send_initial_events.is_none() && raw.matching.is_empty();
        if watch && is_legacy && matches!(raw.revision.as_str(), "" | "0") {
            // Source: kubernetes/apimachinery `pkg/apis/meta/internalversion/defaults.go`.
            raw.send_initial_events = Some(true);
            raw.matching = NOT_OLDER_THAN.into();
        }
        let faults = if watch { raw.faults_of_watch() } else { raw.faults_of_list() };
        if !faults.is_empty() {
            return Err(invalid(&faults));
        }
        let fields = fields.map_err(|error| selector(&error))?;
        let token = if watch { None } else { token(&raw, gvr)? };
        let at = at(&raw.revision)?;
        Ok(Self {
            at,
            matching: match raw.matching.as_str() {
                NOT_OLDER_THAN => Match::NotOlderThan,
                EXACT => Match::Exact,
                _ => Match::Unset,
            },
            // Source: kubernetes/apiserver `storage/cacher/cacher.go`, `computeListLimit`.
            limit: limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0 && at != At::Any),
            token,
            labels,
            fields,
            timeout_seconds: timeout_seconds.filter(|seconds| *seconds != 0),
            bookmarks: boolean(query, "allowWatchBookmarks").unwrap_or_default(),
            send_initial_events: raw.send_initial_events,
        })
    }
}

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";

/// What has to go together.
struct Raw {
    revision: String,
    matching: String,
    token: String,
    send_initial_events: Option<bool>,
}

impl Raw {
    fn faults_of_list(&self) -> Vec<Cause> {
        let mut faults = Vec::new();
        if !self.matching.is_empty() {
            if self.revision.is_empty() {
                faults.push(forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.token.is_empty() {
                faults.push(forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if self.matching != EXACT && self.matching != NOT_OLDER_THAN {
                faults.push(unsupported(&self.matching, "\"Exact\", \"NotOlderThan\", \"\""));
            }
            if self.matching == EXACT && self.revision == "0" {
                let what = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                faults.push(forbidden(MATCH, what));
            }
        }
        if self.send_initial_events.is_some() {
            faults.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        faults
    }

    fn faults_of_watch(&self) -> Vec<Cause> {
        let mut faults = Vec::new();
        if self.send_initial_events.is_some() && self.matching != NOT_OLDER_THAN {
            let what = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            faults.push(forbidden(MATCH, what));
        }
        if !self.matching.is_empty() {
            if self.send_initial_events.is_none() {
                let what = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                faults.push(forbidden(MATCH, what));
            }
            if self.matching != NOT_OLDER_THAN {
                faults.push(unsupported(&self.matching, "\"NotOlderThan\""));
            }
            if !self.token.is_empty() {
                faults.push(forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        faults
    }
}

const MATCH: &str = "resourceVersionMatch";

fn forbidden(field: &str, what: &str) -> Cause {
    Cause { reason: "FieldValueForbidden".into(), message: format!("Forbidden: {what}"), field: field.into() }
}

fn unsupported(value: &str, supported: &str) -> Cause {
    let message = format!("Unsupported value: {value}: supported values: {supported}", value = Quoted(value));
    Cause { reason: "FieldValueNotSupported".into(), message, field: MATCH.into() }
}

/// 422 about list options.
fn invalid(faults: &[Cause]) -> Status {
    Status::invalid("meta.k8s.io", "ListOptions", "", faults.to_vec())
}

/// A list that goes on has its revision from the token.
fn token(raw: &Raw, gvr: &Gvr) -> Result<Option<ContinueToken>, Status> {
    if raw.token.is_empty() {
        return Ok(None);
    }
    let token = ContinueToken::decode(&raw.token).filter(|token| token.resource == gvr.label()).ok_or_else(|| {
        Status::bad_request("invalid continue token: continue key is not valid: this list gave none such")
    })?;
    if !matches!(raw.revision.as_str(), "" | "0") {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(Some(token))
}

/// Reads a revision as Go does.
///
/// Errors: 400. (Of watches and gets a kube-apiserver says 500, which nobody can want.)
pub fn at(text: &str) -> Result<At, Status> {
    match parse_unsigned(text) {
        _ if text.is_empty() => Ok(At::Newest),
        Ok(0) => Ok(At::Any),
        Ok(number) => Ok(At::Revision(number)),
        Err(what) => Err(Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text}: strconv.ParseUint: parsing {text}: {what}",
            text = Quoted(text)
        ))),
    }
}

const SYNTAX: &str = "invalid syntax";
const RANGE: &str = "value out of range";

fn parse_unsigned(text: &str) -> Result<u64, &'static str> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().map_err(|_| RANGE) } else { Err(SYNTAX) }
}

fn number(query: &str, name: &str) -> Result<Option<i64>, Status> {
    let Some(text) = query_value(query, name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(&text);
        let what = if parse_unsigned(digits) == Err(SYNTAX) { SYNTAX } else { RANGE };
        Status::bad_request(format!("strconv.ParseInt: parsing {text}: {what}", text = Quoted(text)))
    })
}

/// Refuses `export` in a get. In a list it means nothing.
///
/// Errors: 400. Source: kubernetes/apiserver `pkg/endpoints/handlers/get.go`, `GetResource`.
pub fn no_export(query: &str) -> Result<(), Status> {
    match boolean(query, "export") {
        Some(true) => Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported")),
        Some(false) | None => Ok(()),
    }
}

/// As Kubernetes converts booleans of a query: anything but `false` and `0` is true.
fn boolean(query: &str, name: &str) -> Option<bool> {
    query_value(query, name).map(|text| !matches!(text.to_ascii_lowercase().as_str(), "false" | "0"))
}

fn selector(error: &SelectorError) -> Status {
    Status::bad_request(error.to_string())
}

/// 504: a list at a revision that has not been given out.
pub fn too_large(asked: u64, current: u64) -> Status {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let mut status = Status::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message);
    status.details.causes = vec![Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    }];
    status.details.retry_after_seconds = Some(1);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str, watch: bool) -> Result<Options, u16> {
        Options::parse(query, watch, &Gvr::new("", "v1", "pods")).map_err(|status| status.code.as_u16())
    }

    #[test]
    fn query_values_are_decoded_and_the_first_counts() {
        assert_eq!(query_value("a=x%40y+z&a=2", "a").as_deref(), Some("x@y z"));
        assert_eq!(query_value("watch", "watch").as_deref(), Some(""));
        assert_eq!(query_value("", "watch"), None);
    }

    #[test]
    fn bad_options_are_refused_as_kubernetes_does() {
        for (query, watch, code) in [
            ("resourceVersion=abc", false, 400),
            ("fieldSelector=spec..x%3Dy", false, 400),
            ("limit=", false, 400),
            ("continue=x", false, 400),
            ("continue=x", true, 422),
            ("labelSelector=a%3Db%3Dc", false, 400),
            ("limit=x", false, 400),
            ("resourceVersionMatch=Exact", false, 422),
            ("resourceVersionMatch=Exact&resourceVersion=0", false, 422),
            ("resourceVersionMatch=Newest&resourceVersion=1", false, 422),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=1&continue=x", false, 422),
            ("continue=x&resourceVersion=5", false, 400),
            ("sendInitialEvents=true", false, 422),
            ("sendInitialEvents=true", true, 422),
            ("resourceVersionMatch=NotOlderThan", true, 422),
        ] {
            assert_eq!(parse(query, watch).err(), Some(code), "{query}");
        }
    }

    #[test]
    fn good_options_are_taken() {
        let options = parse("limit=500&resourceVersion=0&labelSelector=a%3Db", false).unwrap();
        assert_eq!((options.limit, options.at), (None, At::Any));
        assert_eq!(parse("limit=500&resourceVersion=7", false).unwrap().limit, Some(500));
        assert_eq!(parse("limit=-1&timeoutSeconds=-1", false).unwrap().limit, None);
        assert_eq!(parse("allowWatchBookmarks", true).unwrap().send_initial_events, Some(true));
        assert_eq!(parse("resourceVersion=7", true).unwrap().send_initial_events, None);
        let options =
            parse("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1", true).unwrap();
        assert_eq!((options.send_initial_events, options.bookmarks), (Some(true), true));
        assert_eq!(parse("limit=0", false).unwrap().limit, None);
    }
}
