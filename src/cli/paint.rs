//! Colours, for people at a terminal that wants them.

use std::{io::IsTerminal, sync::OnceLock};

/// What a word is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Good,
    Odd,
    Bad,
    Dim,
}

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum When {
    Always,
    // No documentation: with one the help of every command would be the long one.
    #[default]
    Auto,
    Never,
}

/// What the command line says. It holds for the process.
static WHEN: OnceLock<When> = OnceLock::new();

/// Says when colours are used from now on. The first one holds.
pub(super) fn choose(when: When) {
    let _known = WHEN.set(when);
}

/// Whether standard output takes colours. Source: no-color.org.
pub(super) fn on_stdout() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match WHEN.get().copied().unwrap_or_default() {
        When::Always => true,
        When::Never => false,
        When::Auto => can_draw(&std::io::stdout()) && !set("NO_COLOR"),
    }
}

/// Whether it is a terminal that knows more than lines.
pub(super) fn can_draw(out: &impl IsTerminal) -> bool {
    out.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A cell as wide as its text, painted where `colours` says so. Written behind the padding, so that columns stay.
pub(super) fn paint(text: &str, paint: Paint, colours: bool) -> String {
    let code = match paint {
        Paint::Good => "32",
        Paint::Odd => "33",
        Paint::Bad => "31",
        Paint::Dim => "2",
    };
    if colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// How many characters a text shows: paint has no width.
pub(super) fn width(text: &str) -> usize {
    let mut shown = 0;
    let mut in_code = false;
    for character in text.chars() {
        match (in_code, character) {
            (false, '\u{1b}') => in_code = true,
            (true, 'm') => in_code = false,
            (true, _) => {}
            (false, _) => shown += 1,
        }
    }
    shown
}

/// What fits into that many columns. Codes of colours are kept whole, and end with the text.
pub(super) fn clip(text: &str, columns: usize) -> String {
    let (mut out, mut shown, mut in_code, mut painted) = (String::new(), 0, false, false);
    for character in text.chars() {
        match (in_code, character) {
            (false, '\u{1b}') => (in_code, painted) = (true, true),
            (true, 'm') => in_code = false,
            (true, _) => {}
            (false, _) if shown == columns => break,
            (false, _) => shown += 1,
        }
        out.push(character);
    }
    if painted && shown == columns {
        out.push_str("\u{1b}[0m");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_has_no_width() {
        assert_eq!(paint("ok", Paint::Good, false), "ok");
        let painted = paint("failed", Paint::Bad, true);
        assert_eq!((painted.as_str(), width(&painted)), ("\u{1b}[31mfailed\u{1b}[0m", 6));
        assert_eq!(clip(&painted, 3), "\u{1b}[31mfai\u{1b}[0m");
        assert_eq!((clip("failed", 3).as_str(), clip(&painted, 9)), ("fai", painted));
    }
}
