//! What is known of the parts of an expression while its cost is estimated: their sizes, and where the schema describes them.
//!
//! Source: google/cel-go `checker/cost.go`; kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/compilation.go`
//! `sizeEstimator`.

use std::collections::HashMap;

use cel::common::ast::{Expr, IdedExpr, LiteralValue};

use super::{found::Found, paths::Path, range::Range, sizes::Sizes, types::Type};

/// Of a list that is made. Source: google/cel-go `common/cost.go`. Units: cel-go's, each about 50 ns.
pub(super) const LIST_COST: u64 = 10;

/// The sizes of what a list or a map has.
#[derive(Clone, Copy)]
pub(super) struct Entries {
    pub(super) is_list: bool,
    pub(super) keys: Range,
    pub(super) values: Range,
}

impl Entries {
    pub(super) fn union(self, other: Self) -> Self {
        Self { keys: self.keys.union(other.keys), values: self.values.union(other.values), ..self }
    }
}

/// A variable of a macro.
pub(super) struct Local {
    name: String,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// Estimates one expression.
pub(super) struct Estimate<'c, 'a> {
    pub(super) found: &'c Found<'a>,
    of: Sizes<'a>,
    pub(super) paths: HashMap<u64, Path>,
    pub(super) sizes: HashMap<u64, Range>,
    pub(super) entries: HashMap<u64, Entries>,
    pub(super) locals: Vec<Local>,
    /// What stands before `optMap` and `optFlatMap`, the innermost last.
    pub(super) targets: Vec<&'c IdedExpr>,
}

impl<'c, 'a> Estimate<'c, 'a> {
    /// Of an expression about the values of a schema, of whose parts this was found out.
    pub(super) fn new(found: &'c Found<'a>, of: Sizes<'a>) -> Self {
        Self {
            found,
            of,
            paths: HashMap::new(),
            sizes: HashMap::new(),
            entries: HashMap::new(),
            locals: Vec::new(),
            targets: Vec::new(),
        }
    }

    pub(super) fn name(&mut self, expression: &IdedExpr, name: &str) {
        let path = self.local(name).map_or_else(|| Path::of(name), |local| local.path.clone());
        self.paths.insert(expression.id, path);
    }

    pub(super) fn copy_size(&mut self, to: &IdedExpr, from: &IdedExpr) {
        let (size, entries) = (self.size(from), self.entries_of(from));
        self.sizes.extend(size.map(|size| (to.id, size)));
        self.entries.extend(entries.map(|entries| (to.id, entries)));
    }

    pub(super) fn push_bound(&mut self, name: &str, to: &IdedExpr) {
        let (path, size, entries) = (self.path(to), self.size(to), self.entries_of(to));
        self.locals.push(Local { name: name.to_owned(), path, size, entries });
    }

    pub(super) fn is_list(&self, range: &IdedExpr) -> bool {
        match self.entries_of(range) {
            Some(entries) => entries.is_list,
            None => matches!(self.found.of(range), Some(Type::List(_))),
        }
    }

    pub(super) fn push_item(&mut self, name: &str, range: &IdedExpr, is_key: bool) {
        let place = match (is_key, self.is_list(range)) {
            (true, true) => "@indices",
            (true, false) => "@keys",
            (false, true) => "@items",
            (false, false) => "@values",
        };
        let path = self.path(range).inside(place);
        let size = self.entries_of(range).map(|entries| if is_key { entries.keys } else { entries.values });
        self.locals.push(Local { name: name.to_owned(), path, size, entries: None });
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    /// Where in the schema the value of an expression is described.
    pub(super) fn path(&self, expression: &IdedExpr) -> Path {
        if let Expr::Ident(name) = &expression.expr
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expression.id).cloned().unwrap_or_default()
    }

    /// The variable with which a path begins is not looked at: what is computed has a path without one, and the size of `self`.
    pub(super) fn size_at(&self, path: &Path) -> Option<Range> {
        let names = path.names();
        let (_, names) = names.split_first()?;
        self.of.elements_max(names).map(Range::up_to)
    }

    pub(super) fn size(&mut self, expression: &IdedExpr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expression.id) {
            return Some(*size);
        }
        if let Some(size) = written_size(expression) {
            return Some(size);
        }
        let path = self.path(expression);
        if let Some(size) = self.size_at(&path) {
            self.sizes.insert(expression.id, size);
            return Some(size);
        }
        if self.found.of(expression).is_some_and(is_scalar) {
            return Some(Range::exactly(1));
        }
        match &expression.expr {
            Expr::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    pub(super) fn size_or_unknown(&mut self, expression: &IdedExpr) -> Range {
        self.size(expression).unwrap_or(Range::UNKNOWN)
    }

    pub(super) fn entries_of(&self, expression: &IdedExpr) -> Option<Entries> {
        match (self.entries.get(&expression.id), &expression.expr) {
            (Some(entries), _) => Some(*entries),
            (None, Expr::Ident(name)) => self.local(name)?.entries,
            _ => None,
        }
    }

    /// Notes the sizes of what an expression has, if they are known.
    pub(super) fn set_entries(&mut self, of: &IdedExpr, entries: Option<Entries>) {
        self.entries.extend(entries.map(|entries| (of.id, entries)));
    }
}

/// The size of what is written down.
fn written_size(expression: &IdedExpr) -> Option<Range> {
    let length = match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().chars().count(),
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len(),
        Expr::Literal(_) => 1,
        Expr::List(list) => list.elements.len(),
        Expr::Map(map) => map.entries.len(),
        _ => return None,
    };
    Some(Range::exactly(u64::try_from(length).unwrap_or(u64::MAX)))
}

fn is_scalar(of: &Type<'_>) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}
