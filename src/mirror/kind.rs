//! What is kept apart: one member's objects of one kind; and why it could not be.

use kubefold_sql::SqlError;
use kubefold_wire::resource::Gvr;

use crate::config::MemberName;

/// One member's objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MirroredKind {
    /// The kind.
    pub gvr: Gvr,
    /// The member.
    pub member: MemberName,
}

/// Says whether objects of a kind are encrypted, or not kept at all.
pub(super) fn is_secret(gvr: &Gvr) -> bool {
    gvr.group.is_empty() && &*gvr.resource == "secrets"
}

/// Why something could not be kept or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MirrorError {
    /// The database refuses.
    #[error("{}", said(.0))]
    Sql(#[from] SqlError),
    /// A row is not what was written.
    #[error("the object {key} of {resource} of member {member} is damaged")]
    Damaged {
        /// Its key in its member.
        key: String,
        /// Its kind.
        resource: String,
        /// The member.
        member: MemberName,
    },
    /// Nothing is to be kept.
    #[error("mirror.enabled in clusters.yaml is false")]
    Disabled,
    /// The kind is not to be kept.
    #[error("mirror.exclude in clusters.yaml names {resource}")]
    Excluded {
        /// The kind.
        resource: String,
    },
    /// The rows of a member are not there: the file was begun anew, and the member is listed again.
    #[error("the objects of {members} are not in it: they are listed again")]
    Incomplete {
        /// The members.
        members: String,
    },
    /// What members told is not written yet.
    #[error("what members told has not been written in {seconds} s")]
    Behind {
        /// How long was waited.
        seconds: u64,
    },
    /// The server that has it answers nothing.
    #[error("its database does not answer")]
    Silent,
    /// The file cannot be used at all.
    #[error("there is no mirror")]
    Off,
}

fn said(error: &SqlError) -> String {
    match error.is_full() {
        true => "the disk, or the file's limit (mirror.maxBytes), is full".to_owned(),
        false => error.to_string(),
    }
}
