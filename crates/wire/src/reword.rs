//! Messages of a `Status` that somebody else wrote: changed in place, every other byte kept.

use bytes::Bytes;

use crate::{
    locate::{Found, Paths, TypeOf, type_of, validate},
    splice::{Edit, splice, string},
};

const MESSAGE: u16 = 0;
const CAUSE: u16 = 1;
const REASON: u16 = 2;

/// A `Status` with its message changed; `None` if it is no JSON object with a message.
///
/// So are those of its causes, where it is about a field: of a 422 kubectl shows nothing else.
pub fn reworded(body: &Bytes, change: impl Fn(&str) -> String) -> Option<Bytes> {
    let text = std::str::from_utf8(body).ok()?;
    let mut found = Vec::new();
    let paths: [(u16, &[&str]); 3] =
        [(MESSAGE, &["message"]), (CAUSE, &["details", "causes", "*", "message"]), (REASON, &["reason"])];
    Paths::new(paths).locate(text, &mut found).ok()?;
    let raw = |at: &Found| text.get(at.range.clone()).unwrap_or_default();
    if !found.iter().any(|at| at.id == MESSAGE) {
        return None;
    }
    let invalid = found.iter().any(|at| at.id == REASON && raw(at) == "\"Invalid\"");
    let mut edits = Vec::new();
    for at in found.iter().filter(|at| at.id == MESSAGE || at.id == CAUSE && invalid) {
        let message: String = serde_json::from_str(raw(at)).ok()?;
        edits.push(Edit::new(at.range.clone(), string(&change(&message))));
    }
    let mut out = Vec::with_capacity(body.len() + 64);
    splice(body, &mut edits, &mut out);
    Some(out.into())
}

/// A `Status` about an object, with the object's visible name in place of its own: quoted in the message, behind a word
/// for its kind, and in the details.
pub fn renamed(body: &Bytes, own: &str, visible: &str) -> Option<Bytes> {
    let quoted = format!("\"{own}\"");
    let body = reworded(body, |message| {
        let message = message.replace(&quoted, &format!("\"{visible}\""));
        // "a container name must be specified for pod web, choose one of: ..."
        replace_word(&message, &format!("pod {own}"), &format!("pod {visible}"))
    })?;
    let text = std::str::from_utf8(&body).ok()?;
    let mut found = Vec::new();
    Paths::new([(0, ["details", "name"].as_slice())]).locate(text, &mut found).ok()?;
    match found.into_iter().next() {
        Some(at) if text.get(at.range.clone()) == Some(quoted.as_str()) => {
            let mut out = Vec::with_capacity(body.len() + visible.len());
            splice(&body, &mut [Edit::new(at.range, string(visible))], &mut out);
            Some(out.into())
        }
        _ => Some(body),
    }
}

/// Says whether a body is a `Status` of Kubernetes.
pub fn is_status(body: &Bytes) -> bool {
    let Ok(text) = std::str::from_utf8(body) else { return false };
    validate(text).is_ok() && type_of(text) == TypeOf { kind: "Status", api_version: "v1" }
}

/// Replaces `word` where no name goes on before or behind it.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '@');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(word) {
        // A dot ends a sentence or goes on in a name.
        let mut next = behind.chars();
        let goes_on = match next.next() {
            Some('.') => next.next().is_some_and(of_name),
            Some(c) => of_name(c),
            None => false,
        };
        out.push_str(before);
        out.push_str(if goes_on || before.ends_with(of_name) { word } else { by });
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_replaced_where_it_is_a_name() {
        let said = |message: &str| {
            let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "message": message,
                "details": {"name": "web", "kind": "pods"}});
            let renamed = renamed(&body.to_string().into(), "web", "web@east").unwrap();
            let renamed: serde_json::Value = serde_json::from_slice(&renamed).unwrap();
            assert_eq!(renamed["details"]["name"], "web@east");
            renamed["message"].as_str().unwrap().to_owned()
        };
        for (own, visible) in [
            (r#"pods "web" not found"#, r#"pods "web@east" not found"#),
            (r#"container "web-1" in pod "web" is waiting"#, r#"container "web-1" in pod "web@east" is waiting"#),
            (
                "a container name must be specified for pod web, choose one of: [web b]",
                "a container name must be specified for pod web@east, choose one of: [web b]",
            ),
            ("container c is not valid for pod web", "container c is not valid for pod web@east"),
            ("pod web-1, pod web.x and pod web.", "pod web-1, pod web.x and pod web@east."),
            ("tripod web", "tripod web"),
        ] {
            assert_eq!(said(own), visible);
        }
        assert!(is_status(&Bytes::from_static(br#"{"kind":"Status","apiVersion":"v1"}"#)));
        assert!(!is_status(&Bytes::from_static(br#"{"kind":"Status"}"#)));
    }
}
