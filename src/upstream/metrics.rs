//! What is counted about requests to members.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family},
    registry::Registry as Exported,
};

use crate::{
    config::MemberName,
    observe::{RequestClass, Traffic},
    upstream::cause::Cause,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCause {
    member: String,
    cause: Cause,
}

impl EncodeLabelValue for MemberName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

/// The member that a request went to. Cloned for each of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLabel {
    member: MemberName,
}

/// The counters of the requests to all members.
#[derive(Clone, Debug, Default)]
pub struct UpstreamMetrics {
    traffic: Traffic<MemberLabel>,
    failures: Family<OfCause, Counter>,
    retries: Family<OfMember, Counter>,
}

impl UpstreamMetrics {
    /// Registers them.
    pub(crate) fn register(&self, exported: &mut Exported) {
        self.traffic.register(exported, "received");
        let help = "Requests sent again over another connection, because the first one closed before a byte was sent";
        exported.register("retries", help, self.retries.clone());
        exported.register("failures", "Failed requests to a member, by cause", self.failures.clone());
    }
}

/// Counts what happens on the way to one member.
#[derive(Debug)]
pub struct Meter {
    member: String,
    asked: MemberLabel,
    metrics: UpstreamMetrics,
}

impl Meter {
    pub(crate) fn new(member: &MemberName, metrics: &UpstreamMetrics) -> Arc<Self> {
        let meter = Self {
            member: member.to_string(),
            asked: MemberLabel { member: member.clone() },
            metrics: metrics.clone(),
        };
        // From zero on, so that the first of them is a rise.
        drop(metrics.retries.get_or_create(&OfMember { member: meter.member.clone() }));
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

    /// A request failed.
    pub fn failed(&self, cause: Cause) {
        self.metrics.failures.get_or_create(&OfCause { member: self.member.clone(), cause }).inc();
    }
}
