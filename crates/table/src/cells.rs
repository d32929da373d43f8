//! The cells of one row, written as they are known.

use std::{fmt, io::Write as _};

use crate::{
    duration::{parse_time, write_human},
    object::{Object, Text},
};
use kubefold_wire::golang;

/// When a table is printed, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now(pub i64);

/// A row that is being written. Behind its first cell it writes the one of the caller's column.
pub(super) struct Cells<'o> {
    out: &'o mut Vec<u8>,
    /// `None`: there is no such column.
    second: Option<&'o str>,
    object: &'o Object<'o>,
    pub(super) now: Now,
    count: usize,
    /// JSON objects, with commas between them.
    pub(super) conditions: Option<&'static str>,
}

impl<'o> Cells<'o> {
    pub(super) fn new(object: &'o Object<'o>, now: Now, has_second: bool, out: &'o mut Vec<u8>) -> Self {
        let second = has_second.then(|| object.second_cell());
        Self { out, second, object, now, count: 0, conditions: None }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Begins the row, which starts there, once more.
    pub(super) fn restart(&mut self, start: usize) {
        self.out.truncate(start);
        (self.count, self.conditions) = (0, None);
    }

    fn cell(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.count > 0 {
            self.out.push(b',');
        }
        write(self.out);
        self.count += 1;
        if let Some(text) = self.second.filter(|_| self.count == 1) {
            self.out.extend_from_slice(b",\"");
            golang::escape_json(text, self.out);
            self.out.push(b'"');
            self.count += 1;
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.cell(|out| {
            out.push(b'"');
            golang::escape_json(text, out);
            out.push(b'"');
        });
    }

    /// The object's name.
    pub(super) fn name(&mut self) {
        let name = self.object.name();
        self.text(&name);
    }

    /// Text that is put together.
    pub(super) fn print(&mut self, text: fmt::Arguments<'_>) {
        match text.as_str() {
            Some(text) => self.text(text),
            None => self.text(&text.to_string()),
        }
    }

    pub(super) fn number(&mut self, number: i64) {
        // Writing to memory has no way to fail.
        self.cell(|out| drop(write!(out, "{number}")));
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.cell(|out| out.extend_from_slice(if value { b"true" } else { b"false" }));
    }

    pub(super) fn null(&mut self) {
        self.cell(|out| out.extend_from_slice(b"null"));
    }

    /// JSON as it is to stand there.
    pub(super) fn json(&mut self, json: &str) {
        self.cell(|out| out.extend_from_slice(json.as_bytes()));
    }

    /// How long the object has existed.
    pub(super) fn age(&mut self) {
        let created = self.object.creation().and_then(parse_time);
        self.since(created);
    }

    /// How long ago a time is.
    pub(super) fn since(&mut self, time: Option<i64>) {
        let now = self.now.0;
        match time {
            None => self.text("<unknown>"),
            Some(time) => self.micros(now - time),
        }
    }

    /// How long ago a time is that is written as text; empty is none.
    pub(super) fn since_text(&mut self, time: &Text<'_>) {
        self.since(parse_time(time.as_str()));
    }

    /// A duration.
    pub(super) fn micros(&mut self, micros: i64) {
        self.cell(|out| {
            let start = out.len();
            out.push(b'"');
            write_human(micros, out);
            if out.get(start + 1) == Some(&b'<') {
                out.truncate(start + 1);
                golang::escape_json("<invalid>", out);
            }
            out.push(b'"');
        });
    }

    /// How long ago a time is, as text.
    pub(super) fn ago(&self, time: i64) -> String {
        let mut out = Vec::new();
        write_human(self.now.0 - time, &mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}
