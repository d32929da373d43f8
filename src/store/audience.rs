//! Whose objects a reader may see: those of every member, or of some.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crate::{config::MemberName, store::entry::Entry};

/// The members whose objects a reader may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// Every member, whichever will be configured.
    #[default]
    Everyone,
    /// These alone.
    Members(Arc<BTreeSet<MemberName>>),
}

/// What a reader sees of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All of it.
    Whole,
    /// The parts of some members.
    Parts,
    /// Nothing.
    Nothing,
}

impl Audience {
    /// These members alone.
    pub fn of(members: impl IntoIterator<Item = MemberName>) -> Self {
        Self::Members(Arc::new(members.into_iter().collect()))
    }

    /// Says whether what a member holds may be seen.
    pub fn sees_member(&self, member: &MemberName) -> bool {
        match self {
            Self::Everyone => true,
            Self::Members(members) => members.contains(member),
        }
    }

    /// Says whether every member may be seen.
    pub fn is_everyone(&self) -> bool {
        matches!(self, Self::Everyone)
    }

    /// Says what may be seen of an object.
    pub fn sight(&self, entry: &Entry) -> Sight {
        let Self::Members(members) = self else { return Sight::Whole };
        let mut seen = entry.holders.iter().map(|holder| members.contains(holder));
        let first = seen.next().unwrap_or_default();
        match (first, seen.all(|next| next == first)) {
            (true, true) => Sight::Whole,
            (false, true) => Sight::Nothing,
            (_, false) => Sight::Parts,
        }
    }

    /// A number that stands for these members; `None` for everybody's.
    pub fn digest(&self) -> Option<u64> {
        let Self::Members(members) = self else { return None };
        let mut hasher = DefaultHasher::new();
        members.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The members of either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everyone, _) | (_, Self::Everyone) => Self::Everyone,
            (Self::Members(some), Self::Members(others)) => Self::of(some.union(others).cloned()),
        }
    }

    /// The members of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everyone, only) | (only, Self::Everyone) => only.clone(),
            (Self::Members(some), Self::Members(others)) => Self::of(some.intersection(others).cloned()),
        }
    }
}
