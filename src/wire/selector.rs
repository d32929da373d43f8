//! Label and field selectors: Kubernetes' grammar, evaluated on an object's own bytes.
//!
//! Source: kubernetes/apimachinery `pkg/labels/selector.go`, `pkg/fields/selector.go`.

mod upstream;

use crate::wire::locate::entries;

/// The virtual label that names an object's member.
pub const CLUSTER_LABEL: &str = "kubefold.io/cluster";

/// A selector that is not understood is refused, never ignored.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Grammar.
    #[error("unable to parse requirement: {0}")]
    Syntax(String),
    /// A field that cannot be selected by.
    #[error("field label not supported: {0}")]
    Field(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    NotExists,
    Greater,
    Less,
}

/// A value, and the member that it is bound to if it was written `value@member`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    text: String,
    member: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<Value>,
}

/// A parsed label selector. All requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),!h,...`. `is_member` says which names after a last `@` are members.
    pub fn parse(text: &str, is_member: impl Fn(&str) -> bool) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text), is_member: &is_member };
        let mut requirements = Vec::new();
        if parser.tokens.is_empty() {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                None => return Ok(Self { requirements }),
                Some(token) if token == "," && !parser.tokens.is_empty() => {}
                Some(token) => return Err(syntax(&format!("found '{token}', expected: ',' or 'end of string'"))),
            }
        }
    }

    /// Says whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Matches an object by the text of its labels (`None` or `null` where it has none) and the members that hold it.
    pub fn matches(&self, labels: Option<&str>, members: &[&str]) -> bool {
        if self.is_everything() {
            return true;
        }
        let labels: Vec<(String, String)> = labels
            .and_then(|text| entries(text).ok())
            .map(|all| all.iter().map(|entry| (entry.name.clone(), entry.text().unwrap_or_default())).collect())
            .unwrap_or_default();
        self.requirements.iter().all(|requirement| requirement.matches(&labels, members))
    }
}

impl Requirement {
    fn matches(&self, labels: &[(String, String)], members: &[&str]) -> bool {
        if self.key == CLUSTER_LABEL {
            let named = || self.values.iter().any(|value| members.contains(&value.text.as_str()));
            return match self.operator {
                Operator::In => named(),
                Operator::NotIn => !named(),
                Operator::Exists => true,
                Operator::NotExists | Operator::Greater | Operator::Less => false,
            };
        }
        let label = labels.iter().find(|(key, _)| *key == self.key).map(|(_, value)| value.as_str());
        let among = |label: &str| {
            self.values.iter().any(|value| {
                value.text == label && value.member.as_deref().is_none_or(|member| members.contains(&member))
            })
        };
        match self.operator {
            Operator::In => label.is_some_and(among),
            Operator::NotIn => !label.is_some_and(among),
            Operator::Exists => label.is_some(),
            Operator::NotExists => label.is_none(),
            Operator::Greater => self.compares(label, |label, bound| label > bound),
            Operator::Less => self.compares(label, |label, bound| label < bound),
        }
    }

    fn compares(&self, label: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|value| value.text.parse().ok());
        match (label.and_then(|label| label.parse().ok()), bound) {
            (Some(label), Some(bound)) => holds(label, bound),
            _ => false,
        }
    }
}

fn syntax(what: &str) -> SelectorError {
    SelectorError::Syntax(what.to_owned())
}

/// Cuts the text into operators and words; last token first, so that the parser may pop.
fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => {}
            '=' | '!' | '>' | '<' | '(' | ')' | ',' => {
                let mut token = String::from(c);
                if (c == '=' || c == '!') && chars.peek() == Some(&'=') {
                    chars.next();
                    token.push('=');
                }
                out.push(token);
            }
            _ => {
                let mut word = String::from(c);
                while let Some(next) = chars.next_if(|next| !" \t\n\r=!><(),".contains(*next)) {
                    word.push(next);
                }
                out.push(word);
            }
        }
    }
    out.reverse();
    out
}

struct Parser<'a> {
    tokens: Vec<String>,
    is_member: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<String> {
        self.tokens.pop()
    }

    fn peek(&self) -> Option<&str> {
        self.tokens.last().map(String::as_str)
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.peek() == Some("!");
        if negated {
            self.next();
        }
        let key = self.next().unwrap_or_default();
        check_key(&key)?;
        if negated {
            return Ok(Requirement { key, operator: Operator::NotExists, values: Vec::new() });
        }
        let operator = match self.peek() {
            None | Some(",") => return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() }),
            Some("=" | "==" | "in") => Operator::In,
            Some("!=" | "notin") => Operator::NotIn,
            Some(">") => Operator::Greater,
            Some("<") => Operator::Less,
            Some(other) => {
                return Err(syntax(&format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt, ',' or end")));
            }
        };
        let set = matches!(self.next().as_deref(), Some("in" | "notin"));
        let values = if set { self.set()? } else { vec![self.single()?] };
        if matches!(operator, Operator::Greater | Operator::Less)
            && values.iter().any(|value| value.text.parse::<i64>().is_err())
        {
            return Err(syntax("for 'Gt', 'Lt' operators, the value must be an integer"));
        }
        Ok(Requirement { key, operator, values })
    }

    /// After `=`: a word, or nothing, which is the empty value.
    fn single(&mut self) -> Result<Value, SelectorError> {
        match self.peek() {
            None | Some(",") => Ok(Value { text: String::new(), member: None }),
            Some(_) => {
                let word = self.next().unwrap_or_default();
                self.value(word)
            }
        }
    }

    /// `(a,b,)`: an empty place is the empty value.
    fn set(&mut self) -> Result<Vec<Value>, SelectorError> {
        if self.next().as_deref() != Some("(") {
            return Err(syntax("expected: '(' after 'in' or 'notin'"));
        }
        let mut values = Vec::new();
        let mut open = true;
        loop {
            match self.next() {
                Some(token) if token == ")" || token == "," => {
                    if open {
                        values.push(Value { text: String::new(), member: None });
                    }
                    if token == ")" {
                        return Ok(values);
                    }
                    open = true;
                }
                Some(word) if open => {
                    values.push(self.value(word)?);
                    open = false;
                }
                Some(word) => return Err(syntax(&format!("found '{word}', expected: ',' or ')'"))),
                None => return Err(syntax("expected: ')' at the end of the set")),
            }
        }
    }

    fn value(&self, word: String) -> Result<Value, SelectorError> {
        let value = match word.rsplit_once('@') {
            Some((text, member)) if (self.is_member)(member) => {
                Value { text: text.to_owned(), member: Some(member.to_owned()) }
            }
            _ => Value { text: word, member: None },
        };
        check_value(&value.text)?;
        Ok(value)
    }
}

fn is_name(text: &str, max: usize) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= max
        && edge(text.chars().next())
        && edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn check_key(key: &str) -> Result<(), SelectorError> {
    let good = match key.split_once('/') {
        Some((prefix, name)) => {
            let dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !prefix.is_empty() && prefix.len() <= 253 && prefix.chars().all(dns) && is_name(name, 63)
        }
        None => is_name(key, 63),
    };
    if good { Ok(()) } else { Err(syntax(&format!("{key:?} is not a label key"))) }
}

fn check_value(value: &str) -> Result<(), SelectorError> {
    if value.is_empty() || is_name(value, 63) {
        return Ok(());
    }
    Err(syntax(&format!(
        "invalid label value: {value:?}: at most 63 letters, digits, '-', '_' or '.', with a letter or digit at each end"
    )))
}

/// A parsed field selector over the two fields that every kind has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// One `field=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    name: bool,
    equals: bool,
    value: String,
}

impl FieldSelector {
    /// Parses `metadata.name=a,metadata.namespace!=b`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (field, equals, value) = split_term(&term)
                .ok_or_else(|| syntax(&format!("invalid selector: '{text}'; can't understand '{term}'")))?;
            let name = match field {
                "metadata.name" => true,
                "metadata.namespace" => false,
                other => return Err(SelectorError::Field(other.to_owned())),
            };
            let value = unescape(value).ok_or_else(|| syntax(&format!("invalid escape in '{term}'")))?;
            terms.push(FieldTerm { name, equals, value });
        }
        Ok(Self { terms })
    }

    /// Says whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The name that is asked for, where one is.
    pub fn name(&self) -> Option<&str> {
        self.terms.iter().find(|term| term.name && term.equals).map(|term| term.value.as_str())
    }

    /// The namespace that is asked for, where one is.
    pub fn namespace(&self) -> Option<&str> {
        self.terms.iter().find(|term| !term.name && term.equals).map(|term| term.value.as_str())
    }

    /// The selector with this name in place of the one in `metadata.name=`, or in addition where it names none.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        if self.name().is_none() {
            self.terms.push(FieldTerm { name: true, equals: true, value: name.to_owned() });
        }
        for term in self.terms.iter_mut().filter(|term| term.name && term.equals) {
            name.clone_into(&mut term.value);
        }
        self
    }

    /// Matches an object by its visible names.
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        self.terms.iter().all(|term| (term.value == if term.name { name } else { namespace }) == term.equals)
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(term) = terms.last_mut() {
            term.push(c);
        }
    }
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        let rest = term.get(at..)?;
        for (operator, equals) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((term.get(..at)?, equals, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Option<String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|next| "\\,=".contains(*next))?),
            ',' | '=' => return None,
            _ => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &str, members: &[&str]) -> bool {
        LabelSelector::parse(selector, |name| name == "east" || name == "west").unwrap().matches(Some(labels), members)
    }

    #[test]
    fn label_selectors_as_kubernetes() {
        let labels = r#"{"app":"web","tier":"","n":"5"}"#;
        for yes in [
            "",
            "app=web",
            "app==web",
            "app",
            "!zone",
            "zone!=a",
            "app!=db",
            "app in (db, web)",
            "zone notin (a)",
            "tier=",
            "tier in (,a)",
            "n>4",
            "n<6",
            "app=web,tier",
            "in=x,x",
            "notin",
            "app in (web),n",
        ] {
            let labels = if yes.contains("in=x") {
                r#"{"in":"x","x":""}"#
            } else if yes == "notin" {
                r#"{"notin":""}"#
            } else {
                labels
            };
            assert!(matches(yes, labels, &["east"]), "{yes}");
        }
        for no in ["app=db", "zone", "!app", "app!=web", "app notin (web)", "n>5", "zone>1", "zone in (a)", "tier=a"] {
            assert!(!matches(no, labels, &["east"]), "{no}");
        }
        for bad in [
            "a=b=c",
            "a in b",
            "a in (b",
            ",",
            "a,,b",
            "a b",
            "=a",
            "a>x",
            "a=b@nowhere",
            "-a",
            "a/b/c",
            "A/b",
            "a=b,",
            "!",
        ] {
            assert!(LabelSelector::parse(bad, |name| name == "east").is_err(), "{bad}");
        }
    }

    #[test]
    fn the_virtual_label_and_values_bound_to_a_member() {
        assert!(matches("kubefold.io/cluster in (east,north)", "{}", &["east"]));
        assert!(matches("kubefold.io/cluster=west", "{}", &["east", "west"]));
        assert!(!matches("kubefold.io/cluster!=west", "{}", &["east", "west"]));
        assert!(matches("app=web@east", r#"{"app":"web"}"#, &["east"]));
        assert!(!matches("app=web@west", r#"{"app":"web"}"#, &["east"]));
        assert!(matches("app!=web@west", r#"{"app":"web"}"#, &["east"]));
    }

    #[test]
    fn field_selectors() {
        let selector = FieldSelector::parse(r"metadata.name=web-0@east,metadata.namespace!=b\,c").unwrap();
        assert!(selector.matches("b", "web-0@east") && !selector.matches("b,c", "web-0@east"));
        assert_eq!(selector.name(), Some("web-0@east"));
        assert_eq!(FieldSelector::parse("spec.nodeName=x"), Err(SelectorError::Field("spec.nodeName".into())));
        assert!(FieldSelector::parse("metadata.name").is_err() && FieldSelector::parse("metadata.name=a=b").is_err());
    }
}
