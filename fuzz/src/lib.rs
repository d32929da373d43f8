//! The decoders of the room `wire`, and what patches objects, compiled for fuzzing without the rest of kubefold.

pub mod apiserver;
pub mod targets;
pub mod wire;
