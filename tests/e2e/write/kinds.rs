//! Creates of every kind by kubectl: where the parts are, that they are found at once, and that they go again.

use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

/// Names of members that hold an object, by kubectl's name for it.
async fn holders(all: &[&Member], what: &str) -> Vec<String> {
    let mut holders = Vec::new();
    for member in all {
        if member.kubectl(&["get", what, "-o", "name"]).await.code == Some(0) {
            holders.push(member.name().to_owned());
        }
    }
    holders
}

async fn create_all(fleet: &Kubefold, lines: &[&str]) {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        fleet.kubectl(&words).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_finds_and_deletes_every_kind() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::with_workloads(1)).await;
    let all = [&bed["east"], &bed["west"], &bed["north"]];
    let fleet = Kubefold::start(&FleetFile::default().member(all[0], 1).member(all[1], 2).member(all[2], 4)).await;

    dry_runs(&fleet, &all).await;
    everywhere(&fleet, &all).await;
    in_one(&fleet, &all).await;
    generated(&fleet, &all).await;
    in_a_new_namespace(&fleet, &all).await;
    of_a_new_kind(&fleet, &all).await;
    told_in_every_version(&fleet).await;
}

/// A revision of one version is one of every version: a watch from it does not tell again of what it stands for, and
/// of what a write is in the middle of no version tells.
async fn told_in_every_version(fleet: &Kubefold) {
    let api = fleet.api().await;
    let version = |of: &str| format!("/apis/example.com/{of}/namespaces/default/things");
    for of in ["v1", "v1beta1"] {
        // Both are followed from here on.
        api.get(&version(of)).await;
    }
    for round in 0..3 {
        let name = format!("twice-{round}");
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}});
        let made = api.create(&version("v1"), &thing).await;
        let from = &made["metadata"]["resourceVersion"].as_str().unwrap();
        let deleted = api.request(Method::DELETE, &format!("{}/{name}", version("v1")), "").await;
        assert_eq!(deleted.status, 200, "{deleted}");
        for of in ["v1", "v1beta1"] {
            let fields = format!("fieldSelector=metadata.name%3D{name}");
            let path = format!("{}?watch=1&timeoutSeconds=30&resourceVersion={from}&{fields}", version(of));
            let mut watch = api.watch(&path).await;
            let event = watch.next(SOON).await.unwrap();
            let told = (event["type"].as_str(), &event["object"]["metadata"]["annotations"]["kubefold.io/behind"]);
            assert_eq!(told, (Some("DELETED"), &Value::Null), "{of}: {event}");
        }
    }
}

async fn dry_runs(fleet: &Kubefold, all: &[&Member; 3]) {
    for line in [
        "create configmap dry --dry-run=server",
        "create namespace dry --dry-run=server",
        "run dry --image=x --dry-run=server",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let told = fleet.kubectl(&words).await;
        assert!(told.ok().contains("created (server dry run)"), "{told}");
    }
    for what in ["configmap/dry", "namespace/dry", "pod/dry"] {
        assert!(holders(all, what).await.is_empty(), "{what}");
        assert!(fleet.kubectl(&["get", what]).await.refused().contains("not found"));
    }
}

async fn everywhere(fleet: &Kubefold, all: &[&Member; 3]) {
    create_all(
        fleet,
        &[
            "create configmap cm --from-literal=a=b",
            "create secret generic se --from-literal=a=b",
            "create serviceaccount sa",
            "create role ro --verb=get --resource=pods",
            "create rolebinding rb --role=ro --serviceaccount=default:sa",
            "create clusterrole cr --verb=get --resource=nodes",
            "create clusterrolebinding cb --clusterrole=cr --user=ann",
            "create quota qu --hard=pods=50",
            "create priorityclass pc --value=5",
            "create service clusterip sv --tcp=80:80",
            "create ingress in --rule=a.example/=sv:80",
            "create poddisruptionbudget pd --selector=app=web --min-available=6",
            "create deployment web --image=web:1 --replicas=7",
            "expose deployment web --port=80",
            "autoscale deployment web --min=4 --max=8 --cpu=80%",
        ],
    )
    .await;
    for what in [
        "configmap/cm",
        "secret/se",
        "serviceaccount/sa",
        "role/ro",
        "rolebinding/rb",
        "clusterrole/cr",
        "clusterrolebinding/cb",
        "quota/qu",
        "priorityclass/pc",
        "service/sv",
        "ingress/in",
        "pdb/pd",
        "deployment/web",
        "service/web",
        "hpa/web",
    ] {
        assert_eq!(holders(all, what).await, ["east", "west", "north"], "{what}");
        let shown: Value = serde_json::from_str(fleet.kubectl(&["get", what, "-o", "json"]).await.ok()).unwrap();
        assert!(!shown.to_string().contains(MARKER), "{what}: the marker shows: {shown}");
        let clusters = text(&shown, "/metadata/annotations/kubefold.io~1clusters");
        assert_eq!(clusters.split(',').count(), 3, "{what}: {clusters}");
        if what != "deployment/web" {
            fleet.kubectl(&["delete", what]).await.ok();
            assert!(holders(all, what).await.is_empty(), "{what}");
        }
    }
    fleet.kubectl(&["delete", "deployment/web"]).await.ok();
}

async fn in_one(fleet: &Kubefold, all: &[&Member; 3]) {
    create_all(
        fleet,
        &["run po --image=web:1", "create job jo --image=web:1", "create cronjob cj --image=web:1 --schedule=@daily"],
    )
    .await;
    let home = holders(all, "pod/po").await;
    assert_eq!(home.len(), 1);
    for what in ["pod/po", "job/jo", "cronjob/cj"] {
        assert_eq!(holders(all, what).await, home, "{what} goes where the namespace's others are");
    }
    let get = async |what: &str| -> Value {
        serde_json::from_str(fleet.kubectl(&["get", what, "-o", "json"]).await.ok()).unwrap()
    };
    let job = get("job/jo").await;
    let pods = eventually(PODS, async || {
        let pods = get("pods").await["items"].as_array().unwrap().clone();
        let of_job: Vec<Value> =
            pods.into_iter().filter(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "jo").collect();
        if of_job.is_empty() { Err("no pod yet".to_owned()) } else { Ok(of_job) }
    })
    .await;
    let owner = &pods[0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["name"], &owner["uid"]), (&json!("jo"), &job["metadata"]["uid"]), "by its visible name and UID");
    fleet.kill9();
    fleet.restart().await;
    // Nobody has read jobs since: the first answer has it all the same.
    let pods = get("pods").await;
    let of_job = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "jo");
    assert_eq!(&of_job.unwrap()["metadata"]["ownerReferences"][0]["uid"], &job["metadata"]["uid"]);
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "pvc"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    });
    fleet.apply(&claim.to_string()).await;
    assert_eq!(holders(all, "pvc/pvc").await, home, "sticky after a restart, too");
    for what in ["pod/po", "job/jo", "cronjob/cj", "pvc/pvc"] {
        fleet.kubectl(&["delete", what, "--wait=false"]).await.ok();
    }
}

async fn generated(fleet: &Kubefold, all: &[&Member; 3]) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "gen-"}});
    let made = fleet.as_admin().run_with_input(&["create", "-o", "name", "-f", "-"], &secret.to_string()).await;
    let name = made.ok().trim().to_owned();
    assert_eq!(holders(all, &name).await.len(), 3, "one name for all parts: {name}");
    fleet.kubectl(&["delete", &name]).await.ok();
}

async fn in_a_new_namespace(fleet: &Kubefold, all: &[&Member; 3]) {
    fleet.kubectl(&["create", "namespace", "team"]).await.ok();
    assert_eq!(holders(all, "namespace/team").await, ["east", "west", "north"]);
    let wait = |what: &'static str| {
        let fleet = &fleet;
        async move {
            eventually(SOON, async || match fleet.kubectl(&["get", what, "-n", "team"]).await {
                found if found.code == Some(0) => Ok(()),
                missing => Err(missing.to_string()),
            })
            .await;
        }
    };
    wait("serviceaccount/default").await;
    wait("configmap/kube-root-ca.crt").await;
    // Whichever member takes it, the account is there.
    for name in ["a", "b", "c"] {
        fleet.kubectl(&["run", name, "--image=web:1", "-n", "team"]).await.ok();
    }
    let told = fleet.kubectl(&["create", "namespace", "team"]).await;
    assert!(told.refused().contains("AlreadyExists"), "{told}");
}

async fn of_a_new_kind(fleet: &Kubefold, all: &[&Member; 3]) {
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [version("v1"), version("v1beta1")]
        }
    });
    fleet.apply(&definition.to_string()).await;
    fleet.as_admin().established("things.example.com").await;
    fleet.kubectl(&["get", "things"]).await.ok();
    fleet.kubectl(&["explain", "things"]).await.ok();
    assert_eq!(holders(all, "crd/things.example.com").await.len(), 3);
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "it"}});
    fleet.apply(&thing.to_string()).await;
    assert_eq!(holders(all, "thing/it").await.len(), 1);
    let shown: Value = serde_json::from_str(fleet.kubectl(&["get", "thing/it", "-o", "json"]).await.ok()).unwrap();
    let owner = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "name": "it", "uid": shown["metadata"]["uid"], "controller": true
    });
    let mut owned = deployment("owned", 3);
    owned["metadata"]["ownerReferences"] = json!([owner]);
    let api = fleet.api().await;
    let made = post(&api, &owned).await.ok();
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], shown["metadata"]["uid"], "{made}");
    assert_eq!(holders(all, "deployment/owned").await, holders(all, "thing/it").await);
    fleet.kubectl(&["delete", "thing/it"]).await.ok();
    gone(&api, all, "owned").await;
}
