//! Metrics, as Prometheus scrapes them.
//!
//! Each room owns what it counts and registers it under a prefix of its own, in base units; names begin with `kubefold_`,
//! and no label ever names an object. Source: the OpenMetrics 1.0 text format, which Prometheus takes since 2.5.

use http::{HeaderValue, Response, header};
use prometheus_client::{encoding::text::encode, metrics::info::Info, registry::Registry};

use kubefold_wire::body::{Body, full};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every metric of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("kubefold");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Which kubefold this is", build);
        Self { registry }
    }
}

impl Metrics {
    /// Lets a room register what it counts: as `kubefold_<room>_...`.
    pub fn room(&mut self, prefix: &str, register: impl FnOnce(&mut Registry)) {
        register(self.registry.sub_registry_with_prefix(prefix));
    }

    /// All metrics as text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Answers a scrape.
    ///
    /// Errors: as [`Metrics::text`].
    pub fn answer(&self) -> Result<Response<Body>, std::fmt::Error> {
        let mut response = Response::new(full(self.text()?));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn a_room_registers_under_its_own_prefix() {
        let mut metrics = Metrics::default();
        let opened = Counter::<u64>::default();
        metrics.room("door", |registry| registry.register("openings", "How often it opened", opened.clone()));
        opened.inc();
        let text = metrics.text().unwrap();
        assert!(text.contains("# TYPE kubefold_door_openings counter\nkubefold_door_openings_total 1\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
        let content_type = metrics.answer().unwrap().headers()["content-type"].clone();
        assert!(content_type.to_str().unwrap().starts_with("application/openmetrics-text"));
    }
}
