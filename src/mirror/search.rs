//! Searches over the file: what `crate::search::sql` makes of a query, asked.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use kubefold_sql::{Row, Sql, SqlError, Value, Words, params};
use kubefold_wire::resource::Gvr;

use crate::{
    config::MemberName,
    mirror::{
        file::{File, KeptObject, Written, unsigned},
        kind::{MirrorError, MirroredKind},
    },
    search::{
        Facts, Position, Query, Top,
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
    /// The members of whose objects all are there, as they were at one moment.
    pub members: Vec<String>,
}

impl File {
    /// Finds one page of a kind.
    pub(super) fn search(&self, query: &Query, of: &Selection<'_>) -> Result<FoundPage, MirrorError> {
        // All as of one moment.
        let (found, count, members) = self.database.read_aside(|sql| {
            let dialect = dialect(sql);
            let (found, count) = match for_columns(query, dialect) {
                Some(for_columns) => self.look_into(sql, query, &for_columns, of)?,
                None => {
                    let found = rows(sql, &query.page_statement(of, dialect), found)?;
                    let count = query.page.with_remaining.then(|| query.count_statement(of, dialect));
                    let count = count.map(|count| rows(sql, &count, |row| row.get::<i64>(0))).transpose()?;
                    (found, count.and_then(|count| count.first().copied()))
                }
            };
            let whole = "SELECT member FROM feeds
                WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3 AND revision > 0";
            let Gvr { group, version, resource } = of.gvr;
            let members = sql.rows(whole, params![&**group, &**version, &**resource], |row| row.get(0))?;
            Ok((found, count, members))
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
        Ok(FoundPage { objects, goes_on, remaining: matching.saturating_sub(before), members })
    }

    /// The UIDs of all objects of a kind that match.
    pub(super) fn uids(&self, query: &Query, of: &Selection<'_>) -> Result<Vec<String>, SqlError> {
        self.database.read_aside(|sql| {
            let dialect = dialect(sql);
            let Some(for_columns) = for_columns(query, dialect) else {
                return rows(sql, &query.uids_statement(of, dialect), |row| row.get(0));
            };
            let mut uids = Vec::new();
            self.each_found(sql, &for_columns, of, |facts, json, _| {
                if query.admits_found(facts, json) {
                    uids.push(facts.uid.to_owned());
                }
            })?;
            Ok(uids)
        })
    }

    /// The rows of a page, and one more if there is one, of a query that looks into documents which the database is not asked about; and
    /// how many rows match behind the place where the page begins. Shape: all rows that the rest of the query admits are read, and
    /// those of the page are in memory.
    fn look_into(
        &self,
        sql: Sql<'_>,
        query: &Query,
        for_columns: &Query,
        of: &Selection<'_>,
    ) -> Result<(Vec<Found>, Option<i64>), SqlError> {
        let Query { order, page, .. } = query;
        let room = page.room().map(|room| room.saturating_add(1));
        let mut top = Top::new(order, room);
        self.each_found(sql, for_columns, of, |facts, json, found| {
            let is_behind = |after: &Position| order.compare_row(facts, json, after.key()).is_gt();
            if query.admits_found(facts, json) && page.after.as_ref().is_none_or(is_behind) {
                top.offer(facts, json, || found.clone());
            }
        })?;
        let count = i64::try_from(top.seen()).ok();
        let found = top.into_rows().into_iter().skip(page.offset).map(|ranked| ranked.row);
        Ok((found.collect(), count.filter(|_| page.with_remaining)))
    }

    /// Goes over all rows that match, with their documents. A row whose document cannot be read has none.
    fn each_found(
        &self,
        sql: Sql<'_>,
        query: &Query,
        of: &Selection<'_>,
        mut take: impl FnMut(&Facts<'_>, &str, &Found),
    ) -> Result<(), SqlError> {
        let statement = query.rows_statement(of, dialect(sql));
        sql.each(&statement.text, &values(&statement), |row| {
            let found = found(row)?;
            let Found { member, deleted_us, kept } = &found;
            let json = MemberName::new(member).and_then(|member| {
                let feed = MirroredKind { gvr: of.gvr.clone(), member };
                self.unsealed(&feed, &kept.key, Cow::Borrowed(&kept.document), kept.digest)
            });
            let json = json.as_deref().and_then(|json| str::from_utf8(json).ok());
            let (namespace, name) = kept.key.split_once('/').unwrap_or(("", &kept.key));
            let facts = Facts {
                cluster: member,
                namespace,
                name,
                uid: &kept.uid,
                kind: of.kind,
                group: &of.gvr.group,
                labels: None,
                revision: unsigned(kept.revision),
                deleted_us: *deleted_us,
            };
            take(&facts, json.unwrap_or("null"), &found);
            Ok(())
        })
    }
}

/// A row as it is kept.
#[derive(Clone)]
struct Found {
    member: String,
    deleted_us: i64,
    kept: Written,
}

fn found(row: Row<'_>) -> Result<Found, SqlError> {
    let (key, uid, revision) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let kept = Written { key, uid, revision, digest: row.get(5)?, document: row.get(6)? };
    Ok(Found { member: row.get(0)?, deleted_us: row.get(4)?, kept })
}

/// What is asked of a database in place of a query that looks into documents, where the database is not asked about these.
fn for_columns(query: &Query, dialect: Dialect) -> Option<Query> {
    match dialect {
        Dialect::Mysql => query.for_columns(),
        Dialect::Sqlite | Dialect::Postgres => None,
    }
}

fn dialect(sql: Sql<'_>) -> Dialect {
    match sql.words() {
        Words::Sqlite => Dialect::Sqlite,
        Words::Postgres => Dialect::Postgres,
        Words::Mysql => Dialect::Mysql,
    }
}

fn rows<T>(
    sql: Sql<'_>,
    statement: &Statement,
    read: impl Fn(Row<'_>) -> Result<T, SqlError>,
) -> Result<Vec<T>, SqlError> {
    sql.rows(&statement.text, &values(statement), read)
}

fn values(statement: &Statement) -> Vec<Value<'_>> {
    let values = statement.parameters.iter().map(|parameter| match parameter {
        Parameter::Text(text) => Value::Text(text),
        Parameter::Integer(whole) => Value::Integer(*whole),
        Parameter::Number(number) => Value::Real(*number),
    });
    values.collect()
}
