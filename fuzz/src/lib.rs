//! The decoders of the room `wire`, compiled for fuzzing without the rest of kubefold.

pub mod targets;
pub mod wire;
