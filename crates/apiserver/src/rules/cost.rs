//! What an expression of a schema costs at most, by the sizes that the schema allows.
//!
//! Source: google/cel-go `checker/cost.go`; kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/compilation.go`
//! `sizeEstimator`.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
};

use super::{
    calls::{Argument, Arguments},
    estimate::{Entries, Estimate, LIST_COST},
    functions::Overload,
    range::Range,
    types::Type,
};

// Source: google/cel-go `common/cost.go`. Units: as those of `LIST_COST`.
const MAP_COST: u64 = 30;
const STRUCT_COST: u64 = 40;
/// What the parser names what stands before `optMap` and `optFlatMap`, where cel-go 0.26 writes it down twice.
const TARGET: &str = "@target";

impl<'c, 'a> Estimate<'c, 'a> {
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
