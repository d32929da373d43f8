//! Documents by their hashes, up to a number of bytes; what was used least recently goes first.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::merge::Encoding;

/// All documents together. One member's are some 12 MiB in each encoding, and clients ask for a few of them.
const BYTES_MAX: usize = 128 << 20;

/// Which bytes: a path such as `/openapi/v3/apis/apps/v1`, an encoding, and the hash of what is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) path: Arc<str>,
    pub(super) encoding: Encoding,
    pub(super) hash: Arc<str>,
}

impl Key {
    /// A number that is the same for the same key.
    pub(super) fn stripe(&self) -> usize {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        // Any bits will do.
        hasher.finish() as usize
    }
}

#[derive(Default)]
pub(super) struct Cache(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    documents: HashMap<Key, Document>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

struct Document {
    bytes: Bytes,
    used: u64,
}

impl Cache {
    pub(super) fn get(&self, key: &Key) -> Option<Bytes> {
        let mut inner = self.0.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let document = inner.documents.get_mut(key)?;
        document.used = clock;
        Some(document.bytes.clone())
    }

    pub(super) fn put(&self, key: Key, bytes: Bytes) {
        if bytes.len() > BYTES_MAX {
            return;
        }
        let mut inner = self.0.lock();
        inner.clock += 1;
        inner.bytes += bytes.len();
        let used = inner.clock;
        let replaced = inner.documents.insert(key, Document { bytes, used });
        inner.bytes -= replaced.map_or(0, |document| document.bytes.len());
        while inner.bytes > BYTES_MAX {
            // A few hundred documents at most: walking them costs less than keeping them in order.
            let oldest = inner.documents.iter().min_by_key(|(_, document)| document.used).map(|(key, _)| key.clone());
            let Some(gone) = oldest.and_then(|key| inner.documents.remove(&key)) else { return };
            inner.bytes -= gone.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str, hash: &str) -> Key {
        Key { path: path.into(), encoding: Encoding::Json, hash: hash.into() }
    }

    #[test]
    fn the_bytes_are_bounded_and_what_is_used_stays() {
        let cache = Cache::default();
        let third = Bytes::from(vec![0; BYTES_MAX / 3]);
        for hash in ["a", "b", "c"] {
            cache.put(key("p", hash), third.clone());
        }
        assert!(cache.get(&key("p", "a")).is_some() && cache.get(&key("q", "a")).is_none());
        cache.put(key("p", "d"), third.clone());
        let held: Vec<bool> = ["a", "b", "c", "d"].iter().map(|hash| cache.get(&key("p", hash)).is_some()).collect();
        assert_eq!(held, [true, false, true, true]);
        cache.put(key("p", "d"), third);
        assert!(cache.0.lock().bytes <= BYTES_MAX);
        cache.put(key("p", "huge"), Bytes::from(vec![0; BYTES_MAX + 1]));
        assert!(cache.get(&key("p", "huge")).is_none());
    }
}
