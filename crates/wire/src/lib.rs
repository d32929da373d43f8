//! Bytes only: statuses, list splitting, watch framing, splicing, tokens, selectors.
//!
//! No IO and no clock. This is the lowest room: it names no other.

pub mod accept;
pub mod access;
pub mod body;
pub mod deadline;
pub mod discovery;
pub mod duration;
pub mod fields;
pub mod findings;
pub mod form;
pub mod golang;
pub mod info;
pub mod invalid;
pub mod jsonpath;
pub mod list;
pub mod locate;
pub mod matching;
pub mod media;
pub mod names;
pub mod options;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod quantity;
pub mod resource;
pub mod reword;
pub mod scan;
pub mod selector;
pub mod splice;
pub mod status;
pub mod text;
pub mod token;
pub mod types;
pub mod warning;
pub mod watch;
pub mod yaml;

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
