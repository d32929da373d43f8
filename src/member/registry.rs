//! All members, as the running configuration has them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{ClientAuthorityRule, Config},
    member::{Common, Member, MemberId, metrics::MemberMetrics, probe},
};

/// Process-wide, so that an id never means two members, whatever registries there were.
static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// A configuration could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// 65,534 members came and went.
    #[error("no member id is left in this process; restart kubefold")]
    IdsExhausted,
}

/// All members, in configuration order.
pub struct Registry {
    members: ArcSwap<Arc<[Arc<Member>]>>,
    changes: watch::Sender<u64>,
    /// The authorities of clients in the configuration.
    configured: ArcSwap<Vec<ClientAuthorityRule>>,
    /// Counts the changes of these, and of what members say of their clients' authorities.
    authorities: watch::Sender<u64>,
    common: Common,
    tasks: TaskTracker,
    cancel: CancellationToken,
    applying: Mutex<()>,
}

impl Registry {
    /// Makes an empty one. Its tasks run under `tasks` and end with `cancel`.
    pub fn new(tasks: TaskTracker, cancel: CancellationToken) -> Self {
        let members: Arc<[Arc<Member>]> = Arc::from([]);
        Self {
            members: ArcSwap::from_pointee(members),
            changes: watch::Sender::new(0),
            configured: ArcSwap::default(),
            authorities: watch::Sender::new(0),
            common: Common::default(),
            tasks,
            cancel,
            applying: Mutex::new(()),
        }
    }

    /// Takes over which cluster each member was in an earlier process; call it before [`Self::apply`]. A member that says
    /// afterwards that it is another member's cluster does not replace that member.
    pub fn restore_clusters(&self, known: BTreeMap<String, String>) {
        self.common.cluster_uids.restore(known);
    }

    /// Which cluster each member is: the UIDs of their namespaces `kube-system`.
    pub fn clusters(&self) -> BTreeMap<String, String> {
        self.common.cluster_uids.known()
    }

    /// The members, in configuration order.
    pub fn members(&self) -> Arc<[Arc<Member>]> {
        Arc::clone(&self.members.load())
    }

    /// The member of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Member>> {
        self.members().iter().find(|member| member.name().as_str() == name).cloned()
    }

    /// The member of that number.
    pub fn by_id(&self, id: MemberId) -> Option<Arc<Member>> {
        self.members().iter().find(|member| member.id() == id).cloned()
    }

    /// What is counted about all of them.
    pub(super) fn metrics(&self) -> &MemberMetrics {
        &self.common.metrics
    }

    /// Counts the changes of any member's health, and what [`Self::condition_changed`] adds to them.
    pub fn conditions(&self) -> u64 {
        self.common.conditions.load(Ordering::Acquire)
    }

    /// Notes that a member's condition has changed in a way that its health does not tell of.
    pub fn condition_changed(&self) {
        self.common.conditions.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the applied configurations: whoever follows it looks at [`Self::members`] again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Follows what members and the configuration say of the authorities of clients: whoever does looks at
    /// [`client_authorities`](crate::member::authority::client_authorities) and [`Self::configured_authorities`] again.
    pub fn authority_changes(&self) -> watch::Receiver<u64> {
        self.authorities.subscribe()
    }

    /// The authorities of clients in the configuration.
    pub fn configured_authorities(&self) -> Arc<Vec<ClientAuthorityRule>> {
        self.configured.load_full()
    }

    pub(super) fn authorities_changed(&self) {
        self.authorities.send_modify(|count| *count += 1);
    }

    /// True when every member was probed once: kubefold's own `/readyz`.
    pub fn all_tried(&self) -> bool {
        self.members().iter().all(|member| member.tried())
    }

    /// Takes a configuration: adds and removes members, and changes those that stay in place.
    ///
    /// A member is its name. One whose access changed keeps its id and starts a new incarnation, so that its
    /// objects are read again and compared, never deleted; any other change leaves connections and health alone.
    /// Errors: nothing is changed then.
    pub fn apply(&self, config: &Config) -> Result<(), RegistryError> {
        let _one_at_a_time = self.applying.lock();
        let before = self.members();
        let mut after = Vec::with_capacity(config.members.len());
        let mut added = Vec::new();
        for wanted in &config.members {
            if let Some(kept) = before.iter().find(|member| *member.name() == wanted.name) {
                after.push(kept.clone());
                continue;
            }
            let cancel = self.cancel.child_token();
            let member = Member::new(next_id()?, wanted, &self.common, self.tasks.clone(), cancel);
            added.push(member.clone());
            after.push(member);
        }
        for (member, wanted) in after.iter().zip(&config.members) {
            member.reconfigure(wanted);
        }
        let entries: Vec<_> =
            after.iter().map(|member| (member.id(), member.name().clone(), member.twin.clone())).collect();
        self.common.cluster_uids.arrange(&entries);
        for gone in before.iter().filter(|member| !after.iter().any(|kept| kept.id() == member.id())) {
            gone.cancel.cancel();
        }
        self.members.store(Arc::new(after.into()));
        for member in added {
            let cancel = member.cancel.clone();
            self.tasks.spawn(async move { cancel.run_until_cancelled(probe::run(member)).await });
        }
        self.changes.send_modify(|count| *count += 1);
        if **self.configured.load() != config.client_authorities {
            self.configured.store(Arc::new(config.client_authorities.clone()));
            self.authorities_changed();
        }
        Ok(())
    }
}

fn next_id() -> Result<MemberId, RegistryError> {
    let next = NEXT_ID.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
    next.map(MemberId).map_err(|_| RegistryError::IdsExhausted)
}
