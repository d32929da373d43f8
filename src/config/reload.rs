//! Every later good version of `clusters.yaml`, as it changes on disk or on demand.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Notify, time::MissedTickBehavior};

use crate::config::{Config, ConfigError, FileError, load::load_tracked};

/// How often the files are looked at. A ConfigMap volume itself changes about once a minute.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Follows a configuration: [`Reloads::next`] yields each new good version, and nothing else.
///
/// A version that is refused is logged with its reason, and the caller keeps what it has.
pub struct Reloads {
    path: PathBuf,
    running: Config,
    files: Vec<PathBuf>,
    seen: Vec<Option<Fingerprint>>,
    reload_requested: Arc<Notify>,
}

/// Asks a [`Reloads`] to read the file now, changed or not; SIGHUP does.
#[derive(Clone)]
pub struct ReloadHandle(Arc<Notify>);

impl ReloadHandle {
    /// Asks. Several askings before the next reading are one.
    pub fn now(&self) {
        self.0.notify_one();
    }
}

impl Reloads {
    /// Loads the file and starts to follow it from that very version.
    ///
    /// Errors: the file is refused; there is nothing to run with.
    pub async fn start(path: &Path) -> Result<(Config, Self), ConfigError> {
        let (result, files, seen) = read(path.to_path_buf(), vec![path.to_path_buf()]).await;
        let running = result?;
        let reload_requested = Arc::new(Notify::new());
        Ok((running.clone(), Self { path: path.to_path_buf(), running, files, seen, reload_requested }))
    }

    /// A handle to ask for a reading.
    pub fn reload_handle(&self) -> ReloadHandle {
        ReloadHandle(Arc::clone(&self.reload_requested))
    }

    /// Waits for the next good version that differs from the running one. Never `None` today; an `Option`
    /// so that `while let` reads well where it is used.
    ///
    /// Cancel: safe; a change that was not yielded is seen again.
    pub async fn next(&mut self) -> Option<Config> {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + POLL_EVERY, POLL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = ticks.tick() => false,
                () = self.reload_requested.notified() => true,
            };
            if !asked && fingerprints(self.files.clone()).await == self.seen {
                continue;
            }
            if let Some(config) = self.read_again(asked).await {
                return Some(config);
            }
        }
    }

    async fn read_again(&mut self, asked: bool) -> Option<Config> {
        let (result, files, seen) = read(self.path.clone(), self.files.clone()).await;
        (self.files, self.seen) = (files, seen);
        match result {
            Ok(config) if config == self.running => {
                if asked {
                    tracing::info!(file = %self.path.display(), "configuration read again: nothing has changed");
                }
                None
            }
            // What is visible would get other names while clients watch it.
            Ok(config) if config.names != self.running.names || config.shared != self.running.shared => {
                tracing::error!(
                    "configuration refused, the running one stays: `names` and `shared` decide what objects are called, \
                     and change with a restart only"
                );
                None
            }
            Ok(config) if config.aliases != self.running.aliases => {
                tracing::error!(
                    "configuration refused, the running one stays: the groups of `aliases` change with a restart only"
                );
                None
            }
            Ok(config) => {
                tracing::info!(file = %self.path.display(), members = config.members.len(), "configuration reloaded");
                self.running = config.clone();
                Some(config)
            }
            Err(error) => {
                tracing::error!("configuration refused, the running one stays: {error}");
                None
            }
        }
    }
}

/// What tells one version of a file from the next. Following links, it sees the swap of a ConfigMap volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    device: u64,
    inode: u64,
    size: u64,
    modified_s: i64,
    modified_ns: i64,
}

async fn fingerprints(files: Vec<PathBuf>) -> Vec<Option<Fingerprint>> {
    tokio::task::spawn_blocking(move || look(&files)).await.unwrap_or_default()
}

fn look(files: &[PathBuf]) -> Vec<Option<Fingerprint>> {
    let one = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Fingerprint {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
        })
    };
    files.iter().map(one).collect()
}

type Reading = (Result<Config, ConfigError>, Vec<PathBuf>, Vec<Option<Fingerprint>>);

/// Reads the configuration off the runtime's threads.
///
/// The files are looked at before they are read and, where the set has grown, again: a change in between is then
/// seen at the next look. At worst one version is read twice; none is missed.
async fn read(path: PathBuf, known: Vec<PathBuf>) -> Reading {
    let fallback = (path.clone(), known.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let before = look(&known);
        let (result, files) = load_tracked(&path);
        if files == known {
            return (result, files, before);
        }
        let before = look(&files);
        let (result, again) = load_tracked(&path);
        // A set that moves while it is read is looked at once more, at the next tick.
        let seen = if again == files { before } else { Vec::new() };
        (result, again, seen)
    });
    reading.await.unwrap_or_else(|error| {
        let problem =
            Box::new(crate::config::Problem::Unreadable { cause: FileError::Io(std::io::Error::other(error)) });
        let refused = ConfigError { file: fallback.0, line: None, whose: Default::default(), problem };
        (Err(refused), fallback.1, Vec::new())
    })
}
