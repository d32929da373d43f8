//! The replica that has the state, as one that waits for it knows it: where it is, the connections to it, and whether it answers.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{Request, StatusCode};
use kubefold_sql::Waits;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    respond::GateError,
    upstream::{Failure, replica::ReplicaLink},
};
use kubefold_serving::{health::Check, tls::Tls};
use kubefold_wire::body::{Body, empty};

/// How often it is looked whether the holder answers, and for how long that is waited for.
const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(2);
/// Everybody may ask for it, and a replica that has not the state refuses to answer another one.
const PROBE_PATH: &str = "/livez";

/// Who has the state.
pub struct Holder {
    tls: Arc<ArcSwap<Tls>>,
    /// They drive the connections, and end with them.
    tasks: TaskTracker,
    seen: Mutex<Seen>,
    changed: Notify,
}

#[derive(Default)]
struct Seen {
    waits: Waits,
    way: Option<Arc<Way>>,
}

/// The way to one holder.
struct Way {
    epoch: i64,
    address: String,
    /// The certificates that were in force when it was made.
    tls: Arc<Tls>,
    link: ReplicaLink,
    /// What the last probe came to; nothing before the first one.
    probed: Mutex<Option<Result<(), Failure>>>,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder")
    }
}

impl Holder {
    /// Nobody yet. Connections are made with the certificates that are in force then.
    pub fn new(tls: Arc<ArcSwap<Tls>>) -> Arc<Self> {
        Arc::new(Self { tls, tasks: TaskTracker::new(), seen: Mutex::default(), changed: Notify::new() })
    }

    /// Takes what was seen in the database. What was sent to another holder ends at once.
    pub fn see(&self, waits: &Waits) {
        let (mut seen, tls) = (self.seen.lock(), self.tls.load_full());
        let is_same = |way: &Way| waits.epoch == way.epoch && waits.address.as_deref() == Some(&*way.address);
        let before = seen.way.take();
        seen.way = match before {
            Some(way) if is_same(&way) && Arc::ptr_eq(&way.tls, &tls) => Some(way),
            before => {
                // With other certificates, requests that are under way end in peace.
                before.filter(|way| !is_same(way)).into_iter().for_each(|way| way.link.cut());
                self.changed.notify_one();
                self.way(waits, tls)
            }
        };
        seen.waits.clone_from(waits);
    }

    fn way(&self, waits: &Waits, tls: Arc<Tls>) -> Option<Arc<Way>> {
        let (address, replicas) = (waits.address.clone()?, tls.replicas.as_ref()?);
        let link = ReplicaLink::new(&address, replicas.client(), &self.tasks, CancellationToken::new());
        let link = link.inspect_err(|error| tracing::error!(address, %error, "cannot hand requests on")).ok()?;
        Some(Arc::new(Way { epoch: waits.epoch, address, tls, link, probed: Mutex::default() }))
    }

    /// Nobody has the state any more, or this process has it: what was sent to another one ends at once.
    pub fn end(&self) {
        self.seen.lock().way.take().into_iter().for_each(|way| way.link.cut());
    }

    /// Looks again and again whether the holder answers.
    ///
    /// Cancel: safe.
    pub async fn probe(&self) {
        loop {
            let way = self.seen.lock().way.clone();
            if let Some(way) = &way {
                let probed = way.link.probe(PROBE_PATH, PROBE_MAX).await;
                let before = way.probed.lock().replace(probed.clone());
                match (&probed, before) {
                    (Err(error), None | Some(Ok(()))) => {
                        tracing::warn!(address = way.address, %error, "the replica that has the state cannot be reached");
                    }
                    (Ok(()), None | Some(Err(_))) => {
                        tracing::info!(address = way.address, "hands requests on to the replica that has the state");
                    }
                    _ => {}
                }
            }
            tokio::select! {
                () = sleep(PROBE_EVERY) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Asks it for what only replicas are told, at a path and query.
    ///
    /// Errors: it cannot be reached, or has no such path: it is of an earlier version. Cancel: safe.
    pub async fn ask(&self, target: &str) -> Result<HolderBody, Failure> {
        let way = self.seen.lock().way.clone();
        let way = way.ok_or_else(|| Failure::Request(self.told().into()))?;
        let mut request = Request::new(empty());
        *request.uri_mut() = target.parse().map_err(|_| Failure::Request(format!("no path: {target}").into()))?;
        let response = way.link.send(request).await?;
        match response.status() {
            StatusCode::OK => Ok(HolderBody { body: response.into_body(), epoch: way.epoch }),
            status => Err(Failure::Answer(format!("it answers {}", status.as_u16()).into())),
        }
    }

    /// The way to it.
    ///
    /// Errors: it is not known where it is, or it did not answer the last probe.
    pub(super) fn link(&self) -> Result<HolderLink, GateError> {
        let seen = self.seen.lock();
        let Some(way) = &seen.way else { return Err(GateError::Standby { holder: told(&seen.waits) }) };
        if let Some(Err(failure)) = &*way.probed.lock() {
            return Err(GateError::HolderUnreachable { holder: told(&seen.waits), cause: failure.to_string() });
        }
        Ok(HolderLink(Arc::clone(way)))
    }

    /// What of it stands in the way of being ready: a standby is ready while it can hand requests on.
    pub fn check(&self) -> Check {
        let seen = self.seen.lock();
        let holder = told(&seen.waits);
        let probed = seen.way.as_ref().map(|way| (&way.address, way.probed.lock().clone()));
        let (ready, note) = match probed {
            Some((address, Some(Ok(())))) => (true, format!("{holder}; requests are handed on to {address}")),
            Some((address, Some(Err(failure)))) => {
                (false, format!("{holder}; it cannot be reached at {address}: {failure}"))
            }
            Some((address, None)) => {
                (false, format!("{holder}; whether it can be reached at {address} is not known yet"))
            }
            None => (false, holder),
        };
        Check::of("state", ready, note)
    }

    /// Whether it answered the last probe.
    pub(super) fn is_reachable(&self) -> bool {
        self.seen.lock().way.as_ref().is_some_and(|way| matches!(&*way.probed.lock(), Some(Ok(()))))
    }

    /// Who has the state, in a sentence.
    pub fn told(&self) -> String {
        told(&self.seen.lock().waits)
    }
}

/// What a holder tells other replicas.
pub struct HolderBody {
    /// For as long as it is read.
    pub body: Body,
    /// Since when it has the state.
    pub epoch: i64,
}

/// The way to the holder of now.
pub(super) struct HolderLink(Arc<Way>);

impl HolderLink {
    pub(super) fn link(&self) -> &ReplicaLink {
        &self.0.link
    }

    pub(super) fn address(&self) -> &str {
        &self.0.address
    }
}

/// Who has the state, in a sentence.
fn told(waits: &Waits) -> String {
    let holder = match &waits.holder {
        Some(kubefold_sql::Holder { host, pid, since }) => {
            format!("host {host}, process {pid} has the state since {since}")
        }
        None => "another process has the state".to_owned(),
    };
    let place = match (&waits.holder, &waits.address) {
        (Some(_), None) => ", and has not said where it can be reached",
        _ => "",
    };
    match &waits.error {
        Some(error) => format!("{holder}{place}; the database of the state cannot be reached: {error}"),
        None => format!("{holder}{place}"),
    }
}
