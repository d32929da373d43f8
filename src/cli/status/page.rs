//! The fleet's status as tables.

use std::fmt::Write as _;

use crate::{
    cli::paint::{Paint, paint, width},
    status::{FleetStatus, KindStatus, MemberStatus, MemoryStatus, RemarkedObject, ReplicaStatus, UnfinishedWrite},
};

/// The fleet as a whole, for people.
pub(super) fn render(status: &FleetStatus, colours: bool) -> String {
    let titles = ["MEMBER", "STATE", "VERSION", "LATENCY", "STORES", "OBJECTS", "SIZE", "LAG", "LAST ERROR"];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(status.members.iter().map(|member| member_row(member, colours)));
    let mut out = table(&rows);
    let objects: usize = status.kinds.iter().map(|kind| kind.objects).sum();
    let watches: usize = status.kinds.iter().map(|kind| kind.watches).sum();
    // Writing to memory has no way to fail.
    let _infallible = writeln!(out, "\n{} kinds followed, {objects} objects, {watches} watches", status.kinds.len());
    for kind in status.kinds.iter().filter(|kind| !kind.unknown.is_empty()) {
        let members: Vec<String> = kind.unknown.iter().map(|member| unread_member(kind, member)).collect();
        let members = members.join(", ");
        let _infallible = writeln!(out, "{}/{} has not been read from {members}", kind.resource, kind.version);
    }
    if let Some(state) = &status.state {
        let why = state.error.as_ref().map(|error| format!("nothing can be written through the fleet view: {error}"));
        let restored = state.restored.then(|| format!("the state in {} was restored from a backup", state.place));
        for line in why.iter().chain(&restored) {
            let _infallible = writeln!(out, "{line}");
        }
    }
    if !status.replicas.is_empty() {
        let titles = ["REPLICA", "ROLE", "HOST", "PROCESS", "VERSION", "SEEN"];
        let rows: Vec<_> =
            [titles.map(str::to_owned)].into_iter().chain(status.replicas.iter().map(replica_row)).collect();
        let _infallible = writeln!(out, "\n{}", table(&rows));
    }
    if let Some(error) = status.mirror.as_ref().and_then(|mirror| mirror.error.as_ref()) {
        let _infallible = writeln!(out, "the mirror is not kept: {error}");
    }
    if let Some(memory) = status.mirror.as_ref().and_then(|mirror| mirror.memory.as_ref()) {
        for line in of_memory(memory) {
            let _infallible = writeln!(out, "{line}");
        }
    }
    for record in &status.damaged {
        let _infallible = writeln!(out, "{record}");
    }
    if !status.unfinished.is_empty() {
        let mut rows = vec![["UNFINISHED", "OBJECT", "AGE", "BEHIND", "WHY"].map(str::to_owned)];
        rows.extend(status.unfinished.iter().flat_map(write_rows));
        let _infallible = write!(out, "\n{}", table(&rows));
    }
    for (title, objects) in [("DIFFERS", &status.differing), ("NAME USED TWICE", &status.doubled)] {
        if objects.is_empty() {
            continue;
        }
        let row = |object: &RemarkedObject| {
            [name(&object.resource, &object.namespace, &object.name), object.members.join(", ")]
        };
        let rows: Vec<_> = [[title, "IN"].map(str::to_owned)].into_iter().chain(objects.iter().map(row)).collect();
        let _infallible = write!(out, "\n{}", table(&rows));
    }
    if status.unfinished.is_empty() && status.differing.is_empty() && status.doubled.is_empty() {
        out.push_str("no unfinished writes, no differences\n");
    }
    out
}

fn replica_row(replica: &ReplicaStatus) -> [String; 6] {
    let ReplicaStatus { address, role, host, process, version, seen_seconds } = replica;
    let seen = format!("{} ago", age(*seen_seconds));
    [address.clone(), role.clone(), host.clone(), process.to_string(), version.clone(), seen]
}

/// What becomes of the bound on the objects in memory.
fn of_memory(memory: &MemoryStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if !memory.in_tables.is_empty() {
        let kinds = memory.in_tables.join(", ");
        lines.push(format!("in the mirror's tables alone, since mirror.memory has no room for them: {kinds}"));
    }
    if memory.bytes > memory.max_bytes {
        let of = |bytes: u64| size(usize::try_from(bytes).unwrap_or(usize::MAX));
        lines.push(format!(
            "the objects in memory have {}, more than mirror.memory ({}): the next start has the largest kinds of mirror.storable in \
             the mirror's tables alone",
            of(memory.bytes),
            of(memory.max_bytes)
        ));
    }
    lines
}

/// `west (12000 of about 60000 listed)`.
fn unread_member(kind: &KindStatus, member: &str) -> String {
    let Some(filling) = kind.filling.iter().find(|filling| filling.member == member) else { return member.to_owned() };
    match filling.total {
        Some(total) => format!("{member} ({} of about {total} listed)", filling.listed),
        None => format!("{member} ({} listed)", filling.listed),
    }
}

fn member_row(member: &MemberStatus, colours: bool) -> [String; 9] {
    let mut state = member.state.clone();
    if let Some(seconds) = member.since_seconds {
        let _infallible = write!(state, " {}", age(seconds));
    }
    if member.absent {
        state.push_str(", absent");
    }
    let colour = colour_of(&member.state);
    let last = member.last_error.as_ref();
    [
        member.name.clone(),
        paint(&state, colour, colours),
        member.version.clone().unwrap_or_else(|| "-".to_owned()),
        member.latency_millis.map_or_else(|| "-".to_owned(), |millis| format!("{millis:.1}ms")),
        member.stores.to_string(),
        member.objects.to_string(),
        size(member.bytes),
        age(member.lag_seconds),
        match (&member.cause, last) {
            (Some(cause), _) => format!("now: {cause}"),
            (None, Some(last)) => format!("{} ago: {}", age(last.age_seconds), last.message),
            (None, None) => "-".to_owned(),
        },
    ]
}

/// The colour of a member's state.
pub(in crate::cli) fn colour_of(state: &str) -> Paint {
    match state {
        "ready" => Paint::Good,
        "down" => Paint::Bad,
        _ => Paint::Odd,
    }
}

/// As people say sizes.
pub(in crate::cli) fn size(bytes: usize) -> String {
    match bytes >> 10 {
        0 => format!("{bytes}B"),
        kib @ 1..10_240 => format!("{kib}KiB"),
        kib => format!("{}MiB", kib >> 10),
    }
}

fn write_rows(write: &UnfinishedWrite) -> Vec<[String; 5]> {
    let what = name(&write.resource, &write.namespace, &write.name);
    let old = write.age_seconds.map_or_else(|| "-".to_owned(), age);
    let row =
        |member: &str, why: &str| [write.verb.clone(), what.clone(), old.clone(), member.to_owned(), why.to_owned()];
    match &*write.behind {
        [] => vec![row("-", "about to end")],
        behind => behind.iter().map(|behind| row(&behind.member, &behind.why)).collect(),
    }
}

pub(in crate::cli) fn name(resource: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{resource}/{name}") } else { format!("{resource}/{name} in {namespace}") }
}

/// As kubectl writes ages, roughly.
pub(in crate::cli) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Columns as wide as their widest cell, three blanks between them.
pub(in crate::cli) fn table(rows: &[impl AsRef<[String]>]) -> String {
    Columns::default().lines(rows)
}

/// Columns of a table whose rows come bit by bit: none gets narrower.
#[derive(Debug, Default)]
pub(in crate::cli) struct Columns(Vec<usize>);

impl Columns {
    /// The next rows.
    pub(in crate::cli) fn lines(&mut self, rows: &[impl AsRef<[String]>]) -> String {
        let rows = || rows.iter().map(AsRef::as_ref);
        for row in rows() {
            self.0.resize(self.0.len().max(row.len()), 0);
            self.0.iter_mut().zip(row).for_each(|(widest, cell)| *widest = (*widest).max(width(cell)));
        }
        let mut out = String::new();
        for row in rows() {
            let cells = row
                .iter()
                .zip(&self.0)
                .map(|(cell, widest)| cell.clone() + &" ".repeat(widest.saturating_sub(width(cell))));
            let line = cells.collect::<Vec<_>>().join("   ");
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{BehindMember, FillingMember, MirrorStatus, PastError, StateStatus};

    fn member(name: &str) -> MemberStatus {
        MemberStatus {
            name: name.into(),
            state: "ready".into(),
            reachable: true,
            cause: None,
            since_seconds: None,
            version: Some("v1.36.4".into()),
            latency_millis: Some(1.26),
            stores: 2,
            objects: 3,
            bytes: 4_200,
            events: 0,
            lag_seconds: 0,
            last_error: None,
            cluster: Some("c".into()),
            absent: false,
        }
    }

    fn replica(address: &str, role: &str, host: &str) -> ReplicaStatus {
        let (address, role, host, version) = (address.into(), role.into(), host.into(), "0.1.0".into());
        ReplicaStatus { address, role, host, process: 1, version, seen_seconds: 2 }
    }

    fn down(name: &str) -> MemberStatus {
        MemberStatus {
            state: "down".into(),
            reachable: false,
            cause: Some("connection refused".into()),
            since_seconds: Some(130),
            absent: true,
            latency_millis: None,
            lag_seconds: 131,
            last_error: Some(PastError { message: "connection refused".into(), age_seconds: 1 }),
            ..member(name)
        }
    }

    #[test]
    fn it_reads_from_top_to_bottom() {
        let mut status = FleetStatus {
            members: vec![member("east"), down("west")],
            kinds: vec![KindStatus {
                resource: "pods".into(),
                version: "v1".into(),
                objects: 3,
                watches: 1,
                events: 0,
                unknown: vec!["north".into(), "west".into()],
                filling: vec![FillingMember { member: "north".into(), listed: 12_000, total: Some(60_000) }],
            }],
            mirror: None,
            state: None,
            replicas: Vec::new(),
            damaged: Vec::new(),
            unfinished: Vec::new(),
            differing: Vec::new(),
            doubled: Vec::new(),
        };
        let members = "MEMBER   STATE             VERSION   LATENCY   STORES   OBJECTS   SIZE   LAG   LAST ERROR\n\
                       east     ready             v1.36.4   1.3ms     2        3         4KiB   0s    -\n\
                       west     down 2m, absent   v1.36.4   -         2        3         4KiB   2m    now: connection refused\n\n\
                       1 kinds followed, 3 objects, 1 watches\npods/v1 has not been read from north (12000 of about 60000 listed), west\n";
        assert_eq!(render(&status, false), format!("{members}no unfinished writes, no differences\n"));
        let error = Some("the disk is full".into());
        let in_tables = vec!["events".into(), "widgets.example.com".into()];
        let memory = Some(MemoryStatus { max_bytes: 10 << 20, bytes: 30 << 20, in_tables });
        status.mirror = Some(MirrorStatus { on: true, objects: 1, bytes: 2, lag_seconds: None, error, memory });
        let error = Some("PostgreSQL (postgres://db/fleet) cannot be reached: connection refused".into());
        let place = "postgres://db/fleet".to_owned();
        status.state = Some(StateStatus { place, away_seconds: Some(3), lost: false, restored: true, error });
        status.replicas = vec![replica("10.1.0.7:6443", "standby", "kf-a"), replica("10.1.0.9:6443", "holder", "kf-b")];
        status.damaged.push("the record 7 cannot be read".into());
        status.unfinished.push(UnfinishedWrite {
            resource: "deployments.apps".into(),
            namespace: "default".into(),
            name: "web".into(),
            verb: "delete".into(),
            age_seconds: Some(90_000),
            user: "ann".into(),
            behind: vec![BehindMember { member: "west".into(), why: "refused".into() }],
        });
        status.differing.push(RemarkedObject {
            resource: "namespaces".into(),
            namespace: String::new(),
            name: "x".into(),
            members: vec!["west".into()],
        });
        let rest = "nothing can be written through the fleet view: PostgreSQL (postgres://db/fleet) cannot be reached: connection refused\n\
                    the state in postgres://db/fleet was restored from a backup\n\
                    \nREPLICA         ROLE      HOST   PROCESS   VERSION   SEEN\n\
                    10.1.0.7:6443   standby   kf-a   1         0.1.0     2s ago\n\
                    10.1.0.9:6443   holder    kf-b   1         0.1.0     2s ago\n\n\
                    the mirror is not kept: the disk is full\n\
                    in the mirror's tables alone, since mirror.memory has no room for them: events, widgets.example.com\n\
                    the objects in memory have 30MiB, more than mirror.memory (10MiB): the next start has the largest kinds of mirror.storable in the mirror's tables alone\nthe record 7 cannot be read\n\nUNFINISHED   OBJECT                            AGE   BEHIND   WHY\n\
                    delete       deployments.apps/web in default   25h   west     refused\n\n\
                    DIFFERS        IN\nnamespaces/x   west\n";
        assert_eq!(render(&status, false), format!("{members}{rest}"));
        assert_eq!(serde_json::from_str::<FleetStatus>(&serde_json::to_string(&status).unwrap()).unwrap(), status);
    }
}
