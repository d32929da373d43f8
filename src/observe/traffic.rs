//! What is counted about requests, those of clients and those to members: how many, how long, how many bytes.

use std::{fmt::Debug, hash::Hash, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabel, EncodeLabelSet},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::observe::RequestClass;

/// From a get out of memory to the longest that a member may take. Units: seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 40.0];

/// Who asks or is asked, as a label of its own.
pub trait Party: Clone + Debug + Hash + Eq + Send + Sync + 'static + EncodeLabelSet {}
impl<T: Clone + Debug + Hash + Eq + Send + Sync + 'static + EncodeLabelSet> Party for T {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Of<P> {
    party: P,
    class: RequestClass,
    code: Option<u16>,
}

impl<P: Party> EncodeLabelSet for Of<P> {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.party.encode(encoder)?;
        ("verb", self.class.verb).encode(encoder.encode_label())?;
        ("resource", self.class.resource).encode(encoder.encode_label())?;
        match self.code {
            Some(code) => ("code", code).encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}

/// Counts requests of one direction.
#[derive(Clone, Debug)]
pub struct Traffic<P: Party> {
    requests: Family<Of<P>, Counter>,
    seconds: Family<Of<P>, Histogram, fn() -> Histogram>,
    bytes: Family<Of<P>, Counter>,
}

impl<P: Party> Default for Traffic<P> {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self { requests: Family::default(), seconds: Family::new_with_constructor(histogram), bytes: Family::default() }
    }
}

impl<P: Party> Traffic<P> {
    /// A request was answered, `after` so long to the answer's head; gives what counts the bytes of the answer's body.
    pub fn answered(&self, party: &P, class: RequestClass, code: u16, after: Duration) -> Counter {
        let of = Of { party: party.clone(), class, code: Some(code) };
        self.requests.get_or_create(&of).inc();
        let of = Of { code: None, ..of };
        self.seconds.get_or_create(&of).observe(after.as_secs_f64());
        self.bytes.get_or_create(&of).clone()
    }

    /// Registers them; `bytes` is what the bytes of answers are called.
    pub fn register(&self, exported: &mut Registry, bytes: &str) {
        exported.register("requests", "Requests that were answered, by verb, resource and code", self.requests.clone());
        let help = "How long requests took to their answer's head, by verb and resource";
        exported.register_with_unit("request_duration", help, Unit::Seconds, self.seconds.clone());
        let help = "Bytes of the bodies of answers, by verb and resource";
        exported.register_with_unit(bytes, help, Unit::Bytes, self.bytes.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct View {
        view: &'static str,
    }

    #[test]
    fn what_is_counted_has_prometheus_names() {
        let (traffic, mut registry) = (Traffic::default(), Registry::with_prefix("kubefold_http"));
        traffic.register(&mut registry, "response");
        let class = RequestClass { verb: "list", resource: "pods" };
        traffic.answered(&View { view: "fleet" }, class, 200, Duration::from_millis(3)).inc_by(7);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let labels = r#"view="fleet",verb="list",resource="pods""#;
        for line in [
            format!("kubefold_http_requests_total{{{labels},code=\"200\"}} 1"),
            format!("kubefold_http_request_duration_seconds_bucket{{le=\"0.005\",{labels}}} 1"),
            format!("kubefold_http_response_bytes_total{{{labels}}} 7"),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
}
