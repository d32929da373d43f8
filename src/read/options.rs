//! `ListOptions`: what a list or watch asks for, validated as Kubernetes does.
//!
//! Source: kubernetes/apimachinery `pkg/apis/meta/internalversion/validation/validation.go`.

use http::StatusCode;

use crate::{
    store::Revision,
    wire::{
        selector::{FieldSelector, LabelSelector, SelectorError},
        status::{Cause, Reason, Status},
    },
};

/// Where in time a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Unset: the newest.
    Newest,
    /// `0`: whatever is at hand.
    Any,
    /// A fleet revision.
    Revision(Revision),
}

/// How a list's revision is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// Unset.
    Unset,
    /// At least that.
    NotOlderThan,
    /// Exactly that.
    Exact,
}

/// Parsed and validated options.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) watch: bool,
    pub(super) at: At,
    pub(super) matching: Match,
    pub(super) limit: Option<usize>,
    pub(super) continue_token: String,
    pub(super) labels: LabelSelector,
    pub(super) fields: FieldSelector,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) bookmarks: bool,
    pub(super) send_initial_events: Option<bool>,
}

/// The decoded value of a query parameter; of several the first, as Go's `url.Values.Get`.
pub fn query_value(query: &str, name: &str) -> Option<String> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name).then(|| decode(value))
    })
}

impl Options {
    /// Reads the query. `watch` says that the path or the query asks for a watch.
    pub(super) fn parse(query: &str, watch: bool, is_member: impl Fn(&str) -> bool) -> Result<Self, Status> {
        let text = |name: &str| query_value(query, name).unwrap_or_default();
        let labels = LabelSelector::parse(&text("labelSelector"), is_member).map_err(|error| selector(&error))?;
        let fields = FieldSelector::parse(&text("fieldSelector")).map_err(|error| selector(&error))?;
        let at = match text("resourceVersion").as_str() {
            "" => At::Newest,
            "0" => At::Any,
            number => At::Revision(Revision(number.parse().map_err(|_| {
                Status::bad_request(format!("invalid resource version: {number:?} is not a decimal number"))
            })?)),
        };
        let send_initial_events = boolean(query, "sendInitialEvents")?;
        let options = Self {
            watch,
            at,
            matching: matching(&text("resourceVersionMatch"))?,
            limit: number(query, "limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0),
            continue_token: text("continue"),
            labels,
            fields,
            timeout_seconds: number(query, "timeoutSeconds")?.filter(|seconds| *seconds > 0),
            bookmarks: boolean(query, "allowWatchBookmarks")?.unwrap_or_default(),
            send_initial_events,
        };
        options.validate()?;
        Ok(options)
    }

    fn validate(&self) -> Result<(), Status> {
        let refuse =
            |field: &str, message: &str| Err(invalid("FieldValueForbidden", field, format!("Forbidden: {message}")));
        if self.watch {
            return match (self.send_initial_events, self.matching) {
                (Some(_), Match::NotOlderThan) | (None, Match::Unset) => Ok(()),
                (Some(_), Match::Unset | Match::Exact) => refuse(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ),
                (None, Match::NotOlderThan | Match::Exact) => refuse(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ),
            };
        }
        if self.send_initial_events.is_some() {
            return refuse("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        let set = self.matching != Match::Unset;
        if set && self.at == At::Newest {
            return refuse(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if set && !self.continue_token.is_empty() {
            return refuse("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
        }
        if self.matching == Match::Exact && self.at == At::Any {
            return refuse(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        if !self.continue_token.is_empty() && matches!(self.at, At::Revision(_)) {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(())
    }
}

fn matching(text: &str) -> Result<Match, Status> {
    match text {
        "" => Ok(Match::Unset),
        "NotOlderThan" => Ok(Match::NotOlderThan),
        "Exact" => Ok(Match::Exact),
        other => {
            let message = format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"");
            Err(invalid("FieldValueNotSupported", "resourceVersionMatch", message))
        }
    }
}

fn number(query: &str, name: &str) -> Result<Option<u64>, Status> {
    let Some(text) = query_value(query, name).filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.parse::<i64>() {
        Ok(value) => Ok(u64::try_from(value).ok()),
        Err(_) => Err(Status::bad_request(format!("invalid {name}: {text:?} is not a number"))),
    }
}

/// As Kubernetes converts booleans of a query: anything but `false` and `0` is true.
fn boolean(query: &str, name: &str) -> Result<Option<bool>, Status> {
    Ok(query_value(query, name).map(|text| !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")))
}

fn selector(error: &SelectorError) -> Status {
    Status::bad_request(error.to_string())
}

/// 422 about list options.
fn invalid(reason: &str, field: &str, message: String) -> Status {
    let mut status = Status::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        Reason::Invalid,
        format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {message}"),
    )
    .about("meta.k8s.io", "ListOptions", "");
    status.details.causes = vec![Cause { reason: reason.into(), message, field: field.into() }];
    status
}

/// 504: a list at a revision that has not been given out.
pub(super) fn too_large(asked: Revision, current: Revision) -> Status {
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
        Options::parse(query, watch, |name| name == "east").map_err(|status| status.code.as_u16())
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
            ("fieldSelector=spec.x%3Dy", false, 400),
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
        assert_eq!((options.limit, options.at), (Some(500), At::Any));
        let options =
            parse("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1", true).unwrap();
        assert_eq!((options.send_initial_events, options.bookmarks), (Some(true), true));
        assert_eq!(parse("limit=0", false).unwrap().limit, None);
    }
}
