//! Moves that nobody orders: failover, taints that evict, and what has no room.

use super::*;

/// Three members, of which one may have more settings, and a policy for all of the namespace `default`.
fn fleet(bed: &Testbed, special: &str, settings: &str, policy: &str) -> FleetFile {
    let file = ALL.iter().fold(FleetFile::default(), |file, name| {
        file.entry(name, &bed[name].kubeconfig(), 1, if *name == special { settings } else { "" })
    });
    file.settings(&format!("policies:\n- name: apps\n  match: {{namespaces: [default]}}\n  {policy}"))
}

/// What is moved in the end is told by the shares of the parts.
async fn shares_become(stage: &Stage, expected: &[(&str, i64)]) {
    let members = stage.all();
    let members: Vec<&Member> =
        members.into_iter().filter(|member| expected.iter().any(|(name, _)| *name == member.name())).collect();
    eventually(PODS, async || {
        let mut now = shares(&members, "web").await;
        now.retain(|_, count| *count > 0);
        let wanted = split(&expected.iter().copied().filter(|(_, count)| *count > 0).collect::<Vec<_>>());
        if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_has_objects_leave_members_that_are_lost_tainted_or_full() {
    let stage = stage().await;
    let before = stage.with_web().await;
    let home = home_of(&before);
    let rest: Vec<&str> = ALL.into_iter().filter(|name| *name != home).collect();
    let lost = &stage.bed[home.as_str()];
    stage.fleet.configure(&fleet(&stage.bed, "", "", "failover: {after: 10s}"));
    lost.pause();
    shares_become(&stage, &[(rest[0], 3), (rest[1], 3)]).await;
    stage.available("web", 6).await;
    let after = eventually(PODS, async || {
        let shown = stage.shown("web").await;
        if home_of(&shown) == home { Err(shown) } else { Ok(shown) }
    })
    .await;
    assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    // Also what every member has: no write to the namespace waits for the lost member.
    stage.kubectl(&["label", "deployment/web", "configmap/settings", "team=blue"]).await.ok();
    lost.resume();
    stage.arrived().await;
    shares_become(&stage, &[(rest[0], 3), (rest[1], 3), (&home, 0)]).await;

    assert!(part(lost, "web").await.is_none(), "it was replaced");

    // A taint that nothing tolerates: what runs there goes, what every member has stays.
    let taint = "taints: [{key: retired, effect: NoExecute}]";
    stage.fleet.configure(&fleet(&stage.bed, rest[0], taint, "max: 100"));
    shares_become(&stage, &[(rest[0], 0), (rest[1], 3), (&home, 3)]).await;
    assert!(part(&stage.bed[rest[0]], "web").await.is_none(), "its member is left");
    let settings = "/api/v1/namespaces/default/configmaps/settings";
    assert!(in_member(&stage.bed[rest[0]], settings).await.is_some());

    // The taint goes, and the objects are divided over all members again.
    stage.fleet.configure(&fleet(&stage.bed, "", "", "rebalance: {every: 2s}"));
    shares_become(&stage, &[(rest[0], 2), (rest[1], 2), (&home, 2)]).await;
    stage.available("web", 6).await;
    // In one member no node takes pods any more, and those that it has are lost.
    let full = &stage.bed[rest[1]];
    let nodes = full.request(Method::GET, "/api/v1/nodes", "").await.ok();
    let node = text(&nodes["items"][0], "/metadata/name");
    full.kubectl(&["cordon", node]).await.ok();
    full.kubectl(&["delete", "pods", "--all", "--wait=false"]).await.ok();
    shares_become(&stage, &[(rest[0], 3), (rest[1], 0), (&home, 3)]).await;
    stage.available("web", 6).await;
    full.kubectl(&["uncordon", node]).await.ok();
    shares_become(&stage, &[(rest[0], 2), (rest[1], 2), (&home, 2)]).await;
    stage.arrived().await;
    let shown = stage.shown("web").await;
    assert_eq!((&shown["metadata"]["uid"], &shown["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    stage.without_web().await;
}
