//! Lists: their order, sums and places, lists as sets, and lists of optional values.
//!
//! Source: `pkg/cel/library/lists.go`; google/cel-go `ext/sets.go`, `cel/library.go`.

use std::cmp::Ordering;

use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::{CelBool, CelInt, CelList, CelOptional, DYN_TYPE, LIST_TYPE},
        value::{CowVal, Val},
    },
};

use super::no;

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("isSorted", "list_is_sorted", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list_sum", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("min", "list_min", LIST_TYPE, vec![], min)?;
    env.add_member_overload("max", "list_max", LIST_TYPE, vec![], max)?;
    env.add_member_overload("indexOf", "list_index_of", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload("lastIndexOf", "list_last_index_of", LIST_TYPE, vec![DYN_TYPE], last_index_of)?;
    env.add_member_overload("first", "list_first", LIST_TYPE, vec![], first)?;
    env.add_member_overload("last", "list_last", LIST_TYPE, vec![], last)?;
    env.add_member_overload("unwrapOpt", "list_unwrap_opt", LIST_TYPE, vec![], unwrap)?;
    env.add_overload("optional.unwrap", "optional_unwrap", vec![LIST_TYPE], unwrap)?;
    env.add_overload("sets.contains", "sets_contains", vec![LIST_TYPE, LIST_TYPE], contains)?;
    env.add_overload("sets.equivalent", "sets_equivalent", vec![LIST_TYPE, LIST_TYPE], equivalent)?;
    env.add_overload("sets.intersects", "sets_intersects", vec![LIST_TYPE, LIST_TYPE], intersects)
}

fn items<'b, 'v>(args: &'b [CowVal<'_, 'v>], at: usize) -> Result<Vec<&'b (dyn Val + 'v)>, ExecutionError> {
    let list = args.get(at).and_then(|list| list.as_ref().as_iterable());
    let mut items = list.ok_or_else(ExecutionError::missing_argument_or_target)?.iter();
    Ok(std::iter::from_fn(|| items.next()).collect())
}

fn order(one: &dyn Val, other: &dyn Val) -> Result<Ordering, ExecutionError> {
    let one = one.as_comparer().ok_or_else(|| ExecutionError::no_such_overload("_<_", Vec::<String>::new()))?;
    one.compare(other)
}

fn is_sorted<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let items = items(&args, 0)?;
    for (one, next) in items.iter().zip(items.iter().skip(1)) {
        if order(*one, *next)? == Ordering::Greater {
            return Ok(CowVal::owned(CelBool::from(false)));
        }
    }
    Ok(CowVal::owned(CelBool::from(true)))
}

fn sum<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let items = items(&args, 0)?;
    let mut items = items.into_iter();
    let Some(first) = items.next() else { return Ok(CowVal::owned(CelInt::from(0))) };
    let mut sum = first.clone_as_boxed();
    for item in items {
        let adder = sum.as_adder().ok_or_else(|| ExecutionError::no_such_overload("_+_", Vec::<String>::new()))?;
        sum = adder.add(item)?.as_ref().clone_as_boxed();
    }
    Ok(CowVal::Owned(sum))
}

/// The item that stands before all others in an order.
fn most<'b, 'v>(name: &str, args: &[CowVal<'b, 'v>], wanted: Ordering) -> Answer<'b, 'v> {
    let mut items = items(args, 0)?.into_iter();
    let mut most = items.next().ok_or_else(|| no(name, format!("{name} called on empty list")))?;
    for item in items {
        if order(item, most)? == wanted {
            most = item;
        }
    }
    Ok(CowVal::Owned(most.clone_as_boxed()))
}

fn min<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    most("min", &args, Ordering::Less)
}

fn max<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    most("max", &args, Ordering::Greater)
}

fn place<'b, 'v>(found: Option<usize>) -> CowVal<'b, 'v> {
    CowVal::owned(CelInt::from(found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1)))
}

fn index_of<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (items, wanted) = (items(&args, 0)?, args.get(1));
    Ok(place(items.iter().position(|item| wanted.is_some_and(|wanted| item.equals(wanted.as_ref())))))
}

fn last_index_of<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (items, wanted) = (items(&args, 0)?, args.get(1));
    Ok(place(items.iter().rposition(|item| wanted.is_some_and(|wanted| item.equals(wanted.as_ref())))))
}

fn optional<'b, 'v>(item: Option<&(dyn Val + 'v)>) -> CowVal<'b, 'v> {
    CowVal::owned(item.map_or_else(CelOptional::none, |item| CelOptional::of(item.clone_as_boxed())))
}

fn first<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Ok(optional(items(&args, 0)?.first().copied()))
}

fn last<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Ok(optional(items(&args, 0)?.last().copied()))
}

fn unwrap<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let items = items(&args, 0)?.into_iter();
    let values = items.filter_map(|item| item.downcast_ref::<CelOptional<'_>>()?.option().map(Val::clone_as_boxed));
    Ok(CowVal::owned(CelList::from(values.collect::<Vec<Box<dyn Val + 'v>>>())))
}

fn has(all: &[&dyn Val], item: &dyn Val) -> bool {
    all.iter().any(|one| one.equals(item))
}

fn contains<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (one, other) = (items(&args, 0)?, items(&args, 1)?);
    Ok(CowVal::owned(CelBool::from(other.iter().all(|item| has(&one, *item)))))
}

fn equivalent<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (one, other) = (items(&args, 0)?, items(&args, 1)?);
    let is_same = other.iter().all(|item| has(&one, *item)) && one.iter().all(|item| has(&other, *item));
    Ok(CowVal::owned(CelBool::from(is_same)))
}

fn intersects<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (one, other) = (items(&args, 0)?, items(&args, 1)?);
    Ok(CowVal::owned(CelBool::from(other.iter().any(|item| has(&one, *item)))))
}
