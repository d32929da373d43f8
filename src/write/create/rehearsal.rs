//! The rehearsal of a create: every target is asked for a dry run before anything is made.

use bytes::Bytes;
use futures::future::join_all;

use crate::{
    config::MemberName,
    wire::{status::Status, warning::Warnings},
    write::{
        Writer,
        create::Stop,
        fleet::{Fleet, Key},
        journal::{Entry, EntryTarget},
        reply::refusal,
        steps::{Outcome, Seen},
    },
};

/// Members that are counted as behind, and why: they get their parts later.
pub(super) type Behind = Vec<(MemberName, String)>;

/// Asks every target that is not behind already for a dry run, in parallel. Any refusal refuses the whole. Gives the
/// answers in the order of the targets.
///
/// Where an object may be behind, who does not answer is; the first that answers becomes the first of all, since that one
/// commits.
pub(super) async fn rehearse<F: Fleet>(
    writer: &Writer<F>,
    entry: &mut Entry,
    behind: &mut Option<Behind>,
    warnings: &mut Warnings,
) -> Result<Vec<(MemberName, Bytes)>, Stop> {
    let is_behind = |target: &&EntryTarget| behind.iter().flatten().any(|(member, _)| *member == target.member);
    let asked: Vec<&EntryTarget> = entry.targets.iter().filter(|target| !is_behind(target)).collect();
    let outcomes = make_all(writer, entry, &asked, true, warnings).await;
    let (mut bodies, mut silent) = (Vec::new(), Vec::new());
    for (target, outcome) in outcomes {
        let member = &target.member;
        match outcome {
            Outcome::Done { body, .. } => bodies.push((member.clone(), body.bytes)),
            Outcome::Refused { code, body } => {
                let name_taken = Seen::of(&body).reason.as_deref() == Some("AlreadyExists");
                let hint = if name_taken && !entry.shared {
                    format!("; the fleet view shows it as {}@{member}", entry.key.name)
                } else {
                    String::new()
                };
                return Err(Stop { reply: refusal(member, code, &body, &hint), name_taken });
            }
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => silent.push((member.clone(), cause)),
        }
    }
    let first_silent = silent.first().cloned();
    match behind {
        Some(behind) => behind.append(&mut silent),
        None => first_silent.clone().map_or(Ok(()), |silent| Err(no_answer(&entry.key, &silent)))?,
    }
    if bodies.is_empty() {
        let silent = first_silent.or_else(|| behind.iter().flatten().next().cloned());
        let silent = silent.ok_or_else(|| Status::internal("a plan without targets"))?;
        return Err(no_answer(&entry.key, &silent));
    }
    entry.targets.sort_by_key(|target| behind.iter().flatten().any(|(member, _)| *member == target.member));
    Ok(bodies)
}

fn no_answer(key: &Key, (member, cause): &(MemberName, String)) -> Stop {
    let message = format!("member {member} gave no answer to the rehearsal, so nothing was made: {cause}");
    Status::unavailable(message).about(&key.gvr.group, &key.gvr.resource, &key.name).into()
}

/// Makes, or rehearses, these parts in parallel.
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
