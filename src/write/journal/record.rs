//! What stands in the journal.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    config::{MemberName, Overrides},
    placement::{divided::Value, merge},
    write::fleet::Key,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::resource::{Gvk, Gvr};

/// What is done to every part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Verb {
    Create,
    Update,
    Delete,
}

/// How far one part came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Nothing is known to have been sent.
    Planned,
    /// The member did it. On a create: the part's own UID.
    Done {
        /// The part's own UID, if the answer said it.
        uid: Option<String>,
    },
    /// The member was not reached, or refused: why.
    Failed(String),
    /// The member may have done it: why that is not known.
    Unknown(String),
    /// A create that was taken back, or that needs no taking back.
    Undone,
}

impl Step {
    /// Says whether something is left to do.
    pub(in crate::write) fn is_open(&self) -> bool {
        matches!(self, Self::Planned | Self::Failed(_) | Self::Unknown(_))
    }

    /// Why it is not done.
    pub(in crate::write) fn cause(&self) -> Option<&str> {
        match self {
            Self::Failed(cause) | Self::Unknown(cause) => Some(cause),
            Self::Planned | Self::Done { .. } | Self::Undone => None,
        }
    }
}

/// One part of an unfinished write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryTarget {
    /// Where.
    pub member: MemberName,
    /// In which cluster: another one under the member's name is left alone.
    pub cluster_uid: String,
    /// On a create: what is set in this part alone.
    #[serde(default)]
    pub values: Vec<Value>,
    /// On a create: how this part differs.
    #[serde(default)]
    pub overrides: Overrides,
    /// On a create of a companion: what its parts note of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// On a delete: the part's own UID.
    pub own_uid: Option<String>,
    /// How far it came.
    pub step: Step,
    /// Some try may have been done there, whatever became of later ones.
    #[serde(default, skip_serializing_if = "is_false")]
    pub uncertain: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// One unfinished write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Number in the journal; [`Journal::begin`](super::Journal::begin) gives it.
    pub id: u64,
    /// What is done.
    pub verb: Verb,
    /// To which object.
    #[serde(with = "KeyWords")]
    pub key: Key,
    /// The placed object's UID.
    pub uid: String,
    /// As whom it is finished.
    pub caller: Caller,
    /// The query that every part's request has.
    pub query: String,
    /// The client's user agent.
    pub user_agent: Option<String>,
    /// The `Audit-ID` of the request; [`Journal::begin`](super::Journal::begin) notes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_id: Option<String>,
    /// The body before each part's stamp; on a delete the options.
    pub body: String,
    /// The parts; the first is the home.
    pub targets: Vec<EntryTarget>,
    /// Members that the marker lists after those: a later write may make parts there.
    #[serde(default)]
    pub listed: Vec<Listed>,
    /// The policy that the marker names.
    #[serde(default)]
    pub policy: Option<String>,
    /// What the object's author limited its members to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place_on: Option<String>,
    /// How often the placement has moved.
    #[serde(default)]
    pub epoch: u64,
    /// It belongs in every member, in those that join later, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub everywhere: bool,
    /// The placement whose orphans the marker says it took over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    /// Every cluster has the object under this name: its parts have no marker.
    #[serde(default)]
    pub shared: bool,
    /// On a create: by a server-side apply, so that its manager has what it says.
    #[serde(default)]
    pub applied: bool,
    /// On a create of parts that a new number of the whole asks for: who asks has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub owns_shares: bool,
    /// Where parts are still to be made: what the object became meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amended: Option<Box<Amended>>,
}

/// What an object became by updates while parts of it were to be made still. A part that lands late has what stood before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amended {
    /// As whom the last of them was asked for.
    pub caller: Caller,
    /// The query of its requests.
    pub query: String,
    /// Its client's user agent.
    pub user_agent: Option<String>,
    /// The updates that the body has already, of those that are open.
    pub by: Vec<u64>,
    /// What stood where they changed something.
    pub before: Vec<Before>,
    /// What stands in `before` from there on was never sent to a member; `None`: all may have been.
    #[serde(skip)]
    pub unsent_from: Option<usize>,
}

/// A value that stood in the body of a part, and does not any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// In that part alone.
    pub member: Option<String>,
    /// Where.
    pub at: Vec<merge::Step>,
    /// What.
    pub old: Option<serde_json::Value>,
}

impl Amended {
    /// Notes what stood at a place, in one member's part or in all. What came there after that and was never sent stands
    /// nowhere.
    pub(crate) fn note(&mut self, member: Option<&String>, at: &[merge::Step], olds: [Option<serde_json::Value>; 2]) {
        let is_place = |known: &&Before| known.member.as_ref() == member && known.at == at;
        if self.before.iter().skip(self.unsent_from.unwrap_or(usize::MAX)).any(|known| is_place(&known)) {
            return;
        }
        for old in olds {
            if !self.before.iter().filter(is_place).any(|known| known.old == old) {
                self.before.push(Before { member: member.cloned(), at: at.to_vec(), old });
            }
        }
    }
}

/// An object that was made through the fleet to be in every member under one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Everywhere {
    /// Its key.
    #[serde(with = "KeyWords")]
    pub key: Key,
    /// Its UID in the fleet view; empty where it was made in a fleet of one member, which shows the member's own.
    pub uid: String,
    /// As whom it is made in members that join.
    pub caller: Caller,
    /// The query of the requests that make it.
    pub query: String,
    /// The user agent of these requests.
    pub user_agent: Option<String>,
    /// The members that there were when it was made, and those since in which it was made.
    pub members: Vec<Listed>,
}

/// A member of a marker that has no part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Where.
    pub member: MemberName,
    /// In which cluster.
    pub cluster_uid: String,
}

impl EntryTarget {
    /// A part of which nothing was sent yet, as every other part is.
    pub fn new(member: MemberName, cluster_uid: String) -> Self {
        Self {
            member,
            cluster_uid,
            values: Vec::new(),
            overrides: Overrides::default(),
            whole: None,
            own_uid: None,
            step: Step::Planned,
            uncertain: false,
        }
    }

    /// Says whether the journal has that this object was made.
    pub(crate) fn made(&self, own_uid: &str) -> bool {
        matches!(&self.step, Step::Done { uid: Some(uid) } if uid == own_uid)
    }
}

impl Entry {
    /// A write of no part yet.
    pub fn new(verb: Verb, key: Key, uid: String, caller: Caller) -> Self {
        Self {
            id: 0,
            verb,
            key,
            uid,
            caller,
            query: String::new(),
            user_agent: None,
            audit_id: None,
            body: String::new(),
            targets: Vec::new(),
            listed: Vec::new(),
            policy: None,
            place_on: None,
            adopts: None,
            epoch: 0,
            everywhere: false,
            shared: false,
            applied: false,
            owns_shares: false,
            amended: None,
        }
    }

    /// Gives members other names.
    pub(in crate::write) fn rename(&mut self, names: &BTreeMap<String, MemberName>) {
        let targets = self.targets.iter_mut().map(|target| &mut target.member);
        for member in targets.chain(self.listed.iter_mut().map(|listed| &mut listed.member)) {
            if let Some(now) = names.get(member.as_str()) {
                *member = now.clone();
            }
        }
        for member in
            self.amended.iter_mut().flat_map(|amended| &mut amended.before).filter_map(|before| before.member.as_mut())
        {
            if let Some(now) = names.get(member.as_str()) {
                *member = now.to_string();
            }
        }
    }

    /// Says whether the home of a create was made: what else is missing is behind.
    pub(crate) fn is_committed(&self) -> bool {
        self.verb == Verb::Create && self.targets.first().is_some_and(|home| matches!(home.step, Step::Done { .. }))
    }

    /// Notes a step.
    pub(super) fn set(&mut self, member: &MemberName, step: Step) {
        if let (Some(amended), Step::Unknown(_)) = (&mut self.amended, &step) {
            amended.unsent_from = None;
        }
        let Some(target) = self.targets.iter_mut().find(|target| target.member == *member) else { return };
        target.uncertain |= matches!(step, Step::Unknown(_));
        target.step = step;
    }

    /// The members whose parts are neither done nor undone.
    pub fn unfinished(&self) -> impl Iterator<Item = MemberName> {
        let open = |step: &Step| matches!(step, Step::Planned | Step::Failed(_) | Step::Unknown(_));
        self.targets.iter().filter(move |target| open(&target.step)).map(|target| target.member.clone())
    }

    /// Units: bytes, about.
    pub(super) fn size(&self) -> usize {
        let amended = self.amended.as_ref().map_or(0, |amended| amended.before.iter().map(Before::size).sum());
        self.body.len() + self.query.len() + 200 * (self.targets.len() + 2) + amended
    }
}

impl Before {
    /// Units: bytes, about.
    fn size(&self) -> usize {
        100 + self.old.as_ref().map_or(0, |old| old.to_string().len())
    }
}

/// An entry, and when it began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begun {
    #[serde(flatten)]
    pub(super) entry: Entry,
    /// Units: seconds since 1970. 0 in a journal of before it was noted.
    #[serde(default)]
    pub(super) begun_at: u64,
}

#[derive(Serialize, Deserialize)]
pub(in crate::write) struct KeyWords {
    group: String,
    version: String,
    resource: String,
    kind: String,
    namespace: String,
    name: String,
}

impl KeyWords {
    pub(in crate::write) fn serialize<S: Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
        let words = Self {
            group: key.gvr.group.to_string(),
            version: key.gvr.version.to_string(),
            resource: key.gvr.resource.to_string(),
            kind: key.gvk.kind.to_string(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        };
        Serialize::serialize(&words, serializer)
    }

    pub(in crate::write) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let words: Self = Deserialize::deserialize(deserializer)?;
        Ok(Key {
            gvr: Gvr::new(&words.group, &words.version, &words.resource),
            gvk: Gvk::new(&words.group, &words.version, &words.kind),
            namespace: words.namespace,
            name: words.name,
        })
    }
}
