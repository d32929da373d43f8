//! `kill -9` at any moment, under eight writers: what was acknowledged or told is there, nothing is half, and the history
//! has no gap and no repeat.
//!
//! The program starts itself as the writers' process, reads from it what was acknowledged, kills it, and looks into what
//! it left.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

mod power;

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write as _, stdout},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use fastrand::Rng;
use futures::StreamExt;
#[cfg(feature = "postgres")]
use kubefold_apiserver::storage::Postgres;
use kubefold_apiserver::storage::{Bounds, Change, Range, Record, Sqlite, Storage, WatchItem, When};
#[cfg(feature = "etcd")]
use kubefold_apiserver::storage::{Etcd, EtcdOptions};
#[cfg(feature = "mysql")]
use kubefold_apiserver::storage::{Mysql, MysqlTls};
use tokio::task::JoinSet;

const WRITERS: usize = 8;
/// Of one writer.
const KEYS: usize = 5;
/// If nobody kills them, the writers end by themselves.
const WRITES_MAX: usize = 5_000;
/// Changes that are remembered: all.
const LOG_WHOLE: usize = 1_000_000;
/// Kills of one file, if [`ROUNDS_ASKED`] does not say another number.
const ROUNDS: usize = 12;
/// Lines that the writers' process says, at most, before it is killed.
const LINES_MAX: usize = 900;
/// What says when processes are killed and the power goes. Another seed is another run: `scripts/soak storage` plays many.
const SEED: &str = "KUBEFOLD_DURABLE_SEED";
/// How often one file's process is killed.
const ROUNDS_ASKED: &str = "KUBEFOLD_DURABLE_ROUNDS";
/// In the writers' process: the file or the database, and how many changes are remembered.
const PLACE: &str = "KUBEFOLD_DURABLE_PLACE";
const LOG: &str = "KUBEFOLD_DURABLE_LOG";
/// In the writers' process: how long values are, if not of [`BYTES`].
const LONG: &str = "KUBEFOLD_DURABLE_BYTES";
/// What it says before it opens the storage.
const OPENING: &str = "opening\n";
/// Of a value, about.
const BYTES: usize = 1_000;

/// What a key has. `None`: it was removed.
type Value = Option<String>;

fn bounds(log_changes_max: usize) -> Bounds {
    Bounds { log_changes_max, log_bytes_max: 1 << 30, ..Bounds::default() }
}

/// Opens a file, a database of PostgreSQL by its connection string, one of MariaDB by its URL, or an etcd by its address.
async fn open(place: &str, log_changes_max: usize) -> Arc<dyn Storage> {
    let bounds = bounds(log_changes_max);
    #[cfg(feature = "postgres")]
    if place.starts_with("host=") {
        return Arc::new(Postgres::open(place, tls(), bounds).await.unwrap());
    }
    #[cfg(feature = "mysql")]
    if place.starts_with("mysql:") {
        return Arc::new(Mysql::open(place, MysqlTls::default(), bounds).await.unwrap());
    }
    #[cfg(feature = "etcd")]
    if place.starts_with("http:") {
        let options = EtcdOptions::new(vec![place.parse().unwrap()], tls());
        return Arc::new(Etcd::open(options, bounds).await.unwrap());
    }
    Arc::new(Sqlite::open(Path::new(place), bounds).await.unwrap())
}

#[cfg(any(feature = "postgres", feature = "etcd"))]
fn tls() -> rustls::ClientConfig {
    let builder = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
    builder.with_no_client_auth()
}

/// The process that is killed; as a test of its own it has nothing to do.
#[test]
fn writers_until_they_are_killed() {
    let (Ok(place), Ok(log)) = (env::var(PLACE), env::var(LOG)) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        stdout().lock().write_all(OPENING.as_bytes()).unwrap();
        let storage = open(&place, log.parse().unwrap()).await;
        let mut tasks = JoinSet::new();
        let start = storage.revision().await.unwrap();
        let watch = storage.watch("", start).await.unwrap();
        for writer in 0..WRITERS {
            tasks.spawn(write(Arc::clone(&storage), writer));
        }
        tasks.spawn(watch.for_each(|told| async {
            if let Ok(WatchItem::Change(change)) = told {
                say("told", change.revision, change.key(), change.after.as_ref().map(text));
            }
        }));
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    });
}

/// Makes, changes and removes the keys of one writer, and says so.
async fn write(storage: Arc<dyn Storage>, writer: usize) {
    let filler = "x".repeat(env::var(LONG).map_or(BYTES, |bytes| bytes.parse().unwrap()));
    // One that stays as the first process made it.
    let key = format!("{writer}/first");
    if storage.get(&key).await.unwrap().0.is_none() {
        let value = format!("{writer}-{filler}");
        let revision = storage.put(&key, Bytes::from(value.clone()), When::Absent).await.unwrap();
        say("acknowledged", revision, &key, Some(value));
    }
    for number in 0..WRITES_MAX {
        let key = format!("{writer}/{}", number % KEYS);
        let there = storage.get(&key).await.unwrap().0;
        let value = format!("{writer}-{number}-{filler}");
        let (revision, value) = match there {
            Some(record) if number.is_multiple_of(3) => (storage.delete(&key, record.revision).await.unwrap(), None),
            there => {
                let when = there.map_or(When::Absent, |record| When::At(record.revision));
                (storage.put(&key, Bytes::from(value.clone()), when).await.unwrap(), Some(value))
            }
        };
        say("acknowledged", revision, &key, value);
    }
}

/// One line, written at once.
fn say(what: &str, revision: u64, key: &str, value: Value) {
    let line = format!("{what} {revision} {key} {}\n", value.unwrap_or_default());
    stdout().lock().write_all(line.as_bytes()).unwrap();
}

fn text(record: &Record) -> String {
    String::from_utf8(record.value.to_vec()).unwrap()
}

/// What the writers' process said of one revision.
struct Said {
    revision: u64,
    key: String,
    value: Value,
}

fn number_of(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |number| number.parse().unwrap())
}

/// What a test makes its choices with: others for each seed, and others for each test.
fn rng(test: u64) -> Rng {
    Rng::with_seed(number_of(SEED, 0) as u64 * 1_000 + test)
}

/// After how many lines each process is killed. 0: while it opens the storage.
fn kills(rng: &mut Rng) -> Vec<usize> {
    let rounds = number_of(ROUNDS_ASKED, ROUNDS);
    // The first says much, so that there is something to lose; the third does not get far.
    let chosen = |round| match round {
        0 => LINES_MAX,
        2 => 0,
        _ => rng.usize(0..=LINES_MAX),
    };
    (0..rounds).map(chosen).collect()
}

/// Kills the process after it said so many lines, or, if 0, as soon as it opens the storage. Answers all that it said whole.
fn killed_after(mut child: Child, lines: usize) -> Vec<Said> {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let (mut said, mut line) = (Vec::new(), String::new());
    loop {
        line.clear();
        output.read_line(&mut line).unwrap();
        let Some(whole) = line.strip_suffix('\n') else { break };
        let so_far = said.len();
        said.extend(said_in(whole));
        if said.len() == lines && (said.len() > so_far || line.ends_with(OPENING)) {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(said.len() >= lines, "the writers ended by themselves: {status}, after {} lines", said.len());
    said
}

fn said_in(line: &str) -> Option<Said> {
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let ["acknowledged" | "told", revision, key, rest @ ..] = &words[..] else { return None };
    let value = rest.first().map(|value| (*value).to_owned());
    Some(Said { revision: revision.parse().ok()?, key: (*key).to_owned(), value })
}

fn writers(place: &str, log_changes_max: usize) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["writers_until_they_are_killed", "--exact", "--nocapture"]);
    command.env(PLACE, place).env(LOG, log_changes_max.to_string());
    command.stdout(Stdio::piped());
    command
}

/// All changes that are remembered, checked: each follows the one before, and what they leave is what is there.
async fn history(storage: &dyn Storage, oldest: u64) -> Vec<Change> {
    let newest = storage.revision().await.unwrap();
    let at = |at| Range { at, ..Range::default() };
    let records = storage.range(at(oldest)).await.unwrap().records;
    let mut state: BTreeMap<String, Record> =
        records.into_iter().map(|record| (record.key.to_string(), record)).collect();
    let mut watch = storage.watch("", oldest).await.unwrap();
    let mut changes = Vec::new();
    for revision in oldest + 1..=newest {
        let Some(Ok(WatchItem::Change(change))) = watch.next().await else { panic!("no change {revision}") };
        assert_eq!((change.revision, &change.before), (revision, &state.remove(change.key())));
        state.extend(change.after.iter().map(|record| (record.key.to_string(), record.clone())));
        changes.push(change);
    }
    let now = storage.range(at(0)).await.unwrap().records;
    assert!(now.iter().eq(state.values()));
    assert!(now.iter().all(|record| record.value.len() > BYTES && record.value.ends_with(b"x")));
    changes
}

#[tokio::test]
async fn what_was_acknowledged_or_told_survives_kills_with_its_history() {
    let directory = tempfile::tempdir().unwrap();
    check_history(directory.path().join("objects.db").to_str().unwrap()).await;
}

/// The same where old changes are removed all the time.
#[tokio::test]
async fn what_was_acknowledged_survives_kills_while_history_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    check_forgetting(directory.path().join("objects.db").to_str().unwrap()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn both_hold_of_postgresql() {
    let server = testbed::PostgresServer::start();
    check_history(&server.schema("whole")).await;
    check_forgetting(&server.schema("forgetting")).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn both_hold_of_mariadb() {
    let server = testbed::MariadbServer::start();
    let (whole, forgetting) = (server.url("whole"), server.url("forgetting"));
    check_history(&whole).await;
    check_forgetting(&forgetting).await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn both_hold_of_etcd() {
    let etcd = || tokio::task::spawn_blocking(testbed::EtcdServer::start);
    let (whole, forgetting) = tokio::join!(etcd(), etcd());
    check_history(&format!("http://{}", whole.as_ref().unwrap().address())).await;
    check_forgetting(&format!("http://{}", forgetting.as_ref().unwrap().address())).await;
}

async fn check_history(place: &str) {
    let mut all = BTreeMap::new();
    for (round, lines) in kills(&mut rng(1)).into_iter().enumerate() {
        let said = killed_after(writers(place, LOG_WHOLE).spawn().unwrap(), lines);
        let storage = open(place, LOG_WHOLE).await;
        let changes = history(&*storage, 1).await;
        let now: BTreeMap<u64, (String, Value)> =
            changes.iter().map(|one| (one.revision, (one.key().to_owned(), one.after.as_ref().map(text)))).collect();
        // What an earlier process left is as it was, and what this one said is there.
        for (revision, change) in &all {
            assert_eq!(now.get(revision), Some(change));
        }
        for Said { revision, key, value } in said {
            assert_eq!(now.get(&revision), Some(&(key, value)), "revision {revision} of round {round}");
        }
        all = now;
        storage.close().await;
    }
    assert!(all.len() > 1000, "{}", all.len());
}

async fn check_forgetting(place: &str) {
    const LOG_MAX: usize = 50;
    let (mut acknowledged, mut newest) = (BTreeMap::<String, (u64, Value)>::new(), 1);
    for lines in kills(&mut rng(2)) {
        for Said { revision, key, value } in killed_after(writers(place, LOG_MAX).spawn().unwrap(), lines) {
            newest = newest.max(revision);
            if acknowledged.get(&key).is_none_or(|(before, _)| *before < revision) {
                acknowledged.insert(key, (revision, value));
            }
        }
        let storage = open(place, LOG_MAX).await;
        let found = storage.revision().await.unwrap();
        // Each writer had at most one change that nobody told it of.
        assert!((newest..=newest + WRITERS as u64).contains(&found), "{newest} {found}");
        let changes = history(&*storage, found - LOG_MAX as u64).await;
        for (key, (revision, value)) in &acknowledged {
            let there = storage.get(key).await.unwrap().0;
            let later = changes.iter().any(|change| change.key() == key && change.revision > *revision);
            assert!(later || there.as_ref().map(text) == *value, "{key} at {revision}: {there:?}");
        }
        // What is read is told, too. A change that no writer heard of may be forgotten before the next kill.
        for change in changes {
            acknowledged.insert(change.key().to_owned(), (change.revision, change.after.as_ref().map(text)));
        }
        storage.close().await;
    }
}
