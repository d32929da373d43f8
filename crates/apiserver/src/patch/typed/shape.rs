//! A type, as ownership of fields looks at it.

use kubefold_wire::golang;
use serde_json::Value;

use super::{super::fields::Element, Fault, Faults, fault};
use crate::schema::{self, Topology, Type};

/// The type of a value, as far as it is known.
#[derive(Clone, Copy)]
pub(crate) enum Shape<'a> {
    /// It is known; fields that it does not name may be (`open`) there, too.
    Known {
        /// The type.
        of: Type<'a>,
        /// `x-kubernetes-preserve-unknown-fields`, here or above.
        open: bool,
    },
    /// Objects are granular, lists are one value.
    Deduced,
    /// One value, whatever it is.
    Atomic,
}

/// What can be said of a value by its type.
#[derive(Clone, Copy)]
pub(super) enum Atom<'a> {
    /// A leaf.
    Scalar(Scalar),
    /// A list.
    List(List<'a>),
    /// An object.
    Map(Map<'a>),
}

#[derive(Clone, Copy)]
pub(super) enum Scalar {
    Text,
    Number,
    Truth,
    Any,
}

/// A list's type.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    /// How its items are known; `None`: the list is one value.
    pub(super) items_by: Option<By<'a>>,
    /// The type of its items.
    pub(super) items: Shape<'a>,
}

/// How an item of a list is known.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    /// By its value.
    Value,
    /// By the values of these fields.
    Keys(&'a [String]),
    /// By the value of this field.
    Key(&'a str),
}

/// An object's type.
#[derive(Clone, Copy)]
pub(super) struct Map<'a> {
    /// The object is one value.
    pub(super) atomic: bool,
    /// Its fields and keys.
    shape: Shape<'a>,
}

impl<'a> Shape<'a> {
    /// The type of a whole object.
    pub(crate) fn of(schema: Option<Type<'a>>) -> Self {
        schema.map_or(Self::Deduced, |of| Self::known(of, false))
    }

    fn known(of: Type<'a>, open: bool) -> Self {
        let raw = of.go().is_some_and(|go| go.name.ends_with("RawExtension"));
        if raw { Self::Atomic } else { Self::Known { of, open: open || of.is_open() } }
    }

    /// What can be said of a value; where the type allows for any, the value says.
    pub(super) fn atom(self, value: Option<&Value>) -> Atom<'a> {
        let Self::Known { of, .. } = self else { return self.any(value) };
        match of.shape() {
            schema::Shape::Any | schema::Shape::Named(_) => self.any(value),
            schema::Shape::Text if is_time(of) => Atom::Scalar(Scalar::Any),
            schema::Shape::Text => Atom::Scalar(Scalar::Text),
            schema::Shape::Integer | schema::Shape::Number => Atom::Scalar(Scalar::Number),
            schema::Shape::Truth => Atom::Scalar(Scalar::Truth),
            schema::Shape::IntegerOrText => Atom::Scalar(Scalar::Any),
            schema::Shape::List(_) => Atom::List(self.list()),
            schema::Shape::Object(_) | schema::Shape::Map(_) => Atom::Map(self.map()),
        }
    }

    /// Says whether the value alone says what it is, so that two values may differ in it.
    pub(super) fn is_any(self) -> bool {
        !matches!(self, Self::Known { of, .. } if !matches!(*of.shape(), schema::Shape::Any))
    }

    fn any(self, value: Option<&Value>) -> Atom<'a> {
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Atom::Scalar(Scalar::Any),
            Some(Value::Array(_)) => Atom::List(self.list()),
            Some(Value::Object(_) | Value::Null) | None => Atom::Map(self.map()),
        }
    }

    fn list(self) -> List<'a> {
        let Self::Known { of, open } = self else { return List { items_by: None, items: Self::Atomic } };
        let items = of.items().map_or(Self::Atomic, |of| Self::known(of, open));
        let items_by = match (of.topology(), of.merges()) {
            (Topology::Set, _) => Some(By::Value),
            (Topology::Keyed(keys), _) => Some(By::Keys(keys)),
            (Topology::Unsaid, Some(Some(key))) => Some(By::Key(key)),
            (Topology::Unsaid, Some(None)) => Some(By::Value),
            _ => None,
        };
        List { items_by, items }
    }

    fn map(self) -> Map<'a> {
        let atomic = match self {
            Self::Known { of, .. } => *of.topology() == Topology::Atomic,
            Self::Deduced => false,
            Self::Atomic => true,
        };
        Map { atomic, shape: self }
    }

    /// The type of what is one step below, if anything is known to be there.
    pub(super) fn below(self, step: &Element) -> Option<Self> {
        match (step, self) {
            (Element::Field(name), _) => self.map().field(name),
            (Element::Key(_), Self::Known { of, .. }) if of.items().is_none() => None,
            (Element::Key(_), _) => Some(self.list().items),
            _ => None,
        }
    }
}

impl<'a> Map<'a> {
    /// The type of a field or key; `None`: there is no such field.
    pub(super) fn field(self, name: &str) -> Option<Shape<'a>> {
        let Shape::Known { of, open } = self.shape else { return Some(self.unnamed()) };
        match of.shape() {
            schema::Shape::Any => Some(Shape::Deduced),
            schema::Shape::Map(_) => of.field(name).map(|of| Shape::known(of, open)),
            schema::Shape::Object(fields) => {
                let known = of.field(name).map(|of| Shape::known(of, open));
                known.or_else(|| (open || fields.is_empty()).then_some(Shape::Deduced))
            }
            _ => None,
        }
    }

    fn unnamed(self) -> Shape<'a> {
        if self.atomic { Shape::Atomic } else { Shape::Deduced }
    }

    /// Says whether the type names a field.
    pub(super) fn names(self, name: &str) -> bool {
        match self.shape {
            Shape::Known { of, .. } => match of.shape() {
                schema::Shape::Object(fields) => fields.iter().any(|field| field.name == name),
                _ => false,
            },
            _ => false,
        }
    }

    /// Says whether nothing is known of its fields.
    pub(super) fn is_untyped(self) -> bool {
        match self.shape {
            Shape::Known { of, .. } => match of.shape() {
                schema::Shape::Any => true,
                schema::Shape::Object(fields) => fields.is_empty(),
                schema::Shape::Map(_) => {
                    let any = |of: Type<'_>| matches!(*of.shape(), schema::Shape::Any | schema::Shape::IntegerOrText);
                    of.field("").is_some_and(any)
                }
                _ => false,
            },
            Shape::Deduced => true,
            Shape::Atomic => false,
        }
    }
}

/// Why an item of a list has no step that leads to it.
///
/// Source: structured-merge-diff `typed/helpers.go`, `listItemToPathElement`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub(super) enum StepError {
    #[error("invalid indexing of non-associative list")]
    NotAssociative,
    #[error("associative list without keys has an element that's a map type")]
    MapWithoutKeys,
    #[error("not supported: associative list with lists as elements")]
    ListOfLists,
    #[error("associative list without keys has an element that's an explicit null")]
    NullWithoutKeys,
    #[error("associative list with keys may not have a null element")]
    NullWithKeys,
    #[error("associative list with keys may not have non-map elements")]
    NotAMap,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
}

impl<'a> List<'a> {
    /// How an item is known.
    ///
    /// Errors: why it can't be.
    pub(super) fn step(self, item: &Value) -> Result<Element, StepError> {
        match self.items_by {
            None => Err(StepError::NotAssociative),
            Some(By::Value) => match item {
                Value::Object(_) => Err(StepError::MapWithoutKeys),
                Value::Array(_) => Err(StepError::ListOfLists),
                Value::Null => Err(StepError::NullWithoutKeys),
                item => Ok(Element::Value(item.clone())),
            },
            Some(By::Keys(keys)) => self.by_keys(item, &keys.iter().map(String::as_str).collect::<Vec<_>>()),
            Some(By::Key(key)) => self.by_keys(item, &[key]),
        }
    }

    fn by_keys(self, item: &Value, keys: &[&str]) -> Result<Element, StepError> {
        let Value::Object(item) = item else {
            return Err(if item.is_null() { StepError::NullWithKeys } else { StepError::NotAMap });
        };
        let value = |key: &&str| {
            let value = item.get(*key).or_else(|| self.default(key))?;
            Some(((*key).to_owned(), value.clone()))
        };
        let mut fields: Vec<(String, Value)> = keys.iter().filter_map(value).collect();
        if fields.is_empty() && !keys.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| golang::quoted(key)).collect();
            return Err(StepError::NoKeys(keys.join(" ")));
        }
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(Element::Key(fields))
    }

    fn default(self, key: &str) -> Option<&'a Value> {
        let Shape::Known { of, .. } = self.items else { return None };
        of.field(key)?.default().filter(|value| !value.is_null())
    }
}

impl Scalar {
    /// What is wrong with a value.
    pub(super) fn check(self, value: Option<&Value>, prefix: &str) -> Option<Fault> {
        let value = value.filter(|value| !value.is_null())?;
        let is_scalar = !value.is_object() && !value.is_array();
        match self {
            Self::Number if !value.is_number() => {
                Some(fault(format!("{prefix}expected numeric (int or float), got {}", golang::type_name(value))))
            }
            Self::Text if !value.is_string() => {
                let got = golang::syntax(value);
                Some(fault(format!("{prefix}expected string, got &value.valueUnstructured{{Value:{got}}}")))
            }
            Self::Truth if !value.is_boolean() => {
                Some(fault(format!("{prefix}expected boolean, got &{{{}}}", golang::plain(value))))
            }
            Self::Any if !is_scalar => {
                Some(fault(format!("{prefix}expected any scalar, got &{{{}}}", golang::plain(value))))
            }
            _ => None,
        }
    }

    /// What is wrong with both of two values; nothing if either fits.
    pub(super) fn check_both(self, left: Option<&Value>, right: Option<&Value>) -> Faults {
        match (self.check(left, "lhs: "), self.check(right, "rhs: ")) {
            (Some(left), Some(right)) => vec![left, right],
            _ => Vec::new(),
        }
    }
}

/// A time is not yet read when types are looked at.
fn is_time(of: Type<'_>) -> bool {
    of.go().is_some_and(|go| matches!(go.kind, schema::GoKind::Time | schema::GoKind::MicroTime))
}

/// A list's items; `None` if it is no list, or null.
pub(super) fn items(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array)
}

/// An object's fields; `None` if it is no object, or null.
pub(super) fn fields(value: Option<&Value>) -> Option<&serde_json::Map<String, Value>> {
    value.and_then(Value::as_object)
}
