//! The single steps that creates, deletes and their settling are made of: one member, one part, one request.

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::{
    answer::reply::Reply,
    config::MemberName,
    member::call::{Answer, Call, Document},
    placement::{
        marker::Marker,
        noted::made,
        overrides::Kind,
        stamp::{Stamp, stamped},
    },
    respond::{PartError, WriteError},
    write::{
        APPLY_PATCH, Writer,
        fleet::{Fleet, Key},
        journal::{Entry, EntryTarget, Step},
        options,
        request::with_dry_run,
    },
};
use kubefold_serving::{audit, authenticate::AUTHENTICATED, caller::Caller};
use kubefold_wire::{
    locate::Paths,
    warning::{Warnings, warning_text},
};

/// What came of a mutation.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The member did it.
    Done { code: StatusCode, body: Document },
    /// The member did not do it, and says why.
    Refused { code: StatusCode, body: Document },
    /// No byte reached the member.
    NotSent(String),
    /// The member may have done it.
    Unknown(String),
}

impl Outcome {
    /// Judges an answer to a mutation. A 5xx is no word on it: a kube-apiserver gives 500 and 504 for what etcd may still
    /// do. Some say why nothing can have come of it.
    fn of(answer: Answer, warnings: &mut Warnings) -> Self {
        match answer {
            Answer::Answered { code, warnings: said, body } => {
                said.iter().for_each(|header| warnings.add(&warning_text(header)));
                if code.is_success() {
                    Self::Done { code, body }
                } else if code.is_server_error() {
                    let words = Seen::of(&body).message.unwrap_or_default();
                    if NEVER_STORED.iter().any(|never| words.starts_with(never)) {
                        return Self::Refused { code, body };
                    }
                    Self::Unknown(format!("it answered {code} {words}").trim_end().to_owned())
                } else {
                    Self::Refused { code, body }
                }
            }
            Answer::NotSent(cause) => Self::NotSent(cause),
            Answer::Unknown(cause) => Self::Unknown(cause),
        }
    }

    /// Judges an answer to a dry run, which changes nothing: every answer that is no success refuses.
    fn of_dry_run(answer: Answer, warnings: &mut Warnings) -> Self {
        match answer {
            Answer::Answered { code, body, .. } if code.is_server_error() => Self::Refused { code, body },
            other => Self::of(other, warnings),
        }
    }

    /// How the journal has it.
    pub(super) fn step(&self) -> Step {
        match self {
            Self::Done { body, .. } => Step::Done { uid: Seen::of(body).uid },
            Self::Refused { code, body } => {
                Step::Failed(format!("it answered {code} {}", Seen::of(body).message.unwrap_or_default()))
            }
            Self::NotSent(cause) => Step::Failed(cause.clone()),
            Self::Unknown(cause) => Step::Unknown(cause.clone()),
        }
    }
}

/// How a 5xx begins that is about what comes before anything is stored.
///
/// Source: etcd `api/v3rpc/rpctypes/error.go` `ErrGRPCRequestTooLarge`; kubernetes/apiserver
/// `pkg/util/webhook/error.go` `ErrCallingWebhook`: admission comes before storage.
const NEVER_STORED: [&str; 2] = ["etcdserver: request is too large", "Internal error occurred: failed calling webhook"];

/// The few values of an answer that steps branch on.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// `metadata.uid`.
    pub(super) uid: Option<String>,
    /// `metadata.deletionTimestamp` is set.
    pub(super) deleting: bool,
    /// `message` of a `Status`.
    pub(super) message: Option<String>,
    /// `reason` of a `Status`.
    pub(super) reason: Option<String>,
    pub(super) marker: Option<Marker>,
}

impl Seen {
    pub(super) fn of(body: &Bytes) -> Self {
        let paths = Paths::new([
            (0, ["metadata", "uid"].as_slice()),
            (1, &["metadata", "deletionTimestamp"]),
            (2, &["message"]),
            (3, &["metadata", "labels"]),
            (4, &["metadata", "annotations"]),
            (5, &["reason"]),
        ]);
        let (mut found, text) = (Vec::new(), std::str::from_utf8(body).unwrap_or_default());
        if paths.locate(text, &mut found).is_err() {
            return Self::default();
        }
        let raw = |id: u16| found.iter().find(|place| place.id == id).and_then(|place| text.get(place.range.clone()));
        let string = |id: u16| raw(id).and_then(|raw| serde_json::from_str::<String>(raw).ok());
        Self {
            uid: string(0),
            deleting: string(1).is_some(),
            message: string(2),
            reason: string(5),
            marker: Marker::read(raw(3), raw(4)),
        }
    }
}

/// A member that was not asked, or did not say; why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Silent(pub(super) String);

/// What stands at a part's place.
#[derive(Debug)]
pub(super) enum Found {
    /// The part, with its own UID.
    Part { uid: String, deleting: bool, body: Document },
    /// An object of that name that is not of this placement: nothing is ever done to it.
    Stranger { deleting: bool },
    /// Nothing.
    Absent,
    /// The member is no longer configured, or another cluster.
    Elsewhere,
    /// Nobody can tell.
    Unreachable(String),
}

/// What a try to settle an entry came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is done everywhere, or nothing is to be done.
    Closed,
    /// Its home did not have it in the time in which a member does what it was sent.
    GivenUp,
    /// Something is left to do.
    Open,
}

/// What came of a removal.
#[derive(Debug)]
pub(super) enum Removed {
    /// It is gone.
    Gone,
    /// A finalizer holds it.
    Requested,
    /// It is there, or may be: why.
    Left(String),
}

impl Entry {
    /// The marker of the part in `member`.
    pub(super) fn marker(&self, member: &MemberName) -> Marker {
        let targets = self.targets.iter().map(|target| (target.member.clone(), target.cluster_uid.clone()));
        let listed = self.listed.iter().map(|listed| (listed.member.clone(), listed.cluster_uid.clone()));
        let Key { gvk, namespace, name, .. } = &self.key;
        let members = targets.chain(listed).collect();
        Marker {
            made: self.targets.len(),
            epoch: self.epoch,
            policy: self.policy.clone(),
            place_on: self.place_on.clone(),
            adopts: self.adopts.clone(),
            ..Marker::new(self.uid.clone(), gvk, namespace, name, member.clone(), members)
        }
    }
}

impl<F: Fleet> Writer<F> {
    /// What one member is asked to create.
    ///
    /// Errors: the body is no object, or what the policy overrides does not go with it.
    pub(super) fn part_body(&self, entry: &Entry, target: &EntryTarget) -> Result<Bytes, PartError> {
        let local = self.fleet.localize(&entry.key, &target.member, &Bytes::from(entry.body.clone()));
        let marker = (!entry.shared).then(|| entry.marker(&target.member));
        let whole = target.whole.as_deref();
        let what = Stamp { marker: marker.as_ref(), name: Some(&entry.key.name), values: &target.values, whole };
        let body = stamped(std::str::from_utf8(&local)?, what)?;
        let policy = entry.policy.as_deref().unwrap_or_default();
        let rules = self.fleet.rules();
        let kind = Kind::of(&entry.key.gvk, &rules, whole);
        let body = made(body, &target.overrides, &kind, policy, &target.member)?;
        Ok(body.into())
    }

    /// Makes one part, or dry-runs that.
    pub(super) async fn make(
        &self,
        entry: &Entry,
        target: &EntryTarget,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Outcome {
        if self.fleet.cluster_uid(&target.member).as_ref() != Some(&target.cluster_uid) {
            return Outcome::NotSent("it is not the cluster that was planned for".to_owned());
        }
        let body = match self.part_body(entry, target) {
            Ok(body) => body,
            Err(error) => return Outcome::NotSent(error.to_string()),
        };
        let call = Call {
            method: if entry.applied { Method::PATCH } else { Method::POST },
            path: if entry.applied { entry.key.object() } else { entry.key.collection() },
            query: if dry { with_dry_run(&entry.query) } else { entry.query.clone() },
            body,
            content_type: if entry.applied { APPLY_PATCH.to_owned() } else { String::new() },
            user_agent: entry.user_agent.clone(),
        };
        let answer = self.fleet.call(&target.member, &entry.caller, call).await;
        // An apply takes whatever has the name; a create must not.
        if dry && entry.applied && matches!(answer, Answer::Answered { code: StatusCode::OK, .. }) {
            let holders = String::new();
            let already = Reply::from(WriteError::AlreadyExists { object: entry.key.to_ref(), holders });
            let body = Document { bytes: already.body, incarnation: 0 };
            return Outcome::Refused { code: already.code, body };
        }
        if dry {
            return Outcome::of_dry_run(answer, warnings);
        }
        match Outcome::of(answer, warnings) {
            Outcome::Done { code, body } => {
                let body = Box::pin(self.own_made(entry, target, body, warnings)).await;
                Outcome::Done { code, body }
            }
            outcome => outcome,
        }
    }

    /// Sends a mutation that is neither a create nor a delete, or dry-runs it.
    pub(super) async fn mutate(
        &self,
        member: &MemberName,
        caller: &Caller,
        call: Call,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Outcome {
        let answer = self.fleet.call(member, caller, call).await;
        if dry { Outcome::of_dry_run(answer, warnings) } else { Outcome::of(answer, warnings) }
    }

    /// Deletes the part of that own UID, or dry-runs that.
    pub(super) async fn remove(
        &self,
        entry: &Entry,
        member: &MemberName,
        options: Bytes,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Outcome {
        let answer = self.removal(entry, member, &entry.caller, options).await;
        if dry { Outcome::of_dry_run(answer, warnings) } else { Outcome::of(answer, warnings) }
    }

    async fn removal(&self, entry: &Entry, member: &MemberName, caller: &Caller, options: Bytes) -> Answer {
        let call = Call {
            method: Method::DELETE,
            path: entry.key.object(),
            query: String::new(),
            body: options,
            content_type: String::new(),
            user_agent: entry.user_agent.clone(),
        };
        self.fleet.call(member, caller, call).await
    }

    /// Takes back a part that was made. Its own UID is a precondition: nobody else's object goes. A caller may create and not
    /// delete: what kubefold is known to have made (`is_made`) it takes back as [`MOVER`] then, where that may.
    pub(super) async fn undo(&self, entry: &Entry, target: &EntryTarget, own_uid: &str, is_made: bool) -> Removed {
        let (member, options) = (&target.member, options::of_part(UNDO, own_uid, None, false));
        let mut outcome = self.remove(entry, member, options.clone(), false, &mut Warnings::default()).await;
        if is_made && is_forbidden(&outcome) {
            let answer = self.removal(entry, member, &mover(), options).await;
            let by_mover = Outcome::of(answer, &mut Warnings::default());
            // Else what the caller was told says more.
            if !is_forbidden(&by_mover) {
                tracing::info!(object = %entry.key, %member, "takes a part back as {MOVER}, which its caller may not delete");
                if let Some(notes) = audit::notes() {
                    notes.annotate(&format!("mover.kubefold.io/{member}"), "delete".to_owned());
                }
                outcome = by_mover;
            }
        }
        match removed(&outcome) {
            Removed::Gone => {
                self.fleet.wait_gone(&entry.key, &target.member, own_uid, super::GONE_WITHIN).await;
                Removed::Gone
            }
            other => other,
        }
    }

    /// Looks at a part's place, as kubefold: what it sees goes to nobody.
    pub(super) async fn find(&self, entry: &Entry, target: &EntryTarget) -> Found {
        match self.fleet.cluster_uid(&target.member) {
            Some(uid) if uid == target.cluster_uid => {}
            None if self.fleet.members().contains(&target.member) => {
                return Found::Unreachable("it was not reached yet".to_owned());
            }
            None if let Some(member) = self.may_be_renamed() => {
                return Found::Unreachable(format!(
                    "member {member}, which may be it under another name, was not reached yet"
                ));
            }
            Some(_) | None => return Found::Elsewhere,
        }
        match self.fleet.look(&target.member, &entry.key).await {
            Answer::Answered { code: StatusCode::OK, body, .. } => found(entry, target, body),
            Answer::Answered { code: StatusCode::NOT_FOUND, .. } => Found::Absent,
            Answer::Answered { code, body, .. } => {
                Found::Unreachable(format!("it answered {code} {}", Seen::of(&body).message.unwrap_or_default()))
            }
            Answer::NotSent(cause) | Answer::Unknown(cause) => Found::Unreachable(cause),
        }
    }
}

/// Whose rights count in a member where kubefold acts for itself, and no caller's do.
pub const MOVER: &str = "kubefold:mover";

/// Nobody logs in as that user; see [`of_people`](kubefold_serving::authenticate::of_people).
pub(super) fn mover() -> Caller {
    Caller { user: MOVER.to_owned(), groups: vec![AUTHENTICATED.to_owned()], ..Caller::default() }
}

fn is_forbidden(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { code: StatusCode::FORBIDDEN, .. })
}

/// Options of a removal that takes a part back: its pods go with it.
pub(super) const UNDO: &str = r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#;

fn found(entry: &Entry, target: &EntryTarget, body: Document) -> Found {
    let (key, seen) = (&entry.key, Seen::of(&body));
    let marker = seen.marker.and_then(|marker| marker.seen_in(&target.member, &target.cluster_uid));
    let mine = entry.shared
        || marker.is_some_and(|marker| {
            let (group, kind) = (&key.gvk.group, &key.gvk.kind);
            marker.uid == entry.uid
                && marker.belongs_to(group, kind, &key.namespace, &key.name, &target.member, &target.cluster_uid)
        });
    match seen.uid {
        Some(uid) if mine => Found::Part { uid, deleting: seen.deleting, body },
        Some(_) => Found::Stranger { deleting: seen.deleting },
        None => Found::Unreachable("its answer is no object".to_owned()),
    }
}

/// Says whether a refusal says that the name is another object's now: the UID is not the one in the precondition.
///
/// Source: kubernetes/apiserver `pkg/storage/interfaces.go` `Preconditions.Check`, `pkg/registry/rest/delete.go` `BeforeDelete`.
pub(super) fn is_of_another(body: &Bytes) -> bool {
    let said = Seen::of(body).message.unwrap_or_default();
    said.contains("UID in precondition") || said.contains("the UID in the precondition")
}

/// What a delete's outcome means. A 404 says that it is gone, and so does a 409 about its UID.
pub(super) fn removed(outcome: &Outcome) -> Removed {
    match outcome {
        Outcome::Done { body, .. } if Seen::of(body).deleting => Removed::Requested,
        Outcome::Done { .. } => Removed::Gone,
        Outcome::Refused { code: StatusCode::NOT_FOUND, .. } => Removed::Gone,
        Outcome::Refused { code: StatusCode::CONFLICT, body } if is_of_another(body) => Removed::Gone,

        Outcome::Refused { code, body } => {
            Removed::Left(format!("it answered {code} {}", Seen::of(body).message.unwrap_or_default()))
        }
        Outcome::NotSent(cause) | Outcome::Unknown(cause) => Removed::Left(cause.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_wire::status::Status;

    #[test]
    fn a_5xx_is_an_unknown_outcome_unless_it_says_that_nothing_was_stored() {
        for (message, known) in [
            ("etcdserver: request is too large", true),
            ("Internal error occurred: failed calling webhook \"a.b.c\": no route to host", true),
            ("etcdserver: request timed out", false),
            ("Timeout: failed calling webhook", false),
            ("", false),
        ] {
            let status = Status::internal(message);
            let body = Document { bytes: status.to_json(), incarnation: 1 };
            let answer = Answer::Answered { code: status.code, warnings: Vec::new(), body };
            match Outcome::of(answer, &mut Warnings::default()) {
                Outcome::Refused { code, .. } => assert!(known && code == status.code, "{message}"),
                Outcome::Unknown(cause) => {
                    assert!(!known && cause.starts_with("it answered 500"), "{message}: {cause}")
                }
                other => panic!("{message}: {other:?}"),
            }
        }
    }
}
