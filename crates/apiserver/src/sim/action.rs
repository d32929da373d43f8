//! What controllers decide.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{resource::Resource, view::Uid, world::Key};

/// What to do.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Make an object.
    Create { resource: Resource, namespace: Arc<str>, object: Value, report: Option<Report> },
    /// Replace an object, or its status or another part, if it still has the revision that it says.
    Update { key: Key, subresource: &'static str, object: Value },
    /// Delete an object if it still is the one of this UID.
    Delete { key: Key, uid: Uid, propagation: Option<&'static str>, grace: Option<i64>, report: Option<Report> },
    /// Put a pod on a node.
    Bind { key: Key, node: Arc<str>, uid: Uid },
    /// Tell what happened.
    Event(Event),
}

/// What to tell of an object made or deleted.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// `{}` stands for the name.
    pub(super) done: Event,
    /// `{}` stands for the failure.
    pub(super) failed: Event,
}

/// An event to come.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// What it is about.
    pub(super) about: Key,
    /// Which part of it, such as `spec.containers{web}`.
    pub(super) field: String,
    /// `Normal` or `Warning`.
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) by: &'static str,
    /// The node that it happens on; empty: none.
    pub(super) host: String,
}

impl Event {
    /// Something usual.
    pub(super) fn normal(about: &Key, by: &'static str, reason: &'static str, message: String) -> Self {
        let (field, host) = (String::new(), String::new());
        Self { about: about.clone(), field, warning: false, reason, message, by, host }
    }

    /// Something bad.
    pub(super) fn warning(about: &Key, by: &'static str, reason: &'static str, message: String) -> Self {
        Self { warning: true, ..Self::normal(about, by, reason, message) }
    }

    /// In a container, on a node.
    pub(super) fn at(mut self, container: Option<&str>, host: &str) -> Self {
        self.field = container.map(|name| format!("spec.containers{{{name}}}")).unwrap_or_default();
        host.clone_into(&mut self.host);
        self
    }
}

/// What a controller wants after a look at one object.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) actions: Vec<Action>,
    /// When to look again though nothing changes.
    pub(super) again: Option<Timestamp>,
}

impl Outcome {
    /// Looks again at the latest then.
    pub(super) fn again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |present| present.min(at)));
    }

    pub(super) fn create(&mut self, resource: Resource, namespace: &Arc<str>, object: Value) {
        self.create_telling(resource, namespace, object, None);
    }

    pub(super) fn create_telling(
        &mut self,
        resource: Resource,
        namespace: &Arc<str>,
        object: Value,
        report: Option<Report>,
    ) {
        let namespace = Arc::clone(namespace);
        self.actions.push(Action::Create { resource, namespace, object, report });
    }

    pub(super) fn update(&mut self, key: &Key, object: Value) {
        self.update_part(key, "", object);
    }

    pub(super) fn update_status(&mut self, key: &Key, object: Value) {
        self.update_part(key, "status", object);
    }

    pub(super) fn update_part(&mut self, key: &Key, subresource: &'static str, object: Value) {
        self.actions.push(Action::Update { key: key.clone(), subresource, object });
    }

    pub(super) fn delete(&mut self, key: &Key, uid: Uid, propagation: Option<&'static str>) {
        self.actions.push(Action::Delete { key: key.clone(), uid, propagation, grace: None, report: None });
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.actions.push(Action::Event(event));
    }

    /// Nothing was decided.
    pub(super) fn is_idle(&self) -> bool {
        self.actions.is_empty()
    }
}
