//! The journal: unfinished multi-part writes, in the state directory.
//!
//! A write is in it, synced to disk, before the first member is asked to change anything, and leaves it when every part is
//! made, undone or given up. So a killed kubefold knows at its next start what may stand half-made, and *behind* is no more
//! than: named by an open entry. A journal that is lost costs that knowledge and nothing else: parts say by their markers
//! what they are.

mod earlier;
mod placement;
mod placements;
mod record;
mod sealed;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use kubefold_sql::KeyFile;
use kubefold_sql::{RemoteState, SqlError};
use parking_lot::Mutex;
use tokio::time::Instant;

pub use crate::write::journal::{
    placement::{Goal, Overriding, Placement, Stage, Wanted},
    record::{Amended, Before, Entry, EntryTarget, Everywhere, Listed, Step, Verb},
    sealed::DamagedRecord,
    table::{FILE, JournalOpenError, SCHEMA},
};
use crate::{
    config::MemberName,
    write::{
        fleet::Key,
        journal::{
            record::Begun,
            table::{Opened, Table},
        },
    },
};
use kubefold_serving::audit;

/// How many writes may be unfinished at once. Deletes are always admitted: each ends all else that is open of its object.
pub const ENTRIES_MAX: usize = 1 << 16;
/// Units: bytes of all open entries together.
pub const BYTES_MAX: usize = 256 << 20;
/// How many writes to one object may be unfinished at once.
pub const ENTRIES_OF_ONE_MAX: usize = 256;

/// Why a write cannot be entered, so that it must not begin.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk or the database refuses.
    #[error("nothing was changed, since the journal cannot be written: {0}")]
    Sql(#[from] SqlError),
    /// The program ends.
    #[error("the journal is not written any more: {0}")]
    Ended(#[from] tokio::task::JoinError),
    /// Too much is unfinished.
    #[error("{ENTRIES_MAX} writes, or {BYTES_MAX} bytes of them, are unfinished already: is a member down?")]
    Full,
    /// Too much is unfinished of one object.
    #[error("{ENTRIES_OF_ONE_MAX} writes to this object are unfinished already, in {}: is a member down? It can be deleted", names(.0))]
    Behind(Vec<MemberName>),
}

fn names(members: &[MemberName]) -> String {
    members.iter().map(|name| format!("member {name}")).collect::<Vec<_>>().join(", ")
}

/// The journal. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    table: Table,
    state: Option<Arc<RemoteState>>,
    inner: Arc<Mutex<Inner>>,
}

/// Hears in which members an object is behind, whenever an entry about it changes.
type Observer = Arc<Mutex<dyn Fn(&Key, &str, &[MemberName]) + Send>>;

/// What the table holds, and what is known of it besides.
#[derive(Default)]
struct Inner {
    open: BTreeMap<u64, Open>,
    /// Placements that have moved or are moving, by UID.
    placements: BTreeMap<String, Placement>,
    /// Placements whose parts are to get the overrides of now, by UID.
    overridings: BTreeMap<String, Overriding>,
    /// The kinds of which an object was ever placed, when this was opened: group and kind.
    placed_kinds: BTreeSet<(String, String)>,
    /// Members that get nothing new.
    cordoned: BTreeSet<MemberName>,
    /// The entries about each key.
    about: HashMap<About, BTreeSet<u64>>,
    /// Units: bytes of all entries.
    bytes: usize,
    last: u64,
    /// What could not be read when this was opened.
    damaged: Vec<DamagedRecord>,
    observer: Option<Observer>,
}

/// A key in any version: group, resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct About([Arc<str>; 4]);

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("open", &self.open).finish_non_exhaustive()
    }
}

/// One unfinished write, for people.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The entry.
    pub entry: Entry,
    /// When it began. Units: seconds since 1970; 0 where an older kubefold did not note it.
    pub begun_at: u64,
}

#[derive(Debug)]
struct Open {
    begun: Begun,
    bytes: usize,
    began: Instant,
    /// No byte of the entry's mutations was sent later. For one that was read from disk: when it was read.
    last_byte: Instant,
}

impl Journal {
    /// Opens the journal in a directory, or begins one. Its records are encrypted with the key of `key`.
    ///
    /// Blocks; to be called at start. Errors: the directory or the database cannot be read and written; the key is not theirs.
    pub fn open(directory: &Path, key: &KeyFile) -> Result<Self, JournalOpenError> {
        Self::of(Table::open(directory, key)?)
    }

    /// Opens the journal on a server, or begins one, as [`Self::open`] does.
    ///
    /// Blocks; to be called at start. Errors: the database cannot be read and written; the key is not its.
    pub fn open_in(state: &Arc<RemoteState>, key: &KeyFile) -> Result<Self, JournalOpenError> {
        let opened = Table::open_in(state, key)?;
        Ok(Self { state: Some(Arc::clone(state)), ..Self::of(opened)? })
    }

    /// Opens the journal on a server, with what the journal in a directory has in place of its own.
    ///
    /// Blocks. Errors: those of [`Self::open`] and of [`Self::open_in`].
    pub fn take_over(directory: &Path, state: &Arc<RemoteState>, key: &KeyFile) -> Result<Self, JournalOpenError> {
        let opened = Table::take_over(directory, state, key)?;
        Ok(Self { state: Some(Arc::clone(state)), ..Self::of(opened)? })
    }

    /// The database, and how it goes with it. `None`: the journal is in the state directory.
    pub fn state(&self) -> Option<&Arc<RemoteState>> {
        self.state.as_ref()
    }

    /// Says whether a write may begin now: whether this process has the state. Costs nothing.
    ///
    /// Errors: why it may not.
    pub fn check(&self) -> Result<(), JournalError> {
        Ok(self.state.as_ref().map_or(Ok(()), |state| state.check())?)
    }

    fn of(opened: Opened) -> Result<Self, JournalOpenError> {
        let Opened { table, unfinished, placements, overridings, damaged, last, place } = opened;
        let mut inner = Inner { last, ..Inner::default() };
        for begun in unfinished {
            // An entry remembers by number which others it has taken in.
            let remembered = begun.entry.amended.iter().flat_map(|amended| &amended.by);
            inner.last = remembered.fold(inner.last.max(begun.entry.id), |last, id| last.max(*id));
            inner.insert(begun);
        }
        let of_sql = |cause| JournalOpenError::Sql { place: place.clone(), cause };
        damaged.iter().for_each(|damaged| tracing::error!("{damaged}"));
        inner.damaged = damaged;
        inner.placements = placements.into_iter().map(|placement| (placement.uid.clone(), placement)).collect();
        inner.overridings = overridings.into_iter().map(|one| (one.uid.clone(), one)).collect();
        inner.cordoned = table.cordoned().map_err(of_sql)?;
        inner.placed_kinds = table.placed_kinds().map_err(of_sql)?;
        Ok(Self { table, state: None, inner: Arc::new(Mutex::new(inner)) })
    }

    /// Enters a write again of which nothing was sent for so long.
    ///
    /// Errors: as of [`Self::begin`].
    pub async fn begin_again(&self, entry: Entry, silent: Duration) -> Result<Entry, JournalError> {
        let entry = self.begin(entry).await?;
        if let Some(open) = self.inner.lock().open.get_mut(&entry.id) {
            open.last_byte = open.last_byte.checked_sub(silent).unwrap_or(open.last_byte);
        }
        Ok(entry)
    }

    /// Enters a write. When it returns, the entry is on disk.
    ///
    /// Errors: it is not entered, and the write must not begin.
    pub async fn begin(&self, mut entry: Entry) -> Result<Entry, JournalError> {
        entry.audit_id = audit::current().and_then(|id| Some(id.to_str().ok()?.to_owned()));
        let this = self.clone();
        blocking(move || {
            let begun_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let begun = this.inner.lock().enter(entry, begun_at)?;
            this.table.begin(&begun).inspect_err(|error| {
                if error.is_outcome_unknown() {
                    // It may be there, and nothing will be done by it.
                    this.table.finish(begun.entry.id);
                }
            })?;
            let entry = begun.entry.clone();
            this.inner.lock().insert(begun);
            this.tell(&entry.key, &entry.uid);
            Ok(entry)
        })
        .await
    }

    /// Notes how far the part in `member` came. When it returns, the operating system has it.
    pub async fn step(&self, id: u64, member: &MemberName, step: Step) {
        let Some(target) = self.set(id, member, step) else { return };
        self.note(move |this| this.table.step(id, &target)).await;
    }

    /// Notes that something of writes is about to be sent to a member to which nothing of them had come: if the process is killed before
    /// it notes what came of that, it may have been done. When it returns, the operating system has it.
    pub async fn sending(&self, ids: &[u64], member: &MemberName) {
        let failed: Vec<u64> = {
            let inner = self.inner.lock();
            let step_of = |id: &u64| {
                let targets = &inner.open.get(id)?.begun.entry.targets;
                targets.iter().find(|target| target.member == *member).map(|target| &target.step)
            };
            ids.iter().filter(|id| matches!(step_of(id), Some(Step::Failed(_)))).copied().collect()
        };
        for id in failed {
            self.step(id, member, Step::Planned).await;
        }
    }

    /// Notes a step with the journal's next commit: if the process is killed before, the member is asked again.
    pub fn step_later(&self, id: u64, member: &MemberName, step: Step) {
        if let Some(target) = self.set(id, member, step) {
            let inner = Arc::downgrade(&self.inner);
            let is_closed = move || inner.upgrade().is_some_and(|inner| !inner.lock().open.contains_key(&id));
            self.table.step_later(id, target, is_closed);
        }
    }

    fn set(&self, id: u64, member: &MemberName, step: Step) -> Option<EntryTarget> {
        let mut inner = self.inner.lock();
        let open = inner.open.get_mut(&id)?;
        open.begun.entry.set(member, step);
        open.last_byte = Instant::now();
        let Entry { key, uid, targets, .. } = &open.begun.entry;
        let target = targets.iter().find(|target| target.member == *member).cloned();
        let (key, uid) = (key.clone(), uid.clone());
        drop(inner);
        self.tell(&key, &uid);
        target
    }

    /// Gives an open entry the body, the parts' own values and the amendment of this one. When it returns, that is on disk.
    pub async fn amend(&self, amended: Entry) {
        self.supersede(vec![amended], Vec::new()).await;
    }

    /// Amends open entries, and closes others whose work these have taken over. When it returns, that is on disk: all of it, or, if
    /// the process is killed before, nothing.
    pub(in crate::write) async fn supersede(&self, amended: Vec<Entry>, over: Vec<u64>) {
        self.note(move |this| {
            let mut inner = this.inner.lock();
            let begun: Vec<Begun> = amended.into_iter().filter_map(|amended| inner.amend(amended)).collect();
            let closed: Vec<Open> = over.iter().filter_map(|id| inner.remove(*id)).collect();
            drop(inner);
            let replaced = this.table.replace(&begun, over);
            closed.iter().map(|open| &open.begun.entry).for_each(|entry| this.tell(&entry.key, &entry.uid));
            replaced
        })
        .await;
    }

    /// Ends what else is open of the object of a delete that its home has made. When it returns, that is on disk.
    pub(in crate::write) async fn end_others(&self, delete: &Entry) {
        let others: Vec<u64> = {
            let inner = self.inner.lock();
            let is_other = |entry: &&Entry| entry.uid == delete.uid && entry.id != delete.id;
            inner.about(&delete.key).filter(is_other).map(|entry| entry.id).collect()
        };
        if !others.is_empty() {
            self.supersede(Vec::new(), others).await;
        }
    }

    /// Gives an open entry the members' names of this one. When it returns, that is on disk.
    pub(in crate::write) async fn rename(&self, renamed: Entry) {
        self.note(move |this| {
            let mut inner = this.inner.lock();
            let Some(mut open) = inner.remove(renamed.id) else { return Ok(()) };
            open.begun.entry = renamed;
            let begun = open.begun.clone();
            inner.put(open);
            drop(inner);
            this.table.replace(std::slice::from_ref(&begun), Vec::new())?;
            // A step is kept by the member's name.
            begun.entry.targets.iter().try_for_each(|target| this.table.step(begun.entry.id, target))?;
            this.tell(&begun.entry.key, &begun.entry.uid);
            Ok(())
        })
        .await;
    }

    /// Closes an entry. It leaves the disk with the next commit: if the process is killed before, the members are asked again.
    pub fn finish(&self, id: u64) {
        let Some(closed) = self.inner.lock().remove(id) else { return };
        self.table.finish(id);
        self.tell(&closed.begun.entry.key, &closed.begun.entry.uid);
    }

    /// Notes an object that is to be in every member, those that join later included. Of one that is known the members are added.
    pub async fn keep_everywhere(&self, made: Everywhere) {
        self.note(move |this| this.table.keep_everywhere(made)).await;
    }

    /// Forgets that an object is to be in every member.
    pub async fn forget_everywhere(&self, key: &Key, uid: &str) {
        let (key, uid) = (key.clone(), uid.to_owned());
        self.note(move |this| this.table.forget_everywhere(&key, &uid)).await;
    }

    /// The objects that are to be in every member.
    pub async fn everywhere(&self) -> Vec<Everywhere> {
        let table = self.table.clone();
        let read: Result<_, JournalError> = blocking(move || Ok(table.everywhere()?)).await;
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, "the journal cannot be read");
            Vec::new()
        })
    }

    async fn note(&self, work: impl FnOnce(&Self) -> Result<(), SqlError> + Send + 'static) {
        let this = self.clone();
        let noted: Result<(), JournalError> = blocking(move || Ok(work(&this)?)).await;
        if let Err(error) = noted {
            table::unnoted(error);
        }
    }

    /// Tells the observer what is so when it is told: of two who tell, the later one tells the later state.
    fn tell(&self, key: &Key, uid: &str) {
        let Some(observer) = self.inner.lock().observer.clone() else { return };
        let observer = observer.lock();
        let behind = self.behind(key, uid);
        observer(key, uid, &behind);
    }

    /// Has `observer` hear from now on in which members an object is behind, whenever an entry about it changes. Called
    /// without the journal's lock, from a thread that may block.
    pub fn observe(&self, observer: impl Fn(&Key, &str, &[MemberName]) + Send + 'static) {
        self.inner.lock().observer = Some(Arc::new(Mutex::new(observer)));
    }

    /// The unfinished writes, oldest first, and since when they are.
    pub fn unfinished(&self) -> Vec<Unfinished> {
        let inner = self.inner.lock();
        let open = inner.open.values().map(|open| &open.begun);
        open.map(|begun| Unfinished { entry: begun.entry.clone(), begun_at: begun.begun_at }).collect()
    }

    /// What could not be read when this was opened.
    pub fn damaged(&self) -> Vec<DamagedRecord> {
        self.inner.lock().damaged.clone()
    }

    /// The unfinished writes, oldest first.
    pub fn open_entries(&self) -> Vec<Entry> {
        self.inner.lock().open.values().map(|open| open.begun.entry.clone()).collect()
    }

    /// One unfinished write, and since when no byte of it was sent.
    pub fn open_entry(&self, id: u64) -> Option<(Entry, Instant)> {
        self.inner.lock().open.get(&id).map(|open| (open.begun.entry.clone(), open.last_byte))
    }

    /// When an unfinished write began; of one that was read from disk: when it was read.
    pub fn began(&self, id: u64) -> Option<Instant> {
        self.inner.lock().open.get(&id).map(|open| open.began)
    }

    /// The unfinished create of that name, whichever object it makes.
    pub fn open_create(&self, key: &Key) -> Option<Entry> {
        self.inner.lock().about(key).find(|entry| entry.verb == Verb::Create).cloned()
    }

    /// The unfinished creates of an object: it is to get parts still.
    pub fn open_creates(&self, key: &Key, uid: &str) -> Vec<Entry> {
        let inner = self.inner.lock();
        inner.about(key).filter(|entry| entry.verb == Verb::Create && entry.uid == uid).cloned().collect()
    }

    /// The unfinished updates of an object, oldest first.
    pub fn open_updates(&self, key: &Key, uid: &str) -> Vec<Entry> {
        let inner = self.inner.lock();
        inner.about(key).filter(|entry| entry.verb == Verb::Update && entry.uid == uid).cloned().collect()
    }

    /// The members in which a delete of an object is not finished. `None`: there is no such delete.
    pub fn deleting(&self, key: &Key, uid: &str) -> Option<Vec<MemberName>> {
        let inner = self.inner.lock();
        let mut about = inner.about(key).filter(|entry| entry.verb == Verb::Delete && entry.uid == uid);
        about.next().map(|delete| delete.unfinished().collect())
    }

    /// The parts that open entries say an object has, or may have.
    pub fn open_targets(&self, key: &Key, uid: &str) -> Vec<EntryTarget> {
        let inner = self.inner.lock();
        inner.about(key).filter(|entry| entry.uid == uid).flat_map(|entry| entry.targets.iter().cloned()).collect()
    }

    /// The members in which an object is behind: its open entries name them as not done.
    pub fn behind(&self, key: &Key, uid: &str) -> Vec<MemberName> {
        self.inner.lock().behind(key, uid)
    }
}

impl Inner {
    /// The open entries about a key, oldest first.
    fn about(&self, key: &Key) -> impl Iterator<Item = &Entry> {
        let ids = self.about.get(&About::of(key)).into_iter().flatten();
        ids.filter_map(|id| self.open.get(id)).map(|open| &open.begun.entry)
    }

    fn behind(&self, key: &Key, uid: &str) -> Vec<MemberName> {
        let about = self.about(key).filter(|entry| entry.uid == uid);
        let unfinished: BTreeSet<MemberName> = about.flat_map(Entry::unfinished).collect();
        unfinished.into_iter().collect()
    }

    /// Gives a new entry its number.
    fn enter(&mut self, mut entry: Entry, begun_at: u64) -> Result<Begun, JournalError> {
        let of_object = self.about(&entry.key).filter(|known| known.uid == entry.uid).count();
        let is_delete = entry.verb == Verb::Delete;
        if !is_delete && of_object >= ENTRIES_OF_ONE_MAX {
            return Err(JournalError::Behind(self.behind(&entry.key, &entry.uid)));
        }
        if !is_delete && (self.open.len() >= ENTRIES_MAX || self.bytes + entry.size() > BYTES_MAX) {
            return Err(JournalError::Full);
        }
        self.last += 1;
        entry.id = self.last;
        Ok(Begun { entry, begun_at })
    }

    fn insert(&mut self, begun: Begun) {
        let now = Instant::now();
        self.put(Open { bytes: begun.entry.size(), began: now, last_byte: now, begun });
    }

    /// Gives what the table is to have of an amended entry. `None`: it is closed.
    fn amend(&mut self, amended: Entry) -> Option<Begun> {
        let mut open = self.remove(amended.id)?;
        let entry = &mut open.begun.entry;
        (entry.body, entry.amended) = (amended.body, amended.amended);
        for (target, amended) in entry.targets.iter_mut().zip(amended.targets) {
            (target.values, target.whole) = (amended.values, amended.whole);
        }
        let begun = open.begun.clone();
        self.put(Open { bytes: begun.entry.size(), ..open });
        Some(begun)
    }

    fn put(&mut self, open: Open) {
        let Entry { id, key, .. } = &open.begun.entry;
        self.about.entry(About::of(key)).or_default().insert(*id);
        self.bytes += open.bytes;
        self.open.insert(*id, open);
    }

    fn remove(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.bytes -= open.bytes;
        let about = About::of(&open.begun.entry.key);
        if let Some(ids) = self.about.get_mut(&about) {
            ids.remove(&id);
            if ids.is_empty() {
                self.about.remove(&about);
            }
        }
        Some(open)
    }
}

impl About {
    fn of(key: &Key) -> Self {
        let Key { gvr, namespace, name, .. } = key;
        Self([Arc::clone(&gvr.group), Arc::clone(&gvr.resource), namespace.as_str().into(), name.as_str().into()])
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use kubefold_sql::Server;
    use sha2::{Digest, Sha256};
    use tempfile::TempDir;

    use super::*;
    use crate::placement::divided::Value;
    use kubefold_serving::caller::Caller;
    use kubefold_wire::resource::{Gvk, Gvr};

    pub(super) fn member(name: &str) -> MemberName {
        MemberName::new(name).unwrap()
    }

    pub(super) fn opened(directory: &TempDir) -> Journal {
        Journal::open(directory.path(), &KeyFile::new(None, directory.path())).unwrap()
    }

    pub(super) fn entry(name: &str, verb: Verb) -> Entry {
        let key = Key {
            gvr: Gvr::new("apps", "v1", "deployments"),
            gvk: Gvk::new("apps", "v1", "Deployment"),
            namespace: "default".into(),
            name: name.into(),
        };
        let target = |name: &str| EntryTarget {
            values: vec![Value { pointer: "/spec/replicas".into(), number: 1.into() }],
            ..EntryTarget::new(member(name), format!("c-{name}"))
        };
        Entry {
            query: "fieldManager=x".into(),
            user_agent: Some("kubectl".into()),
            body: "{\"a\": \"\\n\"}".into(),
            targets: ["east", "west"].map(target).to_vec(),
            listed: vec![Listed { member: member("north"), cluster_uid: "c-north".into() }],
            policy: Some("shop".into()),
            ..Entry::new(
                verb,
                key,
                "u".into(),
                Caller { user: "ann".into(), groups: vec!["g".into()], ..Caller::default() },
            )
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_of_an_entry_that_is_closed_meanwhile_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let begun = opened(&directory).begin(entry("a", Verb::Update)).await.unwrap();
        let done = EntryTarget { step: Step::Done { uid: None }, ..begun.targets[0].clone() };
        for (is_closed, step) in [(true, Step::Planned), (false, Step::Done { uid: None })] {
            opened(&directory).table.step_later(begun.id, done.clone(), move || is_closed);
            assert_eq!(opened(&directory).open_entries()[0].targets[0].step, step);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn in_postgresql_it_keeps_what_it_keeps_in_a_file() {
        let server = testbed::PostgresServer::start();
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        let tls = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
        let of = Server::postgres(&server.database("journal", None), tls.with_no_client_auth()).unwrap();
        let clear = "SELECT count(*) FROM kubefold.journal_entries WHERE encode(entry, 'escape') LIKE '%kubectl%'";
        let clear = || server.sql_in("journal", clear);
        keeps_what_it_keeps_in_a_file(&of, &clear, "drop the schemas kubefold and kubefold_own").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn in_mysql_it_keeps_what_it_keeps_in_a_file() {
        let server = testbed::MariadbServer::start();
        let of = Server::mysql(&server.url("journal"), kubefold_sql::mysql::MysqlTls::default()).unwrap();
        let clear = "SELECT count(*) FROM journal.kubefold_journal_entries WHERE entry LIKE '%kubectl%'";
        let clear = || server.sql(clear);
        keeps_what_it_keeps_in_a_file(&of, &clear, "drop the tables whose names begin with kubefold_").await;
    }

    /// `clear` counts the entries with text that can be read.
    async fn keeps_what_it_keeps_in_a_file(server: &Server, clear: &dyn Fn() -> String, without_key: &str) {
        let directory = tempfile::tempdir().unwrap();
        let opened = || {
            let state = RemoteState::open(server.clone(), &[SCHEMA], directory.path().join("mark")).unwrap();
            Journal::open_in(&state, &KeyFile::new(None, directory.path()))
        };
        let journal = opened().unwrap();
        let a = journal.begin(entry("a", Verb::Create)).await.unwrap();
        let b = journal.begin(entry("b", Verb::Create)).await.unwrap();
        for step in [Step::Unknown("it did not answer".into()), Step::Failed("it is down".into())] {
            journal.step(b.id, &member("east"), step).await;
        }
        journal.step_later(b.id, &member("west"), Step::Done { uid: Some("w".into()) });
        // What is closed stays closed.
        journal.step(b.id + 7, &member("west"), Step::Planned).await;
        journal.finish(a.id);
        journal.amend(Entry { body: "{\"a\":2}".to_owned(), ..b.clone() }).await;
        journal.cordon(&member("east"), true).await.unwrap();
        journal.cordon(&member("east"), true).await.unwrap();
        let mut made = Everywhere {
            key: b.key.clone(),
            uid: "u".into(),
            caller: b.caller.clone(),
            query: String::new(),
            user_agent: None,
            members: b.listed.clone(),
        };
        journal.keep_everywhere(made.clone()).await;
        made.members = vec![Listed { member: member("south"), cluster_uid: "c-south".into() }];
        journal.keep_everywhere(made).await;
        drop(journal);
        let journal = opened().unwrap();
        let open = journal.open_entries();
        assert_eq!((open.len(), &*open[0].body, open[0].id), (1, "{\"a\":2}", b.id));
        assert_eq!(open[0].targets[1].step, Step::Done { uid: Some("w".into()) });
        assert!(open[0].targets[0].uncertain && !open[0].targets[1].uncertain);
        assert_eq!(journal.cordoned(), BTreeSet::from([member("east")]));
        assert_eq!(journal.placed_kinds(), BTreeSet::from([("apps".to_owned(), "Deployment".to_owned())]));
        assert_eq!(journal.everywhere().await[0].members.len(), 2);
        journal.forget_everywhere(&b.key, "u").await;
        journal.cordon(&member("east"), false).await.unwrap();
        assert_eq!((journal.everywhere().await.len(), journal.cordoned().len()), (0, 0));
        // Bodies are encrypted there, too.
        assert_eq!(clear(), "0");
        drop(journal);
        // What a file has is taken over in place of it.
        let (file, key) = (tempfile::tempdir().unwrap(), directory.path().join("state.key"));
        let in_file = Journal::open(file.path(), &KeyFile::new(Some(key.clone()), file.path())).unwrap();
        let moved = in_file.begin(entry("moved", Verb::Create)).await.unwrap();
        in_file.cordon(&member("west"), true).await.unwrap();
        drop(in_file);
        let state = RemoteState::open(server.clone(), &[SCHEMA], directory.path().join("mark")).unwrap();
        let journal = Journal::take_over(file.path(), &state, &KeyFile::new(Some(key.clone()), file.path())).unwrap();
        assert_eq!(journal.open_entries().iter().map(|open| open.id).collect::<Vec<_>>(), [moved.id]);
        assert_eq!(journal.cordoned(), BTreeSet::from([member("west")]));
        drop((journal, state));
        fs::remove_file(key).unwrap();
        let error = opened().unwrap_err();
        assert!(error.is_of_key() && error.to_string().contains(without_key), "{error}");
    }

    #[tokio::test]
    async fn what_is_open_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        let (a, b) = (entry("a", Verb::Create), entry("b", Verb::Create));
        let a = journal.begin(a).await.unwrap();
        let b = journal.begin(b).await.unwrap();
        journal.step(b.id, &member("west"), Step::Done { uid: Some("w".into()) }).await;
        journal.finish(a.id);
        drop(journal);
        for _ in 0..2 {
            let journal = opened(&directory);
            let open = journal.open_entries();
            assert_eq!(open.len(), 1);
            assert_eq!(open[0].targets[1].step, Step::Done { uid: Some("w".into()) });
            assert_eq!((&open[0].caller, &open[0].body, &open[0].key), (&b.caller, &b.body, &b.key));
            assert_eq!(journal.behind(&b.key, "u"), [member("east")]);
        }
        let mode = fs::metadata(directory.path().join("state.db")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = opened(&directory).begin(entry("c", Verb::Create)).await.unwrap();
        assert!(next.id > b.id);
    }

    #[tokio::test]
    async fn an_amended_body_is_on_disk_and_nothing_else_of_the_entry_changes() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        let a = journal.begin(entry("a", Verb::Create)).await.unwrap();
        let b = journal.begin(entry("b", Verb::Create)).await.unwrap();
        let done = Step::Done { uid: Some("w".into()) };
        journal.step(a.id, &member("west"), done.clone()).await;
        let stands = |journal: &Journal, body: &str| {
            let open = journal.open_entries();
            let bodies: Vec<_> = open.iter().map(|entry| (entry.id, entry.body.as_str())).collect();
            assert_eq!(bodies, [(a.id, body), (b.id, b.body.as_str())]);
            assert_eq!((&open[0].targets[1].step, &open[0].caller), (&done, &a.caller));
            assert_eq!(journal.behind(&a.key, "u"), [member("east")]);
        };
        let mut journal = journal;
        for body in ["{\"a\":2}", "{\"a\":3}"] {
            let mut amended = Entry { body: body.to_owned(), ..a.clone() };
            amended.targets[0].whole = Some(body.to_owned());
            journal.amend(amended).await;
            stands(&journal, body);
            drop(journal);
            journal = opened(&directory);
            stands(&journal, body);
            assert_eq!(journal.open_entries()[0].targets[0].whole.as_deref(), Some(body));
        }
        // What is closed stays closed, and what never was does not come to be.
        journal.finish(a.id);
        journal.amend(Entry { body: "{}".to_owned(), ..a }).await;
        journal.amend(Entry { id: b.id + 1, body: "{}".to_owned(), ..b.clone() }).await;
        drop(journal);
        let left: Vec<_> = opened(&directory).open_entries();
        assert_eq!(left.iter().map(|entry| entry.id).collect::<Vec<_>>(), [b.id]);
    }

    #[tokio::test]
    async fn entries_end_in_one_step_with_the_amendment_that_takes_their_place() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        let a = journal.begin(entry("a", Verb::Update)).await.unwrap();
        let b = journal.begin(entry("a", Verb::Update)).await.unwrap();
        let c = journal.begin(entry("a", Verb::Update)).await.unwrap();
        let with = |body: &str, entry: &Entry| Entry { body: body.to_owned(), ..entry.clone() };
        journal.supersede(vec![with("1", &b), with("2", &c)], vec![a.id, c.id + 1]).await;
        // What a process finds that starts now, whenever this one is killed.
        for journal in [&opened(&directory), &journal] {
            let open = journal.open_entries();
            let open: Vec<_> = open.iter().map(|entry| (entry.id, entry.body.as_str())).collect();
            assert_eq!(open, [(b.id, "1"), (c.id, "2")]);
        }
    }

    #[tokio::test]
    async fn what_may_have_been_done_in_a_member_stays_known() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        let entry = journal.begin(entry("a", Verb::Update)).await.unwrap();
        let is = |journal: &Journal| -> Vec<bool> {
            journal.open_entries()[0].targets.iter().map(|target| target.uncertain).collect()
        };
        journal.step(entry.id, &member("east"), Step::Failed("it is down".into())).await;
        assert_eq!(is(&journal), [false, false]);
        // Nobody knows what a process sent that ended before it noted an outcome.
        assert_eq!(is(&opened(&directory)), [false, true]);
        for step in [Step::Unknown("it did not answer".into()), Step::Failed("it is down".into())] {
            journal.step(entry.id, &member("east"), step).await;
        }
        assert_eq!(is(&journal), [true, false]);
        assert_eq!(is(&opened(&directory)), [true, true]);
    }

    #[tokio::test]
    async fn what_an_earlier_version_left_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let line = |record: &str| {
            let sum = Sha256::digest(record).iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            format!("{:08x} {sum:016x} {record}\n", record.len())
        };
        let begun = |id: u64, name: &str| {
            let entry = Entry { id, ..entry(name, Verb::Update) };
            line(&format!("{{\"Begun\":{}}}", serde_json::to_string(&Begun { entry, begun_at: 7 }).unwrap()))
        };
        let step = line(r#"{"Step":{"id":2,"member":"west","step":{"Failed":"it is down"}}}"#);
        let torn = &begun(4, "torn")[..100];
        let text = [&begun(1, "a"), &begun(2, "b"), &step, &line(r#"{"Finished":{"id":1}}"#), torn].map(String::from);
        fs::write(directory.path().join("journal"), text.concat()).unwrap();
        for _ in 0..2 {
            let journal = opened(&directory);
            let [open] = &*journal.unfinished() else { panic!("{journal:?}") };
            assert_eq!((open.entry.id, &*open.entry.key.name, open.begun_at), (2, "b", 7));
            assert_eq!(open.entry.targets[1].step, Step::Failed("it is down".into()));
            assert!(!directory.path().join("journal").exists());
        }
    }

    #[tokio::test]
    async fn it_is_bounded_for_each_object_and_in_all_and_takes_every_delete() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        for _ in 0..ENTRIES_OF_ONE_MAX {
            journal.begin(entry("a", Verb::Update)).await.unwrap();
        }
        let full = journal.begin(entry("a", Verb::Update)).await.unwrap_err();
        assert!(full.to_string().contains("unfinished already, in member east, member west"), "{full}");
        journal.begin(entry("b", Verb::Update)).await.unwrap();
        let delete = journal.begin(entry("a", Verb::Delete)).await.unwrap();
        assert_eq!(journal.open_entries().len(), ENTRIES_OF_ONE_MAX + 2);
        journal.end_others(&delete).await;
        assert_eq!(journal.open_entries().len(), 2);
        journal.finish(delete.id);
        journal.inner.lock().bytes = BYTES_MAX;
        let full = journal.begin(entry("c", Verb::Create)).await.unwrap_err();
        assert!(matches!(full, JournalError::Full), "{full}");
        journal.begin(entry("b", Verb::Delete)).await.unwrap();
    }

    #[tokio::test]
    async fn what_ends_is_not_counted_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        let large = Entry { body: "x".repeat(3 << 20), ..entry("a", Verb::Create) };
        for _ in 0..3 {
            let entry = journal.begin(large.clone()).await.unwrap();
            journal.amend(Entry { body: "x".repeat(5 << 20), ..entry.clone() }).await;
            assert!(journal.inner.lock().bytes > 5 << 20);
            journal.finish(entry.id);
        }
        let inner = journal.inner.lock();
        assert_eq!((inner.bytes, inner.about.len(), inner.open.len()), (0, 0, 0));
    }
}
