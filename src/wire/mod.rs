//! Room `wire`.

pub mod protobuf;
