//! Results of health checks as metrics, under the names that every component of Kubernetes has for them.
//!
//! Source: kubernetes/component-base `metrics/prometheus/slis`; they are counted when `/livez`, `/readyz` or `/healthz` is asked for.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};

/// What the checks of this process came to.
#[derive(Debug)]
pub struct Slis {
    checks: Mutex<BTreeMap<Label, Results>>,
    started_s: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct Label {
    name: String,
    r#type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Counted {
    name: String,
    status: &'static str,
    r#type: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Results {
    passes: bool,
    passed: u64,
    failed: u64,
}

impl Default for Slis {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { checks: Mutex::default(), started_s: started.as_secs_f64() }
    }
}

impl Slis {
    /// Counts one round of the checks of a group, such as `readyz`: each with whether it passed. What the group has no more is forgotten.
    pub fn observe<'a>(&self, group: &str, checks: impl Iterator<Item = (&'a str, bool)>) {
        let mut all = self.checks.lock();
        let (mut before, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut *all).into_iter().partition(|(label, _)| label.r#type == group);
        *all = others;
        for (name, passes) in checks {
            let label = Label { name: name.to_owned(), r#type: group.to_owned() };
            let Results { passed, failed, .. } = before.remove(&label).unwrap_or_default();
            let (passed, failed) = (passed + u64::from(passes), failed + u64::from(!passes));
            all.insert(label, Results { passes, passed, failed });
        }
    }
}

/// Read at the scrape.
#[derive(Debug)]
pub(super) struct Collected(pub(super) std::sync::Arc<Slis>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let checks = self.0.checks.lock().clone();
        let help = "[STABLE] This metric records the result of a single healthcheck.";
        let mut gauges = encoder.encode_descriptor("kubernetes_healthcheck", help, None, MetricType::Gauge)?;
        for (label, results) in &checks {
            gauges.encode_family(label)?.encode_gauge(&i64::from(results.passes))?;
        }
        let help = "[STABLE] This metric records the results of all healthcheck.";
        let mut counters = encoder.encode_descriptor("kubernetes_healthchecks", help, None, MetricType::Counter)?;
        for (Label { name, r#type }, results) in &checks {
            for (status, count) in [("error", results.failed), ("success", results.passed)] {
                if count > 0 {
                    let label = Counted { name: name.clone(), status, r#type: r#type.clone() };
                    counters.encode_family(&label)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        let help = "[ALPHA] Start time of the process since unix epoch in seconds.";
        let mut started = encoder.encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?;
        started.encode_gauge(&self.0.started_s)
    }
}
