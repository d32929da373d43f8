//! What an expression of a schema costs at most, by the sizes that the schema allows.
//!
//! Source: google/cel-go `checker/cost.go`; kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/compilation.go`
//! `sizeEstimator`.

use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
};

use super::{
    calls::{Argument, Arguments},
    check::Found,
    functions::Overload,
    paths::Path,
    range::Range,
    sizes::Sizes,
    types::Type,
};

// Source: google/cel-go `common/cost.go`. Units: cel-go's, each about 50 ns.
pub(super) const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const STRUCT_COST: u64 = 40;
/// What the parser names what stands before `optMap` and `optFlatMap`, where cel-go 0.26 writes it down twice.
const TARGET: &str = "@target";

/// The sizes of what a list or a map has.
#[derive(Clone, Copy)]
pub(super) struct Entries {
    is_list: bool,
    keys: Range,
    values: Range,
}

impl Entries {
    pub(super) fn union(self, other: Self) -> Self {
        Self { keys: self.keys.union(other.keys), values: self.values.union(other.values), ..self }
    }
}

/// A variable of a macro.
struct Local {
    name: String,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// Estimates one expression.
pub(super) struct Estimate<'c, 'a> {
    pub(super) found: &'c Found<'a>,
    of: Sizes<'a>,
    paths: HashMap<u64, Path>,
    sizes: HashMap<u64, Range>,
    entries: HashMap<u64, Entries>,
    locals: Vec<Local>,
    /// What stands before `optMap` and `optFlatMap`, the innermost last.
    targets: Vec<&'c IdedExpr>,
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

    /// What an expression costs.
    pub(super) fn cost(&mut self, expression: &'c IdedExpr) -> Range {
        match &expression.expr {
            Expr::Literal(_) | Expr::Unspecified => Range::NOTHING,
            Expr::Ident(name) if name == TARGET => self.target(expression),
            Expr::Ident(name) => {
                self.name(expression, name);
                Range::exactly(1)
            }
            Expr::Select(select) => self.select(expression, select),
            Expr::Call(call) => self.call(expression, call),
            Expr::List(list) => self.list(expression, list),
            Expr::Map(map) => self.map(expression, map),
            Expr::Struct(_) => Range::exactly(STRUCT_COST),
            Expr::Comprehension(fold) if is_bind(fold) => self.bind(expression, fold),
            Expr::Comprehension(fold) => self.comprehension(expression, fold),
        }
    }

    fn name(&mut self, expression: &IdedExpr, name: &str) {
        let path = self.local(name).map_or_else(|| Path::of(name), |local| local.path.clone());
        self.paths.insert(expression.id, path);
    }

    fn select(&mut self, expression: &'c IdedExpr, select: &'c SelectExpr) -> Range {
        if self.found.of(&select.operand).is_none() {
            // It is one name, such as `google.protobuf.Duration`.
            self.name(expression, &select.field);
            return Range::exactly(1);
        }
        let operand = self.cost(&select.operand);
        if select.test {
            return operand;
        }
        let path = self.path(&select.operand).inside(&select.field);
        self.paths.insert(expression.id, path);
        match self.found.of(&select.operand) {
            Some(Type::Map(..) | Type::Object(_)) => operand.plus(Range::exactly(1)),
            _ => operand,
        }
    }

    fn list(&mut self, expression: &'c IdedExpr, list: &'c ListExpr) -> Range {
        let (mut sum, mut values) = (Range::exactly(LIST_COST), None);
        for item in &list.elements {
            sum = sum.plus(self.cost(item));
            values = self.joined(values, item);
        }
        let values = values.unwrap_or(Range::NOTHING);
        self.entries.insert(expression.id, Entries { is_list: true, keys: Range::exactly(1), values });
        sum
    }

    fn map(&mut self, expression: &'c IdedExpr, map: &'c MapExpr) -> Range {
        let (mut sum, mut keys, mut values) = (Range::exactly(MAP_COST), None, None);
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
            keys = self.joined(keys, &entry.key);
            values = self.joined(values, &entry.value);
        }
        let known = |of: Option<Range>| of.unwrap_or(Range::NOTHING);
        self.entries.insert(expression.id, Entries { is_list: false, keys: known(keys), values: known(values) });
        sum
    }

    fn joined(&mut self, before: Option<Range>, of: &IdedExpr) -> Option<Range> {
        let size = self.size_or_unknown(of);
        Some(before.map_or(size, |before| before.union(size)))
    }

    fn comprehension(&mut self, expression: &'c IdedExpr, fold: &'c ComprehensionExpr) -> Range {
        let sum = self.cost(&fold.iter_range).plus(self.cost(&fold.accu_init));
        let length = self.locals.len();
        self.push_bound(&fold.accu_var, &fold.accu_init);
        match &fold.iter_var2 {
            Some(second) => {
                self.push_item(&fold.iter_var, &fold.iter_range, true);
                self.push_item(second, &fold.iter_range, false);
            }
            None => {
                let is_key = !self.is_list(&fold.iter_range);
                self.push_item(&fold.iter_var, &fold.iter_range, is_key);
            }
        }
        let turn = self.cost(&fold.loop_cond).plus(self.cost(&fold.loop_step));
        self.locals.truncate(length + 1);
        let sum = sum.plus(self.cost(&fold.result));
        self.locals.truncate(length);
        let count = self.size_or_unknown(&fold.iter_range);
        match &fold.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&fold.accu_init);
                self.sizes.extend(size.map(|size| (expression.id, size)));
            }
            Expr::List(_) | Expr::Map(_) => {
                self.sizes.insert(expression.id, count);
                let entries = self.entries_of(&fold.loop_step);
                self.entries.extend(entries.map(|entries| (expression.id, entries)));
            }
            _ => {}
        }
        sum.plus(count.times(turn))
    }

    fn bind(&mut self, expression: &'c IdedExpr, fold: &'c ComprehensionExpr) -> Range {
        if fold.accu_var == TARGET {
            self.targets.push(&fold.accu_init);
            let cost = self.cost(&fold.result);
            self.targets.pop();
            self.copy_size(expression, &fold.result);
            return cost;
        }
        let sum = self.cost(&fold.iter_range).plus(self.cost(&fold.accu_init));
        let length = self.locals.len();
        self.push_bound(&fold.accu_var, &fold.accu_init);
        let sum = sum.plus(self.cost(&fold.result));
        self.locals.truncate(length);
        self.copy_size(expression, &fold.result);
        sum
    }

    /// What stands for a target costs what the target costs.
    fn target(&mut self, expression: &IdedExpr) -> Range {
        let Some(target) = self.targets.pop() else { return Range::exactly(1) };
        let cost = self.cost(target);
        self.copy_size(expression, target);
        let path = self.path(target);
        self.paths.insert(expression.id, path);
        self.targets.push(target);
        cost
    }

    fn copy_size(&mut self, to: &IdedExpr, from: &IdedExpr) {
        let (size, entries) = (self.size(from), self.entries_of(from));
        self.sizes.extend(size.map(|size| (to.id, size)));
        self.entries.extend(entries.map(|entries| (to.id, entries)));
    }

    fn push_bound(&mut self, name: &str, to: &IdedExpr) {
        let (path, size, entries) = (self.path(to), self.size(to), self.entries_of(to));
        self.locals.push(Local { name: name.to_owned(), path, size, entries });
    }

    fn is_list(&self, range: &IdedExpr) -> bool {
        match self.entries_of(range) {
            Some(entries) => entries.is_list,
            None => matches!(self.found.of(range), Some(Type::List(_))),
        }
    }

    fn push_item(&mut self, name: &str, range: &IdedExpr, is_key: bool) {
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

    fn size(&mut self, expression: &IdedExpr) -> Option<Range> {
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

    fn size_or_unknown(&mut self, expression: &IdedExpr) -> Range {
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

    fn argument(&mut self, expression: &'c IdedExpr) -> Argument<'c> {
        let cost = self.cost(expression);
        Argument { expression, size: self.size_or_unknown(expression), cost }
    }

    fn call(&mut self, expression: &'c IdedExpr, call: &'c CallExpr) -> Range {
        if let ("dyn", [of]) = (call.func_name.as_str(), call.args.as_slice()) {
            let cost = self.cost(of).plus(Range::exactly(1));
            self.copy_size(expression, of);
            return cost;
        }
        let args: Vec<Argument<'_>> = call.args.iter().map(|arg| self.argument(arg)).collect();
        let args_cost = args.iter().fold(Range::NOTHING, |sum, arg| sum.plus(arg.cost));
        if call.func_name == operators::OPT_SELECT {
            return args_cost.plus(Range::exactly(1));
        }
        let found = self.found;
        let Some(called) = found.called(expression) else { return Range::NOTHING };
        let is_method = called.overloads.first().is_some_and(|overload| overload.is_method);
        let target = call.target.as_deref().filter(|_| is_method).map(|target| self.argument(target));
        let (mut cost, mut size) = (None, None);
        for overload in &called.overloads {
            let given = Arguments { name: &called.name, overload, target: target.as_ref(), args: &args };
            let one = self.called(expression, &given);
            let one_cost = match called.name.as_str() {
                // One side may not be evaluated, one branch is not.
                operators::LOGICAL_AND | operators::LOGICAL_OR | operators::CONDITIONAL => one.cost,
                _ => one.cost.plus(args_cost),
            };
            cost = Some(cost.map_or(one_cost, |cost: Range| cost.union(one_cost)));
            if let Some(one) = one.size {
                size = Some(size.map_or(one, |size: Range| size.union(one)));
            }
            if let (operators::INDEX, [of, _], false) = (called.name.as_str(), args.as_slice(), is_optional(overload)) {
                let place = if matches!(overload.takes.first(), Some(Type::List(_))) { "@items" } else { "@values" };
                size = self.entries_of(of.expression).map(|entries| entries.values);
                let path = self.path(of.expression).inside(place);
                self.paths.insert(expression.id, path);
            }
            if size.is_none() {
                size = self.size(expression);
            }
        }
        self.sizes.extend(size.map(|size| (expression.id, size)));
        let cost = cost.unwrap_or(Range::NOTHING);
        target.map_or(cost, |target| target.cost.plus(cost))
    }
}

/// Says whether a comprehension gives a value a name, and turns never.
fn is_bind(fold: &ComprehensionExpr) -> bool {
    let is_empty = matches!(&fold.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let is_false = |truth: &LiteralValue| matches!(truth, LiteralValue::Boolean(truth) if !*truth.inner());
    let ends = matches!(&fold.loop_cond.expr, Expr::Literal(truth) if is_false(truth));
    is_empty && ends && fold.accu_var != "__result__"
}

fn is_optional(overload: &Overload) -> bool {
    matches!(overload.takes.first(), Some(Type::Optional(_)))
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
