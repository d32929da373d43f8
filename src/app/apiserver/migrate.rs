//! Moves an API server's objects from one storage to another, while no server has them.

use std::path::Path;

use super::storage::{self, StorageOpenError, StorageSource, StorageTls};
use crate::app::carry::{CarryError, Moved, carry, end};

/// What a move is told on its command line.
#[derive(Clone, Debug)]
pub struct Move {
    /// Where the objects are.
    pub from: StorageSource,
    /// How that is reached.
    pub from_tls: StorageTls,
    /// Where they go.
    pub to: StorageSource,
    /// How that is reached.
    pub to_tls: StorageTls,
}

/// Why objects were not moved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum MoveError {
    #[error(transparent)]
    Open(#[from] StorageOpenError),
    #[error(
        "{storage}: nothing is moved from or to it: what is in memory ends with the process, and sqlite: needs a folder"
    )]
    Nowhere { storage: String },
    #[error(transparent)]
    Carry(#[from] CarryError),
}

impl MoveError {
    /// Whether what was given is wrong, wherever and whenever it is used.
    pub fn is_given(&self) -> bool {
        matches!(self, Self::Nowhere { .. }) || matches!(self, Self::Open(error) if error.is_given())
    }
}

/// Moves all objects, and says which. The source keeps them.
///
/// Errors: see [`MoveError`]. Cancel: as an interruption.
pub async fn run(options: &Move) -> Result<Moved, MoveError> {
    for source in [&options.from, &options.to] {
        let url = storage::read(source)?;
        if url.is_nowhere() {
            return Err(MoveError::Nowhere { storage: format!("{url:?}") });
        }
    }
    // Each names its own folder.
    let nowhere = Path::new("");
    let from = storage::open(&options.from, &options.from_tls, nowhere).await?;
    let to = storage::open(&options.to, &options.to_tls, nowhere).await?;
    let moved = async {
        let moved = carry(&from, &to).await?;
        end(&to).await.map(|()| moved)
    };
    let moved = moved.await;
    from.storage.close().await;
    to.storage.close().await;
    Ok(moved?)
}
