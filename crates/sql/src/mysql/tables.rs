//! What the tables of the state are asked by a connection whose calls block.

use std::{cell::RefCell, collections::HashMap, mem, sync::Arc};

use mysql_async::{Params, Row as Columns, consts::ColumnType, prelude::Queryable};

use crate::{
    backend::{self, Found, Words},
    error::SqlError,
    failure::{Failure, FailureKind},
    mysql::{
        link::{Dialer, Link, answered},
        statement::{Names, Translated, each},
    },
    value::{Cells, Row, Value},
};

/// What a connection has beside what every one has: statements as the other engines take them, times in UTC, no statement that
/// goes on for ever, and transactions that see one moment, whatever the server's default is.
const SESSION: &str = "
SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ANSI_QUOTES,PIPES_AS_CONCAT', time_zone = '+00:00'
    /*M!100300 , max_statement_time = 10 */ /*!80000 , max_execution_time = 10000 */;
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
/// There is a row while this process may write. It is locked against a change of the epoch until the transaction ends. The beat is in
/// another row: MySQL locks whole rows, so the holder's beat would wait for each of its writes.
const FENCE: &str = "SELECT 1 FROM kubefold.epoch WHERE id = 1 AND epoch = ?1 LOCK IN SHARE MODE";
/// Of the row of the holder.
pub(super) const FOUND: &str = "SELECT epoch, beat, host, pid, DATE_FORMAT(since, '%Y-%m-%dT%H:%i:%SZ'), is_released
    FROM kubefold.holder WHERE id = 1";
/// Statements whose words in MySQL are kept.
const TRANSLATED_MAX: usize = 256;
/// Rows of one statement: a power of two, so that few statements are prepared.
const ROWS_MAX: usize = 64;
/// Units: bytes. Of the values of one statement, unless one row alone is longer.
const ROWS_BYTES_MAX: usize = 4 << 20;
/// The charset of what is no text. Source: MySQL's `my_charset_bin`.
const BINARY: u16 = 63;

/// A connection for a group of tables.
pub(crate) struct Tables {
    link: RefCell<Link>,
    names: Names,
    translated: RefCell<HashMap<Box<str>, Arc<Translated>>>,
    /// What goes before the next statement.
    lead: RefCell<Vec<String>>,
}

impl Dialer {
    /// Connects, for these tables of a group.
    ///
    /// Blocks. Errors: nobody listens, or the server refuses.
    pub(crate) fn tables(&self, tables: &[String]) -> Result<Tables, SqlError> {
        let mut link = self.connect()?;
        link.execute(SESSION)?;
        let names = Names { prefix: self.prefix.clone(), tables: tables.to_vec() };
        Ok(Tables { link: RefCell::new(link), names, translated: RefCell::default(), lead: RefCell::default() })
    }
}

impl Tables {
    /// Says whether nothing can be asked of it any more, without asking it.
    pub(super) fn is_ended(&self) -> bool {
        self.link.borrow().is_ended()
    }

    /// The connection itself, for statements in MySQL's own words.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Link) -> Result<T, Failure>) -> Result<T, SqlError> {
        let lead = mem::take(&mut *self.lead.borrow_mut());
        let mut link = self.link.borrow_mut();
        let led = if lead.is_empty() { Ok(()) } else { link.execute(&lead.join("; ")).map(drop) };
        // What begins or ends a part of a transaction fails where there is none any more.
        let (is_led, done) = (led.is_ok(), led.and_then(|()| work(&mut link)));
        if !is_led || done.as_ref().is_err_and(|failure| failure.kind == FailureKind::Undone) {
            // What follows would be stored outside of the transaction.
            link.lose();
        }
        Ok(done?)
    }

    fn translated(&self, statement: &str) -> Arc<Translated> {
        let mut all = self.translated.borrow_mut();
        if let Some(known) = all.get(statement) {
            return Arc::clone(known);
        }
        if all.len() >= TRANSLATED_MAX {
            all.clear();
        }
        let translated = Arc::new(Translated::of(statement, &self.names));
        all.insert(statement.into(), Arc::clone(&translated));
        translated
    }

    /// The first row of an answer.
    pub(super) fn row<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        read: impl Fn(Row<'_>) -> Result<T, SqlError>,
    ) -> Result<Option<T>, SqlError> {
        let mut first = None;
        backend::Link::each(self, statement, values, &mut |row| {
            if first.is_none() {
                first = Some(read(row)?);
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// Inserts several rows by one statement.
    fn insert_rows(&self, statement: &Translated, rows: &[Vec<Value<'_>>]) -> Result<(), SqlError> {
        let text = statement.of_rows(rows.len()).ok_or_else(SqlError::ended)?;
        let values = rows.iter().flat_map(|row| positional(&statement.order, row)).collect();
        self.with(|link| link.execute_with(&text, Params::Positional(values)).map(drop))
    }
}

impl backend::Link for Tables {
    fn is_lost(&self) -> bool {
        self.link.borrow_mut().is_lost()
    }

    fn words(&self) -> Words {
        Words::Mysql
    }

    fn lead(&self, statement: &str) {
        self.lead.borrow_mut().push(statement.to_owned());
    }

    fn execute(&self, statement: &str, values: &[Value<'_>]) -> Result<usize, SqlError> {
        let statement = self.translated(statement);
        let values = params(&statement.order, values);
        let changed = self.with(|link| link.execute_with(&statement.text, values))?;
        let changed = if statement.is_upsert { changed.min(1) } else { changed };
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    fn execute_all<'v>(&self, statement: &str, rows: &mut dyn Iterator<Item = Vec<Value<'v>>>) -> Result<(), SqlError> {
        let translated = self.translated(statement);
        if translated.of_rows(1).is_none() {
            for row in rows {
                self.execute(statement, &row)?;
            }
            return Ok(());
        }
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let (mut some, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next_if(|_| some.len() < ROWS_MAX && bytes < ROWS_BYTES_MAX) {
                bytes += row.iter().map(bytes_of).sum::<usize>();
                some.push(row);
            }
            let mut rest = &some[..];
            while !rest.is_empty() {
                let (now, after) = rest.split_at(1 << rest.len().ilog2());
                self.insert_rows(&translated, now)?;
                rest = after;
            }
        }
        Ok(())
    }

    fn each(
        &self,
        statement: &str,
        values: &[Value<'_>],
        take: &mut dyn FnMut(Row<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let statement = self.translated(statement);
        let values = params(&statement.order, values);
        let taken = self.with(|link| {
            link.call(async |conn| {
                let mut rows = answered(conn.exec_iter(&*statement.text, values)).await?;
                while let Some(row) = answered(rows.next()).await? {
                    if let Err(error) = take(Row(&row)) {
                        return Ok(Err(error));
                    }
                }
                Ok(Ok(()))
            })
        });
        taken?
    }

    fn batch(&self, statements: &str) -> Result<(), SqlError> {
        for statement in each(statements) {
            let statement = self.translated(statement);
            self.with(|link| link.execute(&statement.text).map(drop))?;
        }
        Ok(())
    }

    fn begin(&self, epoch: i64) -> Result<bool, SqlError> {
        self.lead.borrow_mut().clear();
        self.lead("START TRANSACTION");
        Ok(self.row(FENCE, &[Value::Integer(epoch)], |_| Ok(()))?.is_some())
    }

    fn begin_read(&self) -> Result<(), SqlError> {
        self.lead("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY");
        Ok(())
    }

    fn commit(&self) -> Result<(), SqlError> {
        self.with(|_| Ok(()))?;
        self.with(|link| link.execute("COMMIT").map(drop)).map_err(SqlError::in_commit)
    }

    fn found(&self) -> Result<Found, SqlError> {
        let found = self.row(FOUND, &[], Found::of)?;
        found.ok_or_else(|| SqlError::of_value("the table kubefold_holder has no row"))
    }
}

fn params(order: &[usize], values: &[Value<'_>]) -> Params {
    match order {
        [] => Params::Empty,
        order => Params::Positional(positional(order, values).collect()),
    }
}

/// Values in the places of a statement.
fn positional(order: &[usize], values: &[Value<'_>]) -> impl Iterator<Item = mysql_async::Value> {
    order.iter().map(|at| match values.get(*at).copied().unwrap_or(Value::Null) {
        Value::Null => mysql_async::Value::NULL,
        Value::Integer(number) => mysql_async::Value::Int(number),
        Value::Real(number) => mysql_async::Value::Double(number),
        Value::Text(text) => mysql_async::Value::Bytes(text.into()),
        Value::Blob(bytes) => mysql_async::Value::Bytes(bytes.into()),
    })
}

fn bytes_of(value: &Value<'_>) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        Value::Null | Value::Integer(_) | Value::Real(_) => size_of::<i64>(),
    }
}

impl Cells for Columns {
    fn cell(&self, at: usize) -> Result<Value<'_>, SqlError> {
        use mysql_async::Value as Theirs;
        let (Some(value), Some(column)) = (self.as_ref(at), self.columns_ref().get(at)) else {
            return Err(SqlError::of_value(format!("an answer has no column {}", at + 1)));
        };
        let of_type = column.column_type();
        Ok(match value {
            Theirs::NULL => Value::Null,
            Theirs::Int(number) => Value::Integer(*number),
            Theirs::UInt(number) => Value::Integer(i64::try_from(*number).map_err(SqlError::of_value)?),
            Theirs::Float(number) => Value::Real(f64::from(*number)),
            Theirs::Double(number) => Value::Real(*number),
            Theirs::Bytes(bytes) if is_blob(of_type) && column.character_set() == BINARY => Value::Blob(bytes),
            Theirs::Bytes(bytes) => {
                let text = str::from_utf8(bytes).map_err(SqlError::of_value)?;
                // A sum of whole numbers is one of these.
                match of_type {
                    ColumnType::MYSQL_TYPE_NEWDECIMAL => Value::Integer(
                        text.parse().map_err(|_| SqlError::of_value(format!("{text} is no whole number")))?,
                    ),
                    _ => Value::Text(text),
                }
            }
            Theirs::Date(..) | Theirs::Time(..) => {
                return Err(SqlError::of_value(format!("column {} of an answer is a time", at + 1)));
            }
        })
    }
}

/// What `VARBINARY` has is text in the tables of the state: it is compared by its bytes.
fn is_blob(of: ColumnType) -> bool {
    use ColumnType::{MYSQL_TYPE_BLOB, MYSQL_TYPE_LONG_BLOB, MYSQL_TYPE_MEDIUM_BLOB, MYSQL_TYPE_TINY_BLOB};
    [MYSQL_TYPE_BLOB, MYSQL_TYPE_LONG_BLOB, MYSQL_TYPE_MEDIUM_BLOB, MYSQL_TYPE_TINY_BLOB].contains(&of)
}
