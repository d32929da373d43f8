//! Where logins are kept between two runs, and `kubefold logout`.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cli::{join::write, login::machine::say, print as print_text};

/// Whoever waits for another login looks this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Which login it is.
pub(super) struct Key {
    pub(super) issuer: String,
    pub(super) client: String,
    /// Scopes and parameters.
    pub(super) asked: Vec<String>,
}

/// What a login gave.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    pub(super) issuer: String,
    pub(super) client: String,
    /// The issuer's name of the user.
    pub(super) subject: String,
    /// When the ID token ends. Units: Unix seconds.
    pub(super) ends_s: u64,
    pub(super) id_token: String,
    /// Absent where the issuer gives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
}

/// The place of one login.
pub(super) struct Cache {
    file: PathBuf,
    lock: PathBuf,
}

impl Cache {
    /// Makes the folder, which is the user's alone.
    pub(super) fn open(key: &Key) -> anyhow::Result<Self> {
        let folder = folder()?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| {
            format!("cannot make {}, where logins are kept; set XDG_CACHE_HOME to a folder of yours", folder.display())
        })?;
        let name = key.digest();
        Ok(Self { file: folder.join(format!("{name}.json")), lock: folder.join(format!("{name}.lock")) })
    }

    /// What is kept. A file that cannot be read counts as none: the login is made again.
    pub(super) fn read(&self) -> Option<Kept> {
        serde_json::from_slice(&fs::read(&self.file).ok()?).ok()
    }

    pub(super) fn write(&self, kept: &Kept) -> anyhow::Result<()> {
        write(&self.file, &serde_json::to_string(kept)?, 0o600)
    }

    /// Waits until no other process logs in. The kernel drops the lock with its holder.
    pub(super) async fn lock(&self) -> anyhow::Result<File> {
        let name = self.lock.display();
        let file = File::options().create(true).truncate(false).write(true).open(&self.lock);
        let file = file.with_context(|| format!("cannot open {name}"))?;
        let mut is_told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => bail!("cannot lock {name}: {error}"),
            }
            if !std::mem::replace(&mut is_told, true) {
                say("another program logs in; waiting for it");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Key {
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for part in [&self.issuer, &self.client].into_iter().chain(&self.asked) {
            digest.update(part);
            digest.update([0]);
        }
        let bytes = digest.finalize();
        bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// `$XDG_CACHE_HOME/kubefold/login`.
fn folder() -> anyhow::Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A path that is not absolute does not count: XDG Base Directory Specification.
    let cache = of("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| Some(of("HOME")?.join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME says where logins can be kept")?;
    Ok(cache.join("kubefold/login"))
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Logout {
    /// Only at this issuer. Default: at all.
    #[arg(long, value_name = "URL")]
    issuer_url: Option<String>,
    /// Only of this client. Default: of all.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
}

impl Logout {
    /// Forgets the logins that are kept.
    pub(in crate::cli) fn run(&self) -> anyhow::Result<()> {
        let gone = forget(&folder()?, |kept| {
            self.issuer_url.as_ref().is_none_or(|issuer| *issuer == kept.issuer)
                && self.client_id.as_ref().is_none_or(|client| *client == kept.client)
        })?;
        let line = |kept: &Kept| format!("logged out {} at {}\n", kept.subject, kept.issuer);
        print_text(&if gone.is_empty() {
            "nobody was logged in\n".into()
        } else {
            gone.iter().map(line).collect::<String>()
        })
    }
}

fn forget(folder: &Path, which: impl Fn(&Kept) -> bool) -> anyhow::Result<Vec<Kept>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => bail!("cannot read {}: {error}", folder.display()),
    };
    let mut gone = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let kept: Kept = serde_json::from_slice(&fs::read(&path)?).unwrap_or_default();
        if which(&kept) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            gone.push(kept);
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        for (name, issuer) in [("a", "https://a"), ("b", "https://b")] {
            let kept = Kept { issuer: issuer.into(), subject: "jane".into(), ..Kept::default() };
            write(&folder.path().join(format!("{name}.json")), &serde_json::to_string(&kept).unwrap(), 0o600).unwrap();
        }
        fs::write(folder.path().join("a.lock"), "").unwrap();
        let gone = forget(folder.path(), |kept| kept.issuer == "https://a").unwrap();
        assert_eq!(gone.len(), 1);
        assert!(folder.path().join("b.json").exists() && !folder.path().join("a.json").exists());
        assert!(forget(&folder.path().join("none"), |_| true).unwrap().is_empty());
    }

    #[test]
    fn other_scopes_are_another_login() {
        let key = |issuer: &str, client: &str, scopes: &[&str]| {
            let asked = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            Key { issuer: issuer.into(), client: client.into(), asked }.digest()
        };
        let all =
            [key("a", "b", &[]), key("a", "b", &["c"]), key("a", "bc", &[]), key("ab", "", &[]), key("a", "c", &[])];
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(key("a", "b", &["c"]), key("a", "b", &["c"]));
    }
}
