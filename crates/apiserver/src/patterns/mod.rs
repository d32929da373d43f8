//! Regular expressions as Go reads them, with the words in which it refuses them.
//!
//! A pattern is read as Go's `regexp` does and written anew for Rust's `regex`: `\d` means ASCII digits there, and `a{,2}` five
//! characters. What is refused beyond that: an expression that nests more than 250 deep, or is larger than 10 MB once it is compiled.
//!
//! Source: Go 1.26 `regexp/syntax/parse.go`.

mod classes;
mod escapes;
mod reader;

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use quick_cache::sync::Cache;
use regex::Regex;

/// How many patterns are kept compiled: expressions name the same ones with each object.
const KEPT_MAX: usize = 256;

static KEPT: LazyLock<Cache<String, Arc<Pattern>>> = LazyLock::new(|| Cache::new(KEPT_MAX));

/// A regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    written: Box<str>,
    regex: Regex,
}

/// Why a text is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {why}: `{part}`")]
pub(crate) struct BadPattern {
    why: Why,
    part: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("invalid character class range")]
    Range,
    #[error("invalid escape sequence")]
    Escape,
    #[error("invalid named capture")]
    Name,
    #[error("invalid or unsupported Perl syntax")]
    Perl,
    #[error("invalid nested repetition operator")]
    NestedRepeat,
    #[error("invalid repeat count")]
    Repeat,
    #[error("missing closing ]")]
    Bracket,
    #[error("missing closing )")]
    Parenthesis,
    #[error("missing argument to repetition operator")]
    RepeatsNothing,
    #[error("trailing backslash at end of expression")]
    Backslash,
    #[error("unexpected )")]
    Unexpected,
    #[error("expression nests too deeply")]
    Deep,
    #[error("expression too large")]
    Large,
}

impl Why {
    fn of(self, part: &str) -> BadPattern {
        BadPattern { why: self, part: part.to_owned() }
    }
}

impl Pattern {
    /// Compiles a pattern.
    pub(crate) fn new(written: &str) -> Result<Self, BadPattern> {
        let regex = Regex::new(&reader::rewritten(written)?).map_err(|error| {
            let why = if matches!(error, regex::Error::CompiledTooBig(_)) { Why::Large } else { Why::Deep };
            why.of(written)
        })?;
        Ok(Self { written: written.into(), regex })
    }

    /// Compiles a pattern, unless that was done lately.
    pub(crate) fn kept(written: &str) -> Result<Arc<Self>, BadPattern> {
        KEPT.get_or_insert_with(written, || Self::new(written).map(Arc::new))
    }

    /// What does the matching.
    pub(crate) fn regex(&self) -> &Regex {
        &self.regex
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests;
