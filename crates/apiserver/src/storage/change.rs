//! What a write becomes: a change, if its condition holds. Pure.

use bytes::Bytes;

use crate::storage::{Bounds, Change, Record, StorageError, Usage, When};

/// What somebody wants of a key.
#[derive(Clone, Debug)]
pub(super) struct Write<'a> {
    pub(super) key: &'a str,
    /// `None`: the key is to go.
    pub(super) value: Option<Bytes>,
    pub(super) when: When,
}

/// What the next change follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    /// Of the last change.
    pub(super) revision: u64,
    /// Keys that are there.
    pub(super) keys: usize,
    /// Of all keys and values that are there.
    pub(super) bytes: usize,
}

impl Tip {
    /// Of a storage that has nothing. As etcd's, its first change has revision 2.
    pub(super) const EMPTY: Self = Self { revision: 1, keys: 0, bytes: 0 };

    /// What follows a change.
    pub(super) fn after(self, change: &Change) -> Self {
        let gone = change.before.as_ref().map_or(0, size_of_record);
        let came = change.after.as_ref().map_or(0, size_of_record);
        Self {
            revision: change.revision,
            keys: (self.keys + usize::from(change.after.is_some())).saturating_sub(change.before.is_some().into()),
            bytes: (self.bytes + came).saturating_sub(gone),
        }
    }
}

impl From<Tip> for Usage {
    fn from(Tip { revision, keys, bytes }: Tip) -> Self {
        Self { revision, keys, bytes }
    }
}

/// The change that a write is where a key has `before`.
///
/// Errors: the condition does not hold, or a bound is reached.
pub(super) fn judge(
    tip: &Tip,
    before: Option<Record>,
    write: Write<'_>,
    bounds: &Bounds,
) -> Result<Change, StorageError> {
    let Bounds { keys_max, value_bytes_max, bytes_max, .. } = *bounds;
    if let Some(value) = &write.value
        && value.len() > value_bytes_max
    {
        return Err(StorageError::Full(format!("a value of {} bytes; at most {value_bytes_max}", value.len())));
    }
    let met = match (&before, write.when) {
        (None, When::Absent) => true,
        (Some(record), When::At(revision)) => record.revision == revision,
        _ => false,
    };
    if !met {
        return Err(StorageError::Unmet(before));
    }
    let key = before.as_ref().map_or_else(|| write.key.into(), |record| record.key.clone());
    let revision = tip.revision + 1;
    let after = write.value.map(|value| Record { key, value, revision });
    let change = Change { revision, before, after };
    let next = tip.after(&change);
    // What goes, and what becomes no larger, always has room.
    if (next.bytes > bytes_max && next.bytes > tip.bytes) || (next.keys > keys_max && next.keys > tip.keys) {
        return Err(StorageError::Full(format!("at most {keys_max} keys and {bytes_max} bytes")));
    }
    Ok(change)
}

fn size_of_record(record: &Record) -> usize {
    record.key.len() + record.value.len()
}

/// Units: bytes. The value before is counted, too: nobody else may hold it any more.
pub(super) fn size_of_change(change: &Change) -> usize {
    let sizes = change.before.iter().chain(&change.after).map(size_of_record);
    sizes.sum::<usize>() + size_of::<Change>()
}

/// The revisions of stored changes that nobody needs once a change is forgotten: those that only led to it.
pub(super) fn dead_of(change: &Change) -> impl Iterator<Item = u64> {
    let deletion = change.after.is_none().then_some(change.revision);
    change.before.as_ref().map(|before| before.revision).into_iter().chain(deletion)
}
