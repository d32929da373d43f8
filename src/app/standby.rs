//! A process that waits for the state: it hands requests on to the one that has it, and takes over when that one ends.

use std::{collections::HashMap, net::TcpListener, sync::Arc, time::Duration};

use anyhow::Context;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kubefold_sql::{Candidate, LOOK_EVERY, RemoteState, StateKey};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    applied::member_names,
    front::{Answers, Front},
    memory,
    options::Options,
    records::{HELD, announcement},
    security::{Authorities, Renewal},
};
use crate::{
    access::{MASTERS, Own, Who, allows_own},
    config::{Config, OwnRights},
    host::HostServing,
    observe::{Exposed, Metrics},
    read::CachedReader,
    respond::{GateError, RouteError},
    serve::{Handing, Handler, Health, Holder, HolderBody, Published, Served, StateDir},
    store::{Earlier, LogLimits, Naming, Revisions, Shared},
    stores::{Hearing, SHOWN_PATH, Told, Unreadable, WatchCaches},
};
use kubefold_serving::{Shutdown, caller::Caller, impersonation::Impersonation};
use kubefold_wire::{
    body::{Body, BodyError},
    resource::Gvr,
    status::Status,
};

/// For the process that has the state to share its certificate authority, after it began.
const AUTHORITY_WAIT: Duration = Duration::from_secs(20);
const NO_AUTHORITY: &str = "the process that has the state shares no certificate authority; give it the same --state-key-file, and start it before this one";
/// For answers to leave that say that the former holder is gone. Then this process serves by itself.
const TAKEOVER_GRACE: Duration = Duration::from_secs(1);

/// What the holder shows is asked for again after this.
const HEAR_AGAIN: Duration = Duration::from_secs(1);
/// But after this if it tells what this version cannot read: each time it begins with all objects.
const HEAR_UNREADABLE_AGAIN: Duration = Duration::from_mins(1);

/// What a standby came to.
pub(super) enum Waited {
    /// The state is this process's.
    Taken {
        state: Arc<RemoteState>,
        /// On which connections come in meanwhile; none where nothing was served.
        socket: Option<TcpListener>,
        /// What the former holder showed.
        told: HashMap<Gvr, Earlier>,
    },
    /// It was told to end, and has.
    Ended,
}

/// What a standby hears of what the holder shows.
struct Heard {
    told: Arc<Told>,
    caches: Arc<WatchCaches>,
}

impl Heard {
    /// All that is known of that, once nothing more comes.
    fn all(&self) -> HashMap<Gvr, Earlier> {
        let (mut told, epoch) = self.told.take();
        self.caches.complete(&mut told, epoch);
        told
    }
}

/// Waits until the state is this process's, and hands requests on meanwhile. Port 0 is a certain one afterwards.
///
/// Errors: what is given is wrong, or is not what the other replicas have.
pub(super) async fn wait(
    options: &mut Options,
    config: &Config,
    state: &Arc<StateDir>,
    candidate: Candidate,
    key: &StateKey,
    ending: &CancellationToken,
) -> anyhow::Result<Waited> {
    let mut candidate = match authority(candidate, state, key, ending).await? {
        Some(Looked::Taken(state)) => return Ok(Waited::Taken { state, socket: None, told: HashMap::new() }),
        Some(Looked::Waits(candidate)) => *candidate,
        None => return Ok(Waited::Ended),
    };
    let of_host = HostServing::before(config.aggregation.as_ref());
    let configured = Authorities { configured: &config.client_authorities, members: &[], host: Some(&of_host) };
    let front = Front::open(&options.serving, state, configured, None).await?;
    options.serving.listen = front.address;
    candidate.announce(announcement(options, front.address));
    let socket = front.door.socket()?;
    let (shutdown, tasks) = (Shutdown::default(), TaskTracker::new());
    let heard = Heard { told: Arc::default(), caches: caches(options, config, &shutdown.drain) };
    let holder = serve(options, config, state, front, &heard, &shutdown, &tasks)?;
    holder.see(candidate.waits());
    tracing::info!(address = %options.serving.listen, holder = holder.told(), "waits for the state as a standby");
    let taken = taken(candidate, &holder, ending).await;
    let is_ending = matches!(taken, Ok(None));
    shutdown.drain.cancel();
    tasks.close();
    if !is_ending {
        holder.end();
        drop(timeout(TAKEOVER_GRACE, tasks.wait()).await);
        shutdown.cut.cancel();
    }
    tasks.wait().await;
    holder.end();
    let took = |state| Waited::Taken { state, socket: Some(socket), told: heard.all() };
    Ok(taken?.map_or(Waited::Ended, took))
}

/// Serves as a standby, until it is shut down.
fn serve(
    options: &Options,
    config: &Config,
    state: &Arc<StateDir>,
    front: Front,
    heard: &Heard,
    shutdown: &Shutdown,
    tasks: &TaskTracker,
) -> anyhow::Result<Arc<Holder>> {
    let Front { door, address: _, url, security, tls, expiries, authentication, auditing } = front;
    let published =
        Published { url, fleet: true, members: member_names(config), certificate_authority: security.trust.clone() };
    published.write(state)?;
    let until = &shutdown.drain;
    let holder = Holder::new(Arc::clone(&tls));
    let cached = CachedReader::new(Arc::clone(&heard.caches), until.clone());
    let handing = Arc::new(Handing::new(Arc::clone(&holder), until.clone()).caching(cached, tasks.clone()));
    let mut metrics = Metrics::default();
    metrics.room("certificate", |room| expiries.register(room));
    metrics.room("replica", |room| {
        handing.register(room);
        heard.told.register(room);
    });
    metrics.room("state", |room| {
        room.register("held", HELD, ConstGauge::new(0_i64));
    });
    let metrics = Arc::new(metrics);
    let of_checks = Arc::clone(&holder);
    let health = Health::new(Arc::new(move || vec![of_checks.check()]), until.clone()).counting(metrics.slis());
    let authentication = Arc::new(authentication);
    let standby = Standby { holder: Arc::clone(&holder), metrics: Arc::clone(&metrics), rights: config.own.clone() };
    let answers = Answers {
        handler: Arc::new(standby),
        health,
        metrics,
        served: Served::default(),
        authentication: Arc::clone(&authentication),
        auditing: auditing.clone(),
    };
    tasks.spawn(until.clone().run_until_cancelled_owned(Arc::clone(&handing).sweep()));
    let serving = door.handing(handing).open(answers, tasks, shutdown.clone())?;
    tasks.spawn(serving);
    let renewal = Renewal {
        options: options.serving.clone(),
        security,
        tls,
        published: Arc::new(Mutex::new(published)),
        authentication,
        auditing,
        registry: None,
        host: None,
        expiries,
        state: Arc::clone(state),
    };
    tasks.spawn(until.clone().run_until_cancelled_owned(renewal.run()));
    tasks.spawn(until.clone().run_until_cancelled_owned(hears(Arc::clone(&holder), Arc::clone(&heard.told))));
    let (probed, until) = (Arc::clone(&holder), until.clone());
    tasks.spawn(async move { until.run_until_cancelled(probed.probe()).await });
    Ok(holder)
}

/// Watch caches for what clients read here.
fn caches(options: &Options, config: &Config, until: &CancellationToken) -> Arc<WatchCaches> {
    let shared = Shared {
        naming: Arc::new(Naming::new(config)),
        identities: Arc::default(),
        revisions: Arc::new(Revisions::volatile()),
        log_limits: LogLimits::default(),
    };
    WatchCaches::new(shared, options.store_bytes_max.or_else(memory::for_objects), until.clone())
}

/// Hears what the holder shows, so that this process goes on from there if that one is killed.
///
/// Cancel: safe; what is known stays.
async fn hears(holder: Arc<Holder>, told: Arc<Told>) {
    loop {
        let heard = hear(&holder, &told).await;
        tracing::debug!(?heard, kinds = told.kinds(), "what the holder shows is not told any more");
        let is_unreadable = heard.is_err_and(|error| error.is::<Unreadable>());
        sleep(if is_unreadable { HEAR_UNREADABLE_AGAIN } else { HEAR_AGAIN }).await;
    }
}

/// Errors: the holder cannot be reached, ends, or tells what this version does not know.
async fn hear(holder: &Holder, told: &Told) -> Result<(), BodyError> {
    let HolderBody { mut body, epoch } = holder.ask(SHOWN_PATH).await?;
    let mut hearing = Hearing::to(told, epoch);
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame?.into_data() {
            hearing.push(&bytes)?;
        }
    }
    Ok(())
}

/// What one look came to.
enum Looked {
    Taken(Arc<RemoteState>),
    Waits(Box<Candidate>),
}

async fn look(mut candidate: Candidate) -> anyhow::Result<Looked> {
    let look = move || match candidate.look() {
        Some(taken) => Looked::Taken(taken),
        None => Looked::Waits(Box::new(candidate)),
    };
    spawn_blocking(look).await.context("the state was not looked at")
}

/// Waits for the certificate authority of all replicas, without which nothing can be served. `None`: it was told to end.
async fn authority(
    candidate: Candidate,
    state: &StateDir,
    key: &StateKey,
    ending: &CancellationToken,
) -> anyhow::Result<Option<Looked>> {
    let (mut candidate, began) = (Box::new(candidate), Instant::now());
    while !ending.is_cancelled() {
        let read = spawn_blocking(move || (candidate.files(), candidate)).await;
        let (files, read) = read.context("the state was not read")?;
        candidate = match look(*read).await? {
            Looked::Waits(candidate) => candidate,
            taken @ Looked::Taken(_) => return Ok(Some(taken)),
        };
        match files {
            Ok(files) if state.adopt(&files, key)? => return Ok(Some(Looked::Waits(candidate))),
            Ok(_) if began.elapsed() > AUTHORITY_WAIT => anyhow::bail!(NO_AUTHORITY),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the state cannot be read; trying again"),
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(None)
}

/// Waits until the state is this process's. `None`: it was told to end.
async fn taken(
    candidate: Candidate,
    holder: &Holder,
    ending: &CancellationToken,
) -> anyhow::Result<Option<Arc<RemoteState>>> {
    let mut candidate = Box::new(candidate);
    while !ending.is_cancelled() {
        candidate = match look(*candidate).await? {
            Looked::Taken(taken) => return Ok(Some(taken)),
            Looked::Waits(candidate) => candidate,
        };
        holder.see(candidate.waits());
        ending.run_until_cancelled(sleep(LOOK_EVERY)).await;
    }
    Ok(None)
}

/// Answers what is not handed on: metrics of this process.
struct Standby {
    holder: Arc<Holder>,
    metrics: Arc<Metrics>,
    rights: OwnRights,
}

impl Handler for Standby {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let headers = request.headers();
        let Some(exposed) = Exposed::at(request.uri().path()) else {
            return Status::from(GateError::Standby { holder: self.holder.told() }).into_response_to(headers);
        };
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        // No member can be asked who may be somebody else.
        let caller = match request.extensions().get::<Impersonation>() {
            None => Some(caller.clone()),
            Some(wanted) => caller.is_in(MASTERS).then(|| wanted.caller(&caller)),
        }
        .ok_or(caller);
        let refused = match &caller {
            Ok(caller) if allows_own(&self.rights, Who { caller, through: None }, Own::View) => None,
            Ok(caller) | Err(caller) => {
                Some(RouteError::NotAdmin { user: caller.user.clone(), group: Own::View.group(), admins: MASTERS })
            }
        };
        let answered = match (refused, request.method()) {
            (Some(refused), _) => Err(refused),
            (None, &Method::GET | &Method::HEAD) => self.metrics.answer(exposed, headers).map_err(RouteError::from),
            (None, _) => Err(RouteError::Method),
        };
        answered.unwrap_or_else(|refused| Status::from(refused).into_response_to(headers))
    }
}
