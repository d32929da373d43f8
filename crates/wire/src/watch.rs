//! Watch streams as bytes: one JSON event a line.

use std::borrow::Cow;

use crate::golang::Quoted;
use bytes::{Buf, Bytes, BytesMut};
use serde_json::value::RawValue;

/// Largest event that is taken. An object in etcd has at most 1.5 MiB by default; operators raise it.
pub const EVENT_BYTES_MAX: usize = 64 << 20;

/// What a server says in one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object is new.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone; the body is its last state with the revision of the deletion.
    Deleted,
    /// Nothing changed up to the body's revision.
    Bookmark,
    /// The watch is over; the body is a `Status`.
    Error,
}

impl EventType {
    /// The type as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// One event, borrowed from its line.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What happened.
    pub event_type: EventType,
    /// The object's text.
    pub object: &'a str,
}

/// The stream is not a watch stream.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// A line is too long to be an event.
    #[error("an event of more than {EVENT_BYTES_MAX} bytes")]
    TooLarge,
    /// A line is not UTF-8.
    #[error("an event is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// A line is not an event.
    #[error("not a watch event: {0}")]
    Shape(#[from] serde_json::Error),
    /// The type is none that Kubernetes has.
    #[error("an event of unknown type {quoted}", quoted = Quoted(.0))]
    Type(String),
}

#[derive(serde::Deserialize)]
struct RawEvent<'a> {
    #[serde(rename = "type", borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<'a> Event<'a> {
    /// Parses one line.
    pub fn parse(line: &'a [u8]) -> Result<Self, WatchError> {
        let raw: RawEvent<'a> = serde_json::from_str(std::str::from_utf8(line)?)?;
        let event_type = match raw.event_type.as_ref() {
            "ADDED" => EventType::Added,
            "MODIFIED" => EventType::Modified,
            "DELETED" => EventType::Deleted,
            "BOOKMARK" => EventType::Bookmark,
            "ERROR" => EventType::Error,
            other => return Err(WatchError::Type(other.to_owned())),
        };
        Ok(Self { event_type, object: raw.object.get() })
    }
}

/// Cuts a stream of chunks into lines.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: BytesMut,
    searched: usize,
}

impl Lines {
    /// Takes the next chunk.
    ///
    /// Errors: a line longer than [`EVENT_BYTES_MAX`].
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), WatchError> {
        if self.buffer.len() + chunk.len() > EVENT_BYTES_MAX + (1 << 20) {
            return Err(WatchError::TooLarge);
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// Gives the next whole line that is not blank, without its end.
    pub fn next_line(&mut self) -> Option<Bytes> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(at) = memchr::memchr(b'\n', rest) else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + at).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }

    /// Says whether a line was begun and not ended: the stream broke inside an event.
    pub fn is_mid_line(&self) -> bool {
        !self.buffer.trim_ascii().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_come_out_whole_however_they_are_cut(cuts in proptest::collection::vec(1usize..40, 1..60)) {
            let text = b"{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n{\"type\":\"BOOKMARK\",\"object\":{}}\n{\"half";
            let (mut lines, mut out, mut rest) = (Lines::default(), Vec::new(), &text[..]);
            for cut in cuts.into_iter().chain(std::iter::repeat(7)) {
                if rest.is_empty() { break; }
                let (now, later) = rest.split_at(cut.min(rest.len()));
                lines.push(now).unwrap();
                while let Some(line) = lines.next_line() { out.push(line); }
                rest = later;
            }
            prop_assert_eq!(out.len(), 2);
            prop_assert_eq!(Event::parse(&out[0]).unwrap().object, "{\"a\":1}");
            prop_assert!(lines.is_mid_line());
        }
    }

    #[test]
    fn garbage_is_an_error() {
        for bad in ["", "{}", "x", r#"{"type":"NEWS","object":{}}"#, r#"{"type":"ADDED"}"#] {
            assert!(Event::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
