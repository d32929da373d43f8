//! The dry run of a create: every target is asked for a dry run before anything is made.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::StatusCode;
use tokio::time::{Instant, sleep};

use crate::{
    answer::reply::refusal,
    config::MemberName,
    respond::WriteError,
    write::{
        Writer,
        create::stop::Stop,
        fleet::{Fleet, Key},
        journal::{Entry, EntryTarget},
        steps::{Outcome, Seen},
    },
};
use kubefold_wire::warning::Warnings;

/// What a refusal in the dry run leaves.
const NOTHING_MADE: &str = "nothing was made";

/// Members that are counted as behind, and why: they get their parts later.
pub(super) type Behind = Vec<(MemberName, String)>;

/// Asks every target that is not behind already for a dry run, in parallel. Any refusal refuses the whole. Gives the
/// answers in the order of the targets.
///
/// Where an object may be behind, who does not answer is; the first that answers becomes the first of all, since that one
/// commits.
pub(super) async fn dry_run<F: Fleet>(
    writer: &Writer<F>,
    entry: &mut Entry,
    behind: &mut Option<Behind>,
    warnings: &mut Warnings,
) -> Result<Vec<(MemberName, Bytes)>, Stop> {
    let is_behind = |target: &&EntryTarget| behind.iter().flatten().any(|(member, _)| *member == target.member);
    let asked: Vec<&EntryTarget> = entry.targets.iter().filter(|target| !is_behind(target)).collect();
    let outcomes = ask_all(writer, entry, &asked, warnings).await;
    let taken: Vec<String> =
        outcomes.iter().filter(|(_, outcome)| is_taken(outcome)).map(|(target, _)| target.member.to_string()).collect();
    let (mut bodies, mut silent) = (Vec::new(), Vec::new());
    for (target, outcome) in outcomes {
        let member = &target.member;
        match outcome {
            Outcome::Done { body, .. } => bodies.push((member.clone(), body.bytes)),
            Outcome::Refused { code, body } => {
                let name_taken = taken.first().is_some_and(|first| first == member.as_str());
                if !name_taken && !taken.is_empty() {
                    continue;
                }
                let hint = match code {
                    _ if name_taken => held_by(entry, &taken),
                    // The body's own fault: nobody would think that anything was made of it.
                    StatusCode::BAD_REQUEST => String::new(),
                    _ => NOTHING_MADE.to_owned(),
                };
                return Err(Stop { reply: refusal(member, code, &body, &hint), name_taken });
            }
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => silent.push((member.clone(), cause)),
        }
    }
    let first_silent = silent.first().cloned();
    match behind {
        Some(behind) => behind.append(&mut silent),
        None => first_silent.clone().map_or(Ok(()), |(member, cause)| Err(no_answer(&entry.key, member, cause)))?,
    }
    if bodies.is_empty() {
        let silent = first_silent.or_else(|| behind.iter().flatten().next().cloned());
        let (member, cause) = silent.ok_or(WriteError::Internal("a plan without targets"))?;
        return Err(no_answer(&entry.key, member, cause).into());
    }
    entry.targets.sort_by_key(|target| behind.iter().flatten().any(|(member, _)| *member == target.member));
    Ok(bodies)
}

fn is_taken(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { body, .. } if Seen::of(body).reason.as_deref() == Some("AlreadyExists"))
}

/// Who has the name, and how it is found there.
pub(super) fn held_by(entry: &Entry, taken: &[String]) -> String {
    if entry.shared {
        let others = taken.get(1..).unwrap_or_default();
        return if others.is_empty() { String::new() } else { format!("so it does in {}", members(others)) };
    }
    let shown: Vec<String> = taken.iter().map(|member| format!("{}@{member}", entry.key.name)).collect();
    format!("the fleet view shows it as {}", shown.join(", "))
}

/// `member east`, `members east, west`.
pub(super) fn members(names: &[String]) -> String {
    format!("{} {}", if names.len() == 1 { "member" } else { "members" }, names.join(", "))
}

/// How long a namespace's own service account is waited for.
const ACCOUNT_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks for it.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Asks every target. One that lacks a service account is asked again for a while: each member's controller makes those of
/// a new namespace for itself, and the fleet view shows them as soon as one has. A dry run may be repeated.
///
/// Source: kubernetes `plugin/pkg/admission/serviceaccount/admission.go` waits for `default` itself, but not for long.
async fn ask_all<'e, F: Fleet>(
    writer: &Writer<F>,
    entry: &Entry,
    targets: &[&'e EntryTarget],
    warnings: &mut Warnings,
) -> Vec<(&'e EntryTarget, Outcome)> {
    let deadline = Instant::now() + ACCOUNT_WITHIN;
    loop {
        let mut said = Warnings::default();
        let outcomes = make_all(writer, entry, targets, true, &mut said).await;
        if !outcomes.iter().any(|(_, outcome)| lacks_account(outcome)) || Instant::now() >= deadline {
            warnings.merge(&said);
            return outcomes;
        }
        sleep(AGAIN_AFTER).await;
    }
}

fn lacks_account(outcome: &Outcome) -> bool {
    let Outcome::Refused { code: StatusCode::FORBIDDEN, body } = outcome else { return false };
    Seen::of(body).message.is_some_and(|said| {
        said.contains("error looking up service account") && said.ends_with("serviceaccount \"default\" not found")
    })
}

fn no_answer(key: &Key, member: MemberName, cause: String) -> WriteError {
    WriteError::DryRunUnanswered { object: key.to_ref(), member, cause }
}

/// Makes, or dry-runs, these parts in parallel.
pub(super) async fn make_all<'e, F: Fleet>(
    writer: &Writer<F>,
    entry: &Entry,
    targets: &[&'e EntryTarget],
    dry: bool,
    warnings: &mut Warnings,
) -> Vec<(&'e EntryTarget, Outcome)> {
    let all = join_all(targets.iter().map(|target| async move {
        let mut said = Warnings::default();
        let outcome = writer.make(entry, target, dry, &mut said).await;
        (*target, outcome, said)
    }));
    let made = all.await;
    made.into_iter()
        .map(|(target, outcome, said)| {
            warnings.merge(&said);
            (target, outcome)
        })
        .collect()
}
