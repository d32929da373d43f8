//! The functions that Kubernetes adds to those of CEL.
//!
//! Source: kubernetes/apiserver `pkg/cel/library/`, `pkg/cel/environment/base.go`.

mod access;
mod addresses;
mod formats;
mod go_urls;
mod lists;
mod quantities;
mod texts;
mod urls;
mod versions;

pub(crate) use access::{
    AUTHORIZER, Access, Authority, DECISION, Decided, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK, Wanted,
};

use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::Type,
        value::{StaticVal, Val},
    },
};

/// Adds all of them.
pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    texts::add_to(env)?;
    lists::add_to(env)?;
    quantities::add_to(env)?;
    addresses::add_to(env)?;
    versions::add_to(env)?;
    access::add_to(env)?;
    urls::add_to(env)?;
    formats::add_to(env)
}

/// Why a function gives no value.
fn no(function: &str, why: impl std::fmt::Display) -> ExecutionError {
    ExecutionError::function_error(function, why.to_string())
}

/// A type that CEL itself does not have.
pub(super) trait Kind: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// As CEL names it.
    fn of() -> &'static Type;
}

/// A value of such a type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Of<T>(pub(super) T);

impl<T: Kind> StaticVal for Of<T> {}

impl<T: Kind> Val for Of<T> {
    fn get_type(&self) -> &Type {
        T::of()
    }

    fn cel_type() -> &'static Type {
        T::of()
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other == self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}
