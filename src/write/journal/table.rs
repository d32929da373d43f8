//! The journal's tables in the state directory's database, or on a server. What they have in BLOBs is encrypted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use kubefold_sql::{
    Database, Durability, KeyError, KeyFile, Migrations, OpenError, RemoteState, Sql, SqlError, Value, params,
};

use crate::{
    config::MemberName,
    write::{
        fleet::Key,
        journal::{
            earlier,
            placement::{Overriding, Placement},
            record::{Begun, EntryTarget, Everywhere, Listed, Step, Verb},
            sealed::{DamagedRecord, ENTRIES, EVERYWHERE, OVERRIDINGS, PLACEMENTS, STEPS, Sealer},
        },
    },
};
use kubefold_wire::resource::Gvk;

/// The database in the state directory.
pub const FILE: &str = "state.db";
/// The formats that it has had, oldest first.
pub(super) const MIGRATIONS: &[&str] = &[
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
    // What can be read with the key alone. There is none as long as records of an earlier version are in clear.
    "
    CREATE TABLE key_proof (id INTEGER PRIMARY KEY CHECK (id = 1), proof BLOB NOT NULL) STRICT;
",
    "
    CREATE TABLE overridings (uid TEXT PRIMARY KEY, overriding BLOB NOT NULL) STRICT, WITHOUT ROWID;
",
];

/// The group of tables on a server, where state is there.
pub const SCHEMA: &str = "kubefold";
/// The formats that these have had, oldest first.
const REMOTE_MIGRATIONS: Migrations<'_> = Migrations {
    postgres: &["
    CREATE TABLE journal_entries (id bigint PRIMARY KEY, entry bytea NOT NULL);
    CREATE TABLE journal_steps (
        entry bigint NOT NULL REFERENCES journal_entries (id) ON DELETE CASCADE,
        member text NOT NULL,
        step bytea NOT NULL,
        uncertain bigint NOT NULL,
        PRIMARY KEY (entry, member)
    );
    CREATE TABLE made_everywhere (
        \"group\" text NOT NULL,
        resource text NOT NULL,
        namespace text NOT NULL,
        name text NOT NULL,
        made bytea NOT NULL,
        PRIMARY KEY (\"group\", resource, namespace, name)
    );
    CREATE TABLE placements (uid text PRIMARY KEY, placement bytea NOT NULL);
    CREATE TABLE overridings (uid text PRIMARY KEY, overriding bytea NOT NULL);
    CREATE TABLE cordoned (member text PRIMARY KEY);
    CREATE TABLE placed_kinds (\"group\" text NOT NULL, kind text NOT NULL, PRIMARY KEY (\"group\", kind));
    CREATE TABLE key_proof (id bigint PRIMARY KEY CHECK (id = 1), proof bytea NOT NULL);
"],
    mysql: &["
    CREATE TABLE IF NOT EXISTS journal_entries (
        id BIGINT NOT NULL PRIMARY KEY,
        entry LONGBLOB NOT NULL
    ) ENGINE = InnoDB;
    CREATE TABLE IF NOT EXISTS journal_steps (
        entry BIGINT NOT NULL,
        member VARBINARY(255) NOT NULL,
        step LONGBLOB NOT NULL,
        uncertain BIGINT NOT NULL,
        PRIMARY KEY (entry, member),
        FOREIGN KEY (entry) REFERENCES journal_entries (id) ON DELETE CASCADE
    ) ENGINE = InnoDB;
    CREATE TABLE IF NOT EXISTS made_everywhere (
        \"group\" VARBINARY(255) NOT NULL,
        resource VARBINARY(255) NOT NULL,
        namespace VARBINARY(255) NOT NULL,
        name VARBINARY(2048) NOT NULL,
        made LONGBLOB NOT NULL,
        PRIMARY KEY (\"group\", resource, namespace, name)
    ) ENGINE = InnoDB;
    CREATE TABLE IF NOT EXISTS placements (
        uid VARBINARY(255) NOT NULL PRIMARY KEY,
        placement LONGBLOB NOT NULL
    ) ENGINE = InnoDB;
    CREATE TABLE IF NOT EXISTS overridings (
        uid VARBINARY(255) NOT NULL PRIMARY KEY,
        overriding LONGBLOB NOT NULL
    ) ENGINE = InnoDB;
    CREATE TABLE IF NOT EXISTS cordoned (member VARBINARY(255) NOT NULL PRIMARY KEY) ENGINE = InnoDB;
    CREATE TABLE IF NOT EXISTS placed_kinds (
        \"group\" VARBINARY(255) NOT NULL,
        kind VARBINARY(255) NOT NULL,
        PRIMARY KEY (\"group\", kind)
    ) ENGINE = InnoDB;
    CREATE TABLE IF NOT EXISTS key_proof (id BIGINT NOT NULL PRIMARY KEY, proof LONGBLOB NOT NULL) ENGINE = InnoDB;
"],
};

/// All of them. A table comes after those that its rows refer to.
const TABLES: [&str; 8] = [
    "journal_entries",
    "journal_steps",
    "made_everywhere",
    "placements",
    "overridings",
    "cordoned",
    "placed_kinds",
    "key_proof",
];

/// Why the journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalOpenError {
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be read or written.
    #[error("{place}: {cause}")]
    Sql {
        /// The database.
        place: String,
        /// Why.
        cause: SqlError,
    },
    /// The directory, or the file of an earlier version, cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no key that could be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key that encrypted the database is not there.
    #[error(
        "{database} is encrypted, and there is no key file {key}; put it back, or name it with --state-key-file; if it is lost, {}",
        without_key(.database)
    )]
    NoKey {
        /// The database.
        database: String,
        /// Which file was looked for.
        key: PathBuf,
    },
    /// Another key encrypted the database.
    #[error(
        "{database} was encrypted with another key than the one in {key}; name the file of its key with --state-key-file, or, if it is lost, {}",
        without_key(.database)
    )]
    WrongKey {
        /// The database.
        database: String,
        /// The file of the key.
        key: PathBuf,
    },
}

/// What is left to an operator who has lost the key.
fn without_key(database: &str) -> String {
    let away = match database.split_once("://") {
        Some(("postgres", _)) => "drop the schemas kubefold and kubefold_own",
        Some(_) => "drop the tables whose names begin with kubefold_",
        None => "move state.db, state.db-wal and state.db-shm away",
    };
    format!(
        "{away}: kubefold then forgets which writes are unfinished, which placements have moved, which members are cordoned and \
         what was made to be everywhere"
    )
}

impl JournalOpenError {
    /// Says whether the operator gave the wrong key, or none.
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::Key(_) | Self::NoKey { .. } | Self::WrongKey { .. })
    }
}

/// The unfinished writes on disk. All of it blocks.
#[derive(Clone, Debug)]
pub(super) struct Table {
    database: Database,
    sealer: Sealer,
}

/// What a database has when it is opened.
pub(super) struct Opened {
    pub(super) table: Table,
    /// The unfinished writes, oldest first.
    pub(super) unfinished: Vec<Begun>,
    /// The placements that have moved or are moving.
    pub(super) placements: Vec<Placement>,
    /// The placements whose parts are to get the overrides of now.
    pub(super) overridings: Vec<Overriding>,
    /// What cannot be read. It stays where it is.
    pub(super) damaged: Vec<DamagedRecord>,
    /// No entry has a higher number.
    pub(super) last: u64,
    /// Where it is: a file, or a URL.
    pub(super) place: String,
}

impl Table {
    /// Opens the database in a directory, or begins one, and reads the unfinished writes. Those that an earlier version left
    /// in a file of its own are taken over, and what it left in clear is encrypted.
    pub(super) fn open(directory: &Path, key: &KeyFile) -> Result<Opened, JournalOpenError> {
        fs::create_dir_all(directory)?;
        let path = directory.join(FILE);
        let place = path.display().to_string();
        let table = Self::of(Database::open(&path, MIGRATIONS)?, &place, key)?;
        let of_sql = |cause| JournalOpenError::Sql { place: place.clone(), cause };
        if let Some(earlier) = earlier::File::read(directory)? {
            table.insert_all(earlier.unfinished()).map_err(of_sql)?;
            earlier.remove()?;
        }
        table.read(&place).map_err(of_sql)
    }

    /// Opens the tables on a server, or makes them, and reads the unfinished writes.
    pub(super) fn open_in(state: &Arc<RemoteState>, key: &KeyFile) -> Result<Opened, JournalOpenError> {
        let place = state.place();
        let table = Self::of(Database::open_in(state, SCHEMA, REMOTE_MIGRATIONS)?, place, key)?;
        table.read(place).map_err(|cause| JournalOpenError::Sql { place: place.to_owned(), cause })
    }

    /// Has the tables on a server have what the file in a directory has, in place of their own, and reads them.
    pub(super) fn take_over(
        directory: &Path,
        state: &Arc<RemoteState>,
        key: &KeyFile,
    ) -> Result<Opened, JournalOpenError> {
        // It is of the newest format then, and nothing in it is in clear.
        drop(Self::open(directory, key)?);
        let database = Database::open_in(state, SCHEMA, REMOTE_MIGRATIONS)?;
        let taken = database.take_over(&directory.join(FILE), &TABLES);
        taken.map_err(|cause| JournalOpenError::Sql { place: state.place().to_owned(), cause })?;
        Self::open_in(state, key)
    }

    /// A database whose records are encrypted with the key of `key`.
    fn of(database: Database, place: &str, key: &KeyFile) -> Result<Self, JournalOpenError> {
        let of_sql = |cause| JournalOpenError::Sql { place: place.to_owned(), cause };
        let is_encrypted = Sealer::has_proof(&database).map_err(of_sql)?;
        let no_key = |error| match error {
            KeyError::Missing(key) if is_encrypted => JournalOpenError::NoKey { database: place.to_owned(), key },
            error => error.into(),
        };
        let sealer = Sealer::new(key.key(is_encrypted).map_err(no_key)?);
        if !sealer.takes(&database).map_err(of_sql)? {
            return Err(JournalOpenError::WrongKey { database: place.to_owned(), key: key.path().to_owned() });
        }
        Ok(Self { database, sealer })
    }

    /// Enters a write. When it returns, that is on disk.
    pub(super) fn begin(&self, begun: &Begun) -> Result<(), SqlError> {
        let (id, entry) = (begun.entry.id, self.sealer.seal(&ENTRIES, &begun.entry.id.to_string(), begun)?);
        let places = (begun.entry.verb == Verb::Create && !begun.entry.shared).then(|| begun.entry.key.gvk.clone());
        self.database.write(Durability::Synced, move |sql| {
            if let Some(gvk) = &places {
                place(sql, gvk)?;
            }
            insert(sql, id, &entry)
        })
    }

    /// Writes entries anew, and drops others. When it returns, that is on disk.
    pub(super) fn replace(&self, begun: &[Begun], dropped: Vec<u64>) -> Result<(), SqlError> {
        let sealed = |begun: &Begun| {
            let id = begun.entry.id;
            Ok((id, self.sealer.seal(&ENTRIES, &id.to_string(), begun)?))
        };
        let entries = begun.iter().map(sealed).collect::<Result<Vec<_>, SqlError>>()?;
        self.database.write(Durability::Synced, move |sql| {
            for (id, entry) in entries {
                sql.execute("UPDATE journal_entries SET entry = ?2 WHERE id = ?1", params![number(id), &entry])?;
            }
            dropped.into_iter().try_for_each(|id| remove(sql, id))
        })
    }

    /// Notes how far a part came. After a loss of power it may be lost: the members are asked again.
    pub(super) fn step(&self, id: u64, target: &EntryTarget) -> Result<(), SqlError> {
        let (sealer, target) = (self.sealer.clone(), target.clone());
        self.database.write(Durability::Written, move |sql| upsert_step(sql, &sealer, id, &target))
    }

    /// The same with the next commit, unless the entry `is_closed` by then: it leaves the disk with that commit.
    pub(super) fn step_later(&self, id: u64, target: EntryTarget, is_closed: impl Fn() -> bool + Send + 'static) {
        // Not the database: what waits for a commit would keep it from ending.
        let sealer = self.sealer.clone();
        let upsert = move |sql: Sql<'_>| if is_closed() { Ok(()) } else { upsert_step(sql, &sealer, id, &target) };
        self.database.write_later(upsert, unnoted);
    }

    /// Drops an entry. After a loss of power it may be there still: the members are asked again.
    pub(super) fn finish(&self, id: u64) {
        self.database.write_later(move |sql| remove(sql, id), unnoted);
    }

    /// Notes an object that is to be in every member. Of one that is known the members are added.
    pub(super) fn keep_everywhere(&self, mut made: Everywhere) -> Result<(), SqlError> {
        let sealer = self.sealer.clone();
        self.database.write(Durability::Synced, move |sql| {
            let known = everywhere(sql, &sealer, &made.key)?.filter(|known| known.uid == made.uid);
            let is_new = |known: &Listed| !made.members.contains(known);
            let earlier: Vec<Listed> = known.into_iter().flat_map(|known| known.members).filter(is_new).collect();
            made.members.extend(earlier);
            let [group, resource, namespace, name] = words(&made.key);
            let record = sealer.seal(&EVERYWHERE, &words(&made.key).join("/"), &made)?;
            let insert = "INSERT INTO made_everywhere VALUES (?1, ?2, ?3, ?4, ?5)
                ON CONFLICT (\"group\", resource, namespace, name) DO UPDATE SET made = excluded.made";
            sql.execute(insert, params![group, resource, namespace, name, &record]).map(drop)
        })
    }

    /// Forgets an object that was to be in every member.
    pub(super) fn forget_everywhere(&self, key: &Key, uid: &str) -> Result<(), SqlError> {
        let (key, uid, sealer) = (key.clone(), uid.to_owned(), self.sealer.clone());
        self.database.write(Durability::Written, move |sql| {
            if everywhere(sql, &sealer, &key)?.is_none_or(|known| known.uid != uid && !known.uid.is_empty()) {
                return Ok(());
            }
            let delete =
                "DELETE FROM made_everywhere WHERE \"group\" = ?1 AND resource = ?2 AND namespace = ?3 AND name = ?4";
            sql.execute(delete, &words(&key).map(Value::from)).map(drop)
        })
    }

    /// The objects that are to be in every member.
    pub(super) fn everywhere(&self) -> Result<Vec<Everywhere>, SqlError> {
        self.database.read(|sql| Ok(self.sealer.all(sql, &EVERYWHERE, &mut Vec::new())?.into_values().collect()))
    }

    /// Notes that an object of a kind was placed.
    pub(super) fn place(&self, gvk: &Gvk) -> Result<(), SqlError> {
        let gvk = gvk.clone();
        self.database.write(Durability::Synced, move |sql| place(sql, &gvk))
    }

    /// The kinds of which an object was ever placed: group and kind.
    pub(super) fn placed_kinds(&self) -> Result<BTreeSet<(String, String)>, SqlError> {
        let all = "SELECT \"group\", kind FROM placed_kinds";
        let kinds = self.database.read(|sql| sql.rows(all, &[], |row| Ok((row.get(0)?, row.get(1)?))));
        Ok(kinds?.into_iter().collect())
    }

    /// Keeps where a placement is and is going. When it returns, that is on disk.
    pub(super) fn keep_placement(&self, placement: &Placement) -> Result<(), SqlError> {
        let (uid, placement) = (placement.uid.clone(), self.sealer.seal(&PLACEMENTS, &placement.uid, placement)?);
        self.database.write(Durability::Synced, move |sql| {
            let insert = "INSERT INTO placements VALUES (?1, ?2)
                ON CONFLICT (uid) DO UPDATE SET placement = excluded.placement";
            sql.execute(insert, params![&uid, &placement]).map(drop)
        })
    }

    /// Forgets a placement that is gone.
    pub(super) fn forget_placement(&self, uid: &str) -> Result<(), SqlError> {
        let uid = uid.to_owned();
        self.database.write(Durability::Synced, move |sql| {
            sql.execute("DELETE FROM placements WHERE uid = ?1", params![&uid]).map(drop)
        })
    }

    /// Keeps that the parts of a placement are to get the overrides of now. When it returns, that is on disk.
    pub(super) fn keep_overriding(&self, overriding: &Overriding) -> Result<(), SqlError> {
        let (uid, record) = (overriding.uid.clone(), self.sealer.seal(&OVERRIDINGS, &overriding.uid, overriding)?);
        self.database.write(Durability::Synced, move |sql| {
            let insert = "INSERT INTO overridings VALUES (?1, ?2)
                ON CONFLICT (uid) DO UPDATE SET overriding = excluded.overriding";
            sql.execute(insert, params![&uid, &record]).map(drop)
        })
    }

    /// Drops that. After a loss of power it may be there still: the members are asked again.
    pub(super) fn forget_overriding(&self, uid: &str) -> Result<(), SqlError> {
        let uid = uid.to_owned();
        self.database.write(Durability::Written, move |sql| {
            sql.execute("DELETE FROM overridings WHERE uid = ?1", params![&uid]).map(drop)
        })
    }

    /// Notes that a member gets nothing new, or does again.
    pub(super) fn cordon(&self, member: &MemberName, is_cordoned: bool) -> Result<(), SqlError> {
        let member = member.to_string();
        self.database.write(Durability::Synced, move |sql| {
            let change = match is_cordoned {
                true => "INSERT INTO cordoned VALUES (?1) ON CONFLICT (member) DO NOTHING",
                false => "DELETE FROM cordoned WHERE member = ?1",
            };
            sql.execute(change, params![&member]).map(drop)
        })
    }

    /// The members that get nothing new.
    pub(super) fn cordoned(&self) -> Result<BTreeSet<MemberName>, SqlError> {
        let all = "SELECT member FROM cordoned";
        let names = self.database.read(|sql| sql.rows(all, &[], |row| Ok(MemberName::new(row.get(0)?))));
        Ok(names?.into_iter().flatten().collect())
    }

    fn insert_all(&self, all: Vec<Begun>) -> Result<(), SqlError> {
        let sealer = self.sealer.clone();
        self.database.write(Durability::Synced, move |sql| {
            all.iter().try_for_each(|begun| {
                let id = begun.entry.id;
                insert(sql, id, &sealer.seal(&ENTRIES, &id.to_string(), begun)?)
            })
        })
    }

    fn read(self, place: &str) -> Result<Opened, SqlError> {
        let mut damaged = Vec::new();
        let (unfinished, placements, overridings, last) = self.database.read(|sql| {
            let unfinished = self.unfinished(sql, &mut damaged)?;
            let placements = self.sealer.all(sql, &PLACEMENTS, &mut damaged)?.into_values().collect();
            let overridings = self.sealer.all(sql, &OVERRIDINGS, &mut damaged)?.into_values().collect();
            let _objects: BTreeMap<String, Everywhere> = self.sealer.all(sql, &EVERYWHERE, &mut damaged)?;
            let last = sql.row("SELECT max(id) FROM journal_entries", &[], |row| row.get::<Option<i64>>(0))?.flatten();
            Ok((unfinished, placements, overridings, last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0)))
        })?;
        let place = place.to_owned();
        Ok(Opened { table: self, unfinished, placements, overridings, damaged, last, place })
    }

    fn unfinished(&self, sql: Sql<'_>, damaged: &mut Vec<DamagedRecord>) -> Result<Vec<Begun>, SqlError> {
        let mut entries: Vec<Begun> = self.sealer.all(sql, &ENTRIES, damaged)?.into_values().collect();
        entries.sort_by_key(|begun| begun.entry.id);
        let mut steps: BTreeMap<String, Step> = self.sealer.all(sql, &STEPS, damaged)?;
        let mut uncertain = BTreeMap::new();
        sql.each("SELECT entry, member, uncertain FROM journal_steps", &[], |row| {
            uncertain.insert((row.get::<i64>(0)?, row.get::<String>(1)?), row.get::<bool>(2)?);
            Ok(())
        })?;
        for Begun { entry, .. } in &mut entries {
            for target in &mut entry.targets {
                let member = target.member.as_str();
                if let Some(step) = steps.remove(&format!("{}/{member}", entry.id)) {
                    target.uncertain = uncertain.remove(&(number(entry.id), member.to_owned())).unwrap_or_default();
                    target.step = step;
                }
                // The process may have ended before it noted that it had sent something.
                target.uncertain |= target.step == Step::Planned;
            }
        }
        Ok(entries)
    }
}

fn place(sql: Sql<'_>, gvk: &Gvk) -> Result<(), SqlError> {
    let insert = "INSERT INTO placed_kinds VALUES (?1, ?2) ON CONFLICT (\"group\", kind) DO NOTHING";
    sql.execute(insert, params![&*gvk.group, &*gvk.kind]).map(drop)
}

fn insert(sql: Sql<'_>, id: u64, entry: &[u8]) -> Result<(), SqlError> {
    let insert = "INSERT INTO journal_entries (id, entry) VALUES (?1, ?2)
        ON CONFLICT (id) DO UPDATE SET entry = excluded.entry";
    sql.execute(insert, params![number(id), entry]).map(drop)
}

fn upsert_step(sql: Sql<'_>, sealer: &Sealer, id: u64, target: &EntryTarget) -> Result<(), SqlError> {
    let member = target.member.as_str();
    let step = sealer.seal(&STEPS, &format!("{id}/{member}"), &target.step)?;
    let upsert = "INSERT INTO journal_steps (entry, member, step, uncertain)
        SELECT id, ?2, ?3, ?4 FROM journal_entries WHERE id = ?1
        ON CONFLICT (entry, member) DO UPDATE SET step = excluded.step, uncertain = excluded.uncertain";
    sql.execute(upsert, params![number(id), member, &step, target.uncertain]).map(drop)
}

/// Nothing is wrong yet: after a restart the members are asked.
pub(super) fn unnoted(error: impl fmt::Display) {
    tracing::warn!(%error, "what became of an unfinished write was not noted in the journal");
}

fn remove(sql: Sql<'_>, id: u64) -> Result<(), SqlError> {
    sql.execute("DELETE FROM journal_entries WHERE id = ?1", params![number(id)]).map(drop)
}

/// One that is damaged is not known.
fn everywhere(sql: Sql<'_>, sealer: &Sealer, key: &Key) -> Result<Option<Everywhere>, SqlError> {
    let one =
        "SELECT made FROM made_everywhere WHERE \"group\" = ?1 AND resource = ?2 AND namespace = ?3 AND name = ?4";
    let record = sql.row(one, &words(key).map(Value::from), |row| row.get::<Vec<u8>>(0))?;
    Ok(record.and_then(|record| sealer.open(&EVERYWHERE, &words(key).join("/"), &record).ok()))
}

fn words(key: &Key) -> [&str; 4] {
    [&key.gvr.group, &key.gvr.resource, &key.namespace, &key.name]
}

fn number(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}
