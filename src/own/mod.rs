//! kubefold's own objects: kinds of the group `kubefold.io`, which no member stores.
//!
//! They are served by an API server of their own in this process, on a file of the state directory. `route` hands requests of its
//! groups to [`OwnObjects`], and the catalog has its kinds beside those of members. May name: `access`, `stores`, `respond`, and what
//! is below them.

mod counts;
mod events;
mod fleet;
mod members;
mod namespaces;
mod policies;
mod proxied;
pub mod shadow;
mod system;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header, request::Parts};
use http_body_util::BodyExt;
use kubefold_sql::{Dialer, StateKey};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::task::TaskTracker;

pub use self::{
    events::{Recorder, Referent},
    fleet::{Fleet, FleetLink},
    members::{Enlist, JoinError, Members, merged},
    policies::Policies,
    system::System,
};
use crate::{
    catalog::{Group, parse_aggregated},
    config::OWN_GROUP,
    respond::OwnError,
};
use kubefold_apiserver::{
    BuiltIn, Server,
    kinds::Kind,
    registry::Registry,
    serve::ApiServer,
    server::{Running, ServerError},
    storage::{Bounds, Postgres, PostgresError, Sqlite, SqliteError, Storage, StorageError},
    typed::{IntoKinds, KindError},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    body::{Body, BodyError, empty},
    discovery::AGGREGATED,
    status::Status,
};

/// The group of kubefold's own kinds.
pub const GROUP: &str = OWN_GROUP;
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// In the state directory.
pub const FILE: &str = "own.db";
/// The group of tables on a server that has them, where state is there.
pub const SCHEMA: &str = "kubefold_own";

/// Why kubefold's own objects cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OwnStartError {
    /// The file of the state directory.
    #[error("cannot open kubefold's own objects in the state directory ({FILE}): {0}")]
    Storage(#[from] SqliteError),
    /// The database.
    #[error("cannot open kubefold's own objects in PostgreSQL: {0}")]
    Postgres(#[from] PostgresError),
    /// The same.
    #[cfg(feature = "mysql")]
    #[error("cannot open kubefold's own objects in MySQL: {0}")]
    Mysql(#[from] kubefold_apiserver::storage::MysqlError),
    /// Its Secrets cannot be encrypted with the key of now.
    #[error("the Secrets among kubefold's own objects cannot be encrypted anew: {0}")]
    Renew(StorageError),
    /// A kind is not as Kubernetes wants it.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// The server does not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The namespace of its own cannot be made.
    #[error("kubefold's own namespace cannot be made in the state directory ({FILE}): {}", .0.message)]
    Namespace(Box<Status>),
    /// What it serves cannot be read.
    #[error("kubefold's own kinds cannot be read from their server: {0}")]
    Discovery(String),
}

/// The server of kubefold's own objects.
pub struct OwnObjects {
    server: ApiServer,
    groups: Vec<Arc<Group>>,
    names: BTreeSet<Arc<str>>,
    system: System,
    storage: Arc<dyn Storage>,
    running: Mutex<Option<Running>>,
    writes: TaskTracker,
}

impl OwnObjects {
    /// Serves these kinds of what a storage has, and the namespace of kubefold's own, whose Secrets are encrypted with a key.
    ///
    /// Errors: see [`OwnStartError`].
    pub async fn start(storage: Arc<dyn Storage>, kinds: Vec<Kind>, key: StateKey) -> Result<Self, OwnStartError> {
        let system = System::start(Arc::clone(&storage), key).await?;
        let built_in = Server::new().built_in(BuiltIn::None).storage(Arc::clone(&storage));
        let server = kinds.into_iter().fold(built_in, Server::kind);
        let running = Box::pin(server.start()).await?;
        let server = running.service();
        let groups = proxied::with_fleet(groups(&server).await?);
        let names = groups.iter().map(|group| Arc::clone(&group.name)).collect();
        let (running, writes) = (Mutex::new(Some(running)), TaskTracker::new());
        Ok(Self { server, groups, names, system, storage, running, writes })
    }

    /// What it serves.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Says whether a group is its own.
    pub fn serves(&self, group: &str) -> bool {
        self.names.contains(group)
    }

    /// The objects, for calls in this process.
    pub fn registry(&self) -> &Registry {
        self.server.registry()
    }

    /// The namespace of its own.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Answers a request for one of its groups, as somebody who may do this. A write goes on when its client does not wait for
    /// it.
    ///
    /// Errors: the write's task ended early.
    pub async fn answer(&self, caller: &Caller, request: Request<Body>) -> Result<Response<Body>, OwnError> {
        self.answer_by(&self.server, caller, request).await
    }

    /// Answers a request for what the namespace of its own has, as [`Self::answer`] does.
    ///
    /// Errors: the write's task ended early.
    pub async fn answer_of_system(&self, caller: &Caller, request: Request<Body>) -> Result<Response<Body>, OwnError> {
        self.answer_by(self.system.server(), caller, request).await
    }

    async fn answer_by(
        &self,
        server: &ApiServer,
        caller: &Caller,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, OwnError> {
        request.extensions_mut().insert(caller.clone());
        if request.method() == Method::GET {
            return Ok(server.answer(request).await);
        }
        let server = server.clone();
        let written = self.writes.spawn(async move { server.answer(request).await });
        written.await.map_err(|error| OwnError::BrokenOff(error.to_string()))
    }

    /// Answers a request for an OpenAPI document of one of its groups: `/openapi/v3/apis/kubefold.io/v1alpha1`.
    pub async fn document(&self, parts: &Parts) -> Response<Body> {
        self.server.answer(Request::from_parts(parts.clone(), empty())).await
    }

    /// The OpenAPI documents of its groups, as an index of version 3 lists them: `apis/kubefold.io/v1alpha1`, and where each is.
    pub async fn documents(&self) -> BTreeMap<String, Value> {
        let index = read(&self.server, "/openapi/v3", None).await.unwrap_or_default();
        let index: Value = serde_json::from_slice(&index).unwrap_or_default();
        let paths = index.get("paths").and_then(Value::as_object).into_iter().flatten();
        let own = paths.filter(|(path, _)| self.owns_document(path));
        own.map(|(path, place)| (path.clone(), place.clone())).collect()
    }

    /// The OpenAPI document of version 2 of its groups, in JSON. It is the same as long as the process lives.
    pub async fn swagger(&self) -> Option<Bytes> {
        read(&self.server, "/openapi/v2", None).await.ok()
    }

    /// Says whether a document of OpenAPI, such as `apis/kubefold.io/v1alpha1`, is about one of its groups.
    pub fn owns_document(&self, path: &str) -> bool {
        let group = path.strip_prefix("apis/").and_then(|rest| rest.split('/').next());
        group.is_some_and(|group| self.serves(group))
    }

    /// Ends watches and controllers, and waits for writes.
    pub async fn end(&self) {
        self.writes.close();
        self.writes.wait().await;
        let running = self.running.lock().take();
        if let Some(running) = running {
            running.end().await;
        }
        self.system.end().await;
    }

    /// Closes the file.
    pub async fn close(&self) {
        self.storage.close().await;
    }
}

/// Opens the objects of the state directory.
///
/// Errors: see [`OwnStartError`].
pub async fn open(state_dir: &Path) -> Result<Arc<dyn Storage>, OwnStartError> {
    Ok(Arc::new(Sqlite::open(&state_dir.join(FILE), Bounds::default()).await?))
}

/// Opens the objects on a server.
///
/// Errors: see [`OwnStartError`].
pub async fn open_in(dialer: Dialer) -> Result<Arc<dyn Storage>, OwnStartError> {
    Ok(match dialer {
        Dialer::Postgres(dialer) => Arc::new(Postgres::open_by(*dialer, Bounds::default()).await?),
        #[cfg(feature = "mysql")]
        Dialer::Mysql(dialer) => {
            let opened = kubefold_apiserver::storage::Mysql::open_by(dialer, Bounds::default()).await;
            Arc::new(opened?)
        }
    })
}

/// One kind for each version of it that is served.
///
/// Errors: it is not as Kubernetes wants it.
pub fn kinds_of(kind: impl IntoKinds) -> Result<Vec<Kind>, KindError> {
    kind.into_kinds()
}

/// What a server says that it serves.
async fn groups(server: &ApiServer) -> Result<Vec<Arc<Group>>, OwnStartError> {
    let document =
        read(server, "/apis", Some(AGGREGATED)).await.map_err(|error| OwnStartError::Discovery(error.to_string()))?;
    let groups = parse_aggregated(&document).map_err(|error| OwnStartError::Discovery(error.to_string()))?;
    Ok(groups.into_iter().map(Arc::new).collect())
}

async fn read(server: &ApiServer, path: &'static str, accept: Option<&str>) -> Result<Bytes, BodyError> {
    let mut request = Request::new(empty());
    *request.uri_mut() = http::Uri::from_static(path);
    if let Some(accept) = accept.and_then(|accept| HeaderValue::from_str(accept).ok()) {
        request.headers_mut().insert(header::ACCEPT, accept);
    }
    let body = server.answer(request).await.into_body().collect().await;
    body.map(http_body_util::Collected::to_bytes)
}
