//! Records that are encrypted: each for its table and its key there, so that none can be read in the place of another.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kubefold_sql::{Database, Durability, Sql, SqlError, StateKey, params};
use serde::{Serialize, de::DeserializeOwned};

/// A table with records.
pub(super) struct Records {
    table: &'static str,
    /// The column of the record.
    record: &'static str,
    /// The key of a row: text, in SQL. No part of it has a `/`.
    key: &'static str,
}

pub(super) const ENTRIES: Records = Records { table: "journal_entries", record: "entry", key: "id || ''" };
pub(super) const STEPS: Records = Records { table: "journal_steps", record: "step", key: "entry || '/' || member" };
pub(super) const EVERYWHERE: Records = Records {
    table: "made_everywhere",
    record: "made",
    key: "\"group\" || '/' || resource || '/' || namespace || '/' || name",
};
pub(super) const PLACEMENTS: Records = Records { table: "placements", record: "placement", key: "uid" };
pub(super) const OVERRIDINGS: Records = Records { table: "overridings", record: "overriding", key: "uid" };
const ALL: [&Records; 5] = [&ENTRIES, &STEPS, &EVERYWHERE, &PLACEMENTS, &OVERRIDINGS];

/// What is encrypted to know the key again.
const PROOF: &str = "kubefold";
const PROOF_PLACE: &str = "key_proof";

/// A record that cannot be read. It stays where it is, and nothing is done by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    table: &'static str,
    key: String,
    cause: String,
}

impl fmt::Display for DamagedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, cause } = self;
        write!(
            f,
            "the record {key} of the table {table} in state.db cannot be read, and nothing is done by it: {cause}"
        )
    }
}

/// Encrypts and reads records. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Sealer(Arc<StateKey>);

impl Sealer {
    pub(super) fn new(key: StateKey) -> Self {
        Self(Arc::new(key))
    }

    /// Says whether all records of a database are encrypted.
    pub(super) fn has_proof(database: &Database) -> Result<bool, SqlError> {
        Ok(proof(database)?.is_some())
    }

    /// Says whether this is the key of a database. One that has none has this one from now on: what an earlier version left in
    /// clear is encrypted, and the file written anew, so that nothing of it is left. The same goes for what an earlier key encrypted.
    pub(super) fn takes(&self, database: &Database) -> Result<bool, SqlError> {
        if let Some(proof) = proof(database)? {
            let is_ours = self.0.open(PROOF_PLACE, &proof).is_ok_and(|proof| proof == PROOF.as_bytes());
            if is_ours && self.0.has_earlier() {
                self.renew(database, proof)?;
            }
            return Ok(is_ours);
        }
        let this = self.clone();
        let is_ours = database.write(Durability::Synced, move |sql| this.seal_all(sql))?;
        if !is_ours {
            return Ok(false);
        }
        database.compact()?;
        let proof = self.0.seal(PROOF_PLACE, PROOF.as_bytes().to_vec())?;
        database.write(Durability::Synced, move |sql| {
            sql.execute("INSERT INTO key_proof VALUES (1, ?1)", params![&proof]).map(|_| true)
        })
    }

    /// Encrypts with the first key what an earlier one has encrypted.
    fn renew(&self, database: &Database, proof: Vec<u8>) -> Result<(), SqlError> {
        let this = self.clone();
        let records = database.write(Durability::Synced, move |sql| {
            let mut renewed = 0;
            for records in ALL {
                let update = records.update();
                for (key, found) in rows(sql, records)? {
                    // One that is damaged stays as it is.
                    if let Ok(Some(record)) = this.0.renewed(&records.place(&key), &found) {
                        sql.execute(&update, params![&key, &record])?;
                        renewed += 1;
                    }
                }
            }
            if let Some(proof) = this.0.renewed(PROOF_PLACE, &proof)? {
                sql.execute("UPDATE key_proof SET proof = ?1", params![&proof])?;
                renewed += 1;
            }
            Ok(renewed)
        })?;
        if records > 0 {
            tracing::info!(records, "the journal is encrypted anew, with the first key of its file");
            database.compact()?;
        }
        Ok(())
    }

    /// Encrypts what stands in clear. `false`: a process that was killed here had another key.
    fn seal_all(&self, sql: Sql<'_>) -> Result<bool, SqlError> {
        for records in ALL {
            let update = records.update();
            for (key, found) in rows(sql, records)? {
                let place = records.place(&key);
                if !StateKey::is_sealed(&found) {
                    sql.execute(&update, params![&key, &self.0.seal(&place, found)?])?;
                } else if self.0.open(&place, &found).is_err() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Encrypts a record for its key.
    pub(super) fn seal<T: Serialize>(&self, records: &Records, key: &str, value: &T) -> Result<Vec<u8>, SqlError> {
        // Strings, numbers and maps of strings: serialization has no way to fail.
        Ok(self.0.seal(&records.place(key), serde_json::to_vec(value).unwrap_or_default())?)
    }

    /// Reads the record of a key.
    pub(super) fn open<T: DeserializeOwned>(&self, records: &Records, key: &str, record: &[u8]) -> Result<T, SqlError> {
        let json = self.0.open(&records.place(key), record)?;
        serde_json::from_slice(&json).map_err(SqlError::of_value)
    }

    /// Reads all records of a table, by their keys.
    pub(super) fn all<T: DeserializeOwned>(
        &self,
        sql: Sql<'_>,
        records: &Records,
        damaged: &mut Vec<DamagedRecord>,
    ) -> Result<BTreeMap<String, T>, SqlError> {
        let mut all = BTreeMap::new();
        for (key, record) in rows(sql, records)? {
            match self.open(records, &key, &record) {
                Ok(value) => drop(all.insert(key, value)),
                Err(error) => damaged.push(DamagedRecord { table: records.table, key, cause: error.to_string() }),
            }
        }
        Ok(all)
    }
}

impl Records {
    /// The statement that writes a record anew. Parameters: the key, the record.
    fn update(&self) -> String {
        let Self { table, record, key } = self;
        format!("UPDATE {table} SET {record} = ?2 WHERE {key} = ?1")
    }

    fn place(&self, key: &str) -> String {
        format!("{}/{key}", self.table)
    }
}

/// The keys and records of a table.
fn rows(sql: Sql<'_>, Records { table, record, key }: &Records) -> Result<Vec<(String, Vec<u8>)>, SqlError> {
    sql.rows(&format!("SELECT {key}, {record} FROM {table}"), &[], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn proof(database: &Database) -> Result<Option<Vec<u8>>, SqlError> {
    database.read(|sql| sql.row("SELECT proof FROM key_proof", &[], |row| row.get(0)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kubefold_sql::{KeyFile, OpenError};
    use tempfile::TempDir;

    use super::*;
    use crate::write::journal::{
        Entry, Everywhere, Goal, Journal, Placement, Stage, Step, Verb,
        record::Begun,
        table::{FILE, MIGRATIONS},
        tests::{entry, member, opened},
    };

    const SECRET: &str = "aHVudGVyMg==";

    fn secret(name: &str) -> Entry {
        Entry { body: format!("{{\"data\":{{\"password\":\"{SECRET}\"}}}}"), ..entry(name, Verb::Create) }
    }

    /// Says whether some file of the directory has these bytes.
    fn is_on_disk(directory: &TempDir, bytes: &str) -> bool {
        let has = |file: fs::DirEntry| {
            let text = fs::read(file.path()).unwrap();
            text.windows(bytes.len()).any(|window| window == bytes.as_bytes())
        };
        fs::read_dir(directory.path()).unwrap().any(|file| has(file.unwrap()))
    }

    /// What another program does to the database.
    fn meddle(directory: &TempDir, change: &'static str) {
        let database = Database::open(&directory.path().join(FILE), MIGRATIONS).unwrap();
        database.write(Durability::Synced, |sql| sql.batch(change)).unwrap();
    }

    fn refused(directory: &TempDir, key: &KeyFile) -> String {
        let error = Journal::open(directory.path(), key).unwrap_err();
        assert!(error.is_of_key(), "{error}");
        error.to_string()
    }

    #[tokio::test]
    async fn nothing_of_a_body_a_caller_or_an_error_is_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        let begun = journal.begin(secret("a")).await.unwrap();
        journal.step(begun.id, &member("west"), Step::Failed(format!("{SECRET} is refused"))).await;
        journal.amend(Entry { body: format!("{SECRET}{SECRET}"), ..begun.clone() }).await;
        let made = Everywhere {
            key: begun.key.clone(),
            uid: begun.uid.clone(),
            caller: begun.caller.clone(),
            query: String::new(),
            user_agent: None,
            members: begun.listed.clone(),
        };
        journal.keep_everywhere(made.clone()).await;
        let goal = Goal {
            why: "drain east".into(),
            by: "ann".into(),
            caller: Some(begun.caller.clone()),
            begun_at: 1,
            parts: Vec::new(),
            leaving: Vec::new(),
            stage: Stage::Growing,
            problem: None,
        };
        let placement = Placement {
            key: begun.key.clone(),
            uid: "u".into(),
            moved: crate::placement::moved::Moved::default(),
            goal: Some(goal),
            carried: true,
        };
        journal.keep_placement(placement.clone()).await.unwrap();
        for bytes in [SECRET, "\"ann\"", "drain east"] {
            assert!(!is_on_disk(&directory, bytes), "{bytes}");
        }
        // As after a kill.
        let again = opened(&directory);
        assert_eq!(again.open_entries()[0].body, format!("{SECRET}{SECRET}"));
        assert_eq!(again.open_entries()[0].targets[1].step, Step::Failed(format!("{SECRET} is refused")));
        assert_eq!((again.everywhere().await, again.placements()), (vec![made], vec![placement]));
    }

    #[tokio::test]
    async fn what_an_earlier_version_left_in_clear_is_encrypted_and_nothing_of_it_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let earlier = Database::open(&path, &MIGRATIONS[..2]).unwrap();
        let json = serde_json::to_vec(&Begun { entry: Entry { id: 3, ..secret("a") }, begun_at: 1 }).unwrap();
        let step = serde_json::to_vec(&Step::Failed(SECRET.into())).unwrap();
        earlier
            .write(Durability::Synced, move |sql| {
                sql.execute("INSERT INTO journal_entries VALUES (3, ?1)", params![&json])?;
                sql.execute("INSERT INTO journal_steps VALUES (3, 'west', ?1, 0)", params![&step])
            })
            .unwrap();
        drop(earlier);
        assert!(is_on_disk(&directory, SECRET));
        let journal = opened(&directory);
        assert!(!is_on_disk(&directory, SECRET));
        assert_eq!(journal.open_entries()[0].body, secret("a").body);
        assert_eq!(journal.open_entries()[0].targets[1].step, Step::Failed(SECRET.into()));
        // From now on the key is needed.
        drop(journal);
        meddle(&directory, "UPDATE journal_entries SET entry = CAST('{}' AS BLOB)");
        assert_eq!(opened(&directory).damaged().len(), 1);
        let older = Database::open(&path, &MIGRATIONS[..2]).unwrap_err();
        assert!(matches!(older, OpenError::Newer { .. }), "{older}");
    }

    #[tokio::test]
    async fn the_wrong_key_and_none_are_refused_and_lose_nothing() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        opened(&directory).begin(secret("a")).await.unwrap();
        let (own, moved) = (directory.path().join("state.key"), elsewhere.path().join("my.key"));
        let other = KeyFile::new(None, elsewhere.path());
        other.key(false).unwrap();
        let wrong = refused(&directory, &other);
        assert!(wrong.contains("was encrypted with another key than the one in"), "{wrong}");
        assert!(wrong.contains("--state-key-file") && wrong.contains("move state.db"), "{wrong}");
        fs::rename(&own, &moved).unwrap();
        let none = refused(&directory, &KeyFile::new(None, directory.path()));
        assert!(none.contains("is encrypted, and there is no key file") && !own.exists(), "{none}");
        let moved = Journal::open(directory.path(), &KeyFile::new(Some(moved), directory.path())).unwrap();
        assert_eq!(moved.open_entries()[0].body, secret("a").body);
        // A process that was killed while it encrypted what an earlier version left may have had another key, too.
        drop(moved);
        meddle(&directory, "DELETE FROM key_proof");
        assert!(refused(&directory, &other).contains("another key"));
    }

    #[tokio::test]
    async fn what_an_earlier_key_encrypted_is_encrypted_anew_so_that_it_can_go() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let journal = opened(&directory);
        let begun = journal.begin(secret("a")).await.unwrap();
        journal.step(begun.id, &member("west"), Step::Failed("it is down".into())).await;
        drop(journal);
        let (file, newer) = (directory.path().join("state.key"), elsewhere.path().join("state.key"));
        KeyFile::new(None, elsewhere.path()).key(false).unwrap();
        let (old, new) = (fs::read_to_string(&file).unwrap(), fs::read_to_string(newer).unwrap());
        // First both can be read, then the new one encrypts, and then the old one goes.
        for keys in [format!("{old}{new}"), format!("{new}{old}"), new.clone()] {
            fs::write(&file, keys).unwrap();
            let journal = opened(&directory);
            assert_eq!((journal.open_entries()[0].body.as_str(), journal.damaged().len()), (&*begun.body, 0));
            assert_eq!(journal.open_entries()[0].targets[1].step, Step::Failed("it is down".into()));
            assert_eq!(journal.begin(secret("b")).await.unwrap().body, secret("b").body);
        }
        fs::write(&file, old).unwrap();
        refused(&directory, &KeyFile::new(None, directory.path()));
    }

    #[tokio::test]
    async fn a_damaged_record_and_one_that_was_moved_are_kept_aside() {
        let directory = tempfile::tempdir().unwrap();
        let journal = opened(&directory);
        for name in ["a", "b", "c", "d"] {
            journal.begin(secret(name)).await.unwrap();
        }
        drop(journal);
        meddle(
            &directory,
            "UPDATE journal_entries SET entry = (SELECT entry FROM journal_entries WHERE id = 1) WHERE id = 2;
             UPDATE journal_entries SET entry = x'0102' WHERE id = 4",
        );
        for _ in 0..2 {
            let journal = opened(&directory);
            let open: Vec<_> = journal.open_entries().into_iter().map(|entry| entry.key.name).collect();
            assert_eq!(open, ["a", "c"]);
            let damaged: Vec<_> = journal.damaged().iter().map(ToString::to_string).collect();
            assert!(damaged[0].starts_with("the record 2 of the table journal_entries in state.db cannot be read"));
            assert_eq!((damaged.len(), damaged[1].contains("record 4 of")), (2, true));
        }
        // Nothing takes its number.
        let next = opened(&directory).begin(secret("e")).await.unwrap();
        assert_eq!((next.id, opened(&directory).damaged().len()), (5, 2));
    }
}
