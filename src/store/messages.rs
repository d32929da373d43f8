//! Objects as protobuf messages: made when they are first asked for, and kept within a budget of the process.
//!
//! The length of a message stays known, as lists begin with the length of the whole. Of the messages that are kept, the one that
//! was made first goes first.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;

use crate::store::{entry::Entry, fleet_store::FleetStore, recent::Forget};
use kubefold_wire::protobuf::{EncodeError, MessageType};

impl Entry {
    /// The length of the object's message, if it was made before.
    pub fn message_len(&self) -> Option<usize> {
        Some(self.message_len.load(Relaxed) as usize).filter(|len| *len > 0)
    }

    /// The object's message, if it is kept.
    pub fn kept_message(&self) -> Option<Bytes> {
        self.message.load().as_deref().cloned()
    }

    /// Appends the object's message, the kept one or one that is made.
    ///
    /// Errors: the object has what the type has not. Nothing is appended then.
    pub fn write_message(&self, of: MessageType, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let Some(kept) = &*self.message.load() {
            out.extend_from_slice(kept);
            return Ok(());
        }
        let start = out.len();
        of.encode(self.text_and_metadata().0, out)?;
        self.message_len.store(u32::try_from(out.len() - start).unwrap_or_default(), Relaxed);
        Ok(())
    }
}

impl Forget for Entry {
    fn forget(&self) {
        self.message.store(None);
    }
}

impl FleetStore {
    /// The object's message, which is kept from now on as long as the budget allows.
    ///
    /// Errors: as [`Entry::write_message`].
    pub fn message(&self, entry: &Arc<Entry>, of: MessageType) -> Result<Bytes, EncodeError> {
        if let Some(kept) = entry.kept_message() {
            return Ok(kept);
        }
        let mut made = Vec::with_capacity(entry.message_len().unwrap_or_else(|| entry.json().len()));
        entry.write_message(of, &mut made)?;
        // As long as it is.
        let made = Bytes::from(made.into_boxed_slice());
        entry.message.store(Some(Arc::new(made.clone())));
        self.log.keep_message(entry, made.len());
        Ok(made)
    }

    /// Counts an answer that is not given in protobuf, as an object has what its type has not.
    pub fn count_unfit(&self) {
        self.unfit.fetch_add(1, Relaxed);
    }

    /// Says how many there were.
    pub fn unfit(&self) -> u64 {
        self.unfit.load(Relaxed)
    }

    /// Says whether there has been an object that protobuf has no form for.
    pub fn had_unfit(&self) -> bool {
        self.unfit() > 0
    }
}
