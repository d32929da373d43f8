//! Create, get, list, watch, update, patch and delete over a storage, for any kind.
//!
//! One `Registry` is one cluster's objects. `serve` asks it for clients, `sim` for its controllers: both by the same
//! calls, so that what a controller does is what a client of HTTP would see.
