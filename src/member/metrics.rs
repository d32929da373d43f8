//! What is counted about members.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{MetricType, counter::Counter, family::Family},
    registry::Registry as Exported,
};

use crate::{
    config::MemberName,
    member::{Registry, cause::Cause, health::Health},
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
struct OfCause {
    member: String,
    cause: Cause,
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

/// The counters of all members of a registry.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberMetrics {
    failures: Family<OfCause, Counter>,
    lists: Family<OfReason, Counter>,
    watch_restarts: Family<OfMember, Counter>,
}

/// Counts what happens to one member.
#[derive(Debug)]
pub struct Meter {
    member: String,
    metrics: MemberMetrics,
}

impl Meter {
    pub(super) fn new(member: &MemberName, metrics: &MemberMetrics) -> Arc<Self> {
        Arc::new(Self { member: member.to_string(), metrics: metrics.clone() })
    }

    /// Something came to nothing.
    pub fn failed(&self, cause: Cause) {
        self.metrics.failures.get_or_create(&OfCause { member: self.member.clone(), cause }).inc();
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
pub fn register(members: &Arc<Registry>, exported: &mut Exported) {
    let metrics = members.metrics();
    exported.register("failures", "What came to nothing with a member, by cause", metrics.failures.clone());
    exported.register("lists", "Full lists of a kind that were begun, by reason", metrics.lists.clone());
    exported.register("watch_restarts", "Watches that ended and were begun anew", metrics.watch_restarts.clone());
    exported.register_collector(Box::new(States(Arc::clone(members))));
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
        let help = "1 for the state that a member is in, 0 for the others.";
        let mut gauges = encoder.encode_descriptor("health", help, None, MetricType::Gauge)?;
        for member in self.0.members().iter() {
            let now = member.health();
            for state in Health::NAMES {
                let labels = OfState { member: member.name().to_string(), state };
                gauges.encode_family(&labels)?.encode_gauge(&i64::from(now.name() == state))?;
            }
        }
        Ok(())
    }
}
