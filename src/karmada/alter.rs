//! An OverridePolicy as what makes parts different.

use crate::{
    config::{
        Alteration, Chosen, Component, Format, How, KeyMap, Match, OverrideConfig, OverrideRule, Strategy, Texts, unfit,
    },
    karmada::{
        Findings, Fleet,
        affinity::{matching, members},
        overriding::{
            CommandArgsOverrider, FieldOperation, FieldOverrider, ImageComponent, ImageOverrider,
            LabelAnnotationOverrider, Operator, OverrideSpec, Overriders, PlaintextOverrider,
        },
        selectors::{ClusterAffinity, Metadata},
    },
};
use kubefold_wire::{
    invalid::Path,
    names::{label_value, qualified_name},
    patch::{Action, JsonPatch, Operation},
};

/// What no override may change.
const FIXED: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];
const REPLICAS: &str = "/spec/replicas";

/// How people call a policy.
pub(super) fn called(metadata: &Metadata) -> String {
    match metadata.namespace.as_str() {
        "" => format!("ClusterOverridePolicy {}", metadata.name),
        namespace => format!("OverridePolicy {namespace}/{}", metadata.name),
    }
}

/// Compiles a policy. What is found wrong means that the result is not to be used.
pub(super) fn overriding(
    metadata: &Metadata,
    spec: &OverrideSpec,
    fleet: Fleet<'_>,
    found: &mut Findings,
) -> OverrideConfig {
    let root = Path::new("spec");
    let mut matches = Vec::new();
    for (index, selector) in spec.resource_selectors.iter().enumerate() {
        matches.push(matching(selector, metadata, &root.child("resourceSelectors").index(index), found));
    }
    if matches.is_empty() {
        let namespaces = Some(&metadata.namespace).filter(|namespace| !namespace.is_empty()).cloned();
        matches.push(Match { namespaces: namespaces.into_iter().collect(), ..Match::default() });
    }
    let mut rules = Vec::new();
    let is_old = spec.target_cluster.is_some() || spec.overriders.is_some();
    if is_old && !spec.override_rules.is_empty() {
        let field = if spec.overriders.is_some() { "overriders" } else { "targetCluster" };
        found.errors.forbidden(&root.child(field), "it cannot stand beside overrideRules");
    }
    if let Some(overriders) = &spec.overriders {
        rules.push(rule(spec.target_cluster.as_ref(), overriders, &root, fleet, found));
    }
    for (index, one) in spec.override_rules.iter().enumerate() {
        let at = root.child("overrideRules").index(index);
        rules.push(rule(one.target_cluster.as_ref(), &one.overriders, &at, fleet, found));
    }
    let config =
        OverrideConfig { name: called(metadata), is_namespaced: !metadata.namespace.is_empty(), matches, rules };
    divided(&config, fleet, found);
    config
}

/// Refuses to override a number that is divided.
fn divided(config: &OverrideConfig, fleet: Fleet<'_>, found: &mut Findings) {
    let kinds = config.matches.iter().flat_map(|one| &one.kinds);
    let divides = |group: &str, kind: &str| {
        let is_declared = fleet.kinds.iter().any(|known| known.group == group && known.kind == kind);
        let is_numbered = !matches!(kind, "HorizontalPodAutoscaler" | "PodDisruptionBudget" | "ResourceQuota" | "Job");
        !is_declared && is_numbered && unfit(Strategy::Divide, Some(group), kind, false).is_none()
    };
    let kind =
        kinds.filter(|one| divides(one.group.as_deref().unwrap_or_default(), &one.kind)).map(|one| &one.kind).next();
    let Some(kind) = kind else { return };
    for alteration in config.rules.iter().flat_map(|rule| &rule.alterations) {
        let Alteration::Patch(patch) = alteration else { continue };
        if patch.0.iter().any(|operation| operation.path == REPLICAS) {
            let why = format!("the replicas of a {kind} are divided: the fleet view shows their sum; use weights");
            found.errors.forbidden(&Path::new("spec.overrideRules"), &format!("{REPLICAS}: {why}"));
        }
    }
}

fn rule(
    target: Option<&ClusterAffinity>,
    overriders: &Overriders,
    at: &Path,
    fleet: Fleet<'_>,
    found: &mut Findings,
) -> OverrideRule {
    let members = Chosen::Named(members(target, &at.child("targetCluster"), fleet, found));
    let at = at.child("overriders");
    let mut alterations = Vec::new();
    for (index, one) in overriders.image_overrider.iter().enumerate() {
        alterations.push(image(one, &at.child("imageOverrider").index(index), found));
    }
    for (index, one) in overriders.command_overrider.iter().enumerate() {
        alterations.push(words(Texts::Command, one, &at.child("commandOverrider").index(index), found));
    }
    for (index, one) in overriders.args_overrider.iter().enumerate() {
        alterations.push(words(Texts::Args, one, &at.child("argsOverrider").index(index), found));
    }
    for (index, one) in overriders.labels_overrider.iter().enumerate() {
        alterations.push(keys(KeyMap::Labels, one, &at.child("labelsOverrider").index(index), found));
    }
    for (index, one) in overriders.annotations_overrider.iter().enumerate() {
        alterations.push(keys(KeyMap::Annotations, one, &at.child("annotationsOverrider").index(index), found));
    }
    for (index, one) in overriders.field_overrider.iter().enumerate() {
        alterations.push(document(one, &at.child("fieldOverrider").index(index), found));
    }
    let mut operations = Vec::new();
    for (index, one) in overriders.plaintext.iter().enumerate() {
        operations.push(plaintext(one, &at.child("plaintext").index(index), found));
    }
    if !operations.is_empty() {
        alterations.push(Alteration::Patch(JsonPatch(operations)));
    }
    OverrideRule { members, alterations }
}

fn how(operator: Operator) -> How {
    match operator {
        Operator::Add => How::Add,
        Operator::Remove => How::Remove,
        Operator::Replace => How::Replace,
    }
}

fn pointer(path: &str, at: &Path, found: &mut Findings) {
    if !path.starts_with('/') {
        found.errors.invalid(at, path, "write a JSON pointer like /spec/paused");
    }
    if FIXED.contains(&path) {
        found.errors.forbidden(at, "an object has the same kind, name and namespace in every member");
    }
}

fn image(one: &ImageOverrider, at: &Path, found: &mut Findings) -> Alteration {
    if let Some(predicate) = &one.predicate {
        pointer(&predicate.path, &at.child("predicate").child("path"), found);
    }
    if one.operator != Operator::Remove && one.value.is_empty() {
        found.errors.required(&at.child("value"), "add and replace have one");
    }
    let component = match one.component {
        ImageComponent::Registry => Component::Registry,
        ImageComponent::Repository => Component::Repository,
        ImageComponent::Tag => Component::Tag,
    };
    if component == Component::Repository && one.operator == Operator::Remove {
        found.errors.forbidden(&at.child("operator"), "an image without a repository is none");
    }
    let at = one.predicate.as_ref().map(|predicate| predicate.path.clone());
    Alteration::Image { at, component, how: how(one.operator), value: one.value.clone() }
}

fn words(texts: Texts, one: &CommandArgsOverrider, at: &Path, found: &mut Findings) -> Alteration {
    if one.operator == Operator::Replace {
        found.errors.unsupported(&at.child("operator"), "replace", &["add", "remove"]);
    }
    let (container, values) = (one.container_name.clone(), one.value.clone());
    Alteration::Words { texts, container, how: how(one.operator), values }
}

fn keys(map: KeyMap, one: &LabelAnnotationOverrider, at: &Path, found: &mut Findings) -> Alteration {
    let at = at.child("value");
    for (key, value) in &one.value {
        found.errors.all_invalid(&at, key, &qualified_name(key));
        if map == KeyMap::Labels {
            found.errors.all_invalid(&at, value, &label_value(value));
        }
    }
    Alteration::Keys { map, how: how(one.operator), values: one.value.clone() }
}

fn document(one: &FieldOverrider, at: &Path, found: &mut Findings) -> Alteration {
    pointer(&one.field_path, &at.child("fieldPath"), found);
    if !one.json.is_empty() && !one.yaml.is_empty() {
        found.errors.forbidden(&at.child("yaml"), "it cannot stand beside json");
    }
    let (format, field, all) =
        if one.yaml.is_empty() { (Format::Json, "json", &one.json) } else { (Format::Yaml, "yaml", &one.yaml) };
    let mut operations = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let FieldOperation { sub_path, operator, value } = one;
        let at = at.child(field).index(index);
        if !sub_path.starts_with('/') {
            found.errors.invalid(&at.child("subPath"), sub_path.as_str(), "write a JSON pointer like /database/host");
        }
        operations.push(operation(sub_path, *operator, value.as_ref(), &at, found));
    }
    Alteration::Document { at: one.field_path.clone(), format, patch: JsonPatch(operations) }
}

fn plaintext(one: &PlaintextOverrider, at: &Path, found: &mut Findings) -> Operation {
    pointer(&one.path, &at.child("path"), found);
    operation(&one.path, one.operator, one.value.as_ref(), at, found)
}

fn operation(
    path: &str,
    operator: Operator,
    value: Option<&serde_json::Value>,
    at: &Path,
    found: &mut Findings,
) -> Operation {
    match (operator, value) {
        (Operator::Remove, Some(_)) => found.errors.forbidden(&at.child("value"), "remove has none"),
        (Operator::Add | Operator::Replace, None) => {
            found.errors.required(&at.child("value"), "add and replace have one")
        }
        _ => {}
    }
    let value = || value.cloned().unwrap_or_default();
    let action = match operator {
        Operator::Add => Action::Add(value()),
        Operator::Remove => Action::Remove,
        Operator::Replace => Action::Replace(value()),
    };
    Operation { path: path.to_owned(), action }
}
