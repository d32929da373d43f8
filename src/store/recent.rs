//! What a process has made of late and keeps within a budget: it can be made again.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// What lets bytes go that were made of it and can be made again.
pub(super) trait Forget {
    /// Lets them go.
    fn forget(&self);
}

/// What a process has made and keeps, oldest first.
#[derive(Debug)]
pub(super) struct Recent<T> {
    bytes_max: usize,
    queue: Mutex<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    of: VecDeque<(Weak<T>, usize)>,
    bytes: usize,
}

impl<T: Forget> Recent<T> {
    /// Keeps so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, queue: Mutex::new(Queue { of: VecDeque::new(), bytes: 0 }) }
    }

    /// Bytes that are kept now, with those of what is gone and has not been let go.
    pub(super) fn used(&self) -> usize {
        self.queue.lock().bytes
    }

    /// Keeps what was made, and lets the oldest go that is too much.
    pub(super) fn keep(&self, of: &Arc<T>, bytes: usize) {
        let bytes = bytes + size_of::<T>();
        let mut queue = self.queue.lock();
        queue.of.push_back((Arc::downgrade(of), bytes));
        queue.bytes += bytes;
        while queue.bytes > self.bytes_max {
            let Some((oldest, bytes)) = queue.of.pop_front() else { return };
            queue.bytes -= bytes;
            if let Some(oldest) = oldest.upgrade() {
                oldest.forget();
            }
        }
    }
}
