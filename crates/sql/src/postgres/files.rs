//! Small files that all processes of a database share: what clients, or a later holder, depend on.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{Postgres, Session};
use crate::{SqlError, value::Value};

pub(super) const ALL: &str = "SELECT name, content FROM kubefold.files";
const WRITE: &str =
    "INSERT INTO kubefold.files VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET content = excluded.content";

/// The files, for the process that has the database.
#[derive(Debug)]
pub struct SharedFiles(Mutex<Session>);

impl SharedFiles {
    /// Those of a database, by a connection of their own.
    pub fn of(state: &Arc<Postgres>) -> Self {
        Self(Mutex::new(Session::new(Arc::clone(state), "kubefold")))
    }

    /// All of them, by name.
    ///
    /// Blocks. Errors: the database cannot be read.
    pub fn all(&self) -> Result<BTreeMap<String, Vec<u8>>, SqlError> {
        let mut session = self.0.lock();
        let (link, mut files) = (session.link()?, BTreeMap::new());
        link.each(&link.prepare(ALL)?, &[], |row| {
            files.insert(row.try_get(0)?, row.try_get(1)?);
            Ok(())
        })?;
        Ok(files)
    }

    /// Writes one: when this returns it is on disk, and the database was this process's.
    ///
    /// Blocks. Errors: nothing is stored, unless the outcome is unknown.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), SqlError> {
        let mut session = self.0.lock();
        let link = session.begin()?;
        let written =
            link.prepare(WRITE).and_then(|write| link.execute(&write, [Value::Text(name), Value::Blob(content)]));
        let committed = session.commit();
        written.and(committed)
    }
}
