//! What was deleted in members, kept for a time: the rows of the objects stay, with the time at which kubefold heard of it, and
//! what is looked for is put beside them.

use std::time::Duration;

use kubefold_sql::{
    SqlError,
    rusqlite::{Connection, OptionalExtension, Result as SqlResult, params},
};

use crate::{
    mirror::file::{File, signed},
    search::sql::Indexed,
    store::unix_micros,
};

/// What was deleted has no more of the file than one part of so many.
const SHARE: u64 = 4;

/// Keeps what a feed has under a key as deleted, if it is another object than that of the UID.
pub(super) fn bury(sql: &Connection, feed: i64, key: &str, but_uid: &str, at_us: i64) -> SqlResult<()> {
    let mut find = sql.prepare_cached(
        "SELECT id, uid, document FROM objects WHERE feed = ?1 AND key = ?2 AND deleted_us = 0 AND (uid <> ?3 OR uid = '')",
    )?;
    let found = find.query_row(params![feed, key, but_uid], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let Some((id, uid, document)): Option<(i64, String, Vec<u8>)> = found.optional()? else { return Ok(()) };
    let json = String::from_utf8(document).unwrap_or_default();
    // What was kept by an earlier version has none.
    let uid = if uid.is_empty() { Indexed::uid_of(&json).unwrap_or_default() } else { uid };
    if uid == but_uid {
        return Ok(());
    }
    // Two objects of one key may have been deleted in one turn of the clock.
    let mut last =
        sql.prepare_cached("SELECT coalesce(max(deleted_us), 0) FROM objects WHERE feed = ?1 AND key = ?2")?;
    let last: i64 = last.query_row(params![feed, key], |row| row.get(0))?;
    let mut bury = sql.prepare_cached("UPDATE objects SET deleted_us = ?2, uid = ?3 WHERE id = ?1")?;
    bury.execute(params![id, at_us.max(last + 1), uid])?;
    index(sql, id, key, &json)
}

/// Puts beside an object what is looked for.
pub(super) fn index(sql: &Connection, object: i64, key: &str, json: &str) -> SqlResult<()> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let Indexed { created_us, owner, labels } = Indexed::of(json);
    let mut put =
        sql.prepare_cached("UPDATE objects SET namespace = ?2, name = ?3, created_us = ?4, owner = ?5 WHERE id = ?1")?;
    put.execute(params![object, namespace, name, created_us, owner])?;
    let mut put = sql.prepare_cached(
        "INSERT INTO labels (object, key, value, number) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (object, key) DO NOTHING",
    )?;
    labels.iter().try_for_each(|label| put.execute(params![object, label.key, label.value, label.number]).map(|_| ()))
}

impl File {
    /// Forgets what was deleted longer ago, and the oldest of it beyond its share of the file's bytes. `None`: all of it.
    pub(super) fn trim_deleted(&self, keep: Option<Duration>, bytes_max: u64) -> Result<(), SqlError> {
        let micros = keep.map(|keep| u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
        let until = micros.map_or(i64::MAX, |micros| signed(unix_micros().saturating_sub(micros)));
        let share = signed(bytes_max / SHARE);
        self.write(move |sql| {
            sql.execute("DELETE FROM objects WHERE deleted_us > 0 AND deleted_us < ?1", [until])?;
            sql.execute(
                "DELETE FROM objects WHERE id IN (
                     SELECT id FROM (
                         SELECT id, sum(length(document)) OVER (ORDER BY deleted_us DESC, id DESC) AS bytes
                         FROM objects WHERE deleted_us > 0
                     ) AS latest WHERE bytes > ?1)",
                [share],
            )
            .map(|_| ())
        })
    }
}
