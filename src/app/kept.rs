//! What outlives the process in the state directory, beside certificates and the journal.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use kubefold_sql::RemoteState;
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::{Access, Kept},
    config::Config,
    serve::StateDir,
    store::{Identities, LogLimits, Naming, Reserve, Revision, Revisions, Shared, unix_micros},
    stores::Stores,
};
use kubefold_wire::golang::Quoted;

/// Names of files in the state directory.
const HIGH_WATER: &str = "revision";
const LIVES: &str = "lives.json";
const PLACED: &str = "placed.json";
pub(super) const CLUSTERS: &str = "clusters.json";
const DECISIONS: &str = "decisions.json";
const DECISIONS_KEY: &str = "decisions.key";
/// Bytes of the key by which decisions are hashed.
const DECISIONS_KEY_BYTES: usize = 32;

/// What all stores share; the counter begins above what an earlier process gave out, here or, with a database, anywhere.
pub(super) async fn shared(
    config: &Config,
    state: &Arc<StateDir>,
    database: Option<&Arc<RemoteState>>,
) -> anyhow::Result<Shared> {
    let high_water: u64 = match state.read(HIGH_WATER)? {
        None => 0,
        Some(text) => text.trim().parse().with_context(|| {
            format!(
                "{}/{HIGH_WATER} holds {text} and not a number; if no client holds a revision any more, remove the file",
                state.path().display(), text = Quoted(text))
        })?,
    };
    let high_water = Revision(high_water.max(database.map_or(0, |database| database.number())));
    let reserve: Reserve = match database {
        None => {
            let keep = Arc::clone(state);
            Box::new(move |mark| {
                keep.write(HIGH_WATER, &mark.to_string(), false).map_err(std::io::Error::other)?;
                Ok(mark)
            })
        }
        Some(database) => {
            let mark = Revisions::first_mark(high_water, unix_micros);
            let kept = timeout(RESERVE_WAIT, database.reserved(mark.0)).await;
            kept.context("the database of the state does not keep the revisions that this process may give out")?;
            let database = Arc::clone(database);
            Box::new(move |mark| Ok(Revision(database.reserve(mark.0))))
        }
    };
    let identities = Identities::default();
    if let Some(text) = state.read(LIVES)? {
        identities.restore_lives(serde_json::from_str(&text).with_context(|| format!("{LIVES} is damaged"))?);
    }
    if let Some(text) = state.read(PLACED)? {
        identities.restore_placed(serde_json::from_str(&text).with_context(|| format!("{PLACED} is damaged"))?);
    }
    Ok(Shared {
        naming: Arc::new(Naming::new(config)),
        identities: Arc::new(identities),
        revisions: Arc::new(Revisions::new(high_water, 0, unix_micros, reserve)),
        log_limits: LogLimits::default(),
    })
}

/// How long a start waits until the database keeps the first revisions.
const RESERVE_WAIT: Duration = Duration::from_secs(10);
/// How soon a shared object's end is written down.
const LIVES_EVERY: Duration = Duration::from_secs(1);

/// Writes down how often shared objects have lived, whenever one is gone, which kinds were placed, and which cluster each
/// member is.
pub(super) async fn keep_lives(stores: Arc<Stores>, state: Arc<StateDir>, until: CancellationToken) {
    let identities = Arc::clone(&stores.shared().identities);
    let (mut lives_written, mut placed_written) = (identities.lives().1, identities.placed());
    let mut clusters_written = BTreeMap::new();
    loop {
        let going = until.run_until_cancelled(tokio::time::sleep(LIVES_EVERY)).await.is_none();
        stores.shared().revisions.renew();
        let (lives, version) = identities.lives();
        if version != lives_written {
            let lives: BTreeMap<&String, &u32> = lives.iter().collect();
            if keep(&state, LIVES, &lives).await {
                lives_written = version;
            }
        }
        let placed = identities.placed();
        if placed != placed_written && keep(&state, PLACED, &placed).await {
            placed_written = placed;
        }
        let clusters = stores.registry().clusters();
        if clusters != clusters_written && keep(&state, CLUSTERS, &clusters).await {
            clusters_written = clusters;
        }
        // What ended in the last second counts, too.
        if going {
            return;
        }
    }
}

/// What members decided before kubefold was started. `None`: this process keeps nothing.
///
/// Errors: the state directory cannot be read or written.
pub(super) fn kept(state: &StateDir) -> anyhow::Result<Option<Kept>> {
    let decode = |text: String| URL_SAFE_NO_PAD.decode(text.trim()).ok().filter(|key| key.len() == DECISIONS_KEY_BYTES);
    let known = state.read(DECISIONS_KEY)?.and_then(decode);
    let key = match &known {
        Some(key) => key.clone(),
        None => {
            let mut key = vec![0; DECISIONS_KEY_BYTES];
            aws_lc_rs::rand::fill(&mut key).map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
            state.write(DECISIONS_KEY, &URL_SAFE_NO_PAD.encode(&key), false)?;
            key
        }
    };
    let text = state.read(DECISIONS)?;
    let kept = Kept::read(&key, text.as_deref().filter(|_| known.is_some()));
    if kept.is_none() {
        // To know less is safe: the members are asked.
        tracing::warn!("{DECISIONS} is damaged: what members allowed before counts no more");
    }
    Ok(kept.or_else(|| Kept::read(&key, None)))
}

/// How often it is looked which certificates were withdrawn.
const REVOKED_EVERY: Duration = Duration::from_secs(5);

/// Tells the other replicas which certificates were withdrawn here.
pub(super) async fn share_revoked(state: Arc<StateDir>) {
    let mut known = None;
    loop {
        let (of, mut before) = (Arc::clone(&state), known.take());
        let shared = spawn_blocking(move || (of.share_revoked(&mut before), before)).await;
        if let Ok((shared, after)) = shared {
            known = after;
            if let Err(error) = shared {
                tracing::error!(%error, "other replicas do not know which certificates are revoked");
            }
        }
        tokio::time::sleep(REVOKED_EVERY).await;
    }
}

/// How often the decisions of members are written down. Many take a while to write: that is a hundredth of the time at most.
const DECISIONS_EVERY: Duration = Duration::from_secs(5);
const DECISIONS_REST: u32 = 100;

/// Writes down what members decided, for a restart while one of them is down.
pub(super) async fn keep_decisions(access: Arc<Access>, state: Arc<StateDir>, until: CancellationToken) {
    let (mut written, mut pause) = (String::new(), DECISIONS_EVERY);
    loop {
        let going = until.run_until_cancelled(tokio::time::sleep(pause)).await.is_none();
        let (access, state) = (Arc::clone(&access), Arc::clone(&state));
        let begun = Instant::now();
        let kept = spawn_blocking(move || {
            let text = access.keep()?;
            if text != written
                && let Err(error) = state.write(DECISIONS, &text, false)
            {
                tracing::error!("cannot write {DECISIONS}, so that kubefold knows less after a restart: {error}");
            }
            Some(text)
        });
        written = kept.await.ok().flatten().unwrap_or_default();
        pause = DECISIONS_EVERY.max(begun.elapsed() * DECISIONS_REST);
        if going {
            return;
        }
    }
}

/// Writes a value down. Says whether that could be done.
async fn keep(state: &Arc<StateDir>, file: &'static str, value: &impl serde::Serialize) -> bool {
    let (state, text) = (Arc::clone(state), serde_json::to_string(value).unwrap_or_default());
    let written = spawn_blocking(move || state.write(file, &text, false)).await;
    let written = written.map_err(anyhow::Error::from).and_then(|written| Ok(written?));
    if let Err(error) = &written {
        tracing::error!("cannot write {file}, so that kubefold knows less after a restart: {error}");
    }
    written.is_ok()
}
