//! A process that is killed in a write, and the one after it.

use proptest::prelude::*;
use tempfile::TempDir;

use crate::{
    answer::reply::Reply,
    write::tests::{
        Process,
        scripted::{CRASHES, Fault},
    },
};

/// How the process is killed in a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    /// In which call of it.
    pub(super) call: usize,
    pub(super) fault: Fault,
    /// The next process looks at once for what is unfinished.
    pub(super) replays: bool,
}

impl Kill {
    pub(super) const fn new(call: usize, fault: Fault, replays: bool) -> Self {
        Self { call, fault, replays }
    }

    /// In one of the first calls.
    pub(super) fn any(calls: usize) -> impl Strategy<Value = Self> {
        let fault = prop::sample::select(CRASHES.to_vec());
        (0..calls, fault, any::<bool>()).prop_map(|(call, fault, replays)| Self { call, fault, replays })
    }

    /// Has a process do a write. Gives the process that runs then, and the answer, unless it was killed before.
    pub(super) async fn in_write(
        kill: Option<Self>,
        process: Process,
        directory: &TempDir,
        write: impl AsyncFnOnce(&Process) -> Reply,
    ) -> (Process, Option<Reply>) {
        let fleet = process.writer.fleet.clone();
        if let Some(Self { call, fault, .. }) = kill {
            let mut world = fleet.world.lock();
            let next = world.calls.len();
            world.faults = [(next + call, fault)].into();
        }
        let answer = tokio::select! {
            reply = write(&process) => Some(reply),
            () = fleet.killed.notified() => None,
        };
        // Something else than the write may have been in that call.
        if let Some(reply) = answer.filter(|_| !fleet.world.lock().crashed) {
            fleet.world.lock().faults.clear();
            return (process, Some(reply));
        }
        process.cancel.cancel();
        let process = Process::start(fleet.restarted(), directory);
        if kill.is_some_and(|kill| kill.replays) {
            process.writer.replay();
        }
        (process, None)
    }
}
