//! Moves an API server's objects from one storage to another, while no server has them.
//!
//! The target is marked first, and no server serves it before the mark is gone: until then it has a part of the objects.
//! A move that was interrupted is begun again: what is in the target already and differs is replaced, and what the source has
//! no more is removed.

use std::path::Path;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};

use super::storage::{self, Opened, StorageOpenError, StorageSource, StorageTls};
use kubefold_apiserver::storage::{Range, Record, Storage, StorageError, When};

/// The key by which a target is marked. No object has it.
const MARK: &str = "~unfinished-move";
/// Objects that are read at once.
const PAGE_OBJECTS: usize = 1_000;
/// Objects that are written at the same time: a storage stores them together.
const WRITES_MAX: usize = 256;

/// What a move is told on its command line.
#[derive(Clone, Debug)]
pub struct Move {
    /// Where the objects are.
    pub from: StorageSource,
    /// How that is reached.
    pub from_tls: StorageTls,
    /// Where they go.
    pub to: StorageSource,
    /// How that is reached.
    pub to_tls: StorageTls,
}

/// What was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Objects.
    pub objects: u64,
    /// Of their keys and values, in the order of keys.
    pub sha256: String,
}

/// Why objects were not moved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum MoveError {
    #[error(transparent)]
    Open(#[from] StorageOpenError),
    #[error(
        "{storage}: nothing is moved from or to it: what is in memory ends with the process, and sqlite: needs a folder"
    )]
    Nowhere { storage: String },
    #[error("{to} has objects already; give an empty storage, or another prefix, schema or folder of it")]
    HasObjects { to: String },
    #[error("{to} has a part of the objects of {from}: finish that move, or give an empty storage")]
    OtherMove { from: String, to: String },
    #[error(
        "{storage} has a part of the objects of {from} only, from a move that was interrupted: run kubefold apiserver migrate again"
    )]
    Unfinished { storage: String, from: String },
    #[error("storage {storage} cannot be read: {source}")]
    Unreadable { storage: String, source: StorageError },
    #[error("the move from {from} to {to} stopped ({source}); run it again, and it goes on")]
    Storage { from: String, to: String, source: StorageError },
    #[error("{from} has {} objects ({}) and {to} has {} ({}) after the move: somebody else writes to one of them; stop that, and run it again", .had.objects, .had.sha256, .has.objects, .has.sha256)]
    Differs { from: String, to: String, had: Moved, has: Moved },
}

impl MoveError {
    /// Whether what was given is wrong, wherever and whenever it is used.
    pub fn is_given(&self) -> bool {
        matches!(self, Self::Nowhere { .. }) || matches!(self, Self::Open(error) if error.is_given())
    }
}

/// Moves all objects, and says which. The source keeps them.
///
/// Errors: see [`MoveError`]. Cancel: as an interruption.
pub async fn run(options: &Move) -> Result<Moved, MoveError> {
    for source in [&options.from, &options.to] {
        let url = storage::read(source)?;
        if url.is_nowhere() {
            return Err(MoveError::Nowhere { storage: format!("{url:?}") });
        }
    }
    // Each names its own folder.
    let nowhere = Path::new("");
    let from = storage::open(&options.from, &options.from_tls, nowhere).await?;
    let to = storage::open(&options.to, &options.to_tls, nowhere).await?;
    let moved = carry(&from, &to).await;
    from.storage.close().await;
    to.storage.close().await;
    moved
}

/// Errors: it has a part of the objects of another one only.
pub(super) async fn check_whole(opened: &Opened) -> Result<(), MoveError> {
    let storage = || opened.name.clone();
    let found = opened.storage.get(MARK).await;
    match found.map_err(|source| MoveError::Unreadable { storage: storage(), source })? {
        (Some(mark), _) => Err(MoveError::Unfinished { storage: storage(), from: text(&mark.value) }),
        (None, _) => Ok(()),
    }
}

async fn carry(from: &Opened, to: &Opened) -> Result<Moved, MoveError> {
    check_whole(from).await?;
    let failed = |source| MoveError::Storage { from: from.name.clone(), to: to.name.clone(), source };
    let (source, target) = (&*from.storage, &*to.storage);
    let mark = match target.get(MARK).await.map_err(failed)? {
        (Some(mark), _) if text(&mark.value) == from.name => mark.revision,
        (Some(mark), _) => return Err(MoveError::OtherMove { from: text(&mark.value), to: to.name.clone() }),
        (None, _) => {
            let there = target.range(Range { limit: 1, ..Range::default() }).await.map_err(failed)?;
            if !there.records.is_empty() {
                return Err(MoveError::HasObjects { to: to.name.clone() });
            }
            target.put(MARK, from.name.clone().into(), When::Absent).await.map_err(failed)?
        }
    };
    copy(source, target).await.map_err(failed)?;
    remove_others(source, target).await.map_err(failed)?;
    let (had, has) = (sum(source).await.map_err(failed)?, sum(target).await.map_err(failed)?);
    if had != has {
        return Err(MoveError::Differs { from: from.name.clone(), to: to.name.clone(), had, has });
    }
    let newest = target.delete(MARK, mark).await.map_err(failed)?;
    // No watch goes on from a revision of the move.
    target.compact(newest).await.map_err(failed)?;
    Ok(had)
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

    fn opened(name: &str) -> Opened {
        Opened { storage: Arc::new(Memory::default()), name: name.to_owned() }
    }

    async fn put(opened: &Opened, key: &str, value: &str) {
        opened.storage.put(key, value.to_owned().into(), When::Absent).await.unwrap();
    }

    async fn all(opened: &Opened) -> Vec<(String, String)> {
        let page = opened.storage.range(Range::default()).await.unwrap();
        page.records.iter().map(|record| (record.key.to_string(), text(&record.value))).collect()
    }

    #[tokio::test]
    async fn all_objects_are_moved_once_into_a_storage_that_has_none() {
        let (from, to) = (opened("from"), opened("to"));
        for number in 0..2_500 {
            put(&from, &format!("pods/default/{number:04}"), &number.to_string()).await;
        }
        let moved = carry(&from, &to).await.unwrap();
        assert_eq!((moved.objects, moved.sha256.len()), (2_500, 64));
        assert_eq!(all(&to).await, all(&from).await);
        check_whole(&to).await.unwrap();
        let before = to.storage.watch("", 1).await.err();
        assert!(matches!(before, Some(StorageError::Compacted { .. })), "{before:?}");
        let again = carry(&from, &to).await.unwrap_err().to_string();
        assert!(again.starts_with("to has objects already"), "{again}");
    }

    #[tokio::test]
    async fn a_move_that_was_interrupted_goes_on_and_its_target_is_not_served_before() {
        let (from, to) = (opened("from"), opened("to"));
        for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
            put(&from, key, value).await;
        }
        // The source was served after the interruption: one changed, one went.
        for (key, value) in [(MARK, "from"), ("a", "1"), ("b", "old"), ("gone", "x")] {
            put(&to, key, value).await;
        }
        let partial = check_whole(&to).await.unwrap_err().to_string();
        assert!(partial.starts_with("to has a part of the objects of from only"), "{partial}");
        let back = carry(&to, &opened("elsewhere")).await.unwrap_err();
        assert!(matches!(back, MoveError::Unfinished { .. }), "{back}");
        let other = carry(&opened("other"), &to).await.unwrap_err();
        assert!(matches!(other, MoveError::OtherMove { .. }), "{other}");
        let moved = carry(&from, &to).await.unwrap();
        assert_eq!((moved.objects, all(&to).await), (3, all(&from).await));
        check_whole(&to).await.unwrap();
    }
}
