//! Why a member did not answer: for operators to read, and for callers to branch on.

use std::{error::Error, sync::Arc, time::Duration};

use kubefold_serving::shares::Full;

use crate::config::MemberName;

/// An underlying error, kept and shared: one failed connection fails every request that waited for it.
pub type Source = Arc<dyn Error + Send + Sync>;

/// Who has to act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller of kubefold.
    Downstream,
    /// A member, or the way to it.
    Member(MemberName),
    /// kubefold, or how it is configured.
    Kubefold,
}

/// When the same request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never: it would fail again.
    Never,
    /// Always: no byte of it reached the member.
    Always,
    /// Only if it changes nothing: the member may have worked on it.
    IfRead,
}

/// A request to a member failed without an answer, or its answer broke off.
#[derive(Clone, Debug, thiserror::Error)]
#[error("member {member}: {failure}")]
pub struct UpstreamError {
    /// Which member.
    pub member: MemberName,
    /// In which phase, and how.
    pub failure: Failure,
}

/// How far a request came, and what stopped it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// Health says that asking is useless. The text is [`super::Health::describe`]'s.
    #[error("{0}")]
    Down(Arc<str>),
    /// As many requests as allowed are under way.
    #[error("{}", saturated(what, full))]
    Saturated {
        /// `requests` or `watches`.
        what: &'static str,
        /// All places are taken, or those that one caller may have.
        full: Full,
    },
    /// The request cannot be sent as it is.
    #[error("the request cannot be forwarded: {0}")]
    Request(Arc<str>),
    /// The access in the configuration does not hold: a missing file, a bad certificate, a failing exec plugin.
    #[error("no credential: {0}")]
    Credential(Arc<str>),
    /// The name has no address.
    #[error("no such host: {host}")]
    Resolve {
        /// The host, or the proxy's.
        host: Arc<str>,
        /// The resolver's own words.
        #[source]
        source: Source,
    },
    /// Nobody listens there.
    #[error("connection refused")]
    Refused(#[source] Source),
    /// No connection, for another reason.
    #[error("cannot connect: {}", root(&**source))]
    Connect {
        /// What the system or the proxy said.
        #[source]
        source: Source,
    },
    /// No connection in time.
    #[error("no connection in {} s: dropped packets, or a firewall", .0.as_secs_f32())]
    ConnectTimeout(Duration),
    /// A connection, but no TLS handshake in time: what a stopped or overloaded server looks like.
    #[error("it accepts connections but does not speak: no TLS handshake in {} s", .0.as_secs_f32())]
    HandshakeTimeout(Duration),
    /// The TLS handshake failed.
    #[error("{}", tls_cause(&**source))]
    Tls {
        /// What rustls said.
        #[source]
        source: Source,
    },
    /// The connection closed before a byte of the request was written.
    #[error("the connection closed before the request was sent")]
    Closed(#[source] Source),
    /// The connection broke while the request, or its answer's head, was on the way.
    #[error("the connection broke before an answer: {}", lost(&**source))]
    Send {
        /// What hyper said.
        #[source]
        source: Source,
    },
    /// The answer is no HTTP.
    #[error("the answer is not HTTP: {}", root(&**source))]
    Protocol {
        /// What hyper said.
        #[source]
        source: Source,
    },
    /// No head of an answer in time.
    #[error("no answer in {} s", .0.as_secs_f32())]
    HeadTimeout(Duration),
    /// The answer stopped coming.
    #[error("the answer stalled for {} s", .0.as_secs_f32())]
    BodyTimeout(Duration),
    /// The answer broke off.
    #[error("the answer broke off: {}", lost(&**source))]
    Body {
        /// What hyper said.
        #[source]
        source: Source,
    },
    /// The answer is larger than what this reader takes.
    #[error("the answer is larger than {bytes_max} bytes")]
    BodyTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The answer is not what was asked for.
    #[error("{0}")]
    Answer(Arc<str>),
}

impl UpstreamError {
    /// Makes an error about a member.
    pub fn new(member: &MemberName, failure: Failure) -> Self {
        Self { member: member.clone(), failure }
    }

    /// A short sentence for operators, without the member's name.
    pub fn cause(&self) -> String {
        self.failure.to_string()
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match &self.failure {
            Failure::Request(_) => Blame::Downstream,
            Failure::Saturated { .. } | Failure::Credential(_) | Failure::BodyTooLarge { .. } => Blame::Kubefold,
            Failure::Down(_)
            | Failure::Resolve { .. }
            | Failure::Refused(_)
            | Failure::Connect { .. }
            | Failure::ConnectTimeout(_)
            | Failure::HandshakeTimeout(_)
            | Failure::Tls { .. }
            | Failure::Closed(_)
            | Failure::Send { .. }
            | Failure::Protocol { .. }
            | Failure::HeadTimeout(_)
            | Failure::BodyTimeout(_)
            | Failure::Body { .. }
            | Failure::Answer(_) => Blame::Member(self.member.clone()),
        }
    }

    /// True if the request may have reached the member: then the outcome of a write is unknown.
    pub fn may_have_arrived(&self) -> bool {
        self.failure.may_have_arrived()
    }

    /// When the same request may be sent again.
    pub fn retry(&self) -> Retry {
        match &self.failure {
            Failure::Request(_) | Failure::BodyTooLarge { .. } => Retry::Never,
            _ if self.may_have_arrived() => Retry::IfRead,
            _ => Retry::Always,
        }
    }
}

impl Failure {
    /// True if the request may have reached the server: then the outcome of a write is unknown.
    pub fn may_have_arrived(&self) -> bool {
        match self {
            Self::Send { .. }
            | Self::Protocol { .. }
            | Self::HeadTimeout(_)
            | Self::BodyTimeout(_)
            | Self::Body { .. }
            | Self::BodyTooLarge { .. }
            | Self::Answer(_) => true,
            Self::Down(_)
            | Self::Saturated { .. }
            | Self::Request(_)
            | Self::Credential(_)
            | Self::Resolve { .. }
            | Self::Refused(_)
            | Self::Connect { .. }
            | Self::ConnectTimeout(_)
            | Self::HandshakeTimeout(_)
            | Self::Tls { .. }
            | Self::Closed(_) => false,
        }
    }
}

fn saturated(what: &str, full: &Full) -> String {
    match full {
        Full::All { max } => format!("{max} concurrent {what} are in progress, which is the limit"),
        Full::Share { held, max } => {
            format!("{held} of {max} concurrent {what} are the same user's, which is its share; others may still ask")
        }
    }
}

/// The innermost error's words: what the system said, without the layers that passed it on.
pub(crate) fn root(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// As [`root`], in words for h2's and rustls' when a connection ends under its streams.
fn lost(error: &(dyn Error + 'static)) -> String {
    let root = root(error);
    let cut = ["stream closed because of a broken pipe", "peer closed connection without sending TLS close_notify"];
    if cut.iter().any(|said| root.starts_with(said)) {
        "the connection was cut, or went silent".to_owned()
    } else {
        root
    }
}

/// Finds an error of one type in the chain. An [`std::io::Error`] hides the one it wraps from `source()`.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|wrapped| wrapped.downcast_ref::<E>()) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// rustls' verdict in the words that operators know from client-go.
fn tls_cause(error: &(dyn Error + 'static)) -> String {
    use rustls::{CertificateError as Certificate, Error as Tls};
    match find::<Tls>(error) {
        // Every kubeadm cluster calls its CA `kubernetes`: another one's has the name, and not the key.
        Some(Tls::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature)) => {
            "certificate signed by unknown authority".into()
        }
        Some(Tls::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. })) => {
            "its certificate has expired".into()
        }
        Some(Tls::InvalidCertificate(Certificate::NotValidForName | Certificate::NotValidForNameContext { .. })) => {
            "its certificate is for another name; set tlsServerName".into()
        }
        Some(Tls::AlertReceived(alert)) => format!("it refused the TLS handshake: {alert:?}"),
        _ => format!("TLS handshake failed: {}", root(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(failure: Failure) -> UpstreamError {
        UpstreamError::new(&MemberName::new("west").unwrap(), failure)
    }

    #[test]
    fn only_a_request_that_never_left_is_safe_to_repeat() {
        let source: Source = Arc::new(std::io::Error::other("reset"));
        let closed = error(Failure::Closed(source.clone()));
        assert!(!closed.may_have_arrived());
        assert_eq!(closed.retry(), Retry::Always);
        let sent = error(Failure::Send { source });
        assert!(sent.may_have_arrived());
        assert_eq!(sent.retry(), Retry::IfRead);
        assert_eq!(error(Failure::Request("x".into())).retry(), Retry::Never);
    }

    #[test]
    fn tls_verdicts_read_like_client_gos() {
        let inner = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let source: Source = Arc::new(std::io::Error::other(inner));
        assert_eq!(error(Failure::Tls { source }).cause(), "certificate signed by unknown authority");
    }
}
