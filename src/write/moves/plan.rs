//! What a command moves, where to, and why the rest stays.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::{StreamExt, stream};
use serde_json::Value;

use super::{
    AT_ONCE, LOOK_FIRST,
    body::body_of,
    command::{Command, Verb},
    object::{Intent, Object},
    part::{Stays, making, share_of},
    report::{LeftObject, MoveState, MovesReport},
};
use crate::{
    config::MemberName,
    placement::{
        companions::claims,
        divided::Division,
        moved::{Moved, Superseded},
        plan::{Candidate, Plan, Target},
        policy::Strategy,
        scheduling::pod_spec,
    },
    respond::WriteError,
    write::{
        Writer,
        fleet::{Ask, Fleet, Measure, Part, Placed},
        journal::{Everywhere, Goal, JournalError, Listed, Placement, Stage, Wanted},
        quotas::without_share,
        reshare,
        steps::MOVER,
        update::is_quota,
    },
};
use kubefold_wire::media::is_built_in;

impl<F: Fleet> Writer<F> {
    /// Does what a command says. Returns once all moves that it begins are in the state directory.
    ///
    /// Errors: the member is not configured, or the disk refuses.
    pub async fn order(self: &Arc<Self>, command: Command, by: &str) -> Result<MovesReport, WriteError> {
        let member = self.named_member(&command)?;
        match (command.verb, &command.object, &member) {
            (Verb::Adopt, Some(named), _) => return self.adopt(&command, named).await,
            (Verb::Adopt, None, _) => return Err(WriteError::ObjectUnnamed),
            (Verb::Forget, _, Some(member)) => return self.forget(member, command.dry_run).await,
            _ => {}
        }
        let of_disk = |error: JournalError| WriteError::Journal(error.into());
        if let (Some(member), false, Some(is_cordoned)) = (&member, command.dry_run, command.verb.cordons()) {
            self.journal.cordon(member, is_cordoned).await.map_err(of_disk)?;
            self.fleet.set_cordoned(self.journal.cordoned());
        }
        let mut report = self.nothing_done();
        if matches!(command.verb, Verb::Cordon | Verb::Uncordon) {
            return Ok(report);
        }
        let intent = Intent {
            verb: command.verb,
            member: member.as_ref(),
            force: command.force,
            evicts: false,
            why: command.describe(),
            by,
        };
        let intent = &intent;
        let all = stream::iter(self.fleet.placed().await);
        let goals = all.map(|placed| async move { (Box::pin(self.goal_of(intent, &placed)).await, placed) });
        let mut goals = Box::pin(goals.buffered(AT_ONCE));
        if command.verb == Verb::Rebalance && !command.dry_run {
            reshare::divide_all_anew(self, |_| true).await;
        }
        while let Some((goal, placed)) = goals.next().await {
            if command.verb == Verb::Rebalance {
                self.order_overrides(&command, by, &placed, &mut report).await.map_err(of_disk)?;
            }
            match goal {
                Ok(None) => {}
                Ok(Some(placement)) => {
                    report.moves.extend(MoveState::of(&placement));
                    if !command.dry_run {
                        self.begin_move(placement).await.map_err(of_disk)?;
                    }
                }
                Err(Stays(why)) => report.left.push(LeftObject::of(&placed.key, why)),
            }
        }
        Ok(report)
    }

    /// What is moving now.
    pub fn report(&self) -> MovesReport {
        let placements = self.journal.placements();
        let lost = placements.iter().flat_map(|placement| {
            let of = |lost: &Superseded| {
                LeftObject::of(&placement.key, format!("its part in member {} goes when it answers", lost.member))
            };
            placement.moved.superseded.iter().map(of).collect::<Vec<_>>()
        });
        let overriding = self.journal.overridings().into_iter().map(|one| {
            let problem = self.moving.overriding.lock().get(&one.uid).cloned().flatten();
            MoveState { problem, ..MoveState::of_overriding(&one, Vec::new()) }
        });
        let moves = placements.iter().filter_map(MoveState::of).chain(overriding).collect();
        let stayed = self.moving.stayed.lock();
        let (halted, left) = (stayed.halted.clone(), stayed.objects.clone());
        MovesReport { moves, left, halted, superseded: lost.collect(), ..self.nothing_done() }
    }

    /// The answer to an order that has done nothing yet.
    pub(super) fn nothing_done(&self) -> MovesReport {
        MovesReport {
            kind: "Moves".to_owned(),
            api_version: "kubefold.io/v1".to_owned(),
            cordoned: self.journal.cordoned().iter().map(ToString::to_string).collect(),
            ..MovesReport::default()
        }
    }

    /// Makes parts of a placed object in members that joined, as whoever made the object. Where its policy does not want them
    /// there, nothing is done. Says whether the object is there still.
    ///
    /// Errors: it cannot be done yet: why.
    pub(in crate::write) async fn extend_placement(
        self: &Arc<Self>,
        made: &Everywhere,
        newcomers: &[Listed],
    ) -> Result<bool, Stays> {
        let ask = Ask { key: &made.key, owners: &[], pods: None, claims: &[], measure: Measure::Nothing };
        let facts = self.fleet.facts(ask).await;
        let Some(object) = self.object(&made.key).filter(|object| object.marker.uid == made.uid) else {
            if let Some(why) = facts.candidates.iter().find_map(Candidate::unknown) {
                return Err(why.into());
            }
            self.journal.forget_everywhere(&made.key, &made.uid).await;
            return Ok(false);
        };
        let wanted = loop {
            let (plan, waits) = self.fresh(&object, None).await?;
            // Namespaces come first, and need their time.
            if !newcomers.iter().any(|newcomer| waits.contains(&newcomer.member)) {
                break extended(&object, &plan, |member| newcomers.iter().any(|newcomer| newcomer.member == *member));
            }
            tokio::time::sleep(LOOK_FIRST).await;
        };
        let Some((parts, leaving)) = wanted else { return Ok(true) };
        let goal = goal("extend", MOVER, parts, leaving);
        let goal = Goal { caller: Some(made.caller.clone()), ..goal };
        let placement = self.placement_of(&object, goal)?;
        self.begin_move(placement).await.map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Errors: what has it move already.
    pub(super) fn placement_of(&self, object: &Object, goal: Goal) -> Result<Placement, Stays> {
        let (key, marker) = (&object.key, &object.marker);
        let known = self.journal.placement(&marker.uid);
        if let Some(goal) = known.as_ref().and_then(|known| known.goal.as_ref()) {
            return Err(Stays(format!("it is moving already ({})", goal.why)));
        }
        let carried = known.as_ref().is_some_and(|known| known.carried);
        let as_marked = || Moved {
            members: marker.members.to_vec(),
            made: marker.made,
            epoch: marker.epoch,
            created: created_of(&object.visible.body),
            ..Moved::default()
        };
        let moved = known.map_or_else(as_marked, |known| known.moved);
        Ok(Placement { key: key.clone(), uid: marker.uid.clone(), moved, goal: Some(goal), carried })
    }

    fn named_member(&self, command: &Command) -> Result<Option<MemberName>, WriteError> {
        let stranger = command.members.iter().find(|member| !self.fleet.members().contains(member));
        match (stranger.or(command.member.as_ref()), command.verb) {
            (Some(member), _) if !self.fleet.members().contains(member) => {
                Err(WriteError::MemberUnknown { name: member.to_string(), members: self.fleet.members() })
            }
            (None, Verb::Cordon | Verb::Uncordon | Verb::Drain) => Err(WriteError::MemberUnnamed(self.fleet.members())),
            _ => Ok(command.member.clone()),
        }
    }

    pub(super) async fn begin_move(self: &Arc<Self>, placement: Placement) -> Result<(), JournalError> {
        let uid = placement.uid.clone();
        self.journal.keep_placement(placement).await?;
        self.work_on(uid, Duration::ZERO);
        Ok(())
    }

    /// Where an object is to go; `None`: it is there.
    ///
    /// Errors: it is to go somewhere and cannot: why.
    pub(super) async fn goal_of(&self, intent: &Intent<'_>, placed: &Placed) -> Result<Option<Placement>, Stays> {
        if intent.verb == Verb::Drain && intent.member.is_none_or(|member| !placed.members.contains(member)) {
            return Ok(None);
        }
        let Some(object) = self.object(&placed.key) else { return Ok(None) };
        let Some((parts, leaving)) = self.wanted(intent, &object).await? else { return Ok(None) };
        self.checked(&object, goal(&intent.why, intent.by, parts, leaving)).await.map(Some)
    }

    /// The parts that are to be, and those that are to go; `None`: all is as it should be.
    ///
    /// Errors: why it cannot be so.
    async fn wanted(&self, intent: &Intent<'_>, object: &Object) -> Result<Option<Change>, Stays> {
        let division = object.division;
        let is_divided = division.is_some_and(Division::gains_parts);
        match (intent.verb, intent.member) {
            // It follows its workload.
            (Verb::Drain, _) if division.is_some_and(Division::goes_along) && object.parts.len() == 1 => Ok(None),
            (Verb::Drain, Some(member)) => self.without(member, object, intent).await,
            (Verb::Rebalance, _) if is_divided => {
                let (plan, _) = self.fresh(object, None).await?;
                Ok(changed(object, &plan, None).filter(|_| plan.strategy == Strategy::Divide))
            }
            // Without a part of a quota a member has no limit.
            (Verb::Extend, only)
                if division == Some(Division::Quota) || !division.is_some_and(Division::goes_along) =>
            {
                let (plan, _) = self.fresh(object, None).await?;
                Ok(extended(object, &plan, |member| only.is_none_or(|only| only == member)))
            }
            _ => Ok(None),
        }
    }

    /// The parts without one in a member.
    async fn without(
        &self,
        member: &MemberName,
        object: &Object,
        intent: &Intent<'_>,
    ) -> Result<Option<Change>, Stays> {
        let is_up = self.fleet.up().contains(member);
        let others: Vec<&Part> = object.parts.iter().filter(|part| part.member != *member).collect();
        let is_home = object.parts.first().is_some_and(|home| home.member == *member);
        let division = object.division;
        if matches!(division, Some(Division::Ordinals | Division::Job)) && !others.is_empty() {
            return Err(Stays(format!("a {} that is divided does not move", object.key.gvk.kind)));
        }
        let has_pods = pod_spec(&object.key.gvk.group, &object.key.gvk.kind).is_some();
        let is_divided = division.is_some_and(Division::gains_parts);
        let is_evicted = intent.evicts && has_pods;
        if !is_divided && !others.is_empty() && !is_evicted {
            // Every member has it, and what is lost is no harm: but a home that does not answer stops all writes.
            if is_up || !is_home {
                return Ok(None);
            }
            let wanted = others.into_iter().chain(object.parts.first()).map(|part| wanted_as_is(part, None));
            return Ok(Some((wanted.collect(), Vec::new())));
        }
        if let Some(why) = hazard(object).filter(|(_, is_final)| *is_final || !intent.force) {
            let (why, is_final) = why;
            return Err(Stays(if is_final { why.to_owned() } else { format!("{why}; --force moves it all the same") }));
        }
        let (plan, _) = self.fresh(object, Some(member)).await?;
        Ok(changed(object, &plan, Some(member)))
    }

    /// A move that can be begun.
    ///
    /// Errors: why it cannot.
    pub(super) async fn checked(&self, object: &Object, goal: Goal) -> Result<Placement, Stays> {
        let placement = self.placement_of(object, goal)?;
        self.check(&placement, object).await?;
        Ok(placement)
    }

    /// Says whether a placement is moving.
    pub(super) fn is_moving(&self, uid: &str) -> bool {
        self.journal.placement(uid).is_some_and(|known| known.goal.is_some())
    }

    /// Dry-runs what is to be made, so that what cannot be done is not begun.
    async fn check(&self, placement: &Placement, object: &Object) -> Result<(), Stays> {
        let Some(goal) = &placement.goal else { return Ok(()) };
        let missing =
            goal.parts.iter().filter(|wanted| !object.parts.iter().any(|part| part.cluster_uid == wanted.cluster_uid));
        let body = body_of(&object.key, &object.visible.body, &object.parts).ok_or("it is no object")?;
        for wanted in missing {
            if self.fleet.member_local(&object.key, &wanted.member).is_some() {
                return Err(Stays(format!("member {} has an object of its own under that name", wanted.member)));
            }
            let entry = making(placement, body.clone(), &object.marker);
            self.may_make(&entry, wanted).await?;
        }
        let up = self.fleet.up();
        for part in object.parts.iter().filter(|part| up.contains(&part.member)) {
            if goal.leaving.iter().any(|leaving| leaving.uid == part.uid) {
                self.may_delete(&object.key, part).await?;
            } else if let Some(wanted) = goal.parts.iter().find(|wanted| wanted.cluster_uid == part.cluster_uid)
                && let Some(share) = wanted.share.filter(|share| share_of(object.division, &part.json) != Some(*share))
            {
                self.may_set(&object.key, part, share).await?;
            }
        }
        Ok(())
    }
}

pub(super) fn goal(why: &str, by: &str, parts: Vec<Wanted>, leaving: Vec<Superseded>) -> Goal {
    Goal {
        why: why.to_owned(),
        by: by.to_owned(),
        caller: None,
        begun_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        parts,
        leaving,
        stage: Stage::Growing,
        problem: None,
    }
}

pub(super) fn wanted_as_is(part: &Part, share: Option<u32>) -> Wanted {
    Wanted {
        member: part.member.clone(),
        cluster_uid: part.cluster_uid.clone(),
        share,
        overrides: crate::config::Overrides::default(),
        values: Vec::new(),
        whole: None,
    }
}

pub(super) fn wanted_of(target: &Target, share: Option<u32>) -> Wanted {
    Wanted {
        member: target.member.clone(),
        cluster_uid: target.cluster_uid.clone(),
        share,
        overrides: target.overrides.clone(),
        values: if share.is_some() { Vec::new() } else { target.values.clone() },
        whole: target.whole.clone(),
    }
}

/// The parts that are to be, in order, and those that are to go.
pub(super) type Change = (Vec<Wanted>, Vec<Superseded>);

/// The parts of a plan, where they are not those that stand. The home stays where it is if it can; a part that is to have
/// nothing stays unless its member is left.
pub(super) fn changed(object: &Object, plan: &Plan, left: Option<&MemberName>) -> Option<Change> {
    let Object { division, parts, .. } = object;
    let goes = |part: &Part| Some(&part.member) == left;
    let target_of = |part: &Part| plan.targets.iter().find(|target| target.cluster_uid == part.cluster_uid);
    let is_divided = plan.targets.iter().any(|target| target.share().is_some());
    let mut wanted: Vec<Wanted> = Vec::new();
    for part in parts.iter().filter(|part| !goes(part)) {
        let own = share_of(*division, &part.json);
        let share = target_of(part).and_then(Target::share).or_else(|| own.filter(|_| is_divided).map(|_| 0));
        wanted.push(wanted_as_is(part, share));
    }
    let has = |target: &Target| parts.iter().any(|part| part.cluster_uid == target.cluster_uid);
    let is_new = |target: &&Target| target.made && target.behind.is_none() && !has(target);
    wanted.extend(plan.targets.iter().filter(is_new).map(|target| wanted_of(target, target.share())));
    // A divided object has its home where it is largest, if the home goes.
    let is_home_kept = parts.first().is_some_and(|home| !goes(home));
    if !is_home_kept {
        wanted.sort_by_key(|part| std::cmp::Reverse(part.share));
    }
    let leaving: Vec<Superseded> = parts.iter().filter(|part| goes(part)).map(superseded).collect();
    let is_same = |wanted: &Wanted| {
        let part = parts.iter().find(|part| part.cluster_uid == wanted.cluster_uid);
        part.is_some_and(|part| wanted.share.is_none() || share_of(*division, &part.json) == wanted.share)
    };
    (!leaving.is_empty() || !wanted.iter().all(is_same)).then_some((wanted, leaving))
}

pub(super) fn superseded(part: &Part) -> Superseded {
    Superseded { member: part.member.clone(), cluster_uid: part.cluster_uid.clone(), uid: part.uid.clone() }
}

/// The parts with those that are missing in members that are to have one.
pub(super) fn extended(object: &Object, plan: &Plan, is_asked: impl Fn(&MemberName) -> bool) -> Option<Change> {
    let has = |target: &Target| object.parts.iter().any(|part| part.cluster_uid == target.cluster_uid);
    let is_missing = |target: &&Target| target.behind.is_none() && !has(target) && is_asked(&target.member);
    let of_quota = object.parts.first().and_then(|home| without_share(&home.json));
    let is_of_quota = is_quota(&object.key);
    let wanted = |target: &Target| match (&of_quota, is_of_quota) {
        // Its share is what the others let go once it is there.
        (Some((values, whole)), _) => {
            Wanted { values: values.clone(), whole: Some(whole.clone()), ..wanted_of(target, None) }
        }
        // One that was made to hold in each member does so whatever its policy says now.
        (None, true) => Wanted { values: Vec::new(), whole: None, ..wanted_of(target, None) },
        (None, false) => wanted_of(target, target.share()),
    };
    let missing: Vec<Wanted> = plan.targets.iter().filter(is_missing).map(wanted).collect();
    if !(plan.strategy == Strategy::Duplicate || is_of_quota) || missing.is_empty() {
        return None;
    }
    let standing = object.parts.iter().map(|part| wanted_as_is(part, None));
    Some((standing.chain(missing).collect(), Vec::new()))
}

/// `metadata.creationTimestamp`.
fn created_of(shown: &[u8]) -> Option<String> {
    let shown: Value = serde_json::from_slice(shown).ok()?;
    Some(shown.pointer("/metadata/creationTimestamp")?.as_str()?.to_owned())
}

/// What may be lost when the only part of an object moves, and whether it never moves.
fn hazard(object: &Object) -> Option<(&'static str, bool)> {
    let key = &object.key;
    let (group, kind) = (&*key.gvk.group, &*key.gvk.kind);
    let text = std::str::from_utf8(&object.visible.body).unwrap_or_default();
    let shown: Value = serde_json::from_str(text).unwrap_or_default();
    if (group, kind) == ("", "PersistentVolumeClaim") {
        return Some(("the data of a claim does not move", true));
    }
    if !claims(group, kind, text).is_empty()
        || shown.pointer("/spec/volumeClaimTemplates").is_some_and(|list| *list != Value::Array(Vec::new()))
    {
        return Some(("its pods mount claims, whose data does not move", false));
    }
    let is_recreated = shown.pointer("/spec/strategy/type").is_some_and(|strategy| strategy == "Recreate");
    let why = match (group, kind) {
        ("apps", "StatefulSet") => "two pods of one name may run at once while a StatefulSet moves",
        ("apps", "Deployment") if is_recreated => "it is never to run twice at once (strategy Recreate)",
        ("batch", "Job" | "CronJob") => "what it does may be done twice",
        ("coordination.k8s.io", "Lease") => "two leaders may be elected at once",
        ("", "Pod") => "a pod that nothing controls is started anew elsewhere",
        ("", "Event") => return Some(("an event stays with its object", true)),
        _ if !is_built_in(group) => "its operator may take the move for a deletion",
        _ => return None,
    };
    Some((why, false))
}
