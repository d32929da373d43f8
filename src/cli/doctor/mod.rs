//! `kubefold doctor`: each member, one layer after the other, then the host of `aggregation`, and what to do about what fails.

mod checkup;
mod host;
mod needs;

use std::{fmt::Write as _, io::Write as _, path::PathBuf};

use anyhow::{anyhow, bail};
use futures::future::join_all;
use serde::Serialize;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cli::{
        client::Output,
        doctor::{
            checkup::{Checkup, Finding, Verdict, examine},
            host::examine_host,
        },
        paint::{self, Paint, paint},
        print,
        status::table,
    },
    config::{self, MemberConfig},
};
use kubefold_wire::golang::Quoted;

/// How the host is called in a report. No member has such a name.
const HOST: &str = "(host)";

#[derive(Debug, clap::Args)]
pub(super) struct Doctor {
    /// The clusters.yaml with the members.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check only this member; may be repeated.
    #[arg(long, value_name = "NAME")]
    member: Vec<String>,
    /// Print all findings, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// What was found of all members.
#[derive(Debug, Serialize)]
struct Report {
    members: Vec<MemberReport>,
    /// Of the host of `aggregation`, if the configuration has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<MemberReport>,
}

impl Report {
    fn all(&self) -> impl Iterator<Item = &MemberReport> {
        self.members.iter().chain(&self.host)
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberReport {
    name: String,
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    findings: Vec<Finding>,
}

/// Checks, and prints what was found.
///
/// Errors: also when a check failed; each of those has been printed by then.
pub(super) fn run(flags: &Doctor) -> anyhow::Result<()> {
    let config = config::load(&flags.config)?;
    let known: Vec<&str> = config.members.iter().map(|member| member.name.as_str()).collect();
    if let Some(stranger) = flags.member.iter().find(|name| !known.contains(&name.as_str())) {
        bail!(
            "there is no member {stranger} in the configuration; the members are {}",
            known.join(", "),
            stranger = Quoted(stranger)
        );
    }
    let is_chosen = |member: &&MemberConfig| {
        flags.member.is_empty() || flags.member.iter().any(|name| name == member.name.as_str())
    };
    let members: Vec<&MemberConfig> = config.members.iter().filter(is_chosen).collect();
    // Progress that cannot be written is no reason to stop.
    drop(writeln!(std::io::stderr(), "checking {} members", members.len()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let checkups = runtime.block_on(Box::pin(examine_all(&members)));
    let mut report = report(&members, checkups);
    if let Some(host) = config.aggregation.as_ref().filter(|_| flags.member.is_empty()) {
        report.host = Some(MemberReport::of(HOST.to_owned(), runtime.block_on(Box::pin(examine_host(host)))));
    }
    let text = match flags.output {
        None => render(&report, paint::on_stdout()),
        Some(output) => output.text(&report)?,
    };
    print(&text)?;
    let sick: Vec<&str> = report.all().filter(|member| !member.healthy).map(|member| member.name.as_str()).collect();
    if sick.is_empty() { Ok(()) } else { Err(anyhow!("checks failed for {}", sick.join(", "))) }
}

async fn examine_all(members: &[&MemberConfig]) -> Vec<Checkup> {
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let checkups = join_all(members.iter().map(|member| Box::pin(examine(member, &tasks, &cancel)))).await;
    cancel.cancel();
    tasks.close();
    tasks.wait().await;
    checkups
}

fn report(members: &[&MemberConfig], checkups: Vec<Checkup>) -> Report {
    let mut seen: Vec<(String, String)> = Vec::new();
    let mut out = Vec::new();
    for (member, Checkup { mut findings, cluster }) in members.iter().zip(checkups) {
        let name = member.name.to_string();
        let twin = cluster.as_ref().and_then(|uid| seen.iter().find(|(_, known)| known == uid));
        if let (Some((first, _)), Some(finding)) = (twin, findings.iter_mut().find(|one| one.check == "identity")) {
            finding.result = Verdict::Failed;
            finding.detail = format!("it is the same cluster as {first}");
            finding.remedy = Some("keep one of the two: kubefold would show every object twice".to_owned());
        } else if let Some(uid) = &cluster {
            seen.push((name.clone(), uid.clone()));
        }
        out.push(MemberReport::of(name, Checkup { findings, cluster }));
    }
    Report { members: out, host: None }
}

impl MemberReport {
    fn of(name: String, Checkup { findings, cluster }: Checkup) -> Self {
        let healthy = findings.iter().all(|finding| matches!(finding.result, Verdict::Ok | Verdict::Note));
        Self { name, healthy, cluster, findings }
    }
}

fn render(report: &Report, colours: bool) -> String {
    let mut rows = vec![["MEMBER", "CHECK", "RESULT", "TIME", "FOUND"].map(str::to_owned)];
    let mut remedies = String::new();
    for member in report.all() {
        for finding in &member.findings {
            let (word, colour) = match finding.result {
                Verdict::Ok => ("ok", Paint::Good),
                Verdict::Note => ("note", Paint::Odd),
                Verdict::Failed => ("FAILED", Paint::Bad),
                Verdict::Skipped => ("-", Paint::Dim),
            };
            let millis = finding.millis.map_or_else(|| "-".to_owned(), |millis| format!("{millis}ms"));
            let result = paint(word, colour, colours);
            rows.push([member.name.clone(), finding.check.to_owned(), result, millis, finding.detail.clone()]);
            if let (Verdict::Failed, Some(remedy)) = (finding.result, &finding.remedy) {
                // Writing to memory has no way to fail.
                let _infallible = writeln!(remedies, "{}: {}: {remedy}", member.name, finding.check);
            }
        }
    }
    let mut out = table(&rows);
    if remedies.is_empty() {
        out.push_str("\nall checks passed\n");
    } else {
        let _infallible = write!(out, "\nWhat to do:\n{remedies}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(check: &'static str, result: Verdict, detail: &str) -> Finding {
        let remedy = (result != Verdict::Ok).then(|| "do this".to_owned());
        Finding { check, result, millis: Some(3), detail: detail.into(), remedy }
    }

    #[test]
    fn it_says_what_to_do_about_failures_alone() {
        let findings = vec![
            finding("dns", Verdict::Ok, "an address"),
            finding("tcp", Verdict::Failed, "refused"),
            finding("tls", Verdict::Note, "odd"),
        ];
        let report = Report {
            members: vec![MemberReport { name: "west".into(), healthy: false, cluster: None, findings }],
            host: None,
        };
        let table = "MEMBER   CHECK   RESULT   TIME   FOUND\n\
                     west     dns     ok       3ms    an address\n\
                     west     tcp     FAILED   3ms    refused\n\
                     west     tls     note     3ms    odd\n";
        assert_eq!(render(&report, false), format!("{table}\nWhat to do:\nwest: tcp: do this\n"));
        let painted = render(&report, true);
        assert!(painted.contains("\u{1b}[31mFAILED\u{1b}[0m   3ms"), "{painted}");
    }
}
