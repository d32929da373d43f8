//! The commit of a create: the other parts in parallel, then the home; and what takes back a create that failed before.

use std::sync::Arc;

use futures::future::join_all;
use http::StatusCode;

use crate::{
    answer::reply::{Reply, refusal},
    config::MemberName,
    respond::{Settling, WriteError},
    write::{
        Writer,
        create::dry_run::{Behind, make_all},
        fleet::{Fleet, Key},
        journal::{Entry, EntryTarget, Step},
        steps::{Outcome, Removed, Seen},
    },
};
use kubefold_wire::warning::Warnings;

/// Makes the parts of an entered write. `behind` has the members that get theirs later; without it all are made or none.
pub(super) async fn commit<F: Fleet>(
    writer: &Arc<Writer<F>>,
    entry: Entry,
    hold: F::Hold,
    mut behind: Option<Behind>,
    mut warnings: Warnings,
) -> Reply {
    for (member, cause) in behind.iter().flatten() {
        writer.journal.step(entry.id, member, Step::Failed(cause.clone())).await;
    }
    let mut made = make(writer, &entry, &mut behind, &mut warnings).await;
    let unknown = made.iter().filter_map(|(target, outcome)| match outcome {
        Outcome::Unknown(cause) => Some(format!("member {}: {cause}", target.member)),
        Outcome::Done { .. } | Outcome::Refused { .. } | Outcome::NotSent(_) => None,
    });
    let causes: Vec<String> = unknown.collect();
    if !causes.is_empty() {
        let (doing, object, settling) = ("creating".to_owned(), entry.key.to_ref(), Settling::DoneOrUndone);
        writer.settle_held(entry.id, hold);
        return Reply::from(WriteError::OutcomeUnknown { doing, object, causes, settling }).warned(warnings);
    }
    let failed = made.iter().find(|(_, outcome)| !matches!(outcome, Outcome::Done { .. }));
    if let Some((target, outcome)) = failed {
        let (closed, told) = take_back(writer, &entry, &made).await;
        if closed {
            writer.journal.finish(entry.id);
            writer.fleet.release(hold).await;
        } else {
            writer.fleet.release(hold).await;
            writer.settle_later(entry.id);
        }
        return failure(&entry.key, &target.member, outcome, &told).warned(warnings);
    }
    // The home's first: it is the whole's body.
    made.rotate_right(1);
    finish(writer, &entry, made, hold, &behind.unwrap_or_default(), warnings).await
}

/// Makes the others, and if they stand the home. Who may be behind and does not do it is.
async fn make<'e, F: Fleet>(
    writer: &Writer<F>,
    entry: &'e Entry,
    behind: &mut Option<Behind>,
    warnings: &mut Warnings,
) -> Vec<(&'e EntryTarget, Outcome)> {
    let Some((home, others)) = entry.targets.split_first() else { return Vec::new() };
    let is_behind = |target: &&EntryTarget| behind.iter().flatten().any(|(member, _)| *member == target.member);
    let others: Vec<&EntryTarget> = others.iter().filter(|target| !is_behind(target)).collect();
    let mut made = Vec::new();
    for (target, outcome) in make_all(writer, entry, &others, false, warnings).await {
        writer.journal.step(entry.id, &target.member, outcome.step()).await;
        match (behind.as_mut(), outcome) {
            (Some(behind), Outcome::NotSent(cause) | Outcome::Unknown(cause)) => {
                behind.push((target.member.clone(), cause));
            }
            (_, outcome) => made.push((target, outcome)),
        }
    }
    if made.iter().all(|(_, outcome)| matches!(outcome, Outcome::Done { .. })) {
        let outcome = writer.make(entry, home, false, warnings).await;
        writer.journal.step(entry.id, &home.member, outcome.step()).await;
        made.push((home, outcome));
    }
    made
}

/// What was made is shown and answered; who is behind stays in the journal.
async fn finish<F: Fleet>(
    writer: &Arc<Writer<F>>,
    entry: &Entry,
    made: Vec<(&EntryTarget, Outcome)>,
    hold: F::Hold,
    behind: &Behind,
    mut warnings: Warnings,
) -> Reply {
    let mut bodies = Vec::new();
    for (target, outcome) in made {
        if let Outcome::Done { body, .. } = outcome {
            writer.fleet.ingest(&entry.key, &target.member, &body).await;
            bodies.push((target.member.clone(), body.bytes));
        }
    }
    if behind.is_empty() {
        writer.journal.finish(entry.id);
    }
    writer.keep_everywhere(entry).await;
    for (member, cause) in behind {
        let key = &entry.key;
        warnings
            .add(&format!("{key} is behind: it is not in member {member} yet, kubefold makes it when it can: {cause}"));
    }
    let shown = writer.fleet.release(hold).await;
    if !behind.is_empty() {
        writer.settle_later(entry.id);
    }
    let stored = shown.filter(|visible| entry.shared || visible.uid == entry.uid).map(|visible| visible.body);
    match stored.or_else(|| writer.fleet.render(&entry.key, &bodies)) {
        Some(body) => Reply { code: StatusCode::CREATED, warnings, body },
        None => Reply::from(WriteError::Internal("it is created, but cannot be shown")).warned(warnings),
    }
}

/// Takes back what was made before a failure. Says whether nothing is left to do, and what happened where.
async fn take_back<F: Fleet>(writer: &Writer<F>, entry: &Entry, made: &[(&EntryTarget, Outcome)]) -> (bool, String) {
    if let Some(home) = entry.targets.first().filter(|_| entry.shared) {
        // Without markers only this tells a create that is taken back from one that is to be finished.
        writer.journal.step(entry.id, &home.member, Step::Undone).await;
    }
    let undone = join_all(made.iter().filter_map(|(target, outcome)| {
        let Outcome::Done { body, .. } = outcome else { return None };
        let uid = Seen::of(body).uid;
        Some(async move {
            let removed = match uid {
                Some(uid) => writer.undo(entry, target, &uid, true).await,
                None => Removed::Left("its answer has no UID".to_owned()),
            };
            (target, removed)
        })
    }))
    .await;
    let (mut closed, mut told) = (true, Vec::new());
    for (target, removed) in undone {
        let member = &target.member;
        match removed {
            Removed::Gone => told.push(format!("member {member}: removed again")),
            Removed::Requested => told.push(format!("member {member}: deletion requested, a finalizer holds it")),
            Removed::Left(cause) => {
                closed = false;
                told.push(format!("member {member}: not removed yet, kubefold goes on trying: {cause}"));
                continue;
            }
        }
        writer.journal.step(entry.id, member, Step::Undone).await;
    }
    let told = if told.is_empty() { "nothing was made".to_owned() } else { told.join("; ") };
    (closed, told)
}

fn failure(key: &Key, member: &MemberName, outcome: &Outcome, told: &str) -> Reply {
    match outcome {
        Outcome::Refused { code, body } => refusal(member, *code, body, told),
        Outcome::NotSent(cause) | Outcome::Unknown(cause) => {
            let (object, member, cause, undone) = (key.to_ref(), member.clone(), cause.clone(), told.to_owned());
            WriteError::NotCreated { object, member, cause, undone }.into()
        }
        Outcome::Done { .. } => WriteError::Internal("a success was taken for a failure").into(),
    }
}
