//! Custom resources, with types and without.

use serde_json::{Value, json};

use super::*;

pub(super) fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn widgets() -> Vec<Step> {
    let one = &format!("{WIDGETS}/one");
    let two = &format!("{WIDGETS}/two");
    vec![
        create(
            "a custom resource",
            WIDGETS,
            widget(
                "one",
                json!({"replicas": 1, "settings": {"a": "1"}, "nested": {"a": "1", "deep": {"x": 1}}, "amount": "50%"}),
            ),
        ),
        merge(
            "its status by the main endpoint is not taken",
            one,
            json!({"status": {"phase": "x"}, "spec": {"replicas": 2}}),
        )
        .filled(),
        merge(
            "its status",
            &format!("{one}/status"),
            json!({"status": {"phase": "Ready", "conditions": [{"type": "A", "status": "True"}]}}),
        ),
        merge(
            "its labels by the status are not taken",
            &format!("{one}/status"),
            json!({"metadata": {"labels": {"x": "1"}}, "spec": {"replicas": 9}, "status": {"phase": "Gone"}}),
        )
        .filled(),
        apply(
            "its status by an apply",
            &format!("{one}/status"),
            "conditions",
            json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": "one"},
            "status": {"conditions": [{"type": "B", "status": "True"}]}}),
        ),
        apply(
            "the status of another",
            &format!("{one}/status"),
            "others",
            json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": "one"},
            "status": {"phase": "Mine", "conditions": [{"type": "B", "status": "False"}]}}),
        ),
        apply("one conflict", one, "applier", widget("one", json!({"replicas": 3}))),
        force(
            "forced",
            one,
            "applier",
            widget("one", json!({"replicas": 3, "settings": {"b": "2"}, "color": {"r": 1}, "maybe": null})),
        ),
        apply("an object that is one", one, "second", widget("one", json!({"color": {"g": 1}}))),
        force("an object that is one is taken", one, "second", widget("one", json!({"color": {"g": 1}}))),
        apply("settings go", one, "applier", widget("one", json!({"replicas": 3}))),
        apply(
            "all goes",
            one,
            "applier",
            json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": "one"}}),
        ),
        apply("deep fields of one", one, "deep-1", widget("one", json!({"nested": {"deep": {"y": 1}, "b": "1"}}))),
        apply("deep fields go", one, "deep-1", widget("one", json!({"nested": {"b": "1"}}))),
        apply("and their parents", one, "deep-1", widget("one", json!({"replicas": 3}))),
        create("created", WIDGETS, widget("bare", json!({}))),
        apply(
            "created by an apply",
            two,
            "applier",
            widget(
                "two",
                json!({"nested": {"deep": {"x": 1}}, "tags": ["b", "a"], "whole": ["x"], "plain": ["y"], "amount": 5}),
            ),
        ),
        apply("parents go with the last", two, "applier", widget("two", json!({"replicas": 1}))),
        merge(
            "anything in a free object",
            two,
            json!({"spec": {"free": {"a": {"b": [1, {"c": 2}]}, "d": 1.5, "e": true}}}),
        ),
        apply(
            "a free object of an applier",
            two,
            "free",
            widget("two", json!({"free": {"a": {"b": [2]}, "f": {"g": "h"}}})),
        ),
        force(
            "a free object is taken",
            two,
            "free",
            widget("two", json!({"free": {"a": {"b": [2]}, "f": {"g": "h"}, "n": null}})),
        ),
        apply("a free object changes its kind", two, "free", widget("two", json!({"free": {"a": "text", "f": ["g"]}}))),
        apply("a free object goes", two, "free", widget("two", json!({"replicas": 1}))),
        update("an update of a custom resource", two, |object| object["spec"]["settings"] = json!({"x": "y"})),
        update("an update removes", two, |object| drop(object["spec"].as_object_mut().unwrap().remove("settings"))),
        json_patch(
            "a JSON patch of a custom resource",
            two,
            json!([{"op": "add", "path": "/spec/settings", "value": {"q": "1"}}]),
        ),
        apply("an unknown field", two, "applier", widget("two", json!({"unknown": 1}))),
        apply("a wrong type", two, "applier", widget("two", json!({"replicas": "x"}))),
        apply("a text that is a number", two, "applier", widget("two", json!({"nested": {"a": 1}}))),
        apply("an object that is a list", two, "applier", widget("two", json!({"nested": [1]}))),
        apply("a list that is an object", two, "applier", widget("two", json!({"tags": {"a": 1}}))),
    ]
}

pub(super) fn widget_lists() -> Vec<Step> {
    let path = &format!("{WIDGETS}/lists");
    let ports = |ports: Value| widget("lists", json!({"ports": ports}));
    let tags = |tags: Value| widget("lists", json!({"tags": tags}));
    vec![
        apply(
            "items by two keys",
            path,
            "a",
            ports(json!([{"port": 80, "name": "x"}, {"port": 80, "protocol": "UDP"}, {"port": 81, "note": "n"}])),
        ),
        apply(
            "items of another between",
            path,
            "b",
            ports(json!([{"port": 90}, {"port": 81, "name": "mine"}, {"port": 91}])),
        ),
        apply(
            "items in another order",
            path,
            "a",
            ports(json!([{"port": 81, "note": "n"}, {"port": 80, "protocol": "UDP"}, {"port": 80, "name": "x"}])),
        ),
        apply("an item is shared", path, "c", ports(json!([{"port": 80, "protocol": "TCP"}]))),
        apply("an item goes that is shared", path, "a", ports(json!([{"port": 80, "protocol": "UDP"}]))),
        apply(
            "a field of an item",
            path,
            "d",
            ports(json!([{"port": 80, "protocol": "UDP", "note": "d"}, {"port": 81, "name": "other"}])),
        ),
        apply("an item twice", path, "a", ports(json!([{"port": 1}, {"port": 1, "protocol": "TCP"}]))),
        apply("an item without keys", path, "a", ports(json!([{"name": "x"}]))),
        apply("an item that is none", path, "a", ports(json!(["x"]))),
        apply("an item that is null", path, "a", ports(json!([null]))),
        apply("no items", path, "c", ports(json!([]))),
        apply("a set", path, "s1", tags(json!(["a", "<&>\u{2028}", "c", "10", "9"]))),
        apply("a set of another", path, "s2", tags(json!(["c", "x", "a"]))),
        apply("a set without one", path, "s1", tags(json!(["b", "c"]))),
        apply("a set with one twice", path, "s1", tags(json!(["b", "b"]))),
        apply("a set of objects", path, "s1", tags(json!([{}]))),
        apply("a set of lists", path, "s1", tags(json!([[]]))),
        apply("a set with null", path, "s1", tags(json!([null]))),
        merge("a set by a patch", path, json!({"spec": {"tags": ["q", "c"]}})),
        apply("lists that are one", path, "w1", widget("lists", json!({"whole": ["a", "b"], "plain": ["a"]}))),
        apply("lists that are one, of another", path, "w2", widget("lists", json!({"whole": ["a"], "plain": ["a"]}))),
        force("lists that are one, taken", path, "w2", widget("lists", json!({"whole": ["a"], "plain": ["a"]}))),
        apply("lists that are one go", path, "w2", widget("lists", json!({"plain": []}))),
        update("an item of an applier is removed", path, |object| {
            object["spec"]["ports"].as_array_mut().unwrap().truncate(1)
        }),
    ]
}

pub(super) fn versions() -> Vec<Step> {
    let v1 = &format!("{WIDGETS}/versions");
    let beta = &format!("{WIDGETS_BETA}/versions");
    let of_beta = |spec: Value| {
        let mut widget = widget("versions", spec);
        widget["apiVersion"] = "patch.kubefold.io/v1beta1".into();
        widget
    };
    vec![
        apply("by one version", v1, "applier", widget("versions", json!({"replicas": 1, "settings": {"a": "1"}}))),
        merge("by another version", beta, json!({"spec": {"settings": {"b": "2"}}})).agent("other"),
        merge("by the first", v1, json!({"spec": {"settings": {"c": "3"}}})).agent("other"),
        apply("an applier changes versions", beta, "applier", of_beta(json!({"replicas": 1, "settings": {"d": "4"}}))),
        apply(
            "and meets another version",
            beta,
            "applier",
            of_beta(json!({"replicas": 1, "settings": {"b": "x", "c": "x"}})),
        ),
        apply("the wrong version", beta, "applier", widget("versions", json!({"replicas": 1}))),
    ]
}

pub(super) fn blobs() -> Vec<Step> {
    let path = &format!("{BLOBS}/one");
    let blob = |more: Value| {
        let mut blob = json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Blob", "metadata": {"name": "one"}});
        more.as_object().unwrap().iter().for_each(|(name, value)| blob[name] = value.clone());
        blob
    };
    vec![
        create("anything", BLOBS, blob(json!({"spec": {"a": 1, "list": [{"name": "x"}], "m": {}}, "top": "x"}))),
        apply(
            "anything by an apply",
            path,
            "applier",
            blob(json!({"spec": {"list": [{"name": "y"}], "b": {"c": null}}})),
        ),
        force(
            "anything taken",
            path,
            "applier",
            blob(json!({"spec": {"list": [{"name": "y"}], "b": {"c": {"d": 1}}}, "finalizers": ["x"]})),
        ),
        apply(
            "anything of another",
            path,
            "second",
            blob(json!({"spec": {"b": {"e": 1}}, "metadata": {"name": "one", "finalizers": ["kubefold.io/x"]}})),
        ),
        apply("anything goes", path, "applier", blob(json!({"spec": {"b": {"x": 1}}}))),
        merge("anything by a patch", path, json!({"spec": {"a": {"now": "an object"}, "m": null}})),
        merge("and back", path, json!({"spec": {"a": [1, 2]}})).agent("other"),
        merge("its status", &format!("{path}/status"), json!({"status": {"any": {"thing": 1}}})),
    ]
}
