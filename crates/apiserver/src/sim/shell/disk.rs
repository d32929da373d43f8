//! What commands wrote to containers: files in memory, of bounded size.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

/// Containers whose files are kept.
const DISKS_MAX: usize = 64;
/// Bytes of the files of one container.
pub(super) const DISK_BYTES_MAX: usize = 4 << 20;
/// Files and directories of one container.
pub(super) const NODES_MAX: usize = 4096;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    File(Bytes),
    Program,
}

/// Why nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WriteError {
    #[error("No space left on device")]
    Full,
    #[error("Read-only file system")]
    ReadOnly,
    #[error("Is a directory")]
    IsDirectory,
    #[error("Not a directory")]
    NotDirectory,
    #[error("File name too long")]
    TooLong,
}

/// The files of all containers. Clones are the same.
#[derive(Clone, Default)]
pub(in crate::sim) struct Disks(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    disks: HashMap<String, Files>,
    /// Writes until now.
    writes: u64,
}

/// What was written to one container, by its absolute path.
#[derive(Default)]
struct Files {
    nodes: BTreeMap<String, Node>,
    bytes: usize,
    /// The number of the last write.
    written: u64,
}

/// The files of one container. Clones are the same.
#[derive(Clone)]
pub(in crate::sim) struct Disk {
    all: Disks,
    container: String,
}

impl Disks {
    /// Those of one life of a container, by whatever names it.
    pub(in crate::sim) fn of(&self, container: String) -> Disk {
        Disk { all: self.clone(), container }
    }
}

impl Disk {
    pub(super) fn at(&self, path: &str) -> Option<Node> {
        let all = self.all.0.lock();
        all.disks.get(&self.container)?.nodes.get(path).cloned()
    }

    /// All paths that begin so.
    pub(super) fn paths(&self, prefix: &str) -> Vec<String> {
        let all = self.all.0.lock();
        let Some(files) = all.disks.get(&self.container) else { return Vec::new() };
        let from = files.nodes.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        from.map(|(path, _)| path).take_while(|path| path.starts_with(prefix)).cloned().collect()
    }

    /// Puts a file or a directory at a path, in place of what was written there before. Where too many containers have files,
    /// the one that was written to longest ago loses its own.
    pub(super) fn write(&self, path: &str, node: Node) -> Result<(), WriteError> {
        let mut all = self.all.0.lock();
        all.writes += 1;
        let now = all.writes;
        if !all.disks.contains_key(&self.container) && all.disks.len() >= DISKS_MAX {
            let oldest = all.disks.iter().min_by_key(|(_, files)| files.written).map(|(name, _)| name.clone());
            oldest.map(|name| all.disks.remove(&name));
        }
        let files = all.disks.entry(self.container.clone()).or_default();
        let before = files.nodes.get(path);
        let bytes = files.bytes - before.map_or(0, Node::len) + node.len();
        if bytes > DISK_BYTES_MAX || (before.is_none() && files.nodes.len() >= NODES_MAX) {
            return Err(WriteError::Full);
        }
        (files.bytes, files.written) = (bytes, now);
        files.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    /// Removes what was written at a path and below it. False: there is nothing.
    pub(super) fn remove(&self, path: &str) -> bool {
        let mut all = self.all.0.lock();
        let Some(files) = all.disks.get_mut(&self.container) else { return false };
        let (before, below) = (files.nodes.len(), format!("{path}/"));
        files.nodes.retain(|known, _| known != path && !known.starts_with(&below));
        files.bytes = files.nodes.values().map(Node::len).sum();
        files.nodes.len() < before
    }
}

impl Node {
    /// Bytes that it takes.
    fn len(&self) -> usize {
        match self {
            Self::File(bytes) => Bytes::len(bytes),
            Self::Directory | Self::Program => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_much_is_kept() {
        let disks = Disks::default();
        let file = |length: usize| Node::File(Bytes::from(vec![0; length]));
        let one = disks.of("one".to_owned());
        assert_eq!(one.write("/a", file(DISK_BYTES_MAX)), Ok(()));
        assert_eq!(one.write("/b", file(1)), Err(WriteError::Full));
        assert_eq!(one.write("/a", file(1)), Ok(()), "what it replaces makes room");
        assert_eq!(one.write("/b", file(1)), Ok(()));
        assert!(one.remove("/a") && !one.remove("/a"));
        for number in 0..NODES_MAX - 1 {
            assert_eq!(one.write(&format!("/many/{number}"), Node::Directory), Ok(()));
        }
        assert_eq!(one.write("/more", Node::Directory), Err(WriteError::Full));
        for number in 0..DISKS_MAX - 1 {
            disks.of(number.to_string()).write("/a", file(1)).unwrap();
        }
        one.write("/b", file(2)).unwrap();
        disks.of("new".to_owned()).write("/a", file(1)).unwrap();
        assert_eq!(one.at("/b"), Some(file(2)));
        assert_eq!(disks.of("0".to_owned()).at("/a"), None, "the one that was written to longest ago makes room");
    }
}
