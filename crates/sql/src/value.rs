//! Parameters of statements and columns of rows, alike in all engines.

use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::error::SqlError;

/// A parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A number. On a server for columns of `bigint`, `integer`, `smallint` and `boolean`.
    Integer(i64),
    /// A number with a fraction. On a server for columns of `double precision`.
    Real(f64),
    /// Text. In PostgreSQL for columns of `text`, `json` and `jsonb`, in MySQL for those of `varbinary` and `longtext`.
    Text(&'a str),
    /// Bytes: a `BLOB`, in PostgreSQL `bytea`, in MySQL `longblob`.
    Blob(&'a [u8]),
}

impl Value<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Integer(_) => "a whole number",
            Self::Real(_) => "a number with a fraction",
            Self::Text(_) => "text",
            Self::Blob(_) => "bytes",
        }
    }
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

/// A row of an answer.
#[derive(Clone, Copy)]
pub struct Row<'r>(pub(crate) &'r dyn Cells);

/// The columns of a row, in the words of an engine.
pub(crate) trait Cells {
    /// A column, counted from 0.
    ///
    /// Errors: there is none, or nothing that a [`Value`] is.
    fn cell(&self, at: usize) -> Result<Value<'_>, SqlError>;
}

impl<'r> Row<'r> {
    /// A column, counted from 0: an `i64`, `bool`, `f64`, `&str`, `String`, `&[u8]`, `Vec<u8>`, or an `Option` of one.
    ///
    /// Errors: there is none, or it has another type.
    pub fn get<T: Column<'r>>(self, at: usize) -> Result<T, SqlError> {
        let value = self.0.cell(at)?;
        T::of(value).ok_or_else(|| SqlError::of_value(format!("column {} of an answer is {}", at + 1, value.kind())))
    }
}

/// What a column can be read as.
pub trait Column<'r>: Sized {
    /// Reads it. `None`: it has another type.
    fn of(value: Value<'r>) -> Option<Self>;
}

macro_rules! column {
    ($($type:ty: $($pattern:pat => $value:expr),*;)*) => {
        $(impl<'r> Column<'r> for $type {
            fn of(value: Value<'r>) -> Option<Self> {
                match value {
                    $($pattern => Some($value),)*
                    _ => None,
                }
            }
        })*
    };
}

column! {
    i64: Value::Integer(number) => number;
    bool: Value::Integer(number) => number != 0;
    f64: Value::Real(number) => number;
    &'r str: Value::Text(text) => text;
    String: Value::Text(text) => text.to_owned();
    &'r [u8]: Value::Blob(bytes) => bytes;
    Vec<u8>: Value::Blob(bytes) => bytes.to_owned();
}

impl<'r, T: Column<'r>> Column<'r> for Option<T> {
    fn of(value: Value<'r>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::of(value).map(Some),
        }
    }
}

impl Cells for rusqlite::Row<'_> {
    fn cell(&self, at: usize) -> Result<Value<'_>, SqlError> {
        Ok(match self.get_ref(at)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Integer(number),
            ValueRef::Real(number) => Value::Real(number),
            ValueRef::Text(text) => Value::Text(str::from_utf8(text).map_err(SqlError::of_value)?),
            ValueRef::Blob(bytes) => Value::Blob(bytes),
        })
    }
}
