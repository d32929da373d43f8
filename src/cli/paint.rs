//! Colours, for people at a terminal that wants them.

use std::io::IsTerminal;

/// What a word is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Good,
    Odd,
    Bad,
    Dim,
}

/// Whether standard output takes colours. Source: no-color.org.
pub(super) fn on_stdout() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_has_no_width() {
        assert_eq!(paint("ok", Paint::Good, false), "ok");
        let painted = paint("failed", Paint::Bad, true);
        assert_eq!((painted.as_str(), width(&painted)), ("\u{1b}[31mfailed\u{1b}[0m", 6));
    }
}
