//! Every form and encoding of an answer, asked of a kube-apiserver and of a kubefold before it: metadata alone, YAML,
//! indented, compressed, over WebSockets; and how both refuse the rest.

use std::{io::Read, path::Path, time::Duration};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, future::join_all};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client, Config,
    api::{ListParams, WatchEvent, WatchParams},
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest, protocol::frame::coding::CloseCode},
};

mod protobuf;

use testbed::{
    Answer, Api, Kubefold, MemberOptions, Testbed, eventually,
    samples::{crd, create_all, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn partial(kind: &str, version: &str) -> String {
    format!("application/json;as={kind};g=meta.k8s.io;v={version}")
}

/// What client-go's metadata client sends.
fn metadata_client(kind: &str) -> String {
    let protobuf = partial(kind, "v1").replace("application/json", "application/vnd.kubernetes.protobuf");
    format!("{protobuf},{},application/json", partial(kind, "v1"))
}

/// All have annotations, so that kubefold's own is one line more.
fn meta(name: &str) -> Value {
    json!({"name": name, "labels": {"app": "web"}, "annotations": {"note": "<&> \"x\"", "z": "1"}})
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name), "data": data})
}

/// Texts that YAML writes in every style.
fn texts() -> Value {
    let long = "only these are accepted: application/json, application/yaml, ".repeat(4);
    json!({
        "empty": "", "yes": "yes", "null": "null", "number": "1e3", "octal": "0o7", "date": "2001-01-01", "sixty": "1:30",
        "lines": "a\nb\n", "cut": "a\nb", "lead": "\na", "spaces": " a\n b\n\n", "trail": "a \nb", "tab": "a\tb",
        "long": long, "word": "x".repeat(200), "colon": "a: b", "hash": "a #b", "dash": "- a", "quote": "it's",
        "double": "say \"hi\"", "back": "a\\b", "break": "a\u{2028}b", "zero": "\u{0}", "bom": "\u{feff}a", "emoji": "é\u{1f600}",
        "json": "{\"a\":[1,2]}", "star": "*a", "percent": "%a", "tilde": "~", "end": "a ", "a10": "1", "a2": "2",
    })
}

/// A member and a kubefold before it, asked alike about a namespace.
struct Pair {
    bed: Testbed,
    fleet: Kubefold,
    theirs: Api,
    ours: Api,
    namespace: String,
    /// The paths of its config maps and of its gadgets.
    maps: String,
    gadgets: String,
}

async fn pair(bed: Testbed, of: &str) -> Pair {
    let east = &bed["east"];
    namespace(east, of).await;
    let (maps, gadgets) =
        (format!("/api/v1/namespaces/{of}/configmaps"), format!("/apis/e2e.kubefold.io/v1/namespaces/{of}/gadgets"));
    let theirs = east.api().await;
    // Of the tests that share the member one defines it.
    let made = theirs.request(Method::POST, DEFINITIONS, crd("Gadget").to_string()).await;
    assert!(matches!(made.status, StatusCode::CREATED | StatusCode::CONFLICT), "{made}");
    eventually(SOON, async || {
        let served = theirs.request(Method::GET, &gadgets, "").await;
        if served.status.is_success() { Ok(()) } else { Err(served) }
    })
    .await;
    create_all(&theirs, &maps, &[config_map("texts", texts()), config_map("other", json!({"a": "1"}))]).await;
    let numbers = json!({"whole": 1, "float": 1.5, "big": 9_007_199_254_740_993_u64, "exp": 1e30, "neg": -0.25,
        "small": 0.00001, "million": 1234567.5, "deep": [[], {}, [null], [1, [2]], [{"a": 1, "b": [{}]}]],
        "é": 1, "end ": 2, "yes": true, "": 0, "1": "1", "a b": "a b", "l\n": "l", "x".repeat(130): "long", "- a": 1, "texts": texts()});
    let gadget =
        json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Gadget", "metadata": meta("cog"), "spec": numbers});
    create_all(&theirs, &gadgets, &[gadget]).await;
    let fleet = Kubefold::before(bed.members()).await;
    let ours = fleet.api().await;
    Pair { bed, fleet, theirs, ours, namespace: of.to_owned(), maps, gadgets }
}

async fn ask(api: &Api, method: &Method, path: &str, headers: &[(HeaderName, &str)], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let request = request.body(Bytes::copy_from_slice(body.as_bytes())).unwrap();
    api.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Undoes what the fleet view is allowed to change, in whatever form, and blanks what differs by nature.
fn normal(answer: &[u8]) -> String {
    let text = String::from_utf8(answer.to_vec()).unwrap().replace("@east", "");
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let words = line.trim_start();
        if !words.starts_with("kubefold.io/cluster") && !words.starts_with("\"kubefold.io/cluster\": ") {
            out.push_str(line);
        }
    }
    out = out.replace("\"kubefold.io/cluster\":\"east\",", "");
    for key in ["\"resourceVersion\":\"", "\"resourceVersion\": \"", "resourceVersion: \""] {
        let mut parts = out.split(key);
        let first = parts.next().unwrap_or_default().to_owned();
        out = parts.fold(first, |out, part| out + key + &part[part.find('"').unwrap_or(0)..]);
    }
    out
}

fn heads(answer: &Answer) -> [Option<String>; 4] {
    [header::CONTENT_TYPE, header::CACHE_CONTROL, header::CONTENT_ENCODING, header::VARY]
        .map(|name| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
}

impl Pair {
    /// Asks both and compares status and heads; the two bodies.
    async fn both(&self, method: &Method, path: &str, headers: &[(HeaderName, &str)], body: &str) -> (Answer, Answer) {
        let theirs_of = path.replace("%40east", "");
        let (theirs, ours) = tokio::join!(
            ask(&self.theirs, method, &theirs_of, headers, body),
            ask(&self.ours, method, path, headers, body)
        );
        let what = format!("{method} {path} {headers:?}");
        assert_eq!(ours.status, theirs.status, "{what}: {ours}\nand the member: {theirs}");
        assert_eq!(heads(&ours), heads(&theirs), "{what}: {ours}\nand the member: {theirs}");
        (theirs, ours)
    }

    /// Both answer the same, to the byte but for what [`normal`] undoes.
    async fn same(&self, method: &Method, path: &str, headers: &[(HeaderName, &str)], body: &str) -> String {
        let (theirs, ours) = self.both(method, path, headers, body).await;
        let text = |answer: &Answer| until_bookmark(&without_token(&normal(&answer.body)));
        let (theirs, ours) = (text(&theirs), text(&ours));
        assert_eq!(ours, theirs, "{method} {path} {headers:?}");
        ours
    }

    async fn get(&self, path: &str, accept: &str) -> String {
        self.same(&Method::GET, path, &[(header::ACCEPT, accept)], "").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_alone_is_that_of_a_kube_apiserver() {
    let pair = pair(Testbed::shared(&["east"]).await, "metadata").await;
    let Pair { maps, .. } = &pair;
    let one = format!("{maps}/texts%40east");
    let watch = format!("{maps}?watch=1&timeoutSeconds=1&labelSelector=app");
    let initial = format!("{watch}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    for version in ["v1", "v1beta1"] {
        let (object, list) = (partial("PartialObjectMetadata", version), partial("PartialObjectMetadataList", version));
        let got = pair.get(&one, &object).await;
        assert!(got.contains("PartialObjectMetadata") && !got.contains("data\":{\"back"), "{got}");
        for query in ["labelSelector=app", "limit=1&labelSelector=app", "fieldSelector=metadata.name%3Dother"] {
            let path = format!("{maps}?{query}").replace("other", "other%40east");
            pair.get(&path, &list).await;
        }
        pair.get(&watch, &object).await;
        let events = pair.get(&initial, &object).await;
        assert!(events.contains("initial-events-end") && events.contains("\"BOOKMARK\""), "{events}");
        // A form for lists: the stream ends at its first event.
        assert_eq!(pair.get(&watch, &list).await, "");
    }
    // The clause that does not fit is passed over, the one that is no conversion of this kind too.
    pair.get(&one, &format!("{},application/json", partial("Nonsense", "v1"))).await;
    pair.get(
        &one,
        &format!("{},application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;q=0.5", partial("Table", "v2")),
    )
    .await;
    metadata_of_custom_resources(&pair).await;
    kube_reads_metadata(&pair).await;
}

/// A custom resource keeps the order of its own keys, and clients do not care.
async fn metadata_of_custom_resources(pair: &Pair) {
    let gadgets = &pair.gadgets;
    let (one, all) = (format!("{gadgets}/cog%40east"), format!("{gadgets}?labelSelector=app"));
    for (path, kind) in [(one, "PartialObjectMetadata"), (all, "PartialObjectMetadataList")] {
        let accept = partial(kind, "v1");
        let (theirs, ours) = pair.both(&Method::GET, &path, &[(header::ACCEPT, &accept)], "").await;
        let json = |answer: &Answer| serde_json::from_str::<Value>(&normal(&answer.body)).unwrap();
        assert_eq!(json(&ours), json(&theirs), "{path}");
    }
}

/// What kube-rs' metadata watcher is made of.
async fn kube_reads_metadata(pair: &Pair) {
    let config = Kubeconfig::read_from(pair.fleet.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let maps = kube::Api::<ConfigMap>::namespaced(Client::try_from(config).unwrap(), &pair.namespace);
    let list = maps.list_metadata(&ListParams::default().labels("app=web")).await.unwrap();
    let names: Vec<_> = list.items.iter().map(|item| item.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["other@east", "texts@east"]);
    assert_eq!(maps.get_metadata("texts@east").await.unwrap().metadata.labels.unwrap()["app"], "web");
    let params = WatchParams::default().labels("app=web").timeout(10);
    let mut events = maps.watch_metadata(&params, "0").await.unwrap().boxed();
    for name in ["other@east", "texts@east"] {
        let event = timeout(SOON, events.next()).await.unwrap().unwrap().unwrap();
        assert!(matches!(&event, WatchEvent::Added(item) if item.metadata.name.as_deref() == Some(name)), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn yaml_and_indented_json_are_those_of_a_kube_apiserver() {
    let pair = pair(Testbed::shared(&["east"]).await, "yaml").await;
    let Pair { maps, gadgets, .. } = &pair;
    let (one, all) = (format!("{maps}/texts%40east"), format!("{maps}?labelSelector=app"));
    let cog = format!("{gadgets}/cog%40east");
    for path in [&one, &all, &cog] {
        for accept in
            ["application/yaml", "application/yaml,application/json", "application/json;pretty=1", "*/*;q=0.1"]
        {
            pair.get(path, accept).await;
        }
        for query in ["pretty=1", "pretty=true", "pretty=false", "pretty=0", "pretty=", "pretty=x"] {
            let path = format!("{path}{}{query}", if path.contains('?') { '&' } else { '?' });
            pair.get(&path, "application/json").await;
            for agent in ["curl/8.0", "Wget/1", "Mozilla/5.0 (X11)", "kubectl/v1.36.3"] {
                pair.same(&Method::GET, &path, &[(header::USER_AGENT, agent)], "").await;
            }
        }
    }
    let of_list = format!("{};pretty=1", partial("PartialObjectMetadataList", "v1"));
    pair.get(&all, &of_list).await;
    pair.get(&all, &of_list.replace("json", "yaml")).await;
    // Of an empty list, too.
    pair.get(&format!("{maps}?labelSelector=none"), "application/yaml").await;
    pair.get(&format!("{maps}?labelSelector=none&pretty=1"), "application/json").await;
    writes_take_and_give_yaml(&pair).await;
}

async fn writes_take_and_give_yaml(pair: &Pair) {
    let Pair { maps, .. } = pair;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: NAME\ndata:\n  a: \"yes\"\n  b: |\n    x\n    y\n";
    let of = [(header::CONTENT_TYPE, "application/yaml"), (header::ACCEPT, "application/yaml")];
    let path = format!("{maps}?fieldManager=me");
    let theirs = ask(&pair.theirs, &Method::POST, &path, &of, &yaml.replace("NAME", "one")).await;
    let ours = ask(&pair.ours, &Method::POST, &path, &of, &yaml.replace("NAME", "two@east")).await;
    assert_eq!((ours.status, heads(&ours)), (theirs.status, heads(&theirs)), "{ours}");
    let read = |answer: &Answer| serde_saphyr::from_str::<Value>(std::str::from_utf8(&answer.body).unwrap()).unwrap();
    assert_eq!(read(&ours)["data"], read(&theirs)["data"]);
    assert_eq!(read(&ours)["metadata"]["name"], "two@east");
    // Refused before anything is made.
    let accept = [(header::CONTENT_TYPE, "application/json"), (header::ACCEPT, "application/json;as=Nonsense")];
    let body = config_map("three@east", json!({})).to_string();
    let ours = ask(&pair.ours, &Method::POST, maps, &accept, &body).await;
    assert_eq!(ours.status, 406, "{ours}");
    assert_eq!(pair.ours.request(Method::GET, &format!("{maps}/three%40east"), "").await.status, 404);
    // Metadata alone, of what was made.
    let as_metadata = partial("PartialObjectMetadata", "v1");
    let accept = [(header::CONTENT_TYPE, "application/json"), (header::ACCEPT, as_metadata.as_str())];
    let ours = ask(&pair.ours, &Method::POST, maps, &accept, &body).await;
    assert_eq!((ours.status.as_u16(), &ours.json()["kind"]), (201, &json!("PartialObjectMetadata")), "{ours}");
    assert_eq!(ours.json()["metadata"]["name"], "three@east");
}

#[tokio::test(flavor = "multi_thread")]
async fn media_types_are_refused_as_a_kube_apiserver_refuses_them() {
    let pair = pair(Testbed::shared(&["east"]).await, "media-types").await;
    let Pair { maps, gadgets, .. } = &pair;
    let watch = "watch=1&timeoutSeconds=1";
    let (get, post, put, patch, delete) = (Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    let accepts = [
        "text/html",
        "application/cbor",
        "application/*",
        "*",
        "bad",
        "application/json;stream=other",
        "application/json;as=Nonsense;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v2",
        "application/json;sv=v2",
        "application/yaml;stream=watch",
        "application/cbor,application/json",
        "application/json;q=0",
        "application/json;stream=watch",
        "application/json;sv=v1",
    ];
    for all in [maps, gadgets] {
        let one = if all == maps { format!("{all}/texts%40east") } else { format!("{all}/cog%40east") };
        for accept in accepts {
            for path in [format!("{all}?labelSelector=none"), format!("{all}?labelSelector=none&{watch}"), one.clone()]
            {
                let custom_list = all == gadgets && path.contains("none");
                let (theirs, ours) = pair.both(&get, &path, &[(header::ACCEPT, accept)], "").await;
                if theirs.status.is_client_error() || !custom_list {
                    assert_eq!(normal(&ours.body), normal(&theirs.body), "{path} {accept}");
                }
            }
        }
        for content_type in ["text/html", "application/cbor", "application/xml; charset=utf-8", "json"] {
            for (method, path) in [(&post, all), (&patch, &one)] {
                pair.same(method, path, &[(header::CONTENT_TYPE, content_type)], "{}").await;
            }
        }
        for content_type in ["application/json", "application/yaml", "application/strategic-merge-patch+jso"] {
            pair.same(&patch, &one, &[(header::CONTENT_TYPE, content_type)], "{}").await;
        }
        // A write that is refused for its answer's sake.
        pair.same(&post, all, &[(header::ACCEPT, "text/html"), (header::CONTENT_TYPE, "application/json")], "{}").await;
        pair.same(&put, &one, &[(header::ACCEPT, "text/html")], "{}").await;
        pair.same(&delete, &one, &[(header::ACCEPT, "text/html")], "").await;
    }
    // Forms that do not fit, and failures in the form that was asked for.
    let (object, list) = (partial("PartialObjectMetadata", "v1"), partial("PartialObjectMetadataList", "v1"));
    pair.get(maps, &object).await;
    pair.get(&format!("{maps}/texts%40east"), &list).await;
    pair.get("/apis/rbac.authorization.k8s.io/v1/clusterroles", &object).await;
    pair.get("/apis/events.k8s.io/v1/events", &object).await;
    pair.get(gadgets, &object).await;
    for accept in ["application/yaml", "application/json;pretty=1", &object, "application/yaml;as=Table", "text/html"] {
        pair.get(&format!("{maps}/nope"), accept).await;
        pair.get(&format!("{maps}?resourceVersionMatch=Exact"), accept).await;
        pair.get("/api/v1/foos", accept).await;
    }
    for path in [maps, gadgets] {
        pair.get(&format!("{path}?{watch}"), "application/yaml").await;
        pair.get(&format!("{path}?{watch}"), "application/yaml,application/json").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_large_is_compressed_as_a_kube_apiserver_does() {
    let pair = pair(Testbed::shared(&["east"]).await, "compressed").await;
    let Pair { maps, .. } = &pair;
    let big =
        |name: &str, kib: usize| config_map(name, json!({"text": "kubefold ".repeat(kib << 10).get(..kib << 10)}));
    create_all(&pair.theirs, maps, &[big("big", 200), big("half", 100), big("third", 60)]).await;
    eventually(SOON, async || {
        let seen = pair.ours.request(Method::GET, &format!("{maps}/third%40east"), "").await;
        if seen.status.is_success() { Ok(()) } else { Err(seen) }
    })
    .await;
    let list = format!("{maps}?labelSelector=app");
    let watch = format!("{list}&watch=1&timeoutSeconds=1");
    for path in
        [&list, &watch, &format!("{maps}/big%40east"), &format!("{maps}/half%40east"), &format!("{list}&limit=2")]
    {
        for encodings in ["gzip", "deflate, gzip", "gzip;q=1.0", "deflate", "*"] {
            for accept in ["application/json", "application/yaml", "application/json;pretty=1"] {
                if path == &watch && accept == "application/yaml" {
                    continue;
                }
                let headers = [(header::ACCEPT, accept), (header::ACCEPT_ENCODING, encodings)];
                let (theirs, ours) = pair.both(&Method::GET, path, &headers, "").await;
                let (theirs, ours) = (without_token(&normal(&plain(&theirs))), without_token(&normal(&plain(&ours))));
                assert!(ours == theirs, "{path} {headers:?}: {} and {} bytes", ours.len(), theirs.len());
            }
        }
    }
    let headers = [(header::ACCEPT_ENCODING, "gzip")];
    let told = ask(&pair.ours, &Method::GET, &list, &headers, "").await;
    assert!(told.headers.contains_key(header::CONTENT_ENCODING) && told.body.len() < 64 << 10, "{:?}", told.headers);
    // Large and small answers in turn on one connection, whose frames are gathered.
    let http2 = Api::over_http2(&pair.fleet.kubeconfig()).await;
    let asked = [list.clone(), format!("{maps}/texts%40east")].into_iter().cycle().take(40).enumerate();
    join_all(asked.map(async |(at, path)| {
        let accept = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"][at % 3];
        for encodings in ["identity", "gzip"] {
            let headers = [(header::ACCEPT, accept), (header::ACCEPT_ENCODING, encodings)];
            let over_1 = ask(&pair.ours, &Method::GET, &path, &headers, "").await;
            let over_2 = ask(&http2, &Method::GET, &path, &headers, "").await;
            assert!(plain(&over_1) == plain(&over_2), "{path} {headers:?}");
            assert_eq!(over_1.headers.get(header::CONTENT_ENCODING), over_2.headers.get(header::CONTENT_ENCODING));
        }
    }))
    .await;
}

fn plain(answer: &Answer) -> Vec<u8> {
    if !answer.headers.contains_key(header::CONTENT_ENCODING) {
        return answer.body.to_vec();
    }
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&*answer.body).read_to_end(&mut out).expect("gzip");
    out
}

/// kubefold says how far it came before each end of a watch, a kube-apiserver not of one that lasts a second.
fn until_bookmark(text: &str) -> String {
    let Some(at) = text.find("\"BOOKMARK\"") else { return text.to_owned() };
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    text[..end].to_owned()
}

/// A page's token is each server's own.
fn without_token(text: &str) -> String {
    let Some(at) = text.find("continue") else { return text.to_owned() };
    let end = text[at..].find(['\n', ',']).map_or(text.len(), |end| at + end);
    [&text[..at], &text[end..]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_paths_of_old_are_those_of_a_kube_apiserver() {
    // Its own, since it asks for what is in all namespaces.
    let pair = pair(Testbed::start(&["east"], MemberOptions::default()).await, "shop").await;
    let seconds = "timeoutSeconds=1";
    for path in [
        format!("/api/v1/watch/namespaces/shop/configmaps?labelSelector=app&{seconds}"),
        format!("/api/v1/watch/configmaps?watch=false&labelSelector=app&{seconds}"),
        format!("/api/v1/watch/namespaces/shop/configmaps/texts%40east?{seconds}"),
        format!("/api/v1/watch/namespaces/shop/configmaps/nope?{seconds}"),
        format!("/api/v1/watch/namespaces/shop/configmaps/texts%40east?{seconds}&fieldSelector=metadata.name%3Dother"),
        format!(
            "/api/v1/watch/namespaces/shop/configmaps/texts%40east?{seconds}&fieldSelector=metadata.namespace%3Dshop"
        ),
        format!("/apis/e2e.kubefold.io/v1/watch/namespaces/shop/gadgets?{seconds}"),
        format!("/apis/apps/v1/watch/deployments?{seconds}"),
        "/api/v1/watch/namespaces/shop/pods/a/status".to_owned(),
        "/api/v1/watch/foos".to_owned(),
    ] {
        pair.get(&path, "application/json").await;
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::HEAD] {
        let path = "/api/v1/watch/namespaces/shop/configmaps";
        pair.same(&method, path, &[(header::CONTENT_TYPE, "application/json")], "{}").await;
    }
}

/// A WebSocket to an API server, as the admin of a kubeconfig.
async fn dial(kubeconfig: &Path, path: &str, more: &[(&str, &str)]) -> Result<Socket, tungstenite::Error> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let address = config.cluster_url.authority().unwrap().to_string();
    let tcp = TcpStream::connect(&address).await.unwrap();
    let tls = TlsConnector::from(std::sync::Arc::new(config.rustls_client_config().unwrap()));
    let host = config.cluster_url.host().unwrap().to_owned();
    let stream = tls.connect(ServerName::try_from(host).unwrap(), tcp).await.unwrap();
    let mut request = format!("wss://{address}{path}").into_client_request().unwrap();
    for (name, value) in more {
        request.headers_mut().insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    let (socket, response) = Box::pin(client_async(request, stream)).await?;
    Ok(Socket { socket, headers: response.headers().clone() })
}

struct Socket {
    socket: WebSocketStream<TlsStream<TcpStream>>,
    headers: HeaderMap,
}

impl Socket {
    async fn next(&mut self) -> Message {
        timeout(SOON, self.socket.next()).await.expect("a message").expect("an open stream").expect("a sound stream")
    }

    /// All texts up to the end, and how it ended.
    async fn rest(&mut self) -> (Vec<String>, Option<CloseCode>) {
        let mut texts = Vec::new();
        loop {
            match self.next().await {
                Message::Text(text) => texts.push(normal(text.as_bytes())),
                Message::Close(frame) => return (texts, frame.map(|frame| frame.code)),
                other => panic!("{other:?}"),
            }
        }
    }
}

const ORIGIN: (&str, &str) = ("origin", "http://localhost:4466");
const HEADLAMP: (&str, &str) = ("sec-websocket-protocol", "base64.binary.k8s.io");

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_over_a_websocket_is_that_of_a_kube_apiserver() {
    let pair = pair(Testbed::shared(&["east"]).await, "sockets").await;
    let Pair { maps, .. } = &pair;
    let (theirs, ours) = (pair.bed["east"].kubeconfig(), pair.fleet.kubeconfig());
    let watch = format!("{maps}?watch=1&labelSelector=app&timeoutSeconds=2");
    let legacy = "/api/v1/watch/namespaces/sockets/configmaps?labelSelector=app&timeoutSeconds=1";
    let metadata = partial("PartialObjectMetadata", "v1");
    for (path, headers) in [
        (watch.as_str(), vec![ORIGIN, HEADLAMP]),
        (&watch, vec![ORIGIN]),
        (&watch, vec![ORIGIN, ("accept", &metadata)]),
        (&watch, vec![("origin", "/x")]),
        (legacy, vec![ORIGIN, HEADLAMP]),
    ] {
        let (mut said, mut told) =
            (dial(&theirs, path, &headers).await.unwrap(), dial(&ours, path, &headers).await.unwrap());
        let protocol = |socket: &Socket| socket.headers.get(header::SEC_WEBSOCKET_PROTOCOL).cloned();
        assert_eq!(protocol(&told), protocol(&said), "{path} {headers:?}");
        let (said, told) = (said.rest().await, told.rest().await);
        assert_eq!(told, said, "{path} {headers:?}");
        assert!(told.0.iter().all(|text| text.ends_with('\n')));
        assert_eq!(told.1, Some(CloseCode::Normal));
    }
    for (path, headers) in [
        (watch.as_str(), vec![]),
        (&watch, vec![("origin", "null")]),
        (&watch, vec![ORIGIN, ("sec-websocket-protocol", "a, b")]),
        (&watch, vec![ORIGIN, ("sec-websocket-version", "8")]),
        ("/api/v1/namespaces/sockets/foos?watch=1", vec![ORIGIN]),
        (&format!("{maps}?watch=1&labelSelector=a%3Db%3Dc"), vec![ORIGIN]),
        (&watch, vec![ORIGIN, ("accept", "application/yaml")]),
        // Not a watch: the wish is passed over.
        (maps, vec![ORIGIN]),
    ] {
        let refused = async |config: &Path| match dial(config, path, &headers).await.err() {
            Some(tungstenite::Error::Http(response)) => response.status(),
            other => panic!("{path} {headers:?}: {other:?}"),
        };
        assert_eq!(refused(&ours).await, refused(&theirs).await, "{path} {headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_follows_three_clusters_over_a_websocket() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    for member in bed.members() {
        namespace(member, "dashboard").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let maps = "/api/v1/namespaces/dashboard/configmaps";
    let path = format!("{maps}?watch=1&labelSelector=app");
    let mut socket = dial(&fleet.kubeconfig(), &path, &[ORIGIN, HEADLAMP]).await.unwrap();
    for member in bed.members() {
        member.api().await.create(maps, &config_map("settings", json!({}))).await;
        let Message::Text(text) = socket.next().await else { panic!("an event") };
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["metadata"]["name"], format!("settings@{}", member.name()));
    }
    // A ping is answered while the watch is quiet, and a client's own words change nothing.
    socket.socket.send(Message::Text("hello".into())).await.unwrap();
    socket.socket.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
    assert_eq!(socket.next().await, Message::Pong(Bytes::from_static(b"there?")));
    // A client that leaves is let go with a word.
    socket.socket.close(None).await.unwrap();
    assert!(matches!(socket.next().await, Message::Close(_)));
    // kubefold's own end is a clean one, too.
    let mut socket = dial(&fleet.kubeconfig(), &path, &[ORIGIN]).await.unwrap();
    assert!(matches!(socket.next().await, Message::Text(_)));
    assert!(fleet.terminate(SOON).await.success());
    let (_, closed) = socket.rest().await;
    assert_eq!(closed, Some(CloseCode::Normal));
}

/// A list that selects one object has it as a get of it has it: in each form, of a placed object, a shared one and a member's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_one_object_has_it_as_its_get() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    let labelled = |kind: &str, name: &str, spec: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": {"one": name}}});
        object.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        object
    };
    api.create("/api/v1/namespaces", &labelled("Namespace", "alone", json!({}))).await;
    let below = "/api/v1/namespaces/alone";
    let deployments = "/apis/apps/v1/namespaces/alone/deployments";
    api.create(&format!("{below}/configmaps"), &labelled("ConfigMap", "placed", json!({"data": {"a": "1"}}))).await;
    let mut web = testbed::samples::deployment("web", 3);
    web["metadata"]["labels"] = json!({"one": "web"});
    api.create(deployments, &web).await;
    let own = labelled("ConfigMap", "own", json!({"data": {"a": "1"}}));
    bed["west"].api().await.create(&format!("{below}/configmaps"), &own).await;
    eventually(SOON, async || {
        let answer = api.request(Method::GET, &format!("{below}/configmaps/own%40west"), "").await;
        answer.status.is_success().then_some(()).ok_or(answer)
    })
    .await;
    let maps = format!("{below}/configmaps");
    fields_that_stand_twice(&api, &maps).await;
    what_strictness_forbids(&api, &bed["west"].api().await, deployments).await;
    for (collection, name, label) in [
        (maps.as_str(), "placed", "placed"),
        (&maps, "own%40west", "own"),
        (deployments, "web", "web"),
        ("/api/v1/namespaces", "alone", "alone"),
    ] {
        let forms = [
            ("application/json".to_owned(), "application/json".to_owned()),
            (partial("PartialObjectMetadata", "v1"), partial("PartialObjectMetadataList", "v1")),
            (metadata_client("PartialObjectMetadata"), metadata_client("PartialObjectMetadataList")),
        ];
        for (object, list) in forms {
            let read = async |path: String, accept: &str| {
                let answer = ask(&api, &Method::GET, &path, &[(header::ACCEPT, accept)], "").await;
                assert!(answer.status.is_success(), "{answer}");
                serde_json::from_str::<Value>(&protobuf::lines(&answer).concat()).unwrap()
            };
            let mut got = read(format!("{collection}/{name}"), &object).await;
            if !object.starts_with("application/json;as=Partial") {
                // Items of a list do not say their type: the list does.
                let fields = got.as_object_mut().unwrap();
                fields.retain(|field, _| field != "kind" && field != "apiVersion");
            }
            for query in [format!("fieldSelector=metadata.name%3D{name}"), format!("labelSelector=one%3D{label}")] {
                let listed = read(format!("{collection}?{query}"), &list).await;
                assert_eq!(listed["items"], json!([got]), "{collection}?{query} {list}");
            }
        }
    }
}

/// What is unknown is told with what stands twice, in the words of a member.
async fn what_strictness_forbids(api: &Api, member: &Api, deployments: &str) {
    let mut body = testbed::samples::deployment("strict", 1).to_string();
    body = body.replacen("\"replicas\":1", "\"colour\":\"red\",\"replicas\":2,\"replicas\":1", 1);
    let path = format!("{deployments}?fieldValidation=Strict&dryRun=All");
    let headers = [(header::CONTENT_TYPE, "application/json")];
    let [ours, theirs] = [api, member].map(async |api| ask(api, &Method::POST, &path, &headers, &body).await.json());
    let (ours, theirs) = (ours.await, theirs.await);
    assert_eq!(ours["message"], theirs["message"]);
    assert!(ours["message"].as_str().unwrap().contains("unknown field \"spec.colour\", duplicate field"), "{ours}");
}

/// The fields of a body of an object with several parts are read as those of one with one.
async fn fields_that_stand_twice(api: &Api, maps: &str) {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice}\ndata:\n  a: x\n  a: z\n";
    let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"twice"},"data":{"a":"x","a":"z"}}"#;
    for (media, body, sentence) in [
        ("application/yaml", yaml, "line 6: key \"a\" already set in map"),
        ("application/json", json, "duplicate field \"data.a\""),
    ] {
        let headers = [(header::CONTENT_TYPE, media), (header::ACCEPT, "application/json")];
        let strict = format!("{maps}?fieldValidation=Strict");
        let refused = ask(api, &Method::POST, &strict, &headers, body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused}");
        assert!(refused.json()["message"].as_str().unwrap().contains(sentence), "{refused}");
        let made = ask(api, &Method::POST, &format!("{maps}?dryRun=All"), &headers, body).await;
        assert_eq!(made.ok()["data"], json!({"a": "z"}), "the last counts");
        assert_eq!(made.warnings(), [format!("299 - \"{}\"", sentence.replace('"', "\\\""))]);
        let quiet = ask(api, &Method::POST, &format!("{maps}?dryRun=All&fieldValidation=Ignore"), &headers, body).await;
        assert!(quiet.status.is_success() && quiet.warnings().is_empty(), "{quiet}");
    }
}
