//! Creates, changes, deletes and what finishes them: the writes of the fleet view. [`Writer::answer`] takes each as it arrives.
//!
//! A write with one target is forwarded: a member is atomic. A write with several is planned, dry-run everywhere, written
//! to the journal and then made, the first-listed part last on a create (the commit) and first on a delete. Whatever stops
//! it in between, the journal has it finished or undone: see [`settle`]. May name what is below
//! it, not its peers `read`, `review`, `stream` and `discovery`; the fleet is reached through [`fleet::Fleet`] alone, so that every step can be made to fail.

mod facts;
pub mod fleet;
pub mod journal;
pub mod live;
pub mod moves;
pub mod plan;
pub mod preview;
pub mod request;
pub mod settle;

mod carry;
mod collection;
mod companions;
mod create;
mod debugger;
mod delete;
mod evict;
mod extend;
mod forward;
mod incoming;
mod names;
mod once;
mod options;
mod orphans;
mod pinned;
mod quotas;
mod reshare;
mod room;
mod steps;
#[cfg(test)]
mod tests;
mod update;
mod workloads;

pub use collection::Selected;
pub use incoming::Incoming;
pub use steps::MOVER;
pub use update::{APPLY_PATCH, makes};

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    answer::reply::Reply,
    config::MemberName,
    placement::divided::Division,
    respond::WriteError,
    write::{
        fleet::{Fleet, Key},
        journal::{Entry, Journal, Verb},
        request::Request,
    },
};
use kubefold_serving::audit;
use kubefold_wire::warning::Warnings;

/// How long a mutation may land after its last byte was sent: a kube-apiserver works on one for up to 34 s.
pub const LANDS_WITHIN: Duration = Duration::from_secs(40);

/// How long an answer waits for objects that are gone to leave the store.
pub const GONE_WITHIN: Duration = Duration::from_secs(5);

/// How often a name is minted from `generateName` before the client is told that it is taken (KEP-4420).
const MINTS_MAX: u32 = 8;

/// The one that writes. One process of a fleet has it.
#[derive(Debug)]
pub struct Writer<F> {
    fleet: F,
    journal: Journal,
    tasks: TaskTracker,
    cancel: CancellationToken,
    /// The writes that a task is settling, each with what wakes it. At most as many as the journal holds.
    settling: Mutex<HashMap<u64, Arc<Notify>>>,
    /// A permit for each write that was given up and may be waited for; none where no other process has had the state.
    arriving: Semaphore,
    moving: moves::Working,
}

impl<F: Fleet> Writer<F> {
    /// What is divided of a kind; `None`: nothing.
    fn division(&self, key: &Key) -> Option<Division> {
        self.fleet.rules().kinds().division(&key.gvk)
    }

    /// Makes a writer. Its writes run in `tasks`, so that a client that hangs up does not cut one in two; `cancel` ends the
    /// waiting for outcomes that are not known, which the journal then keeps for the next start.
    ///
    /// To be made before anything is served: what an earlier process left of its creates is not shown before it is whole
    /// or gone, or a try to settle it has ended.
    pub fn new(fleet: F, journal: Journal, tasks: TaskTracker, cancel: CancellationToken) -> Arc<Self> {
        // One whose home was made was shown already.
        let half_made = |entry: &Entry| entry.verb == Verb::Create && !entry.is_committed();
        journal.open_entries().iter().filter(|entry| half_made(entry)).for_each(|entry| fleet.withhold(&entry.key));
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            for entry in journal.open_entries() {
                fleet.set_behind(&entry.key, &entry.uid, &journal.behind(&entry.key, &entry.uid));
            }
            journal.observe(move |key, uid, members| {
                if let Some(writer) = this.upgrade() {
                    writer.fleet.set_behind(key, uid, members);
                }
            });
            let moving = moves::Working::default();
            // Nobody else may have written to the members where the journal is this process's own.
            let arriving = Semaphore::new(if journal.state().is_some() { settle::ARRIVING_MAX } else { 0 });
            let writer = Self { fleet, journal, tasks, cancel, settling: Mutex::default(), arriving, moving };
            writer.restore_moves();
            writer
        })
    }

    /// The journal, for `kubefold status`: what it names is *behind*.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Answers a `POST` to a collection of the fleet view. The body is JSON.
    ///
    /// Cancel: safe; the write goes on.
    pub async fn create(self: &Arc<Self>, request: Request) -> Reply {
        let this = self.clone();
        self.run(async move {
            let before = companions::before(&this, &request, "");
            let reply = create::create(&this, &request).await;
            companions::follow(&this, &request, before, reply).await
        })
        .await
    }

    /// Answers a `DELETE` of the placed object `name`, which the store holds. The body is JSON or empty.
    ///
    /// Cancel: safe; the write goes on.
    pub async fn delete(self: &Arc<Self>, request: Request, name: String) -> Reply {
        let this = self.clone();
        self.run(async move {
            let before = companions::before(&this, &request, &name);
            let reply = delete::delete(&this, &request, &name).await;
            companions::follow(&this, &request, before, reply).await
        })
        .await
    }

    /// Answers a `PUT` or `PATCH` of the folded object `name` (placed or shared), or any write to a subresource of it.
    ///
    /// Cancel: safe; the write goes on.
    pub async fn update(self: &Arc<Self>, request: Request, name: String) -> Reply {
        let this = self.clone();
        self.run(async move {
            let before = companions::before(&this, &request, &name);
            let reply = update::update(&this, &request, &name).await;
            companions::follow(&this, &request, before, reply).await
        })
        .await
    }

    /// Answers any write but a create to the member-local object `own` of `member`, or to a subresource of it.
    ///
    /// Cancel: safe; the write goes on.
    pub async fn forward(self: &Arc<Self>, request: Request, own: String, member: MemberName) -> Reply {
        let this = self.clone();
        self.run(async move { forward::forward(&this, &request, &own, &member).await }).await
    }

    /// Deletes the objects of a collection. `request` has no name; its body is JSON or empty.
    ///
    /// Errors: the first refusal, with what was done before it.
    /// Cancel: safe; the deletion goes on.
    pub async fn delete_collection(
        self: &Arc<Self>,
        request: Request,
        selected: Vec<Selected>,
    ) -> Result<Warnings, Reply> {
        let this = self.clone();
        let delete = async move { collection::delete_collection(&this, &request, &selected).await };
        self.tasks.spawn(audit::carried(delete)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a deletion of a collection broke off");
            Err(WriteError::Internal("the deletion broke off; list what is left").into())
        })
    }

    /// Tells what a create of the body would come to, changing nothing.
    ///
    /// Cancel: safe.
    pub async fn plan(&self, request: &Request) -> Reply {
        plan::answer(self, request).await
    }

    /// Answers a `GET` of a subresource of the member-local object `own` of `member`.
    ///
    /// Cancel: safe.
    pub async fn read(self: &Arc<Self>, request: &Request, own: &str, member: &MemberName) -> Reply {
        forward::forward(self, request, own, member).await
    }

    async fn run(&self, write: impl Future<Output = Reply> + Send + 'static) -> Reply {
        match self.tasks.spawn(audit::carried(write)).await {
            Ok(reply) => reply,
            Err(error) => {
                tracing::error!(%error, "a write broke off; the journal finishes it");
                WriteError::Internal("the write broke off; kubefold finishes or undoes it").into()
            }
        }
    }
}
