//! How a person names one object: `deployment/web`, or `deployment web`.

use anyhow::bail;

/// A kind, as a person calls it, and a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) kind: String,
    pub(super) name: String,
}

/// Reads `deployment/web`.
///
/// Errors: it is not written so.
pub(super) fn named_in_one(text: &str) -> anyhow::Result<Named> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Named { kind: kind.to_owned(), name: name.to_owned() })
        }
        _ => bail!("write TYPE/NAME, such as deployment/web"),
    }
}

/// Reads the words of a command line.
///
/// Errors: they name no object.
pub(super) fn named(words: &[String]) -> anyhow::Result<Named> {
    match words {
        [one] => named_in_one(one),
        [kind, name] if !kind.contains('/') && !name.contains('/') => {
            Ok(Named { kind: kind.clone(), name: name.clone() })
        }
        _ => bail!("write TYPE/NAME or TYPE NAME, of one object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_in_one_word_or_two() {
        let of = |words: &[&str]| named(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let web = Named { kind: "deployment".into(), name: "web".into() };
        assert_eq!((of(&["deployment/web"]).unwrap(), of(&["deployment", "web"]).unwrap()), (web.clone(), web));
        for wrong in [&["deployment"][..], &["/web"], &["deployment/"], &["a/b/c"], &["a/b", "c"], &[]] {
            let said = of(wrong).unwrap_err().to_string();
            assert!(said.starts_with("write TYPE/NAME"), "{wrong:?}: {said}");
        }
    }
}
