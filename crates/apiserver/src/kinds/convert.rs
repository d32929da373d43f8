//! Versions of one kind in each other: `autoscaling` and events.
//!
//! Source: kubernetes `pkg/apis/autoscaling/v1/conversion.go`, `pkg/apis/events/v1/conversion.go`.

use serde_json::{Value, json};

use super::{
    doc::{Doc, inner},
    put,
};

/// Fields of an event in `events.k8s.io/v1` and in `v1`.
const EVENT: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// `events.k8s.io/v1` as `v1`.
pub(super) fn event_to_core(event: Value) -> Value {
    rename(event, "v1", |name| EVENT.iter().find(|(new, _)| *new == name).map(|(_, core)| *core))
}

/// `v1` as `events.k8s.io/v1`.
pub(super) fn event_from_core(event: Value) -> Value {
    rename(event, "events.k8s.io/v1", |name| EVENT.iter().find(|(_, core)| *core == name).map(|(new, _)| *new))
}

fn rename(object: Value, version: &str, other: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = object else { return object };
    let renamed = fields.into_iter().map(|(name, value)| match other(&name) {
        Some(other) => (other.to_owned(), value),
        None => (name, value),
    });
    let mut object: Value = renamed.collect::<serde_json::Map<_, _>>().into();
    put(&mut object, "apiVersion", Some(version.into()));
    object
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// `autoscaling/v1` as `v2`, in which it is stored.
pub(super) fn autoscaler_to_v2(mut object: Value) -> Value {
    put(&mut object, "apiVersion", Some("autoscaling/v2".into()));
    let from_annotation = |object: &Value, key: &str| -> Option<Value> {
        let text = object.at("metadata.annotations")?.get(key)?.as_str()?;
        serde_json::from_str(text).ok()
    };
    let others = from_annotation(&object, METRICS);
    let current = from_annotation(&object, CURRENT);
    let behavior = from_annotation(&object, BEHAVIOR).map(behavior_of_internal);
    let conditions = from_annotation(&object, CONDITIONS);
    drop_annotations(&mut object);
    if let Some(spec) = inner(&mut object, "spec") {
        let target = spec.number("targetCPUUtilizationPercentage");
        put(spec, "targetCPUUtilizationPercentage", None);
        let cpu = |percent: i64| {
            json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
            }})
        };
        let others = others.as_ref().and_then(Value::as_array).into_iter().flatten();
        let mut metrics: Vec<Value> = others.map(metric_to_v2).collect();
        metrics.extend(target.map(cpu));
        if metrics.is_empty() {
            metrics.push(cpu(80));
        }
        put(spec, "metrics", Some(metrics.into()));
        if behavior.is_some() {
            put(spec, "behavior", behavior);
        }
    }
    if let Some(status) = inner(&mut object, "status") {
        let percent = status.number("currentCPUUtilizationPercentage");
        put(status, "currentCPUUtilizationPercentage", None);
        let plain = percent.map(|percent| {
            let current = json!({"averageUtilization": percent});
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
        });
        let told = current.as_ref().and_then(Value::as_array).map(|all| all.iter().map(current_to_v2).collect());
        put(status, "currentMetrics", told.or(plain));
        put(status, "conditions", conditions);
    }
    object
}

/// What `autoscaling/v1` reads back of what it writes.
pub(super) fn autoscaler_round_trip(object: &mut Value) {
    *object = autoscaler_to_v1(autoscaler_to_v2(object.take()));
}

/// `autoscaling/v2` as `v1`: what it has no fields for is told in annotations.
pub(super) fn autoscaler_to_v1(mut object: Value) -> Value {
    put(&mut object, "apiVersion", Some("autoscaling/v1".into()));
    drop_annotations(&mut object);
    let is_cpu = |metric: &&Value| {
        metric.text("type") == "Resource"
            && metric.text("resource.name") == "cpu"
            && metric.has("resource.target.averageUtilization")
    };
    let metrics = object.items("spec.metrics").to_vec();
    let target = metrics.iter().find(is_cpu).and_then(|cpu| cpu.at("resource.target.averageUtilization")).cloned();
    let others: Vec<Value> = metrics.iter().filter(|metric| !is_cpu(metric)).map(metric_to_v1).collect();
    let behavior = object.at("spec.behavior").cloned();
    let current = object.items("status.currentMetrics").to_vec();
    let conditions = object.items("status.conditions").to_vec();
    let cpu = current.iter().filter(|metric| metric.text("resource.name") == "cpu");
    let percent = cpu.filter_map(|metric| metric.at("resource.current.averageUtilization")).next_back().cloned();
    if let Some(spec) = inner(&mut object, "spec") {
        put(spec, "metrics", None);
        put(spec, "behavior", None);
        put(spec, "targetCPUUtilizationPercentage", target);
    }
    if let Some(status) = inner(&mut object, "status") {
        put(status, "currentMetrics", None);
        put(status, "conditions", None);
        // `v2` leaves it out where it is 0, and `v1` does not. It stands before the number that is desired.
        if !status.has("currentReplicas") {
            let desired = status.at("desiredReplicas").cloned();
            put(status, "desiredReplicas", None);
            put(status, "currentReplicas", Some(0.into()));
            put(status, "desiredReplicas", desired);
        }
        put(status, "currentCPUUtilizationPercentage", percent);
    }
    let current: Vec<Value> = current.iter().map(current_to_v1).collect();
    let told = [
        (BEHAVIOR, behavior.map(behavior_as_internal)),
        (CONDITIONS, (!conditions.is_empty()).then(|| conditions.into())),
        (CURRENT, (!current.is_empty()).then(|| current.into())),
        (METRICS, (!others.is_empty()).then(|| others.into())),
    ];
    if told.iter().any(|(_, value)| value.is_some())
        && let Some(annotations) = inner(&mut object, "metadata").and_then(|metadata| inner(metadata, "annotations"))
    {
        for (key, value) in told.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            put(annotations, key, Some(value.to_string().into()));
        }
        // As Kubernetes has every map.
        annotations.as_object_mut().into_iter().for_each(|annotations| annotations.sort_keys());
    }
    object
}

fn drop_annotations(object: &mut Value) {
    let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations {
        [METRICS, CURRENT, BEHAVIOR, CONDITIONS].iter().for_each(|key| put(annotations, key, None));
    }
}

/// Sets those that are there.
fn object_of(fields: &[(&str, Option<Value>)]) -> Value {
    let there = fields.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
    there.collect::<serde_json::Map<_, _>>().into()
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// A metric's target in `v2` has a type; in `v1` the name of the field says it.
fn metric_to_v2(metric: &Value) -> Value {
    let kind = metric.text("type");
    let field = lower_first(kind);
    let source = metric.get(&field).cloned().unwrap_or(Value::Null);
    let target = |kind: &str, value: Option<&Value>, average: Option<&Value>, percent: Option<&Value>| {
        object_of(&[
            ("type", Some(kind.into())),
            ("value", value.cloned()),
            ("averageValue", average.cloned()),
            ("averageUtilization", percent.cloned()),
        ])
    };
    let identifier =
        || object_of(&[("name", source.get("metricName").cloned()), ("selector", source.get("selector").cloned())]);
    let external = || {
        object_of(&[("name", source.get("metricName").cloned()), ("selector", source.get("metricSelector").cloned())])
    };
    let average = source.at("targetAverageValue");
    let made = match kind {
        "Resource" | "ContainerResource" => {
            let percent = source.at("targetAverageUtilization");
            let word = if percent.is_some() { "Utilization" } else { "AverageValue" };
            object_of(&[
                ("name", source.get("name").cloned()),
                ("target", Some(target(word, None, average, percent))),
                ("container", source.get("container").cloned()),
            ])
        }
        "Pods" => {
            object_of(&[("metric", Some(identifier())), ("target", Some(target("AverageValue", None, average, None)))])
        }
        "Object" => {
            let average = source.at("averageValue");
            let value = source.at("targetValue").filter(|_| average.is_none());
            let word = if average.is_some() { "AverageValue" } else { "Value" };
            object_of(&[
                ("describedObject", source.get("target").cloned()),
                ("target", Some(target(word, value, average, None))),
                ("metric", Some(identifier())),
            ])
        }
        _ => {
            let value = source.at("targetValue");
            let word = if value.is_some() { "Value" } else { "AverageValue" };
            object_of(&[("metric", Some(external())), ("target", Some(target(word, value, average, None)))])
        }
    };
    object_of(&[("type", Some(kind.into())), (&field, Some(made))])
}

fn metric_to_v1(metric: &Value) -> Value {
    let kind = metric.text("type");
    let field = lower_first(kind);
    let source = metric.get(&field).cloned().unwrap_or(Value::Null);
    let at = |path: &str| source.at(path).cloned();
    let made = match kind {
        "Resource" | "ContainerResource" => object_of(&[
            ("name", at("name")),
            ("targetAverageUtilization", at("target.averageUtilization")),
            ("targetAverageValue", at("target.averageValue")),
            ("container", at("container")),
        ]),
        "Pods" => object_of(&[
            ("metricName", at("metric.name")),
            ("targetAverageValue", at("target.averageValue")),
            ("selector", at("metric.selector")),
        ]),
        "Object" => object_of(&[
            ("target", at("describedObject")),
            ("metricName", at("metric.name")),
            ("targetValue", Some(at("target.value").unwrap_or_else(|| "0".into()))),
            ("selector", at("metric.selector")),
            ("averageValue", at("target.averageValue")),
        ]),
        _ => object_of(&[
            ("metricName", at("metric.name")),
            ("metricSelector", at("metric.selector")),
            ("targetValue", at("target.value")),
            ("targetAverageValue", at("target.averageValue")),
        ]),
    };
    object_of(&[("type", Some(kind.into())), (&field, Some(made))])
}

fn current_to_v2(metric: &Value) -> Value {
    let kind = metric.text("type");
    let field = lower_first(kind);
    let source = metric.get(&field).cloned().unwrap_or(Value::Null);
    let at = |path: &str| source.at(path).cloned();
    let current = object_of(&[
        ("value", at("currentValue").filter(|_| matches!(kind, "Object" | "External"))),
        ("averageValue", at("currentAverageValue").or_else(|| at("averageValue"))),
        ("averageUtilization", at("currentAverageUtilization")),
    ]);
    let selector = if kind == "External" { at("metricSelector") } else { at("selector") };
    let metric = object_of(&[("name", at("metricName")), ("selector", selector)]);
    let made = object_of(&[
        ("name", at("name")),
        ("container", at("container")),
        ("metric", (!matches!(kind, "Resource" | "ContainerResource")).then_some(metric)),
        ("current", Some(current)),
        ("describedObject", at("target")),
    ]);
    object_of(&[("type", Some(kind.into())), (&field, Some(made))])
}

fn current_to_v1(metric: &Value) -> Value {
    let kind = metric.text("type");
    let field = lower_first(kind);
    let source = metric.get(&field).cloned().unwrap_or(Value::Null);
    let at = |path: &str| source.at(path).cloned();
    let amount = |path: &str| Some(at(path).unwrap_or_else(|| "0".into()));
    let made = match kind {
        "Resource" | "ContainerResource" => object_of(&[
            ("name", at("name")),
            ("currentAverageUtilization", at("current.averageUtilization")),
            ("currentAverageValue", amount("current.averageValue")),
            ("container", at("container")),
        ]),
        "Pods" => object_of(&[
            ("metricName", at("metric.name")),
            ("currentAverageValue", amount("current.averageValue")),
            ("selector", at("metric.selector")),
        ]),
        "Object" => object_of(&[
            ("target", at("describedObject")),
            ("metricName", at("metric.name")),
            ("currentValue", amount("current.value")),
            ("selector", at("metric.selector")),
            ("averageValue", at("current.averageValue")),
        ]),
        _ => object_of(&[
            ("metricName", at("metric.name")),
            ("metricSelector", at("metric.selector")),
            ("currentValue", amount("current.value")),
            ("currentAverageValue", at("current.averageValue")),
        ]),
    };
    object_of(&[("type", Some(kind.into())), (&field, Some(made))])
}

/// The annotation of the behaviour holds Go's own names of fields, and null where nothing is set.
fn behavior_as_internal(behavior: Value) -> Value {
    let rules = |direction: &str| -> Value {
        let Some(rules) = behavior.at(direction) else { return Value::Null };
        let policies = rules.at("policies").and_then(Value::as_array).map(|policies| {
            let policy = |policy: &Value| {
                json!({
                    "Type": policy.text("type"), "Value": policy.number("value").unwrap_or(0),
                    "PeriodSeconds": policy.number("periodSeconds").unwrap_or(0),
                })
            };
            Value::from(policies.iter().map(policy).collect::<Vec<_>>())
        });
        json!({
            "StabilizationWindowSeconds": rules.at("stabilizationWindowSeconds"),
            "SelectPolicy": rules.at("selectPolicy"), "Policies": policies, "Tolerance": rules.at("tolerance"),
        })
    };
    json!({"ScaleUp": rules("scaleUp"), "ScaleDown": rules("scaleDown")})
}

fn behavior_of_internal(behavior: Value) -> Value {
    match behavior {
        Value::Object(fields) => {
            let lower = |(name, value): (String, Value)| (lower_first(&name), behavior_of_internal(value));
            fields.into_iter().filter(|(_, value)| !value.is_null()).map(lower).collect()
        }
        Value::Array(items) => items.into_iter().map(behavior_of_internal).collect(),
        other => other,
    }
}
