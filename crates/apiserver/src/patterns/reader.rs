//! Groups, repetitions and what stands between them.

use std::fmt::Write;

use super::{
    BadPattern, Why,
    classes::{self, perl_class, unicode_class},
    escapes::{escape, put_literal},
};

/// How often something may be repeated, repetitions of repetitions counted.
const REPEATED_MAX: u32 = 1_000;
/// A number that is larger is as wrong as one that has no end.
const NUMBER_MAX: u32 = 100_000_000;

/// A pattern as Rust's `regex` writes it.
pub(super) fn rewritten(pattern: &str) -> Result<String, BadPattern> {
    let mut reader = Reader { pattern, rest: pattern, out: String::new(), open: vec![], group: Group::default() };
    reader.read()?;
    Ok(reader.out)
}

/// What a group has so far.
#[derive(Default)]
struct Group {
    /// Where it begins in what is written.
    start: usize,
    /// How often something in it is repeated.
    repeated: u32,
    /// What a repetition would repeat.
    last: Option<Last>,
}

struct Last {
    /// Where it is in what is written: flags may follow.
    start: usize,
    end: usize,
    /// How often something in it is repeated.
    repeated: u32,
    is_repetition: bool,
}

struct Reader<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    /// The groups around the one that is read.
    open: Vec<Group>,
    group: Group,
}

/// `{least,most}`.
struct Repeat {
    least: u32,
    most: Option<u32>,
}

impl<'p> Reader<'p> {
    fn read(&mut self) -> Result<(), BadPattern> {
        let mut repeated_at = None;
        while let Some(first) = self.rest.chars().next() {
            let before = self.rest;
            let mut is_repeated = false;
            match first {
                '(' if self.rest.starts_with("(?") => self.perl()?,
                '(' => {
                    self.skip(1);
                    self.opens("(?:");
                }
                '|' => {
                    self.skip(1);
                    self.out.push('|');
                    self.group.last = None;
                }
                ')' => self.closes()?,
                '^' | '$' | '.' => {
                    self.skip(1);
                    self.put(|out| out.push(first));
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    self.skip(1);
                    self.repeats(before, repeated_at, None)?;
                    is_repeated = true;
                }
                '{' => {
                    if let Some((repeat, rest)) = counted(before) {
                        self.rest = rest;
                        self.repeats(before, repeated_at, Some(repeat))?;
                        is_repeated = true;
                    } else {
                        self.skip(1);
                        self.put(|out| put_literal(out, '{'.into()));
                    }
                }
                '\\' => self.escaped()?,
                other => {
                    self.skip(other.len_utf8());
                    self.put(|out| put_literal(out, other.into()));
                }
            }
            repeated_at = is_repeated.then_some(before);
        }
        if self.open.is_empty() { Ok(()) } else { Err(Why::Parenthesis.of(self.pattern)) }
    }

    fn skip(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
    }

    /// Writes one thing that can be repeated.
    fn put(&mut self, write: impl FnOnce(&mut String)) {
        let start = self.out.len();
        write(&mut self.out);
        self.ends(start, 1);
    }

    fn ends(&mut self, start: usize, repeated: u32) {
        self.group.repeated = self.group.repeated.max(repeated);
        self.group.last = Some(Last { start, end: self.out.len(), repeated, is_repetition: false });
    }

    fn opens(&mut self, with: &str) {
        let start = self.out.len();
        self.out.push_str(with);
        self.open.push(std::mem::replace(&mut self.group, Group { start, ..Group::default() }));
    }

    fn closes(&mut self) -> Result<(), BadPattern> {
        let around = self.open.pop().ok_or_else(|| Why::Unexpected.of(self.pattern))?;
        let Group { start, repeated, .. } = std::mem::replace(&mut self.group, around);
        self.skip(1);
        self.out.push(')');
        self.ends(start, repeated.max(1));
        Ok(())
    }

    /// Repeats what stands before, with the operator between `before` and what is left.
    fn repeats(&mut self, before: &str, repeated_at: Option<&str>, count: Option<Repeat>) -> Result<(), BadPattern> {
        if let Some(Repeat { least, most }) = &count {
            let is_turned = most.is_some_and(|most| least > &most);
            if *least > REPEATED_MAX || most.is_some_and(|most| most > REPEATED_MAX) || is_turned {
                return Err(Why::Repeat.of(self.since(before)));
            }
        }
        if self.rest.starts_with('?') {
            self.skip(1);
        }
        if let Some(earlier) = repeated_at {
            return Err(Why::NestedRepeat.of(self.since(earlier)));
        }
        let operator = self.since(before).to_owned();
        let Some(last) = &mut self.group.last else { return Err(Why::RepeatsNothing.of(&operator)) };
        if let Some(Repeat { least, most }) = count {
            last.repeated = match most {
                Some(0) => 1,
                most => last.repeated.saturating_mul(most.unwrap_or(least).max(1)),
            };
            if last.repeated > REPEATED_MAX && most.unwrap_or(least) >= 2 {
                return Err(Why::Repeat.of(&operator));
            }
            self.group.repeated = self.group.repeated.max(last.repeated);
        }
        if last.is_repetition {
            self.out.insert(last.end, ')');
            self.out.insert_str(last.start, "(?:");
            last.end += "(?:)".len();
        }
        self.out.insert_str(last.end, &operator);
        last.end += operator.len();
        last.is_repetition = true;
        Ok(())
    }

    /// What was read since then.
    fn since(&self, before: &'p str) -> &'p str {
        before.get(..before.len() - self.rest.len()).unwrap_or_default()
    }

    /// `(?...`: a group with a name, a group with flags, or flags.
    fn perl(&mut self) -> Result<(), BadPattern> {
        let all = self.rest;
        if all.starts_with("(?P<") && all.len() > 4 || all.starts_with("(?<") && all.len() > 3 {
            let Some(end) = all.find('>') else { return Err(Why::Name.of(all)) };
            let name = all.get(..end).and_then(|named| named.split_once('<')).map_or("", |(_, name)| name);
            if name.is_empty() || !name.chars().all(|char| char == '_' || char.is_ascii_alphanumeric()) {
                return Err(Why::Name.of(all.get(..=end).unwrap_or_default()));
            }
            self.skip(end + 1);
            self.opens("(?:");
            return Ok(());
        }
        self.skip("(?".len());
        let mut flags: [(char, Option<bool>); 4] = ['i', 'm', 's', 'U'].map(|name| (name, None));
        let (mut sets, mut is_seen) = (true, false);
        while let Some(char) = self.rest.chars().next() {
            self.skip(char.len_utf8());
            if let Some((_, is_set)) = flags.iter_mut().find(|(name, _)| *name == char) {
                *is_set = Some(sets);
                is_seen = true;
            } else if char == '-' && sets {
                (sets, is_seen) = (false, false);
            } else if matches!(char, ':' | ')') && (sets || is_seen) {
                self.flagged(&flags, char == ':');
                return Ok(());
            } else {
                break;
            }
        }
        Err(Why::Perl.of(self.since(all)))
    }

    fn flagged(&mut self, flags: &[(char, Option<bool>)], is_group: bool) {
        let named = |sets: bool| flags.iter().filter(move |(_, is_set)| *is_set == Some(sets)).map(|(name, _)| *name);
        let (set, unset): (String, String) = (named(true).collect(), named(false).collect());
        let minus = if unset.is_empty() { "" } else { "-" };
        if is_group {
            self.opens(&format!("(?{set}{minus}{unset}:"));
        } else if !(set.is_empty() && unset.is_empty()) {
            let _ = write!(self.out, "(?{set}{minus}{unset})");
        }
    }

    fn class(&mut self) -> Result<(), BadPattern> {
        let mut class = String::new();
        self.rest = classes::class(self.rest, &mut class)?;
        self.put(|out| out.push_str(&class));
        Ok(())
    }

    fn escaped(&mut self) -> Result<(), BadPattern> {
        let second = self.rest.chars().nth(1);
        let place = match second {
            Some('A') => r"\A",
            Some('z') => r"\z",
            // Of ASCII.
            Some('b') => r"(?-u:\b)",
            Some('B') => r"(?-u:\B)",
            Some('Q') => {
                self.skip(r"\Q".len());
                let (quoted, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
                self.rest = rest;
                quoted.chars().for_each(|char| self.put(|out| put_literal(out, char.into())));
                return Ok(());
            }
            _ => "",
        };
        if !place.is_empty() {
            self.skip(2);
            self.put(|out| out.push_str(place));
        } else if let Some((class, rest)) = unicode_class(self.rest)? {
            self.rest = rest;
            self.put(|out| out.push_str(&class));
        } else if let Some((class, rest)) = perl_class(self.rest) {
            self.rest = rest;
            self.put(|out| out.push_str(class));
        } else {
            let (code, rest) = escape(self.rest)?;
            self.rest = rest;
            self.put(|out| put_literal(out, code));
        }
        Ok(())
    }
}

/// `{2}`, `{2,}` or `{2,3}`; anything else is text.
fn counted(text: &str) -> Option<(Repeat, &str)> {
    let (least, rest) = number(text.strip_prefix('{')?)?;
    let (most, rest) = match rest.strip_prefix(',') {
        None => (Some(least), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => number(rest).map(|(most, rest)| (Some(most), rest))?,
    };
    Some((Repeat { least, most }, rest.strip_prefix('}')?))
}

/// A number without zeros before it.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    let is_plain = digits == "0" || !digits.is_empty() && !digits.starts_with('0');
    is_plain.then(|| (digits.parse().map_or(NUMBER_MAX, |number: u32| number.min(NUMBER_MAX)), rest))
}
