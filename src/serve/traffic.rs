//! What is counted about requests of clients, as they pass the gate.

use std::time::Duration;

use http::{Method, Response};
use http_body::Body as _;
use prometheus_client::{encoding::EncodeLabelSet, registry::Registry};

use crate::{
    observe::{RequestClass, Traffic},
    view::Mode,
};
use kubefold_wire::body::{Body, observed};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct View {
    view: &'static str,
}

/// Counts requests of clients.
#[derive(Clone, Debug, Default)]
pub struct Served {
    traffic: Traffic<View>,
    /// What all of them came through, where there are no views.
    only: Option<&'static str>,
}

/// A request as it came in.
pub(super) struct Came {
    view: View,
    class: RequestClass,
}

impl Came {
    fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        let (view, path) = Self::split(path);
        Self { view: View { view }, class: RequestClass::of(method, path, query) }
    }

    /// A path without the view that it goes through.
    pub(super) fn path(path: &str) -> &str {
        Self::split(path).1
    }

    fn split(path: &str) -> (&'static str, &str) {
        let path = Mode::split(path).1;
        let behind =
            path.strip_prefix("/clusters/").map(|rest| rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"));
        behind.map_or(("fleet", path), |rest| ("member", rest))
    }
}

impl Served {
    /// Counts requests that all come through one view, whatever their paths are.
    pub fn of(view: &'static str) -> Self {
        Self { only: Some(view), ..Self::default() }
    }

    /// What a request is counted as.
    pub(super) fn came(&self, method: &Method, path: &str, query: Option<&str>) -> Came {
        match self.only {
            Some(view) => Came { view: View { view }, class: RequestClass::of(method, path, query) },
            None => Came::of(method, path, query),
        }
    }

    /// Registers what is counted.
    pub fn register(&self, exported: &mut Registry) {
        self.traffic.register(exported, "response");
    }

    /// Counts an answer, and its body as it goes out.
    pub(super) fn answered(&self, came: &Came, after: Duration, response: Response<Body>) -> Response<Body> {
        let bytes = self.traffic.answered(&came.view, came.class, response.status().as_u16(), after);
        match response.body().size_hint().exact() {
            // Whole already: counted at once, and not wrapped.
            Some(size) => {
                bytes.inc_by(size);
                response
            }
            None => response.map(|body| {
                observed(body, move |data| {
                    bytes.inc_by(data.len() as u64);
                })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_for_the_view_that_it_came_through() {
        for (path, view, resource) in [
            ("/api/v1/pods", "fleet", "pods"),
            ("/views/lenient/api/v1/pods", "fleet", "pods"),
            ("/clusters/east/api/v1/pods", "member", "pods"),
            ("/clusters/east", "member", "other"),
        ] {
            let came = Came::of(&Method::GET, path, None);
            assert_eq!((came.view.view, came.class.resource), (view, resource), "{path}");
        }
        let came = Served::of("apiserver").came(&Method::GET, "/clusters/east/api/v1/pods", None);
        assert_eq!((came.view.view, came.class.resource), ("apiserver", "other"));
    }
}
