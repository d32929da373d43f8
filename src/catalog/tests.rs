use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    merge::shared,
    testdata::{EAST, FakeMember, WEST, catalog, documents, group, name},
    *,
};
use crate::config::{MemberName, ResourcePattern};
use kubefold_wire::resource::Gvr;

fn fleet_of(members: &[(&str, &str)]) -> Catalog {
    let inputs: Vec<_> = members.iter().map(|(member, text)| (name(member), Some(catalog(&documents(text))))).collect();
    Catalog::merge(&inputs)
}

fn both() -> Catalog {
    fleet_of(&[("east", EAST), ("west", WEST)])
}

fn words(words: &[Arc<str>]) -> Vec<&str> {
    words.iter().map(|word| &**word).collect()
}

fn members(resource: &MergedResource) -> Vec<&str> {
    resource.members.iter().map(MemberName::as_str).collect()
}

fn versions(catalog: &Catalog, group: &str) -> Vec<String> {
    catalog.group(group).unwrap().versions.iter().map(|version| version.version.to_string()).collect()
}

#[test]
fn a_resource_is_found_by_its_place_and_by_its_kind() {
    let fleet = both();
    let deployments = fleet.resource("apps", "v1", "deployments").unwrap();
    assert_eq!(deployments.gvk.to_string(), "apps/v1, Kind=Deployment");
    assert_eq!((deployments.scope, deployments.watchable), (Scope::Namespaced, true));
    assert_eq!(members(deployments), ["east", "west"]);
    assert_eq!(fleet.by_kind("apps", "v1", "Deployment").unwrap().gvr, deployments.gvr);
    assert_eq!(fleet.serving_members(&Gvr::new("", "v1", "pods")).len(), 2);
    assert!(deployments.subresource("scale").is_some() && deployments.allows("patch"));
    assert!(fleet.resource("apps", "v1", "deployments/scale").is_none() && fleet.resource("nope", "v1", "x").is_none());
    assert!(!fleet.resource("authentication.k8s.io", "v1", "tokenreviews").unwrap().watchable);
    assert!(fleet.complete() && fleet.resources().count() > 80);
}

#[test]
fn versions_of_all_members_are_served_and_a_common_one_is_preferred() {
    let fleet = both();
    assert_eq!(versions(&fleet, "storage.k8s.io"), ["v1", "v1beta1"]);
    // East has v1 and v1beta1, west v2 and v1beta1: only v1beta1 has everybody in it.
    assert_eq!(versions(&fleet, "example.io"), ["v1beta1", "v2", "v1"]);
    assert_eq!(versions(&fleet, "autoscaling"), ["v2", "v1"]);
    assert_eq!(versions(&fleet, "internal.apiserver.k8s.io"), ["v1alpha1"]);
}

#[test]
fn the_first_member_decides_scope_and_kind_and_the_others_are_absent() {
    let widgets = Gvr::new("example.io", "v1beta1", "widgets");
    for (first, second, scope) in [("east", "west", Scope::Namespaced), ("west", "east", Scope::Cluster)] {
        let text = |member: &str| if member == "east" { EAST } else { WEST };
        let fleet = fleet_of(&[(first, text(first)), (second, text(second))]);
        let merged = fleet.get(&widgets).unwrap();
        assert_eq!((merged.scope, members(merged)), (scope, vec![first]));
        assert_eq!(merged.conflicting, [name(second)]);
    }
}

#[test]
fn who_serves_only_another_version_is_named() {
    let fleet = both();
    let others = |version: &str| -> Vec<String> {
        let others = fleet.members_serving_other_version(&Gvr::new("example.io", version, "widgets"));
        others.into_iter().map(|(member, version)| format!("{member} {version}")).collect()
    };
    assert_eq!(others("v1"), ["west v2"]);
    assert_eq!(others("v2"), ["east v1beta1"]);
    // It serves this one, if with another scope.
    assert_eq!(others("v1beta1"), [""; 0]);
    assert_eq!(others("v9"), ["east v1beta1", "west v2"]);
}

#[test]
fn verbs_are_those_that_all_allow_and_names_those_that_any_gives() {
    let (mut west, widgets) = (documents(WEST), "widgets");
    let edit = |resource: &mut Value| {
        resource["scope"] = "Namespaced".into();
        resource["verbs"] = serde_json::json!(["get", "list"]);
        resource["subresources"][0]["verbs"] = serde_json::json!(["patch", "get"]);
    };
    let group = west["aggregated"]["/apis"]["items"].as_array_mut().unwrap().last_mut().unwrap();
    let found = group["versions"].as_array_mut().unwrap().iter_mut().filter(|version| version["version"] == "v1beta1");
    found.flat_map(|v| v["resources"].as_array_mut().unwrap()).filter(|r| r["resource"] == widgets).for_each(edit);
    let fleet =
        Catalog::merge(&[(name("east"), Some(catalog(&documents(EAST)))), (name("west"), Some(catalog(&west)))]);
    let merged = fleet.resource("example.io", "v1beta1", widgets).unwrap();
    assert_eq!(words(&merged.verbs), ["get", "list"]);
    assert!(!merged.watchable);
    assert_eq!(words(&merged.short_names), ["wd", "wdg"]);
    assert_eq!(words(&merged.categories), ["all", "gadgets"]);
    assert_eq!(words(&merged.subresource("status").unwrap().verbs), ["patch", "get"]);
    // The scale of v1 is east's alone.
    assert!(fleet.resource("example.io", "v1", widgets).unwrap().subresource("scale").is_some());
}

#[test]
fn a_member_never_seen_is_named_unknown_and_the_lowest_version_is_the_fleets() {
    let mut west = documents(WEST);
    west["legacy"]["/version"]["minor"] = "9+".into();
    let members =
        [(name("north"), None), (name("east"), Some(catalog(&documents(EAST)))), (name("west"), Some(catalog(&west)))];
    let fleet = Catalog::merge(&members);
    assert!(!fleet.complete());
    assert_eq!(fleet.unknown, [name("north")]);
    assert_eq!(fleet.server.unwrap().number, (1, 9, 3));
}

#[tokio::test]
async fn an_old_member_gives_the_same_catalog_in_the_older_way() {
    for text in [EAST, WEST] {
        let (newer, older) = (FakeMember::new(text, true), FakeMember::new(text, false));
        let (newer, older) = (newer.catalog().await, older.catalog().await);
        let fleet = |catalog: MemberCatalog| Catalog::merge(&[(name("east"), Some(Arc::new(catalog)))]);
        let (newer, older) = (fleet(newer), fleet(older));
        let told = |fleet: &Catalog| -> Vec<String> {
            let one = |r: &MergedResource| {
                format!("{:?}", (&r.gvr, &r.gvk, r.scope, &r.verbs, &r.short_names, &r.categories))
            };
            // CRDs of one group-version stand in either document as a Go map gave them.
            let mut told: Vec<String> = fleet.resources().map(one).collect();
            told.sort();
            told
        };
        assert_eq!(told(&older), told(&newer));
        let subresources = |fleet: &Catalog| fleet.resources().map(|r| r.subresources.len()).sum::<usize>();
        assert_eq!(subresources(&older), subresources(&newer));
    }
    let east = FakeMember::new(EAST, false).catalog().await;
    assert_eq!(east.group("metrics.k8s.io").unwrap().versions[0].freshness, Freshness::Stale);
}

/// A fleet of one polled member, on a paused clock.
async fn polled(member: &FakeMember, then: impl AsyncFnOnce(&FleetCatalogue)) {
    let (fleet, cancel, east) = (FleetCatalogue::new(vec![name("east")]), CancellationToken::new(), name("east"));
    tokio::join!(fleet.poll(&east, member, &cancel), async {
        then(&fleet).await;
        cancel.cancel();
    });
}

#[test]
fn many_members_are_polled_less_often_each() {
    let period =
        |members: usize| FleetCatalogue::new((0..members).map(|at| name(&format!("m{at}"))).collect()).poll_period();
    assert_eq!([1, 13, 200].map(|members| period(members).as_millis()), [1000, 1000, 15_000]);
}

/// Long enough for a new CRD to be served.
async fn five_seconds() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_crd_created_in_a_member_is_served_within_five_seconds_and_its_end_is_believed() {
    let member = FakeMember::new(EAST, true);
    polled(&member, async |fleet| {
        five_seconds().await;
        assert!(fleet.current().complete());
        let changes = fleet.changes();
        assert!(fleet.current().group("new.io").is_none());
        member.edit(|groups| groups.push(group("new.io", "v1", "news", "New", "Current")));
        five_seconds().await;
        assert!(fleet.current().by_kind("new.io", "v1", "New").is_some() && changes.has_changed().unwrap());
        member.edit(|groups| drop(groups.pop()));
        five_seconds().await;
        assert!(fleet.current().group("new.io").is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_member_answers_that_nothing_changed_and_nobody_is_woken() {
    let member = FakeMember::new(EAST, true);
    polled(&member, async |fleet| {
        five_seconds().await;
        let (before, changes) = (fleet.current(), fleet.changes());
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(Arc::ptr_eq(&before, &fleet.current()) && !changes.has_changed().unwrap());
    })
    .await;
    let asked = member.asked.lock();
    assert_eq!(member.not_modified.load(std::sync::atomic::Ordering::Relaxed), asked["/api"] + asked["/apis"] - 2);
    // The core group changes with the member's version.
    assert!(asked["/apis"] >= 30 && asked["/api"] <= 4 && asked["/version"] <= 4);
}

#[tokio::test(start_paused = true)]
async fn an_outage_takes_no_kind_away() {
    let member = FakeMember::new(EAST, true);
    polled(&member, async |fleet| {
        five_seconds().await;
        *member.down.lock() = true;
        five_seconds().await;
        five_seconds().await;
        let now = fleet.current();
        // What is `Stale` clients leave out, and then nobody could see the last known state.
        assert_eq!(now.version("apps", "v1").unwrap().freshness, Freshness::Current);
        assert!(now.complete() && now.resource("apps", "v1", "deployments").is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_aggregated_api_that_is_down_keeps_its_kinds() {
    let member = FakeMember::new(EAST, true);
    member.edit(|groups| groups.push(group("agg.io", "v1", "aggs", "Agg", "Current")));
    polled(&member, async |fleet| {
        five_seconds().await;
        let stale =
            serde_json::json!({"metadata": {"name": "agg.io"}, "versions": [{"version": "v1", "freshness": "Stale"}]});
        member.edit(|groups| *groups.last_mut().unwrap() = stale);
        five_seconds().await;
        let now = fleet.current();
        assert_eq!(now.version("agg.io", "v1").unwrap().freshness, Freshness::Stale);
        assert!(now.resource("agg.io", "v1", "aggs").is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_still_starting_is_not_believed_when_it_omits_kinds() {
    let member = FakeMember::new(EAST, true);
    polled(&member, async |fleet| {
        five_seconds().await;
        let whole = member.documents.lock()["aggregated"]["/apis"]["items"].clone();
        *member.ready.lock() = false;
        member.edit(Vec::clear);
        five_seconds().await;
        assert!(fleet.current().resource("apps", "v1", "deployments").is_some());
        member.edit(|groups| *groups = whole.as_array().unwrap().clone());
        *member.ready.lock() = true;
        five_seconds().await;
        assert_eq!(fleet.current().version("apps", "v1").unwrap().freshness, Freshness::Current);
    })
    .await;
}

#[tokio::test]
async fn a_reload_keeps_what_is_known_of_members_that_stay() {
    let (east, west) = (FakeMember::new(EAST, true), FakeMember::new(WEST, true));
    let fleet = FleetCatalogue::new(vec![name("east"), name("west")]);
    assert!(fleet.refresh(&name("east"), &east).await.unwrap() && fleet.refresh(&name("west"), &west).await.unwrap());
    assert!(!fleet.refresh(&name("west"), &west).await.unwrap());
    fleet.set_members(vec![name("west"), name("north")]);
    assert_eq!(fleet.current().unknown, [name("north")]);
    assert_eq!(fleet.current().resource("example.io", "v1beta1", "widgets").unwrap().scope, Scope::Cluster);
    assert!(fleet.member(&name("east")).is_none() && fleet.member(&name("west")).is_some());
    assert!(!fleet.refresh(&name("east"), &east).await.unwrap());
}

/// The attack on itself: a host that is a member shows kubefold what kubefold serves there, which would be read from it again.
#[tokio::test]
async fn what_a_host_serves_for_the_fleet_is_not_read_from_it() {
    let (east, west) = (FakeMember::new(EAST, true), FakeMember::new(WEST, true));
    let [own, named] = ["kubefold.io", "apps.example.com"];
    for member in [&east, &west] {
        member.edit(|groups| {
            groups.push(group(own, "v1alpha1", "members", "Member", "Current"));
            groups.push(group(named, "v1", "widgets", "Widget", "Current"));
        });
    }
    let names = vec![name("east"), name("west")];
    let fleet = FleetCatalogue::new(names.clone());
    let refreshed = async || {
        fleet.refresh(&name("east"), &east).await.unwrap();
        fleet.refresh(&name("west"), &west).await.unwrap();
        let now = fleet.current();
        assert!(now.group(own).is_none());
        now.resource(named, "v1", "widgets").map(|resource| resource.members.clone())
    };
    assert_eq!(refreshed().await, Some(names.clone()));
    let ignored = [(name("east"), [named.to_owned()].into())].into();
    fleet.set_members_ignoring(names.clone(), &ignored);
    assert_eq!(refreshed().await, Some(vec![name("west")]));
    fleet.set_members(names.clone());
    assert_eq!(refreshed().await, Some(names));
}

#[tokio::test]
async fn a_kind_that_appears_in_all_members_is_merged_once() {
    let names: Vec<MemberName> = (0..20).map(|at| name(&format!("m{at}"))).collect();
    let members: Vec<FakeMember> = names.iter().map(|_| FakeMember::new(EAST, true)).collect();
    let fleet = FleetCatalogue::new(names.clone());
    let refreshed = async || {
        let all = names.iter().zip(&members).map(|(name, member)| fleet.refresh(name, member));
        futures::future::join_all(all).await.into_iter().filter(|changed| *changed.as_ref().unwrap()).count()
    };
    assert_eq!(refreshed().await, 20);
    let before = (fleet.current(), *fleet.changes().borrow());
    members.iter().for_each(|member| {
        member.edit(|groups| groups.push(group("new.io", "v1", "news", "New", "Current")));
    });
    assert_eq!(refreshed().await, 20);
    assert_eq!(*fleet.changes().borrow(), before.1 + 1);
    let now = fleet.current();
    assert_eq!(now.resource("new.io", "v1", "news").unwrap().members, names);
    // What did not change is not merged again.
    assert!(std::ptr::eq(before.0.group("apps").unwrap(), now.group("apps").unwrap()));
    assert_eq!(refreshed().await, 0);
    assert!(Arc::ptr_eq(&now, &fleet.current()));
}

#[tokio::test]
async fn what_members_say_alike_is_held_once() {
    let names: Vec<MemberName> = (0..20).map(|at| name(&format!("m{at}"))).collect();
    let member = FakeMember::new(EAST, true);
    let fleet = FleetCatalogue::new(names.clone());
    for name in &names {
        fleet.refresh(name, &member).await.unwrap();
    }
    let catalog = fleet.member(&names[7]).unwrap();
    // The member's last answer, its catalog and the fleet's refer to it, of each member.
    assert_eq!(Arc::strong_count(catalog.shared_group("apps").unwrap()), 3 * names.len());
    member.edit(|groups| groups.push(group("new.io", "v1", "news", "New", "Current")));
    for name in &names {
        fleet.refresh(name, &member).await.unwrap();
    }
    let catalog = fleet.member(&names[7]).unwrap();
    assert_eq!(Arc::strong_count(catalog.shared_group("new.io").unwrap()), 3 * names.len());
    assert!(!fleet.refresh(&names[7], &member).await.unwrap(), "it says what it said");
}

#[test]
fn what_is_no_discovery_document_is_refused_and_nulls_are_none() {
    let refused = parse_aggregated(b"<html>").unwrap_err().to_string();
    assert!(refused.starts_with("it is no APIGroupDiscoveryList: "), "{refused}");
    let groups = parse_aggregated(
        br#"{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[
        {"resource":"a","scope":"Cluster","singularResource":"","verbs":null},{"resource":"a","verbs":["get"]}]}]}]}"#,
    );
    let resource = &groups.unwrap()[0].versions[0].resources;
    assert_eq!((resource.len(), resource[0].verbs.len(), resource[0].kind.clone()), (1, 0, None));
}

fn any_catalog() -> impl Strategy<Value = MemberCatalog> {
    let resource = ("[abc]", any::<bool>(), proptest::sample::subsequence(vec!["get", "list", "watch"], 0..=3));
    let version = ("v[12](beta1)?", any::<bool>(), proptest::collection::vec(resource, 0..4));
    let group = ("[xyz]?", proptest::collection::vec(version, 1..3));
    proptest::collection::vec(group, 0..4).prop_map(|groups| {
        let mut items: Vec<Value> = Vec::new();
        for (group, versions) in groups {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|(version, fresh, resources)| {
                    let resources: Vec<Value> = resources
                        .into_iter()
                        .map(|(resource, namespaced, verbs)| {
                            let scope = if namespaced { "Namespaced" } else { "Cluster" };
                            serde_json::json!({"resource": resource, "scope": scope, "verbs": verbs,
                        "responseKind": {"group": "", "version": "", "kind": resource.to_uppercase()}})
                        })
                        .collect();
                    let freshness = if fresh { "Current" } else { "Stale" };
                    serde_json::json!({"version": version, "freshness": freshness, "resources": resources})
                })
                .collect();
            items.push(serde_json::json!({"metadata": {"name": group}, "versions": versions}));
        }
        let groups = parse_aggregated(serde_json::json!({"items": items}).to_string().as_bytes()).unwrap();
        MemberCatalog { groups: groups.into_iter().map(Arc::new).collect(), server: None }
    })
}

/// Everything that a catalog says.
fn said(catalog: &Catalog) -> String {
    let group = |group: &MergedGroup| {
        let versions = group.versions.iter().map(|one| format!("{} {:?}", one.version, one.freshness));
        format!("{} {:?}", group.name, versions.collect::<Vec<_>>())
    };
    let groups: Vec<String> = catalog.groups.iter().map(|one| group(one)).collect();
    format!("{groups:?} {:?} {:?}", catalog.resources().collect::<Vec<_>>(), catalog.unknown)
}

proptest! {
    #[test]
    fn a_merge_after_another_is_as_if_there_had_been_none(
        steps in proptest::collection::vec((0..3_usize, any_catalog(), any::<bool>()), 1..8),
    ) {
        let mut inputs: Vec<(MemberName, Option<Arc<MemberCatalog>>)> =
            (0..3).map(|at| (name(&format!("m{at}")), None)).collect();
        let mut fleet = Catalog::default();
        for (at, catalog, swaps) in steps {
            inputs[at].1 = Some(Arc::new(catalog));
            if swaps {
                inputs.swap(0, 2);
            }
            fleet = fleet.merge_next(&inputs, &[], &[]);
            prop_assert_eq!(said(&fleet), said(&Catalog::merge(&inputs)));
        }
    }

    /// What members have alike is merged once, and comes to the same.
    #[test]
    fn catalogs_that_share_what_is_alike_are_merged_as_if_they_shared_nothing(
        few in proptest::collection::vec(any_catalog(), 1..4),
        of_members in proptest::collection::vec(0..4_usize, 1..9),
    ) {
        let apart = |catalog: &MemberCatalog| MemberCatalog {
            groups: catalog.groups.iter().map(|group| Arc::new((**group).clone())).collect(),
            server: None,
        };
        let catalogs: Vec<MemberCatalog> = of_members.iter().map(|at| apart(&few[at % few.len()])).collect();
        let mut sharing: Vec<MemberCatalog> = Vec::new();
        for catalog in &catalogs {
            let one = shared(catalog.clone(), sharing.iter());
            prop_assert_eq!(&one, catalog);
            for group in &one.groups {
                let alike = sharing.iter().filter_map(|other| other.shared_group(&group.name)).filter(|other| *other == group);
                prop_assert!(alike.into_iter().all(|other| Arc::ptr_eq(group, other)), "one of what is alike");
            }
            sharing.push(one);
        }
        let merged = |catalogs: Vec<MemberCatalog>| {
            let members = catalogs.into_iter().enumerate();
            let inputs: Vec<_> = members.map(|(at, one)| (name(&format!("m{at}")), Some(Arc::new(one)))).collect();
            said(&Catalog::merge(&inputs))
        };
        prop_assert_eq!(merged(sharing), merged(catalogs));
    }

    #[test]
    fn the_merge_lists_every_resource_of_every_member_exactly_once(
        catalogs in proptest::collection::vec(any_catalog(), 0..4),
    ) {
        let inputs: Vec<_> = catalogs.iter().enumerate()
            .map(|(at, catalog)| (name(&format!("m{at}")), Some(Arc::new(catalog.clone())))).collect();
        let fleet = Catalog::merge(&inputs);
        let mut expected = std::collections::BTreeSet::new();
        for (member, catalog) in inputs.iter().zip(&catalogs) {
            for (group, version) in catalog.groups.iter().flat_map(|g| g.versions.iter().map(move |v| (g, v))) {
                prop_assert!(fleet.version(&group.name, &version.version).is_some());
                for resource in &version.resources {
                    let gvr = Gvr::new(&group.name, &version.version, &resource.resource);
                    let merged = fleet.get(&gvr).unwrap();
                    prop_assert!(merged.members.contains(&member.0) != merged.conflicting.contains(&member.0));
                    prop_assert!(merged.conflicting.contains(&member.0) || merged.verbs.iter().all(|v| resource.verbs.contains(v)));
                    expected.insert(gvr);
                }
            }
        }
        let listed: Vec<Gvr> = fleet.resources().map(|resource| resource.gvr.clone()).collect();
        prop_assert_eq!(listed.len(), expected.len());
        prop_assert_eq!(listed.into_iter().collect::<std::collections::BTreeSet<_>>(), expected);
        for group in &fleet.groups {
            let everybody = |version: &str| catalogs.iter().filter_map(|catalog| catalog.group(&group.name))
                .all(|group| group.version(version).is_some());
            let preferred = group.preferred().unwrap();
            prop_assert!(everybody(&preferred.version) || !group.versions.iter().any(|v| everybody(&v.version)));
        }
    }
}

#[tokio::test]
async fn a_catalog_is_kept_and_stands_until_its_member_has_said_what_it_serves() {
    let east = MemberName::new("east").unwrap();
    let first = FleetCatalogue::new(vec![east.clone()]);
    first.refresh(&east, &FakeMember::new(EAST, true)).await.unwrap();
    let served = first.member(&east).unwrap();
    let kept = MemberCatalog::parse(&served.document()).unwrap();
    assert_eq!(kept, *served);
    let later = FleetCatalogue::new(vec![east.clone()]);
    assert_eq!(later.current().unknown, std::slice::from_ref(&east));
    later.restore(&east, kept.clone());
    assert_eq!((later.current().unknown.len(), later.member(&east).unwrap()), (0, served));
    // Its own word counts, and what was kept comes too late then.
    later.refresh(&east, &FakeMember::new(WEST, true)).await.unwrap();
    let said = later.member(&east).unwrap();
    later.restore(&east, kept.clone());
    assert!(*said != kept && Arc::ptr_eq(&said, &later.member(&east).unwrap()));
    assert!(MemberCatalog::parse("{}").is_err());
}

/// A merge may begin with groups of before it was known which kinds are in the tables.
#[test]
fn kinds_in_the_tables_are_read_only_whatever_a_catalog_is_merged_onto() {
    let inputs = [("east", EAST), ("west", WEST)].map(|(member, text)| (name(member), Some(catalog(&documents(text)))));
    let deployments = Gvr::new("apps", "v1", "deployments");
    let stored = [ResourcePattern::of(&deployments)];
    let is_stored = |catalog: &Catalog| catalog.get(&deployments).is_some_and(|resource| resource.stored);
    let before = Catalog::merge(&inputs);
    let after = before.merge_next(&inputs, &[], &stored);
    assert_eq!([&before, &after, &after.merge_next(&inputs, &[], &[])].map(is_stored), [false, true, false]);
    assert!(is_stored(&after.merge_next(&inputs[..1], &[], &stored)), "and stays so while members come and go");
}
