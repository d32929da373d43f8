//! What the webhook answers.

use serde_json::{Value, json};

use testbed::Reply;

/// Answers that convert nothing.
pub(super) const BROKEN: [&str; 22] = [
    "message",
    "status",
    "count",
    "many",
    "uid",
    "review",
    "empty",
    "no-response",
    "broken",
    "text-500",
    "text-404",
    "version",
    "kind",
    "no-kind",
    "name",
    "namespace",
    "object-uid",
    "labels",
    "label-value",
    "annotations",
    "no-metadata",
    "silent",
];

/// What a `ConversionReview` is answered.
pub(super) fn reply(mode: &str, review: &Value) -> Reply {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let mut objects: Vec<Value> =
        request["objects"].as_array().unwrap().iter().map(|object| converted(object, wanted)).collect();
    let mut result = json!({"status": "Success"});
    let mut response = json!({"uid": request["uid"]});
    let kind = "ConversionReview";
    for object in &mut objects {
        spoil(mode, object);
    }
    match mode {
        "message" => result = json!({"status": "Failure", "message": "this host <cannot> be \"said\""}),
        "status" => result = json!({"status": "Failed"}),
        "count" => drop(objects.pop()),
        "many" => objects.push(objects[0].clone()),
        "uid" => response["uid"] = "other".into(),
        // A kube-apiserver says of a kind that it does not know where in its source it looked.
        "review" => return Reply::Json(json!({"apiVersion": "", "kind": "", "response": response})),
        "empty" => return Reply::Json(json!({})),
        "no-response" => return Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": kind})),
        "broken" => return Reply::Text(200, "{x"),
        "text-500" => return Reply::Text(500, "out of order\n"),
        "text-404" => return Reply::Text(404, "nothing here"),
        "silent" => return Reply::Silence,
        _ => {}
    }
    response["result"] = result;
    response["convertedObjects"] = objects.into();
    Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": kind, "response": response}))
}

fn spoil(mode: &str, object: &mut Value) {
    match mode {
        "version" => object["apiVersion"] = "convert.example.com/v7".into(),
        "kind" => object["kind"] = "Guest".into(),
        "no-kind" => drop(object.as_object_mut().unwrap().remove("kind")),
        "name" => object["metadata"]["name"] = "other".into(),
        "namespace" => object["metadata"]["namespace"] = "other".into(),
        "object-uid" => object["metadata"]["uid"] = "other".into(),
        "labels" => object["metadata"]["labels"] = json!({"a": 7}),
        "label-value" => object["metadata"]["labels"] = json!({"a": "b c"}),
        "annotations" => object["metadata"]["annotations"] = json!({"a b": "c"}),
        "no-metadata" => drop(object.as_object_mut().unwrap().remove("metadata")),
        _ => {}
    }
}

/// `v1` has a host and a port, and `replicas`; `v2` has both as one text, and `size`.
fn converted(object: &Value, wanted: &str) -> Value {
    let mut out = object.clone();
    out["apiVersion"] = wanted.into();
    // It is not the webhook's to say.
    out["metadata"]["generation"] = 99.into();
    let spec = &object["spec"];
    let mut new = spec.as_object().cloned().unwrap_or_default();
    let mut annotations = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    if wanted.ends_with("/v2") {
        let (host, port) = (new.remove("host"), new.remove("port"));
        if let Some(host) = host {
            let port = port.and_then(|port| port.as_i64()).unwrap_or_default();
            new.insert("hostPort".to_owned(), format!("{}:{port}", host.as_str().unwrap()).into());
        }
        if let Some(replicas) = new.remove("replicas") {
            new.insert("size".to_owned(), replicas);
        }
        annotations.insert("seen".to_owned(), "in v2".into());
        if object["metadata"]["name"] == "odd" {
            new.insert("unknown".to_owned(), true.into());
        }
    } else {
        if let Some(both) = new.remove("hostPort") {
            let (host, port) = both.as_str().unwrap().split_once(':').unwrap();
            new.insert("host".to_owned(), host.into());
            new.insert("port".to_owned(), port.parse::<i64>().unwrap().into());
        }
        if let Some(size) = new.remove("size") {
            new.insert("replicas".to_owned(), size);
        }
        annotations.remove("seen");
        // `v1` does not know it, and who owns what could not be said in `v1`.
        new.remove("mode");
    }
    if !spec.is_null() {
        out["spec"] = new.into();
    }
    out["metadata"].as_object_mut().unwrap().remove("annotations");
    if !annotations.is_empty() {
        out["metadata"]["annotations"] = annotations.into();
    }
    out
}
