//! Keys and values of label selectors.

use crate::{
    golang::Quoted,
    names::{label_value, qualified_name},
    selector::SelectorError,
};

/// Errors: what is wrong with a label's key.
pub(super) fn check_key(key: &str) -> Result<(), SelectorError> {
    let wrong = qualified_name(key);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(SelectorError::Invalid(format!("<nil>: Invalid value: {key}: {}", wrong.join("; "), key = Quoted(key))))
}

/// What is wrong with a label's value, if anything is.
pub(super) fn check_value(value: &str) -> Option<String> {
    Some(label_value(value)).filter(|wrong| !wrong.is_empty()).map(|wrong| wrong.join("; "))
}
