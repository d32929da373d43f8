//! The state of every member, read at the scrape.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
    registry::{Registry as Exported, Unit},
};

use crate::{
    member::{Member, registry::Registry},
    upstream::{Health, permits::Kind},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
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
struct OfCredential {
    member: String,
    credential: &'static str,
}

/// Registers what is counted about members.
pub fn register(registry: &Arc<Registry>, exported: &mut Exported) {
    registry.metrics().register(exported);
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
        let help = "When a credential ends with which kubefold logs in to a member, in Unix time";
        let mut gauges = encoder.encode_descriptor("credential_expiry", help, seconds, MetricType::Gauge)?;
        let of_members = members.iter().flat_map(|member| {
            member.upstream().expiries().into_iter().map(move |(credential, end)| (member, credential, end))
        });
        for (member, credential, end) in of_members {
            let labels = OfCredential { member: member.name().to_string(), credential };
            gauges.encode_family(&labels)?.encode_gauge(&i64::try_from(end).unwrap_or(i64::MAX))?;
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
