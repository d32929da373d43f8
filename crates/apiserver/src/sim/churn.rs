//! What people and machines do to a cluster all day: rollouts, scaling, restarts, jobs.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    fields::{annotate, annotation, count},
    names::Dice,
    view::SCRIPT,
};
use crate::{
    kinds::Kind,
    registry::{DeleteOptions, ListOptions, Object, Registry, WriteOptions},
};
use kubefold_wire::status::Status;

/// Where it is best to leave things as they are.
const SYSTEM: &str = "kube-system";
/// The jobs that it makes go after so many seconds.
const JOB_SECONDS: i64 = 120;
/// A workload never grows beyond so many times what it was, and so many pods more.
const GROWTH: (i64, i64) = (2, 3);
/// The size that a workload had before it was first scaled.
const SIZE: &str = "kubefold.io/sim-size";

/// How much happens.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// What all choices follow from.
    pub seed: u64,
    /// Changes in a second, that each lead to several more.
    pub per_second: f64,
}

/// Changes a cluster until it is cancelled. What the storage refuses is left out.
///
/// Cancel: safe at any time.
pub async fn churn(registry: Registry, churn: Churn, stop: CancellationToken) {
    if churn.per_second <= 0.0 {
        return;
    }
    let every = Duration::from_secs_f64((1.0 / churn.per_second).clamp(0.0001, 86_400.0));
    let mut hand = Hand { registry, dice: Dice::new(churn.seed, "churn"), targets: Vec::new(), looked: None };
    let mut next = Instant::now();
    loop {
        next += every;
        if stop.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
            return;
        }
        let step = Box::pin(hand.step());
        match stop.run_until_cancelled(step).await {
            None => return,
            Some(Ok(())) => {}
            Some(Err(status)) => tracing::debug!(message = %status.message, "a change was refused"),
        }
    }
}

/// Seconds after which the workloads are listed anew.
const LOOK_SECONDS: u64 = 30;

struct Hand {
    registry: Registry,
    dice: Dice,
    /// Namespaces and names of deployments.
    targets: Vec<(String, String)>,
    looked: Option<Instant>,
}

impl Hand {
    fn kind(&self, group: &str, kind: &str) -> Result<Arc<Kind>, Status> {
        self.registry.kind(group, kind).ok_or_else(|| Status::internal("this server does not serve that kind"))
    }

    /// One change.
    async fn step(&mut self) -> Result<(), Status> {
        if self.looked.is_none_or(|looked| looked.elapsed() >= Duration::from_secs(LOOK_SECONDS)) {
            self.reconcile().await?;
        }
        let Some((namespace, name)) = self.dice.one(&self.targets).cloned() else { return Ok(()) };
        match self.dice.below(10) {
            0 | 1 => self.roll(&namespace, &name).await,
            2..=4 => self.scale(&namespace, &name).await,
            5 => self.job(&namespace, &name).await,
            _ => self.restart(&namespace, &name).await,
        }
    }

    async fn reconcile(&mut self) -> Result<(), Status> {
        let kind = self.kind("apps", "Deployment")?;
        let list = self.registry.list(&kind, "", &ListOptions::default()).await?;
        let people = list.objects.iter().filter(|object| object.namespace() != SYSTEM);
        self.targets = people.map(|object| (object.namespace().to_owned(), object.name().to_owned())).collect();
        self.looked = Some(Instant::now());
        Ok(())
    }

    /// What `kubectl rollout restart` does.
    async fn roll(&self, namespace: &str, name: &str) -> Result<(), Status> {
        let kind = self.kind("apps", "Deployment")?;
        let now = self.registry.env().now_text();
        let change = |deployment: &mut Value| {
            let template = &mut deployment["spec"]["template"];
            annotate(template, "kubectl.kubernetes.io/restartedAt", &now);
            Ok(())
        };
        self.registry.modify(&kind, namespace, name, &WriteOptions::default(), change).await.map(drop)
    }

    /// One pod more or fewer, about the size that it had at first.
    async fn scale(&mut self, namespace: &str, name: &str) -> Result<(), Status> {
        let kind = self.kind("apps", "Deployment")?;
        let up = self.dice.below(2) == 0;
        let change = |deployment: &mut Value| {
            let size = count(deployment, "/spec/replicas");
            let first = annotation(deployment, SIZE).parse().unwrap_or(size);
            let most = first * GROWTH.0 + GROWTH.1;
            let to = if up && size < most || size <= 1 { size + 1 } else { size - 1 };
            annotate(deployment, SIZE, &first.to_string());
            deployment["spec"]["replicas"] = to.into();
            Ok(())
        };
        self.registry.modify(&kind, namespace, name, &WriteOptions::default(), change).await.map(drop)
    }

    /// A short job.
    async fn job(&mut self, namespace: &str, name: &str) -> Result<(), Status> {
        let kind = self.kind("batch", "Job")?;
        let run = format!("run={}s", self.dice.between(2, 12));
        let container =
            json!({"name": "task", "image": "platform/task:1.0.3", "resources": {"requests": {"cpu": "50m"}}});
        let template = json!({
            "metadata": {"annotations": {SCRIPT: run}}, "spec": {"restartPolicy": "Never", "containers": [container]},
        });
        let job = format!("{name}-task-{}", self.dice.letters(5));
        let spec = json!({"ttlSecondsAfterFinished": JOB_SECONDS, "template": template});
        let object = json!({"metadata": {"name": job, "namespace": namespace}, "spec": spec});
        self.registry.create(&kind, namespace, object, &WriteOptions::default()).await.map(drop)
    }

    /// A pod goes; its replica set makes another.
    async fn restart(&mut self, namespace: &str, name: &str) -> Result<(), Status> {
        let kind = self.kind("", "Pod")?;
        let list = self.registry.list(&kind, namespace, &ListOptions::default()).await?;
        let prefix = format!("{name}-");
        let pods: Vec<&Object> = list.objects.iter().filter(|pod| pod.name().starts_with(&prefix)).collect();
        let Some(pod) = self.dice.one(&pods) else { return Ok(()) };
        let options = DeleteOptions::default();
        self.registry.delete(&kind, namespace, pod.name(), &options).await.map(drop)
    }
}
