//! Lines, indents and the styles of scalars: `emitterc.go`.

use super::scalar;

/// Text beyond this column is folded at the next space.
const WIDTH: usize = 80;
/// Keys up to this many bytes stand on one line with their value.
const KEY_BYTES_MAX: usize = 128;

/// Writes block style, in an indent of two.
pub(super) struct Emitter {
    out: String,
    column: usize,
    indent: Option<usize>,
    /// The last thing written was a space, or as good as one.
    whitespace: bool,
    /// Nothing but an indent and indicators stands in the line.
    indention: bool,
    chars: Vec<char>,
}

/// What a scalar's characters allow.
struct Analysis {
    multiline: bool,
    plain: bool,
    single_quoted: bool,
    block: bool,
}

impl Emitter {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            out: String::with_capacity(bytes),
            column: 0,
            indent: None,
            whitespace: true,
            indention: true,
            chars: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.indent = None;
        self.line();
        self.out.into_bytes()
    }

    /// Begins a mapping or sequence; the indent to go back to.
    pub(super) fn indent(&mut self, value_of_mapping: bool) -> Option<usize> {
        let before = self.indent;
        self.indent = Some(match before {
            None => 0,
            Some(indent) if value_of_mapping && !self.indention => indent,
            Some(indent) => indent + 2,
        });
        before
    }

    pub(super) fn dedent(&mut self, indent: Option<usize>) {
        self.indent = indent;
    }

    /// Begins an item of a sequence.
    pub(super) fn item(&mut self) {
        self.line();
        self.indicator("-", true, true);
    }

    /// Writes a key, so that its value may follow.
    pub(super) fn key(&mut self, key: &str) {
        self.line();
        if key.len() <= KEY_BYTES_MAX && !key.chars().any(is_break) {
            self.scalar(key, true);
            self.indicator(":", false, false);
            return;
        }
        self.indicator("?", true, true);
        self.scalar(key, false);
        self.line();
        self.indicator(":", true, true);
    }

    /// Writes a word that needs no quotes.
    pub(super) fn plain(&mut self, word: &str) {
        self.space();
        word.chars().for_each(|c| self.put(c));
        (self.whitespace, self.indention) = (false, false);
    }

    /// Writes a string that is a value.
    pub(super) fn string(&mut self, text: &str) {
        self.scalar(text, false);
    }

    fn scalar(&mut self, text: &str, is_key: bool) {
        let mut chars = std::mem::take(&mut self.chars);
        chars.clear();
        chars.extend(text.chars());
        let can = analyze(text, &chars);
        let literal = text.contains('\n');
        let before = self.indent;
        self.indent = Some(before.map_or(2, |indent| indent + 2));
        if literal && can.block && !is_key {
            self.literal(&chars);
        } else if literal || !scalar::is_text(text) || (is_key && can.multiline) {
            self.double_quoted(&chars, !is_key);
        } else if can.plain && !(text.is_empty() && is_key) {
            self.folded(&chars, !is_key, None);
        } else if can.single_quoted {
            self.indicator("'", true, false);
            self.folded(&chars, !is_key, Some('\''));
            self.indicator("'", false, false);
        } else {
            self.double_quoted(&chars, !is_key);
        }
        (self.whitespace, self.indention) = match self.column {
            // A literal ends its own line.
            0 => (self.whitespace, self.indention),
            _ => (false, false),
        };
        (self.chars, self.indent) = (chars, before);
    }

    /// Plain, or between single quotes, which are doubled inside.
    fn folded(&mut self, chars: &[char], folds: bool, quote: Option<char>) {
        if quote.is_none() {
            self.space();
        }
        let (mut spaces, mut breaks) = (false, false);
        for (at, &c) in chars.iter().enumerate() {
            let next_is_space = chars.get(at + 1) == Some(&' ');
            if c == ' ' {
                let inside = quote.is_none() || (at > 0 && at + 1 < chars.len());
                if folds && !spaces && self.column > WIDTH && inside && !next_is_space {
                    self.line();
                } else {
                    self.put(c);
                }
                spaces = true;
            } else if is_break(c) {
                if !breaks && c == '\n' {
                    self.line_break('\n');
                }
                self.line_break(c);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.line();
                }
                if quote == Some(c) {
                    self.put(c);
                }
                self.put(c);
                (self.indention, spaces, breaks) = (false, false, false);
            }
        }
    }

    fn double_quoted(&mut self, chars: &[char], folds: bool) {
        self.indicator("\"", true, false);
        let mut spaces = false;
        // Go looks for the mark where the text begins, whichever character it is at.
        let marked = chars.first() == Some(&'\u{feff}');
        for (at, &c) in chars.iter().enumerate() {
            if marked || !is_printable(c) || is_break(c) || c == '"' || c == '\\' {
                scalar::escape(c).chars().for_each(|c| self.put(c));
                spaces = false;
            } else if c == ' ' {
                if folds && !spaces && self.column > WIDTH && at > 0 && at + 1 < chars.len() {
                    self.line();
                    if chars.get(at + 1) == Some(&' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
        }
        self.indicator("\"", false, false);
    }

    fn literal(&mut self, chars: &[char]) {
        self.indicator("|", true, false);
        if chars.first().is_some_and(|c| *c == ' ' || is_break(*c)) {
            self.indicator("2", false, false);
        }
        let mut ends = chars.iter().rev().map(|c| is_break(*c));
        match (ends.next().unwrap_or_default(), ends.next()) {
            (false, _) => self.indicator("-", false, false),
            (true, None | Some(true)) => self.indicator("+", false, false),
            (true, Some(false)) => {}
        }
        self.line_break('\n');
        (self.indention, self.whitespace) = (true, true);
        let mut breaks = true;
        for &c in chars {
            if is_break(c) {
                self.line_break(c);
                (self.indention, breaks) = (true, true);
            } else {
                if breaks {
                    self.line();
                }
                self.put(c);
                (self.indention, breaks) = (false, false);
            }
        }
    }

    /// Goes to the indent of the next line, unless it is there already.
    fn line(&mut self) {
        let indent = self.indent.unwrap_or_default();
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break('\n');
        }
        while self.column < indent {
            self.put(' ');
        }
        (self.whitespace, self.indention) = (true, true);
    }

    fn indicator(&mut self, text: &str, apart: bool, opens: bool) {
        if apart {
            self.space();
        }
        text.chars().for_each(|c| self.put(c));
        self.whitespace = false;
        self.indention &= opens;
    }

    fn space(&mut self) {
        if !self.whitespace {
            self.put(' ');
        }
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn line_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

/// `yaml_emitter_analyze_scalar`, for block style.
fn analyze(text: &str, chars: &[char]) -> Analysis {
    let blank = |at: usize| chars.get(at).is_none_or(|c| matches!(c, ' ' | '\t'));
    let mut indicators = text.starts_with("---") || text.starts_with("...");
    let (mut breaks, mut special, mut break_space, mut space_break) = (false, false, false, false);
    let (mut after_space, mut after_break, mut after_white) = (false, false, true);
    for (at, &c) in chars.iter().enumerate() {
        indicators |= match c {
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                if at == 0 =>
            {
                true
            }
            '?' | '-' if at == 0 => blank(at + 1),
            ':' => blank(at + 1),
            '#' => after_white,
            _ => false,
        };
        special |= !is_printable(c);
        breaks |= is_break(c);
        break_space |= c == ' ' && after_break;
        space_break |= is_break(c) && after_space;
        (after_space, after_break) = (c == ' ', is_break(c));
        after_white = matches!(c, ' ' | '\t' | '\0') || is_break(c);
    }
    let edge = |c: Option<&char>| c.is_some_and(|c| *c == ' ' || is_break(*c));
    let at_edge = edge(chars.first()) || edge(chars.last());
    let torn = space_break || special;
    Analysis {
        multiline: breaks,
        plain: !(at_edge || break_space || torn || breaks || indicators),
        single_quoted: !(break_space || torn),
        block: !(chars.is_empty() || chars.last() == Some(&' ') || torn),
    }
}
