//! The fleet store: per kind, the merged, versioned set of objects and its event log. Pure: no IO.
//!
//! May name: `wire`, `config`, `observe`, `placement`.

mod changes;
mod dependents;
mod dress;
mod entry;
mod fleet_store;
mod fold;
mod frames;
mod held;
mod hold;
mod identities;
mod incoming;
mod ingest;
mod interests;
mod kind;
mod localize;
mod log;
mod member_local;
mod membership;
mod naming;
mod nodes;
mod notices;
mod part;
mod places;
mod proof;
mod published;
mod record;
mod references;
mod referrers;
mod refold;
mod retained;
mod revision;
mod rewrite;
mod sequencer;
mod snapshot;
mod tally;
#[cfg(test)]
mod tests;
mod unstored;
mod watchers;

pub use entry::{Entry, Holders, Key};
pub use fleet_store::{FleetStore, SLICE_ITEMS_MAX, UNDONE_MAX};
pub use frames::{Audience, FrameKey, Selector, SelectorId, Transition, Written};
pub use held::LockHolds;
pub use hold::Hold;
pub use identities::{GroupKind, Identities, Identity, Referent};
pub use interests::Interest;
pub use kind::KindSpec;
pub use localize::{Named, localize};
pub use log::{LogLimits, ReadAfter};
pub use member_local::MemberLocal;
pub use naming::{Naming, key};
pub use notices::Notices;
pub use part::Part;
pub use places::{Cursor, Expired};
pub use proof::{HeldVersion, TooManyGone};
pub use record::Record;
pub use retained::{RETAINED_FOR, SNAPSHOT_BYTES_MAX, SNAPSHOTS_MAX};
pub use revision::{Reserve, Revision, Revisions, unix_micros};
pub use rewrite::BadObject;
pub use sequencer::{Ingested, Shared, Source};
pub use snapshot::Snapshot;
pub use tally::Held;
pub use unstored::unstored;
