//! Label selectors.
//!
//! Source: kubernetes/apimachinery `pkg/labels/selector.go`.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::{
    golang,
    scan::Scanner,
    selector::{
        SelectorError, TERMS_MAX, VALUES_MAX,
        validity::{check_key, check_value},
    },
};

/// What a key may be followed by, in Kubernetes' words.
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";
const SPACES: &str = " \t\r\n";
const SPECIAL: &str = "=!(),><";

/// How a label is compared with a requirement's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label is one of the values: `=`, `==` and `in`.
    In,
    /// The label is absent or none of the values: `!=` and `notin`.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent: `!key`.
    NotExists,
    /// The label is an integer above the value: `>`.
    Greater,
    /// The label is an integer below the value: `<`.
    Less,
}

impl Operator {
    /// That of this name in `matchExpressions`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "In" => Some(Self::In),
            "NotIn" => Some(Self::NotIn),
            "Exists" => Some(Self::Exists),
            "DoesNotExist" => Some(Self::NotExists),
            "Gt" => Some(Self::Greater),
            "Lt" => Some(Self::Less),
            _ => None,
        }
    }

    /// Says whether a label of this value, or none, meets a requirement with these values.
    ///
    /// Source: `Requirement.Matches`.
    pub fn is_met(self, label: Option<&str>, values: &[String]) -> bool {
        let among = |label: &str| values.iter().any(|value| value == label);
        let numbers = || Some((label?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
        match self {
            Self::In => label.is_some_and(among),
            Self::NotIn => !label.is_some_and(among),
            Self::Exists => label.is_some(),
            Self::NotExists => label.is_none(),
            Self::Greater => numbers().is_some_and(|(label, bound)| label > bound),
            Self::Less => numbers().is_some_and(|(label, bound)| label < bound),
        }
    }
}

/// What a selector requires of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How the label is compared with the values.
    pub operator: Operator,
    /// The values, sorted. None for [`Operator::Exists`] and [`Operator::NotExists`].
    pub values: Vec<String>,
}

/// A parsed label selector. All requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// The labels of an object.
#[derive(Clone, Debug, Default)]
pub struct Labels<'a>(SmallVec<[(Cow<'a, str>, Cow<'a, str>); 12]>);

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),!h,...`.
    ///
    /// Errors: in Kubernetes' own words.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Self::parse_extended(text, |value| value)
    }

    /// Parses a selector whose values may hold more than Kubernetes lets a label's value hold: `label_part` gives the part
    /// that Kubernetes' rules are about. The selector keeps the values as they are written.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_extended(text: &str, label_part: impl Fn(&str) -> &str) -> Result<Self, SelectorError> {
        let requirements = Self::requirements(Parser { tokens: tokens(text), label_part: &label_part })?;
        let values = requirements.iter().map(|requirement| requirement.values.len()).sum();
        SelectorError::bound(requirements.len(), "terms", TERMS_MAX)?;
        SelectorError::bound(values, "values", VALUES_MAX)?;
        Ok(Self { requirements })
    }

    fn requirements(mut parser: Parser<'_, '_>) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                "" => return Ok(requirements),
                token if token == "!" || is_word(token) => {}
                token => return Err(SelectorError::found(token, "!, identifier, or 'end of string'")),
            }
            requirements.push(parser.requirement().map_err(SelectorError::in_requirement)?);
            match parser.next() {
                "" => return Ok(requirements),
                "," => match parser.peek() {
                    token if token == "!" || is_word(token) => {}
                    token => return Err(SelectorError::found(token, "identifier after ','")),
                },
                token => return Err(SelectorError::found(token, "',' or 'end of string'")),
            }
        }
    }

    /// The requirements, in the order in which they are written.
    pub fn into_requirements(self) -> Vec<Requirement> {
        self.requirements
    }

    /// Says whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Matches an object by the text of its labels (`None` or `null` where it has none).
    pub fn matches(&self, labels: Option<&str>) -> bool {
        if self.is_everything() {
            return true;
        }
        let labels = labels.map(Labels::read).unwrap_or_default();
        self.requirements.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }
}

impl<'a> Labels<'a> {
    /// Reads labels which a JSON parser has accepted. Whatever is no text is left out.
    pub fn read(json: &'a str) -> Self {
        let mut labels = SmallVec::new();
        let mut scanner = Scanner::new(json);
        if !scanner.eat(b'{') || scanner.eat(b'}') {
            return Self(labels);
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
        Self(labels)
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_ref())
    }

    /// Keys and values, as they are written; a key may stand twice, and then the first counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}

impl Requirement {
    /// Says whether a label of this value, or none, meets the requirement.
    pub fn matches(&self, label: Option<&str>) -> bool {
        self.operator.is_met(label, &self.values)
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
    label_part: &'m dyn Fn(&str) -> &str,
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
        let parts = || words.iter().map(|word| (self.label_part)(word)).enumerate();
        let compares = matches!(operator, Operator::Greater | Operator::Less);
        let mut wrong = Vec::new();
        for (at, part) in parts().filter(|(_, part)| compares && part.parse::<i64>().is_err()) {
            wrong.push(format!(
                "values[{at}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                golang::quoted(part)
            ));
        }
        for ((at, part), word) in parts().zip(&words) {
            if let Some(what) = check_value(part) {
                wrong.push(format!("values[{at}][{key}]: Invalid value: {}: {what}", golang::quoted(word)));
            }
        }
        match wrong.as_slice() {
            [] => {
                let values = words.into_iter().map(str::to_owned).collect();
                Ok(Requirement { key: key.to_owned(), operator, values })
            }
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
}
