//! The connection of the writer's thread: its lock, its tables, and what a batch writes.

use std::{sync::Arc, time::Duration};

use kubefold_sql::{
    Failure,
    mysql::{Dialer, Link, Settings, identity_of},
};
use mysql_async::{Params, Value};

use crate::storage::{
    Bounds, Change, StorageError,
    cache::Cache,
    known::{Known, superseded},
    mysql::error::{MysqlError, of_commit},
    replay::{RESTORED_BUMP, Replay, Replayed},
    writer::{Log, Opened, Stored},
};

const FORMAT: u32 = 1;
/// Its row gives revisions out. `probes` is there to be changed.
const HEAD: &str = "
CREATE TABLE IF NOT EXISTS kubefold_head (
    id INT NOT NULL PRIMARY KEY,
    format INT UNSIGNED NOT NULL,
    epoch BIGINT UNSIGNED NOT NULL,
    identity VARBINARY(255) NOT NULL,
    revision BIGINT UNSIGNED NOT NULL,
    floor BIGINT UNSIGNED NOT NULL,
    probes BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB";
/// A row without a value is a deletion: it has every change after `floor`, and of those before what made the value of a key at
/// `floor`.
const CHANGES: &str = "
CREATE TABLE IF NOT EXISTS kubefold_changes (
    revision BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    name VARBINARY(8192) NOT NULL,
    value LONGBLOB
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC";
/// A user-level lock of the one server of a database; the names of these locks are those of the whole server. A process that was
/// killed has it until its connection is gone.
const LOCK: &str = "CONCAT('kubefold/', SHA1(DATABASE()))";
/// Changes of one statement.
const ROWS_MAX: usize = 512;
/// Units: bytes. Of the values of one statement, unless one value alone is longer.
const ROWS_BYTES_MAX: usize = 4 << 20;
/// Units: bytes. What a packet has beside its values, at most.
const PACKET_ROOM: usize = 128 << 10;

/// One server's session. It connects again after it lost its connection.
pub struct Session {
    dialer: Dialer,
    link: Option<Held>,
    /// The server's number of the last connection that had the lock.
    last_id: u64,
    /// Of a value, and of the packet that has it.
    packet_bytes_min: usize,
    /// Of this server: every other one has another.
    epoch: u64,
    known: Known<u64>,
}

/// A connection with the lock.
struct Held {
    link: Link,
    /// Units: bytes. Of the values of one statement.
    rows_bytes_max: usize,
}

impl Session {
    /// Connects, and reads all that is there. Blocks.
    pub(super) fn open(dialer: Dialer, bounds: Bounds) -> Result<Opened<Self>, MysqlError> {
        let packet_bytes_min = bounds.value_bytes_max + PACKET_ROOM;
        let mut link = dialer.connect()?;
        let server = link.settings()?;
        let rows_bytes_max = rows_bytes_max(&server, packet_bytes_min)?;
        if !lock(&mut link, None, dialer.lock_wait())? {
            return Err(MysqlError::InUse);
        }
        prepare(&mut link)?;
        let head = begin_epoch(&mut link)?;
        let (mut replay, mut gap) = (Replay::new(head.floor, bounds), None);
        link.each("SELECT revision, name, value FROM kubefold_changes ORDER BY revision", |mut row| {
            let (revision, key) = (row.take(0)?, row.take::<String>(1)?);
            let value: Option<Vec<u8>> = row.take(2)?;
            if gap.is_none() {
                gap = replay.take(revision, &key, value.as_deref()).err();
            }
            Ok(())
        })?;
        if let Some(gap) = gap {
            return Err(gap.into());
        }
        let Replayed { state, dead } = replay.end(head.revision)?;
        let log = Self {
            dialer,
            link: Some(Held { link, rows_bytes_max }),
            last_id: server.connection_id,
            packet_bytes_min,
            epoch: head.epoch,
            known: Known::new(head.revision),
        };
        Ok(Opened { log, cache: Arc::new(Cache::new(state, bounds)), dead })
    }

    /// The connection, made again where it is lost: with the lock, and the head as this server left it.
    fn held(&mut self) -> Result<&mut Held, StorageError> {
        if self.link.as_mut().is_none_or(|held| held.link.is_lost()) {
            self.link = None;
            let mut link = self.dialer.connect()?;
            let server = link.settings()?;
            let rows_bytes_max = rows_bytes_max(&server, self.packet_bytes_min);
            let rows_bytes_max = rows_bytes_max.map_err(|error| StorageError::Unavailable(error.to_string()))?;
            if !lock(&mut link, Some(self.last_id), self.dialer.lock_wait())? {
                return Err(StorageError::Unavailable("another process serves the database".to_owned()));
            }
            let head = head_of(&mut link)?;
            if head.epoch != self.epoch || !self.known.may_be(head.revision) {
                return Err(superseded());
            }
            self.last_id = server.connection_id;
            self.link = Some(Held { link, rows_bytes_max });
        }
        self.link.as_mut().ok_or_else(superseded)
    }

    /// Has the head at a revision, and does something else in the same transaction.
    fn transaction(
        &mut self,
        newest: u64,
        floor: u64,
        work: impl FnOnce(&mut Held) -> Result<(), Failure>,
    ) -> Result<(), StorageError> {
        let (epoch, before) = (self.epoch, self.known.revision());
        let held = self.held()?;
        let store = || -> Result<(), StorageError> {
            held.link.execute("START TRANSACTION")?;
            let set = format!(
                "UPDATE kubefold_head SET revision = {newest}, floor = {floor} \
                 WHERE id = 1 AND revision = {before} AND epoch = {epoch}"
            );
            if held.link.execute(&set)? != 1 {
                return Err(superseded());
            }
            work(held)?;
            held.link.execute("COMMIT").map(drop).map_err(of_commit)
        };
        let stored = store();
        if stored.is_err() {
            // Its transaction may be open, and it may stand although its session is about to end.
            self.link = None;
        }
        stored
    }
}

impl Held {
    fn write(&mut self, batch: &Stored) -> Result<(), Failure> {
        let mut rest = &batch.changes[..];
        while !rest.is_empty() {
            let (rows, after) = rest.split_at(rows_of(rest, self.rows_bytes_max));
            self.link.execute_with(&insert_of(rows.len()), values_of(rows))?;
            rest = after;
        }
        if !batch.dead.is_empty() {
            let dead: Vec<String> = batch.dead.iter().map(u64::to_string).collect();
            self.link.execute(&format!("DELETE FROM kubefold_changes WHERE revision IN ({})", dead.join(",")))?;
        }
        Ok(())
    }
}

impl Drop for Session {
    /// In the writer's thread: whoever opens the database next is not refused for this session's lock.
    fn drop(&mut self) {
        if let Some(held) = self.link.take() {
            held.link.end();
        }
    }
}

impl Log for Session {
    fn store(&mut self, batch: Stored) -> Result<(), StorageError> {
        let newest = batch.changes.last().map_or_else(|| self.known.revision(), |change| change.revision);
        let stored = self.transaction(newest, batch.floor, |held| held.write(&batch));
        self.known.tried(newest, &stored);
        stored
    }

    fn settle(&mut self) -> Result<bool, StorageError> {
        let found = head_of(&mut self.held()?.link)?.revision;
        Ok(self.known.settle(found))
    }

    fn raise(&mut self, to: u64) -> Result<(), StorageError> {
        self.transaction(to, to, |_| Ok(()))?;
        self.known.tried(to, &Ok(()));
        Ok(())
    }

    fn probe(&mut self) -> Result<(), StorageError> {
        let set = format!("UPDATE kubefold_head SET probes = probes + 1 WHERE id = 1 AND epoch = {}", self.epoch);
        match self.held()?.link.execute(&set)? {
            1 => Ok(()),
            _ => Err(superseded()),
        }
    }
}

/// How many of the first changes one statement takes: a power of two, so that few statements are prepared.
fn rows_of(changes: &[Arc<Change>], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fitting = changes.iter().take(ROWS_MAX).take_while(|change| {
        bytes += change.key().len() + change.after.as_ref().map_or(0, |record| record.value.len());
        bytes <= bytes_max
    });
    let fitting = fitting.count().max(1);
    1 << fitting.ilog2()
}

fn insert_of(rows: usize) -> String {
    format!("INSERT INTO kubefold_changes (revision, name, value) VALUES {}", vec!["(?,?,?)"; rows].join(","))
}

fn values_of(changes: &[Arc<Change>]) -> Params {
    let row = |change: &Arc<Change>| {
        let value = change.after.as_ref().map_or(Value::NULL, |record| Value::Bytes(record.value.to_vec()));
        [Value::UInt(change.revision), Value::Bytes(change.key().into()), value]
    };
    Params::Positional(changes.iter().flat_map(row).collect())
}

/// Units: bytes. Of the values of one statement.
///
/// Errors: not every value has room.
fn rows_bytes_max(server: &Settings, needs: usize) -> Result<usize, MysqlError> {
    match usize::try_from(server.packet_bytes_max).unwrap_or_default() {
        has if has < needs => Err(MysqlError::Packet { has, needs }),
        has => Ok(ROWS_BYTES_MAX.min(has - PACKET_ROOM)),
    }
}

/// Waits for the lock. An earlier connection of the same session that still has it is ended: the server may not have noticed
/// that it is gone, or work on what was sent by it.
///
/// `false`: another process has it.
fn lock(link: &mut Link, before: Option<u64>, wait: Duration) -> Result<bool, Failure> {
    if let Some(before) = before {
        let holder = link.row(&format!("SELECT IS_USED_LOCK({LOCK})"))?.map(|mut row| row.take::<Option<u64>>(0));
        if holder.transpose()?.flatten() == Some(before) {
            // It may end by itself meanwhile.
            let ended = link.execute(&format!("KILL CONNECTION {before}"));
            tracing::info!(connection = before, was_there = ended.is_ok(), "ended the connection that was lost");
        }
    }
    let taken = link.row(&format!("SELECT GET_LOCK({LOCK}, {})", wait.as_secs()))?;
    let taken = taken.map(|mut row| row.take::<Option<u64>>(0));
    Ok(taken.transpose()?.flatten() == Some(1))
}

/// Makes the tables.
fn prepare(link: &mut Link) -> Result<(), MysqlError> {
    link.execute(HEAD)?;
    match link.row("SELECT format FROM kubefold_head")?.map(|mut row| row.take::<u32>(0)).transpose()? {
        Some(format) if format > FORMAT => return Err(MysqlError::Newer { format, known: FORMAT }),
        Some(_) => {}
        None => drop(link.execute(&format!("INSERT INTO kubefold_head VALUES (1, {FORMAT}, 0, '', 1, 1, 0)"))?),
    }
    link.execute(CHANGES)?;
    Ok(())
}

/// The row that gives revisions out.
struct Head {
    epoch: u64,
    revision: u64,
    floor: u64,
}

/// Makes the row this server's. Where the data is not what was served last, its revision is raised, and all before is
/// forgotten.
fn begin_epoch(link: &mut Link) -> Result<Head, Failure> {
    let identity = link.row(&identity_of("kubefold_head"))?.map(|mut row| row.take::<Vec<u8>>(0)).transpose()?;
    let identity = identity.ok_or_else(|| Failure::of_value("the table kubefold_head is not there"))?;
    // MySQL executes assignments one after the other, each with what those before it have set.
    let begin = format!(
        "UPDATE kubefold_head SET
            floor = IF(identity = ? OR revision = 1, floor, revision + {RESTORED_BUMP}),
            revision = IF(identity = ? OR revision = 1, revision, revision + {RESTORED_BUMP}),
            identity = ?,
            epoch = epoch + 1
        WHERE id = 1"
    );
    let identity = Value::Bytes(identity);
    link.execute_with(&begin, Params::Positional(vec![identity.clone(), identity.clone(), identity]))?;
    head_of(link)
}

fn head_of(link: &mut Link) -> Result<Head, Failure> {
    let row = link.row("SELECT epoch, revision, floor FROM kubefold_head WHERE id = 1")?;
    let mut row = row.ok_or_else(|| Failure::of_value("the table kubefold_head has no row"))?;
    Ok(Head { epoch: row.take(0)?, revision: row.take(1)?, floor: row.take(2)? })
}
