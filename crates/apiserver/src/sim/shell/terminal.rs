//! What a terminal does between keys and a program: echo, lines, and the keys that end or interrupt.

/// Bytes of a line.
const LINE_BYTES_MAX: usize = 4096;

/// What keys mean to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A line was entered, with its end.
    Line(Vec<u8>),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D on an empty line.
    EndOfInput,
}

/// A line that is being typed.
#[derive(Clone, Debug, Default)]
pub(super) struct Terminal {
    line: Vec<u8>,
    /// Within an escape sequence, such as that of an arrow.
    escape: Escape,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    Sequence,
}

impl Terminal {
    /// Takes one byte. What is to be seen of it goes to `echo`.
    pub(super) fn key(&mut self, byte: u8, echo: &mut Vec<u8>) -> Option<Key> {
        match (self.escape, byte) {
            (Escape::None, 0x1b) => self.escape = Escape::Begun,
            (Escape::Begun, b'[' | b'O') => self.escape = Escape::Sequence,
            (Escape::Sequence, 0x20..=0x3f) => {}
            (Escape::Begun | Escape::Sequence, _) => self.escape = Escape::None,
            (_, b'\r' | b'\n') => {
                echo.extend_from_slice(b"\r\n");
                self.line.push(b'\n');
                return Some(Key::Line(std::mem::take(&mut self.line)));
            }
            (_, 3) => {
                echo.extend_from_slice(b"^C\r\n");
                self.line.clear();
                return Some(Key::Interrupt);
            }
            (_, 4) if self.line.is_empty() => return Some(Key::EndOfInput),
            (_, 8 | 0x7f) if !self.line.is_empty() => {
                // A letter of several bytes is one on the screen.
                while self.line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
                echo.extend_from_slice(b"\x08 \x08");
            }
            (_, 0x20..=0x7e | 0x80..) if self.line.len() < LINE_BYTES_MAX => {
                self.line.push(byte);
                echo.push(byte);
            }
            _ => {}
        }
        None
    }
}

/// Ends of lines as a terminal needs them.
pub(super) fn with_returns(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        if byte == b'\n' {
            out.push(b'\r');
        }
        out.push(byte);
    }
    out
}
