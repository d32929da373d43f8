//! An Event, and its row.
//!
//! Source: kubernetes/kubectl v0.36 `pkg/cmd/events/event_printer.go` and `events.go`.

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::paint::{Paint, paint};
use kubefold_table::human;
use kubefold_wire::access::{number, text};

/// An Event of the core group.
#[derive(Clone, Copy)]
pub(super) struct Event<'a>(pub(super) &'a Value);

/// What a row shows beside the event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) namespaces: bool,
    pub(super) colours: bool,
    /// Units: microseconds since 1970.
    pub(super) now_micros: i64,
}

impl Shown {
    pub(super) fn head(self) -> Vec<String> {
        let own = ["LAST SEEN", "MEMBER", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(str::to_owned);
        self.namespaces.then(|| "NAMESPACE".to_owned()).into_iter().chain(own).collect()
    }
}

impl<'a> Event<'a> {
    /// When it happened last. Units: microseconds since 1970. `None`: it does not say.
    pub(super) fn last_micros(self) -> Option<i64> {
        ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
            .into_iter()
            .find_map(|at| micros(self.text(at)))
    }

    /// How often it happened.
    pub(super) fn count(self) -> i64 {
        number(self.0, "/series/count").or_else(|| number(self.0, "/count")).unwrap_or(1)
    }

    /// `Normal` or `Warning`.
    pub(super) fn kind(self) -> &'a str {
        self.text("/type")
    }

    /// Says whether it is about an object of that name, or of that name in its member.
    pub(super) fn is_about(self, name: &str) -> bool {
        let about = self.text("/involvedObject/name");
        let in_member = || about.strip_prefix(name).and_then(|rest| rest.strip_prefix('@')) == Some(self.member());
        about == name || (!self.member().is_empty() && in_member())
    }

    pub(super) fn row(self, shown: Shown) -> Vec<String> {
        let colour = if self.kind() == "Warning" { Paint::Odd } else { Paint::Dim };
        let member = self.member();
        let own = [
            self.seen(shown.now_micros),
            if member.is_empty() { "-" } else { member }.to_owned(),
            paint(self.kind(), colour, shown.colours),
            self.text("/reason").to_owned(),
            format!("{}/{}", self.text("/involvedObject/kind"), self.text("/involvedObject/name")),
            // One line each.
            self.text("/message").trim().replace(char::is_control, " "),
        ];
        let namespace = shown.namespaces.then(|| self.text("/metadata/namespace").to_owned());
        namespace.into_iter().chain(own).collect()
    }

    /// `8s (x3 over 5m)`.
    fn seen(self, now: i64) -> String {
        let since = |at: Option<i64>| at.map_or_else(|| "<unknown>".to_owned(), |at| human(now - at));
        let first = ["/eventTime", "/firstTimestamp", "/metadata/creationTimestamp"];
        let first = since(first.into_iter().find_map(|at| micros(self.text(at))));
        match self.count() {
            count if count > 1 => format!("{} (x{count} over {first})", since(self.last_micros())),
            _ => first,
        }
    }

    fn member(self) -> &'a str {
        self.text("/metadata/annotations/kubefold.io~1cluster")
    }

    fn text(self, at: &str) -> &'a str {
        text(self.0, at)
    }
}

fn micros(time: &str) -> Option<i64> {
    Some(time.parse::<Timestamp>().ok()?.as_microsecond())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_when_where_and_what() {
        let now = micros("2026-11-27T10:00:00Z").unwrap();
        let mut event = json!({
            "metadata": {"namespace": "shop", "annotations": {"kubefold.io/cluster": "east"}}, "type": "Warning",
            "reason": "BackOff", "message": "restarting\nweb ", "involvedObject": {"kind": "Pod", "name": "web-0@east"},
            "firstTimestamp": "2026-11-27T09:50:00Z", "lastTimestamp": "2026-11-27T09:59:30Z", "count": 3,
        });
        let shown = Shown { namespaces: false, colours: false, now_micros: now };
        let row = Event(&event).row(shown);
        assert_eq!(row, ["30s (x3 over 10m)", "east", "Warning", "BackOff", "Pod/web-0@east", "restarting web"]);
        assert_eq!(Event(&event).row(Shown { namespaces: true, ..shown })[0], "shop");
        assert_eq!(Shown { namespaces: true, ..shown }.head().len(), Event(&event).row(shown).len() + 1);
        let about = |name: &str| Event(&event).is_about(name);
        assert_eq!(
            [about("web-0"), about("web-0@east"), about("web"), about("web-0@west")],
            [true, true, false, false]
        );
        event["count"] = Value::Null;
        assert_eq!(Event(&event).row(shown)[0], "10m");
        // As client-go's newer recorder writes them.
        event["series"] = json!({"count": 7, "lastObservedTime": "2026-11-27T09:59:59.5Z"});
        event["eventTime"] = "2026-11-27T09:59:00.000001Z".into();
        assert_eq!(Event(&event).row(shown)[0], "0s (x7 over 59s)");
        assert_eq!(Event(&json!({})).row(shown)[0], "<unknown>");
    }
}
