//! The lease of the one process that has a database: a row that it changes every moment, and that another process takes once
//! it has not seen it change for a while.
//!
//! No two clocks are compared. A holder trusts its lease for `TRUSTED` from the moment at which it *sent* the last change
//! that was answered; another process waits for [`SILENT`] from the moment at which it *saw* that change or a later one. So
//! the holder has stopped before the other one begins, as long as both clocks run at about the same rate.

use std::{process, sync::Arc, time::Duration};

use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, Config};

use super::{
    error::{PostgresError, identity_of},
    link::{Driven, answered, connect},
    mark::{Mark, Seen},
    replicas,
    standing::{FOUND, Found, Held, Standing},
};
use crate::error::SqlError;

/// The row of the holder, the files that all processes share, and the formats of the tables. What changes `epoch` locks the row
/// for that: `session`.
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
";
/// Of a transaction that makes the tables: two processes that start at once do not both.
const TABLES_LOCK: &str = "SELECT pg_advisory_xact_lock(7310312304487263332)";
const BEAT: &str = "UPDATE kubefold.holder SET beat = beat + 1, number = greatest(number, $2)
    WHERE epoch = $1 AND NOT is_released RETURNING beat, number";
const RELEASE: &str = "UPDATE kubefold.holder SET is_released = true WHERE epoch = $1";
/// Ends what a process left, or has: a transaction of one that hangs keeps the row locked.
const END: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid()";
/// How often the row is changed.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// How long a change is waited for, and a connection for the next one.
const BEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two tries to connect again.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the row stays as it is before another process takes it.
const SILENT: Duration = Duration::from_secs(3);
/// How often a process that waits should look, and what one look counts for at most: while nobody looks, the server may be
/// away, for the holder too.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_millis(500);
/// The file outside of the database is written at one of so many changes.
const MARK_EVERY: i64 = 10;

/// The name of the connections of one epoch's process.
pub(super) fn application(epoch: i64) -> String {
    format!("kubefold {epoch}")
}

/// How long the row has stayed as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    epoch: i64,
    beat: i64,
    silent: Duration,
    at: Instant,
}

impl Watched {
    /// What is known after another look.
    fn after(before: Option<Self>, found: &Found, now: Instant) -> Self {
        let Found { epoch, beat, .. } = *found;
        let before = before.filter(|before| (before.epoch, before.beat) == (epoch, beat));
        let silent = before.map_or(Duration::ZERO, |before| before.silent + (now - before.at).min(LOOK_MAX));
        Self { epoch, beat, silent, at: now }
    }

    fn is_silent(&self) -> bool {
        self.silent >= SILENT
    }
}

/// What a look at the row came to.
pub(super) enum Looked {
    Taken(Box<Held>),
    /// Another process has it, as far as is known.
    Held(Found, Watched),
}

/// Makes the schemas and the tables.
pub(super) async fn prepare(client: &Client, schemas: &[&str]) -> Result<(), PostgresError> {
    // While a holder hangs in a transaction, what is there already is left as it is.
    let is_made = "SELECT to_regclass('kubefold.holder') IS NOT NULL AND to_regclass('kubefold.files') IS NOT NULL
        AND to_regclass('kubefold.formats') IS NOT NULL AND to_regclass('kubefold.replicas') IS NOT NULL";
    for schema in schemas {
        make_schema(client, schema).await?;
    }
    let row = answered(async { Ok(client.query_one(is_made, &[]).await?) }).await?;
    if !row.try_get::<_, bool>(0).map_err(SqlError::from)? {
        let make = format!("BEGIN; {TABLES_LOCK}; {TABLES} {} COMMIT", replicas::TABLE);
        answered(async { Ok(client.batch_execute(&make).await?) }).await?;
    }
    Ok(())
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

/// Looks whether the row is free, and takes it then. The connection is given back unless it is the holder's now.
///
/// Errors: the server did not answer; what was watched before counts no more.
pub(super) async fn look(
    driven: &mut Option<Driven>,
    before: Option<Watched>,
    mark: &Mark,
) -> Result<Looked, SqlError> {
    let client = &driven.as_ref().ok_or_else(SqlError::ended)?.client;
    let found = found(client).await?;
    let watched = Watched::after(before, &found, Instant::now());
    if !(found.is_released || watched.is_silent()) {
        mark.note(|identity| Seen { identity, epoch: found.epoch, beat: found.beat });
        return Ok(Looked::Held(found, watched));
    }
    let begun = begin_epoch(client, &found, mark).await?;
    let (Some(begun), Some(driven)) = (begun, driven.take()) else {
        // It beat after all, or a third one was faster.
        return Ok(Looked::Held(found.clone(), Watched::after(None, &found, Instant::now())));
    };
    let Begun { identity, epoch, beat, number, since, is_restored } = begun;
    Ok(Looked::Taken(Box::new(Held { driven, identity, epoch, beat, number, since, is_restored })))
}

struct Begun {
    identity: String,
    epoch: i64,
    beat: i64,
    number: i64,
    since: Instant,
    is_restored: bool,
}

/// Begins an epoch in place of the one that was found. `None`: the row is not as it was found any more.
async fn begin_epoch(client: &Client, found: &Found, mark: &Mark) -> Result<Option<Begun>, SqlError> {
    let begin = async {
        let identity: String = client.query_one(&identity_of("kubefold.holder"), &[]).await?.try_get(0)?;
        if !found.is_released {
            client.execute(END, &[&application(found.epoch)]).await?;
        }
        client.batch_execute("BEGIN").await?;
        // It waits for the transactions of whoever had it: they hold the row.
        let before = Found::of(&client.query_one(&format!("{FOUND} FOR UPDATE"), &[]).await?)?;
        if before.epoch != found.epoch || (before.beat != found.beat && !before.is_released) {
            client.batch_execute("ROLLBACK").await?;
            return Ok(None);
        }
        let seen = mark.read();
        let now = Seen { identity: identity.clone(), epoch: before.epoch, beat: before.beat };
        let is_restored = seen.as_ref().is_some_and(|seen| !now.goes_on(seen));
        // Of an older state the epochs and beats that were are not given out again.
        let (least_epoch, least_beat) = seen.map_or((0, 0), |seen| (seen.epoch, seen.beat));
        let begin = "UPDATE kubefold.holder SET epoch = greatest(epoch, $1) + 1, beat = greatest(beat, $2) + 1,
            host = $3, pid = $4, since = now(), is_released = false RETURNING epoch, beat, number";
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let pid = i64::from(process::id());
        let since = Instant::now();
        let row = client.query_one(begin, &[&least_epoch, &least_beat, &host, &pid]).await?;
        let (epoch, beat, number) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let name = application(epoch);
        client.batch_execute(&format!("SET application_name = '{name}'; COMMIT")).await?;
        Ok(Some(Begun { identity, epoch, beat, number, since, is_restored }))
    };
    let begun = answered(begin).await?;
    if let Some(Begun { identity, epoch, beat, .. }) = &begun {
        mark.write(&Seen { identity: identity.clone(), epoch: *epoch, beat: *beat });
    }
    Ok(begun)
}

async fn found(client: &Client) -> Result<Found, SqlError> {
    prompt(async { Ok(Found::of(&client.query_one(FOUND, &[]).await?)?) }).await
}

/// Waits for an answer, but no longer than a lease does.
pub(super) async fn prompt<T>(work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    match timeout(BEAT_TIMEOUT, work).await {
        Ok(answer) => answer,
        Err(_) => Err(SqlError::away(format!("PostgreSQL has not answered for {} seconds", BEAT_TIMEOUT.as_secs()))),
    }
}

/// Keeps the lease, connects again where the connection is lost, and ends once this process has the database no more.
pub(super) async fn keep(mut held: Held, config: Config, tls: ClientConfig, standing: Arc<Standing>) {
    while standing.may_beat() {
        match beat(&mut held, &standing).await {
            Ok(()) => standing.answers(),
            Err(error) if error.is_lost() => return,
            Err(error) => {
                standing.fails(&error);
                match again(&held, &config, &tls, &standing).await {
                    Some(driven) => held.driven = driven,
                    None => return,
                }
                continue;
            }
        }
        tokio::select! {
            () = sleep(BEAT_EVERY) => {}
            () = standing.is_asked() => {}
        }
    }
    // What is not said to be free is free for the others a moment later.
    let client = &held.driven.client;
    let _released = prompt(async { Ok(client.execute(RELEASE, &[&held.epoch]).await?) }).await;
}

async fn beat(held: &mut Held, standing: &Standing) -> Result<(), SqlError> {
    let client = &held.driven.client;
    let (sent, wanted) = (Instant::now(), standing.wanted());
    let row = prompt(async { Ok(client.query_opt(BEAT, &[&held.epoch, &wanted]).await?) }).await?;
    let beaten = row.map(|row| Ok::<(i64, i64), SqlError>((row.try_get(0)?, row.try_get(1)?))).transpose()?;
    match beaten {
        Some((beat, number)) if beat > held.beat => {
            let is_noted = beat / MARK_EVERY > held.beat / MARK_EVERY;
            held.beat = beat;
            standing.saw(beat, is_noted);
            standing.holds(sent, number);
            Ok(())
        }
        // The row went back.
        Some(_) | None => Err(standing.lose(&found(client).await?, held.epoch)),
    }
}

/// Connects again. `None`: the database is not this process's any more.
async fn again(held: &Held, config: &Config, tls: &ClientConfig, standing: &Standing) -> Option<Driven> {
    while standing.may_beat() {
        let tried = prompt(async {
            let driven = connect(config, tls).await?;
            let found = found(&driven.client).await?;
            if found.epoch != held.epoch || found.beat < held.beat {
                return Err(standing.lose(&found, held.epoch));
            }
            Ok(driven)
        });
        match tried.await {
            Ok(driven) => return Some(driven),
            Err(error) if error.is_lost() => return None,
            Err(error) => drop(standing.fails(&error)),
        }
        sleep(PAUSE).await;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{Holder, standing::TRUSTED};

    fn found(epoch: i64, beat: i64) -> Found {
        let holder = Holder { host: String::new(), pid: 0, since: String::new() };
        Found { epoch, beat, is_released: false, holder }
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_is_silent_once_it_was_looked_at_often_enough_and_did_not_change() {
        let mut watched = None;
        let mut look = async |beat: i64, pause: Duration| {
            sleep(pause).await;
            let now = Watched::after(watched, &found(1, beat), Instant::now());
            watched = Some(now);
            now.is_silent()
        };
        for _ in 0..12 {
            assert!(!look(1, LOOK_EVERY).await);
        }
        assert!(look(1, LOOK_EVERY).await);
        assert!(!look(2, LOOK_EVERY).await, "it beat");
        // The one that waits was stopped itself: that says nothing about the holder.
        assert!(!look(2, Duration::from_secs(60)).await);
        for _ in 0..9 {
            assert!(!look(2, LOOK_EVERY).await);
        }
        assert!(look(2, LOOK_EVERY).await);
        assert!(BEAT_EVERY < TRUSTED && TRUSTED < SILENT, "a holder has stopped before another one begins");
    }
}
