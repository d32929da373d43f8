//! An expression that is ready to run, and its budget.
//!
//! The interpreter has no limits of its own: each turn of a comprehension is preceded by a call that pays for it. A node of an
//! expression costs 1. What a call costs by the size of its arguments is not counted.

use std::{
    cell::OnceCell,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use cel::{
    Context, DeclarationError, Env, ExecutionError, Value as Resolved,
    common::{
        ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators},
        types::{CelBool, CelInt, CelOptional, CelString},
        value::{CowVal, Val},
    },
    extensions,
};
use serde_json::Value;

use super::{
    check::{Check, Names, located},
    estimate::Estimate,
    library::{self, Of},
    meter::{self, CHARGE, METER, Meter},
    pairs, patches,
    sizes::Sizes,
    types::Type as Checked,
    values,
};

/// What one expression may cost. Source: kubernetes/apiserver `pkg/apis/cel/config.go` `PerCallLimit`.
pub(super) const CALL_COST_MAX: u64 = 1_000_000;

/// What a question to the authorizer costs, so that one expression has two of them at most.
/// Source: kubernetes/apiserver `pkg/cel/library/cost.go`.
const CHECK_COST: u64 = 350_000;

static ENVIRONMENT: LazyLock<Result<Arc<Env>, DeclarationError>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings)?;
    env.add_extension(extensions::lists)?;
    // For values of the format `byte`: rules do not see its functions.
    env.add_extension(extensions::encoders)?;
    library::add_to(&mut env)?;
    patches::add_to(&mut env)?;
    pairs::add_to(&mut env)?;
    meter::add_to(&mut env)?;
    Ok(Arc::new(env))
});

/// Why an expression gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// It costs more than one expression may.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooCostly,
    /// No function takes the arguments.
    #[error("no such overload")]
    NoOverload,
    /// Any other, in cel-go's words.
    #[error("{0}")]
    Other(String),
}

/// The environment of all expressions.
///
/// Errors: a function is declared twice.
pub(super) fn environment() -> Result<Arc<Env>, CompileError> {
    match &*ENVIRONMENT {
        Ok(env) => Ok(Arc::clone(env)),
        Err(error) => Err(CompileError::Compilation(error.to_string())),
    }
}

/// An expression.
pub(super) struct Program {
    expression: IdedExpr,
    cost: u64,
    env: Arc<Env>,
    /// Whether it uses `oldSelf`.
    pub(super) uses_old: bool,
    /// Whether `oldSelf` is an optional value.
    is_optional: bool,
    /// What it costs at most, where somebody asked for it.
    pub(super) estimated: u64,
}

/// What the rules of one place see: its values are CEL's once for all of them.
pub(super) struct Seen<'v> {
    pub(super) schema: &'v Value,
    pub(super) new: &'v Value,
    pub(super) old: Option<&'v Value>,
    alone: OnceCell<Context<'v, 'v>>,
    /// With `oldSelf`.
    beside_old: OnceCell<Context<'v, 'v>>,
}

impl<'v> Seen<'v> {
    pub(super) fn new(schema: &'v Value, new: &'v Value, old: Option<&'v Value>) -> Self {
        Self { schema, new, old, alone: OnceCell::new(), beside_old: OnceCell::new() }
    }

    /// The variables of an expression beside its meter.
    fn context(&self, program: &Program) -> &Context<'v, 'v> {
        let env = &program.env;
        let context = || {
            let mut context = Context::with_env(Arc::clone(env));
            context.add_variable_as_val("self", values::value(env, self.schema, self.new));
            context
        };
        match self.old.filter(|_| program.uses_old && !program.is_optional) {
            None => self.alone.get_or_init(context),
            Some(old) => self.beside_old.get_or_init(|| {
                let mut context = context();
                context.add_variable_as_val("oldSelf", values::value(env, self.schema, old));
                context
            }),
        }
    }
}

/// Why an expression is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CompileError {
    /// It cannot be read, or names what is not there.
    #[error("compilation failed: {0}")]
    Compilation(String),
    /// It cannot be made ready to run: a pattern in it is no regular expression.
    #[error("program instantiation failed: {0}")]
    Instantiation(String),
    /// It gives something else.
    #[error("must evaluate to {gives} but got {got}")]
    OtherType {
        /// What it must give: `bool`, `one of [string null_type]`.
        gives: String,
        /// The type of what it gives.
        got: String,
    },
}

impl CompileError {
    /// What it says of a rule.
    pub(super) fn of_rule(&self) -> String {
        match self {
            Self::Compilation(_) | Self::Instantiation(_) => self.to_string(),
            Self::OtherType { gives, .. } => format!("cel expression must evaluate to a {gives}"),
        }
    }
}

impl Program {
    /// Reads an expression of a place of a schema.
    ///
    /// Errors: it cannot be read, names what is not there, or gives another type than is wanted.
    pub(super) fn compile(
        source: &str,
        scope: &Checked<'_>,
        is_optional: bool,
        wanted: &Checked<'_>,
    ) -> Result<Self, CompileError> {
        Self::estimated(source, scope, is_optional, wanted, None)
    }

    /// The same, with what it costs at most by these sizes.
    ///
    /// Errors: as those of [`Self::compile`].
    pub(super) fn estimated<'a>(
        source: &str,
        scope: &Checked<'a>,
        is_optional: bool,
        wanted: &Checked<'_>,
        sizes: Option<Sizes<'a>>,
    ) -> Result<Self, CompileError> {
        let old = if is_optional { Checked::optional(scope.clone()) } else { scope.clone() };
        let variables = vec![("self".to_owned(), scope.clone()), ("oldSelf".to_owned(), old)];
        let (program, given) = Self::read(source, Names { variables, has_patch_types: false, sizes })?;
        if given != *wanted {
            return Err(CompileError::OtherType { gives: wanted.declared(), got: given.declared() });
        }
        Ok(Self { is_optional, ..program })
    }

    /// Reads an expression that may name these, and says its type.
    ///
    /// Errors: it cannot be read, names what is not there, or has types that do not fit.
    pub(super) fn read<'a>(source: &str, names: Names<'a>) -> Result<(Self, Checked<'a>), CompileError> {
        let env = environment()?;
        let program = env.compile(source).map_err(|errors| {
            let offset = |line: isize, column: isize| {
                let before = source.split_inclusive('\n').take(usize::try_from(line - 1).unwrap_or(0));
                before.map(str::len).sum::<usize>() + usize::try_from(column - 1).unwrap_or(0)
            };
            let each = errors.errors.iter().map(|error| located(source, offset(error.pos.0, error.pos.1), &error.msg));
            CompileError::Compilation(each.collect::<Vec<_>>().join("\n"))
        })?;
        let sizes = names.sizes;
        let mut check = Check::new(&env, program.source_info(), names);
        let of = check.whole(program.expression());
        if let Some(wrong) = check.wrong() {
            return Err(CompileError::Compilation(wrong));
        }
        if let Some(why) = check.unusable.take() {
            return Err(CompileError::Instantiation(why));
        }
        let uses_old = check.uses_old;
        let estimated = sizes.zip(check.parts()).map_or(0, |(sizes, parts)| {
            let mut estimate = Estimate::new(&parts, sizes);
            estimate.cost(program.expression()).max
        });
        let mut expression = program.expression().clone();
        let cost = metered(&mut expression);
        Ok((Self { expression, cost, env, uses_old, is_optional: false, estimated }, of))
    }

    /// What it gives, and what it cost.
    fn run<T>(&self, seen: &Seen<'_>, read: impl FnOnce(&dyn Val) -> Option<T>) -> (Result<T, Failure>, u64) {
        let mut context = seen.context(self).new_inner_scope();
        if self.uses_old && self.is_optional {
            let old = seen.old.map(|old| values::value(&self.env, seen.schema, old));
            context.add_variable_as_val("oldSelf", Box::new(old.map_or_else(CelOptional::none, CelOptional::of)));
        }
        let (value, cost) = self.value(&context);
        (value.and_then(|value| read(value.as_ref()).ok_or(Failure::NoOverload)), cost)
    }

    /// The value that it has with these variables, and what that cost.
    pub(super) fn value<'v>(&self, context: &Context<'_, 'v>) -> (Result<Box<dyn Val + 'v>, Failure>, u64) {
        let left = Arc::new(AtomicU64::new(CALL_COST_MAX.saturating_sub(self.cost)));
        let mut context = context.new_inner_scope();
        context.add_variable_as_val(METER, Box::new(Of(Meter(Arc::clone(&left)))));
        let result = Resolved::resolve_val(&self.expression, &context).map(CowVal::into_owned);
        let left = left.load(Ordering::Relaxed);
        let answer = match result {
            _ if left == 0 => Err(Failure::TooCostly),
            Ok(value) => Ok(value),
            Err(error) => Err(failure(error)),
        };
        (answer, CALL_COST_MAX - left)
    }

    /// Whether it holds, and what that cost.
    pub(super) fn holds(&self, seen: &Seen<'_>) -> (Result<bool, Failure>, u64) {
        self.run(seen, |value| value.downcast_ref::<CelBool>().map(|truth| *truth.inner()))
    }

    /// The text that it gives, and what that cost.
    pub(super) fn text(&self, seen: &Seen<'_>) -> (Result<String, Failure>, u64) {
        self.run(seen, |value| value.downcast_ref::<CelString<'_>>().map(|text| text.inner().to_owned()))
    }
}

/// In the words of cel-go.
fn failure(error: ExecutionError) -> Failure {
    Failure::Other(match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::UndeclaredReference(name) => format!("no such attribute(s): {name}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Resolved::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::FunctionError { message, .. } => message,
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. } => return Failure::NoOverload,
        other => other.to_string(),
    })
}

/// Has each turn of the comprehensions of an expression, and each question to the authorizer, paid for. Answers what the rest of
/// it costs.
fn metered(expression: &mut IdedExpr) -> u64 {
    patches::rewrite(expression);
    pairs::rewrite(expression);
    let cost = 1 + parts_metered(expression);
    if matches!(&expression.expr, Expr::Call(call) if call.func_name == "check" && call.target.is_some()) {
        pay_for(expression, CHECK_COST);
    }
    cost
}

fn parts_metered(expression: &mut IdedExpr) -> u64 {
    match &mut expression.expr {
        Expr::Call(call) => {
            null_last(call);
            let target = call.target.as_mut().map_or(0, |target| metered(target));
            target + call.args.iter_mut().map(metered).sum::<u64>()
        }
        Expr::Select(select) => metered(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().map(metered).sum(),
        Expr::Map(map) => map
            .entries
            .iter_mut()
            .map(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => metered(&mut entry.key) + metered(&mut entry.value),
                EntryExpr::StructField(field) => metered(&mut field.value),
            })
            .sum(),
        Expr::Comprehension(fold) => {
            let turn = metered(&mut fold.loop_step) + metered(&mut fold.loop_cond);
            paid(&mut fold.loop_step, turn);
            metered(&mut fold.iter_range) + metered(&mut fold.accu_init) + metered(&mut fold.result)
        }
        _ => 0,
    }
}

/// Compares with null from the other side: what is null in an object knows that it equals null, and not the other way around.
fn null_last(call: &mut CallExpr) {
    let is_equality = matches!(call.func_name.as_str(), operators::EQUALS | operators::NOT_EQUALS);
    let is_null = |arg: &IdedExpr| matches!(arg.expr, Expr::Literal(LiteralValue::Null));
    if let ([left, _], true) = (call.args.as_slice(), is_equality)
        && is_null(left)
    {
        call.args.reverse();
    }
}

/// Puts the payment into what a turn computes, so that the interpreter still knows the step as one of `all`, `map` and so on.
fn paid(step: &mut IdedExpr, cost: u64) {
    let place = match &mut step.expr {
        Expr::Call(CallExpr { func_name, args, .. }) => match (func_name.as_str(), args.as_mut_slice()) {
            (operators::CONDITIONAL, [condition, _, _]) => Some(condition),
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [_, condition]) => Some(condition),
            (operators::ADD, [_, IdedExpr { expr: Expr::List(ListExpr { elements, .. }), .. }]) => elements.first_mut(),
            _ => None,
        },
        _ => None,
    };
    if let Some(place) = place {
        pay_for(place, cost);
    } else {
        pay_for(step, cost);
    }
}

fn pay_for(expression: &mut IdedExpr, cost: u64) {
    let node = |expr: Expr| IdedExpr { id: 0, expr };
    let call =
        |name: &str, args: Vec<IdedExpr>| node(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }));
    let cost = CelInt::from(i64::try_from(cost).unwrap_or(i64::MAX));
    let payment = call(CHARGE, vec![node(Expr::Ident(METER.to_owned())), node(Expr::Literal(LiteralValue::Int(cost)))]);
    let inner = std::mem::take(expression);
    *expression = call(operators::CONDITIONAL, vec![payment, inner, node(Expr::Literal(LiteralValue::Null))]);
}
