//! The configuration in force: that of `clusters.yaml`, with the members that are objects.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    access::Access,
    accounts::Accounts,
    config::{Config, MemberConfig},
    own::{Enlist, merged, shadow::Shadow},
    route::OwnRooms,
    serve::{Published, StateDir},
};

/// Puts configurations in force, one after the other.
pub(super) struct Applied {
    access: Arc<Access>,
    accounts: Arc<Accounts>,
    own: OwnRooms,
    shadow: Shadow,
    published: Arc<Mutex<Published>>,
    state: Arc<StateDir>,
    current: Mutex<Current>,
}

/// What the fleet is made of.
#[derive(Clone)]
pub(super) struct Current {
    /// The file that is in force.
    pub(super) file: Config,
    /// A later one, which does not go with the objects as they are.
    pub(super) refused: Option<Config>,
    /// The members that are objects.
    pub(super) joined: Vec<MemberConfig>,
}

impl Applied {
    /// Begins with what is in force.
    pub(super) fn new(
        current: Current,
        access: Arc<Access>,
        accounts: Arc<Accounts>,
        own: OwnRooms,
        shadow: Shadow,
        published: Arc<Mutex<Published>>,
        state: Arc<StateDir>,
    ) -> Arc<Self> {
        let in_force = merged(&current.file, &current.joined);
        let this = Self { access, accounts, own, shadow, published, state, current: Mutex::new(current) };
        if let Ok(config) = in_force {
            this.publish(&config);
        }
        Arc::new(this)
    }

    /// Takes a later file. One that does not go with the objects is taken once it does.
    pub(super) fn configure(&self, file: Config) {
        self.change(|current| current.refused = Some(file));
    }

    fn change(&self, change: impl FnOnce(&mut Current)) {
        let mut current = self.current.lock();
        change(&mut current);
        if let Some(file) = current.refused.take() {
            match merged(&file, &current.joined) {
                Ok(config) => {
                    self.own.members.configure(&file);
                    current.file = file;
                    return self.put_in_force(config);
                }
                Err(error) => {
                    tracing::error!("configuration refused, the running one stays: {error}");
                    current.refused = Some(file);
                }
            }
        }
        match merged(&current.file, &current.joined) {
            Ok(config) => self.put_in_force(config),
            Err(error) => tracing::error!("the members that are objects are not applied: {error}"),
        }
    }

    fn put_in_force(&self, config: Config) {
        if let Err(error) = self.access.stores().registry().apply(&config) {
            tracing::error!("the new configuration is not applied: {error}");
            return;
        }
        self.accounts.configure(&config.subjects);
        self.access.configure(&config.own);
        self.access.configure_host(config.aggregation.as_ref());
        self.shadow.configure(&config.shadow_fields);
        self.publish(&config);
        self.own.policies.configure(config);
    }

    /// Tells those who make kubeconfigs.
    fn publish(&self, config: &Config) {
        let mut published = self.published.lock();
        published.members = member_names(config);
        if let Err(error) = published.write(&self.state) {
            tracing::error!("cannot write serving.json, so new kubeconfigs have the old members: {error}");
        }
    }
}

impl Enlist for Applied {
    fn enlist(&self, joined: Vec<MemberConfig>) {
        self.change(|current| current.joined = joined);
    }
}

/// Their names, in configuration order.
pub(super) fn member_names(config: &Config) -> Vec<String> {
    config.members.iter().map(|member| member.name.to_string()).collect()
}
