//! What is kept, and how it goes.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

/// What is kept, and how it goes.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// There is a file to keep anything in.
    pub is_on: bool,
    /// Objects in it, as of the last minute.
    pub rows: u64,
    /// How large it is. Units: bytes.
    pub bytes: u64,
    /// Writes and reads that failed, and files that were set aside.
    pub failures: u64,
    /// What went wrong last; absent once everything could be written again.
    pub error: Option<Arc<str>>,
    /// The bound on what is in memory; absent where there is none.
    pub memory: Option<MemoryFigures>,
    level_at: Option<Instant>,
}

/// The bound on the objects in memory (`mirror.memory`), and what that means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// The bound. Units: bytes.
    pub max: u64,
    /// The objects in memory. Units: bytes.
    pub held: u64,
    /// The resources that are in the tables alone because of it.
    pub in_tables: Vec<String>,
}

impl MemoryFigures {
    /// Says whether the objects in memory are more than they may be.
    pub fn is_over(&self) -> bool {
        self.held > self.max
    }
}

impl Figures {
    /// How long ago everything that the stores had was written. Absent before the first time.
    pub fn lag(&self) -> Option<Duration> {
        self.level_at.map(|at| at.elapsed())
    }

    /// Notes a failure; true if the log has no line about it.
    pub(super) fn fail(&mut self, cause: &(impl std::fmt::Display + ?Sized)) -> bool {
        let cause: Arc<str> = cause.to_string().into();
        self.failures += 1;
        self.error.replace(Arc::clone(&cause)).is_none_or(|before| before != cause)
    }

    pub(super) fn level(&mut self, counted: Option<Counted>) {
        if self.error.take().is_some() && self.is_on {
            tracing::info!("the mirror is kept again");
        }
        if let Some(Counted { rows, bytes }) = counted {
            (self.rows, self.bytes) = (rows, bytes);
        }
        self.level_at = Some(Instant::now());
    }
}

/// How much is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}
