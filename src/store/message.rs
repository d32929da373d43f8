//! What is known of an object's protobuf message.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use kubefold_wire::protobuf::{EncodeError, MessageType};

/// What is known of an object's message, once it was made.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// 0 while it is not known: every message has metadata.
    len: AtomicU32,
    kept: ArcSwapOption<Bytes>,
}

impl Known {
    pub(super) fn len(&self) -> Option<usize> {
        Some(self.len.load(Relaxed) as usize).filter(|len| *len > 0)
    }

    pub(super) fn kept(&self) -> Option<Bytes> {
        self.kept.load().as_deref().cloned()
    }

    pub(super) fn keep(&self, message: Option<Bytes>) {
        self.kept.store(message.map(Arc::new));
    }

    /// Appends the message that is kept, or the one that is made of `json`.
    ///
    /// Errors: the object has what the type has not. Nothing is appended then.
    pub(super) fn write(&self, of: MessageType, json: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let Some(kept) = &*self.kept.load() {
            out.extend_from_slice(kept);
            return Ok(());
        }
        let start = out.len();
        of.encode(json, out)?;
        self.len.store(u32::try_from(out.len() - start).unwrap_or_default(), Relaxed);
        Ok(())
    }
}
