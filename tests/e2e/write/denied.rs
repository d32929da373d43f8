//! Bad input as people send it, by kubectl as it is: what happened at which member, and what state things are in.

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Output, Testbed};

/// What one member alone does not let through, and what it alone adds.
const HOUSE_RULES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: house-rules}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [configmaps]}
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}
  validations:
  - expression: "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'"
    message: this one is kept
  - expression: "request.operation == 'DELETE' || object.kind != 'ConfigMap' || !has(object.data) || !('forbidden' in object.data)"
    message: no forbidden data here
    reason: Forbidden
  - expression: "request.operation == 'DELETE' || object.kind != 'Deployment' || object.spec.replicas < 9"
    message: at most 8 replicas here
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: house-rules}
spec: {policyName: house-rules, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: sidecar}
spec:
  reinvocationPolicy: Never
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  matchConditions:
  - {name: asked, expression: "has(object.metadata.labels) && 'mutate' in object.metadata.labels"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{metadata: Object.metadata{labels: {"house": "west"}}, spec: Object.spec{template: Object.spec.template{
        spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "side", image: "s:1"}]}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: sidecar}
spec: {policyName: sidecar}
"#;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

impl Stage {
    /// Which members hold it.
    async fn holders(&self, path: &str) -> Vec<&str> {
        let mut holders = Vec::new();
        for member in self.all() {
            if in_member(member, path).await.is_some() {
                holders.push(member.name());
            }
        }
        holders
    }

    /// What stands at a place of the object in each member that holds it.
    async fn bare_values(&self, path: &str, pointer: &str) -> Vec<Value> {
        let mut values = Vec::new();
        for member in self.all() {
            if let Some(part) = in_member(member, path).await {
                values.push(part.pointer(pointer).cloned().unwrap_or_default());
            }
        }
        values
    }
}

/// That kubectl printed a refusal that holds all of these.
#[track_caller]
fn printed(output: &Output, texts: &[&str]) {
    let told = output.refused();
    for text in texts {
        assert!(told.contains(text), "no {text:?} in: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_told_with_its_member_and_what_state_things_are_in() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let file = FleetFile::default().member(&bed["east"], 2).member(&bed["west"], 1).member(&bed["north"], 1);
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    rules_in_force(&stage.bed["west"]).await;
    denied(&stage).await;
    mutated(&stage).await;
    over_quota(&stage).await;
    without_a_namespace(&stage).await;
    immutable(&stage).await;
    copied(&stage).await;
    of_strangers(&stage).await;
    oversized(&stage).await;
    lists_have_the_keys_of_kubernetes(&stage.bed["east"]).await;
    a_lawless_start(&stage, file).await;
}

async fn rules_in_force(west: &Member) {
    west.apply(HOUSE_RULES).await;
    let forbidden =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}, "data": {"forbidden": ""}});
    let mut mutated = deployment("probe", 1);
    mutated["metadata"]["labels"]["mutate"] = json!("yes");
    eventually(PODS, async || {
        let denied = west.request(Method::POST, &format!("{MAPS}?dryRun=All"), forbidden.to_string()).await;
        let made = west.request(Method::POST, &format!("{DEPLOYMENTS}?dryRun=All"), mutated.to_string()).await;
        let both = denied.status == StatusCode::FORBIDDEN && made.to_string().contains("s:1");
        both.then_some(()).ok_or_else(|| format!("{denied} {made}"))
    })
    .await;
}

/// Admission of one member says no: to a create, a change, a delete.
async fn denied(stage: &Stage) {
    let denial = "ValidatingAdmissionPolicy 'house-rules' with binding 'house-rules' denied request: ";
    let forbidden = format!("{denial}no forbidden data here (member west; nothing was made)");
    let told = stage.kubectl(&["create", "configmap", "bad", "--from-literal=forbidden=1"]).await;
    printed(&told, &["failed to create configmap: configmaps \"bad\" is forbidden: ", &forbidden]);
    assert!(stage.holders(&format!("{MAPS}/bad")).await.is_empty());

    let kept = format!("{MAPS}/kept");
    stage.kubectl(&["create", "configmap", "kept", "--from-literal=a=1"]).await.ok();
    let patch = r#"{"data":{"forbidden":"x"}}"#;
    let told = stage.kubectl(&["patch", "configmap", "kept", "--type=merge", "-p", patch]).await;
    printed(&told, &["(Forbidden): ", "no forbidden data here (member west; nothing was changed)"]);
    assert_eq!(stage.bare_values(&kept, "/data").await, vec![json!({"a": "1"}); 3]);
    // The first one's refusal of a delete is everybody's.
    let told = stage.kubectl(&["delete", "configmap", "kept"]).await;
    printed(&told, &["this one is kept (member west; nothing was deleted)"]);
    assert_eq!(stage.bare_values(&kept, "/metadata/deletionTimestamp").await, vec![Value::Null; 3]);
    let shown = stage.kubectl(&["get", "configmap", "kept", "-o", "yaml"]).await;
    assert!(!shown.ok().contains("kubefold.io/differs") && !shown.stdout.contains("behind"), "{shown}");

    post(&stage.api, &deployment("many", 4)).await.ok();
    let patch = r#"{"spec":{"replicas":40}}"#;
    let told = stage.kubectl(&["patch", "deployment", "many", "--type=merge", "-p", patch]).await;
    printed(&told, &["at most 8 replicas here (member west; nothing was changed)"]);
    assert_eq!(shares(&stage.all(), "many").await, split(&[("east", 2), ("west", 1), ("north", 1)]));
}

/// Admission of one member adds something: it stays there, and is told.
async fn mutated(stage: &Stage) {
    let mut web = deployment("mutated", 4);
    web["metadata"]["labels"]["mutate"] = json!("yes");
    let path = format!("{DEPLOYMENTS}/mutated");
    let images = async || {
        let parts = stage.bare_values(&path, "/spec/template/spec/containers").await;
        let images = |part: &Value| -> Vec<String> {
            part.as_array().unwrap().iter().map(|one| text(one, "/image").to_owned()).collect()
        };
        parts.iter().map(images).collect::<Vec<_>>()
    };
    let each = |image: &str| vec![vec![image.to_owned()], vec![image.to_owned(), "s:1".into()], vec![image.to_owned()]];
    let made = stage.kubectl_with(&["apply", "-f", "-"], &web).await;
    made.ok();
    assert!(made.stderr.contains("\"mutated\" differs in member west"), "{made}");
    assert_eq!(images().await, each("web:1"));
    stage.kubectl(&["set", "image", "deployment/mutated", "web=web:2"]).await.ok();
    assert_eq!(images().await, each("web:2"));
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:3");
    stage.kubectl_with(&["apply", "-f", "-"], &web).await.ok();
    let again = stage.kubectl_with(&["apply", "-f", "-"], &web).await;
    assert!(again.ok().contains("unchanged"), "{again}");
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:4");
    stage.kubectl_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &web).await.ok();
    assert_eq!(images().await, each("web:4"));
    assert_eq!(stage.bare_values(&path, "/metadata/labels/house").await, [Value::Null, json!("west"), Value::Null]);
    let shown = stage.api.get(&path).await;
    assert_eq!(shown["metadata"]["annotations"]["kubefold.io/differs"], "west");
}

/// A quota of one member, for what is in every member and what is in one.
async fn over_quota(stage: &Stage) {
    stage.kubectl(&["create", "namespace", "tight"]).await.ok();
    let north = &stage.bed["north"];
    let counts = ["count/configmaps", "count/jobs.batch", "services", "pods"].map(|what| format!("{what}=0")).join(",");
    north.kubectl(&["create", "quota", "none", "-n", "tight", &format!("--hard={counts}")]).await.ok();
    north.kubectl(&["create", "serviceaccount", "default", "-n", "tight"]).await.ok();
    // There is no controller that would fill the status in.
    let none = json!({"count/configmaps": "0", "count/jobs.batch": "0", "services": "0", "pods": "0"});
    let status = json!({"status": {"hard": none, "used": none}}).to_string();
    let patch = ["patch", "quota", "none", "-n", "tight", "--subresource=status", "--type=merge", "-p", &status];
    north.kubectl(&patch).await.ok();
    for (what, args) in [
        ("configmaps \"m\"", ["create", "configmap", "m", "-n", "tight"].as_slice()),
        ("services \"s\"", &["create", "service", "clusterip", "s", "--tcp=80", "-n", "tight"]),
        ("pods \"p\"", &["run", "p", "--image=a", "--annotations=kubefold.io/place-on=north", "-n", "tight"]),
    ] {
        eventually(SOON, async || {
            // A dry run: until the member has heard of the quota it makes what it is asked.
            let dry: Vec<&str> = args.iter().copied().chain(["--dry-run=server"]).collect();
            let told = stage.kubectl(&dry).await;
            let refused = !told.succeeded() && told.stderr.contains("exceeded quota");
            refused.then_some(()).ok_or_else(|| told.to_string())
        })
        .await;
        let forbidden = format!("{what} is forbidden: exceeded quota: none, requested: ");
        printed(&stage.kubectl(args).await, &[&forbidden, "(member north; nothing was made)"]);
    }
    for path in ["configmaps/m", "services/s", "pods/p"] {
        assert!(stage.holders(&format!("/api/v1/namespaces/tight/{path}")).await.is_empty(), "{path}");
    }
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "tight", "annotations": {"kubefold.io/place-on": "north"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}});
    let told = stage.kubectl_with(&["create", "-f", "-"], &job).await;
    printed(&told, &["jobs.batch \"j\" is forbidden: exceeded quota", "(member north; nothing was made)"]);
}

async fn without_a_namespace(stage: &Stage) {
    stage.bed["east"].kubectl(&["create", "namespace", "only-east"]).await.ok();
    let told = stage.kubectl(&["create", "configmap", "m@west", "-n", "only-east"]).await;
    printed(&told, &["namespaces \"only-east\" not found (member west)"]);
    let told = stage.kubectl(&["create", "configmap", "m", "-n", "nowhere"]).await;
    printed(&told, &["namespaces \"nowhere\" not found: no member holds it"]);
    stage.kubectl(&["create", "configmap", "m", "-n", "only-east"]).await.ok();
    assert_eq!(stage.holders("/api/v1/namespaces/only-east/configmaps/m").await, ["east"]);
}

/// What may not change, told in the words of a member and for each field.
async fn immutable(stage: &Stage) {
    let patch = async |what: &str, patch: Value| {
        stage.kubectl(&["patch", what, "--type=merge", "-p", &patch.to_string()]).await
    };
    stage.kubectl(&["create", "service", "clusterip", "fixed", "--tcp=80"]).await.ok();
    let addresses = async || stage.bare_values("/api/v1/namespaces/default/services/fixed", "/spec/clusterIP").await;
    let before = addresses().await;
    let told = patch("service/fixed", json!({"spec": {"clusterIP": "10.0.0.77"}})).await;
    printed(
        &told,
        &["The Service \"fixed\" is invalid: spec.clusterIPs[0]: Invalid value: ", "; nothing was changed)"],
    );
    assert_eq!(addresses().await, before);

    stage.kubectl(&["create", "job", "fixed", "--image=a"]).await.ok();
    let told = patch("job/fixed", json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})).await;
    printed(&told, &["The Job \"fixed\" is invalid: spec.template: Invalid value: ", "field is immutable (member "]);

    let told = patch("deployment/many", json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}})).await;
    let lines = ["* spec.template.metadata.labels: Invalid value: ", "* spec.selector: Invalid value: "];
    printed(&told, &["The Deployment \"many\" is invalid: ", lines[0], lines[1], "field is immutable (member "]);

    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fixed"}, "immutable": true,
        "stringData": {"a": "b"}});
    stage.kubectl_with(&["apply", "-f", "-"], &secret).await.ok();
    secret["stringData"]["a"] = json!("c");
    for args in [
        ["apply", "-f", "-"].as_slice(),
        &["replace", "-f", "-"],
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
    ] {
        let told = stage.kubectl_with(args, &secret).await;
        printed(
            &told,
            &["data: Forbidden: field is immutable when `immutable` is set (member ", "; nothing was changed)"],
        );
    }
    let held = stage.bare_values("/api/v1/namespaces/default/secrets/fixed", "/data/a").await;
    assert_eq!(held, vec![json!("Yg=="); 3]);
}

/// A part that somebody copies with its marker is no part: through the fleet a placement of its own, in a member a member-local object.
async fn copied(stage: &Stage) {
    let original = stage.api.get(&format!("{MAPS}/kept")).await;
    let part = in_member(&stage.bed["east"], &format!("{MAPS}/kept")).await.unwrap();
    let copy = |name: &str| {
        let metadata = &part["metadata"];
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": part["data"], "metadata": {
            "name": name, "labels": metadata["labels"], "annotations": metadata["annotations"]}})
    };
    stage.kubectl_with(&["create", "-f", "-"], &copy("through")).await.ok();
    let through = stage.api.get(&format!("{MAPS}/through")).await;
    assert_ne!(text(&through, "/metadata/uid"), text(&original, "/metadata/uid"));
    assert!(!through.to_string().contains(MARKER), "{through}");
    let marks = stage.bare_values(&format!("{MAPS}/through"), "/metadata/labels").await;
    assert_eq!(marks, vec![json!({MARKER: text(&through, "/metadata/uid")}); 3]);
    // In its own member, and in another one.
    for member in ["east", "west"] {
        stage.bed[member].api().await.create(MAPS, &copy("beside")).await;
    }
    let names = eventually(SOON, async || {
        let list = stage.api.get(MAPS).await;
        let names = list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned());
        let names: Vec<String> = names.filter(|name| name.starts_with("beside")).collect();
        (names.len() == 2).then_some(names).ok_or_else(|| list.to_string())
    })
    .await;
    assert_eq!(names, ["beside@east", "beside@west"]);
    stage.kubectl(&["delete", "configmap", "beside@east"]).await.ok();
    assert_eq!(stage.holders(&format!("{MAPS}/beside")).await, ["west"]);
    assert_eq!(stage.holders(&format!("{MAPS}/kept")).await, ["east", "west", "north"], "the original is untouched");
}

/// Nobody changes a member-local object by its plain name.
async fn of_strangers(stage: &Stage) {
    let stranger =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stranger"}, "data": {"a": "1"}});
    stage.bed["east"].api().await.create(MAPS, &stranger).await;
    eventually(SOON, async || stage.kubectl(&["get", "configmaps"]).await.holds("stranger@east")).await;
    let named = "configmaps \"stranger\" not found; member-local objects with that name: stranger@east";
    for args in [
        ["patch", "configmap", "stranger", "--type=merge", "-p", "{}"].as_slice(),
        &["delete", "configmap", "stranger"],
        &["label", "configmap", "stranger", "a=b"],
    ] {
        printed(&stage.kubectl(args).await, &[named]);
    }
    let told = stage.kubectl_with(&["apply", "-f", "-"], &stranger).await;
    printed(&told, &["configmaps \"stranger\" already exists (member east", "stranger@east"]);
    assert_eq!(stage.holders(&format!("{MAPS}/stranger")).await, ["east"]);
}

/// What a member's etcd does not take is known not to be there: the name is free at once.
async fn oversized(stage: &Stage) {
    let sized = |bytes: usize| {
        let mut large = deployment("large", 4);
        large["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(bytes)]);
        large.to_string()
    };
    let path = format!("{DEPLOYMENTS}/large");
    let send = async |method: Method, path: &str, bytes: usize| {
        let answer = stage.api.request(method, path, sized(bytes)).await;
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        (answer.status.as_u16(), message)
    };
    const ETCD_REFUSES: usize = 1_600_000;
    const KUBEFOLD_REFUSES: usize = 3 << 20;
    let (code, message) = send(Method::POST, DEPLOYMENTS, ETCD_REFUSES).await;
    assert!(code == 500 && message.contains(" (member "), "{code}: {message}");
    assert!(message.ends_with("; nothing was made)"), "{message}");
    assert!(stage.holders(&path).await.is_empty());
    assert_eq!(send(Method::POST, DEPLOYMENTS, 1).await.0, 201, "the name is free");
    let (code, message) = send(Method::PUT, &path, ETCD_REFUSES).await;
    assert!(code == 500 && message.contains("etcdserver: request is too large (member "), "{message}");
    let (code, message) = send(Method::PUT, &path, KUBEFOLD_REFUSES).await;
    assert!(code == 413 && message.contains("limit is 3145728"), "{code}: {message}");
    assert_eq!(stage.bare_values(&path, "/spec/template/spec/containers/0/args").await, vec![json!(["x"]); 3]);
    assert_eq!(send(Method::PUT, &path, 2).await.0, 200, "it can be written at once");
    assert_eq!(stage.bare_values(&path, "/spec/template/spec/containers/0/args").await, vec![json!(["xx"]); 3]);
}

/// A policy that makes no sense ends a start at once, and names itself.
async fn a_lawless_start(stage: &Stage, file: FleetFile) {
    for (policy, why) in [
        ("{name: odd, match: {kinds: [Lease]}, strategy: duplicate}", "policy \"odd\": "),
        ("{name: odd, spread: region, strategy: sideways}", "sideways"),
        ("{name: odd, perMember: {mars: {max: 3}}}", "mars"),
        ("{name: odd, match: {labels: 'tier in web'}}", "policy \"odd\": "),
        ("{name: odd, min: 5, max: 3}", "policy \"odd\": "),
    ] {
        stage.fleet.configure(&file.clone().settings(&format!("policies:\n- {policy}")));
        let status = stage.fleet.restart_in_vain().await;
        let log = stage.fleet.log();
        let last = log.lines().last().unwrap_or_default();
        assert!(status.code() == Some(64) && last.contains(why), "{policy}: {status}: {last}");
        assert!(last.contains("clusters.yaml"), "{last}");
    }
}

/// What is merged item by item, and by which keys, is what a kube-apiserver says of itself.
async fn lists_have_the_keys_of_kubernetes(member: &Member) {
    // Of one member alone, and in the schemas of definitions, which are written as they come.
    const WHOLE: [&str; 2] = ["drivers", "x-kubernetes-validations"];
    let api = member.api().await;
    let index = api.get("/openapi/v3").await;
    let mut said: BTreeMap<String, std::collections::BTreeSet<Vec<String>>> = BTreeMap::new();
    for (_, document) in index["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("api")) {
        let document = api.get(text(document, "/serverRelativeURL")).await;
        let Some(schemas) = document.pointer("/components/schemas").and_then(Value::as_object) else { continue };
        // Statuses are each member's own.
        for (_, schema) in schemas.iter().filter(|(name, _)| !name.ends_with("Status")) {
            for (field, of) in schema["properties"].as_object().into_iter().flatten() {
                let merged = of["x-kubernetes-patch-merge-key"].as_str().map(|key| vec![key.to_owned()]);
                let mapped = of["x-kubernetes-list-map-keys"].as_array();
                let mapped = mapped.map(|keys| keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect());
                said.entry(field.clone()).or_default().extend(merged.into_iter().chain(mapped));
            }
        }
    }
    said.retain(|field, keys| !keys.is_empty() && !WHOLE.contains(&field.as_str()));
    let table = kubefold::placement::merge::LISTS;
    for (field, wanted) in &said {
        let (_, choices) = table.iter().find(|(name, _)| name == field).unwrap_or_else(|| panic!("no {field}"));
        for keys in wanted {
            // The longer of two says the same and more: `port` and `protocol` for `port`.
            let has = choices.iter().any(|choice| keys.iter().all(|key| choice.contains(&key.as_str())));
            assert!(has, "{field}: {keys:?} is not among {choices:?}");
        }
    }
    // Those of statuses, and of kinds that are off unless asked for, are in the table too.
    const ELSEWHERE: [&str; 5] = ["addresses", "conditions", "podGroupTemplates", "resourceClaims", "taints"];
    let unsaid = table.iter().filter(|(field, _)| !said.contains_key(*field) && !ELSEWHERE.contains(field));
    assert_eq!(unsaid.count(), 0, "{said:?}");
}
