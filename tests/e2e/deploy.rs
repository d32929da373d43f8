//! The manifests of `deploy/`, tried on a real member.

use std::{fs, path::Path};

use serde_json::json;

use testbed::{
    FleetFile, Kubefold, Member, MemberOptions, Testbed, program,
    samples::{config_map, namespace},
};

/// A credential that may only read and impersonate serves the fleet view, the member view and writes as the caller.
#[tokio::test(flavor = "multi_thread")]
async fn least_privilege_is_enough() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let mut file = FleetFile::default();
    let tokens = tempfile::tempdir().unwrap();
    for member in bed.members() {
        member.apply(include_str!("../../deploy/member-rbac.yaml")).await;
        namespace(member, "deploy").await;
        let path = "/api/v1/namespaces/deploy/configmaps";
        member.api().await.create(path, &config_map("settings", json!({}))).await;
        for account in ["kubefold-reader", "kubefold-impersonator"] {
            // Neither is anybody's administrator, or may run a command in a container.
            for what in
                [["create", "deployments"], ["get", "nodes/proxy"], ["create", "pods/exec"], ["get", "pods/log"]]
            {
                let who = format!("--as=system:serviceaccount:kubefold:{account}");
                assert!(
                    member.kubectl(&[&["auth", "can-i"], &what[..], &[&who]].concat()).await.stdout.starts_with("no")
                );
            }
        }
        // The one that reads is nobody else, and the other one reads nothing.
        let cannot = [("reader", ["impersonate", "users"]), ("impersonator", ["list", "secrets"])];
        for (account, what) in cannot {
            let who = format!("--as=system:serviceaccount:kubefold:kubefold-{account}");
            assert!(member.kubectl(&[&["auth", "can-i"], &what[..], &[&who]].concat()).await.stdout.starts_with("no"));
        }
        file = with_two_identities(file, member, tokens.path()).await;
    }
    let fleet = Kubefold::start(&file).await;
    // What it needs is what it has.
    let config = fleet.config();
    let doctor =
        tokio::process::Command::new(program()).args(["doctor", "--config"]).arg(&config).output().await.unwrap();
    let found = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.success() && !found.contains("   note   "), "{found}");
    let listed = fleet.kubectl(&["-n", "deploy", "get", "configmaps", "-o", "name"]).await;
    assert!(listed.ok().contains("configmap/settings@east") && listed.stdout.contains("configmap/settings@west"));
    fleet.kubectl(&["-n", "deploy", "create", "deployment", "web", "--image=web:1", "--replicas=2"]).await.ok();
    let parts = fleet.kubectl_in("fleet-east", &["-n", "deploy", "get", "deployment", "web", "-o", "name"]).await;
    assert_eq!(parts.ok().trim(), "deployment.apps/web");
    fleet.kubectl(&["-n", "deploy", "delete", "deployment", "web"]).await.ok();
}

/// A file with a member in which kubefold reads as one identity and acts for its callers as the other, with tokens in a folder. The
/// member has `deploy/member-rbac.yaml`.
pub(crate) async fn with_two_identities(file: FleetFile, member: &Member, folder: &Path) -> FleetFile {
    let path = |what: &str| folder.join(format!("{}.{what}", member.name()));
    let [reader, impersonator, ca_file] = ["reader", "impersonator", "ca"].map(path);
    for (account, file) in [("kubefold-reader", &reader), ("kubefold-impersonator", &impersonator)] {
        let token = member.kubectl(&["-n", "kubefold", "create", "token", account]).await;
        fs::write(file, token.ok()).unwrap();
    }
    fs::write(&ca_file, member.ca_pem()).unwrap();
    let settings = format!(
        "server: {}\ncertificateAuthority: {}\ntokenFile: {}\nimpersonatorTokenFile: {}",
        member.server_url(),
        ca_file.display(),
        reader.display(),
        impersonator.display()
    );
    file.written(member.name(), &settings)
}

/// Every field of every manifest is one that Kubernetes knows, and the pod may run where pods are restricted.
#[tokio::test(flavor = "multi_thread")]
async fn a_kube_apiserver_takes_the_manifests() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let east = &bed["east"];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
    let (base, example) = (format!("{folder}/kustomize/base"), format!("{folder}/kustomize/overlays/example"));
    // A namespace that is not there takes no dry run.
    let with = ["apply", "--server-side", "--validate=strict", "-k"];
    let applied = east.kubectl(&[&with[..], &[&example]].concat()).await;
    assert_eq!(applied.ok().lines().count(), 6, "{applied}");
    assert!(!applied.stderr.contains("Warning"), "{applied}");
    let secrets = "/api/v1/namespaces/kubefold/secrets/kubefold-fleet";
    let own = r#"{"stringData":{"clusters.yaml":"members: [{name: own, inCluster: true}]"}}"#;
    east.kubectl(&["-n", "kubefold", "patch", "secret", "kubefold-fleet", "-p", own]).await.ok();
    let before = east.api().await.get(secrets).await;
    let applied = east.kubectl(&[&with[..], &[&base, "--force-conflicts"]].concat()).await;
    assert_eq!(applied.ok().lines().count(), 5, "{applied}");
    assert_eq!(east.api().await.get(secrets).await, before, "the base leaves the Secret as it is");
    let replicas = format!("{folder}/kustomize/overlays/replicas");
    let dry = ["--dry-run=server", "--force-conflicts"];
    let taken = east.kubectl(&[&with[..], &[&replicas], &dry].concat()).await;
    assert_eq!(taken.ok().lines().count(), 5, "{taken}");
    assert!(taken.stdout.contains("poddisruptionbudget") && !taken.stderr.contains("Warning"), "{taken}");
    let rbac = format!("{folder}/member-rbac.yaml");
    let dry = east.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", &rbac]).await;
    assert_eq!(dry.ok().lines().count(), 13, "{dry}");

    let path = "/apis/apps/v1/namespaces/kubefold/deployments/kubefold";
    let deployment = east.api().await.get(path).await;
    let template = &deployment["spec"]["template"];
    let mut pod =
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!("kubefold");
    let pods = "/api/v1/namespaces/kubefold/pods?dryRun=All&fieldValidation=Strict";
    let answer = east.request(http::Method::POST, pods, pod.to_string()).await;
    assert!(answer.status.is_success() && answer.warnings().is_empty(), "{answer}");
    let (labels, selector) = (&template["metadata"]["labels"], &deployment["spec"]["selector"]["matchLabels"]);
    let service = east.api().await.get("/api/v1/namespaces/kubefold/services/kubefold").await;
    assert_eq!((labels, &service["spec"]["selector"]), (selector, selector), "the Service finds the pod");
    assert_eq!(template["spec"]["volumes"][0]["secret"]["secretName"], before["metadata"]["name"]);
}
