//! kubefold's own objects, put together: their kinds, their server, and what follows the fleet for them.

use std::sync::{Arc, Weak};

use anyhow::Context;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::Access,
    accounts::Accounts,
    app::{
        applied::{Applied, Current},
        records::Records,
    },
    catalog::search_group,
    config::Config,
    own::{
        self, Fleet, FleetLink, Members, OwnObjects, Policies, merged,
        shadow::{Follower, Shadow},
    },
    route::{OwnRooms, Router},
    serve::{Published, StateDir},
    stores::Stores,
    write::journal::KeyFile,
};

/// kubefold's own objects, before anybody can ask for them.
pub(super) struct Own {
    pub(super) rooms: OwnRooms,
    current: Current,
    shadow: Shadow,
    link: Arc<FleetLink>,
}

impl Own {
    /// Opens those that are stored, and has the members and the policies among them in force. The key is that of the
    /// journal, which was opened before.
    ///
    /// Errors: the file; what is in it does not go with `clusters.yaml`.
    pub(super) async fn open(
        records: &Records,
        state: &StateDir,
        stores: &Arc<Stores>,
        file: Config,
        key: &KeyFile,
        tasks: &TaskTracker,
        draining: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let link = Arc::new(FleetLink::default());
        let storage = records.own(state.path()).await?;
        let shadow = Shadow::new(Arc::clone(&link), Arc::clone(stores), Arc::clone(&storage));
        shadow.configure(&file.shadow_fields);
        let mut kinds = own::kinds_of(shadow.kind(&file.aliases))?;
        let members = Members::new(Arc::clone(stores), &file);
        kinds.extend(members.kind()?);
        let policies = Policies::new(Arc::clone(stores), file.clone());
        kinds.extend(policies.kinds()?);
        let state_key = key.key(true)?;
        let has_earlier = state_key.has_earlier();
        let objects = Arc::new(OwnObjects::start(storage, kinds, state_key).await?);
        if has_earlier {
            let file = key.path().display().to_string();
            tracing::info!(
                file,
                "the state is encrypted with the first key of the file: its other keys are not needed any more"
            );
        }
        let mut groups = objects.groups().to_vec();
        groups.push(search_group());
        stores.set_own(&groups);
        let refused = |status: kubefold_wire::status::Status| anyhow::anyhow!(status.message);
        let joined = members.refresh(&objects).await.map_err(refused).context("the members in the state directory")?;
        let whole = merged(&file, &joined)?;
        stores.registry().apply(&whole)?;
        policies.configure(whole);
        let loaded = policies.load(objects.registry()).await;
        let watches = loaded.map_err(refused).context("the policies in the state directory")?;
        let following = Arc::clone(&policies).follow(objects.registry().clone(), watches);
        tasks.spawn(draining.clone().run_until_cancelled_owned(following));
        let current = Current { file, refused: None, joined };
        Ok(Self { rooms: OwnRooms { objects, policies, members }, current, shadow, link })
    }

    /// The configuration in force at the start: the file, with the members that are objects.
    pub(super) fn config(&self) -> Result<Config, own::JoinError> {
        merged(&self.current.file, &self.current.joined)
    }

    /// What puts later configurations in force: those of the file, and those that objects make.
    pub(super) fn applied(
        &self,
        access: Arc<Access>,
        accounts: Arc<Accounts>,
        published: &Arc<Mutex<Published>>,
        state: &Arc<StateDir>,
    ) -> Arc<Applied> {
        let (published, state) = (Arc::clone(published), Arc::clone(state));
        let applied = Applied::new(
            self.current.clone(),
            access,
            accounts,
            self.rooms.clone(),
            self.shadow.clone(),
            published,
            state,
        );
        let enlist: Weak<dyn own::Enlist> = Arc::downgrade(&(Arc::clone(&applied) as Arc<dyn own::Enlist>));
        self.rooms.members.enlisted_by(enlist);
        applied
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
        let registry = self.rooms.objects.registry().clone();
        let recorder = own::Recorder::new(self.rooms.objects.system().registry().clone());
        let following = Follower::run(self.shadow, Arc::clone(stores), registry.clone(), recorder, draining.clone());
        tasks.spawn(following);
        let counting = Arc::clone(&self.rooms.policies).count(registry.clone());
        tasks.spawn(draining.clone().run_until_cancelled_owned(counting));
        let going = self.rooms.policies.go_with_namespaces(registry);
        tasks.spawn(draining.clone().run_until_cancelled_owned(going));
        let renewing = Arc::clone(&self.rooms.members).renew_tokens(Arc::clone(&self.rooms.objects));
        tasks.spawn(draining.clone().run_until_cancelled_owned(renewing));
        let inventory = Arc::clone(&self.rooms.members).follow_inventory(Arc::clone(&self.rooms.objects));
        tasks.spawn(draining.clone().run_until_cancelled_owned(inventory));
        let members = self.rooms.members.follow(self.rooms.objects);
        tasks.spawn(draining.clone().run_until_cancelled_owned(members));
    }
}
