//! What is counted about members, and about the reflectors that follow them.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family},
    registry::Registry as Exported,
};

use crate::{config::MemberName, upstream::UpstreamMetrics};

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

/// The counters of all members of a registry.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberMetrics {
    pub(super) upstream: UpstreamMetrics,
    pub(super) reflectors: ReflectorMetrics,
}

impl MemberMetrics {
    /// Registers them.
    pub(super) fn register(&self, exported: &mut Exported) {
        let Self { upstream, reflectors } = self;
        upstream.register(exported);
        exported.register("lists", "Full lists of a kind that were begun, by reason", reflectors.lists.clone());
        exported.register("watch_restarts", "Watches that ended and were restarted", reflectors.watch_restarts.clone());
    }
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
