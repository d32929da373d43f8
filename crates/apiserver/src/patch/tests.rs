//! What the recording does not reach, and what holds of anything.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    patch::{
        Apply, OneVersion, PatchError, Subject, apply,
        fields::{Element, Set, same},
        managed, merge, strategic,
    },
    schema::{self, Type},
};

const NOW: &str = "2026-11-21T15:00:00Z";

fn subject(schema: Option<Type<'_>>) -> Subject<'_> {
    Subject {
        api_version: "apps/v1",
        kind: "Deployment",
        schema,
        custom: schema.is_none(),
        subresource: "",
        reset: &[],
        versions: &OneVersion,
    }
}

fn applied(live: Option<&Value>, applied: &Value, manager: &str) -> Result<Value, PatchError> {
    let types = schema::builtin();
    let schema = types.named("io.k8s.api.apps.v1.Deployment");
    assert!(schema.is_some());
    apply(Apply { live, applied, manager, force: false, now: NOW, subject: subject(schema) })
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

fn entries(object: &Value) -> &Value {
    object.pointer("/metadata/managedFields").unwrap_or(&Value::Null)
}

#[test]
fn a_set_of_fields_is_printed_in_its_order_and_read_again() {
    let text = r#"{"f:a":{},"f:b":{".":{},"f:c":{},"k:{\"n\":1,\"t\":\"<\"}":{".":{},"f:x":{}},"v:\"x\"":{},"v:true":{},"i:3":{}}}"#;
    let text = text.replace(r#"\"<\""#, r#"\"\\u003c\""#);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(Set::from_json(&value).unwrap().to_json().to_string(), text);
    let disorder = json!({"f:b": {"v:2": {}, "v:10": {}, "f:z": {}, "q:unknown": {}, ".": {}}, "f:a": {}});
    let ordered = Set::from_json(&disorder).unwrap().to_json().to_string();
    assert_eq!(ordered, r#"{"f:a":{},"f:b":{".":{},"f:z":{},"v:2":{},"v:10":{}}}"#);
    for wrong in
        [json!({"f": {}}), json!({"x": {}}), json!({"k:{": {}}), json!({"v:": {}}), json!({"i:x": {}}), json!([])]
    {
        assert!(Set::from_json(&wrong).is_err(), "{wrong}");
    }
    let deep = (0..600).fold(json!({}), |below, _| json!({"f:a": below}));
    assert!(Set::from_json(&deep).is_err());
}

#[test]
fn conflicts_of_several_are_listed_by_owner() {
    let types = schema::builtin();
    let schema = types.named("io.k8s.api.apps.v1.Deployment");
    let mut live = deployment(json!({"replicas": 1, "paused": true, "minReadySeconds": 1}));
    live["metadata"]["uid"] = "u".into();
    let field = |name: &str| json!({"f:spec": {name: {}}});
    let entry = |manager: &str, subresource: Value, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "time": NOW,
            "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource})
    };
    live["metadata"]["managedFields"] = json!([
        entry("b", "scale".into(), field("f:replicas")),
        entry("a", Value::Null, json!({"f:spec": {"f:paused": {}, "f:minReadySeconds": {}}})),
    ]);
    let wanted = deployment(json!({"replicas": 2, "paused": false, "minReadySeconds": 2}));
    let write =
        Apply { live: Some(&live), applied: &wanted, manager: "me", force: false, now: NOW, subject: subject(schema) };
    let refused = apply(write).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 3 conflicts: conflicts with \"a\" using apps/v1:\n- .spec.minReadySeconds\n- .spec.paused\n\
         conflicts with \"b\" with subresource \"scale\" using apps/v1:\n- .spec.replicas"
    );
    let causes: Vec<_> = refused.causes.iter().map(|cause| (&*cause.message, &*cause.field)).collect();
    assert_eq!(causes[2], ("conflict with \"b\" with subresource \"scale\" using apps/v1", ".spec.replicas"));
    let forced = apply(Apply { force: true, ..write }).unwrap();
    assert_eq!(entries(&forced).as_array().unwrap().len(), 1, "{forced}");
}

#[test]
fn a_manager_is_the_clients_name() {
    let long = "x".repeat(200);
    assert_eq!(managed::manager_of("given", "kubectl/v1"), "given");
    assert_eq!(managed::manager_of("", "kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(managed::manager_of("", "no\u{7}sound"), "nosound");
    assert_eq!(managed::manager_of("", &long).len(), 128);
    assert_eq!(managed::manager_of("", ""), "");
}

#[test]
fn entries_that_a_client_sends_are_checked() {
    let object = json!({"metadata": {"managedFields": [{"operation": "Steal", "fieldsType": "FieldsV2"}, {"operation": "Apply"}]}});
    let fields: Vec<String> = managed::validate(&object).into_iter().map(|cause| cause.field).collect();
    assert_eq!(fields, ["metadata.managedFields[0].operation", "metadata.managedFields[0].fieldsType"]);
}

#[test]
fn times_stay_where_nothing_else_changes() {
    let with = |time: &str, data: &str| json!({"metadata": {"managedFields": [{"manager": "a", "time": time}]}, "data": {"a": data}});
    let (live, mut same, mut other) = (with("1", "x"), with("2", "x"), with("2", "y"));
    managed::keep_times(&mut same, &live);
    managed::keep_times(&mut other, &live);
    assert_eq!((&same, &other), (&live, &with("2", "y")));
}

/// A spec of what can be applied: containers by name with env by name, labels, replicas.
fn spec() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]);
    let env = prop::collection::btree_map(name(), "[xy]", 0..3);
    let container = (prop::sample::select(vec!["i:1", "i:2"]), env).prop_map(|(image, env)| {
        let env: Vec<Value> = env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        json!({"image": image, "env": env})
    });
    let containers = prop::collection::hash_map(name(), container, 1..4);
    let labels = prop::collection::btree_map(name(), "[xy]", 0..3);
    (containers, labels, prop::option::of(0..3_i64), any::<bool>()).prop_map(
        |(containers, labels, replicas, paused)| {
            let containers: Vec<Value> = containers
                .into_iter()
                .map(|(name, mut container)| {
                    container["name"] = name.into();
                    container
                })
                .collect();
            let mut spec = json!({"template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}});
            if let Some(replicas) = replicas {
                spec["replicas"] = replicas.into();
            }
            if paused {
                spec["paused"] = true.into();
            }
            spec
        },
    )
}

/// The same object without what a patch may leave empty.
fn bare(object: &Value) -> Value {
    let types = schema::builtin();
    let mut object = schema::arrange(types.named("io.k8s.api.apps.v1.Deployment").unwrap(), object.clone());
    object["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
    object
}

/// The same object with all lists of named items in the order of names.
fn in_order(mut object: Value) -> Value {
    fn sort(list: Option<&mut Value>) -> Vec<&mut Value> {
        let Some(Value::Array(items)) = list else { return Vec::new() };
        items.sort_by_key(|item| item["name"].to_string());
        items.iter_mut().collect()
    }
    for container in sort(object.pointer_mut("/spec/template/spec/containers")) {
        sort(container.get_mut("env"));
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn applying_twice_is_a_no_op(first in spec(), second in spec()) {
        let object = applied(None, &deployment(first), "one").unwrap();
        let object = applied(Some(&object), &deployment(second.clone()), "one").unwrap();
        let again = applied(Some(&object), &deployment(second), "one").unwrap();
        prop_assert_eq!(bare(&again), bare(&object));
        prop_assert_eq!(entries(&again), entries(&object));
    }

    #[test]
    fn what_one_manager_applies_alone_is_what_is_there(first in spec(), second in spec()) {
        let object = applied(None, &deployment(first), "one").unwrap();
        let object = applied(Some(&object), &deployment(second.clone()), "one").unwrap();
        let at_once = applied(None, &deployment(second), "one").unwrap();
        prop_assert_eq!(in_order(bare(&object)), in_order(bare(&at_once)));
        prop_assert_eq!(entries(&object), entries(&at_once));
    }

    #[test]
    fn two_appliers_without_conflict_leave_both_wishes(first in spec(), second in spec()) {
        let object = applied(None, &deployment(first), "one").unwrap();
        if let Ok(both) = applied(Some(&object), &deployment(second), "two") {
            let without = applied(Some(&both), &deployment(json!({})), "two").unwrap();
            // In what order is the second one's affair.
            prop_assert_eq!(in_order(bare(&without)), in_order(bare(&object)));
        }
    }

    #[test]
    fn a_merge_patch_of_the_difference_makes_the_other(from in spec(), to in spec()) {
        let (from, to) = (deployment(from), deployment(to));
        let patched = merge(&from, &serde_json::to_vec(&merge_difference(&from, &to)).unwrap()).unwrap();
        prop_assert!(same(&patched, &to));
    }

    #[test]
    fn a_strategic_patch_of_what_is_there_changes_nothing(spec in spec()) {
        let types = schema::builtin();
        let of = types.named("io.k8s.api.apps.v1.Deployment").unwrap();
        let live = deployment(spec);
        let patched = strategic(&live, &serde_json::to_vec(&live).unwrap(), of).unwrap();
        prop_assert!(same(&patched, &live));
    }

    #[test]
    fn sets_are_sets(left in paths(), right in paths()) {
        let (a, b) = (set(&left), set(&right));
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), set(&left));
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(Set::from_json(&a.to_json()).unwrap(), set(&left));
        prop_assert!(left.iter().all(|path| a.has(path)));
        prop_assert_eq!(a.paths().len(), left.iter().collect::<std::collections::BTreeSet<_>>().len());
    }
}

fn paths() -> impl Strategy<Value = Vec<Vec<Element>>> {
    let element = prop_oneof![
        "[ab]".prop_map(Element::Field),
        "[ab]".prop_map(|name| Element::Key(vec![("name".to_owned(), name.into())])),
        (0..3_i64).prop_map(|value| Element::Value(value.into())),
        (0..3_i64).prop_map(Element::Index),
    ];
    prop::collection::vec(prop::collection::vec(element, 1..4), 0..6)
}

fn set(paths: &[Vec<Element>]) -> Set {
    let mut set = Set::default();
    paths.iter().for_each(|path| set.insert(path));
    set
}

fn merge_difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut out = serde_json::Map::new();
    for (name, value) in to {
        match from.get(name) {
            Some(before) if before == value => {}
            Some(before) if before.is_object() && value.is_object() => {
                out.insert(name.clone(), merge_difference(before, value));
            }
            _ => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        out.insert(name.clone(), Value::Null);
    }
    Value::Object(out)
}
