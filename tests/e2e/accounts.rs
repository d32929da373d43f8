//! Controllers of members that use the fleet with the token of their own ServiceAccount.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;

use testbed::{
    Answer, Api, FleetFile, Kubefold, Member, Testbed, eventually,
    samples::{config_map, keys, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/robots/configmaps";
const BOT: &str = "system:serviceaccount:robots:bot";

/// A ServiceAccount that may do everything with config maps of its namespace.
async fn employ(member: &Member) {
    namespace(member, "robots").await;
    member.api().await.create(MAPS, &config_map("own", json!({}))).await;
    member.kubectl(&["create", "serviceaccount", "bot", "-n", "robots"]).await.ok();
    let role = ["create", "role", "bot", "-n", "robots", "--verb=*", "--resource=configmaps"];
    member.kubectl(&role).await.ok();
    bind(member, "bot", "--serviceaccount=robots:bot").await;
}

async fn bind(member: &Member, binding: &str, whom: &str) {
    member.kubectl(&["create", "rolebinding", binding, "-n", "robots", "--role=bot", whom]).await.ok();
}

/// As what is mounted into a pod.
async fn token(member: &Member) -> String {
    member.kubectl(&["create", "token", "bot", "-n", "robots"]).await.ok().trim().to_owned()
}

async fn by(fleet: &Kubefold, token: &str) -> Api {
    Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await.with_token(token)
}

async fn get(api: &Api, path: &str) -> Answer {
    api.request(Method::GET, path, "").await
}

fn sorted(answer: &Answer) -> Vec<String> {
    let mut keys = keys(&answer.ok());
    keys.sort();
    keys
}

async fn sees(api: &Api, wanted: &[&str]) -> Answer {
    eventually(SOON, async || {
        let answer = get(api, MAPS).await;
        let seen = answer.status == StatusCode::OK && sorted(&answer) == wanted;
        if seen { Ok(answer) } else { Err(answer) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_acts_in_its_own_member() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    tokio::join!(employ(east), employ(west));
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let fleet = Kubefold::start(&file).await;
    let of_east = by(&fleet, &token(east).await).await;
    let token_of_west = token(west).await;
    let of_west = by(&fleet, &token_of_west).await;
    // Equal names in two members are two accounts.
    let listed = sees(&of_east, &["robots/own@east"]).await;
    assert!(listed.warnings().iter().any(|warning| warning.contains("member west")), "{listed}");
    sees(&of_west, &["robots/own@west"]).await;
    let own = get(&of_east, &format!("{MAPS}/own@east")).await;
    assert_eq!(own.status, StatusCode::OK, "{own}");
    for foreign in [format!("{MAPS}/own@west"), format!("/clusters/west{MAPS}"), format!("/views/strict{MAPS}")] {
        let refused = get(&of_east, &foreign).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{foreign}: {refused}");
        assert!(refused.json()["message"].as_str().unwrap().contains("member east"), "{refused}");
    }
    assert_eq!(get(&of_east, &format!("/clusters/east{MAPS}")).await.status, StatusCode::OK);
    // It writes, and hears of it.
    let mut watch = of_east.watch(&format!("{MAPS}?watch=true&resourceVersion={}", revision(&listed))).await;
    let made = of_east.create(MAPS, &config_map("made@east", json!({"a": "b"}))).await;
    assert_eq!(made["metadata"]["name"], "made@east");
    let event = watch.next(SOON).await.unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["metadata"]["name"].as_str()),
        (Some("ADDED"), Some("made@east"))
    );
    let refused = of_east.request(Method::POST, MAPS, config_map("made@west", json!({})).to_string()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
    who_it_is(&of_east).await;
    what_is_no_token_of_a_member_is_nobodys(&fleet, &token_of_west).await;
    // The configuration makes it somebody in the fleet, at once and for as long as it says so.
    for member in [east, west] {
        bind(member, "robot", "--user=robot").await;
    }
    let subject = "subjects:\n- {member: west, namespace: robots, name: bot, user: robot, groups: [robots]}\n";
    fleet.configure(&file.clone().settings(subject));
    sees(&of_west, &["robots/made@east", "robots/own@east", "robots/own@west"]).await;
    assert_eq!(who(&of_west).await, json!({"username": "robot", "groups": ["robots", "system:authenticated"]}));
    fleet.configure(&file);
    sees(&of_west, &["robots/own@west"]).await;
    assert_eq!(sorted(&get(&of_east, MAPS).await), ["robots/made@east", "robots/own@east"]);
    // Its account goes, and its token with it.
    east.kubectl(&["delete", "serviceaccount", "bot", "-n", "robots"]).await.ok();
    eventually(SOON, async || {
        let answer = get(&of_east, MAPS).await;
        if answer.status == StatusCode::UNAUTHORIZED { Ok(()) } else { Err(answer) }
    })
    .await;
}

fn revision(listed: &Answer) -> String {
    listed.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

async fn who(api: &Api) -> serde_json::Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    api.request(Method::POST, path, review.to_string()).await.ok()["status"]["userInfo"].clone()
}

/// Questions about itself go to its member alone.
async fn who_it_is(api: &Api) {
    assert_eq!(who(api).await["username"], BOT);
    let may = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "resourceAttributes": {"verb": "create", "resource": "configmaps", "namespace": "robots"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(api.request(Method::POST, path, may.to_string()).await.ok()["status"]["allowed"], true);
}

async fn what_is_no_token_of_a_member_is_nobodys(fleet: &Kubefold, token: &str) {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let turned: String = signature.chars().rev().collect();
    for forged in [format!("{signed}.{turned}"), format!("{header}.{payload}."), "opaque".to_owned(), signed.to_owned()]
    {
        let answer = get(&by(fleet, &forged).await, MAPS).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{answer}");
    }
    assert!(!fleet.log().contains(token) && !fleet.log().contains(signature), "a token in a log");
}
