//! How a patch makes a new object of the present one, and who owns which of its fields.
//!
//! Pure: the present object, the patch and the types go in, the new object or a status's words come out. What comes
//! out is not yet pruned, defaulted or validated: that is the caller's, as after any other write.
//!
//! - `strategic`: the patch that needs the type of an object; `json` and `merge` are `kubefold_wire::patch`
//! - `apply`: server-side apply, that says what is to be
//! - `configuration`: what an admission policy wants of an object
//! - `managed`: `metadata.managedFields` of every other write
//! - `fields`: sets of fields, and their form in `managedFields` (FieldsV1)
//! - `typed`: what fields an object has by its type; two objects merged or compared
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go`, kubernetes/apimachinery
//! `pkg/util/{strategicpatch,managedfields}`, sigs.k8s.io/structured-merge-diff.

mod apply;
mod configuration;
pub mod fields;
pub mod managed;
pub mod scale;
mod strategic;
mod typed;

#[cfg(test)]
mod tests;

pub(crate) use apply::kind_shown;
pub use apply::{Apply, apply};
pub use configuration::{ConfigurationError, configured};
pub use strategic::strategic;

pub use kubefold_wire::patch::{PatchError, json, merge};

use serde_json::Value;

use crate::schema::Type;

/// What is known of the object that a write is about, in the version of the request.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Such as `apps/v1`.
    pub api_version: &'a str,
    /// Such as `Deployment`.
    pub kind: &'a str,
    /// The type of the whole object; `None`: nothing is known, types are deduced of values.
    pub schema: Option<Type<'a>>,
    /// Whether it is a custom resource. Of a built-in kind, some fields are always there, if empty.
    pub custom: bool,
    /// Such as `status`; empty is the object itself.
    pub subresource: &'a str,
    /// Fields that this endpoint does not take from clients, such as `["status"]` of the object itself. Nobody owns
    /// them by it.
    pub reset: &'a [&'a [&'a str]],
    /// The same object in other versions.
    pub versions: &'a dyn Versions,
}

/// The versions of a kind other than the request's.
pub trait Versions {
    /// The object in another version, with its type; `None`: there is no such version (any more).
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, Option<Type<'_>>)>;
}

/// The kind has one version.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn convert(&self, _object: &Value, _api_version: &str) -> Option<(Value, Option<Type<'_>>)> {
        None
    }
}
