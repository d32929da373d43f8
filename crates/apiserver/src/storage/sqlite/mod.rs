//! A storage in one file of SQLite: the embedded default.
//!
//! The file has one row for each change that is remembered, and for each key the change that made its value (`file`). All
//! of it is in the cache, which answers reads and watches; the writer's thread stores batches of changes, each with one
//! `fsync`. A mark beside the file (`mark`) is the lock of its one process, and tells whether a backup was put in its
//! place.

mod error;
mod file;
mod mark;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::storage::{Bounds, logged::Logged};

pub use error::{Damage, SqliteError};

use file::File;

/// A storage in one file. It has all keys and values in memory, too.
pub type Sqlite = Logged<File>;

impl Logged<File> {
    /// Opens a file, or begins one, and reads all of it. It is the only process that has the file until it is closed, or
    /// dropped and done with what it was asked for.
    ///
    /// Where the file is not the one that was served here last, or older, every revision of before is compacted.
    ///
    /// Errors: see [`SqliteError`].
    pub async fn open(path: &Path, bounds: Bounds) -> Result<Self, SqliteError> {
        let path = path.to_owned();
        Self::start(move || File::open(&path, bounds)).await
    }
}
