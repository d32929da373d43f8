//! What is counted about members.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, NoLabelSet},
    metrics::{MetricType, counter::Counter, family::Family},
    registry::{Registry as Exported, Unit},
};

use crate::{
    config::MemberName,
    member::Member,
    observe::{RequestClass, Traffic, resource_class},
    stores::{Held, Stores},
    upstream::{cause::Cause, health::Health, permits::Kind},
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStream {
    member: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    member: String,
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: &'static str,
}

/// The counters of all members of a registry.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberMetrics {
    traffic: Traffic<Asked>,
    failures: Family<OfCause, Counter>,
    lists: Family<OfReason, Counter>,
    watch_restarts: Family<OfMember, Counter>,
    retries: Family<OfMember, Counter>,
}

impl EncodeLabelValue for MemberName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

/// The member that a request went to. Cloned for each of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    member: MemberName,
}

/// Counts what happens to one member.
#[derive(Debug)]
pub struct Meter {
    member: String,
    asked: Asked,
    metrics: MemberMetrics,
}

impl Meter {
    pub(crate) fn new(member: &MemberName, metrics: &MemberMetrics) -> Arc<Self> {
        let meter =
            Self { member: member.to_string(), asked: Asked { member: member.clone() }, metrics: metrics.clone() };
        // From zero on, so that the first of them is a rise.
        let of = || OfMember { member: meter.member.clone() };
        drop((metrics.retries.get_or_create(&of()), metrics.watch_restarts.get_or_create(&of())));
        Arc::new(meter)
    }

    /// A request was answered; gives what counts the bytes of the answer's body.
    pub(crate) fn answered(&self, class: RequestClass, code: u16, after: Duration) -> Counter {
        self.metrics.traffic.answered(&self.asked, class, code, after)
    }

    /// A request took another connection, its own having closed before a byte of it left.
    pub(crate) fn retried(&self) {
        self.metrics.retries.get_or_create(&OfMember { member: self.member.clone() }).inc();
    }

    /// Something came to nothing.
    pub fn failed(&self, cause: Cause) {
        self.metrics.failures.get_or_create(&OfCause { member: self.member.clone(), cause }).inc();
    }

    /// A full list began.
    pub(crate) fn listed(&self, reason: ListReason) {
        self.metrics.lists.get_or_create(&OfReason { member: self.member.clone(), reason }).inc();
    }

    /// A watch ended, for whatever cause, and is begun anew.
    pub(crate) fn watch_restarted(&self) {
        self.metrics.watch_restarts.get_or_create(&OfMember { member: self.member.clone() }).inc();
    }
}

/// Registers what is counted about members.
pub fn register(stores: &Arc<Stores>, exported: &mut Exported) {
    let metrics = stores.registry().metrics();
    metrics.traffic.register(exported, "received");
    let help = "Requests that were sent over another connection, the first having closed before a byte of them left";
    exported.register("retries", help, metrics.retries.clone());
    exported.register("failures", "What came to nothing with a member, by cause", metrics.failures.clone());
    exported.register("lists", "Full lists of a kind that were begun, by reason", metrics.lists.clone());
    exported.register("watch_restarts", "Watches that ended and were begun anew", metrics.watch_restarts.clone());
    exported.register_collector(Box::new(States(Arc::clone(stores))));
}

/// Registers what is counted about stores.
pub fn register_stores(stores: &Arc<Stores>, exported: &mut Exported) {
    exported.register_collector(Box::new(Kinds(Arc::clone(stores))));
}

/// The state of every member that is configured now: read at the scrape, so that one that was removed leaves no trace.
struct States(Arc<Stores>);

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("States")
    }
}

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let members = self.0.registry().members();
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
        let help = "How long the kind that is furthest behind in a member has not been followed; 0: all are current";
        let mut gauges = encoder.encode_descriptor("lag", help, seconds, MetricType::Gauge)?;
        for member in members.iter() {
            let lag = self.0.following(member.name()).lag;
            gauges.encode_family(&of(member))?.encode_gauge(&lag.as_secs_f64())?;
        }
        let help = "Streams of clients in a member that are under way";
        let mut gauges = encoder.encode_descriptor("streams", help, None, MetricType::Gauge)?;
        for (member, kind) in members.iter().flat_map(|member| Kind::ALL.map(|kind| (member, kind))) {
            let labels = OfStream { member: member.name().to_string(), kind: kind.name() };
            let count = i64::try_from(member.seats.taken(member.name(), kind)).unwrap_or(i64::MAX);
            gauges.encode_family(&labels)?.encode_gauge(&count)?;
        }
        Ok(())
    }
}

/// What the stores hold, read at the scrape. Kinds that share a label are added up.
struct Kinds(Arc<Stores>);

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kinds")
    }
}

impl Collector for Kinds {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = self.0.figures();
        let mut held: BTreeMap<(String, &'static str), Held> = BTreeMap::new();
        let mut kinds: BTreeMap<&'static str, (usize, u64)> = BTreeMap::new();
        for store in &figures {
            let resource = resource_class(&store.gvr.group, &store.gvr.resource);
            let (watchers, expired) = kinds.entry(resource).or_default();
            *watchers += store.watchers;
            *expired += store.expired;
            for (member, of) in &store.held {
                let sum = held.entry((member.to_string(), resource)).or_default();
                sum.objects += of.objects;
                sum.bytes += of.bytes;
            }
        }
        let as_gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let help = "Objects of a member in the stores; a kind that is followed in two versions counts twice";
        let mut gauges = encoder.encode_descriptor("objects", help, None, MetricType::Gauge)?;
        for ((member, resource), held) in &held {
            let labels = OfKind { member: member.clone(), resource };
            gauges.encode_family(&labels)?.encode_gauge(&as_gauge(held.objects))?;
        }
        let help = "What the objects of a member in the stores cost to hold";
        let mut gauges = encoder.encode_descriptor("object", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        for ((member, resource), held) in &held {
            let labels = OfKind { member: member.clone(), resource };
            gauges.encode_family(&labels)?.encode_gauge(&as_gauge(held.bytes))?;
        }
        let mut gauges = encoder.encode_descriptor("watchers", "Watches of clients", None, MetricType::Gauge)?;
        for (resource, (watchers, _)) in &kinds {
            gauges.encode_family(&OfResource { resource })?.encode_gauge(&as_gauge(*watchers))?;
        }
        let help = "Watches of clients that were told 410, having begun or fallen behind what the log reaches";
        let mut counters = encoder.encode_descriptor("expired_watches", help, None, MetricType::Counter)?;
        for (resource, (_, expired)) in &kinds {
            counters.encode_family(&OfResource { resource })?.encode_counter::<NoLabelSet, _, u64>(expired, None)?;
        }
        let help = "What all event logs hold";
        let used = as_gauge(self.0.shared().log_limits.used());
        encoder.encode_descriptor("log", help, Some(&Unit::Bytes), MetricType::Gauge)?.encode_gauge(&used)
    }
}
