//! Label selectors.
//!
//! Source: kubernetes/apimachinery `pkg/labels/selector.go`.

mod upstream;

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::{
    golang,
    scan::Scanner,
    selector::{
        CLUSTER_LABEL, SelectorError,
        validity::{check_key, check_value},
    },
};

/// What a key may be followed by, in Kubernetes' words.
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";
const SPACES: &str = " \t\r\n";
const SPECIAL: &str = "=!(),><";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

type Labels<'a> = SmallVec<[(Cow<'a, str>, Cow<'a, str>); 12]>;

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),!h,...`. `is_member` says which names after a last `@` are members.
    ///
    /// Errors: in Kubernetes' own words.
    pub fn parse(text: &str, is_member: impl Fn(&str) -> bool) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text), is_member: &is_member };
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                "" => return Ok(Self { requirements }),
                token if token == "!" || is_word(token) => {}
                token => return Err(SelectorError::found(token, "!, identifier, or 'end of string'")),
            }
            requirements.push(parser.requirement().map_err(SelectorError::in_requirement)?);
            match parser.next() {
                "" => return Ok(Self { requirements }),
                "," => match parser.peek() {
                    token if token == "!" || is_word(token) => {}
                    token => return Err(SelectorError::found(token, "identifier after ','")),
                },
                token => return Err(SelectorError::found(token, "',' or 'end of string'")),
            }
        }
    }

    /// Says whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Says whether an object that this member alone holds may match, whatever its labels are.
    pub fn may_match(&self, member: &str) -> bool {
        let about_members = self.requirements.iter().filter(|requirement| requirement.key == CLUSTER_LABEL);
        about_members.into_iter().all(|requirement| requirement.matches(&Labels::new(), &[member]))
    }

    /// Matches an object by the text of its labels (`None` or `null` where it has none) and the members that hold it.
    pub fn matches(&self, labels: Option<&str>, members: &[&str]) -> bool {
        if self.is_everything() {
            return true;
        }
        let labels = labels.map(read).unwrap_or_default();
        self.requirements.iter().all(|requirement| requirement.matches(&labels, members))
    }
}

/// The labels of an object, which a JSON parser has accepted. Whatever is no text is left out.
fn read(json: &str) -> Labels<'_> {
    let mut labels = Labels::new();
    let mut scanner = Scanner::new(json);
    if !scanner.eat(b'{') || scanner.eat(b'}') {
        return labels;
    }
    while let Ok(key) = scanner.key()
        && let Ok(value) = scanner.value()
    {
        if let (Some(key), Some(value)) = (super::text_of(key), json.get(value).and_then(super::text_of)) {
            labels.push((key, value));
        }
        if !scanner.goes_on(b'}').unwrap_or_default() {
            break;
        }
    }
    labels
}

impl Requirement {
    fn matches(&self, labels: &Labels<'_>, members: &[&str]) -> bool {
        if self.key == CLUSTER_LABEL {
            let named = || self.values.iter().any(|value| members.contains(&value.text.as_str()));
            return match self.operator {
                Operator::In => named(),
                Operator::NotIn => !named(),
                Operator::Exists => true,
                Operator::NotExists | Operator::Greater | Operator::Less => false,
            };
        }
        let label = labels.iter().find(|(key, _)| *key == self.key).map(|(_, value)| value.as_ref());
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

/// Cuts the text into operators and words; last token first, so that the parser may pop.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text.trim_start_matches(|c| SPACES.contains(c));
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '=' | '!' if rest.get(1..2) == Some("=") => 2,
            _ if SPECIAL.contains(first) => 1,
            _ => rest.find(|c| SPACES.contains(c) || SPECIAL.contains(c)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
        out.push(token);
        rest = after.trim_start_matches(|c| SPACES.contains(c));
    }
    out.reverse();
    out
}

/// Says whether a token is a key or a value. Whether `in` is an operator, its place says.
fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|first| !SPECIAL.contains(first))
}

struct Parser<'t, 'm> {
    tokens: Vec<&'t str>,
    is_member: &'m dyn Fn(&str) -> bool,
}

impl<'t> Parser<'t, '_> {
    /// The next token; empty at the end.
    fn next(&mut self) -> &'t str {
        self.tokens.pop().unwrap_or_default()
    }

    fn peek(&self) -> &'t str {
        self.tokens.last().copied().unwrap_or_default()
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut key = self.next();
        let negated = key == "!";
        if negated {
            key = self.next();
        }
        if !is_word(key) {
            return Err(SelectorError::found(key, "identifier"));
        }
        check_key(key)?;
        let bare = |operator| Ok(Requirement { key: key.to_owned(), operator, values: Vec::new() });
        if negated {
            return bare(Operator::NotExists);
        }
        if matches!(self.peek(), "" | ",") {
            return bare(Operator::Exists);
        }
        let token = self.next();
        let operator = match token {
            "=" | "==" | "in" => Operator::In,
            "!=" | "notin" => Operator::NotIn,
            ">" => Operator::Greater,
            "<" => Operator::Less,
            other => return Err(SelectorError::found(other, OPERATORS)),
        };
        let mut words = if matches!(token, "in" | "notin") { self.set()? } else { vec![self.single()?] };
        words.sort_unstable();
        words.dedup();
        let values: Vec<Value> = words.iter().map(|word| self.value(word)).collect();
        let compares = matches!(operator, Operator::Greater | Operator::Less);
        let mut wrong = Vec::new();
        for (at, value) in values.iter().enumerate().filter(|_| compares) {
            if value.text.parse::<i64>().is_err() {
                wrong.push(format!(
                    "values[{at}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    golang::quoted(&value.text)
                ));
            }
        }
        for (at, (value, word)) in values.iter().zip(&words).enumerate() {
            if let Some(what) = check_value(&value.text) {
                wrong.push(format!("values[{at}][{key}]: Invalid value: {}: {what}", golang::quoted(word)));
            }
        }
        match wrong.as_slice() {
            [] => Ok(Requirement { key: key.to_owned(), operator, values }),
            [one] => Err(SelectorError::Invalid(one.clone())),
            several => Err(SelectorError::Invalid(format!("[{}]", several.join(", ")))),
        }
    }

    /// After `=`: a word, or nothing, which is the empty value.
    fn single(&mut self) -> Result<&'t str, SelectorError> {
        match self.peek() {
            "" | "," => Ok(""),
            token if is_word(token) => Ok(self.next()),
            token => Err(SelectorError::found(token, "identifier")),
        }
    }

    /// `(a,b,)`: an empty place is the empty value.
    fn set(&mut self) -> Result<Vec<&'t str>, SelectorError> {
        match self.next() {
            "(" => {}
            token => return Err(SelectorError::NoSet(token.to_owned())),
        }
        match self.peek() {
            ")" => {
                self.next();
                return Ok(vec![""]);
            }
            token if token == "," || is_word(token) => {}
            token => return Err(SelectorError::found(token, "',', ')' or identifier")),
        }
        let mut words = Vec::new();
        loop {
            match self.next() {
                "," => {
                    if words.is_empty() || matches!(self.peek(), ")" | ",") {
                        words.push("");
                    }
                    if self.peek() == ")" {
                        self.next();
                        return Ok(words);
                    }
                }
                token if is_word(token) => {
                    words.push(token);
                    match self.peek() {
                        "," => {}
                        ")" => {
                            self.next();
                            return Ok(words);
                        }
                        token => return Err(SelectorError::found(token, "',' or ')'")),
                    }
                }
                token => return Err(SelectorError::found(token, "',', or identifier")),
            }
        }
    }

    fn value(&self, word: &str) -> Value {
        match word.rsplit_once('@') {
            Some((text, member)) if (self.is_member)(member) => {
                Value { text: text.to_owned(), member: Some(member.to_owned()) }
            }
            _ => Value { text: word.to_owned(), member: None },
        }
    }
}
