//! The files that a configuration names.

use std::path::{Path, PathBuf};

use crate::config::FileError;

/// A file larger than this is no configuration, no kubeconfig and no certificate bundle.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads the files that a configuration names, and remembers which.
pub(super) struct Files {
    folder: PathBuf,
    read: Vec<PathBuf>,
}

impl Files {
    /// Those of the configuration at this path.
    pub(super) fn beside(path: &Path) -> Self {
        Self { folder: path.parent().map(Path::to_path_buf).unwrap_or_default(), read: Vec::new() }
    }

    /// Resolves a path against the folder of `clusters.yaml`.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Reads a whole file, up to the limit, and counts it among those to watch.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>, FileError> {
        self.read.push(path.to_path_buf());
        read_bounded(path)
    }

    /// Those that were read, and the configuration itself.
    pub(super) fn read_with(mut self, path: &Path) -> Vec<PathBuf> {
        self.read.push(path.to_path_buf());
        self.read
    }
}

/// Reads a whole file, up to the limit.
pub(super) fn read_bounded(path: &Path) -> Result<Vec<u8>, FileError> {
    // `metadata` first: a pipe or a device would block or never end.
    let metadata = std::fs::metadata(path).map_err(FileError::Io)?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(FileError::TooLarge { size: metadata.len(), max: FILE_BYTES_MAX });
    }
    std::fs::read(path).map_err(FileError::Io)
}
