//! kubefold's own objects, put together: their kinds, their server, and what follows the fleet for them.

use std::sync::{Arc, Weak};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    catalog::search_group,
    config::Config,
    own::{
        self, Fleet, FleetLink, Members, OwnObjects, Policies,
        shadow::{Follower, Shadow},
    },
    route::Router,
    serve::StateDir,
    stores::Stores,
};

/// kubefold's own objects, before anybody can ask for them.
pub(super) struct Own {
    pub(super) objects: Arc<OwnObjects>,
    pub(super) policies: Arc<Policies>,
    pub(super) shadow: Shadow,
    link: Arc<FleetLink>,
}

impl Own {
    /// Opens those of the state directory, and has the policies among them in force.
    ///
    /// Errors: the file, or the policies in it.
    pub(super) async fn open(
        state: &StateDir,
        stores: &Arc<Stores>,
        config: Config,
        tasks: &TaskTracker,
        draining: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let link = Arc::new(FleetLink::default());
        let storage = own::open(state.path()).await?;
        let shadow = Shadow::new(Arc::clone(&link), Arc::clone(stores), Arc::clone(&storage));
        shadow.configure(&config.shadow_fields);
        let mut kinds = own::kinds_of(shadow.kind(&config.aliases))?;
        kinds.extend(Members::kind()?);
        let policies = Policies::new(Arc::clone(stores), config);
        kinds.extend(policies.kinds()?);
        let objects = Arc::new(OwnObjects::start(storage, kinds).await?);
        let mut groups = objects.groups().to_vec();
        groups.push(search_group());
        stores.set_own(&groups);
        let loaded = policies.load(objects.registry()).await;
        let watches =
            loaded.map_err(|status| anyhow::anyhow!("the policies in the state directory: {}", status.message))?;
        let following = Arc::clone(&policies).follow(objects.registry().clone(), watches);
        tasks.spawn(draining.clone().run_until_cancelled_owned(following));
        Ok(Self { objects, policies, shadow, link })
    }

    /// Leads to the fleet, and follows it.
    pub(super) fn follow(
        self,
        router: &Arc<Router>,
        stores: &Arc<Stores>,
        tasks: &TaskTracker,
        draining: &CancellationToken,
    ) {
        let fleet: Weak<dyn Fleet> = Arc::downgrade(&(Arc::clone(router) as Arc<dyn Fleet>));
        self.link.set(fleet);
        let registry = self.objects.registry().clone();
        tasks.spawn(Follower::run(self.shadow, Arc::clone(stores), registry.clone(), draining.clone()));
        let counting = Arc::clone(&self.policies).count(registry.clone());
        tasks.spawn(draining.clone().run_until_cancelled_owned(counting));
        let going = self.policies.go_with_namespaces(registry.clone());
        tasks.spawn(draining.clone().run_until_cancelled_owned(going));
        let members = Members::follow(Arc::clone(stores), registry);
        tasks.spawn(draining.clone().run_until_cancelled_owned(members));
    }
}
