//! Tables in every view, of kinds that no store holds, and of members that are not known; and what the commands of kubectl
//! print of them, beside the member's own.

use std::collections::BTreeMap;

use super::*;
use testbed::FleetFile;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The cells at a place in a table's rows.
fn cells(answer: &Answer, at: usize) -> Vec<String> {
    let table = answer.json();
    assert_eq!((answer.status, &table["kind"]), (StatusCode::OK, &json!("Table")), "{answer}");
    let rows = table["rows"].as_array().into_iter().flatten();
    rows.map(|row| row["cells"][at].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_every_view_names_whom_it_leaves_out() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let [east, west] = ["east", "west"].map(|name| &bed[name]);
    for member in [east, west] {
        namespace(member, "shop").await;
        create_all(&member.api().await, MAPS, &[config_map("settings", json!({}))]).await;
    }
    west.api().await.create(CRDS, &crd("Gadget")).await;
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).member(west, 1)).await;
    let ours = fleet.api().await;
    let views = ["", "/views/lenient", "/views/strict"];
    for view in views {
        let maps = ask(&ours, &format!("{view}{MAPS}?labelSelector=none%21%3Dsuch"), TABLE).await;
        assert!(cells(&maps, 1).contains(&"west".to_owned()) && maps.warnings().is_empty(), "{view}: {maps}");
        // In no store: every member is asked.
        let parts = ask(&ours, &format!("{view}/api/v1/componentstatuses"), TABLE).await;
        let mut clusters: BTreeMap<String, usize> = BTreeMap::new();
        cells(&parts, 1).into_iter().for_each(|cluster| *clusters.entry(cluster).or_default() += 1);
        assert_eq!(clusters, BTreeMap::from([("east".to_owned(), 3), ("west".to_owned(), 3)]), "{view}");
    }
    // Served by a member that is known to serve it, and whose objects nobody has read.
    eventually(SOON, async || {
        let served = ours.request(Method::GET, "/apis/e2e.kubefold.io/v1", "").await;
        if served.status.is_success() { Ok(()) } else { Err(served) }
    })
    .await;
    west.kill();
    let warned = async |path: &str| {
        eventually(SOON, async || {
            let answer = ask(&ours, path, TABLE).await;
            let warns = answer.warnings().iter().any(|warning| warning.contains("west"));
            if answer.status == StatusCode::OK && warns { Ok(answer) } else { Err(answer) }
        })
        .await
    };
    for view in &views[..2] {
        assert_eq!(cells(&warned(&format!("{view}{GADGETS}")).await, 0), [""; 0]);
        assert!(cells(&warned(&format!("{view}{MAPS}")).await, 1).contains(&"west".to_owned()), "as it was last");
        let parts = warned(&format!("{view}/api/v1/componentstatuses")).await;
        assert_eq!(cells(&parts, 1), ["east"; 3]);
    }
    for path in [GADGETS, MAPS, "/api/v1/componentstatuses"] {
        let strict = ask(&ours, &format!("/views/strict{path}"), TABLE).await;
        assert_eq!(strict.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {strict}");
        assert!(strict.json()["message"].as_str().unwrap().contains("west"), "{strict}");
    }
    // A kind that only a member may serve which has not said a word.
    fleet.restart_without_mirror().await;
    for view in &views[..2] {
        assert_eq!(cells(&warned(&format!("{view}{GADGETS}")).await, 0), [""; 0]);
        assert!(!cells(&warned(&format!("{view}{MAPS}")).await, 1).contains(&"west".to_owned()));
    }
    for (path, accept) in [(format!("/views/strict{GADGETS}"), TABLE), (GADGETS.to_owned(), "application/json")] {
        let answer = ask(&ours, &path, accept).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {answer}");
    }
}

/// A line without the column that is kubefold's, as words; ages are times of their own.
fn words(line: &str, cluster: Option<usize>) -> Vec<String> {
    let is_age = |word: &str| word.ends_with(['s', 'm', 'h']) && word.starts_with(|c: char| c.is_ascii_digit());
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if let Some(at) = cluster.filter(|at| *at < words.len()) {
        assert!(["CLUSTER", "east"].contains(&words.remove(at).as_str()), "{line}");
    }
    words.iter().map(|word| if is_age(word) { "(age)".to_owned() } else { word.clone() }).collect()
}

/// The words of every line; `CLUSTER` stands where the head of its table says.
fn printed(text: &str) -> Vec<Vec<String>> {
    let mut cluster = None;
    let line = |line: &str| {
        let found = line.split_whitespace().position(|word| word == "CLUSTER");
        cluster = found.or_else(|| cluster.filter(|_| !line.is_empty()));
        words(line, cluster)
    };
    // The one head of two words before it.
    text.replace("LAST SEEN", "LAST-SEEN").lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_what_it_prints_of_the_member() {
    let east = Member::start("east", MemberOptions::with_workloads(1)).await;
    namespace(&east, "shop").await;
    for args in [
        &["create", "deployment", "web", "--image=web:1", "--replicas=3"][..],
        &["expose", "deployment", "web", "--port=80"],
        &["create", "configmap", "settings", "--from-literal=a=b"],
        &["rollout", "status", "deployment/web", "--timeout=60s"],
        &["label", "pods", "-l", "app=web", "tier=front"],
    ] {
        east.kubectl(&[args, &["-n", "shop"]].concat()).await.ok();
    }
    let file = FleetFile::default().member(&east, 1).settings("names: plain");
    let fleet = Kubefold::start(&file).await;
    let oldest = testbed::client("kubectl-oldest");
    for args in [
        &["get", "pods", "-A"][..],
        &["get", "pods", "-n", "shop", "-o", "wide"],
        &["get", "pods", "-n", "shop", "--show-labels"],
        &["get", "pods", "-n", "shop", "-L", "tier,app", "--show-kind"],
        &["get", "pods", "-n", "shop", "--sort-by=.metadata.name"],
        &["get", "pods", "-A", "--sort-by=.spec.nodeName"],
        &["get", "pods", "-n", "shop", "-l", "tier=front"],
        &["get", "pod,svc", "-n", "shop"],
        &["get", "deployment/web", "service/web", "-n", "shop"],
        &["get", "all", "-A"],
        &["get", "events", "-n", "shop", "--sort-by=.metadata.name"],
        &["get", "nodes", "-o", "wide"],
        &["get", "pods", "-n", "none"],
        &["get", "pod", "none", "-n", "shop"],
        &["get", "crd"],
        &["get", "deploy,rs,cm", "-n", "shop", "--chunk-size=1"],
    ] {
        for by in [None, Some(&oldest)] {
            let kubectl = |kubectl: testbed::Kubectl| match by {
                Some(by) => kubectl.by(by.clone()),
                None => kubectl,
            };
            let (own, ours) = (kubectl(east.as_admin()), kubectl(fleet.as_admin()));
            eventually(SOON, async || {
                let (said, told) = tokio::join!(own.run(args), ours.run(args));
                let same = said.code == told.code
                    && said.stderr == told.stderr
                    && printed(&said.stdout) == printed(&told.stdout);
                if same { Ok(()) } else { Err(format!("{args:?}: {told}\nand the member: {said}")) }
            })
            .await;
        }
    }
    watches(&east, &fleet).await;
}

/// `kubectl get --watch` in its forms: what it tells of one change after the other.
async fn watches(east: &Member, fleet: &Kubefold) {
    for (at, args) in [
        &["get", "configmaps", "-n", "shop", "-w"][..],
        &["get", "configmaps", "-n", "shop", "--watch-only", "-o", "wide"],
        &["get", "configmaps", "-A", "-w", "--output-watch-events"],
        &["get", "configmap", "settings", "-n", "shop", "-w", "--show-labels"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut both = [east.as_admin().start(args), fleet.as_admin().start(args)];
        let begun = |output: &str| args.contains(&"--watch-only") || output.contains("settings");
        for one in &both {
            eventually(SOON, async || begun(&one.output()).then_some(()).ok_or_else(|| one.output())).await;
        }
        let label = format!("round={at}");
        let name = format!("map-{at}");
        // Whoever watches from now on is told of each again, until both have been told of one.
        eventually(SOON, async || {
            east.kubectl(&["label", "configmap", "settings", "-n", "shop", "--overwrite", &label]).await.ok();
            east.kubectl(&["label", "configmap", "settings", "-n", "shop", "round-"]).await.ok();
            let told = both.iter().all(|one| one.output().matches("settings").count() >= 3);
            told.then_some(()).ok_or_else(|| both.iter().map(|one| one.output()).collect::<String>())
        })
        .await;
        if at < 3 {
            east.kubectl(&["create", "configmap", &name, "-n", "shop"]).await.ok();
            for one in &both {
                eventually(SOON, async || one.output().contains(&name).then_some(()).ok_or_else(|| one.output())).await;
            }
        }
        let [said, told] = [&both[0], &both[1]].map(|one| {
            let distinct: BTreeSet<Vec<String>> = printed(&one.output()).into_iter().collect();
            distinct
        });
        assert_eq!(said, told, "{args:?}");
        both.iter_mut().for_each(testbed::Process::kill);
    }
}
