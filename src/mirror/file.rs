//! The database: its tables, what a batch writes, and how it is read.

use std::{
    borrow::Cow,
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use kubefold_sql::{Database, Durability, OpenError, RemoteState, Row, Sql, SqlError, StateKey, Value, Words, params};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    config::MemberName,
    mirror::{
        deleted::{bury, trim},
        figures::Counted,
        kind::{MirrorError, MirroredKind, is_secret},
        tables::{MIGRATIONS, REMOTE_MIGRATIONS, SCHEMA, bytes_statement},
    },
    store::{self, Changes, MemberDocument, Position, unix_micros},
};
use kubefold_wire::resource::Gvr;

/// Objects that are read at once.
pub(super) const PAGE_OBJECTS: i64 = 512;
/// Bytes of documents that one transaction writes of a whole feed.
const CHUNK_BYTES_MAX: usize = 8 << 20;
/// What was deleted has no more of the file than one part of so many.
const DELETED_SHARE: u64 = 4;
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
    pub(super) key: Option<Arc<StateKey>>,
    /// What is deleted is kept, of kinds that are not encrypted.
    keeps_deleted: bool,
    counted_at: Mutex<Option<Instant>>,
}

/// A row as it is kept.
#[derive(Clone)]
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
        Ok(Self::of(Database::open(path, &MIGRATIONS)?, key, keeps_deleted))
    }

    /// Takes a database with the tables.
    pub(super) fn of(database: Database, key: Option<StateKey>, keeps_deleted: bool) -> Self {
        Self { database, key: key.map(Arc::new), keeps_deleted, counted_at: Mutex::default() }
    }

    /// Opens the tables on a server, or makes them.
    pub(super) fn open_in(
        state: &Arc<RemoteState>,
        key: Option<StateKey>,
        keeps_deleted: bool,
    ) -> Result<Self, OpenError> {
        Ok(Self::of(Database::open_in(state, SCHEMA, REMOTE_MIGRATIONS)?, key, keeps_deleted))
    }

    /// Bounds its size, and forgets what another key encrypted. A server has a bound of its own.
    pub(super) fn prepare(&self, bytes_max: u64) -> Result<(), SqlError> {
        self.database.read(|sql| {
            if sql.words() != Words::Sqlite {
                return Ok(());
            }
            let page: Option<i64> = sql.row("PRAGMA page_size", &[], |row| row.get(0))?;
            let pages = i64::try_from(bytes_max).unwrap_or(i64::MAX) / page.unwrap_or(1).max(1);
            sql.batch(&format!("PRAGMA max_page_count = {pages}"))
        })?;
        let key = self.key.clone();
        self.write(move |sql| prove(sql, key.as_deref()))?;
        match &self.key {
            Some(key) if key.has_earlier() => self.renew(key),
            _ => Ok(()),
        }
    }

    /// Encrypts with the first key what an earlier one has encrypted. Whoever is killed in between goes on at the next start: the
    /// proof is last.
    fn renew(&self, key: &Arc<StateKey>) -> Result<(), SqlError> {
        let secrets = "SELECT id, version, member FROM feeds WHERE \"group\" = '' AND resource = 'secrets'";
        let feeds = self.database.read(|sql| {
            sql.rows(secrets, &[], |row| Ok((row.get::<i64>(0)?, row.get::<String>(1)?, row.get::<String>(2)?)))
        })?;
        for (id, version, member) in feeds {
            let Some(member) = MemberName::new(&member) else { continue };
            let feed = MirroredKind { gvr: Gvr::new("", &version, "secrets"), member };
            let mut after = Some(String::new());
            while let Some(from) = after {
                let (feed, key) = (feed.clone(), Arc::clone(key));
                after = self.write(move |sql| renew_page(sql, id, &feed, &key, &from))?;
            }
        }
        let key = Arc::clone(key);
        self.write(move |sql| {
            let proof: Option<Vec<u8>> = sql.row("SELECT proof FROM key_proof", &[], |row| row.get(0))?;
            match proof.map(|proof| key.renewed(PROOF_PLACE, &proof)).transpose()?.flatten() {
                Some(proof) => sql.execute("UPDATE key_proof SET proof = ?1", params![&proof]).map(drop),
                None => Ok(()),
            }
        })
    }

    /// When what is deleted of a kind now is noted to be. `None`: it is not kept.
    pub(super) fn deleted_at(&self, feed: &MirroredKind) -> Option<i64> {
        (self.keeps_deleted && !is_secret(&feed.gvr)).then(|| signed(unix_micros()))
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(Sql<'_>) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, SqlError> {
        self.database.write(Durability::Written, work)
    }

    /// All feeds; `None` of one whose member's name is none any more.
    pub(super) fn feeds(&self) -> Result<Vec<(i64, Option<MirroredKind>)>, SqlError> {
        let feeds = "SELECT id, \"group\", version, resource, member FROM feeds";
        self.database.read(|sql| sql.rows(feeds, &[], |row| Ok((row.get(0)?, feed_of(row)?))))
    }

    /// Forgets the feeds that are not to be kept.
    pub(super) fn retain(&self, is_kept: impl Fn(&MirroredKind) -> bool) -> Result<(), SqlError> {
        let gone: Vec<i64> = self
            .feeds()?
            .into_iter()
            .filter(|(_, feed)| !feed.as_ref().is_some_and(&is_kept))
            .map(|(id, _)| id)
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.write(move |sql| {
            let delete = sql.prepare("DELETE FROM feeds WHERE id = ?1")?;
            gone.iter().try_for_each(|id| delete.execute(params![*id]).map(drop))
        })
    }

    pub(super) fn position(&self, feed: &MirroredKind) -> Result<Option<KeptPosition>, SqlError> {
        self.database.read(|sql| {
            let find = "SELECT cluster_uid, revision, definition, followed_at_ms, is_followed FROM feeds
                WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3 AND member = ?4 AND revision > 0";
            let kept = |row: Row<'_>| {
                let cluster_uid: &str = row.get(0)?;
                let position = Position {
                    cluster_uid: cluster_uid.into(),
                    revision: unsigned(row.get(1)?),
                    definition: unsigned(row.get(2)?),
                };
                let age = now_ms().checked_sub(unsigned(row.get(3)?)).map(Duration::from_millis);
                Ok(KeptPosition { position, age, is_followed: row.get(4)? })
            };
            sql.row(find, &words(feed), kept)
        })
    }

    pub(super) fn page(&self, feed: &MirroredKind, after: &str) -> Result<Vec<KeptObject>, MirrorError> {
        let rows: Vec<Written> = self.database.read(|sql| {
            let Some(id) = id_of(sql, feed)? else { return Ok(Vec::new()) };
            let page = "SELECT key, uid, revision, digest, document FROM objects
                WHERE feed = ?1 AND key > ?2 AND deleted_us = 0 ORDER BY key LIMIT ?3";
            sql.rows(page, params![id, after, PAGE_OBJECTS], |row| {
                let (key, uid, revision) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Written { key, uid, revision, digest: row.get(3)?, document: row.get(4)? })
            })
        })?;
        rows.into_iter().map(|row| self.opened(feed, row)).collect()
    }

    pub(super) fn opened(&self, feed: &MirroredKind, row: Written) -> Result<KeptObject, MirrorError> {
        let Written { key, digest, document, .. } = row;
        let document = self.unsealed(feed, &key, Cow::Owned(document), digest);
        match document.map(|document| String::from_utf8(document.into_owned())) {
            Some(Ok(document)) => Ok(KeptObject { key, document }),
            Some(Err(_)) | None => {
                let (resource, member) = (feed.gvr.qualified(), feed.member.clone());
                Err(MirrorError::Damaged { key, resource, member })
            }
        }
    }

    /// A document as the member gave it. `None`: it is damaged.
    pub(super) fn unsealed<'d>(
        &self,
        feed: &MirroredKind,
        key: &str,
        document: Cow<'d, [u8]>,
        digest: i64,
    ) -> Option<Cow<'d, [u8]>> {
        let document = match &self.key {
            Some(state_key) if is_secret(&feed.gvr) => {
                state_key.open(&place(feed, key), &document).ok().map(Cow::Owned)
            }
            _ => Some(document),
        };
        document.filter(|document| digest_of(document) == digest)
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
            if let Some(at) = deleted_at {
                for (own_key, document) in &objects {
                    let uid = document.as_ref().map(MemberDocument::uid).unwrap_or_default();
                    bury(sql, id, own_key, uid, at)?;
                }
            }
            if sql.words() != Words::Sqlite {
                return keep_at_once(sql, id, &feed, key.as_deref(), objects).map(|()| true);
            }
            let (gone, put, mut text) = (sql.prepare(DELETE)?, sql.prepare(PUT)?, Vec::new());
            for (own_key, document) in objects {
                match document {
                    None => drop(gone.execute(params![id, &own_key])?),
                    Some(document) => {
                        text.clear();
                        document.write(&mut text);
                        let row =
                            sealed(&feed, key.as_deref(), written(own_key, &document, std::mem::take(&mut text)))?;
                        put.execute(&row.values(id))?;
                        text = row.document;
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
            let mut held = HashMap::new();
            let all = "SELECT key, revision, digest FROM objects WHERE feed = ?1 AND deleted_us = 0";
            sql.each(all, params![id], |row| {
                held.insert(row.get(0)?, (row.get(1)?, row.get(2)?));
                Ok(())
            })?;
            Ok(held)
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
            if let Some(at) = deleted_at {
                rows.iter().try_for_each(|row| bury(sql, id, &row.key, &row.uid, at))?;
                gone.iter().try_for_each(|own_key| bury(sql, id, own_key, "", at))?;
            }
            let rows = rows.into_iter().map(|row| sealed(&feed, key.as_deref(), row));
            let rows = rows.collect::<Result<Vec<Written>, SqlError>>()?;
            sql.prepare(PUT)?.execute_all(rows.iter().map(|row| row.values(id)))?;
            let gone = gone.iter().map(|own_key| [Value::from(id), Value::from(own_key)]);
            sql.prepare(DELETE)?.execute_all(gone)
        })
    }

    pub(super) fn touch(&self, feed: &MirroredKind, is_followed: bool) -> Result<(), SqlError> {
        let feed = feed.clone();
        self.write(move |sql| {
            let Some(id) = id_of(sql, &feed)? else { return Ok(()) };
            match is_followed {
                true => {
                    let touch = "UPDATE feeds SET is_followed = 1, followed_at_ms = ?2 WHERE id = ?1 AND listing = 0";
                    sql.execute(touch, params![id, signed(now_ms())]).map(drop)
                }
                false => sql.execute("UPDATE feeds SET is_followed = 0 WHERE id = ?1", params![id]).map(drop),
            }
        })
    }

    pub(super) fn forget(&self, feed: &MirroredKind) -> Result<(), SqlError> {
        let feed = feed.clone();
        self.write(move |sql| {
            let Some(id) = id_of(sql, &feed)? else { return Ok(()) };
            sql.execute("DELETE FROM feeds WHERE id = ?1", params![id]).map(drop)
        })
    }

    pub(super) fn kinds(&self) -> Result<Vec<Gvr>, SqlError> {
        self.database.read(|sql| {
            sql.rows("SELECT DISTINCT \"group\", version, resource FROM feeds", &[], |row| {
                Ok(Gvr::new(row.get(0)?, row.get(1)?, row.get(2)?))
            })
        })
    }

    pub(super) fn catalogs(&self) -> Result<Vec<KeptCatalog>, SqlError> {
        let all: Vec<Option<KeptCatalog>> = self.database.read(|sql| {
            sql.rows("SELECT member, cluster_uid, catalog FROM catalogs", &[], |row| {
                let (member, cluster_uid): (&str, &str) = (row.get(0)?, row.get(1)?);
                let (cluster_uid, document) = (cluster_uid.into(), row.get(2)?);
                Ok(MemberName::new(member).map(|member| KeptCatalog { member, cluster_uid, document }))
            })
        })?;
        Ok(all.into_iter().flatten().collect())
    }

    pub(super) fn keep_catalog(&self, catalog: KeptCatalog) -> Result<(), SqlError> {
        self.write(move |sql| {
            let KeptCatalog { member, cluster_uid, document } = &catalog;
            let put = "INSERT INTO catalogs VALUES (?1, ?2, ?3)
                ON CONFLICT (member) DO UPDATE SET cluster_uid = excluded.cluster_uid, catalog = excluded.catalog";
            sql.execute(put, params![member.as_str(), &**cluster_uid, document]).map(drop)
        })
    }

    /// Forgets what was deleted longer ago, and the oldest of it beyond its share of the file's bytes. `None`: all of it.
    pub(super) fn trim_deleted(&self, keep: Option<Duration>, bytes_max: u64) -> Result<(), SqlError> {
        let micros = keep.map(|keep| u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
        let until = micros.map_or(i64::MAX, |micros| signed(unix_micros().saturating_sub(micros)));
        let share = signed(bytes_max / DELETED_SHARE);
        self.write(move |sql| trim(sql, until, share))
    }

    /// Counts what is in the file, if that is due.
    pub(super) fn counted(&self) -> Option<Counted> {
        let mut counted_at = self.counted_at.lock();
        if counted_at.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return None;
        }
        let count = |sql: Sql<'_>| {
            let number = |statement: &str| {
                Ok::<_, SqlError>(unsigned(sql.row(statement, &[], |row| row.get(0))?.unwrap_or_default()))
            };
            let rows = number("SELECT count(*) FROM objects WHERE deleted_us = 0")?;
            Ok(Counted { rows, bytes: number(bytes_statement(sql.words()))? })
        };
        let counted = self.database.read(count).ok()?;
        *counted_at = Some(Instant::now());
        Some(counted)
    }
}

/// Forgets what was encrypted with another key than this, or with one where there is none.
fn prove(sql: Sql<'_>, key: Option<&StateKey>) -> Result<(), SqlError> {
    let proof: Option<Vec<u8>> = sql.row("SELECT proof FROM key_proof", &[], |row| row.get(0))?;
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
    for table in ["feeds", "shown"] {
        sql.execute(&format!("DELETE FROM {table} WHERE \"group\" = '' AND resource = 'secrets'"), &[])?;
    }
    sql.execute("DELETE FROM key_proof", &[])?;
    if let Some(key) = key {
        let proof = key.seal(PROOF_PLACE, PROOF.as_bytes().to_vec())?;
        sql.execute("INSERT INTO key_proof VALUES (1, ?1)", params![&proof])?;
    }
    Ok(())
}

/// Encrypts some rows anew. Gives the last one's key, unless there are no more.
fn renew_page(
    sql: Sql<'_>,
    id: i64,
    feed: &MirroredKind,
    key: &StateKey,
    after: &str,
) -> Result<Option<String>, SqlError> {
    let page =
        "SELECT key, document FROM objects WHERE feed = ?1 AND key > ?2 AND deleted_us = 0 ORDER BY key LIMIT ?3";
    let rows =
        sql.rows(page, params![id, after, PAGE_OBJECTS], |row| Ok((row.get::<String>(0)?, row.get::<Vec<u8>>(1)?)))?;
    let update = "UPDATE objects SET document = ?3 WHERE feed = ?1 AND key = ?2 AND deleted_us = 0";
    for (own_key, document) in &rows {
        // One that is damaged is found when it is read.
        if let Ok(Some(document)) = key.renewed(&place(feed, own_key), document) {
            sql.execute(update, params![id, own_key, &document])?;
        }
    }
    Ok(rows.into_iter().next_back().map(|(own_key, _)| own_key))
}

const PUT: &str = "INSERT INTO objects (feed, key, uid, revision, digest, document) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (feed, key, deleted_us) DO UPDATE SET uid = excluded.uid, revision = excluded.revision,
        digest = excluded.digest, document = excluded.document";
const DELETE: &str = "DELETE FROM objects WHERE feed = ?1 AND key = ?2 AND deleted_us = 0";

fn written(key: String, of: &MemberDocument, document: Vec<u8>) -> Written {
    let (uid, revision) = (of.uid().to_owned(), signed(of.revision()));
    Written { key, uid, revision, digest: digest_of(&document), document }
}

impl Written {
    /// The parameters of [`PUT`].
    fn values(&self, feed: i64) -> [Value<'_>; 6] {
        let Self { key, uid, revision, digest, document } = self;
        [feed.into(), key.into(), uid.into(), (*revision).into(), (*digest).into(), document.into()]
    }
}

/// Encrypts a row if its kind asks for that.
fn sealed(feed: &MirroredKind, key: Option<&StateKey>, row: Written) -> Result<Written, SqlError> {
    match key.filter(|_| is_secret(&feed.gvr)) {
        Some(key) => Ok(Written { document: key.seal(&place(feed, &row.key), row.document)?, ..row }),
        None => Ok(row),
    }
}

/// Writes what changed without waiting for each object: to a server each wait is one way there and back.
fn keep_at_once(
    sql: Sql<'_>,
    id: i64,
    feed: &MirroredKind,
    key: Option<&StateKey>,
    objects: HashMap<String, Option<MemberDocument>>,
) -> Result<(), SqlError> {
    let (mut gone, mut rows) = (Vec::new(), Vec::new());
    for (own_key, document) in objects {
        match document {
            None => gone.push(own_key),
            Some(document) => {
                let mut text = Vec::new();
                document.write(&mut text);
                rows.push(sealed(feed, key, written(own_key, &document, text))?);
            }
        }
    }
    sql.prepare(DELETE)?.execute_all(gone.iter().map(|own_key| [Value::from(id), Value::from(own_key)]))?;
    sql.prepare(PUT)?.execute_all(rows.iter().map(|row| row.values(id)))
}

/// What an encrypted object is encrypted for.
fn place(feed: &MirroredKind, own_key: &str) -> String {
    format!("objects/{}/{}/{own_key}", feed.gvr.qualified(), feed.member)
}

/// A feed, as the tables name it.
pub(super) fn words(feed: &MirroredKind) -> [Value<'_>; 4] {
    let Gvr { group, version, resource } = &feed.gvr;
    [Value::from(&**group), Value::from(&**version), Value::from(&**resource), Value::from(feed.member.as_str())]
}

fn id_of(sql: Sql<'_>, feed: &MirroredKind) -> Result<Option<i64>, SqlError> {
    let find = "SELECT id FROM feeds WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3 AND member = ?4";
    sql.row(find, &words(feed), |row| row.get(0))
}

/// Says whether all objects of a feed are there.
fn is_complete(sql: Sql<'_>, feed: &MirroredKind) -> Result<bool, SqlError> {
    let find = "SELECT revision > 0 FROM feeds WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3 AND member = ?4";
    Ok(sql.row(find, &words(feed), |row| row.get(0))?.unwrap_or(false))
}

/// Notes where a feed stands; gives its number.
fn place_feed(sql: Sql<'_>, feed: &MirroredKind, position: &Position, revision: i64) -> Result<i64, SqlError> {
    let put = "INSERT INTO feeds
            (\"group\", version, resource, member, cluster_uid, revision, definition, followed_at_ms, is_followed)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1)
        ON CONFLICT (\"group\", version, resource, member) DO UPDATE SET cluster_uid = excluded.cluster_uid,
            revision = excluded.revision, definition = excluded.definition, followed_at_ms = excluded.followed_at_ms,
            is_followed = 1";
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
    let id = match sql.words() {
        // It gives no row of what it changes.
        Words::Mysql => {
            sql.execute(put, of_feed)?;
            id_of(sql, feed)?
        }
        _ => sql.row(&format!("{put} RETURNING id"), of_feed, |row| row.get(0))?,
    };
    id.ok_or_else(|| SqlError::of_value("a statement that gives a row gave none"))
}

fn feed_of(row: Row<'_>) -> Result<Option<MirroredKind>, SqlError> {
    let [group, version, resource, member] = [row.get(1)?, row.get(2)?, row.get(3)?, row.get::<&str>(4)?];
    Ok(MemberName::new(member).map(|member| MirroredKind { gvr: Gvr::new(group, version, resource), member }))
}

/// A number that stands for a document.
pub(super) fn digest_of(document: &[u8]) -> i64 {
    store::digest_of(document).cast_signed()
}

/// SQLite has no unsigned numbers.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Milliseconds of Unix time.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
