//! What the process that has the state shows, as its standbys know it: docs/design/revisions.md#after-a-kill.
//!
//! It is told in frames: a length of four bytes, then a byte that says what it is, the length of the kind in two bytes, the kind, and
//! what [`Earlier`] and [`Later`] are encoded to. All numbers are little-endian.

use std::{collections::HashMap, io, sync::Arc};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec};

use crate::store::{Earlier, Later, Revision};
use kubefold_wire::resource::Gvr;

/// Where a process tells what it shows. Only replicas are answered there.
pub const SHOWN_PATH: &str = "/kubefold/v1/shown";
/// One kind with some 30,000,000 objects.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// What is told of one kind.
pub(super) enum Frame {
    /// All of it.
    Shown(Gvr, Earlier),
    /// What has changed.
    Changed(Gvr, Later),
    /// Nobody reads the kind any more.
    Ended(Gvr),
    /// All events up to this revision have been told.
    Reached(Revision),
}

/// What begins a frame.
const SHOWN: u8 = b's';
const CHANGED: u8 = b'c';
const ENDED: u8 = b'e';
const REACHED: u8 = b'r';

pub(super) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().little_endian().max_frame_length(FRAME_BYTES_MAX).new_codec()
}

impl Frame {
    /// Appends it.
    ///
    /// Errors: it is longer than a frame may be.
    pub(super) fn write(&self, out: &mut BytesMut) -> io::Result<()> {
        let (tag, of, rest) = match self {
            Self::Shown(of, earlier) => (SHOWN, Some(of), earlier.encode()),
            Self::Changed(of, later) => (CHANGED, Some(of), later.encode()),
            Self::Ended(of) => (ENDED, Some(of), Vec::new()),
            Self::Reached(revision) => (REACHED, None, revision.0.to_le_bytes().into()),
        };
        let of =
            of.map_or_else(String::new, |Gvr { group, version, resource }| format!("{group}/{version}/{resource}"));
        let mut frame = Vec::with_capacity(3 + of.len() + rest.len());
        frame.push(tag);
        frame.extend_from_slice(&u16::try_from(of.len()).unwrap_or_default().to_le_bytes());
        frame.extend_from_slice(of.as_bytes());
        frame.extend_from_slice(&rest);
        codec().encode(Bytes::from(frame), out)
    }
}

/// What is known of what is shown. It outlives the connection to the process that shows it.
#[derive(Debug, Default)]
pub struct Told(Mutex<Shown>);

#[derive(Debug, Default)]
struct Shown {
    kinds: HashMap<Gvr, Earlier>,
    /// All has been told up to there.
    reached: Revision,
    /// By the holder of this epoch.
    epoch: i64,
}

impl Told {
    /// How many kinds it knows.
    pub fn kinds(&self) -> usize {
        self.0.lock().kinds.len()
    }

    /// Registers its figures.
    pub fn register(self: &Arc<Self>, exported: &mut Registry) {
        exported.register_collector(Box::new(Known(Arc::clone(self))));
    }

    /// All of it, which it does not know any more, and the epoch of the holder that has told it.
    pub fn take(&self) -> (HashMap<Gvr, Earlier>, i64) {
        let Shown { kinds, epoch, .. } = std::mem::take(&mut *self.0.lock());
        (kinds, epoch)
    }
}

/// Its figures.
#[derive(Debug)]
struct Known(Arc<Told>);

impl Collector for Known {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (kinds, reached) = {
            let shown = self.0.0.lock();
            (shown.kinds.len() as u64, shown.reached.0)
        };
        let gauge = |value: u64| ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let help = "Kinds whose watches go on if the replica that has the state is killed and this standby takes over";
        gauge(kinds).encode(encoder.encode_descriptor("resumable_kinds", help, None, MetricType::Gauge)?)?;
        let help = "The revision up to which the replica that has the state has told this standby of all events; 0 before the first one";
        gauge(reached).encode(encoder.encode_descriptor("shown_revision", help, None, MetricType::Gauge)?)
    }
}

/// What came is none of the frames that this version knows.
#[derive(Debug, thiserror::Error)]
#[error("the replica that has the state tells what this version cannot read")]
pub struct Unreadable;

/// What comes through one connection.
pub struct Hearing<'a> {
    told: &'a Told,
    epoch: i64,
    codec: LengthDelimitedCodec,
    buffer: BytesMut,
    /// Until all has been told once. What is known of before counts until then.
    first: Option<HashMap<Gvr, Earlier>>,
}

impl<'a> Hearing<'a> {
    /// Nothing has come yet from the holder of that epoch.
    pub fn to(told: &'a Told, epoch: i64) -> Self {
        Self { told, epoch, codec: codec(), buffer: BytesMut::new(), first: Some(HashMap::new()) }
    }

    /// Takes in what has come.
    ///
    /// Errors: it is none of these frames.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        self.buffer.extend_from_slice(bytes);
        while let Some(frame) = self.codec.decode(&mut self.buffer).map_err(|_| Unreadable)? {
            self.take(&frame).ok_or(Unreadable)?;
        }
        Ok(())
    }

    fn take(&mut self, frame: &[u8]) -> Option<()> {
        let ([tag, low, high], rest) = frame.split_first_chunk()?;
        let (of, rest) = rest.split_at_checked(u16::from_le_bytes([*low, *high]).into())?;
        if *tag == REACHED {
            self.reach(Revision(u64::from_le_bytes(rest.try_into().ok()?)));
            return Some(());
        }
        let [group, version, resource] = *std::str::from_utf8(of).ok()?.split('/').collect::<Vec<_>>() else {
            return None;
        };
        let of = Gvr::new(group, version, resource);
        let mut known = self.told.0.lock();
        let kinds = self.first.as_mut().unwrap_or(&mut known.kinds);
        let now = match *tag {
            SHOWN => Earlier::decode(rest),
            CHANGED => kinds.remove(&of).zip(Later::decode(rest)).map(|(mut earlier, later)| {
                earlier.change(&later);
                earlier
            }),
            ENDED => None,
            _ => return None,
        };
        // What cannot be read is not known any more.
        match now {
            Some(now) => drop(kinds.insert(of, now)),
            None => drop(kinds.remove(&of)),
        }
        Some(())
    }

    fn reach(&mut self, revision: Revision) {
        let mut known = self.told.0.lock();
        if let Some(first) = self.first.take() {
            known.kinds = first;
            known.epoch = self.epoch;
        }
        known.reached = revision;
        known.kinds.values_mut().for_each(|earlier| earlier.reach(revision));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a connection gives, in pieces of any length.
    fn heard(hearing: &mut Hearing<'_>, frames: &[Frame], piece: usize) -> Result<(), Unreadable> {
        let mut bytes = BytesMut::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        bytes.chunks(piece).try_for_each(|piece| hearing.push(piece))
    }

    /// What a store without objects shows whose newest event was at `head`.
    fn nothing(head: u64) -> Earlier {
        let numbers: Vec<u8> = [2, head, head, head, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        Earlier::decode(&numbers).unwrap()
    }

    fn later(head: u64, key: u64) -> Later {
        let numbers = [2, head, head, head, 1, key, 7, head, 0, head, key, 8, 0];
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        Later::decode(&bytes).unwrap()
    }

    #[test]
    fn what_was_told_before_counts_until_all_has_been_told_once_by_the_next_holder() {
        let told = Told::default();
        let [pods, maps] = ["pods", "configmaps"].map(|resource| Gvr::new("", "v1", resource));
        let heads = |told: &Told| -> Vec<(String, u64, u64)> {
            let shown = told.0.lock();
            let head =
                |(gvr, earlier): (&Gvr, &Earlier)| (gvr.resource.to_string(), earlier.head().0, earlier.last().0);
            let mut all: Vec<_> = shown.kinds.iter().map(head).collect();
            all.sort();
            all
        };
        for piece in [1, 3, 1000] {
            let mut first = Hearing::to(&told, 1);
            heard(&mut first, &[Frame::Shown(pods.clone(), nothing(5))], piece).unwrap();
            assert_eq!(told.kinds(), 0, "it may not be all");
            heard(&mut first, &[Frame::Shown(maps.clone(), nothing(6)), Frame::Reached(Revision(9))], piece).unwrap();
            assert_eq!(heads(&told), [("configmaps".to_owned(), 6, 9), ("pods".to_owned(), 5, 9)]);
            let news = [Frame::Changed(pods.clone(), later(12, 1)), Frame::Ended(maps.clone())];
            heard(&mut first, &news, piece).unwrap();
            assert_eq!(heads(&told), [("pods".to_owned(), 12, 12)]);
            drop(first);
            // Another holder, or the same one again.
            let mut second = Hearing::to(&told, 1);
            heard(&mut second, &[Frame::Shown(maps.clone(), nothing(20))], piece).unwrap();
            assert_eq!(heads(&told), [("pods".to_owned(), 12, 12)]);
            // A change of what it was never told.
            heard(&mut second, &[Frame::Changed(pods.clone(), later(21, 2)), Frame::Reached(Revision(30))], piece)
                .unwrap();
            assert_eq!(heads(&told), [("configmaps".to_owned(), 20, 30)]);
            assert_eq!(told.0.lock().reached, Revision(30));
            let (taken, epoch) = told.take();
            assert_eq!((taken.len(), epoch, told.kinds()), (1, 1, 0));
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_known_and_what_is_no_frame_ends_the_connection() {
        let (told, of) = (Told::default(), Gvr::new("apps", "v1", "deployments"));
        let mut hearing = Hearing::to(&told, 1);
        let all = [Frame::Shown(of, nothing(5)), Frame::Reached(Revision(5))];
        heard(&mut hearing, &all, 7).unwrap();
        // As a later version may tell it.
        let frame = |tag: u8, of: &str, rest: &[u8]| {
            let body = [&[tag][..], &(of.len() as u16).to_le_bytes(), of.as_bytes(), rest].concat();
            [&(body.len() as u32).to_le_bytes()[..], &body].concat()
        };
        hearing.push(&frame(CHANGED, "apps/v1/deployments", &[0; 24])).unwrap();
        assert_eq!(told.kinds(), 0);
        let bad = [
            frame(b'?', "apps/v1/deployments", &[]),
            frame(SHOWN, "apps/v1", &[]),
            frame(REACHED, "", &[1, 2, 3]),
            [&2_u32.to_le_bytes()[..], b"s?"].concat(),
            [&3_u32.to_le_bytes()[..], &[SHOWN, 9, 0]].concat(),
            u32::MAX.to_le_bytes().to_vec(),
        ];
        for bad in bad {
            assert!(Hearing::to(&told, 1).push(&bad).is_err(), "{bad:?}");
        }
    }
}
