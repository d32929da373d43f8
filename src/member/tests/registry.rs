//! Health, identity and reloads, over whole registries.

use super::*;
use crate::config::Config;

pub(super) fn registry() -> Registry {
    Registry::new(TaskTracker::new(), CancellationToken::new())
}

pub(super) fn fleet(members: Vec<MemberConfig>) -> Config {
    Config::of(members)
}

pub(super) fn eager(mut config: MemberConfig) -> MemberConfig {
    config.deadlines.probe = Duration::from_millis(20);
    config
}

pub(super) async fn until(member: &Member, wanted: impl FnMut(&Health) -> bool) -> Health {
    member.health_changes().wait_for(wanted).await.unwrap().clone()
}

#[tokio::test]
async fn a_member_becomes_ready_degrades_and_goes_down() {
    let fake = Fake::http2(mirror()).await;
    let registry = registry();
    registry.apply(&fleet(vec![eager(fake.config("east"))])).unwrap();
    let member = registry.get("east").unwrap();
    assert_eq!(member.health(), Health::Unknown);
    until(&member, |health| *health == Health::Ready).await;
    assert!(member.tried() && registry.all_tried());
    assert_eq!(member.cluster_uid().as_deref(), Some(fake.state.uid.lock().as_str()));

    fake.state.ready.store(500, Ordering::Relaxed);
    let degraded = until(&member, |health| matches!(health, Health::Degraded { .. })).await;
    assert_eq!(degraded.cause().unwrap().as_ref(), "not ready (500): etcd");
    assert!(member.send(own("/x"), Class::Read).await.is_ok(), "it is still asked");

    drop(fake);
    let down = until(&member, Health::is_down).await;
    assert_eq!(down.cause().unwrap().as_ref(), "connection refused");
    assert_eq!(member.describe(), "east is down (for 0s): connection refused");
    let refused = pass_body(&member, &jane(), get("/"), "/x").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(refused).await.contains("member east: down (for 0s): connection refused"));
}

#[tokio::test]
async fn another_cluster_behind_the_name_is_another_incarnation() {
    let fake = Fake::http2(mirror()).await;
    let registry = registry();
    registry.apply(&fleet(vec![eager(fake.config("east"))])).unwrap();
    let member = registry.get("east").unwrap();
    until(&member, |health| *health == Health::Ready).await;
    assert_eq!(member.incarnation(), 1);
    *fake.state.uid.lock() = "replaced".into();
    // It was away meanwhile, so it is asked again.
    fake.state.ready.store(503, Ordering::Relaxed);
    until(&member, |health| matches!(health, Health::Degraded { .. })).await;
    fake.state.ready.store(200, Ordering::Relaxed);
    until(&member, |health| *health == Health::Ready).await;
    assert_eq!((member.incarnation(), member.cluster_uid().as_deref()), (2, Some("replaced")));
}

#[tokio::test]
async fn the_second_of_two_members_that_are_one_cluster_is_not_served() {
    let (east, west) = (Fake::http2(mirror()).await, Fake::http2(mirror()).await);
    *west.state.uid.lock() = east.state.uid.lock().clone();
    let registry = registry();
    let both = vec![eager(east.config("east")), eager(west.config("west"))];
    registry.apply(&fleet(both.clone())).unwrap();
    let (first, second) = (registry.get("east").unwrap(), registry.get("west").unwrap());
    let down = until(&second, Health::is_down).await;
    assert_eq!(down.cause().unwrap().as_ref(), "same cluster as east");
    until(&first, |health| *health == Health::Ready).await;
    assert!(first.usable() && !second.usable());
    assert!(second.send(own("/x"), Class::Read).await.is_err());

    registry.apply(&fleet(both[1..].to_vec())).unwrap();
    until(&second, |health| *health == Health::Ready).await;
    assert!(second.usable());
    assert!(first.removed().is_cancelled());
}

#[tokio::test]
async fn a_reload_keeps_what_it_does_not_change() {
    let (fake, other) = (Fake::http2(mirror()).await, Fake::http2(mirror()).await);
    let registry = registry();
    let mut changes = registry.changes();
    registry.apply(&fleet(vec![eager(fake.config("east")), eager(other.config("west"))])).unwrap();
    changes.changed().await.unwrap();
    let east = registry.get("east").unwrap();
    until(&east, |health| *health == Health::Ready).await;

    let mut heavier = eager(fake.config("east"));
    heavier.weight = crate::config::Weight(5);
    registry.apply(&fleet(vec![eager(other.config("west")), heavier.clone()])).unwrap();
    changes.changed().await.unwrap();
    let kept = registry.get("east").unwrap();
    assert!(Arc::ptr_eq(&east, &kept));
    assert_eq!(kept.config().weight, heavier.weight);
    assert_eq!((kept.health(), kept.incarnation()), (Health::Ready, 1));
    let names: Vec<_> = registry.members().iter().map(|member| member.name().to_string()).collect();
    assert_eq!(names, ["west", "east"]);

    // Somewhere else now: the same member, but nothing that was read counts.
    let third = Fake::http2(mirror()).await;
    let mut ended = east.send(own("/x"), Class::Watch).await.unwrap().into_body();
    registry.apply(&fleet(vec![eager(third.config("east"))])).unwrap();
    while ended.frame().await.is_some_and(|frame| frame.is_ok()) {}
    let mut incarnations = east.incarnations();
    incarnations.wait_for(|incarnation| *incarnation >= 2).await.unwrap();
    until(&east, |health| *health == Health::Ready).await;
    assert_eq!(east.cluster_uid().as_deref(), Some(third.state.uid.lock().as_str()));
    assert_eq!(east.id(), kept.id());
}

#[tokio::test]
async fn a_watch_over_http1_ends_with_its_members_health() {
    let fake = Fake::http1(watch()).await;
    let mut config = eager(fake.config("east"));
    config.deadlines.connect = Duration::from_millis(500);
    let registry = registry();
    registry.apply(&fleet(vec![config])).unwrap();
    let member = registry.get("east").unwrap();
    until(&member, |health| *health == Health::Ready).await;
    let mut watch = member.send(own("/x?watch=1"), Class::Watch).await.unwrap().into_body();
    fake.state.ready.store(0, Ordering::Relaxed);
    let end = watch.frame().await.unwrap();
    assert!(end.is_err(), "{end:?}");
    assert_eq!(until(&member, Health::is_down).await.cause().unwrap().as_ref(), "no answer in 0.5 s");
    fake.state.ready.store(200, Ordering::Relaxed);
    until(&member, |health| *health == Health::Ready).await;
}
