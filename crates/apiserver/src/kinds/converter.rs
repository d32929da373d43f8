//! Versions of objects that something outside of the server makes.

use futures::future::BoxFuture;
use serde_json::Value;

use kubefold_wire::status::Status;

/// Makes objects of one version of a kind objects of another version.
///
/// Source: kubernetes/apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`.
pub trait Converter: Send + Sync + 'static {
    /// The `apiVersion` in which new objects are stored.
    fn stored(&self) -> &str;

    /// The same objects in another version, in their order. What is in that version already stays as it is.
    ///
    /// Errors: the whole answer, 500 with the converter's own words. Cancel: the converter may have been asked.
    fn convert<'a>(
        &'a self,
        services: &'a dyn Services,
        objects: Vec<Value>,
        api_version: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, Box<Status>>>;
}

/// Finds the services that are called by name.
pub trait Services: Send + Sync {
    /// A service; `None`: there is none of that name.
    ///
    /// Errors: the storage does not answer.
    fn service<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Status>>;
}
