//! Compresses the descriptions of Kubernetes' types, which are most of what the documents of OpenAPI say.

use std::{env, error::Error, fs, io::Write as _, path::Path};

use flate2::{Compression, write::DeflateEncoder};

const DESCRIPTIONS: &str = "src/schema/openapi/descriptions.txt";

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?;
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&fs::read(DESCRIPTIONS)?)?;
    fs::write(Path::new(&out).join("descriptions"), packed.finish()?)?;
    println!("cargo::rerun-if-changed={DESCRIPTIONS}");
    Ok(())
}
