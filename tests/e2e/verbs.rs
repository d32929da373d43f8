//! What a typed clientset of client-go, which speaks protobuf, gets of a kube-apiserver, of kubefold before it alone, and of a fleet of
//! three: each call comes to the same.

use serde_json::Value;

use testbed::{Kubectl, Kubefold, Testbed, client};

/// What each call came to, but for UIDs, the namespace, and which member says so.
async fn told(server: Kubectl, namespace: &str) -> Vec<String> {
    let said = server.by(client("verbs")).run(&[&format!("--namespace={namespace}")]).await;
    let mut lines = Vec::new();
    for line in said.ok().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if let Some(details) = line["details"].as_object_mut() {
            details.remove("uid");
        }
        let mut line = line.to_string().replace(namespace, "#");
        while let Some(at) = line.find(" (member ") {
            let end = line[at..].find(')').unwrap();
            line.replace_range(at..=at + end, "");
        }
        lines.push(line);
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_client_gets_of_a_fleet_what_it_gets_of_an_api_server() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    let wanted = told(bed["east"].as_admin(), "verbs-direct").await;
    assert!(wanted.len() > 50, "{wanted:#?}");
    for members in [&bed.members()[..1], bed.members()] {
        let fleet = Kubefold::before(members).await;
        let namespace = format!("verbs-of-{}", members.len());
        let got = told(fleet.as_admin(), &namespace).await;
        let differ = got.iter().zip(&wanted).filter(|(got, wanted)| got != wanted);
        let differ: Vec<_> = differ.map(|(got, wanted)| format!("{got}\nand of an API server\n{wanted}")).collect();
        assert!(differ.is_empty() && got.len() == wanted.len(), "{} members:\n{}", members.len(), differ.join("\n"));
    }
}
