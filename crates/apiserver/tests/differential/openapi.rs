//! What OpenAPI documents say of custom resources: paths, operations, parameters and schemas.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{schema::plain, writes::Server};
use testbed::eventually;

const SOON: Duration = Duration::from_secs(60);
const OWLS: &str = "/openapi/v3/apis/birds.example.com/v1beta1";
const GROUPS: [&str; 2] = ["/apis/stable.example.com/", "/apis/birds.example.com/"];

/// A kind without a namespace, with another article, and with a subresource of another type.
pub(super) fn owls() -> Value {
    let schema = json!({"type": "object", "description": "A bird of the night.", "properties": {
        "spec": {"type": "object", "required": ["night", "prey"], "properties": {
            "replicas": {"type": "integer"},
            "night": {"type": "object", "nullable": true, "properties": {"long": {"type": "boolean"}}},
            "prey": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "nest": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"at": {"type": "string"}}},
            "eggs": {"type": "object", "required": [], "additionalProperties": {"type": "string", "nullable": true}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "one": {"type": "object", "required": ["two"], "properties": {"two": {"type": "string", "nullable": true}}},
            "either": {"x-kubernetes-int-or-string": true, "nullable": true},
            "egg": {"type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind", "shell"], "properties": {
                "shell": {"type": "string", "description": "What is around it."}, "kind": {"type": "string", "pattern": "^E"},
            }},
            "young": {"type": "array", "items": {
                "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            }},
        }},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }});
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "owls.birds.example.com"},
        "spec": {
            "group": "birds.example.com", "scope": "Cluster", "names": {"plural": "owls", "kind": "Owl"},
            "versions": [
                {
                    "name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"scale": scale},
                },
                {"name": "v1beta2", "served": true, "storage": false, "schema": {"openAPIV3Schema": anything}},
            ],
        },
    })
}

/// A document without the descriptions of parameters and fields.
pub(super) fn told(document: &Value) -> Value {
    let mut schemas = plain(&document["components"]["schemas"]);
    // It names every group of Kubernetes that has it.
    schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"].take();
    let info = (&document["openapi"], &document["info"]);
    json!({"info": info, "paths": paths(document, &document["paths"]), "schemas": schemas})
}

/// The document of owls, and what version 2 says of all custom resources.
pub(super) async fn all_told(server: &Server) -> Value {
    let document = async |path: &'static str, at: &'static str| {
        eventually(SOON, async || match server.send("GET", path, String::new()).await {
            (200, document) if document.pointer(at).is_some_and(Value::is_object) => Ok(document),
            (code, _) => Err(format!("{}: {code} for {path}", server.name())),
        })
        .await
    };
    let v3 = document(OWLS, "/components/schemas/com.example.birds.v1beta1.Owl").await;
    let v2 = document("/openapi/v2", "/definitions/com.example.birds.v1beta2.Owl").await;
    let is_ours = |path: &&String| GROUPS.iter().any(|group| path.starts_with(group));
    let ours = v2["paths"].as_object().unwrap().iter().filter(|(path, _)| is_ours(path));
    let ours: Map<String, Value> = ours.map(|(path, operations)| (path.clone(), operations.clone())).collect();
    assert_eq!(ours.len(), 13, "{:?}", ours.keys());
    let names = ["birds.v1beta1.Owl", "birds.v1beta2.Owl", "stable.v1.Fox", "stable.v2.FoxList"];
    let schemas = names.map(|name| (name.to_owned(), plain(&v2["definitions"][format!("com.example.{name}")])));
    let described = ["Owl", "OwlList"].map(|kind| {
        let name = format!("com.example.birds.v1beta1.{kind}");
        [&v3["components"]["schemas"][&name], &v2["definitions"][&name]].map(Value::clone)
    });
    json!({
        "v3": told(&v3), "v2": paths(&v2, &Value::Object(ours)), "schemas": Map::from_iter(schemas), "described": described,
    })
}

/// Operations with the parameters that they refer to.
fn paths(document: &Value, paths: &Value) -> Value {
    let mut paths = paths.clone();
    for operations in paths.as_object_mut().unwrap().values_mut() {
        let of_path = operations.get_mut("parameters").into_iter();
        of_path.for_each(|parameters| resolve(document, parameters));
        for operation in operations.as_object_mut().unwrap().values_mut() {
            operation.get_mut("parameters").into_iter().for_each(|parameters| resolve(document, parameters));
        }
    }
    paths
}

fn resolve(document: &Value, parameters: &mut Value) {
    for parameter in parameters.as_array_mut().unwrap() {
        let reference = parameter["$ref"].as_str().map(|reference| reference.trim_start_matches('#').to_owned());
        if let Some(reference) = reference {
            *parameter = document.pointer(&reference).unwrap().clone();
        }
        parameter.as_object_mut().unwrap().shift_remove("description");
    }
}
