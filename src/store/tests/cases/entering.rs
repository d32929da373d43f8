//! What enters while others read, and what is let go.

use std::sync::Arc;

use super::{DEPLOYMENTS, EAST, Fleet, REPLICA_SETS, WEST, doc, part};
use crate::{
    config::Names,
    store::{
        LogLimits, Revision, Source,
        tests::{
            model::{Doc, Kind, member},
            world::{naming, shared, stores},
        },
    },
};
use kubefold_wire::watch::{Event, EventType};

#[test]
fn another_servers_words_for_the_same_revision_are_no_event() {
    let mut fleet = Fleet::new();
    let store = Arc::clone(&fleet.stores[DEPLOYMENTS]);
    let x = doc(Kind::Deployments, "x", "one", 20);
    fleet.is(EAST, &x);
    fleet.news(DEPLOYMENTS);
    let other_words = Doc { replicas: 2, ..x };
    let incarnation = store.incarnation(&member(EAST));
    assert!(store.ingest_live(&member(EAST), incarnation, &other_words.whole()).unwrap().is_some());
    fleet.is(EAST, &other_words);
    assert_eq!(fleet.news(DEPLOYMENTS), [""; 0]);
}

/// And shown whole, whichever part it is.
#[test]
fn a_further_part_is_kept_as_its_differences() {
    let fleet = Fleet::new();
    let store = &fleet.stores[DEPLOYMENTS];
    let parts = [part(EAST, 20, 1, &[EAST, WEST]), part(WEST, 30, 1, &[EAST, WEST])];
    for (at, part) in [EAST, WEST].into_iter().zip(&parts) {
        fleet.is(at, part);
    }
    let held = store.parts("a/web");
    assert_eq!([&held[0], &held[1]].map(|part| part.document.as_whole().is_some()), [true, false]);
    assert_eq!([&held[0], &held[1]].map(|part| part.document.text().into_owned()), parts.map(|part| part.whole()));
}

/// Whatever path a request went to.
#[test]
fn a_live_answer_of_another_kind_is_not_taken_in() {
    let fleet = Fleet::new();
    let store = &fleet.stores[DEPLOYMENTS];
    let forged = doc(Kind::Deployments, "x", "one", 20).whole().replacen("\"Deployment\"", "\"ConfigMap\"", 1);
    let refused = store.ingest_live(&member(EAST), store.incarnation(&member(EAST)), &forged).unwrap_err();
    assert_eq!(refused.to_string(), "an object of the kind \"ConfigMap\", where Deployment was asked for");
    assert!(store.snapshot().objects.is_empty());
}

#[test]
fn nothing_holds_on_to_what_was_replaced() {
    let mut shared = shared(naming(Names::Suffixed, 3));
    shared.log_limits = LogLimits::new(64, 64);
    let store = Arc::clone(&stores(&shared)[DEPLOYMENTS]);
    store.join(&member(EAST), "cluster-0");
    store.begin_list(&member(EAST));
    store.open();
    let names: [&'static str; 2000] = std::array::from_fn(|at| &*format!("d{at}").leak());
    let put = |rv: u64| {
        for name in names {
            let object = doc(Kind::Deployments, name, "one", rv).whole();
            store.watch_event(&member(EAST), &Event { event_type: EventType::Modified, object: &object }).unwrap();
        }
    };
    put(20);
    let replaced: Vec<_> = store.snapshot().objects.values().map(Arc::downgrade).collect();
    assert_eq!(replaced.len(), names.len());
    put(21);
    // The log keeps its last record, and with it the state before.
    assert!(replaced.iter().filter(|entry| entry.strong_count() > 0).count() <= 1);
}

#[test]
fn readers_do_not_wait_for_a_writer() {
    let fleet = Fleet::new();
    let store = &fleet.stores[DEPLOYMENTS];
    let x = doc(Kind::Deployments, "x", "one", 20);
    fleet.is(EAST, &x);
    let _writing = store.inner.write();
    assert_eq!(store.snapshot().objects.len(), 1);
    assert!(store.get("a/x@east").is_some() && store.is_filled(&member(EAST)));
    assert!(store.incarnation(&member(EAST)) > 0);
    assert_eq!(store.snapshot_from(Revision(1)).objects.len(), 1);
}

#[test]
fn what_changed_while_a_document_was_dressed_is_dressed_again() {
    let fleet = Fleet::new();
    let [deployments, replica_sets] = [DEPLOYMENTS, REPLICA_SETS].map(|kind| Arc::clone(&fleet.stores[kind]));
    let web = part(EAST, 20, 1, &[EAST]);
    let owned = Doc { owner: Some(("web", "own-0".to_owned())), ..doc(Kind::ReplicaSets, "web-1", "two", 21) };
    let event = owned.whole();
    // Its owner becomes a placed object's part after it was dressed and before it is taken in.
    let preparing = replica_sets.preparing(&member(EAST)).unwrap();
    let prepared = replica_sets.prepare_one(&preparing, &event, Source::Watch).unwrap();
    fleet.is(EAST, &web);
    replica_sets.change(|inner| inner.commit(&member(EAST), prepared, Source::Watch));
    let shown = deployments.get("a/web").unwrap();
    let owner = &fleet.json(REPLICA_SETS, "a/web-1@east")["metadata"]["ownerReferences"][0];
    assert_eq!((owner["name"].as_str(), owner["uid"].as_str()), (Some("web"), Some(shown.uid())));
}
