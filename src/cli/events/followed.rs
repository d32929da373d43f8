//! Which events were printed: what a list after an interruption brings again is printed no second time.

use std::{collections::HashMap, time::Duration};

use serde_json::Value;

use super::event::Event;
use kubefold_wire::access::{number, text};

/// Bounds of the pause before an interrupted watch is begun again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// kubefold has no history from there on. Source: RFC 9110, section 15.5.11; `StatusReasonExpired`.
const GONE: i64 = 410;

/// What is to be asked next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Everything, since nothing is known or the history is gone.
    List,
    /// What came after this revision.
    Watch(String),
}

/// What a line of a watch is.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// An event that was not printed as it is now.
    Print(Value),
    Nothing,
    /// The watch has ended, for this reason; empty: it is begun again by a list, which is nothing to tell.
    Ended(String),
}

/// A watch of events that outlives its connections.
#[derive(Debug)]
pub(super) struct Followed {
    next: Next,
    /// How each event was when it was printed, by UID. Those that are gone are forgotten.
    printed: HashMap<String, String>,
    pause: Duration,
}

impl Default for Followed {
    fn default() -> Self {
        Self { next: Next::List, printed: HashMap::new(), pause: PAUSE_MIN }
    }
}

impl Followed {
    pub(super) fn next(&self) -> &Next {
        &self.next
    }

    /// Takes a whole list at a revision. Gives what was not printed as it is now, the oldest first.
    pub(super) fn listed(&mut self, items: Vec<Value>, revision: &str) -> Vec<Value> {
        let before = std::mem::take(&mut self.printed);
        let now = |item: &Value| (uid(item), state(item));
        let new: Vec<Value> =
            items.iter().filter(|item| before.get(&uid(item)) != Some(&state(item))).cloned().collect();
        self.printed = items.iter().map(now).collect();
        self.next = Next::Watch(revision.to_owned());
        in_order(new)
    }

    /// Takes a line of a watch.
    pub(super) fn line(&mut self, event: &Value) -> Line {
        let object = &event["object"];
        if event["type"] == "ERROR" {
            let is_gone = number(object, "/code") == Some(GONE);
            if is_gone {
                self.next = Next::List;
            }
            return Line::Ended(if is_gone { String::new() } else { text(object, "/message").to_owned() });
        }
        self.pause = PAUSE_MIN;
        self.next = Next::Watch(text(object, "/metadata/resourceVersion").to_owned());
        match text(event, "/type") {
            "DELETED" => {
                self.printed.remove(&uid(object));
                Line::Nothing
            }
            "ADDED" | "MODIFIED" => {
                let state = state(object);
                let before = self.printed.insert(uid(object), state.clone());
                if before == Some(state) { Line::Nothing } else { Line::Print(object.clone()) }
            }
            _ => Line::Nothing,
        }
    }

    /// The history is gone.
    pub(super) fn expired(&mut self) {
        self.next = Next::List;
    }

    /// How long to wait before it is begun again. The next pause is longer, unless something comes before.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

/// The oldest first.
pub(super) fn in_order(mut items: Vec<Value>) -> Vec<Value> {
    items.sort_by_key(|item| Event(item).last_micros());
    items
}

fn uid(item: &Value) -> String {
    text(item, "/metadata/uid").to_owned()
}

/// What of an event changes when it happens again.
fn state(item: &Value) -> String {
    let event = Event(item);
    format!("{} {}", event.count(), event.last_micros().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(uid: &str, last: &str, count: u32, revision: &str) -> Value {
        json!({
            "metadata": {"uid": uid, "resourceVersion": revision}, "count": count,
            "firstTimestamp": "2026-11-27T09:00:00Z", "lastTimestamp": format!("2026-11-27T09:{last}:00Z"),
        })
    }

    fn uids(items: &[Value]) -> Vec<&str> {
        items.iter().map(|item| text(item, "/metadata/uid")).collect()
    }

    #[test]
    fn what_a_list_brings_again_is_printed_once() {
        let mut followed = Followed::default();
        assert_eq!(followed.next(), &Next::List);
        let first = followed.listed(vec![event("b", "02", 1, "5"), event("a", "01", 1, "4")], "9");
        assert_eq!((uids(&first), followed.next()), (vec!["a", "b"], &Next::Watch("9".into())));
        let watched = |kind: &str, object: Value| json!({"type": kind, "object": object});
        let again = event("a", "03", 2, "10");
        assert_eq!(followed.line(&watched("MODIFIED", again.clone())), Line::Print(again));
        assert_eq!(followed.next(), &Next::Watch("10".into()));
        let bookmark = json!({"metadata": {"resourceVersion": "12"}});
        assert_eq!(followed.line(&watched("BOOKMARK", bookmark)), Line::Nothing);
        // What kubefold rewrites, such as a reference, is no event that happens again.
        assert_eq!(followed.line(&watched("MODIFIED", event("a", "03", 2, "13"))), Line::Nothing);
        assert_eq!(followed.next(), &Next::Watch("13".into()));
        let gone = json!({"code": 410, "message": "too old"});
        assert_eq!(
            (followed.line(&watched("ERROR", gone)), followed.next()),
            (Line::Ended(String::new()), &Next::List)
        );
        // After a restart every revision is another.
        let after = vec![event("a", "03", 2, "101"), event("b", "04", 2, "102"), event("c", "04", 1, "103")];
        assert_eq!(uids(&followed.listed(after, "104")), ["b", "c"]);
        assert_eq!(followed.line(&watched("DELETED", event("b", "04", 2, "105"))), Line::Nothing);
        assert_eq!(followed.printed.len(), 2);
    }

    #[test]
    fn pauses_grow_until_something_comes() {
        let mut followed = Followed::default();
        let pauses: Vec<u64> = (0..7).map(|_| followed.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        followed.line(&json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}));
        assert_eq!(followed.pause(), PAUSE_MIN);
        let internal = json!({"type": "ERROR", "object": {"code": 500, "message": "broken"}});
        assert_eq!(followed.line(&internal), Line::Ended("broken".into()));
        assert_eq!(followed.next(), &Next::Watch("1".into()));
    }
}
