//! The connection of the writer's thread: its lock, its tables, and what a batch writes.

use std::sync::Arc;

use kubefold_sql::{
    SqlError,
    postgres::{Dialer, Link, identity_of},
};
use tokio_postgres::{Row, types::ToSql};

use crate::storage::{
    Bounds, StorageError,
    cache::Cache,
    known::{Known, superseded},
    postgres::error::PostgresError,
    replay::{RESTORED_BUMP, Replay, Replayed},
    writer::{Log, Opened, Stored},
};

const FORMAT: i32 = 1;
/// The row of `kubefold_head` gives revisions out. A row of `kubefold_changes` without a value is a deletion: it has every
/// change after `floor`, and of those before what made the value of a key at `floor`.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS kubefold_head (
    id integer PRIMARY KEY CHECK (id = 1),
    format integer NOT NULL,
    epoch bigint NOT NULL,
    identity text NOT NULL,
    revision bigint NOT NULL,
    floor bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS kubefold_changes (
    revision bigint PRIMARY KEY,
    key text NOT NULL,
    value bytea
);
INSERT INTO kubefold_head VALUES (1, 1, 0, '', 1, 1) ON CONFLICT DO NOTHING;
";
/// Of a transaction that makes the tables: two servers that start at once do not both.
const TABLES_LOCK: i64 = 0x6b75_6265_666f_6c64;
/// The lock of the one server. A process that was killed has it until its connection is gone.
const LOCK: &str = "SELECT pg_advisory_lock('kubefold_head'::regclass::oid::bigint)";
/// Reading all that is there takes its time.
const SESSION: &str = "SET statement_timeout = 0";

/// One server's session. It connects again after it lost its connection.
pub struct Session {
    dialer: Dialer,
    link: Option<Link>,
    /// Of this server: every other one has another.
    epoch: i64,
    known: Known<i64>,
}

impl Session {
    /// Connects, and reads all that is there. Blocks.
    pub(super) fn open(dialer: Dialer, bounds: Bounds) -> Result<Opened<Self>, PostgresError> {
        let sql = |error: SqlError| PostgresError::of(&error);
        let link = dialer.connect().map_err(sql)?;
        prepare(&link)?;
        link.batch(LOCK).map_err(sql)?;
        let head = begin_epoch(&link).map_err(sql)?;
        let (mut replay, mut gap) = (Replay::new(unsigned(head.floor), bounds), None);
        let all = "SELECT revision, key, value FROM kubefold_changes ORDER BY revision";
        let read = link.each(&link.prepare(all).map_err(sql)?, &[], |row| {
            if gap.is_none() {
                gap = replay.take(unsigned(row.try_get(0)?), row.try_get(1)?, row.try_get(2)?).err();
            }
            Ok(())
        });
        read.map_err(sql)?;
        if let Some(gap) = gap {
            return Err(gap.into());
        }
        let Replayed { state, dead } = replay.end(unsigned(head.revision))?;
        let log = Self { dialer, link: Some(link), epoch: head.epoch, known: Known::new(head.revision) };
        Ok(Opened { log, cache: Arc::new(Cache::new(state, bounds)), dead })
    }

    /// The connection, made again where it is lost: with the lock, and the head as this server left it.
    fn link(&mut self) -> Result<&Link, StorageError> {
        if self.link.as_ref().is_none_or(Link::is_lost) {
            self.link = None;
            let sql = StorageError::from;
            let link = self.dialer.connect().map_err(sql)?;
            link.batch(SESSION).and_then(|()| link.batch(LOCK)).map_err(sql)?;
            let (epoch, revision) = head_of(&link).map_err(sql)?;
            if epoch != self.epoch || !self.known.may_be(revision) {
                return Err(superseded());
            }
            self.link = Some(link);
        }
        self.link.as_ref().ok_or_else(superseded)
    }

    /// Stores a batch in one transaction. `false`: another server has the database since.
    fn try_store(&mut self, batch: &Stored, newest: i64) -> Result<bool, StorageError> {
        let (epoch, before, floor) = (self.epoch, self.known.revision(), signed(batch.floor));
        let link = self.link()?;
        let revisions: Vec<i64> = batch.changes.iter().map(|change| signed(change.revision)).collect();
        let keys: Vec<&str> = batch.changes.iter().map(|change| change.key()).collect();
        let values: Vec<Option<&[u8]>> =
            batch.changes.iter().map(|change| change.after.as_ref().map(|record| &*record.value)).collect();
        let dead: Vec<i64> = batch.dead.iter().copied().map(signed).collect();
        let store = || {
            link.lead("BEGIN");
            let set = "UPDATE kubefold_head SET revision = ?1, floor = ?2 WHERE revision = ?3 AND epoch = ?4";
            if link.execute(&link.prepare(set)?, [newest, floor, before, epoch])? != 1 {
                link.batch("ROLLBACK")?;
                return Ok(false);
            }
            let insert = "INSERT INTO kubefold_changes SELECT * FROM unnest(?1::bigint[], ?2::text[], ?3::bytea[])";
            let columns: [&(dyn ToSql + Sync); 3] = [&revisions, &keys, &values];
            link.execute(&link.prepare(insert)?, columns)?;
            if !dead.is_empty() {
                link.execute(&link.prepare("DELETE FROM kubefold_changes WHERE revision = ANY(?1)")?, [&dead])?;
            }
            link.commit().map(|()| true)
        };
        let stored: Result<bool, SqlError> = store();
        if stored.is_err() {
            // A transaction may be left open, and a connection that still stands belong to a session that is about to end.
            self.link = None;
        }
        stored.map_err(StorageError::from)
    }
}

impl Drop for Session {
    /// In the writer's thread: whoever opens the database next is not refused for this session's lock.
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.end();
        }
    }
}

impl Log for Session {
    fn store(&mut self, batch: Stored) -> Result<(), StorageError> {
        let newest = batch.changes.last().map_or_else(|| self.known.revision(), |change| signed(change.revision));
        let stored =
            self.try_store(&batch, newest).and_then(|is_ours| if is_ours { Ok(()) } else { Err(superseded()) });
        self.known.tried(newest, &stored);
        stored
    }

    fn settle(&mut self) -> Result<bool, StorageError> {
        let (_, found) = head_of(self.link()?).map_err(StorageError::from)?;
        Ok(self.known.settle(found))
    }

    fn raise(&mut self, to: u64) -> Result<(), StorageError> {
        let (epoch, before, to) = (self.epoch, self.known.revision(), signed(to));
        let link = self.link()?;
        let set = "UPDATE kubefold_head SET revision = ?1, floor = ?1 WHERE revision = ?2 AND epoch = ?3";
        let raise = || link.execute(&link.prepare(set)?, [to, before, epoch]);
        if raise().map_err(StorageError::from)? != 1 {
            return Err(superseded());
        }
        self.known.tried(to, &Ok(()));
        Ok(())
    }

    fn probe(&mut self) -> Result<(), StorageError> {
        let epoch = self.epoch;
        let link = self.link()?;
        let set = || link.execute(&link.prepare("UPDATE kubefold_head SET floor = floor WHERE epoch = ?1")?, [epoch]);
        match set().map_err(StorageError::from)? {
            1 => Ok(()),
            _ => Err(superseded()),
        }
    }
}

fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// Sets the session up and makes the tables.
fn prepare(link: &Link) -> Result<(), PostgresError> {
    let sql = |error: SqlError| PostgresError::of(&error);
    let make = format!("{SESSION}; BEGIN; SELECT pg_advisory_xact_lock({TABLES_LOCK}); {TABLES}");
    link.batch(&make).map_err(sql)?;
    let format: i32 = first(link, "SELECT format FROM kubefold_head", |row| row.try_get(0)).map_err(sql)?;
    if format > FORMAT {
        return Err(PostgresError::Newer { format, known: FORMAT });
    }
    link.batch("COMMIT").map_err(sql)
}

/// The row that gives revisions out.
struct Head {
    epoch: i64,
    revision: i64,
    floor: i64,
}

/// Makes the row this server's. Where the data is not what was served last, its revision is raised, and all before is
/// forgotten.
fn begin_epoch(link: &Link) -> Result<Head, SqlError> {
    let identity: String = first(link, &identity_of("kubefold_head"), |row| row.try_get(0))?;
    let begin = "
        UPDATE kubefold_head SET
            epoch = epoch + 1,
            identity = ?1,
            revision = CASE WHEN identity = ?1 OR revision = 1 THEN revision ELSE revision + ?2 END,
            floor = CASE WHEN identity = ?1 OR revision = 1 THEN floor ELSE revision + ?2 END
        WHERE id = 1";
    let values: [&(dyn ToSql + Sync); 2] = [&identity, &signed(RESTORED_BUMP)];
    link.execute(&link.prepare(begin)?, values)?;
    first(link, "SELECT epoch, revision, floor FROM kubefold_head", |row| {
        Ok(Head { epoch: row.try_get(0)?, revision: row.try_get(1)?, floor: row.try_get(2)? })
    })
}

/// The epoch and the revision that it has.
fn head_of(link: &Link) -> Result<(i64, i64), SqlError> {
    first(link, "SELECT epoch, revision FROM kubefold_head", |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}

/// The only row of an answer.
fn first<T>(
    link: &Link,
    statement: &str,
    read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<T, SqlError> {
    let mut found = None;
    link.each(&link.prepare(statement)?, &[], |row| {
        found = Some(read(row)?);
        Ok(())
    })?;
    found.ok_or_else(|| SqlError::of_value("the table kubefold_head has no row"))
}
