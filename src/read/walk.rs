//! A walk over the objects that a reader asks for, in bounded steps, so that no reader keeps a thread to itself.

use std::{ops::ControlFlow, sync::Arc};

use crate::{
    read::filter::Filter,
    store::{Entry, Key, Snapshot},
};
use kubefold_serving::packed::Step;

/// Objects that one step looks at. With selectors each may cost a search through its bytes: about a microsecond.
const STEP_ITEMS_MAX: usize = 512;

/// Where a walk is.
#[derive(Debug)]
pub(super) struct Walk {
    snapshot: Snapshot,
    filter: Filter,
    /// Everything up to this key was looked at.
    after: Vec<u8>,
    /// The keys under which alone matching objects can be, in order: a selector names an object, or a node.
    keys: Option<std::vec::IntoIter<Key>>,
}

impl Walk {
    /// A walk over what matches, above the key `after`.
    pub(super) fn new(snapshot: Snapshot, filter: Filter, after: &str) -> Self {
        let keys = keys(&snapshot, &filter, after).map(Vec::into_iter);
        Self { snapshot, filter, after: after.as_bytes().to_vec(), keys }
    }

    /// The objects that it walks over.
    pub(super) fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    /// What it selects by.
    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Gives matching objects to `take` until that breaks: an object at which it breaks comes again.
    pub(super) fn step(&mut self, mut take: impl FnMut(&Arc<Entry>) -> ControlFlow<()>) -> Step {
        let Self { snapshot, filter, after, keys } = self;
        if let Some(keys) = keys {
            for looked_at in 0.. {
                let Some(key) = keys.as_slice().first() else { return Step::Done };
                if looked_at == STEP_ITEMS_MAX {
                    return Step::Paused;
                }
                let entry = snapshot.get(key.as_bytes()).and_then(|entry| filter.selected(entry));
                if entry.is_some_and(|entry| take(&entry).is_break()) {
                    return Step::Stopped;
                }
                keys.next();
            }
        }
        let mut last = None;
        let mut outcome = Step::Done;
        for (looked_at, entry) in snapshot.range(filter.sought_namespace(), after).enumerate() {
            if looked_at == STEP_ITEMS_MAX {
                outcome = Step::Paused;
                break;
            }
            if filter.selected(entry).is_some_and(|entry| take(&entry).is_break()) {
                outcome = Step::Stopped;
                break;
            }
            last = Some(Arc::clone(entry));
        }
        if let Some(last) = last {
            last.key().clone_into(after);
        }
        outcome
    }

    /// The same, with others getting their turn in between, until `take` breaks or there are no more objects. Says whether
    /// there may be more.
    pub(super) async fn run(&mut self, mut take: impl FnMut(&Arc<Entry>) -> ControlFlow<()>) -> bool {
        loop {
            match self.step(&mut take) {
                Step::Stopped => return true,
                Step::Done => return false,
                Step::Paused => tokio::task::yield_now().await,
            }
        }
    }
}

/// The keys above `after` under which an object of the name, or a pod on the node, that a selector asks for can be. `None`:
/// it asks for neither.
fn keys(snapshot: &Snapshot, filter: &Filter, after: &str) -> Option<Vec<Key>> {
    let Some(name) = filter.fields.name() else {
        let node = filter.fields.node()?;
        return Some(snapshot.keys_on_node(node).filter(|key| ***key > *after).cloned().collect());
    };
    let mut keys = match filter.sought_namespace() {
        "" => {
            let mut keys: Vec<String> = snapshot.namespaces().map(|namespace| format!("{namespace}/{name}")).collect();
            keys.push(name.to_owned());
            keys
        }
        namespace => vec![format!("{namespace}/{name}")],
    };
    keys.retain(|key| key.as_str() > after);
    keys.sort_unstable();
    Some(keys.into_iter().map(Key::from).collect())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        config::{MemberName, Names},
        read::turns::Turns,
        store::{FleetStore, Identities, KindSpec, LogLimits, Naming, Revisions, Shared},
        view::FleetSelector,
    };
    use kubefold_serving::caller::Caller;
    use kubefold_wire::{
        resource::{Gvk, Gvr},
        selector::FieldSelector,
    };

    /// A store of pods of one member, by namespace and name.
    fn snapshot(pods: impl Iterator<Item = (String, String)>) -> Snapshot {
        let member = MemberName::new("east").unwrap();
        let shared = Shared {
            naming: Arc::new(Naming::of(Names::Plain, Vec::new(), vec![member.clone()])),
            identities: Arc::new(Identities::default()),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::default(),
        };
        let spec = KindSpec::new(Gvr::new("", "v1", "pods"), Gvk::new("", "v1", "Pod"), true);
        let store = FleetStore::new(Arc::new(spec), shared, |_| {});
        store.join(&member, "uid");
        store.begin_list(&member);
        let pods: Vec<String> = pods
            .enumerate()
            .map(|(at, (namespace, name))| {
                let node = if name == "p000007" { "rare".to_owned() } else { format!("n{}", at % 3) };
                format!(
                    r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"u{at}","resourceVersion":"5"}},"spec":{{"nodeName":"{node}"}}}}"#
                )
            })
            .collect();
        let items: Vec<&str> = pods.iter().map(String::as_str).collect();
        assert!(store.list_slice(&member, &items).is_empty());
        store.end_list(&member, 9);
        store.open();
        store.snapshot()
    }

    fn filter(namespace: &str, fields: &str) -> Filter {
        Filter {
            namespace: namespace.to_owned(),
            labels: FleetSelector::default(),
            fields: FieldSelector::parse(fields, "", "pods").unwrap(),
            suffixed: false,
            echo: None,
            limit: None,
        }
    }

    fn keys_of(entries: &[Arc<Entry>]) -> Vec<String> {
        entries.iter().map(|entry| String::from_utf8(entry.key().to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_step_looks_at_a_bounded_number_of_objects() {
        let pods = snapshot((0..3 * STEP_ITEMS_MAX).map(|at| ("a".to_owned(), format!("p{at:06}"))));
        let mut walk = Walk::new(pods, filter("", "status.phase=none"), "");
        let mut steps = Vec::new();
        while steps.last() != Some(&Step::Done) {
            steps.push(walk.step(|_| panic!("nothing matches")));
        }
        assert_eq!(steps, [Step::Paused, Step::Paused, Step::Done]);
    }

    #[tokio::test]
    async fn a_long_walk_waits_for_its_turn_and_a_short_one_does_not() {
        let pods = snapshot((0..3 * STEP_ITEMS_MAX).map(|at| ("a".to_owned(), format!("p{at:06}"))));
        let turns = Arc::new(Turns::new(1));
        let ann = Caller { user: "ann".to_owned(), ..Caller::default() };
        let mut before = turns.pace(&ann);
        let mut turn = || std::future::poll_fn(|cx| before.poll_turn(cx)).now_or_never().flatten();
        assert!(turn().is_none());
        let others = turn();
        assert!(others.is_some());
        let mut walk = Walk::new(pods.clone(), filter("", "status.phase=none"), "");
        let mut pace = turns.pace(&ann);
        let work = std::pin::pin!(walk.run(|_| panic!("nothing matches")));
        let mut long = std::pin::pin!(pace.run(work));
        for _ in 0..3 {
            assert!(futures::poll!(long.as_mut()).is_pending());
        }
        let mut found = 0;
        let mut short = Walk::new(pods, filter("", "metadata.name=p000300"), "");
        let take = |_: &Arc<Entry>| {
            found += 1;
            ControlFlow::Continue(())
        };
        assert!(!turns.pace(&ann).run(std::pin::pin!(short.run(take))).await && found == 1);
        drop(others);
        assert!(!long.await);
    }

    #[test]
    fn a_name_or_a_node_is_looked_up_and_not_walked_to() {
        let namespaces = ["a", "a-b", "b"];
        let pods = (0..3 * STEP_ITEMS_MAX).map(|at| (namespaces[at % 3].to_owned(), format!("p{:06}", at / 3)));
        let pods = snapshot(pods);
        let mut seen = Vec::new();
        let mut take = |entry: &Arc<Entry>| {
            seen.push(Arc::clone(entry));
            ControlFlow::Continue(())
        };
        for (namespace, fields) in [
            ("", "metadata.name=p000300"),
            ("b", "metadata.name=p000300"),
            ("", "metadata.name=p1,metadata.namespace=a"),
            ("", "spec.nodeName=n9"),
            ("b", "spec.nodeName=rare"),
        ] {
            // One step, although the kind has more objects than a step looks at.
            assert_eq!(Walk::new(pods.clone(), filter(namespace, fields), "").step(&mut take), Step::Done);
        }
        assert_eq!(keys_of(&seen), ["a-b/p000300", "a/p000300", "b/p000300", "b/p000300", "b/p000007"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is selected, wherever it begins and however often its reader stops: the same objects in the same order.
        #[test]
        fn a_walk_gives_what_a_look_at_every_object_gives(
            pods in prop::collection::btree_set(("[ab]|a-b", "[pq][0-2]"), 0..20),
            namespace in prop_oneof![Just(""), Just("a"), Just("b")],
            fields in prop_oneof![
                Just(""), Just("metadata.name=p1"), Just("metadata.name!=p1"), Just("spec.nodeName=n1"),
                Just("metadata.namespace=a-b"), Just("metadata.name=q0,metadata.namespace=a"),
                Just("metadata.name=p0,spec.nodeName=n0"), Just("metadata.name=p0,metadata.name=p1"),
            ],
            after in prop_oneof![Just(""), Just("a/p1"), Just("a-b/q"), Just("b/")],
            each in 1..4_usize,
        ) {
            let snapshot = snapshot(pods.into_iter());
            let filter = filter(namespace, fields);
            let all = snapshot.range("", b"").filter(|entry| entry.key() > after.as_bytes() && filter.selected(entry).is_some());
            let expected: Vec<Arc<Entry>> = all.cloned().collect();
            let mut walk = Walk::new(snapshot.clone(), filter.clone(), after);
            let mut given = Vec::new();
            loop {
                let mut room = each;
                let step = walk.step(|entry| {
                    if room == 0 {
                        return ControlFlow::Break(());
                    }
                    room -= 1;
                    given.push(Arc::clone(entry));
                    ControlFlow::Continue(())
                });
                if step == Step::Done {
                    break;
                }
            }
            prop_assert_eq!(keys_of(&given), keys_of(&expected));
        }
    }
}
