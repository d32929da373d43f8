//! `kubefold status`: the members, and everything that is unfinished or differs.

use std::{fmt::Write as _, io::Write as _};

use anyhow::Context;
use http::Method;

use crate::{
    cli::client::{Connection, Output},
    route::status::{FleetStatus, MemberStatus, RemarkedObject, STATUS_PATH, UnfinishedWrite},
};

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    connection: Connection,
    /// The whole answer, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Prints it on standard output.
pub(super) fn print(flags: &Status) -> anyhow::Result<()> {
    let answer = flags.connection.ask(Method::GET, STATUS_PATH, Vec::new())?;
    let status: FleetStatus = serde_json::from_str(&answer).context("what answered is no kubefold of this version")?;
    let text = match flags.output {
        None => render(&status),
        Some(output) => output.text(&status)?,
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn render(status: &FleetStatus) -> String {
    let mut rows = vec![["MEMBER", "STATE", "FOR", "VERSION", "CLUSTER", "CAUSE"].map(str::to_owned)];
    rows.extend(status.members.iter().map(member_row));
    let mut out = table(&rows);
    let objects: usize = status.kinds.iter().map(|kind| kind.objects).sum();
    let watches: usize = status.kinds.iter().map(|kind| kind.watches).sum();
    // Writing to memory has no way to fail.
    let _infallible = writeln!(out, "\n{} kinds followed, {objects} objects, {watches} watches", status.kinds.len());
    for kind in status.kinds.iter().filter(|kind| !kind.unknown.is_empty()) {
        let members = kind.unknown.join(", ");
        let _infallible = writeln!(out, "{}/{} is not known of {members}", kind.resource, kind.version);
    }
    if !status.unfinished.is_empty() {
        let mut rows = vec![["UNFINISHED", "OBJECT", "AGE", "BEHIND", "WHY"].map(str::to_owned)];
        rows.extend(status.unfinished.iter().flat_map(write_rows));
        let _infallible = write!(out, "\n{}", table(&rows));
    }
    for (title, objects) in [("DIFFERS", &status.differing), ("ALSO NAMED SO", &status.doubled)] {
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
        out.push_str("nothing is unfinished, nothing differs\n");
    }
    out
}

fn member_row(member: &MemberStatus) -> [String; 6] {
    let state = if member.absent { format!("{}, absent", member.state) } else { member.state.clone() };
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let age = member.since_seconds.map(age);
    [member.name.clone(), state, text(&age), text(&member.version), text(&member.cluster), text(&member.cause)]
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

fn name(resource: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{resource}/{name}") } else { format!("{resource}/{name} in {namespace}") }
}

/// As kubectl writes ages, roughly.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Columns as wide as their widest cell, three blanks between them.
pub(super) fn table(rows: &[impl AsRef<[String]>]) -> String {
    let rows = || rows.iter().map(AsRef::as_ref);
    let columns = rows().map(<[String]>::len).max().unwrap_or(0);
    let width = |column: usize| rows().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("   ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::status::{BehindMember, KindStatus};

    fn member(name: &str) -> MemberStatus {
        MemberStatus {
            name: name.into(),
            state: "ready".into(),
            reachable: true,
            cause: None,
            since_seconds: None,
            version: Some("v1.36.4".into()),
            cluster: Some("c".into()),
            absent: false,
        }
    }

    #[test]
    fn it_reads_from_top_to_bottom() {
        let down = MemberStatus {
            state: "down".into(),
            reachable: false,
            cause: Some("connection refused".into()),
            since_seconds: Some(130),
            absent: true,
            ..member("west")
        };
        let mut status = FleetStatus {
            members: vec![member("east"), down],
            kinds: vec![KindStatus {
                resource: "pods".into(),
                version: "v1".into(),
                objects: 3,
                watches: 1,
                unknown: vec!["west".into()],
            }],
            unfinished: Vec::new(),
            differing: Vec::new(),
            doubled: Vec::new(),
        };
        let members = "MEMBER   STATE          FOR   VERSION   CLUSTER   CAUSE\n\
                       east     ready          -     v1.36.4   c         -\n\
                       west     down, absent   2m    v1.36.4   c         connection refused\n\n\
                       1 kinds followed, 3 objects, 1 watches\npods/v1 is not known of west\n";
        assert_eq!(render(&status), format!("{members}nothing is unfinished, nothing differs\n"));
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
        let rest = "\nUNFINISHED   OBJECT                            AGE   BEHIND   WHY\n\
                    delete       deployments.apps/web in default   25h   west     refused\n\n\
                    DIFFERS        IN\nnamespaces/x   west\n";
        assert_eq!(render(&status), format!("{members}{rest}"));
        assert_eq!(serde_json::from_str::<FleetStatus>(&serde_json::to_string(&status).unwrap()).unwrap(), status);
    }
}
