//! What an operator does at a terminal: compare parts, follow events, look at the fleet, and log in with a kubeconfig of one's own.

use std::{fs, path::Path, process::Output, time::Duration};

use serde_json::{Value, json};

use testbed::{
    FleetFile, Kubectl, Kubefold, Process, Terminal, Testbed, eventually, program,
    samples::{config_map, deployment, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const SPACE: &str = "terminal";

/// What a command said: exit code, standard output, standard error.
fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A command that goes on, and what it has printed.
pub(super) fn start(fleet: &Kubefold, folder: &Path, args: &[&str]) -> Process {
    let state_dir = fleet.state_dir();
    let args = [args, &["--state-dir", state_dir.to_str().unwrap()]].concat();
    Process::spawn(args[0], &program(), &args, &folder.join(args[0]))
}

/// Waits until a command that goes on has printed a line with all of these words.
pub(super) async fn tells(process: &Process, words: &[&str]) {
    eventually(SOON, async || {
        let out = process.output();
        let is_it = |line: &str| words.iter().all(|word| line.contains(word));
        if out.lines().any(is_it) { Ok(()) } else { Err(format!("no line with {words:?}:\n{out}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_the_fleet_from_a_terminal() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let file = FleetFile::default().member(&bed["east"], 1).member(&bed["west"], 1);
    let fleet = Kubefold::start(&file).await;
    for member in bed.members() {
        namespace(member, SPACE).await;
    }
    fleet.kubectl(&["get", "deployments,configmaps,events", "-n", SPACE]).await.ok();
    the_parts_of_an_object_are_compared(&bed, &fleet).await;
    events_of_all_members_are_in_order(&bed, &fleet).await;
    events_are_as_each_member_tells_them(&bed, &fleet).await;
    the_screen_is_drawn_again_and_given_back(&fleet).await;
    a_kubeconfig_is_merged_and_taken_out(&fleet).await;
}

async fn the_parts_of_an_object_are_compared(bed: &Testbed, fleet: &Kubefold) {
    let api = fleet.api().await;
    let path = format!("/apis/apps/v1/namespaces/{SPACE}/deployments");
    api.create(&path, &deployment("web", 4)).await;
    let diff = async |args: &[&str]| said(&fleet.command(&[&["diff", "-n", SPACE], args].concat()).await);
    let (code, out, error) = diff(&["deployment/web"]).await;
    assert_eq!((code, out.as_str()), (Some(0), ""), "{error}");
    assert!(error.contains("the parts in ") && error.contains(" are equal"), "{error}");
    let shown = api.get(&format!("{path}/web")).await;
    let members = shown["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap();
    let (home, other) = members.split_once(',').unwrap();
    assert!(diff(&["Deployment", "web", "--all"]).await.1.contains("\n.metadata.uid "));

    bed[other].kubectl(&["-n", SPACE, "set", "image", "deployment/web", "main=main:2"]).await.ok();
    let (code, out, error) = diff(&["deploy", "web"]).await;
    assert_eq!(code, Some(1), "{out}{error}");
    let lines: Vec<&str> = out.lines().collect();
    let cells = |line: &str| {
        line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(cells(lines[0]), ["FIELD", &format!("{home} (home)"), other, "WANTED", "WHY"]);
    let field = ".spec.template.spec.containers[name=\"main\"].image";
    assert_eq!(cells(lines[1]), [field, "main:1", "main:2", "main:1", &format!("edited in {other}")]);
    assert_eq!(lines.len(), 2, "{out}");
    let (code, out, _) = diff(&["deployment/web", "-o", "json"]).await;
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &told["differs"], &told["fields"][0]["values"][other]),
        (Some(1), &json!(true), &json!("main:2"))
    );

    // What is repaired is equal again; what is gone is missing.
    bed[other].kubectl(&["-n", SPACE, "set", "image", "deployment/web", "main=main:1"]).await.ok();
    assert_eq!(diff(&["deployment/web"]).await.0, Some(0));
    bed[other].kubectl(&["-n", SPACE, "delete", "deployment", "web", "--wait=false"]).await.ok();
    eventually(SOON, async || {
        let (code, out, error) = diff(&["deployment/web"]).await;
        let is_told = code == Some(1) && out.contains(&format!("{other} has no part"));
        is_told.then_some(()).ok_or_else(|| format!("{code:?} {out}{error}"))
    })
    .await;

    bed["east"]
        .api()
        .await
        .create(&format!("/api/v1/namespaces/{SPACE}/configmaps"), &config_map("own", json!({})))
        .await;
    for (args, wanted) in [
        (&["deployment/none"][..], "deployments.apps \"none\" not found"),
        (&["configmap/own@east"], "\"own@east\" is an object of east alone"),
        (&["thing/web"], "no member serves a resource \"thing\""),
        (&["deployment"], "write TYPE/NAME"),
    ] {
        let (code, out, error) = diff(args).await;
        assert!(code == Some(2) && out.is_empty() && error.contains(wanted), "{args:?}: {code:?} {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

fn event(name: &str, about: &str, kind: &str, last: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "type": kind, "reason": "Tested",
        "message": format!("it is {name}"), "firstTimestamp": last, "lastTimestamp": last, "count": 1,
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": about, "namespace": SPACE},
    })
}

async fn events_of_all_members_are_in_order(bed: &Testbed, fleet: &Kubefold) {
    let path = format!("/api/v1/namespaces/{SPACE}/events");
    for (member, made) in [
        ("west", event("told-0.3", "told-0", "Warning", "2026-11-27T08:03:00Z")),
        ("east", event("told-0.1", "told-0", "Normal", "2026-11-27T08:01:00Z")),
        ("east", event("told-1.4", "told-1", "Normal", "2026-11-27T08:04:00Z")),
        ("west", event("told-1.2", "told-1", "Normal", "2026-11-27T08:02:00Z")),
    ] {
        bed[member].api().await.create(&path, &made).await;
    }
    let events = async |args: &[&str]| -> Vec<String> {
        let (code, out, error) = said(&fleet.command(&[&["events", "-n", SPACE], args].concat()).await);
        assert_eq!(code, Some(0), "{args:?}: {error}");
        let messages = out.lines().filter_map(|line| Some(line.split_once("it is ")?.1.to_owned()));
        messages.collect()
    };
    eventually(SOON, async || {
        let all = events(&[]).await;
        if all == ["told-0.1", "told-1.2", "told-0.3", "told-1.4"] { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    assert_eq!(events(&["--for", "pod/told-0"]).await, ["told-0.1", "told-0.3"]);
    assert_eq!(events(&["--for", "po/told-0@west"]).await, ["told-0.3"]);
    assert_eq!(events(&["--member", "west"]).await, ["told-1.2", "told-0.3"]);
    assert_eq!(events(&["--types", "warning"]).await, ["told-0.3"]);
    let (_, out, error) = said(&fleet.command(&["events", "-A", "--for", "pod/nobody"]).await);
    assert_eq!((out.as_str(), error.as_str()), ("", "No events found.\n"));
    let table = said(&fleet.command(&["events", "-A", "--for", "pod/told-0@west"]).await).1;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = table.lines().map(words).collect();
    assert_eq!(lines[0], ["NAMESPACE", "LAST", "SEEN", "MEMBER", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
    assert_eq!(
        (lines[1][0].as_str(), &lines[1][2..6]),
        (SPACE, &["west", "Warning", "Tested", "Pod/told-0@west"].map(str::to_owned)[..])
    );
}

/// The rows of a table without its head and the column of ages; each ends with a number that says its place in time.
fn rows(out: &str, age: usize) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = out
        .lines()
        .skip_while(|line| !line.contains("MESSAGE") && !line.contains("Message"))
        .skip(1)
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect();
    rows.retain(|row| row.last().is_some_and(|word| word.starts_with("told-")));
    rows.iter_mut().for_each(|row| drop(row.remove(age)));
    rows
}

/// By every way that kubectl has to events, the fleet has the rows of its members, with the member behind the object.
async fn events_are_as_each_member_tells_them(bed: &Testbed, fleet: &Kubefold) {
    let path = format!("/api/v1/namespaces/{SPACE}/");
    for (member, number) in [("east", 5), ("west", 6)] {
        let api = bed[member].api().await;
        let containers = json!([{"name": "main", "image": "main:1"}]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "told-2"}, "spec": {"containers": containers}});
        let pod = api.create(&format!("{path}pods"), &pod).await;
        let name = format!("told-2.{number}");
        let mut made = event(&name, "told-2", "Warning", &format!("2026-11-27T08:0{number}:00Z"));
        made["involvedObject"]["uid"] = pod["metadata"]["uid"].clone();
        made["source"] = json!({"component": "tests"});
        api.create(&format!("{path}events"), &made).await;
    }
    let place = |row: &Vec<String>| row.last().and_then(|word| word.split_once('.')?.1.parse::<u64>().ok());
    for (way, age) in [
        (&["events"][..], 0),
        (&["get", "events", "--sort-by=.lastTimestamp"], 0),
        (&["get", "events", "--sort-by=.lastTimestamp", "--field-selector=type=Warning"], 0),
        (&["events", "--types=Warning", "--for=pod/told-2"], 0),
        (&["describe", "pod", "told-2"], 2),
    ] {
        let args = [&["-n", SPACE], way].concat();
        let mut own = Vec::new();
        for member in ["east", "west"] {
            let out = bed[member].kubectl(&args).await;
            for mut row in rows(out.ok(), age) {
                if let Some(object) = row.get_mut(2).filter(|_| age == 0) {
                    object.push_str(&format!("@{member}"));
                }
                own.push(row);
            }
        }
        own.sort_by_key(place);
        assert!(own.len() >= 2, "{way:?}: {own:?}");
        eventually(SOON, async || {
            let mut seen = Vec::new();
            // What is about one object is asked of each member's own.
            let names: &[&str] = if args.concat().contains("told-2") { &["told-2@east", "told-2@west"] } else { &[""] };
            for name in names {
                let args: Vec<String> = args.iter().map(|arg| arg.replace("told-2", name)).collect();
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                for mut row in rows(fleet.kubectl(&args).await.ok(), age) {
                    // A table of the server's has the member in a column, too.
                    if args.contains(&"get") {
                        let member = row.remove(0);
                        assert!(row[2].ends_with(&format!("@{member}")), "{row:?}");
                    }
                    seen.push(row);
                }
            }
            if seen == own { Ok(()) } else { Err(format!("{way:?}:\n{seen:?}\nthe members themselves:\n{own:?}")) }
        })
        .await;
    }
    // Its own command has the same rows in the same order, and the member in a column.
    let kubectls = rows(fleet.kubectl(&["events", "-n", SPACE]).await.ok(), 0);
    let (code, out, error) = said(&fleet.command(&["events", "-n", SPACE]).await);
    assert_eq!(code, Some(0), "{error}");
    let mut own = rows(&out, 0);
    for row in &mut own {
        let member = row.remove(0);
        assert!(row[2].ends_with(&format!("@{member}")), "{row:?}");
    }
    assert_eq!(own, kubectls, "{out}");
}

/// On a terminal of its own: what a shell before it shows is there again behind it, and so are the terminal's modes.
async fn the_screen_is_drawn_again_and_given_back(fleet: &Kubefold) {
    let (program, state_dir) = (program(), fleet.state_dir());
    let run = |command: &str| format!("{} {command} --state-dir {}", program.display(), state_dir.display());
    for (command, key, title) in
        [("top --interval 200ms", "q", "EVENTS/S"), ("status --watch --interval 200ms", "\u{3}", "LAST ERROR")]
    {
        let script = format!(
            "trap : INT; echo begun; stty -a | md5sum; {}; echo code $?; stty -a | md5sum; echo ended; sleep 60",
            run(command)
        );
        let mut terminal = Terminal::start(Path::new("sh"), &["-c", &script]);
        let drawn = terminal.shows(SOON, &[title, "east", "west", "ready"]).await;
        assert!(!drawn.contains("begun"), "the screen is its own:\n{drawn}");
        terminal.press(key);
        let screen = terminal.shows(SOON, &["begun", "code 0", "ended"]).await;
        let modes: Vec<&str> = screen.lines().filter(|line| line.ends_with("  -")).collect();
        assert!(!screen.contains(title) && modes.len() == 2 && modes[0] == modes[1], "{screen}");
    }
    let (code, out, error) = said(&fleet.command(&["top", "--interval", "100ms", "--sort-by", "name"]).await);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.starts_with("2 of 2 members ready, ") && !out.contains('\u{1b}'), "{out}");
    let coloured = said(&fleet.command(&["top", "--once", "--interval", "100ms", "--color", "always"]).await).1;
    assert!(coloured.contains("\u{1b}[32mready"), "{coloured}");
    let (_, json, _) = said(&fleet.command(&["top", "-o", "json", "--interval", "100ms"]).await);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["members"][0]["name"], json["members"][0]["eventsPerSecond"].is_f64()),
        (&json!("east"), true),
        "{json}"
    );
    assert_eq!(said(&fleet.command(&["top", "--interval", "1ms"]).await).0, Some(64));
}

async fn a_kubeconfig_is_merged_and_taken_out(fleet: &Kubefold) {
    let folder = tempfile::tempdir().unwrap();
    let (file, name) = (folder.path().join("config"), folder.path().join("config").display().to_string());
    let kubectl = Kubectl::new(&file, folder.path());
    // A file as kubectl writes it, with what no kubefold knows of.
    for args in [
        &["set-cluster", "work", "--server=https://127.0.0.1:1", "--tls-server-name=work"][..],
        &["set-credentials", "me", "--token=t"],
        &["set-context", "work", "--cluster=work", "--user=me", "--namespace=desk"],
        &["use-context", "work"],
    ] {
        kubectl.run(&[&["config"], args].concat()).await.ok();
    }
    let before = fs::read_to_string(&file).unwrap();
    let kubeconfig =
        async |args: &[&str]| said(&fleet.command(&[&["kubeconfig", "--kubeconfig", &name], args].concat()).await);
    let (code, out, error) = kubeconfig(&["--merge"]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(
        out.starts_with("contexts fleet, fleet-lenient, fleet-strict, fleet-east, fleet-west: merged into "),
        "{out}"
    );
    assert!(error.contains("the current context is still work"), "{error}");
    let current = ["config", "current-context"];
    assert_eq!(kubectl.run(&current).await.ok(), "work\n");
    kubectl.in_context("fleet").run(&["get", "namespace", SPACE]).await.ok();
    kubectl.in_context("fleet-west").run(&["get", "namespace", SPACE]).await.ok();

    // kubectl changes the file, and what it changed stays.
    kubectl.run(&["config", "set-context", "fleet", "--namespace", SPACE]).await.ok();
    assert_eq!(kubeconfig(&["--merge", "--use"]).await.0, Some(0));
    assert_eq!(kubectl.run(&current).await.ok(), "fleet\n");
    assert!(kubectl.run(&["get", "deployments"]).await.ok().contains("web"));
    let merged = fs::read_to_string(&file).unwrap();
    let (_, again, _) = kubeconfig(&["--merge"]).await;
    assert!(again.ends_with("nothing has changed\n"), "{again}");

    // Another program's lock, and another's context.
    fs::write(folder.path().join("config.lock"), "").unwrap();
    let (code, _, error) = kubeconfig(&["--merge"]).await;
    assert!(code == Some(1) && error.contains("is locked: another program changes it"), "{error}");
    fs::remove_file(folder.path().join("config.lock")).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::write(
        &elsewhere,
        merged
            .replace("kubefold.io", "x")
            .replace("server: https://127", "server: https://128")
            .replace("certificate-authority-data: ", "certificate-authority-data: AAAA"),
    )
    .unwrap();
    let (code, _, error) =
        said(&fleet.command(&["kubeconfig", "--merge", "--kubeconfig", elsewhere.to_str().unwrap()]).await);
    assert!(
        code == Some(1)
            && error.contains("has a cluster \"fleet\" that is not of this kubefold and leads to https://128"),
        "{error}"
    );

    let (code, out, error) = kubeconfig(&["--unmerge"]).await;
    assert!(code == Some(0) && out.contains(": taken out of "), "{out}{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(kubeconfig(&["--unmerge"]).await.1, "nothing of this kubefold was merged\n");
    assert!(!folder.path().join("config.lock").exists());
    assert_eq!(kubeconfig(&[]).await.0, Some(1), "a file is named for nothing");
}
