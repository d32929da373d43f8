//! The key with which records are encrypted, and the file that has it.

use std::{
    fmt, fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    error::Unspecified,
    hkdf, rand,
};
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{MODE, SqlError};

/// Units: bytes.
const KEY_LEN: usize = 32;
/// Units: bytes.
const SALT_LEN: usize = 16;
/// What an encrypted record begins with. A JSON document never does.
const FORMAT: u8 = 1;
/// What the keys of records are derived for. Source: RFC 5869, section 3.2.
const PURPOSE: &[u8] = b"kubefold state record";

/// Why a key cannot be used. The operator's, always.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file is not there.
    #[error(
        "there is no key file {0}; give the right path, or make a key: (umask 077; head -c 32 /dev/urandom | base64 > {0})"
    )]
    Missing(PathBuf),
    /// The file cannot be read, or made.
    #[error("the key file {path} cannot be used: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file holds something else.
    #[error("{0} holds no key, or more than keys; a key is 32 random bytes in base64, in a line of its own")]
    Form(PathBuf),
    /// More than its user and group may read the file.
    #[error(
        "everybody may read the key file {path} (mode {mode:03o}); run chmod 600 on it, or give it a defaultMode of 0440 in a volume"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

/// A record that was changed, is another record's, or was encrypted with another key.
#[derive(Debug, thiserror::Error)]
#[error("it is damaged, or was encrypted with another key or for another record")]
pub struct SealedError;

/// Where the key stands.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// Somebody named the file. One that nobody named is made where there is none.
    is_named: bool,
}

impl KeyFile {
    /// The file that somebody named, or `state.key` in this directory.
    pub fn new(named: Option<PathBuf>, directory: &Path) -> Self {
        Self { is_named: named.is_some(), path: named.unwrap_or_else(|| directory.join("state.key")) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the key, or makes one if nothing `is_encrypted` yet and nobody named the file.
    ///
    /// Blocks. Errors: see [`KeyError`].
    pub fn key(&self, is_encrypted: bool) -> Result<StateKey, KeyError> {
        match self.read()? {
            Some(key) => Ok(key),
            None if self.is_named || is_encrypted => Err(KeyError::Missing(self.path.clone())),
            None => self.make(),
        }
    }

    fn read(&self) -> Result<Option<StateKey>, KeyError> {
        let of_io = |cause| KeyError::Io { path: self.path.clone(), cause };
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(of_io(error)),
        };
        let mode = fs::metadata(&self.path).map_err(of_io)?.permissions().mode() & 0o777;
        // Group access is left to the operator: Kubernetes' fsGroup sets it on volumes.
        if mode & 0o007 != 0 {
            return Err(KeyError::Open { path: self.path.clone(), mode });
        }
        StateKey::read(&text).map(Some).ok_or_else(|| KeyError::Form(self.path.clone()))
    }

    /// Makes the file: whole or not at all.
    fn make(&self) -> Result<StateKey, KeyError> {
        let mut bytes = [0; KEY_LEN];
        rand::fill(&mut bytes).map_err(|Unspecified| KeyError::Random)?;
        let partial = self.path.with_extension("key.partial");
        let write = || -> io::Result<()> {
            let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(MODE).open(&partial)?;
            writeln!(file, "{}", STANDARD.encode(bytes))?;
            file.sync_all()?;
            fs::rename(&partial, &self.path)?;
            // The rename itself lasts only once the directory is on disk.
            self.path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
        };
        write().map_err(|cause| KeyError::Io { path: self.path.clone(), cause })?;
        Ok(StateKey::new(&bytes, Vec::new()))
    }
}

/// Encrypts records with AES-256-GCM.
///
/// Each record has a key of its own, derived with HKDF-SHA256 by a random salt, so that the number of records of one key
/// file has no bound. Source: NIST SP 800-38D, section 8.3, which allows 2^32 random nonces of one key.
///
/// A file may have several keys: the first encrypts, each reads.
pub struct StateKey {
    first: hkdf::Prk,
    earlier: Vec<hkdf::Prk>,
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateKey").finish_non_exhaustive()
    }
}

impl StateKey {
    /// The keys of a file's lines; `None`: there is none, or a line is no key.
    fn read(text: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys = lines.map(|line| STANDARD.decode(line).ok().filter(|bytes| bytes.len() == KEY_LEN));
        let mut keys = keys.collect::<Option<Vec<_>>>()?.into_iter();
        Some(Self::new(&keys.next()?, keys.map(|bytes| derives_keys(&bytes)).collect()))
    }

    /// A key of 32 random bytes, and those that it follows.
    fn new(bytes: &[u8], earlier: Vec<hkdf::Prk>) -> Self {
        Self { first: derives_keys(bytes), earlier }
    }

    /// Says whether it reads what other keys than its first have encrypted.
    pub fn has_earlier(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// Says whether a record is encrypted, with whatever key.
    pub fn is_sealed(record: &[u8]) -> bool {
        record.first() == Some(&FORMAT)
    }

    /// Encrypts a record for its place, such as its table and key. It can be read at that place alone.
    ///
    /// Errors: the system gives no random numbers.
    pub fn seal(&self, place: &str, mut record: Vec<u8>) -> Result<Vec<u8>, KeyError> {
        let mut seal = || -> Result<Vec<u8>, Unspecified> {
            let mut salt = [0; SALT_LEN];
            rand::fill(&mut salt)?;
            let nonce = derived(&self.first, &salt)?.seal_in_place_append_tag(Aad::from(place), &mut record)?;
            Ok([&[FORMAT], &salt[..], nonce.as_ref(), &record].concat())
        };
        seal().map_err(|Unspecified| KeyError::Random)
    }

    /// Reads a record of [`StateKey::seal`].
    ///
    /// Errors: it is another record's, or another key's.
    pub fn open(&self, place: &str, record: &[u8]) -> Result<Vec<u8>, SealedError> {
        opened(&self.first, place, record).map_or_else(|| self.open_earlier(place, record), Ok)
    }

    fn open_earlier(&self, place: &str, record: &[u8]) -> Result<Vec<u8>, SealedError> {
        self.earlier.iter().find_map(|key| opened(key, place, record)).ok_or(SealedError)
    }

    /// Encrypts a record anew that an earlier key has encrypted. `None`: the first key has.
    ///
    /// Errors: it is another record's, or another key's; the system gives no random numbers.
    pub fn renewed(&self, place: &str, record: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        if opened(&self.first, place, record).is_some() {
            return Ok(None);
        }
        Ok(Some(self.seal(place, self.open_earlier(place, record)?)?))
    }
}

fn derives_keys(bytes: &[u8]) -> hkdf::Prk {
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, bytes)
}

/// The key of one record.
fn derived(key: &hkdf::Prk, salt: &[u8]) -> Result<RandomizedNonceKey, Unspecified> {
    let mut bytes = [0; KEY_LEN];
    key.expand(&[PURPOSE, salt], hkdf::HKDF_SHA256)?.fill(&mut bytes)?;
    RandomizedNonceKey::new(&AES_256_GCM, &bytes)
}

/// What a record says; `None`: it is another record's, or another key's.
fn opened(key: &hkdf::Prk, place: &str, record: &[u8]) -> Option<Vec<u8>> {
    let (salt, rest) = record.strip_prefix(&[FORMAT])?.split_at_checked(SALT_LEN)?;
    let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
    let (nonce, mut sealed) = (Nonce::try_assume_unique_for_key(nonce).ok()?, sealed.to_vec());
    let opened = derived(key, salt).ok()?.open_in_place(nonce, Aad::from(place), &mut sealed).ok()?.len();
    sealed.truncate(opened);
    Some(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> StateKey {
        StateKey::new(&[byte; KEY_LEN], Vec::new())
    }

    #[test]
    fn a_record_is_read_with_its_key_at_its_place_as_it_was() {
        let secret = b"{\"password\":\"hunter2\"}".to_vec();
        let sealed = key(1).seal("entries/7", secret.clone()).unwrap();
        assert!(StateKey::is_sealed(&sealed) && !StateKey::is_sealed(&secret));
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_ne!(sealed, key(1).seal("entries/7", secret.clone()).unwrap());
        assert_eq!(key(1).open("entries/7", &sealed).unwrap(), secret);
        let refused = |key: StateKey, place: &str, record: &[u8]| {
            let error = key.open(place, record).unwrap_err();
            assert!(error.to_string().contains("damaged, or was encrypted with another key"), "{error}");
        };
        refused(key(2), "entries/7", &sealed);
        refused(key(1), "entries/8", &sealed);
        refused(key(1), "entries/7", &secret);
        refused(key(1), "entries/7", &sealed[..SALT_LEN]);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            refused(key(1), "entries/7", &changed);
        }
    }

    #[test]
    fn a_file_may_have_several_keys_of_which_the_first_encrypts_and_each_reads() {
        let line = |byte: u8| STANDARD.encode([byte; KEY_LEN]);
        let both = StateKey::read(&format!("{}\n\n {}\n", line(2), line(1))).unwrap();
        assert!(both.has_earlier() && !StateKey::read(&line(1)).unwrap().has_earlier());
        let (old, new) = (key(1).seal("a", b"text".to_vec()).unwrap(), both.seal("a", b"text".to_vec()).unwrap());
        assert_eq!(both.open("a", &old).unwrap(), b"text");
        assert!(key(2).open("a", &new).is_ok() && key(1).open("a", &new).is_err());
        let renewed = both.renewed("a", &old).unwrap().unwrap();
        assert_eq!(key(2).open("a", &renewed).unwrap(), b"text");
        assert!(both.renewed("a", &renewed).unwrap().is_none());
        for record in [key(3).seal("a", Vec::new()).unwrap(), b"{}".to_vec()] {
            assert!(both.renewed("a", &record).is_err());
        }
        assert!(both.renewed("b", &old).is_err(), "it is another record's");
        for text in ["", "\n", "c2hvcnQ=", &format!("{}\nc2hvcnQ=", line(1))] {
            assert!(StateKey::read(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_key_that_nobody_named_is_made_once_for_its_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(None, directory.path());
        assert!(matches!(file.key(true).unwrap_err(), KeyError::Missing(_)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let sealed = file.key(false).unwrap().seal("a", b"text".to_vec()).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(file.key(true).unwrap().open("a", &sealed).unwrap(), b"text");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_named_file_is_never_made_and_must_hold_a_key_that_is_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.key");
        let file = KeyFile::new(Some(path.clone()), directory.path());
        let said = |is_encrypted| file.key(is_encrypted).unwrap_err().to_string();
        assert!(said(false).starts_with("there is no key file"), "{}", said(false));
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("c2hvcnQ=", 0o600);
        assert!(said(false).contains("holds no key, or more than keys; a key is 32 random bytes"), "{}", said(false));
        write(&STANDARD.encode([7; KEY_LEN]), 0o644);
        assert!(said(false).contains("everybody may read") && said(false).contains("(mode 644)"), "{}", said(false));
        write(&format!("{}\n", STANDARD.encode([7; KEY_LEN])), 0o440);
        file.key(true).unwrap();
    }
}
