#![doc = include_str!("../README.md")]

mod backend;
mod blocking;
mod engine;
mod error;
mod failure;
mod key;
#[cfg(feature = "mysql")]
pub mod mysql;
pub mod postgres;
mod readers;
mod remote;
mod server;
mod statement;
mod take_over;
mod value;

use std::{
    fmt, mem,
    path::Path,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::Mutex;

pub use crate::{
    backend::{Announcement, Holder, RemoteError, Replica, Words},
    error::{OpenError, SqlError},
    failure::{Failure, FailureKind},
    key::{KeyError, KeyFile, SealedError, StateKey},
    remote::{Candidate, LOOK_EVERY, MayTell, RemoteFigures, RemoteState, SharedFiles, Waits},
    server::{Dialer, Server},
    statement::{Sql, Statement},
    value::{Column, Row, Value},
};
use crate::{engine::Engine, readers::Readers, remote::Session};

/// Nobody but the program's own user reads or writes the file.
const MODE: u32 = 0o600;

/// How long a write that nobody waits for is put off at most.
const LATER: Duration = Duration::from_millis(200);
/// How long one is put off further while the server cannot be reached.
const MUCH_LATER: Duration = Duration::from_secs(1);
/// Writes that wait for a server, each with a thread of its own. Further ones are refused.
const WAITING_MAX: usize = 128;
/// Writes that are put off until the server can be reached. Further ones fail.
const LATER_MAX: usize = 1 << 16;

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once it is on disk: it survives a loss of power.
    Synced,
    /// Once the operating system has it: it survives the end of the process. A server syncs it, too.
    Written,
}

/// The statements that bring tables of a server to the newest format, oldest first, in the words of each. One that was released is
/// never changed.
#[derive(Clone, Copy, Debug)]
pub struct Migrations<'a> {
    /// Of PostgreSQL. Numbers are `bigint`, and text that is ordered has the collation `"C"`, which is SQLite's.
    pub postgres: &'a [&'a str],
    /// Of MySQL and MariaDB. Numbers are `BIGINT`, and text is `VARBINARY`. MySQL commits each of these statements at once, so each
    /// may run again: a table is made with `CREATE TABLE IF NOT EXISTS`.
    pub mysql: &'a [&'a str],
}

/// A database of state: a file of SQLite, or a group of tables on a server. Cheap to clone.
#[derive(Clone)]
pub struct Database(Arc<Shared>);

struct Shared {
    engine: Mutex<Engine>,
    readers: Readers,
    is_remote: bool,
    /// What the next commit takes.
    queue: Mutex<Vec<Queued>>,
    /// Whether a thread is going to commit what was put off.
    later: Mutex<bool>,
}

/// A write that waits for a commit.
struct Queued {
    durability: Durability,
    /// Nobody waits for it.
    is_later: bool,
    /// Does it in the transaction that has begun, or takes why none has.
    run: Run,
}

type Run = Box<dyn FnOnce(Result<Sql<'_>, SqlError>) -> Answer + Send>;

/// Tells a writer what came of its write, once the commit has succeeded or failed.
type Answer = Box<dyn FnOnce(Result<(), SqlError>) + Send>;

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("is_remote", &self.0.is_remote).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the file, or begins one, and brings it to the newest format.
    ///
    /// Shape: `migrations` are statements, oldest first; the file has had the first so many of them as its `user_version`
    /// says. Each of them runs in a transaction of its own. A migration that was released is never changed.
    ///
    /// Blocks. Errors: see [`OpenError`].
    pub fn open(path: &Path, migrations: &[&str]) -> Result<Self, OpenError> {
        Ok(Self::of(Engine::open_file(path, migrations)?, Readers::of_file(path)))
    }

    /// Opens a group of tables of a server, with a connection of their own, and brings them to the newest format. In PostgreSQL it is
    /// a schema; in MySQL the names of the tables begin with that of the group.
    ///
    /// Blocks. Errors: see [`OpenError`].
    pub fn open_in(state: &Arc<RemoteState>, schema: &str, migrations: Migrations<'_>) -> Result<Self, OpenError> {
        let migrations = state.server().migrations(migrations.postgres, migrations.mysql);
        let tables: Arc<[String]> = state.server().tables_of(migrations).into();
        let session = Session::new(Arc::clone(state), schema, Arc::clone(&tables));
        let engine = Engine::open_session(session, schema, migrations)?;
        Ok(Self::of(engine, Readers::of_schema(state, schema, tables)))
    }

    fn of(engine: Engine, readers: Readers) -> Self {
        let is_remote = engine.is_remote();
        let (queue, later) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { engine: Mutex::new(engine), readers, is_remote, queue, later }))
    }

    /// Writes, and returns once that is stored as `durability` says. Writers that wait at the same time share a commit; each
    /// write is stored whole or not at all, whatever becomes of the others.
    ///
    /// Blocks. Errors: a statement failed, or the commit did; the server cannot be reached, or too many wait for it.
    pub fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(Sql<'_>) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, SqlError> {
        let place: Arc<Mutex<Option<Result<T, SqlError>>>> = Arc::default();
        let answer = Arc::clone(&place);
        let run = Box::new(move |sql: Result<Sql<'_>, SqlError>| {
            let done = sql.and_then(|sql| in_savepoint(sql, work));
            let tell = move |committed: Result<(), SqlError>| {
                *answer.lock() = Some(done.and_then(|done| committed.map(|()| done)));
            };
            Box::new(tell) as Answer
        });
        self.0.enqueue(Queued { durability, is_later: false, run })?;
        self.0.commit();
        // Whoever had the connection before has told, or this call did.
        let told = place.lock().take();
        told.unwrap_or_else(|| Err(SqlError::ended()))
    }

    /// Writes with the next commit, at the latest after 200 ms or when the last [`Database`] of the file is dropped. So it survives
    /// neither a process that is killed before, nor a loss of power. `failed` hears why it was not written. While a server
    /// cannot be reached, 65,536 of them wait for it.
    ///
    /// Does not block.
    pub fn write_later(
        &self,
        work: impl FnOnce(Sql<'_>) -> Result<(), SqlError> + Send + 'static,
        failed: impl FnOnce(SqlError) + Send + 'static,
    ) {
        let run = Box::new(move |sql: Result<Sql<'_>, SqlError>| {
            let done = sql.and_then(|sql| in_savepoint(sql, work));
            let tell = move |committed: Result<(), SqlError>| {
                if let Err(error) = done.and(committed) {
                    failed(error);
                }
            };
            Box::new(tell) as Answer
        });
        self.0.queue.lock().push(Queued { durability: Durability::Written, is_later: true, run });
        self.0.begin_later();
    }

    /// Writes the file anew, so that nothing stays in it of what was deleted or written over. A server does that by itself.
    ///
    /// Blocks. Errors: the disk refuses, or another process reads the file.
    pub fn compact(&self) -> Result<(), SqlError> {
        self.0.commit_rest();
        self.0.engine.lock().compact()
    }

    /// Reads what is stored, what was put off included.
    ///
    /// Blocks, also on writers. Errors: a statement failed, or the server cannot be reached.
    pub fn read<T>(&self, work: impl FnOnce(Sql<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
        self.0.commit_rest();
        work(self.0.engine.lock().sql()?)
    }

    /// The same as of one moment, for a read that may take long: it has one of two connections beside that of [`Self::read`] and
    /// of writes, and none of these waits for it. Writes nothing.
    ///
    /// Blocks, for 10 s at most while two others read so. Errors: those of [`Self::read`]; both connections are busy for so
    /// long, or 32 reads wait for them already.
    pub fn read_aside<T>(&self, work: impl FnOnce(Sql<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
        self.0.commit_rest();
        self.0.readers.read(work)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.commit_rest();
    }
}

impl Shared {
    fn enqueue(&self, queued: Queued) -> Result<(), SqlError> {
        let mut queue = self.queue.lock();
        if self.is_remote && queue.iter().filter(|queued| !queued.is_later).count() >= WAITING_MAX {
            return Err(SqlError::away(format!("{WAITING_MAX} writes wait for the database already")));
        }
        queue.push(queued);
        Ok(())
    }

    /// Has a thread commit what was put off, unless one is going to.
    fn begin_later(self: &Arc<Self>) {
        if mem::replace(&mut *self.later.lock(), true) {
            return;
        }
        let shared = Arc::downgrade(self);
        let begun = thread::Builder::new().name("sql-later".to_owned()).spawn(move || {
            let mut pause = LATER;
            loop {
                thread::sleep(pause);
                let Some(shared) = Weak::upgrade(&shared) else { return };
                *shared.later.lock() = false;
                shared.commit_rest();
                // The server cannot be reached.
                if shared.queue.lock().is_empty() || mem::replace(&mut *shared.later.lock(), true) {
                    return;
                }
                pause = MUCH_LATER;
            }
        });
        if begun.is_err() {
            // The next one tries again; the next commit takes it anyway.
            *self.later.lock() = false;
        }
    }

    /// Commits what was put off.
    fn commit_rest(&self) {
        if !self.queue.lock().is_empty() {
            self.commit();
        }
    }

    /// Commits all that waits, unless somebody has done that meanwhile.
    fn commit(&self) {
        let mut engine = self.engine.lock();
        let waiting = mem::take(&mut *self.queue.lock());
        if waiting.is_empty() {
            return;
        }
        let is_synced = waiting.iter().any(|queued| queued.durability == Durability::Synced);
        if let Err(error) = engine.begin(is_synced) {
            self.not_begun(waiting, &error);
            return;
        }
        let in_transaction = |queued: Queued| match engine.transaction() {
            Some(sql) => (queued.run)(Ok(sql)),
            // What this wrote would be stored alone.
            None => (queued.run)(Err(SqlError::ended())),
        };
        let answers: Vec<Answer> = waiting.into_iter().map(in_transaction).collect();
        let committed = engine.commit();
        answers.into_iter().for_each(|tell| tell(committed.clone()));
    }

    /// Tells those who wait. What nobody waits for is kept until the server can be reached, as far as there is room.
    fn not_begun(&self, waiting: Vec<Queued>, error: &SqlError) {
        let (mut kept, told): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|queued| queued.is_later && self.is_remote && error.is_away());
        let beyond = kept.split_off(kept.len().min(LATER_MAX));
        if !kept.is_empty() {
            let mut queue = self.queue.lock();
            kept.append(&mut queue);
            *queue = kept;
        }
        told.into_iter().chain(beyond).for_each(|queued| (queued.run)(Err(error.clone()))(Ok(())));
    }
}

/// Does one write of several that share a transaction: what it wrote is undone if it fails.
fn in_savepoint<T>(sql: Sql<'_>, work: impl FnOnce(Sql<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
    sql.savepoint(&["SAVEPOINT one"])?;
    let done = work(sql);
    let end: &[&str] = match done.is_ok() {
        true => &["RELEASE SAVEPOINT one"],
        false => &["ROLLBACK TO SAVEPOINT one", "RELEASE SAVEPOINT one"],
    };
    let ended = sql.savepoint(end);
    let done = done?;
    ended?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use rusqlite::Connection;

    use super::*;

    const NUMBERS: &str = "CREATE TABLE numbers (number INTEGER PRIMARY KEY)";

    fn insert(database: &Database, number: i64) -> Result<(), SqlError> {
        database.write(Durability::Synced, move |sql| {
            sql.execute("INSERT INTO numbers VALUES (?1)", params![number]).map(drop)
        })
    }

    fn numbers(database: &Database) -> Vec<i64> {
        database.read(|sql| sql.rows("SELECT number FROM numbers ORDER BY number", &[], |row| row.get(0))).unwrap()
    }

    #[test]
    fn what_is_written_stands_in_a_file_of_its_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let database = Database::open(&path, &[NUMBERS]).unwrap();
        insert(&database, 7).unwrap();
        for file in fs::read_dir(directory.path()).unwrap() {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // As after a kill: the log of the first one is still there.
        assert_eq!(numbers(&Database::open(&path, &[NUMBERS]).unwrap()), [7]);
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_and_the_others_stand() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("state.db"), &[NUMBERS]).unwrap();
        insert(&database, 1).unwrap();
        let failed = database.write(Durability::Synced, |sql| {
            sql.execute("INSERT INTO numbers VALUES (2)", &[])?;
            sql.execute("INSERT INTO numbers VALUES (1)", &[])
        });
        assert!(failed.unwrap_err().to_string().contains("UNIQUE"));
        insert(&database, 3).unwrap();
        assert_eq!(numbers(&database), [1, 3]);
    }

    #[test]
    fn writers_that_wait_share_a_commit() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("state.db"), &[NUMBERS]).unwrap();
        let commits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&commits);
        database
            .0
            .engine
            .lock()
            .connection()
            .commit_hook(Some(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                false
            }))
            .unwrap();
        let held = database.0.engine.lock();
        let writers: Vec<_> = (0..20)
            .map(|number| {
                let database = database.clone();
                thread::spawn(move || insert(&database, number).unwrap())
            })
            .collect();
        while database.0.queue.lock().len() < 20 {
            thread::yield_now();
        }
        drop(held);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!((numbers(&database).len(), commits.load(Ordering::Relaxed)), (20, 1));
    }

    #[test]
    fn what_nobody_waits_for_is_written_with_the_next_commit_and_soon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let database = Database::open(&path, &[NUMBERS]).unwrap();
        let failures: Arc<Mutex<Vec<String>>> = Arc::default();
        let later = |number: i64| {
            let failures = Arc::clone(&failures);
            database.write_later(
                move |sql| sql.execute("INSERT INTO numbers VALUES (?1)", params![number]).map(drop),
                move |error| failures.lock().push(error.to_string()),
            );
        };
        let others = Connection::open(&path).unwrap();
        let stored = || others.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0)).unwrap();
        let held = database.0.engine.lock();
        later(1);
        assert_eq!(database.0.queue.lock().len(), 1);
        drop(held);
        insert(&database, 2).unwrap();
        assert_eq!(stored(), 2);
        // Alone, and it fails alone.
        later(3);
        later(1);
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(if stored() < 3 { 50 } else { 0 }));
        }
        assert_eq!((stored(), failures.lock().len()), (3, 1), "{failures:?}");
        later(4);
        assert_eq!(numbers(&database), [1, 2, 3, 4], "whoever reads sees it");
        later(5);
        drop(database);
        assert_eq!(stored(), 5);
    }

    #[test]
    fn a_commit_that_fails_is_told_to_all_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("state.db"), &[NUMBERS]).unwrap();
        // A commit hook that says so makes the commit a rollback.
        database.0.engine.lock().connection().commit_hook(Some(|| true)).unwrap();
        let error = insert(&database, 1).unwrap_err();
        assert!(!error.is_full() && !error.is_outcome_unknown(), "{error}");
        database.0.engine.lock().connection().commit_hook(None::<fn() -> bool>).unwrap();
        insert(&database, 2).unwrap();
        assert_eq!(numbers(&database), [2]);
    }

    #[test]
    fn a_full_disk_takes_the_whole_commit_with_it_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let database =
            Database::open(&directory.path().join("state.db"), &["CREATE TABLE texts (text TEXT NOT NULL)"]).unwrap();
        let limit = |pages: i64| {
            database.read(|sql| sql.batch(&format!("PRAGMA max_page_count = {pages}"))).unwrap();
        };
        let insert = |database: &Database, bytes: usize| {
            database.write(Durability::Synced, move |sql| {
                sql.execute("INSERT INTO texts VALUES (?1)", params![&"x".repeat(bytes)]).map(drop)
            })
        };
        let count = || {
            database.read(|sql| sql.row("SELECT count(*) FROM texts", &[], |row| row.get::<i64>(0))).unwrap().unwrap()
        };
        limit(8);
        let held = database.0.engine.lock();
        // Before, at and behind the one that has no room.
        let writers: Vec<_> = [10, 100_000, 20]
            .into_iter()
            .enumerate()
            .map(|(at, bytes)| {
                let writer = database.clone();
                let writer = thread::spawn(move || insert(&writer, bytes).unwrap_err());
                while database.0.queue.lock().len() <= at {
                    thread::yield_now();
                }
                writer
            })
            .collect();
        drop(held);
        let errors: Vec<SqlError> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert_eq!(errors.iter().map(SqlError::is_full).collect::<Vec<_>>(), [false, true, false], "{errors:?}");
        assert!(!errors.iter().any(SqlError::is_outcome_unknown), "{errors:?}");
        assert_eq!(count(), 0);
        limit(1_000);
        insert(&database, 100_000).unwrap();
        assert_eq!(count(), 1);
    }

    #[test]
    fn a_file_is_brought_to_the_newest_format_and_a_newer_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        insert(&Database::open(&path, &[NUMBERS]).unwrap(), 1).unwrap();
        let second = "INSERT INTO numbers VALUES (2)";
        for _ in 0..2 {
            assert_eq!(numbers(&Database::open(&path, &[NUMBERS, second]).unwrap()), [1, 2]);
        }
        let newer = Database::open(&path, &[NUMBERS]).unwrap_err();
        assert!(matches!(newer, OpenError::Newer { format: 2, known: 1, .. }), "{newer}");
        let broken = Database::open(&path, &[NUMBERS, second, "NONSENSE"]).unwrap_err();
        assert!(matches!(broken, OpenError::Sql { .. }), "{broken}");
        assert_eq!(numbers(&Database::open(&path, &[NUMBERS, second]).unwrap()), [1, 2]);
    }

    #[test]
    fn what_is_no_database_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        fs::write(&path, "a file of somebody else's, of more than a hundred bytes so that it could be one, which it is not at all, is it?").unwrap();
        let error = Database::open(&path, &[NUMBERS]).unwrap_err();
        assert!(error.to_string().contains("is no database that this program can use"), "{error}");
        assert!(fs::read_to_string(&path).unwrap().starts_with("a file of somebody"));
        let error = Database::open(&directory.path().join("none/state.db"), &[NUMBERS]).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
    }
}
