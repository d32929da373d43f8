//! Parts that are still to be made: they are made as the object is by then, and what lands late of an earlier body is
//! brought to that.

use serde_json::Value;

use crate::{
    member::call::Document,
    placement::{
        divided::{Amount, Division, HARD, Value as Number},
        marker::WHOLE_KEY,
        merge::{Change, Take, What, take},
        noted::{self, Note},
        overrides::Kind,
    },
    write::{
        Writer,
        fleet::Fleet,
        journal::{Amended, Entry, EntryTarget, Step},
        steps::{Outcome, Seen, Silent},
        update::{
            overrider::Overrider,
            part::{Asking, Brought, Held, Manner, document},
            task::{Task, has_landed},
            work::Work,
        },
    },
};
use kubefold_wire::{patch::path_of, warning::Warnings};

/// What an update changes in parts that are still to be made.
#[derive(Clone, Copy)]
pub(super) struct Amendment<'a> {
    pub(super) update: &'a Entry,
    /// As the object is shown.
    pub(super) changes: &'a [Change],
    /// The shares, by the member's name.
    pub(super) coming: &'a [(String, Vec<Change>)],
}

impl<F: Fleet> Writer<F> {
    /// A create as the updates since have it. `homes` are the documents that stand in members. `None`: an update may land
    /// still.
    pub(in crate::write) async fn amended(&self, create: &Entry, homes: &[(&EntryTarget, &Document)]) -> Option<Entry> {
        let open = self.journal.open_updates(&create.key, &create.uid);
        for update in &open {
            let (Some(task), Some(home)) = (Task::of(update), update.targets.first()) else { continue };
            let stands = homes.iter().find(|(target, _)| target.member == home.member);
            let now = stands.and_then(|(_, body)| document(&create.key, body));
            let now = now.filter(|now| has_landed(update, &open, now))?;
            let changes = task.live(&now);
            self.amend(Amendment { update, changes: &changes, coming: &task.coming }).await;
        }
        self.journal.open_entry(create.id).map(|(entry, _)| entry)
    }

    /// Has the parts that are still to be made be made as the object is now. Each update counts once.
    pub(super) async fn amend(&self, by: Amendment<'_>) {
        let open = self.journal.open_updates(&by.update.key, &by.update.uid);
        let still = |id: &u64| open.iter().any(|update| update.id == *id);
        for mut create in self.journal.open_creates(&by.update.key, &by.update.uid) {
            let body = create.body.clone();
            if let Some(body) = amended_body(&mut create, &body, by, still) {
                create.body = body;
                self.journal.amend(create).await;
            }
        }
        for earlier in open.iter().filter(|earlier| earlier.id < by.update.id) {
            let (Some(mut task), mut earlier) = (Task::of(earlier), earlier.clone()) else { continue };
            let Some(making) = &mut task.making else { continue };
            if let Some(body) = amended_body(&mut earlier, &making.body, by, still) {
                making.body = body;
                earlier.body = task.to_body();
                self.journal.amend(earlier).await;
            }
        }
    }

    /// Brings a part to what it would be made of now: the create that made it had an earlier body, and landed late.
    ///
    /// Errors: it cannot be brought there yet.
    pub(in crate::write) async fn bring_late(
        &self,
        making: &Entry,
        amended: Option<&Amended>,
        target: &EntryTarget,
        found: &Document,
    ) -> Result<(), Silent> {
        let (Some(amended), Some(document)) = (amended, document(&making.key, found)) else { return Ok(()) };
        let changes = self.late_changes(making, amended, target);
        let mut part = Held {
            member: target.member.clone(),
            cluster_uid: target.cluster_uid.clone(),
            uid: Seen::of(found).uid.unwrap_or_default(),
            document: document.into(),
        };
        let manner = Manner::merge_patch();
        let asking = Asking {
            key: &making.key,
            caller: &amended.caller,
            user_agent: amended.user_agent.as_deref(),
            query: &amended.query,
            manner: &manner,
        };
        match self.bring(asking, &mut part, &changes, false, &mut Warnings::default()).await.0 {
            Brought::Same | Brought::Gone => Ok(()),
            Brought::Answered(Outcome::Done { body, .. }) => {
                self.fleet.ingest(&making.key, &target.member, &body).await;
                Ok(())
            }
            Brought::Answered(outcome) => match outcome.step() {
                Step::Failed(cause) | Step::Unknown(cause) => Err(Silent(cause)),
                Step::Planned | Step::Done { .. } | Step::Undone => Ok(()),
            },
        }
    }

    /// From whatever stood before to what the part would be made of now. Owners are no part of it: they have another UID in
    /// each member, and the part has those that it was made with.
    fn late_changes(&self, making: &Entry, amended: &Amended, target: &EntryTarget) -> Vec<Change> {
        let now = self.part_body(making, target).ok();
        let Some(now) = now.and_then(|body| serde_json::from_slice::<Value>(&body).ok()) else { return Vec::new() };
        let own = &target.overrides;
        let (rules, divided) = (self.fleet.rules(), self.division(&making.key).map_or(&[][..], Division::fields));
        let overrider = Overrider {
            kind: Kind::divided(&making.key.gvk, &rules, divided),
            member: &target.member,
            own,
            homes: own,
            noted: None,
            documents: &[],
        };
        let mut changes: Vec<Change> = Vec::new();
        for before in &amended.before {
            let is_its = before.member.as_ref().is_none_or(|member| member == target.member.as_str());
            let change = |old, new| Change { at: before.at.clone(), what: What::Value { old, new } };
            let new = change(None, None).value_in(&now);
            if !is_its || change(None, None).is_within(&["metadata", "ownerReferences"]) {
                continue;
            }
            let mut was = now.clone();
            take(&[change(new.clone(), before.old.clone())], Take::Always, &mut was);
            let overridden = change(None, None).value_in(&overrider.overridden(&was, own));
            let olds = [before.old.clone(), overridden].into_iter().filter(|old| *old != new);
            changes.extend(olds.map(|old| change(old, new.clone())));
        }
        if !changes.is_empty() {
            changes.push(noted::change(None, Note::read(&now).as_ref()));
        }
        changes
    }
}

impl<F: Fleet> Work<'_, F> {
    /// The parts that unfinished writes have still to make, each as it would be made now.
    pub(super) fn coming(&self) -> Vec<Held> {
        let writer = self.writer;
        let creates = writer.journal.open_creates(self.key, &self.visible.uid);
        let makings = self.earlier.iter().filter_map(|update| {
            let making = *Task::of(update)?.making?;
            let targets = update.targets.iter().filter(|target| target.own_uid.is_none()).cloned().collect();
            Some(Entry { targets, ..making })
        });
        let mut coming: Vec<Held> = Vec::new();
        for entry in creates.into_iter().chain(makings) {
            for target in entry.targets.iter().filter(|target| target.step.is_open()) {
                let is_there = |held: &Held| held.member == target.member;
                let body = writer.part_body(&entry, target).ok();
                let document = body.and_then(|body| serde_json::from_slice::<Value>(&body).ok());
                if let Some(document) = document.filter(|_| !self.parts().chain(&coming).any(is_there)) {
                    let (member, cluster_uid) = (target.member.clone(), target.cluster_uid.clone());
                    coming.push(Held { member, cluster_uid, uid: String::new(), document: document.into() });
                }
            }
        }
        coming
    }
}

/// The body of parts that are still to be made, with an update in it; their shares and what stood before are noted in the
/// entry that makes them. `None`: it is in it already.
fn amended_body(entry: &mut Entry, body: &str, by: Amendment<'_>, still: impl Fn(&u64) -> bool) -> Option<String> {
    let mut body: Value = serde_json::from_str(body).ok()?;
    let mut amended = entry.amended.take().map_or_else(|| fresh(by.update), |amended| *amended);
    if amended.by.contains(&by.update.id) {
        entry.amended = Some(Box::new(amended));
        return None;
    }
    amended.by.retain(still);
    amended.by.push(by.update.id);
    let update = by.update.clone();
    (amended.caller, amended.query, amended.user_agent) = (update.caller, update.query, update.user_agent);
    amended.unsent_from.get_or_insert(amended.before.len());
    for change in by.changes.iter().filter(|change| !change.is_within(&["status"])) {
        if let What::Value { old, .. } = &change.what {
            amended.note(None, &change.at, [change.value_in(&body), old.clone()]);
        }
        take(std::slice::from_ref(change), Take::Always, &mut body);
    }
    for (member, own) in by.coming {
        let Some(target) = entry.targets.iter_mut().find(|target| target.member.as_str() == member) else { continue };
        for change in own {
            amended.note(Some(member), &change.at, [change.before(), change.before()]);
            set_share(target, change);
            take(std::slice::from_ref(change), Take::Always, &mut body);
        }
    }
    entry.amended = Some(Box::new(amended));
    Some(body.to_string())
}

fn fresh(update: &Entry) -> Amended {
    Amended {
        caller: update.caller.clone(),
        query: update.query.clone(),
        user_agent: update.user_agent.clone(),
        by: Vec::new(),
        before: Vec::new(),
        unsent_from: None,
    }
}

/// Says whether a share is the part's own: a percentage is the same in all.
fn is_own(share: &Amount, fields: &[String]) -> bool {
    matches!(share, Amount::Number(_)) || fields.iter().map(String::as_str).take(2).eq(HARD.path.iter().copied())
}

/// A number is a share of the part's own, and so is an amount of a quota; what is none, or goes, is the same in all.
fn set_share(target: &mut EntryTarget, change: &Change) {
    if change.is_within(&["metadata", "annotations", WHOLE_KEY]) {
        target.whole = change.wanted().and_then(|whole| whole.as_str().map(str::to_owned));
        return;
    }
    let fields: Vec<String> = change.fields().map(str::to_owned).collect();
    let pointer = path_of(&fields);
    target.values.retain(|value| value.pointer != pointer);
    let share = change.wanted().as_ref().and_then(Amount::read).filter(|share| is_own(share, &fields));
    target.values.extend(share.map(|number| Number { pointer, number }));
}
