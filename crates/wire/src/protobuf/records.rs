//! Protobuf's outermost grammar: a message is a run of numbered records.
//!
//! Source: the "Encoding" page of the protocol buffers documentation.

/// Field numbers have 29 bits.
const NUMBER_MAX: u64 = (1 << 29) - 1;

/// What is wrong with bytes that should be a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedRecord {
    /// A length or a number reaches beyond the end of its message.
    #[error("it ends in the middle of a field, so the body was probably cut short")]
    Truncated,
    /// A varint has more than ten bytes.
    #[error("a number is longer than 64 bits")]
    VarintTooLong,
    /// A tag has field number 0 or one beyond 29 bits.
    #[error("a field number is out of range")]
    Number,
    /// Groups left protobuf long ago, and the Kubernetes API never had any.
    #[error("a field has the wire type {0}, which Kubernetes does not use")]
    WireType(u64),
}

/// The value of one record, not yet interpreted.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// A number.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(u64),
    /// Four bytes, which Kubernetes uses nowhere.
    Fixed32,
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

/// Iterates over the records of a message; ends after the first error.
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Reads the records of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn read(&mut self) -> Result<(u32, Payload<'a>), MalformedRecord> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| MalformedRecord::Number)?;
        if number == 0 || u64::from(number) > NUMBER_MAX {
            return Err(MalformedRecord::Number);
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(self.fixed64()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| MalformedRecord::Truncated)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Payload::Fixed32
            }
            other => return Err(MalformedRecord::WireType(other)),
        };
        Ok((number, payload))
    }

    /// Reads a varint of up to ten bytes; bits beyond the 64th are dropped, as Go drops them.
    pub(super) fn varint(&mut self) -> Result<u64, MalformedRecord> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(MalformedRecord::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(MalformedRecord::VarintTooLong)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, MalformedRecord> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(MalformedRecord::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], MalformedRecord> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(MalformedRecord::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u32, Payload<'a>), MalformedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// A record and the position of its field in the message.
pub(super) type Entry<'a> = (usize, Payload<'a>);
