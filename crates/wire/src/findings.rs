//! What strictness forbids in a JSON document, such as `unknown field "spec.foo"`: found on a walk, and told each once.
//!
//! Source: sigs.k8s.io/json `internal/golang/encoding/json/kubernetes_patch.go`; its sentences are kept.

use std::collections::HashSet;

use crate::{golang, text::Text};

/// So many findings are told; Go stops at these too.
const FINDINGS_MAX: usize = 100;

/// Where a walk is, and what it has found.
#[derive(Debug, Default)]
pub struct Findings {
    told: Vec<String>,
    seen: HashSet<String>,
    path: String,
    /// How long the path was before each step.
    before: Vec<usize>,
}

impl Findings {
    /// Tells of a field of the object that the walk is at: that it is `unknown`, or a `duplicate`.
    pub fn tell(&mut self, what: &str, field: &str) {
        let dot = self.dot();
        let finding = format!("{what} field {}", golang::quoted(&format!("{}{dot}{field}", self.path)));
        if self.told.len() < FINDINGS_MAX && self.seen.insert(finding.clone()) {
            self.told.push(finding);
        }
    }

    /// Goes to a field.
    pub fn enter(&mut self, field: &str) {
        self.before.push(self.path.len());
        self.path.push_str(self.dot());
        self.path.push_str(field);
    }

    /// Goes to an item of a list.
    pub fn enter_item(&mut self, index: usize) {
        self.before.push(self.path.len());
        self.path.push_str(&format!("[{index}]"));
    }

    /// Goes back to where the last step began.
    pub fn leave(&mut self) {
        self.path.truncate(self.before.pop().unwrap_or_default());
    }

    /// Tells of all fields below that stand twice.
    pub fn duplicates(&mut self, text: &Text<'_>) {
        match text {
            Text::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.enter_item(index);
                    self.duplicates(item);
                    self.leave();
                }
            }
            Text::Object(entries) => {
                let mut seen = HashSet::new();
                for (key, value) in entries {
                    if !seen.insert(key.as_str()) {
                        self.tell("duplicate", key);
                    }
                    self.enter(key);
                    self.duplicates(value);
                    self.leave();
                }
            }
            Text::Null | Text::Truth(_) | Text::Number(_) | Text::String(_) => {}
        }
    }

    /// What was found, in the order of the walk.
    pub fn told(self) -> Vec<String> {
        self.told
    }

    fn dot(&self) -> &'static str {
        if self.path.is_empty() { "" } else { "." }
    }
}

/// Finds the fields of a document that stand twice: `duplicate field "spec.containers[0].name"`. Empty of what is no JSON, too.
pub fn repeated(json: &[u8]) -> Vec<String> {
    let mut findings = Findings::default();
    if let Some(text) = std::str::from_utf8(json).ok().and_then(|text| Text::read(text).ok()) {
        findings.duplicates(&text);
    }
    findings.told()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_twice_is_found_where_it_stands() {
        let found = |json: &str| repeated(json.as_bytes()).join("; ");
        for (json, wanted) in [
            ("{}", ""),
            (r#"{"a":1,"b":{"a":1}}"#, ""),
            (r#"{"a":1,"a":null,"a":"x"}"#, r#"duplicate field "a""#),
            (
                r#"{"spec":{"containers":[{"name":"x"},{"name":"x","name":true}],"n":1.5,"n":-1}}"#,
                r#"duplicate field "spec.containers[1].name"; duplicate field "spec.n""#,
            ),
            (r#"{"a":{"x":1,"x":2},"a":{"x":1,"x":2}}"#, r#"duplicate field "a.x"; duplicate field "a""#),
            ("[", ""),
            ("1", ""),
        ] {
            assert_eq!(found(json), wanted, "{json}");
        }
    }
}
