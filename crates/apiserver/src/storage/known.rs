//! The newest revision that a database has, as far as its one server knows.

use crate::storage::StorageError;

/// What a session knows of the revision in the head of its database.
pub(super) struct Known<R> {
    revision: R,
    /// What the head has if a batch whose outcome is not known is stored.
    doubtful: Option<R>,
}

impl<R: Copy + PartialEq> Known<R> {
    pub(super) fn new(revision: R) -> Self {
        Self { revision, doubtful: None }
    }

    /// The revision after which the next batch comes.
    pub(super) fn revision(&self) -> R {
        self.revision
    }

    /// Says whether the head is as this server left it.
    pub(super) fn may_be(&self, found: R) -> bool {
        found == self.revision || Some(found) == self.doubtful
    }

    /// Takes in what became of a batch whose last revision is `newest`.
    pub(super) fn tried(&mut self, newest: R, stored: &Result<(), StorageError>) {
        match stored {
            Ok(()) => self.revision = newest,
            Err(StorageError::Unknown(_)) => self.doubtful = Some(newest),
            Err(_) => {}
        }
    }

    /// Takes in what the head has. Says whether the batch whose outcome was not known is stored.
    pub(super) fn settle(&mut self, found: R) -> bool {
        self.revision = found;
        self.doubtful.take() == Some(found)
    }
}

/// The answer of a session whose database another server has taken.
pub(super) fn superseded() -> StorageError {
    StorageError::Unavailable("another process has served the database since; start this one again".to_owned())
}
