//! A store that begins, and what an earlier process showed of it: docs/design/revisions.md#restarts.
//!
//! An object that looks as it did then has the revision that it had then. What its members tell after that is news, and is logged. What
//! they tell before was told by the earlier process: the mirror, from which the store was filled, may be older than what was shown. When
//! each object has looked as it did once, and each other one has been gone once, the log has all that came since, and watches go on.

use std::collections::HashSet;

use crate::store::{digest::digest_of, earlier::Earlier, entry::Entry};

#[derive(Debug)]
pub(super) struct Recognizing {
    earlier: Earlier,
    /// What stands for the UIDs of objects that were gone then.
    gone: HashSet<u64>,
    /// The store has what the mirror had. What comes now is told by the members.
    pub(super) is_filled: bool,
    /// Objects of then that have looked as they did, by what stands for their keys.
    reached: HashSet<u64>,
    /// Objects that did not exist then, and have not been gone yet.
    others: HashSet<u64>,
    /// How many more objects there are by what was logged.
    logged: i64,
}

impl Recognizing {
    /// Nothing is in the store yet.
    pub(super) fn new(earlier: Earlier) -> Self {
        let gone = earlier.events.iter().map(|event| event.gone).filter(|gone| *gone > 0).collect();
        Self { earlier, gone, is_filled: false, reached: HashSet::new(), others: HashSet::new(), logged: 0 }
    }

    /// Gives an object that looks as it did the revision that it had; it takes the place of `before`. Says whether that is news.
    pub(super) fn replaces(&mut self, before: Option<&Entry>, after: Option<&mut Entry>) -> bool {
        let Some(key) = before.or(after.as_deref()).map(|entry| digest_of(entry.key())) else { return false };
        let known = self.earlier.objects.get(&key);
        let is_reached = match known {
            Some(_) => self.reached.contains(&key),
            None => !self.others.contains(&key) && after.as_deref().is_none_or(|entry| !self.was_gone(entry)),
        };
        if self.is_filled && is_reached {
            self.logged += i64::from(after.is_some()) - i64::from(before.is_some());
            return true;
        }
        match (known, after) {
            (Some(known), Some(entry)) => {
                let is_as_it_was = known.form == entry.form() && entry.stamp_all(known.revision, known.parts);
                if is_as_it_was {
                    self.reached.insert(key)
                } else {
                    self.reached.remove(&key)
                };
            }
            (Some(_), None) => drop(self.reached.remove(&key)),
            (None, Some(_)) => drop(self.others.insert(key)),
            (None, None) => drop(self.others.remove(&key)),
        }
        false
    }

    /// The mirror may have it from before, and its member tell what became of it until it went.
    fn was_gone(&self, entry: &Entry) -> bool {
        !self.gone.is_empty() && self.gone.contains(&digest_of(entry.uid().as_bytes()))
    }

    /// Says whether the log has all that came since, where the store has so many objects. Two whose keys have one number are never
    /// as they were. `is_level`: the members have told all that they had. Until then one of them may yet tell of an object that came and
    /// went.
    pub(super) fn is_whole(&self, objects: usize, is_level: bool) -> bool {
        let then = self.earlier.objects.len();
        let counted = i64::try_from(then).ok().zip(i64::try_from(objects).ok());
        (is_level || self.gone.is_empty())
            && self.others.is_empty()
            && self.reached.len() == then
            && counted.is_some_and(|(then, now)| then + self.logged == now)
    }
}
