//! What of a database was seen last, in a file outside of it.

use std::{fs, path::PathBuf};

const FORMAT: &str = "kubefold-state-1";
/// Of what another process does to the database, one of so many changes is noted.
const NOTE_EVERY: i64 = 120;

/// The file.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    path: PathBuf,
}

/// How far a database was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Which data it was.
    pub(super) identity: String,
    /// Of the process that had it.
    pub(super) epoch: i64,
    /// It rises every few seconds.
    pub(super) beat: i64,
}

impl Mark {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// `None`: no process has noted anything that can be read.
    pub(super) fn read(&self) -> Option<Seen> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some(FORMAT) {
            return None;
        }
        let identity = words.next()?.to_owned();
        Some(Seen { identity, epoch: words.next()?.parse().ok()?, beat: words.next()?.parse().ok()? })
    }

    /// Notes how far a database goes on that another process has, now and then.
    pub(super) fn note(&self, seen: impl FnOnce(String) -> Seen) {
        let Some(before) = self.read() else { return };
        let now = seen(before.identity.clone());
        if now.goes_on(&before) && (now.epoch > before.epoch || now.beat > before.beat + NOTE_EVERY) {
            self.write(&now);
        }
    }

    /// Notes it: whole or not at all. Where the disk refuses, a backup may go unnoticed; that is logged.
    pub(super) fn write(&self, seen: &Seen) {
        let Seen { identity, epoch, beat } = seen;
        let partial = self.path.with_extension("partial");
        let written = fs::write(&partial, format!("{FORMAT} {identity} {epoch} {beat}\n"))
            .and_then(|()| fs::rename(&partial, &self.path));
        if let Err(error) = written {
            let path = self.path.display();
            tracing::warn!(%path, %error, "what was seen of the database cannot be noted: a backup may go unnoticed");
        }
    }
}

impl Seen {
    /// Says whether a database that is like this goes on from what was seen before.
    pub(super) fn goes_on(&self, before: &Self) -> bool {
        self.identity == before.identity && (self.epoch, self.beat) >= (before.epoch, before.beat)
    }
}
