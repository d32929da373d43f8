//! The tables that say who has a database, in PostgreSQL.

use std::{collections::BTreeMap, process};

use futures::{FutureExt, future::BoxFuture};
use rustls::ClientConfig;
use tokio_postgres::{Client, Config};

use crate::{
    backend::{Announcement, Found, Keeper, RemoteError, Replica, Taken, application, host},
    error::SqlError,
    postgres::link::{Driven, answered, connect},
    value::Row,
};

/// The row of the holder, the files that all processes share, and the formats of the tables. What changes `epoch` locks the row
/// for that: `tables`.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS kubefold.holder (
    id integer PRIMARY KEY CHECK (id = 1),
    epoch bigint NOT NULL,
    beat bigint NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    since timestamptz NOT NULL,
    is_released boolean NOT NULL DEFAULT true,
    number bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS kubefold.files (name text PRIMARY KEY, content bytea NOT NULL);
CREATE TABLE IF NOT EXISTS kubefold.formats (tables text PRIMARY KEY, format bigint NOT NULL);
INSERT INTO kubefold.holder VALUES (1, 0, 0, '', 0, now()) ON CONFLICT DO NOTHING;
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
/// Of a transaction that makes the tables: two processes that start at once do not both.
const TABLES_LOCK: &str = "SELECT pg_advisory_xact_lock(7310312304487263332)";
/// Of the row of the holder.
pub(super) const FOUND: &str = "SELECT epoch, beat, host, pid,
    to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), is_released FROM kubefold.holder";
const TAKE: &str = "UPDATE kubefold.holder SET epoch = greatest(epoch, $1) + 1, beat = greatest(beat, $2) + 1,
    host = $3, pid = $4, since = now(), is_released = false RETURNING epoch, beat, number";
const BEAT: &str = "UPDATE kubefold.holder SET beat = beat + 1, number = greatest(number, $2)
    WHERE epoch = $1 AND NOT is_released RETURNING beat, number";
const RELEASE: &str = "UPDATE kubefold.holder SET is_released = true WHERE epoch = $1";
/// Ends what a process left, or has: a transaction of one that hangs keeps the row locked.
const END: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid()";
const ANNOUNCE: &str = "INSERT INTO kubefold.replicas VALUES ($1, $2, $3, $4, $5, $6, now())
    ON CONFLICT (id) DO UPDATE SET address = excluded.address, epoch = excluded.epoch, seen = excluded.seen";
/// The seconds are those of `remote::replicas::LIFE`. Whoever had the database before, and died, is left out.
const REPLICAS: &str = "SELECT r.id, r.address, r.host, r.pid, r.version, r.epoch = h.epoch AND NOT h.is_released,
        greatest(0, extract(epoch FROM now() - r.seen))::float8
    FROM kubefold.replicas r CROSS JOIN kubefold.holder h
    WHERE r.seen > now() - interval '15 seconds' AND r.epoch IN (0, h.epoch) ORDER BY r.address, r.id";
const FORGET: &str = "DELETE FROM kubefold.replicas WHERE id = $1 OR seen < now() - interval '1 hour'";
const FILES: &str = "SELECT name, content FROM kubefold.files";

/// Which data it is: the cluster, its history (a standby that takes over, and a recovery to a point in time, begin a new
/// one), and the table (a dump that is loaded makes another).
pub fn identity_of(table: &str) -> String {
    format!(
        "SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
            (SELECT timeline_id FROM pg_control_checkpoint()), '{table}'::regclass::oid)"
    )
}

/// A connection to the tables.
pub(crate) async fn keeper(config: &Config, tls: &ClientConfig) -> Result<Box<dyn Keeper>, SqlError> {
    Ok(Box::new(connect(config, tls).await?))
}

impl Keeper for Driven {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn prepare<'a>(&'a self, schemas: &'a [&'a str]) -> BoxFuture<'a, Result<(), RemoteError>> {
        prepare(&self.client, schemas).boxed()
    }

    fn found(&self) -> BoxFuture<'_, Result<Found, SqlError>> {
        async { Found::of(Row(&self.client.query_one(FOUND, &[]).await?)) }.boxed()
    }

    fn identity(&self) -> BoxFuture<'_, Result<String, SqlError>> {
        async { Ok(self.client.query_one(&identity_of("kubefold.holder"), &[]).await?.try_get(0)?) }.boxed()
    }

    fn end_others(&self, epoch: i64) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            self.client.execute(END, &[&application(epoch)]).await?;
            Ok(())
        }
        .boxed()
    }

    fn lock(&self) -> BoxFuture<'_, Result<Found, SqlError>> {
        async {
            self.client.batch_execute("BEGIN").await?;
            Found::of(Row(&self.client.query_one(&format!("{FOUND} FOR UPDATE"), &[]).await?))
        }
        .boxed()
    }

    fn undo(&self) -> BoxFuture<'_, Result<(), SqlError>> {
        async { Ok(self.client.batch_execute("ROLLBACK").await?) }.boxed()
    }

    fn take(&self, epoch: i64, beat: i64) -> BoxFuture<'_, Result<Taken, SqlError>> {
        async move {
            let row = self.client.query_one(TAKE, &[&epoch, &beat, &host(), &i64::from(process::id())]).await?;
            let taken = Taken { epoch: row.try_get(0)?, beat: row.try_get(1)?, number: row.try_get(2)? };
            let name = application(taken.epoch);
            self.client.batch_execute(&format!("SET application_name = '{name}'; COMMIT")).await?;
            Ok(taken)
        }
        .boxed()
    }

    fn beat(&self, epoch: i64, number: i64) -> BoxFuture<'_, Result<Option<(i64, i64)>, SqlError>> {
        async move {
            let row = self.client.query_opt(BEAT, &[&epoch, &number]).await?;
            row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
        }
        .boxed()
    }

    fn release(&self, epoch: i64) -> BoxFuture<'_, Result<(), SqlError>> {
        async move { Ok(self.client.execute(RELEASE, &[&epoch]).await.map(drop)?) }.boxed()
    }

    fn announce<'a>(&'a self, of: &'a Announcement, epoch: i64) -> BoxFuture<'a, Result<(), SqlError>> {
        async move {
            let Announcement { id, address, version } = of;
            let pid = i64::from(process::id());
            self.client.execute(ANNOUNCE, &[id, address, &host(), &pid, version, &epoch]).await?;
            Ok(())
        }
        .boxed()
    }

    fn forget<'a>(&'a self, id: Option<&'a str>) -> BoxFuture<'a, Result<(), SqlError>> {
        async move { Ok(self.client.execute(FORGET, &[&id]).await.map(drop)?) }.boxed()
    }

    fn replicas(&self) -> BoxFuture<'_, Result<Vec<Replica>, SqlError>> {
        async { self.client.query(REPLICAS, &[]).await?.iter().map(|row| Replica::of(Row(row))).collect() }.boxed()
    }

    fn files(&self) -> BoxFuture<'_, Result<BTreeMap<String, Vec<u8>>, SqlError>> {
        async {
            let rows = self.client.query(FILES, &[]).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        }
        .boxed()
    }
}

/// Makes the schemas and the tables.
async fn prepare(client: &Client, schemas: &[&str]) -> Result<(), RemoteError> {
    let is_made = "SELECT to_regclass('kubefold.holder') IS NOT NULL AND to_regclass('kubefold.files') IS NOT NULL
        AND to_regclass('kubefold.formats') IS NOT NULL AND to_regclass('kubefold.replicas') IS NOT NULL";
    for schema in schemas {
        make_schema(client, schema).await?;
    }
    let row = answered(async { Ok(client.query_one(is_made, &[]).await?) }).await?;
    if !row.try_get::<_, bool>(0).map_err(SqlError::from)? {
        let make = format!("BEGIN; {TABLES_LOCK}; {TABLES} COMMIT");
        answered(async { Ok(client.batch_execute(&make).await?) }).await?;
    }
    Ok(())
}

async fn make_schema(client: &Client, schema: &str) -> Result<(), RemoteError> {
    let standing = "SELECT current_user::text, current_database()::text, to_regnamespace($1) IS NOT NULL,
        coalesce(has_schema_privilege(to_regnamespace($1), 'CREATE'), false),
        has_database_privilege(current_database(), 'CREATE')";
    let row = answered(async { Ok(client.query_one(standing, &[&schema]).await?) }).await?;
    let sql = |error: tokio_postgres::Error| SqlError::from(error);
    let (user, database): (String, String) = (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
    let (exists, may_use, may_make) =
        (row.try_get(2).map_err(sql)?, row.try_get(3).map_err(sql)?, row.try_get(4).map_err(sql)?);
    let grant = match (exists, may_use, may_make) {
        (true, true, _) => return Ok(()),
        (true, false, _) => format!("GRANT ALL ON SCHEMA {schema} TO \"{user}\""),
        (false, _, false) => format!("GRANT CREATE ON DATABASE \"{database}\" TO \"{user}\""),
        (false, _, true) => {
            let make = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
            return Ok(answered(async { Ok(client.batch_execute(&make).await?) }).await?);
        }
    };
    Err(RemoteError::Rights { user, what: format!("the schema {schema}, or tables in it"), grant })
}
