//! Who looks at a write in its caller's name, before it is judged.

use serde_json::Value;

use crate::kinds::Kind;
use kubefold_serving::caller::Caller;
use kubefold_wire::status::Status;

/// A write that somebody attempts.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    /// Who.
    pub caller: &'a Caller,
    /// Of what.
    pub kind: &'a Kind,
    /// Empty if it lies in none.
    pub namespace: &'a str,
    /// As the request names it; empty for a create.
    pub name: &'a str,
    /// What it is to be. What no validation has seen: its fields may be of any type that the schema allows.
    pub new: &'a Value,
    /// What is there; `None`: nothing.
    pub old: Option<&'a Value>,
}

/// Refuses writes by what they would store. It does not wait for anything.
pub trait Guard: Send + Sync + 'static {
    /// Looks at any write, after admission changed it and before it is validated.
    ///
    /// Errors: the whole answer, such as 403.
    fn check(&self, attempt: &Attempt<'_>) -> Result<(), Box<Status>>;

    /// Looks at a valid object that an update or an apply makes: who may update may not be one who may create.
    ///
    /// Errors: the whole answer, such as 403.
    fn check_create(&self, attempt: &Attempt<'_>) -> Result<(), Box<Status>>;
}
