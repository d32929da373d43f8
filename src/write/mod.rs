//! Room `write`.
