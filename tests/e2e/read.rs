//! Reads with kubectl: three clusters, one API.

use std::time::Duration;

use serde_json::{Value, json};

use testbed::{
    Kubefold, Testbed, eventually,
    samples::{config_map, controlled_pod, crd, create_all, deployment, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/reading/configmaps";

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Three members with a namespace of their own; what is in it differs.
async fn shop() -> (Testbed, Kubefold) {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    for member in bed.members() {
        namespace(member, "reading").await;
        member.api().await.create(CONFIG_MAPS, &config_map("settings", json!({"app": "web"}))).await;
    }
    let (east, west, north) = (bed["east"].api().await, bed["west"].api().await, bed["north"].api().await);
    create_all(&east, CONFIG_MAPS, &[config_map("only", json!({"app": "cart"}))]).await;
    create_all(&north, CONFIG_MAPS, &[config_map("zone", json!({"app": "web"}))]).await;
    for api in [&east, &west] {
        create_all(api, "/apis/apps/v1/namespaces/reading/deployments", &[deployment("web", 1)]).await;
        create_all(api, "/api/v1/namespaces/reading/pods", &[controlled_pod("web-0", "web")]).await;
    }
    create_all(&north, "/api/v1/namespaces/reading/pods", &[controlled_pod("solo-0", "solo")]).await;
    let fleet = Kubefold::before(bed.members()).await;
    (bed, fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_three_clusters_as_one() {
    let (bed, fleet) = shop().await;
    lists_in_every_format(&fleet).await;
    selects(&fleet).await;
    gets_by_exact_and_short_names(&fleet).await;
    describes(&fleet).await;
    follows(&bed, &fleet).await;
    waits(&bed, &fleet).await;
}

async fn lists_in_every_format(fleet: &Kubefold) {
    let all = ["only@east", "settings@east", "settings@north", "settings@west", "zone@north"];
    let named: Vec<String> = all.iter().map(|name| format!("configmap/{name}")).collect();
    for chunk in ["--chunk-size=0", "--chunk-size=2", "--chunk-size=500"] {
        let names = fleet.kubectl(&["get", "configmaps", "-n", "reading", "-o", "name", chunk]).await;
        assert_eq!(lines(names.ok()), named, "{chunk}");
    }
    // What `-o name` prints are names that get takes.
    let mut args = vec!["get", "-n", "reading", "--no-headers"];
    args.extend(named.iter().map(String::as_str));
    let again = fleet.kubectl(&args).await;
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    assert_eq!(again.ok().lines().map(first).collect::<Vec<_>>(), all);

    for format in ["wide", ""] {
        let table = fleet.kubectl(&["get", "cm", "-A", "-o", format]).await;
        all.iter().for_each(|name| assert!(table.ok().contains(name), "{table}"));
        assert!(table.stderr.is_empty(), "nothing to warn of: {table}");
    }
    let list = fleet.kubectl(&["get", "configmaps", "-n", "reading", "-o", "json"]).await;
    let list: Value = serde_json::from_str(list.ok()).unwrap();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>(), all);
    for item in items {
        let member = item["metadata"]["name"].as_str().unwrap().rsplit_once('@').unwrap().1;
        assert_eq!((&item["kind"], &item["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        assert_eq!(item["metadata"]["annotations"]["kubefold.io/cluster"], member);
    }
    let yaml = fleet.kubectl(&["get", "cm", "only@east", "-n", "reading", "-o", "yaml"]).await;
    for line in ["kind: ConfigMap", "  name: only@east", "    kubefold.io/cluster: east", "  a: \"1\""] {
        assert!(yaml.ok().lines().any(|one| one == line), "no {line:?} in {yaml}");
    }
    let several = fleet.kubectl(&["get", "configmaps,deployments,pods", "-n", "reading", "-o", "name"]).await;
    for name in ["configmap/zone@north", "deployment.apps/web@west", "pod/solo-0@north"] {
        assert!(lines(several.ok()).contains(&name), "{several}");
    }
}

async fn selects(fleet: &Kubefold) {
    let cases = [
        ("-l", "kubefold.io/cluster in (east,west)", vec!["only@east", "settings@east", "settings@west"]),
        ("-l", "kubefold.io/cluster=north", vec!["settings@north", "zone@north"]),
        ("-l", "kubefold.io/cluster notin (east,west),app=web", vec!["settings@north", "zone@north"]),
        ("-l", "kubefold.io/cluster=nowhere", vec![]),
        ("-l", "app=web@east", vec!["settings@east"]),
        ("-l", "app in (web@east,cart)", vec!["only@east", "settings@east"]),
        ("-l", "app!=web", vec!["only@east"]),
        ("--field-selector", "metadata.name=settings@west", vec!["settings@west"]),
        ("--field-selector", "metadata.name!=settings@west,metadata.namespace=reading", {
            vec!["only@east", "settings@east", "settings@north", "zone@north"]
        }),
    ];
    for (flag, selector, wanted) in cases {
        let output = fleet.kubectl(&["get", "cm", "-n", "reading", "-o", "name", flag, selector]).await;
        let names: Vec<&str> = output.ok().lines().filter_map(|line| line.strip_prefix("configmap/")).collect();
        assert_eq!(names, wanted, "{flag} {selector}");
    }
    let refused = fleet.kubectl(&["get", "cm", "-n", "reading", "--field-selector", "data..a=1"]).await;
    assert!(refused.refused().contains("data..a"), "{refused}");
}

async fn gets_by_exact_and_short_names(fleet: &Kubefold) {
    let name_of = async |kind: &str, name: &str| {
        let output = fleet.kubectl(&["get", kind, name, "-n", "reading", "-o", "jsonpath={.metadata.name}"]).await;
        if output.succeeded() { Ok(output.stdout) } else { Err(output.stderr) }
    };
    // The response echoes the name that was asked for.
    assert_eq!(name_of("pod", "solo-0@north").await.unwrap(), "solo-0@north");
    assert_eq!(name_of("pod", "solo-0").await.unwrap(), "solo-0");
    let listed = ["get", "pods", "-n", "reading", "--field-selector", "metadata.name=solo-0", "-o", "name"];
    assert_eq!(fleet.kubectl(&listed).await.ok().trim(), "pod/solo-0");

    let several = name_of("pod", "web-0").await.unwrap_err();
    assert!(several.contains("(Conflict)") && several.contains("web-0@east, web-0@west"), "{several}");
    // Nobody means a stranger's object by the plain name of what people apply.
    let member_local = name_of("deployment", "web").await.unwrap_err();
    assert!(member_local.contains("(NotFound)") && member_local.contains("web@east, web@west"), "{member_local}");
    let member_local = name_of("configmap", "only").await.unwrap_err();
    assert!(member_local.contains("(NotFound)") && member_local.contains("only@east"), "{member_local}");
    let nobody = name_of("configmap", "nothing").await.unwrap_err();
    assert_eq!(nobody.trim(), "Error from server (NotFound): configmaps \"nothing\" not found");
    let elsewhere = name_of("configmap", "only@west").await.unwrap_err();
    assert!(elsewhere.contains("configmaps \"only@west\" not found"), "{elsewhere}");
    let ignored = fleet.kubectl(&["get", "cm", "only", "-n", "reading", "--ignore-not-found"]).await;
    assert_eq!(ignored.ok(), "");
}

async fn describes(fleet: &Kubefold) {
    let described = fleet.kubectl(&["describe", "deployment", "web@west", "-n", "reading"]).await;
    assert!(described.ok().lines().any(|line| line.split_whitespace().eq(["Name:", "web@west"])), "{described}");
    let described = fleet.kubectl(&["describe", "pod", "solo-0", "-n", "reading"]).await;
    assert!(described.ok().contains("ReplicaSet/solo@north"), "{described}");
    let described = fleet.kubectl(&["describe", "cm", "-n", "reading"]).await;
    assert_eq!(described.ok().matches("Name: ").count(), 5, "{described}");
}

async fn follows(bed: &Testbed, fleet: &Kubefold) {
    let kubectl = fleet.as_admin();
    let format = r#"jsonpath={.type} {.object.metadata.name}{"\n"}"#;
    let args = ["get", "configmaps", "-n", "reading", "--watch", "--output-watch-events", "-o", format];
    let watching = kubectl.start(&args);
    let shows = async |line: &str| {
        eventually(SOON, async || {
            let output = watching.output();
            if output.lines().any(|one| one == line) { Ok(()) } else { Err(format!("no {line:?} in\n{output}")) }
        })
        .await;
    };
    shows("ADDED zone@north").await;
    bed["west"].kubectl(&["create", "configmap", "late", "-n", "reading"]).await.ok();
    shows("ADDED late@west").await;
    bed["west"].kubectl(&["label", "configmap", "late", "-n", "reading", "a=b"]).await.ok();
    shows("MODIFIED late@west").await;
    bed["west"].kubectl(&["delete", "configmap", "late", "-n", "reading"]).await.ok();
    shows("DELETED late@west").await;

    // One object by its short name keeps that name for the life of the stream.
    let watching = kubectl.start(&["get", "pod", "solo-0", "-n", "reading", "--watch", "-o", "name"]);
    let times = async |wanted: usize| {
        eventually(SOON, async || {
            let output = watching.output();
            if output.matches("pod/solo-0\n").count() >= wanted { Ok(()) } else { Err(output) }
        })
        .await;
    };
    times(1).await;
    bed["north"].kubectl(&["label", "pod", "solo-0", "-n", "reading", "a=b"]).await.ok();
    times(2).await;
}

async fn waits(bed: &Testbed, fleet: &Kubefold) {
    let waiting = fleet.as_admin();
    let args = ["wait", "cm/zone@north", "-n", "reading", "--for=jsonpath={.data.a}=2", "--timeout=30s"];
    let patch = ["patch", "cm", "zone", "-n", "reading", "-p", r#"{"data":{"a":"2"}}"#];
    let (waited, patched) = tokio::join!(waiting.run(&args), bed["north"].kubectl(&patch));
    patched.ok();
    assert!(waited.ok().contains("configmap/zone@north condition met"), "{waited}");

    // By its short name, too: kubectl gets it, and then watches that name until it is gone.
    let args = ["wait", "pod/solo-0", "-n", "reading", "--for=delete", "--timeout=30s"];
    let delete = ["delete", "pod", "solo-0", "-n", "reading", "--force", "--grace-period=0"];
    let (waited, deleted) = tokio::join!(waiting.run(&args), bed["north"].kubectl(&delete));
    deleted.ok();
    waited.ok();
    let gone = async || {
        let output = fleet.kubectl(&["get", "pods", "-n", "reading", "-o", "name"]).await;
        if output.ok().contains("solo-0") { Err(output.to_string()) } else { Ok(()) }
    };
    eventually(SOON, gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_one_member_has_is_read_like_any_other() {
    let bed = Testbed::shared(&["east", "west"]).await;
    namespace(&bed["west"], "lone").await;
    bed["west"].api().await.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("Lone")).await;
    let lone = r#"{"apiVersion": "e2e.kubefold.io/v1", "kind": "Lone", "metadata": {"name": "cog", "namespace": "lone"}, "spec": {"n": 1}}"#;
    eventually(SOON, async || {
        let made = bed["west"].as_admin().run_with_input(&["create", "-f", "-", "--validate=false"], lone).await;
        if made.succeeded() { Ok(()) } else { Err(made.to_string()) }
    })
    .await;
    let fleet = Kubefold::before(bed.members()).await;
    let listed = fleet.kubectl(&["get", "lones", "-A", "-o", "name"]).await;
    assert_eq!(listed.ok().trim(), "lone.e2e.kubefold.io/cog@west");
    let one = fleet.kubectl(&["get", "lone", "cog@west", "-n", "lone", "-o", "jsonpath={.spec.n}{.kind}"]).await;
    assert_eq!(one.ok(), "1Lone");
    let list = fleet.kubectl(&["get", "crd", "-o", "json"]).await;
    let list: Value = serde_json::from_str(list.ok()).unwrap();
    let mut all = list["items"].as_array().unwrap().iter();
    let of_lones = all.find(|crd| crd["metadata"]["name"] == "lones.e2e.kubefold.io").expect("it is listed");
    assert_eq!(of_lones["metadata"]["annotations"]["kubefold.io/clusters"], "west");
}
