//! What a database does, whichever engine it is on.
#![allow(clippy::unwrap_used, reason = "tests: a failure is a failed test, in their helper functions too")]

use std::{
    sync::{Arc, LazyLock},
    thread,
};

use kubefold_sql::{
    Database, Durability, Migrations, OpenError, RemoteState, Server, SqlError, Value, mysql::MysqlTls, params,
};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use testbed::{MariadbServer, PostgresServer};

/// One of each for all tests, each test in a database of its own. It ends with the process.
static POSTGRES_SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static MARIADB_SERVER: LazyLock<MariadbServer> = LazyLock::new(|| {
    let server = MariadbServer::start();
    // What an administrator has set for others does not count.
    server.sql("SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; SET GLOBAL sql_mode = ''");
    server
});

const SQLITE: &str = "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT UNIQUE, data BLOB) STRICT";
const POSTGRES: &str = "CREATE TABLE things (id bigint PRIMARY KEY, name text COLLATE \"C\" UNIQUE, data bytea)";
const MYSQL: &str = "CREATE TABLE IF NOT EXISTS things
    (id BIGINT NOT NULL PRIMARY KEY, name VARBINARY(255) UNIQUE, data LONGBLOB) ENGINE = InnoDB";

/// What opens a database again and again.
trait Engine {
    fn open(&self, later: &[&str]) -> Result<Database, OpenError>;
}

struct File(TempDir);

impl Engine for File {
    fn open(&self, later: &[&str]) -> Result<Database, OpenError> {
        Database::open(&self.0.path().join("state.db"), &[&[SQLITE], later].concat())
    }
}

struct Remote(Arc<RemoteState>);

impl Engine for Remote {
    fn open(&self, later: &[&str]) -> Result<Database, OpenError> {
        let (postgres, mysql) = ([&[POSTGRES], later].concat(), [&[MYSQL], later].concat());
        Database::open_in(&self.0, "kubefold", Migrations { postgres: &postgres, mysql: &mysql })
    }
}

/// Runs a test on each engine.
fn on_each(name: &str, test: impl Fn(&dyn Engine)) {
    test(&File(tempfile::tempdir().unwrap()));
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    for server in [
        Server::postgres(&POSTGRES_SERVER.database(name, None), tls),
        Server::mysql(&MARIADB_SERVER.url(name), MysqlTls::default()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let state = RemoteState::open(server.unwrap(), &["kubefold"], folder.path().join("mark")).unwrap();
        test(&Remote(state));
    }
}

fn insert(database: &Database, id: i64) -> Result<(), SqlError> {
    let insert = move |sql: kubefold_sql::Sql<'_>| {
        sql.execute("INSERT INTO things (id, name) VALUES (?1, ?2)", params![id, &format!("thing-{id}")]).map(drop)
    };
    database.write(Durability::Synced, insert)
}

fn ids(database: &Database) -> Vec<i64> {
    database.read(|sql| sql.rows("SELECT id FROM things ORDER BY id", &[], |row| row.get(0))).unwrap()
}

#[test]
fn no_write_waits_for_a_read_aside_which_sees_one_moment() {
    on_each("aside", |engine| {
        let database = engine.open(&[]).unwrap();
        insert(&database, 1).unwrap();
        let seen =
            |sql: kubefold_sql::Sql<'_>| sql.rows("SELECT id FROM things ORDER BY id", &[], |row| row.get::<i64>(0));
        let both = database.read_aside(|sql| {
            let before = seen(sql)?;
            // On this thread: it would wait for ever for a read that holds up writes.
            insert(&database, 2)?;
            assert_eq!(ids(&database), [1, 2]);
            // The other connection.
            assert_eq!(database.read_aside(seen)?, [1, 2]);
            Ok((before, seen(sql)?))
        });
        assert_eq!(both.unwrap(), (vec![1], vec![1]));
        let refused = database.read_aside(|sql| sql.execute("INSERT INTO things (id) VALUES (3)", &[]));
        assert!(refused.unwrap_err().to_string().to_lowercase().contains("read"), "it writes nothing");
        assert_eq!(database.read_aside(seen).unwrap(), [1, 2], "a connection on which a read failed goes on");
    });
}

#[test]
fn reads_aside_wait_for_one_another_and_not_without_bound() {
    let database = File(tempfile::tempdir().unwrap());
    let database = database.open(&[]).unwrap();
    let one = |sql: kubefold_sql::Sql<'_>| sql.row("SELECT 1", &[], |row| row.get::<i64>(0));
    thread::scope(|scope| {
        let readers = database.read_aside(|_| {
            database.read_aside(|_| {
                // Both connections are taken: 32 wait, and one of 33 is refused at once.
                let readers: Vec<_> = (0..33).map(|_| scope.spawn(|| database.read_aside(one))).collect();
                while !readers.iter().any(thread::ScopedJoinHandle::is_finished) {
                    thread::yield_now();
                }
                Ok(readers)
            })
        });
        let outcomes: Vec<_> = readers.unwrap().into_iter().map(|reader| reader.join().unwrap()).collect();
        let (read, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((read.len(), refused.len()), (32, 1));
        assert!(refused[0].as_ref().unwrap_err().to_string().contains("32 searches wait"), "{refused:?}");
    });
}

#[test]
fn values_come_back_as_they_were_written() {
    on_each("values", |engine| {
        let database = engine.open(&[]).unwrap();
        let put = "INSERT INTO things (id, name, data) VALUES (?1, ?2, ?3)
            ON CONFLICT (id) DO UPDATE SET name = excluded.name, data = excluded.data";
        let written = database.write(Durability::Synced, move |sql| {
            sql.execute(put, params![1, "is it ?1 or '$1'", &[0_u8, 255][..]])?;
            sql.execute(put, params![2, "", Value::Null])?;
            sql.execute(put, &[Value::Integer(i64::MAX), Value::Null, Value::Blob(&[])])?;
            sql.execute(put, params![2, Some("two"), None::<&[u8]>])
        });
        assert_eq!(written.unwrap(), 1);
        let all = database.read(|sql| {
            sql.rows(
                "SELECT id, name, data, id = ?1 FROM things WHERE name <> '?1' OR id > ?1 ORDER BY id",
                params![2],
                |row| {
                    Ok((
                        row.get::<i64>(0)?,
                        row.get::<Option<String>>(1)?,
                        row.get::<Option<Vec<u8>>>(2)?,
                        row.get::<bool>(3)?,
                    ))
                },
            )
        });
        let expected = [
            (1, Some("is it ?1 or '$1'".to_owned()), Some(vec![0, 255]), false),
            (2, Some("two".to_owned()), None, true),
            (i64::MAX, None, Some(Vec::new()), false),
        ];
        assert_eq!(all.unwrap(), expected);
        let none =
            database.read(|sql| sql.row("SELECT name FROM things WHERE id = 7", &[], |row| row.get::<String>(0)));
        assert_eq!(none.unwrap(), None);
        let null =
            database.read(|sql| sql.row("SELECT name FROM things WHERE id > 2", &[], |row| row.get::<String>(0)));
        null.unwrap_err();
    });
}

#[test]
fn text_is_in_the_order_of_its_bytes() {
    on_each("order", |engine| {
        let database = engine.open(&[]).unwrap();
        let names = ["b", "B", "a/b", "a-b", "\u{e4}"];
        let put = move |sql: kubefold_sql::Sql<'_>| {
            let rows = names.iter().zip(1..).map(|(name, id)| [Value::Integer(id), Value::Text(name)]);
            sql.prepare("INSERT INTO things (id, name) VALUES (?1, ?2)")?.execute_all(rows)
        };
        database.write(Durability::Written, put).unwrap();
        let found: Vec<String> = database
            .read(|sql| {
                sql.rows("SELECT name FROM things WHERE name > ?1 ORDER BY name", params!["A"], |row| row.get(0))
            })
            .unwrap();
        assert_eq!(found, ["B", "a-b", "a/b", "b", "\u{e4}"]);
    });
}

#[test]
fn a_write_that_fails_leaves_nothing_and_those_of_its_commit_stand() {
    on_each("failed", |engine| {
        let database = engine.open(&[]).unwrap();
        insert(&database, 1).unwrap();
        let failures: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&failures);
        database.write_later(
            |sql| sql.execute("INSERT INTO things (id) VALUES (9)", &[]).map(drop),
            move |error| noted.lock().push(error.to_string()),
        );
        let failed = database.write(Durability::Synced, |sql| {
            sql.execute("INSERT INTO things (id) VALUES (2)", &[])?;
            sql.execute("INSERT INTO things (id) VALUES (1)", &[])
        });
        let error = failed.unwrap_err();
        assert!(!error.is_outcome_unknown() && !error.is_full() && !error.is_damaged(), "{error}");
        database.write(Durability::Synced, |sql| sql.batch("NONSENSE")).unwrap_err();
        insert(&database, 3).unwrap();
        assert_eq!((ids(&database), failures.lock().len()), (vec![1, 3, 9], 0));
    });
}

#[test]
fn many_writers_at_once_are_all_stored() {
    on_each("writers", |engine| {
        let database = engine.open(&[]).unwrap();
        thread::scope(|scope| {
            for id in 0..64 {
                let database = database.clone();
                // Every eighth one fails: its number is there already, or will be.
                scope.spawn(move || insert(&database, id - id % 8 / 7).is_ok());
            }
        });
        let expected: Vec<i64> = (0..64).filter(|id| id % 8 != 7).collect();
        assert_eq!(ids(&database), expected);
    });
}

#[test]
fn what_nobody_waits_for_is_seen_by_readers_and_written_at_the_end() {
    on_each("later", |engine| {
        let database = engine.open(&[]).unwrap();
        let later = |id: i64| {
            database.write_later(
                move |sql| sql.execute("INSERT INTO things (id) VALUES (?1)", params![id]).map(drop),
                |error| panic!("{error}"),
            );
        };
        later(1);
        later(2);
        assert_eq!(ids(&database), [1, 2]);
        later(3);
        drop(database);
        assert_eq!(ids(&engine.open(&[]).unwrap()), [1, 2, 3]);
    });
}

#[test]
fn tables_are_brought_to_the_newest_format_and_newer_ones_are_refused() {
    on_each("formats", |engine| {
        insert(&engine.open(&[]).unwrap(), 1).unwrap();
        let second = "INSERT INTO things (id) VALUES (2)";
        for _ in 0..2 {
            assert_eq!(ids(&engine.open(&[second]).unwrap()), [1, 2]);
        }
        let newer = engine.open(&[]).unwrap_err();
        assert!(matches!(newer, OpenError::Newer { format: 2, known: 1, .. }), "{newer}");
        let broken = engine.open(&[second, "NONSENSE"]).unwrap_err();
        assert!(matches!(broken, OpenError::Sql { .. }), "{broken}");
        assert_eq!(ids(&engine.open(&[second]).unwrap()), [1, 2]);
    });
}
