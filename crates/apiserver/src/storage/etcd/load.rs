//! Reads keys as they were at a revision, in pages.

use bytes::Bytes;

use crate::storage::{
    Record,
    etcd::{
        client::{Client, one},
        error::Failure,
        keys::{Keys, Span},
        messages::{KeyValue, RangeRequest, RangeResponse, revision_of, signed, unsigned},
        values,
    },
};

/// Keys of one answer.
const PAGE_KEYS: i64 = 1_000;

/// The revision of the last change of any key of etcd.
pub(super) async fn newest(client: &Client, keys: &Keys) -> Result<u64, Failure> {
    // Whether there is such a key makes no difference. Not serializable: a member asks the leader.
    let answer = client.range(RangeRequest { count_only: true, ..one(keys.all().from, 0) }).await?;
    Ok(revision_of(answer.header.as_ref()))
}

/// The oldest revision up to `wanted` or after that can be read, from which a watch can begin.
pub(super) async fn oldest(client: &Client, keys: &Keys, wanted: u64) -> Result<u64, Failure> {
    match client.range(RangeRequest { count_only: true, ..one(keys.all().from, wanted) }).await {
        Err(Failure::Compacted) => {}
        Err(failure) => return Err(failure),
        Ok(_) => return Ok(wanted),
    }
    // Only a watch is told what is there.
    let mut watch = client.watch(keys.all(), wanted).await?;
    loop {
        let told = watch.next().await?;
        if told.canceled {
            return Ok(unsigned(told.compact_revision).max(wanted));
        }
    }
}

/// All keys at a revision, one page after the other.
pub(super) async fn each(
    client: &Client,
    keys: &Keys,
    revision: u64,
    mut take: impl FnMut(Record, &KeyValue),
) -> Result<(), Failure> {
    let Span { mut from, end } = keys.all();
    loop {
        let range = RangeRequest { range_end: end.clone(), limit: PAGE_KEYS, ..one(from.clone(), revision) };
        let RangeResponse { kvs, more, .. } = client.range(range).await?;
        for kv in &kvs {
            if let Some(record) = record(keys, kv)? {
                take(record, kv);
            }
        }
        match kvs.last() {
            Some(last) if more => from = after(&last.key),
            _ => return Ok(()),
        }
    }
}

/// A key and its value. `None`: it is of no object.
pub(super) fn record(keys: &Keys, kv: &KeyValue) -> Result<Option<Record>, Failure> {
    let Some(key) = keys.key_at(&kv.key) else { return Ok(None) };
    let value = value(&kv.key, &kv.value)?;
    Ok(Some(Record { key: key.into(), value, revision: unsigned(kv.mod_revision) }))
}

pub(super) fn value(place: &[u8], value: &Bytes) -> Result<Bytes, Failure> {
    values::inward(value).map_err(|error| Failure::Unreadable {
        place: String::from_utf8_lossy(place).into_owned(),
        why: error.to_string(),
    })
}

/// Keys of one span in order, from one on, as they were at a revision; and how many there are from there on.
pub(super) async fn page(
    client: &Client,
    keys: &Keys,
    span: Span,
    revision: u64,
    limit: usize,
) -> Result<(Vec<Record>, u64), Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let range =
        RangeRequest { key: span.from, range_end: span.end, limit, revision: signed(revision), count_only: false };
    let RangeResponse { kvs, count, .. } = client.range(range).await?;
    let records = kvs.iter().filter_map(|kv| record(keys, kv).transpose()).collect::<Result<_, _>>()?;
    Ok((records, unsigned(count)))
}

/// The first key after another.
pub(super) fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}
