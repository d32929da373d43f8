//! Brings all that a storage has into another one, while no server serves either.
//!
//! The target is marked first, and no server serves it before the mark is gone: until then it has a part of the objects.
//! What was interrupted is begun again: what is in the target already and differs is replaced, and what the source has no more is
//! removed.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};

use kubefold_apiserver::storage::{Range, Record, Storage, StorageError, When};

/// The key by which a target is marked. No object has it.
const MARK: &str = "~unfinished-move";
/// Objects that are read at once.
const PAGE_OBJECTS: usize = 1_000;
/// Objects that are written at the same time: a storage stores them together.
const WRITES_MAX: usize = 256;

/// A storage, and what it is called.
pub(super) struct Place {
    pub(super) storage: Arc<dyn Storage>,
    /// Without a password.
    pub(super) name: String,
}

/// What was brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Objects.
    pub objects: u64,
    /// Of their keys and values, in the order of keys.
    pub sha256: String,
}

/// Why objects were not brought.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum CarryError {
    #[error("{to} has objects already; give an empty one")]
    HasObjects { to: String },
    #[error("{to} has a part of the objects of {from}: finish that move, or give an empty storage")]
    OtherMove { from: String, to: String },
    #[error("{storage} has a part of the objects of {from} only, from a move that was interrupted: run the move again")]
    Unfinished { storage: String, from: String },
    #[error("storage {storage} cannot be used: {source}")]
    Unusable { storage: String, source: StorageError },
    #[error("the move from {from} to {to} stopped ({source}); run it again, and it goes on")]
    Storage { from: String, to: String, source: StorageError },
    #[error("{from} has {} objects ({}) and {to} has {} ({}) after the move: somebody else writes to one of them; stop that, and run it again", .had.objects, .had.sha256, .has.objects, .has.sha256)]
    Differs { from: String, to: String, had: Moved, has: Moved },
}

/// Errors: it has a part of the objects of another one only.
pub(super) async fn check_whole(place: &Place) -> Result<(), CarryError> {
    match part_of(place).await? {
        Some(from) => Err(CarryError::Unfinished { storage: place.name.clone(), from }),
        None => Ok(()),
    }
}

/// Whose objects it has a part of, if it is the target of a move that has not ended.
pub(super) async fn part_of(place: &Place) -> Result<Option<String>, CarryError> {
    let found = place.storage.get(MARK).await;
    let (mark, _) = found.map_err(|source| CarryError::Unusable { storage: place.name.clone(), source })?;
    Ok(mark.map(|mark| text(&mark.value)))
}

/// Brings everything, and says what. The source keeps it. The target is served by nobody before [`end`].
///
/// Errors: see [`CarryError`]. Cancel: as an interruption.
pub(super) async fn carry(from: &Place, to: &Place) -> Result<Moved, CarryError> {
    check_whole(from).await?;
    let failed = |source| CarryError::Storage { from: from.name.clone(), to: to.name.clone(), source };
    let (source, target) = (&*from.storage, &*to.storage);
    match part_of(to).await? {
        Some(mark) if mark == from.name => {}
        Some(mark) => return Err(CarryError::OtherMove { from: mark, to: to.name.clone() }),
        None => {
            let there = target.range(Range { limit: 1, ..Range::default() }).await.map_err(failed)?;
            if !there.records.is_empty() {
                return Err(CarryError::HasObjects { to: to.name.clone() });
            }
            target.put(MARK, from.name.clone().into(), When::Absent).await.map_err(failed)?;
        }
    }
    copy(source, target).await.map_err(failed)?;
    remove_others(source, target).await.map_err(failed)?;
    let (had, has) = (sum(source).await.map_err(failed)?, sum(target).await.map_err(failed)?);
    if had != has {
        return Err(CarryError::Differs { from: from.name.clone(), to: to.name.clone(), had, has });
    }
    // Of what clients hold of the source no revision comes again.
    target.raise(source.revision().await.map_err(failed)?).await.map_err(failed)?;
    Ok(had)
}

/// Has servers serve a storage that has everything by now.
///
/// Errors: it cannot be written.
pub(super) async fn end(place: &Place) -> Result<(), CarryError> {
    let failed = |source| CarryError::Unusable { storage: place.name.clone(), source };
    let (mark, mut newest) = place.storage.get(MARK).await.map_err(failed)?;
    if let Some(mark) = mark {
        newest = place.storage.delete(MARK, mark.revision).await.map_err(failed)?;
    }
    // No watch goes on from a revision of the move.
    place.storage.compact(newest).await.map_err(failed)
}

/// Each page of a storage in the order of keys, without the mark.
async fn each_page<F: Future<Output = Result<(), StorageError>>>(
    storage: &dyn Storage,
    mut take: impl FnMut(Vec<Record>) -> F,
) -> Result<(), StorageError> {
    let (mut at, mut after) = (0, None::<String>);
    loop {
        let range = Range { after: after.as_deref(), limit: PAGE_OBJECTS, at, ..Range::default() };
        let mut page = storage.range(range).await?;
        (at, after) = (page.revision, page.records.last().map(|record| record.key.to_string()));
        page.records.retain(|record| &*record.key != MARK);
        take(page.records).await?;
        if !page.more {
            return Ok(());
        }
    }
}

async fn copy(source: &dyn Storage, target: &dyn Storage) -> Result<(), StorageError> {
    each_page(source, async |records| {
        let writes = stream::iter(records).map(|record| bring(target, record));
        writes.buffer_unordered(WRITES_MAX).try_collect().await
    })
    .await
}

/// Has the target have a record, as an earlier attempt may have done.
async fn bring(target: &dyn Storage, record: Record) -> Result<(), StorageError> {
    let there = match target.put(&record.key, record.value.clone(), When::Absent).await {
        Err(StorageError::Unmet(Some(there))) => there,
        put => return put.map(drop),
    };
    if there.value != record.value {
        target.put(&record.key, record.value, When::At(there.revision)).await?;
    }
    Ok(())
}

/// Removes what an earlier attempt brought and the source has no more.
async fn remove_others(source: &dyn Storage, target: &dyn Storage) -> Result<(), StorageError> {
    each_page(target, async |records| {
        for record in records {
            if source.get(&record.key).await?.0.is_none() {
                target.delete(&record.key, record.revision).await?;
            }
        }
        Ok(())
    })
    .await
}

async fn sum(storage: &dyn Storage) -> Result<Moved, StorageError> {
    let (mut objects, mut hash) = (0, Sha256::new());
    each_page(storage, |records| {
        objects += records.len() as u64;
        for Record { key, value, .. } in &records {
            // With their lengths: no two different sequences are the same bytes.
            for part in [key.as_bytes(), value] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        async { Ok(()) }
    })
    .await?;
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Moved { objects, sha256 })
}

fn text(value: &Bytes) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubefold_apiserver::storage::Memory;

    use super::*;

    fn place(name: &str) -> Place {
        Place { storage: Arc::new(Memory::default()), name: name.to_owned() }
    }

    async fn put(place: &Place, key: &str, value: &str) {
        place.storage.put(key, value.to_owned().into(), When::Absent).await.unwrap();
    }

    async fn all(place: &Place) -> Vec<(String, String)> {
        let page = place.storage.range(Range::default()).await.unwrap();
        page.records.iter().map(|record| (record.key.to_string(), text(&record.value))).collect()
    }

    #[tokio::test]
    async fn all_objects_are_moved_once_into_a_storage_that_has_none() {
        let (from, to) = (place("from"), place("to"));
        for number in 0..2_500 {
            put(&from, &format!("pods/default/{number:04}"), &number.to_string()).await;
        }
        let moved = carry(&from, &to).await.unwrap();
        assert_eq!((moved.objects, moved.sha256.len()), (2_500, 64));
        end(&to).await.unwrap();
        assert_eq!(all(&to).await, all(&from).await);
        check_whole(&to).await.unwrap();
        let before = to.storage.watch("", 1).await.err();
        assert!(matches!(before, Some(StorageError::Compacted { .. })), "{before:?}");
        let again = carry(&from, &to).await.unwrap_err().to_string();
        assert!(again.starts_with("to has objects already"), "{again}");
    }

    #[tokio::test]
    async fn a_move_that_was_interrupted_goes_on_and_its_target_is_not_served_before() {
        let (from, to) = (place("from"), place("to"));
        for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
            put(&from, key, value).await;
        }
        // The source was served after the interruption: one changed, one went.
        for (key, value) in [(MARK, "from"), ("a", "1"), ("b", "old"), ("gone", "x")] {
            put(&to, key, value).await;
        }
        let partial = check_whole(&to).await.unwrap_err().to_string();
        assert!(partial.starts_with("to has a part of the objects of from only"), "{partial}");
        let back = carry(&to, &place("elsewhere")).await.unwrap_err();
        assert!(matches!(back, CarryError::Unfinished { .. }), "{back}");
        let other = carry(&place("other"), &to).await.unwrap_err();
        assert!(matches!(other, CarryError::OtherMove { .. }), "{other}");
        let moved = carry(&from, &to).await.unwrap();
        assert!(check_whole(&to).await.is_err(), "not before its end");
        end(&to).await.unwrap();
        assert_eq!((moved.objects, all(&to).await), (3, all(&from).await));
        check_whole(&to).await.unwrap();
    }
}
