//! Kinds whose objects the mirror's tables have, and no memory: who writes there, and when that can be read.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use crate::{
    config::MemberName,
    mirror::{Mirror, MirrorError, MirroredKind, REST},
    respond::StoresError,
    store::{Audience, Batch},
    stores::{Reading, Ready, Running, Stores},
};
use kubefold_wire::resource::Gvr;

/// How long a reader waits until what members told is written.
const WRITTEN_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is noted that a member is followed of which nothing has changed.
const TOUCH_EVERY: Duration = Duration::from_secs(30);

impl Stores {
    /// Says whether a kind's objects are in the mirror's tables, and in no memory.
    pub fn is_stored(&self, gvr: &Gvr) -> bool {
        self.mirror.get().is_some_and(|mirror| mirror.stores(gvr))
    }

    /// The store of a kind that is followed from now on, whether it has its objects or the mirror's tables have them.
    ///
    /// Errors: as [`Self::running`].
    pub fn followed(&self, gvr: &Gvr) -> Result<Arc<Running>, StoresError> {
        self.start_any(gvr)
    }

    /// A kind in the tables, once they have all that its members had told when this was asked.
    ///
    /// Errors: as [`Self::ready_for`]; the tables cannot be used.
    pub async fn ready_in_tables(&self, gvr: &Gvr, reading: Reading<'_>) -> Result<Ready, StoresError> {
        let refused = |why| StoresError::Tables { gvr: gvr.clone(), why };
        if let Some(why) = self.mirror.get().map_or(Some(MirrorError::Off), |mirror| mirror.cannot_store(gvr)) {
            return Err(refused(why));
        }
        let ready = self.ready_by(gvr, reading, Self::start_any).await?;
        self.written(&ready).await.map_err(refused)?;
        Ok(ready)
    }

    /// Waits until what members have told is written.
    async fn written(&self, ready: &Ready) -> Result<(), MirrorError> {
        let told = ready.store().reports_told();
        let mut unwritable = self.unwritable.subscribe();
        let waiting = async {
            tokio::select! {
                biased;
                () = ready.store().are_written(&told) => Ok(()),
                // The sender lives as long as the stores.
                why = unwritable.wait_for(Option::is_some) => {
                    Err(why.ok().and_then(|why| why.clone()).unwrap_or(MirrorError::Off))
                }
            }
        };
        let behind = MirrorError::Behind { seconds: WRITTEN_WAIT_MAX.as_secs() };
        timeout(WRITTEN_WAIT_MAX, waiting).await.unwrap_or(Err(behind))
    }

    /// The members whose rows of a kind a reader sees: those that are known, and that he may see.
    pub fn members_in_tables(&self, ready: &Ready, audience: &Audience) -> Vec<MemberName> {
        let feeds = ready.running.feeds.lock();
        let is_read = |name: &&MemberName| ready.store().is_filled(name) && audience.sees_member(name);
        feeds.keys().filter(is_read).cloned().collect()
    }
}

/// What was noted of a feed last.
struct Noted {
    at: Instant,
    is_followed: bool,
}

impl Running {
    /// Writes what members tell, until the store ends.
    pub(super) async fn write_reports(self: Arc<Self>, stores: Weak<Stores>, mirror: Arc<Mirror>) {
        let writing = async {
            let mut noted = HashMap::new();
            loop {
                for (member, batch) in self.store.next_reports() {
                    self.write_batch(&stores, &mirror, &member, &batch).await;
                }
                self.touch(&mirror, &mut noted).await;
                // Either will do.
                let _elapsed = timeout(TOUCH_EVERY, self.store.has_reports()).await;
            }
        };
        self.cancel.run_until_cancelled(writing).await;
    }

    /// Writes reports, however often that has to be tried, unless the member has left.
    async fn write_batch(&self, stores: &Weak<Stores>, mirror: &Arc<Mirror>, member: &MemberName, batch: &Batch) {
        while self.feeds.lock().contains_key(member) {
            let (feed, reports) = (self.feed_of(member), Arc::clone(&batch.reports));
            let outcome = mirror.ask(move |mirror| mirror.report(&feed, reports)).await;
            let Some(stores) = stores.upgrade() else { return };
            match outcome {
                Ok(is_there) => {
                    if !is_there {
                        self.store.lose(member);
                    }
                    stores.unwritable.send_if_modified(|why| why.take().is_some());
                    break;
                }
                Err(why) => {
                    stores.unwritable.send_replace(Some(why));
                    drop(stores);
                    sleep(REST).await;
                }
            }
        }
        self.store.reports_written(member, batch);
    }

    /// Notes which members are followed of which nothing has changed.
    async fn touch(&self, mirror: &Arc<Mirror>, noted: &mut HashMap<MemberName, Noted>) {
        let states: Vec<(MemberName, bool, bool)> = {
            let feeds = self.feeds.lock();
            let state = feeds
                .iter()
                .map(|(name, feed)| (name.clone(), feed.state.trouble().is_none(), feed.state.mirrored().is_some()));
            state.collect()
        };
        for (member, is_followed, is_restored) in states {
            let is_noted = noted
                .get(&member)
                .is_some_and(|noted| noted.is_followed == is_followed && noted.at.elapsed() < TOUCH_EVERY);
            // What was not brought up to date stays as the earlier process left it.
            if is_noted || (is_followed && is_restored) || !self.store.is_filled(&member) {
                continue;
            }
            let feed = self.feed_of(&member);
            if mirror.ask(move |mirror| mirror.touch(&feed, is_followed)).await.is_ok() {
                noted.insert(member, Noted { at: Instant::now(), is_followed });
            }
        }
    }

    fn feed_of(&self, member: &MemberName) -> MirroredKind {
        MirroredKind { gvr: self.store.spec().gvr.clone(), member: member.clone() }
    }
}
