//! What may be a label's key and value, and the very sentences in which Kubernetes refuses another.
//!
//! Source: kubernetes/apimachinery `pkg/api/validate/content/kube.go`, `dns.go`.

use crate::selector::SelectorError;

const NAME_BYTES_MAX: usize = 63;
const PREFIX_BYTES_MAX: usize = 253;
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                      '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                      validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                     for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Errors: what is wrong with a label's key.
pub(super) fn check_key(key: &str) -> Result<(), SelectorError> {
    let wrong = key_faults(key);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(SelectorError::Invalid(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; "))))
}

/// What is wrong with the key of a label, or of an annotation in lower case, or with the name of a finalizer.
pub fn key_faults(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        Some((_, rest)) if rest.contains('/') => {
            wrong.push(format!(
                "a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            (None, "a")
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            if prefix.len() > PREFIX_BYTES_MAX {
                wrong.push(format!("prefix part must be no more than {PREFIX_BYTES_MAX} bytes"));
            }
            if !prefix.split('.').all(is_dns_label) {
                wrong.push(PREFIX.into());
            }
        }
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    } else if name.len() > NAME_BYTES_MAX {
        wrong.push(format!("name part must be no more than {NAME_BYTES_MAX} bytes"));
    }
    if !is_name(name) {
        wrong.push(format!("name part {NAME}"));
    }
    wrong
}

/// What is wrong with a label's value, if anything is.
pub(super) fn check_value(value: &str) -> Option<String> {
    Some(value_faults(value)).filter(|wrong| !wrong.is_empty()).map(|wrong| wrong.join("; "))
}

/// What is wrong with a label's value.
pub fn value_faults(value: &str) -> Vec<String> {
    let long = (value.len() > NAME_BYTES_MAX).then(|| format!("must be no more than {NAME_BYTES_MAX} bytes"));
    let odd = (!value.is_empty() && !is_name(value)).then(|| VALUE.to_owned());
    long.into_iter().chain(odd).collect()
}

fn is_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// A part of a DNS subdomain, of whatever length: only the whole is bounded.
fn is_dns_label(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|c| is_alphanumeric(c) || c == '-')
        && text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
}
