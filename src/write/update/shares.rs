//! The divided fields of a write: a new total changes the parts by the difference alone.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use crate::{
    config::{MemberName, Overrides, Weight},
    placement::{
        divided::{Division, Field, REPLICAS, Value as Number},
        division::{Share, fewest, redivide},
        merge::{Change, Step, Take, What, take},
        nodes::PodsByMember,
        plan::{Candidate, Standing},
        policy::{Policy, Terms, UNSCHEDULABLE},
        quota::{Cap, room_for, too_little},
    },
    write::{
        fleet::{Ask, Fleet, Measure, Part},
        journal::EntryTarget,
        quotas::{self, Pods, Quotas, pods_of},
        update::{
            part::{Held, note},
            task::{PartTask, Pending},
            work::Work,
        },
    },
};

/// What a write makes of a divided field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Total {
    pub(super) field: Field,
    pub(super) asked: DesiredReplicas,
}

/// What a document says at the place of a divided field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DesiredReplicas {
    /// The whole, to be divided.
    Number(u32),
    /// What is no number: nothing, a percentage, or the amounts of a quota.
    Same(Option<Value>),
}

impl Total {
    /// Reads a divided field. `None` where Kubernetes would not take what stands there.
    pub(super) fn read(document: &Value, field: Field) -> Option<Self> {
        let asked = match document.pointer(field.pointer) {
            None | Some(Value::Null) => field.unset.map_or(DesiredReplicas::Same(None), DesiredReplicas::Number),
            Some(other @ (Value::String(_) | Value::Object(_))) => DesiredReplicas::Same(Some(other.clone())),
            Some(value) => {
                let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
                DesiredReplicas::Number(number.and_then(|number| u32::try_from(number).ok())?)
            }
        };
        Some(Self { field, asked })
    }
}

/// A member that has a part, or may get one.
struct Claim {
    member: MemberName,
    now: u32,
    weight: Weight,
    max: Option<u32>,
    /// What the quotas of the namespace let it have.
    quota: Option<u32>,
    terms: Terms,
}

/// Which bounds hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bounds {
    /// That no part is below its least.
    Least,
    /// And those of policy and nodes.
    Policy,
    /// And the quotas'.
    Quota,
}

impl Claim {
    fn share(&self, floor: u32, bounds: Bounds) -> Share<'_> {
        let max = self.max.filter(|_| bounds >= Bounds::Policy);
        Share {
            min: self.terms.min.max(floor),
            max: max.into_iter().chain(self.quota.filter(|_| bounds == Bounds::Quota)).min(),
            domains: &self.terms.domains,
            ..Share::by_weight(&self.member, self.weight)
        }
    }
}

/// A part to be made, because its share is no longer 0.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) member: MemberName,
    pub(super) cluster_uid: String,
    pub(super) values: Vec<Number>,
    pub(super) overrides: Overrides,
    /// Of a companion: what its parts note of the whole.
    pub(super) whole: Option<String>,
}

impl Missing {
    /// Where it is made, and how it differs.
    pub(super) fn target(&self) -> EntryTarget {
        EntryTarget {
            values: self.values.clone(),
            overrides: self.overrides.clone(),
            whole: self.whole.clone(),
            ..EntryTarget::new(self.member.clone(), self.cluster_uid.clone())
        }
    }
}

/// What new totals come to.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Of the parts, in their order.
    pub(super) tasks: Vec<PartTask>,
    /// Of the parts that earlier writes have still to make, by the member's name.
    pub(super) coming: Vec<(String, Vec<Change>)>,
    /// The parts that are to be made.
    pub(super) missing: Vec<Missing>,
    /// What the client should know.
    pub(super) warning: Option<String>,
    /// What is about to be asked of the quotas.
    pub(super) room: Room,
}

/// The quotas that count the pods of a workload, and how many more pods each member is to have.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) quotas: Quotas,
    pub(super) asked: Pods,
}

/// What the client should know where parts grow above what quotas have room for.
fn waits(caps: &BTreeMap<MemberName, Cap>, claims: &[Claim], numbers: &[u32]) -> Option<String> {
    let capped = claims.iter().map(|claim| caps.get(&claim.member)).zip(numbers.iter().copied());
    let (total, fits) = (numbers.iter().sum(), room_for(capped));
    too_little(&caps.iter().collect::<Vec<_>>(), total, fits)
}

impl<F: Fleet> Work<'_, F> {
    /// The divided fields of the object's kind.
    pub(super) fn divided(&self) -> &'static [Field] {
        self.division().map_or(&[], Division::fields)
    }

    /// What is divided of the object.
    pub(super) fn division(&self) -> Option<Division> {
        let gvk = &self.key.gvk;
        let by_policy = || Division::by_policy(&gvk.group, &gvk.kind).filter(|_| note(&self.home.document).is_some());
        self.writer.division(self.key).or_else(by_policy)
    }

    /// The parts' shares of new totals. `said` is the object as it is to be.
    pub(super) async fn shares(&self, totals: &[Total], said: &Value) -> Shares {
        let with_parts = self.parts().count();
        if totals.is_empty() {
            return Shares { tasks: vec![PartTask::default(); with_parts], ..Shares::default() };
        }
        let mut missing = Vec::new();
        let policy = self.policy();
        let candidates = self.candidates(policy, said).await;
        let quotas = self.quotas(totals).await;
        let parts: Vec<Part> = self.writer.fleet.parts(self.key);
        let own = pods_of(&parts);
        let caps = quotas.caps(&own);
        let told = DivisionInput { policy, candidates: &candidates, caps: &caps };
        let (mut asked, mut warning) = (Pods::new(), None);
        let all: Vec<Held> = self.parts().cloned().chain(self.coming()).collect();
        let mut tasks = vec![PartTask::default(); all.len()];
        for total in totals {
            let DesiredReplicas::Number(number) = &total.asked else {
                for (task, part) in tasks.iter_mut().zip(&all) {
                    let DesiredReplicas::Same(same) = &total.asked else { continue };
                    task.own.extend(change(
                        total.field,
                        part.document.pointer(total.field.pointer).cloned(),
                        same.clone(),
                    ));
                }
                continue;
            };
            let mut claims: Vec<Claim> = all.iter().map(|part| self.claim(part, total.field, &told)).collect();
            claims.extend(self.newcomers(&all, &told));
            let fewest = policy.is_some_and(|policy| policy.fewest);
            let aim = Aim { total: *number, floor: total.field.floor, fewest, uid: &self.visible.uid };
            let numbers = aim.divide(&claims);
            let lacks =
                |claim: &Claim, number: u32| number.saturating_sub(own.get(&claim.member).copied().unwrap_or(0));
            asked.extend(
                claims.iter().zip(&numbers).map(|(claim, number)| (claim.member.clone(), lacks(claim, *number))),
            );
            warning = warning.or_else(|| waits(&caps, &claims, &numbers));
            for ((task, part), number) in tasks.iter_mut().zip(&all).zip(&numbers) {
                let now = self.awaited(part).pointer(total.field.pointer).cloned();
                // What a move is about to take from it stays until then.
                let gives = self.ceiling(part).is_some_and(|ceiling| *number == ceiling);
                if gives && now.as_ref().and_then(Value::as_u64).is_some_and(|now| now > u64::from(*number)) {
                    continue;
                }
                task.own.extend(change(total.field, now, Some((*number).into())));
            }
            for (claim, share) in claims.into_iter().zip(numbers).skip(all.len()).filter(|(_, share)| *share > 0) {
                let cluster =
                    self.marker.iter().flat_map(|marker| &*marker.members).find(|(name, _)| *name == claim.member);
                let Some((_, cluster_uid)) = cluster.cloned() else { continue };
                let values = vec![Number { pointer: total.field.pointer.to_owned(), number: share.into() }];
                let (member, overrides) = (claim.member, claim.terms.overrides);
                missing.push(Missing { member, cluster_uid, values, overrides, whole: None });
            }
        }
        let coming = tasks.split_off(with_parts).into_iter().zip(all.iter().skip(with_parts));
        let coming = coming.map(|(task, part)| (part.member.to_string(), task.own)).collect();
        let room = Room { quotas, asked };
        Shares { tasks, coming, missing, warning, room }
    }

    /// The quotas that limit what new totals come to.
    async fn quotas(&self, totals: &[Total]) -> Quotas {
        let is_at_once = totals.iter().any(|total| total.field == REPLICAS);
        if is_at_once {
            quotas::of(&self.writer.fleet, self.key, || self.home.document.to_string().into()).await
        } else {
            Quotas::default()
        }
    }

    /// A part's document as it will be when what waits for it is done.
    pub(super) fn awaited<'p>(&self, part: &'p Held) -> Cow<'p, Value> {
        let earlier = self.earlier_in(&part.member);
        if earlier.is_empty() {
            return Cow::Borrowed(&part.document);
        }
        let mut document = (*part.document).clone();
        take(&Pending::of(&earlier, &part.member).shares(), Take::WhereOld, &mut document);
        Cow::Owned(document)
    }

    /// The policy that holds for the object, as it was when the write first asked for it.
    pub(super) fn policy(&self) -> Option<&Policy> {
        let found = self.policy.get_or_init(|| {
            let named = self.marker.as_ref().and_then(|marker| marker.policy.as_deref());
            self.writer.policy_of(self.key, &self.shown, self.marker.is_none(), named)
        });
        found.as_ref()
    }

    /// What is known of the members, for an object that says this.
    pub(super) async fn candidates(&self, policy: Option<&Policy>, said: &Value) -> Vec<Candidate> {
        let rules = self.writer.fleet.rules();
        let pods = PodsByMember::of(&self.key.gvk, rules.names(), &said.to_string()).ok().flatten();
        let measure = policy.map_or(Measure::Nothing, |policy| Measure::of(policy.weights));
        let ask = Ask { key: self.key, owners: &[], pods: pods.as_ref(), claims: &[], measure };
        self.writer.fleet.facts(ask).await.candidates
    }

    /// A part's claim. What a member cannot take more of stays as it is.
    fn claim(&self, part: &Held, field: Field, told: &DivisionInput<'_>) -> Claim {
        let now = match Total::read(&self.awaited(part), field) {
            Some(Total { asked: DesiredReplicas::Number(number), .. }) => number,
            Some(Total { asked: DesiredReplicas::Same(_), .. }) | None => 0,
        };
        let ceiling = self.ceiling(part);
        let claim = told.claim(&part.member, ceiling.map_or(now, |ceiling| now.min(ceiling)));
        let max = claim.max.into_iter().chain(ceiling).min();
        Claim { max, ..claim }
    }

    /// What a part counts at most, since a move is about to take the rest from it.
    fn ceiling(&self, part: &Held) -> Option<u32> {
        self.writer.fleet.moved(&self.visible.uid)?.ceiling(&part.cluster_uid)
    }

    /// The members that the marker lists and that have no part: with more to divide they may get one.
    fn newcomers(&self, parts: &[Held], told: &DivisionInput<'_>) -> Vec<Claim> {
        let gains = self.writer.division(self.key).is_some_and(Division::gains_parts);
        let Some(marker) = self.marker.as_ref().filter(|_| gains) else { return Vec::new() };
        let listed = marker.members.iter().filter(|(name, _)| !parts.iter().any(|part| part.member == *name));
        let same = |(name, cluster_uid): &&(MemberName, String)| {
            self.writer.fleet.cluster_uid(name).as_ref() == Some(cluster_uid)
        };
        listed.filter(same).map(|(name, _)| told.claim(name, 0)).collect()
    }
}

/// What is known of the members.
struct DivisionInput<'a> {
    policy: Option<&'a Policy>,
    candidates: &'a [Candidate],
    /// What the quotas of the namespace let each have.
    caps: &'a BTreeMap<MemberName, Cap>,
}

impl DivisionInput<'_> {
    fn claim(&self, member: &MemberName, now: u32) -> Claim {
        let terms = self.policy.map(|policy| policy.terms(member)).unwrap_or_default();
        let candidate = self.candidates.iter().find(|candidate| candidate.name == *member);
        let takes = candidate.is_some_and(|candidate| takes(candidate) && is_open_to_more(&terms, self.policy));
        let mut max = if takes { terms.max.map(|max| max.max(now)) } else { Some(now) };
        let mut weight = terms.weight.or_else(|| candidate.map(|candidate| candidate.weight)).unwrap_or(Weight(0));
        if let Some(policy) = self.policy.filter(|policy| policy.weights.are_measured()) {
            let mut capacity = candidate.and_then(|candidate| candidate.capacity).filter(|_| takes).unwrap_or_default();
            capacity.add_own(now);
            let fits = capacity.replicas;
            (weight, max) = (Weight(capacity.weight(policy.weights)), Some(max.map_or(fits, |max| max.min(fits))));
        }
        let quota = self.caps.get(member).map(|cap| cap.pods.max(now));
        Claim { member: member.clone(), now, weight, max, quota, terms }
    }
}

/// Says whether a member's part may grow, as far as the operator is concerned.
fn is_open_to_more(terms: &Terms, policy: Option<&Policy>) -> bool {
    let is_borne = |taint| policy.is_some_and(|policy| policy.tolerations.iter().any(|one| one.tolerates(taint)));
    let mut cordons = terms.taints.iter().filter(|taint| taint.key == UNSCHEDULABLE);
    terms.excluded.is_none() && cordons.all(is_borne)
}

pub(super) fn takes(candidate: &Candidate) -> bool {
    !candidate.absent
        && candidate.standing == Standing::Ready
        && candidate.serves_kind
        && candidate.has_namespace
        && candidate.fits.is_ok()
}

/// What a divided field is to become as a whole.
struct Aim<'a> {
    total: u32,
    /// Least value that a part may have.
    floor: u32,
    /// It goes to the fewest members that can carry it.
    fewest: bool,
    uid: &'a str,
}

impl Aim<'_> {
    /// Divides it. What nobody takes by his bounds, the parts take all the same.
    fn divide(&self, claims: &[Claim]) -> Vec<u32> {
        let Self { total, floor, fewest: prefers_fewest, uid } = *self;
        let now: Vec<u32> = claims.iter().map(|claim| claim.now).collect();
        let mut numbers = now.clone();
        for bounds in [Bounds::Quota, Bounds::Policy, Bounds::Least] {
            let mut shares: Vec<Share<'_>> = claims.iter().map(|claim| claim.share(floor, bounds)).collect();
            if prefers_fewest && bounds != Bounds::Least {
                fewest(total, &now, &mut shares, uid);
            }
            numbers = redivide(total, &numbers, &shares, uid);
            if numbers.iter().copied().map(u64::from).sum::<u64>() >= u64::from(total) {
                break;
            }
        }
        numbers.into_iter().map(|number| number.max(floor)).collect()
    }
}

pub(super) fn change(field: Field, old: Option<Value>, new: Option<Value>) -> Option<Change> {
    let at = field.path.iter().map(|name| Step::Field((*name).to_owned())).collect();
    (old != new).then_some(Change { at, what: What::Value { old, new } })
}
