//! Whatever happens in whatever order, the promises hold.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    config::MemberName,
    store::{
        Entry, Held, Record, Revision,
        tests::{
            model::{KINDS, MEMBERS, ODD, expected},
            world::{Op, Target, World},
        },
    },
};
use kubefold_wire::watch::EventType;

pub(super) fn target() -> impl Strategy<Value = Target> {
    (0..3usize, prop_oneof![3 => Just(0usize), 2 => Just(1), 1 => Just(2), 1 => Just(3)], 0..5usize)
        .prop_map(|(member, kind, name)| Target { member, kind, name })
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let place = || (0..3usize, prop_oneof![3 => Just(0usize), 2 => Just(1), 1 => Just(2), 1 => Just(3)]);
    prop_oneof![
        16 => (target(), any::<u8>()).prop_map(|(target, what)| Op::Mutate(target, what)),
        6 => (target(), any::<u8>()).prop_map(|(target, what)| Op::Write(target, what)),
        16 => (place(), 1..5u8).prop_map(|((at, kind), count)| Op::Deliver(at, kind, count)),
        4 => place().prop_map(|(at, kind)| Op::Bookmark(at, kind)),
        4 => target().prop_map(Op::Answer),
        4 => any::<u8>().prop_map(Op::AnswerArrives),
        3 => place().prop_map(|(at, kind)| Op::Prove(at, kind)),
        2 => place().prop_map(|(at, kind)| Op::AskAll(at, kind)),
        2 => any::<u8>().prop_map(Op::AllArrives),
        6 => (place(), any::<u8>()).prop_map(|((at, kind), when)| Op::List(at, kind, when)),
        16 => place().prop_map(|(at, kind)| Op::ListGoesOn(at, kind)),
        1 => place().prop_map(|(at, kind)| Op::ListFails(at, kind)),
        6 => place().prop_map(|(at, kind)| Op::RemoveSlice(at, kind)),
        1 => (0..3usize, any::<u8>()).prop_map(|(at, back)| Op::Restore(at, back)),
        1 => (0..3usize).prop_map(Op::Replace),
        1 => (0..3usize).prop_map(Op::Leave),
        1 => (0..3usize).prop_map(Op::Rejoin),
        2 => (0..5usize).prop_map(Op::Hold),
        2 => Just(Op::Release),
        1 => Just(Op::Watch),
        1 => Just(Op::Retain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_keeps_the_promises(
        focus in prop::collection::vec(target(), 0..4),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new();
        let mut last = Revision(0);
        for op in ops {
            let op = op.at(&focus);
            world.step(op);
            check(&world.check(), &world, op, &mut last);
        }
        world.settle();
        for record in world.check() {
            entry_is_sound(&record.entry);
        }
        is_the_union(&world);
        // What is known already is no news.
        world.relist();
        let news: Vec<String> = world.check().iter().map(|record| format!("{record:?}")).collect();
        prop_assert!(news.is_empty(), "{news:#?}");
        is_the_union(&world);
        world.check_pages(3);
        world.check_past();
    }
}

pub(super) fn check(records: &[std::sync::Arc<Record>], world: &World, op: Op, last: &mut Revision) {
    // Every store's revisions rise; here they come store by store, and one operation may touch several.
    let mut revisions: Vec<Revision> = records.iter().map(|record| record.revision).collect();
    revisions.sort();
    for revision in revisions {
        assert!(revision > *last && revision.0 < 1 << 53);
        *last = revision;
    }
    for record in records {
        entry_is_sound(&record.entry);
        if record.event_type == EventType::Added && !record.entry.folded {
            assert!(!world.dead.contains(record.entry.uid()), "{op:?} brings back what is gone: {record:?}");
        }
        if record.event_type == EventType::Deleted {
            let may_delete = matches!(
                op,
                Op::Mutate(..)
                    | Op::Write(..)
                    | Op::Deliver(..)
                    | Op::AnswerArrives(_)
                    | Op::Prove(..)
                    | Op::AllArrives(_)
                    | Op::ListGoesOn(..)
                    | Op::RemoveSlice(..)
                    | Op::Leave(_)
                    | Op::Rejoin(_)
                    | Op::Release
            );
            assert!(may_delete, "{op:?} is no deletion: {record:?}");
        }
    }
}

/// What an entry says about itself is what its JSON says.
fn entry_is_sound(entry: &Entry) {
    let text = std::str::from_utf8(entry.json()).unwrap();
    let value: Value = serde_json::from_str(text).unwrap();
    let metadata = &value["metadata"];
    assert_eq!(metadata["name"], entry.name());
    assert_eq!(metadata["namespace"].as_str().unwrap_or_default(), entry.namespace());
    let key =
        if entry.namespace().is_empty() { String::new() } else { format!("{}/", entry.namespace()) } + entry.name();
    assert_eq!(key.as_bytes(), entry.key());
    assert_eq!(metadata["uid"], entry.uid());
    assert_eq!(metadata["resourceVersion"], entry.revision.to_string());
    assert_eq!(metadata.get("deletionTimestamp").is_some(), entry.deleting);
    let labels: Option<Value> = entry.labels().map(|text| serde_json::from_str(text).unwrap());
    assert_eq!(labels.as_ref(), metadata.get("labels"));
    let holders: Vec<&str> = entry.holders.iter().map(|name| name.as_str()).collect();
    let annotation = if entry.folded { "kubefold.io/clusters" } else { "kubefold.io/cluster" };
    assert_eq!(metadata["annotations"][annotation], holders.join(","));
    assert!(text.contains(ODD), "{text}");
    let mut item = Vec::new();
    entry.write_item(&mut item);
    let mut item: Value = serde_json::from_slice(&item).unwrap();
    let is_custom = value["kind"] == "Widget";
    assert_eq!(item.get("kind").is_some(), is_custom);
    for key in ["kind", "apiVersion"] {
        item[key] = value[key].clone();
    }
    assert!(item == value);
    if !entry.folded {
        let mut original = Vec::new();
        entry.write_original(&mut original);
        let original: Value = serde_json::from_slice(&original).unwrap();
        assert_eq!(entry.name(), format!("{}@{}", original["metadata"]["name"].as_str().unwrap(), holders[0]));
    }
}

/// All that the members hold is shown, nothing else, and each as the design says, key order included.
pub(super) fn is_the_union(world: &World) {
    for kind in KINDS {
        let life = |name: &str| world.shared.identities.life(&format!("/namespaces/{name}"));
        let uid = |name: &str| world.shared.naming.shared_uid("", "namespaces", name, life(name)).unwrap();
        let child_life = |key: &str| world.shared.identities.child_life(&format!("apps/replicasets/{key}"));
        let wanted = expected(&world.members, kind, uid, child_life);
        let snapshot = world.stores[kind as usize].snapshot();
        let shown: BTreeMap<String, &Entry> = snapshot
            .objects
            .iter()
            .map(|(_, entry)| (String::from_utf8(entry.key().to_vec()).unwrap(), &**entry))
            .collect();
        assert_eq!(shown.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{kind:?}");
        let mut held: BTreeMap<MemberName, Held> = BTreeMap::new();
        for (holder, entry) in shown.values().flat_map(|entry| entry.holders.iter().map(move |holder| (holder, entry)))
        {
            let held = held.entry(holder.clone()).or_default();
            held.objects += 1;
            held.bytes += entry.size() / entry.holders.len();
        }
        assert_eq!(world.stores[kind as usize].held_by_member(), held, "{kind:?}");
        for (key, wanted) in &wanted {
            let entry = shown[key];
            let (mut is, mut shall): (Value, Value) =
                (serde_json::from_slice(entry.json()).unwrap(), wanted.value.clone());
            for value in [&mut is, &mut shall] {
                value["metadata"]["resourceVersion"] = json!("");
                // Where annotations stand is free, and in which order.
                let annotations = value["metadata"].as_object_mut().unwrap().shift_remove("annotations").unwrap();
                let sorted: BTreeMap<String, Value> = serde_json::from_value(annotations).unwrap();
                value["metadata"]["annotations"] = json!(sorted);
                if wanted.owner_is_gone {
                    value["metadata"]["ownerReferences"] = json!([]);
                }
                // The sums may be new keys at the front of the status.
                value["status"].as_object_mut().unwrap().sort_keys();
            }
            assert_eq!(is.to_string(), shall.to_string(), "{key} of {kind:?}");
            if let Some(original) = &wanted.original {
                assert!(entry.is_original(original, ""));
                let mut bytes = Vec::new();
                entry.write_original(&mut bytes);
                assert_eq!(std::str::from_utf8(&bytes).unwrap(), original);
            }
        }
        for member in (0..MEMBERS.len()).filter(|at| world.members[*at].is_some()) {
            assert!(world.stores[kind as usize].is_filled(&super::model::member(member)), "{kind:?}");
        }
    }
}
