//! What a create would come to: the one way to a plan, for creates and for `kubefold plan`, which changes nothing.

use std::{ops::Not, sync::Arc};

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::{
    answer::reply::Reply,
    config::MemberName,
    placement::{
        children::{Orphans, is_revision},
        companions::Shares,
        divided::{Division, Value},
        marker::Marker,
        nodes::PodsByMember,
        overrides::{Kind, overridden},
        plan::{Companion, Order, Plan, PlanError, Standing, plan},
        policy::{Policy, Rules, Strategy, Subject},
        scheduling::{Misfit, PodRequirements},
        stamp::{Stamp, stamped},
    },
    respond::{InvalidField, PartError, Unplaced, WriteError},
    write::{
        Writer,
        carry::Workload,
        create::{Draft, Pin, pins, refuse_what_is_no_pin},
        fleet::{Ask, Facts, Fleet, Key, Measure},
        orphans,
        quotas::{self, Pods, Quotas},
        request::Request,
        workloads,
    },
};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    warning::Warnings,
};

/// What an object is placed by: its policy, and what is known of the members.
pub(super) struct CreateFacts {
    pub(super) policy: Policy,
    pub(super) facts: Facts,
    /// The UID that every cluster's object of that name has, if it is shared.
    pub(super) shared: Option<String>,
    /// The members that hold nothing of what the body names of single members, or none of the nodes that its pods name.
    elsewhere: Vec<MemberName>,
    /// Its pods name a node that no member has.
    names_nobodys: bool,
    /// Of a companion: the shares of what it is for.
    shares: Shares,
    /// The member that has what came before it and belongs to it.
    drawn: Option<MemberName>,
    /// What an earlier workload of the name left.
    orphans: Option<Orphans>,
    /// The quotas that count its pods.
    quotas: Quotas,
}

/// Finds the policy and asks for the facts. What is free in the members is asked for where `least` or the policy wants it.
///
/// Errors: 422 where no policy can hold.
pub(super) async fn asked<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    draft: &Draft<'_>,
    key: &Key,
    least: Measure,
) -> Result<CreateFacts, WriteError> {
    let fleet = &writer.fleet;
    let shared = fleet.shared_uid(key);
    let subject = Subject {
        gvk: &key.gvk,
        namespace: &key.namespace,
        name: &key.name,
        labels: draft.labels,
        annotations: draft.annotations,
        shared: shared.is_some(),
        policy: None,
    };
    let policy = fleet.rules().rule_for(&subject).map_err(|error| request.invalid(&key.name, error.into()))?;
    let pins = pins(fleet, &key.gvk, draft.json);
    let rules = fleet.rules();
    let pods = PodsByMember::of(&key.gvk, rules.names(), draft.json)?;
    let measure = measure(&policy, &draft.claims).max(least);
    let ask = Ask { key, owners: &draft.owners, pods: pods.as_ref(), claims: &draft.claims, measure };
    let shares = async {
        match &draft.companion {
            Some((subject, _)) => workloads::shares(fleet, &key.namespace, subject).await,
            None => Shares::new(),
        }
    };
    let division = draft.wholes.division;
    let drawn = workloads::drawn(fleet, key, division);
    let orphans = Box::pin(orphans::find(fleet, key, draft.json));
    let quotas = quotas::of(fleet, key, || draft.json.into());
    let (mut facts, shares, drawn, orphans, quotas) = tokio::join!(fleet.facts(ask), shares, drawn, orphans, quotas);
    facts.candidates.iter_mut().for_each(|one| one.allowed = !request.refusing.contains(&one.name));
    expect_namespace(writer, key, &mut facts);
    let mut elsewhere = Vec::new();
    for candidate in &mut facts.candidates {
        if is_elsewhere(&pins, &candidate.name) {
            candidate.fits = Err(Misfit::NotHeld(pins.iter().map(|pin| pin.named.clone()).collect()));
        } else if let Some(Err(misfit)) = pods.as_ref().map(|pods| pods.in_member(&candidate.name)) {
            candidate.fits = Err(misfit);
        } else {
            continue;
        }
        elsewhere.push(candidate.name.clone());
    }
    let names_nobodys = draft.pod.iter().flat_map(PodRequirements::node_names).any(|name| is_nobodys(fleet, name));
    let mut asked = CreateFacts { policy, facts, shared, elsewhere, names_nobodys, shares, drawn, orphans, quotas };
    asked.cap(&Pods::new());
    Ok(asked)
}

/// Says whether a body names things of other members alone.
fn is_elsewhere(pins: &[Pin], member: &MemberName) -> bool {
    !pins.is_empty() && pins.iter().all(|pin| pin.member != *member)
}

/// Says whether no node is ever called that: no member's name stands behind the `@`.
fn is_nobodys<F: Fleet>(fleet: &F, node: &str) -> bool {
    node.contains('@') && fleet.split(node).is_none()
}

/// A member that is down and gets the namespace when it is back gets what lies in it, too.
fn expect_namespace<F: Fleet>(writer: &Writer<F>, key: &Key, facts: &mut Facts) {
    let namespace = Key {
        gvr: Gvr::new("", "v1", "namespaces"),
        gvk: Gvk::new("", "v1", "Namespace"),
        namespace: String::new(),
        name: key.namespace.clone(),
    };
    let Some(entry) = writer.journal.open_create(&namespace).filter(|entry| entry.is_committed()) else { return };
    for member in writer.journal.behind(&namespace, &entry.uid) {
        let behind = facts.candidates.iter_mut().filter(|candidate| candidate.name == member);
        behind.for_each(|candidate| candidate.has_namespace |= matches!(candidate.standing, Standing::Down(_)));
    }
}

fn measure(policy: &Policy, claims: &[String]) -> Measure {
    match policy.strategy {
        _ if !claims.is_empty() && !policy.names_strategy => Measure::UnlessSticky,
        Strategy::Divide if policy.weights.are_measured() => Measure::of(policy.weights),
        Strategy::One => Measure::UnlessSticky,
        Strategy::Divide | Strategy::Duplicate => Measure::Nothing,
    }
}

impl CreateFacts {
    /// Caps what each member may get by the quotas. `own` are the pods that the object has already.
    pub(super) fn cap(&mut self, own: &Pods) {
        let mut caps = self.quotas.caps(own);
        self.facts.candidates.iter_mut().for_each(|one| one.quota = caps.remove(&one.name));
    }

    /// Has the shares of quotas follow the plan.
    pub(super) async fn make_room<F: Fleet>(
        &self,
        writer: &Arc<Writer<F>>,
        key: &Key,
        asked: &Pods,
        warnings: &mut Warnings,
    ) {
        writer.make_room(&key.namespace, &self.quotas, asked, warnings).await;
    }

    /// Refuses a new object that no policy selects, where the configuration says so. What goes with something else needs none.
    ///
    /// Errors: 422.
    pub(super) fn admit<F: Fleet>(
        &self,
        fleet: &F,
        request: &Request,
        draft: &Draft<'_>,
        key: &Key,
    ) -> Result<(), WriteError> {
        if self.shared.is_some() || !draft.owners.is_empty() || key.gvr.is_event() {
            return Ok(());
        }
        fleet.rules().admit(&self.policy).map_err(|error| request.invalid(&key.name, error.into()))
    }

    /// Plans the parts under a minted UID.
    ///
    /// Errors: as [`plan`], as the client sees them.
    pub(super) fn plan(&self, draft: &Draft<'_>, key: &Key) -> Result<Plan, Unplaced> {
        self.plan_of(draft, key, &self.shared.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string()))
    }

    /// The same of an object that has its UID already.
    pub(super) fn plan_of(&self, draft: &Draft<'_>, key: &Key, uid: &str) -> Result<Plan, Unplaced> {
        let order = Order {
            uid,
            policy: &self.policy,
            wholes: &draft.wholes,
            pod: draft.pod.as_ref(),
            sticky: self.facts.sticky.as_ref(),
            drawn: self.drawn.as_ref(),
            orphans: self.orphans.as_ref(),
            claims: &draft.claims,
            is_revision: !draft.owners.is_empty() && is_revision(&key.gvr),
            companion: draft.companion.as_ref().map(|(_, whole)| Companion { whole, shares: &self.shares }),
        };
        let planned = match plan(&order, &self.facts.candidates) {
            Err(error @ PlanError::NoCandidate(_)) => self.waiting(&order).ok_or(error),
            planned => planned,
        };
        planned.map_err(|error| {
            let Key { gvr, gvk, namespace, name } = key.clone();
            Unplaced { gvr, gvk, namespace, name, error }
        })
    }

    /// The plan of what no node takes yet. A kube-apiserver makes it, its pods wait, and an autoscaler may bring the node
    /// that they wait for: so it goes where it would go if every node took it.
    fn waiting(&self, order: &Order<'_>) -> Option<Plan> {
        if self.names_nobodys {
            return None;
        }
        let mut candidates = self.facts.candidates.clone();
        let mut nodes = Vec::new();
        for candidate in candidates.iter_mut().filter(|candidate| !self.elsewhere.contains(&candidate.name)) {
            if let Err(why) = std::mem::replace(&mut candidate.fits, Ok(())) {
                nodes.push(format!("{}: {why}", candidate.name));
            }
        }
        let mut plan = plan(order, &candidates).ok().filter(|_| !nodes.is_empty())?;
        plan.warnings.push(format!("its pods wait for a node that fits; there is none now ({})", nodes.join("; ")));
        Some(plan)
    }
}

/// The answer to `POST /kubefold/v1/plan`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// `Plan`.
    pub kind: String,
    /// `kubefold.io/v1`.
    pub api_version: String,
    /// What would be created.
    pub object: Object,
    /// The policy that holds; none is the default of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// `duplicate`, `divide`, `one`; `shared` of what every cluster has, `pinned` of what its name pins to a member.
    pub strategy: String,
    /// Every member, in the order of the configuration.
    pub members: Vec<Place>,
    /// What the client of a create would be warned of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// An object that is to be created.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// Its kind.
    pub kind: String,
    /// `deployments.apps`.
    pub resource: String,
    /// Empty if it is cluster-scoped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name, or what it is generated from.
    pub name: String,
}

/// What one member gets, and why.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// The member.
    pub member: String,
    /// It gets a part.
    pub part: bool,
    /// Its part is the home.
    #[serde(skip_serializing_if = "Not::not")]
    pub home: bool,
    /// It gets its part when it is back.
    #[serde(skip_serializing_if = "Not::not")]
    pub later: bool,
    /// What is set in its part alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
    /// Why it gets that, or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Tells what a create would come to.
pub(super) async fn answer<F: Fleet>(writer: &Writer<F>, request: &Request) -> Reply {
    told(writer, request).await.unwrap_or_else(|reply| reply)
}

async fn told<F: Fleet>(writer: &Writer<F>, request: &Request) -> Result<Reply, Reply> {
    let draft = Draft::read(request, writer.fleet.rules().kinds())?;
    let name = if draft.name.is_empty() { draft.base.clone() } else { draft.name.clone() };
    if name.is_empty() {
        return Err(request.invalid("", InvalidField::NameRequired).into());
    }
    let key = request.key(&name);
    if let Some((_, member)) = writer.fleet.split(&name) {
        let why = "its name pins it there";
        return Ok(reply(&key, None, "pinned", vec![one(&member, why)], Vec::new()));
    }
    if request.gvr.is_event() {
        return Ok(reply(
            &key,
            None,
            "beside",
            Vec::new(),
            vec!["an event goes with the object that it is about".into()],
        ));
    }
    refuse_what_is_no_pin(writer, request, &name)?;
    let asked = asked(writer, request, &draft, &key, Measure::Nothing).await?;
    let plan = asked.plan(&draft, &key)?;
    let rules = writer.fleet.rules();
    overrides_go_with(&plan, &draft, &key, &rules).map_err(|error| request.invalid(&name, error.into()))?;
    let mut warnings = plan.warnings.clone();
    let made = plan.targets.iter().filter(|target| target.made && target.behind.is_none());
    let document = serde_json::from_str(draft.json).unwrap_or_default();
    let workload = Workload {
        key: &key,
        document: &document,
        policy: Some(&asked.policy),
        caller: &request.caller,
        members: made.map(|target| target.member.clone()).collect(),
    };
    writer.cargo(workload).await.announce(|warning| warnings.push(warning.to_owned()));
    if writer.fleet.visible(&key).is_some() {
        warnings.push(format!("{key} exists already; what exists stays where it is"));
        warnings.extend(writer.outdated(&key));
    }
    let strategy = match plan.strategy {
        Strategy::Duplicate if asked.shared.is_some() => "shared",
        Strategy::Duplicate => "duplicate",
        Strategy::Divide => "divide",
        Strategy::One => "one",
    };
    Ok(reply(&key, plan.policy.clone(), strategy, places(plan, &asked, &draft, &key), warnings))
}

/// Says why the overrides of a policy do not go with the parts that would be made.
fn overrides_go_with(plan: &Plan, draft: &Draft<'_>, key: &Key, rules: &Rules) -> Result<(), PartError> {
    let members = plan.targets.iter().map(|target| (target.member.clone(), target.cluster_uid.clone()));
    let members: Arc<[_]> = members.collect();
    for target in plan.targets.iter().filter(|target| !target.overrides.is_empty()) {
        let (member, members) = (target.member.clone(), Arc::clone(&members));
        let marker = Marker {
            made: plan.targets.iter().filter(|target| target.made).count(),
            policy: plan.policy.clone(),
            adopts: plan.adopts.clone(),
            ..Marker::new(plan.uid.clone(), &key.gvk, &key.namespace, &key.name, member, members)
        };
        let whole = target.whole.as_deref();
        let what = Stamp { marker: Some(&marker), name: None, values: &target.values, whole };
        let body = stamped(draft.json, what)?;
        let policy = plan.policy.as_deref().unwrap_or_default();
        let kind = Kind::of(&key.gvk, rules, whole);
        overridden(body, &target.overrides, &kind, policy, &target.member)?;
    }
    Ok(())
}

fn one(member: &MemberName, why: &str) -> Place {
    Place { member: member.to_string(), part: true, home: true, why: Some(why.to_owned()), ..Place::default() }
}

/// Every member, in the order of the configuration.
fn places(plan: Plan, asked: &CreateFacts, draft: &Draft<'_>, key: &Key) -> Vec<Place> {
    let kind = &*key.gvk.kind;
    let without_a_part = if draft.wholes.division.is_some_and(Division::gains_parts) {
        "its share is 0; a scale-up may make its part".to_owned()
    } else {
        format!("its share is 0; a {kind} that exists gets no further part")
    };
    let mut places: Vec<Place> = plan
        .left_out
        .into_iter()
        .map(|(member, why)| Place { member: member.to_string(), why: Some(why), ..Place::default() })
        .collect();
    for (at, target) in plan.targets.into_iter().enumerate() {
        let sticky = asked.facts.sticky.as_ref() == Some(&target.member);
        let why = match &target.behind {
            Some(why) => Some(why.clone()),
            None if !target.made => Some(match &target.why {
                Some(why) => format!("{why}; {without_a_part}"),
                None => without_a_part.clone(),
            }),
            None if target.why.is_some() => target.why.clone(),
            None if at == 0 && sticky => Some("the namespace's single objects are there".to_owned()),
            None => None,
        };
        places.push(Place {
            member: target.member.to_string(),
            part: target.made,
            home: at == 0,
            later: target.behind.is_some(),
            values: target.values,
            why,
        });
    }
    let place = |name: &str| asked.facts.candidates.iter().position(|candidate| candidate.name.as_str() == name);
    places.sort_by_key(|one| place(&one.member));
    places
}

fn reply(
    key: &Key,
    policy: Option<String>,
    strategy: &'static str,
    members: Vec<Place>,
    warnings: Vec<String>,
) -> Reply {
    let gvk = &key.gvk;
    let told = Planned {
        kind: "Plan".to_owned(),
        api_version: "kubefold.io/v1".to_owned(),
        object: Object {
            kind: gvk.kind.to_string(),
            resource: key.gvr.qualified(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        },
        policy,
        strategy: strategy.to_owned(),
        members,
        warnings,
    };
    match serde_json::to_vec(&told) {
        Ok(body) => Reply { code: StatusCode::OK, warnings: Warnings::default(), body: Bytes::from(body) },
        Err(error) => WriteError::Unwritable(error).into(),
    }
}
