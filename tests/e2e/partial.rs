//! Unmodified clients of a user who has rights in one namespace of two of three members: each shows what is hers, works there, and is told
//! about the third.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{
    FleetFile, Informer, Kubectl, Kubefold, Member, Terminal, Testbed, client, eventually,
    objects::held,
    samples::{config_map, namespace},
};

const SOON: Duration = Duration::from_secs(120);
const MEMBERS: [&str; 3] = ["east", "west", "north"];

/// A fleet of three, and a namespace in each, in which jane may work in the first two.
struct World {
    bed: Testbed,
    fleet: Kubefold,
    space: &'static str,
}

impl World {
    async fn new(space: &'static str) -> Self {
        let bed = Testbed::shared(&MEMBERS).await;
        let mut file = FleetFile::default();
        for member in bed.members() {
            namespace(member, space).await;
            let maps = format!("/api/v1/namespaces/{space}/configmaps");
            member.api().await.create(&maps, &config_map("own", json!({}))).await;
            file = file.member(member, 1);
        }
        for member in [&bed["east"], &bed["west"]] {
            let resources = "--resource=configmaps,secrets,services,pods,pods/log,events,deployments.apps,deployments.apps/scale,\
                             replicasets.apps,replicationcontrollers,statefulsets.apps,daemonsets.apps,jobs.batch,cronjobs.batch,\
                             horizontalpodautoscalers.autoscaling";
            let verbs = "--verb=get,list,watch,create,update,patch,delete,deletecollection";
            member.kubectl(&["create", "role", "work", "-n", space, verbs, resources]).await.ok();
            member.kubectl(&["create", "rolebinding", "work", "-n", space, "--role=work", "--user=jane"]).await.ok();
        }
        let world = Self { fleet: Kubefold::start(&file).await, bed, space };
        // As an administrator makes it for her.
        let made = world.fleet.command(&["kubeconfig", "--user", "jane"]).await;
        assert!(made.status.success(), "{made:?}");
        std::fs::write(world.kubeconfig(), made.stdout).unwrap();
        let jane = world.jane();
        // Each member has said what she may do.
        eventually(SOON, async || jane.run(&["get", "cm", "-o", "name"]).await.holds("own@west")).await;
        world
    }

    fn kubeconfig(&self) -> PathBuf {
        self.fleet.kubeconfig().with_file_name("jane.kubeconfig")
    }

    fn jane(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig(), self.kubeconfig().parent().unwrap()).in_namespace(self.space)
    }

    /// What a member holds under a path in the namespace: its names.
    async fn held(&self, member: &Member, path: &str) -> BTreeSet<String> {
        let (group, resource) = path.rsplit_once('/').unwrap();
        let list = member.api().await.get(&format!("/{group}/namespaces/{}/{resource}", self.space)).await;
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_where_its_user_may() {
    let world = World::new("partial-kubectl").await;
    let jane = world.jane();
    let north = &world.bed["north"];
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n---\napiVersion: apps/v1\n\
                    kind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 4\n  selector: {matchLabels: {app: web}}\n  template:\n    \
                    metadata: {labels: {app: web}}\n    spec: {containers: [{name: main, image: 'main:1'}]}\n";
    let applied = jane.run_with_input(&["apply", "-f", "-"], manifest).await;
    assert!(applied.ok().contains("deployment.apps/web created"), "{applied}");
    let again = jane.run_with_input(&["apply", "-f", "-"], manifest).await;
    assert_eq!(again.ok(), "configmap/settings unchanged\ndeployment.apps/web unchanged\n", "{again}");
    let same = jane.run_with_input(&["diff", "-f", "-"], manifest).await;
    assert_eq!(same.code, Some(0), "{same}");
    for (args, text) in [
        (&["get", "all"][..], "deployment.apps/web"),
        (&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"], "4"),
        (&["describe", "deployment", "web"], "4 desired"),
        (&["set", "image", "deployment/web", "main=main:2"], "image updated"),
        (&["scale", "deployment", "web", "--replicas=6"], "scaled"),
        (&["label", "configmap", "settings", "tier=web"], "labeled"),
        (&["annotate", "deployment", "web", "by=jane"], "annotated"),
        (&["patch", "configmap", "settings", "-p", r#"{"data": {"a": "c"}}"#], "patched"),
        (&["rollout", "pause", "deployment/web"], "paused"),
        (&["rollout", "history", "deployment/web"], "deployment.apps/web"),
        (&["create", "secret", "generic", "key", "--from-literal=a=b"], "secret/key created"),
        (&["api-resources", "--namespaced", "-o", "name"], "deployments.apps"),
        (&["explain", "deployment.spec.replicas"], "replicas"),
        (&["auth", "can-i", "list", "configmaps"], "yes"),
        (&["auth", "can-i", "delete", "configmaps/own@east"], "yes"),
        (&["get", "configmap", "own@west", "-o", "name"], "configmap/own@west"),
    ] {
        let said = jane.run(args).await;
        assert!(said.ok().contains(text), "no {text:?} in {said}");
        assert!(!said.stdout.contains("north"), "{said}");
    }
    for (args, words) in [
        (
            &["get", "configmaps", "-A"][..],
            r#"User "jane" cannot list resource "configmaps" in API group "" at the cluster scope"#,
        ),
        (&["get", "nodes"], r#"User "jane" cannot list resource "nodes""#),
        (&["create", "namespace", "another"], r#"User "jane" cannot create resource "namespaces""#),
        (&["get", "configmap", "own@north"], r#"User "jane" cannot get resource "configmaps""#),
        (&["delete", "configmap", "own@north"], r#"User "jane" cannot delete resource "configmaps""#),
        (&["cordon", "node-1"], r#"User "jane" cannot get resource "nodes""#),
    ] {
        let said = jane.run(args).await;
        assert!(said.refused().contains(words), "no {words:?} in {said}");
    }
    let said = jane.run(&["auth", "can-i", "list", "configmaps", "-A"]).await;
    assert!(said.stdout.starts_with("no"), "{said}");
    let gone = jane.run(&["delete", "deployment/web", "configmap/settings", "secret/key"]).await;
    assert!(gone.ok().contains(r#"deployment.apps "web" deleted"#), "{gone}");
    assert_eq!(world.held(north, "api/v1/configmaps").await, BTreeSet::from(["own".to_owned()]));
    assert_eq!(world.held(north, "apis/apps/v1/deployments").await, BTreeSet::new());
}

/// Each of client-go's informers, and fabric8's for Java, in its user's namespace.
#[tokio::test(flavor = "multi_thread")]
async fn informers_hold_what_their_user_may_see() {
    let world = World::new("partial-informer").await;
    let (space, kubeconfig) = (format!("--namespace={}", world.space), world.kubeconfig());
    let ways: [(&str, &[&str]); 6] = [
        ("go", &["--mode=typed"]),
        ("go", &["--mode=typed", "--watchlist=false"]),
        ("go", &["--mode=dynamic"]),
        ("go", &["--mode=metadata"]),
        ("go", &["--mode=controller-runtime"]),
        ("java", &[]),
    ];
    let mut informers = ways.map(|(program, args)| Informer::of(program, &kubeconfig, &[args, &[&space]].concat()));
    let expect = async |informers: &mut [Informer], wanted: &[&str]| {
        for informer in informers {
            eventually(SOON, async || {
                let held: Vec<String> = held(&informer.dump().await).into_keys().collect();
                let names: Vec<&str> = held.iter().filter_map(|key| Some(key.split_once('/')?.1)).collect();
                if names == wanted { Ok(()) } else { Err(format!("{names:?}\n{}", informer.errors())) }
            })
            .await;
        }
    };
    expect(&mut informers, &["own@east", "own@west"]).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", world.space);
    for member in ["north", "west"] {
        world.bed[member].api().await.create(&maps, &config_map("late", json!({}))).await;
    }
    expect(&mut informers, &["late@west", "own@east", "own@west"]).await;
    for informer in &informers {
        let text = format!("{:?}", informer.events());
        assert!(!text.contains("north"), "{text}");
    }
    // All namespaces are not hers.
    let everywhere = Informer::of("go", &kubeconfig, &["--mode=typed"]);
    eventually(SOON, async || {
        let errors = everywhere.errors();
        let is_told = errors.contains("configmaps is forbidden") && errors.contains("at the cluster scope");
        is_told.then_some(()).ok_or(errors)
    })
    .await;
    assert_eq!(everywhere.events(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_releases_where_its_user_may() {
    let world = World::new("partial-helm").await;
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/partial/chart");
    let (east, west, north) = (&world.bed["east"], &world.bed["west"], &world.bed["north"]);
    for program in ["helm", "helm3"] {
        let helm = world.jane().by(client(program));
        helm.run(&["install", "shop", chart]).await.ok();
        let upgraded = helm.run(&["upgrade", "shop", chart, "--set=greeting=hi,replicas=6"]).await;
        assert!(upgraded.ok().contains("REVISION: 2"), "{upgraded}");
        let mut replicas = 0;
        for member in [east, west] {
            let map = member.api().await.get(&format!("/api/v1/namespaces/{}/configmaps/shop", world.space)).await;
            assert_eq!(map["data"]["greeting"], "hi", "{program}, {}", member.name());
            let web =
                member.api().await.get(&format!("/apis/apps/v1/namespaces/{}/deployments/shop", world.space)).await;
            replicas += web["spec"]["replicas"].as_i64().unwrap();
        }
        assert_eq!(replicas, 6, "{program}");
        helm.run(&["rollback", "shop", "1"]).await.ok();
        let history: Value = serde_json::from_str(helm.run(&["history", "shop", "-o", "json"]).await.ok()).unwrap();
        assert_eq!(history.as_array().unwrap().len(), 3, "{program}: {history}");
        let listed = helm.run(&["list", "-o", "json"]).await;
        assert!(listed.ok().contains(r#""name":"shop""#), "{listed}");
        assert_eq!(world.held(north, "api/v1/configmaps").await, BTreeSet::from(["own".to_owned()]), "{program}");
        assert_eq!(world.held(north, "api/v1/secrets").await, BTreeSet::new(), "{program}");
        helm.run(&["uninstall", "shop"]).await.ok();
        for member in [east, west] {
            assert_eq!(world.held(member, "api/v1/secrets").await, BTreeSet::new(), "{program}, {}", member.name());
            assert_eq!(
                world.held(member, "apis/apps/v1/deployments").await,
                BTreeSet::new(),
                "{program}, {}",
                member.name()
            );
        }
        let everywhere = helm.run(&["list", "-A"]).await;
        assert!(everywhere.refused().contains(r#"User "jane" cannot list resource "secrets""#), "{everywhere}");
    }
}

/// k9s on a terminal: it asks what its user may do before it shows a kind.
#[tokio::test(flavor = "multi_thread")]
async fn k9s_shows_what_its_user_may_see() {
    let world = World::new("partial-k9s").await;
    let jane = world.jane();
    jane.run(&["create", "deployment", "web", "--image=main:1", "--replicas=4"]).await.ok();
    let kubeconfig = world.kubeconfig();
    let flags = ["--kubeconfig", kubeconfig.to_str().unwrap(), "-n", world.space, "-c", "configmaps", "--splashless"];
    let mut k9s = Terminal::start(&client("k9s"), &flags);
    let screen = k9s.shows(SOON, &["own@east", "own@west"]).await;
    assert!(!screen.contains("own@north"), "{screen}");
    let maps = format!("/api/v1/namespaces/{}/configmaps", world.space);
    world.bed["west"].api().await.create(&maps, &config_map("late", json!({}))).await;
    k9s.shows(SOON, &["late@west"]).await;
    k9s.press(":deployments\r");
    k9s.shows(SOON, &["web", "0/4"]).await;
    let made = world.bed["north"].request(Method::GET, &maps.replace("configmaps", "configmaps/late"), "").await;
    assert_eq!(made.status, StatusCode::NOT_FOUND, "{made}");
    assert_eq!(k9s.exited(), None);
}
