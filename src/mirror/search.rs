//! Searches over the file: what `crate::search::sql` makes of a query, asked.

#[cfg(test)]
mod tests;

use kubefold_sql::{
    SqlError,
    rusqlite::{Connection, Result as SqlResult, Row, params_from_iter, types::Value},
};

use crate::{
    config::MemberName,
    mirror::{
        file::{File, KeptObject, Written, unsigned},
        kind::{MirrorError, MirroredKind},
    },
    search::{
        Query,
        sql::{Dialect, Parameter, Selection, Statement},
    },
};

/// An object that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObject {
    /// The member that has it, or had it.
    pub member: MemberName,
    /// Its key in its member.
    pub key: String,
    /// Its UID.
    pub uid: String,
    /// Its revision in its member.
    pub revision: u64,
    /// When it was deleted; 0 if it exists. Units: microseconds of Unix time.
    pub deleted_us: i64,
    /// As the member gave it last.
    pub document: String,
}

/// One page of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundPage {
    /// In the order of the query.
    pub objects: Vec<FoundObject>,
    /// Further ones follow.
    pub goes_on: bool,
    /// How many; 0 where the query does not ask for it.
    pub remaining: u64,
}

impl File {
    /// Finds one page of a kind.
    pub(super) fn search(&self, query: &Query, of: &Selection<'_>) -> Result<FoundPage, MirrorError> {
        let page = query.page_statement(of, Dialect::Sqlite);
        let count = query.page.with_remaining.then(|| query.count_statement(of, Dialect::Sqlite));
        // Both in one read: nothing is written between them.
        let (found, count) = self.database.read(|sql| {
            let found = rows(sql, &page, found)?;
            let count = count.map(|count| rows(sql, &count, |row| row.get::<_, i64>(0))).transpose()?;
            Ok((found, count.and_then(|count| count.first().copied())))
        })?;
        let size = query.page.size().unwrap_or(usize::MAX);
        let goes_on = found.len() > size;
        let mut objects = Vec::with_capacity(found.len().min(size));
        for Found { member, deleted_us, kept } in found.into_iter().take(size) {
            let Some(member) = MemberName::new(&member) else { continue };
            let feed = MirroredKind { gvr: of.gvr.clone(), member };
            let (uid, revision) = (kept.uid.clone(), unsigned(kept.revision));
            let KeptObject { key, document } = self.opened(&feed, kept)?;
            objects.push(FoundObject { member: feed.member, key, uid, revision, deleted_us, document });
        }
        let matching = count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default();
        let before = (query.page.offset as u64).saturating_add(objects.len() as u64);
        Ok(FoundPage { objects, goes_on, remaining: matching.saturating_sub(before) })
    }

    /// The UIDs of all objects of a kind that match.
    pub(super) fn uids(&self, query: &Query, of: &Selection<'_>) -> Result<Vec<String>, SqlError> {
        let statement = query.uids_statement(of, Dialect::Sqlite);
        self.database.read(|sql| rows(sql, &statement, |row| row.get(0)))
    }
}

/// A row as it is kept.
struct Found {
    member: String,
    deleted_us: i64,
    kept: Written,
}

fn found(row: &Row<'_>) -> SqlResult<Found> {
    let (key, uid, revision) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let kept = Written { key, uid, revision, digest: row.get(5)?, document: row.get(6)? };
    Ok(Found { member: row.get(0)?, deleted_us: row.get(4)?, kept })
}

fn rows<T>(sql: &Connection, statement: &Statement, read: impl FnMut(&Row<'_>) -> SqlResult<T>) -> SqlResult<Vec<T>> {
    let values = statement.parameters.iter().map(|parameter| match parameter {
        Parameter::Text(text) => Value::Text(text.clone()),
        Parameter::Integer(whole) => Value::Integer(*whole),
        Parameter::Number(number) => Value::Real(*number),
    });
    sql.prepare_cached(&statement.text)?.query_map(params_from_iter(values), read)?.collect()
}
