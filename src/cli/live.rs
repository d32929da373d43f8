//! Commands that go on: a screen that is drawn again, and what ends it.

use std::{io::Write as _, time::Duration};

use anyhow::{Context as _, bail};
use rustix::termios::tcgetwinsize;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{sleep, timeout},
};

use crate::cli::{keys::Keys, paint};
use kubefold_wire::duration;

/// Bounds of how often is asked.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_hours(1);
/// An answer that comes later is none: what is on the screen would be old.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How often is asked, as Go writes durations.
///
/// Errors: it is no duration, or out of bounds.
pub(super) fn interval(text: &str) -> anyhow::Result<Duration> {
    let interval = duration::parse(text).map(|nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or_default()));
    match interval {
        Ok(interval) if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) => Ok(interval),
        _ => bail!("write a duration from 100ms to 1h, such as 2s"),
    }
}

/// Waits for an answer, for a while.
///
/// Errors: those of `asked`, or that none came. Cancel: as `asked`.
pub(super) async fn in_time(asked: impl Future<Output = anyhow::Result<String>>) -> anyhow::Result<String> {
    let in_time = timeout(ANSWER_MAX, asked).await;
    in_time.with_context(|| format!("kubefold did not answer within {} s", ANSWER_MAX.as_secs()))?
}

/// The time, to the second.
pub(super) fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// A terminal that a command has for itself. It is as before when this is dropped.
pub(super) struct Live {
    screen: Screen,
    keys: Option<Keys>,
    ends: [Signal; 3],
    resized: Signal,
}

impl Live {
    /// Takes the terminal; `None`: standard output is none that can be drawn on. Within a runtime.
    ///
    /// Errors: its modes or signals cannot be had.
    pub(super) fn on_stdout() -> anyhow::Result<Option<Self>> {
        if !paint::can_draw(&std::io::stdout()) {
            return Ok(None);
        }
        let ends = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [first, second, third] = ends.map(signal);
        let (ends, resized) = ([first?, second?, third?], signal(SignalKind::window_change())?);
        let keys = Keys::of_terminal()?;
        Ok(Some(Self { screen: Screen::begin()?, keys, ends, resized }))
    }

    /// Does a step again and again, until a person presses `q`, or a signal comes.
    ///
    /// Errors: those of a step. Cancel: safe.
    pub(super) async fn repeat(
        &mut self,
        every: Duration,
        mut step: impl AsyncFnMut(&mut Screen) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { screen, keys, ends, resized } = self;
        loop {
            tokio::select! {
                () = ended(keys, ends) => return Ok(()),
                done = step(screen) => done?,
            }
            tokio::select! {
                () = ended(keys, ends) => return Ok(()),
                _ = resized.recv() => screen.redraw()?,
                () = sleep(every) => {}
            }
        }
    }
}

async fn ended(keys: &mut Option<Keys>, ends: &mut [Signal; 3]) {
    let [interrupt, terminate, hangup] = ends;
    let quit = async {
        while let Some(keys) = keys {
            match keys.next().await {
                Some('q') => return,
                Some(_) => {}
                None => break,
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        () = quit => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// What is on the terminal.
pub(super) struct Screen {
    page: String,
    /// A line below the page.
    note: String,
}

/// Source: xterm's control sequences: the alternate screen, and the cursor.
const BEGIN: &str = "\u{1b}[?1049h\u{1b}[?25l";
const END: &str = "\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_REST: &str = "\u{1b}[J";

impl Screen {
    fn begin() -> anyhow::Result<Self> {
        write(BEGIN)?;
        Ok(Self { page: String::new(), note: String::new() })
    }

    /// Shows a page. What does not fit is left out.
    ///
    /// Errors: the terminal is gone.
    pub(super) fn draw(&mut self, page: &str) -> anyhow::Result<()> {
        page.clone_into(&mut self.page);
        self.note.clear();
        self.redraw()
    }

    /// Shows a sentence below the last page.
    ///
    /// Errors: the terminal is gone.
    pub(super) fn note(&mut self, note: &str) -> anyhow::Result<()> {
        note.clone_into(&mut self.note);
        self.redraw()
    }

    fn redraw(&self) -> anyhow::Result<()> {
        // One without a size has the usual one.
        let size = tcgetwinsize(std::io::stdout()).map_or([24, 80], |size| [size.ws_row, size.ws_col]);
        let [rows, columns] = size.map(|length| if length == 0 { 24 } else { usize::from(length) });
        write(&fitted(&self.page, &self.note, rows, columns))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _gone = write(END);
    }
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to the terminal")
}

/// What a terminal of that size is sent. The note is on it whatever the page has.
fn fitted(page: &str, note: &str, rows: usize, columns: usize) -> String {
    let mut lines: Vec<String> = page.lines().map(|line| paint::clip(line, columns)).collect();
    let note = (!note.is_empty()).then(|| paint::clip(note, columns));
    let room = rows.saturating_sub(usize::from(note.is_some()));
    if lines.len() > room {
        let hidden = lines.len() - room.saturating_sub(1);
        lines.truncate(room.saturating_sub(1));
        lines.push(paint::clip(&format!("... {hidden} more lines"), columns));
    }
    lines.extend(note);
    // The last line has no end: the terminal would scroll.
    format!("{HOME}{}{CLEAR_LINE}{CLEAR_REST}", lines.join(&format!("{CLEAR_LINE}\r\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_its_terminal() {
        let shown = |rows: usize, columns: usize| {
            let text = fitted("one\ntwo\nthree\n", "gone", rows, columns);
            text.replace(HOME, "").replace(CLEAR_LINE, "").replace(CLEAR_REST, "")
        };
        assert_eq!(shown(4, 80), "one\r\ntwo\r\nthree\r\ngone");
        assert_eq!(shown(3, 80), "one\r\n... 2 more lines\r\ngone");
        assert_eq!(shown(9, 3), "one\r\ntwo\r\nthr\r\ngon");
        assert_eq!(shown(1, 80), "... 3 more lines\r\ngone");
    }

    #[test]
    fn an_interval_is_a_duration_within_bounds() {
        assert_eq!(interval("1.5s").unwrap(), Duration::from_millis(1_500));
        for wrong in ["0s", "1", "-2s", "2h", "soon", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
