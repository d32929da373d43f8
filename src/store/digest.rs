//! Numbers that stand for bytes, in any process.

use aws_lc_rs::digest::{Context, SHA256};

/// A number that stands for some bytes.
pub fn digest_of(bytes: &[u8]) -> u64 {
    let mut digest = Digest::new();
    digest.update(bytes);
    digest.first()
}

/// One that stands for several pieces of bytes, as if they were one.
pub(super) struct Digest(Context);

impl Digest {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn first(self) -> u64 {
        u64::from_le_bytes(self.0.finish().as_ref().first_chunk().copied().unwrap_or_default())
    }
}
