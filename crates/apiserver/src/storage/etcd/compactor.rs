//! Forgets old revisions of etcd as kube-apiservers do, and together with them: of all servers of one etcd one does it.
//!
//! Source: kubernetes/apiserver `pkg/storage/etcd3/compact.go`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::storage::etcd::{
    client::{Client, one},
    error::Failure,
    messages::{Compare, Compared, Operation, PutRequest, TxnRequest, revision_of},
};

/// Its version counts compactions: who changes it from the version that he knows compacts.
const KEY: &[u8] = b"compact_rev_key";

/// Compacts to the revision of one interval ago, until it is dropped.
pub(super) async fn run(client: Arc<Client>, interval: Duration) {
    let mut ticks = interval_at(tokio::time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut version, mut revision) = (0, 0);
    loop {
        ticks.tick().await;
        match compact(&client, version, revision).await {
            Ok(seen) => (version, revision) = seen,
            Err(failure) => tracing::warn!(error = failure.why(), "etcd was not compacted; it is tried again"),
        }
    }
}

/// Answers the version of the key, and the revision of now.
async fn compact(client: &Client, version: i64, revision: u64) -> Result<(i64, u64), Failure> {
    let key = Bytes::from_static(KEY);
    let put = PutRequest { key: key.clone(), value: revision.to_string().into() };
    let txn = TxnRequest {
        compare: vec![Compare::new(key.clone(), Compared::Version(version))],
        success: vec![Operation::Put(put).into()],
        failure: vec![Operation::Range(one(key, 0)).into()],
    };
    let answer = client.txn(txn).await?;
    let now = revision_of(answer.header.as_ref());
    if !answer.succeeded {
        // Another server has compacted.
        return Ok((answer.found().map_or(0, |kv| kv.version), now));
    }
    if revision > 0 {
        match client.compact(revision).await {
            Ok(()) | Err(Failure::Compacted) => tracing::debug!(revision, "etcd is compacted"),
            Err(failure) => return Err(failure),
        }
    }
    Ok((version + 1, now))
}
