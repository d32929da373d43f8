//! The oracle is the patch library of a kube-apiserver: `vectors.json` holds what it answers.

use serde_json::{Value, json as object};

use super::{JsonPatch, PatchError, json, merge};

/// The object, and each patch with what it makes of it; null: it does not apply.
fn vectors() -> (Value, Vec<Value>) {
    let mut vectors: Value = serde_json::from_str(include_str!("vectors.json")).expect("it is committed");
    let list = vectors["vectors"].as_array().expect("it has a list").clone();
    (vectors["live"].take(), list)
}

fn patched(live: &Value, patch: &str) -> Result<Value, PatchError> {
    if patch.starts_with('[') { json(live, patch.as_bytes()) } else { merge(live, patch.as_bytes()) }
}

#[test]
fn patches_make_what_the_library_of_a_kube_apiserver_makes() {
    let (live, vectors) = vectors();
    assert!(vectors.len() >= 90, "only {} vectors", vectors.len());
    for vector in vectors {
        let patch = vector["patch"].as_str().expect("a patch is a text");
        let made = patched(&live, patch).unwrap_or_else(|error| {
            assert_eq!(error.code.as_u16(), 422, "{patch}");
            Value::Null
        });
        assert_eq!(made, vector["result"], "{patch}");
    }
}

#[test]
fn too_many_operations_are_refused() {
    let operation = object!({"op": "test", "path": "/kind", "value": "Deployment"});
    let patch = |count: usize| serde_json::to_vec(&vec![operation.clone(); count]).expect("it is JSON");
    let live = object!({"kind": "Deployment"});
    assert!(json(&live, &patch(10_000)).is_ok());
    let refused = json(&live, &patch(10_001)).expect_err("it is one too many");
    assert_eq!(refused.code.as_u16(), 413);
    let message = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(refused.message, message);
}

/// A kube-apiserver allows 3 MiB; 1,536 bytes of text and two quotes are copied 2,045 times within it.
#[test]
fn too_many_copied_bytes_are_refused() {
    let live = object!({"text": "x".repeat(1536), "list": []});
    let copy = object!({"op": "copy", "from": "/text", "path": "/list/-"});
    let copies = |count: usize| json(&live, &serde_json::to_vec(&vec![copy.clone(); count]).expect("it is JSON"));
    assert_eq!(copies(2045).expect("within the limit")["list"].as_array().map(Vec::len), Some(2045));
    assert_eq!(copies(2046).expect_err("above the limit"), PatchError::unprocessable());
}

#[test]
fn operations_of_a_configuration_are_complete_and_written_as_they_were_read() {
    let whole =
        r#"[{"op":"add","path":"/a~1b","value":null},{"op":"remove","path":""},{"op":"move","from":"/a","path":"/b"}]"#;
    let patch: JsonPatch = serde_json::from_str(whole).expect("it is a patch");
    assert_eq!(serde_json::to_string(&patch).expect("it is JSON"), whole);
    for (wrong, why) in [
        (object!({"op": "add", "path": "/a"}), "it has no \"value\""),
        (object!({"op": "copy", "path": "/a"}), "it has no \"from\""),
        (object!({"op": "remove"}), "it has no \"path\""),
        (object!({"op": "jump", "path": "/a"}), "\"jump\" is no operation"),
        (object!({"op": "remove", "path": "a"}), "the path \"a\" does not begin with '/'"),
        (object!({"op": "move", "from": "a", "path": "/a"}), "the path \"a\" does not begin with '/'"),
    ] {
        let error = serde_json::from_value::<JsonPatch>(object!([wrong])).expect_err("it is wrong");
        assert_eq!(error.to_string(), why);
    }
    let none = patch.apply(object!({"a/b": 1, "a": 2})).expect_err("the whole cannot be removed");
    assert_eq!(none.to_string(), "operation 1: there is nothing at \"\"");
}
