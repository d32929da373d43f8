//! `quantity` and `isQuantity`.
//!
//! Source: `pkg/cel/library/quantity.go`.

use std::cmp::Ordering;

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::types::{CelBool, CelDouble, CelInt, CelString, Type},
};
use kubefold_wire::quantity::Quantity;

use super::{Kind, Of, no};

static TYPE: Type = Type::new_unspecified_type("kubernetes.Quantity");

type Amount = Of<Quantity>;

impl Kind for Quantity {
    fn of() -> &'static Type {
        &TYPE
    }
}

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn quantity: (CelString<'_>) -> Result<Amount>)?;
    add_overload!(env, fn is_quantity: (CelString<'_>) -> CelBool)?;
    add_overload!(env, fn sign: (Amount) -> CelInt)?;
    add_member_overload!(env, fn is_integer: (Amount) -> CelBool)?;
    add_member_overload!(env, fn as_integer: (Amount) -> Result<CelInt>)?;
    add_member_overload!(env, fn as_approximate_float: (Amount) -> CelDouble)?;
    add_member_overload!(env, fn add: (Amount, Amount) -> Amount)?;
    add_member_overload!(env, fn add_whole: (Amount, CelInt) -> Result<Amount>, name = "add")?;
    add_member_overload!(env, fn sub: (Amount, Amount) -> Amount)?;
    add_member_overload!(env, fn sub_whole: (Amount, CelInt) -> Result<Amount>, name = "sub")?;
    add_member_overload!(env, fn is_less_than: (Amount, Amount) -> CelBool)?;
    add_member_overload!(env, fn is_greater_than: (Amount, Amount) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Amount, Amount) -> CelInt)
}

fn quantity(text: &CelString<'_>) -> Result<Amount, ExecutionError> {
    Quantity::parse(text.inner()).map(Of).map_err(|error| no("quantity", error))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(Quantity::parse(text.inner()).is_ok())
}

fn sign(amount: &Amount) -> CelInt {
    CelInt::from(i64::from(amount.0.is_positive()) - i64::from(amount.0.is_negative()))
}

fn whole(amount: &Quantity) -> Option<i64> {
    let value = amount.value();
    (amount.is_whole() && value != i64::MAX && value != i64::MIN).then_some(value)
}

fn is_integer(amount: &Amount) -> CelBool {
    CelBool::from(whole(&amount.0).is_some())
}

fn as_integer(amount: &Amount) -> Result<CelInt, ExecutionError> {
    whole(&amount.0).map(CelInt::from).ok_or_else(|| no("asInteger", "cannot convert value to integer"))
}

fn as_approximate_float(amount: &Amount) -> CelDouble {
    CelDouble::from(amount.0.approximate())
}

fn of_whole(number: &CelInt) -> Result<Quantity, ExecutionError> {
    Quantity::parse(&number.inner().to_string()).map_err(|error| no("quantity", error))
}

fn add(one: &Amount, other: &Amount) -> Amount {
    Of(one.0.plus(&other.0))
}

fn add_whole(one: &Amount, other: &CelInt) -> Result<Amount, ExecutionError> {
    Ok(Of(one.0.plus(&of_whole(other)?)))
}

fn sub(one: &Amount, other: &Amount) -> Amount {
    Of(one.0.minus(&other.0))
}

fn sub_whole(one: &Amount, other: &CelInt) -> Result<Amount, ExecutionError> {
    Ok(Of(one.0.minus(&of_whole(other)?)))
}

fn is_less_than(one: &Amount, other: &Amount) -> CelBool {
    CelBool::from(one.0 < other.0)
}

fn is_greater_than(one: &Amount, other: &Amount) -> CelBool {
    CelBool::from(one.0 > other.0)
}

fn compare_to(one: &Amount, other: &Amount) -> CelInt {
    CelInt::from(match one.0.cmp(&other.0) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}
