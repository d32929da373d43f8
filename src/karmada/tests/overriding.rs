//! How parts differ: the samples of Karmada's documentation.

use super::*;
use crate::{
    config::Overrides,
    placement::overrides::{Kind, overridden_value},
};

/// An OverridePolicy of these overriders, in all members.
fn everywhere(overriders: &str) -> String {
    format!(
        "kind: OverridePolicy\nmetadata: {{name: example}}\nspec: {{overrideRules: [{{overriders: {overriders}}}]}}"
    )
}

fn overrides(rules: &Rules, object: &Value, member: &str) -> Overrides {
    policy_of(rules, object).terms(&MemberName::new(member).unwrap()).overrides
}

/// The part in a member.
fn part(yaml: &str, object: &Value, member: &str) -> Result<Value, String> {
    let rules = rules(yaml);
    let (group, version) = split_api_version(object["apiVersion"].as_str().unwrap()).unwrap();
    let gvk = Gvk::new(group, version, object["kind"].as_str().unwrap());
    let (kind, name) = (Kind::of(&gvk, &rules, None), MemberName::new(member).unwrap());
    let made = overridden_value(object.clone(), &overrides(&rules, object, member), &kind, "", &name);
    made.map_err(|error| error.to_string())
}

fn myapp(container: Value) -> Value {
    let mut object = nginx(1);
    object["spec"]["template"]["spec"]["containers"] =
        json!([container, {"name": "side", "image": "quay.io/a/side@sha256:aa"}]);
    object
}

fn container(yaml: &str, object: &Value) -> Value {
    part(yaml, object, "member1").unwrap()["spec"]["template"]["spec"]["containers"][0].clone()
}

#[test]
fn images_commands_and_arguments() {
    let app = myapp(json!({"name": "myapp", "image": "myapp:1.0.0"}));
    let image = |overrider: &str| {
        let yaml = everywhere(&format!("{{imageOverrider: [{overrider}]}}"));
        let part = part(&yaml, &app, "member1").unwrap();
        let containers = &part["spec"]["template"]["spec"]["containers"];
        [0, 1].map(|at| containers[at]["image"].as_str().unwrap().to_owned())
    };
    let registry = image("{component: Registry, operator: add, value: test-repo}");
    assert_eq!(registry[0], "test-repo/myapp:1.0.0");
    assert_eq!(image("{component: Repository, operator: replace, value: myapp2}")[0], "myapp2:1.0.0");
    assert_eq!(image("{component: Tag, operator: remove}"), ["myapp", "quay.io/a/side"]);
    assert_eq!(image("{component: Tag, operator: replace, value: v2}"), ["myapp:v2", "quay.io/a/side:v2"]);
    assert_eq!(
        image("{component: Registry, operator: replace, value: \"mirror.example:5000\"}"),
        ["mirror.example:5000/myapp:1.0.0", "mirror.example:5000/a/side@sha256:aa"]
    );
    let side = "predicate: {path: /spec/template/spec/containers/1/image}";
    assert_eq!(
        image(&format!("{{{side}, component: Registry, operator: remove}}")),
        ["myapp:1.0.0", "a/side@sha256:aa"]
    );
    let words = json!(["./myapp", "--parameter1=foo", "--parameter2=bar"]);
    let app = myapp(json!({"name": "myapp", "image": "myapp", "command": words}));
    let command = |kind: &str, overrider: &str| {
        let yaml = everywhere(&format!("{{{kind}: [{{containerName: myapp, {overrider}}}]}}"));
        container(&yaml, &app)
    };
    assert_eq!(
        command("commandOverrider", "operator: add, value: [--cluster=member1]")["command"],
        json!(["./myapp", "--parameter1=foo", "--parameter2=bar", "--cluster=member1"])
    );
    assert_eq!(
        command("commandOverrider", "operator: remove, value: [--parameter1=foo]")["command"],
        json!(["./myapp", "--parameter2=bar"])
    );
    let args = command("argsOverrider", "operator: add, value: [-v]");
    assert_eq!((&args["args"], &args["command"]), (&json!(["-v"]), &words), "what is not there is made");
}

#[test]
fn plain_text_labels_annotations_and_documents() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"},
                     "data": {"example": "1", "db-config.yaml": "database:\n  host: localhost\n  port: 3306\n",
                              "db.json": r#"{"host":"localhost"}"#}});
    let replaced = everywhere("{plaintext: [{path: /data/example, operator: replace, value: \"2\"}]}");
    assert_eq!(part(&replaced, &map, "member1").unwrap()["data"]["example"], "2");
    let embedded = everywhere(
        "{fieldOverrider: [{fieldPath: /data/db-config.yaml, yaml: [{subPath: /database/host, operator: replace, value: \
         remote-db.example.com}, {subPath: /database/port, operator: replace, value: \"3307\"}]}, \
         {fieldPath: /data/db.json, json: [{subPath: /port, operator: add, value: 3307}]}]}",
    );
    let after = part(&embedded, &map, "member1").unwrap();
    assert_eq!(after["data"]["db-config.yaml"], "database:\n  host: remote-db.example.com\n  port: \"3307\"\n");
    assert_eq!(after["data"]["db.json"], r#"{"host":"localhost","port":3307}"#);
    let no_json =
        everywhere("{fieldOverrider: [{fieldPath: /data/example, json: [{subPath: /a/b, operator: remove}]}]}");
    let error = part(&no_json, &map, "member1").unwrap_err();
    assert!(
        error.starts_with(
            "OverridePolicy default/example has an override for member member1 that does not go with this object"
        ),
        "{error}"
    );
    // samples/nginx/overridepolicy.yaml
    let sample = "kind: OverridePolicy\nmetadata: {name: nginx-op}\nspec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, \
         name: nginx}], overrideRules: [{targetCluster: {clusterNames: [member2]}, overriders: {labelsOverrider: \
         [{operator: add, value: {env: skoala-dev}}, {operator: add, value: {env-stat: skoala-stage}}, \
         {operator: remove, value: {for: for}}, {operator: replace, value: {bar: test}}]}}, \
         {targetCluster: {clusterNames: [member1]}, overriders: {annotationsOverrider: [{operator: add, value: {env: skoala-stage}}, \
         {operator: remove, value: {bom: bom}}, {operator: replace, value: {emma: sophia}}]}}]}";
    let mut nginx = nginx(2);
    nginx["metadata"]["labels"] = json!({"app": "nginx", "for": "for", "bar": "foo"});
    let second = part(sample, &nginx, "member2").unwrap();
    let want = json!({"app": "nginx", "bar": "test", "env": "skoala-dev", "env-stat": "skoala-stage"});
    assert_eq!((&second["metadata"]["labels"], second["metadata"].get("annotations")), (&want, None));
    let first = part(sample, &nginx, "member1").unwrap();
    assert_eq!(first["metadata"]["annotations"], json!({"env": "skoala-stage"}));
    assert_eq!(first["metadata"]["labels"], nginx["metadata"]["labels"]);
    assert_eq!(part(sample, &nginx, "member3").unwrap(), nginx);
}

#[test]
fn targets_are_what_karmada_says() {
    let targeted = |target: &str| {
        let yaml = format!(
            "kind: OverridePolicy\nmetadata: {{name: example}}\nspec: {{overrideRules: [{{targetCluster: {target}, overriders: \
             {{labelsOverrider: [{{operator: add, value: {{a: b}}}}]}}}}]}}"
        );
        let rules = rules(&yaml);
        let differs = |member: &&str| !overrides(&rules, &nginx(1), member).is_empty();
        ["member1", "member2", "member3", "member4"].into_iter().filter(differs).collect::<Vec<_>>()
    };
    assert_eq!(targeted("{labelSelector: {matchLabels: {location: us}}}"), ["member1", "member2"]);
    let region = "{fieldSelector: {matchExpressions: [{key: region, operator: In, values: [us-east-1]}]}}";
    assert_eq!(targeted(region), ["member1", "member3"]);
    assert_eq!(targeted("{clusterNames: [member1]}"), ["member1"]);
    assert_eq!(targeted("{exclude: [member1]}"), ["member2", "member3", "member4"]);
}

#[test]
fn cluster_wide_ones_apply_first_and_more_precise_ones_last() {
    let labelled = |kind: &str, name: &str, selectors: &str| {
        format!(
            "kind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{selectors}overrideRules: [{{overriders: {{labelsOverrider: \
             [{{operator: add, value: {{by: {name}}}}}]}}}}]}}"
        )
    };
    let by = |policies: &[String]| {
        let part = part(&policies.join("\n---\n"), &nginx(1), "member1").unwrap();
        part["metadata"]["labels"]["by"].as_str().unwrap().to_owned()
    };
    let of_kind = "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], ";
    let of_name = "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: nginx}], ";
    assert_eq!(by(&[labelled("OverridePolicy", "own", ""), labelled("ClusterOverridePolicy", "wide", of_name)]), "own");
    assert_eq!(by(&[labelled("OverridePolicy", "a", of_name), labelled("OverridePolicy", "z", of_kind)]), "a");
    assert_eq!(by(&[labelled("OverridePolicy", "b", of_kind), labelled("OverridePolicy", "a", "")]), "b");
    // The earlier form, of before there were rules.
    let old = "kind: ClusterOverridePolicy\nmetadata: {name: old}\nspec: {targetCluster: {clusterNames: [member2]}, overriders: \
               {plaintext: [{path: /metadata/labels/old, operator: add, value: \"yes\"}]}}";
    assert_eq!(part(old, &nginx(1), "member2").unwrap()["metadata"]["labels"]["old"], "yes");
    assert_eq!(part(old, &nginx(1), "member1").unwrap(), nginx(1));
}

#[test]
fn overriders_are_checked_by_field() {
    let at = "spec.overrideRules[0].overriders";
    for (overriders, field) in [
        ("{imageOverrider: [{component: Tag, operator: add}]}", "imageOverrider[0].value"),
        ("{imageOverrider: [{component: Repository, operator: remove}]}", "imageOverrider[0].operator"),
        (
            "{imageOverrider: [{predicate: {path: spec}, component: Tag, operator: remove}]}",
            "imageOverrider[0].predicate.path",
        ),
        ("{commandOverrider: [{containerName: a, operator: replace}]}", "commandOverrider[0].operator"),
        ("{labelsOverrider: [{operator: add, value: {a b: c}}]}", "labelsOverrider[0].value"),
        ("{plaintext: [{path: /metadata/name, operator: replace, value: b}]}", "plaintext[0].path"),
        ("{plaintext: [{path: /spec/paused, operator: add}]}", "plaintext[0].value"),
        ("{plaintext: [{path: /spec/paused, operator: remove, value: 1}]}", "plaintext[0].value"),
        (
            "{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /a, operator: remove}], yaml: [{subPath: /a, operator: remove}]}]}",
            "fieldOverrider[0].yaml",
        ),
        (
            "{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: a, operator: remove}]}]}",
            "fieldOverrider[0].json[0].subPath",
        ),
    ] {
        let causes = refused(&everywhere(overriders));
        assert_eq!(causes.len(), 1, "{overriders}: {causes:?}");
        assert!(causes[0].starts_with(&format!("{at}.{field}: ")), "{overriders}: {causes:?}");
    }
    let replicas = "kind: OverridePolicy\nmetadata: {name: a}\nspec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], \
                    overrideRules: [{overriders: {plaintext: [{path: /spec/replicas, operator: replace, value: 3}]}}]}";
    assert_eq!(
        refused(replicas),
        [
            "spec.overrideRules: Forbidden: /spec/replicas: the replicas of a Deployment are divided: the fleet view shows their sum; \
          use weights"
        ]
    );
    let both = "kind: OverridePolicy\nmetadata: {name: a}\nspec: {overriders: {}, overrideRules: [{overriders: {}}]}";
    assert_eq!(refused(both), ["spec.overriders: Forbidden: it cannot stand beside overrideRules"]);
}

#[test]
fn an_apply_of_an_object_keeps_its_overrides() {
    let yaml = everywhere(
        "{imageOverrider: [{component: Tag, operator: replace, value: v2}], argsOverrider: [{containerName: nginx, operator: add, \
         value: [-v]}], labelsOverrider: [{operator: add, value: {edge: \"yes\"}}]}",
    );
    let rules = rules(&yaml);
    let gvk = Gvk::new("apps", "v1", "Deployment");
    let (kind, name) = (Kind::of(&gvk, &rules, None), MemberName::new("member1").unwrap());
    let own = overrides(&rules, &nginx(1), "member1");
    let part = part(&yaml, &nginx(1), "member1").unwrap();
    let apply = |body: Value, owned: &[&str]| {
        crate::placement::overrides::applied(body, &part, &own, &kind, &name, |path: &[&str]| path == owned)
    };
    let containers = |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    assert_eq!(
        apply(containers(json!({"name": "nginx", "image": "nginx:v1"})), &["metadata", "labels", "edge"]),
        json!({"metadata": {"labels": {"edge": "yes"}},
               "spec": {"template": {"spec": {"containers": [{"name": "nginx", "image": "nginx:v2", "args": ["-v"]}]}}}})
    );
    assert_eq!(
        apply(containers(json!({"name": "nginx", "args": ["-a"]})), &[]),
        containers(json!({"name": "nginx", "args": ["-a", "-v"]}))
    );
    assert_eq!(apply(json!({"spec": {"paused": true}}), &[]), json!({"spec": {"paused": true}}));
}
