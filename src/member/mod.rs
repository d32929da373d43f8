//! The members: who they are, whether they answer, and what they tell.
//!
//! [`registry::Registry`] holds them; a [`Member`] keeps its identity through every change of its configuration.
//! [`Member::send`] asks as kubefold itself or for a caller, as an [`Outgoing`] request says. `probe` keeps a member's health, `reflector` feeds what it tells to a store, [`view`] is its own API.
//!
//! May name: `view`, `authn`, `config`, `observe`, `placement`, `store`, `mirror`, `upstream`. One cycle of files: `reflector`, its `requests`
//! and `restored`, which hold the methods of one type.

mod admission;
pub mod authority;
pub mod call;
mod identity;
pub mod impersonation;
pub mod keys;
pub mod metrics;
mod probe;
pub(crate) mod reflector;
pub mod registry;
pub mod renewal;
pub mod review;
pub mod states;
pub mod view;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::AtomicU64};

use arc_swap::ArcSwap;
use http::Response;
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{MemberConfig, MemberName},
    upstream::{
        Class, Failure, Health, LastError, Meter, Outgoing, ProbeState, UpResponseBody, Upgrade, Upstream,
        UpstreamError, cause::Cause, health::Input, permits::Permits,
    },
};
use kubefold_serving::upgrade::UpgradeAsked;
use {
    admission::Admission,
    identity::{Checked, ClusterUids, Identity},
    metrics::{MemberMetrics, ReflectorMeter},
};

pub use identity::MemberId;

/// What all members of a registry share.
#[derive(Default)]
struct Common {
    /// Which member is which cluster.
    cluster_uids: Arc<ClusterUids>,
    /// The streams of clients.
    permits: Arc<Permits>,
    /// What reflectors wait for.
    admission: Arc<Admission>,
    /// What is counted.
    metrics: MemberMetrics,
    /// Counts the changes of anybody's health.
    conditions: Arc<AtomicU64>,
}

/// A cluster that kubefold fronts.
pub struct Member {
    id: MemberId,
    name: MemberName,
    config: ArcSwap<MemberConfig>,
    upstream: Upstream,
    probe_state: Arc<ProbeState>,
    reflectors: ReflectorMeter,
    identity: Identity,
    cluster_uids: Arc<ClusterUids>,
    twin: watch::Sender<Option<MemberName>>,
    permits: Arc<Permits>,
    admission: Arc<Admission>,
    /// Turns to ask it what callers may do.
    reviews: Semaphore,
    keys: keys::Keys,
    client_authority: authority::ClientAuthority,
    cancel: CancellationToken,
}

impl Member {
    fn new(
        id: MemberId,
        config: &MemberConfig,
        common: &Common,
        tasks: TaskTracker,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        let probe_state =
            ProbeState::new(Meter::new(&config.name, &common.metrics.upstream), Arc::clone(&common.conditions));
        Arc::new(Self {
            id,
            name: config.name.clone(),
            config: ArcSwap::from_pointee(config.clone()),
            upstream: Upstream::new(config, probe_state.clone(), tasks, cancel.clone()),
            probe_state,
            reflectors: ReflectorMeter::new(&config.name, &common.metrics.reflectors),
            identity: Identity::new(),
            cluster_uids: Arc::clone(&common.cluster_uids),
            twin: watch::Sender::new(None),
            permits: Arc::clone(&common.permits),
            admission: Arc::clone(&common.admission),
            reviews: Semaphore::new(review::REVIEWS_MAX),
            keys: keys::Keys::default(),
            client_authority: authority::ClientAuthority::default(),
            cancel,
        })
    }

    /// Its number in this process.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Its name in the fleet.
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// Its configuration now: a reload may have changed it.
    pub fn config(&self) -> Arc<MemberConfig> {
        self.config.load_full()
    }

    /// The way to it, without a look at its health.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Sends one request, as kubefold itself or in a caller's name.
    ///
    /// Errors: at once if the member is down, and a read also as soon as it goes down: its
    /// caller may have a better answer than silence. Cancel: safe.
    pub async fn send(&self, asked: Outgoing, class: Class) -> Result<Response<UpResponseBody>, UpstreamError> {
        if let Some(down) = self.down() {
            return Err(UpstreamError::new(&self.name, Failure::Down(down)));
        }
        let is_read = matches!(class, Class::Read | Class::Review)
            || (class == Class::Stream && asked.request().method().is_safe());
        tokio::select! {
            answer = self.upstream.send(asked, class) => answer,
            down = self.goes_down(), if is_read => Err(UpstreamError::new(&self.name, Failure::Down(down))),
        }
    }

    /// Sends one request that asks for another protocol.
    ///
    /// Errors: at once if the member is down, or as soon as it goes down. Cancel: safe.
    async fn upgrade(&self, request: Outgoing, asked: &UpgradeAsked) -> Result<Upgrade, UpstreamError> {
        if let Some(down) = self.down() {
            return Err(UpstreamError::new(&self.name, Failure::Down(down)));
        }
        tokio::select! {
            answer = self.upstream.upgrade(request, asked) => answer,
            down = self.goes_down() => Err(UpstreamError::new(&self.name, Failure::Down(down))),
        }
    }

    /// Waits until it is down, and says why.
    pub(crate) async fn goes_down(&self) -> Arc<str> {
        let mut health = self.health_changes();
        loop {
            health.borrow_and_update();
            if let Some(down) = self.down() {
                return down;
            }
            if health.changed().await.is_err() {
                // The health that it lost with itself will not change any more.
                std::future::pending::<()>().await;
            }
        }
    }

    /// `down (for 12s): connection refused`, if it is down.
    pub(crate) fn down(&self) -> Option<Arc<str>> {
        let health = self.health();
        let (true, Some(cause)) = (health.is_down(), health.cause()) else { return None };
        let age = health.age(Instant::now()).unwrap_or_default().as_secs();
        Some(format!("down (for {age}s): {cause}").into())
    }

    /// What is known about its health.
    pub fn health(&self) -> Health {
        self.probe_state.health()
    }

    /// Follows its health.
    pub fn health_changes(&self) -> watch::Receiver<Health> {
        self.probe_state.changes()
    }

    /// True once it was probed, with whatever result.
    pub fn tried(&self) -> bool {
        self.probe_state.tried()
    }

    /// Counts how often it ceased to be ready.
    pub(crate) fn outages(&self) -> u64 {
        self.probe_state.outages()
    }

    /// Counts failed requests to it.
    pub fn meter(&self) -> &Meter {
        self.probe_state.meter()
    }

    /// Counts what its reflectors do.
    fn reflectors(&self) -> &ReflectorMeter {
        &self.reflectors
    }

    /// What its reflectors wait for, with those of all members.
    fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// How long its last probe waited for an answer.
    pub fn latency(&self) -> Option<std::time::Duration> {
        self.probe_state.latency()
    }

    /// The last failure with it.
    pub fn last_error(&self) -> Option<LastError> {
        self.probe_state.last_error()
    }

    /// Tells its health something.
    #[cfg(test)]
    pub(crate) fn feed(&self, input: Input) {
        self.probe_state.feed(input);
    }

    /// Records a failure with it.
    fn note(&self, text: &str) {
        self.probe_state.note(text);
    }

    /// How long it has owed an answer to a probe, and answered nobody else either.
    pub(crate) fn silent_for(&self) -> Option<std::time::Duration> {
        self.probe_state.silent_for()
    }

    /// The checks that it passed when it was ready last, as a kube-apiserver names and orders them: `etcd`, `log`, ...
    pub fn passed_checks(&self) -> Arc<[Box<str>]> {
        self.probe_state.passed()
    }

    /// One line about its health: `west is down (for 12s): connection refused`.
    pub fn describe(&self) -> String {
        self.health().describe(self.name.as_str(), Instant::now())
    }

    /// False if it must not be used at all: it is a cluster that another member is already. Health tells of every
    /// change of it: it is down then, and unknown once that is lifted.
    pub fn usable(&self) -> bool {
        self.twin.borrow().is_none() && !self.probe_state.held()
    }

    /// The earlier member that is the same cluster, while there is one.
    pub fn twin_of(&self) -> Option<MemberName> {
        self.twin.borrow().clone()
    }

    /// The UID of its `kube-system` namespace, once read.
    pub fn cluster_uid(&self) -> Option<Arc<str>> {
        self.identity.uid()
    }

    /// The same, or what an earlier process knew while it has not been read. `None`: it has another address since.
    pub fn last_cluster_uid(&self) -> Option<Arc<str>> {
        self.cluster_uids.known_of(self.id)
    }

    /// Counts, from 1, the clusters that this member was: an answer to a request that began in another
    /// incarnation counts for nothing.
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation()
    }

    /// Follows the incarnation.
    pub fn incarnations(&self) -> watch::Receiver<u64> {
        self.identity.incarnations()
    }

    /// Asks it which cluster it is, before a list or after a lost watch; gives the incarnation that holds now.
    ///
    /// Errors: also when it turns out to be the same cluster as an earlier member.
    pub async fn check_identity(&self) -> Result<u64, UpstreamError> {
        let (begun, outages) = (Instant::now(), self.outages());
        let outcome = self.ask_identity().await;
        self.identity.checked(Checked { begun, outages, outcome: outcome.clone() });
        outcome
    }

    /// The same for one of its reflectors: those that ask at the same time share one request. One that continues nothing
    /// also takes what was found a moment ago, after the member's last outage: the end of an outage is one request, and
    /// not one for each kind.
    async fn share_identity(&self, continues_nothing: bool) -> Result<u64, UpstreamError> {
        let came = Instant::now();
        let _turn = self.identity.turn().await;
        let outages = continues_nothing.then(|| self.outages());
        match self.identity.shared(came, outages) {
            Some(outcome) if self.twin_of().is_none() => outcome,
            _ => self.check_identity().await,
        }
    }

    async fn ask_identity(&self) -> Result<u64, UpstreamError> {
        let asked = self.incarnation();
        let uid = identity::read_uid(&self.upstream).await?;
        // The configuration changed while the old cluster answered: ask again, later.
        let fail = |text: Arc<str>| UpstreamError::new(&self.name, Failure::Answer(text));
        if self.incarnation() != asked {
            return Err(fail("it is another cluster by now".into()));
        }
        if self.identity.learn(&uid) {
            tracing::info!(member = %self.name, %uid, incarnation = self.incarnation(), "cluster identified");
        }
        self.cluster_uids.report(self.id, Some(uid));
        self.hold_twin();
        match &*self.twin.borrow() {
            Some(twin) => {
                self.meter().failed(Cause::OtherCluster);
                Err(fail(same_cluster(twin)))
            }
            None => Ok(self.incarnation()),
        }
    }

    /// Ends when the member is removed from the configuration.
    pub fn removed(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Makes health say what the cluster UIDs found.
    fn hold_twin(&self) {
        let cause = self.twin.borrow().as_ref().map(same_cluster);
        if cause.is_some() || self.probe_state.held() {
            self.probe_state.feed(Input::Held(cause));
        }
    }

    /// It may be another cluster now.
    fn moved(&self) {
        self.identity.doubt();
        self.cluster_uids.report(self.id, None);
        self.hold_twin();
        self.probe_state.feed(Input::Moved);
    }

    /// Takes a changed configuration; connections and identity stay unless the access changed.
    fn reconfigure(&self, config: &MemberConfig) {
        if **self.config.load() == *config {
            return;
        }
        self.config.store(Arc::new(config.clone()));
        if self.upstream.reconfigure(config) {
            self.moved();
        }
    }
}

fn same_cluster(twin: &MemberName) -> Arc<str> {
    format!("same cluster as {twin}").into()
}
