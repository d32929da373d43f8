//! Behind the aggregator of a real kube-apiserver, the host.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use kubefold_wire::protobuf::{OPENAPI_V2_ASKED, Payload, Records};
use serde_json::{Value, json};

use crate::deploy::with_two_identities;
use testbed::{
    Answer, Api, Authority, FleetFile, Kubectl, Kubefold, Member, MemberOptions, Port, Process, Testbed, eventually,
    example,
    samples::{keys, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const SHADOWS: &str = "/apis/kubefold.io/v1alpha1/namespaces/shop/shadowresources";
const WIDGETS: &str = "/apis/apps.example.com/v1/namespaces/shop/widgets";

/// The files by which a kube-apiserver is an aggregator; it reads them again when they change.
struct FrontProxy {
    folder: tempfile::TempDir,
}

impl FrontProxy {
    fn new(authority: &Authority) -> Self {
        let this = Self { folder: tempfile::tempdir().unwrap() };
        this.become_of(authority);
        this
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Has its certificate signed by this authority from here on.
    fn become_of(&self, authority: &Authority) {
        let identity = authority.client("front-proxy", None);
        fs::write(self.file("ca.crt"), authority.cert_pem()).unwrap();
        fs::write(self.file("proxy.key"), identity.key_pem).unwrap();
        fs::write(self.file("proxy.crt"), identity.cert_pem).unwrap();
    }

    fn options(&self) -> MemberOptions {
        let flag = |name: &str, file: &str| format!("--{name}={}", self.file(file).display());
        let apiserver_args = vec![
            flag("requestheader-client-ca-file", "ca.crt"),
            flag("proxy-client-cert-file", "proxy.crt"),
            flag("proxy-client-key-file", "proxy.key"),
            "--requestheader-allowed-names=front-proxy".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ];
        MemberOptions { apiserver_args, controllers: true, ..MemberOptions::default() }
    }
}

/// A cluster-wide custom resource of one group, which a member has and the host has not.
fn widgets(group: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "description": "What it is to be.",
        "properties": {"size": {"type": "integer", "description": "Its size in units."}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "singular": "widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Runs `kubefold aggregation manifest`; gives what it prints, or what it says against it.
async fn manifest(fleet: &Kubefold, host: &Member, more: &[&str]) -> Result<String, String> {
    let (config, kubeconfig) = (fleet.config(), host.kubeconfig());
    let [config, kubeconfig] = [&config, &kubeconfig].map(|path| path.to_str().unwrap());
    let port = fleet.addr().rsplit_once(':').unwrap().1.to_owned();
    let address = format!("localhost:{port}");
    let args = ["aggregation", "manifest", "--config", config, "--kubeconfig", kubeconfig, "--address", &address];
    let done = fleet.command(&[&args, more].concat()).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

/// The section of clusters.yaml for a host, where kubefold is a user without rights until the manifest gives it some.
fn section(host: &Member, more: &str) -> String {
    let login = host.kubeconfig_for("kubefold", None);
    format!("aggregation: {{kubeconfig: {}{more}}}", login.display())
}

async fn is_available(host: &Member, name: &str) {
    let api_service = format!("apiservice/{name}");
    let wait = ["wait", "--for=condition=Available", "--timeout=90s", &api_service];
    let waited = host.kubectl(&wait).await;
    if !waited.succeeded() {
        let seen = host.kubectl(&["get", &api_service, "-o", "yaml"]).await;
        panic!("{waited}\n{}", seen.ok());
    }
}

async fn shows(kubectl: &Kubectl, args: &[&str], text: &str) {
    eventually(SOON, async || kubectl.run(args).await.holds(text)).await;
}

async fn ask(api: &Api, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    api.send(request.body(Bytes::new()).unwrap()).await.unwrap()
}

async fn as_(host: &Member, user: &str, home: &Path) -> Kubectl {
    Kubectl::new(&host.kubeconfig_for(user, None), home)
}

/// A group of the fleet that the host serves: kubectl sees it there as one of the host's own, the host's RBAC comes first, then
/// that of the members.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_serves_groups_of_the_fleet() {
    let [first, second] = ["first-ca", "second-ca"].map(Authority::new);
    let proxy = FrontProxy::new(&first);
    let bed = Testbed::start_each(&[("east", MemberOptions::default()), ("host", proxy.options())]).await;
    let (east, host) = (&bed["east"], &bed["host"]);
    east.apply(&widgets("apps.example.com").to_string()).await;
    for member in bed.members() {
        namespace(member, "shop").await;
    }
    // In the member, kubefold acts for the host's users by a token that may do nothing else.
    let tokens = tempfile::tempdir().unwrap();
    east.apply(include_str!("../../deploy/member-rbac.yaml")).await;
    let file = with_two_identities(FleetFile::default(), east, tokens.path()).await;
    let fleet = Kubefold::start(&file.clone().settings(&section(host, ", groups: [apps.example.com/v1]"))).await;

    // What the host has itself is refused, and the rest is taken as it is.
    host.apply(&widgets("crd.example.com").to_string()).await;
    for (group, why) in [("apps/v1", "v1.apps"), ("crd.example.com/v2", "v1.crd.example.com")] {
        let refused = manifest(&fleet, host, &["--group", group]).await.unwrap_err();
        assert!(refused.contains("the host serves the group") && refused.contains(why), "{refused}");
    }
    let made = manifest(&fleet, host, &[]).await.unwrap();
    host.apply(&made).await;
    is_available(host, "v1.apps.example.com").await;
    is_available(host, "v1alpha1.kubefold.io").await;
    // Another run finds what it made itself.
    host.apply(&manifest(&fleet, host, &[]).await.unwrap()).await;

    let kubectl = host.as_admin().in_namespace("shop");
    widgets_are_used_through_the_host(&kubectl, east, host).await;
    kubefolds_own_objects_are_seen_through_the_host(&kubectl, &fleet, host).await;
    swagger_is_what_the_aggregator_makes_of_it(&fleet, host).await;

    // The host's RBAC comes first, then the members'.
    let home = tempfile::tempdir().unwrap();
    let jane = as_(host, "jane", home.path()).await.in_namespace("shop");
    both_decide(&jane, east, host).await;

    // Whoever comes to kubefold without the aggregator is not taken at its word.
    headers_are_believed_of_the_aggregator_alone(&fleet, &first, &second).await;
    // A token of the host is somebody at kubefold itself.
    tokens_of_the_host_count(&fleet, host).await;

    // About kubefold's own objects the host decides, for whoever comes directly, too.
    the_host_decides_about_kubefolds_own(&fleet, host).await;

    // The host empties a namespace of its own, in each group that it serves, and the fleet's has what it had.
    let gone = kubectl.run(&["delete", "namespace", "shop", "--timeout=60s"]).await;
    assert!(gone.succeeded(), "{gone}");
    assert_eq!(keys(&fleet.api().await.get(WIDGETS).await), ["shop/one"]);
    assert_eq!(keys(&fleet.api().await.get(SHADOWS).await), ["shop/task"]);
    namespace(host, "shop").await;

    the_aggregator_has_another_authority(&fleet, host, &proxy, [&first, &second]).await;
    shows(&jane, &["get", "widgets"], "one").await;
    is_available(host, "v1.apps.example.com").await;

    // kubefold is gone: the host goes on with what it has itself.
    fleet.kill9();
    shows(&kubectl, &["get", "apiservice", "v1.apps.example.com"], "False").await;
    assert!(kubectl.run(&["get", "namespaces"]).await.ok().contains("shop"));
    let others = kubectl.run(&["api-resources", "--api-group=crd.example.com"]).await;
    assert!(others.stdout.contains("Widget"), "{others}");
}

async fn widgets_are_used_through_the_host(kubectl: &Kubectl, east: &Member, host: &Member) {
    shows(kubectl, &["api-resources", "--api-group=apps.example.com"], "Widget").await;
    let widget = json!({"apiVersion": "apps.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 1}});
    kubectl.run_with_input(&["create", "-f", "-"], &widget.to_string()).await.ok();
    assert!(east.kubectl(&["get", "widgets", "one", "-n", "shop"]).await.ok().contains("one"));
    assert!(kubectl.run(&["get", "widgets"]).await.ok().contains("one"));
    kubectl.with_editor("sed -i s/size:.1/size:\\ 2/").run(&["edit", "widget", "one"]).await.ok();
    assert_eq!(kubectl.run(&["get", "widget", "one", "-o", "jsonpath={.spec.size}"]).await.ok(), "2");
    shows(kubectl, &["explain", "widgets.spec.size"], "Its size in units.").await;
    // OpenAPI of version 2 has it, too: the aggregator downloads it from kubefold.
    eventually(SOON, async || {
        let document = host.request(Method::GET, "/openapi/v2", "").await.json();
        let has = document["paths"].as_object().is_some_and(|paths| paths.keys().any(|path| path.contains("widgets")));
        if has { Ok(()) } else { Err("no widgets") }
    })
    .await;
}

async fn both_decide(jane: &Kubectl, east: &Member, host: &Member) {
    let refused = jane.run(&["get", "widgets"]).await;
    assert!(refused.refused().contains("User \"jane\" cannot list resource \"widgets\""), "{refused}");
    let rule = ["--verb=get,list,watch", "--resource=widgets.apps.example.com"];
    let allow = async |member: &Member| {
        member.kubectl(&[&["create", "clusterrole", "widgets"][..], &rule].concat()).await.ok();
        let bind = ["create", "clusterrolebinding", "widgets", "--clusterrole=widgets", "--user=jane"];
        member.kubectl(&bind).await.ok();
    };
    allow(host).await;
    shows(jane, &["auth", "can-i", "list", "widgets.apps.example.com"], "yes").await;
    let refused = jane.run(&["get", "widgets"]).await;
    assert!(refused.refused().contains("in the namespace \"shop\""), "the member decides, too: {refused}");
    allow(east).await;
    shows(jane, &["get", "widgets"], "one").await;
    assert!(jane.run(&["delete", "widget", "one"]).await.refused().contains("cannot delete resource"));
}

async fn the_aggregator_has_another_authority(
    fleet: &Kubefold,
    host: &Member,
    proxy: &FrontProxy,
    [first, second]: [&Authority; 2],
) {
    // Nobody restarts.
    let mut watch = host.api().await.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(watch.next(SOON).await.unwrap()["object"]["metadata"]["name"], "one");
    proxy.become_of(second);
    eventually(SOON + SOON, async || {
        let trusted = ask(&of_proxy(fleet, second, "front-proxy").await, WIDGETS, &AS_JANE).await;
        if trusted.status == StatusCode::OK { Ok(()) } else { Err(trusted) }
    })
    .await;
    // A kube-apiserver keeps an authority that it had, until somebody takes it away.
    let data = json!({"data": {"requestheader-client-ca-file": second.cert_pem()}}).to_string();
    let patch =
        ["patch", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "--type=merge", "-p", &data];
    host.kubectl(&patch).await.ok();
    eventually(SOON, async || {
        let old = ask(&of_proxy(fleet, first, "front-proxy").await, WIDGETS, &AS_JANE).await;
        if old.status == StatusCode::UNAUTHORIZED { Ok(()) } else { Err(old) }
    })
    .await;
}

const AS_JANE: [(&str, &str); 1] = [("X-Remote-User", "jane")];

/// A client with the certificate of an aggregator, or of whoever would be one.
async fn of_proxy(fleet: &Kubefold, authority: &Authority, name: &str) -> Api {
    let identity = authority.client(name, None);
    Api::from_kubeconfig(&fleet.kubeconfig_with("proxy", &identity), None).await
}

async fn headers_are_believed_of_the_aggregator_alone(fleet: &Kubefold, trusted: &Authority, other: &Authority) {
    let own = of_proxy(fleet, trusted, "front-proxy").await;
    assert_eq!(ask(&own, WIDGETS, &AS_JANE).await.status, StatusCode::OK);
    let of_member = [("X-Remote-User", "system:node:n1"), ("X-Remote-Group", "system:masters")];
    // A component of the host is nobody in a member: it may ask, and there is nothing for it.
    assert!(keys(&ask(&own, WIDGETS, &of_member).await.ok()).is_empty());
    let refused = ask(&own, &format!("{WIDGETS}/one"), &of_member).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
    assert_eq!(ask(&own, "/apis", &of_member).await.status, StatusCode::OK, "the host's aggregator asks so");
    for nobody in [&[][..], &[("X-Remote-User", "")], &[("X-Remote-User", "kubefold:mover")]] {
        assert_eq!(ask(&own, WIDGETS, nobody).await.status, StatusCode::UNAUTHORIZED, "{nobody:?}");
    }
    let spoofed = [(other, "front-proxy", "another authority"), (trusted, "somebody", "a name that is not allowed")];
    for (authority, name, what) in spoofed {
        let answer = ask(&of_proxy(fleet, authority, name).await, WIDGETS, &AS_JANE).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{what}: {answer}");
    }
    let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    assert_eq!(ask(&nobody, WIDGETS, &AS_JANE).await.status, StatusCode::UNAUTHORIZED);
    let eve = Api::from_kubeconfig(&fleet.kubeconfig_for("eve", None), None).await;
    let refused = ask(&eve, WIDGETS, &AS_JANE).await;
    assert!(refused.status == StatusCode::FORBIDDEN && refused.to_string().contains("User \\\"eve\\\""), "{refused}");
}

/// A ShadowResource, as kubectl makes, reads, changes and explains it at the host. It stays for what comes after.
async fn kubefolds_own_objects_are_seen_through_the_host(kubectl: &Kubectl, fleet: &Kubefold, host: &Member) {
    let api = host.api().await;
    let mut watch = api.watch(&format!("{SHADOWS}?watch=true")).await;
    let item = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "item", "namespace": "shop"},
        "data": {"a": "one"}});
    let shadow = json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "ShadowResource", "metadata": {"name": "task"},
        "spec": {"flowList": [item]}});
    kubectl.run_with_input(&["create", "-f", "-"], &shadow.to_string()).await.ok();
    assert_eq!(watch.next(SOON).await.unwrap()["object"]["metadata"]["name"], "task");
    shows(kubectl, &["get", "shadowresources"], "1/1").await;
    shows(kubectl, &["explain", "shadowresources.spec"], "flowList").await;
    kubectl.with_editor("sed -i s/a:.one/a:\\ two/").run(&["edit", "shadow", "task"]).await.ok();
    let item = fleet.kubectl(&["get", "configmap", "item", "-n", "shop", "-o", "jsonpath={.data.a}"]).await;
    assert_eq!(item.ok(), "two");
    eventually(SOON, async || {
        let seen = watch.next(SOON).await.unwrap();
        if seen["object"]["spec"]["flowList"][0]["data"]["a"] == "two" { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// The paths and definitions of kubefold's own kinds, as client-go reads them: messages, by name.
async fn own_openapi(api: &Api) -> BTreeMap<String, Vec<u8>> {
    let answer = ask(api, "/openapi/v2", &[("accept", OPENAPI_V2_ASKED)]).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer}");
    // Document.paths and Paths.path; Document.definitions and Definitions.additional_properties. The name of each is its first field.
    let at = |one, two| fields(&answer.body, one).flat_map(move |below| fields(below, two));
    let named = at(8, 2).chain(at(9, 1));
    let named =
        named.map(|named| (String::from_utf8(fields(named, 1).next().unwrap().to_vec()).unwrap(), named.to_vec()));
    let is_own =
        |name: &str| name.starts_with("io.kubefold.v1alpha1.") || name.starts_with("/apis/kubefold.io/v1alpha1/");
    named.filter(|(name, _)| is_own(name)).collect()
}

fn fields(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Records::new(message).filter_map(move |record| match record.unwrap() {
        (at, Payload::Bytes(bytes)) if at == number => Some(bytes),
        _ => None,
    })
}

/// The aggregator makes its document of kubefold's JSON: what kubefold gives in protobuf itself is the same to the byte.
async fn swagger_is_what_the_aggregator_makes_of_it(fleet: &Kubefold, host: &Member) {
    let ours = own_openapi(&fleet.api().await).await;
    for name in [
        "io.kubefold.v1alpha1.ShadowResource",
        "/apis/kubefold.io/v1alpha1/namespaces/{namespace}/shadowresources/{name}",
    ] {
        assert!(ours.contains_key(name), "no {name} in {:?}", ours.keys());
    }
    let theirs = eventually(SOON, async || {
        let theirs = own_openapi(&host.api().await).await;
        if theirs.len() < ours.len() { Err(format!("{:?}", theirs.keys())) } else { Ok(theirs) }
    })
    .await;
    for (name, message) in &ours {
        let [ours, theirs] = [message, &theirs[name]].map(|message| String::from_utf8_lossy(message).into_owned());
        assert_eq!(ours, theirs, "{name}");
    }
}

/// By a SubjectAccessReview of the host.
async fn the_host_decides_about_kubefolds_own(fleet: &Kubefold, host: &Member) {
    let own = "/apis/kubefold.io/v1alpha1/members";
    let ann = Api::from_kubeconfig(&fleet.kubeconfig_for("ann", None), None).await;
    let refused = ask(&ann, own, &[]).await;
    let text = refused.to_string();
    assert!(refused.status == StatusCode::FORBIDDEN && text.contains("members.kubefold.io is forbidden"), "{text}");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "own"},
        "rules": [{"apiGroups": ["kubefold.io"], "resources": ["*"], "verbs": ["list"]}]});
    host.apply(&role.to_string()).await;
    host.kubectl(&["create", "clusterrolebinding", "own", "--clusterrole=own", "--user=ann"]).await.ok();
    eventually(SOON, async || {
        let answer = ask(&ann, own, &[]).await;
        if answer.status == StatusCode::FORBIDDEN { Err(answer) } else { Ok(()) }
    })
    .await;
    let created = ann.request(Method::POST, own, "{}").await;
    assert_eq!(created.status, StatusCode::FORBIDDEN, "{created}");
}

/// By a TokenReview of the host. Its ServiceAccounts are nobody in a member.
async fn tokens_of_the_host_count(fleet: &Kubefold, host: &Member) {
    host.kubectl(&["create", "serviceaccount", "bot", "-n", "shop"]).await.ok();
    let token = host.kubectl(&["create", "token", "bot", "-n", "shop"]).await.ok().trim().to_owned();
    let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    let bot = nobody.clone().with_token(&token);
    let refused = ask(&bot, &format!("{WIDGETS}/one"), &[]).await;
    let text = refused.to_string();
    assert!(refused.status == StatusCode::FORBIDDEN && text.contains("system:serviceaccount:shop:bot"), "{text}");
    assert_eq!(ask(&bot, "/apis", &[]).await.status, StatusCode::OK, "the host allows discovery");
    // So are its users' certificates.
    let jane = fleet.kubeconfig_with("of-host", &host.identity_of("jane", None));
    assert_eq!(ask(&Api::from_kubeconfig(&jane, None).await, WIDGETS, &[]).await.status, StatusCode::OK);
    let (signed, _) = token.rsplit_once('.').unwrap();
    let forged = nobody.with_token(&format!("{signed}.c2lnbmF0dXJl"));
    assert_eq!(ask(&forged, WIDGETS, &[]).await.status, StatusCode::UNAUTHORIZED);
}

/// The steps of Kubernetes' conformance test "Sample API Server using the current Aggregator", over the sample of this
/// repository as a member: registered, available, made, listed, found in discovery, deleted. And a watch that outlives the
/// 60 s that a kube-apiserver gives every other request.
///
/// Source: kubernetes/kubernetes `test/e2e/apimachinery/aggregator.go`.
#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_the_sample_api_server_pass_through_the_aggregator() {
    let authority = Authority::new("front-proxy-ca");
    let proxy = FrontProxy::new(&authority);
    let bed = Testbed::start_each(&[("host", proxy.options())]).await;
    let host = &bed["host"];
    namespace(host, "shop").await;
    let (port, home) = (Port::reserve(), tempfile::tempdir().unwrap());
    let _wardle = Process::spawn("wardle", &example("wardle"), &[port.addr()], &home.path().join("log"));
    let sample = Api::of_plain_server(&format!("http://{}", port.addr()));
    eventually(SOON, async || sample.try_request(Method::GET, "/readyz", "").await).await;
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    sample.create("/api/v1/namespaces", &shop).await;

    let member = format!("server: http://{}", port.addr());
    let groups = ", groups: [wardle.example.com/v1alpha1, wardle.example.com/v1beta1]";
    let file = FleetFile::default().written("wardle", &member).settings(&section(host, groups));
    let fleet = Kubefold::start(&file).await;
    host.apply(&manifest(&fleet, host, &[]).await.unwrap()).await;
    is_available(host, "v1alpha1.wardle.example.com").await;
    is_available(host, "v1beta1.wardle.example.com").await;

    let flunders = "/apis/wardle.example.com/v1alpha1/namespaces/shop/flunders";
    let api = host.api().await;
    eventually(SOON, async || {
        let answer = api.request(Method::GET, flunders, "").await;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer) }
    })
    .await;
    let mut watch = api.watch(&format!("{flunders}?watch=true&timeoutSeconds=300")).await;
    let flunder = |name: &str| json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": name, "labels": {"sample": "e2e"}}});
    let kubectl = host.as_admin().in_namespace("shop");
    kubectl.run_with_input(&["create", "-f", "-"], &flunder("first").to_string()).await.ok();
    assert_eq!(watch.next(SOON).await.unwrap()["object"]["metadata"]["name"], "first");
    // Discovery, of one version, of the group, and aggregated, as a client with an empty cache asks for it.
    let names = |document: &Value| {
        let resources = document["resources"].as_array().into_iter().flatten();
        resources.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names(&api.get("/apis/wardle.example.com/v1alpha1").await).contains(&"flunders".to_owned()));
    let group = api.get("/apis/wardle.example.com").await;
    assert_eq!(group["versions"].as_array().unwrap().len(), 2, "{group}");
    shows(&kubectl, &["api-resources", "--api-group=wardle.example.com"], "flunders").await;
    let second = api.create(flunders, &flunder("second")).await;
    assert_eq!(second["metadata"]["name"], "second");
    assert_eq!(keys(&api.get(flunders).await), ["shop/first", "shop/second"]);
    assert_eq!(keys(&api.get(&format!("{flunders}?labelSelector=sample%3De2e")).await).len(), 2);
    kubectl.run(&["delete", "flunder", "second"]).await.ok();
    assert_eq!(keys(&api.get(flunders).await), ["shop/first"]);
    for kind in ["ADDED", "DELETED"] {
        assert_eq!(watch.next(SOON).await.unwrap()["type"], kind);
    }
    // Who has no rights in the host does not come so far.
    let jane = as_(host, "jane", home.path()).await.in_namespace("shop");
    assert!(jane.run(&["get", "flunders"]).await.refused().contains("cannot list resource \"flunders\""));

    // Nothing happens for longer than a request may take, and the watch is there still.
    let quiet = tokio::time::timeout(Duration::from_secs(65), watch.next(Duration::from_secs(300))).await;
    assert!(quiet.is_err(), "{quiet:?}");
    kubectl.run(&["delete", "flunder", "first"]).await.ok();
    assert_eq!(watch.next(SOON).await.unwrap()["type"], "DELETED");
}

/// The fleet in a kubeconfig whose server is the host, with a login for the host: reads, writes, watches, logs, exec.
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_fleet_is_a_subresource_of_a_host() {
    let authority = Authority::new("front-proxy-ca");
    let proxy = FrontProxy::new(&authority);
    let bed = Testbed::start_each(&[("east", MemberOptions::with_workloads(1)), ("host", proxy.options())]).await;
    let (east, host) = (&bed["east"], &bed["host"]);
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).settings(&section(host, ""))).await;
    host.apply(&manifest(&fleet, host, &[]).await.unwrap()).await;
    is_available(host, "v1alpha1.kubefold.io").await;

    let home = tempfile::tempdir().unwrap();
    let through = |kubeconfig: PathBuf, name: &str| {
        let server = format!("{}/apis/kubefold.io/v1alpha1/fleets/main/proxy", host.server_url());
        let text = fs::read_to_string(kubeconfig).unwrap().replace(&host.server_url(), &server);
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        Kubectl::new(&path, home.path())
    };
    let kubectl = through(host.kubeconfig(), "admin");
    shows(&kubectl, &["get", "nodes"], "node-0@east").await;
    assert!(kubectl.run(&["get", "--raw=/readyz"]).await.ok().contains("ok"));
    assert!(kubectl.run(&["api-resources"]).await.ok().contains("deployments"));
    assert!(kubectl.run(&["explain", "pods.spec"]).await.ok().contains("PodSpec"));
    let watching = kubectl.start(&["get", "pods", "--watch"]);
    kubectl.run(&["run", "web", "--image=nginx"]).await.ok();
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=60s", "pod/web"]).await.ok();
    assert!(east.kubectl(&["get", "pod", "web"]).await.ok().contains("Running"));
    let seen = async || if watching.output().contains("Running") { Ok(()) } else { Err(watching.output()) };
    eventually(SOON, seen).await;
    shows(&kubectl, &["logs", "web"], "hello from east").await;
    shows(&kubectl, &["exec", "web", "--", "echo", "here"], "here").await;
    kubectl.run(&["delete", "pod", "web", "--now"]).await.ok();

    // The host's RBAC for the subresource comes first, then that of the members.
    let jane = through(host.kubeconfig_for("jane", None), "jane");
    let raw = ["get", "--raw=/api/v1/namespaces/default/pods"];
    let refused = jane.run(&raw).await;
    assert!(refused.refused().contains("cannot get resource \"fleets/proxy\""), "{refused}");
    let role = ["create", "clusterrole", "fleet", "--verb=get", "--resource=fleets.kubefold.io/proxy"];
    host.kubectl(&role).await.ok();
    host.kubectl(&["create", "clusterrolebinding", "fleet", "--clusterrole=fleet", "--user=jane"]).await.ok();
    eventually(SOON, async || {
        let refused = jane.run(&raw).await;
        let by_member = refused.stderr.contains("cannot list resource \"pods\"");
        if by_member { Ok(()) } else { Err(refused) }
    })
    .await;
    let allow = ["create", "clusterrolebinding", "jane", "--clusterrole=view", "--user=jane"];
    east.kubectl(&allow).await.ok();
    shows(&jane, &raw, "PodList").await;
}

/// The host is a member itself: what it serves for the fleet is not read from it, or kubefold would ask itself without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_a_member_is_not_asked_for_what_it_serves_for_the_fleet() {
    let authority = Authority::new("front-proxy-ca");
    let proxy = FrontProxy::new(&authority);
    let audited = MemberOptions { audit: true, ..proxy.options() };
    let bed = Testbed::start_each(&[("east", MemberOptions::default()), ("host", audited)]).await;
    let (east, host) = (&bed["east"], &bed["host"]);
    east.apply(&widgets("apps.example.com").to_string()).await;
    for member in bed.members() {
        namespace(member, "shop").await;
    }
    let login = host.kubeconfig_for("fold", Some("system:masters"));
    let members = FleetFile::default().member(east, 1).entry("host", &login, 1, "");
    let more = ", member: host, groups: [apps.example.com/v1]";
    let fleet = Kubefold::start(&members.settings(&section(host, more))).await;
    let refused = manifest(&fleet, host, &["--group", "other.example.com/v1"]).await.unwrap_err();
    assert!(refused.contains("the host is member host") && refused.contains("other.example.com/v1"), "{refused}");
    host.apply(&manifest(&fleet, host, &[]).await.unwrap()).await;
    is_available(host, "v1.apps.example.com").await;
    let widget = json!({"apiVersion": "apps.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 1}});
    let kubectl = host.as_admin().in_namespace("shop");
    eventually(SOON, async || {
        let made = kubectl.run_with_input(&["create", "-f", "-"], &widget.to_string()).await;
        if made.succeeded() { Ok(()) } else { Err(made) }
    })
    .await;
    for api in [host.api().await, fleet.api().await] {
        assert_eq!(keys(&api.get(WIDGETS).await), ["shop/one"]);
    }
    // What the host has itself is read from it as from every member.
    host.kubectl(&["create", "configmap", "kept", "-n", "shop"]).await.ok();
    shows(&fleet.as_admin(), &["get", "configmaps", "-n", "shop"], "kept@host").await;
    let by_kubefold = |resource: &str| {
        let is_one = |event: &&Value| event["user"]["username"] == "fold" && event["objectRef"]["resource"] == resource;
        host.audit().iter().filter(is_one).count()
    };
    assert_eq!(by_kubefold("widgets"), 0);
    assert!(by_kubefold("configmaps") > 0, "this is how it would be seen");
}

/// A Service for an IP address: the host's aggregator finds the address, without a controller that mirrors Endpoints.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_finds_kubefold_by_its_address() {
    let proxy = FrontProxy::new(&Authority::new("front-proxy-ca"));
    let mut options = MemberOptions { controllers: false, ..proxy.options() };
    options.apiserver_args.push("--enable-aggregator-routing=true".to_owned());
    let bed = Testbed::start_each(&[("host", options)]).await;
    let host = &bed["host"];
    let file = FleetFile::default().member(host, 1).settings(&section(host, ", member: host"));
    let fleet = Kubefold::start(&file).await;
    let (config, kubeconfig) = (fleet.config(), host.kubeconfig());
    let [config, kubeconfig] = [&config, &kubeconfig].map(|path| path.to_str().unwrap());
    let doctor = async || {
        let mut command = tokio::process::Command::new(testbed::program());
        let done = command.args(["doctor", "--config", config]).output().await.unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let (is_well, told) = doctor().await;
    assert!(!is_well && told.contains("may not create tokenreviews.authentication.k8s.io"), "{told}");
    let manifest_of = async |address: &str| {
        let args = ["aggregation", "manifest", "--config", config, "--kubeconfig", kubeconfig, "--address", address];
        let made = fleet.command(&args).await;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8_lossy(&made.stdout).into_owned()
    };
    // A unique local address, to which this machine has no way: what the host says of it shows that it found it.
    host.apply(&manifest_of("[fd00::7]:6443").await).await;
    let condition = ["get", "apiservice", "v1alpha1.kubefold.io", "-o", "jsonpath={.status.conditions[0]}"];
    shows(&host.as_admin(), &condition, "https://[fd00::7]:6443/apis/kubefold.io/v1alpha1").await;
    let other = manifest_of("192.0.2.7:6443").await.replace("name: kubefold\n", "name: other\n");
    let tried = host.as_admin().run_with_input(&["create", "--dry-run=server", "-f", "-"], &other).await;
    assert!(tried.stdout.contains("endpointslice.discovery.k8s.io/other created"), "{tried}");
    let (is_well, told) = doctor().await;
    assert!(is_well && told.contains("the host says whose requests count"), "{told}");
}
