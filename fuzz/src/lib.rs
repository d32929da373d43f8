//! The room `wire` alone, compiled for fuzzing: it names no other room, so nothing else has to be built.

#[path = "../../src/wire/mod.rs"]
pub mod wire;

pub mod targets;
