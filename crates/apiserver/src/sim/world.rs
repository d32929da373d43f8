//! What the controllers know of a cluster: of each object its bytes (the storage's own), and a few parsed fields.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use serde_json::Value;

use super::{
    resource::{Described, NODES, PODS, Resource, Resources, SERVICES},
    view::{self, Entry, Labels, NodePart, Part, PodPart, Texts, Uid},
};

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) resource: Resource,
    /// Empty if it lies in none.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

/// What a node's pods ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Thousandths of a processor.
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) pods: i64,
}

/// A cluster.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) resources: Resources,
    entries: BTreeMap<Key, Entry>,
    by_uid: HashMap<Uid, Key>,
    dependents: HashMap<Uid, BTreeSet<Key>>,
    loads: HashMap<Arc<str>, Load>,
    /// Pods by node.
    pods: HashMap<Arc<str>, BTreeSet<Key>>,
    /// Pods that wait for a node.
    pub(super) unassigned: BTreeSet<Key>,
    /// Pods that nobody manages.
    loose: BTreeSet<Key>,
    addresses: HashSet<std::net::Ipv4Addr>,
    texts: Texts,
}

impl World {
    /// A key, its texts shared.
    pub(super) fn key(&mut self, resource: Resource, namespace: &str, name: &str) -> Key {
        Key { resource, namespace: self.texts.one(namespace), name: name.into() }
    }

    /// Takes a new version of an object, or its end. Answers what was there before. A version that is not newer than
    /// what is there changes nothing and answers `Err`.
    pub(super) fn put(&mut self, key: &Key, revision: u64, body: Option<&Bytes>) -> Result<Option<Entry>, ()> {
        if self.entries.get(key).is_some_and(|present| present.revision >= revision) {
            return Err(());
        }
        let before = self.entries.remove(key);
        if let Some(before) = &before {
            self.forget(key, before);
        }
        let entry = body.and_then(|body| view::parse(key.resource, revision, body, &self.resources, &mut self.texts));
        if let Some(entry) = entry {
            self.remember(key, &entry);
            self.entries.insert(key.clone(), entry);
        }
        Ok(before)
    }

    fn remember(&mut self, key: &Key, entry: &Entry) {
        self.by_uid.insert(entry.uid, key.clone());
        for owner in &entry.owners {
            self.dependents.entry(owner.uid).or_default().insert(key.clone());
        }
        let Some(pod) = entry.pod() else { return };
        if entry.controller().is_none() {
            self.loose.insert(key.clone());
        }
        match &pod.node {
            Some(node) => {
                self.pods.entry(Arc::clone(node)).or_default().insert(key.clone());
                self.load(node, pod, 1);
            }
            None => {
                self.unassigned.insert(key.clone());
            }
        }
        if let Some(address) = pod.address.filter(|_| !pod.finished()) {
            self.addresses.insert(address);
        }
    }

    fn forget(&mut self, key: &Key, entry: &Entry) {
        if self.by_uid.get(&entry.uid) == Some(key) {
            self.by_uid.remove(&entry.uid);
        }
        for owner in &entry.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        let Some(pod) = entry.pod() else { return };
        if let Some(node) = &pod.node {
            if let Some(pods) = self.pods.get_mut(node) {
                pods.remove(key);
            }
            self.load(node, pod, -1);
        }
        self.unassigned.remove(key);
        self.loose.remove(key);
        if let Some(address) = pod.address {
            self.addresses.remove(&address);
        }
    }

    fn load(&mut self, node: &Arc<str>, pod: &PodPart, sign: i64) {
        if pod.finished() {
            return;
        }
        let load = self.loads.entry(Arc::clone(node)).or_default();
        load.cpu += sign * pod.cpu;
        load.memory += sign * pod.memory;
        load.pods += sign;
    }

    /// Takes in a kind. Owners of that kind are found from now on.
    pub(super) fn learn(&mut self, described: Described) -> Resource {
        if let Some(known) = self.resources.find(&described.group, &described.plural) {
            return known;
        }
        let resource = self.resources.learn(described);
        let unknown =
            self.entries.iter().filter(|(_, entry)| entry.owners.iter().any(|owner| owner.resource.is_none()));
        let again: Vec<(Key, u64, Bytes)> =
            unknown.map(|(key, entry)| (key.clone(), entry.revision, entry.body.clone())).collect();
        for (key, revision, body) in again {
            if let Some(entry) = view::parse(key.resource, revision, &body, &self.resources, &mut self.texts) {
                self.entries.insert(key, entry);
            }
        }
        resource
    }

    /// Every object.
    pub(super) fn every(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// What a node's pods ask for.
    pub(super) fn load_of(&self, node: &str) -> Load {
        self.loads.get(node).copied().unwrap_or_default()
    }

    /// Says whether a pod has this address.
    pub(super) fn has_address(&self, address: std::net::Ipv4Addr) -> bool {
        self.addresses.contains(&address)
    }

    /// An object.
    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// An object, as a tree with its revision.
    pub(super) fn tree(&self, key: &Key) -> Option<Value> {
        let entry = self.entries.get(key)?;
        let mut tree: Value = serde_json::from_slice(&entry.body).ok()?;
        tree.get_mut("metadata")?
            .as_object_mut()?
            .insert("resourceVersion".to_owned(), entry.revision.to_string().into());
        Some(tree)
    }

    /// An object by its UID.
    pub(super) fn by_uid(&self, uid: Uid) -> Option<(&Key, &Entry)> {
        let key = self.by_uid.get(&uid)?;
        Some((key, self.entries.get(key)?))
    }

    /// The objects that name an owner.
    pub(super) fn dependents(&self, owner: Uid) -> impl Iterator<Item = (&Key, &Entry)> {
        let keys = self.dependents.get(&owner).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.entries.get(key)?)))
    }

    /// The dependents of a resource that an owner manages.
    pub(super) fn managed(&self, owner: Uid, resource: Resource) -> impl Iterator<Item = (&Key, &Entry)> {
        self.dependents(owner).filter(move |(key, entry)| {
            key.resource == resource && entry.controller().is_some_and(|controller| controller.uid == owner)
        })
    }

    /// The pods on a node.
    pub(super) fn pods_on(&self, node: &str) -> impl Iterator<Item = (&Key, &Entry)> {
        let keys = self.pods.get(node).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.entries.get(key)?)))
    }

    /// All objects of a resource.
    pub(super) fn all(&self, resource: Resource) -> impl Iterator<Item = (&Key, &Entry)> {
        let first = Key { resource, namespace: "".into(), name: "".into() };
        let range = self.entries.range((Bound::Included(first), Bound::Unbounded));
        range.take_while(move |(key, _)| key.resource == resource)
    }

    /// The objects of a resource in a namespace.
    pub(super) fn within<'a>(
        &'a self,
        resource: Resource,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Entry)> + use<'a> {
        let first = Key { resource, namespace: Arc::clone(namespace), name: "".into() };
        let namespace = Arc::clone(namespace);
        let range = self.entries.range((Bound::Included(first), Bound::Unbounded));
        range.take_while(move |(key, _)| key.resource == resource && key.namespace == namespace)
    }

    /// Every object in a namespace.
    pub(super) fn content(&self, namespace: &Arc<str>) -> Vec<(&Key, &Entry)> {
        let namespaced = self.resources.all().filter(|(_, described)| described.namespaced);
        namespaced.flat_map(|(resource, _)| self.within(resource, namespace)).collect()
    }

    /// The pods of a namespace that nobody manages.
    pub(super) fn loose_in<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Entry, &'a PodPart)> {
        let keys = self.loose.iter().filter(move |key| &*key.namespace == namespace);
        keys.filter_map(|key| self.entries.get(key).and_then(|entry| Some((key, entry, entry.pod()?))))
    }

    /// The nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Key, &Entry, &NodePart)> {
        self.all(NODES).filter_map(|(key, entry)| Some((key, entry, entry.node()?)))
    }

    /// A node by its name.
    pub(super) fn node(&self, name: &Arc<str>) -> Option<&NodePart> {
        self.get(&Key { resource: NODES, namespace: "".into(), name: Arc::clone(name) })?.node()
    }

    /// The services of a namespace that select these labels.
    pub(super) fn services_of(&self, namespace: &Arc<str>, labels: &Labels) -> Vec<Key> {
        let services = self.within(SERVICES, namespace);
        let selecting = services.filter(|(_, entry)| match &entry.part {
            Part::Selector(selector) => !selector.is_empty() && selector.iter().all(|pair| labels.contains(pair)),
            _ => false,
        });
        selecting.map(|(key, _)| key.clone()).collect()
    }

    /// The pods of a namespace.
    pub(super) fn pods_in<'a>(
        &'a self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Entry, &'a PodPart)> + use<'a> {
        self.within(PODS, namespace).filter_map(|(key, entry)| Some((key, entry, entry.pod()?)))
    }
}
