//! What a write and a read may do: one dialect for all engines.

use std::cell::RefCell;

use rusqlite::{CachedStatement, Connection, params_from_iter};

use crate::{
    backend::{Link, Words},
    error::SqlError,
    value::{Row, Value},
};

/// A transaction, or a read. Cheap to copy.
///
/// Statements have numbered parameters (`?1`), and are what SQLite and PostgreSQL take: `INSERT ... ON CONFLICT (key)
/// DO UPDATE SET ...` rather than `INSERT OR REPLACE`, `CASE` rather than `iif`. For MySQL they are said in its words: `mysql`. They
/// stay prepared.
#[derive(Clone, Copy)]
pub struct Sql<'a>(pub(crate) Inner<'a>);

#[derive(Clone, Copy)]
pub(crate) enum Inner<'a> {
    Sqlite(&'a Connection),
    Remote(&'a dyn Link),
}

/// A prepared statement, for who executes it often.
pub struct Statement<'a>(Prepared<'a>);

enum Prepared<'a> {
    Sqlite(RefCell<CachedStatement<'a>>),
    Remote(&'a dyn Link, &'a str),
}

impl<'a> Sql<'a> {
    /// Says which engine this is: for the few statements that cannot be the same for all.
    pub fn words(self) -> Words {
        match self.0 {
            Inner::Sqlite(_) => Words::Sqlite,
            Inner::Remote(link) => link.words(),
        }
    }

    /// Prepares a statement. A server hears of it once it is executed.
    pub fn prepare(self, statement: &'a str) -> Result<Statement<'a>, SqlError> {
        Ok(Statement(match self.0 {
            Inner::Sqlite(connection) => Prepared::Sqlite(RefCell::new(connection.prepare_cached(statement)?)),
            Inner::Remote(link) => Prepared::Remote(link, statement),
        }))
    }

    /// Executes a statement, and says how many rows it changed.
    pub fn execute(self, statement: &str, values: &[Value<'_>]) -> Result<usize, SqlError> {
        self.prepare(statement)?.execute(values)
    }

    /// Executes statements that have no parameters.
    pub fn batch(self, statements: &str) -> Result<(), SqlError> {
        match self.0 {
            Inner::Sqlite(connection) => Ok(connection.execute_batch(statements)?),
            Inner::Remote(link) => link.batch(statements),
        }
    }

    /// The first row of an answer.
    pub fn row<T>(
        self,
        statement: &str,
        values: &[Value<'_>],
        read: impl Fn(Row<'_>) -> Result<T, SqlError>,
    ) -> Result<Option<T>, SqlError> {
        let mut first = None;
        self.each(statement, values, |row| {
            if first.is_none() {
                first = Some(read(row)?);
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// All rows of an answer.
    pub fn rows<T>(
        self,
        statement: &str,
        values: &[Value<'_>],
        read: impl Fn(Row<'_>) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let mut all = Vec::new();
        self.each(statement, values, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads an answer row by row. `take` executes no statement itself.
    pub fn each(
        self,
        statement: &str,
        values: &[Value<'_>],
        take: impl FnMut(Row<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.prepare(statement)?.each(values, take)
    }

    /// Begins or ends a part of a transaction, with these statements.
    pub(crate) fn savepoint(self, statements: &[&str]) -> Result<(), SqlError> {
        match self.0 {
            Inner::Sqlite(connection) => Ok(statements.iter().try_for_each(|one| execute(connection, one))?),
            Inner::Remote(link) => {
                link.lead(&statements.join("; "));
                Ok(())
            }
        }
    }
}

impl Statement<'_> {
    /// Executes it, and says how many rows it changed.
    pub fn execute(&self, values: &[Value<'_>]) -> Result<usize, SqlError> {
        match &self.0 {
            Prepared::Sqlite(statement) => Ok(statement.borrow_mut().execute(params_from_iter(values))?),
            Prepared::Remote(link, statement) => link.execute(statement, values),
        }
    }

    /// Executes it for the parameters of many rows. A server is not waited for between any two of them.
    pub fn execute_all<'v, const N: usize>(
        &self,
        rows: impl IntoIterator<Item = [Value<'v>; N]>,
    ) -> Result<(), SqlError> {
        match &self.0 {
            Prepared::Sqlite(statement) => {
                let mut statement = statement.borrow_mut();
                rows.into_iter().try_for_each(|row| Ok(statement.execute(params_from_iter(row)).map(drop)?))
            }
            Prepared::Remote(link, statement) => link.execute_all(statement, &mut rows.into_iter().map(Vec::from)),
        }
    }

    /// Reads its answer row by row. `take` executes no statement itself.
    pub fn each(
        &self,
        values: &[Value<'_>],
        mut take: impl FnMut(Row<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        match &self.0 {
            Prepared::Sqlite(statement) => {
                let mut statement = statement.borrow_mut();
                let mut rows = statement.query(params_from_iter(values))?;
                while let Some(row) = rows.next()? {
                    take(Row(row))?;
                }
                Ok(())
            }
            Prepared::Remote(link, statement) => link.each(statement, values, &mut take),
        }
    }
}

/// Executes a statement without an answer, which stays prepared.
pub(crate) fn execute(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}
