//! Creates that are unfinished: finished where the home stands, taken back where it does not.
//!
//! Parts of a shared object have no marker, and the fleet view shows it wherever it stands first: so such a create is
//! finished as soon as it stands anywhere, unless the journal has that it is taken back.

use crate::{
    member::call::Document,
    write::{
        Writer,
        fleet::{Fleet, Owner},
        journal::{Entry, EntryTarget, Step},
        steps::{Found, Outcome, Removed, Settled, Silent},
    },
};
use kubefold_wire::{locate::Paths, warning::Warnings};

impl<F: Fleet> Writer<F> {
    /// Goes on with a create by what stands at its home.
    pub(super) async fn settle_create(
        &self,
        entry: &Entry,
        home: &EntryTarget,
        others: &[EntryTarget],
        found: Found,
    ) -> Settled {
        if entry.shared {
            return self.settle_shared(entry, home, others, found).await;
        }
        match found {
            // Somebody deletes it: what is missing of it is not made any more.
            Found::Part { deleting: true, .. } => self.close(entry).await,
            Found::Part { body, .. } => {
                self.fleet.ingest(&entry.key, &home.member, &body).await;
                match self.amended(entry, &[(home, &body)]).await {
                    Some(entry) => self.finish_parts(&entry, entry.targets.get(1..).unwrap_or_default()).await,
                    None => Settled::Open,
                }
            }
            Found::Absent | Found::Stranger { .. } if entry.is_committed() => {
                tracing::warn!(object = %entry.key, member = %home.member, "kubefold does not make the missing parts of a create any more: \
                    its home was deleted in its member");
                self.close(entry).await
            }
            Found::Absent | Found::Stranger { .. } => match self.undo_parts(entry, others).await {
                Settled::Open => Settled::Open,
                Settled::Closed | Settled::GivenUp => Settled::GivenUp,
            },
            Found::Elsewhere => self.without_home(entry, home, others).await,
            // Nobody's home is declared absent.
            Found::Unreachable(_) if self.fleet.is_absent(&home.member) => self.without_home(entry, home, others).await,
            Found::Unreachable(cause) => {
                tracing::debug!(object = %entry.key, member = %home.member, cause, "an unfinished create waits for its home");
                Settled::Open
            }
        }
    }

    /// The home's member is not configured any more, declared absent, or another cluster. What was committed goes on under the next home.
    async fn without_home(&self, entry: &Entry, home: &EntryTarget, others: &[EntryTarget]) -> Settled {
        if !entry.is_committed() {
            tracing::warn!(object = %entry.key, member = %home.member, "an unfinished create is given up: \
                its home is no longer in the configuration, is declared absent, or is another cluster; its remaining parts stay");
            return self.close(entry).await;
        }
        for (at, heir) in others.iter().enumerate() {
            match self.find(entry, heir).await {
                Found::Elsewhere | Found::Absent | Found::Stranger { .. } => {}
                Found::Unreachable(_) if self.fleet.is_absent(&heir.member) => {}
                Found::Unreachable(_) => return Settled::Open,
                Found::Part { deleting: true, .. } => return self.close(entry).await,
                Found::Part { .. } => {
                    let rest: Vec<_> = others.iter().skip(at + 1).chain(others.iter().take(at)).cloned().collect();
                    return self.finish_parts(entry, &rest).await;
                }
            }
        }
        self.close(entry).await
    }

    async fn settle_shared(&self, entry: &Entry, home: &EntryTarget, others: &[EntryTarget], found: Found) -> Settled {
        if home.step == Step::Undone {
            return self.undo_parts(entry, others).await;
        }
        let (mut stands, mut unreachable, mut absent) = (Vec::new(), false, Vec::new());
        let mut all = vec![(home, found)];
        for target in others {
            all.push((target, self.find(entry, target).await));
        }
        for (target, found) in all {
            match found {
                Found::Part { deleting: true, .. } => return self.close(entry).await,
                Found::Part { uid, body, .. } => stands.push((target, uid, body)),
                // Whatever has the name of a shared object is it.
                Found::Absent | Found::Stranger { .. } => absent.push(target.clone()),
                Found::Unreachable(_) => unreachable = true,
                Found::Elsewhere => self.journal.step(entry.id, &target.member, Step::Undone).await,
            }
        }
        if stands.is_empty() {
            // What stands nowhere that can be asked may stand elsewhere.
            return if unreachable { Settled::Open } else { self.close(entry).await };
        }
        let homes: Vec<_> = stands.iter().map(|(target, _, body)| (*target, body)).collect();
        let Some(entry) = self.amended(entry, &homes).await else { return Settled::Open };
        let mut open = unreachable;
        for (target, uid, body) in &stands {
            open |= !self.finish_found(&entry, target, uid.clone(), body).await;
        }
        for target in &absent {
            open |= !self.finish_part(&entry, target).await;
        }
        self.keep_settled(&entry).await;
        if open { Settled::Open } else { self.close(&entry).await }
    }

    async fn finish_parts(&self, entry: &Entry, parts: &[EntryTarget]) -> Settled {
        let mut open = false;
        for target in parts {
            open |= !self.finish_part(entry, target).await;
        }
        if open { Settled::Open } else { self.close(entry).await }
    }

    async fn undo_parts(&self, entry: &Entry, parts: &[EntryTarget]) -> Settled {
        let mut open = false;
        for target in parts {
            open |= !self.undo_part(entry, target).await;
        }
        if open { Settled::Open } else { self.close(entry).await }
    }

    /// Makes a part that is missing though the home exists. Says whether it is there, or needs not be. Of one that was made
    /// already nothing is left to do, whatever somebody has done to it since.
    async fn finish_part(&self, entry: &Entry, target: &EntryTarget) -> bool {
        if matches!(target.step, Step::Done { .. }) {
            return true;
        }
        let (there, step) = match self.find(entry, target).await {
            Found::Part { uid, body, .. } => return self.finish_found(entry, target, uid, &body).await,
            // What refers to others by their visible UIDs must find them there.
            Found::Absent if !self.holds_owners(entry, target).await => {
                (false, Step::Failed("it does not hold the owner".to_owned()))
            }
            Found::Absent => {
                let outcome = self.make(entry, target, false, &mut Warnings::default()).await;
                if let Outcome::Done { body, .. } = &outcome {
                    self.fleet.ingest(&entry.key, &target.member, body).await;
                }
                (matches!(outcome, Outcome::Done { .. }), outcome.step())
            }
            Found::Stranger { deleting } => self.meet(entry, target, deleting),
            Found::Elsewhere => (true, Step::Undone),
            Found::Unreachable(cause) => (false, Step::Failed(cause)),
        };
        self.journal.step(entry.id, &target.member, step).await;
        there
    }

    /// What becomes of a part in whose place another object stands, which is left alone: unless that is on its way out, there
    /// is none. Says whether nothing is left to do.
    pub(in crate::write) fn meet(&self, entry: &Entry, target: &EntryTarget, deleting: bool) -> (bool, Step) {
        if deleting {
            return (false, Step::Failed("another object of that name is on its way out".to_owned()));
        }
        tracing::warn!(object = %entry.key, member = %target.member, "kubefold makes no part here: the member has an object of its \
            own under that name, which is left alone");
        (true, Step::Undone)
    }

    /// Takes a part in that stands. One of which nobody heard may have been made of an earlier body.
    async fn finish_found(&self, entry: &Entry, target: &EntryTarget, uid: String, body: &Document) -> bool {
        self.fleet.ingest(&entry.key, &target.member, body).await;
        // The values are those that the amendment gave it.
        let target = entry.targets.iter().find(|now| now.member == target.member).unwrap_or(target);
        let brought = match target.step {
            Step::Done { .. } => Ok(()),
            _ => self.bring_late(entry, entry.amended.as_deref(), target, body).await,
        };
        let there = brought.is_ok();
        let step = brought.map_or_else(|Silent(cause)| Step::Failed(cause), |()| Step::Done { uid: Some(uid) });
        self.journal.step(entry.id, &target.member, step).await;
        there
    }

    /// Says whether a member holds what the body names as owners. Where it is not known which UIDs those have there, a part
    /// would name strangers, and the member's garbage collector take it.
    async fn holds_owners(&self, entry: &Entry, target: &EntryTarget) -> bool {
        for owner in owners(&entry.body) {
            if !self.fleet.holders(&entry.key.namespace, &owner).await.contains(&target.member) {
                return false;
            }
        }
        true
    }

    /// Takes a part back. Says whether it is gone, or as good as.
    async fn undo_part(&self, entry: &Entry, target: &EntryTarget) -> bool {
        let found = self.find(entry, target).await;
        let is_made = matches!(&found, Found::Part { uid, .. } if target.made(uid));
        let removed = match found {
            // Nothing but its UID says that an object without a marker is what was made here.
            Found::Part { .. } if entry.shared && !is_made => Removed::Gone,
            Found::Part { deleting: true, .. } => Removed::Requested,
            Found::Part { uid, .. } => self.undo(entry, target, &uid, is_made).await,
            Found::Absent | Found::Stranger { .. } | Found::Elsewhere => Removed::Gone,
            Found::Unreachable(cause) => Removed::Left(cause),
        };
        match removed {
            Removed::Gone | Removed::Requested => {
                self.journal.step(entry.id, &target.member, Step::Undone).await;
                true
            }
            // The step keeps the UID by which it can be taken back.
            Removed::Left(cause) if !entry.shared && !is_made => {
                self.journal.step(entry.id, &target.member, Step::Failed(cause)).await;
                false
            }
            Removed::Left(_) => false,
        }
    }
}

fn owners(body: &str) -> Vec<Owner> {
    let mut found = Vec::new();
    let located = Paths::new([(0, ["metadata", "ownerReferences"].as_slice())]).locate(body, &mut found).is_ok();
    let raw = found.first().filter(|_| located).and_then(|place| body.get(place.range.clone()));
    raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default()
}
