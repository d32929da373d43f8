//! Entries as bytes, for a store of another process that shows what this one shows.
//!
//! All numbers are little-endian: the revision in 8 bytes, and its member's; flags in one; eleven numbers of 4 (length of the leading type, where labels,
//! revision, UID, metadata and node begin and end); the length of the namespace in 4; how many holders in 4; then each holder, the key and
//! the JSON behind their lengths in 4. What of an entry only its own store needs is left out: the member's own bytes, parts, referents.

use std::{collections::HashMap, sync::Arc};

use bytes::BufMut;

use super::*;

const FOLDED: u8 = 1;
const DELETING: u8 = 2;

/// The holders of entries that came so far, by their bytes: objects of the same members share them.
#[derive(Debug, Default)]
pub struct KnownHolders(HashMap<Box<[u8]>, Holders>);

impl KnownHolders {
    /// Takes so many from the front of `bytes`.
    fn take(&mut self, count: u32, bytes: &mut &[u8]) -> Option<Holders> {
        let all = *bytes;
        for _ in 0..count {
            piece(bytes)?;
        }
        let mut of_these = all.get(..all.len() - bytes.len())?;
        if let Some(known) = self.0.get(of_these) {
            return Some(Arc::clone(known));
        }
        let key = of_these.into();
        let names: Option<Vec<MemberName>> = (0..count).map(|_| MemberName::new(piece(&mut of_these)?)).collect();
        let holders: Holders = names?.into();
        self.0.insert(key, Arc::clone(&holders));
        Some(holders)
    }
}

impl Entry {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64_le(self.revision.0);
        out.put_u64_le(self.provenance.member_rv());
        out.put_u8((u8::from(self.folded) * FOLDED) | (u8::from(self.deleting) * DELETING));
        out.put_u32_le(self.type_meta_len);
        for place in [&self.labels, &self.resource_version, &self.uid, &self.metadata, &self.node] {
            out.put_u32_le(place.start);
            out.put_u32_le(place.end);
        }
        out.put_u32_le(self.namespace_len);
        out.put_u32_le(narrow(0..self.holders.len()).end);
        let texts = self.holders.iter().map(|holder| holder.as_str().as_bytes());
        for bytes in texts.chain([self.key(), self.json()]) {
            out.put_u32_le(narrow(0..bytes.len()).end);
            out.put_slice(bytes);
        }
    }

    /// What [`Self::encode`] made of one. `None`: these are no such bytes.
    pub fn decode(mut bytes: &[u8], known: &mut KnownHolders) -> Option<Self> {
        let bytes = &mut bytes;
        let revision = Revision(u64::from_le_bytes(*taken(bytes)?));
        let member_rv = u64::from_le_bytes(*taken(bytes)?);
        let [flags] = *taken(bytes)?;
        let type_meta_len = number(bytes)?;
        let mut places = <[Range<u32>; 5]>::default();
        for place in &mut places {
            *place = number(bytes)?..number(bytes)?;
        }
        let namespace_len = number(bytes)?;
        let count = number(bytes)?;
        let holders = known.take(count, bytes)?;
        let (key, json) = (piece(bytes)?, piece(bytes)?);
        let is_within = |place: &Range<u32>| {
            place.start <= place.end && json.get(place.start as usize..place.end as usize).is_some()
        };
        let is_sound = bytes.is_empty()
            && places.iter().all(is_within)
            && is_within(&(0..type_meta_len))
            && key.get(..namespace_len as usize).is_some();
        if !is_sound {
            return None;
        }
        let [labels, resource_version, uid, metadata, node] = places;
        let provenance = Provenance::default();
        provenance.set(member_rv, 0, 0);
        Some(Self {
            key: key.into(),
            json_len: narrow(0..json.len()).end,
            buffer: json.as_bytes().into(),
            namespace_len,
            referents: 0,
            type_meta_len,
            labels,
            resource_version,
            uid,
            metadata,
            node,
            revision,
            holders,
            folded: flags & FOLDED > 0,
            deleting: flags & DELETING > 0,
            parts: None,
            provenance,
            message_len: AtomicU32::default(),
            message: ArcSwapOption::default(),
        })
    }
}

fn taken<'b, const LEN: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; LEN]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    taken(bytes).map(|number| u32::from_le_bytes(*number))
}

fn piece<'b>(bytes: &mut &'b [u8]) -> Option<&'b str> {
    let len = number(bytes)? as usize;
    let (piece, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    std::str::from_utf8(piece).ok()
}
