//! The state directory: owned by one process at a time, readable by its user alone, written whole or not at all.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use kubefold_sql::StateKey;

use crate::serve::{
    revoked::FILE,
    shared::{AUTHORITY, SHARED, Shared, SharedError, is_shared, opened, united},
};

const LOCK_FILE: &str = "lock";
/// Suffix of a file that is being written; one that is found at start is what a crash left.
const PARTIAL_SUFFIX: &str = ".partial";

/// The directory, held by this process until it is dropped.
pub struct StateDir {
    path: PathBuf,
    _lock: File,
    /// Where files stand, too, that all replicas have to have alike.
    shared: OnceLock<Shared>,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum StateError {
    #[error("state directory {}: cannot {what} ({source}); check that the path is right and that this user may write there", .path.display())]
    Io { path: PathBuf, what: &'static str, source: io::Error },
    #[error("state directory {}: another kubefold process uses it; stop that one, or give this one its own --state-dir", .path.display())]
    Taken { path: PathBuf },
    #[error("state directory {}: others may enter it (mode {mode:03o}) and it holds private keys; run chmod 700 on it", .path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error(
        "state directory {}: its certificate authority (ca.crt) is not the one that is in the database of the state; move ca.crt and ca.key \
         away to take that one, which clients of the other replicas believe", .path.display()
    )]
    OtherAuthority { path: PathBuf },
    #[error(transparent)]
    Shared(#[from] Box<SharedError>),
}

impl StateDir {
    /// Makes the directory where there is none, locks it, and clears what a crash left half-written.
    ///
    /// Errors: the operator's: taken by another process, not writable, or open to others.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let io = |what| move |source| StateError::Io { path: path.to_path_buf(), what, source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("make it"))?;
        let mode = fs::metadata(path).map_err(io("read it"))?.permissions().mode() & 0o777;
        // Group access is left to the operator: Kubernetes' fsGroup sets it on volumes.
        if mode & 0o007 != 0 {
            return Err(StateError::Open { path: path.to_path_buf(), mode });
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join(LOCK_FILE))
            .map_err(io("open its lock file"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateError::Taken { path: path.to_path_buf() },
            TryLockError::Error(source) => StateError::Io { path: path.to_path_buf(), what: "lock it", source },
        })?;
        for entry in fs::read_dir(path).map_err(io("list it"))?.flatten() {
            if entry.file_name().to_string_lossy().ends_with(PARTIAL_SUFFIX) {
                fs::remove_file(entry.path()).map_err(io("remove a half-written file"))?;
            }
        }
        Ok(Self { path: path.to_path_buf(), _lock: lock, shared: OnceLock::new() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a file; `None` where there is none.
    pub fn read(&self, name: &str) -> Result<Option<String>, StateError> {
        match fs::read_to_string(self.path.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::Io { path: self.path.join(name), what: "read it", source }),
        }
    }

    /// Takes the certificate authority of all replicas before this process has the database. `false`: there is none yet.
    ///
    /// Errors: the directory has another one; another key encrypted it.
    pub fn adopt(&self, sealed: &BTreeMap<String, Vec<u8>>, key: &StateKey) -> Result<bool, StateError> {
        let known = opened(sealed, key).map_err(Box::new)?;
        self.take_authority(&known)?;
        Ok(AUTHORITY.iter().all(|name| known.contains_key(*name)))
    }

    /// Has the files that all replicas share stand in a database, too, from now on: what it has takes the place of what is here.
    ///
    /// Blocks. Errors: the database, or what is in it, does not go with this directory.
    pub fn share(&self, shared: Shared) -> Result<(), StateError> {
        self.meet(&shared)?;
        shared.renew().map_err(Box::new)?;
        self.shared.set(shared).ok();
        Ok(())
    }

    /// Brings directory and database together: what the database has counts, and what it has not is of this directory.
    fn meet(&self, shared: &Shared) -> Result<(), StateError> {
        let known = shared.all().map_err(Box::new)?;
        self.take_authority(&known)?;
        for name in SHARED {
            let local = self.read(name)?;
            let whole = match (known.get(name), &local) {
                (Some(known), Some(local)) if name == FILE => Some(united(known, local)),
                (Some(known), _) => Some(known.clone()),
                (None, local) => local.clone(),
            };
            let Some(whole) = whole else { continue };
            if local.as_ref() != Some(&whole) {
                self.keep(name, &whole)?;
            }
            if known.get(name) != Some(&whole) {
                shared.write(name, &whole).map_err(Box::new)?;
            }
        }
        Ok(())
    }

    fn take_authority(&self, known: &BTreeMap<String, String>) -> Result<(), StateError> {
        let [Some(certificate), Some(key)] = AUTHORITY.map(|name| known.get(name)) else { return Ok(()) };
        match self.read("ca.crt")? {
            Some(own) if own == *certificate => Ok(()),
            Some(_) => Err(StateError::OtherAuthority { path: self.path.clone() }),
            None => {
                self.keep("ca.key", key)?;
                self.keep("ca.crt", certificate)
            }
        }
    }

    /// Brings to the database which certificates were withdrawn here since. Blocks.
    pub fn share_revoked(&self, known: &mut Option<String>) -> Result<(), StateError> {
        let text = self.read(FILE)?;
        if let (Some(shared), Some(text)) = (self.shared.get(), &text)
            && *known != Some(text.clone())
        {
            shared.write(FILE, text).map_err(Box::new)?;
        }
        *known = text;
        Ok(())
    }

    /// Writes a file that after a crash is either the old one or the new one. Mode 0600, or 0644 for `public`. One that all
    /// replicas share is in their database before. Blocks.
    pub fn write(&self, name: &str, text: &str, public: bool) -> Result<(), StateError> {
        if let Some(shared) = self.shared.get().filter(|_| is_shared(name)) {
            shared.write(name, text).map_err(Box::new)?;
        }
        self.put(name, text, public)
    }

    /// Keeps what another replica has written.
    fn keep(&self, name: &str, text: &str) -> Result<(), StateError> {
        self.put(name, text, name == "ca.crt")
    }

    fn put(&self, name: &str, text: &str, public: bool) -> Result<(), StateError> {
        let target = self.path.join(name);
        let partial = self.path.join(format!("{name}{PARTIAL_SUFFIX}"));
        let write = || -> io::Result<()> {
            let mode = if public { 0o644 } else { 0o600 };
            let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(mode).open(&partial)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, &target)?;
            // The rename itself lasts only once the directory is on disk.
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|source| StateError::Io { path: target.clone(), what: "write it", source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        let held = StateDir::open(&path).unwrap();
        let Err(error) = StateDir::open(&path) else { panic!("a second owner") };
        assert_eq!(
            error.to_string(),
            format!(
                "state directory {}: another kubefold process uses it; stop that one, or give this one its own --state-dir",
                path.display()
            )
        );
        drop(held);
        StateDir::open(&path).unwrap();
    }

    #[test]
    fn keys_are_for_their_owner_only_and_leftovers_go() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        let state = StateDir::open(&path).unwrap();
        state.write("ca.key", "secret", false).unwrap();
        let mode = |name: &Path| fs::metadata(name).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("ca.key"))), (0o700, 0o600));
        fs::write(path.join("ca.crt.partial"), "half").unwrap();
        drop(state);
        let state = StateDir::open(&path).unwrap();
        assert!(!path.join("ca.crt.partial").exists());
        assert_eq!(state.read("ca.key").unwrap().as_deref(), Some("secret"));
        assert_eq!(state.read("ca.crt").unwrap(), None);
    }

    #[test]
    fn a_directory_open_to_everybody_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let Err(error) = StateDir::open(parent.path()) else { panic!("open to all") };
        assert!(error.to_string().ends_with("(mode 755) and it holds private keys; run chmod 700 on it"), "{error}");
    }
}
