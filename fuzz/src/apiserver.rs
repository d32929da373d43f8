//! What makes new objects of patches, and the types that it goes by.

#[path = "../../src/apiserver/patch/mod.rs"]
pub mod patch;
#[path = "../../src/apiserver/schema/mod.rs"]
pub mod schema;
