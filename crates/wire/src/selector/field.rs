//! Field selectors.
//!
//! Source: kubernetes/apimachinery `pkg/fields/selector.go`.

use memchr::memmem::Finder;
use smallvec::SmallVec;

use crate::selector::{
    SelectorError, TERMS_MAX,
    kinds::{field_of, joins_of},
    path::Tree,
};

/// What a field selector is matched with.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// The object, which a JSON parser has accepted.
    pub json: &'a [u8],
    /// A suffix that names in the object have and a selector may leave out, in two parts whose first is no part of a UID.
    /// Empty if there is none.
    pub suffix: [&'a str; 2],
}

/// A parsed field selector. All terms must hold.
///
/// A term names `metadata.name`, `metadata.namespace`, a field that Kubernetes selects by in this kind, or any path of the
/// object's JSON. Texts are compared without their quotes, numbers and booleans as they are written; what is absent or
/// null is empty; an object or an array equals nothing. Under a star a term holds if any of the values equals (`=`), or if
/// none does (`!=`).
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
    tree: Tree,
    /// The node whose pods are asked for.
    node: Option<String>,
    /// A text that every match holds: most objects need no walk.
    hint: Option<Finder<'static>>,
}

/// One `field=value`.
#[derive(Clone, Debug)]
struct Term {
    field: Field,
    equals: bool,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// The name of what an event is about. With a UID it also matches by the name without [`Subject::suffix`]: who asked for
    /// the object by its short name, as `kubectl describe` does, asks for its events by that name.
    Referent(Place, bool),
    /// The UID of what an event is about: of a node kubelets write its name.
    ReferentUid(Place),
    Other(Place),
}

/// Where a field's value is found: the first of these paths that leads to a value which is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    paths: SmallVec<[usize; 2]>,
    unset: &'static str,
}

impl FieldSelector {
    /// Parses `metadata.name=a,spec.nodeName!=b`, for objects of that resource.
    ///
    /// Errors: in Kubernetes' own words.
    pub fn parse(text: &str, group: &str, resource: &str) -> Result<Self, SelectorError> {
        let mut this = Self::default();
        let mut split = Vec::new();
        let mut parts = split_terms(text);
        // As Kubernetes does: it decides which of several mistakes is told, and which of several names is asked for.
        parts.sort_unstable();
        SelectorError::bound(parts.len(), "terms", TERMS_MAX)?;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (label, equals, value) = split_term(part)
                .ok_or_else(|| SelectorError::Term { selector: text.to_owned(), term: part.to_owned() })?;
            split.push((label, equals, unescape(value)?));
        }
        let joins = joins_of(group, resource);
        let has_uid = joins.is_some_and(|(_, uid)| split.iter().any(|(label, equals, _)| *label == uid && *equals));
        for (label, equals, value) in split {
            if label == "spec.nodeName" && equals && (group, resource) == ("", "pods") {
                this.node = Some(value.clone());
            }
            let field = match label {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                label => {
                    let place = this.place(group, resource, label)?;
                    match joins {
                        Some((name, _)) if name == label => Field::Referent(place, has_uid && equals),
                        Some((_, uid)) if uid == label => Field::ReferentUid(place),
                        _ => Field::Other(place),
                    }
                }
            };
            this.terms.push(Term { field, equals, value });
        }
        let hint = this.terms.iter().filter_map(Term::hint).max_by_key(String::len);
        this.hint = hint.map(|hint| Finder::new(hint.as_bytes()).into_owned());
        Ok(this)
    }

    /// The fields that a selector names, as it names them.
    pub fn labels(text: &str) -> impl Iterator<Item = &str> {
        split_terms(text).into_iter().filter_map(|part| Some(split_term(part)?.0))
    }

    /// The value that a selector wants in a field, as it names it. `None`: it wants none, or more than one.
    pub fn wanted(text: &str, label: &str) -> Option<String> {
        let mut wanted = split_terms(text).into_iter().filter_map(split_term);
        let (_, _, value) = wanted.find(|(of, equals, _)| *of == label && *equals)?;
        unescape(value).ok()
    }

    fn place(&mut self, group: &str, resource: &str, label: &str) -> Result<Place, SelectorError> {
        let unknown = || SelectorError::Field(label.to_owned());
        let known = field_of(group, resource, label);
        let only = [label];
        let (paths, unset) = known.map_or((only.as_slice(), ""), |known| (known.paths, known.unset));
        let paths = paths.iter().map(|path| self.tree.add(path).ok_or_else(unknown)).collect::<Result<_, _>>()?;
        Ok(Place { paths, unset })
    }

    /// Says whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The name that is asked for, where one is.
    pub fn name(&self) -> Option<&str> {
        self.exact(&Field::Name)
    }

    /// The namespace that is asked for, where one is.
    pub fn namespace(&self) -> Option<&str> {
        self.exact(&Field::Namespace)
    }

    /// The node whose pods are asked for, where it is pods and one node's: all that match name it in `spec.nodeName`.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref().filter(|node| !node.is_empty())
    }

    fn exact(&self, field: &Field) -> Option<&str> {
        self.terms.iter().find(|term| term.field == *field && term.equals).map(|term| term.value.as_str())
    }

    /// The selector with this name in place of the one in `metadata.name=`, or in addition where it names none.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        if self.name().is_none() {
            self.terms.push(Term { field: Field::Name, equals: true, value: name.to_owned() });
        }
        for term in self.terms.iter_mut().filter(|term| term.field == Field::Name && term.equals) {
            name.clone_into(&mut term.value);
        }
        self
    }

    /// Matches an object.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let by_name = self.terms.iter().all(|term| match term.field {
            Field::Name => (term.value == subject.name) == term.equals,
            Field::Namespace => (term.value == subject.namespace) == term.equals,
            Field::Referent(..) | Field::ReferentUid(_) | Field::Other(_) => true,
        });
        if !by_name || self.terms.iter().all(Term::is_by_name) {
            return by_name;
        }
        // What is written with escapes might be the hint all the same.
        let misses = |hint: &Finder<'_>| {
            hint.find(subject.json).is_none() && memchr::memmem::find(subject.json, b"\\u").is_none()
        };
        if self.hint.as_ref().is_some_and(misses) {
            return false;
        }
        let json = std::str::from_utf8(subject.json).unwrap_or_default();
        let mut values: SmallVec<[(usize, &str); 8]> = SmallVec::new();
        self.tree.walk(json, |id, raw| {
            values.push((id, raw));
            self.terms.iter().any(|term| term.is_lost_by(id, raw, subject, self.tree.has_stars()))
        });
        self.terms.iter().all(|term| term.holds(&values, subject))
    }
}

impl Term {
    fn place(&self) -> Option<&Place> {
        match &self.field {
            Field::Name | Field::Namespace => None,
            Field::Referent(place, _) | Field::ReferentUid(place) | Field::Other(place) => Some(place),
        }
    }

    fn is_by_name(&self) -> bool {
        self.place().is_none()
    }

    /// A text that every object holds for which the term does: the value, where it is written in one way only.
    fn hint(&self) -> Option<String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@ ".contains(c);
        let place = self.place()?;
        let sought = self.equals && !self.value.is_empty() && self.value != place.unset;
        if !sought || !self.value.chars().all(plain) {
            return None;
        }
        match &self.field {
            // The suffix may be missing in what was asked for, or in what there is.
            Field::Referent(_, true) => Some(format!("\"{}", self.value)),
            Field::ReferentUid(_) if !self.value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') => None,
            // A number or a boolean stands without quotes.
            _ if self.value.parse::<f64>().is_ok() || matches!(self.value.as_str(), "true" | "false") => {
                Some(self.value.clone())
            }
            _ => Some(format!("\"{}\"", self.value)),
        }
    }

    /// Says whether the term cannot hold, whatever else there is, once this value of that path was seen. Under a star
    /// another value may still be the equal one.
    fn is_lost_by(&self, id: usize, raw: &str, subject: &Subject<'_>, stars: bool) -> bool {
        let is_it = !is_empty(raw) && self.place().is_some_and(|place| place.paths.as_slice() == [id]);
        is_it && !(stars && self.equals) && self.equals_raw(raw, subject) != self.equals
    }

    fn holds(&self, values: &[(usize, &str)], subject: &Subject<'_>) -> bool {
        let Some(place) = self.place() else { return true };
        let mut found = false;
        for path in &place.paths {
            let mut of_path = values.iter().filter(|(id, raw)| id == path && !is_empty(raw)).peekable();
            if of_path.peek().is_some() {
                found = true;
                if of_path.any(|(_, raw)| self.equals_raw(raw, subject)) {
                    return self.equals;
                }
                break;
            }
        }
        (!found && self.value == place.unset) == self.equals
    }

    fn equals_raw(&self, raw: &str, subject: &Subject<'_>) -> bool {
        let value = match raw.as_bytes().first() {
            Some(b'"') => super::text_of(raw).unwrap_or_default(),
            Some(b'{' | b'[') => return false,
            _ if is_empty(raw) => "".into(),
            _ => raw.into(),
        };
        let with_suffix = |short: &str, long: &str| {
            let [first, second] = subject.suffix;
            !second.is_empty()
                && long.strip_suffix(second).and_then(|rest| rest.strip_suffix(first)).is_some_and(|rest| rest == short)
        };
        self.value == value
            || match self.field {
                Field::Referent(_, true) => with_suffix(&self.value, &value),
                Field::ReferentUid(_) => with_suffix(&value, &self.value),
                _ => false,
            }
    }
}

fn is_empty(raw: &str) -> bool {
    matches!(raw, "" | "null" | "\"\"")
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            terms.push(text.get(start..at).unwrap_or_default());
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    terms.push(text.get(start..).unwrap_or_default());
    terms
}

/// Splits at the first operator: nothing is escaped before it.
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

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(other) => return Err(SelectorError::Escape(format!("\\{other}"))),
                None => return Err(SelectorError::Escape("\\".into())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(c)),
            _ => out.push(c),
        }
    }
    Ok(out)
}
