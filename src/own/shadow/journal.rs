//! What is noted before items are made: what a killed process leaves half-made is undone by the next one.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::Reference;
use kubefold_apiserver::storage::{Range, Storage, StorageError, When};

/// Beside the objects, under no kind.
const PREFIX: &str = "shadow-journal/";

/// One write under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of the ShadowResource.
    pub(super) uid: String,
    /// Items that it makes, in order, as an item says which object it is.
    pub(super) items: Vec<Value>,
}

impl Note {
    pub(super) fn references(&self) -> Vec<Reference> {
        self.items.iter().map(Reference::of).collect()
    }
}

/// The notes.
pub(super) struct Journal(pub(super) Arc<dyn Storage>);

impl Journal {
    /// Notes a write. `false`: another one of that name is under way.
    ///
    /// Errors: the storage's.
    pub(super) async fn begin(&self, note: &Note) -> Result<bool, StorageError> {
        let json = serde_json::to_vec(note).unwrap_or_default();
        match self.0.put(&key(&note.namespace, &note.name), Bytes::from(json), When::Absent).await {
            Ok(_) => Ok(true),
            Err(StorageError::Unmet(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Forgets a write that is done or undone. What cannot be forgotten is looked at again by the next process.
    pub(super) async fn end(&self, namespace: &str, name: &str) {
        let key = key(namespace, name);
        if let Ok((Some(record), _)) = self.0.get(&key).await
            && let Err(error) = self.0.delete(&key, record.revision).await
        {
            tracing::warn!(namespace, name, %error, "a note of a ShadowResource's write stays");
        }
    }

    /// The note of a name.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Option<Note> {
        let (record, _) = self.0.get(&key(namespace, name)).await.ok()?;
        serde_json::from_slice(&record?.value).ok()
    }

    /// All notes: at the start, what an earlier process left.
    ///
    /// Errors: the storage's.
    pub(super) async fn all(&self) -> Result<Vec<Note>, StorageError> {
        let page = self.0.range(Range { prefix: PREFIX, ..Range::default() }).await?;
        Ok(page.records.iter().filter_map(|record| serde_json::from_slice(&record.value).ok()).collect())
    }
}

fn key(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}/{name}")
}
