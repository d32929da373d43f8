//! Bytes only: statuses, list splitting, watch framing, splicing, tokens, selectors.
//!
//! No IO and no clock. This is the lowest room: it names no other.

pub mod body;
pub mod caller;
pub mod status;
