//! Large lists, as the fleet's objects are written in them: see [`kubefold_serving::packed`].

use std::{ops::ControlFlow, sync::Arc};

use crate::{
    answer::form::Form,
    read::walk::Walk,
    store::{Entry, Written},
};
use kubefold_serving::packed::{self, BlockKey, Layout, Packer, Step};
use kubefold_wire::{media::Media, protobuf::EncodeError};

/// Blocks that a process keeps. Units: bytes.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// So many blocks there may be of them; more only cost a larger table.
const KEPT_BLOCKS: usize = 4096;

/// What was written before.
#[derive(Debug)]
pub(super) struct Blocks(Arc<packed::Blocks<Key>>);

impl Default for Blocks {
    fn default() -> Self {
        Self(Arc::new(packed::Blocks::new(KEPT_BYTES_MAX, KEPT_BLOCKS)))
    }
}

impl Blocks {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.count()
    }

    /// What makes a list in this form. `is_limited`: some objects may be what the parts that a caller may see make, and blocks with
    /// folds are not those of others.
    pub(super) fn packer(&self, form: Form, is_limited: bool) -> Packer<Objects> {
        Packer::new(Arc::clone(&self.0), Objects { form, is_limited })
    }
}

/// What a block is of. No two states of objects have one revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    written: Written,
    media: Media,
    /// The list begins with it.
    is_first: bool,
    revisions: Box<[u64]>,
}

impl BlockKey for Key {
    fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.revisions)
    }
}

/// How objects are written, under their own names.
pub(super) struct Objects {
    form: Form,
    is_limited: bool,
}

impl Layout for Objects {
    type Item = Arc<Entry>;
    type Key = Key;

    fn len(entry: &Arc<Entry>) -> usize {
        entry.json().len()
    }

    fn revision(entry: &Arc<Entry>) -> u64 {
        entry.revision.0
    }

    fn key(&self, entries: &[Arc<Entry>], is_first: bool) -> Option<Key> {
        let is_shared = !self.is_limited || entries.iter().all(|entry| !entry.folded);
        let written = self.form.written().filter(|_| is_shared)?;
        let revisions = entries.iter().map(|entry| entry.revision.0).collect();
        Some(Key { written, media: self.form.media(), is_first, revisions })
    }

    fn is_protobuf(&self) -> bool {
        self.form.is_protobuf()
    }

    fn item(&self, entry: &Arc<Entry>, out: &mut Vec<u8>) {
        self.form.item(entry, None, out);
    }

    fn message(&self, entry: &Arc<Entry>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.form.message(entry, None, entry.revision, out)
    }

    fn end(&self, is_empty: bool, out: &mut Vec<u8>) {
        self.form.end_items(is_empty, out);
    }
}

impl packed::Walk<Arc<Entry>> for Walk {
    fn step(&mut self, take: &mut dyn FnMut(&Arc<Entry>) -> ControlFlow<()>) -> Step {
        self.step(take)
    }
}

#[cfg(test)]
mod tests;
