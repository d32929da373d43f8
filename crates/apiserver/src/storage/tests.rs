//! The backends of this crate keep the contract.

use std::sync::Arc;

use futures::future::BoxFuture;
use tempfile::TempDir;

use crate::storage::{Bounds, Memory, Storage, contract::Backend};

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
