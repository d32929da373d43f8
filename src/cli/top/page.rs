//! Two answers of the status, and what happened between them.

use std::{cmp::Reverse, fmt::Write as _};

use serde::Serialize;
use tokio::time::Instant;

use crate::{
    cli::{
        paint::{Paint, paint},
        status::{age, colour_of, size, table},
    },
    status::{FleetStatus, KindStatus, MemberStatus},
};

/// What kinds are ordered by; the largest comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Column {
    /// Events a second, then objects.
    #[default]
    Events,
    Objects,
    Watchers,
    Name,
}

/// An answer, and when it came.
pub(super) struct Sample {
    pub(super) status: FleetStatus,
    pub(super) at: Instant,
}

/// What is shown.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Top {
    members: Vec<MemberRow>,
    kinds: Vec<KindRow>,
    /// Writes that have not reached every part.
    unfinished: usize,
    /// Objects of which somebody edited, deleted or restored a part.
    differing: usize,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberRow {
    name: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_millis: Option<f64>,
    lag_seconds: u64,
    kinds: usize,
    objects: usize,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    events_per_second: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindRow {
    resource: String,
    version: String,
    objects: usize,
    watchers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    events_per_second: Option<f64>,
    /// Members of which it was not read yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

impl Top {
    /// What there is now, with rates since `before`.
    pub(super) fn of(now: &Sample, before: Option<&Sample>, by: Column) -> Self {
        let seconds = before.map_or(0.0, |before| now.at.duration_since(before.at).as_secs_f64());
        let members = now.status.members.iter().map(|member| {
            let earlier = before.and_then(|before| before.status.members.iter().find(|one| one.name == member.name));
            member_row(member, rate(member.events, earlier.map(|one| one.events), seconds))
        });
        let kinds = now.status.kinds.iter().map(|kind| {
            let is_same = |one: &&KindStatus| one.resource == kind.resource && one.version == kind.version;
            let earlier = before.and_then(|before| before.status.kinds.iter().find(is_same));
            kind_row(kind, rate(kind.events, earlier.map(|one| one.events), seconds))
        });
        let (members, mut kinds): (Vec<_>, Vec<_>) = (members.collect(), kinds.collect());
        match by {
            // Equal ones stay in the order of their names.
            Column::Events => kinds.sort_by(|one, other| {
                let rate = |row: &KindRow| row.events_per_second.unwrap_or_default();
                rate(other).total_cmp(&rate(one)).then(other.objects.cmp(&one.objects))
            }),
            Column::Objects => kinds.sort_by_key(|row| Reverse(row.objects)),
            Column::Watchers => kinds.sort_by_key(|row| Reverse(row.watchers)),
            Column::Name => {}
        }
        let FleetStatus { unfinished, differing, .. } = &now.status;
        Self { members, kinds, unfinished: unfinished.len(), differing: differing.len() }
    }

    /// As tables.
    pub(super) fn render(&self, colours: bool) -> String {
        let objects: usize = self.kinds.iter().map(|kind| kind.objects).sum();
        let watchers: usize = self.kinds.iter().map(|kind| kind.watchers).sum();
        let ready = self.members.iter().filter(|member| member.state == "ready").count();
        let mut out = format!(
            "{ready} of {} members ready, {} kinds, {objects} objects, {watchers} watchers, {} unfinished writes, {} differences\n\n",
            self.members.len(),
            self.kinds.len(),
            self.unfinished,
            self.differing
        );
        let head = ["MEMBER", "STATE", "LATENCY", "LAG", "KINDS", "OBJECTS", "SIZE", "EVENTS/S", "CAUSE"];
        let rows = self.members.iter().map(|member| member.cells(colours));
        out += &table(&std::iter::once(head.map(str::to_owned)).chain(rows).collect::<Vec<_>>());
        let head = ["KIND", "VERSION", "OBJECTS", "WATCHERS", "EVENTS/S", "NOT READ FROM"].map(str::to_owned);
        let rows = self.kinds.iter().map(KindRow::cells);
        // Writing to memory has no way to fail.
        let _infallible = write!(out, "\n{}", table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
        out
    }
}

fn member_row(member: &MemberStatus, events_per_second: Option<f64>) -> MemberRow {
    MemberRow {
        name: member.name.clone(),
        state: member.state.clone() + if member.absent { ", absent" } else { "" },
        cause: member.cause.clone(),
        latency_millis: member.latency_millis,
        lag_seconds: member.lag_seconds,
        kinds: member.stores,
        objects: member.objects,
        bytes: member.bytes,
        events_per_second,
    }
}

fn kind_row(kind: &KindStatus, events_per_second: Option<f64>) -> KindRow {
    KindRow {
        resource: kind.resource.clone(),
        version: kind.version.clone(),
        objects: kind.objects,
        watchers: kind.watches,
        events_per_second,
        unknown: kind.unknown.clone(),
    }
}

impl MemberRow {
    fn cells(&self, colours: bool) -> [String; 9] {
        [
            self.name.clone(),
            paint(&self.state, colour_of(&self.state), colours),
            self.latency_millis.map_or_else(|| "-".to_owned(), |millis| format!("{millis:.1}ms")),
            paint(&age(self.lag_seconds), if self.lag_seconds > 0 { Paint::Odd } else { Paint::Good }, colours),
            self.kinds.to_string(),
            self.objects.to_string(),
            size(self.bytes),
            told(self.events_per_second),
            self.cause.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

impl KindRow {
    fn cells(&self) -> [String; 6] {
        [
            self.resource.clone(),
            self.version.clone(),
            self.objects.to_string(),
            self.watchers.to_string(),
            told(self.events_per_second),
            if self.unknown.is_empty() { "-".to_owned() } else { self.unknown.join(", ") },
        ]
    }
}

/// Of a counter that began anew nothing is known.
fn rate(now: u64, before: Option<u64>, seconds: f64) -> Option<f64> {
    let more = now.checked_sub(before?)?;
    // Counters stay far below 2^53.
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = more as f64 / seconds;
    (seconds > 0.0).then_some((rate * 10.0).round() / 10.0)
}

fn told(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn sample(at: Instant, east: u64, pods: u64) -> Sample {
        let status = json!({
            "members": [
                {"name": "east", "state": "ready", "reachable": true, "latencyMillis": 1.26, "stores": 2, "objects": 5, "bytes": 2048, "events": east},
                {"name": "west", "state": "down", "reachable": false, "cause": "connection refused", "lagSeconds": 130, "events": 9},
            ],
            "kinds": [
                {"resource": "nodes", "version": "v1", "objects": 2, "watches": 3, "unknown": [], "events": 1},
                {"resource": "pods", "version": "v1", "objects": 3, "watches": 1, "unknown": ["west"], "events": pods},
            ],
            "unfinished": [], "differing": [], "doubled": [],
        });
        Sample { status: serde_json::from_value(status).unwrap(), at }
    }

    #[test]
    fn rates_are_of_what_came_between() {
        let then = Instant::now();
        let (before, now) = (sample(then, 10, 4), sample(then + Duration::from_secs(2), 15, 8));
        let top = Top::of(&now, Some(&before), Column::Events);
        let wanted = "1 of 2 members ready, 2 kinds, 5 objects, 4 watchers, 0 unfinished writes, 0 differences\n\n\
                      MEMBER   STATE   LATENCY   LAG   KINDS   OBJECTS   SIZE   EVENTS/S   CAUSE\n\
                      east     ready   1.3ms     0s    2       5         2KiB   2.5        -\n\
                      west     down    -         2m    0       0         0B     0.0        connection refused\n\n\
                      KIND    VERSION   OBJECTS   WATCHERS   EVENTS/S   NOT READ FROM\n\
                      pods    v1        3         1          2.0        west\n\
                      nodes   v1        2         3          0.0        -\n";
        assert_eq!(top.render(false), wanted);
        let first = |by: Column| Top::of(&now, Some(&before), by).kinds.remove(0).resource;
        assert_eq!([Column::Objects, Column::Watchers, Column::Name].map(first), ["pods", "nodes", "nodes"]);
        // After a restart counters begin anew.
        let restarted = Top::of(&sample(now.at + Duration::from_secs(2), 1, 0), Some(&now), Column::Name);
        assert_eq!((restarted.members[0].events_per_second, restarted.kinds[1].events_per_second), (None, None));
        assert_eq!(Top::of(&now, None, Column::Name).members[0].events_per_second, None);
    }
}
