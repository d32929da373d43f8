//! The database: its tables, what a batch writes, and how all of it is read at the start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use kubefold_sql::{Database, Durability, Row, Sql, SqlError, params};

use crate::storage::{
    Bounds, StorageError,
    cache::Cache,
    replay::{Gap, RESTORED_BUMP, Replay, Replayed},
    sqlite::{
        error::SqliteError,
        mark::{Identity, Mark, Served},
    },
    writer::{Log, Opened, Stored},
};

/// The row of `head` gives revisions out. A row of `changes` without a value is a deletion. It has every change after
/// `floor`, and of those before what made the value of a key at `floor`: so it is the state, and the history, in one.
pub(super) const MIGRATIONS: [&str; 1] = ["
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    incarnation TEXT NOT NULL,
    revision INTEGER NOT NULL,
    floor INTEGER NOT NULL
) STRICT;
INSERT INTO head VALUES (1, lower(hex(randomblob(16))), 1, 1);
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    value BLOB
) STRICT;
"];
/// Pages in the write-ahead log before they are brought to their places, which takes two more `fsync`s.
const CHECKPOINT_PAGES: i64 = 8192;
/// The row that gives revisions out.
#[derive(Debug)]
struct Head {
    incarnation: String,
    revision: u64,
    floor: u64,
}

/// An open database, with its mark.
pub struct File {
    path: PathBuf,
    pub(super) database: Database,
    mark: Mark,
    served: Served,
    /// The mark could not be written: that is logged once.
    is_mark_stale: bool,
}

impl File {
    /// Opens a database and reads it. Blocks.
    pub(super) fn open(path: &Path, bounds: Bounds) -> Result<Opened<Self>, SqliteError> {
        let mark = Mark::lock(path)?;
        let database = Database::open(path, &MIGRATIONS)?;
        let damaged = |damage| SqliteError::Damaged { path: path.to_owned(), damage };
        let prepare = |sql: Sql<'_>| {
            sql.batch(&format!("PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}"))?;
            read_head(sql)
        };
        let mut head = database.read(prepare).map_err(|error| damaged(error.into()))?;
        let of_io = |cause| SqliteError::Mark { path: path.to_owned(), cause };
        let identity = Identity::of(path).map_err(of_io)?;
        if !goes_on(mark.read().as_ref(), &head, identity) {
            let highest = mark.read().map_or(0, |served| served.revision).max(head.revision);
            head = raise(&database, highest.saturating_add(RESTORED_BUMP))
                .map_err(|error| SqliteError::Store { path: path.to_owned(), cause: error.into() })?;
            tracing::warn!(
                path = %path.display(),
                revision = head.revision,
                "the file is not the one that was served here last: every revision of before is compacted"
            );
        }
        let loaded = database.read(|sql| load(sql, &head, bounds)).map_err(|error| damaged(error.into()))?;
        let Replayed { state, dead } = loaded.map_err(|gap| damaged(gap.into()))?;
        let served = Served { incarnation: head.incarnation, identity, revision: head.revision };
        mark.write(&served).and_then(|()| mark.sync()).and_then(|()| sync_folder(path)).map_err(of_io)?;
        let cache = Arc::new(Cache::new(state, bounds));
        let log = Self { path: path.to_owned(), database, mark, served, is_mark_stale: false };
        Ok(Opened { log, cache, dead })
    }

    /// Notes how far was served, before anybody sees it.
    fn note(&mut self, revision: u64) {
        self.served.revision = revision;
        match self.mark.write(&self.served) {
            Ok(()) => self.is_mark_stale = false,
            Err(error) if !self.is_mark_stale => {
                self.is_mark_stale = true;
                let path = self.path.display();
                tracing::warn!(%path, %error, "the mark of what is served cannot be written: a backup may go unnoticed");
            }
            Err(_) => {}
        }
    }
}

impl Log for File {
    fn store(&mut self, batch: Stored) -> Result<(), StorageError> {
        let revision = batch.changes.last().map(|change| change.revision);
        let stored = self.database.write(Durability::Synced, move |sql| write(sql, &batch));
        stored?;
        if let Some(revision) = revision {
            self.note(revision);
        }
        Ok(())
    }

    /// SQLite has rolled it back. It is there only after an end of the process, unless the next batch is stored before,
    /// which is written over it.
    fn settle(&mut self) -> Result<bool, StorageError> {
        Ok(false)
    }

    fn raise(&mut self, to: u64) -> Result<(), StorageError> {
        let head = raise(&self.database, to)?;
        self.served.incarnation = head.incarnation;
        self.note(head.revision);
        Ok(())
    }

    fn probe(&mut self) -> Result<(), StorageError> {
        let write = |sql: Sql<'_>| sql.execute("UPDATE head SET floor = floor", &[]);
        self.database.write(Durability::Synced, write)?;
        Ok(())
    }
}

/// Says whether a database is the one that was served last, as it was then or later.
fn goes_on(served: Option<&Served>, head: &Head, identity: Identity) -> bool {
    match served {
        Some(Served { incarnation, identity: before, revision }) => {
            *incarnation == head.incarnation && *before == identity && *revision <= head.revision
        }
        // It has just been made.
        None => head.revision == 1,
    }
}

fn read_head(sql: Sql<'_>) -> Result<Head, SqlError> {
    let head = sql.row("SELECT incarnation, revision, floor FROM head", &[], |row| {
        Ok(Head { incarnation: row.get(0)?, revision: revision(row, 1)?, floor: revision(row, 2)? })
    });
    head?.ok_or_else(|| SqlError::of_value("the table head has no row"))
}

fn revision(row: Row<'_>, column: usize) -> Result<u64, SqlError> {
    u64::try_from(row.get::<i64>(column)?).map_err(SqlError::of_value)
}

/// A revision as SQLite has it.
fn of_revision(revision: u64) -> Result<i64, SqlError> {
    i64::try_from(revision).map_err(SqlError::of_value)
}

/// Begins a new incarnation at a revision, which is the oldest that is remembered.
fn raise(database: &Database, revision: u64) -> Result<Head, SqlError> {
    database.write(Durability::Synced, move |sql| {
        let set = "UPDATE head SET incarnation = lower(hex(randomblob(16))), revision = ?1, floor = ?1";
        sql.execute(set, params![of_revision(revision)?])?;
        read_head(sql)
    })
}

fn write(sql: Sql<'_>, batch: &Stored) -> Result<(), SqlError> {
    let floor = of_revision(batch.floor)?;
    match (batch.changes.first(), batch.changes.last()) {
        (Some(first), Some(last)) => {
            let set = "UPDATE head SET revision = ?1, floor = ?2 WHERE revision = ?3";
            let (newest, before) = (of_revision(last.revision)?, of_revision(first.revision.saturating_sub(1))?);
            if sql.execute(set, params![newest, floor, before])? != 1 {
                return Err(SqlError::of_value("somebody else has written: what is in the cache is not what is there"));
            }
        }
        _ => drop(sql.execute("UPDATE head SET floor = ?1", params![floor])?),
    }
    let insert = sql.prepare("INSERT INTO changes (revision, key, value) VALUES (?1, ?2, ?3)")?;
    for change in &batch.changes {
        let value = change.after.as_ref().map(|record| &*record.value);
        insert.execute(params![of_revision(change.revision)?, change.key(), value])?;
    }
    let delete = sql.prepare("DELETE FROM changes WHERE revision = ?1")?;
    batch.dead.iter().try_for_each(|revision| delete.execute(params![of_revision(*revision)?]).map(drop))
}

/// All that is there.
fn load(sql: Sql<'_>, head: &Head, bounds: Bounds) -> Result<Result<Replayed, Gap>, SqlError> {
    let (mut replay, mut gap) = (Replay::new(head.floor, bounds), None);
    sql.each("SELECT revision, key, value FROM changes ORDER BY revision", &[], |row| {
        if gap.is_none() {
            gap = replay.take(revision(row, 0)?, row.get(1)?, row.get(2)?).err();
        }
        Ok(())
    })?;
    Ok(match gap {
        Some(gap) => Err(gap),
        None => replay.end(head.revision),
    })
}

/// A file that was begun is there after a loss of power only if its folder knows it.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    fs::File::open(folder)?.sync_all()
}
