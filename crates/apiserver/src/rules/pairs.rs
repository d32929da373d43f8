//! Macros with two variables: a place or a key, and the value that is there.
//!
//! The interpreter knows comprehensions with one variable. Once an expression is checked, [`rewrite`] has one with two turn
//! over pairs, of which the variables are the parts; and a map grows as the list of its entries, of which it is made at the end.
//!
//! Source: google/cel-go `ext/comprehensions.go`.

use std::collections::{HashMap, hash_map::Entry};

use cel::{
    DeclarationError, Env, ExecutionError, ParseError,
    common::{
        ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators},
        types::{CelInt, CelList, CelMap, CelMapKey, DYN_TYPE, LIST_TYPE},
        value::{CowVal, Val},
    },
    parser::{Macro, MacroExprHelper},
};

use super::meter::{METER, pay};

/// Adds an entry to a map, or all of another map; what the type check knows it by.
const INSERT: &str = "cel.@mapInsert";
/// Makes pairs of a list or a map, and pays for them.
const PAIRS: &str = "@pairs";
/// Makes a map of a list of pairs and maps.
const MAP_OF: &str = "@mapOf";
/// What the parser names what a macro has found so far.
const RESULT: &str = "@result";

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;
type Fields<'v> = HashMap<CelMapKey<'v>, Box<dyn Val + 'v>>;

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(PAIRS, PAIRS, vec![DYN_TYPE, DYN_TYPE], pairs)?;
    env.add_overload(MAP_OF, MAP_OF, vec![LIST_TYPE], map_of)?;
    let macros: [(&str, usize, Fold); 10] = [
        ("all", 3, all),
        ("exists", 3, exists),
        ("existsOne", 3, exists_one),
        ("exists_one", 3, exists_one),
        ("transformList", 3, transform_list),
        ("transformList", 4, transform_list),
        ("transformMap", 3, transform_map),
        ("transformMap", 4, transform_map),
        ("transformMapEntry", 3, transform_map_entry),
        ("transformMapEntry", 4, transform_map_entry),
    ];
    for (name, count, fold) in macros {
        env.add_macro(Macro::receiver(name, count, move |helper, target, args| expand(helper, target, args, fold)))?;
    }
    Ok(())
}

/// What stands in the brackets of a macro beside the second variable.
struct Asked {
    first: String,
    filter: Option<IdedExpr>,
    body: IdedExpr,
}

/// What a macro computes.
struct Folded {
    init: Expr,
    condition: IdedExpr,
    step: IdedExpr,
    result: IdedExpr,
}

type Fold = fn(&mut Nodes<'_, '_>, Asked) -> Folded;

/// Makes the nodes of an expression.
struct Nodes<'h, 'p>(&'h mut MacroExprHelper<'p>);

impl Nodes<'_, '_> {
    fn found(&mut self) -> IdedExpr {
        self.0.next_expr(Expr::Ident(RESULT.to_owned()))
    }

    fn truth(&mut self) -> IdedExpr {
        self.0.next_expr(Expr::Literal(LiteralValue::Boolean(true.into())))
    }

    fn one(&mut self) -> IdedExpr {
        self.0.next_expr(Expr::Literal(LiteralValue::Int(1.into())))
    }

    fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.0.next_expr(call(name, args))
    }

    /// A step that is taken for some of the values.
    fn filtered(&mut self, filter: Option<IdedExpr>, step: IdedExpr) -> IdedExpr {
        let Some(filter) = filter else { return step };
        let found = self.found();
        self.call(operators::CONDITIONAL, vec![filter, step, found])
    }
}

fn call(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args })
}

fn expand(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    fold: Fold,
) -> Result<Option<IdedExpr>, ParseError> {
    let mut args = std::mem::take(args);
    let (body, filter) = (args.pop(), if args.len() > 2 { args.pop() } else { None });
    let (second, first) = (args.pop(), args.pop());
    let (Some(iter_range), Some(first), Some(second), Some(body)) = (target.take(), first, second, body) else {
        return Ok(None);
    };
    let (first_at, second_at) = (first.id, second.id);
    let [first, second] = [first, second].map(|variable| match variable.expr {
        Expr::Ident(name) => Ok(name),
        _ => Err(variable.id),
    });
    let simple = |helper: &MacroExprHelper<'_>, at: u64| helper.new_error(at, "argument must be a simple name");
    let first = first.map_err(|at| simple(helper, at))?;
    let second = second.map_err(|at| simple(helper, at))?;
    if first == second {
        return Err(helper.new_error(second_at, format!("duplicate variable name: {first}")));
    }
    for (at, name) in [(first_at, &first), (second_at, &second)] {
        if matches!(name.as_str(), RESULT | "__result__") {
            return Err(helper.new_error(at, "iteration variable overwrites accumulator variable"));
        }
    }
    let asked = Asked { first: first.clone(), filter, body };
    let Folded { init, condition, step, result } = fold(&mut Nodes(helper), asked);
    let fold = ComprehensionExpr {
        iter_range,
        iter_var: first,
        iter_var2: Some(second),
        accu_var: RESULT.to_owned(),
        accu_init: helper.next_expr(init),
        loop_cond: condition,
        loop_step: step,
        result,
    };
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(fold)))))
}

fn all(nodes: &mut Nodes<'_, '_>, asked: Asked) -> Folded {
    let (found, before, result) = (nodes.found(), nodes.found(), nodes.found());
    Folded {
        init: Expr::Literal(LiteralValue::Boolean(true.into())),
        condition: nodes.call(operators::NOT_STRICTLY_FALSE, vec![found]),
        step: nodes.call(operators::LOGICAL_AND, vec![before, asked.body]),
        result,
    }
}

fn exists(nodes: &mut Nodes<'_, '_>, asked: Asked) -> Folded {
    let (found, before, result) = (nodes.found(), nodes.found(), nodes.found());
    let not_found = nodes.call(operators::LOGICAL_NOT, vec![found]);
    Folded {
        init: Expr::Literal(LiteralValue::Boolean(false.into())),
        condition: nodes.call(operators::NOT_STRICTLY_FALSE, vec![not_found]),
        step: nodes.call(operators::LOGICAL_OR, vec![before, asked.body]),
        result,
    }
}

fn exists_one(nodes: &mut Nodes<'_, '_>, asked: Asked) -> Folded {
    let (before, one, last, wanted) = (nodes.found(), nodes.one(), nodes.found(), nodes.one());
    let more = nodes.call(operators::ADD, vec![before, one]);
    Folded {
        init: Expr::Literal(LiteralValue::Int(0.into())),
        condition: nodes.truth(),
        step: nodes.filtered(Some(asked.body), more),
        result: nodes.call(operators::EQUALS, vec![last, wanted]),
    }
}

fn transform_list(nodes: &mut Nodes<'_, '_>, asked: Asked) -> Folded {
    let item = nodes.0.next_expr(Expr::List(ListExpr::new(vec![asked.body])));
    let before = nodes.found();
    let step = nodes.call(operators::ADD, vec![before, item]);
    Folded {
        init: Expr::List(ListExpr::new(Vec::new())),
        condition: nodes.truth(),
        step: nodes.filtered(asked.filter, step),
        result: nodes.found(),
    }
}

fn transform_map(nodes: &mut Nodes<'_, '_>, asked: Asked) -> Folded {
    let key = nodes.0.next_expr(Expr::Ident(asked.first));
    inserting(nodes, asked.filter, vec![key, asked.body])
}

fn transform_map_entry(nodes: &mut Nodes<'_, '_>, asked: Asked) -> Folded {
    inserting(nodes, asked.filter, vec![asked.body])
}

fn inserting(nodes: &mut Nodes<'_, '_>, filter: Option<IdedExpr>, mut inserted: Vec<IdedExpr>) -> Folded {
    inserted.insert(0, nodes.found());
    let step = nodes.call(INSERT, inserted);
    Folded {
        init: Expr::Map(MapExpr { entries: Vec::new() }),
        condition: nodes.truth(),
        step: nodes.filtered(filter, step),
        result: nodes.found(),
    }
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

/// Has a comprehension with two variables, if the expression is one, turn over pairs.
pub(super) fn rewrite(expression: &mut IdedExpr) {
    let Expr::Comprehension(fold) = &mut expression.expr else { return };
    let Some(second) = fold.iter_var2.take() else { return };
    // Comprehensions stand within one another.
    let pair = format!("@pair{}", expression.id);
    let first = std::mem::replace(&mut fold.iter_var, pair.clone());
    for (name, index) in [(first, 0), (second, 1)] {
        let place = node(Expr::Literal(LiteralValue::Int(index.into())));
        let part = call(operators::INDEX, vec![node(Expr::Ident(pair.clone())), place]);
        replace(&mut fold.loop_cond, &name, &part);
        replace(&mut fold.loop_step, &name, &part);
    }
    let range = std::mem::take(&mut fold.iter_range);
    fold.iter_range = node(call(PAIRS, vec![node(Expr::Ident(METER.to_owned())), range]));
    if matches!(fold.accu_init.expr, Expr::Map(_)) {
        fold.accu_init = node(Expr::List(ListExpr::new(Vec::new())));
        listed(&mut fold.loop_step);
        let result = std::mem::take(&mut fold.result);
        fold.result = node(call(MAP_OF, vec![result]));
    }
}

/// Has a step that adds an entry to a map add it to the list of its entries.
fn listed(step: &mut IdedExpr) {
    let Expr::Call(CallExpr { func_name, args, .. }) = &mut step.expr else { return };
    match (func_name.as_str(), args.as_mut_slice()) {
        (operators::CONDITIONAL, [_, step, _]) => listed(step),
        (INSERT, [_, ..]) => {
            let mut entry = args.split_off(1);
            let entry = match entry.len() {
                1 => entry.remove(0),
                _ => node(Expr::List(ListExpr::new(entry))),
            };
            args.push(node(Expr::List(ListExpr::new(vec![entry]))));
            operators::ADD.clone_into(func_name);
        }
        _ => {}
    }
}

/// Puts an expression where a variable is named, unless another variable has that name there.
fn replace(expression: &mut IdedExpr, name: &str, with: &Expr) {
    match &mut expression.expr {
        Expr::Ident(ident) if ident == name => expression.expr = with.clone(),
        Expr::Select(select) => replace(&mut select.operand, name, with),
        Expr::Call(call) => {
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(|part| replace(part, name, with))
        }
        Expr::List(list) => list.elements.iter_mut().for_each(|item| replace(item, name, with)),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| replace_in_entry(&mut entry.expr, name, with)),
        Expr::Struct(made) => made.entries.iter_mut().for_each(|entry| replace_in_entry(&mut entry.expr, name, with)),
        Expr::Comprehension(fold) => {
            replace(&mut fold.iter_range, name, with);
            replace(&mut fold.accu_init, name, with);
            if fold.accu_var == name {
                return;
            }
            replace(&mut fold.result, name, with);
            if fold.iter_var != name && fold.iter_var2.as_deref() != Some(name) {
                replace(&mut fold.loop_cond, name, with);
                replace(&mut fold.loop_step, name, with);
            }
        }
        _ => {}
    }
}

fn replace_in_entry(entry: &mut EntryExpr, name: &str, with: &Expr) {
    match entry {
        EntryExpr::MapEntry(entry) => {
            replace(&mut entry.key, name, with);
            replace(&mut entry.value, name, with);
        }
        EntryExpr::StructField(field) => replace(&mut field.value, name, with),
    }
}

fn pairs<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let [meter, range] = args.as_slice() else { return Err(ExecutionError::missing_argument_or_target()) };
    let size = range.as_ref().as_sizer().map_or(0, |range| u64::try_from(*range.size().inner()).unwrap_or(0));
    pay(meter, size)?;
    let mut all: Vec<Box<dyn Val + 'v>> = Vec::new();
    let pair = |key: Box<dyn Val + 'v>, value: &(dyn Val + 'v)| -> Box<dyn Val + 'v> {
        Box::new(CelList::from(vec![key, value.clone_as_boxed()]))
    };
    if let Some(map) = range.as_ref().downcast_ref::<CelMap<'v>>() {
        all.extend(map.inner().iter().map(|(key, value)| pair(key.inner().clone_as_boxed(), value.as_ref())));
        return Ok(CowVal::owned(CelList::from(all)));
    }
    let list = range.as_ref().as_iterable().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let mut items = list.iter();
    while let Some(item) = items.next() {
        let place = i64::try_from(all.len()).unwrap_or(i64::MAX);
        all.push(pair(Box::new(CelInt::from(place)), item));
    }
    Ok(CowVal::owned(CelList::from(all)))
}

fn map_of<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let entries = args.into_iter().next().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let entries: Vec<Box<dyn Val + 'v>> =
        entries.into_owned().try_into().map_err(|_| ExecutionError::missing_argument_or_target())?;
    let mut all = Fields::new();
    for entry in entries {
        if let Some(map) = entry.downcast_ref::<CelMap<'v>>() {
            for (key, value) in map.inner() {
                insert(&mut all, key.clone(), value.clone_as_boxed())?;
            }
            continue;
        }
        let pair: Vec<Box<dyn Val + 'v>> =
            entry.try_into().map_err(|_| ExecutionError::missing_argument_or_target())?;
        let mut pair = pair.into_iter();
        let (Some(key), Some(value)) = (pair.next(), pair.next()) else {
            return Err(ExecutionError::missing_argument_or_target());
        };
        insert(&mut all, key.try_into()?, value)?;
    }
    Ok(CowVal::owned(CelMap::from(all)))
}

/// Errors: the map has that key.
fn insert<'v>(all: &mut Fields<'v>, key: CelMapKey<'v>, value: Box<dyn Val + 'v>) -> Result<(), ExecutionError> {
    match all.entry(key) {
        Entry::Vacant(place) => {
            place.insert(value);
            Ok(())
        }
        Entry::Occupied(place) => {
            let shown = match place.key() {
                CelMapKey::Bool(key) => key.inner().to_string(),
                CelMapKey::Int(key) => key.inner().to_string(),
                CelMapKey::UInt(key) => key.inner().to_string(),
                CelMapKey::String(key) => key.inner().to_owned(),
            };
            Err(ExecutionError::function_error(INSERT, format!("insert failed: key {shown} already exists")))
        }
    }
}
