//! One member's own API through kubefold, and who may ask what.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use testbed::{
    Api, Kubectl, Kubefold, Member, MemberOptions, Testbed, eventually,
    samples::{config_map, name, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread")]
async fn a_member_view_is_the_members_own_api() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let fleet = Kubefold::before(bed.members()).await;
    all_verbs(&bed, &fleet).await;
    bytes_pass(&bed, &fleet).await;
    watches_pass(&bed, &fleet).await;
    let unknown = fleet.request(Method::GET, "/clusters/south/api/v1/pods", "").await;
    assert_eq!((unknown.status, &unknown.json()["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")));
    let message = unknown.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("\"south\"") && message.contains("east, west"), "{message}");
    streams_are_the_fleets_too(&fleet).await;
}

async fn all_verbs(bed: &Testbed, fleet: &Kubefold) {
    let east = async |args: &[&str]| fleet.kubectl_in("fleet-east", args).await;
    east(&["create", "configmap", "a", "--from-literal=k=1"]).await.ok();
    // What goes through the member view shows in the fleet.
    let in_fleet = async |wanted: bool| {
        eventually(SOON, async || {
            let output = fleet.kubectl(&["get", "configmaps", "-n", "default", "-o", "name"]).await;
            if output.ok().contains("configmap/a@east") == wanted { Ok(()) } else { Err(output) }
        })
        .await;
    };
    in_fleet(true).await;
    let manifest = config_map("applied", json!({"x": "y"})).to_string();
    let applied = fleet.as_admin().in_context("fleet-east").run_with_input(&["apply", "-f", "-"], &manifest).await;
    assert_eq!(applied.ok().trim(), "configmap/applied created");
    let again = fleet.as_admin().in_context("fleet-east").run_with_input(&["apply", "-f", "-"], &manifest).await;
    assert_eq!(again.ok().trim(), "configmap/applied unchanged");
    let server_side = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    fleet.as_admin().in_context("fleet-east").run_with_input(&server_side, &manifest).await.ok();
    east(&["patch", "configmap", "a", "-p", r#"{"data":{"k":"2"}}"#]).await.ok();
    let patched = east(&["get", "configmap", "a", "-o", "jsonpath={.data.k} {.metadata.annotations}"]).await;
    assert_eq!(patched.ok().trim(), "2", "and nothing of kubefold's own");
    east(&["label", "configmap", "a", "x=y"]).await.ok();
    // Tables, OpenAPI and all else that the fleet view has not yet.
    assert!(east(&["get", "configmap", "a"]).await.ok().contains("DATA"));
    assert!(east(&["explain", "configmap.data"]).await.ok().contains("FIELD: data"));
    east(&["auth", "can-i", "delete", "pods"]).await.ok();
    east(&["delete", "configmap", "a"]).await.ok();
    in_fleet(false).await;
    assert!(bed["west"].kubectl(&["get", "configmap", "applied"]).await.refused().contains("NotFound"));
}

/// The same bytes and headers as from the member itself.
async fn bytes_pass(bed: &Testbed, fleet: &Kubefold) {
    let (own, through) = (bed["east"].api().await, fleet.api().await);
    for (path, accept) in [
        (CONFIG_MAPS, "application/json"),
        (CONFIG_MAPS, "application/vnd.kubernetes.protobuf"),
        (CONFIG_MAPS, "application/yaml"),
        (CONFIG_MAPS, "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ("/openapi/v3", "application/json"),
        ("/version", "*/*"),
        ("/nope?a=b%20c&d", "*/*"),
        ("/api/v1/namespaces/default/configmaps/a%20b", "*/*"),
        ("/livez?verbose", "*/*"),
    ] {
        let ask = async |api: &Api, path: &str| {
            let request = Request::get(path).header(header::ACCEPT, accept).body(Bytes::new());
            api.send(request.unwrap()).await.unwrap()
        };
        let (said, told) = (ask(&own, path).await, ask(&through, &format!("/clusters/east{path}")).await);
        assert_eq!((told.status, &told.body), (said.status, &said.body), "{path} as {accept}");
        assert_eq!(told.headers.get(header::CONTENT_TYPE), said.headers.get(header::CONTENT_TYPE));
        assert_eq!(
            told.headers.get("x-kubernetes-pf-flowschema-uid"),
            said.headers.get("x-kubernetes-pf-flowschema-uid")
        );
    }
}

async fn watches_pass(bed: &Testbed, fleet: &Kubefold) {
    let api = fleet.api().await;
    let at = bed["west"].api().await.get(CONFIG_MAPS).await["metadata"]["resourceVersion"].clone();
    let path = format!("/clusters/west{CONFIG_MAPS}?watch=1&resourceVersion={}", at.as_str().unwrap());
    let mut watch = api.watch(&path).await;
    assert_eq!(watch.status, StatusCode::OK);
    let made = bed["west"].api().await.create(CONFIG_MAPS, &config_map("seen", json!({}))).await;
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], &event["object"]), (&json!("ADDED"), &made), "the member's own revision and all");
    drop(watch);
    let short = api.watch(&format!("{path}&timeoutSeconds=1")).await;
    assert!(matches!(to_end(short).await.as_slice(), [one] if name(&one["object"]) == "seen"));
}

async fn to_end(mut watch: testbed::Watch) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = watch.next(SOON).await {
        events.push(event);
    }
    events
}

async fn streams_are_the_fleets_too(fleet: &Kubefold) {
    let said = fleet.kubectl(&["logs", "x@west"]).await;
    assert!(said.refused().contains(r#"pods "x@west" not found"#), "{said}");
    fleet.kubectl_in("fleet-west", &["get", "configmap", "seen"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_see_who_asks() {
    let east = Member::start("east", MemberOptions { audit: true, ..MemberOptions::default() }).await;
    namespace(&east, "shop").await;
    let fleet = Kubefold::before(std::slice::from_ref(&east)).await;
    let admin = fleet.api().await;
    let ann = Api::from_kubeconfig(&fleet.kubeconfig_for("ann", Some("dev")), None).await;

    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let whoami = async |api: &Api| {
        let path = "/clusters/east/apis/authentication.k8s.io/v1/selfsubjectreviews";
        api.request(Method::POST, path, review.clone()).await.ok()["status"]["userInfo"].clone()
    };
    let info = whoami(&ann).await;
    assert_eq!(info["username"], "ann");
    assert_eq!(info["groups"], json!(["dev", "system:authenticated"]));
    let info = whoami(&admin).await;
    assert!(info["groups"].as_array().unwrap().contains(&json!("system:masters")), "{info}");

    // What the member forbids is forbidden, in the member's words; what it allows is allowed.
    let secrets = "/clusters/east/api/v1/namespaces/shop/secrets";
    let refused = ann.request(Method::GET, secrets, "").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.json()["message"].as_str().unwrap().contains(r#"User "ann" cannot list resource "secrets""#));
    east.kubectl(&["create", "role", "reader", "-n", "shop", "--verb=list", "--resource=secrets"]).await.ok();
    east.kubectl(&["create", "rolebinding", "dev", "-n", "shop", "--role=reader", "--group=dev"]).await.ok();
    eventually(SOON, async || {
        let answer = ann.request(Method::GET, secrets, "").await;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer) }
    })
    .await;
    let seen =
        |event: &Value| event["impersonatedUser"]["username"] == "ann" && event["objectRef"]["resource"] == "secrets";
    eventually(SOON, async || if east.audit().iter().any(seen) { Ok(()) } else { Err("ann is not in the audit log") })
        .await;
    // A get in the fleet view is made as its caller.
    admin.get("/api/v1/namespaces/shop/serviceaccounts/default").await;
    let seen = |event: &Value| {
        event["verb"] == "get"
            && event["objectRef"]["resource"] == "serviceaccounts"
            && event["objectRef"]["namespace"] == "shop"
            && event["impersonatedUser"]["groups"]
                .as_array()
                .is_some_and(|groups| groups.contains(&json!("system:masters")))
    };
    eventually(SOON, async || if east.audit().iter().any(seen) { Ok(()) } else { Err("no get as the caller") }).await;

    a_login_for_a_colleague(&fleet).await;
    impersonation_is_the_members_to_allow(&east, &fleet).await;
    who_may_nothing_is_told_so(&fleet, &ann).await;
    nobody_is_somebody_else(&fleet, &admin).await;
}

/// As its user, everybody may ask who he is and what he may do, of a member and of the fleet.
async fn a_login_for_a_colleague(fleet: &Kubefold) {
    let state = fleet.state_dir();
    let args = ["kubeconfig", "--user", "jane", "--group", "dev"];
    let made = fleet.command(&[&args[..], &["--group", "ops", "--expires", "1h"]].concat()).await;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let kubeconfig = state.join("jane.kubeconfig");
    std::fs::write(&kubeconfig, made.stdout).unwrap();
    let jane = Kubectl::new(&kubeconfig, &state);
    for context in ["fleet", "fleet-east"] {
        let jane = jane.in_context(context);
        let said =
            jane.run(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"]).await;
        assert_eq!(said.ok(), r#"jane ["dev","ops","system:authenticated"]"#, "{context}");
        assert_eq!(jane.run(&["auth", "can-i", "list", "secrets", "-n", "shop"]).await.ok().trim(), "yes");
        assert!(jane.run(&["auth", "can-i", "delete", "secrets", "-n", "shop"]).await.stdout.starts_with("no"));
    }
    let pods = jane.run(&["get", "pods", "-n", "shop"]).await;
    assert!(pods.refused().contains(r#"User "jane" cannot list resource "pods""#), "{pods}");
    for life in ["30s", "20000h", "soon"] {
        let refused = fleet.command(&[&args[..], &["--expires", life]].concat()).await;
        assert_eq!(refused.status.code(), Some(64), "{life}");
    }
}

/// In words of a kube-apiserver, as far as it has any.
async fn who_may_nothing_is_told_so(fleet: &Kubefold, ann: &Api) {
    for (path, words) in [
        (
            "/api/v1/pods",
            r#"pods is forbidden: User "ann" cannot list resource "pods" in API group "" at the cluster scope"#,
        ),
        ("/api/v1/pods?watch=1", r#"User "ann" cannot watch resource "pods""#),
        (
            "/apis/apps/v1/namespaces/shop/deployments/x",
            r#"deployments.apps "x" is forbidden: User "ann" cannot get resource"#,
        ),
        ("/debug", r#"forbidden: User "ann" cannot get path "/debug""#),
        ("/metrics", "is not in group kubefold:viewers"),
        ("/kubefold/v1/status", "is not in group kubefold:viewers"),
        ("/kubefold/v1/plan", "is not in group kubefold:admins"),
    ] {
        let refused = ann.request(Method::GET, path, "").await;
        assert_eq!((refused.status, &refused.json()["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")), "{path}");
        assert!(refused.json()["message"].as_str().unwrap().contains(words), "{refused}");
    }
    let viewer = Api::from_kubeconfig(&fleet.kubeconfig_for("prometheus", Some("kubefold:viewers")), None).await;
    for (path, code) in
        [("/metrics", 200), ("/kubefold/v1/status", 200), ("/kubefold/v1/plan", 403), ("/api/v1/pods", 403)]
    {
        assert_eq!(viewer.request(Method::GET, path, "").await.status, code, "{path}");
    }
    for path in ["/api", "/apis", "/version", "/openapi/v3"] {
        assert_eq!(ann.request(Method::GET, path, "").await.status, StatusCode::OK, "{path}");
    }
    let kubeconfig = fleet.kubeconfig_for("ann", Some("dev"));
    let said = Kubectl::new(&kubeconfig, kubeconfig.parent().unwrap()).run(&["get", "pods"]).await;
    assert!(said.refused().contains(r#"User "ann" cannot list resource "pods""#), "{said}");
}

/// Whoever asks to be somebody else is it where the member allows that, as if he had asked the member itself.
async fn impersonation_is_the_members_to_allow(east: &Member, fleet: &Kubefold) {
    let role = ["--verb=impersonate", "--resource=users", "--resource-name=jane"];
    east.kubectl(&[&["create", "clusterrole", "as-jane"][..], &role].concat()).await.ok();
    east.kubectl(&["create", "clusterrolebinding", "as-jane", "--clusterrole=as-jane", "--user=ann"]).await.ok();
    let direct = |user, group| Kubectl::new(&east.kubeconfig_for(user, group), east.dir());
    let through = |user, group| {
        let kubeconfig = fleet.kubeconfig_for(user, group);
        // One context of the member's own API.
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        let server = format!("https://{}", fleet.addr());
        std::fs::write(&kubeconfig, text.replace(&server, &format!("{server}/clusters/east"))).unwrap();
        Kubectl::new(&kubeconfig, kubeconfig.parent().unwrap())
    };
    let wheel = Some("system:masters");
    let (ann, admin) = ((direct("ann", None), through("ann", None)), (direct("admin", wheel), through("root", wheel)));
    let who = ["auth", "whoami", "-o", "jsonpath={.status.userInfo}"];
    eventually(SOON, async || {
        let said = ann.0.run(&[&who[..], &["--as=jane"]].concat()).await;
        if said.succeeded() { Ok(()) } else { Err(said) }
    })
    .await;
    for (is_admin, args) in [
        (false, &["--as=jane"][..]),
        (false, &["--as=jane", "--as-group=wheel"]),
        (false, &["--as=root"]),
        (false, &["--as=system:serviceaccount:shop:default"]),
        (true, &["--as=jane", "--as-group=dev", "--as-group=ops", "--as-uid=u-1"]),
        (true, &["--as=system:serviceaccount:shop:default"]),
        (true, &["--as=system:anonymous"]),
        (true, &["--as=jane", "--as-user-extra=example.com/roles=a", "--as-user-extra=example.com/roles=b"]),
    ] {
        let (theirs, ours) = if is_admin { &admin } else { &ann };
        let all = [&who[..], args].concat();
        let (said, told) = (theirs.run(&all).await, ours.run(&all).await);
        assert_eq!(
            said.succeeded(),
            is_admin && *args != ["--as=system:anonymous"] || *args == ["--as=jane"],
            "{said}"
        );
        assert_eq!((told.code, &told.stdout, &told.stderr), (said.code, &said.stdout, &said.stderr), "{args:?}");
    }
    let refused = Api::from_kubeconfig(&fleet.kubeconfig_for("ann", None), None).await;
    for header in ["Impersonate-Group", "impersonate-uid", "Impersonate-Extra-Scopes"] {
        for path in ["/api/v1/pods", "/clusters/east/api/v1/pods"] {
            let request = Request::get(path).header(header, "root").body(Bytes::new());
            assert_eq!(
                refused.send(request.unwrap()).await.unwrap().status,
                StatusCode::BAD_REQUEST,
                "{path} {header}"
            );
        }
    }
}

async fn nobody_is_somebody_else(fleet: &Kubefold, admin: &Api) {
    // An administrator of all members may be anybody, and is no administrator then.
    let said = fleet.kubectl(&["get", "pods", "--as=ann"]).await;
    assert!(said.refused().contains(r#"User "ann" cannot list resource "pods""#), "{said}");
    let said = fleet.kubectl(&["auth", "can-i", "list", "secrets", "-n", "shop", "--as=ann", "--as-group=dev"]).await;
    assert_eq!(said.ok().trim(), "yes");
    fleet.kubectl(&["get", "pods", "--as=ann", "--as-group=system:masters"]).await.ok();
    let ann = fleet.kubeconfig_for("ann", Some("dev"));
    let said = Kubectl::new(&ann, ann.parent().unwrap()).run(&["get", "pods", "--as=jane"]).await;
    assert!(said.refused().contains(r#"User "jane" cannot list resource "pods""#), "{said}");
    // Headers that a front proxy would set say nothing here.
    let request = Request::post("/clusters/east/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("X-Remote-User", "root")
        .header("X-Remote-Group", "wheel")
        .header(header::CONTENT_TYPE, "application/json");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let info = admin.send(request.body(review.into()).unwrap()).await.unwrap().ok()["status"]["userInfo"].clone();
    assert!(info["username"] != "root" && !info["groups"].to_string().contains("wheel"), "{info}");

    let anonymous = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    for path in ["/api/v1/pods", "/clusters/east/api/v1/pods", "/api", "/readyz?verbose", "/nope"] {
        let refused = anonymous.request(Method::GET, path, "").await;
        assert_eq!(
            (refused.status, &refused.json()["reason"]),
            (StatusCode::UNAUTHORIZED, &json!("Unauthorized")),
            "{path}"
        );
    }
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(anonymous.request(Method::GET, path, "").await.status, StatusCode::OK, "{path}");
    }
}
