//! A create that one member refuses, by somebody who may create and not delete.

use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// One member alone lets nothing of that name be made, but for a dry run.
const RULES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: undone}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations:
  - {expression: "request.dryRun == true || !object.metadata.name.startsWith('undone')", message: not here}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: undone}
spec: {policyName: undone, validationActions: [Deny]}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_its_creator_may_not_delete_is_taken_back_all_the_same() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let all = [&bed["east"], &bed["west"], &bed["north"]];
    let mut file = FleetFile::default();
    for member in all {
        let role = ["create", "clusterrole", "maker", "--verb=create,get,list", "--resource=configmaps"];
        member.kubectl(&role).await.ok();
        let bound = ["create", "clusterrolebinding", "maker", "--clusterrole=maker", "--user=maker"];
        member.kubectl(&bound).await.ok();
        file = file.member(member, 1);
    }
    bed["west"].apply(RULES).await;
    eventually(SOON, async || {
        let object = json!({"metadata": {"name": "undone-probe"}}).to_string();
        let answer = bed["west"].request(Method::POST, MAPS, object).await;
        if answer.status.is_success() {
            bed["west"].request(Method::DELETE, &format!("{MAPS}/undone-probe"), "").await;
            return Err(answer);
        }
        Ok(())
    })
    .await;
    let fleet = Kubefold::start(&file).await;
    let maker = Api::from_kubeconfig(&fleet.kubeconfig_for("maker", None), None).await;
    let create = async |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        maker.request(Method::POST, MAPS, object.to_string()).await
    };
    let stands = async |name: &str| {
        let mut stands = 0;
        for member in all {
            stands += usize::from(in_member(member, &format!("{MAPS}/{name}")).await.is_some());
        }
        stands
    };
    // Nobody gave kubefold's own user the right.
    let answer = create("undone-a").await;
    assert!(answer.to_string().contains("not removed yet, kubefold goes on trying"), "{answer}");
    assert!(stands("undone-a").await > 0);
    for member in all {
        member.apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    let answer = create("undone-b").await;
    assert!(answer.to_string().contains("not here") && answer.to_string().contains("removed again"), "{answer}");
    assert_eq!(stands("undone-b").await, 0);
    // What waits is tried again, after 10, 30 and 70 s.
    eventually(3 * PODS, async || if stands("undone-a").await == 0 { Ok(()) } else { Err("it stands") }).await;
}
