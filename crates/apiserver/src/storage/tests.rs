//! The backends of this crate keep the contract.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::storage::{
    Bounds, Memory, Range, Storage, StorageError, When,
    contract::{self, Backend},
};

/// Makes a key that is not there.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "etcd"))]
pub(super) async fn make(storage: &dyn Storage, key: &str) -> Result<u64, StorageError> {
    storage.put(key, Bytes::from_static(b"x"), When::Absent).await
}

/// All keys that are there now.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "etcd"))]
pub(super) async fn keys(storage: &dyn Storage) -> Vec<String> {
    contract::keys(storage, Range::default()).await
}

struct InMemory;

impl Backend for InMemory {
    fn open<'a>(&'a self, _: &'a str, bounds: Bounds) -> BoxFuture<'a, Arc<dyn Storage>> {
        Box::pin(async move { Arc::new(Memory::new(bounds)) as Arc<dyn Storage> })
    }

    fn outlives_its_process(&self) -> bool {
        false
    }
}

mod memory {
    use super::*;

    crate::storage_contract!(InMemory);
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use tempfile::TempDir;

    use super::*;
    use crate::storage::Sqlite;

    struct InFiles(TempDir);

    impl Backend for InFiles {
        fn open<'a>(&'a self, name: &'a str, bounds: Bounds) -> BoxFuture<'a, Arc<dyn Storage>> {
            Box::pin(async move {
                let storage = Sqlite::open(&self.0.path().join(name), bounds).await.unwrap();
                Arc::new(storage) as Arc<dyn Storage>
            })
        }

        fn outlives_its_process(&self) -> bool {
            true
        }
    }

    crate::storage_contract!(InFiles(TempDir::new().unwrap()));
}

/// Many writes, one store: what the writer's thread makes of a log's failures.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod group_commit {
    use std::{io, sync::mpsc};

    use bytes::Bytes;
    use futures::{FutureExt, StreamExt, future::join_all};

    use super::*;
    use crate::storage::{
        StorageError, WatchItem, When,
        cache::{Cache, State},
        cursor,
        writer::{Log, Opened, Stored, Writer},
    };

    /// Stores when the test says so, as it says; `None`: it panics.
    struct Script {
        began: mpsc::Sender<usize>,
        results: mpsc::Receiver<Option<Result<(), StorageError>>>,
        /// What became of a batch whose outcome was not known.
        settled: mpsc::Receiver<Result<bool, StorageError>>,
    }

    impl Log for Script {
        fn store(&mut self, batch: Stored) -> Result<(), StorageError> {
            self.began.send(batch.changes.len()).unwrap();
            self.results.recv().unwrap().expect("as the test wants it")
        }

        fn settle(&mut self) -> Result<bool, StorageError> {
            self.settled.recv().unwrap()
        }

        fn raise(&mut self, _: u64) -> Result<(), StorageError> {
            self.results.recv().unwrap().unwrap()
        }

        fn probe(&mut self) -> Result<(), StorageError> {
            self.results.recv().unwrap().unwrap()
        }
    }

    struct Scripted {
        writer: Writer,
        cache: Arc<Cache>,
        /// How many changes each batch has, once it is begun.
        began: mpsc::Receiver<usize>,
        results: mpsc::Sender<Option<Result<(), StorageError>>>,
        settled: mpsc::Sender<Result<bool, StorageError>>,
    }

    async fn scripted() -> Scripted {
        let ((tell, began), (results, told), (settled, ends)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let open = || {
            let log = Script { began: tell, results: told, settled: ends };
            let cache = Arc::new(Cache::new(State::empty(), Bounds::default()));
            Ok::<_, io::Error>(Opened { log, cache, dead: Vec::new() })
        };
        let (writer, cache) = Writer::start(open).await.unwrap();
        Scripted { writer, cache, began, results, settled }
    }

    impl Scripted {
        async fn put(&self, key: &str) -> Result<u64, StorageError> {
            self.writer.write(key, Some(Bytes::from_static(b"x")), When::Absent).await
        }

        fn revision(&self) -> u64 {
            self.cache.read().tip().revision
        }
    }

    #[tokio::test]
    async fn what_waits_while_a_batch_is_stored_is_the_next_and_nobody_sees_it_before() {
        let scripted = scripted().await;
        let mut watch = cursor::watch(&scripted.cache, "", 1).unwrap();
        let mut first = Box::pin(scripted.put("first"));
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(scripted.began.recv().unwrap(), 1);
        // Two of these want the same key.
        let keys = ["a", "b", "a", "c"];
        let mut others = Box::pin(join_all(keys.map(|key| scripted.put(key))));
        assert!((&mut others).now_or_never().is_none());
        assert_eq!(scripted.revision(), 1);
        scripted.results.send(Some(Ok(()))).unwrap();
        assert_eq!(first.await.unwrap(), 2);
        assert_eq!((scripted.began.recv().unwrap(), scripted.revision()), (3, 2));
        assert!((&mut others).now_or_never().is_none());
        assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.revision == 2));
        assert!(watch.next().now_or_never().is_none());
        scripted.results.send(Some(Ok(()))).unwrap();
        let [a, b, again, c] = &others.await[..] else { panic!("four answers") };
        assert!(matches!((a, b, c), (Ok(3), Ok(4), Ok(5))));
        assert!(matches!(again, Err(StorageError::Unmet(Some(record))) if record.revision == 3));
        assert_eq!(scripted.revision(), 5);
    }

    #[tokio::test]
    async fn a_storage_that_cannot_be_raised_goes_on_where_it_is() {
        let scripted = scripted().await;
        scripted.results.send(Some(Err(StorageError::Unavailable("the disk is gone".to_owned())))).unwrap();
        assert!(scripted.writer.raise(100).await.is_err());
        scripted.results.send(Some(Ok(()))).unwrap();
        assert_eq!((scripted.put("a").await.unwrap(), scripted.revision()), (2, 2));
    }

    #[tokio::test]
    async fn a_batch_that_fails_is_told_to_all_of_it_and_is_not_there() {
        let scripted = scripted().await;
        let why = || "the disk is gone".to_owned();
        for failure in [StorageError::Unknown(why()), StorageError::Unavailable(why()), StorageError::Full(why())] {
            // Neither of the two batches turns out to be stored.
            if matches!(failure, StorageError::Unknown(_)) {
                scripted.settled.send(Ok(false)).unwrap();
                scripted.settled.send(Ok(false)).unwrap();
            }
            let is_full = matches!(failure, StorageError::Full(_));
            let mut first = Box::pin(scripted.put("first"));
            assert!((&mut first).now_or_never().is_none());
            scripted.began.recv().unwrap();
            let mut others = Box::pin(join_all(["a", "b", "a"].map(|key| scripted.put(key))));
            assert!((&mut others).now_or_never().is_none());
            scripted.results.send(Some(Err(failure.clone()))).unwrap();
            scripted.results.send(Some(Err(failure.clone()))).unwrap();
            for told in [vec![first.await], others.await].concat() {
                assert_eq!(told.unwrap_err().to_string(), failure.to_string());
            }
            scripted.began.recv().unwrap();
            assert_eq!(scripted.revision(), 1);
            // Who is full is asked nothing; who failed is asked again.
            if !is_full {
                scripted.results.send(Some(Err(failure.clone()))).unwrap();
                assert_eq!(scripted.writer.ready().await.unwrap_err().to_string(), failure.to_string());
                scripted.results.send(Some(Ok(()))).unwrap();
            }
            scripted.writer.ready().await.unwrap();
            scripted.writer.ready().await.unwrap();
        }
        scripted.results.send(Some(Ok(()))).unwrap();
        assert_eq!(scripted.put("first").await.unwrap(), 2);
    }

    #[tokio::test]
    async fn what_became_of_an_unknown_outcome_is_found_before_anything_else_is_stored() {
        let scripted = scripted().await;
        let mut watch = cursor::watch(&scripted.cache, "", 1).unwrap();
        let lost = || StorageError::Unknown("the connection is lost".to_owned());
        scripted.results.send(Some(Err(lost()))).unwrap();
        assert!(matches!(scripted.put("first").await, Err(StorageError::Unknown(_))));
        assert_eq!((scripted.began.recv().unwrap(), scripted.revision()), (1, 1));
        // As long as that is not known, nothing is stored: the next revision is not known either.
        scripted.settled.send(Err(lost())).unwrap();
        assert!(matches!(scripted.put("second").await, Err(StorageError::Unavailable(_))));
        scripted.settled.send(Err(lost())).unwrap();
        assert!(scripted.writer.ready().await.is_err());
        assert!(scripted.began.try_recv().is_err());
        // It was stored: readers see it, and conditions are judged by it.
        scripted.settled.send(Ok(true)).unwrap();
        scripted.results.send(Some(Ok(()))).unwrap();
        scripted.writer.ready().await.unwrap();
        assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.key() == "first"));
        assert!(matches!(scripted.put("first").await, Err(StorageError::Unmet(Some(record))) if record.revision == 2));
        scripted.results.send(Some(Ok(()))).unwrap();
        assert_eq!(scripted.put("second").await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_thread_that_ends_leaves_an_unknown_outcome_and_later_writes_are_refused() {
        let scripted = scripted().await;
        let first = scripted.put("first");
        scripted.results.send(None).unwrap();
        assert!(matches!(first.await, Err(StorageError::Unknown(_))));
        let later = loop {
            match scripted.put("later").await {
                Err(StorageError::Unavailable(why)) => break why,
                // It was taken just before the thread ended.
                Err(StorageError::Unknown(_)) => {}
                told => panic!("{told:?}"),
            }
        };
        assert_eq!(later, "it is closed");
        assert!(scripted.writer.ready().await.is_err());
    }

    #[tokio::test]
    async fn a_closed_writer_stores_what_waits_before_and_refuses_what_comes_after() {
        let scripted = scripted().await;
        let mut before = Box::pin(join_all(["a", "b"].map(|key| scripted.put(key))));
        assert!((&mut before).now_or_never().is_none());
        let mut close = Box::pin(scripted.writer.close());
        assert!((&mut close).now_or_never().is_none());
        let mut after = Box::pin(scripted.put("c"));
        assert!((&mut after).now_or_never().is_none());
        for _ in 0..2 {
            scripted.results.send(Some(Ok(()))).unwrap();
        }
        close.await;
        assert!(before.await.iter().all(Result::is_ok));
        assert!(matches!(after.await, Err(StorageError::Unavailable(_))));
    }
}
