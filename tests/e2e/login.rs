//! Who logs in to a fleet with a token, and what he may do there: what members allow him.

use std::{path::Path, time::Duration};

use http::{Method, StatusCode};
use serde_json::json;

use testbed::{
    Api, FleetFile, Kubectl, Kubefold, Testbed, eventually,
    samples::{config_map, namespace},
};

use crate::provider::Provider;

const SOON: Duration = Duration::from_secs(60);

fn as_token(fleet: &Kubefold, home: &Path) -> Kubectl {
    Kubectl::new(&fleet.kubeconfig_of_nobody(), home)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_logs_in_by_a_token_may_do_what_members_allow() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in [east, west] {
        namespace(member, "login").await;
        member.api().await.create("/api/v1/namespaces/login/configmaps", &config_map("kept", json!({"a": "x"}))).await;
    }
    for args in [
        &["create", "role", "login", "-n", "login", "--verb=get,list,watch", "--resource=configmaps"][..],
        &["create", "rolebinding", "login", "-n", "login", "--role=login", "--group=oidc:dev", "--user=robot"],
    ] {
        east.kubectl(args).await.ok();
    }
    let mut provider = Provider::start(east).await;
    let folder = tempfile::tempdir().unwrap();
    let [configuration, tokens] = ["authentication.yaml", "tokens.csv"].map(|file| folder.path().join(file));
    std::fs::write(&configuration, provider.configuration(east)).unwrap();
    std::fs::write(&tokens, "robots-own,robot,,\n").unwrap();
    let flags =
        ["--authentication-config", configuration.to_str().unwrap(), "--token-auth-file", tokens.to_str().unwrap()];
    let fleet = Kubefold::start_with(&FleetFile::default().member(east, 1).member(west, 1), &flags).await;

    // kubectl, as a person uses it: the token is the provider's own.
    let (jane, eve) = (provider.token("jane", "dev,ops").await, provider.token("eve", "").await);
    let kubectl = as_token(&fleet, folder.path());
    let run = async |token: &str, args: &[&str]| {
        let token = format!("--token={token}");
        kubectl.run(&[args, &[token.as_str()]].concat()).await
    };
    let who = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"];
    assert_eq!(run(&jane, &who).await.ok(), r#"oidc:jane ["oidc:dev","oidc:ops","system:authenticated"]"#);
    assert_eq!(run(&eve, &who).await.ok(), r#"oidc:eve ["system:authenticated"]"#);
    assert_eq!(run("robots-own", &who).await.ok(), r#"robot ["system:authenticated"]"#);

    // What a member allows that user, and no more.
    let maps = |member: &str| format!("/clusters/{member}/api/v1/namespaces/login/configmaps");
    let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    let as_ = |token: &str| nobody.clone().with_token(token);
    for token in [jane.as_str(), "robots-own"] {
        let api = as_(token);
        let listed = api.get(&maps("east")).await;
        assert!(listed["items"].as_array().unwrap().iter().any(|item| item["metadata"]["name"] == "kept"), "{listed}");
        let refused = api.request(Method::GET, &maps("west"), "").await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
        let refused = api.request(Method::POST, &maps("east"), json!({}).to_string()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
    }
    assert_eq!(as_(&eve).request(Method::GET, &maps("east"), "").await.status, StatusCode::FORBIDDEN);

    // Nobody's tokens, and one that was changed.
    let (head, _) = jane.rsplit_once('.').unwrap();
    for token in ["robots-ow", "a.b.c", &format!("{head}.c2lnbmF0dXJl"), &format!("{head}.")] {
        let refused = as_(token).request(Method::GET, &maps("east"), "").await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{token}: {refused}");
    }

    // A token that is taken out of the file counts no longer, and kubefold goes on.
    std::fs::write(&tokens, "another,robot,,\n").unwrap();
    eventually(SOON, async || {
        let answer = as_("robots-own").request(Method::GET, &maps("east"), "").await;
        if answer.status == StatusCode::UNAUTHORIZED { Ok(()) } else { Err(answer) }
    })
    .await;
    as_("another").get(&maps("east")).await;
    assert!(!fleet.log().contains("robots-own") && !fleet.log().contains(head), "no token is in the log");
}
