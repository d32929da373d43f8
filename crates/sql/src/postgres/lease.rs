//! The lock of the one process that has a database, and the row that says who it is.

use std::{process, sync::Arc, time::Duration};

use rustls::ClientConfig;
use tokio::time::sleep;
use tokio_postgres::{Client, Config};

use super::{
    error::{PostgresError, identity_of},
    link::{Driven, answered, connect},
    mark::{Mark, Seen},
    standing::{FOUND, Found, Standing},
};
use crate::error::SqlError;

/// The row of the holder, and the formats of the tables. What changes `epoch` locks the row for that: `session`.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS kubefold.holder (
    id integer PRIMARY KEY CHECK (id = 1),
    epoch bigint NOT NULL,
    beat bigint NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    since timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS kubefold.formats (tables text PRIMARY KEY, format bigint NOT NULL);
INSERT INTO kubefold.holder VALUES (1, 0, 0, '', 0, now()) ON CONFLICT DO NOTHING;
";
/// Of a transaction that makes the tables: two processes that start at once do not both.
const TABLES_LOCK: &str = "SELECT pg_advisory_xact_lock(7310312304487263332)";
/// The lock of the one process. One that was killed has it until its connection is gone, which the server notices so.
const SESSION: &str = "
SET lock_timeout = '5s';
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
";
const LOCK: &str = "SELECT pg_advisory_lock('kubefold.holder'::regclass::oid::bigint)";
const TRY_LOCK: &str = "SELECT pg_try_advisory_lock('kubefold.holder'::regclass::oid::bigint)";
const BEAT: &str = "UPDATE kubefold.holder SET beat = beat + 1 WHERE epoch = $1 RETURNING beat";
/// How often the row is changed, so that an older state can be told.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// Between two tries to connect again, at first and at most.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A database that is this process's.
pub(super) struct Held {
    driven: Driven,
    identity: String,
    pub(super) epoch: i64,
    pub(super) beat: i64,
    /// It is older than what was seen of it, or another one.
    pub(super) is_restored: bool,
}

/// Makes the schemas, takes the lock, and begins an epoch.
pub(super) async fn take(
    config: &Config,
    tls: &ClientConfig,
    schemas: &[&str],
    mark: &Mark,
) -> Result<Held, PostgresError> {
    let driven = connect(config, tls).await?;
    let client = &driven.client;
    for schema in schemas {
        make_schema(client, schema).await?;
    }
    answered(async { Ok(make_tables(client).await?) }).await?;
    if let Err(error) = answered(async { Ok(client.batch_execute(LOCK).await?) }).await {
        return Err(match error.is_locked() {
            true => PostgresError::InUse(found(client).await?.holder),
            false => error.into(),
        });
    }
    let (identity, epoch, beat, is_restored) = answered(begin_epoch(client, mark)).await?;
    Ok(Held { driven, identity, epoch, beat, is_restored })
}

async fn make_schema(client: &Client, schema: &str) -> Result<(), PostgresError> {
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
    Err(PostgresError::Rights { user, schema: schema.to_owned(), grant })
}

async fn make_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("{SESSION} BEGIN; {TABLES_LOCK}; {TABLES} COMMIT")).await
}

async fn begin_epoch(client: &Client, mark: &Mark) -> Result<(String, i64, i64, bool), SqlError> {
    let identity: String = client.query_one(&identity_of("kubefold.holder"), &[]).await?.try_get(0)?;
    client.batch_execute("BEGIN").await?;
    // It waits for the transactions of whoever had it: they hold the row.
    let before = Found::of(&client.query_one(&format!("{FOUND} FOR UPDATE"), &[]).await?)?;
    let seen = mark.read();
    let now = Seen { identity: identity.clone(), epoch: before.epoch, beat: before.beat };
    let is_restored = seen.as_ref().is_some_and(|seen| !now.goes_on(seen));
    // Of an older state the epochs and beats that were are not given out again.
    let (least_epoch, least_beat) = seen.map_or((0, 0), |seen| (seen.epoch, seen.beat));
    let begin = "UPDATE kubefold.holder SET epoch = greatest(epoch, $1) + 1, beat = greatest(beat, $2) + 1,
        host = $3, pid = $4, since = now() RETURNING epoch, beat";
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let pid = i64::from(process::id());
    let row = client.query_one(begin, &[&least_epoch, &least_beat, &host, &pid]).await?;
    client.batch_execute("COMMIT").await?;
    let (epoch, beat) = (row.try_get(0)?, row.try_get(1)?);
    mark.write(&Seen { identity: identity.clone(), epoch, beat });
    Ok((identity, epoch, beat, is_restored))
}

async fn found(client: &Client) -> Result<Found, SqlError> {
    answered(async { Ok(Found::of(&client.query_one(FOUND, &[]).await?)?) }).await
}

/// Holds the lock, takes it again after the connection was lost, and ends once another process has it.
pub(super) async fn keep(mut held: Held, config: Config, tls: ClientConfig, standing: Arc<Standing>) {
    while standing.lost().is_none() {
        sleep(BEAT_EVERY).await;
        match beat(&mut held, &standing).await {
            Ok(()) => standing.answers(),
            Err(error) if error.is_lost() => return,
            Err(error) => {
                standing.fails(&error);
                match again(&held, &config, &tls, &standing).await {
                    Some(driven) => held.driven = driven,
                    None => return,
                }
            }
        }
    }
}

async fn beat(held: &mut Held, standing: &Standing) -> Result<(), SqlError> {
    let client = &held.driven.client;
    let row = answered(async { Ok(client.query_opt(BEAT, &[&held.epoch]).await?) }).await?;
    let beat: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
    match beat {
        Some(beat) if beat > held.beat => {
            held.beat = beat;
            standing.saw(&Seen { identity: held.identity.clone(), epoch: held.epoch, beat });
            Ok(())
        }
        // The row went back.
        Some(_) | None => Err(standing.lose(&found(client).await?, held.epoch)),
    }
}

/// Connects and takes the lock again. `None`: the database is not this process's any more.
async fn again(held: &Held, config: &Config, tls: &ClientConfig, standing: &Standing) -> Option<Driven> {
    let mut pause = PAUSE;
    loop {
        let tried = async {
            let driven = connect(config, tls).await?;
            answered(async { Ok(driven.client.batch_execute(SESSION).await?) }).await?;
            let row = answered(async { Ok(driven.client.query_one(TRY_LOCK, &[]).await?) }).await?;
            let found = found(&driven.client).await?;
            if found.epoch != held.epoch || found.beat < held.beat {
                return Err(standing.lose(&found, held.epoch));
            }
            Ok(row.try_get::<_, bool>(0)?.then_some(driven))
        };
        match tried.await {
            Ok(Some(driven)) => return Some(driven),
            // The server has not noticed yet that the connection is gone that had it.
            Ok(None) => {}
            Err(error) if error.is_lost() => return None,
            Err(error) => drop(standing.fails(&error)),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
