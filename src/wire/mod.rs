//! Bytes only: statuses, list splitting, watch framing, splicing, tokens, selectors.
//!
//! No IO and no clock. This is the lowest room: it names no other.

pub mod accept;
pub mod body;
pub mod resource;
pub mod status;
pub mod warning;
