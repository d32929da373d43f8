//! Room `serve`.
