//! Files of the state directory that all replicas have to have alike: they are in the database, too.

use std::{collections::BTreeMap, sync::Arc};

use kubefold_sql::{KeyError, RemoteState, SealedError, SharedFiles, SqlError, StateKey};

use crate::serve::revoked;

/// What clients, and a process that takes over, depend on: the certificate authority, certificates that are withdrawn, how often
/// shared objects have lived, which kinds were placed, which cluster each member is, and what members allowed. Certificates of
/// the authority are each process's own, and so is what it knows of the database.
pub(super) const SHARED: [&str; 8] = [
    "ca.crt",
    "ca.key",
    revoked::FILE,
    "lives.json",
    "placed.json",
    "clusters.json",
    "decisions.json",
    "decisions.key",
];
/// Whom clients believe, and who makes their certificates.
pub(super) const AUTHORITY: [&str; 2] = ["ca.crt", "ca.key"];

/// Why files cannot be shared.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum SharedError {
    #[error("{name}, which all replicas share, cannot be kept in the database of the state: {source}")]
    Sql { name: String, source: SqlError },
    #[error("{name} cannot be encrypted: {source}")]
    Key { name: String, source: KeyError },
    #[error(
        "{name}, which all replicas share, cannot be read from the database of the state: {source}; give all of them the same --state-key-file"
    )]
    Sealed { name: String, source: SealedError },
}

/// The files in the database, for the process that has it.
#[derive(Debug)]
pub struct Shared {
    state: Arc<RemoteState>,
    files: SharedFiles,
    key: StateKey,
}

/// Says whether a file is shared.
pub(super) fn is_shared(name: &str) -> bool {
    SHARED.contains(&name)
}

impl Shared {
    /// Those of a database, encrypted with this key.
    pub fn new(state: Arc<RemoteState>, key: StateKey) -> Self {
        Self { files: SharedFiles::of(&state), state, key }
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), SharedError> {
        let sql = |source| SharedError::Sql { name: name.to_owned(), source };
        // Nobody waits for a server that does not answer.
        self.state.check().map_err(sql)?;
        let sealed = self.key.seal(&place(name), text.as_bytes().to_vec());
        let sealed = sealed.map_err(|source| SharedError::Key { name: name.to_owned(), source })?;
        self.files.write(name, &sealed).map_err(sql)
    }

    /// Encrypts with the first key what an earlier one has encrypted.
    ///
    /// Blocks. Errors: the database does not answer; a file was encrypted with a key that is not here.
    pub(super) fn renew(&self) -> Result<(), SharedError> {
        if !self.key.has_earlier() {
            return Ok(());
        }
        for (name, text) in self.all()? {
            self.write(&name, &text)?;
        }
        Ok(())
    }

    /// What the database has.
    pub(super) fn all(&self) -> Result<BTreeMap<String, String>, SharedError> {
        let sealed = self.files.all().map_err(|source| SharedError::Sql { name: "what".to_owned(), source })?;
        opened(&sealed, &self.key)
    }
}

/// Reads what a database has, with the key that all replicas have.
pub(super) fn opened(
    sealed: &BTreeMap<String, Vec<u8>>,
    key: &StateKey,
) -> Result<BTreeMap<String, String>, SharedError> {
    let open = |(name, sealed): (&String, &Vec<u8>)| {
        let opened = key.open(&place(name), sealed);
        let opened = opened.map_err(|source| SharedError::Sealed { name: name.clone(), source })?;
        Ok((name.clone(), String::from_utf8_lossy(&opened).into_owned()))
    };
    sealed.iter().map(open).collect()
}

/// A certificate that was withdrawn at one replica is withdrawn at all.
pub(super) fn united(known: &str, local: &str) -> String {
    let lines: Vec<&str> = known.lines().collect();
    let new = local.lines().filter(|line| !lines.contains(line));
    lines.iter().copied().chain(new).map(|line| format!("{line}\n")).collect()
}

fn place(name: &str) -> String {
    format!("files/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withdrawn_at_one_replica_is_withdrawn_at_all() {
        assert_eq!(united("a jane\nb joe\n", "b joe\nc jim"), "a jane\nb joe\nc jim\n");
        assert_eq!(united("a\n", ""), "a\n");
    }
}
