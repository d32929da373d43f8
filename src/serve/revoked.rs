//! Certificates that are withdrawn before they end: a file of the state directory, which `kubefold revoke` adds to and a
//! running kubefold follows.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use kubefold_serving::fingerprint::Fingerprint;

/// In the state directory.
pub const FILE: &str = "revoked";
const PARTIAL: &str = "revoked.partial";
const LOCK: &str = "revoked.lock";

/// Why certificates cannot be revoked, or why it is not known which are.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum RevokedError {
    #[error("{}: cannot {what} ({source}); run this as the user that runs \"kubefold serve\"", .path.display())]
    Io { path: PathBuf, what: &'static str, source: io::Error },
    #[error("{}: line {line} does not begin with a SHA-256 digest; correct it, so that no revoked certificate logs in", .path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{} is no state directory of kubefold (it has no ca.crt); give the --state-dir of \"kubefold serve\"", .0.display())]
    NoState(PathBuf),
}

/// A certificate to revoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Of the whole certificate, or of its signed part, which nobody can write in another way.
    pub digest: Fingerprint,
    /// For people who read the file.
    pub whose: String,
}

/// Reads which certificates are revoked.
///
/// Errors: a line that is not understood. Whoever goes on without it may let in whom it names.
pub fn read(dir: &Path) -> Result<BTreeSet<Fingerprint>, RevokedError> {
    let path = dir.join(FILE);
    let text = text(&path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let digest = |(at, line): (usize, &str)| {
        let digest = line.split_whitespace().next().and_then(digest);
        digest.ok_or_else(|| RevokedError::Line { path: path.clone(), line: at + 1 })
    };
    lines.map(digest).collect()
}

/// Adds certificates. Says which were not there before.
///
/// A running kubefold goes on meanwhile: this takes a lock of its own, and the file is whole at every time.
pub fn add(dir: &Path, revocations: &[Revocation]) -> Result<Vec<Revocation>, RevokedError> {
    let known_by = dir.join("ca.crt");
    if !known_by.exists() {
        return Err(RevokedError::NoState(dir.to_path_buf()));
    }
    let (path, lock, partial) = (dir.join(FILE), dir.join(LOCK), dir.join(PARTIAL));
    let io = |path: &Path, what| {
        let path = path.to_path_buf();
        move |source| RevokedError::Io { path, what, source }
    };
    let held = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
    let held = held.map_err(io(&lock, "open it"))?;
    held.lock().map_err(io(&lock, "lock it"))?;
    let known = read(dir)?;
    let new: Vec<Revocation> = revocations.iter().filter(|one| !known.contains(&one.digest)).cloned().collect();
    let lines = new.iter().map(|one| format!("{} {}\n", hex(&one.digest), one.whose.replace(['\n', '\r'], " ")));
    let text = text(&path)? + &lines.collect::<String>();
    let owner = fs::metadata(&known_by).map_err(io(&known_by, "read it"))?;
    write(&partial, &text, &owner).map_err(io(&partial, "write it"))?;
    fs::rename(&partial, &path).map_err(io(&path, "replace it"))?;
    // The rename itself lasts only once the directory is on disk.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io(dir, "write it"))?;
    Ok(new)
}

/// As whose `kubefold serve` reads it: an administrator may run this as root.
fn write(path: &Path, text: &str, owner: &fs::Metadata) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    if file.metadata()?.uid() != owner.uid() {
        fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    file.sync_all()
}

fn text(path: &Path) -> Result<String, RevokedError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|source| RevokedError::Io { path: path.to_path_buf(), what: "read it", source }),
    }
}

/// A digest as tools write it: 64 hexadecimal digits, with or without colons, perhaps behind `SHA256:` or what openssl prints.
pub fn digest(text: &str) -> Option<Fingerprint> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_start_matches("sha256 fingerprint=").trim_start_matches("sha256:").replace(':', "");
    let mut out = [0; 32];
    if digits.len() != out.len() * 2 || !digits.is_ascii() {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// As it is written in the file.
pub fn hex(digest: &Fingerprint) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn revocation(byte: u8) -> Revocation {
        Revocation { digest: [byte; 32], whose: format!("user {byte}") }
    }

    #[test]
    fn what_was_added_is_read_and_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        assert!(matches!(add(dir, &[revocation(1)]), Err(RevokedError::NoState(_))));
        fs::write(dir.join("ca.crt"), "").unwrap();
        assert_eq!(read(dir).unwrap(), BTreeSet::new());
        assert_eq!(add(dir, &[revocation(1), revocation(0xab)]).unwrap().len(), 2);
        assert_eq!(add(dir, &[revocation(0xab), revocation(2)]).unwrap(), [revocation(2)]);
        assert_eq!(read(dir).unwrap(), [[1; 32], [2; 32], [0xab; 32]].into());
        assert_eq!(fs::metadata(dir.join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(dir.join(FILE)).unwrap().contains(&format!("{} user 171\n", "ab".repeat(32))));
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error_and_not_left_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), format!("# old\n\n{} jane\n", "0A:".repeat(32).trim_end_matches(':')))
            .unwrap();
        assert_eq!(read(folder.path()).unwrap(), [[10; 32]].into());
        fs::write(folder.path().join(FILE), "abc\n").unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 1 does not begin with a SHA-256 digest"), "{error}");
    }

    #[test]
    fn a_digest_is_read_as_tools_write_it() {
        let plain = "0a".repeat(32);
        let colons = vec!["0A"; 32].join(":");
        for text in [plain.clone(), colons.clone(), format!("SHA256:{plain}"), format!("sha256 Fingerprint={colons}")] {
            assert_eq!(digest(&text), Some([10; 32]), "{text}");
        }
        for none in ["", "zz", &plain[1..], &"é".repeat(32)] {
            assert_eq!(digest(none), None, "{none}");
        }
        assert_eq!(hex(&[10; 32]), plain);
    }
}
