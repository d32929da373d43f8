//! The database: its tables, what a batch writes, and how it is read.

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::digest::{SHA256, digest};
use kubefold_sql::{
    Database, Durability, OpenError, SqlError, StateKey,
    rusqlite::{Connection, OptionalExtension, Result as SqlResult, Row, params},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    config::MemberName,
    mirror::{
        deleted::bury,
        figures::Counted,
        kind::{MirrorError, MirroredKind, is_secret},
    },
    store::{Changes, MemberDocument, Position, unix_micros},
};
use kubefold_wire::resource::Gvr;

/// A feed whose revision is 0 has objects of several moments, and counts for nothing.
pub(super) const MIGRATIONS: [&str; 2] = [
    "
CREATE TABLE feeds (
    id INTEGER PRIMARY KEY,
    \"group\" TEXT NOT NULL,
    version TEXT NOT NULL,
    resource TEXT NOT NULL,
    member TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    definition INTEGER NOT NULL,
    followed_at_ms INTEGER NOT NULL,
    is_followed INTEGER NOT NULL,
    UNIQUE (\"group\", version, resource, member)
) STRICT;
CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    feed INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    document BLOB NOT NULL,
    UNIQUE (feed, key)
) STRICT;
CREATE TABLE catalogs (
    member TEXT PRIMARY KEY,
    cluster_uid TEXT NOT NULL,
    catalog TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE key_proof (id INTEGER PRIMARY KEY CHECK (id = 1), proof BLOB NOT NULL) STRICT;
",
    "
CREATE TABLE rows (
    id INTEGER PRIMARY KEY,
    feed INTEGER NOT NULL REFERENCES feeds (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    document BLOB NOT NULL,
    deleted_us INTEGER NOT NULL DEFAULT 0,
    namespace TEXT,
    name TEXT,
    created_us INTEGER,
    owner TEXT,
    UNIQUE (feed, key, deleted_us)
) STRICT;
INSERT INTO rows (id, feed, key, uid, revision, digest, document)
    SELECT id, feed, key, '', revision, digest, document FROM objects;
DROP TABLE objects;
ALTER TABLE rows RENAME TO objects;
CREATE INDEX objects_deleted ON objects (deleted_us) WHERE deleted_us > 0;
CREATE INDEX objects_owner ON objects (owner) WHERE owner IS NOT NULL;
CREATE TABLE labels (
    object INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER,
    PRIMARY KEY (object, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_value ON labels (key, value, object);
",
];
/// Objects that are read at once.
const PAGE_OBJECTS: i64 = 512;
/// Bytes of documents that one transaction writes of a whole feed.
const CHUNK_BYTES_MAX: usize = 8 << 20;
/// How often the objects are counted.
const COUNT_EVERY: Duration = Duration::from_mins(1);
/// What is encrypted to know the key again.
const PROOF: &str = "kubefold";
const PROOF_PLACE: &str = "key_proof";

/// Where the objects that are kept of a feed stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPosition {
    /// The position.
    pub position: Position,
    /// How long ago the feed was followed. Absent where the clock says that it is to come.
    pub age: Option<Duration>,
    /// The member was followed when this was written last. Otherwise it may have been restored from a backup since.
    pub is_followed: bool,
}

/// An object that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptObject {
    /// Its key in its member.
    pub key: String,
    /// As the member gave it.
    pub document: String,
}

/// What a member served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCatalog {
    /// The member.
    pub member: MemberName,
    /// The UID of its cluster.
    pub cluster_uid: Arc<str>,
    /// Its catalog, as a document.
    pub document: String,
}

/// The open database.
pub(super) struct File {
    pub(super) database: Database,
    key: Option<Arc<StateKey>>,
    /// What is deleted is kept, of kinds that are not encrypted.
    keeps_deleted: bool,
    counted_at: Mutex<Option<Instant>>,
}

/// A row as it is kept.
pub(super) struct Written {
    pub(super) key: String,
    pub(super) uid: String,
    pub(super) revision: i64,
    pub(super) digest: i64,
    pub(super) document: Vec<u8>,
}

impl File {
    /// Opens the database, or begins one.
    pub(super) fn open(path: &Path, key: Option<StateKey>, keeps_deleted: bool) -> Result<Self, OpenError> {
        let database = Database::open(path, &MIGRATIONS)?;
        Ok(Self { database, key: key.map(Arc::new), keeps_deleted, counted_at: Mutex::default() })
    }

    /// Bounds its size, and forgets what another key encrypted.
    pub(super) fn prepare(&self, bytes_max: u64) -> Result<(), SqlError> {
        self.database.read(|sql| {
            let page: i64 = sql.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes_max).unwrap_or(i64::MAX) / page.max(1);
            sql.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
        })?;
        let key = self.key.clone();
        self.write(move |sql| prove(sql, key.as_deref()))
    }

    /// When what is deleted of a kind now is noted to be. `None`: it is not kept.
    fn deleted_at(&self, feed: &MirroredKind) -> Option<i64> {
        (self.keeps_deleted && !is_secret(&feed.gvr)).then(|| signed(unix_micros()))
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T, SqlError> {
        self.database.write(Durability::Written, work)
    }

    /// Forgets the feeds that are not to be kept.
    pub(super) fn retain(&self, is_kept: impl Fn(&MirroredKind) -> bool) -> Result<(), SqlError> {
        let all: Vec<(i64, Option<MirroredKind>)> = self.database.read(|sql| {
            let mut feeds = sql.prepare("SELECT id, \"group\", version, resource, member FROM feeds")?;
            feeds.query_map([], |row| Ok((row.get(0)?, feed_of(row)?)))?.collect()
        })?;
        let gone: Vec<i64> =
            all.into_iter().filter(|(_, feed)| !feed.as_ref().is_some_and(&is_kept)).map(|(id, _)| id).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.write(move |sql| {
            let mut delete = sql.prepare("DELETE FROM feeds WHERE id = ?1")?;
            gone.iter().try_for_each(|id| delete.execute([id]).map(|_| ()))
        })
    }

    pub(super) fn position(&self, feed: &MirroredKind) -> Result<Option<KeptPosition>, SqlError> {
        self.database.read(|sql| {
            let mut find = sql.prepare_cached(
                "SELECT cluster_uid, revision, definition, followed_at_ms, is_followed FROM feeds
                 WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3 AND member = ?4 AND revision > 0",
            )?;
            let kept = |row: &Row<'_>| {
                let cluster_uid: String = row.get(0)?;
                let position = Position {
                    cluster_uid: cluster_uid.into(),
                    revision: unsigned(row.get(1)?),
                    definition: unsigned(row.get(2)?),
                };
                let age = now_ms().checked_sub(unsigned(row.get(3)?)).map(Duration::from_millis);
                Ok(KeptPosition { position, age, is_followed: row.get(4)? })
            };
            let Gvr { group, version, resource } = &feed.gvr;
            find.query_row(params![&**group, &**version, &**resource, feed.member.as_str()], kept).optional()
        })
    }

    pub(super) fn page(&self, feed: &MirroredKind, after: &str) -> Result<Vec<KeptObject>, MirrorError> {
        let rows: Vec<Written> = self.database.read(|sql| {
            let Some(id) = id_of(sql, feed)? else { return Ok(Vec::new()) };
            let mut page = sql.prepare_cached(
                "SELECT key, uid, revision, digest, document FROM objects
                 WHERE feed = ?1 AND key > ?2 AND deleted_us = 0 ORDER BY key LIMIT ?3",
            )?;
            let row = |row: &Row<'_>| {
                let (key, uid, revision) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Written { key, uid, revision, digest: row.get(3)?, document: row.get(4)? })
            };
            page.query_map(params![id, after, PAGE_OBJECTS], row)?.collect()
        })?;
        rows.into_iter().map(|row| self.opened(feed, row)).collect()
    }

    pub(super) fn opened(&self, feed: &MirroredKind, row: Written) -> Result<KeptObject, MirrorError> {
        let Written { key, digest, document, .. } = row;
        let document = match &self.key {
            Some(state_key) if is_secret(&feed.gvr) => state_key.open(&place(feed, &key), &document).ok(),
            _ => Some(document),
        };
        let document = document.filter(|document| digest_of(document) == digest).map(String::from_utf8);
        match document {
            Some(Ok(document)) => Ok(KeptObject { key, document }),
            Some(Err(_)) | None => {
                let (resource, member) = (feed.gvr.qualified(), feed.member.clone());
                Err(MirrorError::Damaged { key, resource, member })
            }
        }
    }

    /// `false`: the objects that the changes are to be added to are not there.
    pub(super) fn keep(&self, feed: &MirroredKind, changes: Changes) -> Result<bool, SqlError> {
        let Changes { position, objects, .. } = changes;
        let (feed, key) = (feed.clone(), self.key.clone());
        let deleted_at = self.deleted_at(&feed);
        self.write(move |sql| {
            if !is_complete(sql, &feed)? {
                return Ok(false);
            }
            let id = place_feed(sql, &feed, &position, signed(position.revision))?;
            let mut gone = sql.prepare_cached(DELETE)?;
            let mut put = sql.prepare_cached(PUT)?;
            let mut text = Vec::new();
            for (own_key, document) in objects {
                if let Some(at) = deleted_at {
                    let uid = document.as_ref().map(MemberDocument::uid).unwrap_or_default();
                    bury(sql, id, &own_key, uid, at)?;
                }
                match document {
                    None => drop(gone.execute(params![id, own_key])?),
                    Some(document) => {
                        text.clear();
                        document.write(&mut text);
                        let row = written(own_key, &document, std::mem::take(&mut text));
                        text = execute(&mut put, id, &feed, key.as_deref(), row)?;
                    }
                }
            }
            Ok(true)
        })
    }

    pub(super) fn keep_all(
        &self,
        feed: &MirroredKind,
        position: &Position,
        documents: HashMap<String, MemberDocument>,
    ) -> Result<(), SqlError> {
        let mut held = self.held(feed)?;
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for (own_key, document) in documents {
            let mut text = Vec::new();
            document.write(&mut text);
            let row = written(own_key, &document, text);
            if held.remove(&row.key) == Some((row.revision, row.digest)) {
                continue;
            }
            bytes += row.document.len();
            chunk.push(row);
            if bytes >= CHUNK_BYTES_MAX {
                bytes = 0;
                self.keep_chunk(feed, position, 0, std::mem::take(&mut chunk), Vec::new())?;
            }
        }
        self.keep_chunk(feed, position, signed(position.revision), chunk, held.into_keys().collect())
    }

    /// The revision and digest of each object that is kept of a feed.
    fn held(&self, feed: &MirroredKind) -> Result<HashMap<String, (i64, i64)>, SqlError> {
        self.database.read(|sql| {
            let Some(id) = id_of(sql, feed)? else { return Ok(HashMap::new()) };
            let mut rows =
                sql.prepare_cached("SELECT key, revision, digest FROM objects WHERE feed = ?1 AND deleted_us = 0")?;
            rows.query_map([id], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?.collect()
        })
    }

    /// Writes rows of a feed in one transaction. With `revision` 0 the feed counts for nothing until it has another.
    fn keep_chunk(
        &self,
        feed: &MirroredKind,
        position: &Position,
        revision: i64,
        rows: Vec<Written>,
        gone: Vec<String>,
    ) -> Result<(), SqlError> {
        let (feed, position, key) = (feed.clone(), position.clone(), self.key.clone());
        let deleted_at = self.deleted_at(&feed);
        self.write(move |sql| {
            let id = place_feed(sql, &feed, &position, revision)?;
            let mut put = sql.prepare_cached(PUT)?;
            if let Some(at) = deleted_at {
                rows.iter().try_for_each(|row| bury(sql, id, &row.key, &row.uid, at))?;
                gone.iter().try_for_each(|own_key| bury(sql, id, own_key, "", at))?;
            }
            for row in rows {
                execute(&mut put, id, &feed, key.as_deref(), row)?;
            }
            let mut delete = sql.prepare_cached(DELETE)?;
            gone.iter().try_for_each(|own_key| delete.execute(params![id, own_key]).map(|_| ()))
        })
    }

    pub(super) fn touch(&self, feed: &MirroredKind, is_followed: bool) -> Result<(), SqlError> {
        let feed = feed.clone();
        self.write(move |sql| {
            let Some(id) = id_of(sql, &feed)? else { return Ok(()) };
            let mut touch = sql.prepare_cached(
                "UPDATE feeds SET is_followed = ?2, followed_at_ms = iif(?2, ?3, followed_at_ms) WHERE id = ?1",
            )?;
            touch.execute(params![id, is_followed, signed(now_ms())]).map(|_| ())
        })
    }

    pub(super) fn forget(&self, feed: &MirroredKind) -> Result<(), SqlError> {
        let feed = feed.clone();
        self.write(move |sql| {
            let Some(id) = id_of(sql, &feed)? else { return Ok(()) };
            sql.execute("DELETE FROM feeds WHERE id = ?1", [id]).map(|_| ())
        })
    }

    pub(super) fn kinds(&self) -> Result<Vec<Gvr>, SqlError> {
        self.database.read(|sql| {
            let mut all = sql.prepare("SELECT DISTINCT \"group\", version, resource FROM feeds")?;
            let kind = |row: &Row<'_>| {
                let [group, version, resource] = [row.get::<_, String>(0)?, row.get(1)?, row.get(2)?];
                Ok(Gvr::new(&group, &version, &resource))
            };
            all.query_map([], kind)?.collect()
        })
    }

    pub(super) fn catalogs(&self) -> Result<Vec<KeptCatalog>, SqlError> {
        let all: Vec<Option<KeptCatalog>> = self.database.read(|sql| {
            let mut all = sql.prepare("SELECT member, cluster_uid, catalog FROM catalogs")?;
            let kept = |row: &Row<'_>| {
                let (member, cluster_uid): (String, String) = (row.get(0)?, row.get(1)?);
                let (cluster_uid, document) = (cluster_uid.into(), row.get(2)?);
                Ok(MemberName::new(&member).map(|member| KeptCatalog { member, cluster_uid, document }))
            };
            all.query_map([], kept)?.collect()
        })?;
        Ok(all.into_iter().flatten().collect())
    }

    pub(super) fn keep_catalog(&self, catalog: KeptCatalog) -> Result<(), SqlError> {
        self.write(move |sql| {
            let KeptCatalog { member, cluster_uid, document } = &catalog;
            sql.execute(
                "INSERT OR REPLACE INTO catalogs VALUES (?1, ?2, ?3)",
                params![member.as_str(), &**cluster_uid, document],
            )
            .map(|_| ())
        })
    }

    /// Counts what is in the file, if that is due.
    pub(super) fn counted(&self) -> Option<Counted> {
        let mut counted_at = self.counted_at.lock();
        if counted_at.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return None;
        }
        let count = |sql: &Connection| {
            let number = |statement: &str| sql.query_row(statement, [], |row| row.get::<_, i64>(0)).map(unsigned);
            let pages = number("SELECT page_count FROM pragma_page_count")?;
            let bytes = pages * number("SELECT page_size FROM pragma_page_size")?;
            Ok(Counted { rows: number("SELECT count(*) FROM objects WHERE deleted_us = 0")?, bytes })
        };
        let counted = self.database.read(count).ok()?;
        *counted_at = Some(Instant::now());
        Some(counted)
    }
}

/// Forgets what was encrypted with another key than this, or with one where there is none.
fn prove(sql: &Connection, key: Option<&StateKey>) -> SqlResult<()> {
    let proof: Option<Vec<u8>> = sql.query_row("SELECT proof FROM key_proof", [], |row| row.get(0)).optional()?;
    let opens =
        |key: &StateKey, proof: &[u8]| key.open(PROOF_PLACE, proof).is_ok_and(|proof| proof == PROOF.as_bytes());
    match (key, &proof) {
        (None, None) => return Ok(()),
        (Some(key), Some(proof)) if opens(key, proof) => return Ok(()),
        (_, Some(_)) => {
            tracing::info!("the Secrets in the mirror were encrypted with another key: they are listed anew");
        }
        (Some(_), None) => {}
    }
    sql.execute("DELETE FROM feeds WHERE \"group\" = '' AND resource = 'secrets'", [])?;
    sql.execute("DELETE FROM key_proof", [])?;
    if let Some(key) = key {
        sql.execute("INSERT INTO key_proof VALUES (1, ?1)", [key.seal(PROOF_PLACE, PROOF.as_bytes().to_vec())?])?;
    }
    Ok(())
}

const PUT: &str = "INSERT INTO objects (feed, key, uid, revision, digest, document) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (feed, key, deleted_us) DO UPDATE SET uid = excluded.uid, revision = excluded.revision,
        digest = excluded.digest, document = excluded.document";
const DELETE: &str = "DELETE FROM objects WHERE feed = ?1 AND key = ?2 AND deleted_us = 0";

fn written(key: String, of: &MemberDocument, document: Vec<u8>) -> Written {
    let (uid, revision) = (of.uid().to_owned(), signed(of.revision()));
    Written { key, uid, revision, digest: digest_of(&document), document }
}

/// Writes a row, encrypted if its kind asks for that. Gives the memory of its document back.
fn execute(
    put: &mut kubefold_sql::rusqlite::CachedStatement<'_>,
    id: i64,
    feed: &MirroredKind,
    key: Option<&StateKey>,
    row: Written,
) -> SqlResult<Vec<u8>> {
    let Written { key: own_key, uid, revision, digest, document } = row;
    let document = match key.filter(|_| is_secret(&feed.gvr)) {
        Some(key) => key.seal(&place(feed, &own_key), document)?,
        None => document,
    };
    put.execute(params![id, own_key, uid, revision, digest, document])?;
    Ok(document)
}

/// What an encrypted object is encrypted for.
fn place(feed: &MirroredKind, own_key: &str) -> String {
    format!("objects/{}/{}/{own_key}", feed.gvr.qualified(), feed.member)
}

fn id_of(sql: &Connection, feed: &MirroredKind) -> SqlResult<Option<i64>> {
    let mut find = sql.prepare_cached(
        "SELECT id FROM feeds WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3 AND member = ?4",
    )?;
    let Gvr { group, version, resource } = &feed.gvr;
    find.query_row(params![&**group, &**version, &**resource, feed.member.as_str()], |row| row.get(0)).optional()
}

/// Says whether all objects of a feed are there.
fn is_complete(sql: &Connection, feed: &MirroredKind) -> SqlResult<bool> {
    let Some(id) = id_of(sql, feed)? else { return Ok(false) };
    let mut find = sql.prepare_cached("SELECT revision > 0 FROM feeds WHERE id = ?1")?;
    find.query_row([id], |row| row.get(0))
}

/// Notes where a feed stands; gives its number.
fn place_feed(sql: &Connection, feed: &MirroredKind, position: &Position, revision: i64) -> SqlResult<i64> {
    let mut put = sql.prepare_cached(
        "INSERT INTO feeds (\"group\", version, resource, member, cluster_uid, revision, definition, followed_at_ms, is_followed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1)
         ON CONFLICT (\"group\", version, resource, member) DO UPDATE SET cluster_uid = excluded.cluster_uid,
             revision = excluded.revision, definition = excluded.definition, followed_at_ms = excluded.followed_at_ms,
             is_followed = 1
         RETURNING id",
    )?;
    let Gvr { group, version, resource } = &feed.gvr;
    let Position { cluster_uid, definition, .. } = position;
    let of_feed = params![
        &**group,
        &**version,
        &**resource,
        feed.member.as_str(),
        &**cluster_uid,
        revision,
        signed(*definition),
        signed(now_ms())
    ];
    put.query_row(of_feed, |row| row.get(0))
}

fn feed_of(row: &Row<'_>) -> SqlResult<Option<MirroredKind>> {
    let [group, version, resource, member] = [row.get(1)?, row.get(2)?, row.get(3)?, row.get::<_, String>(4)?];
    Ok(MemberName::new(&member).map(|member| MirroredKind { gvr: Gvr::new(&group, &version, &resource), member }))
}

/// A number that stands for a document.
pub(super) fn digest_of(document: &[u8]) -> i64 {
    let digest = digest(&SHA256, document);
    let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
    i64::from_le_bytes(first)
}

/// SQLite has no unsigned numbers.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Milliseconds of Unix time.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
