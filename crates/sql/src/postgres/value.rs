//! Parameters and columns in the words of PostgreSQL.

use std::{borrow::Cow, error::Error as StdError};

use bytes::{BufMut, BytesMut};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use crate::{
    error::SqlError,
    value::{Cells, Value},
};

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

/// A column of whatever type.
struct Cell<'r>(Value<'r>);

impl<'r> FromSql<'r> for Cell<'r> {
    fn from_sql(of: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match *of {
            Type::BOOL => Value::Integer(i64::from(bool::from_sql(of, raw)?)),
            Type::INT2 => Value::Integer(i64::from(i16::from_sql(of, raw)?)),
            Type::INT4 => Value::Integer(i64::from(i32::from_sql(of, raw)?)),
            Type::INT8 => Value::Integer(i64::from_sql(of, raw)?),
            Type::FLOAT8 => Value::Real(f64::from_sql(of, raw)?),
            Type::BYTEA => Value::Blob(raw),
            _ => Value::Text(<&str>::from_sql(of, raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Value::Null))
    }

    fn accepts(of: &Type) -> bool {
        let others = [Type::BOOL, Type::INT2, Type::INT4, Type::INT8, Type::FLOAT8, Type::BYTEA];
        others.contains(of) || <&str as FromSql<'_>>::accepts(of)
    }
}

impl Cells for Row {
    fn cell(&self, at: usize) -> Result<Value<'_>, SqlError> {
        Ok(self.try_get::<_, Cell<'_>>(at)?.0)
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
