//! A storage whose Secrets are encrypted, each for its key, so that none can be read in the place of another.

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use kubefold_sql::StateKey;

use kubefold_apiserver::storage::{Change, Page, Range, Record, Storage, StorageError, Usage, WatchItem, When};

/// What the keys of Secrets begin with.
const SECRETS: &str = "secrets/";
/// How many are read at once when they are encrypted anew. Units: records.
const PAGE: usize = 100;

/// Encrypts Secrets on their way into a storage.
pub(super) struct Sealed {
    storage: Arc<dyn Storage>,
    sealer: Sealer,
}

#[derive(Clone)]
struct Sealer(Arc<StateKey>);

impl Sealed {
    pub(super) fn new(storage: Arc<dyn Storage>, key: StateKey) -> Self {
        Self { storage, sealer: Sealer(Arc::new(key)) }
    }

    /// Encrypts with the first key what an earlier one has encrypted, and ends the history that was.
    ///
    /// Errors: the storage does not answer.
    pub(super) async fn renew(&self) -> Result<(), StorageError> {
        if !self.sealer.0.has_earlier() {
            return Ok(());
        }
        let (mut last, mut after) = (None, None::<Arc<str>>);
        loop {
            let range = Range { prefix: SECRETS, after: after.as_deref(), limit: PAGE, ..Range::default() };
            let page = self.storage.range(range).await?;
            for Record { key, value, revision, .. } in &page.records {
                // One that is damaged stays as it is.
                if let Ok(Some(sealed)) = self.sealer.0.renewed(key, value) {
                    last = Some(self.storage.put(key, sealed.into(), When::At(*revision)).await?);
                }
            }
            after = page.records.last().map(|record| record.key.clone());
            if !page.more {
                break;
            }
        }
        match last {
            Some(last) => self.storage.compact(last).await,
            None => Ok(()),
        }
    }
}

impl Sealer {
    fn seal(&self, key: &str, value: Bytes) -> Result<Bytes, StorageError> {
        if !key.starts_with(SECRETS) {
            return Ok(value);
        }
        let sealed = self.0.seal(key, value.into());
        sealed.map(Bytes::from).map_err(|error| StorageError::Unavailable(format!("{key} is not encrypted: {error}")))
    }

    fn open(&self, record: Record) -> Result<Record, StorageError> {
        if !record.key.starts_with(SECRETS) {
            return Ok(record);
        }
        match self.0.open(&record.key, &record.value) {
            Ok(value) => Ok(Record { value: value.into(), ..record }),
            Err(_) => Err(StorageError::Unavailable(format!(
                "{} in own.db is damaged, or was encrypted with another key than that of --state-key-file",
                record.key
            ))),
        }
    }

    fn open_change(&self, change: Change) -> Result<Change, StorageError> {
        let open = |record: Option<Record>| record.map(|record| self.open(record)).transpose();
        Ok(Change { before: open(change.before)?, after: open(change.after)?, ..change })
    }

    /// What is there instead of what was expected.
    fn open_unmet(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::Unmet(Some(record)) => match self.open(record) {
                Ok(record) => StorageError::Unmet(Some(record)),
                Err(error) => error,
            },
            other => other,
        }
    }
}

impl Storage for Sealed {
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>> {
        self.storage.revision()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>> {
        let got = async move {
            let (record, revision) = self.storage.get(key).await?;
            Ok((record.map(|record| self.sealer.open(record)).transpose()?, revision))
        };
        got.boxed()
    }

    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>> {
        let read = async move {
            let page = self.storage.range(range).await?;
            // One that cannot be read hides no other.
            let open = |record| self.sealer.open(record).inspect_err(|error| tracing::warn!("{error}")).ok();
            let records = page.records.into_iter().filter_map(open).collect();
            Ok(Page { records, ..page })
        };
        read.boxed()
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, when: When) -> BoxFuture<'a, Result<u64, StorageError>> {
        let put = async move {
            let sealed = self.sealer.seal(key, value)?;
            self.storage.put(key, sealed, when).await.map_err(|error| self.sealer.open_unmet(error))
        };
        put.boxed()
    }

    fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>> {
        let delete = async move { self.storage.delete(key, at).await.map_err(|error| self.sealer.open_unmet(error)) };
        delete.boxed()
    }

    fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError>> {
        let (watch, sealer) = (self.storage.watch(prefix, after), self.sealer.clone());
        let opened = async move {
            let items = watch.await?.map(move |item| match item? {
                WatchItem::Change(change) => sealer.open_change(change).map(WatchItem::Change),
                progress @ WatchItem::Progress(_) => Ok(progress),
            });
            Ok(items.boxed())
        };
        opened.boxed()
    }

    fn compact(&self, before: u64) -> BoxFuture<'_, Result<(), StorageError>> {
        self.storage.compact(before)
    }

    fn raise(&self, to: u64) -> BoxFuture<'_, Result<u64, StorageError>> {
        self.storage.raise(to)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.storage.ready()
    }

    fn usage(&self) -> Option<Usage> {
        self.storage.usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_apiserver::storage::Memory;
    use kubefold_sql::KeyFile;

    #[tokio::test]
    async fn what_an_earlier_key_encrypted_is_encrypted_anew_and_its_history_ends() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let files = directories.each_ref().map(|directory| KeyFile::new(None, directory.path()));
        let texts = files.each_ref().map(|file| {
            file.key(false).unwrap();
            std::fs::read_to_string(file.path()).unwrap()
        });
        let below: Arc<dyn Storage> = Arc::new(Memory::default());
        let old = Sealed::new(Arc::clone(&below), files[0].key(true).unwrap());
        let keys: Vec<String> = (0..PAGE + 2).map(|number| format!("secrets/kubefold-system/s{number}")).collect();
        for key in &keys {
            old.put(key, key.clone().into(), When::Absent).await.unwrap();
        }
        below.put("secrets/kubefold-system/damaged", Bytes::from_static(b"x"), When::Absent).await.unwrap();
        let before = below.revision().await.unwrap();
        std::fs::write(files[1].path(), format!("{}{}", texts[1], texts[0])).unwrap();
        let both = Sealed::new(Arc::clone(&below), files[1].key(true).unwrap());
        both.renew().await.unwrap();
        let renewed = below.revision().await.unwrap();
        both.renew().await.unwrap();
        assert_eq!(below.revision().await.unwrap(), renewed, "each once");
        std::fs::write(files[1].path(), &texts[1]).unwrap();
        let new = Sealed::new(below, files[1].key(true).unwrap());
        for key in &keys {
            assert_eq!(new.get(key).await.unwrap().0.unwrap().value, key.as_bytes());
        }
        assert!(new.get("secrets/kubefold-system/damaged").await.is_err());
        let watch = new.watch(SECRETS, before).await;
        assert!(
            matches!(watch.err(), Some(StorageError::Compacted { .. })),
            "the history can be read with the old key alone"
        );
    }

    #[tokio::test]
    async fn a_secret_is_stored_encrypted_and_read_as_it_was_by_every_way() {
        let directory = tempfile::tempdir().unwrap();
        let key = || KeyFile::new(None, directory.path()).key(false).unwrap();
        let below: Arc<dyn Storage> = Arc::new(Memory::default());
        let sealed = Sealed::new(Arc::clone(&below), key());
        let (secret, event) = ("secrets/kubefold-system/east", "events/kubefold-system/e");
        let mut watch = sealed.watch("secrets/", sealed.revision().await.unwrap()).await.unwrap();
        let at = sealed.put(secret, Bytes::from_static(b"hunter2"), When::Absent).await.unwrap();
        sealed.put(event, Bytes::from_static(b"plain"), When::Absent).await.unwrap();
        let stored = async |key: &'static str| below.get(key).await.unwrap().0.unwrap().value;
        assert!(StateKey::is_sealed(&stored(secret).await));
        assert_eq!(stored(event).await, &b"plain"[..]);
        let value = |record: Option<Record>| record.map(|record| record.value);
        assert_eq!(value(sealed.get(secret).await.unwrap().0).unwrap(), &b"hunter2"[..]);
        let page = sealed.range(Range { prefix: "secrets/", ..Range::default() }).await.unwrap();
        assert_eq!(page.records[0].value, &b"hunter2"[..]);
        let unmet = sealed.put(secret, Bytes::from_static(b"other"), When::Absent).await.unwrap_err();
        let StorageError::Unmet(instead) = unmet else { panic!("{unmet}") };
        assert_eq!(value(instead).unwrap(), &b"hunter2"[..]);
        let told = loop {
            if let WatchItem::Change(change) = watch.next().await.unwrap().unwrap() {
                break change;
            }
        };
        assert_eq!((told.revision, value(told.after).unwrap()), (at, Bytes::from_static(b"hunter2")));
        // In the place of another one it is not read, nor with another key.
        let moved = stored(secret).await;
        below.put("secrets/kubefold-system/west", moved, When::Absent).await.unwrap();
        assert!(sealed.get("secrets/kubefold-system/west").await.is_err());
        let elsewhere = tempfile::tempdir().unwrap();
        let other = Sealed::new(below, KeyFile::new(None, elsewhere.path()).key(false).unwrap());
        let told = other.get(secret).await.unwrap_err().to_string();
        assert!(told.contains("another key"), "{told}");
        assert_eq!(other.range(Range { prefix: "secrets/", ..Range::default() }).await.unwrap().records, []);
    }
}
