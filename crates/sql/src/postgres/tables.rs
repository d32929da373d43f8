//! What the tables of the state are asked by a connection whose calls block.

use crate::{
    backend::{self, Found, Words},
    error::SqlError,
    postgres::{keeper::FOUND, link::Link},
    value::{Row, Value},
};

/// There is a row while this process may write. It is locked against a change of the epoch until the transaction ends, and
/// against nothing else, so that the connections of one process do not wait for one another.
const FENCE: &str = "SELECT 1 FROM kubefold.holder WHERE epoch = ?1 FOR KEY SHARE";

impl backend::Link for Link {
    fn is_lost(&self) -> bool {
        Self::is_lost(self)
    }

    fn words(&self) -> Words {
        Words::Postgres
    }

    fn lead(&self, statement: &str) {
        Self::lead(self, statement);
    }

    fn execute(&self, statement: &str, values: &[Value<'_>]) -> Result<usize, SqlError> {
        Self::execute(self, &self.prepare(statement)?, values.iter().copied())
    }

    fn execute_all<'v>(&self, statement: &str, rows: &mut dyn Iterator<Item = Vec<Value<'v>>>) -> Result<(), SqlError> {
        Self::execute_all(self, &self.prepare(statement)?, rows)
    }

    fn each(
        &self,
        statement: &str,
        values: &[Value<'_>],
        take: &mut dyn FnMut(Row<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        Self::each(self, &self.prepare(statement)?, values, |row| take(Row(row)))
    }

    fn batch(&self, statements: &str) -> Result<(), SqlError> {
        Self::batch(self, statements)
    }

    fn begin(&self, epoch: i64) -> Result<bool, SqlError> {
        self.clear();
        let fence = self.prepare(FENCE)?;
        self.lead("BEGIN");
        let mut is_ours = false;
        Self::each(self, &fence, &[Value::Integer(epoch)], |_| {
            is_ours = true;
            Ok(())
        })?;
        Ok(is_ours)
    }

    fn begin_read(&self) -> Result<(), SqlError> {
        self.lead("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        Ok(())
    }

    fn commit(&self) -> Result<(), SqlError> {
        Self::commit(self)
    }

    fn found(&self) -> Result<Found, SqlError> {
        let mut found = None;
        Self::each(self, &self.prepare(FOUND)?, &[], |row| {
            found = Some(Found::of(Row(row))?);
            Ok(())
        })?;
        found.ok_or_else(|| SqlError::of_value("the table kubefold.holder has no row"))
    }
}
