//! The tables that say who has a database, in MySQL.

use std::{collections::BTreeMap, process, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    backend::{self, Announcement, Found, Keeper, Link as _, RemoteError, Replica, Taken, host},
    error::SqlError,
    mysql::{
        link::{Dialer, Link},
        tables::{FOUND, Tables},
        target::Target,
    },
    params,
};

/// The row of the holder, the epoch, the files that all processes share, and the formats of the tables. Names are compared by their
/// bytes.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS kubefold.epoch (id INT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS kubefold.holder (
    id INT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    beat BIGINT NOT NULL,
    host VARBINARY(255) NOT NULL,
    pid BIGINT NOT NULL,
    since DATETIME NOT NULL,
    is_released BOOLEAN NOT NULL,
    number BIGINT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS kubefold.files (
    name VARBINARY(255) NOT NULL PRIMARY KEY,
    content LONGBLOB NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS kubefold.formats (
    tables VARBINARY(255) NOT NULL PRIMARY KEY,
    format BIGINT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS kubefold.replicas (
    id VARBINARY(255) NOT NULL PRIMARY KEY,
    address VARBINARY(512) NOT NULL,
    host VARBINARY(255) NOT NULL,
    pid BIGINT NOT NULL,
    version VARBINARY(255) NOT NULL,
    epoch BIGINT NOT NULL,
    seen DATETIME(3) NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO kubefold.epoch VALUES (1, 0);
INSERT IGNORE INTO kubefold.holder VALUES (1, 0, 0, '', 0, UTC_TIMESTAMP(), 1, 0);
";
/// How many of them there are.
const TABLES_COUNT: i64 = 5;
const TABLES_MADE: &str =
    "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN
    ('kubefold_epoch', 'kubefold_holder', 'kubefold_files', 'kubefold_formats', 'kubefold_replicas')";
const ROWS_MADE: &str = "SELECT (SELECT count(*) FROM kubefold.epoch) + (SELECT count(*) FROM kubefold.holder)";
const LOCK: &str = "SELECT 1 FROM kubefold.epoch WHERE id = 1 FOR UPDATE";
const TAKE_EPOCH: &str = "UPDATE kubefold.epoch SET epoch = GREATEST(epoch, ?1) + 1 WHERE id = 1";
const TAKE: &str = "UPDATE kubefold.holder SET epoch = (SELECT e.epoch FROM kubefold.epoch e WHERE e.id = 1),
    beat = GREATEST(beat, ?1) + 1, host = ?2, pid = ?3, since = UTC_TIMESTAMP(), is_released = 0 WHERE id = 1";
const TAKEN: &str = "SELECT epoch, beat, number FROM kubefold.holder WHERE id = 1";
const BEAT: &str = "UPDATE kubefold.holder SET beat = beat + 1, number = GREATEST(number, ?2)
    WHERE id = 1 AND epoch = ?1 AND NOT is_released";
const BEATEN: &str = "SELECT beat, number FROM kubefold.holder WHERE id = 1 AND epoch = ?1";
const RELEASE: &str = "UPDATE kubefold.holder SET is_released = 1 WHERE id = 1 AND epoch = ?1";
const ANNOUNCE: &str = "INSERT INTO kubefold.replicas VALUES (?1, ?2, ?3, ?4, ?5, ?6, UTC_TIMESTAMP(3))
    ON CONFLICT (id) DO UPDATE SET address = excluded.address, epoch = excluded.epoch, seen = excluded.seen";
/// The seconds are those of `remote::replicas::LIFE`. Whoever had the database before, and died, is left out.
const REPLICAS: &str = "SELECT r.id, r.address, r.host, r.pid, r.version, r.epoch = h.epoch AND NOT h.is_released,
        GREATEST(0, TIMESTAMPDIFF(MICROSECOND, r.seen, UTC_TIMESTAMP(3))) / 1e6
    FROM kubefold.replicas r CROSS JOIN kubefold.holder h
    WHERE r.seen > UTC_TIMESTAMP(3) - INTERVAL 15 SECOND AND r.epoch IN (0, h.epoch) ORDER BY r.address, r.id";
const FORGET: &str = "DELETE FROM kubefold.replicas WHERE id = ?1 OR seen < UTC_TIMESTAMP(3) - INTERVAL 1 HOUR";
const FILES: &str = "SELECT name, content FROM kubefold.files";
/// Units: bytes. What a record, such as an object that is being written, can need in a packet.
const PACKET_BYTES_MIN: i64 = 8 << 20;

/// Which data it is: the server, and when the table was made. A dump that is loaded makes another; a replica that takes over is
/// another server.
pub fn identity_of(table: &str) -> String {
    format!(
        "SELECT CONCAT_WS('/', @@server_id /*!80000 , @@server_uuid */ , UNIX_TIMESTAMP(create_time))
            FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{table}'"
    )
}

/// A connection to the tables, which a thread of its own waits for.
struct Asked(Arc<Mutex<Tables>>);

/// A connection to the tables. Called where a runtime is.
pub(crate) async fn keeper(target: &Arc<Target>) -> Result<Box<dyn Keeper>, SqlError> {
    let dialer = Dialer::new(Arc::clone(target), Handle::current());
    let dialled = spawn_blocking(move || dialer.tables(&[])).await;
    let tables = dialled.unwrap_or_else(|error| Err(SqlError::away(error.to_string())))?;
    Ok(Box::new(Asked(Arc::new(Mutex::new(tables)))))
}

impl Asked {
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tables) -> Result<T, SqlError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, SqlError>> {
        let tables = Arc::clone(&self.0);
        async move {
            let asked = spawn_blocking(move || work(&tables.lock())).await;
            asked.unwrap_or_else(|error| Err(SqlError::away(error.to_string())))
        }
        .boxed()
    }
}

impl Keeper for Asked {
    fn is_closed(&self) -> bool {
        // Somebody who does not wait any more has asked something that is not answered.
        self.0.try_lock().is_none_or(|tables| tables.is_ended())
    }

    fn prepare<'a>(&'a self, _: &'a [&'a str]) -> BoxFuture<'a, Result<(), RemoteError>> {
        async {
            let prepared = self.ask(|tables| Ok(prepare(tables))).await;
            prepared?
        }
        .boxed()
    }

    fn found(&self) -> BoxFuture<'_, Result<Found, SqlError>> {
        self.ask(backend::Link::found)
    }

    fn identity(&self) -> BoxFuture<'_, Result<String, SqlError>> {
        self.ask(|tables| {
            let identity = tables.row(&identity_of("kubefold_epoch"), &[], |row| row.get(0))?;
            identity.ok_or_else(|| SqlError::of_value("the table kubefold_epoch is not there"))
        })
    }

    fn end_others(&self, epoch: i64) -> BoxFuture<'_, Result<(), SqlError>> {
        self.ask(move |tables| tables.with(|link| link.end_others(epoch, |_| true)))
    }

    fn lock(&self) -> BoxFuture<'_, Result<Found, SqlError>> {
        self.ask(|tables| {
            tables.lead("START TRANSACTION");
            tables.row(LOCK, &[], |_| Ok(()))?;
            let found = tables.row(&format!("{FOUND} FOR UPDATE"), &[], Found::of)?;
            found.ok_or_else(|| SqlError::of_value("the table kubefold_holder has no row"))
        })
    }

    fn undo(&self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.ask(|tables| tables.batch("ROLLBACK"))
    }

    fn take(&self, epoch: i64, beat: i64) -> BoxFuture<'_, Result<Taken, SqlError>> {
        self.ask(move |tables| {
            tables.execute(TAKE_EPOCH, params![epoch])?;
            tables.execute(TAKE, params![beat, &host(), i64::from(process::id())])?;
            let taken = |row: crate::Row<'_>| Ok(Taken { epoch: row.get(0)?, beat: row.get(1)?, number: row.get(2)? });
            let taken = tables.row(TAKEN, &[], taken)?.ok_or_else(SqlError::ended)?;
            backend::Link::commit(tables)?;
            // Whoever takes it next ends this connection, too.
            tables.with(|link| link.name(taken.epoch).map(drop))?;
            Ok(taken)
        })
    }

    fn beat(&self, epoch: i64, number: i64) -> BoxFuture<'_, Result<Option<(i64, i64)>, SqlError>> {
        self.ask(move |tables| match tables.execute(BEAT, params![epoch, number])? {
            0 => Ok(None),
            _ => tables.row(BEATEN, params![epoch], |row| Ok((row.get(0)?, row.get(1)?))),
        })
    }

    fn release(&self, epoch: i64) -> BoxFuture<'_, Result<(), SqlError>> {
        self.ask(move |tables| tables.execute(RELEASE, params![epoch]).map(drop))
    }

    fn announce<'a>(&'a self, of: &'a Announcement, epoch: i64) -> BoxFuture<'a, Result<(), SqlError>> {
        let Announcement { id, address, version } = of.clone();
        self.ask(move |tables| {
            let (host, pid) = (host(), i64::from(process::id()));
            tables.execute(ANNOUNCE, params![&id, &address, &host, pid, &version, epoch]).map(drop)
        })
    }

    fn forget<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<(), SqlError>> {
        let id = id.map(str::to_owned);
        self.ask(move |tables| tables.execute(FORGET, params![id.as_deref()]).map(drop))
    }

    fn replicas(&self) -> BoxFuture<'_, Result<Vec<Replica>, SqlError>> {
        self.ask(|tables| all(tables, REPLICAS, Replica::of))
    }

    fn files(&self) -> BoxFuture<'_, Result<BTreeMap<String, Vec<u8>>, SqlError>> {
        self.ask(|tables| {
            let files: Vec<(String, Vec<u8>)> = all(tables, FILES, |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(files.into_iter().collect())
        })
    }
}

fn all<T>(
    tables: &Tables,
    statement: &str,
    read: impl Fn(crate::Row<'_>) -> Result<T, SqlError>,
) -> Result<Vec<T>, SqlError> {
    let mut all = Vec::new();
    tables.each(statement, &[], &mut |row| {
        all.push(read(row)?);
        Ok(())
    })?;
    Ok(all)
}

/// Makes the tables.
fn prepare(tables: &Tables) -> Result<(), RemoteError> {
    let settings = tables.with(Link::settings)?;
    if settings.packet_bytes_max < PACKET_BYTES_MIN {
        let has = settings.packet_bytes_max;
        let why = format!("it takes packets of up to {has} bytes; set its max_allowed_packet higher, such as to 16M");
        return Err(SqlError::of_value(why).into());
    }
    let number = |statement: &str| tables.row(statement, &[], |row| row.get::<i64>(0));
    if number(TABLES_MADE)? == Some(TABLES_COUNT) && number(ROWS_MADE)? == Some(2) {
        return Ok(());
    }
    match tables.batch(TABLES) {
        Err(error) if error.is_access() => Err(refused(tables)?),
        made => Ok(made?),
    }
}

/// Who may not make them, and what to do about it.
fn refused(tables: &Tables) -> Result<RemoteError, SqlError> {
    let who = "SELECT CURRENT_USER(), DATABASE()";
    let who = tables.row(who, &[], |row| Ok((row.get::<String>(0)?, row.get::<String>(1)?)))?;
    let (user, database) = who.ok_or_else(SqlError::ended)?;
    let (name, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
    let grant = format!("GRANT ALL ON `{database}`.* TO '{name}'@'{host}'");
    Ok(RemoteError::Rights { what: format!("tables in the database {database}"), user: user.clone(), grant })
}
