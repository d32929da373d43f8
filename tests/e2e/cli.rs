//! The command line, as an operator meets it: the real program, before real members.

mod terminal;

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use testbed::{
    FleetFile, Kubefold, MemberOptions, Port, Process, Testbed, eventually, program,
    samples::{config_map, namespace},
};

use terminal::{start, tells};

const SOON: Duration = Duration::from_secs(20);

/// What a command said: exit code, standard output, standard error.
async fn run(args: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let mut command = tokio::process::Command::new(program());
    let said = command.args(args).current_dir(folder).kill_on_drop(true).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (said.status.code(), text(said.stdout), text(said.stderr))
}

fn findings<'v>(report: &'v Value, member: &str) -> Vec<(&'v str, &'v str, &'v str)> {
    let members = report["members"].as_array().unwrap();
    let member = members.iter().find(|one| one["name"] == member).unwrap();
    let text = |finding: &'v Value, key: &str| finding[key].as_str().unwrap_or_default();
    let findings = member["findings"].as_array().unwrap().iter();
    findings.map(|one| (text(one, "check"), text(one, "result"), text(one, "detail"))).collect()
}

/// Of each member that is ill in another way, the layer that is ill is named, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_layer_that_is_ill() {
    let bed = Testbed::shared(&["east"]).await;
    let east = &bed["east"];
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (ca, closed) = (file("ca", &east.ca_pem()), Port::reserve());
    let own = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
    let other_ca = file("other-ca", &own.cert.pem());
    namespace(east, "doctor").await;
    let weak = file("weak", east.kubectl(&["-n", "doctor", "create", "token", "default"]).await.ok());
    let wrong = file("wrong", "no-token");
    let server =
        |url: &str, ca: &str, token: &str| format!("server: {url}\ncertificateAuthority: {ca}\ntokenFile: {token}");
    let url = east.server_url();
    let fleet = FleetFile::default()
        .member(east, 1)
        .written("twin", &format!("kubeconfig: {}", east.kubeconfig().display()))
        .written("unnamed", &server("https://no-such-host.invalid:6443", &ca, &weak))
        .written("refused", &server(&format!("https://{}", closed.addr()), &ca, &weak))
        .written("stranger", &server(&url, &other_ca, &weak))
        .written("unknown", &server(&url, &ca, &wrong))
        .written("weak", &server(&url, &ca, &weak));
    file("clusters.yaml", &fleet.text());

    let (code, out, error) = run(&["doctor", "--config", "clusters.yaml", "-o", "json"], folder.path()).await;
    assert_eq!(code, Some(1), "{out}{error}");
    assert!(error.contains("checks failed for twin, unnamed, refused, stranger, unknown, weak"), "{error}");
    let report: Value = serde_json::from_str(&out).unwrap();
    for (check, result, detail) in findings(&report, "east") {
        // An administrator's login is more than kubefold needs, and nobody gave kubefold's own user its right.
        let wanted = if ["privilege", "authorization"].contains(&check) { "note" } else { "ok" };
        assert!(check != "authorization" || detail.contains("user kubefold:mover may not create"), "{detail}");
        assert_eq!(result, wanted, "{check}: {detail}");
    }
    let ill = |member: &str| {
        let ill = findings(&report, member).into_iter().filter(|(_, result, _)| *result == "failed");
        ill.map(|(check, _, detail)| (check, detail)).collect::<Vec<_>>()
    };
    let says = |member: &str, check: &str, detail: &str| {
        let found = ill(member);
        assert!(found.iter().any(|one| one.0 == check && one.1.contains(detail)), "{member}: {found:?}");
    };
    says("twin", "identity", "the same cluster as east");
    says("unnamed", "dns", "no-such-host.invalid");
    says("refused", "tcp", "connection refused");
    says("stranger", "tls", "unknown authority");
    says("unknown", "authentication", "401");
    says("weak", "authorization", "list every resource");
    // What rests on a layer that is ill is not tried.
    assert_eq!(findings(&report, "refused").iter().filter(|one| one.1 == "skipped").count(), 9);

    let (code, out, _) = run(&["doctor", "--config", "clusters.yaml", "--member", "weak"], folder.path()).await;
    assert_eq!(code, Some(1));
    assert!(out.contains("\nWhat to do:\n") && out.contains("apply -f deploy/member-rbac.yaml"), "{out}");
    assert!(!out.contains('\u{1b}'), "colours are for terminals: {out}");
    let (code, out, _) = run(&["doctor", "--config", "clusters.yaml", "--member", "east"], folder.path()).await;
    assert!(code == Some(0) && out.ends_with("\nall checks passed\n"), "{out}");
    let (code, out, error) = run(&["doctor", "--config", "none.yaml"], folder.path()).await;
    assert!(code == Some(64) && out.is_empty() && error.lines().count() == 1, "{error}");
}

/// What is wrong with what a person gave, or with whom it leads to, is said in one line, with what to do.
#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_in_one_line() {
    let bed = Testbed::shared(&["east"]).await;
    let east = &bed["east"];
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let (own, closed) = (rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap(), Port::reserve());
    file("ca", &east.ca_pem());
    let kubeconfig = fs::read_to_string(east.kubeconfig()).unwrap();
    file("kubeconfig", &kubeconfig);
    file("closed", &kubeconfig.replace(&east.addr(), &closed.addr()));
    let encoded = |pem: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pem);
    file("stranger", &kubeconfig.replace(&encoded(&east.ca_pem()), &encoded(&own.cert.pem())));
    let login = |line: &str| if line.contains("client-") { "    user: {token: no-token}" } else { line }.to_owned();
    let unknown: Vec<String> = kubeconfig.lines().map(login).collect();
    file("unknown", &unknown.join("\n"));
    file("thing.yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n");
    file("empty.yaml", "---\n");
    for (args, wanted) in [
        (&["status", "--kubeconfig", "none"][..], "cannot read the kubeconfig none: there is no such file"),
        (&["status", "--kubeconfig", "ca"], "cannot read the kubeconfig ca: "),
        (&["status", "--kubeconfig", "kubeconfig", "--context", "nope"], "no context \"nope\"; its contexts are east"),
        (&["status", "--kubeconfig", "kubeconfig"], "is it a kubefold"),
        (&["status", "--kubeconfig", "closed"], "Connection refused (os error 111); does kubefold serve run there"),
        (&["status", "--kubeconfig", "stranger"], "print its kubeconfig again with kubefold kubeconfig"),
        (&["status", "--kubeconfig", "unknown"], "answered 401: it does not know this login"),
        (&["plan", "-f", "thing.yaml", "--kubeconfig", "kubeconfig"], "thing.yaml: Thing \"a\": "),
        (&["plan", "-f", "thing.yaml", "-f", "thing.yaml", "--kubeconfig", "closed"], "cannot reach kubefold at"),
        (&["plan", "-f", "empty.yaml", "--kubeconfig", "kubeconfig"], "there is no object in empty.yaml"),
    ] {
        let (exit, out, error) = run(args, folder.path()).await;
        assert!(exit == Some(1) && out.is_empty() && error.contains(wanted), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// A file that `init` made is served as it is, and is never written over.
#[tokio::test(flavor = "multi_thread")]
async fn init_makes_a_file_that_is_served() {
    let bed = Testbed::shared(&["east"]).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = bed["east"].kubeconfig();
    let from = ["init", "--from-kubeconfig", kubeconfig.to_str().unwrap()];
    let with = |more: &[&'static str]| [&from[..], more].concat();
    let (code, shown, error) = run(&with(&["--to", "-"]), folder.path()).await;
    assert!(code == Some(0) && error.is_empty(), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "standard output alone");
    let (code, out, error) = run(&from, folder.path()).await;
    assert!(code == Some(0) && out.is_empty() && error.contains("next: kubefold doctor"), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("clusters.yaml")).unwrap(), shown);
    let (code, _, error) = run(&from, folder.path()).await;
    assert!(code == Some(1) && error.contains("exists and is not overwritten"), "{error}");
    let (code, _, error) = run(&with(&["--context", "nowhere", "--to", "-"]), folder.path()).await;
    assert!(code == Some(1) && error.contains("has no context \"nowhere\"; its contexts are east"), "{error}");
    let (code, out, error) = run(&["doctor", "--config", "clusters.yaml"], folder.path()).await;
    assert_eq!(code, Some(0), "{out}{error}");

    // Scripts that shells read, and a reader that goes away.
    let (_, script, _) = run(&["completion", "bash"], folder.path()).await;
    fs::write(folder.path().join("completion"), &script).unwrap();
    let bash =
        tokio::process::Command::new("bash").args(["-n", "completion"]).current_dir(folder.path()).status().await;
    assert!(bash.unwrap().success() && script.contains("complete"));
    for shell in ["zsh", "fish", "powershell"] {
        let (code, script, _) = run(&["completion", shell], folder.path()).await;
        assert!(code == Some(0) && script.contains("KUBEFOLD_COMPLETE"), "{shell}");
    }
    assert_eq!(run(&["completion", "tcsh"], folder.path()).await.0, Some(64));
}

/// What a shell with the program's script completes a line to.
async fn completed(fleet: &Kubefold, words: &[&str]) -> Vec<String> {
    let script = format!(
        "PATH={}:$PATH; source <(kubefold completion bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9; \
         _clap_complete_kubefold kubefold '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        program().parent().unwrap().display(),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
        words[words.len() - 1],
    );
    let mut bash = tokio::process::Command::new("bash");
    let said = bash.args(["-c", &script]).env("KUBECONFIG", fleet.kubeconfig()).output().await.unwrap();
    let text = String::from_utf8(said.stdout).unwrap() + &String::from_utf8_lossy(&said.stderr);
    text.split_whitespace().map(str::to_owned).collect()
}

/// `status` says of each member what an operator looks for first, also of one that is down.
#[tokio::test(flavor = "multi_thread")]
async fn status_tells_of_each_member() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let fleet = Kubefold::before(bed.members()).await;
    namespace(&bed["east"], "shop").await;
    for name in ["a", "b", "c"] {
        let api = bed["east"].api().await;
        api.create("/api/v1/namespaces/shop/configmaps", &config_map(name, json!({"key": "value"}))).await;
    }
    fleet.kubectl(&["get", "configmaps,events", "-A"]).await.ok();
    let status = async || {
        let said = fleet.command(&["status", "-o", "json"]).await;
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        serde_json::from_slice::<Value>(&said.stdout).unwrap()
    };
    eventually(SOON, async || {
        let status = status().await;
        let east = &status["members"][0];
        let counted = east["objects"].as_u64() >= Some(3) && east["bytes"].as_u64() > Some(500);
        (counted && east["latencyMillis"].as_f64() > Some(0.0)).then_some(()).ok_or_else(|| status.to_string())
    })
    .await;
    let calm = status().await;
    assert_eq!((&calm["members"][1]["lagSeconds"], &calm["members"][1]["state"]), (&json!(0), &json!("ready")));
    assert!(calm["members"][1]["version"].as_str().unwrap().starts_with("v1."));

    // Names that kubefold knows, on a line that is not whole yet.
    assert_eq!(completed(&fleet, &["kubefold", "dra"]).await, ["drain"]);
    assert_eq!(completed(&fleet, &["kubefold", "drain", ""]).await[..2], ["east", "west"]);
    assert_eq!(completed(&fleet, &["kubefold", "search", "--member", "east,w"]).await, ["east,west"]);
    assert_eq!(completed(&fleet, &["kubefold", "search", "-n", "sh"]).await, ["shop"]);
    assert_eq!(completed(&fleet, &["kubefold", "search", "--kind", "configm"]).await, ["configmaps"]);
    assert_eq!(completed(&fleet, &["kubefold", "can-i", "list", "deplo"]).await, ["deployments.apps"]);
    assert_eq!(completed(&fleet, &["kubefold", "diff", "configm"]).await, ["configmaps"]);
    assert_eq!(completed(&fleet, &["kubefold", "diff", "-n", "shop", "cm/a"]).await, ["cm/a@east"]);
    assert_eq!(completed(&fleet, &["kubefold", "events", "--member", "w"]).await, ["west"]);
    assert_eq!(completed(&fleet, &["kubefold", "events", "-n", "shop", "--for", "cm/b"]).await, ["cm/b@east"]);
    assert_eq!(completed(&fleet, &["kubefold", "diff", "-n", "shop", "cm", "c"]).await, ["c@east"]);
    let elsewhere = ["kubefold", "drain", "--kubeconfig", "/nowhere", "ea"];
    assert!(completed(&fleet, &elsewhere).await.is_empty(), "what cannot be asked is not known");

    let folder = tempfile::tempdir().unwrap();
    let watching = start(&fleet, folder.path(), &["status", "--watch", "--interval", "200ms"]);
    tells(&watching, &["west", "ready"]).await;
    bed["west"].kill();
    tells(&watching, &["Z   member west is down: "]).await;
    eventually(SOON, async || {
        let status = status().await;
        let west = &status["members"][1];
        let told = west["reachable"] == false && west["lagSeconds"].as_u64() >= Some(1);
        let error = west["lastError"]["message"].as_str().unwrap_or_default();
        (told && error.contains("connection refused")).then_some(()).ok_or_else(|| status.to_string())
    })
    .await;
    let shown = fleet.command(&["status"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    let west = shown.lines().find(|line| line.starts_with("west")).unwrap();
    assert!(west.contains("down") && west.contains("now: connection refused"), "{shown}");
    let yaml = fleet.command(&["status", "-o", "yaml"]).await;
    assert!(String::from_utf8(yaml.stdout).unwrap().starts_with("members:\n"));
    events_go_on_whatever_happens(&bed, &fleet, &watching, folder.path()).await;
    tells(&watching, &["over: cannot reach kubefold at "]).await;
}

/// A member is down and comes back, and kubefold is killed: a watch of events prints each once.
async fn events_go_on_whatever_happens(bed: &Testbed, fleet: &Kubefold, status: &Process, folder: &Path) {
    let make = async |member: &str, name: &str| {
        let about = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "shop"});
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about, "type": "Normal",
            "reason": "Tested", "message": format!("it is {name}"), "lastTimestamp": "2026-11-27T08:00:00Z", "count": 1,
        });
        bed[member].api().await.create("/api/v1/namespaces/shop/events", &event).await;
    };
    make("east", "a.1").await;
    let events = start(fleet, folder, &["events", "--watch", "-n", "shop"]);
    tells(&events, &["east", "it is a.1"]).await;
    make("east", "a.2").await;
    tells(&events, &["east", "it is a.2"]).await;
    bed["west"].restart().await;
    namespace(&bed["west"], "shop").await;
    make("west", "a.3").await;
    tells(&events, &["west", "it is a.3"]).await;
    fleet.kill9();
    tells(&events, &["the watch was interrupted"]).await;
    tells(status, &["cannot reach kubefold at "]).await;
    make("west", "a.4").await;
    fleet.restart().await;
    tells(&events, &["west", "it is a.4"]).await;
    make("east", "a.5").await;
    tells(&events, &["east", "it is a.5"]).await;
    let out = events.output();
    for name in ["a.1", "a.2", "a.3", "a.4", "a.5"] {
        assert_eq!(out.matches(&format!("it is {name}\n")).count(), 1, "{name}:\n{out}");
    }
}
