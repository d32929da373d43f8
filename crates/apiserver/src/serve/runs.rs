//! Whole lists that were written before, as long as no object of their kind changes.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{kinds::Kind, storage::StateId};
use kubefold_serving::packed::{Recorder, Run};

/// Bytes of runs that a server keeps.
const KEPT_BYTES_MAX: usize = 48 << 20;
/// Bytes of one run; a larger list is written anew each time.
const RUN_BYTES_MAX: usize = 16 << 20;
/// Lists that are recorded at once: each of them holds its bytes.
const RECORDED_MAX: usize = 2;

/// The runs that were listed last.
#[derive(Debug)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunKey {
    group: String,
    version: String,
    plural: String,
    /// Empty: all of them.
    namespace: String,
    is_protobuf: bool,
    is_gzip: bool,
}

impl RunKey {
    pub(super) fn new(kind: &Kind, namespace: &str, is_protobuf: bool, is_gzip: bool) -> Self {
        let Kind { group, version, plural, .. } = kind;
        let (group, version, plural) = (group.clone(), version.clone(), plural.clone());
        Self { group, version, plural, namespace: namespace.to_owned(), is_protobuf, is_gzip }
    }
}

/// The newest first.
#[derive(Debug, Default)]
struct Kept {
    runs: VecDeque<KeptRun>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptRun {
    key: RunKey,
    state: StateId,
    written: Written,
}

/// A list that was written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) run: Arc<Run>,
    /// How many it has.
    pub(super) objects: usize,
}

impl Runs {
    /// The run of a state. One of another state is forgotten.
    pub(super) fn get(&self, key: &RunKey, state: StateId) -> Option<Written> {
        let mut kept = self.kept.lock();
        let found = kept.take(key).filter(|found| found.state == state)?;
        let written = found.written.clone();
        kept.put(found);
        Some(written)
    }

    /// What takes the run of a list of so many objects that is of this state. `None`: enough are recorded now.
    pub(super) fn recorder(self: &Arc<Self>, key: RunKey, state: StateId, objects: usize) -> Option<Recorder> {
        let permit = Arc::clone(&self.recorded).try_acquire_owned().ok()?;
        let runs = Arc::clone(self);
        let keep = move |run| {
            let _until_now = permit;
            let mut kept = runs.kept.lock();
            kept.take(&key);
            kept.put(KeptRun { key, state, written: Written { run: Arc::new(run), objects } });
        };
        Some(Recorder::new(RUN_BYTES_MAX, keep))
    }
}

impl Kept {
    fn take(&mut self, key: &RunKey) -> Option<KeptRun> {
        let at = self.runs.iter().position(|kept| kept.key == *key)?;
        let run = self.runs.remove(at)?;
        self.bytes -= run.written.run.bytes();
        Some(run)
    }

    fn put(&mut self, run: KeptRun) {
        self.bytes += run.written.run.bytes();
        self.runs.push_front(run);
        while self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.runs.pop_back() else { break };
            self.bytes -= oldest.written.run.bytes();
        }
    }
}
