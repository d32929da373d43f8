//! What a server said instead of doing what it was asked to, whichever engine it is.

/// Why a statement failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// What it is about.
    pub kind: FailureKind,
    /// In one sentence.
    pub why: String,
}

/// What a failure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The connection is lost, or there is none.
    Away,
    /// There is no TLS, or none that can be trusted.
    Tls,
    /// The user may not log in, or not do this.
    Access,
    /// There is no such database.
    NoDatabase,
    /// It is a replica, or an administrator forbids changes.
    ReadOnly,
    /// There is no room.
    Full,
    /// The server undid the transaction.
    Undone,
    /// What it has is damaged.
    Damaged,
    /// Anything else.
    Other,
}

impl Failure {
    /// The connection is lost, or there is none.
    pub fn away(why: &str) -> Self {
        Self { kind: FailureKind::Away, why: why.to_owned() }
    }

    /// A stored value that is not what it should be.
    pub fn of_value(why: &str) -> Self {
        Self { kind: FailureKind::Other, why: why.to_owned() }
    }

    /// Says whether nothing can be asked of the connection any more.
    pub fn is_away(&self) -> bool {
        matches!(self.kind, FailureKind::Away | FailureKind::Tls)
    }

    /// Says whether the server has undone what was to be committed. Of any other failure of a commit nothing is known.
    pub fn is_certain(&self) -> bool {
        matches!(self.kind, FailureKind::Undone | FailureKind::ReadOnly)
    }
}
