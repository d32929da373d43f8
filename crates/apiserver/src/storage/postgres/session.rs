//! The connection of the writer's thread: its lock, its tables, and what a batch writes.

use std::{sync::Arc, time::Duration};

use postgres::{
    Client, Config, NoTls,
    config::{Host, SslMode},
    fallible_iterator::FallibleIterator,
};
use rustls::ClientConfig;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::storage::{
    Bounds, StorageError,
    cache::Cache,
    postgres::error::{PostgresError, of_commit, of_statement},
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
/// What a session waits for the lock, or for a row, at most.
const SESSION: &str = "
SET lock_timeout = '10s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local');
";
/// Which data it is: the cluster, its history (a standby that takes over, and a recovery to a point in time, begin a new
/// one), and the table (a dump that is loaded makes another).
const IDENTITY: &str = "
SELECT concat_ws('/',
    (SELECT system_identifier FROM pg_control_system()),
    (SELECT timeline_id FROM pg_control_checkpoint()),
    'kubefold_head'::regclass::oid)
";
/// For a connection to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that is gone without a word is given up after so long.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);

/// One server's session. It connects again after it lost its connection.
pub struct Session {
    config: Config,
    tls: ClientConfig,
    client: Option<Client>,
    /// Of this server: every other one has another.
    epoch: i64,
    /// As the head has it, as far as is known.
    revision: i64,
    /// What the head has if a batch whose outcome is not known is stored.
    doubtful: Option<i64>,
}

impl Session {
    /// Connects, and reads all that is there. Blocks.
    pub(super) fn open(mut config: Config, tls: ClientConfig, bounds: Bounds) -> Result<Opened<Self>, PostgresError> {
        config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(GONE_TIMEOUT);
        let sql = |error: postgres::Error| PostgresError::of(&error);
        let mut client = connect(&config, &tls).map_err(sql)?;
        prepare(&mut client)?;
        client.batch_execute(LOCK).map_err(sql)?;
        let identity: String = client.query_one(IDENTITY, &[]).and_then(|row| row.try_get(0)).map_err(sql)?;
        let head = begin_epoch(&mut client, &identity).map_err(sql)?;
        let mut replay = Replay::new(unsigned(head.floor), bounds);
        let none = std::iter::empty::<i64>();
        let mut rows = client
            .query_raw("SELECT revision, key, value FROM kubefold_changes ORDER BY revision", none)
            .map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            let revision: i64 = row.try_get(0).map_err(sql)?;
            replay.take(unsigned(revision), row.try_get(1).map_err(sql)?, row.try_get(2).map_err(sql)?)?;
        }
        drop(rows);
        let Replayed { state, dead } = replay.end(unsigned(head.revision))?;
        let log =
            Self { config, tls, client: Some(client), epoch: head.epoch, revision: head.revision, doubtful: None };
        Ok(Opened { log, cache: Arc::new(Cache::new(state, bounds)), dead })
    }

    /// The connection, made again where it is lost: with the lock, and the head as this server left it.
    fn client(&mut self) -> Result<&mut Client, StorageError> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = None;
            let sql = |error: postgres::Error| of_statement(&error);
            let mut client = connect(&self.config, &self.tls).map_err(sql)?;
            client.batch_execute(SESSION).and_then(|()| client.batch_execute(LOCK)).map_err(sql)?;
            let row = client.query_one("SELECT epoch, revision FROM kubefold_head", &[]).map_err(sql)?;
            let epoch: i64 = row.try_get(0).map_err(sql)?;
            if epoch != self.epoch {
                return Err(superseded());
            }
            let revision: i64 = row.try_get(1).map_err(sql)?;
            if revision != self.revision && Some(revision) != self.doubtful {
                return Err(superseded());
            }
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(superseded)
    }
}

impl Log for Session {
    fn store(&mut self, batch: Stored) -> Result<(), StorageError> {
        let (epoch, before) = (self.epoch, self.revision);
        let newest = batch.changes.last().map_or(before, |change| signed(change.revision));
        let mut transaction = self.client()?.transaction().map_err(|error| of_statement(&error))?;
        let set = "UPDATE kubefold_head SET revision = $1, floor = $2 WHERE revision = $3 AND epoch = $4";
        let changed = transaction.execute(set, &[&newest, &signed(batch.floor), &before, &epoch]);
        if changed.map_err(|error| of_statement(&error))? != 1 {
            return Err(superseded());
        }
        let revisions: Vec<i64> = batch.changes.iter().map(|change| signed(change.revision)).collect();
        let keys: Vec<&str> = batch.changes.iter().map(|change| change.key()).collect();
        let values: Vec<Option<&[u8]>> =
            batch.changes.iter().map(|change| change.after.as_ref().map(|record| &*record.value)).collect();
        let insert = "INSERT INTO kubefold_changes SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])";
        let dead: Vec<i64> = batch.dead.iter().copied().map(signed).collect();
        transaction
            .execute(insert, &[&revisions, &keys, &values])
            .and_then(|_| transaction.execute("DELETE FROM kubefold_changes WHERE revision = ANY($1)", &[&dead]))
            .map_err(|error| of_statement(&error))?;
        let committed = transaction.commit().map_err(|error| of_commit(&error));
        match &committed {
            Ok(()) => self.revision = newest,
            Err(StorageError::Unknown(_)) => {
                // A connection that still stands may belong to a session that is about to end.
                self.client = None;
                self.doubtful = Some(newest);
            }
            Err(_) => {}
        }
        committed
    }

    fn settle(&mut self) -> Result<bool, StorageError> {
        let row = self.client()?.query_one("SELECT revision FROM kubefold_head", &[]);
        let found: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| of_statement(&error))?;
        let is_stored = self.doubtful == Some(found);
        self.doubtful = None;
        self.revision = found;
        Ok(is_stored)
    }

    fn probe(&mut self) -> Result<(), StorageError> {
        let epoch = self.epoch;
        let set = "UPDATE kubefold_head SET floor = floor WHERE epoch = $1";
        match self.client()?.execute(set, &[&epoch]).map_err(|error| of_statement(&error))? {
            1 => Ok(()),
            _ => Err(superseded()),
        }
    }
}

fn superseded() -> StorageError {
    StorageError::Unavailable("another process has served the database since; start this one again".to_owned())
}

fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// Connects, with TLS unless that is forbidden or the socket is this machine's.
fn connect(config: &Config, tls: &ClientConfig) -> Result<Client, postgres::Error> {
    let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    if is_local || config.get_ssl_mode() == SslMode::Disable {
        return config.connect(NoTls);
    }
    config.connect(MakeRustlsConnect::new(tls.clone()))
}

/// Sets the session up and makes the tables.
fn prepare(client: &mut Client) -> Result<(), PostgresError> {
    let sql = |error: postgres::Error| PostgresError::of(&error);
    client.batch_execute(SESSION).map_err(sql)?;
    let mut transaction = client.transaction().map_err(sql)?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&TABLES_LOCK]).map_err(sql)?;
    transaction.batch_execute(TABLES).map_err(sql)?;
    let row = transaction.query_one("SELECT format FROM kubefold_head", &[]).map_err(sql)?;
    let format: i32 = row.try_get(0).map_err(sql)?;
    if format > FORMAT {
        return Err(PostgresError::Newer { format, known: FORMAT });
    }
    transaction.commit().map_err(sql)
}

/// The row that gives revisions out.
struct Head {
    epoch: i64,
    revision: i64,
    floor: i64,
}

/// Makes the row this server's. Where the data is not what was served last, its revision is raised, and all before is
/// forgotten.
fn begin_epoch(client: &mut Client, identity: &str) -> Result<Head, postgres::Error> {
    let begin = "
        UPDATE kubefold_head SET
            epoch = epoch + 1,
            identity = $1,
            revision = CASE WHEN identity = $1 OR revision = 1 THEN revision ELSE revision + $2 END,
            floor = CASE WHEN identity = $1 OR revision = 1 THEN floor ELSE revision + $2 END
        RETURNING epoch, revision, floor";
    let row = client.query_one(begin, &[&identity, &signed(RESTORED_BUMP)])?;
    Ok(Head { epoch: row.try_get(0)?, revision: row.try_get(1)?, floor: row.try_get(2)? })
}
