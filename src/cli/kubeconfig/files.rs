//! A person's kubeconfig files: which they are, and how they are changed beside kubectl.
//!
//! Source: kubernetes/client-go v0.36 `tools/clientcmd/loader.go` (`lockFile`, `WriteToFile`) and `config.go` (`ModifyConfig`).

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use serde_json::Value;

use super::merge::Loaded;
use kubefold_wire::yaml;

/// The mode of a new file and of a new directory, as kubectl makes them.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o755;
/// Another program has changed a file by then.
const LOCK_TRIES: usize = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// More is no kubeconfig.
const BYTES_MAX: u64 = 16 << 20;

/// The files that kubectl reads, the first one counts most: the given one, else those of `$KUBECONFIG`, else `~/.kube/config`.
///
/// Errors: there is no home.
pub(super) fn paths(given: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(given) = given {
        return Ok(vec![given.to_owned()]);
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        let home = std::env::home_dir().context("there is no home directory; name the file with --kubeconfig")?;
        paths.push(home.join(".kube/config"));
    }
    Ok(paths)
}

/// The files, while nobody else changes them.
pub(super) struct Files {
    loaded: Vec<Loaded>,
    _locks: Vec<Lock>,
}

impl Files {
    /// Locks and reads them. Blocks for a while where another program changes one.
    ///
    /// Errors: one is locked still, or cannot be read.
    pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Self> {
        // In kubectl's order, so that two programs do not wait for each other.
        let mut sorted: Vec<&PathBuf> = paths.iter().collect();
        sorted.sort();
        let locks = sorted.into_iter().map(|path| Lock::take(path)).collect::<anyhow::Result<_>>()?;
        let loaded = paths.iter().map(|path| read(path)).collect::<anyhow::Result<_>>()?;
        Ok(Self { loaded, _locks: locks })
    }

    /// Changes them, and writes those that are others then. Each is the old one or the new one, whatever happens. Gives their paths.
    ///
    /// Errors: those of `change`, after which nothing is written, or one cannot be written.
    pub(super) fn change<T, E: std::error::Error + Send + Sync + 'static>(
        &mut self,
        change: impl FnOnce(&mut [Loaded]) -> Result<T, E>,
    ) -> anyhow::Result<Changed<T>> {
        let mut after = self.loaded.clone();
        let outcome = change(&mut after)?;
        let mut written = Vec::new();
        for (before, after) in self.loaded.iter().zip(&after).filter(|(before, after)| before != after) {
            let content = after.content.as_ref().unwrap_or(&Value::Null);
            write(&before.path, content).with_context(|| format!("cannot write {}", before.path.display()))?;
            written.push(before.path.clone());
        }
        self.loaded = after;
        Ok(Changed { outcome, written })
    }
}

/// What was changed, and where.
pub(super) struct Changed<T> {
    pub(super) outcome: T,
    pub(super) written: Vec<PathBuf>,
}

/// A file beside another one, for as long as that one is changed.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> anyhow::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            let made = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(parent);
            made.with_context(|| format!("cannot make the directory {}", parent.display()))?;
        }
        let lock = beside(path, "", ".lock");
        for _ in 0..LOCK_TRIES {
            match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => std::thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", lock.display())),
            }
        }
        bail!(
            "{} is locked: another program changes it; if none does, such as after a crash, remove {}",
            path.display(),
            lock.display()
        )
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is there, unless somebody removed it.
        let _gone = fs::remove_file(&self.0);
    }
}

fn beside(path: &Path, before: &str, behind: &str) -> PathBuf {
    let mut name = OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(behind);
    path.with_file_name(name)
}

fn read(path: &Path) -> anyhow::Result<Loaded> {
    let cannot = || format!("cannot read {}", path.display());
    let size = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Loaded { path: path.to_owned(), content: None });
        }
        Err(error) => return Err(error).with_context(cannot),
    };
    if size > BYTES_MAX {
        bail!("{} is no kubeconfig: it has more than {} MiB", path.display(), BYTES_MAX >> 20);
    }
    let text = fs::read_to_string(path).with_context(cannot)?;
    let content =
        if text.trim().is_empty() { Value::Object(Default::default()) } else { parsed(&text).with_context(cannot)? };
    Ok(Loaded { path: path.to_owned(), content: Some(content) })
}

fn parsed(text: &str) -> anyhow::Result<Value> {
    let options = serde_saphyr::options! { with_snippet: false };
    Ok(serde_saphyr::from_str_with_options(text, options)?)
}

/// Replaces a file at once. A link stays one; mode and owner stay.
fn write(path: &Path, content: &Value) -> anyhow::Result<()> {
    let text = yaml::from_json(content.to_string().as_bytes())?;
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&target).ok();
    let partial = beside(&target, ".", &format!(".{}", std::process::id()));
    let written = (|| -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&partial)?;
        if let Some(before) = &before {
            // Whoever may not give it away keeps it.
            let _own = std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()));
            file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777))?;
        }
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&partial, &target)?;
        // The rename itself lasts only once the directory is on disk.
        File::open(target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new(".")))?
            .sync_all()
    })();
    if written.is_err() {
        drop(fs::remove_file(&partial));
    }
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    fn set(files: &mut Files, value: &str) -> anyhow::Result<Changed<()>> {
        files.change(|all| -> Result<(), std::convert::Infallible> {
            all[0].content = Some(json!({"current-context": value}));
            Ok(())
        })
    }

    #[test]
    fn mode_and_link_stay_and_no_lock_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real"), "current-context: a\n").unwrap();
        fs::set_permissions(at("real"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink(at("real"), at("config")).unwrap();
        {
            let mut files = Files::open(&[at("config")]).unwrap();
            assert!(at("config.lock").exists());
            assert_eq!(set(&mut files, "b").unwrap().written, [at("config")]);
            // The same again is not written.
            assert_eq!(set(&mut files, "b").unwrap().written, Vec::<PathBuf>::new());
        }
        assert_eq!(fs::read_to_string(at("real")).unwrap(), "current-context: b\n");
        assert_eq!(fs::metadata(at("real")).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(at("config")).unwrap().is_symlink());
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["config", "real"]);
    }

    #[test]
    fn a_new_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/.kube/config");
        set(&mut Files::open(std::slice::from_ref(&path)).unwrap(), "a").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, FILE_MODE);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for text in ["a: [", "a: 1\na: 2\n", "\u{0}"] {
            fs::write(&path, text).unwrap();
            assert!(Files::open(std::slice::from_ref(&path)).is_err(), "{text}");
            assert!(!folder.path().join("config.lock").exists());
        }
        fs::write(&path, "").unwrap();
        assert_eq!(Files::open(&[path]).unwrap().loaded[0].content, Some(json!({})));
    }

    /// Texts that look like something else stay texts for kubectl, which reads YAML 1.1.
    #[test]
    fn texts_stay_texts() {
        let texts = ["yes", "on", "012", "1e3", "0x1f", "2026-11-27", "null", "~", "a: b", "1_000", "1:30", ""];
        let content = json!({"contexts": texts.map(|name| json!({"name": name}))});
        let text = yaml::from_json(content.to_string().as_bytes()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(parsed(&text).unwrap(), content, "{text}");
    }
}
