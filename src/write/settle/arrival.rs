//! Writes that were given up, since their home did not have them in the time in which a member does what it was sent, and that
//! arrive after all.
//!
//! A kube-apiserver cannot be told which of two replicas writes. What a former holder of the state has sent, or sends when it goes
//! on after a stop, arrives whenever the network brings it. The revision that it names keeps it from what was written since. If
//! nothing was, it is done: then it is a write whose home has it, and goes to the other parts as every other one. A part that
//! comes without its home is taken back. Only where the journal is on a server may there have been another holder.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::write::{
    LANDS_WITHIN, Writer,
    fleet::Fleet,
    journal::{Entry, EntryTarget, Step, Verb},
    steps::Found,
};

/// How long a write is waited for that was given up.
const ARRIVES_WITHIN: Duration = Duration::from_secs(600);
/// The first pause between two looks at what the store knows of the home; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How many writes are waited for at once.
pub(in crate::write) const ARRIVING_MAX: usize = 256;

impl<F: Fleet> Writer<F> {
    /// Enters a write that was given up into the journal again, and goes on with it, once its home has it.
    pub(super) async fn resume_on_arrival(self: &Arc<Self>, mut entry: Entry) {
        let Ok(_permit) = self.arriving.try_acquire() else { return };
        if self.cancel.run_until_cancelled(self.arrives(&entry)).await != Some(true) {
            return;
        }
        tracing::warn!(object = %entry.key, "a write that was given up has reached a member: it is finished, or taken back");
        // What was made before it was given up is taken back since.
        entry.targets.iter_mut().for_each(|target| target.step = Step::Planned);
        match self.journal.begin_again(entry, LANDS_WITHIN).await {
            Ok(entry) => self.settle(entry.id, None, Duration::ZERO),
            Err(error) => {
                tracing::error!(error = %anyhow::Error::from(error), "a write that has arrived is not finished")
            }
        }
    }

    async fn arrives(&self, entry: &Entry) -> bool {
        let Some(home) = entry.targets.first() else { return false };
        let end = Instant::now() + ARRIVES_WITHIN;
        let mut pause = PAUSE_FIRST;
        while Instant::now() < end {
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
            if self.may_be_there(entry, home) && self.is_there(entry, home).await {
                return true;
            }
        }
        false
    }

    /// What the store knows, which costs no request.
    fn may_be_there(&self, entry: &Entry, home: &EntryTarget) -> bool {
        let parts = self.fleet.parts(&entry.key);
        let part = parts.iter().find(|part| part.member == home.member);
        match entry.verb {
            Verb::Create => parts.iter().any(|part| entry.targets.iter().any(|target| target.member == part.member)),
            Verb::Update => part.is_some_and(|part| Self::is_made_in(entry, &part.json)),
            Verb::Delete => part.is_none(),
        }
    }

    /// What the member says.
    async fn is_there(&self, entry: &Entry, home: &EntryTarget) -> bool {
        match entry.verb {
            // A part that is not the home is made before it: without the home it is taken back.
            Verb::Create => {
                for target in &entry.targets {
                    if matches!(self.find(entry, target).await, Found::Part { .. }) {
                        return true;
                    }
                }
                false
            }
            Verb::Update => self.is_made(entry, home).await,
            Verb::Delete => matches!(self.find(entry, home).await, Found::Absent | Found::Stranger { .. }),
        }
    }
}
