//! What pods say of themselves: lines that follow from their names and times.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    fields::{items, text, time, time_text},
    names::{Dice, hash},
};
use crate::{registry::Env, serve::Pods};
use kubefold_wire::{
    body::{Body, full},
    status::{Reason, Status},
};

/// Seconds that a log reaches back.
const KEPT_SECONDS: i64 = 1800;
/// What a server says.
const WORDS: [&str; 5] =
    ["GET /healthz 200", "GET / 200", "GET /api/v1/items 200", "POST /api/v1/orders 201", "GET /metrics 200"];

/// The logs of simulated pods.
#[derive(Clone)]
pub struct Logs {
    env: Env,
}

impl Logs {
    /// Logs up to the present of this clock.
    pub fn new(env: Env) -> Self {
        Self { env }
    }
}

impl Pods for Logs {
    fn log<'a>(&'a self, pod: &'a Value, query: &'a str) -> BoxFuture<'a, Result<Body, Status>> {
        let lines = answer(pod, query, self.env.now());
        Box::pin(async move { lines.map(|lines| full(Bytes::from(lines))) })
    }
}

/// The whole log of a container, oldest line first.
pub fn logs(pod: &Value, container: &str, now: Timestamp) -> String {
    let status = items(pod, "/status/containerStatuses").iter().find(|status| status["name"] == container);
    let lines = lines(pod, container, status.unwrap_or(&Value::Null), now);
    lines.into_iter().map(|(_, words)| words + "\n").collect()
}

fn asked<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn answer(pod: &Value, query: &str, now: Timestamp) -> Result<String, Status> {
    let refuse = |message: String| Status::new(StatusCode::BAD_REQUEST, Reason::BadRequest, message);
    let name = text(pod, "/metadata/name");
    let containers: Vec<&str> =
        items(pod, "/spec/containers").iter().map(|container| text(container, "/name")).collect();
    let container = match (asked(query, "container"), containers.as_slice()) {
        (Some(asked), known) if known.contains(&asked) => asked,
        (Some(asked), _) => return Err(refuse(format!("container {asked} is not valid for pod {name}"))),
        (None, [one]) => one,
        (None, several) => {
            let several = several.join(" ");
            return Err(refuse(format!(
                "a container name must be specified for pod {name}, choose one of: [{several}]"
            )));
        }
    };
    let status = items(pod, "/status/containerStatuses").iter().find(|status| status["name"] == container);
    let previous = asked(query, "previous") == Some("true");
    let state = status.map(|status| if previous { &status["lastState"] } else { &status["state"] });
    if previous && state.is_none_or(|state| state["terminated"].is_null()) {
        let message = format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
        return Err(refuse(message));
    }
    if let Some(waiting) =
        state.and_then(|state| state["waiting"]["reason"].as_str()).filter(|why| *why != "CrashLoopBackOff")
    {
        let why = match waiting {
            "ContainerCreating" => "ContainerCreating",
            _ => "trying and failing to pull image",
        };
        return Err(refuse(format!("container \"{container}\" in pod \"{name}\" is waiting to start: {why}")));
    }
    let mut lines = lines(pod, container, status.unwrap_or(&Value::Null), now);
    if let Some(tail) = asked(query, "tailLines").and_then(|tail| tail.parse::<usize>().ok()) {
        lines.drain(..lines.len().saturating_sub(tail));
    }
    let stamped = asked(query, "timestamps") == Some("true");
    let line = |(at, words): (Timestamp, String)| match stamped {
        true => format!("{} {words}\n", at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ")),
        false => format!("{words}\n"),
    };
    Ok(lines.into_iter().map(line).collect())
}

fn lines(pod: &Value, container: &str, status: &Value, now: Timestamp) -> Vec<(Timestamp, String)> {
    let ended =
        [&status["state"]["terminated"], &status["lastState"]["terminated"]].into_iter().find(|e| e.is_object());
    let (begin, end) = match (time(status, "/state/running/startedAt"), ended) {
        (Some(begin), _) => (begin, now),
        (None, Some(ended)) => {
            let at = |field: &str| time(ended, field).unwrap_or(now);
            (at("/startedAt"), at("/finishedAt"))
        }
        (None, None) => return Vec::new(),
    };
    let said = |at: Timestamp, words: &str| (at, format!("{} {words}", time_text(at)));
    let name = text(pod, "/metadata/name");
    let mut lines = vec![said(begin, &format!("INFO  starting {container} in {name}"))];
    let mut dice = Dice::new(hash(name.as_bytes()), container);
    let mut at = begin.as_second().max(end.as_second() - KEPT_SECONDS) + 1;
    while at < end.as_second() {
        let words = dice.one(&WORDS).copied().unwrap_or_default();
        let millis = dice.between(1, 90);
        if let Ok(at) = Timestamp::from_second(at) {
            lines.push(said(at, &format!("INFO  {words} {millis}ms")));
        }
        at += dice.between(10, 50);
    }
    if status["state"]["running"].is_null() {
        let failed = ended.is_some_and(|ended| ended["exitCode"].as_i64() != Some(0));
        lines.push(said(end, if failed { "ERROR cannot go on: connection refused" } else { "INFO  done" }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn log(pod: &Value, query: &str) -> Result<String, Status> {
        answer(pod, query, "2026-03-01T12:10:00Z".parse().unwrap())
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
}
