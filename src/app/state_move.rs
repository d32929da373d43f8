//! Moves the state of a kubefold, which does not run, from its directory into a database.
//!
//! At every moment either the directory or the database has all of it, and kubefold starts with that one alone: with the
//! database once the files in the directory have other names, and the mark that the database has a part only is gone. A move that
//! was interrupted goes on when it is run again.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use kubefold_sql::RemoteState;
use tokio::task::spawn_blocking;

use crate::{
    app::{
        carry::{CarryError, Place, carry, end, part_of},
        options::StateSource,
        records::{FILES, StateOpenError, take},
    },
    own,
    serve::{StateDir, StateError},
    write::journal::{self, Journal, JournalOpenError, KeyFile},
};

/// What files are called, in place of `state.db` and so on, whose content is in the database.
const MOVED: &str = ".moved";

/// What a move is told on its command line.
#[derive(Clone, Debug)]
pub struct StateMove {
    /// The directory.
    pub state_dir: PathBuf,
    /// The database.
    pub state: StateSource,
    /// The authority of the database's certificate. Absent: those that the machine trusts.
    pub state_ca: Option<PathBuf>,
    /// The key with which the journal is encrypted. Absent: a file of the state directory.
    pub state_key_file: Option<PathBuf>,
}

/// What the database has after a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMoved {
    /// Without user and password.
    pub place: String,
    /// Writes that have not reached every member.
    pub unfinished: usize,
    /// Records of kubefold's own objects.
    pub objects: u64,
}

/// Why the state was not moved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum StateMoveError {
    #[error("the state directory {} does not exist; check the path", .0.display())]
    NoDirectory(PathBuf),
    #[error(
        "the state directory {} has no state to move: neither {} nor {} is in it; check the path, or start kubefold with --state",
        .0.display(), journal::FILE, own::FILE
    )]
    NoState(PathBuf),
    #[error("nothing was moved: {0}")]
    InUse(#[from] StateError),
    #[error(transparent)]
    Open(#[from] StateOpenError),
    #[error("the journal was not moved: {0}")]
    Journal(#[from] JournalOpenError),
    #[error(transparent)]
    Own(#[from] own::OwnStartError),
    #[error("{place} has the state of another kubefold: {source}")]
    Other { place: String, source: CarryError },
    #[error(transparent)]
    Carry(#[from] CarryError),
    #[error("the database has all of the state, but {} cannot be renamed ({source}); mend that, and run the move again", .file.display())]
    Rename { file: PathBuf, source: io::Error },
    #[error("the move was ended: {0}")]
    Ended(#[from] tokio::task::JoinError),
}

impl StateMoveError {
    /// Whether what was given is wrong, wherever and whenever it is used.
    pub fn is_given(&self) -> bool {
        match self {
            Self::NoDirectory(_) | Self::NoState(_) => true,
            Self::Open(error) => error.is_given(),
            Self::Journal(error) => error.is_of_key(),
            _ => false,
        }
    }
}

/// Moves it, and says what.
///
/// Errors: see [`StateMoveError`]. Cancel: as an interruption.
pub async fn run(options: StateMove) -> Result<StateMoved, StateMoveError> {
    if !options.state_dir.is_dir() {
        return Err(StateMoveError::NoDirectory(options.state_dir));
    }
    let state = StateDir::open(&options.state_dir)?;
    let directory = fs::canonicalize(state.path()).unwrap_or_else(|_| state.path().to_owned());
    let progress = Progress::of(&directory).ok_or_else(|| StateMoveError::NoState(options.state_dir.clone()))?;
    let database = take(&options.state, options.state_ca.as_deref(), &directory).await?;
    let to = Place {
        storage: own::open_in(database.dialer(own::SCHEMA)).await?,
        name: format!("{} (schema {})", database.place(), own::SCHEMA),
    };
    let key = KeyFile::new(options.state_key_file, &directory);
    let moved = move_into(&database, &to, &directory, key, progress).await;
    to.storage.close().await;
    database.release().await;
    moved
}

/// How far an earlier attempt came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The directory has the state.
    Here,
    /// The database has it, and some files may still have their names.
    There,
}

impl Progress {
    /// `None`: neither has it. The own objects' file is the first that gets another name.
    fn of(directory: &Path) -> Option<Self> {
        let has = |file: &str| directory.join(file).exists();
        if has(own::FILE) {
            return Some(Self::Here);
        }
        if has(&format!("{}{MOVED}", own::FILE)) {
            return Some(Self::There);
        }
        has(journal::FILE).then_some(Self::Here)
    }
}

async fn move_into(
    database: &Arc<RemoteState>,
    to: &Place,
    directory: &Path,
    key: KeyFile,
    progress: Progress,
) -> Result<StateMoved, StateMoveError> {
    let name = directory.join(own::FILE).display().to_string();
    let objects = match progress {
        Progress::Here => {
            let from = Place { storage: own::open(directory).await?, name };
            let carried = carry(&from, to).await;
            from.storage.close().await;
            carried.map_err(|source| other(database, source))?.objects
        }
        // What another directory moved there is not this one's to end.
        Progress::There if part_of(to).await?.as_ref() == Some(&name) => {
            to.storage.usage().map_or(0, |usage| usage.keys as u64 - 1)
        }
        Progress::There => return Err(StateMoveError::NoState(directory.to_owned())),
    };
    let (into, path) = (Arc::clone(database), directory.to_owned());
    let journal = spawn_blocking(move || match progress {
        Progress::Here => Journal::take_over(&path, &into, &key),
        Progress::There => Journal::open_in(&into, &key),
    });
    let unfinished = journal.await??.open_entries().len();
    rename(directory)?;
    end(to).await?;
    Ok(StateMoved { place: database.place().to_owned(), unfinished, objects })
}

fn other(database: &RemoteState, source: CarryError) -> StateMoveError {
    match source {
        CarryError::HasObjects { .. } | CarryError::OtherMove { .. } => {
            StateMoveError::Other { place: database.place().to_owned(), source }
        }
        source => source.into(),
    }
}

/// Gives the files of the state other names, so that no kubefold begins with them by mistake. See [`Progress::of`].
fn rename(directory: &Path) -> Result<(), StateMoveError> {
    for file in FILES.iter().rev() {
        // The database first: without it, its log is nothing.
        for suffix in ["", "-wal", "-shm", "-mark"] {
            let from = directory.join(format!("{file}{suffix}"));
            let renamed = fs::rename(&from, directory.join(format!("{file}{MOVED}{suffix}")));
            match renamed {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(StateMoveError::Rename { file: from, source });
                }
                _ => {}
            }
        }
    }
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| StateMoveError::Rename { file: directory.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_attempt_goes_on_where_the_one_before_was_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        assert_eq!(Progress::of(directory), None);
        fs::write(directory.join("state.db"), "").unwrap();
        assert_eq!(Progress::of(directory), Some(Progress::Here), "an earlier version had no objects of its own");
        for file in ["own.db", "own.db-wal", "own.db-mark", "state.db-wal", "state.key"] {
            fs::write(directory.join(file), "").unwrap();
        }
        assert_eq!(Progress::of(directory), Some(Progress::Here));
        // Killed after the first one.
        fs::rename(directory.join("own.db"), directory.join("own.db.moved")).unwrap();
        assert_eq!(Progress::of(directory), Some(Progress::There));
        for _ in 0..2 {
            rename(directory).unwrap();
            assert_eq!(Progress::of(directory), Some(Progress::There));
            let moved =
                ["own.db.moved", "own.db.moved-mark", "own.db.moved-wal", "state.db.moved", "state.db.moved-wal"];
            assert_eq!(names(directory), [&moved[..], &["state.key"]].concat());
        }
    }
}
