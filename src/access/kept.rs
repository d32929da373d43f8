//! What members decided, kept for a later process: for as long as a member is down that was down when it began.
//!
//! It is written by the hash of the question under a key of its own: a reader of the file who does not have the key learns no
//! user, and no object. A decision counts for the cluster that made it, by its UID.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::access::question::Question;

/// Decisions that are kept: the latest.
const KEPT_MAX: usize = 100_000;
/// One that is older counts no more.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// Bytes of a question's hash.
const ID_BYTES: usize = 16;

/// A question's hash.
pub(super) type Id = [u8; ID_BYTES];

/// What a cluster said, and when: the seconds of Unix, negative for a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct KeptWord(i64);

/// By the UIDs of clusters and the hashes of questions.
type Written = BTreeMap<String, HashMap<String, KeptWord>>;

/// What an earlier process was told, and the key of the hashes.
pub struct Kept {
    key: hmac::Key,
    words: HashMap<Arc<str>, HashMap<Id, KeptWord>>,
}

impl KeptWord {
    /// What was said so long ago.
    pub(super) fn of(allowed: bool, age: Duration) -> Self {
        let at = i64::try_from(seconds().saturating_sub(age.as_secs())).unwrap_or(i64::MAX);
        Self(if allowed { at } else { -at })
    }

    pub(super) fn allowed(self) -> bool {
        self.0 > 0
    }

    /// How long ago it was said. `None`: by the clock, it has not been said yet.
    pub(super) fn age(self) -> Option<Duration> {
        seconds().checked_sub(self.0.unsigned_abs()).map(Duration::from_secs)
    }

    fn counts(self) -> bool {
        self.age().is_some_and(|age| age < KEPT_FOR)
    }
}

impl Kept {
    /// What was written by `write` under this key; `None` where nothing was, or where it is damaged.
    pub fn read(key: &[u8], text: Option<&str>) -> Option<Self> {
        let written: Written = text.map_or_else(|| Some(Written::new()), |text| serde_json::from_str(text).ok())?;
        let id = |text: &str| URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| Id::try_from(bytes).ok());
        let of_cluster = |(uid, words): (String, HashMap<String, KeptWord>)| {
            let words = words.into_iter().filter(|(_, word)| word.counts());
            (uid.into(), words.filter_map(|(text, word)| Some((id(&text)?, word))).collect())
        };
        let words = written.into_iter().map(of_cluster).collect();
        Some(Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), words })
    }

    /// A question's hash.
    pub(super) fn id(&self, question: &Question<'_>) -> Id {
        // Both are plain values: to write them cannot fail.
        let text = serde_json::to_vec(&(&*question.caller, &*question.action)).unwrap_or_default();
        let tag = hmac::sign(&self.key, &text);
        let mut id = Id::default();
        id.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        id
    }

    /// What each cluster said to a question.
    pub(super) fn words(&self, id: &Id) -> HashMap<Arc<str>, KeptWord> {
        let of = |(uid, words): (&Arc<str>, &HashMap<Id, KeptWord>)| Some((Arc::clone(uid), *words.get(id)?));
        self.words.iter().filter_map(of).collect()
    }

    /// All that is known now, for a later process: what was said to this one, and of the rest what was said before. `None`
    /// for a word that does not hold any more.
    pub(super) fn write(&self, said: impl Iterator<Item = (Id, Arc<str>, Option<KeptWord>)>) -> String {
        let before = self
            .words
            .iter()
            .flat_map(|(uid, words)| words.iter().map(|(id, word)| ((Arc::clone(uid), *id), Some(*word))));
        let mut all: HashMap<(Arc<str>, Id), Option<KeptWord>> = before.collect();
        all.extend(said.map(|(id, uid, word)| ((uid, id), word)));
        let mut all: Vec<_> = all.into_iter().filter_map(|(of, word)| Some((of, word?))).collect();
        all.retain(|(_, word)| word.counts());
        if all.len() > KEPT_MAX {
            all.select_nth_unstable_by_key(KEPT_MAX, |(_, word)| std::cmp::Reverse(word.0.unsigned_abs()));
            all.truncate(KEPT_MAX);
        }
        let mut written = Written::new();
        for ((uid, id), word) in all {
            written.entry(uid.to_string()).or_default().insert(URL_SAFE_NO_PAD.encode(id), word);
        }
        serde_json::to_string(&written).unwrap_or_default()
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::review::Action;
    use kubefold_serving::caller::Caller;

    fn read(text: Option<&str>) -> Kept {
        Kept::read(b"key", text).unwrap()
    }

    #[test]
    fn nobody_learns_who_asked_what() {
        let caller = Caller { user: "jane".into(), ..Caller::default() };
        let action = Action { namespace: "shop".into(), ..Action::default() };
        let kept = read(None);
        let id = kept.id(&Question::of(&caller, &action));
        let text = kept.write([(id, "u-1".into(), Some(KeptWord::of(true, Duration::ZERO)))].into_iter());
        assert!(!text.contains("jane") && !text.contains("shop") && text.contains("u-1"), "{text}");
        assert!(read(Some(&text)).words(&id)["u-1"].allowed());
        let other = Kept::read(b"another key", Some(&text)).unwrap();
        assert!(other.words(&other.id(&Question::of(&caller, &action))).is_empty());
        assert!(Kept::read(b"key", Some("{half")).is_none());
    }

    #[test]
    fn what_is_old_or_void_is_not_kept_and_of_too_much_the_latest() {
        let kept = read(None);
        let word = |seconds| Some(KeptWord::of(seconds % 2 == 0, Duration::from_secs(seconds)));
        let id = |at: u64| {
            let mut id = Id::default();
            id[..8].copy_from_slice(&at.to_be_bytes());
            id
        };
        let many = KEPT_MAX as u64 + 10;
        let text = kept.write((0..many).map(|at| (id(at), "u".into(), word(at))));
        let again = read(Some(&text));
        assert_eq!(again.words.values().map(HashMap::len).sum::<usize>(), KEPT_MAX);
        assert!(again.words(&id(0))["u"].allowed() && !again.words(&id(1))["u"].allowed());
        assert!(again.words(&id(many - 1)).is_empty());
        // A word that is void now was known before.
        let text = again.write([(id(0), "u".into(), None)].into_iter());
        assert!(read(Some(&text)).words(&id(0)).is_empty() && !read(Some(&text)).words(&id(2)).is_empty());
        let old = kept.write([(id(1), "u".into(), word(KEPT_FOR.as_secs() + 1))].into_iter());
        assert!(read(Some(&old)).words(&id(1)).is_empty());
    }
}
