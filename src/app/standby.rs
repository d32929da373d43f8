//! A process that waits for the state: it says so to whoever asks, and has no part in anything else.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use http::{Request, Response};
use hyper::body::Incoming;
use kubefold_sql::{Candidate, Holder, Postgres, StateKey, Waits, postgres::LOOK_EVERY};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    front::{Answers, Front},
    member_names,
    options::Options,
    records::HELD,
    security::{Authorities, Renewal},
};
use crate::{
    config::Config,
    host::HostServing,
    observe::Metrics,
    respond::GateError,
    serve::{Handler, Health, Published, Served, StateDir},
};
use kubefold_serving::health::Check;
use kubefold_wire::{body::Body, status::Status};

/// For the process that has the state to share its certificate authority, after it began.
const AUTHORITY_WAIT: Duration = Duration::from_secs(20);
const NO_AUTHORITY: &str = "the process that has the state shares no certificate authority; give it the same --state-key-file, and start it before this one";

/// Waits until the state is this process's, and serves health and metrics meanwhile. Port 0 is a certain one afterwards.
///
/// Errors: what is given is wrong, or is not what the other replicas have.
pub(super) async fn wait(
    options: &mut Options,
    config: &Config,
    state: &Arc<StateDir>,
    candidate: Candidate,
    key: &StateKey,
) -> anyhow::Result<Arc<Postgres>> {
    let waits = Arc::new(Mutex::new(candidate.waits().clone()));
    let candidate = match authority(candidate, state, key).await? {
        Looked::Taken(taken) => return Ok(taken),
        Looked::Waits(candidate) => *candidate,
    };
    let of_host = HostServing::before(config.aggregation.as_ref());
    let configured = Authorities { configured: &config.client_authorities, members: &[], host: Some(&of_host) };
    let Front { door, address, url, security, tls, expiries, authentication, auditing } =
        Front::open(&options.serving, state, configured).await?;
    options.serving.listen = address;
    let published =
        Published { url, fleet: true, members: member_names(config), certificate_authority: security.trust.clone() };
    published.write(state)?;
    tracing::info!(%address, waits = ?waits.lock().holder, "waits for the state as a standby");
    let (until, tasks) = (CancellationToken::new(), TaskTracker::new());
    let mut metrics = Metrics::default();
    metrics.room("certificate", |room| expiries.register(room));
    metrics.room("state", |room| {
        room.register("held", HELD, ConstGauge::new(0_i64));
    });
    let of_checks = Arc::clone(&waits);
    let readiness = move || vec![Check { name: "state".to_owned(), ready: false, note: told(&of_checks.lock()) }];
    let metrics = Arc::new(metrics);
    let health = Health::new(Arc::new(readiness), until.clone()).counting(metrics.slis());
    let authentication = Arc::new(authentication);
    let answers = Answers {
        handler: Arc::new(Standby(Arc::clone(&waits))),
        health,
        metrics,
        served: Served::default(),
        authentication: Arc::clone(&authentication),
        auditing: auditing.clone(),
    };
    let serving = door.open(answers, &tasks, &until)?;
    tasks.spawn(serving);
    let published = Arc::new(Mutex::new(published));
    let (state, serving) = (Arc::clone(state), options.serving.clone());
    let renewal = Renewal {
        options: serving,
        security,
        tls,
        published,
        authentication,
        auditing,
        registry: None,
        host: None,
        expiries,
        state,
    };
    tasks.spawn(until.clone().run_until_cancelled_owned(renewal.run()));
    let taken = taken(candidate, &waits).await;
    until.cancel();
    tasks.close();
    tasks.wait().await;
    taken
}

/// What one look came to.
enum Looked {
    Taken(Arc<Postgres>),
    Waits(Box<Candidate>),
}

async fn look(mut candidate: Candidate) -> anyhow::Result<Looked> {
    let look = move || match candidate.look() {
        Some(taken) => Looked::Taken(taken),
        None => Looked::Waits(Box::new(candidate)),
    };
    spawn_blocking(look).await.context("the state in PostgreSQL was not looked at")
}

/// Waits for the certificate authority of all replicas, without which nothing can be served.
async fn authority(candidate: Candidate, state: &StateDir, key: &StateKey) -> anyhow::Result<Looked> {
    let (mut candidate, began) = (Box::new(candidate), Instant::now());
    loop {
        let read = spawn_blocking(move || (candidate.files(), candidate)).await;
        let (files, read) = read.context("the state in PostgreSQL was not read")?;
        candidate = match look(*read).await? {
            Looked::Waits(candidate) => candidate,
            taken @ Looked::Taken(_) => return Ok(taken),
        };
        match files {
            Ok(files) if state.adopt(&files, key)? => return Ok(Looked::Waits(candidate)),
            Ok(_) if began.elapsed() > AUTHORITY_WAIT => anyhow::bail!(NO_AUTHORITY),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the state cannot be read; trying again"),
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until the state is this process's.
async fn taken(candidate: Candidate, waits: &Mutex<Waits>) -> anyhow::Result<Arc<Postgres>> {
    let mut candidate = Box::new(candidate);
    loop {
        candidate = match look(*candidate).await? {
            Looked::Taken(taken) => return Ok(taken),
            Looked::Waits(candidate) => candidate,
        };
        waits.lock().clone_from(candidate.waits());
        sleep(LOOK_EVERY).await;
    }
}

/// Who has the state, in a sentence.
fn told(waits: &Waits) -> String {
    let holder = match &waits.holder {
        Some(Holder { host, pid, since }) => format!("host {host}, process {pid} has the state since {since}"),
        None => "another process has the state".to_owned(),
    };
    match &waits.error {
        Some(error) => format!("{holder}; PostgreSQL cannot be reached: {error}"),
        None => holder,
    }
}

/// Answers everything with where to ask.
struct Standby(Arc<Mutex<Waits>>);

impl Handler for Standby {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let holder = told(&self.0.lock());
        Status::from(GateError::Standby { holder }).into_response_to(request.headers())
    }
}
