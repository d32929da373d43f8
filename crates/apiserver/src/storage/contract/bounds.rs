use crate::storage::{
    Bounds, StorageError, When,
    contract::{Backend, NAME, put},
};

/// What is too large or too much is refused and changes nothing; what removes or shrinks is done all the same.
pub async fn bounds_are_kept(backend: &dyn Backend) {
    let bounds = Bounds { keys_max: 2, value_bytes_max: 4, bytes_max: 8, log_changes_max: 2, ..Bounds::default() };
    let storage = &*backend.open(NAME, bounds).await;
    let full = |done| matches!(done, Err(StorageError::Full(_)));
    let start = storage.revision().await.unwrap();
    let first = put(storage, "a", "1234", When::Absent).await.unwrap();
    assert!(full(put(storage, "b", "12345", When::Absent).await));
    assert!(full(put(storage, "b", "1234", When::Absent).await));
    let second = put(storage, "b", "1", When::Absent).await.unwrap();
    assert!(full(put(storage, "c", "1", When::Absent).await));
    assert!(full(put(storage, "b", "1234", When::At(second)).await));
    assert_eq!((second, storage.revision().await.unwrap()), (start + 2, start + 2));
    let third = put(storage, "b", "2", When::At(second)).await.unwrap();
    // Of three changes the log holds two.
    assert!(storage.watch("", first).await.is_ok());
    assert!(matches!(storage.watch("", start).await.err(), Some(StorageError::Compacted { .. })));
    storage.delete("a", first).await.unwrap();
    put(storage, "b", "1234", When::At(third)).await.unwrap();
    put(storage, "c", "1", When::Absent).await.unwrap();
}
