//! Whether the storage takes changes, and how much it has.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};
use tokio::time::{MissedTickBehavior, interval, timeout};

use kubefold_apiserver::storage::{Storage, Usage};
use kubefold_serving::health::{Check, Readiness};

/// How often it is asked.
const EVERY: Duration = Duration::from_secs(1);
/// Source: kubernetes/apiserver `pkg/storage/storagebackend/config.go`, `DefaultHealthcheckTimeout`.
const TIME_MAX: Duration = Duration::from_secs(2);
/// As a kube-apiserver calls it: what probes exclude by name stays excluded.
const CHECK: &str = "etcd";

/// What is known of a storage. Clones are the same.
#[derive(Clone)]
pub(super) struct StorageState {
    storage: Arc<dyn Storage>,
    /// Why it is not ready.
    fault: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for StorageState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageState").field("fault", &*self.fault.lock()).finish_non_exhaustive()
    }
}

impl StorageState {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, fault: Arc::default() }
    }

    /// Asks it again and again, until cancelled.
    pub(super) async fn follow(self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = match timeout(TIME_MAX, self.storage.ready()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the storage does not answer in time".to_owned()),
            };
            let mut fault = self.fault.lock();
            match (&*fault, &now) {
                (None, Some(error)) => tracing::error!(error, "the storage takes no changes; reads and watches go on"),
                (Some(_), None) => tracing::info!("the storage takes changes again"),
                _ => {}
            }
            *fault = now;
        }
    }
}

impl Readiness for StorageState {
    fn checks(&self) -> Vec<Check> {
        let fault = self.fault.lock().clone();
        vec![Check::of(CHECK, fault.is_none(), fault.unwrap_or_default())]
    }
}

impl Collector for StorageState {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let is_ready = u64::from(self.fault.lock().is_none());
        let usage = self.storage.usage();
        let of = |value: fn(Usage) -> u64| usage.map(value);
        for (name, help, value) in [
            ("ready", "1 if the storage takes changes, 0 if not", Some(is_ready)),
            ("revision", "The revision of the last change", of(|usage| usage.revision)),
            ("objects", "Objects that are stored", of(|usage| usage.keys as u64)),
            ("object_bytes", "Bytes of the keys and values of these", of(|usage| usage.bytes as u64)),
        ] {
            let Some(value) = value else { continue };
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{future::BoxFuture, stream::BoxStream};
    use prometheus_client::{encoding::text, registry::Registry};

    use super::*;
    use kubefold_apiserver::storage::{Memory, Page, Range, Record, StorageError, WatchItem, When};

    /// A storage in memory that a test can make unavailable.
    struct Away(Memory, Mutex<bool>);

    impl Storage for Away {
        fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>> {
            self.0.revision()
        }

        fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>> {
            self.0.get(key)
        }

        fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>> {
            self.0.range(range)
        }

        fn put<'a>(&'a self, key: &'a str, value: Bytes, when: When) -> BoxFuture<'a, Result<u64, StorageError>> {
            self.0.put(key, value, when)
        }

        fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>> {
            self.0.delete(key, at)
        }

        fn watch(
            &self,
            prefix: &str,
            after: u64,
        ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError>> {
            self.0.watch(prefix, after)
        }

        fn compact(&self, before: u64) -> BoxFuture<'_, Result<(), StorageError>> {
            self.0.compact(before)
        }

        fn ready(&self) -> BoxFuture<'_, Result<(), StorageError>> {
            let away = *self.1.lock();
            Box::pin(async move { if away { Err(StorageError::Unavailable("gone".to_owned())) } else { Ok(()) } })
        }

        fn usage(&self) -> Option<Usage> {
            self.0.usage()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_storage_that_is_away_is_not_ready_until_it_is_back() {
        let storage = Arc::new(Away(Memory::default(), Mutex::new(false)));
        storage.put("a", Bytes::from_static(b"xyz"), When::Absent).await.unwrap();
        let state = StorageState::new(Arc::clone(&storage) as Arc<dyn Storage>);
        let following = tokio::task::JoinSet::from_iter([state.clone().follow()]);
        let mut exported = Registry::with_prefix("kubefold_storage");
        exported.register_collector(Box::new(state.clone()));
        for away in [false, true, false] {
            *storage.1.lock() = away;
            tokio::time::sleep(EVERY + Duration::from_millis(1)).await;
            let checks = state.checks();
            assert_eq!((checks[0].name.as_str(), checks[0].ready), ("etcd", !away));
            assert_eq!(checks[0].note.contains("gone"), away, "{checks:?}");
            let mut out = String::new();
            text::encode(&mut out, &exported).unwrap();
            for line in [
                format!("kubefold_storage_ready {}", u8::from(!away)),
                "kubefold_storage_revision 2".to_owned(),
                "kubefold_storage_objects 1".to_owned(),
                "kubefold_storage_object_bytes 4".to_owned(),
            ] {
                assert!(out.lines().any(|one| one == line), "{line}: {out}");
            }
        }
        drop(following);
    }
}
