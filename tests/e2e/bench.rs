//! `kubefold bench`, over its own fleet and over real members.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use testbed::{Api, FleetFile, Kubefold, Process, Testbed, eventually, program};

const SOON: Duration = Duration::from_secs(60);
const NAMESPACES: &str = "/api/v1/namespaces";

/// What the command said: exit code, and both outputs.
async fn bench(args: &[&str], folder: &Path) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(program());
    let said = command.arg("bench").args(args).current_dir(folder).kill_on_drop(true).output().await.unwrap();
    (said.status.code(), String::from_utf8([said.stdout, said.stderr].concat()).unwrap())
}

fn report(folder: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
}

/// The names of the scenarios, each of which had successes and nothing else.
fn sound_scenarios(report: &Value) -> Vec<&str> {
    let scenarios = report["scenarios"].as_array().unwrap().iter();
    let names = scenarios.map(|scenario| {
        let name = scenario["name"].as_str().unwrap();
        assert_eq!((&scenario["failed"], &scenario["abandoned"]), (&json!({}), &json!(0)), "{name}");
        assert_eq!(scenario["succeeded"], scenario["planned"], "{name}");
        assert_ne!(scenario["succeeded"], 0, "{name}");
        name
    });
    names.collect()
}

async fn has_namespace(api: &Api, name: &str) -> bool {
    let answer = api.request(http::Method::GET, &format!("{NAMESPACES}/{name}"), "").await;
    answer.status.is_success()
}

#[tokio::test(flavor = "multi_thread")]
async fn its_own_fleet_is_measured_in_every_scenario_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let short = ["--members", "2", "--objects", "40", "--watchers", "5", "--page-size", "15", "--duration", "1s"];
    let args = [&short[..], &["--json", "one.json", "--html", "one.html"]].concat();
    let (code, said) = bench(&args, folder.path()).await;
    assert_eq!(code, Some(0), "{said}");
    let report = report(folder.path(), "one.json");
    let all =
        ["list", "pages", "table", "watch", "selectors", "get", "write", "mixed", "churn", "outage", "cold-start"];
    assert_eq!(sound_scenarios(&report), all);
    let watch = &report["scenarios"][3]["watch"];
    assert_eq!((&watch["delivered"], &watch["lost"], &watch["cut"]), (&json!(100), &json!(0), &json!(0)));
    assert_eq!(report["scenarios"][0]["processes"][0]["name"], "bench");
    let outage = report["scenarios"][9]["latencies"].as_array().unwrap().iter();
    let phases: Vec<_> = outage.map(|latency| latency["name"].as_str().unwrap()).collect();
    assert_eq!(phases, ["after", "before", "down", "recovery"]);
    assert!(fs::read_to_string(folder.path().join("one.html")).unwrap().ends_with("</html>\n"));

    let (code, said) = bench(&["--compare", "one.json", "one.json", "--fail-above", "1.1"], folder.path()).await;
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = bench(&["--compare", "one.json", "one.json", "--fail-above", "0.9"], folder.path()).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("one.json is more than 0.9 times worse in ") && said.contains("list list p50"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_members_are_measured_through_kubefold_and_left_as_they_were() {
    let bed = Testbed::shared_with_workloads(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).member(west, 1)).await;
    let (folder, kubeconfig) = (tempfile::tempdir().unwrap(), fleet.kubeconfig().display().to_string());
    let (pid, apis) = (format!("kubefold={}", fleet.pid()), [fleet.api().await, east.api().await, west.api().await]);
    // On a machine that stalls, more at once would be more than one user's share of a member, which is a 429.
    let small = [
        &["--objects", "30", "--watchers", "5", "--duration", "2s", "--in-flight", "50"][..],
        &["--kubeconfig", &kubeconfig],
    ]
    .concat();

    let scenarios = ["list", "pages", "table", "watch", "selectors", "get", "write", "mixed", "churn"];
    let own = ["--namespace", "bench-own", "--pid", &pid, "--json", "fleet.json"];
    let (code, said) = bench(&[&scenarios[..], &small, &own].concat(), folder.path()).await;
    assert_eq!(code, Some(0), "{said}");
    let report = report(folder.path(), "fleet.json");
    assert_eq!(sound_scenarios(&report), scenarios);
    assert_eq!(report["target"]["members"], json!(["east", "west"]));
    assert_eq!(report["scenarios"][0]["processes"][0]["name"], "kubefold");
    for api in &apis {
        assert!(!has_namespace(api, "bench-own").await, "it is removed");
    }

    // Somebody's namespace is not touched.
    let theirs = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench-theirs"}});
    apis[0].create(NAMESPACES, &theirs).await;
    let (code, said) = bench(&[&["get", "--namespace", "bench-theirs"], &small[..]].concat(), folder.path()).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no bench made it") && said.contains("--namespace"), "{said}");
    let found = apis[0].get(&format!("{NAMESPACES}/bench-theirs")).await;
    assert_eq!(found["status"]["phase"], "Active");

    // Who may not make a namespace is told what is missing.
    let jane = east.kubeconfig_for("jane", None).display().to_string();
    let (code, said) = bench(&["get", "--kubeconfig", &jane, "--duration", "1s"], folder.path()).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("403 namespaces \"kubefold-bench\" is forbidden: User \"jane\""), "{said}");
    assert!(said.contains("give this login the rights of docs/benchmarking.md"), "{said}");

    // The members are not stopped.
    let (code, said) = bench(&[&["outage"], &small[..]].concat(), folder.path()).await;
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("which bench does only to one that it embeds"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_is_removed_and_so_is_a_killed_one_by_the_next() {
    let bed = Testbed::shared_with_workloads(&["east"]).await;
    let (api, folder) = (bed["east"].api().await, tempfile::tempdir().unwrap());
    let kubeconfig = bed["east"].kubeconfig().display().to_string();
    let args = ["--objects", "10", "--namespace", "bench-ended", "--kubeconfig", &kubeconfig];
    let long = [&["bench", "write", "--duration", "10m"], &args[..]].concat();
    let start = async || {
        let log = folder.path().join("bench.log");
        let run = Process::spawn_with("bench", &program(), &long, &log, |command| {
            command.stderr(fs::OpenOptions::new().create(true).append(true).open(&log).unwrap());
        });
        eventually(SOON, async || {
            let objects = api.request(http::Method::GET, &format!("{NAMESPACES}/bench-ended/configmaps"), "").await;
            // The first write of the scenario.
            let text = String::from_utf8_lossy(&objects.body).into_owned();
            if text.contains("write-0") { Ok(()) } else { Err(text) }
        })
        .await;
        run
    };
    let mut interrupted = start().await;
    interrupted.signal(Signal::INT);
    let status = interrupted.wait(SOON).await;
    let said = interrupted.output();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; there is no report, and what was made is removed"), "{said}");
    assert!(!has_namespace(&api, "bench-ended").await);

    start().await.kill();
    assert!(has_namespace(&api, "bench-ended").await);
    let (code, said) = bench(&[&["get", "--duration", "1s"], &args[..]].concat(), folder.path()).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(!has_namespace(&api, "bench-ended").await);
}
