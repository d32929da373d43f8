//! Indents JSON for people, byte for byte as Go's `json.MarshalIndent(.., "", "  ")`, along with the stream.

use bytes::Bytes;

/// Where in a document the last chunk ended.
#[derive(Debug, Default)]
pub(super) struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// An object or array was opened and nothing stood in it yet.
    opened: bool,
}

impl Indenter {
    /// The next chunk, indented. White space between tokens is the indenter's own; what was there goes.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(chunk.len() * 2);
        for byte in chunk {
            self.byte(*byte, &mut out);
        }
        out.into()
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            out.push(byte);
            return;
        }
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return;
        }
        let closes = matches!(byte, b'}' | b']');
        match (std::mem::take(&mut self.opened), closes) {
            // `{}` and `[]` stay as they are.
            (true, true) | (false, false) => {}
            (true, false) => {
                self.depth += 1;
                self.line(out);
            }
            (false, true) => {
                self.depth = self.depth.saturating_sub(1);
                self.line(out);
            }
        }
        out.push(byte);
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.opened = true,
            b',' => self.line(out),
            b':' => out.push(b' '),
            _ => {}
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}
