//! The line on a terminal that says how far a run is.

use std::{io::Write as _, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cli::paint::can_draw;

/// A line is not written more often.
const PACE: Duration = Duration::from_millis(100);

/// One line on standard error, written over and over. Nothing where that is no terminal.
pub(super) struct Progress {
    is_shown: bool,
    /// When the last one was written.
    last: Mutex<Option<Instant>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { is_shown: can_draw(&std::io::stderr()), last: Mutex::new(None) }
    }

    /// Shows a line, unless one was shown a moment ago.
    pub(super) fn show(&self, line: impl FnOnce() -> String) {
        let mut last = self.last.lock();
        if self.is_shown && last.is_none_or(|at| at.elapsed() >= PACE) {
            *last = Some(Instant::now());
            write(&format!("\r\u{1b}[2K{}", line()));
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.is_shown && self.last.lock().take().is_some() {
            write("\r\u{1b}[2K");
        }
    }
}

fn write(text: &str) {
    let mut out = std::io::stderr().lock();
    // Who does not see it loses nothing.
    let _unseen = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
