#![doc = include_str!("../README.md")]

mod key;

use std::{
    fmt, fs, io, mem,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
pub use rusqlite;
use rusqlite::{Connection, ErrorCode, ffi};

pub use crate::key::{KeyError, KeyFile, SealedError, StateKey};

/// Nobody but the program's own user reads or writes the file.
const MODE: u32 = 0o600;
/// How long another process that has the file, such as a backup, may keep a write waiting.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a write that nobody waits for is put off at most.
const LATER: Duration = Duration::from_millis(200);

/// Why a file of state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refuses.
    #[error("{path} cannot be read and written: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file is damaged, or of another program.
    #[error("{path} is no database that this program can use: {cause}")]
    Sql {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: rusqlite::Error,
    },
    /// A newer version of the program wrote the file.
    #[error("{path} has format {format}, which a newer version wrote; this version knows formats up to {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// The number of migrations that the file has.
        format: usize,
        /// The number of migrations that this program has.
        known: usize,
    },
}

/// Why a statement or a commit failed. Nothing of the write that it was in can be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{cause}")]
pub struct SqlError {
    cause: Arc<rusqlite::Error>,
    is_commit: bool,
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self { cause: Arc::new(error), is_commit: false }
    }
}

impl SqlError {
    fn of_commit(error: rusqlite::Error) -> Self {
        Self { cause: Arc::new(error), is_commit: true }
    }

    /// Says whether the disk, or what the file may have of it, is full.
    pub fn is_full(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DiskFull))
    }

    /// Says whether the write may be there after the process has ended, unless a later one is stored before: the disk
    /// failed after it had taken the whole commit, such as while it synced it.
    ///
    /// Source: SQLite's `sqlite3WalFrames`. The frames of a commit are all written before they are synced, and the next
    /// commit is written over one that failed.
    pub fn is_outcome_unknown(&self) -> bool {
        let is_certain =
            matches!(self.code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::ConstraintViolation));
        self.is_commit && !is_certain
    }

    /// Says whether the file is no database any more, as far as could be seen.
    pub fn is_damaged(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }

    fn code(&self) -> Option<ErrorCode> {
        self.cause.sqlite_error_code()
    }
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once it is on disk: it survives a loss of power.
    Synced,
    /// Once the operating system has it: it survives the end of the process.
    Written,
}

/// One file of state. Cheap to clone.
#[derive(Clone)]
pub struct Database(Arc<Shared>);

struct Shared {
    connection: Mutex<Connection>,
    /// What the next commit takes.
    queue: Mutex<Vec<Queued>>,
    /// Whether a thread is going to commit what was put off.
    later: Mutex<bool>,
}

/// A write that waits for a commit.
struct Queued {
    durability: Durability,
    /// Does it in the transaction that has begun, or takes why none has.
    run: Run,
}

type Run = Box<dyn FnOnce(Result<&Connection, SqlError>) -> Answer + Send>;

/// Tells a writer what came of its write, once the commit has succeeded or failed.
type Answer = Box<dyn FnOnce(Result<(), SqlError>) + Send>;

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
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
        let of_io = |cause| OpenError::Io { path: path.to_owned(), cause };
        let of_sql = |cause| OpenError::Sql { path: path.to_owned(), cause };
        // SQLite gives its other files the mode of this one.
        fs::OpenOptions::new().create(true).append(true).mode(MODE).open(path).map_err(of_io)?;
        let mut connection = Connection::open(path).map_err(of_sql)?;
        prepare(&connection).map_err(of_sql)?;
        let format = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
        let format = usize::try_from(format.map_err(of_sql)?).unwrap_or(usize::MAX);
        if format > migrations.len() {
            return Err(OpenError::Newer { path: path.to_owned(), format, known: migrations.len() });
        }
        for (at, migration) in migrations.iter().enumerate().skip(format) {
            migrate(&mut connection, at + 1, migration).map_err(of_sql)?;
        }
        Ok(Self(Arc::new(Shared {
            connection: Mutex::new(connection),
            queue: Mutex::default(),
            later: Mutex::default(),
        })))
    }

    /// Writes, and returns once that is stored as `durability` says. Writers that wait at the same time share a commit; each
    /// write is stored whole or not at all, whatever becomes of the others.
    ///
    /// Blocks. Errors: a statement failed, or the commit did.
    pub fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SqlError> {
        let place: Arc<Mutex<Option<Result<T, SqlError>>>> = Arc::default();
        let answer = Arc::clone(&place);
        let run = Box::new(move |connection: Result<&Connection, SqlError>| {
            let done = connection.and_then(|connection| in_savepoint(connection, work));
            let tell = move |committed: Result<(), SqlError>| {
                *answer.lock() = Some(done.and_then(|done| committed.map(|()| done)));
            };
            Box::new(tell) as Answer
        });
        self.0.queue.lock().push(Queued { durability, run });
        self.0.commit();
        // Whoever had the connection before has told, or this call did.
        let told = place.lock().take();
        told.unwrap_or_else(|| Err(rusqlite::Error::InvalidQuery.into()))
    }

    /// Writes with the next commit, at the latest after 200 ms or when the last [`Database`] of the file is dropped. So it survives
    /// neither a process that is killed before, nor a loss of power. `failed` hears why it was not written.
    ///
    /// Does not block.
    pub fn write_later(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
        failed: impl FnOnce(SqlError) + Send + 'static,
    ) {
        let run = Box::new(move |connection: Result<&Connection, SqlError>| {
            let done = connection.and_then(|connection| in_savepoint(connection, work));
            let tell = move |committed: Result<(), SqlError>| {
                if let Err(error) = done.and(committed) {
                    failed(error);
                }
            };
            Box::new(tell) as Answer
        });
        self.0.queue.lock().push(Queued { durability: Durability::Written, run });
        if mem::replace(&mut *self.0.later.lock(), true) {
            return;
        }
        let shared = Arc::downgrade(&self.0);
        let begun = thread::Builder::new().name("sql-later".to_owned()).spawn(move || {
            thread::sleep(LATER);
            Weak::upgrade(&shared).inspect(|shared| {
                *shared.later.lock() = false;
                shared.commit_rest();
            })
        });
        if begun.is_err() {
            // The next one tries again; the next commit takes it anyway.
            *self.0.later.lock() = false;
        }
    }

    /// Writes the file anew, so that nothing stays in it of what was deleted or written over.
    ///
    /// Blocks. Errors: the disk refuses, or another process reads the file.
    pub fn compact(&self) -> Result<(), SqlError> {
        self.0.commit_rest();
        Ok(self.0.connection.lock().execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?)
    }

    /// Reads what is stored, what was put off included.
    ///
    /// Blocks, also on writers. Errors: a statement failed.
    pub fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, SqlError> {
        self.0.commit_rest();
        Ok(work(&self.0.connection.lock())?)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.commit_rest();
    }
}

impl Shared {
    /// Commits what was put off.
    fn commit_rest(&self) {
        if !self.queue.lock().is_empty() {
            self.commit();
        }
    }

    /// Commits all that waits, unless somebody has done that meanwhile.
    fn commit(&self) {
        let connection = self.connection.lock();
        let waiting = mem::take(&mut *self.queue.lock());
        if waiting.is_empty() {
            return;
        }
        let is_synced = waiting.iter().any(|queued| queued.durability == Durability::Synced);
        if let Err(error) = begin(&connection, is_synced) {
            let error = SqlError::from(error);
            waiting.into_iter().for_each(|queued| (queued.run)(Err(error.clone()))(Ok(())));
            return;
        }
        let in_transaction = |queued: Queued| match connection.is_autocommit() {
            false => (queued.run)(Ok(&connection)),
            // What this wrote would be stored alone.
            true => (queued.run)(Err(ended())),
        };
        let answers: Vec<Answer> = waiting.into_iter().map(in_transaction).collect();
        let committed = match connection.is_autocommit() {
            false => connection.execute_batch("COMMIT").map_err(SqlError::of_commit),
            true => Err(ended()),
        };
        if committed.is_err() && !connection.is_autocommit() {
            // Should this fail, too, the next transaction cannot begin and tries it again.
            let _undone = connection.execute_batch("ROLLBACK");
        }
        answers.into_iter().for_each(|tell| tell(committed.clone()));
    }
}

/// A statement that fails may end the transaction, and with it what others wrote. Source: SQLite's documentation of
/// transactions, "Response To Errors Within A Transaction".
fn ended() -> SqlError {
    let why = "another write of the same commit failed, and ended its transaction";
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ABORT_ROLLBACK), Some(why.to_owned())).into()
}

/// Begins a transaction.
fn begin(connection: &Connection, is_synced: bool) -> rusqlite::Result<()> {
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    // With a write-ahead log, `NORMAL` syncs at checkpoints alone. Source: SQLite's documentation of `PRAGMA synchronous`.
    connection.execute_batch(if is_synced { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" })?;
    connection.execute_batch("BEGIN IMMEDIATE")
}

/// Does one write of several that share a transaction: what it wrote is undone if it fails.
fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, SqlError> {
    connection.execute_batch("SAVEPOINT one")?;
    let done = work(connection);
    let ended = connection.execute_batch(if done.is_ok() { "RELEASE one" } else { "ROLLBACK TO one; RELEASE one" });
    let done = done?;
    ended?;
    Ok(done)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // It answers with the mode that it has.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "foreign_keys", true)
}

fn migrate(connection: &mut Connection, format: usize, migration: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(migration)?;
    transaction.pragma_update(None, "user_version", i64::try_from(format).unwrap_or(i64::MAX))?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::PermissionsExt,
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    const NUMBERS: &str = "CREATE TABLE numbers (number INTEGER PRIMARY KEY)";

    fn insert(database: &Database, number: i64) -> Result<(), SqlError> {
        database
            .write(Durability::Synced, move |sql| sql.execute("INSERT INTO numbers VALUES (?1)", [number]).map(|_| ()))
    }

    fn numbers(database: &Database) -> Vec<i64> {
        let read = |sql: &Connection| {
            let mut rows = sql.prepare("SELECT number FROM numbers ORDER BY number")?;
            rows.query_map([], |row| row.get(0))?.collect()
        };
        database.read(read).unwrap()
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
            sql.execute("INSERT INTO numbers VALUES (2)", [])?;
            sql.execute("INSERT INTO numbers VALUES (1)", [])
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
            .connection
            .lock()
            .commit_hook(Some(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                false
            }))
            .unwrap();
        let held = database.0.connection.lock();
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
                move |sql| sql.execute("INSERT INTO numbers VALUES (?1)", [number]).map(drop),
                move |error| failures.lock().push(error.to_string()),
            );
        };
        let others = Connection::open(&path).unwrap();
        let stored = || others.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0)).unwrap();
        let held = database.0.connection.lock();
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
        database.0.connection.lock().commit_hook(Some(|| true)).unwrap();
        let error = insert(&database, 1).unwrap_err();
        assert!(!error.is_full() && !error.is_outcome_unknown(), "{error}");
        database.0.connection.lock().commit_hook(None::<fn() -> bool>).unwrap();
        insert(&database, 2).unwrap();
        assert_eq!(numbers(&database), [2]);
    }

    #[test]
    fn a_full_disk_takes_the_whole_commit_with_it_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let database =
            Database::open(&directory.path().join("state.db"), &["CREATE TABLE texts (text TEXT NOT NULL)"]).unwrap();
        let limit = |pages: i64| {
            let told = |sql: &Connection| sql.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
            database.read(told).unwrap();
        };
        let insert = |database: &Database, bytes: usize| {
            database.write(Durability::Synced, move |sql| {
                sql.execute("INSERT INTO texts VALUES (?1)", ["x".repeat(bytes)]).map(|_| ())
            })
        };
        let count = || {
            database.read(|sql| sql.query_row("SELECT count(*) FROM texts", [], |row| row.get::<_, i64>(0))).unwrap()
        };
        limit(8);
        let held = database.0.connection.lock();
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
