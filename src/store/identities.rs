//! Who an object of a member is in the fleet, where that is not what its name says: the parts of placed objects.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::{
    config::MemberName,
    placement::moved::Moved,
    store::{changes::Changes, moved::Records},
};

/// A kind in all its versions: group and kind.
pub type GroupKind = (String, String);

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

    /// Member, group, kind and namespace.
    fn place(&self) -> Option<[&str; 4]> {
        let mut words = self.0.split(|byte| *byte == 0).map(|word| std::str::from_utf8(word).unwrap_or_default());
        Some([words.next()?, words.next()?, words.next()?, words.next()?])
    }

    /// Its bytes behind its member: the same for every member's object of that kind, namespace and name.
    pub(super) fn within_member(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0).map_or(0, |end| end + 1);
        self.0.get(end..).unwrap_or_default()
    }

    /// The number of a member's object with [these bytes](Self::within_member).
    pub(super) fn hash_in(member: &MemberName, within: &[u8]) -> u64 {
        Self::hash_of(&[member.as_str().as_bytes(), &[0], within].concat())
    }

    /// A number that stands for it.
    pub(super) fn hashed(&self) -> u64 {
        Self::hash_of(&self.0)
    }

    /// The number that stands for the referent of these bytes.
    pub(super) fn hash_of(bytes: &[u8]) -> u64 {
        use std::hash::Hasher as _;
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(bytes);
        hasher.finish()
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
    pub own_uid: Arc<str>,
    /// The UID of the whole.
    pub visible_uid: Arc<str>,
    /// The whole has no other part.
    pub is_alone: bool,
}

/// Parts that are gone are still referred to for a while (by events, and by what the garbage collector has yet to take).
const GONE_MAX: usize = 10_000;

/// The map of all parts, and how often shared objects have lived.
#[derive(Debug, Default)]
pub struct Identities {
    parts: RwLock<Parts>,
    lives: Mutex<Lives>,
    /// The same of children of placed objects.
    child_lives: Mutex<Lives>,
    kinds: Mutex<Kinds>,
    /// Rises whenever some member's objects of one kind refer to another kind for the first time.
    references: AtomicU64,
    changes: Changes,
    moved: Records,
    /// Told when a kind was referred to, or placed, for the first time.
    news: Notify,
    /// Who is asked of what is not known here.
    under: Option<Arc<Self>>,
}

/// How often objects have lived before. Bounded: of those that are dead the ones that died first are forgotten, and have
/// their first UID again should they come back.
#[derive(Debug, Default)]
struct Lives {
    by_key: imbl::HashMap<String, u32>,
    /// Those of them that live now, as far as was seen.
    alive: HashSet<String>,
    /// Who died, in that order. Who lives again is among them too.
    dead: VecDeque<String>,
    /// Rises with every change.
    version: u64,
}

impl Lives {
    /// How often an object has lived that lives now.
    fn of_living(&mut self, key: &str) -> Option<u32> {
        let life = self.by_key.get(key).copied()?;
        if !self.alive.contains(key) {
            self.alive.insert(key.to_owned());
        }
        Some(life)
    }

    fn raise(&mut self, key: &str) {
        self.version += 1;
        *self.by_key.entry(key.to_owned()).or_default() += 1;
        self.alive.remove(key);
        self.dead.push_back(key.to_owned());
        while self.dead.len() > GONE_MAX
            && let Some(oldest) = self.dead.pop_front()
        {
            // It may have died again since, and stands further behind as well then: forgetting it early costs no more.
            if !self.alive.contains(&oldest) {
                self.by_key.remove(&oldest);
            }
        }
    }
}

/// Kinds whose parts must be known.
#[derive(Debug, Default)]
struct Kinds {
    /// Some object refers to one of this kind.
    referred: BTreeSet<GroupKind>,
    /// An object of this kind was placed once, by this process or an earlier one.
    placed: BTreeSet<GroupKind>,
}

#[derive(Debug, Default)]
struct Parts {
    /// How many parts that are alone lie in a namespace: by kind and member.
    alone: HashMap<String, BTreeMap<(GroupKind, String), usize>>,
    by_referent: HashMap<Referent, Known>,
    /// Who went, in that order, each with the number of its going: one that came back since has another or none.
    gone: VecDeque<(u64, Referent)>,
    goings: u64,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    gone: Option<u64>,
}

impl Identities {
    /// An empty map over another one, which it leaves as it is.
    pub fn over(under: Arc<Self>) -> Self {
        Self { under: Some(under), ..Self::default() }
    }

    /// Notes a part. Says whether that changed anything.
    pub fn set(&self, referent: &Referent, identity: Identity) -> bool {
        let mut parts = self.parts.write();
        let is_alone = identity.is_alone;
        if let Some(known) = parts.by_referent.get_mut(referent.bytes()) {
            // A part that comes back changes what references without a UID mean.
            let (was_gone, was_alone) = (known.gone.take().is_some(), known.identity.is_alone);
            let changed = was_gone || !known.identity.reads_as(&identity);
            known.identity = identity;
            parts.count(referent, was_alone && !was_gone, is_alone);
            drop(parts);
            if changed {
                self.changes.note(Some(referent.hashed()));
            }
            return changed;
        }
        parts.by_referent.insert(referent.clone(), Known { identity, gone: None });
        parts.count(referent, false, is_alone);
        drop(parts);
        self.changes.note(Some(referent.hashed()));
        if let Some([_, group, kind, _]) = referent.place() {
            self.place(group, kind);
        }
        true
    }

    /// Notes that the object with that UID is no part, but lives: its name leads to a member-local object now. Says whether that
    /// changed anything.
    pub fn unset(&self, referent: &Referent, own_uid: &str) -> bool {
        let mut parts = self.parts.write();
        let is_it = parts.by_referent.get(referent.bytes()).is_some_and(|known| *known.identity.own_uid == *own_uid);
        let Some(known) = is_it.then(|| parts.by_referent.remove(referent.bytes())).flatten() else { return false };
        parts.count(referent, known.identity.is_alone && known.gone.is_none(), false);
        drop(parts);
        self.changes.note(Some(referent.hashed()));
        true
    }

    /// Notes that a part is gone: references that name its UID keep their meaning for a while.
    pub fn gone(&self, referent: Referent) {
        let mut parts = self.parts.write();
        parts.goings += 1;
        let number = parts.goings;
        let Some(known) = parts.by_referent.get_mut(referent.bytes()) else { return };
        let was_alone = known.gone.replace(number).is_none() && known.identity.is_alone;
        parts.count(&referent, was_alone, false);
        let hash = referent.hashed();
        parts.gone.push_back((number, referent));
        if parts.gone.len() > GONE_MAX
            && let Some((number, oldest)) = parts.gone.pop_front()
            && parts.by_referent.get(oldest.bytes()).is_some_and(|known| known.gone == Some(number))
        {
            parts.by_referent.remove(oldest.bytes());
        }
        drop(parts);
        self.changes.note(Some(hash));
    }

    /// How often identities have changed.
    pub(super) fn epoch(&self) -> u64 {
        self.changes.last()
    }

    /// Says whether what one of these referents is may have changed after that epoch.
    pub(super) fn changed_since(&self, epoch: u64, referents: impl Iterator<Item = u64>) -> bool {
        self.changes.since(epoch, referents)
    }

    /// The identity behind a reference, when it is a part's. A reference with the UID of another object is not.
    pub fn get(&self, referent: &[u8], uid: Option<&str>) -> Option<Identity> {
        let parts = self.parts.read();
        let Some(known) = parts.by_referent.get(referent) else { return self.under.as_ref()?.get(referent, uid) };
        let is_it = match uid {
            Some(uid) => *known.identity.own_uid == *uid,
            None => known.gone.is_none(),
        };
        is_it.then(|| known.identity.clone())
    }

    /// Says whether there is no part at all, so that nothing needs a look.
    pub fn is_empty(&self) -> bool {
        self.parts.read().by_referent.is_empty() && self.under.as_ref().is_none_or(|under| under.is_empty())
    }

    /// Notes that some object refers to one of this kind.
    pub fn refer(&self, group: &str, kind: &str) {
        self.references.fetch_add(1, Ordering::Release);
        if self.kinds.lock().referred.insert((group.to_owned(), kind.to_owned())) {
            self.news.notify_one();
        }
    }

    /// Notes that an object of this kind was placed.
    pub fn place(&self, group: &str, kind: &str) {
        if self.kinds.lock().placed.insert((group.to_owned(), kind.to_owned())) {
            self.news.notify_one();
        }
    }

    /// Rises whenever kinds may refer to others than before.
    pub fn references(&self) -> u64 {
        self.references.load(Ordering::Acquire)
    }

    /// The record of a placement that has moved.
    pub fn moved(&self, uid: &str) -> Option<Arc<Moved>> {
        self.moved.get(uid).or_else(|| self.under.as_ref()?.moved(uid))
    }

    /// Sets or forgets that record. Then the stores are to judge its parts anew.
    pub fn set_moved(&self, uid: &str, moved: Option<Arc<Moved>>) {
        self.moved.set(uid, moved);
    }

    /// The kinds that were ever placed, for the state directory.
    pub fn placed(&self) -> BTreeSet<GroupKind> {
        self.kinds.lock().placed.clone()
    }

    /// The kinds that were placed or are referred to.
    pub fn wanted(&self) -> BTreeSet<GroupKind> {
        let kinds = self.kinds.lock();
        kinds.placed.union(&kinds.referred).cloned().collect()
    }

    /// Waits until a kind was referred to, or placed, for the first time.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// How many placed objects of a namespace have all they have in one member: by kind and member.
    pub fn alone_in(&self, namespace: &str) -> Vec<(GroupKind, String, usize)> {
        let parts = self.parts.read();
        let counts = parts.alone.get(namespace).into_iter().flatten();
        counts.map(|((kind, member), count)| (kind.clone(), member.clone(), *count)).collect()
    }

    /// How often a shared object has lived before.
    pub fn life(&self, resource_and_key: &str) -> u32 {
        let life = self.lives.lock().by_key.get(resource_and_key).copied();
        life.or_else(|| Some(self.under.as_ref()?.life(resource_and_key))).unwrap_or_default()
    }

    /// The same of one that is there: as long as it is, that is not forgotten.
    pub(super) fn life_of_living(&self, resource_and_key: &str) -> u32 {
        let life = self.lives.lock().of_living(resource_and_key);
        life.or_else(|| Some(self.under.as_ref()?.life(resource_and_key))).unwrap_or_default()
    }

    /// Counts one life more, as its last holder is gone.
    pub fn raise_life(&self, resource_and_key: &str) {
        self.lives.lock().raise(resource_and_key);
        self.changes.note(None);
    }

    /// How often a child of a placed object, which is there, has lived before, since kubefold started.
    pub fn child_life(&self, resource_and_key: &str) -> u32 {
        let life = self.child_lives.lock().of_living(resource_and_key);
        life.or_else(|| Some(self.under.as_ref()?.child_life(resource_and_key))).unwrap_or_default()
    }

    /// Counts one life more of a child.
    pub fn raise_child_life(&self, resource_and_key: &str) {
        self.child_lives.lock().raise(resource_and_key);
    }

    /// All lives of shared objects, for the state directory, and a number that rises whenever they change.
    pub fn lives(&self) -> (imbl::HashMap<String, u32>, u64) {
        let lives = self.lives.lock();
        (lives.by_key.clone(), lives.version)
    }

    /// Takes the kinds that an earlier process placed.
    pub fn restore_placed(&self, kinds: BTreeSet<GroupKind>) {
        self.kinds.lock().placed = kinds;
    }

    /// Takes the lives that an earlier process counted.
    pub fn restore_lives(&self, lives: HashMap<String, u32>) {
        let dead = lives.keys().cloned().collect();
        *self.lives.lock() = Lives { by_key: lives.into(), dead, ..Lives::default() };
    }
}

impl Identity {
    /// Says whether references read the same by both.
    fn reads_as(&self, other: &Self) -> bool {
        self.own_uid == other.own_uid && self.visible_uid == other.visible_uid
    }
}

impl Parts {
    /// Counts a part in, or out.
    fn count(&mut self, referent: &Referent, was: bool, is: bool) {
        let Some([member, group, kind, namespace]) = referent.place().filter(|_| was != is) else { return };
        let what = ((group.to_owned(), kind.to_owned()), member.to_owned());
        if is {
            *self.alone.entry(namespace.to_owned()).or_default().entry(what).or_default() += 1;
            return;
        }
        let Some(counts) = self.alone.get_mut(namespace) else { return };
        if let Some(count) = counts.get_mut(&what) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&what);
            }
        }
        if counts.is_empty() {
            self.alone.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn referent(name: &str) -> Referent {
        Referent::new(&MemberName::new("east").unwrap(), "apps", "Deployment", "default", name)
    }

    fn identity(own: &str) -> Identity {
        Identity { own_uid: own.into(), visible_uid: "v".into(), is_alone: true }
    }

    #[test]
    fn what_is_alone_is_counted_while_it_lives() {
        let identities = Identities::default();
        let (a, b) = (referent("a"), referent("b"));
        let counted = || identities.alone_in("default").first().map_or(0, |(_, _, count)| *count);
        for identity in [identity("1"), identity("1"), identity("2")] {
            identities.set(&a, identity);
        }
        identities.set(&b, identity("3"));
        assert_eq!(counted(), 2);
        identities.gone(a.clone());
        identities.gone(a.clone());
        assert_eq!(counted(), 1);
        identities.set(&a, identity("4"));
        let grown = Identity { is_alone: false, ..identity("3") };
        assert!(!identities.set(&b, grown), "no reference reads otherwise");
        assert_eq!(counted(), 1);
        assert!(identities.unset(&a, "4") && identities.alone_in("default").is_empty());
        assert_eq!(identities.placed(), [("apps".to_owned(), "Deployment".to_owned())].into());
    }

    #[test]
    fn what_is_gone_is_known_by_its_uid_alone() {
        let identities = Identities::default();
        let web = referent("web");
        assert!(identities.set(&web, identity("a")) && !identities.set(&web, identity("a")));
        identities.gone(web.clone());
        assert_eq!(identities.get(web.bytes(), Some("a")), Some(identity("a")));
        assert_eq!(identities.get(web.bytes(), None), None);
        assert!(identities.set(&web, identity("a")), "it came back, which bare names show");
        assert_eq!(identities.get(web.bytes(), None), Some(identity("a")));
        assert!(!identities.unset(&web, "b") && identities.unset(&web, "a") && identities.is_empty());
    }

    #[test]
    fn lives_are_counted_of_all_that_live_and_of_so_many_that_died() {
        let identities = Identities::default();
        identities.restore_lives([("restored".to_owned(), 3)].into());
        identities.raise_life("back");
        let before = identities.lives();
        let living = |key| identities.life_of_living(key);
        assert_eq!((living("back"), living("restored"), living("never")), (1, 3, 0));
        assert_eq!(identities.lives(), before, "looking changes nothing");
        for at in 0..2 * GONE_MAX {
            identities.raise_life(&format!("d{at}"));
        }
        assert_eq!((identities.life("back"), identities.life("restored")), (1, 3), "they live");
        assert_eq!((identities.life("d0"), identities.life(&format!("d{}", 2 * GONE_MAX - 1))), (0, 1));
        assert_eq!(identities.lives().0.len(), GONE_MAX + 2);
        identities.raise_life("back");
        assert_eq!(identities.life("back"), 2);
    }

    #[test]
    fn the_dead_are_forgotten_one_by_one_and_the_living_never() {
        let identities = Identities::default();
        let back = referent("back");
        identities.set(&back, identity("b"));
        identities.gone(back.clone());
        identities.set(&back, identity("b"));
        for at in 0..=GONE_MAX {
            let dead = referent(&format!("d{at}"));
            identities.set(&dead, identity("d"));
            identities.gone(dead);
        }
        assert!(identities.get(back.bytes(), None).is_some());
        assert!(identities.get(referent("d0").bytes(), Some("d")).is_none());
        assert!(identities.get(referent("d2").bytes(), Some("d")).is_some());
    }
}
