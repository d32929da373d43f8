//! What a folded object is made of: the parts, in pieces that its states share, and what they come to.

use std::sync::Arc;

use crate::{
    config::MemberName,
    placement::fold::{Summand, Summands},
    store::{part::Part, revision::Revision},
};

/// Parts in one piece. A new state of a part copies its piece, and the list of all pieces.
const PIECE: usize = 16;

/// What a folded object is made of, so that it can be made of some of its parts alone.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    /// Its body's first.
    pub(super) list: PartList,
    /// Members that an unfinished write has not reached.
    pub(super) behind: Arc<[MemberName]>,
    /// Members whose part somebody changed.
    pub(super) differs: Arc<[MemberName]>,
    /// Since when they are so: what all of them make may be older.
    pub(super) revision: Revision,
}

impl Parts {
    /// Says whether nothing is different in any part.
    pub(super) fn are(&self, others: &Self) -> bool {
        self.list.shows_as(&others.list) && (&self.behind, &self.differs) == (&others.behind, &others.differs)
    }

    /// Bytes that the list of them costs to hold.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.list.len * size_of::<Arc<Part>>()
    }
}

type Piece = Arc<[Arc<Part>]>;

/// Parts in order. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct PartList {
    pieces: Box<[Piece]>,
    len: usize,
}

impl PartList {
    pub(super) fn of(parts: &[Arc<Part>]) -> Self {
        Self { pieces: parts.chunks(PIECE).map(Arc::from).collect(), len: parts.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&Arc<Part>> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    /// The part whose document is the body.
    pub(super) fn first(&self) -> Option<&Arc<Part>> {
        self.get(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    /// Puts a new state of a part in the place of an earlier one, which it gives.
    pub(super) fn put(&mut self, at: usize, part: Arc<Part>) -> Option<Arc<Part>> {
        let held = Arc::make_mut(self.pieces.get_mut(at / PIECE)?).get_mut(at % PIECE)?;
        Some(std::mem::replace(held, part))
    }

    fn shows_as(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Arc<Part>, &Arc<Part>)| Arc::ptr_eq(one, other) || one.shows_as(other);
        let are_same =
            |(ones, others): (&Piece, &Piece)| Arc::ptr_eq(ones, others) || ones.iter().zip(others.iter()).all(is_same);
        self.len == other.len && self.pieces.iter().zip(&other.pieces).all(are_same)
    }
}

impl Summands for PartList {
    fn count(&self) -> usize {
        self.len
    }

    fn get(&self, at: usize) -> Option<&Summand> {
        Self::get(self, at)?.summand.as_deref()
    }
}
