//! Dashboards that people have, unmodified, over a demo.
//!
//! `KUBEFOLD_DOCS=write cargo test --test e2e dashboards` makes the picture of k9s anew.

use std::{collections::BTreeSet, fs, num::NonZeroU16, path::Path, time::Duration};

use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use testbed::{Api, ScreenSize, Terminal, client, eventually};

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

const MEMBERS: [&str; 3] = ["east", "north", "west"];
/// What the pages of Kubernetes Dashboard list. Source: kubernetes/dashboard `modules/api/pkg/resource/common/resourcechannels.go`.
const DASHBOARD_LISTS: [&str; 26] = [
    "api/v1/pods",
    "api/v1/services",
    "api/v1/endpoints",
    "api/v1/configmaps",
    "api/v1/secrets",
    "api/v1/events",
    "api/v1/limitranges",
    "api/v1/resourcequotas",
    "api/v1/replicationcontrollers",
    "api/v1/persistentvolumeclaims",
    "api/v1/serviceaccounts",
    "api/v1/nodes",
    "api/v1/persistentvolumes",
    "apis/apps/v1/deployments",
    "apis/apps/v1/replicasets",
    "apis/apps/v1/daemonsets",
    "apis/apps/v1/statefulsets",
    "apis/batch/v1/jobs",
    "apis/batch/v1/cronjobs",
    "apis/autoscaling/v1/horizontalpodautoscalers",
    "apis/networking.k8s.io/v1/ingresses",
    "apis/networking.k8s.io/v1/networkpolicies",
    "apis/networking.k8s.io/v1/ingressclasses",
    "apis/storage.k8s.io/v1/storageclasses",
    "apis/rbac.authorization.k8s.io/v1/rolebindings",
    "apis/rbac.authorization.k8s.io/v1/clusterroles",
];

/// Both sides of a comparison: a fleet, and one member of it alone.
struct Sides {
    api: Api,
}

impl Sides {
    async fn items(&self, path: &str) -> Vec<Value> {
        self.api.get(path).await["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the fleet lists what a member itself lists at a path of its own: their UIDs.
    async fn alike(&self, fleet: &str, member: &str, own: &str) -> BTreeSet<String> {
        eventually(SOON, async || {
            let [fleet, own] = self.uids(fleet, member, own).await;
            if fleet == own { Ok(fleet) } else { Err(format!("{fleet:?}, and {member} itself {own:?}")) }
        })
        .await
    }

    /// The UIDs of what the fleet lists, and of what a member itself lists at a path of its own.
    async fn uids(&self, fleet: &str, member: &str, own: &str) -> [BTreeSet<String>; 2] {
        let uids = |items: Vec<Value>| items.iter().map(|item| of(item, "/metadata/uid")).collect();
        [uids(self.items(fleet).await), uids(self.items(&format!("/clusters/{member}{own}")).await)]
    }
}

fn of(object: &Value, at: &str) -> String {
    object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What Kubernetes Dashboard's API asks for its pages has what the members have, and what it joins in its memory fits together.
#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_kubernetes_dashboard_show_what_the_members_have() {
    let demo = Demo::start(SECOND_PASS).await;
    let sides = Sides { api: Api::from_kubeconfig(&demo.kubeconfig(), None).await };
    for list in DASHBOARD_LISTS {
        let named = |item: &Value| format!("{}/{}", of(item, "/metadata/namespace"), of(item, "/metadata/name"));
        // Events come while they are listed, and CronJobs make and remove their Jobs.
        eventually(SOON, async || {
            let mut own = Vec::new();
            for member in MEMBERS {
                own.push((member, sides.items(&format!("/clusters/{member}/{list}")).await));
            }
            let listed = sides.items(&format!("/{list}")).await;
            let fleet: BTreeSet<String> = listed.iter().map(named).collect();
            let uids: BTreeSet<String> = listed.iter().map(|item| of(item, "/metadata/uid")).collect();
            let mut left_out = Vec::new();
            for (member, items) in &own {
                // The fleet names an event after its object: `web-0@east.18ec0d80`.
                let is_there = |item: &Value| {
                    let name = named(item);
                    let is_named = fleet.contains(&format!("{name}@{member}")) || fleet.contains(&name);
                    is_named || uids.contains(&of(item, "/metadata/uid")) || name.contains("/nightly-")
                };
                left_out.extend(items.iter().filter(|item| !is_there(item)).map(named));
            }
            if left_out.is_empty() { Ok(()) } else { Err(format!("{list}: {left_out:?}")) }
        })
        .await;
        // Its client prefers protobuf.
        let request =
            Request::get(format!("/{list}")).header(header::ACCEPT, "application/vnd.kubernetes.protobuf, */*");
        let answer = sides.api.send(request.body("".into()).unwrap()).await.unwrap();
        let kind = answer.headers[header::CONTENT_TYPE].to_str().unwrap();
        assert_eq!((answer.status, kind), (StatusCode::OK, "application/vnd.kubernetes.protobuf"), "{list}");
    }
    let namespaces: BTreeSet<String> =
        sides.items("/api/v1/namespaces").await.iter().map(|item| of(item, "/metadata/name")).collect();
    assert!(namespaces.contains(NAMESPACE), "one of each name: {namespaces:?}");
    pod_page(&sides).await;
    workload_page(&sides).await;
    node_page(&sides).await;
    let missing = sides.api.request(Method::GET, "/api/v1/namespaces/shop/pods/none", "").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND, "{missing}");
}

/// A pod with its controller, its events, and the ConfigMaps and Secrets that its variables name. Source: `pod/detail.go`.
async fn pod_page(sides: &Sides) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    let pod = sides.api.get(&format!("{path}/pods/redis-0@east")).await;
    let uid = of(&pod, "/metadata/uid");
    assert_eq!(uid, of(&sides.api.get(&format!("/clusters/east{path}/pods/redis-0")).await, "/metadata/uid"));
    let [fleet, own] = ["", "/clusters/east"].map(|at| format!("{at}{path}/events"));
    let about = |events: Vec<Value>| -> BTreeSet<String> {
        let about = events.iter().filter(|event| of(event, "/involvedObject/uid") == uid);
        about.map(|event| of(event, "/message")).collect()
    };
    eventually(SOON, async || {
        let (seen, told) = (about(sides.items(&fleet).await), about(sides.items(&own).await));
        if seen == told { Ok(()) } else { Err(format!("{seen:?}, and east itself {told:?}")) }
    })
    .await;
    let selected = |name: &str| format!("/events?fieldSelector=involvedObject.name%3D{}", name.replace('@', "%40"));
    let [fleet, own] = ["redis-0@east", "redis-0"].map(|name| format!("{path}{}", selected(name)));
    sides.alike(&fleet, "east", &own).await;
    let owner = pod["metadata"]["ownerReferences"][0].clone();
    let set = format!("/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{}", of(&owner, "/name"));
    let set = sides.api.get(&set).await;
    assert_eq!(of(&set, "/metadata/uid"), of(&owner, "/uid"), "the controller is found by the name in the reference");
    // Its variables' values are looked up by the name that the pod has for a ConfigMap, which is the name in the member.
    let member = format!("/clusters/east{path}");
    sides
        .api
        .create(&format!("{member}/configmaps"), &json!({"metadata": {"name": "colors"}, "data": {"a": "b"}}))
        .await;
    let variable = json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "colors", "key": "a"}}});
    let spec = json!({"containers": [{"name": "main", "image": "main", "env": [variable]}]});
    sides.api.create(&format!("{member}/pods"), &json!({"metadata": {"name": "colored"}, "spec": spec})).await;
    let listed = async |at: &str| {
        let items = sides.items(&format!("{at}/configmaps")).await;
        items.iter().map(|item| of(item, "/metadata/name")).collect::<BTreeSet<_>>()
    };
    let (ours, own) = (listed(&path).await, listed(&member).await);
    let pod = sides.api.get(&format!("{path}/pods/colored@east")).await;
    let name = of(&pod, "/spec/containers/0/env/0/valueFrom/configMapKeyRef/name");
    assert!(own.contains(&name) && !ours.contains(&name) && ours.contains(&format!("{name}@east")), "{name}: {ours:?}");
}

/// A Deployment with its ReplicaSets and pods, by its selector and by their controllers. Source: `deployment/detail.go`,
/// `common/pod.go`; a Service's endpoints, `endpoint/endpoint.go`.
async fn workload_page(sides: &Sides) {
    let deployments = sides.items(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")).await;
    let deployment = deployments.iter().find(|one| of(one, "/metadata/name").ends_with("@west")).expect("one of west");
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let selector: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}%3D{}", value.as_str().unwrap())).collect();
    let selector = format!("?labelSelector={}", selector.join("%2C"));
    let controlled = |items: &[Value], owner: &str| -> Vec<Value> {
        items.iter().filter(|one| of(one, "/metadata/ownerReferences/0/uid") == owner).cloned().collect()
    };
    let mut counts = Vec::new();
    for at in ["", "/clusters/west"] {
        let sets = sides.items(&format!("{at}/apis/apps/v1/namespaces/{NAMESPACE}/replicasets{selector}")).await;
        let pods = sides.items(&format!("{at}/api/v1/namespaces/{NAMESPACE}/pods{selector}")).await;
        let sets = controlled(&sets, &of(deployment, "/metadata/uid"));
        let uids = sets.iter().flat_map(|set| controlled(&pods, &of(set, "/metadata/uid")));
        counts.push(uids.map(|pod| of(&pod, "/metadata/uid")).collect::<BTreeSet<_>>());
    }
    assert!(!counts[0].is_empty() && counts[0] == counts[1], "{counts:?}");
    let endpoints =
        |name: &str| format!("/api/v1/namespaces/{NAMESPACE}/endpoints?fieldSelector=metadata.name%3D{name}");
    assert_eq!(sides.alike(&endpoints("redis%40north"), "north", &endpoints("redis")).await.len(), 1);
    // The pods of a Service are those of its selector: in a fleet, of every member.
    let service = sides.api.get(&format!("/api/v1/namespaces/{NAMESPACE}/services/redis@north")).await;
    let app = of(&service, "/spec/selector/app.kubernetes.io~1name");
    let pods =
        sides.items(&format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/name%3D{app}")).await;
    let members: BTreeSet<String> =
        pods.iter().map(|pod| of(pod, "/metadata/annotations/kubefold.io~1cluster")).collect();
    assert_eq!(members, MEMBERS.map(str::to_owned).into(), "{pods:?}");
}

/// A node with its pods and events. Source: `node/detail.go`, `event/common.go` (client-go's `Search`).
async fn node_page(sides: &Sides) {
    let nodes = sides.items("/api/v1/nodes").await;
    let node = nodes.iter().find(|node| of(node, "/metadata/name").ends_with("@north")).expect("one of north");
    let (name, uid) = (of(node, "/metadata/name"), of(node, "/metadata/uid"));
    let own = name.strip_suffix("@north").unwrap();
    let pods = |name: &str| {
        let name = name.replace('@', "%40");
        format!(
            "/api/v1/pods?fieldSelector=spec.nodeName%3D{name}%2Cstatus.phase!%3DSucceeded%2Cstatus.phase!%3DFailed"
        )
    };
    assert!(!sides.alike(&pods(&name), "north", &pods(own)).await.is_empty());
    let events = |name: &str| {
        let name = name.replace('@', "%40");
        format!(
            "/api/v1/events?fieldSelector=involvedObject.kind%3DNode%2CinvolvedObject.name%3D{name}%2CinvolvedObject.uid%3D{uid}"
        )
    };
    sides.alike(&events(&name), "north", &events(own)).await;
}
