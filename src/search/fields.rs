//! Selectors over any field: Kubernetes' field selectors with the operators of label selectors.
//!
//! `status.phase=Running`, `.status.phase notin (Running,Succeeded)`, `metadata.annotations['test.io'] in (a,b)`,
//! `spec.containers[].image!=nginx`, `spec.nodeName`, `!metadata.deletionTimestamp`.

use crate::search::SearchError;
use kubefold_wire::selector::{FieldPath, text_of};

/// Terms that a selector may have.
const TERMS_MAX: usize = 128;
/// Values that one set may have.
const VALUES_MAX: usize = 1024;

/// How the values of a field are compared with those of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=`, `==`, `in`: one of the field's values is one of the term's.
    In,
    /// `!=`, `notin`: none of the field's values is one of the term's. So it holds where the field is absent, as a label
    /// selector's `!=` does; of a path with `[]`, where no element has such a value.
    NotIn,
    /// The field is there, and not null.
    Exists,
    /// It is not there, or null.
    NotExists,
}

/// One term of a field selector.
///
/// A field's values are what its path leads to, but for nulls, which are absent. A text is compared without its quotes and
/// escapes, a number or boolean as it is written in the document; an object or an array is there, and equals no value. What is
/// absent is not the empty text: `spec.nodeName=` selects what has an empty one, `!spec.nodeName` what has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// Where the values are.
    pub path: FieldPath,
    /// How they are compared.
    pub operator: FieldOperator,
    /// With what; none for [`FieldOperator::Exists`] and [`FieldOperator::NotExists`].
    pub values: Vec<String>,
}

impl FieldTerm {
    /// Reads a selector. All of its terms must hold.
    ///
    /// Errors: a term that is not understood, by its text.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, SearchError> {
        let parts = split(text, ',');
        let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
        let terms = parts.map(Self::parse).collect::<Result<Vec<_>, _>>()?;
        if terms.len() > TERMS_MAX {
            return Err(SearchError::TooMany { what: "terms of fieldSelector", found: terms.len(), max: TERMS_MAX });
        }
        Ok(terms)
    }

    fn parse(term: &str) -> Result<Self, SearchError> {
        let wrong = |why| SearchError::Field { term: term.to_owned(), why };
        if let Some(path) = term.strip_prefix('!') {
            return Ok(Self {
                path: path_of(path).ok_or_else(|| wrong(NO_PATH))?,
                operator: FieldOperator::NotExists,
                values: Vec::new(),
            });
        }
        let end = path_end(term);
        let (path, rest) = term.split_at(end);
        let path = path_of(path).ok_or_else(|| wrong(NO_PATH))?;
        let rest = rest.trim();
        let (operator, values) = if rest.is_empty() {
            (FieldOperator::Exists, Vec::new())
        } else if let Some(value) = rest.strip_prefix("!=") {
            (FieldOperator::NotIn, vec![value_of(value).ok_or_else(|| wrong(NO_VALUE))?])
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            (FieldOperator::In, vec![value_of(value).ok_or_else(|| wrong(NO_VALUE))?])
        } else if let Some(set) = word(rest, "notin") {
            (FieldOperator::NotIn, set_of(set).ok_or_else(|| wrong(NO_SET))?)
        } else if let Some(set) = word(rest, "in") {
            (FieldOperator::In, set_of(set).ok_or_else(|| wrong(NO_SET))?)
        } else {
            return Err(wrong(
                "the operator is not understood: =, ==, !=, in (...), notin (...), or none and ! for presence",
            ));
        };
        if values.len() > VALUES_MAX {
            return Err(SearchError::TooMany {
                what: "values of a term of fieldSelector",
                found: values.len(),
                max: VALUES_MAX,
            });
        }
        Ok(Self { path, operator, values })
    }

    /// Says whether a document that a JSON parser has accepted meets it.
    pub fn matches(&self, json: &str) -> bool {
        let (wants_value, on_hit) = match self.operator {
            FieldOperator::In => (true, true),
            FieldOperator::NotIn => (true, false),
            FieldOperator::Exists => (false, true),
            FieldOperator::NotExists => (false, false),
        };
        let mut hit = false;
        self.path.walk(json, |raw| {
            hit = raw != "null" && (!wants_value || self.has(raw));
            hit
        });
        hit == on_hit
    }

    fn has(&self, raw: &str) -> bool {
        match raw.as_bytes().first() {
            Some(b'"') => text_of(raw).is_some_and(|text| self.values.iter().any(|value| *value == text)),
            Some(b'{' | b'[') | None => false,
            Some(_) => self.values.iter().any(|value| value == raw),
        }
    }
}

const NO_PATH: &str = "no path of fields, as spec.containers[].image or metadata.annotations['a/b']";
const NO_VALUE: &str =
    "a comma, an equals sign or a backslash in a value needs a backslash before it, or quotes around the value";
const NO_SET: &str = "in and notin are followed by values in parentheses";

/// A path whose keys, where they are not quoted, are names of fields.
pub(super) fn path_of(text: &str) -> Option<FieldPath> {
    let text = text.trim();
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c.is_alphanumeric() || "._-[]*\\/$".contains(c) => {}
            None => return None,
        }
    }
    // A slash stands in a quoted key, or behind a backslash's dots: `metadata.labels.app\.kubernetes\.io/name`.
    let is_comment = quote.is_none() && text.contains("/*");
    FieldPath::parse(text).filter(|_| !is_comment)
}

/// Where a term's path ends: at a space or an operator that stands outside of quotes and brackets.
fn path_end(term: &str) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in term.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if std::mem::take(&mut escaped) => {}
            None if c == '\\' => escaped = true,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c.is_whitespace() || "=!<>(~".contains(c) => return at,
            None => {}
        }
    }
    term.len()
}

/// What follows an operator that is a word.
fn word<'t>(rest: &'t str, operator: &str) -> Option<&'t str> {
    let after = rest.strip_prefix(operator)?;
    after.starts_with(|c: char| c.is_whitespace() || c == '(').then(|| after.trim())
}

fn set_of(text: &str) -> Option<Vec<String>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    split(inner, ',').into_iter().map(value_of).collect()
}

/// A value, in quotes or with backslashes before what would end it.
fn value_of(text: &str) -> Option<String> {
    let text = text.trim();
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return (!inner.contains(quote)).then(|| inner.to_owned());
        }
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|next| "\\,=()'\"".contains(*next))?),
            '=' | '(' | ')' => return None,
            _ => out.push(c),
        }
    }
    Some(out)
}

/// Splits at what stands outside of quotes, brackets and parentheses, and behind no backslash.
pub(super) fn split(text: &str, at: char) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut quote, mut depth, mut escaped) = (None, 0_usize, false);
    for (place, c) in text.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match (c, quote) {
            (_, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\\', None) => escaped = true,
            ('\'' | '"', None) => quote = Some(c),
            ('(' | '[', None) => depth += 1,
            (')' | ']', None) => depth = depth.saturating_sub(1),
            (_, None) if c == at && depth == 0 => {
                parts.push(text.get(start..place).unwrap_or_default());
                start = place + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}
