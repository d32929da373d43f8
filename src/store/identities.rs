//! Who an object of a member is in the fleet, where that is not what its name says: the parts of placed objects.

use std::{
    borrow::Borrow,
    collections::{HashMap, VecDeque},
};

use parking_lot::{Mutex, RwLock};

use crate::config::MemberName;

/// A reference as it stands in a member: member, group, kind, namespace and own name, as one run of bytes, so that it can
/// be looked up from a buffer that is used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Referent(Box<[u8]>);

impl Referent {
    /// Makes a referent.
    pub fn new(member: &MemberName, group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let mut out = Vec::new();
        Self::write(member, group, kind, namespace, name, &mut out);
        Self(out.into_boxed_slice())
    }

    /// Writes a referent's bytes to an emptied buffer. A reference never leaves its member.
    pub fn write(member: &MemberName, group: &str, kind: &str, namespace: &str, name: &str, out: &mut Vec<u8>) {
        out.clear();
        for word in [member.as_str(), group, kind, namespace, name] {
            out.extend_from_slice(word.as_bytes());
            out.push(0);
        }
    }

    /// The object's own name.
    pub fn own_name(&self) -> Option<&[u8]> {
        self.0.strip_suffix(&[0])?.rsplit(|byte| *byte == 0).next()
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Referent {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// What a part's references become. Its visible name is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The part's UID in its member.
    pub own_uid: String,
    /// The UID of the whole.
    pub visible_uid: String,
}

/// Parts that are gone are still referred to for a while (by events, and by what the garbage collector has yet to take).
const GONE_MAX: usize = 10_000;

/// The map of all parts, and how often shared objects have lived.
#[derive(Debug, Default)]
pub struct Identities {
    parts: RwLock<Parts>,
    lives: Mutex<HashMap<String, u32>>,
}

#[derive(Debug, Default)]
struct Parts {
    by_referent: HashMap<Referent, Identity>,
    gone: VecDeque<Referent>,
}

impl Identities {
    /// Notes a part. Says whether that changed anything.
    pub fn set(&self, referent: &Referent, identity: Identity) -> bool {
        let mut parts = self.parts.write();
        parts.gone.retain(|gone| gone != referent);
        parts.by_referent.insert(referent.clone(), identity.clone()).is_none_or(|earlier| earlier != identity)
    }

    /// Notes that a part is gone: references that name its UID keep their meaning for a while.
    pub fn gone(&self, referent: Referent) {
        let mut parts = self.parts.write();
        parts.gone.push_back(referent);
        if parts.gone.len() > GONE_MAX
            && let Some(oldest) = parts.gone.pop_front()
        {
            parts.by_referent.remove(&oldest);
        }
    }

    /// The identity behind a reference, when it is a part's. A reference with the UID of another object is not.
    pub fn get(&self, referent: &[u8], uid: Option<&str>) -> Option<Identity> {
        let parts = self.parts.read();
        let identity = parts.by_referent.get(referent)?;
        match uid {
            Some(uid) if uid == identity.own_uid => Some(identity.clone()),
            Some(_) => None,
            None if parts.gone.iter().any(|gone| gone.bytes() == referent) => None,
            None => Some(identity.clone()),
        }
    }

    /// Says whether there is no part at all, so that nothing needs a look.
    pub fn is_empty(&self) -> bool {
        self.parts.read().by_referent.is_empty()
    }

    /// How often a shared object has lived before.
    pub fn life(&self, resource_and_key: &str) -> u32 {
        self.lives.lock().get(resource_and_key).copied().unwrap_or_default()
    }

    /// Counts one life more, as its last holder is gone.
    pub fn raise_life(&self, resource_and_key: &str) {
        *self.lives.lock().entry(resource_and_key.to_owned()).or_default() += 1;
    }

    /// All lives, for the state directory.
    pub fn lives(&self) -> HashMap<String, u32> {
        self.lives.lock().clone()
    }

    /// Takes the lives that an earlier process counted.
    pub fn restore_lives(&self, lives: HashMap<String, u32>) {
        *self.lives.lock() = lives;
    }
}
