//! Files of the state directory that all replicas have to have alike: they are in the database, too.

use std::{collections::BTreeMap, sync::Arc};

use kubefold_sql::{KeyError, Postgres, SealedError, SharedFiles, SqlError, StateKey};

use crate::serve::{
    revoked,
    state::{StateDir, StateError},
};

/// What clients, and a process that takes over, depend on: the certificate authority, certificates that are withdrawn, how often
/// shared objects have lived, which kinds were placed, which cluster each member is, and what members allowed. Certificates of
/// the authority are each process's own, and so is what it knows of the database.
const SHARED: [&str; 8] = [
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
const AUTHORITY: [&str; 2] = ["ca.crt", "ca.key"];

/// Why files cannot be shared.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum SharedError {
    #[error("{name}, which all replicas share, cannot be kept in PostgreSQL: {source}")]
    Sql { name: String, source: SqlError },
    #[error("{name} cannot be encrypted: {source}")]
    Key { name: String, source: KeyError },
    #[error(
        "{name}, which all replicas share, cannot be read from PostgreSQL: {source}; give all of them the same --state-key-file"
    )]
    Sealed { name: String, source: SealedError },
    #[error(
        "state directory {directory}: its certificate authority (ca.crt) is not the one that is in PostgreSQL; move ca.crt and ca.key \
         away to take that one, which clients of the other replicas believe"
    )]
    OtherAuthority { directory: String },
    #[error(transparent)]
    State(#[from] Box<StateError>),
}

/// The files in the database, for the process that has it.
#[derive(Debug)]
pub struct Shared {
    state: Arc<Postgres>,
    files: SharedFiles,
    key: StateKey,
}

/// Says whether a file is shared.
pub(super) fn is_shared(name: &str) -> bool {
    SHARED.contains(&name)
}

impl Shared {
    /// Those of a database, encrypted with this key.
    pub fn new(state: Arc<Postgres>, key: StateKey) -> Self {
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

    /// Brings directory and database together: what the database has counts, and what it has not is of this directory.
    pub(super) fn meet(&self, directory: &StateDir) -> Result<(), SharedError> {
        let sealed = self.files.all().map_err(|source| SharedError::Sql { name: "what".to_owned(), source })?;
        let known = opened(&sealed, &self.key)?;
        take_authority(directory, &known)?;
        for name in SHARED {
            let local = directory.read(name).map_err(Box::new)?;
            let whole = match (known.get(name), &local) {
                (Some(known), Some(local)) if name == revoked::FILE => Some(united(known, local)),
                (Some(known), _) => Some(known.clone()),
                (None, local) => local.clone(),
            };
            let Some(whole) = whole else { continue };
            if local.as_ref() != Some(&whole) {
                directory.keep(name, &whole).map_err(Box::new)?;
            }
            if known.get(name) != Some(&whole) {
                self.write(name, &whole)?;
            }
        }
        Ok(())
    }
}

/// Takes the certificate authority of all replicas before this process has the database. `false`: there is none yet.
///
/// Errors: the directory has another one; another key encrypted it.
pub fn adopt(directory: &StateDir, sealed: &BTreeMap<String, Vec<u8>>, key: &StateKey) -> Result<bool, SharedError> {
    let known = opened(sealed, key)?;
    take_authority(directory, &known)?;
    Ok(AUTHORITY.iter().all(|name| known.contains_key(*name)))
}

fn take_authority(directory: &StateDir, known: &BTreeMap<String, String>) -> Result<(), SharedError> {
    let [Some(certificate), Some(key)] = AUTHORITY.map(|name| known.get(name)) else { return Ok(()) };
    match directory.read("ca.crt").map_err(Box::new)? {
        Some(own) if own == *certificate => {}
        Some(_) => return Err(SharedError::OtherAuthority { directory: directory.path().display().to_string() }),
        None => {
            directory.keep("ca.key", key).map_err(Box::new)?;
            directory.keep("ca.crt", certificate).map_err(Box::new)?;
        }
    }
    Ok(())
}

fn opened(sealed: &BTreeMap<String, Vec<u8>>, key: &StateKey) -> Result<BTreeMap<String, String>, SharedError> {
    let open = |(name, sealed): (&String, &Vec<u8>)| {
        let opened = key.open(&place(name), sealed);
        let opened = opened.map_err(|source| SharedError::Sealed { name: name.clone(), source })?;
        Ok((name.clone(), String::from_utf8_lossy(&opened).into_owned()))
    };
    sealed.iter().map(open).collect()
}

/// A certificate that was withdrawn at one replica is withdrawn at all.
fn united(known: &str, local: &str) -> String {
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
