//! Many objects at once, at the start of a server.

use serde_json::Value;

use crate::{
    kinds::Kind,
    registry::{Registry, create::stored, errors, key_of, managed::arranged, meta},
    storage::{StorageError, When},
};
use kubefold_wire::status::Status;

impl Registry {
    /// Puts objects as they are: what is asked of a client's is not asked of these. UID, creation time and namespace are
    /// filled in where they are missing. Answers how many.
    ///
    /// Errors: one of them is there already, or the storage is full; those before it are stored.
    pub async fn fill(&self, kind: &Kind, objects: impl Iterator<Item = Value> + Send) -> Result<usize, Status> {
        let mut count = 0;
        for mut object in objects {
            meta::set_type(&mut object, kind);
            meta::fill(&mut object, &self.inner.env);
            let (namespace, name) =
                (meta::text(&object, "namespace").to_owned(), meta::text(&object, "name").to_owned());
            let value = stored(kind, &arranged(kind, object))?;
            let key = key_of(kind, &namespace, &name);
            let put = self.inner.storage.put(&key, value, When::Absent).await;
            put.map_err(|error| match error {
                StorageError::Unmet(_) => errors::already_exists(kind, &name),
                other => errors::of_storage(&other),
            })?;
            count += 1;
        }
        Ok(count)
    }
}
