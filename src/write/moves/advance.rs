//! The stages of a move. Each looks at what stands, does what is missing, and says how far it came.

use std::{collections::BTreeSet, sync::Arc};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    config::MemberName,
    member::call::{Answer, Call},
    placement::{
        marker::{MARKER_KEY, Marker},
        moved::{Moved, Superseded},
        plan::Candidate,
    },
    write::{
        GONE_WITHIN, Writer, companions,
        fleet::{Ask, Fleet, Key, Measure, Part, Visible},
        journal::{Entry, EntryTarget, Goal, Placement, Stage, Wanted},
        moves::{
            body::body_of,
            part::{
                Problem, Stays, field_of, generation_of, listed, making, problem, share_of, target, unavailable, words,
            },
        },
        options,
        request::OWN_MANAGER,
        steps::{Found, Outcome, Removed, Seen, UNDO, mover, removed},
        update::{MERGE_PATCH, is_stale},
    },
};
use kubefold_wire::{patch::merge_into, warning::Warnings};

/// How often a patch is tried that meets a part which changes all the time.
pub(super) const PATCHES_MAX: u32 = 5;

/// How far a stage came.
#[derive(Debug)]
pub(super) enum Advanced {
    /// Nothing is left to do.
    Finished,
    /// The next stage begins.
    Further,
    /// It does not go on just now: why.
    Waits(String),
    /// Something was sent that may still land: nothing is done before it has landed, or never will.
    MayLand(String),
}

impl From<Problem> for Advanced {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Unknown(why) => Self::MayLand(why),
            Problem::Not(why) => Self::Waits(why),
        }
    }
}

/// What stands when a stage begins, with the key held.
struct Standing {
    visible: Visible,
    parts: Vec<Part>,
}

impl<F: Fleet> Writer<F> {
    /// Does the stage of a move that is next.
    pub(super) async fn advance(self: &Arc<Self>, uid: &str) -> Advanced {
        let Some(placement) = self.journal.placement(uid) else { return Advanced::Finished };
        let Some(goal) = &placement.goal else { return self.remove_superseded(placement).await };
        match goal.stage {
            Stage::Waiting => self.await_available(placement).await,
            Stage::Leaving => self.await_gone(placement).await,
            Stage::Growing | Stage::Shrinking => {
                let unknown = self.unknown_members(&placement).await;
                if let Some(why) = unknown {
                    return Advanced::Waits(why);
                }
                let Some(hold) = self.fleet.hold(&placement.key).await else {
                    return Advanced::Waits("another write to the object takes long".to_owned());
                };
                let advanced = match self.fleet.whole(&hold, &placement.key) {
                    Some((visible, parts)) if visible.uid == placement.uid && !visible.deleting => {
                        let (stage, standing) = (goal.stage, Standing { visible, parts });
                        match (self.busy(&placement), stage) {
                            (Some(why), _) => Advanced::Waits(why),
                            (None, Stage::Growing) => Box::pin(self.grow(placement, standing)).await,
                            (None, _) => Box::pin(self.shrink(placement, standing)).await,
                        }
                    }
                    Some(_) | None => self.give_up(placement).await,
                };
                self.fleet.release(hold).await;
                advanced
            }
        }
    }

    /// Dry-runs the making of a part.
    ///
    /// Errors: why it would fail.
    pub(super) async fn may_make(&self, entry: &Entry, wanted: &Wanted) -> Result<(), Stays> {
        match self.make(entry, &target(self.division(&entry.key), wanted), true, &mut Warnings::default()).await {
            Outcome::Done { .. } => Ok(()),
            outcome => Err(Stays(format!("member {}: {}", wanted.member, words(&outcome)))),
        }
    }

    /// Starts the kind's store, and says of which member of the placement it is not known what it holds.
    pub(super) async fn unknown_members(&self, placement: &Placement) -> Option<String> {
        let ask = Ask { key: &placement.key, owners: &[], pods: None, claims: &[], measure: Measure::Nothing };
        let facts = self.fleet.facts(ask).await;
        let is_leaving = |name: &MemberName| {
            placement.goal.iter().flat_map(|goal| &goal.leaving).any(|leaving| leaving.member == *name)
        };
        let listed = facts.candidates.iter().filter(|candidate| {
            let cluster = candidate.cluster_uid.as_deref();
            placement.moved.members.iter().any(|(_, listed)| Some(listed.as_str()) == cluster)
        });
        let mut unknown = listed.filter(|candidate| !is_leaving(&candidate.name)).filter_map(Candidate::unknown);
        unknown.next().map(str::to_owned)
    }

    /// The object is gone, or another has its name: there is nothing to move.
    async fn give_up(&self, mut placement: Placement) -> Advanced {
        placement.goal = None;
        tracing::info!(object = %placement.key, "a move ends: the object was deleted");
        if placement.moved.superseded.is_empty() {
            self.forget_moved(&placement).await;
            return Advanced::Finished;
        }
        self.kept(&placement, Advanced::Further).await
    }

    async fn kept(&self, placement: &Placement, then: Advanced) -> Advanced {
        match self.keep_moved(placement).await {
            Ok(()) => then,
            Err(error) => Advanced::Waits(error.to_string()),
        }
    }

    /// Writes that have not reached every part: a part may become the home, and must not take back what they say.
    fn busy(&self, placement: &Placement) -> Option<String> {
        let up = self.fleet.up();
        let behind = self.journal.behind(&placement.key, &placement.uid);
        let waits: Vec<_> = behind.iter().filter(|member| up.contains(member)).map(MemberName::as_str).collect();
        (!waits.is_empty()).then(|| format!("an unfinished write has not reached {}", waits.join(", ")))
    }

    /// Makes the parts that are missing, and lets others grow. All of it, or none.
    async fn grow(self: &Arc<Self>, mut placement: Placement, standing: Standing) -> Advanced {
        let Some(goal) = placement.goal.clone() else { return Advanced::Finished };
        let Standing { visible, parts } = standing;
        if let Some(why) = self.carried_first(&placement, &visible.body, &parts).await {
            return Advanced::Waits(why);
        }
        let before = placement.moved.clone();
        let (members, made) = listed(&before, &parts, &goal.parts);
        if (&members, made) != (&before.members, before.made) {
            placement.moved = Moved { epoch: before.epoch + 1, members, made, ..before.clone() };
            if let Err(error) = self.keep_moved(&placement).await {
                return Advanced::Waits(error.to_string());
            }
        }
        if let Err(problem) = self.make_and_grow(&placement, &goal, &visible, &parts).await {
            let epoch = placement.moved.epoch;
            placement.moved = Moved { epoch, ..before };
            return match problem {
                // What may have been made is looked for again.
                problem @ Problem::Unknown(_) => problem.into(),
                problem @ Problem::Not(_) => self.kept(&placement, problem.into()).await,
            };
        }
        for part in &parts {
            let Some(own) = share_of(self.division(&placement.key), &part.json) else { continue };
            let wanted = goal.parts.iter().find(|wanted| wanted.cluster_uid == part.cluster_uid);
            let to = wanted.map_or(Some(0), |wanted| wanted.share).unwrap_or(own);
            if to < own {
                placement.moved.ceilings.insert(part.cluster_uid.clone(), to);
            }
        }
        placement.goal = Some(Goal { stage: Stage::Waiting, problem: None, ..goal });
        self.kept(&placement, Advanced::Further).await
    }

    /// Errors: [`Problem::Unknown`] where the outcome is not known, else why; then nothing has changed in the members.
    async fn make_and_grow(
        &self,
        placement: &Placement,
        goal: &Goal,
        visible: &Visible,
        parts: &[Part],
    ) -> Result<(), Problem> {
        let key = &placement.key;
        let marker = parts.first().and_then(|part| Seen::of(&part.json).marker);
        let marker = marker.ok_or_else(|| Problem::Not("its home has no marker any more".to_owned()))?;
        let body = body_of(key, &visible.body, parts).ok_or_else(|| Problem::Not("it is no object".to_owned()))?;
        let entry = making(placement, body, &marker);
        let (mut made, mut grown) = (Vec::new(), Vec::new());
        let mut failed = None;
        for wanted in &goal.parts {
            let held = parts.iter().find(|part| part.cluster_uid == wanted.cluster_uid);
            let outcome = match held {
                None => {
                    let target = target(self.division(key), wanted);
                    self.make_missing(&entry, &target).await.map(|uid| made.extend(uid.map(|uid| (target, uid))))
                }
                Some(part) => match (share_of(self.division(key), &part.json), wanted.share) {
                    (Some(own), Some(share)) if share > own => {
                        self.set_share(key, part, share).await.map(|()| grown.push((part, own)))
                    }
                    _ => Ok(()),
                },
            };
            if let Err(problem) = outcome {
                failed = Some((wanted.member.clone(), problem));
                break;
            }
        }
        let Some((member, problem)) = failed else { return Ok(()) };
        let Problem::Not(why) = problem else { return Err(problem) };
        let mut left = Vec::new();
        for (target, uid) in &made {
            if let Removed::Left(why) = self.undo(&entry, target, uid, true).await {
                left.push(why);
            }
        }
        for (part, own) in grown {
            left.extend(self.set_share(key, part, own).await.err().map(|problem| problem.to_string()));
        }
        let why = format!("member {member}: {why}");
        // What was not taken back, or not yet, is looked at anew.
        Err(if left.is_empty() { Problem::Not(why) } else { Problem::Unknown(format!("{why}; {}", left.join("; "))) })
    }

    /// Makes a part, unless it stands already; gives its own UID if it was made now.
    async fn make_missing(&self, entry: &Entry, target: &EntryTarget) -> Result<Option<String>, Problem> {
        let key = &entry.key;
        match self.find(entry, target).await {
            Found::Part { deleting: false, body, .. } => {
                self.fleet.ingest(key, &target.member, &body).await;
                return Ok(None);
            }
            Found::Absent => {}
            Found::Part { .. } => return Err(Problem::Not("an earlier part there is being deleted".to_owned())),
            Found::Stranger { .. } => {
                return Err(Problem::Not("it has an object of its own under that name".to_owned()));
            }
            Found::Elsewhere => return Err(Problem::Not("it is not the cluster that was planned for".to_owned())),
            Found::Unreachable(why) => return Err(Problem::Not(why)),
        }
        let body = match self.make(entry, target, false, &mut Warnings::default()).await {
            Outcome::Done { body, .. } => body,
            outcome => return Err(problem(&outcome)),
        };
        self.fleet.ingest(key, &target.member, &body).await;
        Ok(Seen::of(&body).uid)
    }

    /// Sets the number of a part.
    async fn set_share(&self, key: &Key, part: &Part, share: u32) -> Result<(), Problem> {
        match field_of(self.division(key)) {
            Some(field) => self.patch(key, part, of_share(field, share)).await,
            None => Ok(()),
        }
    }

    /// Dry-runs the setting of a part's number.
    ///
    /// Errors: why it would fail.
    pub(super) async fn may_set(&self, key: &Key, part: &Part, share: u32) -> Result<(), Stays> {
        let Some(field) = field_of(self.division(key)) else { return Ok(()) };
        let mut body = json!({"metadata": {"uid": part.uid}});
        merge_into(&mut body, of_share(field, share));
        let mut call = patch_of(key, &body);
        call.query += "&dryRun=All";
        may(part, self.mutate(&part.member, &mover(), call, true, &mut Warnings::default()).await)
    }

    /// Dry-runs the deletion of a part.
    ///
    /// Errors: why it would fail.
    pub(super) async fn may_delete(&self, key: &Key, part: &Part) -> Result<(), Stays> {
        let call = delete_of(key, part, true);
        let outcome = self.mutate(&part.member, &mover(), call, true, &mut Warnings::default()).await;
        match removed(&outcome) {
            Removed::Gone => Ok(()),
            _ => may(part, outcome),
        }
    }

    /// Patches a part as the mover, whatever its status is by now. The revision is a precondition, so that a patch that lands
    /// late takes nothing back.
    async fn patch(&self, key: &Key, part: &Part, patch: Value) -> Result<(), Problem> {
        let mut tries_left = PATCHES_MAX;
        loop {
            tries_left -= 1;
            let body = match self.fleet.look(&part.member, key).await {
                Answer::Answered { code: StatusCode::OK, body, .. } => body,
                Answer::Answered { code, .. } => return Err(Problem::Not(format!("it answered {code}"))),
                Answer::NotSent(why) | Answer::Unknown(why) => return Err(Problem::Not(why)),
            };
            let now: Value = serde_json::from_slice(&body).unwrap_or_default();
            let revision = now.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
            let mut body = json!({"metadata": {"uid": part.uid, "resourceVersion": revision}});
            merge_into(&mut body, patch.clone());
            let call = patch_of(key, &body);
            match self.mutate(&part.member, &mover(), call, false, &mut Warnings::default()).await {
                Outcome::Done { body, .. } => {
                    self.fleet.ingest(key, &part.member, &body).await;
                    return Ok(());
                }
                Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(&body) && tries_left > 0 => {}
                outcome => return Err(problem(&outcome)),
            }
        }
    }

    /// Waits until what was made can stand in for what is to go. Parts whose member does not answer cannot be waited for.
    async fn await_available(&self, mut placement: Placement) -> Advanced {
        if let Some(why) = self.unknown_members(&placement).await {
            return Advanced::Waits(why);
        }
        let (parts, up) = (self.fleet.parts(&placement.key), self.fleet.up());
        let Some(goal) = &mut placement.goal else { return Advanced::Finished };
        if parts.is_empty() {
            return self.give_up(placement).await;
        }
        // Writes wait for a home that is lost; nothing that it has can be kept from going.
        let is_lost = |leaving: &Superseded| !up.contains(&leaving.member);
        let are_lost = !goal.leaving.is_empty() && goal.leaving.iter().all(is_lost);
        for wanted in goal.parts.iter().filter(|wanted| !are_lost && up.contains(&wanted.member)) {
            let Some(part) = parts.iter().find(|part| part.cluster_uid == wanted.cluster_uid) else {
                goal.stage = Stage::Growing;
                return self.kept(&placement, Advanced::Further).await;
            };
            if let Some(why) = unavailable(&placement.key, self.division(&placement.key), part, wanted.share) {
                return Advanced::Waits(why);
            }
        }
        (goal.stage, goal.problem) = (Stage::Shrinking, None);
        self.kept(&placement, Advanced::Further).await
    }

    /// Moves the home, shrinks what others have taken over, and deletes the parts that are to go.
    async fn shrink(&self, mut placement: Placement, standing: Standing) -> Advanced {
        let Some(mut goal) = placement.goal.clone() else { return Advanced::Finished };
        let (key, parts, up) = (placement.key.clone(), standing.parts, self.fleet.up());
        let is_made = |wanted: &Wanted| parts.iter().any(|part| part.cluster_uid == wanted.cluster_uid);
        if !goal.parts.iter().all(is_made) {
            goal.stage = Stage::Growing;
            placement.goal = Some(goal);
            return self.kept(&placement, Advanced::Further).await;
        }
        let going: Vec<&Part> =
            parts.iter().filter(|part| goal.leaving.iter().any(|leaving| leaving.uid == part.uid)).collect();
        self.move_home(&mut placement.moved, &goal, &going, &up);
        if let Err(error) = self.keep_moved(&placement).await {
            return Advanced::Waits(error.to_string());
        }
        for lost in placement.moved.superseded.clone() {
            self.end_writes_to(&placement, &lost.member).await;
        }
        for (cluster, to) in placement.moved.ceilings.clone() {
            let staying = parts.iter().find(|part| part.cluster_uid == cluster && !going.contains(part));
            let Some(part) = staying.filter(|part| up.contains(&part.member)) else { continue };
            if share_of(self.division(&key), &part.json).is_some_and(|own| own > to)
                && let Err(problem) = self.set_share(&key, part, to).await
            {
                return problem.into();
            }
            placement.moved.ceilings.remove(&cluster);
        }
        for part in going.into_iter().filter(|part| up.contains(&part.member)) {
            if let Err(problem) = self.delete_part_of(&key, part).await {
                return problem.into();
            }
        }
        (goal.stage, goal.problem) = (Stage::Leaving, None);
        placement.goal = Some(goal);
        self.kept(&placement, Advanced::Further).await
    }

    /// The record with the parts that are wanted first. Of the parts that go, those whose members cannot be reached leave the
    /// placement now, by their UID.
    fn move_home(&self, moved: &mut Moved, goal: &Goal, going: &[&Part], up: &[MemberName]) {
        let mut leaving = Vec::new();
        for part in going {
            let (member, cluster_uid) = (part.member.clone(), part.cluster_uid.clone());
            if moved.leaving.insert(cluster_uid.clone()) {
                moved.generation += generation_of(&part.json);
            }
            if up.contains(&member) {
                leaving.push((member, cluster_uid));
            } else {
                moved.leaving.remove(&cluster_uid);
                moved.ceilings.remove(&cluster_uid);
                moved.superseded.push(Superseded { member, cluster_uid, uid: part.uid.clone() });
            }
        }
        let wanted: Vec<_> = goal.parts.iter().map(|part| (part.member.clone(), part.cluster_uid.clone())).collect();
        let is_out = |cluster: &String| {
            moved.superseded.iter().any(|lost| lost.cluster_uid == *cluster)
                || wanted.iter().chain(&leaving).any(|(_, listed)| listed == cluster)
        };
        let others: Vec<_> = moved.members.iter().filter(|(_, cluster)| !is_out(cluster)).cloned().collect();
        moved.made = wanted.len();
        let members: Vec<_> = wanted.into_iter().chain(leaving).chain(others).collect();
        if members != moved.members {
            moved.epoch += 1;
            moved.members = members;
        }
    }

    /// Deletes a part that is to go; the garbage collector of its member takes what it has made.
    pub(super) async fn delete_part_of(&self, key: &Key, part: &Part) -> Result<(), Problem> {
        let call = delete_of(key, part, false);
        let outcome = self.mutate(&part.member, &mover(), call, false, &mut Warnings::default()).await;
        match (&outcome, removed(&outcome)) {
            (_, Removed::Gone) => {
                self.fleet.wait_gone(key, &part.member, &part.uid, GONE_WITHIN).await;
                Ok(())
            }
            (Outcome::Done { body, .. }, Removed::Requested) => {
                self.fleet.ingest(key, &part.member, body).await;
                Ok(())
            }
            _ => Err(problem(&outcome)),
        }
    }

    /// Ends what unfinished writes have still to do in a member whose part left the placement.
    async fn end_writes_to(&self, placement: &Placement, member: &MemberName) {
        let (key, uid) = (&placement.key, &placement.uid);
        for entry in self.journal.open_updates(key, uid).into_iter().chain(self.journal.open_creates(key, uid)) {
            let is_open = |target: &EntryTarget| target.member == *member && target.step.is_open();
            let is_home = entry.targets.first().is_some_and(|home| home.member == *member);
            if is_home || entry.targets.iter().any(is_open) {
                self.end_write_to(&entry, member).await;
            }
        }
    }

    /// Waits until the parts that were deleted are gone; then the placement has arrived.
    async fn await_gone(self: &Arc<Self>, mut placement: Placement) -> Advanced {
        let (key, parts, up) = (placement.key.clone(), self.fleet.parts(&placement.key), self.fleet.up());
        let Some(goal) = placement.goal.take() else { return Advanced::Finished };
        let still = parts.iter().find(|part| goal.leaving.iter().any(|leaving| leaving.uid == part.uid));
        if let Some(part) = still.filter(|part| up.contains(&part.member)) {
            return Advanced::Waits(format!("the part in member {} is being deleted", part.member));
        }
        let gone: BTreeSet<String> = goal.leaving.iter().map(|leaving| leaving.cluster_uid.clone()).collect();
        placement.moved.members.retain(|(_, cluster)| !gone.contains(cluster));
        placement.moved.ceilings.retain(|cluster, _| !gone.contains(cluster));
        placement.moved.leaving.clear();
        if let Err(error) = self.keep_moved(&placement).await {
            return Advanced::Waits(error.to_string());
        }
        tracing::info!(object = %key, why = goal.why, by = goal.by, "moved");
        for part in parts.iter().filter(|part| up.contains(&part.member) && !gone.contains(&part.cluster_uid)) {
            self.write_marker(&placement, part).await;
        }
        self.move_autoscalers(&key).await;
        companions::moved(self, &key).await;
        if placement.is_unfinished() { Advanced::Further } else { Advanced::Finished }
    }

    /// Writes into a part where its placement is now. The record decides, so that a part may have an older marker.
    async fn write_marker(&self, placement: &Placement, part: &Part) {
        let Some(marker) = Seen::of(&part.json).marker else { return };
        let now = Marker { member: part.member.clone(), ..placement.moved.apply(marker.clone()) };
        if now == marker {
            return;
        }
        let Ok(annotation) = serde_json::from_slice::<Value>(&now.annotation_json()) else { return };
        let patch = json!({"metadata": {"annotations": {MARKER_KEY: annotation}}});
        if let Err(why) = self.patch(&placement.key, part, patch).await {
            tracing::warn!(object = %placement.key, member = %part.member, %why, "its marker was not written anew");
        }
    }
}

fn of_share(field: &str, share: u32) -> Value {
    let path: Vec<&str> = field.split('/').skip(1).collect();
    path.into_iter().rev().fold(Value::from(share), |inner, name| json!({name: inner}))
}

pub(super) fn patch_of(key: &Key, body: &Value) -> Call {
    Call {
        method: Method::PATCH,
        path: key.object(),
        query: format!("fieldManager={OWN_MANAGER}"),
        body: body.to_string().into(),
        content_type: MERGE_PATCH.to_owned(),
        user_agent: None,
    }
}

fn delete_of(key: &Key, part: &Part, dry: bool) -> Call {
    Call {
        method: Method::DELETE,
        path: key.object(),
        query: String::new(),
        body: options::of_part(UNDO, &part.uid, None, dry),
        content_type: String::new(),
        user_agent: None,
    }
}

/// What a dry run says.
fn may(part: &Part, outcome: Outcome) -> Result<(), Stays> {
    match outcome {
        Outcome::Done { .. } => Ok(()),
        outcome => Err(Stays(format!("member {}: {}", part.member, words(&outcome)))),
    }
}
