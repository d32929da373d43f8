//! What requests through forwarded ports leave behind: lines in logs, and work in metrics.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, futures::OwnedNotified};

/// Pods whose requests are kept.
const PODS_MAX: usize = 256;
/// Requests of one pod that are kept.
const LINES_MAX: usize = 1000;

/// A line of a log.
pub(super) type Line = (Timestamp, String);

/// Requests that came in, by the UID of their pod. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Activity {
    lines: Arc<Mutex<HashMap<String, VecDeque<Line>>>>,
    news: Arc<Notify>,
}

impl Activity {
    /// Notes a request to a pod.
    pub(super) fn note(&self, uid: &str, at: Timestamp, line: String) {
        let mut pods = self.lines.lock();
        if !pods.contains_key(uid) && pods.len() >= PODS_MAX {
            let last = |lines: &VecDeque<Line>| lines.back().map(|(at, _)| *at);
            let oldest = pods.iter().min_by_key(|(_, lines)| last(lines)).map(|(uid, _)| uid.clone());
            if let Some(oldest) = oldest {
                pods.remove(&oldest);
            }
        }
        let lines = pods.entry(uid.to_owned()).or_default();
        if lines.len() >= LINES_MAX {
            lines.pop_front();
        }
        lines.push_back((at, line));
        drop(pods);
        self.news.notify_waiters();
    }

    /// The requests after a time, oldest first.
    pub(super) fn after(&self, uid: &str, time: Timestamp) -> Vec<Line> {
        let pods = self.lines.lock();
        let lines = pods.get(uid).into_iter().flatten();
        lines.filter(|(at, _)| *at > time).cloned().collect()
    }

    /// Ends with the next request to any pod.
    pub(super) fn news(&self) -> OwnedNotified {
        Arc::clone(&self.news).notified_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_much_is_kept() {
        let activity = Activity::default();
        let at = |second: usize| Timestamp::from_second(second as i64).unwrap();
        for second in 1..=LINES_MAX + 5 {
            activity.note("busy", at(second), second.to_string());
        }
        assert_eq!(activity.after("busy", at(0)).len(), LINES_MAX);
        assert_eq!(activity.after("busy", at(LINES_MAX + 4)), [(at(LINES_MAX + 5), (LINES_MAX + 5).to_string())]);
        for pod in 1..=PODS_MAX {
            activity.note(&pod.to_string(), at(LINES_MAX + 10 + pod), String::new());
        }
        assert!(activity.after("busy", at(0)).is_empty(), "the one that was idle longest makes room");
    }
}
