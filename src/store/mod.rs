//! The fleet store: per kind, the merged, versioned set of objects and its event log. Pure: no IO.
//!
//! May name: `wire`, `config`, `observe`, `placement`.

mod dress;
mod entry;
mod fleet_store;
mod fold;
mod identities;
mod ingest;
mod kind;
mod localize;
mod log;
mod naming;
mod proof;
mod redress;
mod revision;
mod sequencer;
#[cfg(test)]
mod tests;

pub use dress::BadObject;
pub use entry::{Entry, Holders, Slot};
pub use fleet_store::{Cursor, Expired, FleetStore, Hold, RETAINED_FOR, SLICE_ITEMS_MAX, Snapshot};
pub use fold::Part;
pub use identities::{Identities, Identity, Referent};
pub use kind::KindSpec;
pub use localize::{Named, localize};
pub use log::{LogLimits, ReadAfter, Record};
pub use naming::{Naming, key};
pub use proof::{HeldVersion, TooManyGone};
pub use revision::{Reserve, Revision, Revisions, unix_micros};
pub use sequencer::{Ingested, Shared, Source};
