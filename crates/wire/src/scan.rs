//! Steps over JSON text value by value: no tree, no recursion, no allocation.
//!
//! It trusts the text to be JSON. On any other text it still ends, without a panic, with a fault or with ranges that lie
//! inside the text and on character boundaries; what they hold means nothing then.

use std::ops::Range;

/// What is wrong with the text, at [`Scanner::at`].
pub type Fault = &'static str;

const CUT_OFF: Fault = "a value that does not end";

/// A place in a text, between two tokens.
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Begins at the start of a text.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// How far it came, in bytes.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Goes back to a place that [`Self::at`] gave.
    pub fn back_to(&mut self, at: usize) {
        self.at = at;
    }

    /// The first byte of the next token; `None` is the end.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let next = self.text.as_bytes().get(self.at).copied();
            if !next.is_some_and(is_space) {
                return next;
            }
            self.at += 1;
        }
    }

    /// Steps over `token` if it is next.
    pub fn eat(&mut self, token: u8) -> bool {
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    /// Steps over a comma, or over the `end` of the object or array.
    ///
    /// Shape: says whether another member follows.
    pub fn goes_on(&mut self, end: u8) -> Result<bool, Fault> {
        if self.eat(b',') {
            return Ok(true);
        }
        if self.eat(end) { Ok(false) } else { Err("neither a comma nor an end where one belongs") }
    }

    /// Steps over a key and its colon, and gives the key with its quotes.
    pub fn key(&mut self) -> Result<&'a str, Fault> {
        if self.peek() != Some(b'"') {
            return Err("no key where one belongs");
        }
        let key = self.value()?;
        if self.eat(b':') { Ok(self.text.get(key).unwrap_or_default()) } else { Err("a key without a colon") }
    }

    /// Steps over one value and says where it lies.
    pub fn value(&mut self) -> Result<Range<usize>, Fault> {
        let first = self.peek().ok_or(CUT_OFF)?;
        let (bytes, start) = (self.text.as_bytes(), self.at);
        self.at = match first {
            b'"' => string_end(bytes, start).ok_or(CUT_OFF)?,
            b'{' | b'[' => nested_end(bytes, start).ok_or(CUT_OFF)?,
            _ => scalar_end(bytes, start),
        };
        if self.at == start { Err("no value where one belongs") } else { Ok(start..self.at) }
    }
}

/// Where the value of a key lies in the object that begins at `start`; of several the first. `None` where there is none.
pub fn value_of(json: &str, start: usize, key: &str) -> Option<Range<usize>> {
    let mut scanner = Scanner::new(json);
    scanner.back_to(start);
    if !scanner.eat(b'{') || scanner.eat(b'}') {
        return None;
    }
    loop {
        let found = is_key(scanner.key().ok()?, key);
        let value = scanner.value().ok()?;
        if found {
            return Some(value);
        }
        if !scanner.goes_on(b'}').ok()? {
            return None;
        }
    }
}

/// Says whether a key with its quotes is this one.
fn is_key(raw: &str, key: &str) -> bool {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    inner == key || (inner.contains('\\') && serde_json::from_str::<String>(raw).is_ok_and(|name| name == key))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// The end of the number, boolean or null at `start`.
fn scalar_end(bytes: &[u8], start: usize) -> usize {
    let rest = bytes.get(start..).unwrap_or_default();
    let len = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']') || is_space(*byte));
    start + len.unwrap_or(rest.len())
}

/// The end of the object or array at `start`.
///
/// Brackets are counted and not matched: of JSON, the count is enough. The depth is a number, so no nesting is too deep.
fn nested_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Bytes of a string that are looked at word by word, before a search for its end is called: most strings are shorter, and
/// a text within a text has an escape every few bytes.
const NEAR: usize = 32;

/// The end of the string at `start`, behind its closing quote; `None`: it does not end.
pub fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    let mut near = at + NEAR;
    loop {
        at += match bytes.get(at..)?.first_chunk() {
            Some(word) if at < near => plain_bytes(u64::from_le_bytes(*word)),
            _ => memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?,
        };
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => {
                at += 2;
                near = at + NEAR;
            }
            _ => {}
        }
    }
}

/// How many of the eight bytes of a word, the lowest first, come before the first quote or backslash.
fn plain_bytes(word: u64) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The lowest byte that is 0 gets its high bit; bytes above it may get theirs wrongly.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let special = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
    special.trailing_zeros() as usize / 8
}
