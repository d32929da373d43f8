//! Members of ClusterProfiles as objects: made, changed and removed as an inventory says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    KIND, Members,
    object::{MemberObject, ProfileRef, SECRET_KEYS},
    objects,
    profile::{Found, Problem, Profile, copied, copy_name},
};
use crate::{
    config::{ClusterProfiles, MemberName, OWN_NAMESPACE},
    member::Member,
    own::{GROUP, OwnObjects},
};
use kubefold_apiserver::registry::{DeleteOptions, ListOptions, Object, WriteOptions};
use kubefold_wire::status::{Reason, Status};

/// Problems that are named one by one.
const NAMED_MAX: usize = 10;

/// What is told of an inventory, in a condition of the member that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The member that has it.
    pub(super) member: MemberName,
    /// True, False or Unknown.
    pub(super) status: &'static str,
    /// In one word.
    pub(super) reason: &'static str,
    /// For people.
    pub(super) message: String,
}

/// The member of which a list was made, and the cluster that it is.
struct Inventory<'a> {
    member: &'a str,
    cluster_uid: &'a str,
}

impl Inventory<'_> {
    /// Says whether a ClusterProfile that is not in the list was in it before, or is of another member.
    fn had(&self, profile: &ProfileRef) -> bool {
        profile.member != self.member || profile.cluster_uid == self.cluster_uid
    }
}

/// What there is of members of ClusterProfiles.
struct There {
    objects: BTreeMap<String, MemberObject>,
    /// The copies of Secrets, by ClusterProfile.
    secrets: BTreeMap<String, Value>,
}

impl Members {
    /// Tells of the inventory, in the log where that is new.
    pub(super) fn tell_inventory(&self, told: Option<Told>) {
        let mut state = self.state.lock();
        if state.inventory == told {
            return;
        }
        match &told {
            Some(Told { status: "True", member, message, .. }) => tracing::info!(%member, message, "ClusterProfiles"),
            Some(Told { member, message, reason, .. }) => tracing::warn!(%member, reason, message, "ClusterProfiles"),
            None => {}
        }
        state.inventory = told;
    }

    /// Tells that the inventory cannot be read.
    pub(super) fn tell_unread(&self, source: &ClusterProfiles, why: &str) {
        let message = format!(
            "the ClusterProfiles of {} cannot be read, and their members stay as they are: {why}",
            source.namespace
        );
        let member = source.member.clone();
        self.tell_inventory(Some(Told { member, status: "Unknown", reason: "Unreadable", message }));
    }

    /// Removes the members of all ClusterProfiles.
    ///
    /// Errors: the storage's.
    pub(super) async fn forget_profiles(&self, own: &OwnObjects) -> Result<(), Status> {
        self.state.lock().refused_profiles.clear();
        self.remove(own, &BTreeSet::new(), None).await?;
        self.refresh(own).await.map(drop)
    }

    /// Makes the members of an inventory, and removes members that left it. Returns whether every ClusterProfile is a member.
    ///
    /// Errors: the storage's.
    pub(super) async fn reconcile(
        &self,
        own: &OwnObjects,
        source: &ClusterProfiles,
        hub: &Member,
        found: Found,
    ) -> Result<bool, Status> {
        let Found { cluster_uid, profiles, secrets, mut problems } = found;
        let there = There::read(own).await?;
        let (mut wanted, mut refused, mut members) = (BTreeSet::new(), BTreeMap::new(), 0);
        // What cannot be read is not gone.
        wanted.extend(problems.iter().map(|problem| problem.name.clone()));
        for profile in profiles {
            let name = profile.name.clone();
            match self.check_name(&profile, &there) {
                Err(NameError::OfFile) => problems.push(NameError::OfFile.of(&name)),
                Err(error) => {
                    wanted.insert(name.clone());
                    problems.push(error.of(&name));
                }
                Ok(()) => {
                    wanted.insert(name.clone());
                    match &profile.refusal {
                        Some(refusal) => {
                            let why = refusal.to_string();
                            problems.push(Problem { name: name.clone(), reason: refusal.reason(), why });
                            refused.insert(name, refusal.clone());
                        }
                        None => members += 1,
                    }
                    self.write_profile(own, &there, &profile, secrets.get(&profile.secret)).await?;
                }
            }
        }
        self.state.lock().refused_profiles = refused;
        // A list of another cluster says nothing of what this one had, unless that is declared.
        let other =
            (!hub.config().rebuilt).then(|| Inventory { member: hub.name().as_str(), cluster_uid: &cluster_uid });
        problems.extend(self.remove(own, &wanted, other.as_ref()).await?);
        self.refresh(own).await?;
        let is_settled = problems.is_empty();
        self.tell_inventory(Some(told(source, members, problems)));
        Ok(is_settled)
    }

    /// Says why a ClusterProfile cannot have its name.
    fn check_name(&self, profile: &Profile, there: &There) -> Result<(), NameError> {
        let object = profile.object();
        if let Some(error) = object.without_credential().err().filter(crate::config::SpecError::is_of_name) {
            return Err(NameError::Invalid(error.to_string()));
        }
        if self.state.lock().of_file.contains(&profile.name) {
            return Err(NameError::OfFile);
        }
        match there.objects.get(&profile.name) {
            Some(object) if object.spec.cluster_profile_ref.is_none() => Err(NameError::OfObject),
            Some(_) => Ok(()),
            None => self.check_place(&object).map_err(|error| NameError::NoPlace(error.to_string())),
        }
    }

    /// Writes the object of a ClusterProfile, and the copy of its Secret before.
    async fn write_profile(
        &self,
        own: &OwnObjects,
        there: &There,
        profile: &Profile,
        secret: Option<&Value>,
    ) -> Result<(), Status> {
        let (name, before) = (&profile.name, there.objects.get(&profile.name));
        // One that was usable stays as it is.
        if before.is_some() && profile.refusal.is_some() {
            return Ok(());
        }
        if let Some(secret) = secret.filter(|_| profile.refusal.is_none()) {
            write_copy(own, name, secret, there.secrets.get(name)).await?;
        }
        let (registry, options) = (own.registry(), WriteOptions::default());
        let Some(kind) = registry.kind(GROUP, KIND) else { return Ok(()) };
        match before {
            Some(before) if before.spec == profile.spec => Ok(()),
            Some(_) => {
                let change = |object: &mut Value| {
                    object["spec"] = json!(profile.spec);
                    Ok(())
                };
                registry.modify_all(&kind, "", name, &options, change).await.map(drop)
            }
            // A client could not make it.
            None => {
                let object = json!({"metadata": {"name": name}, "spec": profile.spec});
                registry.fill(&kind, std::iter::once(object)).await.map(drop)
            }
        }
    }

    /// Removes the members of ClusterProfiles that are not wanted, and copies of Secrets that are nobody's. Answers those that stay
    /// all the same: they were not in the cluster of which a list was made.
    async fn remove(
        &self,
        own: &OwnObjects,
        wanted: &BTreeSet<String>,
        listed: Option<&Inventory<'_>>,
    ) -> Result<Vec<Problem>, Status> {
        let (registry, system) = (own.registry(), own.system().registry());
        let (Some(kind), Some(secret)) = (registry.kind(GROUP, KIND), system.kind("", "Secret")) else {
            return Ok(Vec::new());
        };
        let mut stay = Vec::new();
        let there = There::read(own).await?;
        for (name, object) in &there.objects {
            let Some(from) = object.spec.cluster_profile_ref.as_ref().filter(|_| !wanted.contains(name)) else {
                continue;
            };
            if listed.is_some_and(|listed| !listed.had(from)) {
                stay.push(NameError::OtherCluster.of(name));
                continue;
            }
            found(registry.delete(&kind, "", name, &DeleteOptions::default()).await)?;
        }
        let left = There::read(own).await?;
        for name in left.secrets.keys().filter(|name| !left.objects.contains_key(*name)) {
            found(system.delete(&secret, OWN_NAMESPACE, &copy_name(name), &DeleteOptions::default()).await)?;
        }
        Ok(stay)
    }
}

/// Why a ClusterProfile is no member, whatever else it says.
#[derive(Debug, thiserror::Error)]
enum NameError {
    #[error("{0}")]
    Invalid(String),
    #[error("clusters.yaml has a member of this name; rename one of the two")]
    OfFile,
    #[error("a Member object has this name; delete it (kubectl delete member), or rename the ClusterProfile")]
    OfObject,
    #[error("{0}")]
    NoPlace(String),
    #[error(
        "its ClusterProfile is not in the cluster that is there now, which is another than before; it stays until clusters.yaml has \
         \"rebuilt: true\" for that member"
    )]
    OtherCluster,
}

impl NameError {
    fn of(&self, name: &str) -> Problem {
        let reason = match self {
            Self::Invalid(_) => "ProfileInvalid",
            Self::OfFile | Self::OfObject => "NameTaken",
            Self::NoPlace(_) => "FleetFull",
            Self::OtherCluster => "OtherCluster",
        };
        Problem { name: name.to_owned(), reason, why: self.to_string() }
    }
}

impl There {
    async fn read(own: &OwnObjects) -> Result<Self, Status> {
        let all = objects(own.registry(), "").await?;
        let objects = all.into_iter().map(|object| (object.metadata.name.clone(), object)).collect();
        let system = own.system().registry();
        let Some(kind) = system.kind("", "Secret") else { return Ok(Self { objects, secrets: BTreeMap::new() }) };
        let listed = system.list(&kind, OWN_NAMESPACE, &ListOptions::default()).await?;
        let of_profile = |secret: &Object| Some((copied(secret.name())?.to_owned(), secret.value()));
        Ok(Self { objects, secrets: listed.objects.iter().filter_map(of_profile).collect() })
    }
}

/// Writes the copy of a Secret where it has changed.
async fn write_copy(own: &OwnObjects, profile: &str, secret: &Value, before: Option<&Value>) -> Result<(), Status> {
    // What else is in it is nobody's business here.
    let read = SECRET_KEYS.into_iter().filter_map(|key| Some((key.to_owned(), secret.get("data")?.get(key)?.clone())));
    let data = Value::Object(read.collect());
    if before.is_some_and(|before| before.get("data") == Some(&data)) {
        return Ok(());
    }
    let (registry, options, name) = (own.system().registry(), WriteOptions::default(), copy_name(profile));
    let Some(kind) = registry.kind("", "Secret") else { return Ok(()) };
    if before.is_none() {
        let copy = json!({"metadata": {"name": name, "namespace": OWN_NAMESPACE}, "type": "Opaque", "data": data});
        return registry.create(&kind, OWN_NAMESPACE, copy, &options).await.map(drop);
    }
    let change = |object: &mut Value| {
        object["data"] = data.clone();
        Ok(())
    };
    registry.modify_all(&kind, OWN_NAMESPACE, &name, &options, change).await.map(drop)
}

/// What is gone already is gone.
fn found<T>(outcome: Result<T, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.reason != Reason::NotFound => Err(status),
        _ => Ok(()),
    }
}

/// What is told when it was read.
fn told(source: &ClusterProfiles, members: usize, mut problems: Vec<Problem>) -> Told {
    let member = source.member.clone();
    problems.sort_unstable();
    let Some(first) = problems.first() else {
        let message = format!("{members} ClusterProfiles of {} are members", source.namespace);
        return Told { member, status: "True", reason: "Followed", message };
    };
    let reason = if problems.iter().all(|problem| problem.reason == first.reason) { first.reason } else { "Refused" };
    let named = problems.iter().take(NAMED_MAX).map(|problem| format!("{}: {}", problem.name, problem.why));
    let more = problems.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    let message = named.chain(more).collect::<Vec<_>>().join("; ");
    Told { member, status: "False", reason, message }
}
