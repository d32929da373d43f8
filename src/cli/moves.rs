//! `kubefold cordon`, `uncordon`, `drain`, `rebalance`, `extend` and `moves`: where placed objects go, and how far they are.

use std::{
    collections::BTreeSet,
    io::{IsTerminal, Write as _},
    time::Duration,
};

use anyhow::{Context, bail};
use clap_complete::ArgValueCompleter;
use http::Method;

use crate::{
    cli::{
        client::{Connection, Output},
        completion,
        named::{Named, named_in_one},
        print as print_text,
        status::{name, table},
    },
    config::MemberName,
    write::moves::{
        Command, LeftObject, MOVES_PATH, MoveState, MovesReport, NamedObject, OverriddenPart, OverriddenValue, Verb,
    },
};

/// How often a command that waits looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Characters of the bar on a terminal.
const BAR: usize = 30;

#[derive(Debug, clap::Args)]
pub(super) struct Cordon {
    /// The member.
    #[arg(value_name = "MEMBER", value_parser = member, add = ArgValueCompleter::new(completion::members))]
    member: MemberName,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Drain {
    /// The member.
    #[arg(value_name = "MEMBER", value_parser = member, add = ArgValueCompleter::new(completion::members))]
    member: MemberName,
    /// Move also what cannot move without a gap, or may run twice for a while.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Rebalance {
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Extend {
    /// The member. Default: every member.
    #[arg(value_name = "MEMBER", value_parser = member, add = ArgValueCompleter::new(completion::members))]
    member: Option<MemberName>,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Adopt {
    /// The object, as for kubectl: deployment/web.
    #[arg(value_name = "TYPE/NAME", value_parser = named_in_one)]
    object: Named,
    /// The members that have it, the home first.
    #[arg(long = "member", value_name = "MEMBER", required = true, value_delimiter = ',', value_parser = member, add = ArgValueCompleter::new(completion::members))]
    members: Vec<MemberName>,
    /// The object's namespace. Default: the context's.
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Forget {
    /// The member.
    #[arg(long, value_name = "MEMBER", value_parser = member, add = ArgValueCompleter::new(completion::members))]
    member: MemberName,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Moves {
    #[command(flatten)]
    connection: Connection,
    /// Print the whole answer, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

#[derive(Debug, clap::Args)]
struct Waiting {
    /// Wait until everything has moved; `--wait=false` returns at once.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct Flags {
    /// Print what would be done; change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
    /// Print the whole answer, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

fn member(text: &str) -> anyhow::Result<MemberName> {
    MemberName::new(text).context("a member's name is a DNS label")
}

impl Adopt {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => self.flags.connection.namespace()?,
        };
        let Named { kind: resource, name } = self.object;
        let object = Some(NamedObject { resource, namespace, name });
        let report = self.flags.send(&Command { object, members: self.members, ..self.flags.command(Verb::Adopt) })?;
        self.flags.tell(&report, "adopted")
    }
}

impl Forget {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let report = self.flags.send(&Command { member: Some(self.member), ..self.flags.command(Verb::Forget) })?;
        match self.flags.output {
            Some(output) => print_text(&output.text(&report)?),
            None if report.left.is_empty() => print_text("nothing waits for it\n"),
            None => print_text(&rows(["OBJECT", "WHAT"], &report.left, said)),
        }
    }
}

impl Cordon {
    pub(super) fn run(self, verb: Verb) -> anyhow::Result<()> {
        let done = match verb {
            Verb::Uncordon => "uncordoned",
            _ => "cordoned",
        };
        let command = Command { member: Some(self.member.clone()), ..self.flags.command(verb) };
        let report = self.flags.send(&command)?;
        let dry = if self.flags.dry_run { " (dry run)" } else { "" };
        match self.flags.output {
            Some(output) => print_text(&output.text(&report)?),
            None => print_text(&format!("member {} {done}{dry}\n", self.member)),
        }
    }
}

impl Drain {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let member = Some(self.member);
        self.flags.run(Verb::Drain, member, self.force, self.waiting.wait)
    }
}

impl Rebalance {
    pub(super) fn run(self) -> anyhow::Result<()> {
        self.flags.run(Verb::Rebalance, None, false, self.waiting.wait)
    }
}

impl Extend {
    pub(super) fn run(self) -> anyhow::Result<()> {
        self.flags.run(Verb::Extend, self.member, false, self.waiting.wait)
    }
}

impl Moves {
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let report = ask(&self.connection, Method::GET, Vec::new())?;
        match self.output {
            Some(output) => print_text(&output.text(&report)?),
            None => print_text(&render(&report)),
        }
    }
}

impl Flags {
    fn command(&self, verb: Verb) -> Command {
        let dry_run = self.dry_run;
        Command { verb, member: None, members: Vec::new(), object: None, dry_run, force: false }
    }

    /// What a command did at once.
    ///
    /// Errors: it did not.
    fn tell(&self, report: &MovesReport, done: &str) -> anyhow::Result<()> {
        if let Some(refused) = report.left.first() {
            bail!("{} is not {done}: {}", left(refused), refused.why);
        }
        let dry = if self.dry_run { " (dry run)" } else { "" };
        match self.output {
            Some(output) => print_text(&output.text(report)?),
            None => report.moves.iter().try_for_each(|one| print_text(&format!("{} {done}{dry}\n", object(one)))),
        }
    }

    fn send(&self, command: &Command) -> anyhow::Result<MovesReport> {
        ask(&self.connection, Method::POST, serde_json::to_vec(command)?)
    }

    fn run(&self, verb: Verb, member: Option<MemberName>, force: bool, wait: bool) -> anyhow::Result<()> {
        let report = self.send(&Command { member, force, ..self.command(verb) })?;
        match self.output {
            Some(output) => print_text(&output.text(&report)?)?,
            None => print_text(&planned(&report))?,
        }
        if wait && !self.dry_run && !report.moves.is_empty() {
            self.wait(&report.moves)?;
        }
        Ok(())
    }

    /// Waits until all of these have moved, and tells each that has.
    fn wait(&self, begun: &[MoveState]) -> anyhow::Result<()> {
        let all: BTreeSet<String> = begun.iter().map(object).collect();
        let mut waits = all.clone();
        let mut problem = String::new();
        while !waits.is_empty() {
            std::thread::sleep(LOOK_EVERY);
            let report = ask_at(&self.connection, Method::GET, &format!("{MOVES_PATH}?outdated=false"), Vec::new())?;
            let moving: BTreeSet<String> = report.moves.iter().map(object).collect();
            for done in waits.iter().filter(|object| !moving.contains(*object)) {
                clear();
                if self.output.is_none() {
                    print_text(&format!("{done} moved\n"))?;
                }
            }
            waits.retain(|object| moving.contains(object));
            let waiting = report.moves.iter().find(|one| one.problem.is_some() && waits.contains(&object(one)));
            let said = waiting.map_or_else(String::new, |one| {
                format!("{}: {}", object(one), one.problem.as_deref().unwrap_or_default())
            });
            progress(all.len() - waits.len(), all.len(), &said, &mut problem);
        }
        clear();
        Ok(())
    }
}

fn ask(connection: &Connection, method: Method, body: Vec<u8>) -> anyhow::Result<MovesReport> {
    ask_at(connection, method, MOVES_PATH, body)
}

fn ask_at(connection: &Connection, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<MovesReport> {
    let answer = connection.ask(method, path, body)?;
    serde_json::from_str(&answer).context("the server is not a kubefold of this version")
}

/// How far it is: a bar on a terminal, else a line whenever what it waits for changes.
fn progress(done: usize, all: usize, waits_for: &str, told: &mut String) {
    let mut out = std::io::stderr();
    // Nobody is there to be told where standard error is closed.
    if out.is_terminal() {
        let filled = BAR * done / all.max(1);
        let shown: String = waits_for.chars().take(80).collect();
        let _closed =
            write!(out, "\r\u{1b}[K[{}{}] {done}/{all} {shown}", "=".repeat(filled), " ".repeat(BAR - filled));
        let _closed = out.flush();
    } else if !waits_for.is_empty() && *told != waits_for {
        let _closed = writeln!(out, "{done}/{all} moved; {waits_for}");
        waits_for.clone_into(told);
    }
}

fn clear() {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _closed = write!(out, "\r\u{1b}[K");
        let _closed = out.flush();
    }
}

fn object(one: &MoveState) -> String {
    name(&one.resource, &one.namespace, &one.name)
}

fn left(one: &LeftObject) -> String {
    name(&one.resource, &one.namespace, &one.name)
}

fn to(one: &MoveState) -> String {
    let parts = one.to.iter().map(|part| match part.share {
        Some(share) => format!("{} {share}", part.member),
        None => part.member.clone(),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// How a part changes by its overrides: `.spec.paused: - -> true`.
fn overrides(part: &OverriddenPart) -> String {
    if let Some(problem) = &part.problem {
        return problem.clone();
    }
    let text = |value: &Option<serde_json::Value>| match value {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    };
    let value = |one: &OverriddenValue| match (&one.from, &one.to) {
        // Of a Secret nothing is told.
        (None, None) => one.path.clone(),
        (from, to) => format!("{}: {} -> {}", one.path, text(from), text(to)),
    };
    let values = part.values.iter().map(value).collect::<Vec<_>>().join("; ");
    if values.is_empty() { "no value changes".to_owned() } else { values }
}

/// Rows under titles; nothing where there are none.
fn rows<T, const N: usize>(titles: [&str; N], all: &[T], row: impl Fn(&T) -> [String; N]) -> String {
    if all.is_empty() {
        return String::new();
    }
    table(&[titles.map(str::to_owned)].into_iter().chain(all.iter().map(row)).collect::<Vec<_>>())
}

fn said(one: &LeftObject) -> [String; 2] {
    [left(one), one.why.clone()]
}

/// What a command begins, or would begin.
fn planned(report: &MovesReport) -> String {
    let (overridden, moved): (Vec<&MoveState>, Vec<&MoveState>) =
        report.moves.iter().partition(|one| !one.overrides.is_empty());
    let moves = rows(["OBJECT", "TO", "LEAVES"], &moved, |one| [object(one), to(one), one.leaving.join(", ")]);
    let parts = |one: &MoveState| one.overrides.iter().map(|part| (object(one), part.clone())).collect::<Vec<_>>();
    let parts: Vec<_> = overridden.into_iter().flat_map(parts).collect();
    let overrides = rows(["OBJECT", "MEMBER", "OVERRIDES"], &parts, |(name, part)| {
        [name.clone(), part.member.clone(), overrides(part)]
    });
    let text = moves + &overrides + &rows(["STAYS", "WHY"], &report.left, said);
    if text.is_empty() { "nothing is to be moved\n".to_owned() } else { text }
}

/// What is moving.
fn render(report: &MovesReport) -> String {
    let cordoned = match report.cordoned.as_slice() {
        [] => String::new(),
        members => format!("cordoned: {}\n", members.join(", ")),
    };
    let titles = ["OBJECT", "BY", "TO", "LEAVES", "STAGE", "WAITS FOR"];
    let moves = rows(titles, &report.moves, |one| {
        let why = one.problem.clone().unwrap_or_else(|| "-".to_owned());
        [object(one), one.why.clone(), to(one), one.leaving.join(", "), one.stage.clone(), why]
    });
    let stays = rows(["STAYS", "WHY"], &report.left, said);
    let outdated = rows(["OVERRIDES", "WHY"], &report.outdated, said);
    let text = moves + &stays + &outdated + &rows(["REPLACED", "WHAT FOLLOWS"], &report.superseded, said);
    let halted = report.halted.iter().map(|why| format!("{why}\n")).collect::<String>();
    cordoned + &halted + if text.is_empty() { "nothing moves\n" } else { &text }
}
