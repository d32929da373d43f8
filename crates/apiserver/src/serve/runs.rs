//! Whole lists that were written before, as long as no object of their kind changes.
//!
//! A list is recorded when somebody asks for it a second time: one whose objects change between any two lists costs nothing more.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{kinds::Kind, storage::StateId};
use kubefold_serving::packed::{Recorder, Run};

/// Bytes of runs that a server keeps.
const KEPT_BYTES_MAX: usize = 48 << 20;
/// Bytes of one run; a larger list is written anew each time.
const RUN_BYTES_MAX: usize = 16 << 20;
/// Lists that are known, with a run or without.
const LISTS_MAX: usize = 256;
/// Lists that are recorded at once: each of them holds its bytes.
const RECORDED_MAX: usize = 2;

/// What was listed last.
pub(super) struct Runs {
    kept: Mutex<Kept>,
    recorded: Arc<Semaphore>,
}

impl Default for Runs {
    fn default() -> Self {
        Self { kept: Mutex::default(), recorded: Arc::new(Semaphore::new(RECORDED_MAX)) }
    }
}

/// What a run is of, and how it is written.
#[derive(Clone)]
pub(super) struct RunKey {
    /// By its place: a kind whose definition changes is another one, and may show the same objects otherwise.
    pub(super) kind: Arc<Kind>,
    /// Empty: all of them.
    pub(super) namespace: String,
    pub(super) is_protobuf: bool,
    pub(super) is_gzip: bool,
}

impl PartialEq for RunKey {
    fn eq(&self, other: &Self) -> bool {
        let Self { kind, namespace, is_protobuf, is_gzip } = self;
        Arc::ptr_eq(kind, &other.kind)
            && (namespace, is_protobuf, is_gzip) == (&other.namespace, &other.is_protobuf, &other.is_gzip)
    }
}

/// The newest first.
#[derive(Default)]
struct Kept {
    lists: VecDeque<Listed>,
    bytes: usize,
}

struct Listed {
    key: RunKey,
    state: StateId,
    /// Absent: it was listed in this state, and not recorded.
    written: Option<Written>,
}

/// A list that was written.
#[derive(Clone)]
pub(super) struct Written {
    pub(super) run: Arc<Run>,
    /// How many it has.
    pub(super) objects: usize,
}

/// What is known of a list in a state.
pub(super) enum Known {
    Nothing,
    /// It was asked for before.
    Asked,
    Written(Written),
}

impl Runs {
    /// Notes that a list is asked for, and says what was known of it. What is of another state is forgotten.
    pub(super) fn ask(&self, key: &RunKey, state: StateId) -> Known {
        let mut kept = self.kept.lock();
        let before = kept.take(key).filter(|before| before.state == state);
        let known = match &before {
            None => Known::Nothing,
            Some(Listed { written: None, .. }) => Known::Asked,
            Some(Listed { written: Some(written), .. }) => Known::Written(written.clone()),
        };
        kept.put(before.unwrap_or_else(|| Listed { key: key.clone(), state, written: None }));
        known
    }

    /// What takes the run of a list of so many objects that is of this state. `None`: enough are recorded now.
    pub(super) fn recorder(self: &Arc<Self>, key: RunKey, state: StateId, objects: usize) -> Option<Recorder> {
        let permit = Arc::clone(&self.recorded).try_acquire_owned().ok()?;
        let runs = Arc::clone(self);
        let keep = move |run| {
            let _until_now = permit;
            let mut kept = runs.kept.lock();
            kept.take(&key);
            kept.put(Listed { key, state, written: Some(Written { run: Arc::new(run), objects }) });
        };
        Some(Recorder::new(RUN_BYTES_MAX, keep))
    }
}

impl Listed {
    /// The memory that its run takes. Units: bytes.
    fn bytes(&self) -> usize {
        self.written.as_ref().map_or(0, |written| written.run.bytes())
    }
}

impl Kept {
    fn take(&mut self, key: &RunKey) -> Option<Listed> {
        let at = self.lists.iter().position(|list| list.key == *key)?;
        let list = self.lists.remove(at)?;
        self.bytes -= list.bytes();
        Some(list)
    }

    fn put(&mut self, list: Listed) {
        self.bytes += list.bytes();
        self.lists.push_front(list);
        while self.bytes > KEPT_BYTES_MAX || self.lists.len() > LISTS_MAX {
            let Some(oldest) = self.lists.pop_back() else { break };
            self.bytes -= oldest.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        registry::{List, Object},
        serve::{blocks::Blocks, built_in_kinds, form::Form, writing::Writing},
    };
    use http_body_util::BodyExt as _;
    use kubefold_table::Now;
    use kubefold_wire::resource::Gvr;
    use serde_json::json;

    #[tokio::test]
    async fn what_is_kept_has_a_bound() {
        let kinds = built_in_kinds();
        let kind = Arc::new(kinds.iter().find(|kind| kind.kind == "ConfigMap").unwrap().clone());
        let form = Form::new(None, &kind, None, "", true, Now(0)).unwrap();
        let how = Writing { form: &form, of: None, gzip: false, gvr: &Gvr::new("", "v1", "configmaps") };
        let (runs, blocks) = (Arc::new(Runs::default()), Blocks::default());
        let state = StateId { era: 0, changed: 1 };
        let key = |number: usize| {
            let (kind, namespace) = (Arc::clone(&kind), format!("n{number}"));
            RunKey { kind, namespace, is_protobuf: false, is_gzip: false }
        };
        // The last two are too large for a run.
        for (number, megabytes) in [6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 17, 17].into_iter().enumerate() {
            let value = json!({"data": {"a": "x".repeat(1 << 20)}});
            let objects = (0..megabytes).map(|at| Object::of_value("configmaps/n/a", &value, at + 1)).collect();
            let recorder = runs.recorder(key(number), state, 1);
            let answer = blocks.json(List { objects, ..List::default() }, &how, recorder).await;
            answer.into_body().collect().await.unwrap();
        }
        let of = |number| matches!(runs.ask(&key(number), state), Known::Written(_));
        // 48 MiB hold seven of a little over 6 MiB.
        assert_eq!((0..12).filter(|number| of(*number)).collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 9]);
        assert!(!matches!(runs.ask(&key(9), StateId { changed: 2, ..state }), Known::Written(_)));
        for number in 0..1_000 {
            runs.ask(&key(number), state);
        }
        assert_eq!(runs.kept.lock().lists.len(), LISTS_MAX);
        // Nobody records any more: so many may, and no more.
        let recorders: Vec<_> = (0..=RECORDED_MAX).map(|number| runs.recorder(key(number), state, 1)).collect();
        assert_eq!(recorders.iter().flatten().count(), RECORDED_MAX);
    }
}
