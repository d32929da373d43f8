//! Delete of a placed object: dry-run, home first (accepted, not gone), then the other parts.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::StatusCode;

use crate::{
    answer::reply::{Reply, refusal},
    config::MemberName,
    respond::{Settling, WriteError},
    write::{
        GONE_WITHIN, Writer,
        fleet::{Fleet, Key, Part, Visible},
        journal::{Entry, EntryTarget, Step, Verb},
        options::{Options, of_part},
        request::Request,
        steps::{Outcome, Removed, Seen, Silent, removed},
    },
};
use kubefold_wire::{reword::is_status, warning::Warnings};

/// Answers a `DELETE` of a placed object.
pub(super) async fn delete<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, name: &str) -> Reply {
    try_delete(writer, request, name).await.unwrap_or_else(|reply| reply)
}

async fn try_delete<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, name: &str) -> Result<Reply, Reply> {
    let options = Options::read(request)?;
    let key = request.key(name);
    let Some(hold) = writer.fleet.hold(&key).await else { return Err(WriteError::Taken(key.to_ref()).into()) };
    let not_found = || match writer.journal.open_create(&key).and_then(|entry| entry.targets.into_iter().next()) {
        Some(earlier) => WriteError::Unsettled { object: key.to_ref(), home: earlier.member },
        None => WriteError::NotFound(key.to_ref()),
    };
    let visible = writer.fleet.visible(&key).ok_or_else(not_found)?;
    let parts = writer.fleet.parts(&key);
    let home = parts.first().ok_or_else(not_found)?;
    check_preconditions(&key, &options, &visible)?;
    let entry = entry_of(writer, request, &key, &visible.uid, &options, &parts);
    let mut warnings = Warnings::default();
    let revision = options.resource_version.is_some().then_some(home.resource_version.as_str());
    let Tried { reached, answers_with_object } = dry_run(writer, &entry, &parts, revision, &mut warnings).await?;
    let gone = |code: StatusCode| match answers_with_object {
        true => Reply { code, warnings: Warnings::default(), body: visible.body.clone() },
        false => success(&key, &visible.uid, code),
    };
    if options.dry {
        return Ok(gone(StatusCode::OK).warned(warnings));
    }
    let entry = writer.journal.begin(entry).await.map_err(|error| WriteError::Journal(error.into()))?;
    let home_options = of_part(&entry.body, &home.uid, revision, false);
    let outcome = writer.remove(&entry, &home.member, home_options, false, &mut warnings).await;
    writer.journal.step(entry.id, &home.member, outcome.step()).await;
    let code = match (&outcome, removed(&outcome)) {
        (Outcome::Done { code, .. }, _) => *code,
        (Outcome::Unknown(cause), _) => {
            let (doing, causes) = ("deleting".to_owned(), vec![format!("member {}: {cause}", home.member)]);
            let (object, settling) = (key.to_ref(), Settling::IfDone);
            writer.settle_held(entry.id, hold);
            let error = WriteError::OutcomeUnknown { doing, object, causes, settling };
            return Err(Reply::from(error).warned(warnings));
        }
        (_, Removed::Gone) => StatusCode::OK,
        (Outcome::Refused { code, body }, _) => {
            let reply = refusal(&home.member, *code, body, "nothing was deleted").warned(warnings);
            writer.journal.finish(entry.id);
            return Err(reply);
        }
        (Outcome::NotSent(cause), _) => {
            let reply = Reply::from(unreachable(&key, &home.member, cause.clone())).warned(warnings);
            writer.journal.finish(entry.id);
            return Err(reply);
        }
    };
    writer.journal.end_others(&entry).await;
    writer.journal.forget_everywhere(&key, &visible.uid).await;
    let behind = delete_others(writer, &entry, &parts, outcome, &reached, &mut warnings).await;
    finish(writer, &entry, &behind, &mut warnings).await;
    let shown = writer.fleet.release_as_written(hold).await;
    if !behind.is_empty() {
        writer.settle_later(entry.id);
    }
    let reply = match shown {
        Some(now) if now.deleting && now.uid == visible.uid => {
            Reply { code, warnings: Warnings::default(), body: now.body }
        }
        Some(_) | None => gone(code),
    };
    Ok(reply.warned(warnings))
}

/// Compares what the client expects with what the fleet view shows.
///
/// Errors: 409.
fn check_preconditions(key: &Key, options: &Options, visible: &Visible) -> Result<(), WriteError> {
    let revision = visible.revision.to_string();
    for (field, wanted, is) in
        [("UID", &options.uid, &visible.uid), ("ResourceVersion", &options.resource_version, &revision)]
    {
        let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != is) else { continue };
        let (gvk, name) = (key.gvk.clone(), key.name.clone());
        return Err(WriteError::NotInRecord { gvk, name, field, expected: wanted.clone(), is: is.clone() });
    }
    Ok(())
}

/// The journal's entry: the parts that the store holds, and those that an unfinished create may have made.
fn entry_of<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    key: &Key,
    uid: &str,
    options: &Options,
    parts: &[Part],
) -> Entry {
    let mut targets: Vec<_> = parts
        .iter()
        .map(|part| EntryTarget {
            own_uid: Some(part.uid.clone()),
            ..EntryTarget::new(part.member.clone(), part.cluster_uid.clone())
        })
        .collect();
    for target in writer.journal.open_targets(key, uid) {
        if !parts.iter().any(|part| part.member == target.member) {
            targets.push(EntryTarget { own_uid: None, step: Step::Planned, ..target });
        }
    }
    Entry {
        user_agent: request.user_agent.clone(),
        body: options.base.clone(),
        targets,
        // Its parts have no marker, by which they would be known again; nor do those of a child.
        shared: parts.first().is_none_or(|home| Seen::of(&home.json).marker.is_none()),
        ..Entry::new(Verb::Delete, key.clone(), uid.to_owned(), request.caller.clone())
    }
}

/// What the members said to a dry run.
struct Tried {
    /// Which parts' members could be reached.
    reached: Vec<Result<(), Silent>>,
    /// The home answered with the object, as a kube-apiserver does for Pods, Services and some other kinds, and not with a `Status`.
    answers_with_object: bool,
}

/// Asks every part's member for a dry run.
async fn dry_run<F: Fleet>(
    writer: &Writer<F>,
    entry: &Entry,
    parts: &[Part],
    revision: Option<&str>,
    warnings: &mut Warnings,
) -> Result<Tried, Reply> {
    let outcomes = join_all(parts.iter().enumerate().map(|(at, part)| async move {
        let options = of_part(&entry.body, &part.uid, revision.filter(|_| at == 0), true);
        let mut said = Warnings::default();
        (writer.remove(entry, &part.member, options, true, &mut said).await, said)
    }))
    .await;
    let (mut reached, mut answers_with_object) = (Vec::new(), false);
    for (at, (part, (outcome, said))) in parts.iter().zip(outcomes).enumerate() {
        warnings.merge(&said);
        match outcome {
            Outcome::Done { body, .. } => {
                answers_with_object |= at == 0 && !is_status(&body);
                reached.push(Ok(()));
            }
            outcome if matches!(removed(&outcome), Removed::Gone) => reached.push(Ok(())),
            Outcome::Refused { code, body } => {
                return Err(refusal(&part.member, code, &body, "nothing was deleted"));
            }
            Outcome::NotSent(cause) | Outcome::Unknown(cause) if at == 0 => {
                return Err(unreachable(&entry.key, &part.member, cause).into());
            }
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => reached.push(Err(Silent(cause))),
        }
    }
    Ok(Tried { reached, answers_with_object })
}

/// Deletes the other parts, and brings what all answers say into the store. Says which members are behind, and why.
async fn delete_others<F: Fleet>(
    writer: &Writer<F>,
    entry: &Entry,
    parts: &[Part],
    home: Outcome,
    reached: &[Result<(), Silent>],
    warnings: &mut Warnings,
) -> Vec<(MemberName, String)> {
    let others = join_all(parts.iter().zip(reached).skip(1).map(|(part, reached)| async move {
        let mut said = Warnings::default();
        let outcome = match reached {
            Ok(()) => {
                let options = of_part(&entry.body, &part.uid, None, false);
                writer.remove(entry, &part.member, options, false, &mut said).await
            }
            Err(Silent(cause)) => Outcome::NotSent(cause.clone()),
        };
        writer.journal.step(entry.id, &part.member, delete_step(&outcome)).await;
        (outcome, said)
    }))
    .await;
    let (mut behind, mut outcomes) = (Vec::new(), vec![home]);
    for (outcome, said) in others {
        warnings.merge(&said);
        outcomes.push(outcome);
    }
    let stays = join_all(parts.iter().zip(&outcomes).map(|(part, outcome)| async move {
        match removed(outcome) {
            Removed::Gone => !writer.fleet.wait_gone(&entry.key, &part.member, &part.uid, GONE_WITHIN).await,
            Removed::Requested => {
                if let Outcome::Done { body, .. } = outcome {
                    writer.fleet.ingest(&entry.key, &part.member, body).await;
                }
                false
            }
            Removed::Left(_) => false,
        }
    }))
    .await;
    for ((part, outcome), stays) in parts.iter().zip(&outcomes).zip(stays) {
        if stays {
            let member = &part.member;
            warnings.add(&format!("{} is deleted in member {member}, but its watch has not said so yet", entry.key));
        }
        if let Removed::Left(cause) = removed(outcome) {
            behind.push((part.member.clone(), cause));
        }
    }
    // Parts that an unfinished create may have made were not asked: they are looked for when this entry is settled.
    for target in entry.targets.iter().filter(|target| target.own_uid.is_none()) {
        behind.push((target.member.clone(), "an unfinished create may have made a part there".to_owned()));
    }
    behind
}

/// How the journal has a part's delete: one that is gone already is done.
pub(super) fn delete_step(outcome: &Outcome) -> Step {
    match removed(outcome) {
        Removed::Gone | Removed::Requested => Step::Done { uid: None },
        Removed::Left(_) => outcome.step(),
    }
}

async fn finish<F: Fleet>(writer: &Writer<F>, entry: &Entry, behind: &[(MemberName, String)], warnings: &mut Warnings) {
    if behind.is_empty() {
        writer.journal.finish(entry.id);
    }
    for (member, cause) in behind {
        warnings.add(&format!("{} is not deleted in member {member} yet, kubefold goes on trying: {cause}", entry.key));
    }
}

fn unreachable(key: &Key, home: &MemberName, cause: String) -> WriteError {
    WriteError::HomeUnreachable { object: key.to_ref(), done: "deleted", home: home.clone(), cause }
}

/// What a kube-apiserver answers for most kinds when a delete leaves nothing to show.
fn success(key: &Key, uid: &str, code: StatusCode) -> Reply {
    let text = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": { "name": key.name, "group": &*key.gvr.group, "kind": &*key.gvr.resource, "uid": uid },
    });
    Reply { code, warnings: Warnings::default(), body: Bytes::from(text.to_string()) }
}
