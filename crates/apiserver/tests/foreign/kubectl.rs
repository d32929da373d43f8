//! kubectl's usual verbs, at a kube-apiserver and at a server on every storage: the same output, and the same exit codes.

use std::sync::LazyLock;

use kubefold_apiserver::BuiltIn;
use regex::Regex;
use serde_json::json;

use super::served::{Place, Served};
use testbed::{Kubectl, Member, MemberOptions};

/// Without what no two servers print alike: ages, times, UIDs, revisions, addresses.
fn masked(text: &str) -> String {
    static VARIES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let rules = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+\d\d:\d\d)", "TIME"),
            (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
            (r#"(resourceVersion:? ?"?)\d+"#, "${1}REVISION"),
            (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", "TIME"),
            (r"kube-api-access-[a-z0-9]{5}", "ACCESS"),
            // docs/embedded.md: built-in kinds have no descriptions.
            (r"(?s)DESCRIPTION:\n.*\n\n", "DESCRIPTION"),
            (r"10\.96\.\d+\.\d+", "ADDRESS"),
            (r"/tmp/\S+", "FILE"),
            (r"\b\d+(s|ms|m\d+s)( ago)?\b", "AGE"),
            (r"https?://127\.0\.0\.1:\d+", "SERVER"),
            // Columns are as wide as what is in them.
            (r" {2,}", "  "),
            (r"(?m) +$", ""),
        ];
        rules.map(|(pattern, with)| (Regex::new(pattern).unwrap(), with)).into()
    });
    VARIES.iter().fold(text.to_owned(), |text, (pattern, with)| pattern.replace_all(&text, *with).into_owned())
}

fn web(image: &str) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "applied"},
        "spec": {
            "selector": {"matchLabels": {"app": "applied"}},
            "template": {
                "metadata": {"labels": {"app": "applied"}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
        },
    })
    .to_string()
}

/// ConfigMaps in one document.
fn list(names: &[&str]) -> String {
    let item =
        |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
    json!({"apiVersion": "v1", "kind": "List", "items": names.iter().map(item).collect::<Vec<_>>()}).to_string()
}

/// Commands as they are typed, and what they read.
fn commands() -> Vec<(&'static str, String)> {
    let typed = [
        "create serviceaccount default",
        "create configmap settings --from-literal=color=red --from-literal=size=5",
        "create configmap settings",
        "get configmap settings -o yaml",
        "get configmaps --show-labels",
        "describe configmap settings",
        "label configmap settings tier=front",
        "label configmap settings tier=back",
        "label configmap settings tier=back --overwrite",
        "annotate configmap settings note=x",
        "get configmaps -l tier=back -o name",
        r#"patch configmap settings --type=json -p [{"op":"replace","path":"/data/color","value":"blue"}]"#,
        r#"patch configmap settings --type=merge -p {"data":{"size":null}}"#,
        "get configmap settings -o jsonpath={.data}",
        "create secret generic key --from-literal=a=b",
        "describe secret key",
        "create deployment web --image=web:1 --replicas=2",
        "scale deployment web --replicas=3",
        "scale deployment web --replicas=4 --current-replicas=2",
        "set image deployment/web web=web:2",
        "set env deployment/web COLOR=red",
        r#"patch deployment web -p {"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:3"}]}}}}"#,
        "rollout pause deployment web",
        "rollout resume deployment web",
        "expose deployment web --port=80",
        "autoscale deployment web --max=5",
        "get deployment,service,horizontalpodautoscaler -o wide",
        "get deployment web -o yaml",
        "describe deployment web",
        "run one --image=one:1 --restart=Never",
        "get pods -o wide",
        "describe pod one",
        "create job once --image=once:1",
        "create cronjob nightly --image=nightly:1 --schedule=*/5_*_*_*_*",
        "create role reader --verb=get --resource=pods",
        "create rolebinding readers --role=reader --user=ann",
        "describe rolebinding readers",
        "auth can-i create pods",
        "explain deployment.spec.replicas",
        "get nothing",
        "get configmap nope",
        "get all",
        "wait --for=jsonpath={.data.color}=blue configmap/settings --timeout=5s",
        "delete configmap settings",
        "delete deployment web",
        "delete pod one --now",
        "delete configmap nope",
        "delete configmap nope --ignore-not-found",
    ];
    let mut commands: Vec<_> = typed.into_iter().map(|typed| (typed, String::new())).collect();
    commands.extend([
        ("apply -f -", web("web:1")),
        ("apply -f -", web("web:1")),
        ("diff -f -", web("web:2")),
        ("apply -f -", web("web:2")),
        ("apply --server-side -f -", web("web:3")),
        ("apply --server-side --force-conflicts -f -", web("web:3")),
        ("replace -f -", web("web:4")),
        ("create --dry-run=server -f -", web("web:4")),
        ("create -f -", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"dat":{}}"#.to_owned()),
        ("get deployment applied -o yaml --show-managed-fields", String::new()),
        ("delete -f -", web("web:4")),
        // A list is validated by OpenAPI v2 in protobuf.
        ("apply -f -", list(&["one", "two"])),
        ("replace -f -", list(&["two", "one"])),
        ("apply -f -", list(&["one"]).replace("data", "dat")),
        ("delete -f -", list(&["one", "two"])),
    ]);
    commands
}

/// What a command printed, and its exit code.
async fn run(kubectl: &Kubectl, typed: &str, input: &str) -> String {
    // A schedule has spaces.
    let words: Vec<String> = typed
        .split(' ')
        .map(|word| if word.contains("schedule") { word.replace('_', " ") } else { word.to_owned() })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = kubectl.in_namespace("shop").run_with_input(&words, input).await;
    let said = masked(&output.to_string());
    // The first line has the command.
    said.split_once(": exit code").map_or_else(|| said.clone(), |(_, said)| said.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectls_verbs_say_over_every_storage_what_they_say_over_a_kube_apiserver() {
    let member = Member::start("verbs", MemberOptions::default()).await;
    let places = [Place::memory(), Place::file(), Place::database("verbs").await];
    let mut all = futures::future::join_all(places.map(|place| Served::start(place, BuiltIn::All))).await;
    let kubectls: Vec<Kubectl> =
        std::iter::once(member.as_admin()).chain(all.iter().map(|served| served.kubectl.clone())).collect();
    for kubectl in &kubectls {
        kubectl.run(&["create", "namespace", "shop"]).await.ok();
    }
    let mut wrong = String::new();
    for (typed, input) in commands() {
        let said = futures::future::join_all(kubectls.iter().map(|kubectl| run(kubectl, typed, &input))).await;
        for (told, storage) in said[1..].iter().zip(["memory", "SQLite", "PostgreSQL"]) {
            if *told != said[0] {
                wrong.push_str(&format!("kubectl {typed}\n=== kube-apiserver{}\n=== {storage}{told}\n\n", said[0]));
            }
        }
    }
    for served in &mut all {
        served.end().await;
    }
    assert!(wrong.is_empty(), "{wrong}");
}
