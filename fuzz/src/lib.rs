//! What the fuzz targets do with their bytes. `fuzz/run` feeds them; the tests here run them over `seeds/`.

#![allow(clippy::expect_used, reason = "a target panics where a promise does not hold")]

pub mod targets;
