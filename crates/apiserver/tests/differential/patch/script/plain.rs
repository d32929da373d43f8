//! Config maps: one map of texts.

use serde_json::{Value, json};

use super::*;

pub(super) fn config_maps() -> Vec<Step> {
    let one = &format!("{MAPS}/one");
    let two = &format!("{MAPS}/two");
    vec![
        create("a create has an owner", MAPS, config_map("one", json!({"a": "1", "b": "2", "c.d": "3"}))),
        merge("a merge patch adds a key", one, json!({"data": {"d": "4"}})).agent("kubectl/v1.36 (x)"),
        merge("a merge patch changes the key of another", one, json!({"data": {"a": "x"}})).agent("kubectl"),
        merge("a merge patch that changes nothing", one, json!({"data": {"a": "x"}})).agent("third"),
        merge(
            "a merge patch removes",
            one,
            json!({"data": {"b": null, "nothing": null}, "metadata": {"labels": {"l": "1"}}}),
        ),
        apply("an apply meets others", one, "applier", config_map("one", json!({"a": "mine", "e": "5"}))),
        apply("an apply agrees with others", one, "applier", config_map("one", json!({"a": "x", "e": "5"}))),
        force("an apply is forced", one, "applier", config_map("one", json!({"a": "mine", "d": "mine", "e": "5"}))),
        apply("the same apply again", one, "applier", config_map("one", json!({"a": "mine", "d": "mine", "e": "5"}))),
        apply("an apply without a key that only it has", one, "applier", config_map("one", json!({"a": "mine"}))),
        apply("another applier shares a value", one, "second", config_map("one", json!({"a": "mine"}))),
        apply("the first leaves what is shared", one, "applier", config_map("one", json!({"z": "1"}))),
        apply("the second meets two", one, "third%20one", config_map("one", json!({"a": "no", "z": "no"}))),
        update("an update", one, |object| object["data"]["u"] = "1".into()),
        update("an update that changes nothing", one, |_| {}),
        update("an update removes a key of an applier", one, |object| {
            drop(object["data"].as_object_mut().unwrap().remove("z"))
        }),
        merge("a named manager", &format!("{one}?fieldManager=named"), json!({"data": {"n": "1"}})),
        apply("an apply creates", two, "applier", config_map("two", json!({"a": "1"}))),
        apply(
            "an apply of nothing but the name",
            two,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}}),
        ),
        apply(
            "an apply of labels and finalizers",
            two,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "two", "labels": {"x": "1", "y/z": "2"}, "annotations": {"n": ""}, "finalizers": ["kubefold.io/a", "kubefold.io/b"]}}),
        ),
        apply(
            "finalizers of another",
            two,
            "second",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "two", "finalizers": ["kubefold.io/c", "kubefold.io/a"]}}),
        ),
        apply(
            "a finalizer goes",
            two,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "two", "finalizers": ["kubefold.io/b"]}}),
        ),
        apply(
            "null values",
            two,
            "nulls",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two", "labels": null}, "data": null}),
        ),
        json_patch(
            "a JSON patch",
            two,
            json!([
                {"op": "test", "path": "/metadata/name", "value": "two"},
                {"op": "add", "path": "/data", "value": {"k": "v", "a/b": "c"}},
                {"op": "copy", "from": "/data/k", "path": "/data/l"},
                {"op": "move", "from": "/data/k", "path": "/data/m"},
                {"op": "replace", "path": "/data/new", "value": "there was none"},
                {"op": "remove", "path": "/data/a~1b"},
                {"op": "add", "path": "/metadata/finalizers/-", "value": "kubefold.io/z"},
                {"op": "remove", "path": "/metadata/finalizers/-1"},
            ]),
        ),
        strategic(
            "owners of an object's references",
            two,
            json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "11111111-2222-3333-4444-555555555555"}]}}),
        ),
        strategic(
            "one is deleted by its key",
            two,
            json!({"metadata": {"ownerReferences": [
            {"$patch": "delete", "uid": "11111111-2222-3333-4444-555555555555"}]}}),
        ),
        strategic(
            "finalizers are merged",
            two,
            json!({"metadata": {"finalizers": ["kubefold.io/n", "kubefold.io/b"]}}),
        ),
        strategic(
            "finalizers are deleted",
            two,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["kubefold.io/n", "none"]}}),
        ),
        strategic(
            "finalizers are ordered",
            two,
            json!({"metadata": {"$setElementOrder/finalizers": ["kubefold.io/q", "kubefold.io/c"], "finalizers": ["kubefold.io/q"]}}),
        ),
        strategic("labels are replaced", two, json!({"metadata": {"labels": {"$patch": "replace", "only": "1"}}})),
        strategic("labels are deleted", two, json!({"metadata": {"labels": {"$patch": "delete"}}})),
        strategic("data retains keys", two, json!({"data": {"$retainKeys": ["m", "o"], "o": "1"}})),
        merge("whole data by another", two, json!({"data": {"m": null, "o": null, "l": null, "new": null}})),
        merge("all data goes", two, json!({"data": null, "immutable": true})),
    ]
}

pub(super) fn resets() -> Vec<Step> {
    let reset = &format!("{MAPS}/reset");
    vec![
        create("to be reset", MAPS, config_map("reset", json!({"a": "1", "b": "2"}))),
        merge("an entry of its own", reset, json!({"data": {"a": "2"}})).agent("other"),
        update("entries are reset", reset, |object| object["metadata"]["managedFields"] = json!([{}])),
        merge("what is not tracked stays so", reset, json!({"data": {"b": "3"}})).agent("other"),
        apply("before the first apply", reset, "applier", config_map("reset", json!({"c": "1"}))),
        apply("what was before is another's", reset, "applier", config_map("reset", json!({"a": "mine"}))),
        update("entries are set", reset, |object| {
            object["metadata"]["managedFields"] = json!([{"manager": "set", "operation": "Update", "apiVersion": "v1",
                "time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}, ".": {}}}}]);
        }),
        update("entries that are none are as if not sent", reset, |object| {
            object["metadata"]["managedFields"] = json!([]);
            object["data"]["a"] = "4".into();
        }),
        update("no entries are as if not sent", reset, |object| {
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            object["data"]["b"] = "5".into();
        }),
        merge("a patch resets", reset, json!({"metadata": {"managedFields": [{}]}})),
        apply(
            "entries in an apply",
            reset,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "reset", "managedFields": []}}),
        ),
        merge(
            "entries that can't be read",
            reset,
            json!({"metadata": {"managedFields": [
            {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"x": {}}}}]}, "data": {"q": "1"}}),
        ),
    ]
}

pub(super) fn many_managers() -> Vec<Step> {
    let many = &format!("{MAPS}/many");
    let mut steps = vec![create("to be of many", MAPS, config_map("many", json!({"a": "1"})))];
    for index in 0..14 {
        // In the order of their names, too: nobody's place depends on where a second ends.
        let path = format!("{many}?fieldManager=writer-{index:02}");
        let key = format!("key-{index}");
        steps.push(merge("more than ten owners", &path, json!({"data": {key: "1"}})));
    }
    steps.push(apply(
        "an applier is none of them",
        many,
        "applier",
        config_map("many", json!({"key-3": "1", "mine": "1"})),
    ));
    steps.push(force(
        "ancient changes are overruled",
        many,
        "applier",
        config_map("many", json!({"key-3": "2", "mine": "1"})),
    ));
    steps
}

pub(super) fn migration() -> Vec<Step> {
    let path = &format!("{MAPS}/migrated");
    let with = |data: Value, last: Value| {
        let mut object = config_map("migrated", data);
        object["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
        object
    };
    let last = config_map("migrated", json!({"a": "1", "b": "2"}));
    vec![
        create("by kubectl itself", MAPS, with(json!({"a": "1", "b": "2"}), last)).agent("kubectl-client-side-apply"),
        apply("the same on the server", path, "kubectl", config_map("migrated", json!({"a": "1", "b": "2"}))),
        apply("changed on the server", path, "kubectl", config_map("migrated", json!({"a": "3", "b": "2"}))),
        merge("changed by another", path, json!({"data": {"b": "x"}})).agent("other"),
        apply("meets the other", path, "kubectl", config_map("migrated", json!({"a": "3", "b": "y"}))),
        apply("any other name does not", path, "someone", config_map("migrated", json!({"a": "4"}))),
        apply(
            "with labels",
            path,
            "kubectl",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "3"},
            "metadata": {"name": "migrated", "labels": {"b": "1", "a": "x"}, "annotations": {"n": "1"}}}),
        ),
    ]
}
