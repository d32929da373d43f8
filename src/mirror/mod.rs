//! What members' objects were, on disk: so that a kubefold that starts knows them, and asks members only for what is new.
//!
//! One file of SQLite in the state directory, or a group of tables on a server, has, for each kind and member, the objects as the member gave them and the
//! position to which they belong, always of the same moment. It is written behind the stores, in batches, by one task; nothing
//! waits for it. It is no source of truth: whatever is wrong with it is said once, and kubefold begins without it.
//!
//! Objects that were deleted can be kept for a time, and are found by searches (`deleted`, `search`).
//!
//! May name: `config`, `store`, `search`.

mod budget;
mod deleted;
mod figures;
mod file;
mod kind;
pub mod metrics;
mod pulse;
mod search;
mod shown;
mod stored;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwapOption;
use kubefold_sql::{KeyFile, OpenError, RemoteState, SqlError};
use parking_lot::Mutex;

use crate::{
    config::{Config, MirrorConfig, ResourcePattern},
    search::{Query, sql::Selection},
    store::{Changes, MemberDocument, Position, Report},
};
use kubefold_wire::resource::Gvr;

use self::{budget::beyond, file::File, kind::is_secret, pulse::Pulse};
pub use self::{
    figures::{Figures, MemoryFigures},
    file::{KeptCatalog, KeptObject, KeptPosition},
    kind::{MirrorError, MirroredKind},
    search::{FoundObject, FoundPage},
    tables::SCHEMA,
};

/// The file in the state directory, and those that SQLite has beside it.
const FILE: &str = "mirror.db";
const FILES_BESIDE: [&str; 2] = ["mirror.db-wal", "mirror.db-shm"];
/// A file that could not be read is kept under this name, in the place of an earlier one.
const SET_ASIDE: &str = "mirror.db.damaged";
/// How long nothing is written after a write that failed.
pub const REST: Duration = Duration::from_secs(30);

/// The objects of members on disk. All of it blocks but the figures.
pub struct Mirror {
    directory: PathBuf,
    state: Option<Arc<RemoteState>>,
    config: MirrorConfig,
    /// What is in the tables alone: what the configuration says, and what memory has no room for.
    stored: Vec<ResourcePattern>,
    key: Option<KeyFile>,
    file: ArcSwapOption<File>,
    figures: Mutex<Figures>,
    pulse: Arc<Pulse>,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Mirror {
    /// Opens the file of a state directory, or begins one. What is wrong with it is logged, and there is no mirror then.
    ///
    /// `key` is a key file that somebody named: without one no Secret is kept.
    pub fn open(directory: &Path, config: &Config, key: Option<KeyFile>) -> Arc<Self> {
        Self::begin(None, directory, config, key)
    }

    /// Opens the tables on a server, or makes them, as [`Self::open`] does. A file that is left in the state directory is removed.
    pub fn open_in(state: &Arc<RemoteState>, directory: &Path, config: &Config, key: Option<KeyFile>) -> Arc<Self> {
        Self::begin(Some(Arc::clone(state)), directory, config, key)
    }

    fn begin(state: Option<Arc<RemoteState>>, directory: &Path, config: &Config, key: Option<KeyFile>) -> Arc<Self> {
        let mut this = Self {
            state,
            directory: directory.to_owned(),
            config: config.mirror.clone(),
            stored: config.mirror.stored.clone(),
            key,
            file: ArcSwapOption::empty(),
            figures: Mutex::default(),
            pulse: Arc::default(),
        };
        if this.config.enabled {
            this.open_file(config);
        }
        let is_left = !this.config.enabled || this.state.is_some();
        if let Err(error) = if is_left { this.remove() } else { Ok(()) } {
            tracing::warn!(%error, "the mirror's file is not used any more, and cannot be removed");
        }
        Arc::new(this)
    }

    fn open_file(&mut self, config: &Config) {
        let is_kept = |feed: &MirroredKind| {
            let mut present = config.members.iter().filter(|member| !member.absent);
            self.keeps(&feed.gvr) && present.any(|member| member.name == feed.member)
        };
        let opened = match self.try_open() {
            Ok(file) => Some(file),
            Err(error) if is_damaged(&error) => self.begin_anew(&error),
            Err(error) => return self.is_off(&error),
        };
        let Some(file) = opened else { return };
        let prepared = file.prepare(self.config.bytes_max).and_then(|()| file.retain(is_kept));
        let prepared = prepared.and_then(|()| self.bound_memory(&file));
        let prepared = prepared.and_then(|()| file.prepare_stored(|feed| self.stores(&feed.gvr)));
        let prepared = prepared.and_then(|()| file.trim_deleted(self.config.keep_deleted, self.config.bytes_max));
        let file = match prepared {
            Ok(()) => Some(file),
            Err(error) if error.is_damaged() => {
                drop(file);
                self.begin_anew(&error)
            }
            Err(error) => return self.is_off(&error),
        };
        self.figures.lock().is_on = file.is_some();
        self.file.store(file.map(Arc::new));
    }

    /// Has the kinds that memory has no room for in the tables alone.
    fn bound_memory(&mut self, file: &File) -> Result<(), SqlError> {
        let Some(max) = self.config.memory_max else { return Ok(()) };
        let beyond = beyond(&self.config, file.sizes()?);
        self.stored.extend(beyond.iter().map(ResourcePattern::of));
        let in_tables: Vec<String> = beyond.iter().map(Gvr::qualified).collect();
        if !in_tables.is_empty() {
            let kinds = in_tables.join(", ");
            tracing::warn!(%kinds, "mirror.memory has no room for all objects: these kinds are in the mirror's tables alone");
        }
        self.figures.lock().memory = Some(MemoryFigures { max, held: 0, in_tables });
        Ok(())
    }

    fn try_open(&self) -> Result<File, OpenError> {
        // A wrong or missing key has ended kubefold when it opened its journal.
        let key = self.key.as_ref().and_then(|key| key.key(true).ok());
        let keeps_deleted = self.config.keep_deleted.is_some();
        match &self.state {
            Some(state) => File::open_in(state, key, keeps_deleted),
            None => File::open(&self.directory.join(FILE), key, keeps_deleted),
        }
    }

    /// Sets a file aside that cannot be read, and begins a new one.
    fn begin_anew(&self, cause: &dyn std::error::Error) -> Option<File> {
        if self.state.is_some() {
            self.is_off(&cause);
            return None;
        }
        let path = self.directory.join(FILE);
        tracing::error!(%cause, "the mirror is damaged and set aside as {SET_ASIDE}: members are listed anew");
        self.figures.lock().fail(cause);
        let begin = || -> io::Result<()> {
            fs::rename(&path, self.directory.join(SET_ASIDE))?;
            FILES_BESIDE.iter().try_for_each(|file| remove_if_there(&self.directory.join(file)))
        };
        if let Err(error) = begin() {
            self.is_off(&error);
            return None;
        }
        let opened = self.try_open().map_err(|error| self.is_off(&error)).ok()?;
        opened.prepare(self.config.bytes_max).map_err(|error| self.is_off(&error)).ok()?;
        Some(opened)
    }

    fn is_off(&self, cause: &dyn std::error::Error) {
        tracing::error!(%cause, "there is no mirror: a restart will list all members anew");
        let mut figures = self.figures.lock();
        figures.fail(cause);
        figures.is_on = false;
        self.file.store(None);
    }

    /// Removes what an earlier process kept.
    fn remove(&self) -> io::Result<()> {
        [FILE, SET_ASIDE].iter().chain(&FILES_BESIDE).try_for_each(|file| remove_if_there(&self.directory.join(file)))
    }

    /// Says whether the objects of a kind are kept.
    pub fn keeps(&self, gvr: &Gvr) -> bool {
        self.config.enabled
            && (!is_secret(gvr) || self.key.is_some())
            && !self.config.exclude.iter().any(|pattern| pattern.names(gvr))
    }

    /// Says whether the objects of a kind are in the tables alone, and in no memory.
    pub fn stores(&self, gvr: &Gvr) -> bool {
        self.stored.iter().any(|pattern| pattern.names(gvr))
    }

    /// The kinds whose objects are in the tables alone.
    pub fn stored_kinds(&self) -> &[ResourcePattern] {
        &self.stored
    }

    /// Why a kind that is in the tables alone cannot be read. `None`: as far as is known now it can.
    pub fn cannot_store(&self, gvr: &Gvr) -> Option<MirrorError> {
        if !self.config.enabled {
            return Some(MirrorError::Disabled);
        }
        if !self.keeps(gvr) {
            return Some(MirrorError::Excluded { resource: gvr.qualified() });
        }
        (!self.is_on()).then_some(MirrorError::Off)
    }

    /// Asks it where a wait for the disk holds up nobody.
    ///
    /// Errors: those of what is asked; kubefold ends.
    pub async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&Self) -> Result<T, MirrorError> + Send + 'static,
    ) -> Result<T, MirrorError> {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || ask(&this)).await.unwrap_or(Err(MirrorError::Off))
    }

    /// Asks what whoever asks can do without, as [`Self::ask`] does.
    ///
    /// Errors: those of what is asked; the server that has the tables answers nobody.
    pub async fn ask_unless_silent<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&Self) -> Result<T, MirrorError> + Send + 'static,
    ) -> Result<T, MirrorError> {
        if self.state.is_none() {
            return self.ask(ask).await;
        }
        let asking = |question| {
            self.ask(move |mirror| {
                let _until_answered = question;
                ask(mirror)
            })
        };
        self.pulse.answered(asking).await.unwrap_or(Err(MirrorError::Silent))
    }

    /// Writes what a member told of a kind that is in the tables alone, in one transaction. `false`: what it adds to is not
    /// there, such as in a file that was begun anew.
    ///
    /// Errors: nothing of it is written; what was before stands.
    pub fn report(&self, feed: &MirroredKind, reports: Arc<[Report]>) -> Result<bool, MirrorError> {
        let written = self.file()?.report(feed, reports);
        self.noted(written)
    }

    /// One object of a kind that is in the tables alone, as its member gave it last.
    ///
    /// Errors: it is damaged, or the database refuses.
    pub fn stored(&self, feed: &MirroredKind, key: &str) -> Result<Option<String>, MirrorError> {
        self.file()?.stored(feed, key).inspect_err(|error| self.failed(error))
    }

    /// Says whether something is to be kept, with or without a file.
    pub fn is_wanted(&self) -> bool {
        self.config.enabled
    }

    /// Says whether there is a file to keep anything in.
    pub fn is_on(&self) -> bool {
        self.figures.lock().is_on
    }

    fn file(&self) -> Result<Arc<File>, MirrorError> {
        self.file.load_full().ok_or(MirrorError::Off)
    }

    /// Where the objects that are kept of a feed stand. `None`: none are, or not all.
    pub fn position(&self, feed: &MirroredKind) -> Option<KeptPosition> {
        let kept = self.file().ok()?.position(feed);
        kept.map_err(|error| self.failed(&error.into())).ok().flatten()
    }

    /// Objects of a feed behind a key, in the order of their keys; an empty page is behind the last.
    ///
    /// Errors: one of them is damaged, or the database refuses; what is kept of the feed is no more then.
    pub fn page(&self, feed: &MirroredKind, after: &str) -> Result<Vec<KeptObject>, MirrorError> {
        let file = self.file()?;
        file.page(feed, after).inspect_err(|error| {
            self.failed(error);
            self.forget(feed);
        })
    }

    /// Keeps what changed of a feed, and where that leads to, in one transaction. `false`: what it is to be added to is not
    /// there, such as in a file that was begun anew.
    ///
    /// Errors: nothing of it is kept; what was before stands.
    pub fn keep(&self, feed: &MirroredKind, changes: Changes) -> Result<bool, MirrorError> {
        let kept = self.file()?.keep(feed, changes);
        self.noted(kept)
    }

    /// Keeps all objects of a feed, as far as they are others than before. It is in one transaction if that is not much;
    /// otherwise nothing counts until all of it is there.
    ///
    /// Errors: nothing of the feed counts, or what was before stands.
    pub fn keep_all(
        &self,
        feed: &MirroredKind,
        position: &Position,
        documents: HashMap<String, MemberDocument>,
    ) -> Result<(), MirrorError> {
        let kept = self.file()?.keep_all(feed, position, documents);
        self.noted(kept)
    }

    /// Notes whether a member is followed of which nothing has changed.
    ///
    /// Errors: the database refuses.
    pub fn touch(&self, feed: &MirroredKind, is_followed: bool) -> Result<(), MirrorError> {
        let touched = self.file()?.touch(feed, is_followed);
        self.noted(touched)
    }

    /// Keeps nothing more of a feed.
    pub fn forget(&self, feed: &MirroredKind) {
        let forgotten = self.file().and_then(|file| Ok(file.forget(feed)?));
        if let Err(error) = forgotten {
            self.failed(&error);
        }
    }

    /// Says whether what is deleted of a kind is kept for a time.
    pub fn keeps_deleted(&self, gvr: &Gvr) -> bool {
        self.forgets_deleted(gvr).is_none()
    }

    /// Why what is deleted of a kind is not kept. `None`: it is.
    pub fn forgets_deleted(&self, gvr: &Gvr) -> Option<&'static str> {
        match () {
            () if self.config.keep_deleted.is_none() => Some("mirror.keepDeleted in clusters.yaml is not set"),
            () if is_secret(gvr) => Some("deleted Secrets never are"),
            () if !self.keeps(gvr) => Some("the mirror is disabled, or excludes it"),
            () => None,
        }
    }

    /// Finds one page of the objects of a kind that are looked for in SQL.
    ///
    /// Errors: one of them is damaged, or the database refuses.
    pub fn search(&self, query: &Query, of: &Selection<'_>) -> Result<FoundPage, MirrorError> {
        self.file()?.search(query, of).inspect_err(|error| self.failed(error))
    }

    /// The UIDs of all objects of a kind that match, whatever the page.
    ///
    /// Errors: the database refuses.
    pub fn uids(&self, query: &Query, of: &Selection<'_>) -> Result<Vec<String>, MirrorError> {
        let found = self.file()?.uids(query, of);
        self.noted(found)
    }

    /// The kinds of which something is kept.
    pub fn kinds(&self) -> Vec<Gvr> {
        let Ok(file) = self.file() else { return Vec::new() };
        file.kinds().map_err(|error| self.failed(&error.into())).unwrap_or_default()
    }

    /// What the members served.
    pub fn catalogs(&self) -> Vec<KeptCatalog> {
        let Ok(file) = self.file() else { return Vec::new() };
        file.catalogs().map_err(|error| self.failed(&error.into())).unwrap_or_default()
    }

    /// Keeps what a member serves.
    ///
    /// Errors: the database refuses.
    pub fn keep_catalog(&self, catalog: KeptCatalog) -> Result<(), MirrorError> {
        let kept = self.file()?.keep_catalog(catalog);
        self.noted(kept)
    }

    /// Everything that the stores had has been written.
    pub fn is_level(&self) {
        let file = self.file.load_full();
        let counted = file.as_ref().and_then(|file| file.counted());
        let trims = self.config.keep_deleted.is_some() && counted.is_some();
        if let Some(Err(error)) =
            file.filter(|_| trims).map(|file| file.trim_deleted(self.config.keep_deleted, self.config.bytes_max))
        {
            self.failed(&error.into());
        }
        self.figures.lock().level(counted);
    }

    /// Notes how many bytes the objects in memory have, where that is bounded; says once that it is too much.
    pub fn bounds(&self, held: impl FnOnce() -> u64) {
        if self.config.memory_max.is_none() {
            return;
        }
        let held = held();
        let mut figures = self.figures.lock();
        let Some(memory) = &mut figures.memory else { return };
        let was_over = memory.is_over();
        memory.held = held;
        if memory.is_over() && !was_over {
            let max = memory.max;
            tracing::warn!(
                held,
                max,
                "the objects in memory are more than mirror.memory: the next start has the largest kinds of mirror.storable in the mirror's tables alone"
            );
        }
    }

    /// What is kept, and how it goes.
    pub fn figures(&self) -> Figures {
        self.figures.lock().clone()
    }

    fn noted<T>(&self, outcome: Result<T, SqlError>) -> Result<T, MirrorError> {
        outcome.map_err(|error| {
            let error = MirrorError::from(error);
            self.failed(&error);
            error
        })
    }

    /// Says once what is wrong. A damaged file is replaced.
    fn failed(&self, error: &MirrorError) {
        match error {
            MirrorError::Sql(cause) if cause.is_damaged() => {
                if self.file.swap(None).is_some() {
                    let file = self.begin_anew(cause);
                    self.file.store(file.map(Arc::new));
                }
            }
            MirrorError::Off => {}
            error => {
                if self.figures.lock().fail(error) {
                    tracing::error!(%error, "the mirror cannot be kept: a restart may have to list members anew");
                }
            }
        }
    }
}

/// Says whether a file is no mirror. A newer version's may be wanted again, and a disk that refuses would refuse a new file, too.
fn is_damaged(error: &OpenError) -> bool {
    match error {
        OpenError::Sql { cause, .. } => !cause.is_of_place(),
        OpenError::Newer { .. } | OpenError::Io { .. } => false,
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
