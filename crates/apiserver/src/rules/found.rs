//! What the check of an expression finds out of its parts.

use std::collections::HashMap;

use cel::common::ast::IdedExpr;

use super::{functions::Overload, types::Type};

/// What a call was found to call.
#[derive(Clone)]
pub(super) struct Called {
    pub(super) name: String,
    /// All that may take its arguments.
    pub(super) overloads: Vec<&'static Overload>,
}

/// What was found out of the parts of an expression, by their identity.
#[derive(Default)]
pub(super) struct Found<'a> {
    types: HashMap<u64, Type<'a>>,
    calls: HashMap<u64, Called>,
}

impl<'a> Found<'a> {
    /// The type of a part; `None`: it was no expression by itself, as the `a` of a name `a.b`.
    pub(super) fn of(&self, expression: &IdedExpr) -> Option<&Type<'a>> {
        self.types.get(&expression.id)
    }

    /// What a call calls.
    pub(super) fn called(&self, expression: &IdedExpr) -> Option<&Called> {
        self.calls.get(&expression.id)
    }

    pub(super) fn note_type(&mut self, expression: &IdedExpr, of: Type<'a>) {
        self.types.insert(expression.id, of);
    }

    pub(super) fn note_call(&mut self, at: u64, name: &str, overload: &'static Overload) {
        let called = || Called { name: name.to_owned(), overloads: Vec::new() };
        self.calls.entry(at).or_insert_with(called).overloads.push(overload);
    }

    /// Has types that were not known when they were noted become what they are.
    pub(super) fn settle(&mut self, mut last: impl FnMut(&Type<'a>) -> Type<'a>) {
        self.types.values_mut().for_each(|of| *of = last(of));
    }
}
