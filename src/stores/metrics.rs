//! What is counted about stores, and how far what they follow lags behind.

use std::{collections::BTreeMap, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
    registry::{Registry as Exported, Unit},
};

use crate::{observe::resource_class, store::Held, stores::Stores};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
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

/// What clients are told of a kind.
#[derive(Default)]
struct OfAnswers {
    watchers: usize,
    expired: u64,
    unfit: u64,
}

/// Registers what is counted about stores.
pub fn register(stores: &Arc<Stores>, exported: &mut Exported) {
    let help = "How long a writer held the lock of a store";
    exported.register_with_unit("write_hold", help, Unit::Seconds, stores.lock_holds.seconds());
    exported.register_collector(Box::new(Kinds(Arc::clone(stores))));
}

/// Registers what is counted about following members, among what is counted about members.
pub fn register_lag(stores: &Arc<Stores>, exported: &mut Exported) {
    exported.register_collector(Box::new(Lag(Arc::clone(stores))));
}

/// How far behind every member is followed that is configured now.
struct Lag(Arc<Stores>);

impl std::fmt::Debug for Lag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lag")
    }
}

impl Collector for Lag {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "How long the kind that is furthest behind in a member has not been followed; 0: all are current";
        let mut gauges = encoder.encode_descriptor("lag", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for member in self.0.registry().members().iter() {
            let lag = self.0.following(member.name()).lag;
            let of = OfMember { member: member.name().to_string() };
            gauges.encode_family(&of)?.encode_gauge(&lag.as_secs_f64())?;
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
        let mut kinds: BTreeMap<&'static str, OfAnswers> = BTreeMap::new();
        for store in &figures {
            let resource = resource_class(&store.gvr.group, &store.gvr.resource);
            let answers = kinds.entry(resource).or_default();
            answers.watchers += store.watchers;
            answers.expired += store.expired;
            answers.unfit += store.unfit;
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
        let help = "Memory that the objects of a member take in the stores";
        let mut gauges = encoder.encode_descriptor("object", help, Some(&Unit::Bytes), MetricType::Gauge)?;
        for ((member, resource), held) in &held {
            let labels = OfKind { member: member.clone(), resource };
            gauges.encode_family(&labels)?.encode_gauge(&as_gauge(held.bytes))?;
        }
        let mut gauges = encoder.encode_descriptor("watchers", "Watches of clients", None, MetricType::Gauge)?;
        for (resource, OfAnswers { watchers, .. }) in &kinds {
            gauges.encode_family(&OfResource { resource })?.encode_gauge(&as_gauge(*watchers))?;
        }
        let help = "Watches of clients that ended with 410: the revision was too old, or the client too slow";
        let mut counters = encoder.encode_descriptor("expired_watches", help, None, MetricType::Counter)?;
        for (resource, OfAnswers { expired, .. }) in &kinds {
            counters.encode_family(&OfResource { resource })?.encode_counter::<NoLabelSet, _, u64>(expired, None)?;
        }
        let help =
            "Answers that could not be given in protobuf, as an object has a field that this version does not know";
        let mut counters = encoder.encode_descriptor("protobuf_unfit_answers", help, None, MetricType::Counter)?;
        for (resource, OfAnswers { unfit, .. }) in &kinds {
            counters.encode_family(&OfResource { resource })?.encode_counter::<NoLabelSet, _, u64>(unfit, None)?;
        }
        let help = "The longest that a writer has held the lock of a store";
        let longest = self.0.lock_holds.longest().as_secs_f64();
        let name = "write_hold_longest";
        encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?.encode_gauge(&longest)?;
        let help = "What all event logs hold";
        let used = as_gauge(self.0.shared().log_limits.used());
        encoder.encode_descriptor("log", help, Some(&Unit::Bytes), MetricType::Gauge)?.encode_gauge(&used)?;
        let help = "Objects that are kept as protobuf messages, too";
        let used = as_gauge(self.0.shared().log_limits.messages_used());
        encoder.encode_descriptor("protobuf", help, Some(&Unit::Bytes), MetricType::Gauge)?.encode_gauge(&used)
    }
}
