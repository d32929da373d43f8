//! The journal's file: one record a line, with its length and checksum.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::write::journal::record::Record;

/// It holds bodies, and the callers as whom writes are finished.
const MODE: u32 = 0o600;
/// Units: bytes; the file is written anew when it is larger, and mostly of finished writes.
const COMPACT_ABOVE: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    file: fs::File,
    len: u64,
    /// How long it was when it was last written anew.
    compacted: u64,
}

impl File {
    /// Opens or begins the file, and reads its records, each with its size in bytes.
    pub(super) fn open(directory: &Path) -> io::Result<(Self, Vec<(Record, usize)>)> {
        fs::create_dir_all(directory)?;
        let path = directory.join("journal");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let (mut records, mut dropped) = (Vec::new(), 0_usize);
        for line in lines {
            match parse(line) {
                Some(record) => records.push((record, line.len())),
                None => dropped += 1,
            }
        }
        if dropped > 0 {
            tracing::warn!(path = %path.display(), dropped, "records of the journal were torn and are dropped");
        }
        let file = fs::OpenOptions::new().create(true).append(true).mode(MODE).open(&path)?;
        let len = file.metadata()?.len();
        Ok((Self { path, file, len, compacted: 0 }, records))
    }

    /// Appends records in one write. With `sync` they are on disk when it returns.
    ///
    /// Errors: none of them is in the file.
    pub(super) fn append(&mut self, records: &[Record], sync: bool) -> io::Result<()> {
        let mut lines = Vec::new();
        for record in records {
            line(record, &mut lines)?;
        }
        let written = self.file.write_all(&lines).and_then(|()| if sync { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // Half a line must not stand before the next one.
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += lines.len() as u64;
        Ok(())
    }

    pub(super) fn compact_if_large(&mut self, open: impl Iterator<Item = Record>) -> io::Result<()> {
        if self.len > COMPACT_ABOVE && self.len > 2 * self.compacted { self.compact(open) } else { Ok(()) }
    }

    /// Writes the file anew with what is open, beside the old one, and puts it in its place.
    pub(super) fn compact(&mut self, open: impl Iterator<Item = Record>) -> io::Result<()> {
        let mut lines = Vec::new();
        for record in open {
            line(&record, &mut lines)?;
        }
        let fresh = self.path.with_extension("new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = fs::OpenOptions::new().create_new(true).append(true).mode(MODE).open(&fresh)?;
        file.write_all(&lines)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        if let Some(directory) = self.path.parent() {
            fs::File::open(directory)?.sync_all()?;
        }
        self.file = file;
        self.len = lines.len() as u64;
        self.compacted = self.len;
        Ok(())
    }
}

fn line(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_vec(record)?;
    write!(out, "{:08x} {:016x} ", json.len(), sum(&json))?;
    out.extend_from_slice(&json);
    out.push(b'\n');
    Ok(())
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
