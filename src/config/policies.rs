//! `policies` of `clusters.yaml`, and `taints` of members: from what is written to [`PolicyConfig`].

mod moving;
mod spec;
mod taints;

use std::collections::{BTreeMap, HashMap};

use serde_saphyr::Spanned;

pub use self::spec::{PolicySpec, SpecError, policy_of};
pub(super) use self::taints::taints;

use crate::{
    config::{
        Bounds, Chosen, KindConfig, KindPattern, Match, MemberConfig, MemberName, MemberTerms, Overrides, PolicyConfig,
        PolicyProblem, Problem, Strategy, Weights,
        carried::carried,
        checked::{Checked, Fault, fault, kind_name, weight},
        raw::{RawGroup, RawMatch, RawPolicy, RawTerms},
        spread::spread,
        unfit,
    },
    view::FleetSelector,
};
use kubefold_wire::names::is_dns_label;

/// More policies than this nobody reads.
const POLICIES_MAX: usize = 256;
/// As large as `spec.replicas` may be.
const PART_MAX: u32 = i32::MAX.unsigned_abs();

/// What policies may name.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) members: &'a [MemberConfig],
    /// Kinds that can be divided, beside Kubernetes' own.
    pub(super) kinds: &'a [KindConfig],
}

/// Reads all policies.
pub(super) fn policies(raw: &[Spanned<RawPolicy>], known: Known<'_>) -> Result<Vec<PolicyConfig>, PolicyFault> {
    if let Some(above) = raw.get(POLICIES_MAX) {
        let problem = PolicyProblem::TooMany { count: raw.len(), max: POLICIES_MAX };
        return refuse(above, problem).map_err(|fault| PolicyFault { name: above.value.name.value.clone(), fault });
    }
    let mut seen = HashMap::new();
    let one = |entry: &Spanned<RawPolicy>| {
        policy(&entry.value, known, &mut seen)
            .map_err(|fault| PolicyFault { name: entry.value.name.value.clone(), fault })
    };
    raw.iter().map(one).collect()
}

/// What is wrong, and with which policy.
pub(super) struct PolicyFault {
    pub(super) name: String,
    pub(super) fault: Fault,
}

fn refuse<T, V>(at: &Spanned<V>, problem: PolicyProblem) -> Checked<T> {
    fault(at, Problem::Policy(problem))
}

fn policy(raw: &RawPolicy, known: Known<'_>, seen: &mut HashMap<String, u64>) -> Checked<PolicyConfig> {
    if MemberName::new(&raw.name.value).is_none() {
        return fault(&raw.name, Problem::InvalidName { name: raw.name.value.clone() });
    }
    if let Some(first) = seen.insert(raw.name.value.clone(), raw.name.referenced.line()) {
        return refuse(&raw.name, PolicyProblem::Duplicate { first });
    }
    let strategy = raw.strategy.as_ref().map(strategy).transpose()?;
    let matches = raw.matches.as_ref().map(|at| matching(at, strategy, known.kinds)).transpose()?;
    let weights = weights(raw)?;
    only_divided(raw, strategy)?;
    let each = bounds(raw.min.as_ref(), raw.max.as_ref(), Bounds::default())?;
    let mut per_member = BTreeMap::new();
    for (name, at) in &raw.per_member {
        let member = member_of(at, name, known.members)?;
        per_member.insert(member, terms(&at.value, each, weights)?);
    }
    Ok(PolicyConfig {
        name: raw.name.value.clone(),
        matches,
        strategy,
        groups: groups(raw, known.members)?,
        overlapping: false,
        weights,
        each,
        per_member,
        spread: spread(raw.spread.as_ref())?,
        picked: None,
        fewest: fewest(raw, weights)?,
        partial: raw.partial.as_ref().is_some_and(|at| at.value),
        carry: carried(&raw.carry)?,
        tolerations: raw.tolerations.iter().map(taints::toleration).collect::<Checked<_>>()?,
        failover: raw.failover.as_ref().map(moving::failover).transpose()?,
        rebalance: raw.rebalance.as_ref().map(moving::rebalance).transpose()?,
    })
}

fn strategy(at: &Spanned<String>) -> Checked<Strategy> {
    match at.value.as_str() {
        "duplicate" => Ok(Strategy::Duplicate),
        "divide" => Ok(Strategy::Divide),
        "one" => Ok(Strategy::One),
        other => refuse(at, PolicyProblem::UnknownStrategy { strategy: other.to_owned() }),
    }
}

/// Refuses what has a meaning only where an object is divided.
fn only_divided(raw: &RawPolicy, strategy: Option<Strategy>) -> Checked<()> {
    let Some(other) = strategy.filter(|strategy| *strategy != Strategy::Divide) else { return Ok(()) };
    let strategy = if other == Strategy::One { "one" } else { "duplicate" };
    let numbers = [("min", &raw.min), ("max", &raw.max)];
    let words = [("weights", &raw.weights), ("prefer", &raw.prefer)];
    if let Some((field, Some(at))) = numbers.into_iter().find(|(_, at)| at.is_some()) {
        return refuse(at, PolicyProblem::OnlyDivided { field, strategy });
    }
    if let Some((field, Some(at))) = words.into_iter().find(|(_, at)| at.is_some()) {
        return refuse(at, PolicyProblem::OnlyDivided { field, strategy });
    }
    if let Some(at) = &raw.spread {
        return refuse(at, PolicyProblem::OnlyDivided { field: "spread", strategy });
    }
    for at in raw.per_member.values() {
        for (field, number) in [("min", &at.value.min), ("max", &at.value.max), ("weight", &at.value.weight)] {
            // A weight of 0 also says that a member is no good place for single objects.
            if let Some(number) = number.as_ref().filter(|_| field != "weight" || other == Strategy::Duplicate) {
                return refuse(number, PolicyProblem::OnlyDivided { field, strategy });
            }
        }
    }
    match &raw.partial {
        Some(at) if at.value => refuse(at, PolicyProblem::OnlyDivided { field: "partial", strategy }),
        Some(_) | None => Ok(()),
    }
}

fn matching(at: &Spanned<RawMatch>, strategy: Option<Strategy>, kinds: &[KindConfig]) -> Checked<Match> {
    let raw = &at.value;
    if raw.kinds.is_empty() && raw.namespaces.is_empty() && raw.labels.is_none() && raw.annotations.is_empty() {
        return refuse(at, PolicyProblem::EmptyMatch);
    }
    let kinds = raw.kinds.iter().map(|kind| kind_pattern(kind, strategy, kinds)).collect::<Checked<Vec<_>>>()?;
    if let Some(wrong) = raw.namespaces.iter().find(|namespace| !is_namespace_pattern(&namespace.value)) {
        return refuse(wrong, PolicyProblem::Namespace { namespace: wrong.value.clone() });
    }
    Ok(Match {
        kinds,
        namespaces: raw.namespaces.iter().map(|at| at.value.clone()).collect(),
        names: Vec::new(),
        labels: raw.labels.as_ref().map(|at| selector("labels", at)).transpose()?,
        annotations: raw.annotations.clone(),
    })
}

fn is_namespace_pattern(text: &str) -> bool {
    let fixed = text.strip_suffix('*').unwrap_or(text);
    fixed.is_empty() && text == "*" || is_dns_label(fixed.trim_end_matches('-')) && fixed.len() <= 63
}

fn kind_pattern(at: &Spanned<String>, strategy: Option<Strategy>, kinds: &[KindConfig]) -> Checked<KindPattern> {
    let Some((kind, group)) = kind_name(&at.value) else {
        return refuse(at, PolicyProblem::Kind { kind: at.value.clone() });
    };
    let is_declared = kinds.iter().any(|known| known.kind == kind && group == Some(&known.group));
    if let Some(why) = strategy.and_then(|strategy| unfit(strategy, group, kind, is_declared)) {
        return refuse(at, PolicyProblem::Unfit { why });
    }
    Ok(KindPattern { kind: kind.to_owned(), group: group.map(str::to_owned) })
}

/// A label selector that selects less than everything.
pub(super) fn selector(field: &'static str, at: &Spanned<String>) -> Checked<FleetSelector> {
    match FleetSelector::parse(&at.value, |_| false) {
        Ok(selector) if selector.is_everything() => fault(at, Problem::Empty { field }),
        Ok(selector) => Ok(selector),
        Err(error) => refuse(at, PolicyProblem::Selector { field, text: at.value.clone(), cause: error.to_string() }),
    }
}

/// The groups of members that objects may go to, in the order of preference.
fn groups(raw: &RawPolicy, members: &[MemberConfig]) -> Checked<Vec<Chosen>> {
    let Some(at) = &raw.groups else {
        let all = chosen(raw.members.as_ref(), raw.member_selector.as_ref(), members)?;
        return Ok(vec![all.unwrap_or_default()]);
    };
    if let Some(names) = &raw.members {
        return fault(names, Problem::Exclusive { one: "groups", other: "members" });
    }
    if let Some(selector) = &raw.member_selector {
        return fault(selector, Problem::Exclusive { one: "groups", other: "memberSelector" });
    }
    if at.value.is_empty() {
        return fault(at, Problem::Empty { field: "groups" });
    }
    let group =
        |at: &Spanned<RawGroup>| match chosen(at.value.members.as_ref(), at.value.member_selector.as_ref(), members)? {
            Some(chosen) => Ok(chosen),
            None => refuse(at, PolicyProblem::EmptyGroup),
        };
    at.value.iter().map(group).collect()
}

/// `None` where neither is given.
fn chosen(
    names: Option<&Spanned<Vec<Spanned<String>>>>,
    labelled: Option<&Spanned<String>>,
    members: &[MemberConfig],
) -> Checked<Option<Chosen>> {
    match (names, labelled) {
        (Some(_), Some(at)) => fault(at, Problem::Exclusive { one: "members", other: "memberSelector" }),
        (Some(at), None) if at.value.is_empty() => fault(at, Problem::Empty { field: "members" }),
        (Some(at), None) => {
            let names = at.value.iter().map(|name| member_of(name, &name.value, members));
            names.collect::<Checked<_>>().map(|names| Some(Chosen::Named(names)))
        }
        (None, Some(at)) => Ok(Some(Chosen::Selected(Box::new(selector("memberSelector", at)?), at.value.clone()))),
        (None, None) => Ok(None),
    }
}

/// Whether objects go to the fewest members.
fn fewest(raw: &RawPolicy, weights: Weights) -> Checked<bool> {
    let Some(at) = &raw.prefer else { return Ok(false) };
    match (at.value.as_str(), &raw.spread) {
        ("all", _) => Ok(false),
        ("fewest", Some(spread)) => fault(spread, Problem::Exclusive { one: "spread", other: "prefer: fewest" }),
        ("fewest", None) if weights.are_measured() => Ok(true),
        ("fewest", None) => fault(at, Problem::FieldWithout { field: "prefer: fewest", needs: "weights: capacity" }),
        (other, _) => refuse(at, PolicyProblem::UnknownPrefer { prefer: other.to_owned() }),
    }
}

fn member_of<V>(at: &Spanned<V>, name: &str, members: &[MemberConfig]) -> Checked<MemberName> {
    let found = members.iter().find(|member| member.name.as_str() == name);
    let known = || members.iter().map(|member| member.name.to_string()).collect();
    let Some(member) = found else {
        return fault(at, Problem::UnknownMember { member: name.to_owned(), known: known() });
    };
    Ok(member.name.clone())
}

fn weights(raw: &RawPolicy) -> Checked<Weights> {
    let Some(at) = &raw.weights else { return Ok(Weights::Static) };
    match at.value.as_str() {
        "static" => Ok(Weights::Static),
        "capacity" => Ok(Weights::Capacity),
        "use" => Ok(Weights::Use),
        other => refuse(at, PolicyProblem::UnknownWeights { weights: other.to_owned() }),
    }
}

fn bounds(min: Option<&Spanned<i64>>, max: Option<&Spanned<i64>>, outer: Bounds) -> Checked<Bounds> {
    let number = |field: &'static str, at: Option<&Spanned<i64>>| match at {
        None => Ok(None),
        Some(at) => match u32::try_from(at.value) {
            Ok(number) if number <= PART_MAX => Ok(Some(number)),
            Ok(_) | Err(_) => refuse(at, PolicyProblem::Number { field, value: at.value, max: PART_MAX }),
        },
    };
    let bounds = Bounds { min: number("min", min)?, max: number("max", max)? };
    let (least, most) = (bounds.min.or(outer.min).unwrap_or(0), bounds.max.or(outer.max).unwrap_or(PART_MAX));
    match min.or(max).filter(|_| least > most) {
        Some(at) => refuse(at, PolicyProblem::MinAboveMax { min: least, max: most }),
        None => Ok(bounds),
    }
}

fn terms(raw: &RawTerms, each: Bounds, weights: Weights) -> Checked<MemberTerms> {
    if let Some(at) = raw.weight.as_ref().filter(|_| weights.are_measured()) {
        return refuse(at, PolicyProblem::WeightByCapacity);
    }
    let registry = match &raw.registry {
        Some(at) if !is_registry(&at.value) => {
            return refuse(at, PolicyProblem::Registry { registry: at.value.clone() });
        }
        other => other.as_ref().map(|at| at.value.clone()),
    };
    let patch = match &raw.patch {
        None => None,
        Some(at) => match serde_json::from_value(at.value.clone()) {
            Ok(patch) => Some(patch),
            Err(error) => return refuse(at, PolicyProblem::Patch { cause: error.to_string() }),
        },
    };
    Ok(MemberTerms {
        weight: raw.weight.as_ref().map(|at| weight(Some(at))).transpose()?,
        bounds: bounds(raw.min.as_ref(), raw.max.as_ref(), each)?,
        overrides: Overrides { patch, registry, edits: Vec::new() },
    })
}

/// A host, perhaps with a port and a path: what may stand before an image's name.
///
/// Source: distribution/reference `regexp.go`.
fn is_registry(text: &str) -> bool {
    let (host, path) = text.split_once('/').map_or((text, None), |(host, path)| (host, Some(path)));
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let label = |label: &str| MemberName::new(&label.to_ascii_lowercase()).is_some();
    let word = |word: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        edge(word.as_bytes().first()) && edge(word.as_bytes().last()) && word.bytes().all(inner)
    };
    name.split('.').all(label)
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
        && path.is_none_or(|path| path.split('/').all(word))
}

#[cfg(test)]
mod tests;
