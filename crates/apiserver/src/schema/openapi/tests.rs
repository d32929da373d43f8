//! What clients of documents look for.

use serde_json::json;

use super::*;
use crate::schema::{builtin, builtin_kind, structural};

fn served<'a>(types: &'a Types, verbs: &'a [String], below: &'a [Part<'a>]) -> Served<'a> {
    Served {
        group: "apps",
        version: "v1",
        kind: "Deployment",
        plural: "deployments",
        namespaced: true,
        verbs,
        subresources: below,
        types,
        type_name: builtin_kind("apps", "v1", "Deployment").unwrap(),
        schema: None,
        selectable_fields: &[],
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn refers_to_nothing_that_is_missing() {
    let types = builtin();
    let (verbs, below) = (words("create delete deletecollection get list patch update watch"), Vec::new());
    let one = served(&types, &verbs, &below);
    let documents = v3(&[one]);
    let document = documents.get("apis/apps/v1").unwrap();
    for (document, place) in [(document.clone(), "#/components/schemas/"), (v2(&[one]), "#/definitions/")] {
        let mut missing = Vec::new();
        references(&document, &mut |name| {
            let pointer = format!("{}/{}", place.trim_start_matches('#').trim_end_matches('/'), &name[place.len()..]);
            if document.pointer(&pointer).is_none_or(Value::is_null) {
                missing.push(name.to_owned());
            }
        });
        assert_eq!(missing, [""; 0]);
    }
}

fn references(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(name) if key == "$ref" => found(name),
                    value => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// kubectl applies by the patches that it finds here.
#[test]
fn a_custom_resource_has_no_strategic_merge_patch() {
    let (types, verbs, schema) = (builtin(), words("get patch"), json!({"type": "object"}));
    let built_in = served(&types, &verbs, &[]);
    let custom = Served { schema: Some(&schema), ..built_in };
    let media = |one: Served<'_>| {
        let document = v3(&[one]);
        let path = "/paths/~1apis~1apps~1v1~1namespaces~1{namespace}~1deployments~1{name}/patch/requestBody/content";
        let content = document["apis/apps/v1"].pointer(path).unwrap().as_object().unwrap().clone();
        content.keys().filter(|media| media.contains("strategic")).count()
    };
    assert_eq!((media(built_in), media(custom)), (1, 0));
}

#[test]
fn tells_what_apply_looks_for() {
    let types = builtin();
    let verbs = words("create get list patch update");
    let of_status = words("get patch update");
    let below = [Part {
        name: "status",
        verbs: &of_status,
        group: "apps",
        version: "v1",
        kind: "Deployment",
        type_name: "io.k8s.api.apps.v1.Deployment",
    }];
    let documents = v3(&[served(&types, &verbs, &below)]);
    let document = documents.get("apis/apps/v1").unwrap();
    let kind = json!({"group":"apps","kind":"Deployment","version":"v1"});
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], kind);
    let names: Vec<_> = patch["parameters"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert!(document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status"]["put"].is_object());
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"], json!([kind]));
    assert_eq!(
        schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"],
        json!({
            "type": "array",
            "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}], "default": {}},
            "x-kubernetes-list-map-keys": ["name"],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
}

#[test]
fn tells_custom_kinds_as_their_definition_does() {
    let schema = json!({"type":"object","properties":{"spec":{"type":"object","oneOf":[{"required":["a"]}],
        "properties":{"a":{"type":"string"},"oneOf":{"type":"string"}}}}});
    let name = "com.example.v1.Widget";
    let types = structural(name, Some(&schema));
    let verbs = words("create get list");
    let mut one = served(&types, &verbs, &[]);
    (one.group, one.kind, one.plural, one.type_name) = ("example.com", "Widget", "widgets", name);
    one.schema = Some(&schema);
    let documents = v3(&[one]);
    let document = documents.get("apis/example.com/v1").unwrap();
    let widget = &document["components"]["schemas"][name];
    assert_eq!(widget["properties"]["spec"], schema["properties"]["spec"]);
    assert!(widget["properties"]["metadata"]["allOf"].is_array());
    assert!(document["components"]["schemas"]["com.example.v1.WidgetList"].is_object());
    let two = v2(&[one]);
    let spec = &two["definitions"][name]["properties"]["spec"];
    assert_eq!(spec, &json!({"type":"object","properties":{"a":{"type":"string"},"oneOf":{"type":"string"}}}));
}

#[test]
fn types_and_fields_are_described_as_kubernetes_describes_them() {
    let types = builtin();
    let (verbs, below) = (words("get list"), Vec::new());
    let one = served(&types, &verbs, &below);
    for (spec, schemas) in [
        (Spec::V2, v2(&[one])["definitions"].clone()),
        (Spec::V3, v3(&[one])["apis/apps/v1"]["components"]["schemas"].clone()),
    ] {
        let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
        assert_eq!(deployment["description"], "Deployment enables declarative updates for Pods and ReplicaSets.");
        let replicas = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"];
        assert!(replicas["description"].as_str().unwrap().starts_with("Number of desired pods."), "{replicas}");
        // A reference has no neighbours in OpenAPI 3.
        let spec_field = &deployment["properties"]["spec"];
        assert!(spec_field["description"].is_string(), "{spec_field}");
        assert_eq!(spec_field["$ref"].is_string(), spec == Spec::V2, "{spec_field}");
        let container = schemas["io.k8s.api.core.v1.Container"]["properties"]["args"]["description"].as_str().unwrap();
        assert!(container.contains("$$(VAR_NAME)") && !container.contains("\\n"), "{container}");
    }
    let text = descriptions::text();
    assert!(text.lines().count() > 3000 && !text.contains(".v1beta1."), "{}", text.len());
}
