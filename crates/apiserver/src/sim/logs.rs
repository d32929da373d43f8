//! What pods say of themselves: lines that follow from their names and times, and the requests that they got.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    activity::{Activity, Line},
    fields::{items, seconds_later, text, time, time_text},
    names::{Dice, hash},
};
use kubefold_wire::{
    options::query_value,
    status::{Reason, Status},
};

/// Seconds that a log reaches back.
const KEPT_SECONDS: i64 = 1800;
/// Lines of so many seconds follow from one seed: the same at every read.
const WINDOW_SECONDS: i64 = 300;
/// What a server says.
const WORDS: [&str; 5] =
    ["GET /healthz 200", "GET / 200", "GET /api/v1/items 200", "POST /api/v1/orders 201", "GET /metrics 200"];

/// The whole log of a container, oldest line first.
pub fn logs(pod: &Value, container: &str, now: Timestamp) -> String {
    let lines = lines(pod, container, &status(pod, container)["state"], Timestamp::MIN, now);
    lines.into_iter().map(|(_, words)| words + "\n").collect()
}

/// What is asked of a log.
#[derive(Clone, Debug)]
pub(super) struct LogOptions {
    pub(super) container: String,
    previous: bool,
    tail: Option<usize>,
    timestamps: bool,
    /// Lines before it are left out.
    since: Timestamp,
    /// Whether lines are to come as they are written.
    pub(super) follow: bool,
}

impl LogOptions {
    /// Reads the query of a log.
    ///
    /// Errors: 400 about the container, as a kube-apiserver says it.
    pub(super) fn of(pod: &Value, query: &str, now: Timestamp) -> Result<Self, Status> {
        let is = |name: &str| matches!(query_value(query, name).as_deref(), Some("true" | "1"));
        let number = |name: &str| query_value(query, name).and_then(|text| text.parse::<i64>().ok());
        let begin = query_value(query, "sinceTime").and_then(|text| text.parse().ok());
        let ago = number("sinceSeconds").map(|seconds| seconds_later(now, -seconds));
        Ok(Self {
            container: text(container(pod, query)?, "/name").to_owned(),
            previous: is("previous"),
            tail: number("tailLines").and_then(|tail| usize::try_from(tail).ok()),
            timestamps: is("timestamps"),
            since: begin.or(ago).unwrap_or(Timestamp::MIN),
            follow: is("follow"),
        })
    }

    /// The lines until now.
    ///
    /// Errors: 400 if the container has not begun, as a kubelet says it.
    pub(super) fn lines(&self, pod: &Value, activity: &Activity, now: Timestamp) -> Result<String, Status> {
        let (container, name) = (self.container.as_str(), text(pod, "/metadata/name"));
        let status = status(pod, container);
        let state = if self.previous { &status["lastState"] } else { &status["state"] };
        if self.previous && state["terminated"].is_null() {
            let message = format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
            return Err(refuse(message));
        }
        if let Some(waiting) = state["waiting"]["reason"].as_str().filter(|why| *why != "CrashLoopBackOff") {
            let why = match waiting {
                "ContainerCreating" => "ContainerCreating",
                _ => "trying and failing to pull image",
            };
            return Err(refuse(format!("container \"{container}\" in pod \"{name}\" is waiting to start: {why}")));
        }
        // One that waits to be started again shows its last life.
        let state = if state["waiting"].is_null() { state } else { &status["lastState"] };
        let mut lines = with_requests(pod, container, state, activity, self.since, now);
        if let Some(tail) = self.tail {
            lines.drain(..lines.len().saturating_sub(tail));
        }
        Ok(self.text(lines))
    }

    /// The lines after a time. `None`: the container writes no more.
    pub(super) fn next(&self, pod: &Value, activity: &Activity, after: Timestamp, now: Timestamp) -> Option<String> {
        let state = &status(pod, &self.container)["state"];
        if state["running"].is_null() {
            return None;
        }
        Some(self.text(with_requests(pod, &self.container, state, activity, after, now)))
    }

    /// The last words of a container that ended after a time.
    pub(super) fn last(&self, pod: &Value, after: Timestamp, now: Timestamp) -> String {
        let state = &status(pod, &self.container)["state"];
        if state["terminated"].is_null() {
            return String::new();
        }
        self.text(lines(pod, &self.container, state, after, now))
    }

    fn text(&self, lines: Vec<Line>) -> String {
        let line = |(at, words): Line| match self.timestamps {
            true => format!("{} {words}\n", at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ")),
            false => format!("{words}\n"),
        };
        lines.into_iter().map(line).collect()
    }
}

/// The container that a query names, or the only one.
///
/// Errors: 400, as a kube-apiserver says it.
pub(super) fn container<'p>(pod: &'p Value, query: &str) -> Result<&'p Value, Status> {
    let (name, containers) = (text(pod, "/metadata/name"), items(pod, "/spec/containers"));
    let asked = query_value(query, "container").filter(|asked| !asked.is_empty());
    match (asked, containers) {
        (Some(asked), _) => {
            let all = [containers, items(pod, "/spec/initContainers"), items(pod, "/spec/ephemeralContainers")];
            let found = all.into_iter().flatten().find(|container| text(container, "/name") == asked);
            found.ok_or_else(|| refuse(format!("container {asked} is not valid for pod {name}")))
        }
        (None, [one]) => Ok(one),
        (None, several) => {
            let several: Vec<&str> = several.iter().map(|container| text(container, "/name")).collect();
            let several = several.join(" ");
            Err(refuse(format!("a container name must be specified for pod {name}, choose one of: [{several}]")))
        }
    }
}

/// What a pod's status says of a container.
pub(super) fn status<'p>(pod: &'p Value, container: &str) -> &'p Value {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let all = lists.into_iter().flat_map(|list| items(pod, &format!("/status/{list}")).iter());
    let mut all = all.filter(|status| status["name"] == container);
    all.next().unwrap_or(&Value::Null)
}

fn refuse(message: String) -> Status {
    Status::new(StatusCode::BAD_REQUEST, Reason::BadRequest, message)
}

/// The lines of one life of a container after a time, with the requests to the pod, which its first container answers.
fn with_requests(
    pod: &Value,
    container: &str,
    state: &Value,
    activity: &Activity,
    after: Timestamp,
    now: Timestamp,
) -> Vec<Line> {
    let mut lines = lines(pod, container, state, after, now);
    let begin = time(state, "/running/startedAt");
    if let (Some(begin), true) = (begin, text(pod, "/spec/containers/0/name") == container) {
        let requests = activity.after(text(pod, "/metadata/uid"), after.max(begin));
        lines.extend(requests.into_iter().filter(|(at, _)| *at <= now));
        lines.sort_by_key(|(at, _)| *at);
    }
    lines
}

/// The lines of one life of a container (its `state`, or an earlier one) after a time.
fn lines(pod: &Value, container: &str, state: &Value, after: Timestamp, now: Timestamp) -> Vec<Line> {
    let ended = &state["terminated"];
    let (begin, end) = match (time(state, "/running/startedAt"), ended.is_object()) {
        (Some(begin), _) => (begin, now),
        (None, true) => {
            let at = |field: &str| time(ended, field).unwrap_or(now);
            (at("/startedAt"), at("/finishedAt"))
        }
        (None, false) => return Vec::new(),
    };
    let said = |at: Timestamp, words: &str| (at, format!("{} {words}", time_text(at)));
    let name = text(pod, "/metadata/name");
    let mut lines = vec![said(begin, &format!("INFO  starting {container} in {name}"))];
    let (first, last) = (begin.as_second(), end.as_second());
    let from = first.max(last - KEPT_SECONDS).max(after.as_second().min(last));
    for window in (from - first) / WINDOW_SECONDS..=(last - first) / WINDOW_SECONDS {
        let begin = first + window * WINDOW_SECONDS;
        let mut dice = Dice::new(hash(name.as_bytes()).wrapping_add(window.unsigned_abs()), container);
        let mut at = begin + dice.between(1, 9);
        // Up to now, since a follower begins behind it.
        while at <= last && at < begin + WINDOW_SECONDS {
            let words = dice.one(&WORDS).copied().unwrap_or_default();
            let millis = dice.between(1, 90);
            if let Some(at) = Timestamp::from_second(at).ok().filter(|_| at >= from) {
                lines.push(said(at, &format!("INFO  {words} {millis}ms")));
            }
            at += dice.between(2, 20);
        }
    }
    if ended.is_object() {
        let failed = ended["exitCode"].as_i64() != Some(0);
        lines.push(said(end, if failed { "ERROR cannot go on: connection refused" } else { "INFO  done" }));
    }
    lines.retain(|(at, _)| *at > after);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn log(pod: &Value, query: &str) -> Result<String, Status> {
        let now = "2026-03-01T12:10:00Z".parse().unwrap();
        LogOptions::of(pod, query, now)?.lines(pod, &Activity::default(), now)
    }

    #[test]
    fn logs_follow_from_the_pod() {
        let running = json!({"name": "app", "state": {"running": {"startedAt": "2026-03-01T12:00:00Z"}}});
        let mut pod = json!({
            "metadata": {"name": "web-0"}, "spec": {"containers": [{"name": "app"}]},
            "status": {"containerStatuses": [running]},
        });
        let all = log(&pod, "").unwrap();
        assert!(all.starts_with("2026-03-01T12:00:00Z INFO  starting app in web-0\n") && all.lines().count() > 10);
        assert_eq!(log(&pod, "container=app").unwrap(), all);
        let last: Vec<&str> = all.lines().rev().take(2).collect();
        assert_eq!(log(&pod, "tailLines=2").unwrap().lines().rev().collect::<Vec<_>>(), last);
        assert!(log(&pod, "sinceSeconds=60").unwrap().lines().count() < all.lines().count());
        assert_eq!(log(&pod, "container=x").unwrap_err().message, "container x is not valid for pod web-0");
        let words = "previous terminated container \"app\" in pod \"web-0\" not found";
        assert_eq!(log(&pod, "previous=true").unwrap_err().message, words);
        pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "ContainerCreating"}});
        let words = "container \"app\" in pod \"web-0\" is waiting to start: ContainerCreating";
        assert_eq!(log(&pod, "").unwrap_err().message, words);
        pod["spec"]["containers"] = json!([{"name": "app"}, {"name": "side"}]);
        let words = "a container name must be specified for pod web-0, choose one of: [app side]";
        assert_eq!(log(&pod, "").unwrap_err().message, words);
    }
    #[test]
    fn a_follower_gets_each_line_once_and_as_later_reads_show_it() {
        let started = "2026-03-01T11:00:00Z";
        let at = |minute: i64| seconds_later("2026-03-01T12:00:00Z".parse().unwrap(), minute * 60);
        let mut pod = json!({
            "metadata": {"name": "web-0", "uid": "1"}, "spec": {"containers": [{"name": "app"}]},
            "status": {"containerStatuses": [{"name": "app", "state": {"running": {"startedAt": started}}}]},
        });
        let (asked, activity) = (LogOptions::of(&pod, "follow=true", at(0)).unwrap(), Activity::default());
        let first = asked.lines(&pod, &activity, at(0)).unwrap();
        activity.note("1", seconds_later(at(3), 1), "GET /mine".to_owned());
        let pieces: Vec<String> =
            (0..7).map(|minute| asked.next(&pod, &activity, at(minute), at(minute + 1)).unwrap()).collect();
        let followed = first + &pieces.concat();
        let read = asked.lines(&pod, &activity, at(7)).unwrap();
        // The first line is that of the start, long ago.
        let (_, rest) = read.split_once('\n').unwrap();
        assert!(read.lines().count() > 100 && followed.ends_with(rest), "{read}");
        assert!(pieces[3].contains("GET /mine\n"), "{pieces:?}");
        pod["status"]["containerStatuses"][0]["state"] =
            json!({"terminated": {"startedAt": started, "finishedAt": "2026-03-01T12:08:00Z", "exitCode": 1}});
        assert_eq!(asked.next(&pod, &activity, at(7), at(9)), None);
        assert!(asked.last(&pod, at(7), at(9)).ends_with("ERROR cannot go on: connection refused\n"));
    }
}
