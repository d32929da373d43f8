//! Metrics, as Prometheus scrapes them.
//!
//! Each room owns what it counts and registers it under a prefix of its own, in base units; names begin with `kubefold_`,
//! and no label ever names an object. Sources: the Prometheus text format 0.0.4, which a kube-apiserver answers in, and OpenMetrics 1.0
//! for those who ask for it.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, header};
use prometheus_client::{encoding::text::encode, metrics::info::Info, registry::Registry};

use crate::observe::slis::{Collected, Slis};
use kubefold_wire::{
    accept::{accept_header, parse_accept},
    body::{Body, full},
};

const OPEN_METRICS: &str = "application/openmetrics-text";

/// Every metric of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    slis: Arc<Slis>,
    of_slis: Registry,
}

/// What is scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposed {
    /// Kubefold's own metrics.
    Own,
    /// The results of its health checks.
    Slis,
}

impl Exposed {
    /// What is under a path; `None`: nothing of this.
    pub fn at(path: &str) -> Option<Self> {
        match path {
            "/metrics" => Some(Self::Own),
            "/metrics/slis" => Some(Self::Slis),
            _ => None,
        }
    }
}

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// The Prometheus text format.
    Text,
    /// OpenMetrics. Parsers of the former do not know its type `info`.
    OpenMetrics,
}

impl Format {
    /// OpenMetrics where it is named, and nothing is wanted more that the text fits.
    fn wanted(headers: &HeaderMap) -> Self {
        let clauses = parse_accept(accept_header(headers));
        let format = clauses.iter().find_map(|clause| match clause.media_type.as_str() {
            OPEN_METRICS if clause.q > 0.0 => Some(Self::OpenMetrics),
            _ => clause.takes("text/plain").then_some(Self::Text),
        });
        format.unwrap_or(Self::Text)
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("kubefold");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Which kubefold this is", build);
        let (slis, mut of_slis) = (Arc::<Slis>::default(), Registry::default());
        of_slis.register_collector(Box::new(Collected(Arc::clone(&slis))));
        Self { registry, slis, of_slis }
    }
}

impl Metrics {
    /// Lets a room register what it counts: as `kubefold_<room>_...`.
    pub fn room(&mut self, prefix: &str, register: impl FnOnce(&mut Registry)) {
        register(self.registry.sub_registry_with_prefix(prefix));
    }

    /// Where results of health checks are counted.
    pub fn slis(&self) -> Arc<Slis> {
        Arc::clone(&self.slis)
    }

    /// Answers a scrape.
    ///
    /// Errors: the metrics have no text.
    pub fn answer(&self, exposed: Exposed, headers: &HeaderMap) -> Result<Response<Body>, std::fmt::Error> {
        let format = Format::wanted(headers);
        let mut response = Response::new(full(self.text(exposed, format)?));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        Ok(response)
    }

    fn text(&self, exposed: Exposed, format: Format) -> Result<String, std::fmt::Error> {
        let registry = match exposed {
            Exposed::Own => &self.registry,
            Exposed::Slis => &self.of_slis,
        };
        let mut text = String::new();
        encode(&mut text, registry)?;
        Ok(match format {
            Format::Text => in_prometheus_format(&text),
            Format::OpenMetrics => text,
        })
    }
}

/// OpenMetrics in the Prometheus text format: families are named as their samples are, and of types that it does not have they are others.
fn in_prometheus_format(open: &str) -> String {
    let (mut out, mut help) = (String::with_capacity(open.len()), "");
    for line in open.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(_), text) => help = text.unwrap_or_default(),
            (Some("TYPE"), Some(name), Some(of_open)) => {
                let (suffix, of_text) = match of_open {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                out.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {of_text}\n"));
            }
            // Units, and the end.
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(accept).unwrap())])
    }

    #[test]
    fn a_room_registers_under_its_own_prefix() {
        let mut metrics = Metrics::default();
        let opened = Counter::<u64>::default();
        metrics.room("door", |registry| registry.register("openings", "How often it opened", opened.clone()));
        opened.inc();
        let text = metrics.text(Exposed::Own, Format::OpenMetrics).unwrap();
        assert!(text.contains("# TYPE kubefold_door_openings counter\nkubefold_door_openings_total 1\n"), "{text}");
        assert!(text.contains("# TYPE kubefold_build info\n") && text.ends_with("# EOF\n"), "{text}");
        let text = metrics.text(Exposed::Own, Format::Text).unwrap();
        let counter = "# HELP kubefold_door_openings_total How often it opened.\n# TYPE kubefold_door_openings_total counter\n\
                       kubefold_door_openings_total 1\n";
        assert!(text.contains(counter), "{text}");
        assert!(
            text.contains("# TYPE kubefold_build_info gauge\nkubefold_build_info{version=") && !text.contains("EOF")
        );
    }

    #[test]
    fn the_text_format_is_answered_unless_open_metrics_is_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for accept in [prometheus, OPEN_METRICS, "application/openmetrics-text, text/plain"] {
            assert_eq!(Format::wanted(&headers(accept)), Format::OpenMetrics, "{accept}");
        }
        let go = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3";
        for accept in ["", "*/*", go, "text/plain;q=0.6,application/openmetrics-text;q=0.5", "text/html"] {
            assert_eq!(Format::wanted(&headers(accept)), Format::Text, "{accept}");
        }
        let answer = Metrics::default().answer(Exposed::Own, &HeaderMap::new()).unwrap();
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4;"));
    }

    #[test]
    fn results_of_checks_are_counted_and_those_that_are_gone_are_forgotten() {
        let metrics = Metrics::default();
        let slis = metrics.slis();
        slis.observe("readyz", [("ping", true), ("member/west", false)].into_iter());
        slis.observe("livez", [("ping", true)].into_iter());
        slis.observe("readyz", [("ping", true), ("member/west", true)].into_iter());
        let text = metrics.text(Exposed::Slis, Format::Text).unwrap();
        for line in [
            "# TYPE kubernetes_healthcheck gauge",
            "kubernetes_healthcheck{name=\"member/west\",type=\"readyz\"} 1",
            "# TYPE kubernetes_healthchecks_total counter",
            "kubernetes_healthchecks_total{name=\"member/west\",status=\"error\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"member/west\",status=\"success\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 2",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 1",
            "# TYPE process_start_time_seconds gauge",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        slis.observe("readyz", [("ping", true)].into_iter());
        let text = metrics.text(Exposed::Slis, Format::Text).unwrap();
        assert!(!text.contains("west") && text.contains("type=\"livez\""), "{text}");
    }
}
