//! Rewrites what is stored in another version than new objects are.
//!
//! Source: kubernetes-sigs/kube-storage-version-migrator; there each object is updated without a change, too.

use crate::{
    kinds::Kind,
    registry::{Object, Registry, errors, prefix_of},
    storage::{Page, Range, StorageError, When},
};
use kubefold_wire::status::Status;

/// Objects that are read at once.
const PAGE_ITEMS: usize = 500;

impl Registry {
    /// Brings all objects of a kind to the version in which new ones are stored. Answers how many were in another. May be
    /// stopped and begun again; clients may write meanwhile. Of a kind that is not stored there are none.
    ///
    /// Errors: an object cannot be converted (those before it were); the storage does not answer. Cancel: safe.
    pub async fn migrate(&self, kind: &Kind) -> Result<usize, Status> {
        if kind.rest.is_some() {
            return Ok(0);
        }
        let prefix = prefix_of(kind, "");
        let (mut count, mut after) = (0, None);
        loop {
            let range = Range { prefix: &prefix, after: after.as_deref(), limit: PAGE_ITEMS, ..Range::default() };
            let page = self.inner.storage.range(range).await.map_err(|error| errors::of_storage(&error))?;
            let Page { records, more, .. } = page;
            for record in &records {
                let readable = self.readable(kind, record.clone()).await?;
                let object = Self::object(kind, readable, record.revision)?;
                let value = self.storable(kind, &object.stored()).await?.value;
                if Object::of_record(record).is_as_stored(&value) {
                    continue;
                }
                match self.inner.storage.put(&record.key, value, When::At(record.revision)).await {
                    Ok(_) => count += 1,
                    // Somebody else wrote or deleted it: it is not in the old version any more.
                    Err(StorageError::Unmet(_)) => {}
                    Err(error) => return Err(errors::of_storage(&error)),
                }
            }
            match records.last() {
                Some(last) if more => after = Some(last.key.to_string()),
                _ => return Ok(count),
            }
        }
    }
}
