//! The manifests of `deploy/`, tried on a real member.

use std::fs;

use serde_json::json;

use crate::{
    objects::{config_map, namespace},
    support::{FleetFile, Kubefold, MemberOptions, Testbed},
};

/// A credential that may only read and impersonate serves the fleet view, the member view and writes as the caller.
#[tokio::test(flavor = "multi_thread")]
async fn least_privilege_is_enough() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let mut file = FleetFile::default();
    let tokens = tempfile::tempdir().unwrap();
    for member in bed.members() {
        member.apply(include_str!("../../deploy/member-rbac.yaml")).await;
        namespace(member, "shop").await;
        let path = "/api/v1/namespaces/shop/configmaps";
        member.api().await.create(path, &config_map("settings", json!({}))).await;
        let token = member.kubectl(&["-n", "kubefold", "create", "token", "kubefold"]).await;
        let (token_file, ca_file) = (
            tokens.path().join(format!("{}.token", member.name())),
            tokens.path().join(format!("{}.ca", member.name())),
        );
        fs::write(&token_file, token.ok()).unwrap();
        fs::write(&ca_file, member.ca_pem()).unwrap();
        // The service account is nobody's administrator.
        let admin = ["auth", "can-i", "create", "deployments", "--as=system:serviceaccount:kubefold:kubefold"];
        assert!(member.kubectl(&admin).await.stdout.starts_with("no"));
        file = file.written(
            member.name(),
            &format!(
                "server: {}\ncertificateAuthority: {}\ntokenFile: {}",
                member.server_url(),
                ca_file.display(),
                token_file.display()
            ),
        );
    }
    let fleet = Kubefold::start(&file).await;
    let listed = fleet.kubectl(&["-n", "shop", "get", "configmaps", "-o", "name"]).await;
    assert!(listed.ok().contains("configmap/settings@east") && listed.stdout.contains("configmap/settings@west"));
    fleet.kubectl(&["-n", "shop", "create", "deployment", "web", "--image=web:1", "--replicas=2"]).await.ok();
    let parts = fleet.kubectl_in("fleet-east", &["-n", "shop", "get", "deployment", "web", "-o", "name"]).await;
    assert_eq!(parts.ok().trim(), "deployment.apps/web");
    fleet.kubectl(&["-n", "shop", "delete", "deployment", "web"]).await.ok();
}
