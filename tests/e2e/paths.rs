//! Paths that a member could read otherwise than kubefold does.

use http::{Method, StatusCode};
use serde_json::json;

use testbed::{Kubefold, Testbed, samples::namespace};

/// Whoever may write somewhere in a member's own view has the next read of the fleet view make sure of that place, with
/// kubefold's credential. The place is the one that was named.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_in_a_path_is_a_namespace() {
    let bed = Testbed::shared(&["east"]).await;
    namespace(&bed["east"], "paths").await;
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forged"}});
    bed["east"].api().await.create("/api/v1/namespaces/paths/configmaps", &map).await;
    let secrets = async |view: &str| {
        let answer = api.request(Method::GET, &format!("{view}/api/v1/secrets"), "").await;
        assert_eq!(answer.status, StatusCode::OK, "{answer}");
        answer.to_string()
    };
    secrets("").await;
    for namespace in ["paths%252Fconfigmaps%3F", "paths%252Fconfigmaps%253F", "a%20b", "%252e%252e"] {
        let path = format!("/clusters/east/api/v1/namespaces/{namespace}/secrets");
        let refused = api.request(Method::POST, &path, "{}").await;
        assert!(!refused.status.is_success(), "{namespace}: {refused}");
        for view in ["", "/views/strict"] {
            let listed = secrets(view).await;
            assert!(!listed.contains("forged"), "{namespace}: {listed}");
        }
    }
}
