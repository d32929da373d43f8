//! What fields an object has by its type, and two objects merged or compared by it.
//!
//! Source: sigs.k8s.io/structured-merge-diff `typed`.

mod atomics;
mod collect;
mod compare;
mod merge;
mod reconcile;
mod remove;
mod shape;
mod validate;

pub(super) use atomics::atomics;
pub(super) use collect::collect;
pub(super) use compare::{Comparison, compare};
pub(super) use merge::merge;
pub(super) use reconcile::reconcile;
pub(super) use remove::{remove, with_named_fields};
pub(super) use shape::Shape;
pub(super) use validate::{Duplicates, validate};

/// What is wrong with a value, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    path: String,
    message: String,
}

/// What is wrong with an object; nothing if it is empty.
pub(super) type Faults = Vec<Fault>;

fn fault(message: impl Into<String>) -> Fault {
    Fault { path: String::new(), message: message.into() }
}

fn within(step: &impl std::fmt::Display, faults: Faults) -> Faults {
    faults.into_iter().map(|fault| Fault { path: format!("{step}{}", fault.path), ..fault }).collect()
}

/// All faults as one message.
pub(super) fn told(faults: &[Fault]) -> String {
    let one = |fault: &Fault| match &*fault.path {
        "" => fault.message.clone(),
        path => format!("{path}: {}", fault.message),
    };
    match faults {
        [only] => one(only),
        all => {
            let all: Vec<String> = all.iter().map(|fault| format!("\n  {}", one(fault))).collect();
            format!("errors:{}", all.concat())
        }
    }
}
