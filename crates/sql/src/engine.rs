//! The engines: a file of SQLite, and a connection to a server.

use std::{fmt, fs, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};

use crate::{
    MODE,
    error::{OpenError, SqlError},
    remote::Session,
    statement::{Inner, Sql, execute},
};

/// How long another process that has the file, such as a backup, may keep a write waiting.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements that stay prepared.
const PREPARED_MAX: usize = 128;

pub(crate) enum Engine {
    Sqlite(File),
    Remote(Box<Session>),
}

/// A file of SQLite.
pub(crate) struct File {
    connection: Connection,
    /// Whether its commits are synced, once that was set.
    is_synced: Option<bool>,
}

impl From<Connection> for File {
    fn from(connection: Connection) -> Self {
        Self { connection, is_synced: None }
    }
}

impl Engine {
    /// Opens a file, or begins one, and brings it to the newest format.
    pub(crate) fn open_file(path: &Path, migrations: &[&str]) -> Result<Self, OpenError> {
        let of_io = |cause| OpenError::Io { path: path.to_owned(), cause };
        let place = || path.display().to_string();
        let of_sql = |cause: rusqlite::Error| OpenError::Sql { place: place(), cause: cause.into() };
        // SQLite gives its other files the mode of this one.
        fs::OpenOptions::new().create(true).append(true).mode(MODE).open(path).map_err(of_io)?;
        let mut connection = Connection::open(path).map_err(of_sql)?;
        prepare(&connection).map_err(of_sql)?;
        let format = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
        let format = usize::try_from(format.map_err(of_sql)?).unwrap_or(usize::MAX);
        if format > migrations.len() {
            return Err(OpenError::Newer { place: place(), format, known: migrations.len() });
        }
        for (at, migration) in migrations.iter().enumerate().skip(format) {
            migrate(&mut connection, at + 1, migration).map_err(of_sql)?;
        }
        Ok(Self::Sqlite(connection.into()))
    }

    /// Opens a file that is there, to read it alone.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, SqlError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(PREPARED_MAX);
        Ok(Self::Sqlite(connection.into()))
    }

    /// Brings a group of tables to the newest format.
    pub(crate) fn open_session(mut session: Session, schema: &str, migrations: &[&str]) -> Result<Self, OpenError> {
        let place = session.place().to_owned();
        let opened = migrate_session(&mut session, schema, migrations);
        match opened.map_err(|cause| OpenError::Sql { place: place.clone(), cause })? {
            format if format > migrations.len() => Err(OpenError::Newer { place, format, known: migrations.len() }),
            _ => Ok(Self::Remote(Box::new(session))),
        }
    }

    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// For a read, outside of a transaction.
    pub(crate) fn sql(&mut self) -> Result<Sql<'_>, SqlError> {
        Ok(Sql(match self {
            Self::Sqlite(file) => Inner::Sqlite(&file.connection),
            Self::Remote(session) => Inner::Remote(session.link()?),
        }))
    }

    /// Reads in a transaction of its own, which sees one moment and writes nothing.
    pub(crate) fn read<T>(&mut self, work: impl FnOnce(Sql<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
        match self {
            Self::Sqlite(File { connection, .. }) => {
                connection.execute_batch("BEGIN")?;
                let done = work(Sql(Inner::Sqlite(connection)));
                let ended = if connection.is_autocommit() { Ok(()) } else { connection.execute_batch("COMMIT") };
                let done = done?;
                ended?;
                Ok(done)
            }
            Self::Remote(session) => session.read(|link| work(Sql(Inner::Remote(link)))),
        }
    }

    /// Begins a transaction. A server syncs each: a server that is killed loses what it has not synced, and this process would
    /// go on behind the gap.
    pub(crate) fn begin(&mut self, is_synced: bool) -> Result<(), SqlError> {
        match self {
            Self::Sqlite(file) => Ok(file.begin(is_synced)?),
            Self::Remote(session) => session.begin().map(|_| ()),
        }
    }

    /// The transaction that has begun and has not ended.
    pub(crate) fn transaction(&self) -> Option<Sql<'_>> {
        match self {
            Self::Sqlite(File { connection, .. }) => {
                (!connection.is_autocommit()).then_some(Sql(Inner::Sqlite(connection)))
            }
            Self::Remote(session) => session.transaction().map(|link| Sql(Inner::Remote(link))),
        }
    }

    /// Commits it, or undoes it.
    pub(crate) fn commit(&mut self) -> Result<(), SqlError> {
        let connection = match self {
            Self::Remote(session) => return session.commit(),
            Self::Sqlite(file) => &file.connection,
        };
        if connection.is_autocommit() {
            return Err(SqlError::ended());
        }
        let committed = execute(connection, "COMMIT").map_err(|error| SqlError::from(error).in_commit());
        if committed.is_err() && !connection.is_autocommit() {
            // Should this fail, too, the next transaction cannot begin and tries it again.
            let _undone = connection.execute_batch("ROLLBACK");
        }
        committed
    }

    /// Writes the file anew. A server does that by itself.
    pub(crate) fn compact(&self) -> Result<(), SqlError> {
        match self {
            Self::Sqlite(File { connection, .. }) => {
                Ok(connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?)
            }
            Self::Remote(_) => Ok(()),
        }
    }

    #[cfg(test)]
    pub(crate) fn connection(&mut self) -> &mut Connection {
        let Self::Sqlite(file) = self else { panic!("it is no file") };
        &mut file.connection
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_remote() { "a server" } else { "SQLite" })
    }
}

impl File {
    fn begin(&mut self, is_synced: bool) -> rusqlite::Result<()> {
        let connection = &self.connection;
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK")?;
        }
        if self.is_synced != Some(is_synced) {
            // With a write-ahead log, `NORMAL` syncs at checkpoints alone. Source: SQLite's documentation of `PRAGMA synchronous`.
            let level = if is_synced { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            connection.execute_batch(level)?;
            self.is_synced = Some(is_synced);
        }
        execute(connection, "BEGIN IMMEDIATE")
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_MAX);
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

/// Runs what is missing. Gives the format that was found where it is newer.
fn migrate_session(session: &mut Session, schema: &str, migrations: &[&str]) -> Result<usize, SqlError> {
    let sql = Sql(Inner::Remote(session.begin()?));
    let name = crate::Value::Text(schema);
    let found: Option<i64> =
        sql.row("SELECT format FROM kubefold.formats WHERE tables = ?1", &[name], |row| row.get(0))?;
    let format = found.and_then(|format| usize::try_from(format).ok()).unwrap_or(0);
    if format < migrations.len() {
        if session.is_transactional() {
            let sql = Sql(Inner::Remote(session.transaction().ok_or_else(SqlError::ended)?));
            migrations.iter().skip(format).try_for_each(|migration| sql.batch(migration))?;
        } else {
            // A definition commits what is open, and is not undone with what follows: each may run again.
            session.commit()?;
            let sql = Sql(Inner::Remote(session.link()?));
            migrations.iter().skip(format).try_for_each(|migration| sql.batch(migration))?;
            session.begin()?;
        }
        let sql = Sql(Inner::Remote(session.transaction().ok_or_else(SqlError::ended)?));
        let newest = crate::Value::Integer(i64::try_from(migrations.len()).unwrap_or(i64::MAX));
        let note =
            "INSERT INTO kubefold.formats VALUES (?1, ?2) ON CONFLICT (tables) DO UPDATE SET format = excluded.format";
        sql.execute(note, &[name, newest])?;
    }
    session.commit()?;
    Ok(format)
}
