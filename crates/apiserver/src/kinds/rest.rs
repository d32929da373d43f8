//! Kinds whose objects are not stored: something else answers for them.
//!
//! [`Rest`] is for whoever writes one, with a Rust type; [`AnyRest`] is what a registry calls. Patches, managed fields,
//! defaults, validation, selectors and printing stay with the library.
//!
//! Source: kubernetes/apiserver `pkg/registry/rest/rest.go`.

use futures::{
    future::{BoxFuture, ready},
    stream::{BoxStream, Stream, StreamExt},
};
use http::{Request, Response};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use kubefold_serving::caller::Caller;
use kubefold_wire::{body::Body, status::Status};

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Who asks.
    pub caller: Caller,
    /// Empty for all namespaces, and for what lies in none.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own and say it all")]
pub enum Changed<T> {
    Added(T),
    Modified(T),
    /// The last state.
    Deleted(T),
}

/// Changes, as they happen.
pub type Watch<T> = BoxStream<'static, Result<Changed<T>, Status>>;

/// Answers for the objects of a kind, in place of a storage.
///
/// Each verb has a default that refuses with 405. An update, a patch and a delete begin with [`Rest::get`]; a dry run ends
/// before anything is changed. An object in an answer says its own name in its metadata; what it leaves
/// out of type, name and namespace is filled in. A [`Status`] of any kind may be the answer, such as
/// [`Status::forbidden`]; it reaches the client as it is.
pub trait Rest: Send + Sync + 'static {
    /// The Rust type of the objects.
    type Object: Serialize + DeserializeOwned + Send + 'static;

    /// What discovery tells: those of `create`, `delete`, `get`, `list`, `patch`, `update` and `watch` that are
    /// implemented. A patch is a get and an update.
    const VERBS: &'static [&'static str];

    /// One object; `None` is a 404.
    fn get(&self, target: &Target) -> impl Future<Output = Result<Option<Self::Object>, Status>> + Send {
        ready(refused("get", target))
    }

    /// All objects of a namespace, or of all. The library selects those that were asked for.
    fn list(&self, target: &Target) -> impl Future<Output = Result<Vec<Self::Object>, Status>> + Send {
        ready(refused("list", target))
    }

    /// What changes from now on.
    fn watch(&self, target: &Target) -> impl Future<Output = Result<Watch<Self::Object>, Status>> + Send {
        ready(refused("watch", target))
    }

    /// Makes an object that has its defaults and is valid. Answers it as it is then.
    fn create(
        &self,
        target: &Target,
        _object: Self::Object,
    ) -> impl Future<Output = Result<Self::Object, Status>> + Send {
        ready(refused("create", target))
    }

    /// Makes what [`Rest::get`] answered into what is wanted. Answers it as it is then.
    fn update(
        &self,
        target: &Target,
        _new: Self::Object,
        _old: Self::Object,
    ) -> impl Future<Output = Result<Self::Object, Status>> + Send {
        ready(refused("update", target))
    }

    /// Removes what [`Rest::get`] answered. `None`: it is gone; else it is on its way, and this is its present state.
    fn delete(
        &self,
        target: &Target,
        _old: Self::Object,
    ) -> impl Future<Output = Result<Option<Self::Object>, Status>> + Send {
        ready(refused("delete", target))
    }
}

fn refused<T>(verb: &str, target: &Target) -> Result<T, Status> {
    let name = if target.name.is_empty() { "objects" } else { &target.name };
    Err(Status::method_not_allowed(format!("{verb} of {name} is not served by this kind")))
}

/// [`Rest`] without its type: objects are JSON in the version in which the kind would be stored.
#[allow(missing_docs, reason = "as in `Rest`")]
pub trait AnyRest: Send + Sync + 'static {
    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Value>, Status>>;
    fn list<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Vec<Value>, Status>>;
    fn watch<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Watch<Value>, Status>>;
    fn create<'a>(&'a self, target: &'a Target, object: Value) -> BoxFuture<'a, Result<Value, Status>>;
    fn update<'a>(&'a self, target: &'a Target, new: Value, old: Value) -> BoxFuture<'a, Result<Value, Status>>;
    fn delete<'a>(&'a self, target: &'a Target, old: Value) -> BoxFuture<'a, Result<Option<Value>, Status>>;
}

impl<R: Rest> AnyRest for R {
    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Value>, Status>> {
        Box::pin(async move { Rest::get(self, target).await?.map(written).transpose() })
    }

    fn list<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(async move { Rest::list(self, target).await?.into_iter().map(written).collect() })
    }

    fn watch<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Watch<Value>, Status>> {
        Box::pin(async move { Ok(untyped(Rest::watch(self, target).await?).boxed()) })
    }

    fn create<'a>(&'a self, target: &'a Target, object: Value) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async move { written(Rest::create(self, target, read(object)?).await?) })
    }

    fn update<'a>(&'a self, target: &'a Target, new: Value, old: Value) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async move { written(Rest::update(self, target, read(new)?, read(old)?).await?) })
    }

    fn delete<'a>(&'a self, target: &'a Target, old: Value) -> BoxFuture<'a, Result<Option<Value>, Status>> {
        Box::pin(async move { Rest::delete(self, target, read(old)?).await?.map(written).transpose() })
    }
}

fn untyped<T: Serialize>(watch: Watch<T>) -> impl Stream<Item = Result<Changed<Value>, Status>> {
    watch.map(|changed| {
        Ok(match changed? {
            Changed::Added(object) => Changed::Added(written(object)?),
            Changed::Modified(object) => Changed::Modified(written(object)?),
            Changed::Deleted(object) => Changed::Deleted(written(object)?),
        })
    })
}

fn written<T: Serialize>(object: T) -> Result<Value, Status> {
    serde_json::to_value(object).map_err(|error| Status::internal(format!("the object cannot be written: {error}")))
}

/// What was valid and cannot be read after all is the client's to know of.
fn read<T: DeserializeOwned>(object: Value) -> Result<T, Status> {
    serde_json::from_value(object).map_err(|error| Status::bad_request(format!("the object cannot be read: {error}")))
}

/// Answers requests for one subresource, such as `posts/hello/export`, in place of the server.
///
/// A function of the object, as it is shown, and of the request is one.
pub trait Connect: Send + Sync + 'static {
    /// Answers a request. `object` is the one that the path names; there is one.
    fn connect(
        &self,
        target: Target,
        object: Value,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>>;
}

impl<F, A> Connect for F
where
    F: Fn(Target, Value, Request<Body>) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Response<Body>, Status>> + Send + 'static,
{
    fn connect(
        &self,
        target: Target,
        object: Value,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        Box::pin(self(target, object, request))
    }
}
