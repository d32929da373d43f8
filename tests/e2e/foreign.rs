//! Tools and controllers that know nothing of kubefold, over a fleet of three: Helm, kustomize, prune, an operator that
//! garbage collection and status must work for, and leader election while members die.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use testbed::{Informer, Kubefold, Member, MemberOptions, Testbed, client, eventually, samples::namespace};

const SOON: Duration = Duration::from_secs(60);
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn path(of: &str) -> String {
    format!("{}/tests/e2e/foreign/{of}", env!("CARGO_MANIFEST_DIR"))
}

async fn fleet() -> (Testbed, Kubefold) {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::with_workloads(2)).await;
    let fleet = Kubefold::before(bed.members()).await;
    (bed, fleet)
}

/// What members hold of a kind, by member: its names.
async fn in_members(bed: &Testbed, path: &str) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for member in bed.members() {
        let list = member.request(Method::GET, path, "").await.ok();
        let names =
            list["items"].as_array().unwrap().iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned());
        all.insert(member.name().to_owned(), names.collect());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    let (bed, fleet) = fleet().await;
    let helm = fleet.as_admin().by(client("helm"));
    let chart = path("chart");
    let api = fleet.api().await;
    let image = async || {
        let web = api.get(&format!("{DEPLOYMENTS}/shop")).await;
        (
            web["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned(),
            web["spec"]["replicas"].as_i64().unwrap(),
            web["status"]["readyReplicas"].as_i64().unwrap_or_default(),
        )
    };
    // Its hook has run to the end, and everything is ready: it waited for both.
    helm.run(&["install", "shop", &chart, "--wait", "--timeout=90s"]).await.ok();
    assert_eq!(image().await, ("shop:1".to_owned(), 4, 4));
    helm.run(&["upgrade", "shop", &chart, "--wait", "--timeout=90s", "--set=image=shop:2,replicas=7,greeting=hi"])
        .await
        .ok();
    assert_eq!(image().await, ("shop:2".to_owned(), 7, 7));
    for member in bed.members() {
        let map = member.api().await.get("/api/v1/namespaces/default/configmaps/shop").await;
        assert_eq!(map["data"]["greeting"], "hi", "{}", member.name());
    }
    helm.run(&["rollback", "shop", "1", "--wait", "--timeout=90s"]).await.ok();
    assert_eq!(image().await, ("shop:1".to_owned(), 4, 4));
    let history = helm.run(&["history", "shop", "-o", "json"]).await;
    let history: Value = serde_json::from_str(history.ok()).unwrap();
    let states: Vec<_> = history.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["superseded", "superseded", "deployed"]);
    helm.run(&["uninstall", "shop", "--wait", "--timeout=90s"]).await.ok();
    for kind in [
        "apis/apps/v1/namespaces/default/deployments",
        "api/v1/namespaces/default/secrets",
        "apis/batch/v1/namespaces/default/jobs",
    ] {
        let left = in_members(&bed, &format!("/{kind}")).await;
        assert!(left.values().all(Vec::is_empty), "{kind}: {left:?}");
    }
}

/// Helm 3 counts the ready pods of a Deployment's one new ReplicaSet.
#[tokio::test(flavor = "multi_thread")]
async fn helm_3_waits_for_pods_of_all_members() {
    let (_bed, fleet) = fleet().await;
    let helm = fleet.as_admin().by(client("helm3"));
    let chart = path("chart");
    let api = fleet.api().await;
    let ready = async || {
        let web = api.get(&format!("{DEPLOYMENTS}/shop")).await;
        (web["spec"]["replicas"].as_i64().unwrap(), web["status"]["updatedReplicas"].as_i64().unwrap_or_default())
    };
    helm.run(&["install", "shop", &chart, "--wait", "--timeout=90s"]).await.ok();
    assert_eq!(ready().await, (4, 4));
    helm.run(&["upgrade", "shop", &chart, "--wait", "--timeout=90s", "--set=image=shop:2,replicas=9"]).await.ok();
    assert_eq!(ready().await.0, 9);
    helm.run(&["rollback", "shop", "1", "--wait", "--timeout=90s"]).await.ok();
    assert_eq!(ready().await.0, 4);
    helm.run(&["uninstall", "shop", "--wait", "--timeout=90s"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn kustomizations_are_applied_and_what_they_lack_is_pruned() {
    let (bed, fleet) = fleet().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let (base, overlay) = (path("kustomize/base"), path("kustomize/overlay"));
    let set = ["--prune", "--applyset=configmap/set", "-n", "default"];
    let apply = async |dir: &str, more: &[&str]| {
        let mut args = vec!["apply", "-k", dir];
        args.extend(more);
        fleet.as_admin().with("KUBECTL_APPLYSET", "true").run(&args).await.ok().to_owned()
    };
    for (dir, replicas) in [(&base, 3), (&overlay, 5)] {
        apply(dir, &set).await;
        let web = fleet.api().await.get(&format!("{DEPLOYMENTS}/web")).await;
        assert_eq!(web["spec"]["replicas"], replicas);
        for member in bed.members() {
            let names = in_members(&bed, maps).await;
            let settings = names[member.name()].iter().filter(|name| name.starts_with("settings-")).count();
            assert_eq!(settings, 1, "the former one is pruned: {names:?}");
        }
    }
    assert!(apply(&overlay, &set).await.lines().all(|line| line.ends_with("unchanged") || line.contains("serverside")));
    // The older way, by labels.
    let manifest = |names: &[&str]| {
        let one = |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"set": "old"}}});
        json!({"apiVersion": "v1", "kind": "List", "items": names.iter().map(one).collect::<Vec<_>>()}).to_string()
    };
    let prune = ["apply", "--prune", "-l", "set=old", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"];
    fleet.as_admin().run_with_input(&prune, &manifest(&["one", "two"])).await.ok();
    let output = fleet.as_admin().run_with_input(&prune, &manifest(&["two"])).await;
    assert!(output.ok().contains("configmap/one pruned"), "{output}");
    let left = in_members(&bed, &format!("{maps}?labelSelector=set%3Dold")).await;
    assert!(left.values().all(|names| *names == ["two"]), "{left:?}");
}

fn sites() -> Value {
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "image": {"type": "string"}}});
    let status = json!({"type": "object", "properties": {"ready": {"type": "integer"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.e2e.kubefold.io"},
        "spec": {
            "group": "e2e.kubefold.io", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_owns_what_it_makes() {
    let (bed, fleet) = fleet().await;
    let kubectl = fleet.as_admin();
    kubectl.run_with_input(&["create", "-f", "-"], &sites().to_string()).await.ok();
    kubectl.run(&["wait", "--for=condition=Established", "crd/sites.e2e.kubefold.io", "--timeout=30s"]).await.ok();
    let site = |replicas: i64, image: &str| {
        json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Site", "metadata": {"name": "blog"},
            "spec": {"replicas": replicas, "image": image}})
        .to_string()
    };
    // At once: what is Established is served.
    kubectl.run_with_input(&["apply", "-f", "-"], &site(3, "blog:1")).await.ok();
    let _operator = Informer::of_flag("operator", "--config", &fleet.kubeconfig(), &[]);
    let ready = async |wanted: i64, image: &str| {
        eventually(SOON, async || {
            let text = "{.status.ready}/{.spec.image}";
            let shown = kubectl.run(&["get", "site", "blog", "-o", &format!("jsonpath={text}")]).await;
            let template = "{.status.readyReplicas}/{.spec.template.spec.containers[0].image}";
            let web = kubectl.run(&["get", "deployment", "blog-web", "-o", &format!("jsonpath={template}")]).await;
            let wanted = format!("{wanted}/{image}");
            if shown.stdout == wanted && web.stdout == wanted { Ok(()) } else { Err(format!("{shown}\n{web}")) }
        })
        .await;
    };
    ready(3, "blog:1").await;
    kubectl.run_with_input(&["apply", "-f", "-"], &site(5, "blog:2")).await.ok();
    ready(5, "blog:2").await;
    // The owner in the fleet view is the Site that the fleet view shows.
    let uid = kubectl.run(&["get", "site", "blog", "-o", "jsonpath={.metadata.uid}"]).await.ok().to_owned();
    let owner = "jsonpath={.metadata.ownerReferences[0].uid}";
    assert_eq!(kubectl.run(&["get", "deployment", "blog-web", "-o", owner]).await.ok(), uid);
    // One member has both, since an operator in each would act on each copy.
    let held = in_members(&bed, DEPLOYMENTS).await;
    assert_eq!(held.values().filter(|names| !names.is_empty()).count(), 1, "{held:?}");
    // Somebody deletes what it made: it makes it anew.
    kubectl.run(&["delete", "deployment", "blog-web"]).await.ok();
    ready(5, "blog:2").await;
    // The members' garbage collectors take what is owned.
    kubectl.run(&["delete", "site", "blog", "--cascade=foreground", "--timeout=60s"]).await.ok();
    eventually(SOON, async || {
        let held = in_members(&bed, DEPLOYMENTS).await;
        let shown = kubectl.run(&["get", "deployments", "-o", "name"]).await;
        let gone = held.values().all(Vec::is_empty) && shown.stdout.is_empty();
        if gone { Ok(()) } else { Err(format!("{held:?} {shown}")) }
    })
    .await;
}

/// When one candidate led: from, and until when if that is over. Units: nanoseconds of the clock that all share.
#[derive(Debug)]
struct Reign {
    from: i64,
    until: Option<i64>,
}

fn reigns(candidate: &Informer, died: Option<i64>) -> Vec<Reign> {
    let mut all: Vec<Reign> = Vec::new();
    for line in candidate.events() {
        let at = line["nanos"].as_i64().unwrap();
        match line["type"].as_str().unwrap() {
            "LEADS" => all.push(Reign { from: at, until: None }),
            _ => all.last_mut().unwrap().until = Some(at),
        }
    }
    if let Some(last) = all.last_mut() {
        last.until = last.until.or(died);
    }
    all
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn never_two_lead_while_members_die() {
    let (bed, fleet) = fleet().await;
    let start = |identity: &str| Informer::of("leader", &fleet.kubeconfig(), &[&format!("--identity={identity}")]);
    let mut candidates = BTreeMap::from(["a", "b", "c"].map(|identity| (identity, start(identity))));
    let mut died: BTreeMap<&str, i64> = BTreeMap::new();
    let leader = async |candidates: &BTreeMap<&'static str, Informer>, died: &BTreeMap<&str, i64>| {
        eventually(SOON, async || {
            let leads = |one: &&str| {
                !died.contains_key(*one)
                    && reigns(&candidates[*one], None).last().is_some_and(|last| last.until.is_none())
            };
            candidates.keys().copied().find(leads).ok_or_else(|| "nobody leads".to_owned())
        })
        .await
    };
    let first = leader(&candidates, &died).await;
    // A leader dies; another one follows.
    candidates.get_mut(first).unwrap().kill();
    died.insert(first, now());
    let second = leader(&candidates, &died).await;
    assert_ne!(first, second);
    // A member that has nothing to do with the lease dies: nobody notices.
    let home = home_of_lease(&bed).await;
    let others: Vec<&Member> = bed.members().iter().filter(|member| member.name() != home.name()).collect();
    others[0].pause();
    let first_renewal = renewed(home, None).await;
    renewed(home, Some(first_renewal + LEASE)).await;
    assert_eq!(leader(&candidates, &died).await, second, "{}", candidates[second].errors());
    others[0].resume();
    // The member of the lease hangs, longer than a lease lasts: nobody may lead by what was known last.
    home.pause();
    let hung = now();
    let alive = || candidates.iter().filter(|(one, _)| !died.contains_key(*one));
    eventually(SOON, async || {
        let leads = |candidate: &Informer| reigns(candidate, None).last().is_some_and(|last| last.until.is_none());
        match alive().find(|(_, candidate)| leads(candidate)) {
            Some((identity, _)) => Err(format!("{identity} still leads")),
            None => Ok(()),
        }
    })
    .await;
    for (identity, candidate) in alive() {
        let reigns = reigns(candidate, None);
        assert!(reigns.iter().all(|one| one.from < hung), "{identity} began to lead without the lease: {reigns:?}");
    }
    home.resume();
    leader(&candidates, &died).await;
    // kubefold itself dies and returns.
    fleet.kill9();
    fleet.restart().await;
    leader(&candidates, &died).await;
    let mut all: Vec<(i64, i64, &str)> = Vec::new();
    for (identity, candidate) in &candidates {
        let reigns = reigns(candidate, died.get(identity).copied());
        all.extend(reigns.iter().map(|one| (one.from, one.until.unwrap_or(i64::MAX), *identity)));
    }
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two led at once: {all:?}");
}

/// How long a lease of `tests/clients/go/cmd/leader` lasts, with a margin.
const LEASE: Duration = Duration::from_secs(8);

/// Waits until the lease was renewed after a time, and returns the time of its last renewal.
async fn renewed(home: &Member, after: Option<SystemTime>) -> SystemTime {
    eventually(SOON, async || {
        let leases = home.api().await.get("/apis/coordination.k8s.io/v1/namespaces/default/leases").await;
        let text = leases["items"][0]["spec"]["renewTime"].as_str().ok_or("no renewTime")?.to_owned();
        let renewed = SystemTime::from(text.parse::<Timestamp>().map_err(|error| error.to_string())?);
        if after.is_none_or(|after| renewed > after) { Ok(renewed) } else { Err(format!("last renewed at {text}")) }
    })
    .await
}

async fn home_of_lease(bed: &Testbed) -> &Member {
    let held = in_members(bed, "/apis/coordination.k8s.io/v1/namespaces/default/leases").await;
    let homes: Vec<&Member> = bed.members().iter().filter(|member| !held[member.name()].is_empty()).collect();
    assert_eq!(homes.len(), 1, "a lease has one arbiter: {held:?}");
    homes[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn who_applied_may_go_over_to_server_side_apply() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    for member in bed.members() {
        namespace(member, "applied").await;
    }
    let deployments = "/apis/apps/v1/namespaces/applied/deployments";
    let fleet = Kubefold::before(bed.members()).await;
    let manifest = |replicas: i64, image: &str| {
        let labels = json!({"app": "web"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "applied"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": image}]}},
        }})
        .to_string()
    };
    let kubectl = fleet.as_admin();
    let apply = async |how: &[&str], manifest: String| {
        let args: Vec<&str> = ["apply", "-f", "-"].iter().chain(how).copied().collect();
        let output = kubectl.run_with_input(&args, &manifest).await;
        output.ok();
        assert!(!output.stderr.contains("Warning"), "{output}");
        output.stdout
    };
    apply(&[], manifest(6, "web:1")).await;
    for (replicas, image) in [(6, "web:1"), (7, "web:1"), (9, "web:3")] {
        apply(&["--server-side"], manifest(replicas, image)).await;
        let web = fleet.api().await.get(&format!("{deployments}/web")).await;
        assert_eq!(web["spec"]["replicas"], replicas);
        let noted = web["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].to_string();
        assert!(!noted.contains("kubefold.io/"), "{noted}");
        for member in bed.members() {
            let part = member.api().await.get(&format!("{deployments}/web")).await;
            for map in ["labels", "annotations"] {
                assert!(part["metadata"][map]["kubefold.io/placement"].is_string(), "{part}");
            }
            assert_eq!(part["spec"]["template"]["spec"]["containers"][0]["image"], image);
        }
    }
    // And back.
    apply(&[], manifest(4, "web:4")).await;
    assert_eq!(fleet.api().await.get(&format!("{deployments}/web")).await["spec"]["replicas"], 4);
    assert_eq!(apply(&[], manifest(4, "web:4")).await.trim(), "deployment.apps/web unchanged");
}
