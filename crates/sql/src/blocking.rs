//! Futures of a runtime, on threads that may wait.

use futures::executor;
use tokio::{runtime::Handle, task::unconstrained};

/// Runs a future of a runtime on this thread.
///
/// It is not told to make room for other tasks: on a thread that runs one, only the end of this call does.
pub(crate) fn block<T>(runtime: &Handle, work: impl Future<Output = T>) -> T {
    let _entered = runtime.enter();
    executor::block_on(unconstrained(work))
}
