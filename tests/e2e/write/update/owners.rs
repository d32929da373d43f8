//! Who has which fields, in each part as on one cluster.

use http::Method;
use serde_json::{Value, json};

use super::*;

/// The managers of a field of a part, with what each did: `Update of anna`.
fn owners(part: &Value, path: &[&str]) -> Vec<String> {
    let has = |one: &&Value| path.iter().try_fold(&one["fieldsV1"], |at, name| at.get(format!("f:{name}"))).is_some();
    let named = |one: &Value| format!("{} of {}", one["operation"].as_str().unwrap(), one["manager"].as_str().unwrap());
    part["metadata"]["managedFields"].as_array().unwrap().iter().filter(has).map(named).collect()
}

/// Who scales the whole has its number, though some parts' shares stay: an apply of another number is a conflict, and one that
/// leaves the number out leaves it alone.
pub(super) async fn rescaled(stage: &Stage) {
    let admin = stage.fleet.as_admin();
    let mut manifest = deployment("rescaled", 8);
    let apply = async |manifest: &Value, manager: &str| {
        let manager = format!("--field-manager={manager}");
        let args = ["apply", "--server-side", "-f", "-", &manager];
        admin.run_with_input(&args, &manifest.to_string()).await
    };
    apply(&manifest, "ci").await.ok();
    let before = stage.shares("rescaled").await;
    stage.kubectl(&["scale", "deployment/rescaled", "--replicas=9"]).await;
    let after = stage.shares("rescaled").await;
    assert_eq!(before.iter().filter(|(name, share)| after[*name] == **share).count(), 2, "two shares stay: {after:?}");
    manifest["spec"]["replicas"] = 11.into();
    let told = apply(&manifest, "ci").await;
    assert!(told.stderr.contains("conflict with \"kubectl\"") && told.stderr.contains(".spec.replicas"), "{told}");
    // Of a stranger's, it is the first conflict that is told: a part whose share stayed has another manager.
    let told = apply(&manifest, "cd").await;
    assert!(told.stderr.contains("Apply failed with 1 conflict") && told.stderr.contains(".spec.replicas"), "{told}");
    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    apply(&manifest, "ci").await.ok();
    assert_eq!(stage.shares("rescaled").await, after, "it was somebody else's");
    stage.kubectl(&["delete", "deployment", "rescaled"]).await;
}

/// What several writers changed while a member was away reaches it as each one's.
pub(super) async fn apart(stage: &Stage) {
    let path = format!("{DEPLOYMENTS}/web");
    let east = &stage.bed["east"];
    let by = async |manager: &str, labels: Value| {
        let path = format!("{path}?fieldManager={manager}");
        patch(&stage.api, &path, MERGE, &json!({"metadata": {"labels": labels}})).await.ok();
    };
    by("anna", json!({"back": "as-it-was"})).await;
    east.pause();
    by("anna", json!({"of-anna": "x", "shared": "x"})).await;
    by("bert", json!({"of-bert": "x", "shared": "y", "back": "other"})).await;
    by("cleo", json!({"back": "as-it-was"})).await;
    east.resume();
    let wanted = [("of-anna", "anna"), ("of-bert", "bert"), ("shared", "bert"), ("back", "cleo")];
    eventually(Duration::from_secs(90), async || {
        for member in stage.all() {
            let part = part(member, "web").await.unwrap();
            for (label, manager) in wanted {
                let is = owners(&part, &["metadata", "labels", label]);
                if is != [format!("Update of {manager}")] {
                    return Err(format!("{label} in {} is of {is:?}", member.name()));
                }
            }
        }
        Ok(())
    })
    .await;
    eventually(SOON, async || {
        let shown = stage.api.request(Method::GET, &path, "").await.ok();
        let behind = &shown["metadata"]["annotations"]["kubefold.io/behind"];
        if behind.is_null() { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}
