//! The journal: unfinished multi-part writes, in the state directory.
//!
//! A write is in it, synced to disk, before the first member is asked to change anything, and leaves it when every part is
//! made, undone or given up. So a killed kubefold knows at its next start what may stand half-made, and *behind* is no more
//! than: named by an open entry. A journal that is lost costs that knowledge and nothing else: parts say by their markers
//! what they are.

mod file;
mod record;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use tokio::time::Instant;

pub use crate::write::journal::record::{Amended, Before, Entry, EntryTarget, Listed, Step, Verb};
use crate::{
    config::MemberName,
    write::{
        fleet::Key,
        journal::{
            file::File,
            record::{Begun, Record},
        },
    },
};
use kubefold_serving::audit;

/// How many writes may be unfinished at once.
pub const ENTRIES_MAX: usize = 1024;
/// Units: bytes of all open entries together.
pub const BYTES_MAX: usize = 64 << 20;

/// Why a write cannot be entered, so that it must not begin.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk refuses.
    #[error("the journal in the state directory cannot be written: {0}")]
    Io(#[from] io::Error),
    /// Too much is unfinished.
    #[error("{ENTRIES_MAX} writes, or {BYTES_MAX} bytes of them, are unfinished already: is a member down?")]
    Full,
}

/// The journal. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<Inner>>);

/// Hears in which members an object is behind, whenever an entry about it changes.
type Observer = Arc<Mutex<dyn Fn(&Key, &str, &[MemberName]) + Send>>;

struct Inner {
    file: File,
    open: BTreeMap<u64, Open>,
    next: u64,
    observer: Option<Observer>,
}

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
    entry: Entry,
    bytes: usize,
    begun_at: u64,
    began: Instant,
    /// No byte of the entry's mutations was sent later. For one that was read from disk: when it was read.
    last_byte: Instant,
}

impl Journal {
    /// Opens the journal in a directory, or begins one. What a crash left torn is dropped.
    ///
    /// Blocks; to be called at start. Errors: the directory or the file cannot be read and written.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let (mut file, records) = File::open(directory)?;
        let now = Instant::now();
        let mut open: BTreeMap<u64, Open> = BTreeMap::new();
        let mut next = 1;
        for (record, bytes) in records {
            match record {
                Record::Begun(begun) => {
                    let Begun { entry, begun_at } = *begun;
                    next = next.max(entry.id.saturating_add(1));
                    open.insert(entry.id, Open { entry, bytes, begun_at, began: now, last_byte: now });
                }
                Record::Step { id, member, step } => {
                    if let Some(open) = open.get_mut(&id) {
                        open.entry.set(&member, step);
                    }
                }
                Record::Finished { id } => {
                    open.remove(&id);
                }
            }
        }
        // An entry remembers by number which others it has taken in.
        let remembered = open.values().filter_map(|open| open.entry.amended.as_ref()).flat_map(|amended| &amended.by);
        next = remembered.fold(next, |next, id| next.max(id.saturating_add(1)));
        file.compact(open.values().map(Open::record))?;
        Ok(Self(Arc::new(Mutex::new(Inner { file, open, next, observer: None }))))
    }

    /// Enters a write. When it returns, the entry is on disk. A delete drops what earlier entries say of its object.
    ///
    /// Errors: it is not entered, and the write must not begin.
    pub async fn begin(&self, mut entry: Entry) -> Result<Entry, JournalError> {
        let this = self.0.clone();
        entry.audit_id = audit::current().and_then(|id| Some(id.to_str().ok()?.to_owned()));
        blocking(move || {
            let mut inner = this.lock();
            let held: usize = inner.open.values().map(|open| open.bytes).sum();
            if inner.open.len() >= ENTRIES_MAX || held + entry.size() > BYTES_MAX {
                return Err(JournalError::Full);
            }
            entry.id = inner.next;
            let begun_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let mut records = vec![Record::Begun(Box::new(Begun { entry: entry.clone(), begun_at }))];
            if entry.verb == Verb::Delete {
                let earlier = inner.open.values().filter(|open| open.entry.is_about(&entry.key, &entry.uid));
                records.extend(earlier.map(|open| Record::Finished { id: open.entry.id }));
            }
            inner.file.append(&records, true)?;
            inner.next += 1;
            for record in records {
                if let Record::Finished { id } = record {
                    inner.open.remove(&id);
                }
            }
            let bytes = entry.size();
            let now = Instant::now();
            inner.open.insert(entry.id, Open { entry: entry.clone(), bytes, begun_at, began: now, last_byte: now });
            drop(inner);
            tell(&this, &entry.key, &entry.uid);
            Ok(entry)
        })
        .await
    }

    /// Notes how far the part in `member` came. Not synced: the members are asked again after a crash.
    pub async fn step(&self, id: u64, member: &MemberName, step: Step) {
        self.note(Record::Step { id, member: member.clone(), step }).await;
    }

    /// Gives an open entry the body, the values and the amendment of this one. When it returns, that is on disk.
    pub async fn amend(&self, amended: Entry) {
        let this = self.0.clone();
        let noted: Result<(), JournalError> = blocking(move || {
            let mut inner = this.lock();
            let Inner { file, open, .. } = &mut *inner;
            let Some(open) = open.get_mut(&amended.id) else { return Ok(()) };
            (open.entry.body, open.entry.amended) = (amended.body, amended.amended);
            for (target, amended) in open.entry.targets.iter_mut().zip(amended.targets) {
                target.values = amended.values;
            }
            open.bytes = open.entry.size();
            file.append(&[open.record()], true)?;
            drop(inner);
            Ok(())
        })
        .await;
        if let Err(error) = noted {
            tracing::warn!(%error, "an unfinished write's new body was not noted in the journal");
        }
    }

    /// Closes an entry.
    pub async fn finish(&self, id: u64) {
        self.note(Record::Finished { id }).await;
    }

    async fn note(&self, record: Record) {
        let this = self.0.clone();
        let noted: Result<(), JournalError> = blocking(move || {
            let mut inner = this.lock();
            let Inner { file, open, .. } = &mut *inner;
            let (Record::Step { id, .. } | Record::Finished { id }) = &record else { return Ok(()) };
            let about = open.get(id).map(|open| (open.entry.key.clone(), open.entry.uid.clone()));
            match &record {
                Record::Step { id, member, step } => {
                    if let Some(open) = open.get_mut(id) {
                        open.entry.set(member, step.clone());
                        open.last_byte = Instant::now();
                    }
                }
                Record::Finished { id } => {
                    open.remove(id);
                }
                Record::Begun(_) => {}
            }
            let written = file.append(std::slice::from_ref(&record), false);
            let written = written.and_then(|()| file.compact_if_large(open.values().map(Open::record)));
            drop(inner);
            if let Some((key, uid)) = about {
                tell(&this, &key, &uid);
            }
            Ok(written?)
        })
        .await;
        if let Err(error) = noted {
            // Nothing is wrong yet: after a restart the members are asked.
            tracing::warn!(%error, "a step was not noted in the journal");
        }
    }

    /// Has `observer` hear from now on in which members an object is behind, whenever an entry about it changes. Called
    /// without the journal's lock, from a thread that may block.
    pub fn observe(&self, observer: impl Fn(&Key, &str, &[MemberName]) + Send + 'static) {
        self.0.lock().observer = Some(Arc::new(Mutex::new(observer)));
    }

    /// The unfinished writes, oldest first, and since when they are.
    pub fn unfinished(&self) -> Vec<Unfinished> {
        let inner = self.0.lock();
        let open = inner.open.values();
        open.map(|open| Unfinished { entry: open.entry.clone(), begun_at: open.begun_at }).collect()
    }

    /// The unfinished writes, oldest first.
    pub fn open_entries(&self) -> Vec<Entry> {
        self.0.lock().open.values().map(|open| open.entry.clone()).collect()
    }

    /// One unfinished write, and since when no byte of it was sent.
    pub fn open_entry(&self, id: u64) -> Option<(Entry, Instant)> {
        self.0.lock().open.get(&id).map(|open| (open.entry.clone(), open.last_byte))
    }

    /// When an unfinished write began; of one that was read from disk: when it was read.
    pub fn began(&self, id: u64) -> Option<Instant> {
        self.0.lock().open.get(&id).map(|open| open.began)
    }

    /// The unfinished create of that name, whichever object it makes.
    pub fn open_create(&self, key: &Key) -> Option<Entry> {
        let inner = self.0.lock();
        let mut open = inner.open.values().map(|open| &open.entry);
        open.find(|entry| entry.verb == Verb::Create && entry.is_about(key, &entry.uid)).cloned()
    }

    /// The unfinished creates of an object: it is to get parts still.
    pub fn open_creates(&self, key: &Key, uid: &str) -> Vec<Entry> {
        let inner = self.0.lock();
        let about = inner.open.values().filter(|open| open.entry.verb == Verb::Create && open.entry.is_about(key, uid));
        about.map(|open| open.entry.clone()).collect()
    }

    /// The unfinished updates of an object, oldest first.
    pub fn open_updates(&self, key: &Key, uid: &str) -> Vec<Entry> {
        let inner = self.0.lock();
        let about = inner.open.values().filter(|open| open.entry.verb == Verb::Update && open.entry.is_about(key, uid));
        about.map(|open| open.entry.clone()).collect()
    }

    /// The parts that open entries say an object has, or may have.
    pub fn open_targets(&self, key: &Key, uid: &str) -> Vec<EntryTarget> {
        let inner = self.0.lock();
        let about = inner.open.values().filter(|open| open.entry.is_about(key, uid));
        about.flat_map(|open| open.entry.targets.iter().cloned()).collect()
    }

    /// The members in which an object is behind: its open entries name them as not done.
    pub fn behind(&self, key: &Key, uid: &str) -> Vec<MemberName> {
        self.0.lock().behind(key, uid)
    }
}

impl Inner {
    fn behind(&self, key: &Key, uid: &str) -> Vec<MemberName> {
        let about = self.open.values().filter(|open| open.entry.is_about(key, uid));
        let unfinished: BTreeSet<MemberName> = about.flat_map(|open| open.entry.unfinished()).collect();
        unfinished.into_iter().collect()
    }
}

impl Open {
    /// What stands in the file of it.
    fn record(&self) -> Record {
        Record::Begun(Box::new(Begun { entry: self.entry.clone(), begun_at: self.begun_at }))
    }
}

/// Tells the observer what is so when it is told: of two who tell, the later one tells the later state.
fn tell(inner: &Mutex<Inner>, key: &Key, uid: &str) {
    let Some(observer) = inner.lock().observer.clone() else { return };
    let observer = observer.lock();
    let behind = inner.lock().behind(key, uid);
    observer(key, uid, &behind);
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(JournalError::Io(io::Error::other(error))),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::{config::Overrides, placement::divided::Value};
    use kubefold_serving::caller::Caller;
    use kubefold_wire::resource::{Gvk, Gvr};

    fn member(name: &str) -> MemberName {
        MemberName::new(name).unwrap()
    }

    fn entry(name: &str, verb: Verb) -> Entry {
        Entry {
            id: 0,
            verb,
            key: Key {
                gvr: Gvr::new("apps", "v1", "deployments"),
                gvk: Gvk::new("apps", "v1", "Deployment"),
                namespace: "default".into(),
                name: name.into(),
            },
            uid: "u".into(),
            caller: Caller { user: "ann".into(), groups: vec!["g".into()], ..Caller::default() },
            query: "fieldManager=x".into(),
            user_agent: Some("kubectl".into()),
            audit_id: None,
            body: "{\"a\": \"\\n\"}".into(),
            targets: ["east", "west"]
                .map(|name| EntryTarget {
                    member: member(name),
                    cluster_uid: format!("c-{name}"),
                    values: vec![Value { pointer: "/spec/replicas".into(), number: 1 }],
                    overrides: Overrides::default(),
                    whole: None,
                    own_uid: None,
                    step: Step::Planned,
                })
                .to_vec(),
            listed: vec![Listed { member: member("north"), cluster_uid: "c-north".into() }],
            policy: Some("shop".into()),
            shared: false,
            applied: false,
            amended: None,
        }
    }

    #[tokio::test]
    async fn what_is_open_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        let (a, b) = (entry("a", Verb::Create), entry("b", Verb::Create));
        let a = journal.begin(a).await.unwrap();
        let b = journal.begin(b).await.unwrap();
        journal.step(b.id, &member("west"), Step::Done { uid: Some("w".into()) }).await;
        journal.finish(a.id).await;
        for _ in 0..2 {
            let journal = Journal::open(directory.path()).unwrap();
            let open = journal.open_entries();
            assert_eq!(open.len(), 1);
            assert_eq!(open[0].targets[1].step, Step::Done { uid: Some("w".into()) });
            assert_eq!((&open[0].caller, &open[0].body, &open[0].key), (&b.caller, &b.body, &b.key));
            assert_eq!(journal.behind(&b.key, "u"), [member("east")]);
        }
        let mode = fs::metadata(directory.path().join("journal")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = Journal::open(directory.path()).unwrap().begin(entry("c", Verb::Create)).await.unwrap();
        assert!(next.id > b.id);
    }

    #[tokio::test]
    async fn an_amended_body_is_on_disk_and_nothing_else_of_the_entry_changes() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
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
            journal.amend(Entry { body: body.to_owned(), ..a.clone() }).await;
            stands(&journal, body);
            drop(journal);
            journal = Journal::open(directory.path()).unwrap();
            stands(&journal, body);
        }
        // What is closed stays closed, and what never was does not come to be.
        journal.finish(a.id).await;
        journal.amend(Entry { body: "{}".to_owned(), ..a }).await;
        journal.amend(Entry { id: b.id + 1, body: "{}".to_owned(), ..b.clone() }).await;
        drop(journal);
        let left: Vec<_> = Journal::open(directory.path()).unwrap().open_entries();
        assert_eq!(left.iter().map(|entry| entry.id).collect::<Vec<_>>(), [b.id]);
    }

    #[tokio::test]
    async fn a_torn_end_costs_the_torn_record_alone() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        journal.begin(entry("a", Verb::Create)).await.unwrap();
        let path = directory.path().join("journal");
        let first = fs::read(&path).unwrap();
        journal.begin(entry("b", Verb::Create)).await.unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in first.len()..whole.len() - 1 {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(Journal::open(directory.path()).unwrap().open_entries().len(), 1, "{cut}");
        }
        let mut damaged = whole;
        damaged[40] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert_eq!(Journal::open(directory.path()).unwrap().open_entries()[0].key.name, "b");
    }

    #[tokio::test]
    async fn a_delete_drops_what_was_open_about_its_object() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        journal.begin(entry("a", Verb::Create)).await.unwrap();
        journal.begin(entry("b", Verb::Create)).await.unwrap();
        journal.begin(Entry { uid: "other".into(), ..entry("a", Verb::Create) }).await.unwrap();
        journal.begin(entry("a", Verb::Delete)).await.unwrap();
        let open = Journal::open(directory.path()).unwrap().open_entries();
        let left: Vec<_> = open.iter().map(|entry| (entry.key.name.as_str(), entry.uid.as_str(), entry.verb)).collect();
        assert_eq!(left, [("b", "u", Verb::Create), ("a", "other", Verb::Create), ("a", "u", Verb::Delete)]);
    }

    #[tokio::test]
    async fn it_is_bounded_and_compacted() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path()).unwrap();
        let large = Entry { body: "x".repeat(3 << 20), ..entry("a", Verb::Create) };
        for _ in 0..8 {
            let entry = journal.begin(large.clone()).await.unwrap();
            journal.finish(entry.id).await;
        }
        assert!(fs::metadata(directory.path().join("journal")).unwrap().len() < 10 << 20);
        let mut held = 0;
        while journal.begin(large.clone()).await.is_ok() {
            held += 1;
        }
        assert!((20..22).contains(&held), "{held}");
    }
}
