//! The host: a cluster whose kube-aggregator serves groups of this fleet. It says whose requests its front proxy sends and whose
//! tokens it made, and decides about kubefold's own objects.
//!
//! This is what Kubernetes' sample API server does with `--authentication-kubeconfig` and `--authorization-kubeconfig`.
//! Source: kubernetes/apiserver `pkg/server/options/authentication.go`, `authorization.go`.
//!
//! May name: `authn`, `config`, `upstream`, `member`.

mod decisions;
mod error;
mod trust;

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use kube::Client;
use tokio::{sync::watch, time::sleep};

use self::{decisions::Decisions, error::AGAIN_AFTER};
use crate::{
    authn::{Authentication, HostTokens},
    config::Aggregation,
    member::review::{Action, Judgement},
    upstream::access::{Fingerprint, client},
};
use kubefold_serving::caller::Caller;

pub use self::trust::Trust;

/// The domain of the host's components and ServiceAccounts, where the host is no member: no member can have this name.
pub const OUTSIDE: &str = "the host cluster";
/// How often it is looked whether kubefold's login at the host has changed.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The host of this fleet, if it has one.
pub struct Host {
    configured: watch::Sender<Option<Aggregation>>,
    link: ArcSwapOption<Link>,
    trust: ArcSwapOption<Trust>,
    changes: watch::Sender<u64>,
    authentication: Arc<Authentication>,
}

/// How kubefold serves behind its host.
#[derive(Clone, Debug, Default)]
pub struct HostServing {
    /// Whose requests count.
    pub trust: Option<Arc<Trust>>,
    /// The name that the serving certificate has to have.
    pub server_name: Option<String>,
}

impl HostServing {
    /// Before the host has said anything.
    pub fn before(aggregation: Option<&Aggregation>) -> Self {
        Self { trust: None, server_name: aggregation.map(|host| host.service.server_name()) }
    }
}

/// The way to it.
struct Link {
    client: Client,
    decisions: Decisions,
}

impl Host {
    /// Asks nothing yet; [`Self::follow`] does.
    pub fn new(aggregation: Option<&Aggregation>, authentication: Arc<Authentication>) -> Arc<Self> {
        Arc::new(Self {
            configured: watch::Sender::new(aggregation.cloned()),
            link: ArcSwapOption::empty(),
            trust: ArcSwapOption::empty(),
            changes: watch::Sender::new(0),
            authentication,
        })
    }

    /// Takes another configuration.
    pub fn configure(&self, aggregation: Option<&Aggregation>) {
        self.configured.send_if_modified(|configured| {
            let is_other = configured.as_ref() != aggregation;
            if is_other {
                *configured = aggregation.cloned();
            }
            is_other
        });
    }

    /// Whose requests count that come by the host. `None` while the host has not said, and where there is none.
    pub fn trust(&self) -> Option<Arc<Trust>> {
        self.trust.load_full()
    }

    /// What it and the configuration say of how kubefold serves.
    pub fn serving(&self) -> HostServing {
        HostServing { trust: self.trust(), ..HostServing::before(self.configured.borrow().as_ref()) }
    }

    /// Counts what [`Self::trust`] was; wakes whoever follows it.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Says whether somebody is known by the host's word alone, and somebody there alone.
    pub fn is_domain_of(&self, caller: &Caller) -> bool {
        let configured = self.configured.borrow();
        caller.domain.is_some() && configured.as_ref().map(domain).as_deref() == caller.domain.as_deref()
    }

    /// Asks the host whether somebody may do something. `None`: there is no host.
    ///
    /// Cancel: safe.
    pub async fn judge(&self, caller: &Caller, action: &Action) -> Option<Judgement> {
        self.configured.borrow().as_ref()?;
        // In the host's terms he would be another one of his name.
        if let Some(domain) = caller.domain.as_ref().filter(|_| !self.is_domain_of(caller)) {
            return Some(Judgement::Denied(format!("the caller is somebody in {domain} alone").into()));
        }
        let Some(link) = self.link.load_full() else {
            return Some(Judgement::Unknown("kubefold cannot log in to it".into()));
        };
        Some(link.decisions.judge(&link.client, caller, action).await)
    }

    /// Follows what the host says, until cancelled.
    pub async fn follow(self: Arc<Self>) -> Infallible {
        let mut configured = self.configured.subscribe();
        loop {
            let aggregation = configured.borrow_and_update().clone();
            let following = async {
                match &aggregation {
                    Some(aggregation) => self.follow_one(aggregation).await,
                    None => self.forget(),
                }
                pending::<()>().await;
            };
            tokio::select! {
                () = following => {}
                _ = configured.changed() => self.forget(),
            }
        }
    }

    /// Follows one host. Each time that kubefold's login changes on disk, it is another client that asks.
    async fn follow_one(&self, aggregation: &Aggregation) {
        let (domain, mut complaint) = (domain(aggregation), None);
        loop {
            let login = Fingerprint::of(&aggregation.access, None);
            let access = aggregation.access.clone();
            // A kubeconfig is read from the disk.
            let made = tokio::task::spawn_blocking(move || client(&access)).await;
            match made {
                Ok(Ok(client)) => {
                    complaint = None;
                    self.log_in(client.clone(), aggregation);
                    let following = trust::follow(&client, &domain, |trust| self.take(trust));
                    tokio::select! {
                        never = following => match never {},
                        () = changed(login) => tracing::info!("logs in to the host anew: the credential has changed"),
                    }
                }
                Ok(Err(error)) => {
                    let cause = error.to_string();
                    if complaint.as_ref() != Some(&cause) {
                        tracing::warn!(cause, "cannot log in to the host");
                        complaint = Some(cause);
                    }
                    sleep(AGAIN_AFTER).await;
                }
                Err(_) => sleep(AGAIN_AFTER).await,
            }
        }
    }

    fn log_in(&self, client: Client, aggregation: &Aggregation) {
        self.authentication.ask_host(Some(HostTokens { client: client.clone(), cluster: domain(aggregation) }));
        self.link.store(Some(Arc::new(Link { client, decisions: Decisions::default() })));
    }

    fn take(&self, trust: Trust) {
        if self.trust.load().as_deref() == Some(&trust) {
            return;
        }
        tracing::info!(front_proxy = trust.front_proxies.is_some(), "the host says whose requests it sends");
        self.trust.store(Some(Arc::new(trust)));
        self.changes.send_modify(|count| *count += 1);
    }

    fn forget(&self) {
        self.authentication.ask_host(None);
        self.link.store(None);
        if self.trust.swap(None).is_some() {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

/// The name of the host as a domain.
fn domain(aggregation: &Aggregation) -> Arc<str> {
    aggregation.member.as_ref().map_or(OUTSIDE, |member| member.as_str()).into()
}

/// Once one of the files of a login has changed.
async fn changed(login: Fingerprint) {
    loop {
        sleep(LOOK_EVERY).await;
        if login.again() != login {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
