//! One try of an update: what it is about. Its steps stand in a file each, from `run` on.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::{
    answer::reply::{Reply, refusal},
    config::MemberName,
    placement::{
        merge::Change,
        quota::{Extent, Units},
    },
    respond::{ApiError, WriteError},
    write::{
        Writer,
        fleet::{Fleet, Key, Part, Visible},
        journal::Entry,
        request::Request,
        steps::{Outcome, Silent},
        update::{
            desired::APPLY_PATCH,
            part::{Asking, Held, How, Manner, document},
            task::landed,
        },
    },
};
use kubefold_wire::{status::Status, warning::Warnings};

/// What a refusal in the dry run leaves.
pub(super) const NOTHING_CHANGED: &str = " (nothing was changed)";
/// How often a write looks again at a home of which the status alone has changed. Units: looks.
const REFRESHES_MAX: u32 = 32;

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

/// One try.
pub(super) struct Work<'a, F: Fleet> {
    pub(super) writer: &'a Arc<Writer<F>>,
    pub(super) request: &'a Request,
    pub(super) key: &'a Key,
    pub(super) visible: Visible,
    /// The object as the fleet view shows it.
    pub(super) shown: Value,
    pub(super) home: Held,
    pub(super) others: Vec<Held>,
    pub(super) warnings: Warnings,
    pub(super) query: String,
    pub(super) manner: Manner,
    pub(super) dry: bool,
    /// The status is not this write's.
    pub(super) without_status: bool,
    /// Updates of the object that are not finished everywhere.
    pub(super) earlier: Vec<Entry>,
    pub(super) refreshes_left: u32,
    /// Of a quota: what its shares are to come to.
    pub(super) aim: Aim,
}

/// What the shares of a quota are to come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::write) struct Aim {
    pub(in crate::write) extent: Extent,
    /// What is about to be used besides, by member.
    pub(in crate::write) asked: BTreeMap<MemberName, Units>,
}

/// What the dry run showed.
pub(super) struct DryRun {
    /// The home's answer.
    pub(super) home: Bytes,
    /// What the home will hold at each of its changes.
    pub(super) holds: Vec<Option<Value>>,
    /// What is to be changed in each other part.
    pub(super) others: Vec<Result<Vec<Change>, Silent>>,
    /// All documents as they will be.
    pub(super) documents: Vec<(MemberName, Bytes)>,
}
impl<'a, F: Fleet> Work<'a, F> {
    pub(super) fn new(
        writer: &'a Arc<Writer<F>>,
        request: &'a Request,
        key: &'a Key,
        visible: Visible,
        parts: Vec<Part>,
        dry: bool,
    ) -> Result<Self, WriteError> {
        let held = parts.into_iter().filter_map(|part| {
            let document = document(key, &part.json)?;
            Some(Held { member: part.member, cluster_uid: part.cluster_uid, uid: part.uid, document })
        });
        let mut held = held;
        let (Some(home), Ok(shown)) = (held.next(), serde_json::from_slice(&visible.body)) else {
            return Err(WriteError::Internal("a part is no object"));
        };
        let how = match request.content_type.as_str() {
            _ if request.method == Method::PUT => How::Put,
            APPLY_PATCH => How::Apply,
            _ => How::Patch,
        };
        Ok(Self {
            others: held.collect(),
            shown,
            query: request.passed_query(),
            manner: Manner { how, subresource: request.subresource.clone(), managed_fields: None },
            without_status: !matches!(request.subresource.as_str(), "status" | "approval")
                && writer.fleet.serves(key, "status"),
            earlier: landed(writer.journal.open_updates(key, &visible.uid), &home),
            refreshes_left: REFRESHES_MAX,
            aim: Aim::default(),
            warnings: Warnings::default(),
            home,
            dry,
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

    pub(super) fn parts(&self) -> impl Iterator<Item = &Held> {
        std::iter::once(&self.home).chain(&self.others)
    }

    /// The open updates that a member has not made yet.
    pub(super) fn earlier_in(&self, member: &MemberName) -> Vec<Entry> {
        let waits = |entry: &&Entry| entry.key.gvr == self.key.gvr && entry.unfinished().any(|name| name == *member);
        self.earlier.iter().filter(waits).cloned().collect()
    }

    pub(super) fn asking(&self) -> Asking<'_> {
        Asking {
            key: self.key,
            caller: &self.request.caller,
            user_agent: self.request.user_agent.as_deref(),
            query: &self.query,
            manner: &self.manner,
        }
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
