//! OpenAPI of the fleet: what kubectl explains and validates by, over members that serve different kinds.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use regex::bytes::{Captures, Regex};
use serde_json::{Value, json};
use tokio::time::Instant;

use kubefold_wire::protobuf::{OPENAPI_V2_ASKED, Records, from_openapi_v2};
use testbed::{
    Answer, Api, FleetFile, Kubefold, Member, MemberOptions, Testbed, binary, eventually, figure,
    samples::{deployment, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const E2E: &str = "apis/e2e.kubefold.io/v1";

/// A CRD whose `spec` has one field of its own.
fn crd(kind: &str, field: &str) -> Value {
    let mut crd = testbed::samples::crd(kind);
    let fields = json!({field: {"type": "integer", "description": format!("What a {kind} has.")}});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({
        "type": "object", "description": format!("{kind} is for tests."),
        "properties": {"spec": {"type": "object", "properties": fields}},
    });
    crd
}

/// Creates a CRD and waits until the member itself tells of it.
async fn define(member: &Member, kind: &str, field: &str) {
    let api = member.api().await;
    api.create(CRDS, &crd(kind, field)).await;
    eventually(SOON, async || {
        let index = api.get("/openapi/v3").await;
        let told = index["paths"][E2E].is_object() && documents(&api).await.contains(kind);
        if told { Ok(()) } else { Err(format!("no {kind} in {}", index["paths"][E2E])) }
    })
    .await;
}

/// The document of the tests' group, as text; empty if there is none.
async fn documents(api: &Api) -> String {
    let answer = api.request(Method::GET, &format!("/openapi/v3/{E2E}"), "").await;
    String::from_utf8_lossy(&answer.body).into_owned()
}

async fn get(api: &Api, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::get(path).body(Bytes::new()).unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(header::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    api.send(request).await.unwrap()
}

fn value<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// `/openapi/v3/...?hash=...` of a document.
async fn url(api: &Api, document: &str) -> String {
    api.get("/openapi/v3").await["paths"][document]["serverRelativeURL"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_all_members_are_explained_and_validated() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    for member in bed.members() {
        namespace(member, "shop").await;
    }
    tokio::join!(define(&bed["east"], "Widget", "size"), define(&bed["west"], "Gadget", "speed"));
    let fleet = Kubefold::before(bed.members()).await;
    explained(&fleet).await;
    validated(&fleet).await;
    united(&bed, &fleet).await;
    typed_clients_read_them(&fleet).await;
    a_new_kind_is_told_soon(&bed["north"], &fleet).await;
    an_established_kind_is_told_at_once(&fleet).await;
    an_outage_takes_nothing_away(&bed, &fleet).await;
}

async fn explained(fleet: &Kubefold) {
    eventually(SOON, async || fleet.kubectl(&["explain", "widget.spec", "--recursive"]).await.holds("size\t<integer>"))
        .await;
    let gadget = fleet.kubectl(&["explain", "gadget.spec", "--recursive"]).await;
    assert!(gadget.ok().contains("speed\t<integer>"), "{gadget}");
    let spec = fleet.kubectl(&["explain", "deployment.spec.replicas"]).await;
    assert!(spec.ok().contains("FIELD: replicas <integer>") && spec.stderr.is_empty(), "{spec}");
}

async fn validated(fleet: &Kubefold) {
    let strict = ["apply", "--server-side=false", "--validate=strict", "-f", "-"];
    let custom = |kind: &str, name: &str, field: &str| {
        json!({"apiVersion": "e2e.kubefold.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"},
            "spec": {field: 1}})
    };
    for (object, created) in [
        (custom("Widget", "w@east", "size"), "widget.e2e.kubefold.io/w@east created"),
        (custom("Gadget", "g@west", "speed"), "gadget.e2e.kubefold.io/g@west created"),
    ] {
        let said = fleet.as_admin().run_with_input(&strict, &object.to_string()).await;
        assert_eq!(said.ok().trim(), created, "{said}");
    }
    let mut good = deployment("web", 3);
    good["metadata"]["namespace"] = json!("shop");
    let said = fleet.as_admin().run_with_input(&strict, &good.to_string()).await;
    assert_eq!(said.ok().trim(), "deployment.apps/web created", "{said}");
    let mut bad = deployment("bad", 3);
    bad["metadata"]["namespace"] = json!("shop");
    bad["spec"]["replica"] = json!(3);
    for (verb, object, field) in [
        ("apply", custom("Widget", "bad@east", "speed"), "spec.speed"),
        ("create", custom("Gadget", "bad@west", "size"), "spec.size"),
        ("apply", bad.clone(), "spec.replica"),
        ("create", bad, "spec.replica"),
    ] {
        let said = fleet.as_admin().run_with_input(&[verb, "--validate=strict", "-f", "-"], &object.to_string()).await;
        assert!(said.refused().contains(&format!("unknown field \"{field}\"")), "{said}");
    }
}

/// One document of what members have differently, under one hash.
async fn united(bed: &Testbed, fleet: &Kubefold) {
    let api = fleet.api().await;
    let united = url(&api, E2E).await;
    let answer = get(&api, &united, &[]).await;
    assert_eq!(
        (value(&answer, "cache-control"), value(&answer, "content-type")),
        ("public, immutable", "application/json")
    );
    let document = answer.ok();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in ["io.kubefold.e2e.v1.Widget", "io.kubefold.e2e.v1.Gadget", "io.kubefold.e2e.v1.GadgetList"] {
        assert!(schemas.contains_key(name), "no {name}");
    }
    for plural in ["widgets", "gadgets"] {
        assert!(document["paths"][format!("/{E2E}/namespaces/{{namespace}}/{plural}")].is_object(), "no {plural}");
    }
    assert!(answer.warnings().is_empty(), "{:?}", answer.warnings());
    let tag = value(&answer, "etag");
    assert_eq!(united, format!("/openapi/v3/{E2E}?hash={}", tag.trim_matches('"')));
    assert_eq!(get(&api, &united, &[("if-none-match", tag)]).await.status, StatusCode::NOT_MODIFIED);
    // What all have alike is passed on under the hash that they give.
    let apps = "apis/apps/v1";
    let theirs = bed["north"].api().await;
    assert_eq!(url(&api, apps).await, url(&theirs, apps).await);
    assert_eq!(
        get(&api, &url(&api, apps).await, &[]).await.body,
        get(&theirs, &url(&theirs, apps).await, &[]).await.body
    );
    // Another kubefold, and one that has restarted, give the same hash.
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let replica = Kubefold::start(&file).await;
    assert_eq!(url(&replica.api().await, E2E).await, united);
    let swagger = get(&api, "/openapi/v2", &[]).await;
    let definitions = &swagger.ok()["definitions"];
    for name in ["io.kubefold.e2e.v1.Widget", "io.kubefold.e2e.v1.Gadget", "io.k8s.api.core.v1.Pod"] {
        assert!(definitions[name].is_object(), "no {name}");
    }
    assert_eq!(
        get(&api, "/openapi/v2", &[("if-none-match", value(&swagger, "etag"))]).await.status,
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(value(&get(&replica.api().await, "/openapi/v2", &[]).await, "etag"), value(&swagger, "etag"));
}

/// client-go reads the swagger document in protobuf only.
async fn typed_clients_read_them(fleet: &Kubefold) {
    let kubeconfig = fleet.kubeconfig();
    let args = [format!("--kubeconfig={}", kubeconfig.display()), format!("--document={E2E}")];
    let read = tokio::process::Command::new(binary("openapi")).args(args).output().await.unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let told = String::from_utf8(read.stdout).unwrap();
    for kind in ["Widget", "Gadget"] {
        for version in ["v2", "v3"] {
            let line = format!("{version} io.kubefold.e2e.v1.{kind}");
            assert_eq!(told.lines().filter(|one| *one == line).count(), 1, "{line}");
        }
    }
    // kubefold's own kinds are beside those of the members.
    for kind in ["io.k8s.api.core.v1.Pod", "io.kubefold.v1alpha1.ShadowResource"] {
        let line = format!("v2 {kind}");
        assert_eq!(told.lines().filter(|one| *one == line).count(), 1, "{line}");
    }
}

async fn a_new_kind_is_told_soon(north: &Member, fleet: &Kubefold) {
    let (theirs, ours) = (north.api().await, fleet.api().await);
    theirs.create(CRDS, &crd("Tool", "weight")).await;
    let path = "/apis/e2e.kubefold.io/v1/tools";
    let served = async |api: &Api| {
        eventually(SOON, async || {
            let answer = api.request(Method::GET, path, "").await;
            if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
        Instant::now()
    };
    let told = async |api: &Api| {
        eventually(SOON, async || if documents(api).await.contains("v1.Tool") { Ok(()) } else { Err("not yet") }).await;
        Instant::now()
    };
    let began = Instant::now();
    let all = tokio::join!(served(&theirs), served(&ours), told(&theirs), told(&ours));
    figure(&format!(
        "a new CRD: served by its member after {:?}, by the fleet after {:?}; in the member's OpenAPI after {:?}, in the fleet's after {:?}",
        all.0 - began,
        all.1 - began,
        all.2 - began,
        all.3 - began
    ));
    eventually(SOON, async || fleet.kubectl(&["explain", "tool.spec"]).await.holds("weight")).await;
}

/// What `kubectl wait` has seen established is in either document at the next request, however often one is made.
async fn an_established_kind_is_told_at_once(fleet: &Kubefold) {
    let api = fleet.api().await;
    for kind in ["First", "Second", "Third"] {
        api.create(CRDS, &crd(kind, "weight")).await;
        let name = format!("{}s.e2e.kubefold.io", kind.to_lowercase());
        fleet.as_admin().established(&name).await;
        let told = get(&api, "/openapi/v2", &[("accept", "application/json")]).await;
        let wanted = format!("io.kubefold.e2e.v1.{kind}");
        assert!(String::from_utf8_lossy(&told.body).contains(&wanted), "{kind} is not in v2");
        assert!(documents(&api).await.contains(&format!("v1.{kind}")), "{kind} is not in v3");
        let object = format!(
            r#"{{"apiVersion": "e2e.kubefold.io/v1", "kind": "{kind}", "metadata": {{"name": "x"}}, "spec": {{}}}}"#
        );
        fleet.as_admin().run_with_input(&["apply", "--validate=strict", "-f", "-"], &object).await.ok();
        fleet.kubectl(&["explain", &format!("{}.spec", kind.to_lowercase())]).await.ok();
    }
}

/// The URL of the tests' group, after all members have told of what was made before.
async fn settled(bed: &Testbed, api: &Api) -> String {
    for member in bed.members() {
        let theirs = member.api().await;
        eventually(SOON, async || {
            let told = documents(&theirs).await;
            let is_whole = ["First", "Second", "Third"].iter().all(|kind| told.contains(&format!("v1.{kind}")));
            if is_whole { Ok(()) } else { Err(format!("member {} has not told all", member.name())) }
        })
        .await;
    }
    // One that has just begun asks them now.
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let new = url(&Kubefold::start(&file).await.api().await, E2E).await;
    eventually(SOON, async || {
        let known = url(api, E2E).await;
        if known == new { Ok(known) } else { Err(format!("{known}, not {new}")) }
    })
    .await
}

/// The index, once it says that west is down.
async fn index_without_west(api: &Api) -> Answer {
    eventually(SOON, async || {
        let answer = get(api, "/openapi/v3", &[]).await;
        let is_said = answer.warnings().iter().any(|text| text.contains("member west"));
        if is_said { Ok(answer) } else { Err(answer.to_string()) }
    })
    .await
}

async fn an_outage_takes_nothing_away(bed: &Testbed, fleet: &Kubefold) {
    let api = fleet.api().await;
    let before = settled(bed, &api).await;
    assert_eq!(get(&api, &before, &[]).await.status, StatusCode::OK);
    bed["west"].stop_apiserver();
    let index = index_without_west(&api).await;
    assert_eq!(index.json()["paths"][E2E]["serverRelativeURL"], before.as_str());
    let gadget = fleet.kubectl(&["explain", "gadget.spec", "--recursive"]).await;
    assert!(gadget.ok().contains("speed\t<integer>") && gadget.stderr.contains("member west"), "{gadget}");
    assert!(get(&api, &before, &[]).await.warnings().is_empty(), "what a hash names is whole");
    assert_eq!(get(&api, "/openapi/v2", &[]).await.status, StatusCode::OK);
    // It goes after its index told of a document that nobody has asked for since: the one before it is shown.
    bed["west"].start_apiserver().await;
    define(&bed["west"], "Late", "age").await;
    let changed = eventually(SOON, async || {
        let now = url(&api, E2E).await;
        if now == before { Err("no change yet") } else { Ok(now) }
    })
    .await;
    bed["west"].stop_apiserver();
    index_without_west(&api).await;
    let answer = get(&api, &changed, &[]).await;
    let warnings = answer.warnings().join("; ");
    assert!(warnings.contains("member west: ") && warnings.contains("its last known document is shown"), "{answer}");
    assert_eq!(value(&answer, "etag"), "", "nobody keeps it under this hash");
    let gadget = fleet.kubectl(&["explain", "gadget.spec", "--recursive"]).await;
    assert!(gadget.ok().contains("speed\t<integer>") && gadget.stderr.contains("last known document"), "{gadget}");
    // A kubefold that never heard of it leaves it out, and lets nobody keep what it says.
    fleet.restart().await;
    let index = get(&fleet.api().await, "/openapi/v3", &[]).await;
    assert!(index.warnings().iter().any(|text| text.contains("member west") && text.contains("left out")), "{index}");
    assert_ne!(index.json()["paths"][E2E]["serverRelativeURL"], before.as_str());
}

/// How often each is asked for while a member hangs.
const ASKED: usize = 100;

/// A member that hangs, and is not known to be down yet, holds up neither a get of what others hold too, nor OpenAPI.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_hangs_costs_the_others_nothing() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    for member in bed.members() {
        namespace(member, "shop").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    let web = "/apis/apps/v1/namespaces/shop/deployments/web";
    api.create("/apis/apps/v1/namespaces/shop/deployments", &deployment("web", 3)).await;
    let asked = [web, "/api/v1/namespaces/shop", "/openapi/v3", "/openapi/v2"];
    let all = async || {
        let (mut took, mut warnings) = (Vec::new(), Vec::new());
        for path in asked.iter().cycle().take(ASKED * asked.len()) {
            let begun = Instant::now();
            let answer = get(&api, path, &[]).await;
            took.push(begun.elapsed());
            assert_eq!(answer.status, StatusCode::OK, "{path}: {answer}");
            warnings.extend(answer.warnings().iter().map(ToString::to_string));
        }
        took.sort();
        ([took[took.len() / 2], took[took.len() * 99 / 100]], warnings)
    };
    // A busy machine may have a member answer late.
    let before = eventually(SOON, async || {
        let (took, warnings) = all().await;
        if warnings.is_empty() { Ok(took) } else { Err(warnings.join("; ")) }
    })
    .await;
    bed["west"].pause();
    let (during, warnings) = all().await;
    figure(&format!("gets and OpenAPI, median and 99th of 100: {before:?}, and {during:?} while a member hangs"));
    // Whoever waits for it is told in the end that it is down.
    let late = warnings.iter().filter(|text| text.contains("member west has not answered in time")).count();
    assert!(late > ASKED / 2, "{warnings:?}");
    let shown = api.get(web).await;
    assert_eq!(shown["spec"]["replicas"], 3, "the last known state of its part");
    bed["west"].resume();
    eventually(SOON, async || {
        let answer = get(&api, web, &[]).await;
        if answer.warnings().is_empty() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// What kubefold makes of the same JSON is the same to the byte, but for who may log in: the fields `security` and
/// `securityDefinitions`, which are the last. A kube-apiserver writes the groups, kinds and versions of its aggregator in any order.
async fn protobuf_is_what_a_kube_apiserver_makes_of_its_json(api: &Api) {
    let kinds = Regex::new(r"(?-u:(?:(?:- |  )?(?:group|kind|version): [^\n]*\n){3})").unwrap();
    let in_one_order = |body: &[u8]| {
        kinds
            .replace_all(body, |found: &Captures<'_>| {
                let mut lines: Vec<&[u8]> =
                    found[0].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_start).collect();
                lines.iter_mut().for_each(|line| *line = line.strip_prefix(b"- ").unwrap_or(line));
                lines.sort_unstable();
                lines.join(&b'\n')
            })
            .into_owned()
    };
    let theirs = in_one_order(&get(api, "/openapi/v2", &[("accept", OPENAPI_V2_ASKED)]).await.body);
    let ours = in_one_order(&from_openapi_v2(&get(api, "/openapi/v2", &[]).await.json()));
    let same = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours == theirs).count();
    let around = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[same.saturating_sub(300)..bytes.len().min(same + 100)]).into_owned()
    };
    assert_eq!(same, ours.len(), "kubefold: {}\nkube-apiserver: {}", around(&ours), around(&theirs));
    let rest: Vec<u32> = Records::new(&theirs[same..]).map(|record| record.unwrap().0).collect();
    assert_eq!(rest, [12, 13]);
}

/// Headers that a client acts on.
const HEADERS: [&str; 6] = ["content-type", "etag", "cache-control", "vary", "location", "content-length"];

/// Before one member, every answer is the member's.
#[tokio::test(flavor = "multi_thread")]
async fn one_members_openapi_is_passed_through() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let fleet = Kubefold::before(bed.members()).await;
    let (theirs, ours) = (bed["east"].api().await, fleet.api().await);
    let (core, apps) = (url(&theirs, "api/v1").await, url(&theirs, "apis/apps/v1").await);
    let tag = format!("\"{}\"", core.split_once("hash=").unwrap().1);
    let (v2, v3) = (OPENAPI_V2_ASKED, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf");
    protobuf_is_what_a_kube_apiserver_makes_of_its_json(&theirs).await;
    for (path, headers) in [
        ("/openapi/v3", vec![]),
        ("/openapi/v3", vec![("accept", v3)]),
        (core.as_str(), vec![]),
        (core.as_str(), vec![("if-none-match", tag.as_str())]),
        (core.as_str(), vec![("accept", v3)]),
        ("/openapi/v3/api/v1", vec![]),
        ("/openapi/v3/api/v1?hash=ABC", vec![]),
        ("/openapi/v3/api/v1", vec![("accept", "text/html")]),
        ("/openapi/v3/api/v1", vec![("accept", "text/html, application/json;q=0.1")]),
        ("/openapi/v3/apis", vec![]),
        ("/openapi/v3/version", vec![]),
        (apps.as_str(), vec![("accept", "application/*")]),
        ("/openapi/v2", vec![]),
        ("/openapi/v2", vec![("accept", v2)]),
        ("/openapi/v2", vec![("accept", "application/vnd.kubernetes.protobuf")]),
    ] {
        let (a, b) = (get(&theirs, path, &headers).await, get(&ours, path, &headers).await);
        assert_eq!(a.status, b.status, "{path} {headers:?}");
        if path == "/openapi/v3" {
            assert_eq!(b.json()["paths"].as_object().unwrap().len(), a.json()["paths"].as_object().unwrap().len() + 2);
            assert_eq!(without_own(&b), a.json(), "{headers:?}");
        } else if path == "/openapi/v2" && headers.is_empty() {
            assert_eq!(without_own(&b), a.json(), "{headers:?}");
        } else if path == "/openapi/v2" && b.status == StatusCode::OK {
            // What is appended are kubefold's own definitions.
            assert!(b.body.starts_with(&a.body) && b.body.len() > a.body.len(), "{headers:?}");
        } else {
            assert!(a.body == b.body, "{path} {headers:?}: {} bytes, {} bytes", a.body.len(), b.body.len());
        }
        for name in HEADERS {
            if path == "/openapi/v3" && name == "content-length" {
                continue;
            }
            if path == "/openapi/v2" && b.status == StatusCode::OK && ["content-length", "etag"].contains(&name) {
                assert!(!value(&b, name).is_empty() && value(&a, name) != value(&b, name), "{name} {headers:?}");
                continue;
            }
            let of = |answer: &Answer| -> Vec<String> {
                answer.headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
            };
            assert_eq!(of(&a), of(&b), "{name} of {path} {headers:?}");
        }
        assert_eq!(value(&a, "expires").is_empty(), value(&b, "expires").is_empty(), "{path}");
    }
    for path in ["/openapi/v3/apis/nope.io/v1", "/openapi/v3/", "/openapi/v3/apis/apps/v1/", "/openapi", "/openapi/v4"]
    {
        let (a, b) = (get(&theirs, path, &[]).await, get(&ours, path, &[]).await);
        assert_eq!((a.status, b.status), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND), "{path}");
    }
    discovery_is_passed_through(&theirs, &ours).await;
}

/// What the fleet tells beside its own groups, which no member has.
fn without_own(answer: &Answer) -> Value {
    let mut document = answer.json();
    let is_own = |name: &str| {
        let own = [
            "apis/kubefold.io/",
            "apis/policy.karmada.io/",
            "apis/clusterpedia.io/",
            "io.kubefold.v1alpha1.",
            "io.karmada.policy.",
        ];
        own.iter().any(|own| name.trim_start_matches('/').starts_with(own))
    };
    for map in ["paths", "definitions"] {
        if let Some(entries) = document.get_mut(map).and_then(Value::as_object_mut) {
            entries.retain(|name, _| !is_own(name));
        }
    }
    for list in ["items", "groups"] {
        let Some(groups) = document.get_mut(list).and_then(Value::as_array_mut) else { continue };
        groups.retain(|group| {
            let name = group["metadata"]["name"].as_str().or_else(|| group["name"].as_str()).unwrap_or_default();
            !is_own(&format!("apis/{name}/"))
        });
    }
    document
}

async fn discovery_is_passed_through(theirs: &Api, ours: &Api) {
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for (path, accept) in [
        ("/api", aggregated),
        ("/apis", aggregated),
        ("/api/v1", aggregated),
        ("/apis/apps", aggregated),
        ("/version", aggregated),
        ("/apis", "application/json"),
        ("/apis/apps", "application/json"),
        ("/version", "application/json"),
    ] {
        let (a, b) = (get(theirs, path, &[("accept", accept)]).await, get(ours, path, &[("accept", accept)]).await);
        assert_eq!(a.status, b.status, "{path} {accept}");
        let has_own = path == "/apis";
        if has_own {
            assert_eq!(without_own(&b), a.json(), "{path} {accept}");
        } else if a.status == StatusCode::OK {
            assert!(a.body == b.body, "{path} {accept}:\n{a}\n{b}");
        }
        for name in ["content-type", "etag", "vary", "cache-control"] {
            // Another content has another tag.
            if has_own && name == "etag" {
                continue;
            }
            assert_eq!(value(&a, name), value(&b, name), "{name} of {path} {accept}");
        }
        let tag = value(&b, "etag");
        if !tag.is_empty() {
            let headers = [("accept", accept), ("if-none-match", tag)];
            assert_eq!(get(ours, path, &headers).await.status, StatusCode::NOT_MODIFIED);
        }
    }
}
