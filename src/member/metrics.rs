//! What is counted about members, and about the reflectors that follow them.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{MetricType, counter::Counter, family::Family},
    registry::{Registry as Exported, Unit},
};

use crate::{
    config::MemberName,
    member::{Member, Registry},
    upstream::{Health, UpstreamMetrics, permits::Kind},
};

/// Why a reflector listed all of its member's objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListReason {
    /// Nothing of it was known.
    First,
    /// The member said 410: its history does not reach back far enough.
    Expired,
    /// The member was not ready in between, and may have been restored.
    Outage,
    /// It is another cluster.
    OtherCluster,
    /// Its revisions went backwards.
    RevisionsBackwards,
    /// The definition of its kind changed: other defaults, or another conversion.
    Redefined,
    /// What it told could not be read.
    Unreadable,
}

impl ListReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Expired => "expired",
            Self::Outage => "outage",
            Self::OtherCluster => "other_cluster",
            Self::RevisionsBackwards => "revisions_backwards",
            Self::Redefined => "redefined",
            Self::Unreadable => "unreadable",
        }
    }
}

impl EncodeLabelValue for ListReason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    member: String,
    reason: ListReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    member: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStream {
    member: String,
    kind: &'static str,
}

/// The counters of all members of a registry.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberMetrics {
    pub(super) upstream: UpstreamMetrics,
    pub(super) reflectors: ReflectorMetrics,
}

/// The counters of all reflectors.
#[derive(Clone, Debug, Default)]
pub(super) struct ReflectorMetrics {
    lists: Family<OfReason, Counter>,
    watch_restarts: Family<OfMember, Counter>,
}

/// Counts what the reflectors of one member do.
#[derive(Debug)]
pub(crate) struct ReflectorMeter {
    member: String,
    metrics: ReflectorMetrics,
}

impl ReflectorMeter {
    pub(super) fn new(member: &MemberName, metrics: &ReflectorMetrics) -> Self {
        let meter = Self { member: member.to_string(), metrics: metrics.clone() };
        // From zero on, so that the first of them is a rise.
        drop(metrics.watch_restarts.get_or_create(&OfMember { member: meter.member.clone() }));
        meter
    }

    /// A full list began.
    pub(super) fn listed(&self, reason: ListReason) {
        self.metrics.lists.get_or_create(&OfReason { member: self.member.clone(), reason }).inc();
    }

    /// A watch ended, for whatever cause, and is begun anew.
    pub(super) fn watch_restarted(&self) {
        self.metrics.watch_restarts.get_or_create(&OfMember { member: self.member.clone() }).inc();
    }
}

/// Registers what is counted about members.
pub fn register(registry: &Arc<Registry>, exported: &mut Exported) {
    let MemberMetrics { upstream, reflectors } = registry.metrics();
    upstream.register(exported);
    exported.register("lists", "Full lists of a kind that were begun, by reason", reflectors.lists.clone());
    exported.register("watch_restarts", "Watches that ended and were begun anew", reflectors.watch_restarts.clone());
    exported.register_collector(Box::new(States(Arc::clone(registry))));
}

/// The state of every member that is configured now: read at the scrape, so that one that was removed leaves no trace.
struct States(Arc<Registry>);

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("States")
    }
}

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let members = self.0.members();
        let help = "1 for the state that a member is in, 0 for the others";
        let mut gauges = encoder.encode_descriptor("health", help, None, MetricType::Gauge)?;
        for member in members.iter() {
            let now = member.health();
            for state in Health::NAMES {
                let labels = OfState { member: member.name().to_string(), state };
                gauges.encode_family(&labels)?.encode_gauge(&i64::from(now.name() == state))?;
            }
        }
        let of = |member: &Member| OfMember { member: member.name().to_string() };
        let help = "How long the last probe of a member waited for its answer";
        let seconds = Some(&Unit::Seconds);
        let mut gauges = encoder.encode_descriptor("probe_latency", help, seconds, MetricType::Gauge)?;
        for (member, latency) in members.iter().filter_map(|member| Some((member, member.latency()?))) {
            gauges.encode_family(&of(member))?.encode_gauge(&latency.as_secs_f64())?;
        }
        let help = "Streams of clients in a member that are under way";
        let mut gauges = encoder.encode_descriptor("streams", help, None, MetricType::Gauge)?;
        for (member, kind) in members.iter().flat_map(|member| Kind::ALL.map(|kind| (member, kind))) {
            let labels = OfStream { member: member.name().to_string(), kind: kind.name() };
            let count = i64::try_from(member.permits.taken(member.name(), kind)).unwrap_or(i64::MAX);
            gauges.encode_family(&labels)?.encode_gauge(&count)?;
        }
        Ok(())
    }
}
