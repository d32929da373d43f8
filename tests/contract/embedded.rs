//! The embedded server on each storage, with the same objects as a kube-apiserver.

use std::{any::Any, collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use kubefold_apiserver::{
    definitions::Definitions,
    endpoint::Endpoint,
    faults::Faults,
    registry::{Env, Registry},
    serve::{ApiServer, Settings, built_in},
    storage::{Bounds, Etcd, EtcdOptions, Memory, Mysql, MysqlTls, Postgres, Sqlite, Storage},
};
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::target::Target;
use testbed::{Api, EtcdServer, MariadbServer, PostgresServer, eventually};

const SOON: Duration = Duration::from_secs(20);
const TOKEN: &str = "contract";

/// A running server. Dropping it ends it.
pub(crate) struct Embedded {
    pub(crate) target: Target,
    _endpoint: Endpoint,
    _below: Box<dyn Any>,
    stop: CancellationToken,
}

impl Embedded {
    /// A server on each storage.
    pub(crate) async fn on_each_storage(member: &Target) -> Vec<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = Sqlite::open(&folder.path().join("objects.db"), Bounds::default()).await.unwrap();
        let (server, url) = tokio::task::spawn_blocking(|| {
            let server = PostgresServer::start();
            let url = server.schema("contract");
            (server, url)
        })
        .await
        .unwrap();
        let tls = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
        let tls = tls.with_no_client_auth();
        let database = Postgres::open(&url, tls.clone(), Bounds::default()).await.unwrap();
        let below = tokio::task::spawn_blocking(EtcdServer::start).await.unwrap();
        let options = EtcdOptions::new(vec![format!("http://{}", below.address()).parse().unwrap()], tls);
        let etcd = Etcd::open(options, Bounds::default()).await.unwrap();
        let (mariadb, url) = tokio::task::spawn_blocking(|| {
            let server = MariadbServer::start();
            let url = server.url("contract");
            (server, url)
        })
        .await
        .unwrap();
        let mysql = Mysql::open(&url, MysqlTls::default(), Bounds::default()).await.unwrap();
        let (memory, file, database, mysql, etcd) = tokio::join!(
            Self::like(member, "in memory", Arc::new(Memory::default()), Box::new(())),
            Self::like(member, "on SQLite", Arc::new(file), Box::new(folder)),
            Self::like(member, "on PostgreSQL", Arc::new(database), Box::new(server)),
            Self::like(member, "on MariaDB", Arc::new(mysql), Box::new(mariadb)),
            Self::like(member, "on etcd", Arc::new(etcd), Box::new(below)),
        );
        vec![memory, file, database, mysql, etcd]
    }

    /// A server with all that this member holds, of kinds that it serves, to the byte. `below` is what its storage needs.
    async fn like(member: &Target, place: &str, storage: Arc<dyn Storage>, below: Box<dyn Any>) -> Self {
        let registry = built_in(storage, Env::default());
        let stop = CancellationToken::new();
        let mut definitions = Definitions::new(registry.clone()).unwrap();
        copy(member, &registry, "apiextensions.k8s.io").await;
        let until = stop.clone();
        TaskTracker::new().spawn(async move { definitions.run(&until).await.ok() });
        eventually(SOON, async || {
            let served = registry.resource("e2e.kubefold.io", "v1", "planets").is_some();
            let served = served && registry.resource("e2e.kubefold.io", "v1", "gadgets").is_some();
            served.then_some(()).ok_or("not served yet")
        })
        .await;
        copy(member, &registry, "").await;
        let server = ApiServer::new(registry, Settings::new("v1.36.3"));
        let local = ([127, 0, 0, 1], 0).into();
        let endpoint = Endpoint::start(local, TOKEN.into(), Arc::new(server), Faults::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let authority = STANDARD.encode(endpoint.certificate());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: x, cluster: {{server: \"https://{}\", \
             certificate-authority-data: {authority}}}}}]\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
             users: [{{name: x, user: {{token: {TOKEN}}}}}]\n",
            endpoint.address()
        );
        std::fs::write(&file, text).unwrap();
        let api = Api::from_kubeconfig(&file, None).await.with_token(TOKEN);
        let name = format!("the embedded server {place}");
        Self { target: Target::new(&name, api, "").await, _endpoint: endpoint, _below: below, stop }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Copies the objects of one group's kinds, or of all others.
async fn copy(member: &Target, registry: &Registry, group: &str) {
    let kinds: Vec<_> = registry.catalog().kinds().to_vec();
    let mut copied = BTreeSet::new();
    for kind in kinds {
        let wanted = (kind.group == "apiextensions.k8s.io") == (group == "apiextensions.k8s.io");
        let lists = kind.verbs.iter().any(|verb| verb == "list");
        // Objects are stored once, whatever groups and versions they have: the first of each serves for all.
        let stored = (kind.stored_group().to_owned(), kind.plural.clone());
        if !wanted || !lists || kind.group != kind.stored_group() || !copied.insert(stored) {
            continue;
        }
        let prefix = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
        let list = member.api.get(&format!("{prefix}/{}/{}", kind.version, kind.plural)).await;
        let items: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
        registry
            .fill(&kind, items.into_iter())
            .await
            .unwrap_or_else(|status| panic!("{}: {}", kind.plural, status.message));
    }
}
