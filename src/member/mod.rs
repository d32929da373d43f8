//! Members: what each serves, and how it is reached.
//!
//! May name: `wire`, `config`, `observe`, `placement`, `store`.

pub mod catalog;
