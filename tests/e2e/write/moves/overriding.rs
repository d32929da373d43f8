//! Overrides that change while the objects of their policy run.

use super::*;

/// How long kubefold takes to notice that a member does not answer.
const NOTICED: Duration = Duration::from_secs(75);
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const CPU: &str = "/spec/template/spec/containers/0/resources/requests/cpu";
/// A member writes the number in another way.
const TENTH: &str = "[{op: add, path: /spec/template/spec/containers/0/resources, value: {requests: {cpu: '0.1'}}}]";

impl Stage {
    fn set_policy(&self, fields: &str) {
        let file = ALL.iter().fold(FleetFile::default(), |file, name| file.member(&self.bed[*name], 1));
        let policy = format!("policies:\n- name: shop\n  match: {{kinds: [Deployment]}}\n  {fields}");
        self.fleet.configure(&file.settings(&policy));
    }

    /// What the members have at a place.
    async fn stand(&self, pointer: &str) -> [Value; 3] {
        let mut values = [Value::Null, Value::Null, Value::Null];
        for (value, name) in values.iter_mut().zip(ALL) {
            *value = part(&self.bed[name], "web").await.unwrap().pointer(pointer).cloned().unwrap_or_default();
        }
        values
    }

    /// The members whose overrides are of an earlier configuration, as `kubefold moves` says.
    async fn outdated(&self, text: &str) {
        eventually(SOON, async || {
            let moves = self.command(&["moves"]).await;
            if moves.contains(text) { Ok(()) } else { Err(moves) }
        })
        .await;
    }

    async fn images_become(&self, expected: [&str; 3]) {
        eventually(NOTICED, async || {
            let now = self.stand(IMAGE).await;
            if now == expected.map(Value::from) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_overrides_reach_the_running_parts_and_removed_ones_are_taken_back() {
    let stage = stage().await;
    stage.set_policy(&format!("perMember: {{east: {{registry: one.example/x, patch: {TENTH}}}}}"));
    eventually(SOON, async || {
        let (_, out, error) = plan::planned(&stage.fleet, &deployment("web", 6), &[]).await;
        if out.contains("shop") { Ok(()) } else { Err(format!("{out}{error}")) }
    })
    .await;
    stage.with_web().await;
    assert_eq!(stage.stand(IMAGE).await, ["one.example/x/web:1", "web:1", "web:1"].map(Value::from));
    assert_eq!(stage.stand(CPU).await[0], "100m");
    let told = stage.command(&["rebalance"]).await;
    assert_eq!(told, "nothing is to be moved\n", "a member that writes a value in another way has it");
    let hand = r#"{"metadata":{"labels":{"hand":"east"}},"spec":{"minReadySeconds":1}}"#;
    stage.bed["east"].kubectl(&["patch", "deployment", "web", "-p", hand]).await.ok();

    stage.set_policy("perMember: {east: {registry: two.example}}");
    stage.outdated("the part in member east has the overrides of an earlier configuration").await;
    let labelled = stage.kubectl(&["label", "deployment", "web", "team=blue"]).await;
    labelled.ok();
    assert!(labelled.stderr.contains("kubefold rebalance brings those of now"), "{labelled}");
    let before = [part(&stage.bed["west"], "web").await.unwrap(), part(&stage.bed["north"], "web").await.unwrap()];
    let planned = stage.command(&["rebalance", "--dry-run"]).await;
    assert!(planned.contains("image: one.example/x/web:1 -> two.example/web:1"), "{planned}");
    let json: Value = serde_json::from_str(&stage.command(&["rebalance", "--dry-run", "-o", "json"]).await).unwrap();
    assert_eq!(json["moves"][0]["overrides"][0]["member"], "east", "{json}");
    assert_eq!(stage.stand(IMAGE).await[0], "one.example/x/web:1", "a dry run changes nothing");
    let told = stage.command(&["rebalance"]).await;
    assert!(told.contains("deployments.apps/web in default moved"), "{told}");
    assert_eq!(stage.stand(IMAGE).await, ["two.example/web:1", "web:1", "web:1"].map(Value::from));
    assert_eq!(stage.stand(CPU).await[0], Value::Null, "it is taken back");
    let east = part(&stage.bed["east"], "web").await.unwrap();
    assert_eq!((&east["metadata"]["labels"]["hand"], &east["spec"]["minReadySeconds"]), (&json!("east"), &json!(1)));
    for (name, before) in ["west", "north"].into_iter().zip(before) {
        assert_eq!(part(&stage.bed[name], "web").await.unwrap()["spec"], before["spec"], "{name}");
    }
    // Its pods are of the new template.
    let pods = stage.bed["east"].kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={..image}"]).await;
    assert!(pods.ok().contains("two.example/web:1"), "{pods}");
    applied(&stage).await;
    down(&stage).await;
    taken_back(&stage).await;
    as_written(&stage).await;
    stage.without_web().await;
}

/// Who applies on the server's side meets no conflict over what kubefold changed, and is noted.
async fn applied(stage: &Stage) {
    let mut object = deployment("web", 6);
    object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    let args = ["apply", "--server-side", "--field-manager=gitops", "--force-conflicts", "-f", "-"];
    stage.kubectl_with(&args, &object).await.ok();
    assert_eq!(stage.stand(IMAGE).await, ["two.example/web:2", "web:2", "web:2"].map(Value::from));
    object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:3".into();
    let args = ["apply", "--server-side", "--field-manager=gitops", "-f", "-"];
    stage.kubectl_with(&args, &object).await.ok();
    // Another manager has the part in the east note more: that is no conflict of the two.
    let side = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}"#;
    stage.kubectl(&["patch", "deployment", "web", "--field-manager=editor", "-p", side]).await.ok();
    object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:4".into();
    stage.kubectl_with(&args, &object).await.ok();
    let east = part(&stage.bed["east"], "web").await.unwrap()["spec"]["template"]["spec"]["containers"].clone();
    let images: BTreeMap<&str, &str> =
        east.as_array().unwrap().iter().map(|one| (text(one, "/name"), text(one, "/image"))).collect();
    assert_eq!(images, [("side", "two.example/side:1"), ("web", "two.example/web:4")].into());
    let without = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}"#;
    stage.kubectl(&["patch", "deployment", "web", "--field-manager=editor", "-p", without]).await.ok();
    stage.available("web", 6).await;
}

/// A member that is down keeps nobody waiting, and gets its overrides when it answers.
async fn down(stage: &Stage) {
    let north = &stage.bed["north"];
    north.pause();
    eventually(NOTICED, async || {
        let text = stage.api.try_request(Method::GET, "/readyz?verbose", "").await?;
        let text = String::from_utf8_lossy(&text.body).into_owned();
        text.contains("north is down").then_some(()).ok_or(text)
    })
    .await;
    stage.set_policy("perMember: {east: {registry: three.example}, north: {registry: three.example}}");
    stage.outdated("the parts in members east, north have the overrides of an earlier configuration").await;
    stage.command(&["rebalance", "--wait=false"]).await;
    eventually(PODS, async || {
        let moves = stage.command(&["moves"]).await;
        let image = part(&stage.bed["east"], "web").await.unwrap().pointer(IMAGE).cloned();
        match moves.contains("member north does not answer") && image == Some(json!("three.example/web:4")) {
            true => Ok(()),
            false => Err(moves),
        }
    })
    .await;
    north.resume();
    stage.images_become(["three.example/web:4", "web:4", "three.example/web:4"]).await;
    stage.arrived().await;
}

/// The policy says nothing any more; and another time it sees to that by itself.
async fn taken_back(stage: &Stage) {
    stage.set_policy("max: 100");
    stage.outdated("the parts in members east, north have the overrides of an earlier configuration").await;
    stage.command(&["rebalance"]).await;
    assert_eq!(stage.stand(IMAGE).await, ["web:4", "web:4", "web:4"].map(Value::from));
    let notes = stage.stand("/metadata/annotations/kubefold.io~1overrides").await;
    assert_eq!(notes, [Value::Null, Value::Null, Value::Null]);
    assert_eq!(stage.stand("/metadata/labels/hand").await, [json!("east"), Value::Null, Value::Null]);
    stage.set_policy("rebalance: {every: 2s}\n  perMember: {west: {registry: four.example}}");
    stage.images_become(["web:4", "four.example/web:4", "web:4"]).await;
    stage.arrived().await;
    let shown = stage.shown("web").await;
    assert!(!shown.to_string().contains("kubefold.io/overrides"), "{shown}");
}

/// With overrides in every member, the home included, the fleet view shows what the author wrote: whoever applies it again changes
/// nothing and finds no difference, and a rollout is undone to what he wrote before.
async fn as_written(stage: &Stage) {
    let registries = ALL.map(|name| format!("{name}: {{registry: {name}.example, patch: {TENTH}}}")).join(", ");
    stage.set_policy(&format!("rebalance: {{every: 2s}}\n  perMember: {{{registries}}}"));
    stage.images_become(["east.example/web:4", "west.example/web:4", "north.example/web:4"]).await;
    stage.arrived().await;
    let mut object = deployment("web", 6);
    object["spec"]["template"]["spec"]["containers"][0]["image"] = "web:5".into();
    let client = ["apply", "-f", "-"];
    let server = ["apply", "--server-side", "--field-manager=gitops", "--force-conflicts", "-f", "-"];
    for (args, again) in [(client.as_slice(), "unchanged"), (server.as_slice(), "serverside-applied")] {
        stage.kubectl_with(args, &object).await.ok();
        let shown = stage.shown("web").await;
        assert_eq!(shown.pointer(IMAGE), Some(&json!("web:5")), "{shown}");
        assert_eq!(shown.pointer(CPU), None, "{shown}");
        let told = stage.kubectl_with(args, &object).await;
        assert!(told.ok().contains(again), "{told}");
        let now = stage.shown("web").await;
        assert_eq!(now["metadata"]["generation"], shown["metadata"]["generation"]);
    }
    stage.kubectl_with(&["diff", "-f", "-"], &object).await.ok();
    let images = ["east.example/web:5", "west.example/web:5", "north.example/web:5"];
    stage.images_become(images).await;
    stage.available("web", 6).await;
    stage.kubectl(&["set", "image", "deployment/web", "*=quay.io/web:6"]).await.ok();
    stage.images_become(["east.example/web:6", "west.example/web:6", "north.example/web:6"]).await;
    stage.available("web", 6).await;
    stage.kubectl(&["rollout", "undo", "deployment/web"]).await.ok();
    stage.images_become(images).await;
    assert_eq!(stage.shown("web").await.pointer(IMAGE), Some(&json!("web:5")));
    stage.set_policy("max: 100");
    stage.outdated("have the overrides of an earlier configuration").await;
    stage.command(&["rebalance"]).await;
    assert_eq!(stage.stand(IMAGE).await, ["web:5", "web:5", "web:5"].map(Value::from));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_member_refuses_is_told_and_secrets_are_brought_without_showing_them() {
    let bed = Testbed::start(&ALL, MemberOptions::default()).await;
    let password = |value: &str| format!("patch: [{{op: add, path: /data/password, value: {value}}}]");
    let file = |bed: &Testbed, terms: &str| {
        let file = ALL.iter().fold(FleetFile::default(), |file, name| file.member(&bed[*name], 1));
        file.settings(&format!("policies:\n- {{name: secrets, match: {{kinds: [Secret, ConfigMap]}}{terms}}}"))
    };
    let east = |terms: &str| format!(", perMember: {{east: {{{terms}}}}}");
    let fleet = Kubefold::start(&file(&bed, &east(&password("b25l")))).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    for member in stage.all() {
        member.apply(include_str!("../../../../deploy/member-rbac.yaml")).await;
    }
    let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "login"}, "data": {"password": "aG9tZQ=="}});
    stage.kubectl_with(&["create", "-f", "-"], &object("Secret")).await.ok();
    let mut fixed = object("ConfigMap");
    fixed["immutable"] = true.into();
    stage.kubectl_with(&["create", "-f", "-"], &fixed).await.ok();
    let held = async |resource: &str| {
        let mut values = Vec::new();
        for member in stage.all() {
            let object = in_member(member, &format!("/api/v1/namespaces/default/{resource}/login")).await.unwrap();
            let is_noted = object["metadata"].to_string().contains("aG9tZQ");
            assert!(!(is_noted && resource == "secrets"), "{object}");
            values.push(object["data"]["password"].clone());
        }
        values
    };
    assert_eq!(held("secrets").await, ["b25l", "aG9tZQ==", "aG9tZQ=="].map(Value::from));

    stage.fleet.configure(&file(&stage.bed, &east(&password("dHdv"))));
    stage.outdated("the part in member east has the overrides of an earlier configuration").await;
    let planned = stage.command(&["rebalance", "--dry-run"]).await;
    assert!(planned.contains("secrets/login in default") && planned.contains(".data.password"), "{planned}");
    let secret = planned.lines().find(|line| line.contains("secrets/login")).unwrap();
    assert!(!secret.contains("dHdv") && !secret.contains("b25l"), "{planned}");
    stage.command(&["rebalance", "--wait=false"]).await;
    let refusal = "field is immutable when `immutable` is set";
    stage.outdated(refusal).await;
    eventually(SOON, async || {
        let now = held("secrets").await;
        if now[0] == "dHdv" { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    assert_eq!(held("configmaps").await[0], "b25l");

    // It goes on after a kill, and ends when there is nothing to do any more.
    stage.fleet.kill9();
    stage.fleet.restart().await;
    stage.outdated("bringing overrides").await;
    stage.fleet.configure(&file(&stage.bed, &east(&password("b25l"))));
    eventually(NOTICED, async || {
        let moves = stage.command(&["moves"]).await;
        if moves.contains("configmaps/login") { Err(moves) } else { Ok(()) }
    })
    .await;
    stage.command(&["rebalance"]).await;
    assert_eq!(held("secrets").await[0], "b25l");
    stage.fleet.configure(&file(&stage.bed, ""));
    stage.outdated("secrets/login").await;
    stage.kubectl(&["delete", "configmap", "login"]).await.ok();
    stage.command(&["rebalance"]).await;
    assert_eq!(held("secrets").await, ["aG9tZQ==", "aG9tZQ==", "aG9tZQ=="].map(Value::from));
}
