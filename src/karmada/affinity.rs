//! Which members an affinity means, and which objects a selector.

use crate::{
    config::{KindPattern, Match, MemberConfig, MemberName},
    karmada::{
        Findings, Fleet,
        selectors::{ClusterAffinity, FieldSelector, LabelSelector, Metadata, ResourceSelector},
    },
    view::FleetSelector,
};
use kubefold_wire::{
    invalid::Path,
    matching::{Printed, selector_text},
    resource::split_api_version,
};

/// The labels of members that stand for fields of Karmada's clusters.
const FIELDS: [&str; 3] = ["provider", "region", "zone"];
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// The members that are meant, in the order of the configuration.
pub(super) fn members(
    affinity: Option<&ClusterAffinity>,
    at: &Path,
    fleet: Fleet<'_>,
    found: &mut Findings,
) -> Vec<MemberName> {
    let Some(affinity) = affinity else { return fleet.members.iter().map(|member| member.name.clone()).collect() };
    let ClusterAffinity { label_selector, field_selector, cluster_names, exclude } = affinity;
    let labels = label_selector.as_ref().map(|one| labels(one, &at.child("labelSelector"), found)).unwrap_or_default();
    let fields = field_selector.as_ref().map(|one| fields(one, &at.child("fieldSelector"), found)).unwrap_or_default();
    for name in cluster_names.iter().filter(|name| !fleet.members.iter().any(|member| member.name.as_str() == **name)) {
        found.warnings.push(format!("there is no member {name}"));
    }
    let is_meant = |member: &&MemberConfig| {
        let name = member.name.as_str();
        let own = serde_json::to_string(&member.labels).unwrap_or_default();
        !exclude.iter().any(|one| one == name)
            && (cluster_names.is_empty() || cluster_names.iter().any(|one| one == name))
            && [&labels, &fields].iter().all(|selector| selector.matches(Some(&own), &[name]))
    };
    fleet.members.iter().filter(is_meant).map(|member| member.name.clone()).collect()
}

fn fields(selector: &FieldSelector, at: &Path, found: &mut Findings) -> FleetSelector {
    for (index, one) in selector.match_expressions.iter().enumerate() {
        let at = at.child("matchExpressions").index(index);
        if !FIELDS.contains(&one.key.as_str()) {
            found.errors.unsupported(&at.child("key"), one.key.as_str(), &FIELDS);
        }
        if !["In", "NotIn"].contains(&one.operator.as_str()) {
            found.errors.unsupported(&at.child("operator"), one.operator.as_str(), &["In", "NotIn"]);
        }
    }
    let match_expressions = selector.match_expressions.clone();
    labels(&LabelSelector { match_expressions, ..LabelSelector::default() }, at, found)
}

fn labels(selector: &LabelSelector, at: &Path, found: &mut Findings) -> FleetSelector {
    for (index, one) in selector.match_expressions.iter().enumerate() {
        let at = at.child("matchExpressions").index(index);
        if !OPERATORS.contains(&one.operator.as_str()) {
            found.errors.unsupported(&at.child("operator"), one.operator.as_str(), &OPERATORS);
        }
        if one.operator.ends_with("In") && one.values.is_empty() {
            found.errors.required(&at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
    }
    let equal = selector.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let printed = selector.match_expressions.iter().map(|one| Printed {
        key: &one.key,
        operator: &one.operator,
        values: one.values.iter().map(String::as_str).collect(),
    });
    let text = selector_text(equal, printed);
    FleetSelector::parse(&text, |_| false).unwrap_or_else(|error| {
        found.errors.invalid(at, text, &error.to_string());
        FleetSelector::default()
    })
}

/// What a selector of a policy matches. A policy with a namespace is about that namespace alone.
pub(super) fn matching(selector: &ResourceSelector, metadata: &Metadata, at: &Path, found: &mut Findings) -> Match {
    let own = Some(&metadata.namespace).filter(|namespace| !namespace.is_empty());
    let given = selector.namespace.as_ref().filter(|namespace| !namespace.is_empty());
    if let (Some(own), Some(given)) = (own, given)
        && own != given
    {
        let why = format!("the policy is in the namespace {own}, and selects objects of it alone");
        found.errors.invalid(&at.child("namespace"), given.as_str(), &why);
    }
    let group = split_api_version(&selector.api_version).map(|(group, _)| group.to_owned());
    if group.is_none() {
        found.errors.invalid(&at.child("apiVersion"), selector.api_version.as_str(), "write it like apps/v1, or v1");
    }
    if selector.kind.is_empty() {
        found.errors.required(&at.child("kind"), "");
    }
    let name = selector.name.as_ref().filter(|name| !name.is_empty());
    let selector_at = at.child("labelSelector");
    let by_labels = selector.label_selector.as_ref().filter(|_| name.is_none());
    Match {
        kinds: vec![KindPattern { kind: selector.kind.clone(), group: Some(group.unwrap_or_default()) }],
        namespaces: own.or(given).cloned().into_iter().collect(),
        names: name.cloned().into_iter().collect(),
        labels: by_labels.map(|one| labels(one, &selector_at, found)),
        ..Match::default()
    }
}
