//! The controllers of one cluster as one state machine: changes and the time go in, operations come out.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    action::{Action, Event, Outcome, Report},
    autoscaler,
    context::{Context, Settings},
    cron, daemonset, deployment, disruption, endpoints,
    event::{self, Book},
    garbage, job, kubelet, namespace, node,
    queue::{Controller, Item, Queue},
    replicaset,
    resource::{
        AUTOSCALERS, CLAIMS, CONFIG_MAPS, CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, Described,
        ENDPOINT_SLICES, ENDPOINTS, EVENTS, JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS,
        Resource, SERVICE_ACCOUNTS, SERVICES, STATEFUL_SETS, STORAGE_CLASSES, VOLUMES,
    },
    scheduler, statefulset,
    view::{Entry, Labels},
    volume,
    world::{Key, World},
};

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The object has changed, or is gone, or is there already: what is known is old.
    Stale,
    /// The namespace is being terminated: there is no use in trying again.
    Terminating,
    /// Anything else.
    Other,
}

/// The controllers.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) world: World,
    pub(super) queue: Queue,
    pub(super) settings: Settings,
    book: Book,
    doing: Option<Item>,
    actions: VecDeque<Action>,
}

impl Machine {
    /// Controllers of a cluster of which nothing is known yet.
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes in a kind.
    pub(super) fn learn(&mut self, described: Described) -> Resource {
        self.world.learn(described)
    }

    /// Takes an object of the beginning.
    pub(super) fn load(&mut self, key: &Key, revision: u64, body: &Bytes) {
        let _none_before = self.world.put(key, revision, Some(body));
    }

    /// Looks at all that is there.
    pub(super) fn begin(&mut self) {
        for (key, entry) in self.world.every() {
            if let Some(controller) = controller_of(key.resource) {
                self.queue.add(controller, key);
            }
            if !entry.owners.is_empty() || (entry.deleting && entry.finalized) {
                self.queue.add(Controller::Garbage, key);
            }
            if key.resource == PODS {
                self.queue.add(Controller::Kubelet, key);
            }
            if self.world.unassigned.contains(key) {
                self.queue.add(Controller::Scheduler, key);
            }
        }
    }

    /// Takes a change of an object.
    pub(super) fn tell(&mut self, key: &Key, revision: u64, body: Option<&Bytes>) {
        let Ok(before) = self.world.put(key, revision, body) else { return };
        let after = self.world.get(key).cloned();
        self.touched(key, before.as_ref(), after.as_ref());
    }

    /// The next thing to do now; `None`: nothing until something changes, or the time of [`Self::due`] comes.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Action> {
        loop {
            while let Some(action) = self.actions.pop_front() {
                let Action::Event(event) = action else { return Some(action) };
                if let Some(action) = self.book.write(&self.world, event, now) {
                    return Some(action);
                }
            }
            if let Some(item) = self.doing.take() {
                self.queue.succeeded(&item);
            }
            let item = self.queue.next(now)?;
            let Outcome { actions, again } = self.reconcile(&item, now);
            if let Some(again) = again {
                self.queue.add_at(again, item.clone());
            }
            self.actions = actions.into();
            self.doing = Some(item);
        }
    }

    /// When there is something to do though nothing changes.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.queue.due()
    }

    /// Takes in that an action was done; `name` is what a created object is called.
    pub(super) fn done(&mut self, action: &Action, name: &str) {
        if let Some(Report { done, .. }) = report_of(action) {
            let message = done.message.replace("{}", name);
            self.actions.push_front(Action::Event(Event { message, ..done.clone() }));
        }
    }

    /// Takes in that an action was refused. What was decided with it is dropped, and decided again.
    pub(super) fn refused(&mut self, action: &Action, refusal: Refusal, message: &str, now: Timestamp) {
        let is_event = matches!(action, Action::Create { resource, .. } if *resource == EVENTS)
            || matches!(action, Action::Update { key, .. } if key.resource == EVENTS);
        if is_event {
            return;
        }
        self.actions.clear();
        if refusal == Refusal::Other
            && let Some(Report { failed, .. }) = report_of(action)
        {
            let message = failed.message.replace("{}", message);
            self.actions.push_front(Action::Event(Event { message, ..failed.clone() }));
        }
        if let Some(item) = self.doing.take()
            && refusal != Refusal::Terminating
        {
            self.queue.failed(now, item);
        }
    }

    fn reconcile(&self, (controller, key): &Item, now: Timestamp) -> Outcome {
        if !self.settings.workloads && !matches!(controller, Controller::Garbage | Controller::Namespace) {
            return Outcome::default();
        }
        let context = Context { world: &self.world, key, now, settings: &self.settings };
        let reconcile = match controller {
            Controller::Garbage => garbage::reconcile,
            Controller::Namespace => namespace::reconcile,
            Controller::Node => node::reconcile,
            Controller::Scheduler => scheduler::reconcile,
            Controller::Kubelet => kubelet::reconcile,
            Controller::Deployment => deployment::reconcile,
            Controller::ReplicaSet => replicaset::reconcile,
            Controller::StatefulSet => statefulset::reconcile,
            Controller::DaemonSet => daemonset::reconcile,
            Controller::Job => job::reconcile,
            Controller::CronJob => cron::reconcile,
            Controller::Endpoints => endpoints::reconcile,
            Controller::Disruption => disruption::reconcile,
            Controller::Claim => volume::reconcile,
            Controller::Volume => volume::release,
            Controller::Autoscaler => autoscaler::reconcile,
            Controller::Event => event::reconcile,
        };
        reconcile(&context).unwrap_or_default()
    }

    fn touched(&mut self, key: &Key, before: Option<&Entry>, after: Option<&Entry>) {
        if let Some(controller) = controller_of(key.resource) {
            self.queue.add(controller, key);
        }
        let versions = || before.into_iter().chain(after);
        if after.is_some_and(|after| !after.owners.is_empty() || (after.deleting && after.finalized)) {
            self.queue.add(Controller::Garbage, key);
        }
        for entry in versions() {
            for owner in &entry.owners {
                self.owner_touched(key, owner.uid, owner.controller, after.is_none());
            }
        }
        // Another who deletes it may want another end of its dependents than the first.
        if let Some(ending) = after.filter(|after| after.deleting && after.finalized) {
            let dependents: Vec<Key> = self.world.dependents(ending.uid).map(|(key, _)| key.clone()).collect();
            dependents.iter().for_each(|dependent| self.queue.add(Controller::Garbage, dependent));
        }
        let replaced = before.filter(|before| after.is_none_or(|after| after.uid != before.uid));
        if let Some(gone) = replaced {
            let dependents: Vec<Key> = self.world.dependents(gone.uid).map(|(key, _)| key.clone()).collect();
            dependents.iter().for_each(|dependent| self.queue.add(Controller::Garbage, dependent));
        }
        if key.resource == PODS {
            self.pod_touched(key, before, after);
        }
        self.neighbours_touched(key, before, after);
        if after.is_none() || before.is_none() {
            let of = Key { resource: NAMESPACES, namespace: "".into(), name: Arc::clone(&key.namespace) };
            if self.world.get(&of).is_some_and(|namespace| namespace.deleting) {
                self.queue.add(Controller::Namespace, &of);
            }
        }
    }

    /// What owns an object has it in its own status, and waits for its end.
    fn owner_touched(&mut self, key: &Key, uid: super::view::Uid, manages: bool, gone: bool) {
        let Some((owner, entry)) = self.world.by_uid(uid) else { return };
        let (owner, is_deleting) = (owner.clone(), entry.deleting);
        let above = entry.controller().map(|above| above.uid);
        if is_deleting {
            self.queue.add(Controller::Garbage, &owner);
        }
        if manages && let Some(controller) = controller_of(owner.resource) {
            self.queue.add(controller, &owner);
        }
        // A Deployment that recreates waits for the last old pod.
        if gone
            && key.resource == PODS
            && let Some((above, _)) = above.and_then(|above| self.world.by_uid(above))
        {
            let above = above.clone();
            self.queue.add(Controller::Deployment, &above);
        }
    }

    fn pod_touched(&mut self, key: &Key, before: Option<&Entry>, after: Option<&Entry>) {
        self.queue.add(Controller::Kubelet, key);
        if self.world.unassigned.contains(key) {
            self.queue.add(Controller::Scheduler, key);
        }
        let labels = |entry: Option<&Entry>| -> Option<Labels> { entry.map(|entry| Arc::clone(&entry.labels)) };
        let shown = |entry: Option<&Entry>| {
            entry
                .and_then(|entry| Some((entry.pod()?, entry)))
                .map(|(pod, entry)| (pod.address, pod.ready, pod.phase, entry.deleting, Arc::clone(&entry.labels)))
        };
        if shown(before) == shown(after) {
            return;
        }
        let (before_labels, after_labels) = (labels(before), labels(after));
        let same = before_labels == after_labels;
        for labels in before_labels.iter().chain(after_labels.iter().filter(|_| !same)) {
            for service in self.world.services_of(&key.namespace, labels) {
                self.queue.add(Controller::Endpoints, &service);
            }
        }
        if after.is_none_or(|after| after.pod().is_some_and(|pod| pod.finished())) {
            let ending = self.world.within(CLAIMS, &key.namespace).filter(|(_, claim)| claim.deleting);
            let ending: Vec<Key> = ending.map(|(claim, _)| claim.clone()).collect();
            ending.iter().for_each(|claim| self.queue.add(Controller::Claim, claim));
        }
        let budgets: Vec<Key> =
            self.world.within(DISRUPTION_BUDGETS, &key.namespace).map(|(budget, _)| budget.clone()).collect();
        budgets.iter().for_each(|budget| self.queue.add(Controller::Disruption, budget));
        if after.is_some_and(|after| after.controller().is_none()) {
            self.adoptable(key);
        }
        let room = after.is_none_or(|after| after.pod().is_some_and(|pod| pod.finished()));
        if room && before.and_then(Entry::pod).is_some_and(|pod| pod.node.is_some()) {
            self.retry_unassigned();
        }
    }

    /// Pods without a controller are taken by one that selects them.
    fn adoptable(&mut self, key: &Key) {
        for resource in [REPLICA_SETS, REPLICATION_CONTROLLERS] {
            let owners: Vec<Key> = self.world.within(resource, &key.namespace).map(|(key, _)| key.clone()).collect();
            owners.iter().for_each(|owner| self.queue.add(Controller::ReplicaSet, owner));
        }
    }

    fn retry_unassigned(&mut self) {
        let waiting: Vec<Key> = self.world.unassigned.iter().cloned().collect();
        waiting.iter().for_each(|pod| self.queue.add(Controller::Scheduler, pod));
    }

    fn neighbours_touched(&mut self, key: &Key, before: Option<&Entry>, after: Option<&Entry>) {
        let resource = key.resource;
        let mut all = |of: Resource, controller: Controller| {
            let keys: Vec<Key> = self.world.all(of).map(|(key, _)| key.clone()).collect();
            keys.iter().for_each(|key| self.queue.add(controller, key));
        };
        if resource == NODES {
            let placing = |entry: Option<&Entry>| {
                entry.and_then(|entry| Some((Arc::clone(&entry.labels), entry.node()?.taints.clone())))
            };
            if before.is_none() || placing(before) != placing(after) {
                all(DAEMON_SETS, Controller::DaemonSet);
            }
            if after.is_none() {
                let pods: Vec<Key> = self.world.pods_on(&key.name).map(|(key, _)| key.clone()).collect();
                pods.iter().for_each(|pod| self.queue.add(Controller::Kubelet, pod));
            }
            self.retry_unassigned();
        } else if resource == STORAGE_CLASSES || resource == VOLUMES {
            all(CLAIMS, Controller::Claim);
        } else if resource == CLAIMS {
            if after.is_none() {
                all(VOLUMES, Controller::Volume);
            }
            self.retry_unassigned();
        } else if (resource == ENDPOINTS || resource == ENDPOINT_SLICES) && after.is_none() {
            let service = match before.filter(|_| resource == ENDPOINT_SLICES) {
                Some(slice) => slice.label("kubernetes.io/service-name").unwrap_or_default().into(),
                None => Arc::clone(&key.name),
            };
            let service = Key { resource: SERVICES, namespace: Arc::clone(&key.namespace), name: service };
            self.queue.add(Controller::Endpoints, &service);
        } else if (resource == SERVICE_ACCOUNTS && after.is_none())
            || (resource == CONFIG_MAPS && &*key.name == namespace::ROOT_CA_NAME)
        {
            let of = Key { resource: NAMESPACES, namespace: "".into(), name: Arc::clone(&key.namespace) };
            self.queue.add(Controller::Namespace, &of);
        } else if resource == DEPLOYMENTS || resource == STATEFUL_SETS {
            let scalers: Vec<Key> =
                self.world.within(AUTOSCALERS, &key.namespace).map(|(key, _)| key.clone()).collect();
            scalers.iter().for_each(|scaler| self.queue.add(Controller::Autoscaler, scaler));
        }
    }
}

fn report_of(action: &Action) -> Option<&Report> {
    match action {
        Action::Create { report, .. } | Action::Delete { report, .. } => report.as_ref(),
        _ => None,
    }
}

/// Who looks after a resource.
fn controller_of(resource: Resource) -> Option<Controller> {
    [
        (NAMESPACES, Controller::Namespace),
        (NODES, Controller::Node),
        (DEPLOYMENTS, Controller::Deployment),
        (REPLICA_SETS, Controller::ReplicaSet),
        (REPLICATION_CONTROLLERS, Controller::ReplicaSet),
        (STATEFUL_SETS, Controller::StatefulSet),
        (DAEMON_SETS, Controller::DaemonSet),
        (JOBS, Controller::Job),
        (CRON_JOBS, Controller::CronJob),
        (SERVICES, Controller::Endpoints),
        (DISRUPTION_BUDGETS, Controller::Disruption),
        (CLAIMS, Controller::Claim),
        (VOLUMES, Controller::Volume),
        (AUTOSCALERS, Controller::Autoscaler),
        (EVENTS, Controller::Event),
    ]
    .into_iter()
    .find(|(of, _)| *of == resource)
    .map(|(_, controller)| controller)
}
