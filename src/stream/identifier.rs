//! How a proxied object is named: `[https:]name[:port]`.

use crate::respond::StreamError;

/// A name, with what the `proxy` subresource takes around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identifier {
    /// The object's name alone.
    pub name: String,
    scheme: Option<String>,
    port: Option<String>,
}

impl Identifier {
    /// A name without anything around it.
    pub(super) fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), scheme: None, port: None }
    }

    /// Reads one as a kube-apiserver does.
    ///
    /// Source: kubernetes/apimachinery `pkg/util/net/port_split.go`, `SplitSchemeNamePort`.
    /// Errors: 400.
    pub(super) fn read(text: &str) -> Result<Self, StreamError> {
        let no_identifier = || StreamError::Identifier(text.to_owned());
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => (None, *name, None),
            [name, port] => (None, *name, Some(*port)),
            [scheme @ ("http" | "https" | ""), name, port] => (Some(*scheme), *name, Some(*port)),
            _ => return Err(no_identifier()),
        };
        if name.is_empty() {
            return Err(no_identifier());
        }
        Ok(Self { name: name.to_owned(), scheme: scheme.map(str::to_owned), port: port.map(str::to_owned) })
    }

    /// The same for an object of another name.
    pub(super) fn with_name(&self, name: &str) -> String {
        let mut text = String::new();
        for part in [self.scheme.as_deref(), Some(name), self.port.as_deref()].into_iter().flatten() {
            if !text.is_empty() || self.scheme.as_deref() == Some("") && part == name {
                text.push(':');
            }
            text.push_str(part);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_a_name_stays() {
        for (text, name, own) in [
            ("web@east", "web@east", "web"),
            ("web@east:80", "web@east", "web:80"),
            ("web@east:", "web@east", "web:"),
            ("https:web@east:443", "web@east", "https:web:443"),
            ("http:web@east:", "web@east", "http:web:"),
            (":web@east:80", "web@east", ":web:80"),
        ] {
            let read = Identifier::read(text).unwrap();
            assert_eq!((read.name.as_str(), read.with_name("web")), (name, own.to_owned()), "{text}");
            assert_eq!(read.with_name(&read.name), text);
        }
        for none in ["", ":80", "ftp:web:80", "a:b:c:d", "https::443"] {
            assert_eq!(Identifier::read(none), Err(StreamError::Identifier(none.to_owned())));
        }
        assert_eq!(Identifier::plain("web@east").with_name("web"), "web");
    }
}
