//! Deletions that a member does not let kubefold carry out.

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::own::shadow::follow::Follower;

/// Waits until a ShadowResource is as it is to be; `None`: it is gone.
async fn until(process: &Process, is_so: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
    let looking = async {
        loop {
            let now = process.get().await;
            if is_so(now.as_ref()) {
                return now;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_secs(120), looking).await.expect("it is so in time")
}

fn condition<'a>(shadow: &'a Value, of: &str) -> Option<&'a Value> {
    let conditions = shadow["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == of)
}

#[tokio::test(start_paused = true)]
async fn an_item_that_kubefold_may_not_delete_is_told_and_goes_once_it_may() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    process.create(app(&[map("a", "1"), map("b", "1")])).await.unwrap();
    let ended = CancellationToken::new();
    let (registry, stores) = (process.running.registry(), crate::stores::tests::stores(&[]));
    let following =
        TaskTracker::new().spawn(Follower::run(process.shadow.clone(), stores, registry.clone(), None, ended.clone()));
    fleet.refuses_kubefold.store(true, Relaxed);
    registry.delete(&process.kind, "default", "app", &DeleteOptions::default()).await.unwrap();
    let refused = until(&process, |shadow| condition(shadow.unwrap(), "ItemsDeleted").is_some()).await.unwrap();
    let told = condition(&refused, "ItemsDeleted").unwrap();
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("Refused")), "{told}");
    let message =
        "ConfigMap default/b: kubefold cannot delete it: groups \"system:masters\" is forbidden (member east)";
    assert_eq!(told["message"], message);
    let items = states(&refused);
    assert_eq!((&items[1]["phase"], &items[0]["phase"]), (&json!("Failed"), &json!("Ready")), "{items:?}");
    assert_eq!(fleet.made().await, ["a", "b"]);
    // Told once: another try that fails in the same way is no change.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let later = process.get().await.unwrap();
    assert_eq!(later["metadata"]["resourceVersion"], refused["metadata"]["resourceVersion"]);
    fleet.refuses_kubefold.store(false, Relaxed);
    until(&process, |shadow| shadow.is_none()).await;
    assert!(fleet.made().await.is_empty());
    ended.cancel();
    following.await.unwrap();
}
