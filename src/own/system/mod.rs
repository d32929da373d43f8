//! The namespace `kubefold-system`: kubefold stores it and what is in it, Secrets and Events, and no member has any of it.
//!
//! - `sealed`: Secrets are encrypted on disk

mod sealed;

use std::sync::Arc;

use kubefold_sql::StateKey;
use parking_lot::Mutex;
use serde_json::json;

use self::sealed::Sealed;
use super::OwnStartError;
use crate::config::OWN_NAMESPACE;
use kubefold_apiserver::{
    BuiltIn, Server,
    registry::{Registry, WriteOptions},
    serve::ApiServer,
    server::Running,
    storage::Storage,
};
use kubefold_wire::{
    resource::Gvr,
    status::{Reason, Status},
};

/// The kinds that it has.
const KINDS: [&str; 4] = ["namespaces", "secrets", "events", "events.events.k8s.io"];

/// The server of the namespace.
pub struct System {
    server: ApiServer,
    running: Mutex<Option<Running>>,
}

impl System {
    /// Serves what a storage has, and encrypts its Secrets with a key.
    ///
    /// Errors: the storage's.
    pub(super) async fn start(storage: Arc<dyn Storage>, key: StateKey) -> Result<Self, OwnStartError> {
        let kinds = BuiltIn::Only(KINDS.map(str::to_owned).to_vec());
        let sealed = Sealed::new(storage, key);
        sealed.renew().await.map_err(OwnStartError::Renew)?;
        let running = Server::new().built_in(kinds).storage(Arc::new(sealed)).start();
        let running = Box::pin(running).await?;
        let this = Self { server: running.service(), running: Mutex::new(Some(running)) };
        this.make_namespace().await.map_err(OwnStartError::Namespace)?;
        Ok(this)
    }

    async fn make_namespace(&self) -> Result<(), Box<Status>> {
        let Some(kind) = self.registry().resource("", "v1", "namespaces") else { return Ok(()) };
        let namespace = json!({"metadata": {"name": OWN_NAMESPACE}});
        match self.registry().create(&kind, "", namespace, &WriteOptions::default()).await {
            Err(status) if status.reason != Reason::AlreadyExists => Err(Box::new(status)),
            _ => Ok(()),
        }
    }

    /// Its objects, for calls in this process.
    pub fn registry(&self) -> &Registry {
        self.server.registry()
    }

    /// Says whether it serves a resource in its namespace.
    pub fn serves(&self, gvr: &Gvr) -> bool {
        self.registry().resource(&gvr.group, &gvr.version, &gvr.resource).is_some()
    }

    pub(super) fn server(&self) -> &ApiServer {
        &self.server
    }

    pub(super) async fn end(&self) {
        let running = self.running.lock().take();
        if let Some(running) = running {
            running.end().await;
        }
    }
}
