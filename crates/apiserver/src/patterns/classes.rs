//! Classes of characters.

use super::{
    BadPattern, Why,
    escapes::{escape, put_range},
};

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// The scripts whose names have four letters, as the short names of all scripts do.
const SHORT_SCRIPTS: [&str; 9] = ["ahom", "cham", "kawi", "lisu", "miao", "modi", "newa", "thai", "toto"];

/// Reads a class in brackets, with which a text begins; what follows it.
pub(super) fn class<'p>(text: &'p str, out: &mut String) -> Result<&'p str, BadPattern> {
    let mut rest = text.get(1..).unwrap_or_default();
    out.push('[');
    if let Some(negated) = rest.strip_prefix('^') {
        out.push('^');
        rest = negated;
    }
    let mut is_first = true;
    while is_first || !rest.starts_with(']') {
        is_first = false;
        if let Some((named, after)) = posix_class(rest)? {
            out.push_str(named);
            rest = after;
        } else if let Some((named, after)) = unicode_class(rest)? {
            out.push_str(&named);
            rest = after;
        } else if let Some((named, after)) = perl_class(rest) {
            out.push_str(named);
            rest = after;
        } else {
            let range = rest;
            let (from, after) = character(rest, text)?;
            rest = after;
            let mut to = from;
            if let Some(after) = rest.strip_prefix('-')
                && !after.is_empty()
                && !after.starts_with(']')
            {
                (to, rest) = character(after, text)?;
                if to < from {
                    return Err(Why::Range.of(range.get(..range.len() - rest.len()).unwrap_or_default()));
                }
            }
            put_range(out, from, to);
        }
    }
    out.push(']');
    Ok(rest.get(1..).unwrap_or_default())
}

fn character<'p>(text: &'p str, class: &str) -> Result<(u32, &'p str), BadPattern> {
    let mut chars = text.chars();
    match chars.next() {
        None => Err(Why::Bracket.of(class)),
        Some('\\') => escape(text),
        Some(char) => Ok((char.into(), chars.as_str())),
    }
}

/// `[:alpha:]`, in a class.
fn posix_class(text: &str) -> Result<Option<(&str, &str)>, BadPattern> {
    let Some(end) = text.strip_prefix("[:").and_then(|inner| inner.find(":]")) else { return Ok(None) };
    let (named, rest) = text.split_at_checked(end + "[::]".len()).unwrap_or_default();
    let name = named.get(2..2 + end).unwrap_or_default();
    if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(Why::Range.of(named));
    }
    Ok(Some((named, rest)))
}

/// `\d` and its like, which are of ASCII.
pub(super) fn perl_class(text: &str) -> Option<(&'static str, &str)> {
    let class = match text.get(..2)? {
        r"\d" => "[0-9]",
        r"\D" => "[^0-9]",
        r"\s" => r"[\t\n\f\r ]",
        r"\S" => r"[^\t\n\f\r ]",
        r"\w" => "[0-9A-Za-z_]",
        r"\W" => "[^0-9A-Za-z_]",
        _ => return None,
    };
    Some((class, text.get(2..).unwrap_or_default()))
}

/// `\pL`, `\p{Greek}` or `\P{^Greek}`, with which a text begins.
pub(super) fn unicode_class(text: &str) -> Result<Option<(String, &str)>, BadPattern> {
    let Some(after) = text.strip_prefix(r"\p").or_else(|| text.strip_prefix(r"\P")) else { return Ok(None) };
    let first = after.chars().next().ok_or_else(|| Why::Range.of(text))?;
    let length = if first == '{' { after.find('}').ok_or_else(|| Why::Range.of(text))? + 1 } else { first.len_utf8() };
    let (braced, rest) = after.split_at_checked(length).unwrap_or_default();
    let name = braced.strip_prefix('{').map_or(braced, |inner| inner.trim_end_matches('}'));
    let (is_inverted, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
    let (is_complement, class) =
        unicode_name(name).ok_or_else(|| Why::Range.of(text.get(..2 + length).unwrap_or_default()))?;
    let letter = if text.starts_with(r"\P") ^ is_inverted ^ is_complement { 'P' } else { 'p' };
    Ok(Some((format!(r"\{letter}{{{class}}}"), rest)))
}

/// A category or a script of Unicode, or what has all characters but those. Go has no other properties, no short names of scripts,
/// and none with `Is` before it.
fn unicode_name(name: &str) -> Option<(bool, String)> {
    let mut plain: String = name.chars().filter(|char| !matches!(char, '_' | '-' | ' ')).collect();
    plain.make_ascii_lowercase();
    if matches!(&*plain, "cs" | "surrogate") {
        // No text has surrogates.
        return Some((true, "gc=any".to_owned()));
    }
    if !plain.bytes().all(|byte| byte.is_ascii_alphanumeric()) || plain.starts_with("is") {
        return None;
    }
    let is_known = |named: &String| regex_syntax::parse(&format!(r"\p{{{named}}}")).is_ok();
    let script = || (plain.len() != 4 || SHORT_SCRIPTS.contains(&&*plain)).then(|| format!("sc={plain}"));
    let category = Some(format!("gc={plain}")).filter(is_known);
    category.or_else(|| script().filter(is_known)).map(|class| (false, class))
}
