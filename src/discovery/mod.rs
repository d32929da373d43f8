//! Room `discovery`.
