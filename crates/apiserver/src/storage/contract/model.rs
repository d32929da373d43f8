//! A random history against a naive model: all states that ever were.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tokio::{runtime::Handle, task::block_in_place};

use crate::storage::{
    Bounds, Range, Storage, StorageError, When,
    contract::{Backend, put, text},
};

/// Does what a map of all states ever does, over puts, deletes, compactions, reads of any revision, and restarts.
pub async fn a_random_history_is_that_of_a_naive_model(backend: &dyn Backend) {
    let config = Config { cases: backend.histories(), failure_persistence: None, ..Config::default() };
    let case = AtomicUsize::new(0);
    let run = |steps: Vec<Step>| {
        let name = format!("model-{}", case.fetch_add(1, Ordering::Relaxed));
        Handle::current().block_on(Model::default().run(backend, &name, steps));
        Ok(())
    };
    let run = || TestRunner::new(config).run(&proptest::collection::vec(step(), 1..60), run);
    block_in_place(run).unwrap();
}

#[derive(Default)]
struct Model {
    /// The state after each revision: values, and their revisions.
    states: BTreeMap<u64, BTreeMap<String, (String, u64)>>,
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, value: u8 },
    Delete(u8),
    Compact(u8),
    Range { limit: u8, after: u8, back: u8 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..12, any::<u8>()).prop_map(|(key, value)| Step::Put { key, value }),
        4 => (0u8..12).prop_map(Step::Delete),
        2 => (0u8..10).prop_map(Step::Compact),
        6 => (0u8..5, 0u8..12, 0u8..12).prop_map(|(limit, after, back)| Step::Range { limit, after, back }),
        1 => Just(Step::Restart),
    ]
}

fn key(number: u8) -> String {
    format!("{}/{number:02}", if number.is_multiple_of(3) { "b" } else { "a" })
}

impl Model {
    async fn run(mut self, backend: &dyn Backend, name: &str, steps: Vec<Step>) {
        let mut storage = backend.open(name, Bounds::default()).await;
        let start = storage.revision().await.unwrap();
        self.states.insert(start, BTreeMap::new());
        let (mut now, mut floor) = (start, start);
        for step in steps {
            let mut state = self.states[&now].clone();
            match step {
                Step::Put { key: number, value } => {
                    let (key, value) = (key(number), value.to_string());
                    let when = state.get(&key).map_or(When::Absent, |(_, revision)| When::At(*revision));
                    now = put(&*storage, &key, &value, when).await.unwrap();
                    state.insert(key, (value, now));
                    self.states.insert(now, state);
                }
                Step::Delete(number) => {
                    let Some((_, revision)) = state.remove(&key(number)) else { continue };
                    now = storage.delete(&key(number), revision).await.unwrap();
                    self.states.insert(now, state);
                }
                Step::Compact(back) => {
                    floor = floor.max(now.saturating_sub(back.into())).max(start);
                    storage.compact(floor).await.unwrap();
                }
                Step::Range { limit, after, back } => {
                    let at = now.saturating_sub(back.into()).max(start);
                    self.check(&storage, limit.into(), &key(after), at, floor).await;
                }
                Step::Restart if backend.outlives_its_process() => {
                    storage.close().await;
                    storage = backend.open(name, Bounds::default()).await;
                    assert_eq!(storage.revision().await.unwrap(), now);
                }
                Step::Restart => {}
            }
        }
        storage.close().await;
    }

    async fn check(&self, storage: &Arc<dyn Storage>, limit: usize, after: &str, at: u64, floor: u64) {
        let range = Range { prefix: "a/", after: Some(after), limit, at, count: true };
        let found = storage.range(range).await;
        if at < floor {
            assert!(matches!(found, Err(StorageError::Compacted { .. })), "{at} {floor}");
            return;
        }
        let page = found.unwrap();
        let (_, state) = self.states.range(..=at).next_back().unwrap();
        let all: Vec<_> = state
            .iter()
            .filter(|(key, _)| key.starts_with("a/") && key.as_str() > after)
            .map(|(key, (value, revision))| (key.clone(), value.clone(), *revision))
            .collect();
        let given = if limit == 0 { all.len() } else { limit.min(all.len()) };
        let seen: Vec<_> =
            page.records.iter().map(|one| (one.key.to_string(), text(&one.value), one.revision)).collect();
        assert_eq!(seen, all[..given]);
        assert_eq!((page.more, page.remaining), (given < all.len(), Some((all.len() - given) as u64)));
    }
}
