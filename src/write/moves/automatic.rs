//! Moves that nobody orders: by policy, objects leave members that do not answer or that a taint evicts them from, and are
//! divided anew from time to time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    command::Verb,
    object::{Intent, Object},
    part::{Stays, share_of},
    plan::{Change, changed, goal},
    report::LeftObject,
};
use crate::{
    config::{MemberName, Rebalance},
    placement::{
        companions::Subject as Companion,
        divided::Division,
        plan::Plan,
        policy::{Automatic, Policy, Rules, Strategy},
        scheduling::{PodRequirements, pod_spec},
    },
    write::{
        Writer,
        fleet::{Fleet, Key, Placed},
        journal::{Placement, Wanted},
        reshare,
        workloads::{COMPANIONS, documents, of_kinds},
    },
};
use kubefold_wire::matching::Taint;

/// How often it is looked whether something is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When objects are looked at again that could not leave their member, at first, and at most.
const AGAIN_FIRST: Duration = Duration::from_secs(10);
const AGAIN_MAX: Duration = Duration::from_mins(5);
/// The same while a taint evicts, since tolerations of it end.
const AGAIN_MAX_TAINTED: Duration = Duration::from_secs(15);

/// What earlier looks saw.
#[derive(Default)]
struct Looks {
    /// When a taint of a member was first seen.
    tainted: BTreeMap<(MemberName, String), Instant>,
    /// The last look for objects that are to leave a member.
    left: Option<Left>,
    /// When a policy's objects were last looked at, and which of them were to be divided anew.
    divided: BTreeMap<String, (Instant, BTreeSet<String>)>,
}

/// A look for objects that are to leave a member.
struct Left {
    rules: Arc<Rules>,
    /// The members that were to be left, and for how long they had been lost at least.
    due: BTreeSet<(MemberName, Duration)>,
    at: Instant,
    /// When there is another look, if nothing changes.
    again: Duration,
}

/// Why an object is to leave a member.
struct Departure {
    placed: Placed,
    member: MemberName,
    force: bool,
    evicts: bool,
    why: String,
    by: String,
}

impl<F: Fleet> Writer<F> {
    /// Moves objects as their policies say. Returns at once; the work runs in the writer's tasks.
    pub fn follow_policies(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut looks = Looks::default();
            let looking = async {
                loop {
                    tokio::time::sleep(LOOK_EVERY).await;
                    this.look_at_policies(&mut looks).await;
                }
            };
            this.cancel.run_until_cancelled(looking).await;
        });
    }

    async fn look_at_policies(self: &Arc<Self>, looks: &mut Looks) {
        let (rules, now) = (self.fleet.rules(), Instant::now());
        let automatic = rules.automatic();
        let lost = self.lost(&automatic);
        looks.tainted.retain(|(member, taint), _| is_tainted(&automatic, member, taint));
        for (member, taint) in &automatic.evictions {
            looks.tainted.entry((member.clone(), taint.text())).or_insert(now);
        }
        let crossed = |(member, age): &(MemberName, Duration)| {
            let crossed = automatic.failovers.iter().filter(|after| *after <= age);
            crossed.map(|after| (member.clone(), *after)).collect::<Vec<_>>()
        };
        let mut due: BTreeSet<_> = lost.iter().flat_map(crossed).collect();
        due.extend(automatic.evictions.iter().map(|(member, _)| (member.clone(), Duration::ZERO)));
        // One that answers again, and is lost again, is left without a pause.
        looks.left.iter_mut().for_each(|left| left.due.retain(|one| due.contains(one)));
        let same = looks.left.as_ref().filter(|left| Arc::ptr_eq(&left.rules, &rules) && due.is_subset(&left.due));
        if due.is_empty() {
            looks.left = None;
            self.moving.stayed.lock().objects.clear();
        } else if same.is_none_or(|left| left.at.elapsed() >= left.again) {
            let most = if automatic.evictions.is_empty() { AGAIN_MAX } else { AGAIN_MAX_TAINTED };
            let again = same.map_or(AGAIN_FIRST, |left| (left.again * 2).min(most));
            looks.left = Some(Left { rules, due, at: now, again });
            let tainted = looks
                .tainted
                .iter()
                .map(|((member, taint), since)| (member.clone(), taint.clone(), now.duration_since(*since)));
            self.leave_members(&lost, &tainted.collect::<Vec<_>>()).await;
        }
        looks.divided.retain(|name, _| automatic.rebalances.iter().any(|(policy, _)| policy == name));
        let is_due = |(name, rebalance): &&(String, Rebalance)| match looks.divided.get(name) {
            Some((at, _)) => at.elapsed() >= rebalance.every,
            None => false,
        };
        let due: BTreeSet<String> = automatic.rebalances.iter().filter(is_due).map(|(name, _)| name.clone()).collect();
        for (name, _) in &automatic.rebalances {
            looks.divided.entry(name.clone()).or_insert_with(|| (now, BTreeSet::new()));
        }
        if !due.is_empty() {
            self.divide_anew(&due, looks, now).await;
        }
    }

    /// The members that are lost, as far as they may be left: if many are, it is rather kubefold that is cut off.
    fn lost(&self, automatic: &Automatic) -> Vec<(MemberName, Duration)> {
        let lost = self.fleet.lost();
        let all = self.fleet.members().iter().filter(|member| !self.fleet.is_absent(member)).count();
        let most = (all / 3).max(1);
        let is_halted = !automatic.failovers.is_empty() && lost.len() > most;
        let halted = is_halted.then(|| {
            let names: Vec<&str> = lost.iter().map(|(name, _)| name.as_str()).collect();
            format!(
                "{} of {all} members do not answer ({}): failover waits until at most {most} do not",
                lost.len(),
                names.join(", ")
            )
        });
        let mut stayed = self.moving.stayed.lock();
        if let Some(why) = halted.as_ref().filter(|why| stayed.halted.as_ref() != Some(why)) {
            tracing::warn!(why, "failover is halted");
        }
        stayed.halted = halted;
        if is_halted { Vec::new() } else { lost }
    }

    /// Has objects leave members.
    async fn leave_members(
        self: &Arc<Self>,
        lost: &[(MemberName, Duration)],
        tainted: &[(MemberName, String, Duration)],
    ) {
        let mut departures = Vec::new();
        let mut others = Vec::new();
        for placed in self.fleet.placed().await {
            let is_lost = |member: &MemberName| lost.iter().any(|(name, _)| name == member);
            let is_tainted = |member: &MemberName| tainted.iter().any(|(name, _, _)| name == member);
            // Of what every member has, a lost home alone matters, and pods that are evicted.
            let (gvk, is_whole) = (&placed.key.gvk, self.is_whole(&placed));
            let leaves = placed.members.iter().take(if is_whole { 1 } else { usize::MAX }).any(is_lost);
            let has_pods = !is_whole || pod_spec(&gvk.group, &gvk.kind).is_some();
            let is_evicted = has_pods && placed.members.iter().any(is_tainted);
            if !leaves && !is_evicted {
                continue;
            }
            let Some((policy, pod)) = self.object(&placed.key).and_then(|object| self.terms_of(&object)) else {
                continue;
            };
            match departure(&placed, &policy, pod.as_ref(), lost, tainted) {
                Some(departure) => departures.push(departure),
                None => others.push(placed),
            }
        }
        // What every member has loses nothing when its home moves: so writes to a namespace go on as a whole.
        let failovers: BTreeMap<(&str, &MemberName), &Departure> = departures
            .iter()
            .filter(|one| !one.evicts)
            .map(|one| ((&*one.placed.key.namespace, &one.member), one))
            .collect();
        let follows = |placed: Placed| {
            let home = placed.members.first().filter(|_| self.is_whole(&placed))?;
            let Departure { member, why, by, .. } = failovers.get(&(&*placed.key.namespace, home))?;
            let (member, why, by) = (member.clone(), why.clone(), by.clone());
            Some(Departure { placed, member, force: false, evicts: false, why, by })
        };
        let follow: Vec<Departure> = others.into_iter().filter_map(follows).collect();
        let mut stay = Vec::new();
        for one in departures.into_iter().chain(follow) {
            let Departure { placed, member, force, evicts, why, by } = one;
            let intent = Intent { verb: Verb::Drain, member: Some(&member), force, evicts, why, by: &by };
            if let Err(Stays(why)) = self.move_unasked(&intent, &placed).await {
                stay.push(LeftObject::of(&placed.key, format!("{}: {why}", intent.why)));
            }
        }
        let mut stayed = self.moving.stayed.lock();
        for one in stay.iter().filter(|one| !stayed.objects.contains(one)) {
            tracing::warn!(
                resource = one.resource,
                namespace = one.namespace,
                name = one.name,
                why = one.why,
                "it stays"
            );
        }
        stayed.objects = stay;
    }

    /// Errors: why it stays.
    async fn move_unasked(self: &Arc<Self>, intent: &Intent<'_>, placed: &Placed) -> Result<(), Stays> {
        // One that moves already is looked at again.
        if self.is_moving(&placed.marker.uid) {
            return Ok(());
        }
        let Some(placement) = Box::pin(self.goal_of(intent, placed)).await? else { return Ok(()) };
        tracing::info!(object = %placed.key, why = intent.why, by = intent.by, "a placement moves");
        self.begin(placement).await
    }

    /// The policy that holds for an object, and what its pods ask of nodes.
    fn terms_of(&self, object: &Object) -> Option<(Policy, Option<PodRequirements>)> {
        let Object { key, marker, visible, .. } = object;
        let body = std::str::from_utf8(&visible.body).ok()?;
        let shown = serde_json::from_str(body).ok()?;
        let policy = self.policy_of(key, &shown, false, marker.policy.as_deref())?;
        Some((policy, PodRequirements::of(&key.gvk.group, &key.gvk.kind, body).ok()?))
    }

    /// Divides the objects of these policies anew: those that two looks in a row found to be divided otherwise.
    async fn divide_anew(self: &Arc<Self>, due: &BTreeSet<String>, looks: &mut Looks, now: Instant) {
        let is_due = |key: &Key| {
            let policy = self.object(key).and_then(|object| self.terms_of(&object));
            policy.is_some_and(|(policy, _)| policy.name.is_some_and(|name| due.contains(&name)))
        };
        reshare::divide_all_anew(self, is_due).await;
        let mut found: BTreeMap<String, BTreeSet<String>> =
            due.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
        for placed in self.fleet.placed().await {
            tokio::task::yield_now().await;
            let Some(object) = self.object(&placed.key) else { continue };
            let Some((policy, _)) = self.terms_of(&object) else { continue };
            let (Some(name), Some(rebalance)) = (&policy.name, policy.rebalance) else { continue };
            let Some(found) = found.get_mut(name) else { continue };
            let (uid, by) = (object.marker.uid.clone(), format!("policy {name}"));
            // One look is enough: nothing but the configuration changes them.
            if let Some((overriding, _)) = self.overriding_of(&object, &by)
                && let Err(error) = self.begin_overriding(overriding).await
            {
                tracing::warn!(object = %placed.key, by, %error, "it does not get the overrides of now");
            }
            if !self.is_divided(&placed.key) {
                continue;
            }
            match self.divided_anew(&object, rebalance).await {
                Ok(None) => {}
                Ok(Some((parts, leaving))) => {
                    let is_confirmed = looks.divided.get(name).is_some_and(|(_, before)| before.contains(&uid));
                    found.insert(uid);
                    if !is_confirmed {
                        continue;
                    }
                    tracing::info!(object = %placed.key, by, "a placement is divided anew");
                    let goal = goal("rebalance", &by, parts, leaving);
                    let begun = async { self.begin(self.checked(&object, goal).await?).await };
                    if let Err(why) = begun.await {
                        tracing::warn!(object = %placed.key, by, %why, "it is not divided anew");
                    }
                }
                Err(why) => tracing::info!(object = %placed.key, by, %why, "it is not divided anew"),
            }
        }
        looks.divided.extend(found.into_iter().map(|(name, found)| (name, (now, found))));
    }

    /// Errors: why the move is not begun.
    async fn begin(self: &Arc<Self>, placement: Placement) -> Result<(), Stays> {
        self.begin_move(placement).await.map_err(|error| Stays(error.to_string()))
    }

    /// How an object is to be divided; `None`: as it is.
    ///
    /// Errors: the members have no room for it.
    async fn divided_anew(&self, object: &Object, rebalance: Rebalance) -> Result<Option<Change>, Stays> {
        if self.is_moving(&object.marker.uid)
            || object.parts.iter().any(|part| !self.fleet.up().contains(&part.member))
            || self.is_autoscaled(&object.key).await
        {
            return Ok(None);
        }
        let fitting = self.fitting(object).await?;
        let is_divided = |plan: &Plan| plan.strategy == Strategy::Divide;
        let Some(change) = changed(object, &fitting.plan, None).filter(|_| is_divided(&fitting.plan)) else {
            return Ok(None);
        };
        let (total, displaced) = displaced(object, &change.0);
        let is_crowded = object.parts.iter().any(|part| {
            let share = share_of(object.division, &part.json).unwrap_or(0);
            fitting.rooms.get(&part.member).is_some_and(|room| share > *room)
        });
        let is_worth_it = u64::from(displaced) * 100 >= u64::from(total) * u64::from(rebalance.threshold);
        Ok(Some(change).filter(|_| is_crowded || is_worth_it))
    }

    /// Says whether each of several members has all of it.
    fn is_whole(&self, placed: &Placed) -> bool {
        placed.members.len() > 1 && !self.is_divided(&placed.key)
    }

    fn is_divided(&self, key: &Key) -> bool {
        self.division(key).is_some_and(Division::gains_parts)
    }

    /// Says whether an autoscaler sets the number: it does so in each member by what is used there.
    async fn is_autoscaled(&self, workload: &Key) -> bool {
        let [_, autoscalers] = COMPANIONS;
        let all = of_kinds(&self.fleet, &workload.namespace, &[autoscalers]).await;
        let (group, kind) = (&workload.gvk.group, &workload.gvk.kind);
        all.iter().flat_map(|(_, listed)| listed).flat_map(documents).any(|(_, json)| {
            let subject = Companion::of(Some(Division::Autoscaler), json);
            subject.is_some_and(|subject| subject.scales(group, kind, &workload.name))
        })
    }
}

fn is_tainted(automatic: &Automatic, member: &MemberName, taint: &str) -> bool {
    automatic.evictions.iter().any(|(name, evicts)| name == member && evicts.text() == taint)
}

/// Why an object is to leave a member by its policy.
fn departure(
    placed: &Placed,
    policy: &Policy,
    pod: Option<&PodRequirements>,
    lost: &[(MemberName, Duration)],
    tainted: &[(MemberName, String, Duration)],
) -> Option<Departure> {
    let by = policy.name.as_ref().map_or_else(|| "a taint".to_owned(), |name| format!("policy {name}"));
    if let Some(failover) = policy.failover {
        let is_lost =
            |(member, age): &&(MemberName, Duration)| placed.members.contains(member) && *age >= failover.after;
        if let Some((member, _)) = lost.iter().find(is_lost) {
            let (placed, why) = (placed.clone(), format!("failover {member}"));
            return Some(Departure { placed, member: member.clone(), force: failover.force, evicts: false, why, by });
        }
    }
    // What is everywhere and runs no pods takes nothing that a taint keeps for others.
    let pod_tolerations = match pod {
        Some(pod) => pod.nodes.tolerations.as_slice(),
        None if policy.strategy == Strategy::Duplicate || !is_alone(placed) => return None,
        None => &[],
    };
    let evicts = |(member, text, age): &&(MemberName, String, Duration)| {
        let terms = policy.terms(member);
        let taint = terms.taints.iter().find(|taint| taint.effect == "NoExecute" && taint.text() == *text);
        let tolerated = taint.map(|taint: &Taint| policy.tolerates_for(taint, pod_tolerations));
        placed.members.contains(member) && tolerated.flatten().is_some_and(|bound| *age >= bound)
    };
    let (member, text, _) = tainted.iter().find(evicts)?;
    let why = format!("taint {text} of {member}");
    Some(Departure { placed: placed.clone(), member: member.clone(), force: false, evicts: true, why, by })
}

fn is_alone(placed: &Placed) -> bool {
    placed.members.len() == 1
}

/// How many replicas there are, and how many of them are to be elsewhere.
fn displaced(object: &Object, wanted: &[Wanted]) -> (u32, u32) {
    let (mut total, mut displaced) = (0_u32, 0_u32);
    for part in &object.parts {
        let share = share_of(object.division, &part.json).unwrap_or(0);
        let now = wanted.iter().find(|one| one.cluster_uid == part.cluster_uid).and_then(|one| one.share).unwrap_or(0);
        total = total.saturating_add(share);
        displaced = displaced.saturating_add(share.saturating_sub(now));
    }
    (total, displaced)
}
