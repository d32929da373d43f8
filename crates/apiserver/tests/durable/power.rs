//! A loss of power at any moment: of what was not synced, the disk may have any sectors. And a disk that says that it has
//! synced what it has not.
//!
//! `disk.c` writes down what the writers' process does to its files, and what it says, in order. From that come the files
//! as a disk may hold them after the power went at some point, which are put over those that the process left: so the
//! storage takes them for the files that it served last.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};

use fastrand::Rng;
use kubefold_apiserver::storage::{Range, Sqlite, SqliteError, Storage, StorageError};
use tempfile::TempDir;

use crate::{LOG_WHOLE, LONG, Said, Value, bounds, history, killed_after, rng, said_in, text, writers};

const DATABASE: &str = "objects.db";
/// Units: bytes that a disk writes as one.
const SECTOR: usize = 512;
/// Lines of the process before it is killed. SQLite brings its log to its places several times meanwhile.
const LINES: usize = 20_000;
/// Moments at which the power goes.
const LOSSES: usize = 30;
/// What the process writes into the index of the log is in memory alone.
const IN_MEMORY: &str = "-shm";

/// What the process did.
enum Step {
    Write { file: String, offset: usize, data: Vec<u8> },
    Truncate { file: String, length: usize },
    Sync { file: String },
    Unlink { file: String },
    Say(Said),
}

/// A file as the disk has it for certain, and what was done to it since it was synced.
#[derive(Default)]
struct Held {
    synced: Vec<u8>,
    since: Vec<(usize, Option<Vec<u8>>)>,
}

impl Held {
    /// Does to `bytes` what was done, as far as `takes` says of each sector.
    fn redo(&self, bytes: &mut Vec<u8>, mut takes: impl FnMut() -> bool) {
        for (offset, data) in &self.since {
            let Some(data) = data else {
                if takes() {
                    bytes.resize(*offset, 0);
                }
                continue;
            };
            for (at, sector) in data.chunks(SECTOR).enumerate() {
                let (begin, end) = (offset + at * SECTOR, offset + at * SECTOR + sector.len());
                if takes() {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[begin..end].copy_from_slice(sector);
                }
            }
        }
    }

    fn sync(&mut self) {
        let mut bytes = std::mem::take(&mut self.synced);
        self.redo(&mut bytes, || true);
        (self.synced, self.since) = (bytes, Vec::new());
    }
}

/// What a disk has.
#[derive(Default)]
struct Disk {
    files: HashMap<String, Held>,
}

impl Disk {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Write { file, offset, data } => self.file(file).since.push((*offset, Some(data.clone()))),
            Step::Truncate { file, length } => self.file(file).since.push((*length, None)),
            Step::Sync { file } => self.file(file).sync(),
            Step::Unlink { file } => drop(self.files.remove(file)),
            Step::Say(_) => {}
        }
    }

    fn file(&mut self, name: &str) -> &mut Held {
        self.files.entry(name.to_owned()).or_default()
    }

    /// Puts what it may have after a loss of power over the files of a folder.
    fn lose_power(&self, folder: &Path, rng: &mut Rng) {
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !self.files.contains_key(&name) {
                fs::remove_file(folder.join(name)).unwrap();
            }
        }
        for (name, held) in &self.files {
            let mut bytes = held.synced.clone();
            // Nothing, all, or some of it.
            let share = [0.0, 1.0, rng.f64()][rng.usize(0..3)];
            held.redo(&mut bytes, || rng.f64() < share);
            // In its place: another inode would be another file.
            let file = fs::OpenOptions::new().create(true).truncate(true).write(true).open(folder.join(name)).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
        }
    }
}

/// A run of the writers, until it was killed.
struct Run {
    directory: TempDir,
    steps: Vec<Step>,
}

impl Run {
    fn record() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (folder, record, layer) =
            (directory.path().join("disk"), directory.path().join("record"), directory.path().join("disk.so"));
        fs::create_dir(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durable/disk.c");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&layer).arg(source).status();
        assert!(compiled.unwrap().success());
        let mut command = writers(folder.join(DATABASE).to_str().unwrap(), LOG_WHOLE);
        command
            .env(LONG, "12000")
            .env("LD_PRELOAD", layer)
            .env("KUBEFOLD_DISK_FOLDER", &folder)
            .env("KUBEFOLD_DISK_RECORD", &record);
        killed_after(command.spawn().unwrap(), LINES);
        let steps = steps(&fs::read(record).unwrap());
        Self { directory, steps }
    }

    /// Points after the first word of a writer, in order.
    fn moments(&self, rng: &mut Rng) -> Vec<usize> {
        let first = self.steps.iter().position(|step| matches!(step, Step::Say(_))).unwrap();
        let mut moments: Vec<usize> = (0..LOSSES).map(|_| rng.usize(first..self.steps.len())).collect();
        moments.sort_unstable();
        moments
    }

    fn folder(&self) -> std::path::PathBuf {
        self.directory.path().join("disk")
    }

    async fn open(&self) -> Result<Sqlite, SqliteError> {
        Sqlite::open(&self.folder().join(DATABASE), bounds(LOG_WHOLE)).await
    }

    fn said(&self, until: usize) -> impl Iterator<Item = &Said> {
        self.steps[..until].iter().filter_map(|step| match step {
            Step::Say(said) => Some(said),
            _ => None,
        })
    }
}

/// Reads what `disk.c` wrote. The last record may be there in part.
fn steps(mut record: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((step, rest)) = next_step(record) {
        steps.extend(step);
        record = rest;
    }
    steps
}

/// Shape: a record of which nothing comes has `None` in the first place.
fn next_step(record: &[u8]) -> Option<(Option<Step>, &[u8])> {
    let (kind, rest) = record.split_first()?;
    let (name_length, rest) = rest.split_first_chunk::<2>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u16::from_ne_bytes(*name_length).into())?;
    let (data, rest) = rest.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
    let (file, offset) = (String::from_utf8(name.to_vec()).unwrap(), u64::from_ne_bytes(*offset) as usize);
    let step = match kind {
        b'A' => std::str::from_utf8(data).ok().and_then(said_in).map(Step::Say),
        _ if file.ends_with(IN_MEMORY) => None,
        b'W' => Some(Step::Write { file, offset, data: data.to_vec() }),
        b'T' => Some(Step::Truncate { file, length: offset }),
        b'S' => Some(Step::Sync { file }),
        b'U' => Some(Step::Unlink { file }),
        other => panic!("{other}"),
    };
    Some((step, rest))
}

#[tokio::test]
async fn what_was_acknowledged_or_told_survives_a_loss_of_power() {
    let (run, mut rng, mut disk, mut at) = (Run::record(), rng(3), Disk::default(), 0);
    let syncs =
        |name: &str| run.steps.iter().filter(|step| matches!(step, Step::Sync { file } if file == name)).count();
    // The log was brought to its places, too.
    assert!(syncs("objects.db-wal") > 100 && syncs(DATABASE) > 2, "{}", syncs(DATABASE));
    let mut kept = 0;
    for moment in run.moments(&mut rng) {
        run.steps[at..moment].iter().for_each(|step| disk.take(step));
        at = moment;
        disk.lose_power(&run.folder(), &mut rng);
        let storage = run.open().await.unwrap();
        let changes = history(&storage, 1).await;
        let now: BTreeMap<u64, (&str, Value)> =
            changes.iter().map(|one| (one.revision, (one.key(), one.after.as_ref().map(text)))).collect();
        for Said { revision, key, value } in run.said(moment) {
            assert_eq!(now.get(revision), Some(&(key.as_str(), value.clone())), "revision {revision} at {moment}");
            kept += 1;
        }
        storage.close().await;
    }
    assert!(kept > LINES, "{kept}");
}

/// What it loses so it cannot have; but what it has is whole, or the storage says that it is damaged.
#[tokio::test]
async fn a_disk_that_does_not_sync_leaves_no_half_of_a_write() {
    let (run, mut rng, mut disk, mut at) = (Run::record(), rng(4), Disk::default(), 0);
    let said: HashMap<u64, &Said> = run.said(run.steps.len()).map(|said| (said.revision, said)).collect();
    let (mut whole, mut lost) = (0, 0);
    for moment in run.moments(&mut rng) {
        for step in &run.steps[at..moment] {
            // Three of four syncs do nothing.
            if !matches!(step, Step::Sync { .. }) || rng.u8(0..4) == 0 {
                disk.take(step);
            }
        }
        at = moment;
        disk.lose_power(&run.folder(), &mut rng);
        let storage = match run.open().await {
            Ok(storage) => storage,
            Err(SqliteError::Damaged { .. } | SqliteError::Open(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        whole += 1;
        let newest = storage.revision().await.unwrap();
        let oldest = match storage.range(Range { at: 1, ..Range::default() }).await {
            Err(StorageError::Compacted { oldest, .. }) => oldest,
            of_first => of_first.map(|_| 1).unwrap(),
        };
        let _changes = history(&storage, oldest).await;
        for record in storage.range(Range::default()).await.unwrap().records {
            if let Some(said) = said.get(&record.revision) {
                assert_eq!((&*record.key, Some(text(&record))), (said.key.as_str(), said.value.clone()));
            }
        }
        let newest_said = run.said(moment).map(|said| said.revision).max().unwrap();
        lost += usize::from(newest < newest_said || newest > newest_said + 1_000);
        storage.close().await;
    }
    assert!(whole > LOSSES / 4, "{whole}");
    assert!(lost > 0, "no sync was missing");
}
