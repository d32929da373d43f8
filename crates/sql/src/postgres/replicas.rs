//! The processes that use one database, and where each of them can be reached. A row is counted while its process renews it.
//!
//! Nothing depends on these rows but where a request is sent: who has the database, the lease alone says.

use std::{process, time::Duration};

use tokio::time::Instant;
use tokio_postgres::Client;

use crate::error::SqlError;

pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS kubefold.replicas (
    id text PRIMARY KEY,
    address text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    version text NOT NULL,
    epoch bigint NOT NULL,
    seen timestamptz NOT NULL
);
";
const ANNOUNCE: &str = "INSERT INTO kubefold.replicas VALUES ($1, $2, $3, $4, $5, $6, now())
    ON CONFLICT (id) DO UPDATE SET address = excluded.address, epoch = excluded.epoch, seen = excluded.seen";
/// By the clock of the server alone. The seconds are those of [`LIFE`]. Whoever had the database before, and died, is left out.
const ALL: &str = "SELECT r.id, r.address, r.host, r.pid, r.version, r.epoch = h.epoch AND NOT h.is_released,
        greatest(0, extract(epoch FROM now() - r.seen))::float8
    FROM kubefold.replicas r CROSS JOIN kubefold.holder h
    WHERE r.seen > now() - interval '15 seconds' AND r.epoch IN (0, h.epoch) ORDER BY r.address, r.id";
pub(super) const FORGET: &str = "DELETE FROM kubefold.replicas WHERE id = $1";
pub(super) const FORGET_OLD: &str = "DELETE FROM kubefold.replicas WHERE seen < now() - interval '1 hour'";
/// How often a process renews its row.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// How long a row counts after its process renewed it last.
pub(super) const LIFE: Duration = Duration::from_secs(15);

/// What a process says of itself to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Which process it is; no other one has it.
    pub id: String,
    /// Where the others reach it: `host:port`.
    pub address: String,
    /// Its version.
    pub version: String,
}

/// A process that uses the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Which process it is.
    pub id: String,
    /// Where the others reach it: `host:port`.
    pub address: String,
    /// The name of its machine, in Kubernetes its pod.
    pub host: String,
    /// Its number there.
    pub pid: i64,
    /// Its version.
    pub version: String,
    /// It has the database.
    pub is_holder: bool,
    /// How long ago it renewed its row.
    pub seen_ago: Duration,
}

/// What was read of all processes, and when.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) at: Instant,
    pub(super) replicas: Vec<Replica>,
}

impl Known {
    pub(super) fn nobody() -> Self {
        Self { at: Instant::now(), replicas: Vec::new() }
    }

    /// Those that count now.
    pub(super) fn now(&self) -> Vec<Replica> {
        let older = |replica: &Replica| Replica { seen_ago: replica.seen_ago + self.at.elapsed(), ..replica.clone() };
        self.replicas.iter().map(older).filter(|replica| replica.seen_ago < LIFE).collect()
    }
}

/// Renews the row of this process, which has an epoch, or waits for one (0).
///
/// Cancel: the row is renewed, or not.
pub(super) async fn announce(client: &Client, of: &Announcement, epoch: i64) -> Result<(), SqlError> {
    let Announcement { id, address, version } = of;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let pid = i64::from(process::id());
    client.execute(ANNOUNCE, &[id, address, &host, &pid, version, &epoch]).await?;
    Ok(())
}

/// The rows that count.
pub(super) async fn all(client: &Client) -> Result<Vec<Replica>, SqlError> {
    let rows = client.query(ALL, &[]).await?;
    let replica = |row: &tokio_postgres::Row| {
        Ok(Replica {
            id: row.try_get(0)?,
            address: row.try_get(1)?,
            host: row.try_get(2)?,
            pid: row.try_get(3)?,
            version: row.try_get(4)?,
            is_holder: row.try_get(5)?,
            seen_ago: Duration::try_from_secs_f64(row.try_get(6)?).unwrap_or_default(),
        })
    };
    rows.iter().map(replica).collect()
}
