//! The namespace of a run, and what is in it. Nothing outside it is changed.

use std::{sync::Arc, time::Duration};

use anyhow::bail;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cli::{
    bench::{
        plan::{Kind, Shape},
        target::Target,
    },
    progress::Progress,
};
use kubefold_wire::golang::Quoted;

/// What every object of a run has, and its namespace: whose it is.
const LABEL: &str = "app.kubernetes.io/managed-by";
const OWNER: &str = "kubefold-bench";
/// The label that the scenario selectors selects by; it has [`SHARDS`] values.
pub(super) const SHARD: &str = "bench-shard";
/// An object in a hundred has each value.
pub(super) const SHARDS: u64 = 100;
/// The annotation that writes change.
pub(super) const SENT: &str = "bench-sent";
/// How many objects are made at the same time.
const AT_ONCE: usize = 16;
/// How long a namespace may take to go.
const GONE: Duration = Duration::from_mins(5);
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// The namespace, filled.
#[derive(Clone)]
pub(super) struct Space {
    pub(super) namespace: Arc<str>,
    kind: Kind,
    object_bytes: usize,
    objects: u64,
    /// Where each object goes, in turn; empty where the endpoint has no members.
    members: Arc<[String]>,
}

impl Space {
    /// Nothing is asked yet.
    pub(super) fn new(namespace: &str, shape: &Shape, target: &Target) -> Self {
        Self {
            namespace: namespace.into(),
            kind: shape.kind,
            object_bytes: shape.object_bytes as usize,
            objects: u64::from(shape.objects),
            members: target.members().into(),
        }
    }

    /// Looks whether the namespace is free. One that an earlier run left goes first.
    ///
    /// Errors: the namespace is somebody else's; the endpoint refuses. Each says why in one sentence.
    pub(super) async fn free(&self, target: &Target) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Namespace {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            labels: std::collections::BTreeMap<String, String>,
        }
        let name = &*self.namespace;
        let (status, body) = target.must("read the namespace", Method::GET, &self.own_path(), Bytes::new()).await?;
        if status.is_success() {
            let found: Namespace = serde_json::from_slice(&body)?;
            if found.metadata.labels.get(LABEL).is_none_or(|owner| owner != OWNER) {
                bail!(
                    "namespace {} exists at {} and no bench made it (it has no label {LABEL}={OWNER}); nothing was changed: \
                     name another with --namespace",
                    Quoted(name),
                    target.url()
                );
            }
            self.remove(target).await?;
        }
        Ok(())
    }

    /// Makes the namespace.
    ///
    /// Errors: somebody else just made it; the endpoint refuses it.
    pub(super) async fn make(&self, target: &Target) -> anyhow::Result<()> {
        let name = &*self.namespace;
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LABEL: OWNER}}});
        let (status, _) =
            target.must("make the namespace", Method::POST, "/api/v1/namespaces", body.to_string().into()).await?;
        if status == StatusCode::CONFLICT {
            bail!(
                "somebody made namespace {} at {} at this moment, perhaps another bench; give each its own --namespace",
                Quoted(name),
                target.url()
            );
        }
        Ok(())
    }

    /// Makes the objects.
    ///
    /// Errors: the endpoint refuses one.
    pub(super) async fn fill(&self, target: &Target, progress: &Progress) -> anyhow::Result<()> {
        if self.kind == Kind::Pods {
            // A kube-apiserver takes no pod before its ServiceAccount, which a controller makes a little later.
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            let path = format!("{}/serviceaccounts", self.own_path());
            target.must("make the ServiceAccount", Method::POST, &path, account.to_string().into()).await?;
        }
        let (path, mut made) = (self.path(), 0_u64);
        let make = async |index: u64| {
            let body = self.body(&self.name(index), index);
            target.must("make an object", Method::POST, &path, body.to_string().into()).await
        };
        let mut answers = stream::iter(0..self.objects).map(make).buffer_unordered(AT_ONCE);
        while let Some((status, body)) = answers.try_next().await? {
            if !status.is_success() {
                bail!(
                    "cannot make an object at {}: {} {}; does something delete what is in namespace {}?",
                    target.url(),
                    status.as_u16(),
                    String::from_utf8_lossy(&body),
                    Quoted(&self.namespace)
                );
            }
            made += 1;
            progress.show(|| format!("filling   {made}/{} objects", self.objects));
        }
        Ok(())
    }

    /// Removes the namespace with all that is in it, and waits until it is gone.
    ///
    /// Errors: it is not gone after five minutes; the endpoint refuses.
    pub(super) async fn remove(&self, target: &Target) -> anyhow::Result<()> {
        let path = self.own_path();
        let ends = Instant::now() + GONE;
        loop {
            // Again and again: a member that was down got nothing of the first one.
            let (status, _) = target.must("remove the namespace", Method::DELETE, &path, Bytes::new()).await?;
            if status == StatusCode::NOT_FOUND {
                return Ok(());
            }
            if Instant::now() > ends {
                bail!(
                    "namespace {} at {} is still there {} s after it was deleted: does a controller-manager run, and does a \
                     finalizer hold it? kubectl get namespace {} -o yaml says why",
                    Quoted(&self.namespace),
                    target.url(),
                    GONE.as_secs(),
                    self.namespace
                );
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// The URL path of the objects.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.own_path(), self.kind.plural())
    }

    /// How many objects there are.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// The URL path of an object of the namespace, by any number.
    pub(super) fn object(&self, number: u64) -> String {
        format!("{}/{}", self.path(), self.name(number % self.objects))
    }

    /// The name of the object of this number: in the fleet view, that of its member's own object.
    pub(super) fn name(&self, index: u64) -> String {
        self.of_member(&format!("object-{index:07}"), index)
    }

    /// The name of an object that a scenario makes.
    pub(super) fn short_lived(&self, index: u64) -> String {
        self.of_member(&format!("short-lived-{index:07}"), index)
    }

    /// The first object that is in this member.
    #[cfg(feature = "demo")]
    pub(super) fn object_of(&self, member: &str) -> Option<String> {
        let index = self.members.iter().position(|name| name == member)? as u64;
        (index < self.objects).then(|| self.object(index))
    }

    /// A document of about the asked size.
    pub(super) fn body(&self, name: &str, index: u64) -> Value {
        let filler = "x".repeat(self.object_bytes);
        let labels = json!({LABEL: OWNER, SHARD: (index % SHARDS).to_string()});
        match self.kind {
            Kind::Configmaps => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"filler": filler}})
            }
            Kind::Pods => {
                let env = json!([{"name": "FILLER", "value": filler}]);
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {
                    "schedulerName": OWNER, "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "registry.invalid/bench:1", "env": env}]}})
            }
        }
    }

    fn of_member(&self, name: &str, index: u64) -> String {
        let count = self.members.len().max(1) as u64;
        let member = usize::try_from(index % count).ok().and_then(|at| self.members.get(at));
        member.map_or_else(|| name.to_owned(), |member| format!("{name}@{member}"))
    }

    fn own_path(&self) -> String {
        format!("/api/v1/namespaces/{}", self.namespace)
    }
}
