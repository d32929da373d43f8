//! State on a server: one process at a time, others that wait for it, and a server that comes and goes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

use std::{
    cell::RefCell,
    fs,
    io::{Read, Write},
    net::Shutdown,
    os::unix::{
        fs::symlink,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};

use kubefold_sql::{
    Announcement, Candidate, Database, Durability, LOOK_EVERY, MayTell, Migrations, RemoteError, RemoteState, Server,
    SharedFiles, Sql, SqlError, mysql::MysqlTls, params,
};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use testbed::{MariadbServer, PostgresServer};
use tokio::time::Instant;

/// One of each for all tests, each test in a database of its own. It ends with the process.
static POSTGRES: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static MARIADB: LazyLock<MariadbServer> = LazyLock::new(MariadbServer::start);

const TABLE: Migrations<'_> = Migrations {
    postgres: &["CREATE TABLE things (id bigint PRIMARY KEY)"],
    mysql: &["CREATE TABLE IF NOT EXISTS things (id BIGINT NOT NULL PRIMARY KEY) ENGINE = InnoDB"],
};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Postgres,
    Mysql,
}

/// Runs tests on both.
macro_rules! on_each {
    ($($test:ident,)*) => {
        mod postgres {
            $(#[test]
            fn $test() {
                super::$test(super::Engine::Postgres);
            })*
        }
        mod mysql {
            $(#[test]
            fn $test() {
                super::$test(super::Engine::Mysql);
            })*
        }
    };
}

on_each! {
    a_second_process_is_told_who_has_the_state,
    processes_of_one_state_know_where_the_others_are,
    a_holder_that_cannot_reach_the_server_acts_no_more_before_another_one_has_the_state,
    a_holder_that_hangs_in_a_transaction_stores_nothing_of_it,
    a_server_that_is_away_for_all_makes_no_other_holder,
    no_epoch_begins_while_a_transaction_of_another_is_open,
    a_holder_that_ends_is_followed_at_once_and_tells_its_number,
    a_connection_that_was_lost_is_made_again_before_anybody_notices,
    while_the_server_is_away_writes_are_refused_at_once_and_what_nobody_waits_for_is_kept,
    a_commit_whose_answer_is_lost_has_an_unknown_outcome,
    who_may_not_make_the_tables_is_told_what_to_grant,
    what_can_never_be_reached_is_refused_in_one_sentence,
    a_database_that_was_restored_is_told_at_the_start,
    a_database_that_is_restored_under_a_process_is_not_written_any_more,
    a_password_is_told_to_nobody,
    the_mark_stands_outside_of_the_database,
}

/// What a process has beside the database.
struct Process {
    engine: Engine,
    name: &'static str,
    folder: TempDir,
}

impl Process {
    fn new(engine: Engine, name: &'static str) -> Self {
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        Self { engine, name, folder: tempfile::tempdir().unwrap() }
    }

    /// Through which the server is reached.
    fn link(&self) -> PathBuf {
        self.folder.path().join("link")
    }

    /// Brings it back.
    fn connect(&self) {
        match self.engine {
            Engine::Postgres => POSTGRES.link(&self.link()),
            Engine::Mysql => symlink(MARIADB.socket(), self.link()).unwrap(),
        }
    }

    /// The URL of the database, through a link or without one.
    fn url(&self, through: Option<&Path>) -> String {
        match self.engine {
            Engine::Postgres => POSTGRES.database(self.name, through),
            Engine::Mysql => MARIADB.url_through(self.name, through.unwrap_or(&MARIADB.socket())),
        }
    }

    fn mark(&self) -> PathBuf {
        self.folder.path().join("mark")
    }

    fn try_open(&self, url: &str) -> Result<Arc<RemoteState>, RemoteError> {
        RemoteState::open(server(self.engine, url)?, &["kubefold"], self.mark())
    }

    fn candidate(&self, through: Option<&Path>) -> Candidate {
        let server = server(self.engine, &self.url(through)).unwrap();
        Candidate::new(server, &["kubefold"], self.mark()).unwrap()
    }

    fn state(&self) -> Arc<RemoteState> {
        if !self.link().exists() {
            self.connect();
        }
        self.try_open(&self.url(Some(&self.link()))).unwrap()
    }

    /// Runs statements in which `kubefold.` stands before the name of a table.
    fn sql(&self, statements: &str) -> String {
        match self.engine {
            Engine::Postgres => POSTGRES.sql_in(self.name, statements),
            Engine::Mysql => {
                let statements = statements.replace("kubefold.", "kubefold_");
                MARIADB.sql(&format!("USE `{}`; {statements}", self.name))
            }
        }
    }

    /// Runs statements that may fail.
    fn sql_of(&self, statements: &str) -> Command {
        match self.engine {
            Engine::Postgres => POSTGRES.client(self.name, statements),
            Engine::Mysql => {
                let statements = statements.replace("kubefold.", "kubefold_");
                MARIADB.client(&format!("USE `{}`; {statements}", self.name))
            }
        }
    }

    /// Ends the connections of a database.
    fn cut(&self) {
        let name = self.name;
        match self.engine {
            Engine::Postgres => drop(
                POSTGRES
                    .sql(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")),
            ),
            Engine::Mysql => MARIADB.cut(&format!("db = '{name}'")),
        }
    }

    /// Ends those of them that are in no transaction.
    fn cut_idle(&self) {
        let name = self.name;
        match self.engine {
            Engine::Postgres => drop(POSTGRES.sql(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND state = 'idle'"
            ))),
            Engine::Mysql => MARIADB.cut(&format!(
                "db = '{name}' AND id NOT IN (SELECT trx_mysql_thread_id FROM information_schema.innodb_trx)"
            )),
        }
    }

    /// In words that both servers have.
    fn ago(&self, seconds: u32) -> String {
        match self.engine {
            Engine::Postgres => format!("now() - interval '{seconds} seconds'"),
            Engine::Mysql => format!("UTC_TIMESTAMP(3) - INTERVAL {seconds} SECOND"),
        }
    }
}

fn server(engine: Engine, url: &str) -> Result<Server, RemoteError> {
    match engine {
        Engine::Postgres => {
            let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
            Server::postgres(url, tls)
        }
        Engine::Mysql => Server::mysql(url, MysqlTls::default()),
    }
}

fn tables(state: &Arc<RemoteState>) -> Database {
    Database::open_in(state, "kubefold", TABLE).unwrap()
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

fn a_second_process_is_told_who_has_the_state(engine: Engine) {
    let first = Process::new(engine, "held");
    let state = first.state();
    insert(&tables(&state), 1).unwrap();
    let second = Process::new(engine, "held");
    let refused = second.try_open(&second.url(None)).unwrap_err().to_string();
    let process = format!("process {}, since 20", std::process::id());
    assert!(refused.starts_with("another kubefold (host ") && refused.contains(&process), "{refused}");
    drop(state);
    assert_eq!(ids(&tables(&second.state())), [1]);
}

fn processes_of_one_state_know_where_the_others_are(engine: Engine) {
    let says = |process: &Process| Announcement {
        id: format!("{}-{}", process.name, process.folder.path().display()),
        address: format!("{}.example:6443", process.folder.path().file_name().unwrap().to_str().unwrap()),
        version: "1".to_owned(),
    };
    let (first, second) = (Process::new(engine, "known"), Process::new(engine, "known"));
    let state = first.state();
    let mut candidate = second.candidate(None);
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
    let (dead, new) = (second.ago(20), second.ago(9));
    second.sql(&format!("UPDATE kubefold.replicas SET seen = {dead}"));
    second.sql(&format!("INSERT INTO kubefold.replicas VALUES ('x', 'dead:1', 'h', 1, '1', 0, {dead})"));
    eventually("it renews its row", || {
        second.sql(&format!("SELECT count(*) FROM kubefold.replicas WHERE seen > {new}")) == "1"
    });
    assert_eq!(taken.replicas().len(), 1);
}

/// Takes the state as a process that waits for it does.
fn taken(process: &Process) -> Arc<RemoteState> {
    let mut candidate = process.candidate(None);
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

fn a_holder_that_cannot_reach_the_server_acts_no_more_before_another_one_has_the_state(engine: Engine) {
    let first = Process::new(engine, "lost");
    let (old, second) = (first.state(), Process::new(engine, "lost"));
    let before = tables(&old);
    insert(&before, 1).unwrap();
    assert!(old.check().is_ok() && old.figures().is_held && old.may_tell() == MayTell::Yes);
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
    // Its clients are told what members say, as long as it does not know of another holder.
    assert_eq!(old.may_tell(), MayTell::Yes);
    let after = tables(&new);
    insert(&after, 2).unwrap();
    assert!(insert(&before, 3).unwrap_err().is_away());
    // It sees the server again.
    first.connect();
    eventually("it is told", || old.figures().is_lost);
    let refused = insert(&before, 4).unwrap_err();
    assert!(refused.is_lost() && !refused.is_outcome_unknown(), "{refused}");
    let why = format!("has the state in {} since; this process writes nothing more", old.engine());
    assert!(refused.to_string().contains(&why) && old.check().unwrap_err().is_lost(), "{refused}");
    assert_eq!(old.may_tell(), MayTell::No);
    assert!(!new.figures().is_lost && new.check().is_ok());
    assert_eq!(ids(&after), [1, 2]);
}

fn a_holder_that_hangs_in_a_transaction_stores_nothing_of_it(engine: Engine) {
    let first = Process::new(engine, "fenced");
    let old = first.state();
    let database = tables(&old);
    let second = Process::new(engine, "fenced");
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
    first.cut_idle();
    let new = taken(&second);
    let after = tables(&new);
    assert!(ids(&after).is_empty());
    insert(&after, 4).unwrap();
    first.connect();
    go_on.send(()).unwrap();
    let (failed, later) = writer.join().unwrap();
    assert!(!failed.is_outcome_unknown(), "{failed}");
    assert!(later.is_err());
    assert_eq!(ids(&after), [4]);
}

fn no_epoch_begins_while_a_transaction_of_another_is_open(engine: Engine) {
    let process = Process::new(engine, "locked");
    let state = process.state();
    let database = tables(&state);
    // As a process begins one.
    let begin = match engine {
        Engine::Postgres => {
            "SET lock_timeout = '1s'; SELECT 1 FROM kubefold.holder FOR UPDATE;
             UPDATE kubefold.holder SET epoch = epoch + 1"
        }
        Engine::Mysql => "SET innodb_lock_wait_timeout = 1; UPDATE kubefold.epoch SET epoch = epoch + 1",
    };
    let asked = Mutex::new(process.sql_of(begin));
    let written = database.write(Durability::Synced, move |sql| {
        sql.execute("INSERT INTO things VALUES (1)", &[])?;
        let refused = asked.lock().output().unwrap();
        let why = String::from_utf8_lossy(&refused.stderr).to_lowercase();
        assert!(!refused.status.success() && why.contains("lock"), "{why}");
        Ok(())
    });
    written.unwrap();
    // The lease was kept meanwhile.
    assert!(state.check().is_ok());
    process.sql(begin);
    assert!(insert(&database, 2).is_err());
    assert_eq!(process.sql("SELECT count(*) FROM kubefold.things"), "1");
}

/// Connections whose network has gone, and that the server keeps for hours, do not keep new ones away.
#[test]
fn with_mysql_connections_that_were_lost_leave_room_for_others() {
    let process = Process::new(Engine::Mysql, "room");
    let state = process.state();
    let database = tables(&state);
    let lock = |number: u32| format!("CONCAT('kubefold/', LEFT(SHA1('room'), 24), '/{}/{number}')", row(&process)[0]);
    let locks: Vec<String> = (0..64).map(|number| format!("GET_LOCK({}, 60)", lock(number))).collect();
    // As the process's own, in no database.
    let asks = format!("SELECT {}; SELECT SLEEP(60)", locks.join(", "));
    let client = RefCell::new(MARIADB.client(&asks).spawn().unwrap());
    eventually("all are taken", || {
        process.cut();
        // The server may turn a client away, for all that the other tests ask of it.
        if client.borrow_mut().try_wait().unwrap().is_some() {
            let next = MARIADB.client(&asks).spawn().unwrap();
            client.replace(next).wait().unwrap();
        }
        MARIADB.sql(&format!("SELECT IS_USED_LOCK({}) = IS_USED_LOCK({})", lock(0), lock(63))) == "1"
    });
    eventually("it writes", || insert(&database, 1).is_ok());
    eventually("it has its lease", || state.check().is_ok());
    assert!(!client.into_inner().wait().unwrap().success(), "it was ended");
    assert!(!state.figures().is_lost);
}

/// What follows would be stored by itself.
#[test]
fn a_transaction_that_mysql_undoes_ends_with_all_that_is_in_it() {
    let process = Process::new(Engine::Mysql, "undone");
    let database = tables(&process.state());
    let trigger =
        "USE undone// CREATE TRIGGER deadlock BEFORE INSERT ON kubefold_things FOR EACH ROW IF NEW.id = 2 THEN
        SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; END IF";
    let made = MARIADB.client(trigger).arg("--delimiter=//").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let written = database.write(Durability::Synced, |sql| {
        sql.execute("INSERT INTO things VALUES (1)", &[])?;
        sql.execute("INSERT INTO things VALUES (2)", &[]).unwrap_err();
        sql.execute("INSERT INTO things VALUES (3)", &[])
    });
    let refused = written.unwrap_err();
    assert!(!refused.is_outcome_unknown(), "{refused}");
    assert!(ids(&database).is_empty());
    insert(&database, 4).unwrap();
    assert_eq!(ids(&database), [4]);
}

fn a_server_that_is_away_for_all_makes_no_other_holder(engine: Engine) {
    let first = Process::new(engine, "outage");
    let second = Process::new(engine, "outage");
    let state = first.state();
    second.connect();
    let mut candidate = second.candidate(Some(&second.link()));
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
        process.connect();
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        look();
    }
    eventually("it goes on", || state.check().is_ok());
    assert!(!state.figures().is_lost && look().error.is_none());
}

fn a_holder_that_ends_is_followed_at_once_and_tells_its_number(engine: Engine) {
    let first = Process::new(engine, "numbers");
    let state = first.state();
    assert_eq!(state.number(), 0);
    assert_eq!(state.reserve(1_000), 0, "it is kept a moment later");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(state.reserved(5_000));
    assert_eq!(state.reserve(7), 5_000, "it does not fall");
    let files = SharedFiles::of(&state);
    files.write("ca.crt", b"old").unwrap();
    files.write("ca.crt", b"new").unwrap();
    let waits = thread::spawn(move || taken(&Process::new(engine, "numbers")));
    runtime.block_on(state.release());
    assert!(files.write("ca.crt", b"late").unwrap_err().is_lost());
    assert!(runtime.block_on(state.lost()).contains("has left the state"));
    let next = waits.join().unwrap();
    assert_eq!(next.number(), 5_000);
    assert_eq!(SharedFiles::of(&next).all().unwrap(), [("ca.crt".to_owned(), b"new".to_vec())].into());
}

fn a_connection_that_was_lost_is_made_again_before_anybody_notices(engine: Engine) {
    let process = Process::new(engine, "again");
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

fn while_the_server_is_away_writes_are_refused_at_once_and_what_nobody_waits_for_is_kept(engine: Engine) {
    let process = Process::new(engine, "away");
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
    process.connect();
    // Nobody asks for it.
    eventually("it catches up", || process.sql("SELECT count(*) FROM kubefold.things") == "4");
    eventually("it says so", || state.figures().away.is_none());
    insert(&database, 2).unwrap();
    assert_eq!(ids(&database), [1, 2, 10, 11, 12]);
}

/// Hands on what is sent through a socket, and cuts a connection in place of the answer to a commit, once.
fn cutting(at: &Path, to: PathBuf) -> Arc<Mutex<bool>> {
    let listener = UnixListener::bind(at).unwrap();
    let cuts: Arc<Mutex<bool>> = Arc::default();
    let armed = Arc::clone(&cuts);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (to, armed) = (UnixStream::connect(&to).unwrap(), Arc::clone(&armed));
            let (answers, mut answered) = (to.try_clone().unwrap(), client.try_clone().unwrap());
            let cut = Arc::new(Mutex::new(false));
            let is_cut = Arc::clone(&cut);
            thread::spawn(move || {
                let (mut client, mut to) = (client, to);
                hand_on(&mut client, |bytes| {
                    let is_commit = bytes.windows(6).any(|window| window == b"COMMIT");
                    *cut.lock() |= is_commit && std::mem::take(&mut *armed.lock());
                    to.write_all(bytes).is_ok()
                });
                drop(to.shutdown(Shutdown::Both));
            });
            thread::spawn(move || {
                let mut answers = answers;
                hand_on(&mut answers, |bytes| !*is_cut.lock() && answered.write_all(bytes).is_ok());
                drop(answered.shutdown(Shutdown::Both));
            });
        }
    });
    cuts
}

fn hand_on(from: &mut UnixStream, mut take: impl FnMut(&[u8]) -> bool) {
    let mut bytes = [0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if !take(&bytes[..length]) {
            return;
        }
    }
}

fn a_commit_whose_answer_is_lost_has_an_unknown_outcome(engine: Engine) {
    let process = Process::new(engine, "unknown");
    // A folder for PostgreSQL, which has the name of its socket by itself.
    let (at, to) = match engine {
        Engine::Postgres => {
            process.connect();
            (process.folder.path().join(".s.PGSQL.5432"), process.link().join(".s.PGSQL.5432"))
        }
        Engine::Mysql => (process.link(), MARIADB.socket()),
    };
    let cuts = cutting(&at, to);
    let through = if engine == Engine::Postgres { process.folder.path() } else { &at };
    let state = process.try_open(&process.url(Some(through))).unwrap();
    let database = tables(&state);
    insert(&database, 6).unwrap();
    *cuts.lock() = true;
    let lost = insert(&database, 7).unwrap_err();
    assert!(lost.is_outcome_unknown(), "{lost}");
    insert(&database, 8).unwrap();
    // The server had what was sent.
    assert_eq!(ids(&database), [6, 7, 8]);
}

fn who_may_not_make_the_tables_is_told_what_to_grant(engine: Engine) {
    let process = Process::new(engine, "rights");
    let url = process.url(None).replace("kubefold@", "joe@");
    let refused = |expected: &str| {
        let refused = process.try_open(&url).unwrap_err().to_string();
        assert_eq!(refused, expected);
        let (_, grant) = refused.split_once("the database: ").unwrap();
        process.sql(grant);
    };
    match engine {
        Engine::Postgres => {
            POSTGRES.sql("CREATE ROLE joe LOGIN");
            process.sql("CREATE SCHEMA kubefold");
            refused(
                "the user joe may not make the schema kubefold, or tables in it; run as the owner of the database: \
                 GRANT ALL ON SCHEMA kubefold TO \"joe\"",
            );
            process.sql("REVOKE ALL ON SCHEMA kubefold FROM joe; DROP SCHEMA kubefold");
            refused(
                "the user joe may not make the schema kubefold, or tables in it; run as the owner of the database: \
                 GRANT CREATE ON DATABASE \"rights\" TO \"joe\"",
            );
        }
        Engine::Mysql => {
            MARIADB.sql("CREATE USER joe@localhost; GRANT SELECT ON rights.* TO joe@localhost");
            refused(
                "the user joe@localhost may not make tables in the database rights; run as the owner of the database: \
                 GRANT ALL ON `rights`.* TO 'joe'@'localhost'",
            );
        }
    }
    insert(&tables(&process.try_open(&url).unwrap()), 1).unwrap();
}

fn what_can_never_be_reached_is_refused_in_one_sentence(engine: Engine) {
    let process = Process::new(engine, "refused");
    let said = |url: &str| process.try_open(url).unwrap_err().to_string();
    let (wrong, what, nobody) = match engine {
        Engine::Postgres => {
            ("postgres://u@h:x/d", "it is no connection string of PostgreSQL", "role \"nobody-here\" does not exist")
        }
        Engine::Mysql => {
            ("mysql://u@h:x/d", "it is no URL of MySQL", "Access denied for user 'nobody-here'@'localhost'")
        }
    };
    assert!(said(wrong).starts_with(what), "{}", said(wrong));
    let url = process.url(None).replace("kubefold@", "nobody-here@");
    assert!(said(&url).contains(nobody), "{}", said(&url));
}

/// Restores what a database was, as a snapshot of its disk does.
fn restore(process: &Process, epoch: i64, beat: i64) {
    process.sql(&format!("UPDATE kubefold.holder SET epoch = {epoch}, beat = {beat}"));
    if process.engine == Engine::Mysql {
        process.sql(&format!("UPDATE kubefold.epoch SET epoch = {epoch}"));
    }
}

fn row(process: &Process) -> [i64; 2] {
    let row = process.sql("SELECT CONCAT(epoch, ' ', beat) FROM kubefold.holder");
    let words: Vec<i64> = row.split(' ').map(|word| word.parse().unwrap()).collect();
    [words[0], words[1]]
}

fn a_database_that_was_restored_is_told_at_the_start(engine: Engine) {
    let process = Process::new(engine, "restored");
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

fn a_database_that_is_restored_under_a_process_is_not_written_any_more(engine: Engine) {
    let process = Process::new(engine, "rewound");
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

fn a_password_is_told_to_nobody(engine: Engine) {
    let process = Process::new(engine, "told");
    let state = process.state();
    let scheme = if engine == Engine::Postgres { "postgres" } else { "mysql" };
    assert!(state.place().starts_with(scheme) && state.place().ends_with("/told"), "{}", state.place());
    assert!(!state.place().contains("kubefold@"), "{}", state.place());
    let away = process.try_open(&format!("{scheme}://jane:s3cret@127.0.0.1:x/d")).unwrap_err();
    assert!(!away.to_string().contains("s3cret"), "{away}");
}

/// The mark is a file of its user.
fn the_mark_stands_outside_of_the_database(engine: Engine) {
    let process = Process::new(engine, "mark");
    let _state = process.state();
    let text = fs::read_to_string(process.mark()).unwrap();
    assert!(text.starts_with("kubefold-state-1 ") && Path::new(&process.mark()).is_file(), "{text}");
}
