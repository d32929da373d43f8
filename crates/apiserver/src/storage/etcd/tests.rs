use std::sync::{Arc, LazyLock};

use futures::StreamExt;
use rustls::RootCertStore;
use testbed::{EtcdServer, Relay, eventually};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::*;
use crate::storage::{
    contract::Backend,
    tests::{keys, make},
};

const SOON: Duration = Duration::from_secs(30);

/// One for all tests of the contract. It ends with the process.
static SERVER: LazyLock<(EtcdServer, Arc<Mutex<()>>)> = LazyLock::new(|| (EtcdServer::start(), Arc::default()));

fn options(address: &str, prefix: &str) -> EtcdOptions {
    let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let member = format!("http://{address}").parse().unwrap();
    EtcdOptions { prefix: prefix.to_owned(), ..EtcdOptions::new(vec![member], tls) }
}

async fn open(server: &EtcdServer) -> Etcd {
    Etcd::open(options(&server.address(), PREFIX), Bounds::default()).await.unwrap()
}

async fn start() -> EtcdServer {
    tokio::task::spawn_blocking(EtcdServer::start).await.unwrap()
}

/// A test's storages are prefixes with its name before theirs. Revisions are the whole etcd's: one test at a time has it.
struct Prefixes {
    name: String,
    _alone: OwnedMutexGuard<()>,
}

impl Prefixes {
    fn new() -> Self {
        Self { name: uuid::Uuid::new_v4().to_string(), _alone: Arc::clone(&SERVER.1).blocking_lock_owned() }
    }
}

impl Backend for Prefixes {
    fn open<'a>(&'a self, name: &'a str, bounds: Bounds) -> BoxFuture<'a, Arc<dyn Storage>> {
        let options = options(&SERVER.0.address(), &format!("/{}/{name}", self.name));
        Box::pin(async move { Arc::new(Etcd::open(options, bounds).await.unwrap()) as Arc<dyn Storage> })
    }

    fn outlives_its_process(&self) -> bool {
        true
    }

    /// A watch that begins in the past is told of it after 100 ms.
    fn histories(&self) -> u32 {
        8
    }
}

mod contract {
    use super::*;

    crate::storage_contract!(Prefixes::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_is_seen_and_told() {
    let server = start().await;
    let (one, other) = (open(&server).await, open(&server).await);
    let revision = make(&one, "pods/default/a").await.unwrap();
    assert_eq!(other.get("pods/default/a").await.unwrap().0.unwrap().revision, revision);
    assert_eq!(other.revision().await.unwrap(), revision);
    let mut watch = one.watch("pods/", revision).await.unwrap();
    let next = other.put("pods/default/a", "y".into(), When::At(revision)).await.unwrap();
    let unmet = one.put("pods/default/a", "z".into(), When::At(revision)).await;
    assert!(matches!(unmet, Err(StorageError::Unmet(Some(there))) if there.revision == next && there.value == "y"));
    server.ctl(&["put", "/registry/pods/default/b", "by hand"]);
    assert_eq!(keys(&other).await, ["pods/default/a", "pods/default/b"]);
    // A transaction with several changes has one revision.
    server.ctl(&["del", "--prefix", "/registry/pods/"]);
    assert!(keys(&one).await.is_empty());
    let mut told = Vec::new();
    while told.len() < 4 {
        if let Some(Ok(WatchItem::Change(change))) = watch.next().await {
            let is_there = change.after.is_some();
            told.push((change.revision - revision, change.key().to_owned(), is_there));
        }
    }
    let expected = [(1, "a", true), (2, "b", true), (3, "a", false), (3, "b", false)];
    assert_eq!(told, expected.map(|(at, name, is_there)| (at, format!("pods/default/{name}"), is_there)));
    // What is none of its keys raises the revision, which reads are at.
    server.ctl(&["put", "/elsewhere", "x"]);
    assert_eq!(one.revision().await.unwrap(), revision + 4);
    assert_eq!(one.range(Range::default()).await.unwrap().revision, revision + 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_changes_nothing_and_watches_go_on_after_it() {
    let mut server = start().await;
    let storage = open(&server).await;
    let first = make(&storage, "a").await.unwrap();
    let mut watch = storage.watch("", first).await.unwrap();
    server.kill();
    // A connection that is lost with the request under way may have brought it there; one that is not made has not.
    let refused = eventually(SOON, async || match make(&storage, "b").await {
        Err(StorageError::Unknown(why)) => Err(why),
        refused => Ok::<_, String>(refused),
    });
    let refused = refused.await;
    assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
    assert!(matches!(storage.ready().await, Err(StorageError::Unavailable(_))));
    assert!(matches!(storage.get("a").await, Err(StorageError::Unavailable(_))));
    server.restart();
    eventually(SOON, async || storage.ready().await).await;
    let second = make(&storage, "c").await.unwrap();
    assert_eq!(second, first + 1);
    assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.revision == second));
    assert_eq!(keys(&storage).await, ["a", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_is_not_known() {
    let mut server = start().await;
    let storage = Arc::new(open(&server).await);
    make(&*storage, "a").await.unwrap();
    server.pause();
    let writing = Arc::clone(&storage);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { make(&*writing, "b").await });
    // The kernel has taken the request, and nobody answers it any more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.kill();
    let lost = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(lost, Err(StorageError::Unknown(_))), "{lost:?}");
    server.restart();
    eventually(SOON, async || storage.ready().await).await;
    // Whatever became of it, it is found out by a read.
    let there = storage.get("b").await.unwrap().0;
    let again = make(&*storage, "b").await;
    assert_eq!(again.is_ok(), there.is_none(), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_snapshot_forgets_every_revision_of_before() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot");
    let mut server = start().await;
    let storage = open(&server).await;
    let saved = make(&storage, "a").await.unwrap();
    server.snapshot(&file);
    let lost = make(&storage, "b").await.unwrap();
    let mut watch = storage.watch("", lost).await.unwrap();
    server.restore(&file, &[]);
    let ended = watch.next().await;
    assert!(matches!(ended, Some(Err(StorageError::Compacted { .. }))), "{ended:?}");
    assert_eq!((keys(&storage).await, storage.revision().await.unwrap()), (vec!["a".to_owned()], saved));
    for after in 0..saved {
        assert!(matches!(storage.watch("", after).await.err(), Some(StorageError::Compacted { .. })), "{after}");
    }
    assert!(matches!(storage.watch("", lost).await.err(), Some(StorageError::Future { .. })));
    // The revision is given out again, for another change, before the server is back.
    assert_eq!(make(&storage, "c").await.unwrap(), lost);
    let mut watch = storage.watch("", lost).await.unwrap();
    server.restore(&file, &[]);
    server.ctl(&["put", "/registry/d", "x"]);
    server.ctl(&["put", "/registry/e", "x"]);
    let ended = watch.next().await;
    assert!(matches!(ended, Some(Err(StorageError::Compacted { .. }))), "{ended:?}");
    assert_eq!(keys(&storage).await, ["a", "d", "e"]);
    storage.close().await;
    // As etcd's documentation says to restore: no server can go on from a revision of before, also one that was not there.
    server.restore(&file, &["--bump-revision=1000000000", "--mark-compacted"]);
    let storage = open(&server).await;
    assert!(storage.revision().await.unwrap() > 1_000_000_000);
    for after in [saved, lost, lost + 1] {
        assert!(matches!(storage.watch("", after).await.err(), Some(StorageError::Compacted { .. })), "{after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_missed_a_compaction_reads_anew() {
    let server = start().await;
    let relay = Relay::to(&server.address()).await;
    let storage = Etcd::open(options(&relay.addr().to_string(), PREFIX), Bounds::default()).await.unwrap();
    let first = make(&storage, "a").await.unwrap();
    let mut watch = storage.watch("", first).await.unwrap();
    relay.cut().await;
    for key in ["b", "c", "d"] {
        server.ctl(&["put", &format!("/registry/{key}"), "x"]);
    }
    server.ctl(&["del", "/registry/c"]);
    server.ctl(&["compact", &(first + 4).to_string()]);
    relay.restore().await;
    let ended = watch.next().await;
    assert!(matches!(ended, Some(Err(StorageError::Compacted { .. }))), "{ended:?}");
    assert_eq!(keys(&storage).await, ["a", "b", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_revisions_are_compacted_by_one_of_all_servers() {
    let server = start().await;
    let options =
        EtcdOptions { compaction_interval: Some(Duration::from_millis(300)), ..options(&server.address(), PREFIX) };
    let one = Etcd::open(options.clone(), Bounds::default()).await.unwrap();
    let _other = Etcd::open(options, Bounds::default()).await.unwrap();
    let first = make(&one, "a").await.unwrap();
    eventually(SOON, async || {
        let refused = std::process::Command::new(testbed::binary("etcdctl"))
            .args([&format!("--endpoints={}", server.address()), "get", "/registry/a", "--rev", &first.to_string()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        if said.contains("has been compacted") { Ok(()) } else { Err(said) }
    })
    .await;
    // The watch of this server and its cache are not behind: it remembers what etcd has forgotten.
    assert!(one.watch("", first).await.is_ok());
    assert_eq!(keys(&one).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_member_is_called_where_one_cannot_be_connected_to() {
    let server = start().await;
    let away = testbed::Port::reserve();
    let mut options = options(&server.address(), PREFIX);
    options.members.insert(0, format!("http://{}", away.addr()).parse().unwrap());
    let storage = Etcd::open(options, Bounds::default()).await.unwrap();
    make(&storage, "a").await.unwrap();
    assert_eq!(keys(&storage).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_said_and_not_left_out() {
    let server = start().await;
    let storage = open(&server).await;
    make(&storage, "a").await.unwrap();
    server.ctl(&["put", "/registry/secrets/default/s", "k8s:enc:aescbc:v1:key1:x"]);
    let refused = storage.get("a").await;
    assert!(
        matches!(&refused, Err(StorageError::Unavailable(why)) if why.contains("/registry/secrets/default/s cannot be read")),
        "{refused:?}"
    );
    let error = Etcd::open(options(&server.address(), PREFIX), Bounds::default()).await.err().unwrap();
    assert!(error.to_string().contains("it is encrypted by a kube-apiserver"), "{error}");
    server.ctl(&["del", "/registry/secrets/default/s"]);
    let error = Etcd::open(options("127.0.0.1:1", PREFIX), Bounds::default()).await.err().unwrap();
    assert!(error.to_string().starts_with("etcd does not answer as it should: "), "{error}");
}
