//! JSON text as it stands: numbers as they are written, and every key, also one that is there twice.
//!
//! The words for what is wrong are those of Go's scanner. Source: Go `encoding/json/scanner.go`.

use crate::golang;
use serde_json::{Map, Number, Value};

/// Lists and objects inside each other. Go allows 10,000; ours live on a stack.
const DEPTH_MAX: usize = 500;

/// What is wrong with a text, in the words of Go's scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text ends inside a value.
    #[error("unexpected end of JSON input")]
    Ended,
    /// More lists and objects inside each other than are read.
    #[error("exceeded max depth")]
    TooDeep,
    /// Another byte belongs in this place.
    #[error("invalid character {} {place}", quoted(*.found))]
    Unexpected {
        /// The byte.
        found: u8,
        /// Where it stands.
        place: &'static str,
    },
    /// A word that begins as `true`, `false` or `null` and is none.
    #[error("invalid character {} in literal {word} (expecting {})", quoted(*.found), quoted(*.wanted))]
    Literal {
        /// The first wrong byte.
        found: u8,
        /// The word as which it begins.
        word: &'static str,
        /// What belongs there.
        wanted: u8,
    },
}

/// A value as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Text<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Truth(bool),
    /// As it is written.
    Number(&'a str),
    /// Without its escapes.
    String(String),
    /// In order.
    List(Vec<Self>),
    /// In order, with keys that are there twice.
    Object(Vec<(String, Self)>),
}

impl<'a> Text<'a> {
    /// Reads one value.
    ///
    /// Errors: what Go says of it.
    pub fn read(text: &'a str) -> Result<Self, TextError> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        match reader.next_visible() {
            None => Ok(value),
            Some(other) => Err(unexpected(other, "after top-level value")),
        }
    }

    /// As Go calls it in its errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Truth(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::List(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// The plain value. The last of several equal keys counts.
    pub fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Truth(truth) => Value::Bool(*truth),
            Self::Number(number) => plain_number(number),
            Self::String(string) => Value::String(string.clone()),
            Self::List(items) => Value::Array(items.iter().map(Self::value).collect()),
            Self::Object(entries) => {
                let mut object = Map::new();
                for (key, value) in entries {
                    object.insert(key.clone(), value.value());
                }
                Value::Object(object)
            }
        }
    }
}

fn plain_number(text: &str) -> Value {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    text.parse::<f64>().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next_visible(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    fn value(&mut self, depth: usize) -> Result<Text<'a>, TextError> {
        if depth > DEPTH_MAX {
            return Err(TextError::TooDeep);
        }
        match self.next_visible().ok_or(TextError::Ended)? {
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            b'"' => Ok(Text::String(self.string()?)),
            b't' => self.literal("true", Text::Truth(true)),
            b'f' => self.literal("false", Text::Truth(false)),
            b'n' => self.literal("null", Text::Null),
            b'-' | b'0'..=b'9' => self.number(),
            other => Err(unexpected(other, "looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Text<'a>, TextError> {
        self.at += 1;
        let mut entries = Vec::new();
        if self.next_visible() == Some(b'}') {
            self.at += 1;
            return Ok(Text::Object(entries));
        }
        loop {
            match self.next_visible().ok_or(TextError::Ended)? {
                b'"' => {}
                other => return Err(unexpected(other, "looking for beginning of object key string")),
            }
            let key = self.string()?;
            match self.next_visible().ok_or(TextError::Ended)? {
                b':' => self.at += 1,
                other => return Err(unexpected(other, "after object key")),
            }
            entries.push((key, self.value(depth + 1)?));
            match self.next_visible().ok_or(TextError::Ended)? {
                b',' => self.at += 1,
                b'}' => break,
                other => return Err(unexpected(other, "after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(Text::Object(entries))
    }

    fn list(&mut self, depth: usize) -> Result<Text<'a>, TextError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.next_visible() == Some(b']') {
            self.at += 1;
            return Ok(Text::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            match self.next_visible().ok_or(TextError::Ended)? {
                b',' => self.at += 1,
                b']' => break,
                other => return Err(unexpected(other, "after array element")),
            }
        }
        self.at += 1;
        Ok(Text::List(items))
    }

    fn literal(&mut self, word: &'static str, value: Text<'a>) -> Result<Text<'a>, TextError> {
        for wanted in word.bytes() {
            let found = self.peek().ok_or(TextError::Ended)?;
            if found != wanted {
                return Err(TextError::Literal { found, word, wanted });
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Text<'a>, TextError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(Text::Number(self.text.get(start..self.at).unwrap_or_default()))
    }

    fn digits(&mut self, place: &'static str) -> Result<(), TextError> {
        match self.peek().ok_or(TextError::Ended)? {
            b'0'..=b'9' => {}
            other => return Err(unexpected(other, place)),
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<String, TextError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            out.push_str(self.text.get(start..self.at).unwrap_or_default());
            match self.peek().ok_or(TextError::Ended)? {
                b'"' => break,
                b'\\' => self.escape(&mut out)?,
                other => return Err(unexpected(other, "in string literal")),
            }
        }
        self.at += 1;
        Ok(out)
    }

    fn escape(&mut self, out: &mut String) -> Result<(), TextError> {
        self.at += 1;
        let escape = self.peek().ok_or(TextError::Ended)?;
        self.at += 1;
        out.push(match escape {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                return self.character(first, out);
            }
            other => return Err(unexpected(other, "in string escape code")),
        });
        Ok(())
    }

    /// One character of one or two units; half a pair alone is the replacement character, as in Go.
    fn character(&mut self, first: u32, out: &mut String) -> Result<(), TextError> {
        if (0xd800..0xdc00).contains(&first) && self.text.get(self.at..).is_some_and(|rest| rest.starts_with("\\u")) {
            let before = self.at;
            self.at += 2;
            let second = self.unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                out.push(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(());
            }
            self.at = before;
        }
        out.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }

    fn unit(&mut self) -> Result<u32, TextError> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or(TextError::Ended)?;
            let digit = char::from(byte).to_digit(16);
            unit = unit * 16 + digit.ok_or_else(|| unexpected(byte, "in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(unit)
    }
}

fn unexpected(found: u8, place: &'static str) -> TextError {
    TextError::Unexpected { found, place }
}

/// Go takes the byte for a character of Latin-1.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let text = golang::quoted(&char::from(byte).to_string());
            format!("'{}'", text.trim_matches('"'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these is what a kube-apiserver answered.
    #[test]
    fn says_what_go_says() {
        let cases = [
            (r#"{"a":1"#, "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            ("{}x", "invalid character 'x' after top-level value"),
            ("x", "invalid character 'x' looking for beginning of value"),
            (r#"{"a":01}"#, "invalid character '1' after object key:value pair"),
            (r#"{"a":"\x"}"#, "invalid character 'x' in string escape code"),
            (r#"{"a":nul}"#, "invalid character '}' in literal null (expecting 'l')"),
            (r#"{"a" 7}"#, "invalid character '7' after object key"),
            ("{a:7}", "invalid character 'a' looking for beginning of object key string"),
            (r#"{"a":7,}"#, "invalid character '}' looking for beginning of object key string"),
            ("[7,]", "invalid character ']' looking for beginning of value"),
            (r#"{"a":-}"#, "invalid character '}' in numeric literal"),
            (r#"{"a":1.}"#, "invalid character '}' after decimal point in numeric literal"),
            ("{\"a\":\"\u{1}\"}", r"invalid character '\x01' in string literal"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            (r#"{"a":é}"#, "invalid character 'Ã' looking for beginning of value"),
        ];
        for (text, wanted) in cases {
            assert_eq!(Text::read(text).unwrap_err().to_string(), wanted, "{text}");
        }
    }

    #[test]
    fn reads_what_serde_reads() {
        for text in [
            r#"{"a":[1,-2.5,1e3,"x\u00e9\ud83d\ude00\n",true,false,null,{}],"b":{"c":[]}}"#,
            r#""\/\b\f\r\t\"\\""#,
            " [ ] ",
        ] {
            let wanted: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Text::read(text).unwrap().value(), wanted, "{text}");
        }
    }
}
