use std::{fs, path::PathBuf};

use bytes::Bytes;
use futures::StreamExt;
use kubefold_sql::{Database, Durability, Sql};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::storage::{Range, Storage, StorageError, WatchItem, When, tests::keys};

const NAME: &str = "objects.db";

struct Place {
    directory: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(NAME);
        Self { directory, path }
    }

    async fn open(&self) -> Sqlite {
        Sqlite::open(&self.path, Bounds::default()).await.unwrap()
    }

    async fn refused(&self) -> SqliteError {
        Sqlite::open(&self.path, Bounds::default()).await.err().unwrap()
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Does something with the file while nobody serves it.
    fn with(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<usize>) {
        work(&Connection::open(&self.path).unwrap()).unwrap();
    }
}

async fn put(storage: &Sqlite, key: &str, value: &str) -> Result<u64, StorageError> {
    let there = storage.get(key).await?.0;
    let when = there.map_or(When::Absent, |record| When::At(record.revision));
    storage.put(key, Bytes::from(value.to_owned()), when).await
}

/// Checks that no revision up to `newest` is one that a client can go on from.
async fn check_forgotten(storage: &Sqlite, newest: u64) {
    for after in 0..=newest {
        let watch = storage.watch("", after).await;
        assert!(matches!(watch.err(), Some(StorageError::Compacted { .. })), "{after}");
        let page = Range { limit: 1, at: after, ..Range::default() };
        assert!(after == 0 || matches!(storage.range(page).await, Err(StorageError::Compacted { .. })), "{after}");
    }
}

/// Checks that a restored storage goes on by itself.
async fn check_goes_on(place: &Place, storage: Sqlite) {
    let raised = storage.revision().await.unwrap();
    let next = put(&storage, "later", "x").await.unwrap();
    assert_eq!(next, raised + 1);
    storage.close().await;
    let storage = place.open().await;
    assert_eq!(storage.revision().await.unwrap(), next);
    let mut watch = storage.watch("", raised).await.unwrap();
    assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.revision == next));
}

#[tokio::test]
async fn a_backup_in_the_place_of_the_file_makes_every_revision_of_before_gone() {
    let place = Place::new();
    let storage = place.open().await;
    put(&storage, "a", "1").await.unwrap();
    put(&storage, "b", "1").await.unwrap();
    storage.close().await;
    fs::copy(&place.path, place.beside("backup")).unwrap();
    // The same process start may have made the backup and what follows: only the mark tells.
    let storage = place.open().await;
    let lost = put(&storage, "c", "1").await.unwrap();
    let _watch = storage.watch("", lost).await.unwrap();
    storage.close().await;
    // Over the file, so that it stays the same file.
    fs::copy(place.beside("backup"), &place.path).unwrap();
    let storage = place.open().await;
    assert_eq!(keys(&storage).await, ["a", "b"]);
    check_forgotten(&storage, lost).await;
    assert!(storage.revision().await.unwrap() > lost + 1_000_000);
    check_goes_on(&place, storage).await;
}

#[tokio::test]
async fn a_folder_that_was_restored_with_its_mark_is_another_file() {
    let place = Place::new();
    let storage = place.open().await;
    let newest = put(&storage, "a", "1").await.unwrap();
    storage.close().await;
    let restored = Place::new();
    for file in fs::read_dir(place.directory.path()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), restored.beside(file.file_name().to_str().unwrap())).unwrap();
    }
    let storage = restored.open().await;
    assert_eq!(keys(&storage).await, ["a"]);
    check_forgotten(&storage, newest).await;
    check_goes_on(&restored, storage).await;
}

#[tokio::test]
async fn a_file_without_its_mark_or_a_mark_without_its_file_is_a_new_beginning() {
    let place = Place::new();
    let mark = place.beside(&format!("{NAME}-mark"));
    let storage = place.open().await;
    let newest = put(&storage, "a", "1").await.unwrap();
    storage.close().await;
    fs::remove_file(&mark).unwrap();
    let storage = place.open().await;
    check_forgotten(&storage, newest).await;
    let newest = storage.revision().await.unwrap();
    storage.close().await;
    // A torn one says nothing.
    fs::write(&mark, "kubefold-mark-1 abc").unwrap();
    let storage = place.open().await;
    assert!(storage.revision().await.unwrap() > newest);
    let newest = storage.revision().await.unwrap();
    storage.close().await;
    fs::remove_file(&place.path).unwrap();
    let storage = place.open().await;
    assert_eq!(keys(&storage).await, [""; 0]);
    assert!(storage.revision().await.unwrap() > newest);
    assert!(matches!(storage.watch("", newest).await.err(), Some(StorageError::Compacted { .. })));
    check_goes_on(&place, storage).await;
}

#[tokio::test]
async fn a_file_that_is_as_it_was_goes_on_however_often_it_is_opened() {
    let place = Place::new();
    let storage = place.open().await;
    let first = put(&storage, "a", "1").await.unwrap();
    assert_eq!(first, 2);
    storage.close().await;
    for _ in 0..3 {
        let storage = place.open().await;
        assert_eq!(storage.revision().await.unwrap(), first);
        let mut watch = storage.watch("", 1).await.unwrap();
        assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(change))) if change.revision == first));
        storage.close().await;
    }
}

#[tokio::test]
async fn a_second_server_of_a_file_is_told_in_one_sentence() {
    let place = Place::new();
    let storage = place.open().await;
    put(&storage, "a", "1").await.unwrap();
    let error = place.refused().await;
    assert!(matches!(error, SqliteError::InUse(_)));
    let path = place.path.display();
    assert_eq!(
        error.to_string(),
        format!("another process serves {path}; stop that process, or give this one another file")
    );
    put(&storage, "b", "1").await.unwrap();
    storage.close().await;
    assert_eq!(keys(&place.open().await).await, ["a", "b"]);
}

#[tokio::test]
async fn a_dropped_storage_stores_what_was_begun_and_lets_the_file_go() {
    let place = Place::new();
    let storage = place.open().await;
    // Nobody waits for these.
    for number in 0..20 {
        let key = number.to_string();
        let put = storage.put(&key, "x".into(), When::Absent);
        assert!(futures::FutureExt::now_or_never(put).is_none());
    }
    let last = put(&storage, "last", "x").await.unwrap();
    drop(storage);
    let storage = loop {
        match Sqlite::open(&place.path, Bounds::default()).await {
            Ok(storage) => break storage,
            Err(SqliteError::InUse(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((keys(&storage).await.len(), storage.revision().await.unwrap()), (21, last));
}

#[tokio::test]
async fn a_newer_file_a_damaged_one_and_one_of_another_program_are_refused_in_one_sentence() {
    let place = Place::new();
    fs::write(&place.path, "a file of somebody else's, of more than a hundred bytes so that it could be one, which it is not at all, is it?").unwrap();
    let error = place.refused().await.to_string();
    assert!(error.contains("is no database that this program can use") && !error.contains('\n'), "{error}");
    assert!(fs::read_to_string(&place.path).unwrap().starts_with("a file of somebody"));

    let place = Place::new();
    let storage = place.open().await;
    for number in 0..200 {
        put(&storage, &format!("a/{}", number % 150), &"x".repeat(100)).await.unwrap();
    }
    storage.close().await;
    let whole = fs::read(&place.path).unwrap();
    place.with(|sql| sql.execute("PRAGMA user_version = 99", []));
    let error = place.refused().await.to_string();
    assert!(error.contains("has format 99, which a newer version wrote"), "{error}");
    fs::write(&place.path, &whole).unwrap();

    place.with(|sql| sql.execute("DELETE FROM changes WHERE revision = 30", []));
    let error = place.refused().await.to_string();
    assert!(error.contains("is damaged: the change of revision 30 is missing; put a backup in its place"), "{error}");
    fs::write(&place.path, &whole).unwrap();
    place.with(|sql| sql.execute("UPDATE head SET revision = revision + 1", []));
    assert!(place.refused().await.to_string().contains("is missing"));
    fs::write(&place.path, &whole).unwrap();
    place.with(|sql| sql.execute("INSERT INTO changes VALUES (202, 'b', x'00')", []));
    assert!(place.refused().await.to_string().contains("there is a change of revision 202"));
    // A page in the middle of the file.
    let mut torn = whole.clone();
    let middle = torn.len() / 4096 / 2 * 4096;
    torn[middle..middle + 4096].fill(0xff);
    fs::write(&place.path, &torn).unwrap();
    let error = place.refused().await.to_string();
    assert!(error.contains("damaged") && !error.contains('\n'), "{error}");
    fs::write(&place.path, &whole).unwrap();
    assert_eq!(place.open().await.revision().await.unwrap(), 201);
}

#[tokio::test]
async fn somebody_elses_write_is_found_before_anything_is_lost() {
    let place = Place::new();
    let storage = place.open().await;
    put(&storage, "a", "1").await.unwrap();
    place.with(|sql| sql.execute("UPDATE head SET revision = 77", []));
    let failed = put(&storage, "b", "1").await;
    assert!(matches!(failed, Err(StorageError::Unavailable(_))), "{failed:?}");
    assert_eq!(keys(&storage).await, ["a"]);
    place.with(|sql| sql.execute("UPDATE head SET revision = 2", []));
    assert_eq!(put(&storage, "b", "1").await.unwrap(), 3);
}

#[tokio::test]
async fn a_write_waits_for_another_program_that_copies_the_file() {
    let place = Place::new();
    let storage = place.open().await;
    put(&storage, "a", "1").await.unwrap();
    let other = Connection::open(&place.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = async {
        assert_eq!(keys(&storage).await, ["a"]);
        other.execute_batch("COMMIT").unwrap();
    };
    let (revision, ()) = futures::future::join(put(&storage, "b", "1"), release).await;
    assert_eq!(revision.unwrap(), 3);
}

/// The rows that are kept are those of the history and of what is there: the file does not grow with each change.
#[tokio::test]
async fn what_is_forgotten_is_removed_from_the_file() {
    let place = Place::new();
    let bounds = Bounds { log_changes_max: 10, ..Bounds::default() };
    let storage = Sqlite::open(&place.path, bounds).await.unwrap();
    for number in 0..500 {
        put(&storage, &format!("a/{}", number % 3), "x").await.unwrap();
    }
    let newest = storage.revision().await.unwrap();
    storage.compact(newest).await.unwrap();
    storage.close().await;
    let database = Database::open(&place.path, &file::MIGRATIONS).unwrap();
    let count = |sql: Sql<'_>| sql.row("SELECT count(*) FROM changes", &[], |row| row.get::<i64>(0));
    assert_eq!(database.read(count).unwrap(), Some(3));
    // What an end of the process left behind is found at the next opening, and removed with the next changes.
    let dead = "INSERT INTO changes VALUES (3, 'a/0', x'00'), (4, 'gone', x'00'), (5, 'gone', NULL)";
    database.write(Durability::Synced, move |sql| sql.execute(dead, &[])).unwrap();
    drop(database);
    let storage = Sqlite::open(&place.path, bounds).await.unwrap();
    assert_eq!(keys(&storage).await, ["a/0", "a/1", "a/2"]);
    put(&storage, "b", "x").await.unwrap();
    storage.close().await;
    let database = Database::open(&place.path, &file::MIGRATIONS).unwrap();
    assert_eq!(database.read(count).unwrap(), Some(4));
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let place = Place::new();
    let opened = File::open(&place.path, Bounds::default()).unwrap();
    let database = opened.log.database.clone();
    let limit = |pages: i64| {
        database.read(|sql| sql.batch(&format!("PRAGMA max_page_count = {pages}"))).unwrap();
    };
    limit(64);
    let storage = Sqlite::start(move || Ok::<_, SqliteError>(opened)).await.unwrap();
    let mut made = 0;
    let full = loop {
        match put(&storage, &format!("a/{made:04}"), &"x".repeat(4000)).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StorageError::Full(_)), "{full}");
    assert!(made > 20 && storage.ready().await.is_ok());
    let before = storage.revision().await.unwrap();
    assert_eq!(keys(&storage).await.len(), made);
    assert!(matches!(put(&storage, "b", &"x".repeat(4000)).await, Err(StorageError::Full(_))));
    assert_eq!(storage.revision().await.unwrap(), before);
    limit(1_000);
    assert_eq!(put(&storage, "b", &"x".repeat(4000)).await.unwrap(), before + 1);
    storage.close().await;
    drop(database);
    assert_eq!(keys(&place.open().await).await.len(), made + 1);
}
