//! Room `placement`.
