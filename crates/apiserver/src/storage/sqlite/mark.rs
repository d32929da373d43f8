//! The mark beside a database: its lock, and what of it was served last.
//!
//! A backup that is put in the place of a database gives out revisions that were given out before, for other changes. No
//! client may go on from a revision of then, and the file alone cannot tell: it is what it was. So what is served is noted
//! outside of it, after each commit and before anybody sees the change: which incarnation of the data, in which file of the
//! file system, up to which revision. A database goes on where its last server stopped only if all three say so:
//!
//! - an older revision than the mark's: a backup was copied over the file;
//! - another file, by inode and time of birth: a folder was restored with its mark, or moved to another disk;
//! - another incarnation, or no mark: the mark is of another database.
//!
//! Otherwise the data gets a new incarnation, its revision is raised beyond all that can have been served, and all before
//! is compacted: every watch, page and revision of before is answered with 410. Source: etcd's documentation on restoring
//! a cluster with `--bump-revision` and `--mark-compacted`.
//!
//! Two things it cannot see. A snapshot of a whole volume brings the same file with its mark: whoever restores one removes
//! the mark. And the mark is not synced at each commit: a loss of power may take its last seconds, after which a backup of
//! within these seconds looks like the file itself.

use std::{
    fmt,
    fs::{self, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    str,
    time::UNIX_EPOCH,
};

use crate::storage::sqlite::error::SqliteError;

const FORMAT: &str = "kubefold-mark-1";
/// Units: bytes. Every mark is as long as any, so that one is written over another in place.
const LEN: usize = 160;

/// The mark's file, locked.
pub(super) struct Mark {
    file: fs::File,
}

/// What was served last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// Of the data: it changes with each backup that is put in its place.
    pub(super) incarnation: String,
    pub(super) identity: Identity,
    /// The newest.
    pub(super) revision: u64,
}

/// Which file of a file system it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    /// Units: nanoseconds since 1970. 0 where the file system does not know.
    born: u128,
}

impl Identity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let born = metadata.created().ok().and_then(|created| created.duration_since(UNIX_EPOCH).ok());
        Ok(Self { inode: metadata.ino(), born: born.map_or(0, |since| since.as_nanos()) })
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, identity: Identity { inode, born }, revision } = self;
        write!(f, "{FORMAT} {incarnation} {inode} {born} {revision}")
    }
}

impl Served {
    /// `None`: it says nothing, or in another format.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some(FORMAT) {
            return None;
        }
        let incarnation = words.next()?.to_owned();
        let identity = Identity { inode: words.next()?.parse().ok()?, born: words.next()?.parse().ok()? };
        Some(Self { incarnation, identity, revision: words.next()?.parse().ok()? })
    }
}

impl Mark {
    /// Locks the mark of a database for this process.
    ///
    /// Errors: another one has it, or the disk refuses.
    pub(super) fn lock(database: &Path) -> Result<Self, SqliteError> {
        let mut path = database.as_os_str().to_owned();
        path.push("-mark");
        let path = PathBuf::from(path);
        let of_io = |cause| SqliteError::Mark { path: path.clone(), cause };
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let file = options.open(&path).map_err(of_io)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SqliteError::InUse(database.to_owned()),
            TryLockError::Error(cause) => of_io(cause),
        })?;
        Ok(Self { file })
    }

    /// What it says; `None`: nothing that can be read.
    pub(super) fn read(&self) -> Option<Served> {
        let mut text = [0; LEN];
        self.file.read_exact_at(&mut text, 0).ok()?;
        Served::parse(str::from_utf8(&text).ok()?)
    }

    /// Says something else. It is there after a `kill`, and after a loss of power once it is synced.
    pub(super) fn write(&self, served: &Served) -> io::Result<()> {
        let text = served.to_string();
        self.file.write_all_at(format!("{text:<width$}\n", width = LEN - 1).as_bytes(), 0)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Drop for Mark {
    /// A process that was forked and has not yet begun its program has the file, too: closing it alone would leave the lock.
    fn drop(&mut self) {
        // Where this fails the lock ends with the last who has the file.
        let _unlocked = self.file.unlock();
    }
}
