//! What a file of SQLite has, taken over into another database.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, types::Value as Owned};

use crate::{Database, Durability, SqlError, Value};

/// The rows of a table.
struct Table {
    name: &'static str,
    columns: Vec<String>,
    rows: Vec<Vec<Owned>>,
}

impl Database {
    /// Has the rows that tables of a file have, in place of its own, and says how many these are. The tables are alike by the
    /// names of their columns. Either all is stored, or nothing changes.
    ///
    /// Shape: a table comes after those that its rows refer to. All rows are in memory at once.
    ///
    /// Blocks. Errors: the file cannot be read, has no such table, or the write failed.
    pub fn take_over(&self, file: &Path, tables: &[&'static str]) -> Result<u64, SqlError> {
        // The log of a process that was killed is taken in, so that the file is written, too.
        let from = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let tables = tables.iter().map(|name| read(&from, name)).collect::<Result<Vec<_>, _>>()?;
        self.write(Durability::Synced, move |sql| {
            for table in tables.iter().rev() {
                sql.execute(&format!("DELETE FROM {}", table.name), &[])?;
            }
            let mut count = 0;
            for table in &tables {
                let statement = table.insert();
                let insert = sql.prepare(&statement)?;
                for row in &table.rows {
                    let values: Vec<Value<'_>> = row.iter().map(borrowed).collect();
                    insert.execute(&values)?;
                    count += 1;
                }
            }
            Ok(count)
        })
    }
}

impl Table {
    fn insert(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(|column| quoted(column)).collect();
        let values: Vec<String> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, columns.join(", "), values.join(", "))
    }
}

fn read(from: &Connection, name: &'static str) -> Result<Table, SqlError> {
    let mut statement = from.prepare(&format!("SELECT * FROM {name}"))?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let row = |row: &rusqlite::Row<'_>| (0..columns.len()).map(|at| row.get(at)).collect();
    let rows = statement.query_map([], row)?.collect::<Result<_, _>>()?;
    Ok(Table { name, columns, rows })
}

fn borrowed(value: &Owned) -> Value<'_> {
    match value {
        Owned::Null => Value::Null,
        Owned::Integer(number) => Value::Integer(*number),
        Owned::Real(number) => Value::Real(*number),
        Owned::Text(text) => Value::Text(text),
        Owned::Blob(bytes) => Value::Blob(bytes),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params;

    const TABLES: &str = "
        CREATE TABLE entries (id INTEGER PRIMARY KEY, body BLOB NOT NULL, note TEXT);
        CREATE TABLE steps (entry INTEGER NOT NULL REFERENCES entries (id), \"group\" TEXT NOT NULL) STRICT";

    fn database(folder: &Path, name: &str) -> Database {
        Database::open(&folder.join(name), &[TABLES]).unwrap()
    }

    fn fill(database: &Database, first: i64) {
        database
            .write(Durability::Synced, move |sql| {
                for id in first..first + 3 {
                    sql.execute("INSERT INTO entries VALUES (?1, ?2, NULL)", params![id, &vec![0, 255]])?;
                    sql.execute("INSERT INTO steps VALUES (?1, 'apps')", params![id])?;
                }
                Ok(())
            })
            .unwrap();
    }

    fn entries(database: &Database) -> Vec<(i64, Vec<u8>, Option<String>)> {
        let all = "SELECT id, body, note FROM entries ORDER BY id";
        database.read(|sql| sql.rows(all, &[], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))).unwrap()
    }

    #[test]
    fn a_database_has_the_rows_of_a_file_in_place_of_its_own_or_what_it_had() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (database(folder.path(), "from.db"), database(folder.path(), "to.db"));
        fill(&from, 1);
        fill(&to, 2);
        let file = folder.path().join("from.db");
        let before = entries(&to);
        assert!(to.take_over(&file, &["entries", "missing"]).is_err());
        assert!(to.take_over(&folder.path().join("missing.db"), &["entries"]).is_err());
        assert!(!folder.path().join("missing.db").exists());
        assert_eq!(entries(&to), before);
        for _ in 0..2 {
            assert_eq!(to.take_over(&file, &["entries", "steps"]).unwrap(), 6);
            assert_eq!((entries(&to), entries(&from).len()), (entries(&from), 3));
        }
    }
}
