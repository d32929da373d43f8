//! A server on some storage, which can end and start again.

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::Duration,
};

use kubefold_apiserver::{
    BuiltIn, Server,
    storage::{Bounds, Memory, Postgres, Sqlite, Storage},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Api, Kubectl, Port, PostgresServer, eventually};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// For a controller to notice something and do its work, also after a restart.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// One for all tests, each in a schema of its own. It ends with the process.
static DATABASE: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

/// Where objects are kept between two lives of a server.
pub(crate) enum Place {
    /// The storage itself lives on: a server in memory has no other second life.
    Memory(Arc<Memory>),
    File(TempDir),
    /// A connection string.
    Database(String),
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(crate) fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// A schema of the database.
    pub(crate) async fn database(schema: &'static str) -> Self {
        Self::Database(tokio::task::spawn_blocking(move || DATABASE.schema(schema)).await.unwrap())
    }

    /// The server's life on it: until `stop`, and until the storage is closed.
    async fn serve(&self, server: Server, address: &str, stop: CancellationToken, tasks: &mut JoinSet<()>) {
        match self {
            Self::Memory(memory) => live(server, memory.clone(), address, stop, tasks).await,
            Self::File(folder) => {
                let file = Sqlite::open(&folder.path().join("objects.db"), Bounds::default()).await.unwrap();
                live(server, Arc::new(file), address, stop, tasks).await;
            }
            Self::Database(url) => {
                let tls = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
                let database = Postgres::open(url, tls.with_no_client_auth(), Bounds::default()).await.unwrap();
                live(server, Arc::new(database), address, stop, tasks).await;
            }
        }
    }
}

async fn live(
    server: Server,
    storage: Arc<dyn Storage>,
    address: &str,
    stop: CancellationToken,
    tasks: &mut JoinSet<()>,
) {
    let bound = server.storage(Arc::clone(&storage)).bind(address).await.unwrap();
    tasks.spawn(async move {
        bound.serve_until(stop.cancelled_owned()).await;
        storage.close().await;
    });
}

/// A server at one address for all of its lives, and clients of it.
pub(crate) struct Served {
    pub(crate) api: Api,
    pub(crate) kubectl: Kubectl,
    pub(crate) kubeconfig: PathBuf,
    place: Place,
    built_in: BuiltIn,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    port: Port,
    _home: TempDir,
}

impl Served {
    pub(crate) async fn start(place: Place, built_in: BuiltIn) -> Self {
        let (port, home) = (Port::reserve(), tempfile::tempdir().unwrap());
        let server = format!("http://{}", port.addr());
        let kubeconfig = home.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let mut served = Self {
            api: Api::of_plain_server(&server),
            kubectl: Kubectl::new(&kubeconfig, home.path()),
            kubeconfig,
            place,
            built_in,
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
            port,
            _home: home,
        };
        served.begin().await;
        served
    }

    async fn begin(&mut self) {
        self.stop = CancellationToken::new();
        let server = Server::new().built_in(self.built_in.clone());
        self.place.serve(server, &self.port.addr(), self.stop.clone(), &mut self.tasks).await;
        eventually(SOON, async || self.api.try_request(http::Method::GET, "/readyz", "").await).await;
    }

    /// Ends the server and closes its storage; then opens both again, at the same address.
    pub(crate) async fn restart(&mut self) {
        self.end().await;
        self.begin().await;
    }

    pub(crate) async fn end(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }

    /// Waits until an object is as a test wants it.
    pub(crate) async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, async || {
            let answer = self.api.try_request(http::Method::GET, path, "").await?;
            if answer.status == 200 && holds(&answer.json()) { Ok(answer.json()) } else { Err(answer.to_string()) }
        })
        .await
    }

    /// Waits until an object is not there.
    pub(crate) async fn gone(&self, path: &str) {
        eventually(SOON, async || {
            let answer = self.api.try_request(http::Method::GET, path, "").await?;
            if answer.status == 404 { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
    }

    /// Merges a patch into an object.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Value {
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        self.api.send(request.body(patch.to_string().into()).unwrap()).await.unwrap().ok()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.api.request(http::Method::DELETE, path, "").await.ok();
    }
}
