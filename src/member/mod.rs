//! Room `member`.
