//! ConfigMaps and Secrets that only one member has, carried along with the workload whose pods name them: by policy.
//!
//! Before a part of a workload is made, what its pods name becomes a placed object, and gets parts in the members that lack it.
//! The caller must be allowed to read it where it is and to create it where it comes to: both are asked in his name. What
//! cannot be carried is a warning and no refusal, since a kube-apiserver takes a workload whose Secret does not exist, too.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    config::MemberName,
    member::call::{Answer, Call},
    placement::{
        carried::{Named, copy, is_made_by_every_cluster, named, never},
        plan::Candidate,
        policy::{Policy, Strategy, Subject},
    },
    write::{
        Writer,
        fleet::{Ask, Fleet, Key, Measure},
        journal::{Entry, EntryTarget, Verb},
        steps::{Outcome, Seen},
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{golang::Quoted, warning::Warnings};

/// How long an answer waits for what is carried.
const CARRIED_WITHIN: Duration = Duration::from_secs(20);
/// Between two looks for it.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A workload that is about to be written.
pub(super) struct Workload<'a> {
    pub(super) key: &'a Key,
    pub(super) document: &'a Value,
    /// What holds for it.
    pub(super) policy: Option<&'a Policy>,
    /// Who writes.
    pub(super) caller: &'a Caller,
    /// The members that have, or are to have, a part of it.
    pub(super) members: Vec<MemberName>,
}

/// What is to be carried, and what the client should know.
#[derive(Default)]
pub(super) struct Cargo {
    items: Vec<Item>,
    warnings: Vec<String>,
}

/// One object that is to be carried.
struct Item {
    key: Key,
    /// The member whose own it is still; `None`: it is placed already.
    of: Option<MemberName>,
    to: Vec<MemberName>,
}

impl Cargo {
    /// Warns of what cannot be carried, and tells what would be.
    pub(super) fn announce(self, mut warn: impl FnMut(&str)) {
        self.warnings.iter().for_each(|warning| warn(warning));
        for Item { key, of, to } in self.items {
            let from = of.map(|member| format!(" from member {member}")).unwrap_or_default();
            warn(&format!("{key} would be carried along{from} to {}", members(&to)));
        }
    }
}

impl<F: Fleet> Writer<F> {
    /// The policy that holds for an object that exists, as it is shown; `named` is what its marker has. One that is gone from the
    /// configuration, or does not fit any more, says nothing.
    pub(super) fn policy_of(&self, key: &Key, shown: &Value, shared: bool, named: Option<&str>) -> Option<Policy> {
        let text = |map: &str| shown.pointer(map).map(Value::to_string);
        let (labels, annotations) = (text("/metadata/labels"), text("/metadata/annotations"));
        let subject = Subject {
            gvk: &key.gvk,
            namespace: &key.namespace,
            name: &key.name,
            labels: labels.as_deref(),
            annotations: annotations.as_deref(),
            shared,
            policy: named,
        };
        self.fleet.rules().rule_for(&subject).ok()
    }

    /// Finds what is to be carried along with a workload. Changes nothing.
    pub(super) async fn cargo(&self, workload: Workload<'_>) -> Cargo {
        let mut cargo = Cargo::default();
        let all = carried_kinds(workload.key, workload.document, workload.policy);
        if all.is_empty() {
            return cargo;
        }
        let up = self.fleet.up().into_iter();
        let members: Vec<_> = up.filter(|member| workload.members.contains(member)).collect();
        for named in all {
            match self.item(&workload, &members, &named).await {
                Ok(item) => cargo.items.extend(item),
                Err(NotCarried(why)) => cargo.warnings.push(why),
            }
        }
        cargo
    }

    /// What is to be done about one object that the pods name; `None`: nothing.
    async fn item(
        &self,
        workload: &Workload<'_>,
        members: &[MemberName],
        named: &Named,
    ) -> Result<Option<Item>, NotCarried> {
        let key = key_of(workload.key, named);
        if self.fleet.shared_uid(&key).is_some() || is_made_by_every_cluster(named.kind, &named.name) {
            return Ok(None);
        }
        let ask = Ask { key: &key, owners: &[], pods: None, claims: &[], measure: Measure::Nothing };
        let facts = self.fleet.facts(ask).await;
        if let Some(why) = facts.candidates.iter().filter(|one| !one.absent).find_map(Candidate::unknown) {
            return Err(not_carried(&key, format!("it is not known yet who has it: member {why}")));
        }
        let parts: Vec<MemberName> = self.fleet.parts(&key).into_iter().map(|part| part.member).collect();
        let has_own = |member: &&MemberName| self.fleet.member_local(&key, member).is_some();
        let to: Vec<_> = members.iter().filter(|member| !parts.contains(member) && !has_own(member)).cloned().collect();
        if to.is_empty() {
            return Ok(None);
        }
        let is_placed = !parts.is_empty();
        // Parts are made of what the home has.
        let holders: Vec<MemberName> = match parts.into_iter().next() {
            Some(home) => vec![home],
            None => self.fleet.members().into_iter().filter(|member| has_own(&member)).collect(),
        };
        let Some((from, document)) = self.readable(&key, workload.caller, &holders).await? else {
            return if named.optional { Ok(None) } else { Err(nobody_shows(&key, workload.caller)) };
        };
        if let Some(why) = never(named.kind, &named.name, &document) {
            return Err(not_carried(&key, why));
        }
        let policy = self.policy_of(&key, &document, false, None);
        for member in &to {
            let excluded = match &policy {
                Some(policy) if policy.strategy == Strategy::Duplicate => policy.terms(member).excluded,
                Some(_) | None => Some("its own policy has it in one member".to_owned()),
            };
            if let Some(why) = excluded {
                return Err(not_carried(&key, format!("member {member}: {why}")));
            }
            self.may_create(&key, workload.caller, member, &document).await?;
        }
        Ok(Some(Item { key, of: (!is_placed).then_some(from), to }))
    }

    /// The object as the caller may read it, and where. `None`: it is nowhere, or not for him.
    ///
    /// Errors: several members have one of their own, and he may read each.
    async fn readable(
        &self,
        key: &Key,
        caller: &Caller,
        holders: &[MemberName],
    ) -> Result<Option<(MemberName, Value)>, NotCarried> {
        let mut read = Vec::new();
        for member in holders {
            read.extend(self.read_as(key, caller, member).await.map(|document| (member.clone(), document)));
        }
        match holders {
            // Whoever may not read one of them is not told of it.
            _ if read.len() < holders.len() => Ok(None),
            [_, _, ..] => {
                let why = format!("{} have one of their own each; kubefold adopt makes them one", members(holders));
                Err(not_carried(key, why))
            }
            _ => Ok(read.pop()),
        }
    }

    async fn read_as(&self, key: &Key, caller: &Caller, member: &MemberName) -> Option<Value> {
        let call = Call {
            method: Method::GET,
            path: key.object(),
            query: String::new(),
            body: bytes::Bytes::new(),
            content_type: String::new(),
            user_agent: None,
        };
        let Answer::Answered { code: StatusCode::OK, body, .. } = self.fleet.call(member, caller, call).await else {
            return None;
        };
        serde_json::from_slice(&body)
            .ok()
            .filter(|document: &Value| document.pointer("/metadata/deletionTimestamp").is_none())
    }

    /// That the caller may create the object in a member, by a dry run in his name.
    async fn may_create(
        &self,
        key: &Key,
        caller: &Caller,
        member: &MemberName,
        document: &Value,
    ) -> Result<(), NotCarried> {
        let body = copy(document).to_string();
        let entry =
            Entry { body, shared: true, ..Entry::new(Verb::Create, key.clone(), String::new(), caller.clone()) };
        let target = EntryTarget::new(member.clone(), self.fleet.cluster_uid(member).unwrap_or_default());
        let why = match self.make(&entry, &target, true, &mut Warnings::default()).await {
            Outcome::Done { .. } => return Ok(()),
            Outcome::Refused { code, body } => Seen::of(&body).message.unwrap_or_else(|| format!("it answered {code}")),
            Outcome::NotSent(cause) | Outcome::Unknown(cause) => cause,
        };
        Err(not_carried(key, format!("member {member}: {why}")))
    }

    /// Carries what was found, and warns of what could not be. What a kill leaves undone, the next write of the workload does.
    pub(super) async fn carry(self: &Arc<Self>, cargo: Cargo, caller: &Caller, warnings: &mut Warnings) {
        cargo.warnings.iter().for_each(|warning| warnings.add(warning));
        for item in cargo.items {
            let Item { key, of, to } = &item;
            match self.carry_one(&item, caller).await {
                Ok(()) => {
                    let from =
                        of.iter().map(|member| format!(" of member {member} is one object of the fleet now, and"));
                    let from: String = from.collect();
                    warnings.add(&format!("{key}{from} was carried along to {}", members(to)));
                }
                Err(NotCarried(why)) => warnings.add(&why),
            }
        }
    }

    async fn carry_one(self: &Arc<Self>, item: &Item, caller: &Caller) -> Result<(), NotCarried> {
        let Item { key, of, to } = item;
        if let Some(member) = of {
            self.adopt_carried(key, member).await.map_err(|why| not_carried(key, why.to_string()))?;
        }
        let deadline = Instant::now() + CARRIED_WITHIN;
        loop {
            let moving = self.extend_carried(key, to, Some(caller)).await;
            match moving.map_err(|why| not_carried(key, why.to_string()))? {
                None => return Ok(()),
                Some(problem) if Instant::now() >= deadline => return Err(not_carried(key, problem)),
                Some(_) => sleep(AGAIN_AFTER).await,
            }
        }
    }
}

/// Why an object is not carried: one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotCarried(String);

fn not_carried(key: &Key, why: impl std::fmt::Display) -> NotCarried {
    NotCarried(format!("{key}, which the pods name, is not carried along: {why}"))
}

/// Whoever may not read an object is not told whether it exists.
fn nobody_shows(key: &Key, caller: &Caller) -> NotCarried {
    let user = Quoted(&caller.user);
    not_carried(key, format!("no member that answers and lets user {user} get it has one"))
}

/// What the pods of a workload name, of the kinds that its policy has carried.
pub(super) fn carried_kinds(key: &Key, document: &Value, policy: Option<&Policy>) -> Vec<Named> {
    let Some(policy) = policy.filter(|policy| !policy.carry.is_empty()) else { return Vec::new() };
    let mut all = named(&key.gvk.group, &key.gvk.kind, document);
    all.retain(|named| policy.carry.contains(&named.kind));
    all
}

/// The object that the pods of a workload name.
pub(super) fn key_of(workload: &Key, named: &Named) -> Key {
    let (gvr, gvk) = (named.kind.gvr(), named.kind.gvk());
    Key { gvr, gvk, namespace: workload.namespace.clone(), name: named.name.clone() }
}

/// `member east`, `members east, west`.
fn members(names: &[MemberName]) -> String {
    let names: Vec<&str> = names.iter().map(MemberName::as_str).collect();
    format!("member{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}
