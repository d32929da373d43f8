//! Regular expressions that Go refuses, in its words.
//!
//! Rust's `regex` and Go's `regexp` both have the syntax of RE2. What Go alone takes (`\Q...\E`) is refused, in words of Rust's.
//!
//! Source: Go `regexp/syntax/parse.go`.

use regex_syntax::{
    Error, Parser,
    ast::{self, Ast, ErrorKind, Flag, Flags, FlagsItemKind, GroupKind, RepetitionKind, RepetitionRange, Span},
    hir,
};

/// How often something may be repeated, repetitions of repetitions counted.
const REPEATED_MAX: u32 = 1_000;

/// Why a pattern is no regular expression, as Go says it; `None`: it is one.
pub(crate) fn pattern_fault(pattern: &str) -> Option<String> {
    let said = |why: &str, part: &str| Some(format!("error parsing regexp: {why}: `{part}`"));
    if let Err(error) = Parser::new().parse(pattern) {
        return match error {
            Error::Parse(error) => syntax(pattern, &error),
            Error::Translate(error) if matches!(error.kind(), hir::ErrorKind::UnicodePropertyNotFound) => {
                said("invalid character class range", within(pattern, error.span()))
            }
            other => Some(in_other_words(&other.to_string())),
        };
    }
    let ast = ast::parse::Parser::new().parse(pattern).ok()?;
    if let Some((why, part)) = misused(pattern, &ast) {
        return said(why, part);
    }
    regex::Regex::new(pattern).err().map(|error| in_other_words(&error.to_string()))
}

fn within<'p>(pattern: &'p str, span: &Span) -> &'p str {
    pattern.get(span.start.offset..span.end.offset).unwrap_or_default()
}

fn in_other_words(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default();
    format!("error parsing regexp: {}", last.trim_start_matches("error: "))
}

fn syntax(pattern: &str, error: &ast::Error) -> Option<String> {
    let span = error.span();
    let from = pattern.get(span.start.offset..).unwrap_or_default();
    let (why, part) = match error.kind() {
        ErrorKind::ClassUnclosed => ("missing closing ]", from),
        ErrorKind::GroupUnclosed => ("missing closing )", pattern),
        ErrorKind::GroupUnopened => ("unexpected )", pattern),
        ErrorKind::RepetitionMissing => ("missing argument to repetition operator", operator(from)),
        ErrorKind::RepetitionCountInvalid => ("invalid repeat count", operator(from)),
        ErrorKind::ClassRangeInvalid => ("invalid character class range", within(pattern, span)),
        ErrorKind::EscapeUnrecognized | ErrorKind::ClassEscapeInvalid | ErrorKind::UnsupportedBackreference => {
            ("invalid escape sequence", within(pattern, span))
        }
        ErrorKind::EscapeUnexpectedEof => ("trailing backslash at end of expression", ""),
        ErrorKind::UnsupportedLookAround if !from.starts_with("(?<") => {
            ("invalid or unsupported Perl syntax", from.get(..3).unwrap_or(from))
        }
        _ => return Some(in_other_words(&error.to_string())),
    };
    Some(format!("error parsing regexp: {why}: `{part}`"))
}

/// The repetition operator with which a text begins.
fn operator(text: &str) -> &str {
    let end = if text.starts_with('{') { text.find('}').map_or(text.len(), |end| end + 1) } else { 1 };
    let end = if text.get(end..).is_some_and(|rest| rest.starts_with('?')) { end + 1 } else { end };
    text.get(..end).unwrap_or(text)
}

/// What Go has not: some flags, and some ways to repeat.
fn misused<'p>(pattern: &'p str, ast: &Ast) -> Option<(&'static str, &'p str)> {
    let inside = || parts(ast).find_map(|part| misused(pattern, part));
    match ast {
        Ast::Flags(set) => unknown_flag(pattern, set.span.start.offset, &set.flags),
        Ast::Group(group) => match &group.kind {
            GroupKind::NonCapturing(flags) => unknown_flag(pattern, group.span.start.offset, flags).or_else(inside),
            _ => inside(),
        },
        Ast::Repetition(repetition) => inside().or_else(|| {
            let op = &repetition.op.span;
            if let Ast::Repetition(inner) = &*repetition.ast {
                let both = Span { start: inner.op.span.start, end: op.end };
                return Some(("invalid nested repetition operator", within(pattern, &both)));
            }
            (!is_repeatable(ast, REPEATED_MAX)).then(|| ("invalid repeat count", within(pattern, op)))
        }),
        _ => inside(),
    }
}

fn unknown_flag<'p>(pattern: &'p str, start: usize, flags: &Flags) -> Option<(&'static str, &'p str)> {
    let is_unknown =
        |kind: &FlagsItemKind| matches!(kind, FlagsItemKind::Flag(Flag::IgnoreWhitespace | Flag::Unicode | Flag::CRLF));
    let item = flags.items.iter().find(|item| is_unknown(&item.kind))?;
    Some(("invalid or unsupported Perl syntax", pattern.get(start..item.span.end.offset).unwrap_or_default()))
}

fn is_repeatable(ast: &Ast, left: u32) -> bool {
    let mut left = left;
    if let Ast::Repetition(repetition) = ast
        && let RepetitionKind::Range(range) = &repetition.op.kind
    {
        let most = match range {
            RepetitionRange::Exactly(count) | RepetitionRange::AtLeast(count) | RepetitionRange::Bounded(_, count) => {
                *count
            }
        };
        if most > left {
            return false;
        }
        left = left.checked_div(most).unwrap_or(u32::MAX);
    }
    parts(ast).all(|part| is_repeatable(part, left))
}

fn parts(ast: &Ast) -> impl Iterator<Item = &Ast> {
    let (one, many): (Option<&Ast>, &[Ast]) = match ast {
        Ast::Repetition(repetition) => (Some(&repetition.ast), &[]),
        Ast::Group(group) => (Some(&group.ast), &[]),
        Ast::Alternation(either) => (None, &either.asts),
        Ast::Concat(all) => (None, &all.asts),
        _ => (None, &[]),
    };
    one.into_iter().chain(many)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go 1.26 says it.
    #[test]
    fn patterns_are_refused_as_by_go() {
        for (pattern, why) in [
            ("(", "missing closing ): `(`"),
            ("a(b|c", "missing closing ): `a(b|c`"),
            ("a)b", "unexpected ): `a)b`"),
            ("x[a-z", "missing closing ]: `[a-z`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|+?b", "missing argument to repetition operator: `+?`"),
            ("({2})", "missing argument to repetition operator: `{2}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("(a+b??*)", "invalid nested repetition operator: `??*`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("((a{100}){100}){2}", "invalid repeat count: `{100}`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?x) a b", "invalid or unsupported Perl syntax: `(?x`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            (r"\p{Nope}", r"invalid character class range: `\p{Nope}`"),
        ] {
            assert_eq!(
                pattern_fault(pattern).as_deref(),
                Some(format!("error parsing regexp: {why}").as_str()),
                "{pattern}"
            );
        }
        for pattern in
            ["", "^[a-z]([-a-z0-9]*[a-z0-9])?$", r"\d+\.\d*", "(?i)a{2,1000}", r"[\w.]{0,63}", "(?P<x>a)", "a{,2}"]
        {
            assert_eq!(pattern_fault(pattern), None, "{pattern}");
        }
    }
}
