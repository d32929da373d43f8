//! `Warning` headers, which kubectl and client-go show to people.
//!
//! Source: RFC 7234 section 5.5; kubernetes/apimachinery `pkg/util/net/http.go` `NewWarningHeader`; the limits are
//! those of kubernetes/apiserver `pkg/endpoints/filters/warning.go`.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Above this many characters in all, each text is cut.
const TOTAL_CHARS_MAX: usize = 4 * 1024;
/// What is left of a text that is cut.
const CUT_CHARS: usize = 256;

/// The warnings of one response, each text once, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    texts: Vec<String>,
}

impl Warnings {
    /// Adds a warning; a text that is there already, or is empty, adds nothing.
    pub fn add(&mut self, text: &str) {
        // Clients drop a warning with a control character in it.
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if !text.is_empty() && !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    /// Adds another's warnings.
    pub fn merge(&mut self, other: &Self) {
        other.texts.iter().for_each(|text| self.add(text));
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Appends the headers to a response's; warnings that are there already stay.
    pub fn write_to(&self, headers: &mut HeaderMap) {
        for value in self.values() {
            headers.append(HeaderName::from_static("warning"), value);
        }
    }

    /// The header values: whole, or if they are too long together, each cut, and the last ones left out.
    pub fn values(&self) -> Vec<HeaderValue> {
        let total: usize = self.texts.iter().map(|text| text.chars().count()).sum();
        let cut_at = if total > TOTAL_CHARS_MAX { CUT_CHARS } else { TOTAL_CHARS_MAX };
        let mut written = 0;
        let mut values = Vec::new();
        for text in &self.texts {
            if written >= TOTAL_CHARS_MAX {
                break;
            }
            let text: String = text.chars().take(cut_at).collect();
            written += text.chars().count();
            // Without control characters, every text is a legal header value.
            values.extend(HeaderValue::from_str(&header_text(&text)));
        }
        values
    }
}

/// The text of a `Warning` header: `299 - "text"`, or whatever it is.
pub fn warning_text(header: &str) -> String {
    let Some((_, quoted)) = header.split_once('"') else { return header.to_owned() };
    let mut text = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => text.extend(rest.next()),
            c => text.push(c),
        }
    }
    text
}

fn header_text(text: &str) -> String {
    let mut value = String::with_capacity(text.len() + 10);
    value.push_str("299 - \"");
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            value.push('\\');
        }
        value.push(c);
    }
    value.push('"');
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(texts: &[&str]) -> Vec<String> {
        let mut warnings = Warnings::default();
        for text in texts {
            warnings.add(text);
        }
        warnings.values().iter().map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_text_is_quoted_and_said_once() {
        let said = values(&[r#"member "west" is down"#, "a\\b\nc", "", r#"member "west" is down"#]);
        assert_eq!(said, [r#"299 - "member \"west\" is down""#, r#"299 - "a\\b c""#]);
        assert_eq!(values(&["na\u{ef}ve \u{85}"]), ["299 - \"na\u{ef}ve  \""]);
    }

    #[test]
    fn texts_that_fit_together_stay_whole() {
        let long = "x".repeat(TOTAL_CHARS_MAX);
        assert_eq!(values(&[&long])[0].len(), TOTAL_CHARS_MAX + r#"299 - """#.len());
    }

    #[test]
    fn texts_that_do_not_are_cut_each() {
        let texts: Vec<String> = (0..40).map(|n| format!("{n:02}{}", "x".repeat(400))).collect();
        let said = values(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(said.len(), TOTAL_CHARS_MAX / CUT_CHARS);
        assert!(said.iter().all(|value| value.len() == CUT_CHARS + r#"299 - """#.len()));
    }

    /// `parseQuotedString` of kubernetes/apimachinery `pkg/util/net/http.go`.
    fn as_client_go_reads(value: &str) -> String {
        let (mut text, mut chars) = (String::new(), value.strip_prefix("299 - \"").unwrap().chars());
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => text.extend(chars.next()),
                c => text.push(c),
            }
        }
        assert_eq!(chars.next(), None);
        text
    }

    proptest! {
        #[test]
        fn any_text_reaches_the_client(text in "\\PC{1,60}") {
            prop_assert_eq!(as_client_go_reads(&values(&[&text])[0]), text);
        }

        #[test]
        fn no_text_is_refused_as_a_header(text in any::<String>()) {
            prop_assert_eq!(values(&[&text]).len(), usize::from(!text.is_empty()));
        }
    }
}
