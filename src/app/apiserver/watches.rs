//! How many watches clients have open.

use http::{Request, Response};
use http_body_util::BodyExt;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::observe::RequestClass;
use kubefold_wire::body::Body;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    resource: &'static str,
}

/// Counts them, by resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches(Family<Of, Gauge>);

/// One that is open.
struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Watches {
    /// Registers them.
    pub(super) fn register(&self, exported: &mut Registry) {
        exported.register("open_watches", "Watches of clients that are open, by resource", self.0.clone());
    }

    /// What an answer to this request is to be counted as, if it is a watch.
    pub(super) fn of<B>(&self, request: &Request<B>) -> Option<Gauge> {
        let (method, uri) = (request.method(), request.uri());
        let class = RequestClass::of(method, uri.path(), uri.query());
        let gauge = || self.0.get_or_create_owned(&Of { resource: class.resource });
        (class.verb == "watch").then(gauge)
    }
}

/// Has an answer counted as long as it goes on.
pub(super) fn counted(response: Response<Body>, gauge: Option<Gauge>) -> Response<Body> {
    let Some(gauge) = gauge.filter(|_| response.status().is_success()) else { return response };
    gauge.inc();
    let open = Open(gauge);
    response.map(|body| {
        let body = body.map_frame(move |frame| {
            let _held = &open;
            frame
        });
        body.boxed_unsync()
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use kubefold_wire::body::full;

    #[test]
    fn a_watch_counts_until_its_answer_is_dropped() {
        let watches = Watches::default();
        let asked = |path: &str| Request::get(path).body(()).unwrap();
        assert!(watches.of(&asked("/api/v1/pods")).is_none());
        let gauge = watches.of(&asked("/api/v1/pods?watch=1")).unwrap();
        let open = counted(Response::new(full(Bytes::from_static(b"{}"))), Some(gauge.clone()));
        assert_eq!(gauge.get(), 1);
        drop(open);
        assert_eq!(gauge.get(), 0);
    }
}
