//! An entry as its metadata alone.

use crate::store::{Entry, Revision};
use kubefold_wire::form::Partial;

/// Appends an entry's metadata alone.
pub(crate) fn partial_entry(partial: Partial, entry: &Entry, revision: Revision, out: &mut Vec<u8>) {
    if partial.is_whole() {
        partial.begin(out);
        entry.write_metadata_at(revision, out);
        return out.push(b'}');
    }
    let mut metadata = Vec::new();
    entry.write_metadata_at(revision, &mut metadata);
    partial.metadata(&metadata, out);
}
