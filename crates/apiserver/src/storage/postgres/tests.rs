use std::sync::{Arc, LazyLock};

use futures::{StreamExt, future::BoxFuture};
use rustls::RootCertStore;
use testbed::PostgresServer;

use super::*;
use crate::storage::{
    Storage, StorageError, WatchItem,
    contract::Backend,
    tests::{keys, make},
};

/// One for all tests, each in schemas of its own. It ends with the process.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

fn tls() -> ClientConfig {
    ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

async fn try_open(schema: &str, bounds: Bounds) -> Result<Postgres, PostgresError> {
    let schema = schema.to_owned();
    let url = tokio::task::spawn_blocking(move || SERVER.schema(&schema)).await.unwrap();
    Postgres::open(&url, tls(), bounds).await
}

async fn open(schema: &str) -> Postgres {
    try_open(schema, Bounds::default()).await.unwrap()
}

fn sql(schema: &str, statements: &str) -> String {
    SERVER.sql(&format!("SET search_path = {schema}; {statements}"))
}

/// A test's storages are schemas with its name before theirs.
struct Schemas(String);

impl Schemas {
    fn new() -> Self {
        Self(format!("s{}", uuid::Uuid::new_v4().simple()))
    }
}

impl Backend for Schemas {
    fn open<'a>(&'a self, name: &'a str, bounds: Bounds) -> BoxFuture<'a, Arc<dyn Storage>> {
        let schema = format!("{}_{}", self.0, name.replace('-', "_"));
        Box::pin(async move { Arc::new(try_open(&schema, bounds).await.unwrap()) as Arc<dyn Storage> })
    }

    fn outlives_its_process(&self) -> bool {
        true
    }
}

mod contract {
    use super::*;

    crate::storage_contract!(Schemas::new());
}

/// Ends every connection of the schema's server, as an administrator or a network does.
fn cut(schema: &str) {
    let filter = format!(
        "query NOT LIKE '%pg_terminate_backend%' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = '{schema}.kubefold_head'::regclass::oid)"
    );
    SERVER.sql(&format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {filter}"));
}

#[tokio::test]
async fn a_connection_that_is_lost_is_made_again_and_nothing_is_lost_or_twice() {
    let storage = open("lost").await;
    let first = make(&storage, "a").await.unwrap();
    for round in 0..5 {
        cut("lost");
        // The first to notice is told that nothing was changed, or that the outcome is not known.
        let key = format!("b/{round}");
        let mut made = make(&storage, &key).await;
        while let Err(StorageError::Unavailable(_) | StorageError::Unknown(_)) = made {
            made = make(&storage, &key).await;
        }
        assert!(matches!(made, Ok(_) | Err(StorageError::Unmet(Some(_)))), "{made:?}");
        storage.ready().await.unwrap();
        assert_eq!(storage.revision().await.unwrap(), first + 1 + round);
    }
    let before = keys(&storage).await;
    storage.close().await;
    assert_eq!(keys(&open("lost").await).await, before);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_found_out() {
    let storage = open("doubt").await;
    make(&storage, "a").await.unwrap();
    // The deferred trigger ends its own session within the commit, which is not stored.
    let trigger = "
        CREATE FUNCTION doubt.cut() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON doubt.kubefold_changes DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW WHEN (NEW.key = 'b') EXECUTE FUNCTION doubt.cut()";
    sql("doubt", trigger);
    let made = make(&storage, "b").await;
    assert!(matches!(made, Err(StorageError::Unknown(_))), "{made:?}");
    assert_eq!(keys(&storage).await, ["a"]);
    let ready = storage.ready().await;
    assert!(ready.is_ok(), "{ready:?}");
    // This one is stored, as if only the answer to the commit had been lost: it is taken in, and a watch tells it.
    let made = make(&storage, "b").await;
    assert!(matches!(made, Err(StorageError::Unknown(_))), "{made:?}");
    let stored = "INSERT INTO kubefold_changes VALUES (3, 'b', 'x'); UPDATE kubefold_head SET revision = 3";
    sql("doubt", &format!("DROP TRIGGER cut ON kubefold_changes; {stored}"));
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
    assert!(matches!(refused, PostgresError::InUse), "{refused}");
    // The first loses its lock, and another server takes the database before it notices.
    cut("second");
    let second = open("second").await;
    make(&second, "b").await.unwrap();
    let late = make(&first, "c").await;
    assert!(matches!(late, Err(StorageError::Unavailable(_))), "{late:?}");
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
    let storage = open("restored").await;
    let newest = make(&storage, "a").await.unwrap();
    storage.close().await;
    // As a dump that is loaded: the same rows in a new table.
    sql(
        "restored",
        "CREATE TABLE copy (LIKE kubefold_head INCLUDING ALL); INSERT INTO copy TABLE kubefold_head; DROP TABLE kubefold_head; ALTER TABLE copy RENAME TO kubefold_head",
    );
    let storage = open("restored").await;
    assert_eq!(keys(&storage).await, ["a"]);
    for after in 0..=newest {
        assert!(matches!(storage.watch("", after).await.err(), Some(StorageError::Compacted { .. })), "{after}");
    }
    let raised = storage.revision().await.unwrap();
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
    assert!(matches!(error, PostgresError::Newer { format: 9, known: 1 }), "{error}");
    sql("refused", "UPDATE kubefold_head SET format = 1; DELETE FROM kubefold_changes WHERE revision = 3");
    let error = try_open("refused", Bounds::default()).await.err().unwrap();
    assert_eq!(error.to_string(), "the database is damaged: the change of revision 3 is missing; restore a backup");
    let away = Postgres::open("host=/nowhere user=x connect_timeout=1", tls(), Bounds::default()).await.err().unwrap();
    assert!(matches!(away, PostgresError::Sql(_)), "{away}");
}
