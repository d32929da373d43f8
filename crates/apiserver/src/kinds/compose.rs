//! Kinds of which less is stored than is shown: the rest is read from elsewhere whenever somebody asks.
//!
//! What is stored is an object of the kind, so that revisions, watches, pages, selectors, finalizers and managed fields are as for
//! any kind. [`Compose`] says what is shown of it, and carries out elsewhere what clients write.

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{kinds::Propagation, schema::FieldValidation};
use kubefold_serving::caller::Caller;
use kubefold_table::Printer;
use kubefold_wire::status::Status;

/// How much is asked for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What is there now: for one object that somebody gets or changes.
    Live,
    /// What is known already: for lists and watches.
    Known,
}

/// What is made of a stored object.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    /// What is shown.
    pub shown: Value,
    /// What is to be stored in its place, since what it refers to has changed. It gets a new revision, which watchers see.
    pub stored: Option<Value>,
}

/// Who writes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// Nothing may be left behind.
    pub dry_run: bool,
    /// Whose the fields are that are written.
    pub manager: &'a str,
    /// What becomes of unknown fields.
    pub validation: FieldValidation,
    /// It is a server-side apply.
    pub applies: Option<Applying>,
}

/// A server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applying {
    /// Whether fields of others are taken.
    pub force: bool,
}

/// What has come of a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carried {
    /// What is to be stored.
    pub stored: Value,
    /// What is shown.
    pub shown: Value,
    /// For the client.
    pub warnings: Vec<String>,
}

/// Makes what is shown of what is stored, and carries out what is written.
///
/// Objects are in the version of the kind. Stored ones have their `metadata.resourceVersion`.
pub trait Compose: Send + Sync + 'static {
    /// What somebody sees of a stored object.
    ///
    /// Errors: the whole answer.
    fn compose<'a>(
        &'a self,
        caller: &'a Caller,
        stored: Value,
        reading: Reading,
    ) -> BoxFuture<'a, Result<Composed, Status>>;

    /// Carries out what a new, valid object says. [`Compose::settle`] follows.
    ///
    /// Errors: the whole answer; nothing is left behind, or it says what.
    fn create<'a>(&'a self, author: Author<'a>, object: Value) -> BoxFuture<'a, Result<Carried, Status>>;

    /// Carries out a change: what was shown (`old`) becomes `new`, whose `generation` is raised where its fields differ. What
    /// comes of it may be as it was: then it has the old one. [`Compose::settle`] follows.
    ///
    /// Errors: the whole answer.
    fn update<'a>(
        &'a self,
        author: Author<'a>,
        stored: Value,
        old: &'a Value,
        new: Value,
    ) -> BoxFuture<'a, Result<Carried, Status>>;

    /// Says what is stored of an object whose deletion is asked for, before its finalizers are looked at.
    ///
    /// Errors: the whole answer.
    fn delete<'a>(
        &'a self,
        author: Author<'a>,
        stored: Value,
        propagation: Option<Propagation>,
    ) -> BoxFuture<'a, Result<Value, Status>>;

    /// How objects are printed now, where that is another way than the kind's.
    fn printer(&self) -> Option<Printer> {
        None
    }

    /// Told whether what a create or an update came to is stored. Where it is not, what they made is to go. Not told of dry runs.
    fn settle<'a>(&'a self, carried: &'a Carried, is_stored: bool) -> BoxFuture<'a, ()>;
}
