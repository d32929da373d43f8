//! Room `read`.
