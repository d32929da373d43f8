//! One try of an update: what it is about. From here it is planned, dry-run, committed by the home, and followed by the other
//! parts: [`Planned`](super::planned::Planned), [`DryRun`](super::dry_run::DryRun), [`Committed`](super::commit::Committed).

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use http::Method;
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use crate::{
    answer::reply::{Reply, refusal},
    config::MemberName,
    placement::{
        marker::Marker,
        policy::Policy,
        quota::{Extent, Units},
    },
    respond::{ApiError, WriteError},
    write::{
        LANDS_WITHIN, Writer,
        fleet::{Fleet, Key, Part, Visible},
        journal::{Entry, Step},
        request::Request,
        steps::{Outcome, Settled},
        update::{
            desired::APPLY_PATCH,
            part::{Asking, Held, How, Manner, document, marker_of},
            task::{is_made, landed, may_land},
        },
    },
};
use kubefold_wire::status::Status;

/// What a refusal in the dry run leaves.
pub(super) const NOTHING_CHANGED: &str = "nothing was changed";

/// Why a try ended without success.
pub(super) enum Stop {
    /// With this answer.
    Answer(Reply),
    /// The object changed meanwhile, and the client did not name the revision that it changes.
    Again,
}

impl From<Reply> for Stop {
    fn from(reply: Reply) -> Self {
        Self::Answer(reply)
    }
}

/// What a patch does not allow.
impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Answer(status.into())
    }
}

impl<E: ApiError> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Answer(Reply::from(error))
    }
}

/// What a write is about: what is asked, and the object as it stands.
pub(super) struct Work<'a, F: Fleet> {
    pub(super) writer: &'a Arc<Writer<F>>,
    pub(super) request: &'a Request,
    pub(super) key: &'a Key,
    pub(super) visible: Visible,
    /// The object as the fleet view shows it.
    pub(super) shown: Value,
    pub(super) home: Held,
    pub(super) others: Vec<Held>,
    /// The marker of the home's part, as the record of the placement has it. It stays as long as the key is held.
    pub(super) marker: Option<Marker>,
    /// Updates of the object that are not finished everywhere.
    pub(super) earlier: Vec<Entry>,
    /// Of a quota: what its shares are to come to.
    pub(super) aim: Aim,
    /// What holds for the object.
    pub(super) policy: OnceLock<Option<Policy>>,
}

/// What the shares of a quota are to come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::write) struct Aim {
    pub(in crate::write) extent: Extent,
    /// What is about to be used besides, by member.
    pub(in crate::write) asked: BTreeMap<MemberName, Units>,
}

/// The marker of a home's part, as the record of the placement has it.
fn marker_in<F: Fleet>(writer: &Writer<F>, home: &Held) -> Option<Marker> {
    let marker = marker_of(&home.document)?;
    let marker = match writer.fleet.moved(&marker.uid) {
        Some(moved) => moved.apply(marker),
        None => marker,
    };
    marker.seen_in(&home.member, &home.cluster_uid)
}

impl<'a, F: Fleet> Work<'a, F> {
    pub(super) fn new(
        writer: &'a Arc<Writer<F>>,
        request: &'a Request,
        key: &'a Key,
        visible: Visible,
        parts: Vec<Part>,
    ) -> Result<Self, WriteError> {
        let held = parts.into_iter().filter_map(|part| {
            let document = document(key, &part.json)?.into();
            Some(Held { member: part.member, cluster_uid: part.cluster_uid, uid: part.uid, document })
        });
        let mut held = held;
        let (Some(home), Ok(shown)) = (held.next(), serde_json::from_slice(&visible.body)) else {
            return Err(WriteError::Internal("a part is no object"));
        };
        Ok(Self {
            marker: marker_in(writer, &home),
            others: held.collect(),
            shown,
            earlier: landed(writer.journal.open_updates(key, &visible.uid), &home.document),
            aim: Aim::default(),
            policy: OnceLock::new(),
            home,
            writer,
            request,
            key,
            visible,
        })
    }

    /// The same for a quota whose shares are to come to something.
    pub(super) fn aiming(mut self, aim: Aim) -> Self {
        self.aim = aim;
        self
    }

    /// The client's own verb, and of what kind its patch is.
    pub(super) fn how(&self) -> How {
        match self.request.content_type.as_str() {
            _ if self.request.method == Method::PUT => How::Put,
            APPLY_PATCH => How::Apply,
            _ => How::Patch,
        }
    }

    /// Empty for none.
    pub(super) fn subresource(&self) -> &'a str {
        &self.request.subresource
    }

    /// How members are asked, where the client does not change `metadata.managedFields`.
    pub(super) fn manner(&self) -> Manner {
        Manner { how: self.how(), subresource: self.subresource().to_owned(), managed_fields: None }
    }

    /// Says whether the status is not this write's.
    pub(super) fn is_without_status(&self) -> bool {
        !matches!(self.subresource(), "status" | "approval") && self.writer.fleet.serves(self.key, "status")
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &Held> {
        std::iter::once(&self.home).chain(&self.others)
    }

    /// The open updates that a member has not made yet.
    pub(super) fn earlier_in(&self, member: &MemberName) -> Vec<Entry> {
        let waits = |entry: &&Entry| entry.key.gvr == self.key.gvr && entry.unfinished().any(|name| name == *member);
        self.earlier.iter().filter(waits).cloned().collect()
    }

    /// The earlier updates that the home may still make.
    pub(super) fn undecided(&self) -> Vec<u64> {
        let open = self.writer.journal.open_updates(self.key, &self.visible.uid);
        let undecided = open.iter().filter(|update| may_land(update, &open, &self.home.document));
        undecided.map(|update| update.id).collect()
    }

    /// Notes which updates the home has of those that came before the one with this number: once the home has that, its document
    /// does not tell any more.
    pub(super) async fn note_landed(&self, number: u64) {
        let open = self.writer.journal.open_updates(self.key, &self.visible.uid);
        let earlier = landed(open, &self.home.document).into_iter().filter(|entry| entry.id < number);
        for entry in earlier.filter(|entry| !is_made(entry)) {
            let Some(home) = entry.targets.first() else { continue };
            let step = Step::Done { uid: home.own_uid.clone() };
            self.writer.journal.step(entry.id, &home.member, step).await;
        }
    }

    /// Brings a member what waits for it. Says whether it got something. Under the key's hold.
    pub(super) async fn bring_up(&self, member: &MemberName) -> bool {
        let mut got = false;
        for id in self.earlier_in(member).into_iter().map(|entry| entry.id) {
            let Some((entry, _)) = self.writer.journal.open_entry(id).filter(|(entry, _)| is_made(entry)) else {
                continue;
            };
            // Its home has it: nothing is waited for.
            let long_ago = Instant::now().checked_sub(LANDS_WITHIN).unwrap_or_else(Instant::now);
            if self.writer.settle_update(&entry, long_ago, &Notify::new()).await != Settled::Open {
                self.writer.journal.finish(id);
            }
            let now = self.writer.journal.open_entry(id);
            got |= now.is_none_or(|(now, _)| !now.unfinished().any(|waits| waits == *member));
        }
        got
    }

    /// Who asks, in this manner and with this query.
    pub(super) fn asking<'s>(&'s self, manner: &'s Manner, query: &'s str) -> Asking<'s> {
        let Request { caller, user_agent, .. } = self.request;
        Asking { key: self.key, caller, user_agent: user_agent.as_deref(), query, manner }
    }
}

/// The answer where a dry run was no success.
pub(super) fn dry_run_failed(key: &Key, member: &MemberName, outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Refused { code, body } => refusal(member, code, &body, NOTHING_CHANGED),
        Outcome::NotSent(cause) | Outcome::Unknown(cause) => unreachable(key, member, cause).into(),
        Outcome::Done { .. } => WriteError::Internal("a success was taken for a failure").into(),
    }
}

/// The home decides, and it does not answer.
pub(super) fn unreachable(key: &Key, home: &MemberName, cause: String) -> WriteError {
    WriteError::HomeUnreachable { object: key.to_ref(), done: "changed", home: home.clone(), cause }
}
