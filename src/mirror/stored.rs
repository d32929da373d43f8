//! Kinds whose objects no memory has: what their members tell goes into the tables as it comes, with what is looked for beside it.
//!
//! A full list is written in many transactions. Each object has the number of the list that saw it last, and what the list did
//! not see is gone when it ends. Until then the feed keeps the position that it had, and counts as not followed, so that a
//! process that begins in between lists again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use kubefold_sql::{Sql, SqlError, Value, Words, params};

use crate::{
    mirror::{
        deleted::bury,
        file::{File, PAGE_OBJECTS, digest_of, now_ms, signed, words},
        kind::{MirrorError, MirroredKind},
    },
    search::sql::Indexed,
    store::{Report, ReportedObject},
};

impl File {
    /// Writes what a member told, in one transaction. `false`: what it adds to is not there.
    pub(super) fn report(&self, feed: &MirroredKind, reports: Arc<[Report]>) -> Result<bool, SqlError> {
        let (feed, deleted_at) = (feed.clone(), self.deleted_at(feed));
        self.write(move |sql| {
            let mut written = Writing { sql, of: Stood::find(sql, &feed)?, deleted_at, waiting: BTreeMap::new() };
            for report in reports.iter() {
                if !written.take(&feed, report)? {
                    return Ok(false);
                }
            }
            written.flush()?;
            written.note()?;
            Ok(true)
        })
    }

    /// Has the rows of feeds that are stored with what is looked for beside each, and no others.
    ///
    /// Shape: a transaction for each page of a feed that was not stored before; who is killed meanwhile goes on behind it.
    pub(super) fn prepare_stored(&self, is_stored: impl Fn(&MirroredKind) -> bool) -> Result<(), SqlError> {
        let (stored, others): (Vec<_>, Vec<_>) =
            self.feeds()?.into_iter().partition(|(_, feed)| feed.as_ref().is_some_and(&is_stored));
        for (id, _) in stored {
            let mut after = Some(String::new());
            while let Some(behind) = after {
                after = self.write(move |sql| index_page(sql, id, &behind))?;
            }
        }
        self.write(move |sql| {
            for (id, _) in others {
                let labels = "DELETE FROM labels WHERE object IN
                    (SELECT id FROM objects WHERE feed = ?1 AND deleted_us = 0 AND name IS NOT NULL)";
                sql.execute(labels, params![id])?;
                let columns = "UPDATE objects SET namespace = NULL, name = NULL, created_us = NULL, owner = NULL
                    WHERE feed = ?1 AND deleted_us = 0 AND name IS NOT NULL";
                sql.execute(columns, params![id])?;
            }
            Ok(())
        })
    }

    /// The document of one object that exists, with the revision that it has in its member.
    pub(super) fn stored(&self, feed: &MirroredKind, key: &str) -> Result<Option<String>, MirrorError> {
        let found = self.database.read_aside(|sql| {
            let Some(Stood { id, revision, .. }) = Stood::find(sql, feed)? else { return Ok(None) };
            let find = "SELECT digest, document FROM objects WHERE feed = ?1 AND key = ?2 AND deleted_us = 0";
            let found: Option<(i64, Vec<u8>)> =
                sql.row(find, params![id, key], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(found.filter(|_| revision > 0))
        })?;
        let Some((digest, document)) = found else { return Ok(None) };
        let document = Some(document).filter(|document| digest_of(document) == digest);
        let document = document.and_then(|document| String::from_utf8(document).ok());
        let (resource, member) = (feed.gvr.qualified(), feed.member.clone());
        document.map(Some).ok_or(MirrorError::Damaged { key: key.to_owned(), resource, member })
    }
}

/// Puts what is looked for beside the rows of a page, and gives the key of the last. Where one is damaged all are listed anew.
fn index_page(sql: Sql<'_>, feed: i64, after: &str) -> Result<Option<String>, SqlError> {
    let page = "SELECT key, id, uid, digest, document FROM objects
        WHERE feed = ?1 AND key > ?2 AND deleted_us = 0 AND name IS NULL ORDER BY key LIMIT ?3";
    let mut rows = Vec::new();
    sql.each(page, params![feed, after, PAGE_OBJECTS], |row| {
        let (digest, document): (i64, Vec<u8>) = (row.get(3)?, row.get(4)?);
        let text = Some(document).filter(|document| digest_of(document) == digest);
        let text = text.and_then(|document| String::from_utf8(document).ok());
        let (key, id, uid): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        rows.push(text.map(|text| {
            // What an earlier version wrote has none.
            let uid = if uid.is_empty() { Indexed::uid_of(&text).unwrap_or_default() } else { uid };
            Unindexed { key, id, uid, indexed: Indexed::of(&text) }
        }));
        Ok(())
    })?;
    let Some(rows) = rows.into_iter().collect::<Option<Vec<Unindexed>>>() else {
        sql.execute("DELETE FROM objects WHERE feed = ?1 AND deleted_us = 0 AND name IS NULL", params![feed])?;
        return sql.execute("UPDATE feeds SET revision = 0 WHERE id = ?1", params![feed]).map(|_| None);
    };
    let put = "UPDATE objects SET namespace = ?2, name = ?3, created_us = ?4, owner = ?5, uid = ?6 WHERE id = ?1";
    sql.prepare(put)?.execute_all(rows.iter().map(|row| {
        let (namespace, name) = row.key.split_once('/').unwrap_or(("", &row.key));
        let (created, owner) = (Value::from(row.indexed.created_us), Value::from(row.indexed.owner.as_deref()));
        [Value::from(row.id), Value::from(namespace), Value::from(name), created, owner, Value::from(&row.uid)]
    }))?;
    let labels = rows.iter().flat_map(|row| row.indexed.labels.iter().map(|label| (row.id, label)));
    let put = "INSERT INTO labels (object, key, value, number) VALUES (?1, ?2, ?3, ?4)";
    sql.prepare(put)?.execute_all(labels.map(|(id, label)| {
        [Value::from(id), Value::from(&label.key), Value::from(&label.value), Value::from(label.number)]
    }))?;
    Ok(rows.into_iter().next_back().map(|row| row.key))
}

/// A row beside which there is nothing to find it by.
struct Unindexed {
    key: String,
    id: i64,
    uid: String,
    indexed: Indexed,
}

/// Where a feed stands in the tables.
#[derive(Clone, Copy)]
struct Stood {
    id: i64,
    revision: i64,
    generation: i64,
    is_listing: bool,
    /// Something is to be noted of it.
    is_news: bool,
}

impl Stood {
    fn find(sql: Sql<'_>, feed: &MirroredKind) -> Result<Option<Self>, SqlError> {
        let find = "SELECT id, revision, generation, listing FROM feeds
            WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3 AND member = ?4";
        sql.row(find, &words(feed), |row| {
            let (id, revision, generation) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Self { id, revision, generation, is_listing: row.get(3)?, is_news: false })
        })
    }
}

/// Reports on their way into the tables.
struct Writing<'a> {
    sql: Sql<'a>,
    of: Option<Stood>,
    deleted_at: Option<i64>,
    /// What is under each key by the last report; `None`: nothing.
    waiting: BTreeMap<String, Option<Document>>,
}

/// An object as it is to be written.
struct Document {
    uid: String,
    revision: i64,
    digest: i64,
    text: String,
}

impl Document {
    fn of(object: &ReportedObject) -> Self {
        let ReportedObject { uid, revision, document, .. } = object;
        let digest = digest_of(document.as_bytes());
        Self { uid: uid.clone(), revision: signed(*revision), digest, text: document.clone() }
    }
}

const PUT: &str = "INSERT INTO objects
        (feed, key, uid, revision, digest, document, namespace, name, created_us, owner, listed)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (feed, key, deleted_us) DO UPDATE SET uid = excluded.uid, revision = excluded.revision,
        digest = excluded.digest, document = excluded.document, namespace = excluded.namespace, name = excluded.name,
        created_us = excluded.created_us, owner = excluded.owner, listed = excluded.listed";
const DELETE: &str = "DELETE FROM objects WHERE feed = ?1 AND key = ?2 AND deleted_us = 0";
const SEEN: &str = "UPDATE objects SET listed = ?3 WHERE feed = ?1 AND key = ?2 AND deleted_us = 0";
const UNLABEL: &str = "DELETE FROM labels WHERE object =
    (SELECT id FROM objects WHERE feed = ?1 AND key = ?2 AND deleted_us = 0)";
const LABEL: &str = "INSERT INTO labels (object, key, value, number)
    SELECT id, ?3, ?4, ?5 FROM objects WHERE feed = ?1 AND key = ?2 AND deleted_us = 0";

impl Writing<'_> {
    /// `false`: what the report adds to is not there.
    fn take(&mut self, feed: &MirroredKind, report: &Report) -> Result<bool, SqlError> {
        if let Report::ListBegan = report {
            self.flush()?;
            self.begin_list(feed)?;
            return Ok(true);
        }
        let Some(of) = self.of.as_mut().filter(|of| of.is_listing || of.revision > 0) else { return Ok(false) };
        let mut reached = |revision: u64| {
            if !of.is_listing {
                (of.revision, of.is_news) = (of.revision.max(signed(revision)), true);
            }
        };
        match report {
            Report::ListBegan => {}
            Report::Object(object) => {
                reached(object.revision);
                self.waiting.insert(object.key.clone(), Some(Document::of(object)));
            }
            Report::Gone { key, revision } => {
                reached(*revision);
                self.waiting.insert(key.clone(), None);
            }
            Report::At(revision) => reached(*revision),
            Report::ListEnded { cluster_uid, revision, definition } => {
                self.flush()?;
                self.end_list(cluster_uid, signed(*revision), signed(*definition))?;
            }
        }
        Ok(true)
    }

    fn begin_list(&mut self, feed: &MirroredKind) -> Result<(), SqlError> {
        let put = "INSERT INTO feeds (\"group\", version, resource, member, cluster_uid, revision, definition,
                followed_at_ms, is_followed, generation, listing)
            VALUES (?1, ?2, ?3, ?4, '', 0, 0, 0, 0, 1, 1)
            ON CONFLICT (\"group\", version, resource, member) DO UPDATE SET
                is_followed = 0, generation = feeds.generation + 1, listing = 1";
        self.sql.execute(put, &words(feed))?;
        self.of = Stood::find(self.sql, feed)?;
        Ok(())
    }

    /// What the list did not see is gone.
    fn end_list(&mut self, cluster_uid: &str, revision: i64, definition: i64) -> Result<(), SqlError> {
        let Some(of) = &mut self.of else { return Ok(()) };
        let (id, generation, sql) = (of.id, of.generation, self.sql);
        let unseen = "SELECT key FROM objects WHERE feed = ?1 AND deleted_us = 0 AND listed <> ?2";
        if let Some(at) = self.deleted_at {
            let gone: Vec<String> = sql.rows(unseen, params![id, generation], |row| row.get(0))?;
            gone.iter().try_for_each(|key| bury(sql, id, key, "", at))?;
        }
        let delete = "DELETE FROM objects WHERE feed = ?1 AND deleted_us = 0 AND listed <> ?2";
        sql.execute(delete, params![id, generation])?;
        let put = "UPDATE feeds SET listing = 0, cluster_uid = ?2, definition = ?3 WHERE id = ?1";
        sql.execute(put, params![id, cluster_uid, definition])?;
        (of.revision, of.is_listing, of.is_news) = (revision, false, true);
        Ok(())
    }

    /// Writes what waits: of what is as it was only that it was seen.
    fn flush(&mut self) -> Result<(), SqlError> {
        let (sql, waiting) = (self.sql, std::mem::take(&mut self.waiting));
        let Some(Stood { id, generation, .. }) = self.of.filter(|_| !waiting.is_empty()) else { return Ok(()) };
        let held = held(sql, id, &waiting)?;
        let is_same = |key: &str, document: &Document| {
            held.get(key).is_some_and(|held| (held.0, held.1) == (document.revision, document.digest))
        };
        let (mut gone, mut seen, mut puts) = (Vec::new(), Vec::new(), Vec::new());
        for (key, document) in &waiting {
            match document {
                None => gone.push(key),
                Some(document) if is_same(key, document) => seen.push(key),
                Some(document) => puts.push((key, document, Indexed::of(&document.text))),
            }
        }
        if let Some(at) = self.deleted_at {
            gone.iter().try_for_each(|key| bury(sql, id, key, "", at))?;
            puts.iter().try_for_each(|(key, document, _)| bury(sql, id, key, &document.uid, at))?;
        }
        sql.prepare(DELETE)?.execute_all(gone.iter().map(|key| [Value::from(id), Value::from(*key)]))?;
        let seen = seen.iter().map(|key| [Value::from(id), Value::from(*key), Value::from(generation)]);
        sql.prepare(SEEN)?.execute_all(seen)?;
        sql.prepare(PUT)?.execute_all(puts.iter().map(|(key, document, indexed)| {
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            [
                Value::from(id),
                Value::from(*key),
                Value::from(&document.uid),
                Value::from(document.revision),
                Value::from(document.digest),
                Value::from(document.text.as_bytes()),
                Value::from(namespace),
                Value::from(name),
                Value::from(indexed.created_us),
                Value::from(indexed.owner.as_deref()),
                Value::from(generation),
            ]
        }))?;
        let was_there = puts.iter().filter(|(key, ..)| held.contains_key(*key));
        sql.prepare(UNLABEL)?.execute_all(was_there.map(|(key, ..)| [Value::from(id), Value::from(*key)]))?;
        let labels = puts.iter().flat_map(|(key, _, indexed)| indexed.labels.iter().map(move |label| (key, label)));
        sql.prepare(LABEL)?.execute_all(labels.map(|(key, label)| {
            let number = Value::from(label.number);
            [Value::from(id), Value::from(*key), Value::from(&label.key), Value::from(&label.value), number]
        }))
    }

    /// Notes where the feed stands now.
    fn note(&self) -> Result<(), SqlError> {
        let Some(Stood { id, revision, .. }) = self.of.filter(|of| of.is_news) else { return Ok(()) };
        let put = "UPDATE feeds SET revision = ?2, followed_at_ms = ?3, is_followed = 1 WHERE id = ?1";
        self.sql.execute(put, params![id, revision, signed(now_ms())]).map(drop)
    }
}

/// The revision and digest of what is under keys now.
fn held(sql: Sql<'_>, feed: i64, keys: &BTreeMap<String, Option<Document>>) -> Result<HashMap<String, Held>, SqlError> {
    let find = held_statement(sql.words());
    let keys = serde_json::Value::from(keys.keys().map(String::as_str).collect::<Vec<_>>()).to_string();
    let mut held = HashMap::new();
    sql.each(find, params![feed, &keys], |row| {
        held.insert(row.get(0)?, Held(row.get(1)?, row.get(2)?));
        Ok(())
    })?;
    Ok(held)
}

/// Finds the rows of a feed (`?1`) under keys (`?2`, a JSON array): `key`, `revision`, `digest`.
///
/// PostgreSQL plans it once, while the table is empty, and goes over all rows of the feed ever after if it may join them with the keys. A
/// subquery with a limit is none that it makes a join of.
pub(super) fn held_statement(words: Words) -> &'static str {
    match words {
        Words::Mysql => {
            "SELECT o.key, o.revision, o.digest
            FROM JSON_TABLE(?2, '$[*]' COLUMNS (name VARCHAR(2048) CHARACTER SET utf8mb4 PATH '$')) AS wanted
            STRAIGHT_JOIN objects o ON o.feed = ?1 AND o.key = CAST(wanted.name AS BINARY) AND o.deleted_us = 0"
        }
        Words::Postgres => {
            "SELECT o.key, o.revision, o.digest FROM json_array_elements_text(CAST(?2 AS TEXT)::json) AS wanted (key)
            CROSS JOIN LATERAL (SELECT key, revision, digest FROM objects
                WHERE feed = ?1 AND deleted_us = 0 AND key = wanted.key LIMIT 1) AS o"
        }
        Words::Sqlite => {
            "SELECT key, revision, digest FROM objects
            WHERE feed = ?1 AND deleted_us = 0 AND key IN (SELECT value FROM json_each(CAST(?2 AS TEXT)))"
        }
    }
}

/// The revision and digest of a row.
struct Held(i64, i64);
