//! Types of expressions, and which of them may stand for which.
//!
//! Source: google/cel-go `checker/types.go`, `checker/format.go`.

use std::{collections::HashMap, fmt};

use serde_json::Value;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type<'a> {
    /// Any: it is found out when the expression runs.
    Dyn,
    /// That of something wrong, which is told once.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Self>),
    /// Of keys and values.
    Map(Box<Self>, Box<Self>),
    Optional(Box<Self>),
    /// A type that is a value.
    Of(Box<Self>),
    /// The type of types.
    Types,
    /// What has fields.
    Object(Object<'a>),
    /// One of a library that has no fields.
    Opaque(&'static str),
    /// One that is not known yet, or never.
    Var(usize),
}

/// A type with fields. Two of the same name are the same.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    pub(super) name: String,
    pub(super) fields: Fields<'a>,
}

/// Which fields there are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fields<'a> {
    /// The properties of a schema, and what every whole object has beside them.
    Schema {
        /// Of the object.
        schema: &'a Value,
        /// Whether it is a whole object.
        is_root: bool,
    },
    /// Variables of a policy.
    Variables(&'a [(String, Type<'static>)]),
    /// All that somebody names, of any type.
    Any,
    /// Those of an operation of a JSON patch.
    JsonPatch,
    /// Nobody knows: the type has functions only.
    None,
}

impl PartialEq for Object<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<'a> Type<'a> {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new(key), Box::new(value))
    }

    pub(super) fn optional(of: Self) -> Self {
        Self::Optional(Box::new(of))
    }

    /// The type whose values are of this one.
    pub(super) fn of(of: Self) -> Self {
        Self::Of(Box::new(of))
    }

    pub(super) fn object(name: &str, fields: Fields<'a>) -> Self {
        Self::Object(Object { name: name.to_owned(), fields })
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// What an optional value has, and whether it is one.
    pub(super) fn unwrapped(self) -> (Self, bool) {
        match self {
            Self::Optional(of) => (*of, true),
            other => (other, false),
        }
    }

    /// The type of a variable with such a value: what has fields is of any type.
    ///
    /// Source: kubernetes/apiserver `pkg/admission/plugin/cel/composition.go` `convertCelTypeToDeclType`.
    pub(super) fn as_variable(&self) -> Type<'static> {
        match self {
            Self::Null => Type::Null,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Uint => Type::Uint,
            Self::Double => Type::Double,
            Self::Text => Type::Text,
            Self::Bytes => Type::Bytes,
            Self::Duration => Type::Duration,
            Self::Timestamp => Type::Timestamp,
            Self::List(of) => Type::list(of.as_variable()),
            Self::Map(key, value) => Type::map(key.as_variable(), value.as_variable()),
            _ => Type::Dyn,
        }
    }

    /// The name of what an expression gives, where errors of expressions have other names for some types.
    pub(super) fn declared(&self) -> String {
        struct Declared<'t, 'a>(&'t Type<'a>);
        impl fmt::Display for Declared<'_, '_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(f, true)
            }
        }
        Declared(self).to_string()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, is_declared: bool) -> fmt::Result {
        let mut with = |name: &str, parts: &[&Self]| {
            write!(f, "{name}(")?;
            for (index, part) in parts.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { ", " })?;
                part.write(f, is_declared)?;
            }
            f.write_str(")")
        };
        match self {
            Self::List(of) => return with("list", &[of]),
            Self::Map(key, value) => return with("map", &[key, value]),
            Self::Optional(of) => return with("optional_type", &[of]),
            Self::Of(of) => return with("type", &[of]),
            _ => {}
        }
        f.write_str(match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Null if is_declared => "null_type",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::Duration if is_declared => "google.protobuf.Duration",
            Self::Duration => "duration",
            Self::Timestamp if is_declared => "google.protobuf.Timestamp",
            Self::Timestamp => "timestamp",
            Self::Types => "type",
            Self::Object(object) => &object.name,
            Self::Opaque(name) => name,
            Self::Var(index) => return write!(f, "_var{index}"),
            Self::List(_) | Self::Map(..) | Self::Optional(_) | Self::Of(_) => "",
        })
    }

    /// The same with other types in it.
    pub(super) fn mapped(&self, change: &mut impl FnMut(usize) -> Self) -> Self {
        match self {
            Self::Var(index) => change(*index),
            Self::List(of) => Self::list(of.mapped(change)),
            Self::Map(key, value) => Self::map(key.mapped(change), value.mapped(change)),
            Self::Optional(of) => Self::optional(of.mapped(change)),
            Self::Of(of) => Self::of(of.mapped(change)),
            other => other.clone(),
        }
    }

    fn may_be_null(&self) -> bool {
        matches!(
            self,
            Self::Null | Self::Optional(_) | Self::Object(_) | Self::Opaque(_) | Self::Duration | Self::Timestamp
        )
    }

    /// Says whether this type is the other one, or one that says less of the same.
    fn says_less(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Var(_), _) => true,
            (_, Self::Dyn | Self::Var(_)) => false,
            (Self::List(one), Self::List(other)) | (Self::Optional(one), Self::Optional(other)) => one.says_less(other),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.says_less(other_key) && value.says_less(other_value)
            }
            (Self::Of(_) | Self::Types, Self::Of(_) | Self::Types) => true,
            _ => self == other,
        }
    }

    /// The one of two types that fit each other that says less.
    pub(super) fn most_general(self, other: Self) -> Self {
        if self.says_less(&other) { self } else { other }
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}

/// What is known of types that were not known.
#[derive(Default)]
pub(super) struct Bindings<'a> {
    known: HashMap<usize, Type<'a>>,
    /// What was known of them before, the last change last: to take changes back.
    before: Vec<Before<'a>>,
}

struct Before<'a> {
    index: usize,
    known: Option<Type<'a>>,
}

impl<'a> Bindings<'a> {
    /// A type as far as it is known.
    pub(super) fn known(&self, of: &Type<'a>) -> Type<'a> {
        of.mapped(&mut |index| self.known.get(&index).map_or(Type::Var(index), |known| self.known(known)))
    }

    /// The same at the end: what is not known is of any type.
    pub(super) fn last(&self, of: &Type<'a>) -> Type<'a> {
        of.mapped(&mut |index| self.known.get(&index).map_or(Type::Dyn, |known| self.last(known)))
    }

    /// Says whether values of all the second types may stand where the first are wanted. If so, more is known.
    pub(super) fn fit(&mut self, wanted: &[Type<'a>], given: &[Type<'a>]) -> bool {
        let fits = wanted.len() == given.len()
            && wanted.iter().zip(given).all(|(wanted, given)| self.is_assignable(wanted, given));
        for Before { index, known } in std::mem::take(&mut self.before).into_iter().rev().filter(|_| !fits) {
            match known {
                Some(known) => self.known.insert(index, known),
                None => self.known.remove(&index),
            };
        }
        fits
    }

    fn bind(&mut self, index: usize, of: Type<'a>) {
        let known = self.known.insert(index, of);
        self.before.push(Before { index, known });
    }

    fn is_assignable(&mut self, one: &Type<'a>, other: &Type<'a>) -> bool {
        if let Type::Var(index) = other {
            let (fits, is_known) = self.substitutes(one, *index);
            if fits || is_known {
                return fits;
            }
        }
        if let Type::Var(index) = one {
            return self.substitutes(other, *index).0;
        }
        if one.is_open() || other.is_open() {
            return true;
        }
        match (one, other) {
            (Type::Null, null) | (null, Type::Null) => null.may_be_null(),
            (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
                self.is_assignable(one, other)
            }
            (Type::Map(key, value), Type::Map(other_key, other_value)) => {
                self.is_assignable(key, other_key) && self.is_assignable(value, other_value)
            }
            (Type::Of(_) | Type::Types, Type::Of(_) | Type::Types) => true,
            _ => one == other,
        }
    }

    /// Says whether a type may stand for an unknown one, and whether that one was known before.
    fn substitutes(&mut self, of: &Type<'a>, index: usize) -> (bool, bool) {
        if *of == Type::Var(index) {
            return (true, true);
        }
        let Some(known) = self.known.get(&index).cloned() else {
            let is_new = !self.has(index, of);
            if is_new {
                self.bind(index, of.clone());
            }
            return (is_new, false);
        };
        if known == *of {
            return (true, true);
        }
        if !self.is_assignable(of, &known) {
            return (false, true);
        }
        let general = of.clone().most_general(known);
        if !self.has(index, &general) {
            self.bind(index, general);
        }
        (true, true)
    }

    /// Says whether an unknown type is part of another one.
    fn has(&self, index: usize, within: &Type<'a>) -> bool {
        match within {
            Type::Var(other) if *other == index => true,
            Type::Var(other) => self.known.get(other).is_some_and(|known| self.has(index, known)),
            Type::List(of) | Type::Optional(of) | Type::Of(of) => self.has(index, of),
            Type::Map(key, value) => self.has(index, key) || self.has(index, value),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_types_become_known() {
        let mut bindings = Bindings::default();
        let list = Type::list(Type::Var(0));
        assert!(bindings.fit(&[list.clone(), Type::Var(0)], &[Type::list(Type::Int), Type::Int]));
        assert_eq!(bindings.known(&list), Type::list(Type::Int));
        assert!(!bindings.fit(&[Type::Var(0)], &[Type::Text]));
        assert!(bindings.fit(&[Type::Var(0)], &[Type::Dyn]));
        assert_eq!(bindings.known(&list), Type::list(Type::Dyn));
        assert_eq!(bindings.last(&Type::Var(1)), Type::Dyn);
        assert!(!bindings.fit(&[Type::Var(2)], &[Type::list(Type::Var(2))]));
        // What did not fit leaves nothing behind.
        assert!(!bindings.fit(&[Type::Var(3), Type::Int], &[Type::Int, Type::Text]));
        assert_eq!(bindings.known(&Type::Var(3)), Type::Var(3));
    }

    #[test]
    fn some_types_may_be_null() {
        let mut bindings = Bindings::default();
        assert!(bindings.fit(&[Type::Duration], &[Type::Null]));
        assert!(bindings.fit(&[Type::Null], &[Type::object("x", Fields::Any)]));
        assert!(!bindings.fit(&[Type::Text], &[Type::Null]));
        assert!(!bindings.fit(&[Type::list(Type::Dyn)], &[Type::Null]));
    }

    #[test]
    fn errors_and_results_name_types_differently() {
        let of = Type::map(Type::Text, Type::list(Type::optional(Type::Timestamp)));
        assert_eq!(of.to_string(), "map(string, list(optional_type(timestamp)))");
        assert_eq!(of.declared(), "map(string, list(optional_type(google.protobuf.Timestamp)))");
    }
}
