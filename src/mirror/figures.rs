//! What is kept, and how it goes: for `kubefold status` and `/metrics`.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
    registry::{Registry as Exported, Unit},
};
use tokio::time::Instant;

use crate::mirror::Mirror;

/// What is kept, and how it goes.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// There is a file to keep anything in.
    pub is_on: bool,
    /// Objects in it, as of the last minute.
    pub rows: u64,
    /// How large it is. Units: bytes.
    pub bytes: u64,
    /// Writes and reads that failed, and files that were set aside.
    pub failures: u64,
    /// What went wrong last; absent once everything could be written again.
    pub error: Option<Arc<str>>,
    level_at: Option<Instant>,
}

impl Figures {
    /// How long ago everything that the stores had was written. Absent before the first time.
    pub fn lag(&self) -> Option<Duration> {
        self.level_at.map(|at| at.elapsed())
    }

    /// Notes a failure; true if the log has no line about it.
    pub(super) fn fail(&mut self, cause: &(impl std::fmt::Display + ?Sized)) -> bool {
        let cause: Arc<str> = cause.to_string().into();
        self.failures += 1;
        self.error.replace(Arc::clone(&cause)).is_none_or(|before| before != cause)
    }

    pub(super) fn level(&mut self, counted: Option<Counted>) {
        if self.error.take().is_some() && self.is_on {
            tracing::info!("the mirror is kept again");
        }
        if let Some(Counted { rows, bytes }) = counted {
            (self.rows, self.bytes) = (rows, bytes);
        }
        self.level_at = Some(Instant::now());
    }
}

/// How much is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// Registers what is counted about the mirror.
pub fn register(mirror: &Arc<Mirror>, exported: &mut Exported) {
    exported.register_collector(Box::new(OfMirror(Arc::clone(mirror))));
}

#[derive(Debug)]
struct OfMirror(Arc<Mirror>);

impl Collector for OfMirror {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = self.0.figures();
        let as_gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let help = "Whether members' objects are kept for a restart: 1, or 0 without a file to keep them in";
        encoder.encode_descriptor("on", help, None, MetricType::Gauge)?.encode_gauge(&i64::from(figures.is_on))?;
        let help = "Objects that are kept for a restart";
        encoder.encode_descriptor("objects", help, None, MetricType::Gauge)?.encode_gauge(&as_gauge(figures.rows))?;
        let help = "The size of the file with the objects that are kept for a restart";
        let mut size = encoder.encode_descriptor("file", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        size.encode_gauge(&as_gauge(figures.bytes))?;
        let help = "How long ago everything that the stores had was written";
        let lag = figures.lag().unwrap_or_default().as_secs_f64();
        encoder.encode_descriptor("lag", help, Some(&Unit::Seconds), MetricType::Gauge)?.encode_gauge(&lag)?;
        let help = "Writes and reads of kept objects that failed";
        let mut failures = encoder.encode_descriptor("failures", help, None, MetricType::Counter)?;
        failures.encode_counter::<NoLabelSet, _, u64>(&figures.failures, None)
    }
}
