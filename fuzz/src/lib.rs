//! What the fuzz targets do with their bytes. `fuzz/run` feeds them; the tests here run them over `seeds/`.

pub mod targets;
