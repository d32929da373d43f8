//! Differences of documents, and how a third takes them.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use kubefold_wire::patch::merge_into;

/// The difference of two documents, taken by a third.
fn taken(before: &Value, after: &Value, mut third: Value) -> Value {
    take(&difference(before, after), Take::WhereOld, &mut third);
    third
}

fn pod(containers: &[(&str, &str)]) -> Value {
    let all: Vec<_> = containers.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
    json!({"spec": {"containers": all}})
}

#[test]
fn each_value_goes_where_the_old_one_still_is() {
    let (before, after) = (json!({"spec": {"a": 1, "b": 1, "c": 1}}), json!({"spec": {"a": 2, "b": 2, "d": 2}}));
    let third = json!({"spec": {"a": 1, "b": 7, "c": 1, "own": 3}});
    assert_eq!(taken(&before, &after, third), json!({"spec": {"a": 2, "b": 7, "own": 3, "d": 2}}));
    let mut third = json!({"spec": {"b": 7}});
    let changes = difference(&before, &after);
    let left: Vec<_> = take(&changes, Take::WhereOld, &mut third).iter().map(|change| change.path()).collect();
    assert_eq!(left, [".spec.a", ".spec.b"], "what is gone here is not made anew by a change of it");
}

#[test]
fn lists_with_keys_are_merged_by_item() {
    let (before, after) = (pod(&[("web", "1"), ("log", "1")]), pod(&[("new", "1"), ("web", "2")]));
    let third = pod(&[("sidecar", "9"), ("web", "1"), ("log", "1")]);
    assert_eq!(taken(&before, &after, third), pod(&[("sidecar", "9"), ("new", "1"), ("web", "2")]));
    let path = difference(&before, &after).first().map(Change::path);
    assert_eq!(path.as_deref(), Some(".spec.containers[name=\"web\"].image"));
    let ports = |protocol: &str| json!({"ports": [{"port": 53, "protocol": protocol, "nodePort": 30000}]});
    let both = json!({"ports": [{"port": 53, "protocol": "TCP", "nodePort": 1}, {"port": 53, "protocol": "UDP"}]});
    let changed = taken(&ports("TCP"), &ports("UDP"), both);
    assert_eq!(changed["ports"].as_array().unwrap().len(), 2, "{changed}");
}

#[test]
fn lists_without_keys_are_one_value() {
    let (before, after) = (json!({"args": ["a", "b"]}), json!({"args": ["a", "c"]}));
    assert_eq!(taken(&before, &after, json!({"args": ["a", "b"]})), after);
    let own = json!({"args": ["x"]});
    assert_eq!(taken(&before, &after, own.clone()), own);
    // The same name twice is no key.
    let twice = pod(&[("web", "1"), ("web", "2")]);
    assert_eq!(difference(&twice, &pod(&[("web", "1")])).len(), 1);
}

#[test]
fn finalizers_come_and_go_one_by_one() {
    let (before, after) = (json!({"finalizers": ["a", "b"]}), json!({"finalizers": ["b", "c"]}));
    let third = taken(&before, &after, json!({"finalizers": ["own", "a", "b"]}));
    assert_eq!(third, json!({"finalizers": ["own", "b", "c"]}));
    assert_eq!(taken(&json!({}), &json!({"finalizers": ["a"]}), json!({})), json!({"finalizers": ["a"]}));
}

#[test]
fn maps_that_come_or_go_whole_are_merged_where_there_is_one() {
    let (without, with) = (json!({"m": {}}), json!({"m": {"labels": {"a": "1", "b": "1"}}}));
    assert_eq!(
        taken(&without, &with, json!({"m": {"labels": {"own": "1"}}})),
        json!({"m": {"labels": {"own": "1", "a": "1", "b": "1"}}})
    );
    assert_eq!(
        taken(&with, &without, json!({"m": {"labels": {"a": "1", "b": "2"}}})),
        json!({"m": {"labels": {"b": "2"}}})
    );
    assert_eq!(taken(&with, &without, json!({"m": {"labels": {"a": "1"}}})), json!({"m": {}}));
}

#[test]
fn null_is_nothing() {
    assert!(difference(&json!({"a": null}), &json!({})).is_empty());
    assert_eq!(taken(&json!({}), &json!({"a": {"b": 1}}), json!({"a": null})), json!({"a": {"b": 1}}));
}

#[test]
fn what_a_document_holds_at_a_change() {
    let changes = difference(&pod(&[("a", "1"), ("b", "1")]), &pod(&[("b", "2"), ("a", "1")]));
    let held: Vec<_> =
        changes.iter().map(|change| change.value_in(&pod(&[("b", "7"), ("x", "1"), ("a", "1")]))).collect();
    assert_eq!(held, [Some(json!("7")), Some(json!([[["name", "b"]], [["name", "a"]]]))]);
}

/// A value for each way in which a later change may begin where an earlier one ended.
#[test]
fn a_change_follows_what_left_the_value_that_it_begins_with() {
    let one = |before: Value, after: Value| difference(&before, &after).into_iter().next().unwrap();
    let put = one(json!({"odd": {}}), json!({"odd": {"put": 1}}));
    for (left, follows) in [
        (json!({"x": 0}), true),
        (json!({}), true),
        (json!(null), true),
        (json!({"put": 2}), false),
        // Nothing can be added to it: another change came in between.
        (json!(0), false),
        (json!([1]), false),
    ] {
        let earlier = one(json!({"odd": "then"}), json!({"odd": left}));
        assert_eq!(put.follows(&earlier, Some(&left).filter(|left| !left.is_null())), follows, "{left}");
    }
    let deep = one(json!({"odd": {"x": {"y": 1}}}), json!({"odd": {"x": {}}}));
    let earlier = one(json!({"odd": 0}), json!({"odd": {"x": {"y": 1}}}));
    assert!(deep.follows(&earlier, Some(&json!({"x": {"y": 1}}))));
    assert!(!deep.follows(&earlier, Some(&json!({"x": 1}))) && !put.follows(&deep, None));
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!("x")), Just(json!("y")), (0..3_i32).prop_map(Value::from), Just(json!(true))]
}

fn tree() -> impl Strategy<Value = Value> {
    let field = prop::sample::select(vec!["a", "b", "containers", "env", "finalizers", "ports", "args"]);
    text().prop_recursive(4, 24, 4, move |inner| {
        let name = prop::sample::select(vec!["p", "q", "r", "s"]);
        let item = (name.clone(), inner.clone()).prop_map(|(name, value)| json!({"name": name, "v": value}));
        prop_oneof![
            prop::collection::btree_map(field.clone(), inner.clone(), 0..4).prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
            prop::collection::vec(item, 0..4).prop_map(Value::from),
            prop::collection::vec(name.prop_map(Value::from), 0..4).prop_map(Value::from),
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    tree().prop_map(|value| json!({"metadata": {"name": "x"}, "spec": value}))
}

/// Whether they are the same but for the order of sets.
fn same(a: &Value, b: &Value) -> bool {
    difference(a, b).is_empty()
}

proptest! {
    #[test]
    fn what_is_the_same_takes_the_whole_difference(before in object(), after in object()) {
        let changes = difference(&before, &after);
        for how in [Take::Always, Take::WhereOld] {
            let mut third = before.clone();
            prop_assert!(take(&changes, how, &mut third).is_empty(), "{changes:?}");
            prop_assert!(same(&third, &after), "{third} is not {after}: {changes:?}");
        }
    }

    #[test]
    fn taking_twice_is_taking_once(before in object(), after in object(), third in object()) {
        let changes = difference(&before, &after);
        let mut once = third;
        take(&changes, Take::WhereOld, &mut once);
        let mut twice = once.clone();
        take(&changes, Take::WhereOld, &mut twice);
        prop_assert!(same(&once, &twice), "{once} became {twice} by {changes:?}");
    }

    #[test]
    fn what_is_not_in_the_difference_stays(before in object(), after in object(), own in text()) {
        let with = |mut document: Value| { document["status"] = own.clone(); document };
        let third = taken(&before, &after, with(before.clone()));
        prop_assert!(same(&third, &with(after)));
    }

    #[test]
    fn no_difference_changes_nothing(before in object(), third in object()) {
        prop_assert!(difference(&before, &before).is_empty());
        prop_assert_eq!(taken(&before, &before, third.clone()), third);
    }

    #[test]
    fn a_merge_patch_makes_what_it_is_to_make(before in object(), after in object()) {
        let mut third = before.clone();
        merge_into(&mut third, merge_patch(&before, &after));
        prop_assert_eq!(third, after);
    }

    #[test]
    fn changes_survive_the_journal(before in object(), after in object()) {
        let changes = difference(&before, &after);
        let text = serde_json::to_string(&changes).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<Change>>(&text).unwrap(), changes);
    }
}
