//! Policies go with the namespace that they are in.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::StatusCode;
use tokio::{sync::Notify, time::sleep};

use super::{Kept, Key, Policies, follow::KINDS};
use crate::{
    own::namespaces,
    respond::OwnError,
    stores::{self, Heard},
    view::Mode,
};
use kubefold_apiserver::registry::{DeleteOptions, Registry};
use kubefold_wire::status::Status;

/// After a failure, and between two looks whether there are policies in namespaces.
const RETRY: Duration = Duration::from_secs(5);
/// Changes of namespaces that come so soon after each other are one.
const TOGETHER: Duration = Duration::from_millis(50);

impl Policies {
    /// Refuses a policy in a namespace that no member has, as a kube-apiserver does.
    ///
    /// Errors: 404.
    pub async fn has_namespace(&self, namespace: &str) -> Result<(), Status> {
        let is_absent = !namespace.is_empty() && namespaces::lacks(&self.stores, namespace).await;
        if is_absent { Err(OwnError::NoNamespace(namespace.to_owned()).into()) } else { Ok(()) }
    }

    /// Deletes policies whose namespace is gone, until cancelled.
    pub async fn go_with_namespaces(self: Arc<Self>, registry: Registry) {
        loop {
            // Where there is none, no store is started for them.
            if !self.in_namespaces().is_empty()
                && let Ok(ready) = self.stores.ready_in(&namespaces::resource(), None, Mode::Lenient).await
            {
                let changed = Notify::new();
                let following = stores::follow(&ready.running.store, |heard| match heard {
                    Heard::Begun | Heard::Lost | Heard::Event(_) => changed.notify_one(),
                });
                let looking = async {
                    loop {
                        changed.notified().await;
                        sleep(TOGETHER).await;
                        self.delete_left_behind(&registry).await;
                    }
                };
                tokio::select! {
                    () = following => {}
                    () = looking => {}
                }
            }
            sleep(RETRY).await;
        }
    }

    /// The policies that are in a namespace.
    fn in_namespaces(&self) -> Vec<(Kept, Key)> {
        let state = self.state.lock();
        let all = state.objects.iter().flat_map(|(kept, objects)| objects.keys().map(|key| (*kept, key.clone())));
        all.filter(|(_, (namespace, _))| !namespace.is_empty()).collect()
    }

    async fn delete_left_behind(&self, registry: &Registry) {
        let all = self.in_namespaces();
        let namespaces: BTreeSet<&str> = all.iter().map(|(_, (namespace, _))| &**namespace).collect();
        let mut gone = BTreeSet::new();
        for namespace in namespaces {
            if namespaces::lacks(&self.stores, namespace).await {
                gone.insert(namespace.to_owned());
            }
        }
        for (kept, (namespace, name)) in all.iter().filter(|(_, (namespace, _))| gone.contains(namespace)) {
            let of = KINDS.iter().find(|(of, ..)| of == kept);
            let Some(kind) = of.and_then(|(_, group, version, plural)| registry.resource(group, version, plural))
            else {
                continue;
            };
            let deleted = registry.delete(&kind, namespace, name, &DeleteOptions::default()).await;
            if let Err(status) = deleted
                && status.code != StatusCode::NOT_FOUND
            {
                tracing::info!(namespace, name, error = status.message, "a policy stays behind its namespace");
            }
        }
    }
}
