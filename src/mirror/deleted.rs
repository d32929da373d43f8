//! What was deleted in members, kept for a time: the rows of the objects stay, with the time at which kubefold heard of it, and
//! what is looked for is put beside them.

use kubefold_sql::{Sql, SqlError, Value, params};

use crate::search::sql::Indexed;

/// Keeps what a feed has under a key as deleted, if it is another object than that of the UID.
pub(super) fn bury(sql: Sql<'_>, feed: i64, key: &str, but_uid: &str, at_us: i64) -> Result<(), SqlError> {
    let find = "SELECT id, uid, document FROM objects
        WHERE feed = ?1 AND key = ?2 AND deleted_us = 0 AND (uid <> ?3 OR uid = '')";
    let found: Option<(i64, String, Vec<u8>)> =
        sql.row(find, params![feed, key, but_uid], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let Some((id, uid, document)) = found else { return Ok(()) };
    let json = String::from_utf8(document).unwrap_or_default();
    // What was kept by an earlier version has none.
    let uid = if uid.is_empty() { Indexed::uid_of(&json).unwrap_or_default() } else { uid };
    if uid == but_uid {
        return Ok(());
    }
    // Two objects of one key may have been deleted in one turn of the clock.
    let last = "SELECT max(deleted_us) FROM objects WHERE feed = ?1 AND key = ?2";
    let last: Option<i64> = sql.row(last, params![feed, key], |row| row.get(0))?.flatten();
    let at_us = at_us.max(last.unwrap_or_default() + 1);
    sql.execute("UPDATE objects SET deleted_us = ?2, uid = ?3 WHERE id = ?1", params![id, at_us, &uid])?;
    index(sql, id, key, &json)
}

/// Puts beside an object what is looked for.
pub(super) fn index(sql: Sql<'_>, object: i64, key: &str, json: &str) -> Result<(), SqlError> {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let Indexed { created_us, owner, labels } = Indexed::of(json);
    let put = "UPDATE objects SET namespace = ?2, name = ?3, created_us = ?4, owner = ?5 WHERE id = ?1";
    sql.execute(put, params![object, namespace, name, created_us, owner.as_deref()])?;
    // Of an object of a stored kind they are there already.
    sql.execute("DELETE FROM labels WHERE object = ?1", params![object])?;
    let put = sql.prepare(
        "INSERT INTO labels (object, key, value, number) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (object, key) DO NOTHING",
    )?;
    put.execute_all(labels.iter().map(|label| {
        [Value::from(object), Value::from(&label.key), Value::from(&label.value), Value::from(label.number)]
    }))
}

/// Forgets what was deleted before a time, and the oldest of the rest beyond so many bytes.
pub(super) fn trim(sql: Sql<'_>, until_us: i64, bytes_max: i64) -> Result<(), SqlError> {
    sql.execute("DELETE FROM objects WHERE deleted_us > 0 AND deleted_us < ?1", params![until_us])?;
    let oldest = "DELETE FROM objects WHERE id IN (
        SELECT id FROM (
            SELECT id, sum(length(document)) OVER (ORDER BY deleted_us DESC, id DESC) AS bytes
            FROM objects WHERE deleted_us > 0
        ) AS latest WHERE bytes > ?1)";
    sql.execute(oldest, params![bytes_max]).map(drop)
}
