//! Dashboards that people have, unmodified, over a demo.
//!
//! `KUBEFOLD_DOCS=write cargo test --test e2e dashboards` makes the picture of k9s anew.

use std::{collections::BTreeSet, fs, num::NonZeroU16, path::Path, time::Duration};

use serde_json::{Value, json};
use testbed::{ScreenSize, Terminal, client};

use crate::demo::{Demo, SECOND_PASS};

const PICTURE: &str = "docs/k9s.svg";
const SOON: Duration = Duration::from_secs(120);
/// Rows and columns: room for every pod of the namespace.
const SIZE: ScreenSize = [NonZeroU16::new(46).unwrap(), NonZeroU16::new(120).unwrap()];
const NAMESPACE: &str = "shop";

/// The objects that a text names: `redis-0@east`. Pods of CronJobs are named by the time.
fn named(text: &str) -> BTreeSet<String> {
    text.split(|c: char| c.is_whitespace() || "<>│".contains(c))
        .filter(|word| word.contains('@') && !word.starts_with("nightly-"))
        .map(str::to_owned)
        .collect()
}

/// k9s with the columns that its page offers.
#[tokio::test(flavor = "multi_thread")]
async fn k9s_is_as_its_picture_shows_it() {
    let demo = Demo::start(SECOND_PASS).await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let views = fs::read_to_string(root.join("docs/k9s/views.yaml")).unwrap();
    let kubeconfig = demo.kubeconfig();
    let flags =
        ["--kubeconfig", kubeconfig.to_str().unwrap(), "-n", NAMESPACE, "-c", "pods", "--splashless", "--logoless"];
    let files = [("XDG_CONFIG_HOME/k9s/views.yaml", views.as_str())];
    let mut k9s = Terminal::start_with(&client("k9s"), &flags, SIZE, &files);
    let screen = k9s.shows(SOON, &["CLUSTER", "api-", "redis-0@east", "thumbnails-0@west"]).await;
    if std::env::var_os("KUBEFOLD_DOCS").is_some() {
        fs::write(
            root.join(PICTURE),
            k9s.picture("k9s with the pods of three clusters, and the cluster of each in a column"),
        )
        .unwrap();
    }
    let drawn = named(&fs::read_to_string(root.join(PICTURE)).unwrap());
    assert!(drawn.len() > 10, "{drawn:?}");
    assert_eq!(drawn, named(&screen), "KUBEFOLD_DOCS=write makes {PICTURE} anew");
}

/// What a client of `tests/clients` prints of the namespace of a demo: one line of JSON.
async fn seen_by(name: &str, demo: &Demo) -> Value {
    let mut process = tokio::process::Command::new(client(name));
    process.arg(format!("--kubeconfig={}", demo.kubeconfig().display())).arg(format!("--namespace={NAMESPACE}"));
    let said = tokio::time::timeout(SOON, process.kill_on_drop(true).output()).await.unwrap().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// Lens and its heirs, by the library with which Freelens asks; and the code of Headlamp's front end that keeps a list by a watch.
#[tokio::test(flavor = "multi_thread")]
async fn freelens_and_headlamp_list_watch_and_edit() {
    let demo = Demo::start(SECOND_PASS).await;
    let kept = seen_by("headlamp", &demo).await;
    let expected =
        json!({"protocol": "base64.binary.k8s.io", "members": ["east", "north", "west"], "skipped": [], "others": 0});
    assert_eq!(kept, expected, "of every event Headlamp's code makes the server's list");
    let seen = seen_by("lens", &demo).await;
    for (page, one) in [
        ("NodeApi", "@west"),
        ("PodApi", "redis-0@east"),
        ("StatefulSetApi", "redis@north"),
        ("NamespaceApi", "shop"),
        ("PodMetricsApi", "redis-0@west"),
        ("NodeMetricsApi", "@north"),
    ] {
        let list = seen["lists"][page].as_array().unwrap();
        assert!(list.iter().any(|name| name.as_str().unwrap().contains(one)), "{page}: {list:?}");
    }
    let lists = seen["lists"].as_object().unwrap();
    assert!(lists.len() > 30 && lists.values().all(Value::is_array), "{lists:?}");
    let members: BTreeSet<&str> = seen["watched"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod.as_str().unwrap().rsplit_once('@').unwrap().1)
        .collect();
    assert_eq!(members, BTreeSet::from(["east", "north", "west"]), "{seen}");
    for what in ["may", "logs", "scaled", "deleted", "toldOfDeletions"] {
        assert_eq!(seen[what], json!(true), "{what}: {seen}");
    }
    assert!(seen["annotations"].as_array().unwrap().contains(&json!("edited=yes")), "{seen}");
}
