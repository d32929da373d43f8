use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use testbed::MariadbServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use super::*;
use crate::storage::{
    Storage, StorageError, WatchItem,
    contract::Backend,
    tests::{keys, make},
};

/// One for all tests, each in databases of its own. It ends with the process.
static SERVER: LazyLock<MariadbServer> = LazyLock::new(MariadbServer::start_with_tls);

async fn try_open_url(url: &str, bounds: Bounds) -> Result<Mysql, MysqlError> {
    let target = Target::new(url, MysqlTls::default())?.waiting(Duration::from_secs(1));
    Mysql::open_by(Dialer::alone(target)?, bounds).await
}

async fn url(database: &str) -> String {
    let database = database.to_owned();
    tokio::task::spawn_blocking(move || SERVER.url(&database)).await.unwrap()
}

async fn try_open(database: &str, bounds: Bounds) -> Result<Mysql, MysqlError> {
    try_open_url(&url(database).await, bounds).await
}

async fn open(database: &str) -> Mysql {
    try_open(database, Bounds::default()).await.unwrap()
}

fn sql(database: &str, statements: &str) -> String {
    SERVER.sql(&format!("USE `{database}`; {statements}"))
}

/// A test's storages are databases with its name before theirs.
struct Databases(String);

impl Databases {
    fn new() -> Self {
        Self(format!("s{}", uuid::Uuid::new_v4().simple()))
    }
}

impl Backend for Databases {
    fn open<'a>(&'a self, name: &'a str, bounds: Bounds) -> BoxFuture<'a, Arc<dyn Storage>> {
        let database = format!("{}_{name}", self.0);
        Box::pin(async move { Arc::new(try_open(&database, bounds).await.unwrap()) as Arc<dyn Storage> })
    }

    fn outlives_its_process(&self) -> bool {
        true
    }
}

mod contract {
    use super::*;

    crate::storage_contract!(Databases::new());
}

/// Ends the connection of the database's server, as an administrator does.
fn cut(database: &str) {
    let holder = SERVER.sql(&format!("SELECT IS_USED_LOCK(CONCAT('kubefold/', SHA1('{database}')))"));
    SERVER.sql(&format!("KILL {holder}"));
}

#[tokio::test]
async fn a_connection_that_is_lost_is_made_again_and_nothing_is_lost_or_twice() {
    let storage = open("lost").await;
    let first = make(&storage, "a").await.unwrap();
    for round in 0..5 {
        cut("lost");
        // The first to notice is told that nothing was changed.
        let key = format!("b/{round}");
        let mut made = make(&storage, &key).await;
        while let Err(StorageError::Unavailable(_)) = made {
            made = make(&storage, &key).await;
        }
        assert_eq!(made.unwrap(), first + 1 + round);
        storage.ready().await.unwrap();
    }
    let before = keys(&storage).await;
    storage.close().await;
    assert_eq!(keys(&open("lost").await).await, before);
}

/// What becomes of a commit on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commit {
    Passes,
    /// Neither the server nor the client hears of it any more.
    IsLost,
    /// The server has done it, and thinks that its client is there.
    AnswerIsLost,
}

/// A socket before that of a server.
struct Relay {
    folder: tempfile::TempDir,
    commit: Arc<Mutex<Commit>>,
    _connections: JoinSet<()>,
}

impl Relay {
    fn before(server: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let commit = Arc::new(Mutex::new(Commit::Passes));
        let shared = Arc::clone(&commit);
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&server).await.unwrap();
                all.spawn(relay(client, server, Arc::clone(&shared)));
            }
        });
        Self { folder, commit, _connections: connections }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

async fn relay(mut client: UnixStream, mut server: UnixStream, commit: Arc<Mutex<Commit>>) {
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                let is_commit = asked[..count].windows(6).any(|part| part == b"COMMIT");
                let fate = if is_commit { *commit.lock() } else { Commit::Passes };
                if fate == Commit::IsLost {
                    return;
                }
                server.write_all(&asked[..count]).await.unwrap();
                if fate == Commit::AnswerIsLost {
                    let _done = server.read(&mut answered).await.unwrap();
                    drop(client);
                    // Until the server ends the connection.
                    while server.read(&mut answered).await.is_ok_and(|count| count > 0) {}
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_out() {
    let _made = url("doubt").await;
    let relay = Relay::before(SERVER.socket());
    let url = SERVER.url_through("doubt", &relay.socket());
    let storage = try_open_url(&url, Bounds::default()).await.unwrap();
    make(&storage, "a").await.unwrap();
    *relay.commit.lock() = Commit::IsLost;
    let made = make(&storage, "b").await;
    assert!(matches!(made, Err(StorageError::Unknown(_))), "{made:?}");
    assert_eq!(keys(&storage).await, ["a"]);
    *relay.commit.lock() = Commit::AnswerIsLost;
    let ready = storage.ready().await;
    assert!(ready.is_ok(), "{ready:?}");
    assert_eq!(storage.revision().await.unwrap(), 2);
    // This one is stored: it is taken in, and a watch tells it. The server still has the connection that is lost, with the lock.
    let made = make(&storage, "b").await;
    assert!(matches!(made, Err(StorageError::Unknown(_))), "{made:?}");
    *relay.commit.lock() = Commit::Passes;
    let mut watch = storage.watch("", 2).await.unwrap();
    let again = make(&storage, "b").await;
    assert!(matches!(&again, Err(StorageError::Unmet(Some(record))) if record.revision == 3), "{again:?}");
    assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.revision == 3));
    assert_eq!(make(&storage, "c").await.unwrap(), 4);
}

#[tokio::test]
async fn a_second_server_is_refused_and_one_that_was_superseded_stores_nothing() {
    let first = open("second").await;
    make(&first, "a").await.unwrap();
    let refused = try_open("second", Bounds::default()).await.err().unwrap();
    assert!(matches!(refused, MysqlError::InUse), "{refused}");
    // The first loses its lock, and another server takes the database before it notices.
    cut("second");
    let second = open("second").await;
    make(&second, "b").await.unwrap();
    for _ in 0..2 {
        let late = make(&first, "c").await;
        assert!(matches!(late, Err(StorageError::Unavailable(_))), "{late:?}");
    }
    second.close().await;
    let late = make(&first, "c").await;
    assert!(
        matches!(&late, Err(StorageError::Unavailable(why)) if why.contains("another process has served")),
        "{late:?}"
    );
    assert!(first.ready().await.is_err());
    assert_eq!(keys(&open("second").await).await, ["a", "b"]);
}

#[tokio::test]
async fn a_restored_database_forgets_every_revision_of_before() {
    const MADE: &str = "SELECT UNIX_TIMESTAMP(create_time) FROM information_schema.tables \
                        WHERE table_schema = 'restored' AND table_name = 'kubefold_head'";
    let storage = open("restored").await;
    let newest = make(&storage, "a").await.unwrap();
    storage.close().await;
    // As a dump that is loaded: the same rows in a new table. It is made at another time, in seconds.
    let before = SERVER.sql(MADE);
    while SERVER.sql(MADE) == before {
        sql(
            "restored",
            "CREATE TABLE copy LIKE kubefold_head; INSERT INTO copy SELECT * FROM kubefold_head; DROP TABLE kubefold_head; \
             RENAME TABLE copy TO kubefold_head",
        );
    }
    let storage = open("restored").await;
    assert_eq!(keys(&storage).await, ["a"]);
    for after in 0..=newest {
        assert!(matches!(storage.watch("", after).await.err(), Some(StorageError::Compacted { .. })), "{after}");
    }
    let raised = storage.revision().await.unwrap();
    assert!(raised > newest + 999_999_999);
    assert_eq!(make(&storage, "b").await.unwrap(), raised + 1);
    storage.close().await;
    let storage = open("restored").await;
    assert!(storage.watch("", raised).await.is_ok());
}

#[tokio::test]
async fn a_newer_format_and_damage_are_refused_in_one_sentence() {
    let storage = open("refused").await;
    for key in ["a", "b", "c"] {
        make(&storage, key).await.unwrap();
    }
    storage.close().await;
    sql("refused", "UPDATE kubefold_head SET format = 9");
    let error = try_open("refused", Bounds::default()).await.err().unwrap();
    assert!(matches!(error, MysqlError::Newer { format: 9, known: 1 }), "{error}");
    sql("refused", "UPDATE kubefold_head SET format = 1; DELETE FROM kubefold_changes WHERE revision = 3");
    let error = try_open("refused", Bounds::default()).await.err().unwrap();
    assert_eq!(error.to_string(), "the database is damaged: the change of revision 3 is missing; restore a backup");
}

#[tokio::test]
async fn what_a_server_refuses_is_told_in_one_sentence_without_the_password() {
    let told = async |url: &str, bounds: Bounds| {
        let error = try_open_url(url, bounds).await.err().unwrap().to_string();
        assert!(!error.contains("s3cret") && !error.contains('\n'), "{error}");
        error
    };
    let is = async |url: &str, part: &str| {
        let error = told(url, Bounds::default()).await;
        assert!(error.contains(part), "{url}: {error}");
    };
    let _made = url("plain").await;
    SERVER.sql("CREATE USER plain@localhost IDENTIFIED BY 's3cret'; GRANT ALL ON plain.* TO plain@localhost");
    let socket = SERVER.socket().display().to_string();
    let at = |user: &str, database: &str| format!("mysql://{user}@localhost/{database}?socket={socket}");
    is(&at("plain:s3cret2", "plain"), "the database refuses the user: Access denied for user 'plain'@'localhost'")
        .await;
    is(&at("plain:s3cret", "others"), "the database refuses the user: Access denied").await;
    is(&at("kubefold", "nowhere"), "there is no such database: Unknown database 'nowhere' (error 1049); make it").await;
    is("mysql://u:s3cret@127.0.0.1:1/d", "the database cannot be reached: Connection refused").await;
    is("mysql://u:s3cret@h/d?socket=/nowhere/socket", "the database cannot be reached: No such file").await;
    let large = Bounds { value_bytes_max: 64 << 20, ..Bounds::default() };
    let error = told(&at("plain:s3cret", "plain"), large).await;
    assert!(error.contains("takes packets of up to 16777216 bytes") && error.contains("max_allowed_packet"), "{error}");

    // As a replica, or a server that is about to be one.
    let storage = try_open_url(&at("plain:s3cret", "plain"), Bounds::default()).await.unwrap();
    make(&storage, "a").await.unwrap();
    SERVER.sql("SET GLOBAL read_only = 1");
    let refused = make(&storage, "b").await;
    assert!(matches!(&refused, Err(StorageError::Unavailable(why)) if why.contains("read-only")), "{refused:?}");
    assert!(storage.ready().await.is_err());
    assert_eq!(keys(&storage).await, ["a"]);
    storage.close().await;
    is(&at("plain:s3cret", "plain"), "the database takes no changes: ").await;
    SERVER.sql("SET GLOBAL read_only = 0");
    let storage = try_open_url(&at("plain:s3cret", "plain"), Bounds::default()).await.unwrap();
    make(&storage, "b").await.unwrap();
}

#[tokio::test]
async fn the_certificate_of_a_server_is_verified() {
    let with = async |url: &str, tls: &MysqlTls| {
        let opened = Mysql::open(url, tls.clone(), Bounds::default()).await;
        opened.map_err(|error| error.to_string())
    };
    let authority = CertificateDer::from_pem_file(SERVER.authority()).unwrap();
    let (known, unknown) = (MysqlTls { authorities: vec![authority], identity: None }, MysqlTls::default());
    let url = SERVER.tls_url("tls", "localhost", "s3cret");
    // Another test makes the server read-only for a moment, but not for those.
    SERVER.sql("GRANT READ_ONLY ADMIN ON *.* TO jane@'%'");
    let storage = with(&url, &known).await.unwrap();
    make(&storage, "a").await.unwrap();
    storage.close().await;
    let storage = with(&format!("{url}?ssl-mode=verify_identity"), &known).await.unwrap();
    assert_eq!(keys(&storage).await, ["a"]);
    storage.close().await;
    for (url, tls, part) in [
        (url.clone(), &unknown, "no TLS with the database"),
        (SERVER.tls_url("tls", "127.0.0.1", "s3cret"), &known, "not valid for name"),
        (SERVER.tls_url("tls", "localhost", "wrong"), &known, "Access denied for user 'jane'"),
        (format!("{url}?ssl-mode=DISABLED"), &known, "Access denied for user 'jane'"),
    ] {
        let error = with(&url, tls).await.err().unwrap();
        assert!(error.contains(part) && !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn what_a_commit_came_to_is_certain_only_where_the_server_undid_it() {
    use kubefold_sql::{Failure, FailureKind};

    use super::error::of_commit;

    let failure = |kind| Failure { kind, why: "why".to_owned() };
    assert!(matches!(StorageError::from(failure(FailureKind::Full)), StorageError::Full(_)));
    for kind in [FailureKind::Full, FailureKind::Away, FailureKind::Other] {
        assert!(matches!(of_commit(failure(kind)), StorageError::Unknown(_)), "{kind:?}");
    }
    for kind in [FailureKind::Undone, FailureKind::ReadOnly] {
        assert!(matches!(of_commit(failure(kind)), StorageError::Unavailable(_)), "{kind:?}");
    }
}

/// Its process is stopped: connections stay open, and nothing is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_hangs_holds_no_write_up_for_long_and_no_read_at_all() {
    let server = Arc::new(MariadbServer::start());
    let storage = try_open_url(&server.url("hangs"), Bounds::default()).await.unwrap();
    let first = make(&storage, "a").await.unwrap();
    let order = async |order: fn(&MariadbServer)| {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || order(&server)).await.unwrap();
    };
    order(MariadbServer::pause).await;
    let (refused, read) = tokio::join!(make(&storage, "b"), keys(&storage));
    assert!(
        matches!(&refused, Err(StorageError::Unavailable(why)) if why.contains("has not answered for 12 seconds")),
        "{refused:?}"
    );
    assert_eq!(read, ["a"]);
    order(MariadbServer::resume).await;
    storage.ready().await.unwrap();
    assert_eq!(make(&storage, "b").await.unwrap(), first + 1);
    storage.close().await;
    assert_eq!(keys(&try_open_url(&server.url("hangs"), Bounds::default()).await.unwrap()).await, ["a", "b"]);
}

/// `kill -9` of the database under writers, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kills_of_the_database() {
    let server = Arc::new(MariadbServer::start());
    let url = server.url("killed");
    let storage = Arc::new(try_open_url(&url, Bounds::default()).await.unwrap());
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut writers = JoinSet::new();
        for writer in 0..4 {
            let storage = Arc::clone(&storage);
            writers.spawn(async move {
                let mut done = Vec::new();
                for number in 0.. {
                    let key = format!("{round}/{writer}/{number}");
                    match make(&*storage, &key).await {
                        Ok(revision) => done.push((key, revision)),
                        Err(StorageError::Unavailable(_) | StorageError::Unknown(_)) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                done
            });
        }
        // Once something is stored in this round.
        let begin = storage.revision().await.unwrap();
        let mut watch = storage.watch("", begin).await.unwrap();
        while !matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.revision > begin + 40) {}
        let killed = Arc::clone(&server);
        tokio::task::spawn_blocking(move || killed.kill()).await.unwrap();
        acknowledged.extend(writers.join_all().await.into_iter().flatten());
        let refused = make(&*storage, "away").await;
        assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
        assert!(storage.ready().await.is_err());
        let restarted = Arc::clone(&server);
        tokio::task::spawn_blocking(move || restarted.restart()).await.unwrap();
        storage.ready().await.unwrap();
    }
    storage.close().await;
    let storage = try_open_url(&url, Bounds::default()).await.unwrap();
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    for (key, revision) in acknowledged {
        assert_eq!(storage.get(&key).await.unwrap().0.map(|record| record.revision), Some(revision), "{key}");
    }
    // Without a gap, and as the first start of the same data.
    let newest = storage.revision().await.unwrap();
    let mut watch = storage.watch("", 1).await.unwrap();
    for revision in 2..=newest {
        assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.revision == revision));
    }
}
