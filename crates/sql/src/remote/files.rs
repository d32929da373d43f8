//! Small files that all processes of a database share: what clients, or a later holder, depend on.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;

use super::{RemoteState, Session};
use crate::{SqlError, value::Value};

const ALL: &str = "SELECT name, content FROM kubefold.files";
const WRITE: &str =
    "INSERT INTO kubefold.files VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET content = excluded.content";

/// The files, for the process that has the database.
pub struct SharedFiles(Mutex<Session>);

impl fmt::Debug for SharedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFiles").finish_non_exhaustive()
    }
}

impl SharedFiles {
    /// Those of a database, by a connection of their own.
    pub fn of(state: &Arc<RemoteState>) -> Self {
        Self(Mutex::new(Session::new(Arc::clone(state), "kubefold", Arc::default())))
    }

    /// All of them, by name.
    ///
    /// Blocks. Errors: the database cannot be read.
    pub fn all(&self) -> Result<BTreeMap<String, Vec<u8>>, SqlError> {
        let mut session = self.0.lock();
        let (link, mut files) = (session.link()?, BTreeMap::new());
        link.each(ALL, &[], &mut |row| {
            files.insert(row.get(0)?, row.get(1)?);
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
        let written = link.execute(WRITE, &[Value::Text(name), Value::Blob(content)]);
        let committed = session.commit();
        written.and(committed)
    }
}
