//! What the writes need of the fleet: members to call, and the store to read and to feed.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    config::{MemberName, Weights},
    member::call::{Answer, Call, Document},
    placement::{marker::Marker, moved::Moved, nodes::PodsByMember, plan::Candidate, policy::Rules},
    respond::ObjectRef,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    matching::ObjectSelector,
    path::ApiPath,
    resource::{Gvk, Gvr},
};

/// Which object. In requests to members and in the store's keys the name is the one of that side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The resource, in the version that the client speaks.
    pub gvr: Gvr,
    /// Its kind.
    pub gvk: Gvk,
    /// Empty if the kind is cluster-scoped.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// The path of the collection.
    pub fn collection(&self) -> ApiPath {
        ApiPath::within(&self.gvr, &self.namespace)
    }

    /// The path of the object.
    pub fn object(&self) -> ApiPath {
        self.collection().then(&self.name)
    }

    /// The object, as errors have it.
    pub(super) fn to_ref(&self) -> ObjectRef {
        ObjectRef { gvr: self.gvr.clone(), name: self.name.clone() }
    }

    /// The same with another name.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }
}

/// `deployments.apps "web"`, as Kubernetes' messages have it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.gvr.qualified(), self.name)
    }
}

/// An owner that a body names, as the client wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Visible name.
    pub name: String,
    /// Visible UID.
    pub uid: String,
}

/// Whether a create wants to know what is free in the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// It does not.
    Nothing,
    /// Only where no member holds the namespace's single objects.
    UnlessSticky,
    /// It does.
    Always,
    /// Also what is used there.
    Use,
}

impl Measure {
    /// What a policy wants to know.
    pub fn of(weights: Weights) -> Self {
        match weights {
            Weights::Static => Self::Nothing,
            Weights::Capacity => Self::Always,
            Weights::Use => Self::Use,
        }
    }
}

/// What a create asks of members.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What is created, by its visible name.
    pub key: &'a Key,
    /// Whose it is.
    pub owners: &'a [Owner],
    /// What its pods ask of nodes, for [`fits`](crate::placement::scheduling::fits); `None` of a kind that makes no pods.
    pub pods: Option<&'a PodsByMember>,
    /// The claims that its pods mount.
    pub claims: &'a [String],
    /// Whether what is free in each member is wanted, too.
    pub measure: Measure,
}

/// What a create must know before it is planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Every configured member.
    pub candidates: Vec<Candidate>,
    /// The member that holds the namespace's single objects.
    pub sticky: Option<MemberName>,
}

/// An object that a person names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedObject {
    /// As kubectl takes it: `deployment`, `deploy`, `deployments.apps`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// The name in its members.
    pub name: String,
}

/// A placed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The object.
    pub key: Key,
    /// The marker of its home, as the record of the placement has it.
    pub marker: Arc<Marker>,
    /// The members that have a part, the home first.
    pub members: Vec<MemberName>,
}

/// An object of a namespace, as its members hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its visible name.
    pub name: String,
    /// It is placed or shared: all writes to it are one.
    pub folded: bool,
    /// Its documents by member: of a placed object its home's first.
    pub parts: Vec<(MemberName, Bytes)>,
}

/// One part of a placed object, as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The member that holds the part.
    pub member: MemberName,
    /// In which cluster.
    pub cluster_uid: String,
    /// The part's own UID.
    pub uid: String,
    /// The part's own revision.
    pub resource_version: String,
    /// The document, as the member sent it.
    pub json: Bytes,
}

/// An object as the fleet view shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// Its UID in the fleet view.
    pub uid: String,
    /// Its revision, which `body` has too.
    pub revision: u64,
    /// The document, with `kind` and `apiVersion`.
    pub body: Bytes,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// A member-local object, as a write that is forwarded to its member needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLocal {
    /// Its visible name.
    pub name: String,
    /// The document, as the member sent it.
    pub json: Bytes,
    /// As the fleet view shows it.
    pub shown: Visible,
}

/// The fleet, as far as writes need it.
pub trait Fleet: Send + Sync + 'static {
    /// Keeps a key for one writer, and its fold unemitted. Dropping it lets go as [`Fleet::release`] does, without waiting.
    type Hold: Send + 'static;

    /// Sends one request to one member, as `caller`. The member's own deadline for writes holds. Never sent twice.
    fn call(&self, member: &MemberName, caller: &Caller, call: Call) -> impl Future<Output = Answer> + Send;

    /// Reads an object in one member as kubefold itself: what it sees goes to nobody.
    fn look(&self, member: &MemberName, key: &Key) -> impl Future<Output = Answer> + Send;

    /// Lists objects in one member as kubefold itself: what it sees goes to nobody. `query` is encoded.
    fn list(&self, member: &MemberName, path: ApiPath, query: String) -> impl Future<Output = Answer> + Send;

    /// The configured members, in order.
    fn members(&self) -> Vec<MemberName>;

    /// What decides where objects go, as configured now.
    fn rules(&self) -> Arc<Rules>;

    /// Splits `x@east` into `x` and `east`, if that is a member and names are suffixed.
    fn split(&self, visible: &str) -> Option<(String, MemberName)>;

    /// The same of an object of that resource.
    fn split_of(&self, gvr: &Gvr, visible: &str) -> Option<(String, MemberName)>;

    /// Sets or forgets the record of a placement that has moved, and shows what that changes: one event, after the hold if
    /// the key is held.
    fn set_moved(&self, key: &Key, uid: &str, moved: Option<Arc<Moved>>);

    /// The record of a placement that has moved.
    fn moved(&self, uid: &str) -> Option<Arc<Moved>>;

    /// Every placed object of the fleet with its marker. Starts the stores of all kinds that were ever placed, and waits
    /// (bounded) for members that they do not know.
    fn placed(&self) -> impl Future<Output = Vec<Placed>> + Send;

    /// Follows the parts of kinds that were placed, by group and kind.
    fn follow_placed(&self, kinds: BTreeSet<(String, String)>);

    /// Sets which members get nothing new.
    fn set_cordoned(&self, members: BTreeSet<MemberName>);

    /// Says whether the configuration declares the member absent: it is nobody's home, and not waited for as one.
    fn is_absent(&self, member: &MemberName) -> bool;

    /// Says whether the configuration declares that the member's cluster was rebuilt: it gets what is to be in every member.
    fn is_rebuilt(&self, member: &MemberName) -> bool;

    /// UID of the cluster that the member is now; `None` if it is not configured or was never reached.
    fn cluster_uid(&self, member: &MemberName) -> Option<String>;

    /// What must be known for a plan. Starts the kind's store and waits (bounded) for members that it does not know.
    fn facts(&self, ask: Ask<'_>) -> impl Future<Output = Facts> + Send;

    /// The objects of a kind in a namespace. Starts the kind's store and waits (bounded) for members that it does not know;
    /// what those hold is missing.
    fn objects(&self, gvr: &Gvr, namespace: &str) -> impl Future<Output = Vec<Listed>> + Send;

    /// The same of those alone that have such labels.
    fn labelled(
        &self,
        gvr: &Gvr,
        namespace: &str,
        selector: &ObjectSelector,
    ) -> impl Future<Output = Vec<Listed>> + Send;

    /// The same of those alone that are placed.
    fn placed_of(&self, gvr: &Gvr, namespace: &str) -> impl Future<Output = Vec<Listed>> + Send;

    /// The object that a person names, in the version that the fleet prefers; `None`: no member serves such a resource.
    fn named(&self, named: &NamedObject) -> Option<Key>;

    /// The resource of a kind; `None`: no member serves it.
    fn resource(&self, api_version: &str, kind: &str) -> Option<Gvr>;

    /// The members that hold an object that is referred to by its visible name and UID, the first-listed first.
    fn holders(&self, namespace: &str, owner: &Owner) -> impl Future<Output = Vec<MemberName>> + Send;

    /// The members that are up, in order.
    fn up(&self) -> Vec<MemberName>;

    /// The members that do not answer, with how long, in order.
    fn lost(&self) -> Vec<(MemberName, Duration)>;

    /// The UID in the fleet view of an object that every cluster has under this name; `None` of any other.
    fn shared_uid(&self, key: &Key) -> Option<String>;

    /// A create body with the visible names and UIDs in its closed table of joins (owners, nodes, involved objects)
    /// replaced by the member's own.
    fn localize(&self, key: &Key, member: &MemberName, body: &Bytes) -> Bytes;

    /// Says whether [`Fleet::localize`] leaves a body as it is, whichever member it is for. It may deny that and leave it so.
    fn is_local(&self, key: &Key, body: &Bytes) -> bool;

    /// Takes the key; waits (bounded) for whoever has it. `None`: still taken.
    fn hold(&self, key: &Key) -> impl Future<Output = Option<Self::Hold>> + Send;

    /// Lets the key go. When it returns, the fold as it is now has been emitted, once; gives what that event told.
    fn release(&self, hold: Self::Hold) -> impl Future<Output = Option<Visible>> + Send;

    /// The same after a write of the status, and after a delete: what that made of the object is emitted first, and given, even if a
    /// controller has corrected it meanwhile, or it is gone; that is emitted after it.
    fn release_as_written(&self, hold: Self::Hold) -> impl Future<Output = Option<Visible>> + Send;

    /// Has a key not shown from the start of its store on, until [`Fleet::show`]: at start, before anything is served.
    fn withhold(&self, key: &Key);

    /// Ends [`Fleet::withhold`]; does nothing where that was not asked.
    fn show(&self, key: &Key);

    /// Says in which members the object of that UID is behind; in none, that it has caught up. Shown after the hold, if
    /// the key is held.
    fn set_behind(&self, key: &Key, uid: &str, members: &[MemberName]);

    /// The object of that exact visible name.
    fn visible(&self, key: &Key) -> Option<Visible>;

    /// The member-local object of that own name, which `key` has, in a member.
    fn member_local(&self, key: &Key, member: &MemberName) -> Option<MemberLocal>;

    /// What the member calls the version of that object that has `revision` in the fleet view, in whichever version of the
    /// API: only if it is the one that is held. `key` has the own name.
    fn own_revision(&self, key: &Key, member: &MemberName, revision: u64) -> Option<u64>;

    /// The fleet's revision of the version that the member calls `own`, if that is known still. `key` has the own name.
    fn fleet_revision(&self, key: &Key, member: &MemberName, own: u64) -> Option<u64>;

    /// The folded object that was shown when the key was taken, and the parts that made it, as [`Fleet::parts`] has them.
    fn whole(&self, hold: &Self::Hold, key: &Key) -> Option<(Visible, Vec<Part>)>;

    /// Says whether the kind has a subresource.
    fn serves(&self, key: &Key, subresource: &str) -> bool;

    /// The parts of the folded object of that name: of a placed one its home first, then in the marker's order; of a shared
    /// one the holder first that gives its body, then in configuration order. Those of members that are down too. Empty if
    /// there is none.
    fn parts(&self, key: &Key) -> Vec<Part>;

    /// Brings a live answer into the store. `key` has the member's own name. When it returns, [`Fleet::visible`] tells it
    /// (after the hold, if the key is held).
    fn ingest(&self, key: &Key, member: &MemberName, body: &Document) -> impl Future<Output = ()> + Send;

    /// These documents as the fleet view would show them, without storing: one member-local object, or the fold of marked parts
    /// in the marker's order. For dry runs, which have no revision. `None` if they are no objects.
    fn render(&self, key: &Key, documents: &[(MemberName, Bytes)]) -> Option<Bytes>;

    /// Waits at most `bound` until the object of that own UID has left the store's parts, which it does even while the
    /// key is held. Says whether it has.
    fn wait_gone(
        &self,
        key: &Key,
        member: &MemberName,
        uid: &str,
        bound: Duration,
    ) -> impl Future<Output = bool> + Send;
}
