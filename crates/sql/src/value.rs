//! Parameters of statements and columns of rows, alike in both engines.

use std::{borrow::Cow, error::Error as StdError};

use bytes::{BufMut, BytesMut};
use rusqlite::types::{ToSqlOutput, ValueRef};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::error::SqlError;

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A number. In PostgreSQL for columns of `bigint`, `integer`, `smallint` and `boolean`.
    Integer(i64),
    /// A number with a fraction. In PostgreSQL for columns of `double precision`.
    Real(f64),
    /// Text. In PostgreSQL for columns of `text`, `json` and `jsonb`.
    Text(&'a str),
    /// Bytes: a `BLOB`, in PostgreSQL `bytea`.
    Blob(&'a [u8]),
}

/// The parameters of a statement: `params![7, "text", &bytes]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::Value::from($value)),*] };
}

macro_rules! from {
    ($($type:ty, $name:ident => $value:expr;)*) => {
        $(impl<'a> From<$type> for Value<'a> {
            fn from($name: $type) -> Self {
                $value
            }
        })*
    };
}

from! {
    i64, number => Self::Integer(number);
    bool, is => Self::Integer(i64::from(is));
    f64, number => Self::Real(number);
    &'a str, text => Self::Text(text);
    &'a String, text => Self::Text(text);
    &'a [u8], bytes => Self::Blob(bytes);
    &'a Vec<u8>, bytes => Self::Blob(bytes);
}

impl<'a, T> From<Option<T>> for Value<'a>
where
    Self: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::from)
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(number),
            Self::Real(number) => ValueRef::Real(number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, to: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (*self, to) {
            (Self::Null, _) => return Ok(IsNull::Yes),
            (Self::Integer(number), &Type::INT8) => out.put_i64(number),
            (Self::Integer(number), &Type::INT4) => out.put_i32(i32::try_from(number)?),
            (Self::Integer(number), &Type::INT2) => out.put_i16(i16::try_from(number)?),
            (Self::Integer(number), &Type::BOOL) => out.put_u8(u8::from(number != 0)),
            (Self::Real(number), &Type::FLOAT8) => out.put_f64(number),
            (Self::Text(text), &Type::JSONB) => {
                // The version of its format. Source: PostgreSQL's `jsonb_recv`.
                out.put_u8(1);
                out.put_slice(text.as_bytes());
            }
            (Self::Text(text), &Type::TEXT | &Type::VARCHAR | &Type::NAME | &Type::JSON) => {
                out.put_slice(text.as_bytes());
            }
            (Self::Blob(bytes), &Type::BYTEA) => out.put_slice(bytes),
            (value, to) => return Err(format!("a column of type {to} does not take {value:?}").into()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A row of an answer.
#[derive(Clone, Copy)]
pub struct Row<'r>(pub(crate) Found<'r>);

#[derive(Clone, Copy)]
pub(crate) enum Found<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r tokio_postgres::Row),
}

impl<'r> Row<'r> {
    /// A column, counted from 0: an `i64`, `bool`, `f64`, `&str`, `String`, `&[u8]`, `Vec<u8>`, or an `Option` of one.
    ///
    /// Errors: there is none, or it has another type.
    pub fn get<T: Column<'r>>(self, at: usize) -> Result<T, SqlError> {
        T::of(self, at)
    }
}

/// What a column can be read as.
pub trait Column<'r>: Sized {
    /// Reads it.
    fn of(row: Row<'r>, at: usize) -> Result<Self, SqlError>;
}

/// A number of PostgreSQL, of whatever width.
struct Integer(i64);

impl FromSql<'_> for Integer {
    fn from_sql(of: &Type, raw: &[u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match *of {
            Type::BOOL => i64::from(bool::from_sql(of, raw)?),
            Type::INT2 => i64::from(i16::from_sql(of, raw)?),
            Type::INT4 => i64::from(i32::from_sql(of, raw)?),
            _ => i64::from_sql(of, raw)?,
        }))
    }

    fn accepts(of: &Type) -> bool {
        matches!(*of, Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8)
    }
}

macro_rules! column {
    ($($type:ty, $row:ident, $at:ident => $sqlite:expr, $postgres:expr;)*) => {
        $(impl<'r> Column<'r> for $type {
            fn of(row: Row<'r>, $at: usize) -> Result<Self, SqlError> {
                match row.0 {
                    Found::Sqlite($row) => Ok($sqlite),
                    Found::Postgres($row) => Ok($postgres),
                }
            }
        })*
    };
}

column! {
    i64, row, at => row.get(at)?, row.try_get::<_, Integer>(at)?.0;
    bool, row, at => row.get(at)?, row.try_get::<_, Integer>(at)?.0 != 0;
    f64, row, at => row.get(at)?, row.try_get(at)?;
    &'r str, row, at => row.get_ref(at)?.as_str().map_err(SqlError::of_value)?, row.try_get(at)?;
    String, row, at => row.get(at)?, row.try_get(at)?;
    &'r [u8], row, at => row.get_ref(at)?.as_blob().map_err(SqlError::of_value)?, row.try_get(at)?;
    Vec<u8>, row, at => row.get(at)?, row.try_get(at)?;
}

impl<'r, T: Column<'r>> Column<'r> for Option<T> {
    fn of(row: Row<'r>, at: usize) -> Result<Self, SqlError> {
        let is_null = match row.0 {
            Found::Sqlite(row) => row.get_ref(at)? == ValueRef::Null,
            Found::Postgres(row) => row.try_get::<_, Null>(at)?.0,
        };
        if is_null { Ok(None) } else { T::of(row, at).map(Some) }
    }
}

/// Whether a column of PostgreSQL has no value.
struct Null(bool);

impl FromSql<'_> for Null {
    fn from_sql(_: &Type, _: &[u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(false))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(true))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A statement with PostgreSQL's placeholders in the place of SQLite's numbered ones: `$1` for `?1`, but in quotes.
pub(crate) fn numbered(statement: &str) -> Cow<'_, str> {
    if !statement.contains('?') {
        return Cow::Borrowed(statement);
    }
    let mut out = String::with_capacity(statement.len());
    let (mut quote, mut characters) = (None, statement.chars().peekable());
    while let Some(character) = characters.next() {
        match quote {
            Some(end) if end == character => quote = None,
            Some(_) => {}
            None if matches!(character, '\'' | '"') => quote = Some(character),
            None if character == '?' && characters.peek().is_some_and(char::is_ascii_digit) => {
                out.push('$');
                continue;
            }
            None => {}
        }
        out.push(character);
    }
    Cow::Owned(out)
}
