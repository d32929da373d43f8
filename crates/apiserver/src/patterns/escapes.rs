//! `\n`, `\x41` and their like, and characters as such.

use std::fmt::Write;

use super::{BadPattern, Why};

/// What no text has.
const NOTHING: &str = r"[^\x00-\x{10FFFF}]";

/// Writes a character, outside of a class.
pub(super) fn put_literal(out: &mut String, code: u32) {
    match char::from_u32(code) {
        Some(char) if regex_syntax::is_meta_character(char) => out.extend(['\\', char]),
        Some(char) => out.push(char),
        // Half of a surrogate pair.
        None => out.push_str(NOTHING),
    }
}

/// The number of an escaped character with which a text begins, and what follows it.
pub(super) fn escape(text: &str) -> Result<(u32, &str), BadPattern> {
    let mut chars = text.get(1..).unwrap_or_default().chars();
    let Some(first) = chars.next() else { return Err(Why::Backslash.of("")) };
    let code = match first {
        '0' => octal(0, &mut chars),
        '1'..='7' if chars.clone().next().is_some_and(|next| next.is_digit(8)) => {
            octal(first.to_digit(8).unwrap_or_default(), &mut chars)
        }
        'x' => match hex(&mut chars) {
            Some(code) => code,
            None => return Err(invalid(text, chars.as_str())),
        },
        'a' => 0x07,
        'f' => 0x0c,
        'n' => 0x0a,
        'r' => 0x0d,
        't' => 0x09,
        'v' => 0x0b,
        char if char.is_ascii() && !char.is_ascii_alphanumeric() => char.into(),
        _ => return Err(invalid(text, chars.as_str())),
    };
    Ok((code, chars.as_str()))
}

fn invalid(text: &str, rest: &str) -> BadPattern {
    Why::Escape.of(text.get(..text.len() - rest.len()).unwrap_or_default())
}

/// Three digits at most, of which one is read.
fn octal(first: u32, chars: &mut std::str::Chars<'_>) -> u32 {
    let mut code = first;
    for _ in 0..2 {
        let Some(digit) = chars.clone().next().and_then(|next| next.to_digit(8)) else { break };
        chars.next();
        code = code * 8 + digit;
    }
    code
}

/// Two digits, or any number of them in braces.
fn hex(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    let first = chars.next()?;
    if first != '{' {
        // Both are read before either is judged.
        let (high, low) = (first.to_digit(16), chars.next()?.to_digit(16));
        return Some(high? * 16 + low?);
    }
    let mut code = None;
    loop {
        let next = chars.next()?;
        if next == '}' {
            return code;
        }
        let known: u32 = code.unwrap_or_default() * 16 + next.to_digit(16)?;
        if known > char::MAX.into() {
            return None;
        }
        code = Some(known);
    }
}

/// Writes a range of characters, inside of a class.
pub(super) fn put_range(out: &mut String, from: u32, to: u32) {
    // No text has halves of surrogate pairs.
    let from = char::from_u32(from).map_or(0xe000, u32::from);
    let to = char::from_u32(to).map_or(0xd7ff, u32::from);
    if from <= to {
        let _ = write!(out, r"\x{{{from:x}}}-\x{{{to:x}}}");
    } else {
        out.push_str(NOTHING);
    }
}
