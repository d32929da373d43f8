//! Which policy holds for an object: one that it names, the first that matches it, or the default of its kind.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    config::{
        Bounds, CarriedKind, Chosen, Config, Edit, Failover, KindPattern, Match, MemberName, MemberTaint, MemberTerms,
        OverrideConfig, Picked, PolicyConfig, Rebalance, SpreadLevel, TaintEffect, Unmatched, Weight, Weights,
    },
    placement::{divided::Kinds, visible::VisibleNames},
    view::{CLUSTER_LABEL, FleetSelector},
};
use kubefold_wire::{
    golang::Quoted,
    locate::entries,
    matching::{Taint, Toleration},
    media::is_built_in,
    resource::Gvk,
};

pub use crate::config::Strategy;

/// Annotation by which an object names its policy.
pub const POLICY_KEY: &str = "kubefold.io/placement-policy";
/// Annotation by which an object limits its members: names, or a selector over the members' labels.
pub const PLACE_ON_KEY: &str = "kubefold.io/place-on";

/// Taint of a member that an operator has cordoned.
pub const UNSCHEDULABLE: &str = "kubefold.io/unschedulable";

/// Namespaced kinds of which every member gets a whole part, by group and kind. Of all cluster-scoped built-in kinds but
/// [`ALONE`] every member gets one, too.
const DUPLICATED: &[(&str, &str)] = &[
    ("", "ConfigMap"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("", "Secret"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("apps", "DaemonSet"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
];
/// Kinds that are divided. Autoscalers and budgets have a part in every member all the same.
const DIVIDED: &[(&str, &str)] =
    &[("apps", "Deployment"), ("autoscaling", "HorizontalPodAutoscaler"), ("policy", "PodDisruptionBudget")];
/// Cluster-scoped kinds that are about one cluster's own things.
const ALONE: &[(&str, &str)] = &[
    ("", "Node"),
    ("", "PersistentVolume"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "VolumeAttachment"),
];

/// What decides where objects go: the members' labels and taints, and the policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    members: Vec<MemberRule>,
    policies: Vec<PolicyConfig>,
    overrides: Vec<OverrideConfig>,
    unmatched: Unmatched,
    kinds: Kinds,
    names: VisibleNames,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MemberRule {
    name: MemberName,
    labels: BTreeMap<String, String>,
    taints: Vec<MemberTaint>,
}

/// What a policy is chosen by.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The object's kind.
    pub gvk: &'a Gvk,
    /// Empty if it is cluster-scoped.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its `metadata.labels`, as JSON text.
    pub labels: Option<&'a str>,
    /// Its `metadata.annotations`, as JSON text.
    pub annotations: Option<&'a str>,
    /// Every cluster has it under this name.
    pub shared: bool,
    /// The policy that its marker names: an update has no input annotations.
    pub policy: Option<&'a str>,
}

/// The policy that holds for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name; `None` is the default of the kind.
    pub name: Option<String>,
    /// How parts are made.
    pub strategy: Strategy,
    /// The policy itself says so, and not the default of the kind.
    pub names_strategy: bool,
    /// What shares go by.
    pub weights: Weights,
    /// What holds in each configured member.
    pub terms: BTreeMap<MemberName, Terms>,
    /// How many groups of members it names. The first that can take an object has it.
    pub groups: usize,
    /// How many of the members that could take a part get one; `None`: all.
    pub picked: Option<Picked>,
    /// It goes to the fewest members that can carry it.
    pub fewest: bool,
    /// The labels over whose values it is divided evenly first.
    pub spread: Vec<SpreadLevel>,
    /// As much as fits is placed where not all does.
    pub partial: bool,
    /// What is carried along with a workload.
    pub carry: Vec<CarriedKind>,
    /// Taints of members that it has, besides its pods' own.
    pub tolerations: Vec<Toleration>,
    /// When its objects leave a member that does not answer.
    pub failover: Option<Failover>,
    /// When its objects are divided anew.
    pub rebalance: Option<Rebalance>,
}

/// What a policy says of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Why it gets no part, where the policy or the object leaves it out.
    pub excluded: Option<String>,
    /// The share, in place of the member's own weight.
    pub weight: Option<Weight>,
    /// At least so many.
    pub min: u32,
    /// At most so many.
    pub max: Option<u32>,
    /// In which of the policy's groups of members it is, counted from 0. A member that is in none is excluded.
    pub ranks: Vec<usize>,
    /// Its group, of those that [`Policy::picked`] picks.
    pub group: Option<String>,
    /// Its values of the labels that are spread over.
    pub domains: Vec<String>,
    /// The member's taints.
    pub taints: Vec<Taint>,
    /// How its part differs.
    pub overrides: crate::config::Overrides,
}

/// When objects move without an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Automatic {
    /// How long a member has not answered when some policy has objects leave it.
    pub failovers: BTreeSet<Duration>,
    /// The policies that divide anew.
    pub rebalances: Vec<(String, Rebalance)>,
    /// The taints of members that evict.
    pub evictions: Vec<(MemberName, Taint)>,
}

/// Why no policy can hold. The client's fault: 422.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The object names a policy that is not configured.
    #[error("metadata.annotations[{POLICY_KEY}]: Invalid value: {name}: there is no such policy; {}", known_policies(.known), name = Quoted(.name))]
    NoSuchPolicy {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The object's choice of members is none.
    #[error("metadata.annotations[{PLACE_ON_KEY}]: Invalid value: {text}: {why}", text = Quoted(.text))]
    PlaceOn {
        /// What stands there.
        text: String,
        /// What is wrong with it, and what to write.
        why: String,
    },
    /// No policy selects it, and the configuration refuses what none selects.
    #[error("metadata: Forbidden: no policy selects it, and the configuration says `unmatched: refuse`; have a policy select it, or name one in the annotation {POLICY_KEY}: {}", known_policies(.known))]
    Unmatched {
        /// Those that there are.
        known: Vec<String>,
    },
    /// Every cluster has the object: nothing decides where it goes.
    #[error("metadata.annotations[{0}]: Forbidden: every member has this object")]
    Shared(&'static str),
    /// The policy asks for what the kind cannot do.
    #[error("placement policy {policy} does not fit: {why}", policy = Quoted(.policy))]
    Unfit {
        /// The policy.
        policy: String,
        /// Why the policy does not fit the object.
        why: String,
    },
}

fn known_policies(names: &[String]) -> String {
    if names.is_empty() { "none is configured".to_owned() } else { format!("use one of: {}", names.join(", ")) }
}

impl Policy {
    /// A policy that says nothing but how parts are made.
    pub fn plain(strategy: Strategy) -> Self {
        Self {
            name: None,
            strategy,
            names_strategy: false,
            weights: Weights::Static,
            terms: BTreeMap::new(),
            groups: 1,
            picked: None,
            fewest: false,
            spread: Vec::new(),
            partial: false,
            carry: Vec::new(),
            tolerations: Vec::new(),
            failover: None,
            rebalance: None,
        }
    }

    /// How long an object's pods with these tolerations may stay where a member has that taint. `None`: for good.
    ///
    /// Source: kubernetes `pkg/controller/tainteviction`, `getMinTolerationTime`.
    pub fn tolerates_for(&self, taint: &Taint, pod: &[Toleration]) -> Option<Duration> {
        let matching: Vec<_> = pod.iter().chain(&self.tolerations).filter(|one| one.tolerates(taint)).collect();
        let seconds = matching.iter().filter_map(|one| one.seconds).min();
        match (matching.is_empty(), seconds) {
            (true, _) => Some(Duration::ZERO),
            (false, None) => None,
            (false, Some(seconds)) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
        }
    }

    /// What it says of a member.
    pub fn terms(&self, member: &MemberName) -> Terms {
        self.terms.get(member).cloned().unwrap_or_default()
    }
}

impl Rules {
    /// Takes what the configuration says about placement.
    pub fn new(config: &Config) -> Self {
        let member = |member: &crate::config::MemberConfig| MemberRule {
            name: member.name.clone(),
            labels: member.labels.clone(),
            taints: member.taints.clone(),
        };
        Self {
            members: config.members.iter().map(member).collect(),
            policies: config.policies.clone(),
            overrides: config.overrides.clone(),
            unmatched: config.unmatched,
            kinds: Kinds::of(config),
            names: VisibleNames::new(config),
        }
    }

    /// How member-local objects are named.
    pub fn names(&self) -> &VisibleNames {
        &self.names
    }

    /// What is divided of which kinds.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Taints the members that an operator has cordoned.
    #[must_use]
    pub fn cordoned(mut self, cordoned: &BTreeSet<MemberName>) -> Self {
        for member in self.members.iter_mut().filter(|member| cordoned.contains(&member.name)) {
            let (key, effect) = (UNSCHEDULABLE.to_owned(), TaintEffect::NoSchedule);
            member.taints.push(MemberTaint { key, value: String::new(), effect });
        }
        self
    }

    /// The policy that holds for an object.
    ///
    /// Errors: it names a policy or members that there are not, or the policy asks for what the kind cannot do.
    pub fn rule_for(&self, subject: &Subject<'_>) -> Result<Policy, PolicyError> {
        let named = subject.annotations.and_then(|map| text_of(map, POLICY_KEY));
        let place_on = subject.annotations.and_then(|map| text_of(map, PLACE_ON_KEY));
        if subject.shared {
            let given = [(&named, POLICY_KEY), (&place_on, PLACE_ON_KEY)].into_iter().find(|(text, _)| text.is_some());
            return match given {
                Some((_, key)) => Err(PolicyError::Shared(key)),
                None => Ok(Policy::plain(Strategy::Duplicate)),
            };
        }
        let config = self.chosen(subject, named)?;
        let overriding = self.overriding(subject);
        let place_on = place_on.map(|text| self.members_of(&text).map(|chosen| (chosen, text))).transpose()?;
        let mut policy = Policy::plain(default_strategy(subject));
        if let Some(config) = config {
            policy.name = Some(config.name.clone());
            policy.strategy = config.strategy.unwrap_or(policy.strategy);
            policy.names_strategy = config.strategy.is_some();
            policy.weights = config.weights;
            policy.groups = config.groups.len();
            policy.picked.clone_from(&config.picked);
            policy.fewest = config.fewest;
            policy.spread.clone_from(&config.spread);
            policy.partial = config.partial;
            policy.carry.clone_from(&config.carry);
            policy.tolerations = config.tolerations.iter().map(toleration).collect();
            (policy.failover, policy.rebalance) = (config.failover, config.rebalance);
            if let Some(why) = config.strategy.and_then(|strategy| self.unfit(strategy, subject)) {
                return Err(PolicyError::Unfit { policy: config.name.clone(), why });
            }
        }
        for member in &self.members {
            let mut terms = member.terms(config);
            if let Some((_, text)) = place_on.as_ref().filter(|(chosen, _)| !holds(chosen, member)) {
                terms.excluded.get_or_insert_with(|| format!("the object is to be placed on {text}"));
            }
            terms.overrides.edits.extend(overriding.iter().flat_map(|config| config.edits(member)));
            policy.terms.insert(member.name.clone(), terms);
        }
        Ok(policy)
    }

    /// The name of the policy that holds for an object. `None`: its kind decides.
    pub fn policy_of(&self, subject: &Subject<'_>) -> Option<&str> {
        let named = subject.annotations.and_then(|map| text_of(map, POLICY_KEY));
        let chosen = self.chosen(subject, named).ok()??;
        Some(&chosen.name)
    }

    /// The policy that the object names, or else the first that matches. Of several entries of one name the one that matches counts.
    fn chosen(&self, subject: &Subject<'_>, named: Option<String>) -> Result<Option<&PolicyConfig>, PolicyError> {
        let matching = |policy: &&PolicyConfig| policy.matches.as_ref().is_some_and(|rule| matches(rule, subject));
        let entry = |name: &str| {
            let mut entries = self.policies.iter().filter(|policy| policy.name == name).peekable();
            let first = entries.peek().copied();
            entries.find(matching).or(first)
        };
        if let Some(name) = named {
            let found = entry(&name);
            let known = || self.names_of_policies().map(str::to_owned).collect();
            return found.map(Some).ok_or_else(|| PolicyError::NoSuchPolicy { name, known: known() });
        }
        // One that a marker names may be gone from the configuration by now.
        let marked = subject.policy.and_then(entry);
        Ok(marked.or_else(|| self.policies.iter().find(matching)))
    }

    /// Each once.
    fn names_of_policies(&self) -> impl Iterator<Item = &str> {
        let names = self.policies.iter().map(|policy| policy.name.as_str());
        names.collect::<BTreeSet<_>>().into_iter()
    }

    /// What makes the parts of an object different beside its policy, in the order in which it applies: what names objects more
    /// precisely comes later.
    fn overriding(&self, subject: &Subject<'_>) -> Vec<&OverrideConfig> {
        let precision = |config: &OverrideConfig| {
            let matching = config.matches.iter().filter(|rule| matches(rule, subject));
            matching.map(Match::precision).max()
        };
        let matching = self.overrides.iter().filter_map(|config| Some((precision(config)?, config)));
        let mut matching: Vec<_> = matching.collect();
        matching.sort_by_key(|(precision, config)| (config.is_namespaced, *precision, &config.name));
        matching.into_iter().map(|(_, config)| config).collect()
    }

    /// Refuses a new object that no policy selects, where the configuration says so.
    ///
    /// Errors: [`PolicyError::Unmatched`].
    pub fn admit(&self, policy: &Policy) -> Result<(), PolicyError> {
        if self.unmatched == Unmatched::Default || policy.name.is_some() {
            return Ok(());
        }
        Err(PolicyError::Unmatched { known: self.names_of_policies().map(str::to_owned).collect() })
    }

    /// Why a kind cannot be placed so.
    fn unfit(&self, strategy: Strategy, subject: &Subject<'_>) -> Option<String> {
        let is_declared = self.kinds.declared(subject.gvk).is_some();
        crate::config::unfit(strategy, Some(&subject.gvk.group), &subject.gvk.kind, is_declared)
    }

    /// Says whether a policy of that name is configured.
    pub fn has_policy(&self, name: &str) -> bool {
        self.policies.iter().any(|policy| policy.name == name)
    }

    /// When objects move without an order.
    pub fn automatic(&self) -> Automatic {
        let no_execute = |member: &MemberRule| {
            let evicts = member.taints.iter().filter(|taint| taint.effect == TaintEffect::NoExecute);
            evicts.map(|taint| (member.name.clone(), of_member(taint))).collect::<Vec<_>>()
        };
        Automatic {
            failovers: self.policies.iter().filter_map(|policy| Some(policy.failover?.after)).collect(),
            rebalances: self
                .policies
                .iter()
                .filter_map(|policy| Some((policy.name.clone(), policy.rebalance?)))
                .collect(),
            evictions: self.members.iter().flat_map(no_execute).collect(),
        }
    }

    /// Reads `kubefold.io/place-on`.
    fn members_of(&self, text: &str) -> Result<Chosen, PolicyError> {
        let wrong = |why: String| PolicyError::PlaceOn { text: text.to_owned(), why };
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        let names: Option<Vec<_>> = words.iter().map(|word| MemberName::new(word)).collect();
        let all = || self.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
        if let Some(names) = names {
            let stranger = names.iter().find(|name| !self.members.iter().any(|member| member.name == **name));
            return match stranger {
                Some(name) => {
                    Err(wrong(format!("there is no member {}; the members are {}", Quoted(name.as_str()), all())))
                }
                None => Ok(Chosen::Named(names)),
            };
        }
        let selector = FleetSelector::parse(text, |_| false);
        let selector = selector.map_err(|error| {
            wrong(format!("write members ({}) or a selector over their labels (region in (eu,us)): {error}", all()))
        })?;
        if selector.is_everything() {
            return Err(wrong(format!("write members ({}) or a selector over their labels", all())));
        }
        Ok(Chosen::Selected(Box::new(selector), text.to_owned()))
    }
}

fn holds(chosen: &Chosen, member: &MemberRule) -> bool {
    match chosen {
        Chosen::All => true,
        Chosen::Named(names) => names.contains(&member.name),
        Chosen::Selected(selector, _) => {
            let labels = serde_json::to_string(&member.labels).unwrap_or_default();
            selector.matches(Some(&labels), &[member.name.as_str()])
        }
    }
}

impl OverrideConfig {
    /// What it changes of a part in a member.
    fn edits<'c>(&'c self, member: &'c MemberRule) -> impl Iterator<Item = Edit> + 'c {
        let here = self.rules.iter().filter(|rule| holds(&rule.members, member));
        here.flat_map(|rule| &rule.alterations).map(|what| Edit { by: self.name.clone(), what: what.clone() })
    }
}

impl MemberRule {
    fn terms(&self, policy: Option<&PolicyConfig>) -> Terms {
        let taints = self.taints.iter().map(of_member).collect();
        let Some(policy) = policy else { return Terms { taints, ..Terms::default() } };
        let none = MemberTerms::default();
        let own = policy.per_member.get(&self.name).unwrap_or(&none);
        let ranks = policy.groups.iter().enumerate().filter(|(_, group)| holds(group, self));
        let most = if policy.overlapping { policy.groups.len() } else { 1 };
        let ranks: Vec<usize> = ranks.map(|(rank, _)| rank).take(most).collect();
        let domain = |level: &SpreadLevel| match level.label.as_str() {
            CLUSTER_LABEL => Some(self.name.to_string()),
            label => self.labels.get(label).cloned(),
        };
        let grouping = policy.picked.as_ref().and_then(|picked| picked.groups.as_ref());
        let excluded = if ranks.is_empty() {
            Some(format!("policy {} does not place there", policy.name))
        } else {
            let lacking = policy.spread.iter().chain(grouping).find(|level| domain(level).is_none());
            lacking.map(|SpreadLevel { label, .. }| {
                format!("it has no label {label}, over which policy {} spreads", policy.name)
            })
        };
        let Bounds { min, max } = own.bounds;
        Terms {
            excluded,
            weight: own.weight,
            min: min.or(policy.each.min).unwrap_or(0),
            max: max.or(policy.each.max),
            ranks,
            group: grouping.and_then(domain),
            domains: policy.spread.iter().filter_map(domain).collect(),
            taints,
            overrides: own.overrides.clone(),
        }
    }
}

fn of_member(taint: &MemberTaint) -> Taint {
    Taint { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect.as_str().to_owned() }
}

fn toleration(config: &crate::config::MemberToleration) -> Toleration {
    let operator = if config.value.is_some() { "Equal" } else { "Exists" };
    Toleration {
        key: config.key.clone().unwrap_or_default(),
        operator: operator.to_owned(),
        value: config.value.clone().unwrap_or_default(),
        effect: config.effect.map(TaintEffect::as_str).unwrap_or_default().to_owned(),
        seconds: config.seconds,
    }
}

/// How a kind is placed that no policy speaks of.
fn default_strategy(subject: &Subject<'_>) -> Strategy {
    let kind = (&*subject.gvk.group, &*subject.gvk.kind);
    let everywhere = subject.namespace.is_empty() && is_built_in(kind.0) && !ALONE.contains(&kind);
    if DIVIDED.contains(&kind) {
        Strategy::Divide
    } else if everywhere || DUPLICATED.contains(&kind) {
        Strategy::Duplicate
    } else {
        Strategy::One
    }
}

fn matches(rule: &Match, subject: &Subject<'_>) -> bool {
    let kind = |pattern: &KindPattern| pattern.matches(&subject.gvk.group, &subject.gvk.kind);
    let namespace = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => !subject.namespace.is_empty() && subject.namespace.starts_with(prefix),
        None => subject.namespace == pattern,
    };
    let annotation = |(key, value): (&String, &String)| {
        subject.annotations.and_then(|map| text_of(map, key)).as_ref() == Some(value)
    };
    (rule.kinds.is_empty() || rule.kinds.iter().any(kind))
        && (rule.names.is_empty() || rule.names.iter().any(|name| name == subject.name))
        && (rule.namespaces.is_empty() || rule.namespaces.iter().any(namespace))
        && rule.labels.as_ref().is_none_or(|selector| selector.matches(subject.labels, &[]))
        && rule.annotations.iter().all(annotation)
}

/// What an object's annotations limit its members to.
pub fn place_on(annotations_json: &str) -> Option<String> {
    text_of(annotations_json, PLACE_ON_KEY)
}

/// One value of a string map.
fn text_of(map: &str, key: &str) -> Option<String> {
    entries(map).ok()?.into_iter().rev().find(|entry| entry.name == key)?.text()
}

#[cfg(test)]
mod tests;
