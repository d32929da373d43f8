//! Cluster roles that have the rules of others: of those that the selectors of their `aggregationRule` take.
//!
//! A change of a role is compared with the selectors of the aggregated roles, which are few; the other roles are not looked
//! at. What is written comes back by the watch, so that a role may take the rules of one that takes rules itself.
//!
//! Source: kubernetes `pkg/controller/clusterroleaggregation/clusterroleaggregation_controller.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::stream::StreamExt;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    kinds::Kind,
    rbac::{
        authorizer::RbacError,
        names::{CLUSTER_ROLE, GROUP, RESOURCES},
        rule::Rule,
    },
    registry::{Event, Events, From, Object, Patch, Registry, Selection, WriteOptions},
    schema::FieldValidation,
};
use kubefold_wire::{
    matching::{ObjectSelector, nullable},
    status::{Reason, Status},
};

/// As whom the rules are written.
const MANAGER: &str = "clusterrole-aggregation-controller";
/// After a failure of the storage.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the rules of aggregated roles.
pub(super) struct Aggregation {
    writer: Writer,
    roles: Roles,
    events: Option<Events>,
}

/// Writes the rules of aggregated roles.
struct Writer {
    registry: Registry,
    kind: Arc<Kind>,
}

/// The cluster roles, and which of them take the rules of which.
#[derive(Default)]
struct Roles {
    all: BTreeMap<String, Role>,
    /// By the name of the aggregated role: for each selector whose rules it takes.
    members: BTreeMap<String, Vec<BTreeSet<String>>>,
    /// Aggregated roles that are to be looked at.
    dirty: BTreeSet<String>,
}

#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Role {
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    rules: Vec<Rule>,
    #[serde(deserialize_with = "nullable")]
    aggregation_rule: AggregationRule,
}

#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    #[serde(deserialize_with = "nullable")]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AggregationRule {
    #[serde(deserialize_with = "nullable")]
    cluster_role_selectors: Vec<ObjectSelector>,
}

impl Role {
    fn is_taken_by(&self, selector: &ObjectSelector) -> bool {
        selector.matches(|key| self.metadata.labels.get(key).map(String::as_str))
    }

    fn selectors(&self) -> &[ObjectSelector] {
        &self.aggregation_rule.cluster_role_selectors
    }
}

impl Roles {
    /// Takes a role in; `None`: it is gone.
    fn set(&mut self, name: &str, role: Option<Role>) {
        let before = match role.clone() {
            Some(role) => self.all.insert(name.to_owned(), role),
            None => self.all.remove(name),
        };
        if before == role {
            return;
        }
        let selectors = |role: &Option<Role>| role.as_ref().map_or_else(Vec::new, |role| role.selectors().to_vec());
        if selectors(&before) != selectors(&role) {
            self.gather(name);
        } else if self.members.contains_key(name) {
            self.dirty.insert(name.to_owned());
        }
        for (aggregated, members) in &mut self.members {
            let Some(selectors) = self.all.get(aggregated).map(Role::selectors) else { continue };
            for (selector, members) in selectors.iter().zip(members) {
                let was = members.remove(name);
                let is = role.as_ref().is_some_and(|role| role.is_taken_by(selector)) && aggregated != name;
                if is {
                    members.insert(name.to_owned());
                }
                if was || is {
                    self.dirty.insert(aggregated.clone());
                }
            }
        }
    }

    /// Finds the members of a role that has other selectors than before.
    fn gather(&mut self, name: &str) {
        let selectors = self.all.get(name).map_or_else(Vec::new, |role| role.selectors().to_vec());
        if selectors.is_empty() {
            self.members.remove(name);
            self.dirty.remove(name);
            return;
        }
        let taken = |selector: &ObjectSelector| {
            let taken = self.all.iter().filter(|(other, role)| *other != name && role.is_taken_by(selector));
            taken.map(|(other, _)| other.clone()).collect()
        };
        let members = selectors.iter().map(taken).collect();
        self.members.insert(name.to_owned(), members);
        self.dirty.insert(name.to_owned());
    }

    /// The rules that an aggregated role is to have, if it has others.
    fn wanted(&self, name: &str) -> Option<Vec<Rule>> {
        let mut rules: Vec<Rule> = Vec::new();
        for member in self.members.get(name)?.iter().flatten() {
            for rule in self.all.get(member).into_iter().flat_map(|role| &role.rules) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        (self.all.get(name)?.rules != rules).then_some(rules)
    }
}

impl Aggregation {
    /// Errors: the registry does not serve cluster roles.
    pub(super) fn new(registry: &Registry) -> Result<Self, RbacError> {
        let [plural, ..] = RESOURCES;
        let kind = registry.resource(GROUP, "v1", plural).ok_or(RbacError::NoKind(plural))?;
        let writer = Writer { registry: registry.clone(), kind };
        Ok(Self { writer, roles: Roles::default(), events: None })
    }

    /// Reads all roles, and brings those that are aggregated to what they are to be, and those that take their rules, too.
    ///
    /// Errors: the storage's.
    pub(super) async fn settle(&mut self) -> Result<(), Status> {
        self.load().await?;
        // One step for each role on the longest way; a circle goes on with the events.
        for _ in 0..=self.roles.members.len() {
            for name in std::mem::take(&mut self.roles.dirty) {
                if let Some(role) = self.writer.write(&self.roles, &name).await? {
                    self.roles.set(&name, Some(role));
                }
            }
        }
        Ok(())
    }

    /// Follows them until it is cancelled, whatever the storage says.
    ///
    /// Cancel: safe.
    pub(super) async fn follow_until(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let Some(Err(status)) = stop.run_until_cancelled(self.run()).await else { continue };
            self.events = None;
            tracing::warn!(error = status.message, "restarting the aggregation of cluster roles");
            let _cancelled = stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
    }

    async fn run(&mut self) -> Result<(), Status> {
        if self.events.is_none() {
            self.load().await?;
        }
        loop {
            while let Some(name) = self.roles.dirty.pop_first() {
                self.writer.write(&self.roles, &name).await?;
            }
            let Some(events) = &mut self.events else { return Ok(()) };
            match events.next().await.transpose()? {
                Some(event) => self.roles.take(&event),
                None => self.events = None,
            }
        }
    }

    async fn load(&mut self) -> Result<(), Status> {
        let mut events = self.writer.registry.watch(&self.writer.kind, "", Selection::default(), From::Start).await?;
        self.roles = Roles::default();
        while let Some(event) = events.next().await.transpose()? {
            self.roles.take(&event);
            if matches!(event, Event::Synced(_)) {
                break;
            }
        }
        self.events = Some(events);
        Ok(())
    }
}

impl Writer {
    /// Gives an aggregated role its rules. Answers it, if they were others.
    async fn write(&self, roles: &Roles, name: &str) -> Result<Option<Role>, Status> {
        let Some(rules) = roles.wanted(name) else { return Ok(None) };
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": CLUSTER_ROLE, "metadata": {"name": name},
        });
        if !rules.is_empty() {
            object["rules"] = serde_json::to_value(rules).unwrap_or_default();
        }
        let (patch, options) =
            (Patch::Apply { object, force: true }, WriteOptions { manager: MANAGER.into(), ..WriteOptions::default() });
        let written = self.registry.patch(&self.kind, "", name, &patch, FieldValidation::Ignore, &options);
        match Box::pin(written).await {
            Ok(written) => Ok(read(&written.object)),
            // It has changed meanwhile, and comes again.
            Err(status) if matches!(status.reason, Reason::Conflict | Reason::NotFound) => Ok(None),
            Err(status) => Err(status),
        }
    }
}

impl Roles {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Added(object) | Event::Modified(object) => self.set(object.name(), read(object)),
            Event::Deleted(object) => self.set(object.name(), None),
            Event::Synced(_) | Event::Progress(_) => {}
        }
    }
}

fn read(object: &Object) -> Option<Role> {
    serde_json::from_str(object.bare()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: serde_json::Value, selectors: serde_json::Value, verb: &str) -> Role {
        let rules = if verb.is_empty() { json!([]) } else { json!([{"verbs": [verb]}]) };
        let metadata = json!({"name": name, "labels": labels});
        let aggregation = json!({"clusterRoleSelectors": selectors});
        serde_json::from_value(json!({"metadata": metadata, "rules": rules, "aggregationRule": aggregation})).unwrap()
    }

    fn verbs(roles: &Roles, name: &str) -> Option<Vec<String>> {
        Some(roles.wanted(name)?.into_iter().flat_map(|rule| rule.verbs).collect())
    }

    #[test]
    fn a_role_has_the_rules_of_those_that_its_selectors_take_in_their_order() {
        let mut roles = Roles::default();
        let selectors = json!([{"matchLabels": {"second": "y"}}, {"matchLabels": {"first": "y"}}]);
        roles.set("all", Some(role("all", json!({"first": "y"}), selectors, "")));
        roles.set("b", Some(role("b", json!({"first": "y"}), json!([]), "get")));
        roles.set("a", Some(role("a", json!({"first": "y"}), json!([]), "list")));
        roles.set("c", Some(role("c", json!({"second": "y"}), json!([]), "watch")));
        roles.set("d", Some(role("d", json!({"third": "y"}), json!([]), "delete")));
        assert_eq!(verbs(&roles, "all"), Some(vec!["watch".into(), "list".into(), "get".into()]));
        roles.dirty.clear();
        roles.set("d", Some(role("d", json!({"third": "y"}), json!([]), "create")));
        assert!(roles.dirty.is_empty(), "nobody takes it");
        roles.set("a", None);
        roles.set("c", Some(role("c", json!({}), json!([]), "watch")));
        assert_eq!((roles.dirty.pop_first().as_deref(), verbs(&roles, "all")), (Some("all"), Some(vec!["get".into()])));
        roles.set("all", Some(role("all", json!({}), json!([]), "get")));
        assert_eq!(verbs(&roles, "all"), None, "it is aggregated no more");
    }
}
