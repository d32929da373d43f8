//! Members that answer late: who asks several at once does not wait for the slowest.
//!
//! Where the store, or what was said before, has an answer already, asking is for freshness alone. So whoever was answered by
//! one member waits a moment for the others, and no longer. A member that let that moment pass is late, and is not waited
//! for at all until it answers in time again. It is asked on behind the readers' backs, once at a time, and what it says is
//! taken in for those who come later.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use crate::{
    member::{Member, MemberId},
    stores::Stores,
};
use kubefold_serving::audit;

/// How long the others are waited for once one member has answered.
const GRACE: Duration = Duration::from_secs(1);
/// How long members are waited for of which none answers.
pub const SILENT_MAX: Duration = Duration::from_secs(3);
/// For how long a member counts as late that nobody asks.
const LATE_FOR: Duration = Duration::from_secs(30);

/// The members that are late.
#[derive(Debug, Default)]
pub(super) struct Late(Mutex<HashMap<MemberId, Lateness>>);

#[derive(Clone, Copy, Debug)]
struct Lateness {
    since: Instant,
    /// It is being asked again.
    is_asked: bool,
}

/// How much an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// An answer is at hand already.
    Little,
    /// The caller wants what is so now: also of members that are late, for [`SILENT_MAX`].
    Much,
}

impl Late {
    fn is_late(&self, member: &Member) -> bool {
        self.0.lock().get(&member.id()).is_some_and(|late| late.since.elapsed() < LATE_FOR)
    }

    /// Says whether a late member is to be asked again: nobody is waiting for its answer.
    fn begins_again(&self, member: &Member) -> bool {
        self.0.lock().get_mut(&member.id()).is_some_and(|late| !std::mem::replace(&mut late.is_asked, true))
    }

    fn note(&self, member: &Member) {
        let mut all = self.0.lock();
        let is_asked = all.get(&member.id()).is_some_and(|late| late.is_asked);
        all.insert(member.id(), Lateness { since: Instant::now(), is_asked });
    }

    /// An asking ended: only an answer in time makes a member one that is waited for.
    fn ended(&self, member: &Member, was_in_time: bool) {
        let mut late = self.0.lock();
        if was_in_time {
            late.remove(&member.id());
        } else if let Some(late) = late.get_mut(&member.id()) {
            late.is_asked = false;
        }
    }
}

impl Stores {
    /// Asks members at once, and gives what they say, in their order; `None` for one that is late. What is asked goes on
    /// without the caller, for as long as the member's deadlines allow.
    ///
    /// `is_answer` tells an answer from the word that there is none: nobody is late because another member is down.
    /// Cancel: safe.
    pub async fn ask_all<T, F>(
        &self,
        members: &[Arc<Member>],
        patience: Patience,
        is_answer: fn(&T) -> bool,
        ask: impl Fn(Arc<Member>) -> F,
    ) -> Vec<Option<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (answered, mut answers) = mpsc::channel(members.len().max(1));
        let mut waited_for = vec![false; members.len()];
        for ((at, member), waited_for) in members.iter().enumerate().zip(&mut waited_for) {
            *waited_for = patience == Patience::Much || !self.late.is_late(member);
            if !*waited_for && !self.late.begins_again(member) {
                continue;
            }
            let Some(stores) = self.this.upgrade() else { continue };
            let (asking, answered, member) = (ask(Arc::clone(member)), answered.clone(), Arc::clone(member));
            self.tasks.spawn(audit::carried(async move {
                let begun = Instant::now();
                let cancel = stores.cancel.clone();
                let answer = cancel.run_until_cancelled(asking).await;
                let was_in_time = answer.as_ref().is_some_and(is_answer) && begun.elapsed() <= GRACE;
                stores.late.ended(&member, was_in_time);
                if let Some(answer) = answer {
                    // Nobody may be waiting for it any more.
                    let _gone = answered.try_send((at, answer));
                }
            }));
        }
        drop(answered);
        let mut said: Vec<Option<T>> = members.iter().map(|_| None).collect();
        let mut until = Instant::now() + SILENT_MAX;
        while said.iter().zip(&waited_for).any(|(said, waited_for)| *waited_for && said.is_none()) {
            let Ok(Some((at, answer))) = timeout_at(until, answers.recv()).await else { break };
            if is_answer(&answer) && patience == Patience::Little {
                until = until.min(Instant::now() + GRACE);
            }
            said[at] = Some(answer);
        }
        let each = members.iter().zip(&said).zip(&waited_for);
        let missed = each.filter(|((_, said), waited_for)| **waited_for && said.is_none());
        missed.for_each(|((member, _), _)| self.late.note(member));
        said
    }

    /// Does something for later readers, unless kubefold ends.
    pub(crate) fn do_later(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            cancel.run_until_cancelled(work).await;
        });
    }

    /// Says whether a member is not to be waited for where another will do.
    pub(crate) fn is_slow(&self, member: &Member) -> bool {
        member.health().is_down()
            || self.late.is_late(member)
            || member.silent_for().is_some_and(|silent| silent >= GRACE)
    }
}
