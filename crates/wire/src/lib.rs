//! Bytes only: statuses, list splitting, watch framing, splicing, tokens, selectors.
//!
//! No IO and no clock. This is the lowest room: it names no other.

pub mod accept;
pub mod body;
pub mod fields;
pub mod form;
pub mod info;
pub mod list;
pub mod locate;
pub mod media;
pub mod options;
pub mod protobuf;
pub mod resource;
pub mod reword;
pub mod scan;
pub mod selector;
pub mod splice;
pub mod status;
pub mod token;
pub mod warning;
pub mod watch;
pub mod yaml;
