//! What members serve, read again and again.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::{CatalogError, FetchError, Fetcher},
    member::Member,
    stores::{Polled, Stores},
    upstream::{Class, Outgoing, collect},
};

/// Largest discovery document that is read.
const DISCOVERY_BYTES_MAX: usize = 64 << 20;

/// Reads discovery of one member, as kubefold itself.
struct DiscoveryFetcher(Arc<Member>);

impl Fetcher for DiscoveryFetcher {
    async fn get(&self, path: &str, headers: HeaderMap) -> Result<Response<Bytes>, FetchError> {
        let request = Outgoing::document(path)?.with_all(headers);
        let (head, body) = self.0.send(request, Class::Read).await?.into_parts();
        Ok(Response::from_parts(head, collect(body, DISCOVERY_BYTES_MAX).await?))
    }
}

impl Stores {
    /// Reads the discovery of every member that is not declared absent.
    pub(super) fn poll(&self) {
        let members = self.registry.members();
        let wanted = |member: &&Arc<Member>| !member.config().absent;
        let mut polled = self.polled.lock();
        polled.retain(|_, polled| {
            let stays = members.iter().filter(wanted).any(|member| Arc::ptr_eq(member, &polled.member));
            if !stays {
                polled.cancel.cancel();
            }
            stays
        });
        for member in members.iter().filter(wanted) {
            if polled.contains_key(member.name()) {
                continue;
            }
            let Some(this) = self.this.upgrade() else { return };
            let cancel = self.cancel.child_token();
            let (asked, until) = (Arc::clone(member), cancel.clone());
            self.tasks.spawn(async move {
                let name = asked.name().clone();
                let fetcher = DiscoveryFetcher(Arc::clone(&asked));
                let (polled, welcomed) = (this.catalog.poll(&name, &fetcher, &until), this.welcome(&asked, &until));
                tokio::join!(polled, welcomed, this.heed(&asked, &until));
            });
            polled.insert(member.name().clone(), Polled { member: Arc::clone(member), cancel });
        }
    }

    /// Asks a member what it serves as soon as it can be reached: readers wait for one that was never asked.
    async fn welcome(&self, member: &Arc<Member>, until: &CancellationToken) {
        let mut health = member.health_changes();
        let welcoming = async {
            let mut was_reachable = health.borrow_and_update().is_reachable();
            while health.changed().await.is_ok() {
                let is_reachable = health.borrow_and_update().is_reachable();
                if is_reachable && !was_reachable {
                    self.refresh(Arc::clone(member)).await;
                }
                was_reachable = is_reachable;
            }
        };
        Box::pin(until.run_until_cancelled(welcoming)).await;
    }

    /// Asks a member now what it serves, as something was written that may have changed it.
    pub async fn refresh(&self, member: Arc<Member>) {
        let name = member.name().clone();
        if let Err(error) = self.try_refresh(member).await {
            tracing::debug!(member = %name, %error, "API catalog not read");
        }
    }

    /// The same, and says what came of it.
    pub(super) async fn try_refresh(&self, member: Arc<Member>) -> Result<bool, CatalogError> {
        let name = member.name().clone();
        self.catalog.refresh(&name, &DiscoveryFetcher(member)).await
    }
}
