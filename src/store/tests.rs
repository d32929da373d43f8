//! The store proved: a model of members with every interleaving (`property`), and the special cases one by one.

mod cases;
mod checks;
mod copied;
mod earlier;
mod history;
mod localized;
mod model;
mod proofs;
mod property;
mod watcher;
mod world;
