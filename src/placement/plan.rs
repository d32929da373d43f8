//! Plans a create: which members get a part, how large, and which part comes first.

use std::collections::BTreeMap;

use crate::{
    config::{MemberName, Overrides, Weight},
    placement::{
        capacity::Capacity,
        children::Orphans,
        companions::{Allowed, Limits, Scaled, Shares, allowed, autoscaler, budget},
        divided::{COMPLETIONS, Division, Field, MIN_REPLICAS, PARALLELISM, Value, Wholes},
        division::{Share, divide, redivide, tie},
        policy::{Policy, Strategy, Terms, UNSCHEDULABLE},
        scheduling::{Misfit, PodRequirements},
    },
};
use kubefold_wire::{
    golang::Quoted,
    matching::{Taint, Toleration},
};

/// How a member is, as far as placing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It answers.
    Ready,
    /// It does not answer, but its objects of the kind are known. The text says why, with age.
    Down(String),
    /// Its objects of the kind are not known: no name can be promised to be free. The text says why.
    Unknown(String),
}

/// What is known of one member, for one create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The member.
    pub name: MemberName,
    /// UID of its cluster (of its namespace `kube-system`); `None` before the first contact.
    pub cluster_uid: Option<String>,
    /// Its weight.
    pub weight: Weight,
    /// The operator declared it absent.
    pub absent: bool,
    /// How it is.
    pub standing: Standing,
    /// It lets the caller create the object.
    pub allowed: bool,
    /// It serves the kind in the version asked.
    pub serves_kind: bool,
    /// It holds the namespace, and is not deleting it.
    pub has_namespace: bool,
    /// Owners named in the body that it does not hold: its garbage collector would delete the part.
    pub missing_owners: Vec<String>,
    /// Claims that its pods mount and that it does not hold, but another member does.
    pub missing_claims: Vec<String>,
    /// What [`fits`](crate::placement::scheduling::fits) said.
    pub fits: Result<(), Misfit>,
    /// What is free there; `None` if that is not known or was not asked.
    pub capacity: Option<Capacity>,
}

impl Candidate {
    /// Why it is not known what it holds of the kind; `None`: it is.
    pub fn unknown(&self) -> Option<&str> {
        match &self.standing {
            Standing::Unknown(why) => Some(why),
            Standing::Ready | Standing::Down(_) => None,
        }
    }
}

/// What is asked of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The object's minted UID.
    pub uid: &'a str,
    /// The policy that holds for it.
    pub policy: &'a Policy,
    /// What is divided of it.
    pub wholes: &'a Wholes,
    /// What its pods ask of nodes; `None` where it makes none.
    pub pod: Option<&'a PodRequirements>,
    /// The member that holds the namespace's single objects.
    pub sticky: Option<&'a MemberName>,
    /// The member that has what came before it and belongs to it: the claim of its pods, the pods of a claim, an
    /// autoscaler. It goes there if it can.
    pub drawn: Option<&'a MemberName>,
    /// What an earlier workload of the name left. It goes there, in the same shares.
    pub orphans: Option<&'a Orphans>,
    /// The claims that its pods mount, existing or not: one member has them.
    pub claims: &'a [String],
    /// Of a companion: what it is about.
    pub companion: Option<Companion<'a>>,
    /// It is a revision of what owns it, and goes wherever that is: each member's controller keeps its own.
    pub is_revision: bool,
}

/// What a companion is placed by.
#[derive(Clone, Copy, Debug)]
pub struct Companion<'a> {
    /// The divided fields as they are written.
    pub whole: &'a Limits,
    /// The shares of the workload, or of all that a budget selects. Empty while there is none.
    pub shares: &'a Shares,
}

/// One part: one to make, or one that a later write may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The member of the part.
    pub member: MemberName,
    /// In which cluster: if the member becomes another one meanwhile, the part is not made.
    pub cluster_uid: String,
    /// What is set in this part: its shares.
    pub values: Vec<Value>,
    /// Its share is not 0, or it is the home. Others are only listed in the marker: a scale-up may make them.
    pub made: bool,
    /// Why the part can only be made later.
    pub behind: Option<String>,
    /// How this part differs.
    pub overrides: Overrides,
    /// Of a companion: what its parts note of the whole.
    pub whole: Option<String>,
}

impl Target {
    /// The share: the first of the divided fields.
    pub fn share(&self) -> Option<u32> {
        self.values.first().map(|value| value.number)
    }
}

/// Where an object goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The object's minted UID.
    pub uid: String,
    /// The policy's name, for the marker; `None` is the default of the kind.
    pub policy: Option<String>,
    /// The placement whose orphans it takes over.
    pub adopts: Option<String>,
    /// How the parts are made in the end: what cannot be divided goes to one member, or to all.
    pub strategy: Strategy,
    /// The marker's members, in order. At least one; the first is made last, as the commit, and is the home.
    pub targets: Vec<Target>,
    /// Who gets no part, and why.
    pub left_out: Vec<(MemberName, String)>,
    /// What the client should know.
    pub warnings: Vec<String>,
}

/// Why an object cannot be placed. Each reason names its member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No member can take it.
    #[error("no member can take it: {}", listed(.0))]
    NoCandidate(Vec<(MemberName, String)>),
    /// No member that could take it holds its namespace.
    #[error("no member holds the namespace")]
    NoNamespace,
    /// Who could take it is down.
    #[error("no member that is up can take it: {}", listed(.0))]
    AllDown(Vec<(MemberName, String)>),
    /// Not all of it fits, and the policy is all or nothing.
    #[error("only {fits} of {total} fit: {}; ask for less, or let the policy say `partial: true`", listed(.reasons))]
    NoRoom {
        /// How much was asked.
        total: u32,
        /// How much fits.
        fits: u32,
        /// What each member takes.
        reasons: Vec<(MemberName, String)>,
    },
    /// Whether the name is free cannot be known.
    #[error("it is not known whether the name is free in {}; try again, or declare the member `absent: true`", listed(.0))]
    Unknown(Vec<(MemberName, String)>),
}

fn listed(reasons: &[(MemberName, String)]) -> String {
    if reasons.is_empty() {
        return "no member is configured".to_owned();
    }
    reasons.iter().map(|(member, why)| format!("{member}: {why}")).collect::<Vec<_>>().join("; ")
}

/// Why a member that does not let the caller create the object has no part.
const NOT_ALLOWED: &str = "the caller may not create it there";

/// How many ordinals each part of a StatefulSet has to itself.
pub const ORDINAL_STRIDE: u32 = 1000;

/// A member that can take a part.
struct Taker<'a> {
    candidate: &'a Candidate,
    cluster_uid: &'a str,
    terms: Terms,
    /// Why its part can only be made later.
    behind: Option<String>,
}

impl Taker<'_> {
    fn weight(&self) -> Weight {
        self.terms.weight.unwrap_or(self.candidate.weight)
    }

    fn target(&self, values: Vec<Value>, made: bool) -> Target {
        Target {
            member: self.candidate.name.clone(),
            cluster_uid: self.cluster_uid.to_owned(),
            values,
            made,
            behind: self.behind.clone(),
            overrides: self.terms.overrides.clone(),
            whole: None,
        }
    }
}

/// Plans the parts of one object.
///
/// The sticky member comes first while it is a candidate; else the largest share does, ties falling by UID.
///
/// Errors: no member can take it, not all of it fits, or a member is unknown for the kind.
pub fn plan(order: &Order<'_>, candidates: &[Candidate]) -> Result<Plan, PlanError> {
    let unknown: Vec<_> = candidates.iter().filter_map(unknown).collect();
    if !unknown.is_empty() {
        return Err(PlanError::Unknown(unknown));
    }
    let strategy = strategy(order);
    let goes_along = order.wholes.division.is_some_and(Division::goes_along);
    // Without a part there, such an object would be missing: it is made when the member returns.
    let later = strategy == Strategy::Duplicate || goes_along && strategy == Strategy::Divide;
    let (mut takers, mut left_out, mut down) = (Vec::new(), Vec::new(), false);
    for candidate in candidates {
        match taker(order, strategy, later, candidate) {
            Ok(taker) => takers.push(taker),
            Err(refusal) => {
                down |= refusal.down;
                left_out.push((candidate.name.clone(), refusal.why));
            }
        }
    }
    if takers.iter().all(|taker| taker.behind.is_some()) {
        let behind = takers.into_iter().map(|taker| (taker.candidate.name.clone(), taker.behind.unwrap_or_default()));
        let behind: Vec<_> = behind.collect();
        let mut able = candidates.iter().filter(|candidate| !candidate.absent && candidate.serves_kind).peekable();
        let nowhere = able.peek().is_some() && able.all(|candidate| !candidate.has_namespace);
        return Err(match () {
            () if down || !behind.is_empty() => PlanError::AllDown(behind.into_iter().chain(left_out).collect()),
            () if nowhere => PlanError::NoNamespace,
            () => PlanError::NoCandidate(left_out),
        });
    }
    let refusing = left_out.iter().filter(|(_, why)| strategy == Strategy::Duplicate && why == NOT_ALLOWED);
    let warnings = refusing.map(|(name, _)| format!("member {name} has no part: {NOT_ALLOWED}")).collect();
    let mut warnings: Vec<String> = warnings;
    if strategy != Strategy::One && !order.claims.is_empty() {
        let claims: Vec<String> = order.claims.iter().map(|claim| Quoted(claim).to_string()).collect();
        warnings.push(format!(
            "policy {} places it in several members, and its pods mount the claim {}, which is in one: elsewhere they wait",
            order.policy.name.as_deref().unwrap_or_default(),
            claims.join(", ")
        ));
    }
    let mut plan = Plan {
        uid: order.uid.to_owned(),
        policy: order.policy.name.clone(),
        adopts: order.orphans.map(|orphans| orphans.family.clone()),
        strategy,
        targets: Vec::new(),
        left_out,
        warnings,
    };
    match strategy {
        Strategy::One => one(order, takers, &mut plan),
        Strategy::Duplicate => duplicate(order, takers, &mut plan),
        Strategy::Divide if goes_along => along(order, takers, &mut plan),
        Strategy::Divide => divided(order, takers, &mut plan)?,
    }
    Ok(plan)
}

/// What the policy's strategy comes to with this object.
fn strategy(order: &Order<'_>) -> Strategy {
    match order.policy.strategy {
        // Two parts would have pods of one index.
        Strategy::Divide if order.wholes.indexed => Strategy::One,
        // The claim is in one member, and so are the pods that can mount it.
        Strategy::Divide | Strategy::Duplicate if !order.claims.is_empty() && !order.policy.names_strategy => {
            Strategy::One
        }
        Strategy::One if order.is_revision && !order.policy.names_strategy => Strategy::Duplicate,
        Strategy::Divide if !order.wholes.are_divided() && order.companion.is_none() => Strategy::Duplicate,
        other => other,
    }
}

/// Says whether a member does not draw an object: what came before it and belongs to it is elsewhere, or nowhere.
fn draws_not(order: &Order<'_>, name: &MemberName) -> bool {
    let orphans = order.orphans.and_then(|orphans| orphans.shares.iter().max_by_key(|(_, share)| **share));
    order.drawn != Some(name) && orphans.is_none_or(|(holder, _)| holder != name)
}

/// Sorts by who is listed first: who is up, then who draws it, then the sticky member, then the largest.
fn sort(order: &Order<'_>, takers: &mut [Taker<'_>], size: impl Fn(&Taker<'_>) -> u32) {
    takers.sort_by_key(|taker| {
        let name = &taker.candidate.name;
        let later = (taker.behind.is_some(), draws_not(order, name), order.sticky != Some(name));
        (later, std::cmp::Reverse((size(taker), taker.weight(), tie(order.uid, name))))
    });
}

/// One part, in the sticky member or where most is free.
fn one(order: &Order<'_>, mut takers: Vec<Taker<'_>>, plan: &mut Plan) {
    takers.sort_by_key(|taker| {
        let name = &taker.candidate.name;
        let free = taker.candidate.capacity.unwrap_or_default();
        let room = (taker.weight().0 > 0, free, tie(order.uid, name));
        (draws_not(order, name), order.sticky != Some(name), std::cmp::Reverse(room))
    });
    let mut takers = takers.into_iter();
    let Some(chosen) = takers.next() else { return };
    plan.targets.push(chosen.target(Vec::new(), true));
    let why = |other: Taker<'_>| {
        let name = &chosen.candidate.name;
        (other.candidate.name.clone(), format!("it goes to one member: {name}"))
    };
    plan.left_out.extend(takers.map(why));
}

/// A whole part in every member.
fn duplicate(order: &Order<'_>, mut takers: Vec<Taker<'_>>, plan: &mut Plan) {
    sort(order, &mut takers, |_| 0);
    plan.targets.extend(takers.iter().map(|taker| taker.target(Vec::new(), true)));
}

/// The parts of a companion.
fn along(order: &Order<'_>, mut takers: Vec<Taker<'_>>, plan: &mut Plan) {
    let (Some(division), Some(Companion { whole, shares })) = (order.wholes.division, order.companion) else { return };
    let share = |taker: &Taker<'_>| shares.get(&taker.candidate.name).copied().unwrap_or(0);
    sort(order, &mut takers, share);
    let names: Vec<&MemberName> = takers.iter().map(|taker| &taker.candidate.name).collect();
    let parts: Vec<Option<Limits>> = match division {
        Division::Autoscaler => {
            let members: Vec<_> = names.iter().map(|member| Scaled { member, has_part: false }).collect();
            autoscaler(whole, &members, shares, order.uid)
        }
        _ => budget(whole, &names, shares, order.uid).into_iter().map(Some).collect(),
    };
    let made: Vec<(&MemberName, &Limits)> =
        names.iter().zip(&parts).filter_map(|(name, part)| Some((*name, part.as_ref()?))).collect();
    plan.warnings.extend(too_much(division, whole, &made, shares));
    let mut targets: Vec<Target> = Vec::new();
    for (taker, part) in takers.iter().zip(parts) {
        let values = part.iter().flat_map(|part| part.values(division)).collect();
        targets.push(Target { whole: Some(whole.to_note()), ..taker.target(values, part.is_some()) });
    }
    // The home has a part.
    targets.sort_by_key(|target| (!target.made, target.behind.is_some()));
    plan.targets.extend(targets);
}

/// What a client should know where the parts of a companion come to more than the whole.
pub fn too_much(
    division: Division,
    whole: &Limits,
    parts: &[(&MemberName, &Limits)],
    shares: &Shares,
) -> Option<String> {
    if division == Division::Autoscaler {
        let count = |limits: &Limits| limits.number(&MIN_REPLICAS).unwrap_or(0);
        let sum = parts.iter().map(|(_, part)| count(part)).fold(0_u32, u32::saturating_add);
        let (least, members) = (count(whole), parts.len());
        return (sum > least && members > 1).then(|| {
            format!("spec.minReplicas is {least}, its parts in {members} members have {sum}: each has at least 1")
        });
    }
    let Allowed { parts, whole } = allowed(whole, parts, shares)?;
    (parts > whole).then(|| {
        format!(
            "it lets {whole} pods go at a time; its parts let {parts} go, each its own: an eviction through the fleet keeps \
             to the whole, one inside a member to its part"
        )
    })
}

/// Parts by shares.
fn divided(order: &Order<'_>, mut takers: Vec<Taker<'_>>, plan: &mut Plan) -> Result<(), PlanError> {
    let claims: Vec<_> = takers.iter().map(|taker| claim(order, taker)).collect();
    let shares: Vec<_> = takers.iter().zip(&claims).map(|(taker, claim)| share(order, taker, claim)).collect();
    let Some((first, total)) = order.wholes.totals.first().copied() else { return Ok(()) };
    let mut sizes = redivide(total, &left(order, &takers), &shares, order.uid);
    let placed: u32 = sizes.iter().sum();
    if placed < total {
        let reasons =
            takers.iter().zip(&claims).map(|(taker, claim)| (taker.candidate.name.clone(), claim.why.clone()));
        let reasons: Vec<_> = reasons.chain(plan.left_out.iter().cloned()).collect();
        let error = PlanError::NoRoom { total, fits: placed, reasons };
        if !order.policy.partial || placed == 0 {
            return Err(error);
        }
        plan.warnings.push(error.to_string());
    }
    let second = order.wholes.totals.get(1).copied();
    let mut others = vec![None; takers.len()];
    if let Some((_, parallel)) = second.filter(|_| first == COMPLETIONS) {
        (sizes, others) = job(order.uid, placed, parallel, &shares, sizes);
    }
    let mut parts: BTreeMap<MemberName, (u32, Option<u32>)> = BTreeMap::new();
    for ((taker, size), other) in takers.iter().zip(sizes).zip(others) {
        parts.insert(taker.candidate.name.clone(), (size, other));
    }
    let part = |taker: &Taker<'_>| parts.get(&taker.candidate.name).copied().unwrap_or_default();
    sort(order, &mut takers, |taker| part(taker).0);
    for (at, taker) in (0_u32..).zip(&takers) {
        let (size, other) = part(taker);
        let mut values = vec![value(&first, size)];
        values.extend(other.map(|number| value(&PARALLELISM, number)));
        if order.wholes.division == Some(Division::Ordinals) && at > 0 {
            let number = order.wholes.first_ordinal + at * ORDINAL_STRIDE;
            values.push(Value { pointer: "/spec/ordinals/start".to_owned(), number });
        }
        plan.targets.push(taker.target(values, size > 0 || at == 0));
    }
    Ok(())
}

/// How many replicas an earlier workload of the name left in each of these.
fn left(order: &Order<'_>, takers: &[Taker<'_>]) -> Vec<u32> {
    let of = |taker: &Taker<'_>| order.orphans?.shares.get(&taker.candidate.name).copied();
    takers.iter().map(|taker| of(taker).unwrap_or(0)).collect()
}

fn value(field: &Field, number: u32) -> Value {
    Value { pointer: field.pointer.to_owned(), number }
}

/// The completions and parallelisms of a Job's parts: no part may have the one without the other.
fn job(
    uid: &str,
    completions: u32,
    parallel: u32,
    shares: &[Share<'_>],
    mut sizes: Vec<u32>,
) -> (Vec<u32>, Vec<Option<u32>>) {
    let parts = sizes.iter().filter(|size| **size > 0).count();
    let parallel_parts = usize::try_from(parallel).unwrap_or(usize::MAX);
    let mut kept: Vec<usize> = (0..sizes.len()).collect();
    if parallel > 0 && parts > parallel_parts {
        kept.sort_by_key(|at| {
            let member = shares.get(*at).map(|share| tie(uid, share.member));
            std::cmp::Reverse((sizes.get(*at).copied(), member))
        });
        kept.truncate(parallel_parts);
        kept.sort_unstable();
        let fewer: Vec<_> = kept.iter().filter_map(|at| shares.get(*at).copied()).collect();
        let again = divide(completions, &fewer, uid);
        sizes.iter_mut().for_each(|size| *size = 0);
        for (at, size) in kept.iter().zip(again) {
            if let Some(slot) = sizes.get_mut(*at) {
                *slot = size;
            }
        }
    }
    let by_size = shares.iter().zip(&sizes).map(|(share, size)| Share {
        min: u32::from(*size > 0 && parallel > 0),
        max: if *size == 0 { Some(0) } else { None },
        ..Share::by_weight(share.member, Weight(*size))
    });
    let numbers = divide(parallel, &by_size.collect::<Vec<_>>(), uid);
    (sizes, numbers.into_iter().map(Some).collect())
}

/// A claim with its words.
struct Bound {
    weight: Weight,
    max: Option<u32>,
    why: String,
}

fn claim(order: &Order<'_>, taker: &Taker<'_>) -> Bound {
    let mut bound =
        Bound { weight: taker.weight(), max: taker.terms.max, why: "it takes all that it is given".to_owned() };
    if let Some(max) = bound.max {
        bound.why = format!("policy {} places at most {max} there", order.policy.name.as_deref().unwrap_or_default());
    } else if bound.weight.0 == 0 {
        bound.why = "its weight is 0".to_owned();
    }
    let mut cap = |max: u32, why: String| {
        if bound.max.is_none_or(|now| max < now) {
            (bound.max, bound.why) = (Some(max), why);
        }
    };
    if order.wholes.division == Some(Division::Ordinals) {
        cap(ORDINAL_STRIDE, format!("a part of a StatefulSet has at most {ORDINAL_STRIDE} replicas"));
    }
    if order.policy.by_capacity {
        let fits = taker.candidate.capacity.unwrap_or_default().replicas;
        cap(fits, format!("{fits} fit on its nodes"));
        bound.weight = Weight(fits);
    }
    bound
}

fn share<'a>(order: &Order<'_>, taker: &'a Taker<'_>, bound: &Bound) -> Share<'a> {
    Share {
        member: &taker.candidate.name,
        weight: bound.weight,
        // What came before it needs it there.
        min: taker.terms.min.max(u32::from(order.drawn == Some(&taker.candidate.name))),
        max: bound.max,
        group: taker.terms.group.as_deref(),
    }
}

fn unknown(candidate: &Candidate) -> Option<(MemberName, String)> {
    match &candidate.standing {
        Standing::Unknown(why) if !candidate.absent => Some((candidate.name.clone(), why.clone())),
        Standing::Unknown(_) | Standing::Ready | Standing::Down(_) => None,
    }
}

struct Refusal {
    why: String,
    down: bool,
}

/// A member that can take a part, perhaps `later`; or why it cannot.
fn taker<'a>(
    order: &Order<'_>,
    strategy: Strategy,
    later: bool,
    candidate: &'a Candidate,
) -> Result<Taker<'a>, Refusal> {
    let terms = order.policy.terms(&candidate.name);
    let no = |why: String| Err(Refusal { why, down: false });
    if candidate.absent {
        return no("it is declared absent".to_owned());
    }
    if !candidate.serves_kind {
        return no("it does not serve the kind".to_owned());
    }
    if let Some(why) = terms.excluded {
        return no(why);
    }
    if !candidate.allowed {
        return no(NOT_ALLOWED.to_owned());
    }
    let lacks = lacks(order, strategy, candidate, &terms);
    let behind = match &candidate.standing {
        Standing::Down(why) if !later || lacks.is_some() => {
            return Err(Refusal { why: format!("it is down: {why}"), down: true });
        }
        Standing::Down(why) => Some(format!("it is down: {why}")),
        Standing::Ready | Standing::Unknown(_) => None,
    };
    if let Some(why) = lacks {
        return no(why);
    }
    let Some(cluster_uid) = &candidate.cluster_uid else {
        return Err(Refusal { why: "kubefold has not read which cluster it is".to_owned(), down: true });
    };
    if order.policy.by_capacity && strategy == Strategy::Divide && candidate.capacity.is_none() {
        return Err(Refusal { why: "its free capacity is not known".to_owned(), down: true });
    }
    Ok(Taker { candidate, cluster_uid, terms, behind })
}

/// What keeps a part away from a member that answers.
fn lacks(order: &Order<'_>, strategy: Strategy, candidate: &Candidate, terms: &Terms) -> Option<String> {
    if !candidate.has_namespace {
        return Some("it does not hold the namespace".to_owned());
    }
    if !candidate.missing_owners.is_empty() {
        return Some(format!("it does not hold the owner {}", candidate.missing_owners.join(", ")));
    }
    if strategy == Strategy::One && !candidate.missing_claims.is_empty() {
        let claims: Vec<String> = candidate.missing_claims.iter().map(|claim| Quoted(claim).to_string()).collect();
        return Some(format!("it does not hold the claim {}, which its pods mount", claims.join(", ")));
    }
    if let Err(why) = &candidate.fits {
        return Some(why.to_string());
    }
    // What is everywhere and runs no pods (a ConfigMap) takes nothing that a taint keeps for others.
    let repelled = order.pod.is_some() || strategy != Strategy::Duplicate;
    let own: &[Toleration] = order.pod.map_or(&[], |pod| &pod.nodes.tolerations);
    let borne = |taint: &Taint| own.iter().chain(&order.policy.tolerations).any(|one| one.tolerates(taint));
    let taint = terms.taints.iter().find(|taint| repelled && !borne(taint))?;
    if taint.key == UNSCHEDULABLE {
        return Some("it is cordoned".to_owned());
    }
    Some(format!("it has the taint {}, which nothing tolerates", taint.text()))
}

#[cfg(test)]
mod tests;
