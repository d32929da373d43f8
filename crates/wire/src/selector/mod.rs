//! Label and field selectors: Kubernetes' grammar and its very refusals, evaluated on an object's own bytes.

mod field;
mod kinds;
mod label;
mod path;
#[cfg(test)]
mod tests;
mod validity;

use std::borrow::Cow;

pub use field::{FieldSelector, Subject};
pub use label::{LabelSelector, Labels, Operator, Requirement};
pub use path::{FieldPath, Step};

/// A selector that is not understood is refused, never ignored. The words are Kubernetes' own.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Another token belongs in this place of a label selector. Empty is its end.
    #[error("found '{found}', expected: {expected}")]
    Found {
        /// What stands there.
        found: String,
        /// What may.
        expected: &'static str,
    },
    /// `in` and `notin` are followed by a set.
    #[error("found '{0}' expected: '('")]
    NoSet(String),
    /// A label's key or value that no label can have.
    #[error("{0}")]
    Invalid(String),
    /// One of these, in a requirement.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<Self>),
    /// A field selector's term without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash before what needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A comma or an equals sign without a backslash. Kubernetes shows it as a number.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
    /// More than any object is compared with. Kubernetes has no such bound.
    #[error("invalid selector: it has {found} {what}, and may have {max}")]
    TooLong {
        /// How many.
        found: usize,
        /// Of what.
        what: &'static str,
        /// How many it may have.
        max: usize,
    },
    /// No path of fields.
    #[error("field label not supported: {0}")]
    Field(String),
}

/// Terms that a selector may have.
pub(crate) const TERMS_MAX: usize = 128;
/// Values that all sets of a label selector may have together.
pub(crate) const VALUES_MAX: usize = 1024;

impl SelectorError {
    /// Each object of a list is compared with all of a selector: that is bounded.
    fn bound(found: usize, what: &'static str, max: usize) -> Result<(), Self> {
        if found > max { Err(Self::TooLong { found, what, max }) } else { Ok(()) }
    }

    fn found(found: &str, expected: &'static str) -> Self {
        Self::Found { found: found.to_owned(), expected }
    }

    fn in_requirement(self) -> Self {
        Self::Requirement(Box::new(self))
    }
}

/// The text of a JSON string; `None` where the value is another. Allocates only where there are escapes.
pub fn text_of(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(raw).ok().map(Cow::Owned)
}
