//! Overrides that have changed are brought to parts that stand, and those that are gone are taken back: part by part, beside
//! whatever else moves the object.
//!
//! Each part notes by which overrides it was made (`placement/noted.rs`), so that what is to be done is known from the members
//! and the policies alone. The state directory has only that it was ordered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    LOOK_FIRST, LOOK_MAX, TURN_MAX,
    advance::{Advanced, PATCHES_MAX, patch_of},
    command::Command,
    object::Object,
    part::{Problem, problem, unavailable},
    report::{LeftObject, MoveState, MovesReport, OverriddenPart, OverriddenValue},
};
use crate::{
    config::{MemberName, Overrides},
    member::call::Answer,
    placement::{
        merge::{Change, difference, merge_patch},
        noted::{self, BringError, Others},
        overrides::Kind,
        plan::Candidate,
        policy::{Policy, Rules},
    },
    write::{
        LANDS_WITHIN, Writer,
        fleet::{Ask, Fleet, Key, Measure, Part, Placed, Visible},
        journal::{JournalError, Overriding},
        steps::{Outcome, Seen, mover},
        update::{is_stale, note, plain},
    },
};
use kubefold_wire::warning::Warnings;

/// When a part is tried again whose member refuses it, at first, and at most.
const AGAIN_FIRST: Duration = Duration::from_secs(10);
const AGAIN_MAX: Duration = Duration::from_mins(5);
/// How many objects are looked at without a pause.
const OBJECTS_AT_ONCE: usize = 32;

/// What the tries for one object came to.
#[derive(Default)]
struct Tries {
    /// The members that refused, by cluster.
    refused: BTreeMap<String, Refusal>,
    /// Pods are being replaced in a member.
    is_rolling: bool,
}

/// A part whose member refused its overrides.
struct Refusal {
    /// When it is tried again.
    again_at: Instant,
    /// How long that was after the last try.
    pause: Duration,
    why: String,
}

/// A part whose overrides are not those of its policy.
struct Outdated {
    part: Part,
    /// What it is to be.
    after: Result<Value, BringError>,
    /// It has a note: so it was made by a kubefold that knows of its overrides.
    is_noted: bool,
    before: Value,
}

/// The parts of an object, as documents, and its policy.
struct Dressed<'a> {
    key: &'a Key,
    rules: Arc<Rules>,
    policy: Option<Policy>,
    parts: Vec<(&'a Part, Value)>,
}

impl Dressed<'_> {
    fn overrides(&self, member: &MemberName) -> Overrides {
        self.policy.as_ref().map(|policy| policy.terms(member).overrides).unwrap_or_default()
    }

    /// What a part is to be that is this now.
    fn brought(&self, part: &Part, now: &Value) -> Result<Value, BringError> {
        let others = || self.parts.iter().filter(|(other, _)| other.cluster_uid != part.cluster_uid);
        let is_bare = |(other, document): &&(&Part, Value)| {
            let none = Overrides::default();
            self.overrides(&other.member) == none && noted::has(document, &none)
        };
        let bare = others().find(is_bare).map(|(_, document)| document);
        let documents: Vec<&Value> = others().map(|(_, document)| document).collect();
        let name = self.policy.as_ref().and_then(|policy| policy.name.as_deref()).unwrap_or_default();
        let others = Others { documents: &documents, bare };
        let whole = self.parts.first().and_then(|(_, home)| note(home));
        let kind = Kind::of(&self.key.gvk, &self.rules, whole);
        noted::brought(now, others, &self.overrides(&part.member), &kind, name, &part.member)
    }

    fn outdated(&self) -> Vec<Outdated> {
        let is_outdated = |(part, document): &&(&Part, Value)| !noted::has(document, &self.overrides(&part.member));
        let of = |(part, document): &(&Part, Value)| Outdated {
            part: (*part).clone(),
            after: self.brought(part, document),
            is_noted: noted::Note::read(document).is_some(),
            before: document.clone(),
        };
        self.parts.iter().filter(is_outdated).map(of).collect()
    }
}

impl Outdated {
    fn changes(&self) -> Vec<Change> {
        let after = self.after.as_ref().ok().cloned();
        after.map(|after| difference(&plain(self.before.clone()), &plain(after))).unwrap_or_default()
    }

    /// Says whether it has other values than it would have. One of before there were notes may have the right ones.
    fn differs(&self) -> bool {
        self.is_noted || self.after.is_err() || !self.changes().is_empty()
    }

    fn report(&self, key: &Key) -> OverriddenPart {
        let is_secret = (&*key.gvk.group, &*key.gvk.kind) == ("", "Secret");
        let value = |change: &Change| OverriddenValue {
            path: change.path(),
            from: change.before().filter(|_| !is_secret),
            to: change.wanted().filter(|_| !is_secret),
        };
        OverriddenPart {
            member: self.part.member.to_string(),
            values: self.changes().iter().map(value).collect(),
            problem: self.after.as_ref().err().map(ToString::to_string),
        }
    }
}

impl<F: Fleet> Writer<F> {
    /// The parts of an object that get other overrides, and the order to bring them. `None`: all have those of now.
    pub(super) fn overriding_of(&self, object: &Object, by: &str) -> Option<(Overriding, Vec<OverriddenPart>)> {
        let outdated = self.dressed(&object.key, &object.visible, &object.parts)?.outdated();
        let mut parts: Vec<_> = outdated.iter().map(|one| one.report(&object.key)).collect();
        parts.sort_by(|one, other| one.member.cmp(&other.member));
        let (key, uid) = (object.key.clone(), object.marker.uid.clone());
        let known = self.journal.overriding(&uid);
        let begun_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let fresh = || Overriding { key, uid, by: by.to_owned(), begun_at, changed: BTreeSet::new() };
        (!parts.is_empty()).then(|| (known.unwrap_or_else(fresh), parts))
    }

    /// Has an object get the overrides of now by a command, or tells what that comes to.
    ///
    /// Errors: the disk refuses.
    pub(super) async fn order_overrides(
        self: &Arc<Self>,
        command: &Command,
        by: &str,
        placed: &Placed,
        report: &mut MovesReport,
    ) -> Result<(), JournalError> {
        let object = self.object(&placed.key);
        let Some((overriding, parts)) = object.and_then(|object| self.overriding_of(&object, by)) else {
            return Ok(());
        };
        report.moves.push(MoveState::of_overriding(&overriding, parts));
        if command.dry_run { Ok(()) } else { self.begin_overriding(overriding).await }
    }

    /// Which parts of an object have other overrides than its policy says, in a sentence. `None`: none has.
    pub(in crate::write) fn outdated(&self, key: &Key) -> Option<String> {
        let object = self.object(key)?;
        let outdated = self.dressed(key, &object.visible, &object.parts)?.outdated();
        let members: BTreeSet<&MemberName> =
            outdated.iter().filter(|one| one.differs()).map(|one| &one.part.member).collect();
        let names = members.iter().map(|member| member.as_str()).collect::<Vec<_>>().join(", ");
        let (parts, have) = match members.len() {
            0 => return None,
            1 => ("part in member", "has"),
            _ => ("parts in members", "have"),
        };
        Some(format!(
            "the {parts} {names} {have} the overrides of an earlier configuration; kubefold rebalance brings those of now"
        ))
    }

    /// What has parts whose overrides are not those of its policy, while nothing changes that.
    pub(in crate::write) async fn all_outdated(&self) -> Vec<LeftObject> {
        let mut all = Vec::new();
        for (at, placed) in self.fleet.placed().await.into_iter().enumerate() {
            if at % OBJECTS_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            if self.journal.overriding(&placed.marker.uid).is_none() {
                all.extend(self.outdated(&placed.key).map(|why| LeftObject::of(&placed.key, why)));
            }
        }
        all
    }

    fn dressed<'a>(&self, key: &'a Key, visible: &Visible, parts: &'a [Part]) -> Option<Dressed<'a>> {
        let shown = serde_json::from_slice(&visible.body).ok()?;
        let documents: Option<Vec<_>> =
            parts.iter().map(|part| Some((part, serde_json::from_slice(&part.json).ok()?))).collect();
        let marker = Seen::of(&parts.first()?.json).marker?;
        let policy = self.policy_of(key, &shown, false, marker.policy.as_deref());
        Some(Dressed { key, rules: self.fleet.rules(), policy, parts: documents? })
    }

    /// Has the parts of a placement get the overrides of now.
    ///
    /// Errors: the disk refuses.
    pub(super) async fn begin_overriding(self: &Arc<Self>, overriding: Overriding) -> Result<(), JournalError> {
        let uid = overriding.uid.clone();
        self.journal.keep_overriding(overriding).await?;
        self.override_parts(uid, Duration::ZERO);
        Ok(())
    }

    /// Works on it in a task. Returns at once.
    pub(super) fn override_parts(self: &Arc<Self>, uid: String, after: Duration) {
        if self.moving.overriding.lock().contains_key(&uid) {
            return;
        }
        self.moving.overriding.lock().insert(uid.clone(), None);
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let work = async {
                tokio::time::sleep(after).await;
                // One may be ordered anew while an earlier one ends.
                while this.journal.overriding(&uid).is_some() {
                    this.bring_overrides(&uid).await;
                }
            };
            this.cancel.run_until_cancelled(work).await;
            this.moving.overriding.lock().remove(&uid);
        });
    }

    async fn bring_overrides(&self, uid: &str) {
        let (mut pause, mut tries) = (LOOK_FIRST, Tries::default());
        // It is never closed.
        let (mut turn, begun) = (self.moving.turns.acquire().await.ok(), Instant::now());
        loop {
            let advanced = {
                let _permit = self.moving.permits.acquire().await;
                Box::pin(self.override_next(uid, &mut tries)).await
            };
            let (problem, wait) = match advanced {
                Advanced::Finished => return,
                Advanced::Further => {
                    pause = LOOK_FIRST;
                    continue;
                }
                Advanced::MayLand(problem) => (problem, LANDS_WITHIN),
                Advanced::Waits(problem) => (problem, pause),
            };
            pause = (pause * 2).min(LOOK_MAX);
            // What waits for a member, and not for pods, keeps no other from its turn.
            if !tries.is_rolling || begun.elapsed() >= TURN_MAX {
                drop(turn.take());
            }
            if let Some(known) = self.moving.overriding.lock().get_mut(uid)
                && known.as_ref() != Some(&problem)
            {
                tracing::info!(uid, problem, "overrides are not brought everywhere yet");
                *known = Some(problem);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Brings the overrides of now to the next part that lacks them.
    async fn override_next(&self, uid: &str, tries: &mut Tries) -> Advanced {
        let Some(overriding) = self.journal.overriding(uid) else { return Advanced::Finished };
        let key = overriding.key.clone();
        let facts =
            self.fleet.facts(Ask { key: &key, owners: &[], pods: None, claims: &[], measure: Measure::Nothing });
        let candidates = facts.await.candidates;
        let Some(hold) = self.fleet.hold(&key).await else {
            return Advanced::Waits("another write to the object takes long".to_owned());
        };
        let whole = self.fleet.whole(&hold, &key).filter(|(visible, _)| visible.uid == uid && !visible.deleting);
        let advanced = match whole {
            Some((visible, parts)) => self.override_one(overriding, &visible, &parts, &candidates, tries).await,
            None => match candidates.iter().find_map(Candidate::unknown) {
                Some(why) => Advanced::Waits(why.to_owned()),
                None => Advanced::Finished,
            },
        };
        self.fleet.release(hold).await;
        if matches!(advanced, Advanced::Finished) {
            self.journal.forget_overriding(uid).await;
        }
        advanced
    }

    async fn override_one(
        &self,
        mut overriding: Overriding,
        visible: &Visible,
        parts: &[Part],
        candidates: &[Candidate],
        tries: &mut Tries,
    ) -> Advanced {
        let key = overriding.key.clone();
        let Some(dressed) = self.dressed(&key, visible, parts) else {
            return Advanced::Waits("its home has no marker any more".to_owned());
        };
        let (up, behind) = (self.fleet.up(), self.journal.behind(&key, &overriding.uid));
        tries.is_rolling = self.not_available(&overriding, parts, None).is_some();
        let mut problems = Vec::new();
        // The home last: it is what clients see.
        for outdated in dressed.outdated().into_iter().rev() {
            let Part { member, cluster_uid, .. } = &outdated.part;
            let refused = tries.refused.get(cluster_uid).filter(|refusal| Instant::now() < refusal.again_at);
            let waits = if !up.contains(member) {
                Some(format!("member {member} does not answer"))
            } else if behind.contains(member) {
                Some(format!("an unfinished write has not reached {member}"))
            } else if let Some(refusal) = refused {
                Some(refusal.why.clone())
            } else {
                self.not_available(&overriding, parts, Some(member))
            };
            if let Some(why) = waits {
                problems.push(why);
                continue;
            }
            let is_first = overriding.changed.insert(cluster_uid.clone());
            if is_first && let Err(error) = self.journal.keep_overriding(overriding.clone()).await {
                return Advanced::Waits(error.to_string());
            }
            match self.override_part(&dressed, &outdated.part).await {
                Ok(()) => return Advanced::Further,
                Err(Problem::Unknown(why)) => return Advanced::MayLand(format!("member {member}: {why}")),
                Err(Problem::Not(why)) => {
                    let last = tries.refused.get(cluster_uid);
                    let pause = last.map_or(AGAIN_FIRST, |last| (last.pause * 2).min(AGAIN_MAX));
                    let (again_at, why) = (Instant::now() + pause, format!("member {member}: {why}"));
                    problems.push(why.clone());
                    if is_first {
                        // Nothing has changed there: no other part waits for it.
                        overriding.changed.remove(cluster_uid);
                        drop(self.journal.keep_overriding(overriding.clone()).await);
                    }
                    tries.refused.insert(cluster_uid.clone(), Refusal { again_at, pause, why });
                }
            }
        }
        let listed = |candidate: &&Candidate| {
            let marker = parts.first().and_then(|home| Seen::of(&home.json).marker);
            marker.is_some_and(|marker| marker.members.iter().any(|(name, _)| *name == candidate.name))
        };
        problems.extend(candidates.iter().filter(listed).filter_map(Candidate::unknown).map(str::to_owned));
        problems.extend(self.not_available(&overriding, parts, None).filter(|_| problems.is_empty()));
        if problems.is_empty() { Advanced::Finished } else { Advanced::Waits(problems.join("; ")) }
    }

    /// Why the next part is not changed yet: one that was changed is not available. A part does not wait for itself.
    fn not_available(&self, overriding: &Overriding, parts: &[Part], next: Option<&MemberName>) -> Option<String> {
        let (key, up) = (&overriding.key, self.fleet.up());
        let changed = parts.iter().filter(|part| {
            overriding.changed.contains(&part.cluster_uid) && up.contains(&part.member) && Some(&part.member) != next
        });
        changed
            .into_iter()
            .find_map(|part| unavailable(key, self.division(key), part, None).or_else(|| rolling(key, part)))
    }

    /// Brings one part to its overrides, as the mover. The revision is a precondition, so that a patch that lands late takes
    /// nothing back.
    async fn override_part(&self, dressed: &Dressed<'_>, part: &Part) -> Result<(), Problem> {
        let (key, member) = (dressed.key, &part.member);
        let mut tries_left = PATCHES_MAX;
        loop {
            tries_left -= 1;
            let body = match self.fleet.look(member, key).await {
                Answer::Answered { code: StatusCode::OK, body, .. } => body,
                // Also where there is none any more: the store hears of that.
                Answer::Answered { code, .. } => return Err(Problem::Not(format!("it answered {code}"))),
                Answer::NotSent(why) | Answer::Unknown(why) => return Err(Problem::Not(why)),
            };
            let now: Value = serde_json::from_slice(&body).unwrap_or_default();
            let after = dressed.brought(part, &now).map_err(|error| Problem::Not(error.to_string()))?;
            if after == now {
                self.fleet.ingest(key, member, &body).await;
                return Ok(());
            }
            let mut patch = merge_patch(&now, &after);
            let revision = now.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
            kubefold_wire::patch::merge_into(&mut patch, json!({"metadata": {"uid": part.uid}}));
            kubefold_wire::patch::merge_into(&mut patch, json!({"metadata": {"resourceVersion": revision}}));
            match self.mutate(member, &mover(), patch_of(key, &patch), false, &mut Warnings::default()).await {
                Outcome::Done { body, .. } => {
                    tracing::info!(object = %key, %member, "a part has the overrides of now");
                    self.fleet.ingest(key, member, &body).await;
                    return Ok(());
                }
                Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) && tries_left > 0 => {}
                outcome => return Err(problem(&outcome)),
            }
        }
    }
}

/// Kinds that say how many of their pods are of the template of now.
const ROLLED: [(&str, &str); 2] = [("apps", "Deployment"), ("apps", "StatefulSet")];

/// Why a rollout of a part has not ended: some of its pods are of an earlier template, though enough are available.
///
/// Source: kubernetes/kubectl `pkg/polymorphichelpers/rollout_status.go`.
fn rolling(key: &Key, part: &Part) -> Option<String> {
    ROLLED.iter().find(|(group, kind)| (*group, *kind) == (&*key.gvk.group, &*key.gvk.kind))?;
    let document: Value = serde_json::from_slice(&part.json).ok()?;
    let at = |pointer: &str| document.pointer(pointer);
    let is_held = at("/spec/paused") == Some(&Value::Bool(true))
        || at("/spec/updateStrategy/type").is_some_and(|strategy| strategy == "OnDelete")
        || at("/spec/updateStrategy/rollingUpdate/partition").and_then(Value::as_u64).is_some_and(|from| from > 0);
    if is_held {
        // Its author says when: until then no pod is replaced.
        return None;
    }
    let number = |pointer: &str| document.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let wanted = document.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    let (updated, all) = (number("/status/updatedReplicas"), number("/status/replicas"));
    (updated < wanted || all > updated)
        .then(|| format!("{updated} of {wanted} replicas are updated in member {}", part.member))
}
