//! State in PostgreSQL: one process at a time, others that wait for it, and a server that comes and goes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};

use kubefold_sql::{
    Announcement, Candidate, Database, Durability, Postgres, PostgresError, SharedFiles, Sql, SqlError, params,
    postgres::LOOK_EVERY,
};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use testbed::PostgresServer;
use tokio::time::Instant;

/// One for all tests, each in a database of its own. It ends with the process.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

const TABLE: &str = "CREATE TABLE things (id bigint PRIMARY KEY)";

/// What a process has beside the database.
struct Process {
    name: &'static str,
    folder: TempDir,
}

impl Process {
    fn new(name: &'static str) -> Self {
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        Self { name, folder: tempfile::tempdir().unwrap() }
    }

    /// Through which the server is reached.
    fn link(&self) -> PathBuf {
        self.folder.path().join("link")
    }

    fn mark(&self) -> PathBuf {
        self.folder.path().join("mark")
    }

    fn try_open(&self, url: &str) -> Result<Arc<Postgres>, PostgresError> {
        let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        Postgres::open(url, tls, &["kubefold"], self.mark())
    }

    fn state(&self) -> Arc<Postgres> {
        if !self.link().exists() {
            SERVER.link(&self.link());
        }
        self.try_open(&SERVER.database(self.name, Some(&self.link()))).unwrap()
    }

    fn sql(&self, statements: &str) -> String {
        SERVER.sql_in(self.name, statements)
    }

    /// Ends the connections of a database.
    fn cut(&self) {
        SERVER.sql(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'", self.name));
    }
}

fn tables(state: &Arc<Postgres>) -> Database {
    Database::open_in(state, "kubefold", &[TABLE]).unwrap()
}

fn insert(database: &Database, id: i64) -> Result<(), SqlError> {
    let insert = move |sql: Sql<'_>| sql.execute("INSERT INTO things VALUES (?1)", params![id]).map(drop);
    database.write(Durability::Synced, insert)
}

fn ids(database: &Database) -> Vec<i64> {
    database.read(|sql| sql.rows("SELECT id FROM things ORDER BY id", &[], |row| row.get(0))).unwrap()
}

/// Waits until something holds, for a minute.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{what}");
}

#[test]
fn a_second_process_is_told_who_has_the_state() {
    let first = Process::new("held");
    let state = first.state();
    insert(&tables(&state), 1).unwrap();
    let second = Process::new("held");
    let refused = second.try_open(&SERVER.database("held", None)).unwrap_err().to_string();
    let process = format!("process {}, since 20", std::process::id());
    assert!(refused.starts_with("another kubefold (host ") && refused.contains(&process), "{refused}");
    drop(state);
    assert_eq!(ids(&tables(&second.state())), [1]);
}

#[test]
fn processes_of_one_state_know_where_the_others_are() {
    let says = |process: &Process| Announcement {
        id: format!("{}-{}", process.name, process.folder.path().display()),
        address: format!("{}.example:6443", process.folder.path().file_name().unwrap().to_str().unwrap()),
        version: "1".to_owned(),
    };
    let (first, second) = (Process::new("known"), Process::new("known"));
    let state = first.state();
    let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let mut candidate = Candidate::new(&SERVER.database("known", None), tls, &["kubefold"], second.mark()).unwrap();
    assert!(candidate.look().is_none());
    assert_eq!(candidate.waits().address, None, "it has not said so");
    state.announce(says(&first));
    candidate.announce(says(&second));
    for _ in 0..600 {
        assert!(candidate.look().is_none(), "the holder lives");
        if candidate.waits().address.is_some() && state.replicas().len() == 2 {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(candidate.waits().address, Some(says(&first).address));
    let epoch = candidate.waits().epoch;
    let mut known: Vec<_> = state.replicas().into_iter().map(|one| (one.address, one.is_holder)).collect();
    known.sort_by_key(|(_, is_holder)| *is_holder);
    assert_eq!(known, [(says(&second).address, false), (says(&first).address, true)]);
    drop(state);
    let mut taken = None;
    while taken.is_none() {
        taken = candidate.look();
        thread::sleep(LOOK_EVERY);
    }
    let taken = taken.unwrap();
    assert!(taken.has_announced() && epoch > 0);
    // Whoever ends is gone at once; whoever takes over says so.
    eventually("one replica, the holder", || {
        let known: Vec<_> = taken.replicas().into_iter().map(|one| (one.address, one.is_holder)).collect();
        known == [(says(&second).address, true)]
    });
    // Whoever dies is not counted for long.
    second.sql("UPDATE kubefold.replicas SET seen = now() - interval '20 seconds'");
    second.sql("INSERT INTO kubefold.replicas VALUES ('x', 'dead:1', 'h', 1, '1', 0, now() - interval '20 seconds')");
    eventually("it renews its row", || {
        second.sql("SELECT count(*) FROM kubefold.replicas WHERE seen > now() - interval '9 s'") == "1"
    });
    assert_eq!(taken.replicas().len(), 1);
}

/// Takes the state as a process that waits for it does.
fn taken(process: &Process) -> Arc<Postgres> {
    let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let url = SERVER.database(process.name, None);
    let mut candidate = Candidate::new(&url, tls, &["kubefold"], process.mark()).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if let Some(state) = candidate.look() {
            return state;
        }
        assert!(candidate.waits().holder.is_some() && candidate.waits().error.is_none(), "{:?}", candidate.waits());
        thread::sleep(LOOK_EVERY);
    }
    panic!("nobody gave the state away: {:?}", candidate.waits());
}

/// The holder cannot reach the server any more. What it had there stays.
fn partition(process: &Process) {
    fs::remove_file(process.link()).unwrap();
}

#[test]
fn a_holder_that_cannot_reach_the_server_acts_no_more_before_another_one_has_the_state() {
    let first = Process::new("lost");
    let (old, second) = (first.state(), Process::new("lost"));
    let before = tables(&old);
    insert(&before, 1).unwrap();
    assert!(old.check().is_ok() && old.figures().is_held);
    partition(&first);
    first.cut();
    let watched = Arc::clone(&old);
    // What it may do besides it may do for less time than the other one waits.
    let trusted = thread::spawn(move || {
        let began = Instant::now();
        while watched.check().is_ok() && began.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(5));
        }
        (Instant::now(), watched.check().unwrap_err())
    });
    let new = taken(&second);
    let now = Instant::now();
    let (until, why) = trusted.join().unwrap();
    assert!(until < now, "two processes act as the holder");
    assert!(why.is_away() && why.to_string().contains("cannot be reached"), "{why}");
    let after = tables(&new);
    insert(&after, 2).unwrap();
    assert!(insert(&before, 3).unwrap_err().is_away());
    // It sees the server again.
    SERVER.link(&first.link());
    eventually("it is told", || old.figures().is_lost);
    let refused = insert(&before, 4).unwrap_err();
    assert!(refused.is_lost() && !refused.is_outcome_unknown(), "{refused}");
    let why = "has the state in PostgreSQL since; this process writes nothing more";
    assert!(refused.to_string().contains(why) && old.check().unwrap_err().is_lost(), "{refused}");
    assert!(!new.figures().is_lost && new.check().is_ok());
    assert_eq!(ids(&after), [1, 2]);
}

#[test]
fn a_holder_that_hangs_in_a_transaction_stores_nothing_of_it() {
    let first = Process::new("fenced");
    let old = first.state();
    let database = tables(&old);
    let second = Process::new("fenced");
    let link = first.link();
    let (hung, hangs) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel();
    let writer = thread::spawn(move || {
        let written = database.write(Durability::Synced, move |sql| {
            sql.execute("INSERT INTO things VALUES (1)", &[])?;
            // The row of the holder stays locked while this goes on.
            hung.send(()).unwrap();
            goes_on.recv().unwrap();
            sql.execute("INSERT INTO things VALUES (2)", &[])
        });
        (written.unwrap_err(), insert(&database, 3))
    });
    hangs.recv().unwrap();
    fs::remove_file(link).unwrap();
    // Its lease ends, its transaction does not.
    SERVER.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'fenced' AND state = 'idle'
         AND query LIKE 'UPDATE kubefold.holder%'",
    );
    let new = taken(&second);
    let after = tables(&new);
    assert!(ids(&after).is_empty());
    insert(&after, 4).unwrap();
    SERVER.link(&first.link());
    go_on.send(()).unwrap();
    let (failed, later) = writer.join().unwrap();
    assert!(!failed.is_outcome_unknown(), "{failed}");
    assert!(later.is_err());
    assert_eq!(ids(&after), [4]);
}

#[test]
fn a_server_that_is_away_for_all_makes_no_other_holder() {
    let first = Process::new("outage");
    let second = Process::new("outage");
    let state = first.state();
    let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    SERVER.link(&second.link());
    let url = SERVER.database("outage", Some(&second.link()));
    let mut candidate = Candidate::new(&url, tls, &["kubefold"], second.mark()).unwrap();
    let mut look = || {
        assert!(candidate.look().is_none(), "there are two");
        thread::sleep(LOOK_EVERY);
        candidate.waits().clone()
    };
    assert!(look().holder.is_some());
    for process in [&first, &second] {
        partition(process);
    }
    first.cut();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        assert!(look().error.is_some());
    }
    assert!(state.check().unwrap_err().is_away());
    for process in [&first, &second] {
        SERVER.link(&process.link());
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        look();
    }
    eventually("it goes on", || state.check().is_ok());
    assert!(!state.figures().is_lost && look().error.is_none());
}

#[test]
fn a_holder_that_ends_is_followed_at_once_and_tells_its_number() {
    let first = Process::new("numbers");
    let state = first.state();
    assert_eq!(state.number(), 0);
    assert_eq!(state.reserve(1_000), 0, "it is kept a moment later");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(state.reserved(5_000));
    assert_eq!(state.reserve(7), 5_000, "it does not fall");
    let files = SharedFiles::of(&state);
    files.write("ca.crt", b"old").unwrap();
    files.write("ca.crt", b"new").unwrap();
    let waits = thread::spawn(|| taken(&Process::new("numbers")));
    runtime.block_on(state.release());
    assert!(files.write("ca.crt", b"late").unwrap_err().is_lost());
    assert!(runtime.block_on(state.lost()).contains("has left the state"));
    let next = waits.join().unwrap();
    assert_eq!(next.number(), 5_000);
    assert_eq!(SharedFiles::of(&next).all().unwrap(), [("ca.crt".to_owned(), b"new".to_vec())].into());
}

#[test]
fn a_connection_that_was_lost_is_made_again_before_anybody_notices() {
    let process = Process::new("again");
    let state = process.state();
    let database = tables(&state);
    for id in 1..4 {
        process.cut();
        insert(&database, id).unwrap();
    }
    assert_eq!(ids(&database), [1, 2, 3]);
    // The lease, too.
    let [_, beat] = row(&process);
    eventually("it beats", || row(&process)[1] > beat + 1);
    assert!(!state.figures().is_lost && state.check().is_ok());
}

#[test]
fn while_the_server_is_away_writes_are_refused_at_once_and_what_nobody_waits_for_is_kept() {
    let process = Process::new("away");
    let state = process.state();
    let database = tables(&state);
    insert(&database, 1).unwrap();
    fs::remove_file(process.link()).unwrap();
    process.cut();
    let refused = insert(&database, 2).unwrap_err();
    assert!(refused.is_away() && !refused.is_outcome_unknown(), "{refused}");
    assert!(refused.to_string().contains("cannot be reached"), "{refused}");
    for id in 10..13 {
        let later = move |sql: Sql<'_>| sql.execute("INSERT INTO things VALUES (?1)", params![id]).map(drop);
        database.write_later(later, |error| panic!("{error}"));
    }
    // Nobody tries to connect for each of them.
    let failures = state.figures().failures;
    for _ in 0..100 {
        assert!(insert(&database, 2).unwrap_err().is_away());
    }
    assert!(state.figures().failures < failures + 10, "{:?}", state.figures());
    assert!(database.read(|sql| sql.batch("SELECT 1")).unwrap_err().is_away());
    let figures = state.figures();
    assert!(figures.away.is_some() && figures.error.unwrap().contains("cannot be reached") && !figures.is_lost);
    SERVER.link(&process.link());
    // Nobody asks for it.
    eventually("it catches up", || process.sql("SELECT count(*) FROM kubefold.things") == "4");
    eventually("it says so", || state.figures().away.is_none());
    insert(&database, 2).unwrap();
    assert_eq!(ids(&database), [1, 2, 10, 11, 12]);
}

#[test]
fn a_commit_whose_answer_is_lost_has_an_unknown_outcome() {
    let process = Process::new("unknown");
    let state = process.state();
    let database = tables(&state);
    process.sql(
        "CREATE FUNCTION kubefold.cut() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$;
         CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON kubefold.things DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.id = 7) EXECUTE FUNCTION kubefold.cut()",
    );
    let lost = insert(&database, 7).unwrap_err();
    assert!(lost.is_outcome_unknown(), "{lost}");
    insert(&database, 8).unwrap();
    assert_eq!(ids(&database), [8]);
}

#[test]
fn who_may_not_make_the_tables_is_told_what_to_grant() {
    let process = Process::new("rights");
    let url = SERVER.database("rights", None);
    SERVER.sql("CREATE ROLE joe LOGIN");
    let url = url.replace("kubefold@", "joe@");
    let refused = process.try_open(&url).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the user joe may not make the schema kubefold, or tables in it; run as the owner of the database: GRANT CREATE ON DATABASE \"rights\" TO \"joe\""
    );
    process.sql("CREATE SCHEMA kubefold");
    let refused = process.try_open(&url).unwrap_err().to_string();
    assert!(refused.ends_with("GRANT ALL ON SCHEMA kubefold TO \"joe\""), "{refused}");
    process.sql("GRANT ALL ON SCHEMA kubefold TO joe");
    insert(&tables(&process.try_open(&url).unwrap()), 1).unwrap();
}

#[test]
fn what_can_never_be_reached_is_refused_in_one_sentence() {
    let process = Process::new("refused");
    let said = |url: &str| process.try_open(url).unwrap_err().to_string();
    assert!(said("postgres://u@h:x/d").starts_with("it is no connection string of PostgreSQL"));
    let nobody = SERVER.database("refused", None).replace("kubefold@", "nobody-here@");
    assert!(said(&nobody).contains("role \"nobody-here\" does not exist"), "{}", said(&nobody));
}

/// Restores what a database was, as a snapshot of its disk does.
fn restore(process: &Process, epoch: i64, beat: i64) {
    process.sql(&format!("UPDATE kubefold.holder SET epoch = {epoch}, beat = {beat}"));
}

fn row(process: &Process) -> [i64; 2] {
    let row = process.sql("SELECT epoch || ' ' || beat FROM kubefold.holder");
    let words: Vec<i64> = row.split(' ').map(|word| word.parse().unwrap()).collect();
    [words[0], words[1]]
}

#[test]
fn a_database_that_was_restored_is_told_at_the_start() {
    let process = Process::new("restored");
    let [epoch, beat] = {
        let state = process.state();
        assert!(!state.is_restored());
        row(&process)
    };
    assert!(!process.state().is_restored());
    restore(&process, epoch, beat);
    let state = process.state();
    assert!(state.is_restored());
    assert!(row(&process)[0] > epoch + 1, "no epoch is given out twice");
    drop(state);
    assert!(!process.state().is_restored(), "it is said once");
    // Another database.
    let mark = fs::read_to_string(process.mark()).unwrap();
    let identity = mark.split(' ').nth(1).unwrap();
    fs::write(process.mark(), mark.replace(identity, "1/1/1")).unwrap();
    assert!(process.state().is_restored());
}

#[test]
fn a_database_that_is_restored_under_a_process_is_not_written_any_more() {
    let process = Process::new("rewound");
    let state = process.state();
    let database = tables(&state);
    insert(&database, 1).unwrap();
    let [epoch, beat] = row(&process);
    eventually("it beats", || row(&process)[1] > beat);
    process.cut();
    restore(&process, epoch, beat);
    process.cut();
    let refused = insert(&database, 2).unwrap_err();
    assert!(refused.is_lost() && refused.to_string().contains("was restored from a backup"), "{refused}");
    assert_eq!(process.sql("SELECT count(*) FROM kubefold.things"), "1");
    drop((database, state));
    assert!(process.state().is_restored());
}

#[test]
fn a_password_is_told_to_nobody() {
    let process = Process::new("told");
    let state = process.state();
    assert!(state.place().starts_with("postgres:///") && state.place().ends_with("/told"), "{}", state.place());
    let away = process.try_open("postgres://jane:s3cret@127.0.0.1:x/d").unwrap_err();
    assert!(!away.to_string().contains("s3cret"), "{away}");
}

/// The mark is a file of its user.
#[test]
fn the_mark_stands_outside_of_the_database() {
    let process = Process::new("mark");
    let _state = process.state();
    let text = fs::read_to_string(process.mark()).unwrap();
    assert!(text.starts_with("kubefold-state-1 ") && Path::new(&process.mark()).is_file(), "{text}");
}
