//! What people do with a Deployment by kubectl, and what no other test here does.

use super::{
    rollout::{MEMBERS, start},
    *,
};
use testbed::{Kubefold, Testbed, samples::namespace};

const WEB: &str = "/apis/apps/v1/namespaces/rollouts/deployments/web";

/// How many replicas each member's part has of the image.
async fn images(bed: &Testbed) -> Vec<(String, i64)> {
    let mut out = Vec::new();
    for name in MEMBERS {
        let part = in_member(&bed[name], WEB).await.unwrap();
        let image = text(&part, "/spec/template/spec/containers/0/image").to_owned();
        out.push((image, part["spec"]["replicas"].as_i64().unwrap()));
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_undo_pause_and_resume_reach_every_part() {
    let bed = Testbed::shared_with_workloads(&MEMBERS).await;
    for member in bed.members() {
        namespace(member, "rollouts").await;
    }
    let fleet = start(&bed).await.for_namespace("rollouts");
    let api = fleet.api().await;
    let ok = async |args: &[&str]| fleet.kubectl(args).await.ok().to_owned();
    let done = async || ok(&["rollout", "status", "deployment/web", "--timeout=100s"]).await;
    ok(&["create", "deployment", "web", "--image=web:1", "--replicas=6"]).await;
    done().await;
    let each = |image: &str| vec![(image.to_owned(), 2); 3];
    ok(&["set", "image", "deployment/web", "web=web:2"]).await;
    // At once: the new generation is known of every part, so that nobody takes the old rollout for the new one.
    assert!(done().await.contains("successfully rolled out"));
    assert_eq!(images(&bed).await, each("web:2"));
    let pods = api.get("/api/v1/namespaces/rollouts/pods?labelSelector=app%3Dweb").await;
    let running = pods["items"].as_array().unwrap().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let old = running.filter(|pod| pod["spec"]["containers"][0]["image"] != "web:2").count();
    assert_eq!(old, 0, "{pods}");
    let revisions = async || {
        let history = ok(&["rollout", "history", "deployment/web"]).await;
        let lines = history.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(revisions().await, ["1", "2"]);

    ok(&["rollout", "restart", "deployment/web"]).await;
    done().await;
    let mut restarted = Vec::new();
    for name in MEMBERS {
        let part = in_member(&bed[name], WEB).await.unwrap();
        restarted
            .push(part["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].clone());
    }
    assert!(restarted[0].is_string() && restarted.iter().all(|at| *at == restarted[0]), "{restarted:?}");
    assert_eq!(revisions().await, ["1", "2", "3"]);

    ok(&["rollout", "undo", "deployment/web", "--to-revision=1"]).await;
    done().await;
    assert_eq!(images(&bed).await, each("web:1"));
    assert_eq!(revisions().await, ["2", "3", "4"]);

    ok(&["rollout", "pause", "deployment/web"]).await;
    ok(&["set", "image", "deployment/web", "web=web:3"]).await;
    assert_eq!(images(&bed).await, each("web:3"));
    assert_eq!(revisions().await, ["2", "3", "4"], "nothing is rolled out");
    ok(&["rollout", "resume", "deployment/web"]).await;
    done().await;
    assert_eq!(revisions().await, ["2", "3", "4", "5"]);
    let shown = api.get(WEB).await;
    let annotations = &shown["metadata"]["annotations"];
    assert!(annotations["kubefold.io/differs"].is_null() && annotations["kubefold.io/behind"].is_null(), "{shown}");
    assert!(!shown.to_string().contains(MARKER), "{shown}");
    everyday_changes(&bed, &fleet, &api).await;
}

/// `web` runs with two replicas in each of three members.
async fn everyday_changes(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let revisions = async || {
        let mut all = Vec::new();
        for member in bed.members() {
            let part = in_member(member, WEB).await.unwrap();
            all.push((part["metadata"]["uid"].clone(), part["metadata"]["generation"].clone()));
        }
        all
    };
    let before = revisions().await;
    only_asked(fleet, api).await;
    assert_eq!(revisions().await, before, "a question changes nothing");
    beside_it(bed, fleet).await;
    fleet.kubectl(&["label", "deployment", "web", "tier=a"]).await.ok();
    let told = fleet.kubectl(&["label", "deployment", "web", "tier=b"]).await;
    assert!(told.refused().contains("--overwrite is false"), "{told}");
    fleet.kubectl(&["label", "deployment", "web", "tier=b", "--overwrite"]).await.ok();
    fleet.kubectl(&["annotate", "deployment", "web", "note=x", "--overwrite"]).await.ok();
    for member in bed.members() {
        let part = in_member(member, WEB).await.unwrap();
        assert_eq!((text(&part, "/metadata/labels/tier"), text(&part, "/metadata/annotations/note")), ("b", "x"));
    }
    of_status(bed, fleet, api).await;
    anew(bed, fleet, api).await;
}

/// `diff` and server-side dry runs.
async fn only_asked(fleet: &Kubefold, api: &Api) {
    let shown = fleet.kubectl(&["get", "deployment", "web", "-o", "json"]).await;
    let mut manifest: Value = serde_json::from_str(shown.ok()).unwrap();
    manifest["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    manifest.as_object_mut().unwrap().remove("status");
    let run =
        async |args: &[&str], manifest: &Value| fleet.as_admin().run_with_input(args, &manifest.to_string()).await;
    let same = run(&["diff", "-f", "-"], &manifest).await;
    assert_eq!((same.code, &*same.stdout), (Some(0), ""), "{same}");
    manifest["spec"]["replicas"] = json!(9);
    let differs = run(&["diff", "-f", "-"], &manifest).await;
    assert_eq!(differs.code, Some(1), "{differs}");
    let said = |line: &str| differs.stdout.lines().any(|one| one == line);
    assert!(said("-  replicas: 6") && said("+  replicas: 9"), "{differs}");
    let dry = run(&["apply", "--dry-run=server", "-f", "-"], &manifest).await;
    assert!(dry.ok().contains("deployment.apps/web configured (server dry run)"), "{dry}");
    let dry = run(&["replace", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec.replicas}"], &manifest).await;
    assert_eq!(dry.ok(), "9");
    let dry = fleet.kubectl(&["scale", "deployment", "web", "--replicas=9", "--dry-run=server"]).await;
    dry.ok();
    assert_eq!(api.get(WEB).await["spec"]["replicas"], 6);
}

/// What kubectl makes for it: an autoscaler divided as it is, and a Service in every member.
async fn beside_it(bed: &Testbed, fleet: &Kubefold) {
    fleet.kubectl(&["autoscale", "deployment", "web", "--min=3", "--max=9", "--cpu=50%"]).await.ok();
    fleet.kubectl(&["expose", "deployment", "web", "--port=80"]).await.ok();
    for member in bed.members() {
        let autoscalers = "/apis/autoscaling/v2/namespaces/rollouts/horizontalpodautoscalers";
        let part = in_member(member, &format!("{autoscalers}/web")).await.unwrap();
        assert_eq!((&part["spec"]["minReplicas"], &part["spec"]["maxReplicas"]), (&json!(1), &json!(3)));
        let service = in_member(member, "/api/v1/namespaces/rollouts/services/web").await.unwrap();
        assert_eq!(service["spec"]["selector"], json!({"app": "web"}));
    }
    let shown = fleet.kubectl(&["get", "hpa", "web", "-o", "jsonpath={.spec.minReplicas}-{.spec.maxReplicas}"]).await;
    assert_eq!(shown.ok(), "3-9");
    fleet.kubectl(&["delete", "hpa/web", "service/web"]).await.ok();
}

/// A condition that somebody else writes reaches every part, and the controllers there let it stand.
async fn of_status(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let condition = |status: &str| {
        json!({"type": "Mine", "status": status, "reason": "Told", "message": "by hand",
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let everywhere = async |wanted: &str| {
        eventually(SOON, async || {
            let mut held = Vec::new();
            for member in bed.members() {
                let part = in_member(member, WEB).await.unwrap();
                let conditions = part["status"]["conditions"].as_array().unwrap();
                let mine = conditions.iter().find(|one| one["type"] == "Mine");
                held.push((mine.map(|one| one["status"].clone()), part["status"]["readyReplicas"].clone()));
            }
            let want = (Some(json!(wanted)), json!(2));
            held.iter().all(|one| *one == want).then_some(()).ok_or_else(|| format!("{held:?}"))
        })
        .await;
    };
    let patch = json!({"status": {"conditions": [condition("True")]}}).to_string();
    fleet.kubectl(&["patch", "deployment", "web", "--subresource=status", "-p", &patch]).await.ok();
    everywhere("True").await;
    // As a controller does: a stale one is a conflict, and is read anew.
    eventually(SOON, async || {
        let mut whole = api.get(WEB).await;
        let conditions = whole["status"]["conditions"].as_array_mut().unwrap();
        conditions.retain(|one| one["type"] != "Mine");
        conditions.push(condition("False"));
        let answer = api.request(Method::PUT, &format!("{WEB}/status"), whole.to_string()).await;
        (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| answer.to_string())
    })
    .await;
    everywhere("False").await;
    let shown = api.get(WEB).await;
    assert_eq!(
        shown["status"]["readyReplicas"], 6,
        "counters are sums, and a write of the same ones moves none: {shown}"
    );
}

/// `replace --force` deletes and makes it anew.
async fn anew(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let yaml = fleet.kubectl(&["get", "deployment", "web", "-o", "yaml"]).await;
    let old = api.get(WEB).await["metadata"]["uid"].clone();
    let told = fleet.as_admin().run_with_input(&["replace", "--force", "-f", "-"], yaml.ok()).await;
    assert!(told.ok().contains("\"web\" deleted") && told.stdout.contains("deployment.apps/web replaced"), "{told}");
    let new = api.get(WEB).await;
    assert_ne!(new["metadata"]["uid"], old);
    let members: Vec<&Member> = bed.members().iter().collect();
    assert_eq!(shares_at(&members, WEB).await, split(&[("east", 2), ("west", 2), ("north", 2)]));
    fleet.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
}
