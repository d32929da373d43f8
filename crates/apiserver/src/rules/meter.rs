//! What an expression may still spend while it runs.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::{CelBool, CelInt, DYN_TYPE, Type},
        value::CowVal,
    },
};

use super::library::{Kind, Of};

/// The variable that has the meter.
pub(super) const METER: &str = "@meter";
/// The function that pays.
pub(super) const CHARGE: &str = "@charge";

static TYPE: Type = Type::new_unspecified_type("meter");

/// What is left to spend.
#[derive(Clone, Debug)]
pub(super) struct Meter(pub(super) Arc<AtomicU64>);

impl PartialEq for Meter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Kind for Meter {
    fn of() -> &'static Type {
        &TYPE
    }
}

impl Meter {
    fn pay(&self, cost: u64) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(cost)))
            .is_ok_and(|left| left > cost)
    }
}

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(CHARGE, CHARGE, vec![DYN_TYPE, DYN_TYPE], charge)
}

fn charge<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [meter, cost] = args.as_slice() else { return Err(ExecutionError::missing_argument_or_target()) };
    let cost = cost.downcast_ref::<CelInt>().map_or(1, |cost| u64::try_from(*cost.inner()).unwrap_or(1));
    pay(meter, cost)?;
    Ok(CowVal::owned(CelBool::from(true)))
}

/// Errors: there is not enough left.
pub(super) fn pay(meter: &CowVal<'_, '_>, cost: u64) -> Result<(), ExecutionError> {
    if meter.downcast_ref::<Of<Meter>>().is_some_and(|meter| meter.0.pay(cost)) {
        return Ok(());
    }
    Err(ExecutionError::function_error(CHARGE, "actual cost limit exceeded"))
}
