//! What a login needs of the machine: its clock, its random numbers, and the person before it.

use std::{
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::bail;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Units: Unix seconds.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Says something to the person; standard output is the program's.
pub(super) fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "kubefold: {text}"));
}

/// A secret of 256 bits, in letters that a URL may have.
pub(in crate::cli) fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bail!("this machine gives no random numbers");
    }
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
