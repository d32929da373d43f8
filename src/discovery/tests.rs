use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::Value;

use super::*;
use crate::catalog::testdata::{EAST, FakeMember, WEST, catalog, documents, group, name};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// client-go's, from before v2beta1 went.
const CLIENT_GO: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn ask(catalog: &Arc<Catalog>, method: &str, path: &str, headers: &[(&'static str, &str)]) -> Option<Answer> {
    ask_with(catalog, method, path, headers, &StorageHashes::new()).await
}

async fn ask_with(
    catalog: &Arc<Catalog>,
    method: &str,
    path: &str,
    headers: &[(&'static str, &str)],
    hashes: &StorageHashes,
) -> Option<Answer> {
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let response = Discovery::default().handle(&method.parse().unwrap(), path, None, &headers, catalog, hashes)?;
    let (head, body) = response.into_parts();
    let body: Bytes = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Some(Answer { status: head.status.as_u16(), headers: head.headers, body })
}

async fn get(catalog: &Arc<Catalog>, path: &str, accept: &str) -> Answer {
    ask(catalog, "GET", path, &[("accept", accept)]).await.unwrap()
}

fn fleet(members: &[(&str, Option<&Value>)]) -> Arc<Catalog> {
    let inputs: Vec<_> = members.iter().map(|(member, documents)| (name(member), documents.map(catalog))).collect();
    Arc::new(Catalog::merge(&inputs))
}

/// The hashes in a list of resources.
fn hashes(document: &Value) -> StorageHashes {
    let resources = document["resources"].as_array().into_iter().flatten();
    let of = |one: &Value| Some((one["name"].as_str()?.to_owned(), one["storageVersionHash"].as_str()?.to_owned()));
    resources.filter_map(of).collect()
}

fn by_name(mut document: Value) -> Value {
    if let Some(resources) = document.get_mut("resources").and_then(Value::as_array_mut) {
        resources.sort_by_key(|resource| resource["name"].as_str().unwrap().split('/').next().unwrap().to_owned());
    }
    document
}

/// Intended differences: none.
#[tokio::test]
async fn the_aggregated_documents_of_one_member_come_back_byte_for_byte() {
    for text in [EAST, WEST] {
        let documents = documents(text);
        let fleet = fleet(&[("east", Some(&documents))]);
        for path in ["/api", "/apis"] {
            let answer = get(&fleet, path, CLIENT_GO).await;
            assert_eq!(answer.body, format!("{}\n", documents["aggregated"][path]));
            assert_eq!((answer.status, answer.header("content-type")), (200, V2));
        }
    }
}

/// Intended difference: the order of CRDs in one group-version is that of the
/// aggregated document, while a kube-apiserver's two documents each have a Go map's.
#[tokio::test]
async fn the_legacy_documents_of_one_member_come_back_byte_for_byte() {
    for text in [EAST, WEST] {
        let documents = documents(text);
        let fleet = fleet(&[("east", Some(&documents))]);
        let host = documents["legacy"]["/api"]["serverAddressByClientCIDRs"][0]["serverAddress"].as_str().unwrap();
        for (path, document) in documents["legacy"].as_object().unwrap() {
            let answer = ask_with(&fleet, "GET", path, &[("host", host)], &hashes(document)).await.unwrap();
            assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"), "{path}");
            assert_eq!(answer.header("cache-control"), "no-cache, private");
            let expected = document.clone();
            match path.as_str() {
                "/version" => assert_eq!(answer.body, serde_json::to_string_pretty(&expected).unwrap()),
                path if path.contains("example.io/") => {
                    assert_eq!(by_name(answer.json()).to_string(), by_name(expected).to_string());
                }
                path => assert_eq!(answer.body, format!("{expected}\n"), "{path}"),
            }
        }
    }
}

/// Intended difference: such a member never told the group and version of a CRD's kind where they are the list's own.
#[tokio::test]
async fn a_member_without_aggregated_discovery_gives_the_same_legacy_documents() {
    let member = FakeMember::new(WEST, false);
    let catalog = Arc::new(Catalog::merge(&[(name("west"), Some(Arc::new(member.catalog().await)))]));
    for (path, document) in documents(WEST)["legacy"].as_object().unwrap().iter().filter(|(path, _)| *path != "/api") {
        let answer = ask_with(&catalog, "GET", path, &[], &hashes(document)).await.unwrap();
        assert_eq!(answer.json().to_string(), document.to_string(), "{path}");
    }
}

#[tokio::test]
async fn several_members_are_told_as_one_server() {
    let (east, west) = (documents(EAST), documents(WEST));
    let fleet = fleet(&[("east", Some(&east)), ("west", Some(&west))]);
    let told = get(&fleet, "/apis", V2).await.json();
    let groups: Vec<&str> =
        told["items"].as_array().unwrap().iter().map(|g| g["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(groups[..2], ["apiregistration.k8s.io", "apps"]);
    assert_eq!(
        groups[19..],
        ["flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "example.io", "metrics.k8s.io"]
    );
    let example = get(&fleet, "/apis/example.io", "*/*").await.json();
    assert_eq!(example["preferredVersion"]["groupVersion"], "example.io/v1beta1");
    assert_eq!(example["versions"].as_array().unwrap().len(), 3);
    assert_eq!(get(&fleet, "/apis/example.io/v1beta1", "").await.json()["resources"][0]["namespaced"], true);
}

#[tokio::test]
async fn an_unchanged_document_is_not_sent_again_and_replicas_agree_on_its_tag() {
    let documents = documents(EAST);
    let [fleet, replica] = [0, 1].map(|_| fleet(&[("east", Some(&documents))]));
    let first = get(&fleet, "/apis", V2).await;
    let etag = first.header("etag");
    assert_eq!((first.header("vary"), first.header("cache-control")), ("Accept", "public"));
    assert!(etag.len() == 130 && etag.bytes().all(|byte| b"\"0123456789ABCDEF".contains(&byte)), "{etag}");
    let again = ask(&replica, "GET", "/apis", &[("accept", V2), ("if-none-match", etag)]).await.unwrap();
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", etag));
    let other = ask(&replica, "GET", "/api", &[("accept", V2), ("if-none-match", etag)]).await.unwrap();
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn a_new_catalog_is_told_at_once() {
    let mut documents = documents(EAST);
    let discovery = Discovery::default();
    let tag = |catalog: &Arc<Catalog>| {
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(V2))]);
        let response = discovery.handle(&Method::GET, "/apis", None, &headers, catalog, &StorageHashes::new()).unwrap();
        response.headers()[header::ETAG].clone()
    };
    let (before, same) = (fleet(&[("east", Some(&documents))]), fleet(&[("east", Some(&documents))]));
    documents["aggregated"]["/apis"]["items"].as_array_mut().unwrap().push(group("n.io", "v1", "ns", "N", "Current"));
    let after = fleet(&[("east", Some(&documents))]);
    assert_eq!(tag(&before), tag(&same));
    assert_ne!(tag(&before), tag(&after));
    assert_eq!(tag(&before), tag(&same));
}

#[tokio::test]
async fn what_a_client_cannot_take_is_refused_and_what_it_asks_first_is_given() {
    let fleet = fleet(&[("east", Some(&documents(EAST)))]);
    for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"] {
        let refused = get(&fleet, path, "application/vnd.kubernetes.protobuf").await;
        assert_eq!((refused.status, refused.json()["reason"].as_str()), (406, Some("NotAcceptable")), "{path}");
        let message = "only the following media types are accepted: application/json";
        assert_eq!(refused.json()["message"], message);
        assert_eq!(get(&fleet, path, "application/vnd.kubernetes.protobuf,application/json").await.status, 200);
    }
    let v2beta1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    assert_eq!(get(&fleet, "/apis", v2beta1).await.status, 406);
    let kind = async |accept: &str| get(&fleet, "/apis", accept).await.json()["kind"].as_str().unwrap().to_owned();
    assert_eq!(kind(&format!("{v2beta1},application/json")).await, "APIGroupList");
    assert_eq!(kind("").await, "APIGroupList");
    assert_eq!(kind(&format!("application/json,{V2}")).await, "APIGroupDiscoveryList");
    let people = ask(&fleet, "GET", "/apis/apps", &[("user-agent", "curl/8")]).await.unwrap();
    assert!(people.body.starts_with("{\n  \"kind\": \"APIGroup\",\n"));
}

#[tokio::test]
async fn unknown_paths_and_methods_get_a_status() {
    let fleet = fleet(&[("east", Some(&documents(EAST)))]);
    let missing =
        ["/apis/no.io", "/apis/no.io/v1", "/apis/apps/v9", "/api/v9", "/openapi/v2", "/openapi/v3", "/apis//v1"];
    for path in missing {
        let answer = get(&fleet, path, "*/*").await;
        assert_eq!((answer.status, answer.json()["kind"].as_str()), (404, Some("Status")), "{path}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let answer = ask(&fleet, method, "/apis", &[]).await.unwrap();
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (405, Some("MethodNotAllowed")));
    }
    for path in ["/", "/api/v1/pods", "/apis/apps/v1/deployments", "/apis/apps/v1/deployments/", "/healthz", "/apisx"] {
        assert!(ask(&fleet, "GET", path, &[]).await.is_none() && !is_discovery_path(path), "{path}");
    }
    for path in ["/api/", "/apis/", "/apis/apps/", "/apis/apps/v1/", "/version/", "/api/v1/"] {
        assert_eq!(ask(&fleet, "HEAD", path, &[]).await.unwrap().status, 200, "{path}");
    }
}

#[tokio::test]
async fn an_aggregated_api_that_never_answered_is_unavailable_not_missing() {
    let fleet = fleet(&[("east", Some(&documents(EAST)))]);
    assert_eq!(get(&fleet, "/apis/metrics.k8s.io", "*/*").await.status, 200);
    assert_eq!(get(&fleet, "/apis/metrics.k8s.io/v1beta1", "*/*").await.status, 503);
}

#[tokio::test]
async fn without_any_known_member_nothing_is_told_and_with_one_unknown_a_warning_is() {
    for path in ["/api", "/apis", "/api/v1", "/version"] {
        let answer = get(&fleet(&[("east", None), ("west", None)]), path, "*/*").await;
        assert_eq!(answer.status, 503);
        assert!(answer.json()["message"].as_str().unwrap().contains("east, west"));
    }
    let partly = fleet(&[("east", Some(&documents(EAST))), ("west", None)]);
    let answer = get(&partly, "/apis", V2).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.header("warning").starts_with("299 - \"discovery is incomplete")
            && answer.header("warning").ends_with("west\"")
    );
    assert_eq!(get(&fleet(&[("east", Some(&documents(EAST)))]), "/apis", V2).await.header("warning"), "");
}
