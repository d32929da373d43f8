//! The `kubefold` binary.
fn main() {}
