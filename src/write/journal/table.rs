//! The journal's tables in the state directory's database.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use kubefold_sql::{
    Database, Durability, OpenError, SqlError,
    rusqlite::{Connection, OptionalExtension, Result as SqlResult, params, types::Type},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    config::MemberName,
    write::{
        fleet::Key,
        journal::{
            earlier,
            placement::Placement,
            record::{Begun, EntryTarget, Everywhere, Listed, Step, Verb},
        },
    },
};
use kubefold_wire::resource::Gvk;

/// The database in the state directory.
const FILE: &str = "state.db";
/// The formats that it has had, oldest first.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE journal_entries (
        id INTEGER PRIMARY KEY,
        entry BLOB NOT NULL
    ) STRICT;
    CREATE TABLE journal_steps (
        entry INTEGER NOT NULL REFERENCES journal_entries (id) ON DELETE CASCADE,
        member TEXT NOT NULL,
        step BLOB NOT NULL,
        uncertain INTEGER NOT NULL,
        PRIMARY KEY (entry, member)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE made_everywhere (
        \"group\" TEXT NOT NULL,
        resource TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        made BLOB NOT NULL,
        PRIMARY KEY (\"group\", resource, namespace, name)
    ) STRICT, WITHOUT ROWID;
",
    "
    CREATE TABLE placements (uid TEXT PRIMARY KEY, placement BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE cordoned (member TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
    CREATE TABLE placed_kinds (
        \"group\" TEXT NOT NULL, kind TEXT NOT NULL, PRIMARY KEY (\"group\", kind)
    ) STRICT, WITHOUT ROWID;
",
];

/// Why the journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalOpenError {
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be read or written.
    #[error("{path}: {cause}")]
    Sql {
        /// The database.
        path: PathBuf,
        /// Why.
        cause: SqlError,
    },
    /// The directory, or the file of an earlier version, cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl JournalOpenError {
    /// The database in that directory cannot be read.
    pub(super) fn of(directory: &Path, cause: SqlError) -> Self {
        Self::Sql { path: directory.join(FILE), cause }
    }
}

/// The unfinished writes on disk. All of it blocks.
#[derive(Clone, Debug)]
pub(super) struct Table(Database);

impl Table {
    /// Opens the database in a directory, or begins one, and reads the unfinished writes. Those that an earlier version left
    /// in a file of its own are taken over.
    pub(super) fn open(directory: &Path) -> Result<(Self, Vec<Begun>), JournalOpenError> {
        fs::create_dir_all(directory)?;
        let path = directory.join(FILE);
        let this = Self(Database::open(&path, MIGRATIONS)?);
        let of_sql = |cause| JournalOpenError::of(directory, cause);
        if let Some(earlier) = earlier::File::read(directory)? {
            this.insert_all(earlier.unfinished()).map_err(of_sql)?;
            earlier.remove()?;
        }
        let unfinished = this.read().map_err(of_sql)?;
        Ok((this, unfinished))
    }

    /// Enters a write, and drops others. When it returns, that is on disk.
    pub(super) fn begin(&self, begun: &Begun, dropped: Vec<u64>) -> Result<(), SqlError> {
        let (id, entry) = (begun.entry.id, json(begun));
        let places = (begun.entry.verb == Verb::Create && !begun.entry.shared).then(|| begun.entry.key.gvk.clone());
        self.0.write(Durability::Synced, move |sql| {
            for id in dropped {
                remove(sql, id)?;
            }
            if let Some(gvk) = &places {
                place(sql, gvk)?;
            }
            insert(sql, id, &entry)
        })
    }

    /// Writes an entry anew. When it returns, that is on disk.
    pub(super) fn replace(&self, begun: &Begun) -> Result<(), SqlError> {
        let (id, entry) = (begun.entry.id, json(begun));
        self.0.write(Durability::Synced, move |sql| {
            let mut update = sql.prepare_cached("UPDATE journal_entries SET entry = ?2 WHERE id = ?1")?;
            update.execute(params![number(id), entry]).map(|_| ())
        })
    }

    /// Notes how far a part came. After a loss of power it may be lost: the members are asked again.
    pub(super) fn step(&self, id: u64, target: &EntryTarget) -> Result<(), SqlError> {
        let (member, step, uncertain) = (target.member.to_string(), json(&target.step), target.uncertain);
        self.0.write(Durability::Written, move |sql| {
            let mut upsert = sql.prepare_cached(
                "INSERT INTO journal_steps (entry, member, step, uncertain)
                 SELECT id, ?2, ?3, ?4 FROM journal_entries WHERE id = ?1
                 ON CONFLICT DO UPDATE SET step = excluded.step, uncertain = excluded.uncertain",
            )?;
            upsert.execute(params![number(id), member, step, uncertain]).map(|_| ())
        })
    }

    /// Drops an entry. After a loss of power it may be there still: the members are asked again.
    pub(super) fn finish(&self, id: u64) -> Result<(), SqlError> {
        self.0.write(Durability::Written, move |sql| remove(sql, id))
    }

    /// Notes an object that is to be in every member. Of one that is known the members are added.
    pub(super) fn keep_everywhere(&self, mut made: Everywhere) -> Result<(), SqlError> {
        self.0.write(Durability::Synced, move |sql| {
            let known = everywhere(sql, &made.key)?.filter(|known| known.uid == made.uid);
            let is_new = |known: &Listed| !made.members.contains(known);
            let earlier: Vec<Listed> = known.into_iter().flat_map(|known| known.members).filter(is_new).collect();
            made.members.extend(earlier);
            let [group, resource, namespace, name] = words(&made.key);
            let mut insert =
                sql.prepare_cached("INSERT OR REPLACE INTO made_everywhere VALUES (?1, ?2, ?3, ?4, ?5)")?;
            insert.execute(params![group, resource, namespace, name, json(&made)]).map(|_| ())
        })
    }

    /// Forgets an object that was to be in every member.
    pub(super) fn forget_everywhere(&self, key: &Key, uid: &str) -> Result<(), SqlError> {
        let (key, uid) = (key.clone(), uid.to_owned());
        self.0.write(Durability::Written, move |sql| {
            if everywhere(sql, &key)?.is_none_or(|known| known.uid != uid && !known.uid.is_empty()) {
                return Ok(());
            }
            let mut delete = sql.prepare_cached(
                "DELETE FROM made_everywhere WHERE \"group\" = ?1 AND resource = ?2 AND namespace = ?3 AND name = ?4",
            )?;
            delete.execute(words(&key)).map(|_| ())
        })
    }

    /// The objects that are to be in every member.
    pub(super) fn everywhere(&self) -> Result<Vec<Everywhere>, SqlError> {
        self.0.read(|sql| {
            let mut all = sql.prepare_cached("SELECT made FROM made_everywhere")?;
            all.query_map([], |row| parsed(&row.get::<_, Vec<u8>>(0)?))?.collect()
        })
    }

    /// Notes that an object of a kind was placed.
    pub(super) fn place(&self, gvk: &Gvk) -> Result<(), SqlError> {
        let gvk = gvk.clone();
        self.0.write(Durability::Synced, move |sql| place(sql, &gvk))
    }

    /// The kinds of which an object was ever placed: group and kind.
    pub(super) fn placed_kinds(&self) -> Result<BTreeSet<(String, String)>, SqlError> {
        self.0.read(|sql| {
            let mut all = sql.prepare_cached("SELECT \"group\", kind FROM placed_kinds")?;
            all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    /// Keeps where a placement is and is going. When it returns, that is on disk.
    pub(super) fn keep_placement(&self, placement: &Placement) -> Result<(), SqlError> {
        let (uid, placement) = (placement.uid.clone(), json(placement));
        self.0.write(Durability::Synced, move |sql| {
            let mut insert = sql.prepare_cached("INSERT OR REPLACE INTO placements VALUES (?1, ?2)")?;
            insert.execute(params![uid, placement]).map(|_| ())
        })
    }

    /// Forgets a placement that is gone.
    pub(super) fn forget_placement(&self, uid: &str) -> Result<(), SqlError> {
        let uid = uid.to_owned();
        self.0.write(Durability::Synced, move |sql| {
            sql.prepare_cached("DELETE FROM placements WHERE uid = ?1")?.execute([uid]).map(|_| ())
        })
    }

    /// The placements that have moved or are moving.
    pub(super) fn placements(&self) -> Result<Vec<Placement>, SqlError> {
        self.0.read(|sql| {
            let mut all = sql.prepare_cached("SELECT placement FROM placements ORDER BY uid")?;
            all.query_map([], |row| parsed(&row.get::<_, Vec<u8>>(0)?))?.collect()
        })
    }

    /// Notes that a member gets nothing new, or does again.
    pub(super) fn cordon(&self, member: &MemberName, is_cordoned: bool) -> Result<(), SqlError> {
        let member = member.to_string();
        self.0.write(Durability::Synced, move |sql| {
            let change = match is_cordoned {
                true => "INSERT OR REPLACE INTO cordoned VALUES (?1)",
                false => "DELETE FROM cordoned WHERE member = ?1",
            };
            sql.prepare_cached(change)?.execute([member]).map(|_| ())
        })
    }

    /// The members that get nothing new.
    pub(super) fn cordoned(&self) -> Result<BTreeSet<MemberName>, SqlError> {
        self.0.read(|sql| {
            let mut all = sql.prepare_cached("SELECT member FROM cordoned")?;
            let names = all.query_map([], |row| row.get::<_, String>(0))?;
            names.filter_map(|name| name.map(|name| MemberName::new(&name)).transpose()).collect()
        })
    }

    fn insert_all(&self, all: Vec<Begun>) -> Result<(), SqlError> {
        self.0.write(Durability::Synced, move |sql| {
            all.iter().try_for_each(|begun| insert(sql, begun.entry.id, &json(begun)))
        })
    }

    fn read(&self) -> Result<Vec<Begun>, SqlError> {
        self.0.read(|sql| {
            let mut entries = sql.prepare("SELECT id, entry FROM journal_entries ORDER BY id")?;
            let entries = entries.query_map([], |row| Ok((row.get(0)?, parsed(&row.get::<_, Vec<u8>>(1)?)?)))?;
            let mut entries: BTreeMap<i64, Begun> = entries.collect::<SqlResult<_>>()?;
            let mut steps = sql.prepare("SELECT entry, member, step, uncertain FROM journal_steps")?;
            let mut steps = steps.query([])?;
            while let Some(row) = steps.next()? {
                let (id, member, step): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let Some(begun) = entries.get_mut(&id) else { continue };
                let Some(target) = begun.entry.targets.iter_mut().find(|target| *target.member.as_str() == *member)
                else {
                    continue;
                };
                (target.step, target.uncertain) = (parsed(&step)?, row.get(3)?);
            }
            // The process may have ended before it noted that it had sent something.
            let targets = entries.values_mut().flat_map(|begun| &mut begun.entry.targets);
            targets.for_each(|target| target.uncertain |= target.step == Step::Planned);
            Ok(entries.into_values().collect())
        })
    }
}

fn place(sql: &Connection, gvk: &Gvk) -> SqlResult<()> {
    let mut insert = sql.prepare_cached("INSERT OR IGNORE INTO placed_kinds VALUES (?1, ?2)")?;
    insert.execute([&*gvk.group, &*gvk.kind]).map(|_| ())
}

fn insert(sql: &Connection, id: u64, entry: &[u8]) -> SqlResult<()> {
    let mut insert = sql.prepare_cached("INSERT OR REPLACE INTO journal_entries (id, entry) VALUES (?1, ?2)")?;
    insert.execute(params![number(id), entry]).map(|_| ())
}

fn remove(sql: &Connection, id: u64) -> SqlResult<()> {
    sql.prepare_cached("DELETE FROM journal_entries WHERE id = ?1")?.execute([number(id)]).map(|_| ())
}

fn everywhere(sql: &Connection, key: &Key) -> SqlResult<Option<Everywhere>> {
    let mut one = sql.prepare_cached(
        "SELECT made FROM made_everywhere WHERE \"group\" = ?1 AND resource = ?2 AND namespace = ?3 AND name = ?4",
    )?;
    one.query_row(words(key), |row| parsed(&row.get::<_, Vec<u8>>(0)?)).optional()
}

fn words(key: &Key) -> [&str; 4] {
    [&key.gvr.group, &key.gvr.resource, &key.namespace, &key.name]
}

fn number(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    // Strings, numbers and maps of strings: serialization has no way to fail.
    serde_json::to_vec(value).unwrap_or_default()
}

fn parsed<T: DeserializeOwned>(json: &[u8]) -> SqlResult<T> {
    let wrong = |error| kubefold_sql::rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, Box::new(error));
    serde_json::from_slice(json).map_err(wrong)
}
