//! What is counted about the mirror.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
    registry::{Registry as Exported, Unit},
};

use crate::mirror::Mirror;

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
        if let Some(memory) = &figures.memory {
            let help = "Bytes that the objects in memory may have (mirror.memory)";
            let mut max = encoder.encode_descriptor("memory_max", help, Some(&Unit::Bytes), MetricType::Gauge)?;
            max.encode_gauge(&as_gauge(memory.max))?;
            let help = "Bytes that the objects in memory have, where mirror.memory bounds them";
            let mut held = encoder.encode_descriptor("memory_held", help, Some(&Unit::Bytes), MetricType::Gauge)?;
            held.encode_gauge(&as_gauge(memory.held))?;
            let help = "Kinds that are in the mirror's tables alone, since mirror.memory has no room for them";
            let passed = as_gauge(memory.in_tables.len() as u64);
            encoder.encode_descriptor("memory_passed_kinds", help, None, MetricType::Gauge)?.encode_gauge(&passed)?;
        }
        let help = "Writes and reads of kept objects that failed";
        let mut failures = encoder.encode_descriptor("failures", help, None, MetricType::Counter)?;
        failures.encode_counter::<NoLabelSet, _, u64>(&figures.failures, None)
    }
}
