//! The file in which versions before the database kept the journal: one record a line, with its length and checksum.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{
    config::MemberName,
    write::journal::record::{Begun, Step},
};

/// What an earlier version left.
pub(super) struct File {
    path: PathBuf,
    records: Vec<Record>,
}

/// One line of the file.
#[derive(Debug, Deserialize)]
enum Record {
    /// A write is about to begin.
    Begun(Box<Begun>),
    /// A part came so far.
    Step { id: u64, member: MemberName, step: Step },
    /// Nothing is left to do.
    Finished { id: u64 },
}

impl File {
    /// Reads the file in the state directory. What a crash left torn is dropped.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join("journal");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let (mut records, mut dropped) = (Vec::new(), 0_usize);
        for line in lines {
            match parse(line) {
                Some(record) => records.push(record),
                None => dropped += 1,
            }
        }
        if dropped > 0 {
            tracing::warn!(path = %path.display(), dropped, "records of the journal were torn and are dropped");
        }
        Ok(Some(Self { path, records }))
    }

    /// The writes that are unfinished by it.
    pub(super) fn unfinished(&self) -> Vec<Begun> {
        let mut open: BTreeMap<u64, Begun> = BTreeMap::new();
        for record in &self.records {
            match record {
                Record::Begun(begun) => drop(open.insert(begun.entry.id, Begun::clone(begun))),
                Record::Step { id, member, step } => {
                    if let Some(begun) = open.get_mut(id) {
                        begun.entry.set(member, step.clone());
                    }
                }
                Record::Finished { id } => drop(open.remove(id)),
            }
        }
        open.into_values().collect()
    }

    /// Removes the file, once what it says is stored elsewhere.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(self.path)
    }
}

fn parse(line: &[u8]) -> Option<Record> {
    let number = |from: usize, to: usize| {
        let digits = std::str::from_utf8(line.get(from..to)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let json = line.get(26..)?;
    let whole = number(0, 8)? == json.len() as u64 && number(9, 25)? == sum(json);
    whole.then(|| serde_json::from_slice(json).ok())?
}

fn sum(json: &[u8]) -> u64 {
    Sha256::digest(json).iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
