//! Members as objects: those of `clusters.yaml`, which are only shown, and those that are made and deleted as objects. Both are one
//! list.
//!
//! - `object`: what is written in one, and the member that it is
//! - `profile`, `inventory`, `profiled`: ClusterProfiles of another member, how they are read, and the objects that are made of them
//! - `follow`: how members are, and what happens to them
//! - `known`: the objects as they were read last
//! - `renew`: the tokens of their Secrets, renewed while they are good
//! - `told`: what happened, as Events

mod follow;
mod inventory;
mod known;
mod object;
mod profile;
mod profiled;
mod renew;
#[cfg(test)]
mod tests;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use self::object::{MemberObject, Refusal};
use crate::{
    config::{Access, ClusterProfiles, Config, MEMBERS_MAX, MemberConfig, MemberName, Names, OWN_NAMESPACE},
    own::{GROUP, OwnObjects, Referent, VERSION},
    respond::OwnError,
    stores::Stores,
};
use kubefold_apiserver::{
    kinds::Kind,
    registry::{ListOptions, Object, Registry},
    typed::{IntoKinds, KindError},
};
use kubefold_wire::{
    access::text,
    resource::Gvr,
    status::{Cause, Reason, Status},
};

/// The kind's name.
const KIND: &str = "Member";
/// Its name in paths.
const PLURAL: &str = "members";
/// What can be done with the objects.
const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

/// Puts the members that are objects in force, beside those of `clusters.yaml`.
pub trait Enlist: Send + Sync + 'static {
    /// From here on it is these.
    fn enlist(&self, joined: Vec<MemberConfig>);
}

/// Why a file and objects are no fleet together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// One name is in both.
    #[error(
        "the member {0} stands in clusters.yaml and is a Member object, too; take the entry out of the file, or delete the object \
         (kubectl delete member {0}) or its ClusterProfile"
    )]
    Twice(MemberName),
    /// They are too many together.
    #[error(
        "{count} members are in clusters.yaml and objects together, and at most {MEMBERS_MAX} are served; split the fleet"
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// Names tell nothing about members.
    #[error(
        "\"names: plain\" of clusters.yaml needs exactly one member, and Member objects are there; use \"names: suffixed\""
    )]
    PlainNames,
}

/// Why a write of a member is refused.
#[derive(Debug, thiserror::Error)]
enum AdmitError {
    /// The fleet has no place for it.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Nobody else makes a member of a ClusterProfile.
    #[error("spec.clusterProfileRef is kubefold's own; make a ClusterProfile, or leave the field out")]
    OfProfile,
}

/// The fleet of a file and of objects: those of the file come first, then the others.
///
/// Errors: they do not go together.
pub fn merged(file: &Config, joined: &[MemberConfig]) -> Result<Config, JoinError> {
    let is_in_file = |one: &&MemberConfig| file.members.iter().any(|member| member.name == one.name);
    if let Some(twice) = joined.iter().find(is_in_file) {
        return Err(JoinError::Twice(twice.name.clone()));
    }
    let count = file.members.len() + joined.len();
    if count > MEMBERS_MAX {
        return Err(JoinError::TooMany { count });
    }
    if file.names == Names::Plain && !joined.is_empty() {
        return Err(JoinError::PlainNames);
    }
    let mut config = file.clone();
    config.members.extend_from_slice(joined);
    Ok(config)
}

/// The members that are objects.
pub struct Members {
    stores: Arc<Stores>,
    state: Mutex<State>,
    /// They are looked at one after the other.
    turn: tokio::sync::Mutex<()>,
    enlist: OnceLock<Weak<dyn Enlist>>,
    /// The inventory whose clusters are members.
    inventory: watch::Sender<Option<ClusterProfiles>>,
    /// Whether it was tried once to write them down as objects.
    are_written: AtomicBool,
    readings: known::Readings,
}

/// A member that Events are about.
fn member_referent(name: String, uid: String) -> Referent {
    Referent { kind: KIND, namespace: String::new(), name, uid }
}

struct State {
    /// The members of the file that is in force.
    of_file: BTreeSet<String>,
    names: Names,
    /// Those in the fleet, the oldest first.
    joined: Vec<MemberConfig>,
    /// Those that are not, or whose last credential counts.
    refused: BTreeMap<String, Refusal>,
    /// Those of ClusterProfiles that kubefold cannot use.
    refused_profiles: BTreeMap<String, Refusal>,
    /// What is told of the inventory.
    inventory: Option<profiled::Told>,
    /// What became of the tokens of those that kubefold renews.
    renewals: BTreeMap<String, renew::Renewal>,
}

impl Members {
    /// Begins with the file.
    pub fn new(stores: Arc<Stores>, file: &Config) -> Arc<Self> {
        let state = State {
            of_file: names_of(file),
            names: file.names,
            joined: Vec::new(),
            refused: BTreeMap::new(),
            refused_profiles: BTreeMap::new(),
            inventory: None,
            renewals: BTreeMap::new(),
        };
        Arc::new(Self {
            stores,
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::default(),
            enlist: OnceLock::new(),
            inventory: watch::Sender::new(file.cluster_profiles.clone()),
            are_written: AtomicBool::new(false),
            readings: known::Readings::default(),
        })
    }

    /// Whether the objects can be listed: before that, some are not there yet.
    pub fn are_written(&self) -> bool {
        self.are_written.load(Ordering::Acquire)
    }

    /// Says who puts members in force, from here on. The first one counts.
    pub fn enlisted_by(&self, enlist: Weak<dyn Enlist>) {
        let _ = self.enlist.set(enlist);
    }

    /// Another file is in force.
    pub fn configure(&self, file: &Config) {
        let mut state = self.state.lock();
        (state.of_file, state.names) = (names_of(file), file.names);
        drop(state);
        // Also where it is the same: another name may be free.
        self.inventory.send_replace(file.cluster_profiles.clone());
    }

    /// The kind. Its status is kubefold's own.
    ///
    /// Errors: never, unless its type has no structural schema.
    pub fn kind(self: &Arc<Self>) -> Result<Vec<Kind>, KindError> {
        let (judging, admitting) = (Arc::clone(self), Arc::clone(self));
        let kind = Kind::of::<MemberObject>(GROUP, VERSION, KIND)
            .cluster_scoped()
            .schema()
            .status()
            .column("State", "string", ".status.state")
            .column("Version", "string", ".status.version")
            .column("Nodes", "integer", ".status.nodes")
            .column("Pods", "integer", ".status.pods")
            .column("Lag", "string", ".status.lag")
            .column("Age", "date", ".metadata.creationTimestamp")
            .wide_column("Source", "string", ".status.source")
            .wide_column("Cause", "string", ".status.cause")
            .validate(move |member, _| judging.judge(member))
            .admit(move |member, before, _| admitting.admit(member, before));
        let mut kinds = kind.into_kinds()?;
        for kind in &mut kinds {
            kind.verbs = VERBS.map(str::to_owned).to_vec();
        }
        Ok(kinds)
    }

    /// Says whether a resource is that of members.
    pub fn are(gvr: &Gvr) -> bool {
        *gvr.group == *GROUP && *gvr.resource == *PLURAL
    }

    /// Refuses a change of a member that stands in the file, whose object is only shown.
    ///
    /// Errors: it is such a one, or the storage's.
    pub async fn check_change(&self, own: &OwnObjects, name: &str) -> Result<(), Status> {
        match objects(own.registry(), name).await?.first() {
            Some(object) if !object.is_joined() => Err(OwnError::OfFile(name.to_owned()).into()),
            Some(object) => match &object.spec.cluster_profile_ref {
                Some(profile) => {
                    Err(OwnError::OfProfile { name: name.to_owned(), profile: profile.to_string() }.into())
                }
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// The objects, as Events refer to them.
    ///
    /// Errors: the storage's.
    pub async fn as_referents(own: &OwnObjects) -> Result<Vec<Referent>, Status> {
        let Some(kind) = own.registry().kind(GROUP, KIND) else { return Ok(Vec::new()) };
        let listed = own.registry().list(&kind, "", &ListOptions::default()).await?;
        let uid = |object: &Object| text(&object.value(), "/metadata/uid").to_owned();
        let all = listed.objects.iter();
        Ok(all.map(|object| member_referent(object.name().to_owned(), uid(object))).collect())
    }

    /// Says what is wrong with one that is written.
    fn judge(&self, member: &MemberObject) -> Vec<Cause> {
        // kubefold wrote it.
        if member.spec.cluster_profile_ref.is_some() {
            return Vec::new();
        }
        if !member.is_joined() {
            let is_of_file = self.state.lock().of_file.contains(&member.metadata.name);
            let missing = || Cause::required("spec.server", "the URL of the cluster's API server");
            return if is_of_file { Vec::new() } else { vec![missing()] };
        }
        let wrong = |error: crate::config::SpecError| match error.is_of_name() {
            true => Cause::invalid_text("metadata.name", &member.metadata.name, &error.to_string()),
            false => Cause::forbidden("spec", &error.to_string()),
        };
        member.without_credential().err().map(wrong).into_iter().collect()
    }

    /// Refuses a new one for which the fleet has no place, and one that says it is of a ClusterProfile.
    fn admit(&self, member: &MemberObject, before: Option<&MemberObject>) -> Result<(), AdmitError> {
        let profile = |member: &MemberObject| member.spec.cluster_profile_ref.clone();
        match before {
            Some(before) if profile(before) == profile(member) => Ok(()),
            None if profile(member).is_none() => Ok(self.check_place(member)?),
            Some(_) | None => Err(AdmitError::OfProfile),
        }
    }

    /// Says why the fleet has no place for a new one.
    fn check_place(&self, member: &MemberObject) -> Result<(), JoinError> {
        let state = self.state.lock();
        let count = state.of_file.len() + state.joined.len() + 1;
        match () {
            () if !member.is_joined() => Ok(()),
            () if state.names == Names::Plain => Err(JoinError::PlainNames),
            () if count > MEMBERS_MAX => Err(JoinError::TooMany { count }),
            () => Ok(()),
        }
    }

    /// Takes the objects and their Secrets as they are now, and puts the members in force that they are.
    ///
    /// Errors: the storage's. Cancel: safe.
    pub async fn refresh(&self, own: &OwnObjects) -> Result<Vec<MemberConfig>, Status> {
        let _one_at_a_time = self.turn.lock().await;
        let mut found = Vec::new();
        let all = self.readings.all(own.registry()).await?;
        for known in all.into_iter().filter(|known| known.object.is_joined()) {
            let object = &known.object;
            let secret = match &object.spec.credentials_secret_ref {
                Some(named) => secret(own.system().registry(), &named.name).await,
                None => Ok(None),
            };
            found.push((known, secret));
        }
        let joined: Vec<MemberConfig> = {
            let mut state = self.state.lock();
            let (mut joined, mut refused) = (Vec::new(), BTreeMap::new());
            for (known, secret) in found {
                let object = &known.object;
                let (member, refusal) = state.place(object, secret);
                refusal.and_then(|refusal| refused.insert(object.metadata.name.clone(), refusal));
                joined.extend(member);
            }
            state.refused = refused;
            if state.joined == joined {
                return Ok(joined);
            }
            state.joined.clone_from(&joined);
            joined
        };
        if let Some(enlist) = self.enlist.get().and_then(Weak::upgrade) {
            enlist.enlist(joined.clone());
        }
        Ok(joined)
    }
}

impl State {
    /// The member of a name, if it is in the fleet.
    fn joined(&self, name: &str) -> Option<&MemberConfig> {
        self.joined.iter().find(|member| member.name.as_str() == name)
    }

    /// The member that an object is, if it belongs to the fleet, and what is wrong with it.
    ///
    /// One that was in the fleet stays there without its Secret: only who deletes the object removes the member.
    fn place(
        &self,
        object: &MemberObject,
        secret: Result<Option<Value>, Refusal>,
    ) -> (Option<MemberConfig>, Option<Refusal>) {
        let name = &object.metadata.name;
        if self.of_file.contains(name) {
            return (None, Some(Refusal::NameTaken));
        }
        let secret = match (&object.spec.cluster_profile_ref, self.refused_profiles.get(name)) {
            (Some(_), Some(refusal)) => Err(refusal.clone()),
            (Some(profile), None) if matches!(secret, Ok(None)) => Err(Refusal::ProfileUnread(profile.clone())),
            _ => secret,
        };
        let refusal = match secret.and_then(|secret| object.with_credential(secret.as_ref())) {
            Ok(member) => return (Some(member), None),
            Err(refusal) => refusal,
        };
        let before = self.joined(name);
        let was_in_fleet =
            before.is_some() || object.status.as_ref().is_some_and(|status| !status.cluster_uid.is_empty());
        let Some(mut member) = object.without_credential().ok().filter(|_| was_in_fleet) else {
            return (None, Some(refusal));
        };
        match before.filter(|before| address(before) == address(&member)) {
            Some(before) => member.access = before.access.clone(),
            None => {
                if let Access::Server(server) = &mut member.access {
                    server.withheld = Some(refusal.to_string());
                }
            }
        }
        (Some(member), Some(refusal))
    }
}

fn address(member: &MemberConfig) -> Option<&str> {
    match &member.access {
        Access::Server(server) => Some(&server.server),
        Access::Kubeconfig { .. } | Access::InCluster => None,
    }
}

fn names_of(file: &Config) -> BTreeSet<String> {
    file.members.iter().map(|member| member.name.to_string()).collect()
}

/// All objects, or the one of a name. The oldest come first: who comes later takes nobody's place.
async fn objects(registry: &Registry, name: &str) -> Result<Vec<MemberObject>, Status> {
    let Some(kind) = registry.kind(GROUP, KIND) else { return Ok(Vec::new()) };
    let listed = registry.list(&kind, "", &ListOptions::default()).await?;
    let wanted = listed.objects.iter().filter(|object| name.is_empty() || object.name() == name);
    let mut wanted: Vec<Value> = wanted.map(Object::value).collect();
    wanted.sort_by_cached_key(|object| {
        ["/metadata/creationTimestamp", "/metadata/name"].map(|at| text(object, at).to_owned())
    });
    // One that cannot be read was written by another version.
    Ok(wanted.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect())
}

/// The Secret of a name. One that cannot be read was encrypted with another key.
async fn secret(registry: &Registry, name: &str) -> Result<Option<Value>, Refusal> {
    let Some(kind) = registry.kind("", "Secret") else { return Ok(None) };
    match registry.get(&kind, OWN_NAMESPACE, name).await {
        Ok(secret) => Ok(Some(secret.value())),
        Err(status) if status.reason == Reason::NotFound => Ok(None),
        Err(status) => Err(Refusal::Credential { name: name.to_owned(), why: status.message }),
    }
}
