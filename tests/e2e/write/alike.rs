//! Writes with one target are those of its member: the same requests to a kube-apiserver and to kubefold before it.

use http::{Method, Request, header};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use testbed::{
    Answer, Kubefold, Member, Testbed,
    samples::{crd, create_all, namespace},
};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const YAML: &str = "application/yaml";
/// Keys stand twice, one of them below another.
const REPEATED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: \"{n}\"\n  labels:\n    x: y\n  labels: {x: z}\ndata:\n  k: \"1\"\n  l: |\n    text\n  k: \"2\"\n  k: >\n    three\n";

/// One request to an object. `{n}` stands for its name, `{rv}` for its revision now, `{old}` for an earlier one, `{uid}`
/// for its UID, and `{name}` alone for the whole object as it is now.
struct Step {
    method: &'static str,
    /// Behind the name: a subresource, a query.
    tail: &'static str,
    media: &'static str,
    body: String,
}

fn step(method: &'static str, tail: &'static str, media: &'static str, body: impl Into<String>) -> Step {
    Step { method, tail, media, body: body.into() }
}

/// The object of a side: it is called otherwise on each, so that both can be in one cluster.
struct Side {
    api: Api,
    /// As the side's API names it.
    suffix: &'static str,
    word: &'static str,
}

impl Side {
    fn name(&self, stem: &str) -> String {
        format!("{stem}-{}{}", self.word, self.suffix)
    }

    async fn now(&self, collection: &str, stem: &str) -> Value {
        let answer = self.api.request(Method::GET, &format!("{collection}/{}", self.name(stem)), "").await;
        if answer.status.is_success() { answer.json() } else { Value::Null }
    }

    async fn ask(&self, collection: &str, stem: &str, old: &str, step: &Step) -> Answer {
        let now = self.now(collection, stem).await;
        let field = |name: &str| now["metadata"][name].as_str().unwrap_or("none").to_owned();
        let name = self.name(stem);
        let fill = |text: &str| {
            let text = text.replace("{whole}", &now.to_string()).replace("{n}", &name);
            text.replace("{rv}", &field("resourceVersion")).replace("{uid}", &field("uid")).replace("{old}", old)
        };
        let path = match step.tail.strip_prefix("/../..") {
            Some(beside) => collection.rsplit_once('/').unwrap().0.to_owned() + beside,
            None => fill(&format!("{collection}/{{n}}{}", step.tail)),
        };
        let request = Request::builder()
            .method(step.method)
            .uri(path)
            .header(header::CONTENT_TYPE, step.media)
            .header(header::USER_AGENT, "alike/1")
            .header(header::ACCEPT, JSON);
        self.api.send(request.body(fill(&step.body).into()).unwrap()).await.unwrap()
    }

    /// What both sides must agree in: names are those of one side, and what differs by nature is blanked.
    fn reduced(&self, stem: &str, answer: &Answer) -> (u16, Vec<String>, Value) {
        let mut body = answer.json();
        self.reduce(stem, &mut body);
        let warnings = answer.headers.get_all("warning").iter();
        let warnings = warnings.map(|value| self.renamed(stem, value.to_str().unwrap())).collect();
        (answer.status.as_u16(), warnings, body)
    }

    fn renamed(&self, stem: &str, text: &str) -> String {
        text.replace(&self.name(stem), stem).replace(&format!("{stem}-{}", self.word), stem).replace("@east", "")
    }

    fn reduce(&self, stem: &str, value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.iter_mut().for_each(|(key, value)| match key.as_str() {
                    "resourceVersion" | "uid" | "token" | "time" => *value = json!("#"),
                    "expirationTimestamp" | "creationTimestamp" | "deletionTimestamp" => *value = json!("#"),
                    "lastTransitionTime" | "lastUpdateTime" => *value = json!("#"),
                    "clusterIP" | "clusterIPs" => *value = json!("#"),
                    // Their order is that of their times, which fall into one second or two.
                    "managedFields" => {
                        self.reduce(stem, value);
                        value.as_array_mut().unwrap().sort_by_key(ToString::to_string);
                    }
                    "message" => {
                        let text = self.renamed(stem, value.as_str().unwrap_or_default());
                        *value = json!(without_numbers(&text));
                    }
                    _ => self.reduce(stem, value),
                });
                let holds_own = |value: &mut Value| {
                    let Some(map) = value.as_object_mut() else { return false };
                    map.remove("kubefold.io/cluster").is_some() && map.is_empty()
                };
                if map.get_mut("annotations").is_some_and(holds_own) {
                    map.remove("annotations");
                }
            }
            Value::Array(all) => all.iter_mut().for_each(|value| self.reduce(stem, value)),
            Value::String(text) => *text = self.renamed(stem, text),
            _ => {}
        }
    }
}

/// Where two values differ, and how.
fn differences(at: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                differences(&format!("{at}/{key}"), &ours[key], &theirs[key], found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let all = one.iter().zip(other).enumerate();
            all.for_each(|(number, (one, other))| differences(&format!("{at}/{number}"), one, other, found));
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{at}: {ours}, and of the member {theirs}")),
    }
}

/// Revisions and UIDs that stand in parentheses in a message.
fn without_numbers(text: &str) -> String {
    if let Some((before, rest)) = text.split_once("UID in object meta: ") {
        let after = rest.find(|c: char| !c.is_ascii_hexdigit() && c != '-').map_or("", |end| &rest[end..]);
        return format!("{before}UID in object meta: #{after}");
    }
    // A whole object is quoted.
    if let (Some(start), Some(end)) = (text.find("Invalid value: \"{"), text.rfind("}\": ")) {
        let name = if text[start..end].contains("\\\"name\\\":\\\"patch\\\"") { "patch" } else { "?" };
        return format!("{}{name}{}", &text[..start], &text[end..]);
    }
    let mut out = text.to_owned();
    for lead in ["the precondition (", "in record ("] {
        if let Some((before, rest)) = text.split_once(lead) {
            let after = rest.split_once(')').map_or("", |(_, after)| after);
            out = format!("{before}{lead}#){}", without_numbers(after));
            break;
        }
    }
    out
}

struct Pair {
    theirs: Side,
    ours: Side,
    report: Mutex<Vec<String>>,
}

impl Pair {
    async fn before(east: &Member, fleet: &Kubefold) -> Self {
        let theirs = Side { api: east.api().await, suffix: "", word: "theirs" };
        Self { theirs, ours: Side { api: fleet.api().await, suffix: "@east", word: "ours" }, report: Mutex::default() }
    }

    /// Makes the object of both sides in the member, then asks both sides every step in turn.
    async fn agree(&self, collection: &str, stem: &str, object: Option<Value>, steps: Vec<Step>) {
        let mut old = [String::new(), String::new()];
        for (side, old) in [&self.theirs, &self.ours].into_iter().zip(&mut old) {
            let Some(object) = &object else { continue };
            let text = object.to_string().replace("{n}", &format!("{stem}-{}", side.word));
            create_all(&self.theirs.api, collection, &[serde_json::from_str(&text).unwrap()]).await;
            *old = side.now(collection, stem).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        }
        for (number, step) in steps.iter().enumerate() {
            let said = self.theirs.ask(collection, stem, &old[0], step).await;
            let told = self.ours.ask(collection, stem, &old[1], step).await;
            let label = format!("step {number}: {} {collection}/{stem}{} {}", step.method, step.tail, step.body);
            let (theirs, ours) = (self.theirs.reduced(stem, &said), self.ours.reduced(stem, &told));
            if ours != theirs {
                let seen = |(code, warnings, body): &(u16, Vec<String>, Value)| json!([code, warnings, body]);
                let mut found = Vec::new();
                differences("", &seen(&ours), &seen(&theirs), &mut found);
                self.report.lock().push(format!("{label}\n  {}", found.join("\n  ")));
            }
            if told.status.is_success() && !told.json()["metadata"]["resourceVersion"].is_null() {
                self.is_what_is_read(collection, stem, &told.json(), step).await;
            }
        }
    }

    /// What a write answers is what a read answers, the revision included.
    async fn is_what_is_read(&self, collection: &str, stem: &str, told: &Value, step: &Step) {
        let now = self.ours.now(collection, stem).await;
        if now.is_null() || step.method == "DELETE" || step.tail.contains("token") {
            return;
        }
        let is_whole = told["kind"] == now["kind"] && !step.tail.contains("dryRun");
        let same_revision = told["metadata"]["resourceVersion"] == now["metadata"]["resourceVersion"];
        if !same_revision || (is_whole && *told != now) {
            let label = format!("{} {collection}/{stem}{} {}", step.method, step.tail, step.body);
            self.report.lock().push(format!("{label}\nanswered: {told}\nbut read: {now}"));
        }
    }

    /// Panics if they did not agree.
    fn verdict(self) {
        let report = self.report.into_inner();
        assert!(report.is_empty(), "{} steps differ\n{}", report.len(), report.join("\n\n"));
    }
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{n}"}, "data": {"k": "v"}})
}

fn map(more: &str, data: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{{n}}"{more}}},"data":{data}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_patches_and_deletes_are_answered_as_by_the_member() {
    let bed = Testbed::shared(&["east"]).await;
    let fleet = Kubefold::before(bed.members()).await;
    namespace(&bed["east"], "alike").await;
    let pair = Pair::before(&bed["east"], &fleet).await;
    let maps = "/api/v1/namespaces/alike/configmaps";
    pair.agree(maps, "put", Some(config_map()), puts()).await;
    pair.agree(maps, "patch", Some(config_map()), patches()).await;
    pair.agree(maps, "applied", None, applies()).await;
    pair.agree(maps, "gone", Some(config_map()), deletes()).await;
    pair.agree(maps, "missing", None, of_what_is_not_there()).await;

    let api = &pair.theirs.api;
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("Alike")).await;
    let alikes = "/apis/e2e.kubefold.io/v1/namespaces/alike/alikes";
    for side in [&pair.theirs, &pair.ours] {
        eventually(SOON, async || {
            let served = side.api.request(Method::GET, alikes, "").await;
            if served.status.is_success() { Ok(()) } else { Err(served) }
        })
        .await;
    }
    let custom =
        json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Alike", "metadata": {"name": "{n}"}, "spec": {"a": 1.0}});
    pair.agree(alikes, "custom", Some(custom), of_custom_resources()).await;

    let leases = "/apis/coordination.k8s.io/v1/namespaces/alike/leases";
    let lease = |more: &str| {
        format!(
            r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{{n}}"{more}}},"spec":{{"holderIdentity":"me"}}}}"#
        )
    };
    let made = vec![
        step("PUT", "", JSON, lease(r#","resourceVersion":"77""#)),
        step("PUT", "", JSON, lease("")),
        step("PUT", "", JSON, lease(r#","resourceVersion":"{rv}""#)),
    ];
    pair.agree(leases, "lease", None, made).await;

    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "{n}"}});
    let deprecated = vec![
        step("GET", "", JSON, ""),
        step("PUT", "?dryRun=All", JSON, "{whole}"),
        step("PATCH", "", MERGE, r#"{"metadata":{"labels":{"a":"b"}}}"#),
        step("DELETE", "", JSON, ""),
        step("GET", "", JSON, ""),
    ];
    pair.agree("/api/v1/namespaces/alike/endpoints", "ends", Some(endpoints), deprecated).await;

    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "{n}"}, "spec": {"ports": [{"port": 80}]}});
    let immutable = vec![
        step("PATCH", "", MERGE, r#"{"spec":{"clusterIP":"10.96.0.77","clusterIPs":["10.96.0.77"]}}"#),
        step("PATCH", "", MERGE, r#"{"spec":{"ports":[{"port":81}]}}"#),
        step("DELETE", "", JSON, ""),
    ];
    pair.agree("/api/v1/namespaces/alike/services", "service", Some(service), immutable).await;
    pair.verdict();
}

fn puts() -> Vec<Step> {
    vec![
        step("PUT", "", JSON, "{whole}"),
        step("PUT", "", JSON, map("", r#"{"k":"w"}"#)),
        step("PUT", "", JSON, map(r#","resourceVersion":"{rv}""#, r#"{"k":"x"}"#)),
        step("PUT", "", JSON, map(r#","resourceVersion":"{old}""#, r#"{"k":"y"}"#)),
        step("PUT", "", JSON, map(r#","resourceVersion":"12""#, r#"{"k":"y"}"#)),
        step("PUT", "", JSON, map(r#","resourceVersion":"9007199254740990""#, r#"{"k":"y"}"#)),
        step("PUT", "", JSON, map(r#","resourceVersion":"abc""#, r#"{"k":"y"}"#)),
        step("PUT", "", JSON, map(r#","resourceVersion":"0""#, r#"{"k":"zero"}"#)),
        step("PUT", "", JSON, map(r#","uid":"{uid}""#, r#"{"k":"z"}"#)),
        step("PUT", "", JSON, map(r#","uid":"other""#, r#"{"k":"z"}"#)),
        step("PUT", "", JSON, map(r#","annotations":{},"labels":{"a":"b"}"#, r#"{"k":"labelled"}"#)),
        step("PUT", "", JSON, map(r#","annotations":{"x":"y"}"#, r#"{"k":"annotated"}"#)),
        step("PUT", "", JSON, map("", r#"{"k":"w"}"#).replace("{n}", "another")),
        step("PUT", "", JSON, map("", r#"{"k":"w"}"#).replace("ConfigMap", "Secret")),
        step("PUT", "", JSON, map("", r#"{"k":"w"}"#).replace("\"v1\"", "\"v2\"")),
        step("PUT", "", JSON, map(r#","namespace":"other""#, r#"{"k":"w"}"#)),
        step("PUT", "", JSON, "{\"broken"),
        step("PUT", "", JSON, "[]"),
        step("PUT", "", JSON, ""),
        step("PUT", "?dryRun=All", JSON, map("", r#"{"k":"dry"}"#)),
        step("PUT", "?dryRun=Some", JSON, map("", r#"{"k":"dry"}"#)),
        step("PUT", "?fieldValidation=Strict", JSON, map(r#","colour":"red""#, r#"{"k":"w"}"#)),
        step("PUT", "?fieldValidation=Strict", JSON, map("", r#"{"k":"w","k":"x"}"#)),
        step("PUT", "?fieldValidation=Warn", JSON, map(r#","colour":"red""#, r#"{"k":"warned"}"#)),
        step("PUT", "", JSON, map(r#","labels":{"a":"b"},"labels":{"a":"c"}"#, r#"{"k":"w","k":"x","l":"m","k":"y"}"#)),
        step("PUT", "?fieldValidation=Ignore", JSON, map("", r#"{"k":"w","k":"last"}"#)),
        step("PUT", "?fieldValidation=Nonsense", JSON, map("", r#"{"k":"w","k":"last"}"#)),
        step("PUT", "?fieldValidation=Strict", YAML, REPEATED),
        step("PUT", "?fieldValidation=Ignore", YAML, REPEATED),
        step("PUT", "?fieldValidation=Warn", YAML, REPEATED),
        step("PUT", "", YAML, REPEATED.replace("labels", "colours")),
        step("PUT", "?fieldManager=me&fieldValidation=Ignore", JSON, map(r#","colour":"red""#, r#"{"k":"mine"}"#)),
        step("PUT", "", JSON, map(r#","labels":{"a":"b c"}"#, r#"{"k":"w"}"#)),
        step("PUT", "", JSON, map(r#","finalizers":["e2e/x"]"#, r#"{"k":"held"}"#)),
        step("DELETE", "", JSON, ""),
        step("PUT", "", JSON, map("", r#"{"k":"released"}"#)),
        step("GET", "", JSON, ""),
    ]
}

fn patches() -> Vec<Step> {
    let stale = r#"{"metadata":{"resourceVersion":"{old}"},"data":{"z":"1"}}"#;
    let now = r#"{"metadata":{"resourceVersion":"{rv}"},"data":{"z":"2"}}"#;
    let json = |text: &str| step("PATCH", "", JSON_PATCH, text);
    let mut steps = vec![
        // The member's object has no annotations yet, while the fleet's has.
        json(r#"[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]"#),
        json(r#"[{"op":"add","path":"/metadata/annotations/x~1y","value":"1"}]"#),
        json(r#"[{"op":"test","path":"/data/k","value":"other"},{"op":"add","path":"/data/j","value":"1"}]"#),
        json(r#"[{"op":"test","path":"/data/k","value":"v"},{"op":"add","path":"/data/j","value":"1"}]"#),
        json(
            r#"[{"op":"test","path":"/metadata/resourceVersion","value":"{rv}"},{"op":"add","path":"/data/i","value":"1"}]"#,
        ),
        json(
            r#"[{"op":"test","path":"/metadata/resourceVersion","value":"{old}"},{"op":"add","path":"/data/h","value":"1"}]"#,
        ),
        json(
            r#"[{"op":"replace","path":"/metadata/resourceVersion","value":"{old}"},{"op":"add","path":"/data/h","value":"1"}]"#,
        ),
        json(
            r#"[{"op":"replace","path":"/metadata/resourceVersion","value":"{rv}"},{"op":"add","path":"/data/h","value":"1"}]"#,
        ),
        json(r#"[{"op":"replace","path":"/metadata/name","value":"{n}"},{"op":"remove","path":"/data/h"}]"#),
        json(r#"[{"op":"replace","path":"/metadata/name","value":"another"}]"#),
        json(r#"[{"op":"remove","path":"/data/none"}]"#),
        json(r#"[{"op":"nope","path":"/data/k"}]"#),
        json(r#"{"op":"add"}"#),
        json("["),
        json("[]"),
        step("PATCH", "", "application/x-patch", "{}"),
        step("PATCH", "", JSON, "{}"),
    ];
    for media in [MERGE, STRATEGIC] {
        steps.extend([
            step("PATCH", "", media, stale),
            step("PATCH", "", media, now),
            step("PATCH", "?dryRun=All", media, r#"{"data":{"dry":"1"}}"#),
            step("PATCH", "", media, r#"{"metadata":{"name":"{n}"},"data":{"j":null}}"#),
            step("PATCH", "", media, r#"{"metadata":{"name":"another"}}"#),
            step("PATCH", "", media, r#"{"metadata":{"labels":{"app":"x"},"annotations":{"a":null}}}"#),
            step("PATCH", "", media, r#"{"metadata":{"labels":null,"annotations":null}}"#),
            step("PATCH", "?fieldValidation=Strict", media, r#"{"colour":"red"}"#),
            step("PATCH", "", media, r#"{"data":"x"}"#),
            step("PATCH", "", media, r#"{"data":"#),
            step("PATCH", "", media, r#"{"kind":"Secret"}"#),
            step("PATCH", "", media, "{}"),
        ]);
    }
    steps
}

fn applies() -> Vec<Step> {
    let with = |query: &'static str, more: &str, data: &str| step("PATCH", query, APPLY, map(more, data));
    vec![
        with("", "", r#"{"a":"1"}"#),
        with("?fieldManager=me&dryRun=All", "", r#"{"a":"1"}"#),
        with("?fieldManager=me", "", r#"{"a":"1"}"#),
        with("?fieldManager=me", "", r#"{"a":"1"}"#),
        with("?fieldManager=me", "", r#"{"a":"2","b":"2"}"#),
        with("?fieldManager=you", "", r#"{"a":"3"}"#),
        with("?fieldManager=you&force=true&dryRun=All", "", r#"{"a":"3"}"#),
        with("?fieldManager=you&force=true", "", r#"{"a":"3"}"#),
        with("?fieldManager=me", r#","resourceVersion":"{old}""#, r#"{"b":"4"}"#),
        with("?fieldManager=me", r#","resourceVersion":"{rv}""#, r#"{"b":"4"}"#),
        step("PATCH", "?fieldManager=me", APPLY, map("", r#"{"b":"5"}"#).replace("{n}", "another")),
        step(
            "PATCH",
            "?fieldManager=me",
            APPLY,
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: \"{n}\"\ndata:\n  b: yaml\n",
        ),
        step("PATCH", "?fieldManager=me", APPLY, r#"{"data":{"b":"5"}}"#),
        step("PATCH", "?fieldManager=me&fieldValidation=Strict", APPLY, REPEATED),
        step("PATCH", "?fieldManager=me&fieldValidation=Ignore", APPLY, REPEATED),
        step("PATCH", "?fieldManager=me", APPLY, REPEATED),
        with("?fieldManager=me&fieldValidation=Strict", "", r#"{"b":"6","b":"7"}"#),
    ]
}

fn deletes() -> Vec<Step> {
    let options =
        |text: &str| step("DELETE", "", JSON, format!(r#"{{"kind":"DeleteOptions","apiVersion":"v1"{text}}}"#));
    vec![
        step("PATCH", "", MERGE, r#"{"data":{"k":"w"}}"#),
        options(r#","preconditions":{"resourceVersion":"{old}"}"#),
        options(r#","preconditions":{"resourceVersion":"abc"}"#),
        options(r#","preconditions":{"uid":"other"}"#),
        options(r#","dryRun":["All"]"#),
        options(r#","dryRun":["Some"]"#),
        options(r#","propagationPolicy":"Sideways""#),
        options(r#","gracePeriodSeconds":"x""#),
        step("DELETE", "?dryRun=All", JSON, ""),
        step("DELETE", "?uid=other", JSON, ""),
        step("DELETE", "", JSON, "{"),
        options(r#","propagationPolicy":"Foreground","preconditions":{"uid":"{uid}","resourceVersion":"{rv}"}"#),
        step("PATCH", "", MERGE, r#"{"metadata":{"finalizers":null}}"#),
        step("DELETE", "", JSON, ""),
        step("GET", "", JSON, ""),
    ]
}

fn of_what_is_not_there() -> Vec<Step> {
    vec![
        step("PUT", "", JSON, map("", r#"{"k":"w"}"#)),
        step("PUT", "", JSON, map(r#","resourceVersion":"7""#, r#"{"k":"w"}"#)),
        step("PATCH", "", MERGE, r#"{"data":{"k":"w"}}"#),
        step("PATCH", "", JSON_PATCH, r#"[{"op":"add","path":"/data/k","value":"w"}]"#),
        step("DELETE", "", JSON, ""),
        step("DELETE", "?dryRun=All", JSON, ""),
    ]
}

fn of_custom_resources() -> Vec<Step> {
    vec![
        step("PUT", "", JSON, "{whole}"),
        step("PATCH", "", MERGE, r#"{"spec":{"b":2.50}}"#),
        step("PATCH", "", STRATEGIC, r#"{"spec":{"b":3}}"#),
        step("PATCH", "", JSON_PATCH, r#"[{"op":"add","path":"/metadata/annotations","value":{"x":"y"}}]"#),
        step(
            "PATCH",
            "?fieldManager=me",
            APPLY,
            r#"{"apiVersion":"e2e.kubefold.io/v1","kind":"Alike","metadata":{"name":"{n}"},"spec":{"c":[1]}}"#,
        ),
        step("DELETE", "", JSON, ""),
    ]
}

fn pod() -> Value {
    let containers = json!([{"name": "c", "image": "i"}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "{n}", "labels": {"a": "b"}}, "spec": {"automountServiceAccountToken": false, "containers": containers}})
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources_are_answered_as_by_the_member() {
    let bed = Testbed::shared(&["east"]).await;
    let fleet = Kubefold::before(bed.members()).await;
    namespace(&bed["east"], "subresources").await;
    let pair = Pair::before(&bed["east"], &fleet).await;
    pair.agree("/api/v1/namespaces/subresources/pods", "pod", Some(pod()), of_pods()).await;
    pair.agree("/api/v1/namespaces/subresources/pods", "bound", Some(pod()), by_older_binding()).await;

    let deployments = "/apis/apps/v1/namespaces/subresources/deployments";
    pair.agree(deployments, "scaled", Some(deployment("{n}", 1)), of_scale()).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "{n}"}});
    pair.agree("/api/v1/namespaces/subresources/serviceaccounts", "robot", Some(account), of_tokens()).await;
    let spec = json!({"request": CSR, "signerName": "example.com/x", "usages": ["client auth"]});
    let csr = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "{n}"}, "spec": spec});
    let approved = r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"e2e"}]}}"#;
    let steps = vec![
        step("GET", "/approval", JSON, ""),
        step("PATCH", "/approval", MERGE, approved),
        step("PUT", "/approval", JSON, "{whole}"),
        step("PATCH", "/status", MERGE, r#"{"status":{"certificate":"eA=="}}"#),
    ];
    pair.agree("/apis/certificates.k8s.io/v1/certificatesigningrequests", "csr", Some(csr), steps).await;
    pair.verdict();
}

/// A request of `joe`, made once with openssl.
const CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISk1IQUNBUUF3RGpFTU1Bb0dBMVVFQXd3RGFtOWxNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRApRZ0FFK2xMVmtFVlpVRTcwZHZHb0lnc0FpQXlYNnBoeTE0aFNFb1h3VkVUaDZLL3pxNURXNDBhS0Y3QldKbkdmClBZNEt6ZzcwTkRneExQVnpiTEpGSWllc2NhQUFNQW9HQ0NxR1NNNDlCQU1DQTBrQU1FWUNJUUM1NXJjYVV3d0MKV3daNElSRjd2N3VJVGdCQ0FTdzl1aG1rNGZJVEFXMmdaQUloQU1ZZnc0WmwwaUt5UEtlT05NcXdqNDBueG5zcApTbFV2bjFGbXRXVmJHK0tZCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

fn of_pods() -> Vec<Step> {
    let evict = |more: &str| {
        let name = r#""metadata":{"name":"{n}"}"#;
        step("POST", "/eviction", JSON, format!(r#"{{"apiVersion":"policy/v1","kind":"Eviction",{name}{more}}}"#))
    };
    let bind = |name: &str| {
        let target = r#""target":{"kind":"Node","name":"node-x"}"#;
        step("POST", "/binding", JSON, format!(r#"{{"kind":"Binding","metadata":{{"name":"{name}"}},{target}}}"#))
    };
    vec![
        step("PUT", "/status", JSON, "{whole}"),
        step("PATCH", "/status", MERGE, r#"{"status":{"phase":"Running"}}"#),
        step("PATCH", "/status", STRATEGIC, r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#),
        step("PATCH", "/status", JSON_PATCH, r#"[{"op":"replace","path":"/status/phase","value":"Pending"}]"#),
        step("PATCH", "/status", MERGE, r#"{"metadata":{"resourceVersion":"{old}"},"status":{"phase":"Failed"}}"#),
        step("GET", "/ephemeralcontainers", JSON, ""),
        step("GET", "/resize", JSON, ""),
        step(
            "PATCH",
            "/ephemeralcontainers",
            STRATEGIC,
            r#"{"spec":{"ephemeralContainers":[{"name":"d","image":"i"}]}}"#,
        ),
        step(
            "PATCH",
            "/resize",
            STRATEGIC,
            r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1m"}}}]}}"#,
        ),
        bind("another"),
        bind("{n}"),
        step("GET", "", JSON, ""),
        step("PATCH", "", STRATEGIC, r#"{"spec":{"nodeName":"node-y"}}"#),
        step("PUT", "", JSON, "{whole}"),
        step(
            "POST",
            "/eviction",
            JSON,
            r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"another"}}"#,
        ),
        evict(r#","deleteOptions":{"dryRun":["All"]}"#),
        evict(r#","deleteOptions":{"preconditions":{"uid":"other"}}"#),
        evict(r#","deleteOptions":{"preconditions":{"resourceVersion":"{old}"}}"#),
        evict(r#","deleteOptions":{"preconditions":{"uid":"{uid}","resourceVersion":"{rv}"}}"#),
        step("GET", "", JSON, ""),
        step("DELETE", "", JSON, r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#),
        step("GET", "", JSON, ""),
        evict(""),
    ]
}

fn by_older_binding() -> Vec<Step> {
    let body = r#"{"kind":"Binding","metadata":{"name":"{n}"},"target":{"kind":"Node","name":"node-x"}}"#;
    vec![
        step("POST", "/../../bindings", JSON, body),
        step("GET", "", JSON, ""),
        step("POST", "/../../bindings", JSON, body.replace("{n}", "nobody")),
    ]
}

fn of_scale() -> Vec<Step> {
    let scale = |more: &str, replicas: u32| {
        let metadata = format!(r#""metadata":{{"name":"{{n}}"{more}}}"#);
        format!(r#"{{"apiVersion":"autoscaling/v1","kind":"Scale",{metadata},"spec":{{"replicas":{replicas}}}}}"#)
    };
    vec![
        step("GET", "/scale", JSON, ""),
        step("PUT", "/scale", JSON, scale("", 2)),
        step("PUT", "/scale", JSON, scale(r#","resourceVersion":"{rv}""#, 3)),
        step("PUT", "/scale", JSON, scale(r#","resourceVersion":"{old}""#, 4)),
        step("PUT", "/scale", JSON, scale("", 2).replace("{n}", "another")),
        step("PATCH", "/scale", MERGE, r#"{"spec":{"replicas":5}}"#),
        step("PATCH", "/scale", JSON_PATCH, r#"[{"op":"replace","path":"/spec/replicas","value":6}]"#),
        step("PATCH", "/scale?dryRun=All", MERGE, r#"{"spec":{"replicas":7}}"#),
        step("PATCH", "/scale", MERGE, r#"{"spec":{"replicas":-1}}"#),
        step("GET", "/scale", JSON, ""),
        step("PATCH", "/status", MERGE, r#"{"status":{"replicas":6,"updatedReplicas":6}}"#),
        step("GET", "/scale", JSON, ""),
    ]
}

fn of_tokens() -> Vec<Step> {
    let token = |spec: &str| {
        let kind = r#""kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1""#;
        step("POST", "/token", JSON, format!(r#"{{{kind},"spec":{{{spec}}}}}"#))
    };
    vec![
        token(""),
        token(r#""boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"nobody"}"#),
        token(r#""expirationSeconds":1"#),
        token(r#""audiences":["x"],"expirationSeconds":700"#),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_deleted_as_by_the_member() {
    let bed = Testbed::shared(&["east"]).await;
    let fleet = Kubefold::before(bed.members()).await;
    let pair = Pair::before(&bed["east"], &fleet).await;
    for side in [&pair.theirs, &pair.ours] {
        bed["east"].kubectl(&["create", "namespace", side.word]).await.ok();
    }
    let queries = [
        "labelSelector=app%3Dweb&dryRun=All",
        "labelSelector=app%3Dweb",
        "limit=1",
        "fieldSelector=metadata.name%3Dc{@}",
        "fieldSelector=metadata.name%3Dnobody",
        "labelSelector=%3D%3D",
        "propagationPolicy=Sideways",
        "dryRun=Some",
        "gracePeriodSeconds=0",
    ];
    for query in queries {
        for side in [&pair.theirs, &pair.ours] {
            fill(&pair.theirs.api, side.word).await;
        }
        // The store learns of what was made in the member as any read does.
        let (said, left) = pair.theirs.delete_all(query).await;
        let (told, ours_left) = pair.ours.delete_all(query).await;
        assert_eq!((told, ours_left), (said, left), "{query}");
    }
}

async fn fill(api: &Api, namespace: &str) {
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "api")] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": app}}});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let answer = api.request(Method::POST, &path, map.to_string()).await;
        assert!(matches!(answer.status, StatusCode::CREATED | StatusCode::CONFLICT), "{answer}");
    }
}

impl Side {
    /// What is answered, and the names of what is left.
    async fn delete_all(&self, query: &str) -> ((u16, Value), Vec<String>) {
        let path = format!("/api/v1/namespaces/{}/configmaps", self.word);
        let query = query.replace("{@}", &self.suffix.replace('@', "%40"));
        // What was made in the member a moment ago is looked for, as by any list that wants to be sure.
        let request = Request::builder().method(Method::DELETE).uri(format!("{path}?{query}"));
        let request = request.header(header::CACHE_CONTROL, "no-cache").header(header::ACCEPT, JSON);
        let answer = self.api.send(request.body(bytes::Bytes::new()).unwrap()).await.unwrap();
        let mut body = answer.json();
        self.reduce("configmap", &mut body);
        let body = match answer.status.is_success() {
            true => body.to_string().replace(self.word, "x"),
            // Which object was refused first, and how far it went, is told beside the member's words.
            false => body["reason"].to_string(),
        };
        let mut body: Value = serde_json::from_str(&body).unwrap();
        if let Some(token) = body.pointer_mut("/metadata/continue") {
            *token = json!("#");
        }
        let left = self.api.get(&path).await;
        let name = |item: &Value| self.renamed("configmap", item["metadata"]["name"].as_str().unwrap());
        ((answer.status.as_u16(), body), left["items"].as_array().unwrap().iter().map(name).collect())
    }
}
