//! Each member's load balancer gives its part of a Service or Ingress an address, and the fleet shows all of them.

use serde_json::json;

use super::*;
use testbed::FleetFile;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";

/// What a load balancer writes into the part in its member.
async fn balanced(member: &Member, path: &str, ingress: Value) {
    let body = json!({"status": {"loadBalancer": {"ingress": ingress}}}).to_string();
    patched(&member.api().await, &format!("{path}/status"), body).await.ok();
}

async fn patched(api: &Api, path: &str, body: String) -> Answer {
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    api.send(request.body(body.into()).unwrap()).await.unwrap()
}

/// Where an object is reached.
fn addresses(object: &Value) -> Vec<String> {
    let ingress = object["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    let address =
        |entry: &Value| entry["ip"].as_str().or_else(|| entry["hostname"].as_str()).unwrap_or_default().to_owned();
    ingress.iter().map(address).collect()
}

/// Waits until a watch tells of these addresses.
async fn tells(watch: &mut Watch, wanted: &[&str]) {
    loop {
        let event = watch.next(SOON).await.expect("the watch is open");
        if addresses(&event["object"]) == wanted {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_and_an_ingress_have_the_addresses_of_all_members() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    let file = ["east", "west", "north"].iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "balanced"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "balanced"}}});
    let backend = json!({"service": {"name": "balanced", "port": {"number": 80}}});
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "balanced"},
        "spec": {"defaultBackend": backend}});
    for (all, object) in [(SERVICES, service), (INGRESSES, ingress)] {
        let made = api.create(all, &object).await;
        let (path, from) = (format!("{all}/balanced"), &made["metadata"]["resourceVersion"].as_str().unwrap());
        let query = format!("watch=true&resourceVersion={from}&fieldSelector=metadata.name%3Dbalanced");
        let mut watch = api.watch(&format!("{all}?{query}")).await;
        // The home first.
        let order: Vec<&str> = text(&made, "/metadata/annotations/kubefold.io~1clusters").split(',').collect();
        let [home, second, third] = [0, 1, 2].map(|at| &bed[order[at]]);
        balanced(third, &path, json!([{"hostname": "third.example.com"}])).await;
        tells(&mut watch, &["third.example.com"]).await;
        balanced(second, &path, json!([{"ip": "192.0.2.2"}, {"hostname": "third.example.com"}])).await;
        tells(&mut watch, &["192.0.2.2", "third.example.com"]).await;
        balanced(home, &path, json!([{"ip": "192.0.2.1"}])).await;
        let united = ["192.0.2.1", "192.0.2.2", "third.example.com"];
        tells(&mut watch, &united).await;
        assert_eq!(addresses(&api.get(&path).await), united);
        let listed = api.get(&format!("{all}?fieldSelector=metadata.name%3Dbalanced")).await;
        assert_eq!(addresses(&listed["items"][0]), united);
        // What changes beside it changes no member's addresses.
        let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
        assert_eq!(addresses(&patched(&api, &path, label).await.ok()), united);
        for (member, first) in [(home, "192.0.2.1"), (second, "192.0.2.2"), (third, "third.example.com")] {
            let part = in_member(member, &path).await.unwrap();
            assert_eq!((text(&part, "/metadata/labels/a"), &*addresses(&part)[0]), ("b", first), "{part}");
        }
        balanced(second, &path, json!([])).await;
        tells(&mut watch, &["192.0.2.1", "third.example.com"]).await;
        for member in [home, third] {
            balanced(member, &path, json!([])).await;
        }
        tells(&mut watch, &[]).await;
        // A controller of the whole fleet, where no member has one.
        for address in ["192.0.2.8", "192.0.2.9"] {
            let own = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}).to_string();
            let written = patched(&api, &format!("{path}/status"), own).await.ok();
            assert_eq!(addresses(&written), [address], "{written}");
            for member in [home, second, third] {
                assert_eq!(addresses(&in_member(member, &path).await.unwrap()), [address]);
            }
        }
        api.request(Method::DELETE, &path, "").await.ok();
    }
}
