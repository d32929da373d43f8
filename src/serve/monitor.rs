//! Health and metrics: through the gate for those who log in, and on an address of their own for probes and scrapers.

use std::sync::Arc;

use http::{Method, Response};
use tokio_util::sync::CancellationToken;

use crate::{
    observe::Metrics,
    respond::{GateError, RouteError},
};
use kubefold_serving::{
    health::{self, Check, HealthPath, Readiness},
    plain::PlainAnswer,
};
use kubefold_wire::{body::Body, status::Status};

const METRICS: &str = "/metrics";

/// What `/livez`, `/readyz` and `/healthz` depend on.
#[derive(Clone)]
pub struct Health {
    readiness: Arc<dyn Readiness>,
    draining: CancellationToken,
}

impl Health {
    /// Once `draining` is cancelled kubefold is no longer ready.
    pub fn new(readiness: Arc<dyn Readiness>, draining: CancellationToken) -> Self {
        Self { readiness, draining }
    }

    /// Answers one of its paths. Whoever is not `known` is told no names.
    pub(super) fn answer(
        &self,
        method: &Method,
        path: HealthPath<'_>,
        query: Option<&str>,
        known: bool,
    ) -> Response<Body> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Status::from(GateError::HealthMethod).into_response();
        }
        let mut checks = vec![Check { name: "ping".to_owned(), ready: true, note: String::new() }];
        if path.group != "livez" {
            checks.extend(self.readiness.checks());
            let draining = self.draining.is_cancelled();
            let note = if draining { "kubefold is shutting down".to_owned() } else { String::new() };
            checks.push(Check { name: "shutdown".to_owned(), ready: !draining, note });
        }
        health::answer(path, query, &checks, known)
    }
}

/// What is served without a login, on an address that the operator gives: metrics, and health with its names.
pub struct Monitor {
    health: Health,
    metrics: Arc<Metrics>,
}

impl Monitor {
    /// Serves these.
    pub fn new(health: Health, metrics: Arc<Metrics>) -> Self {
        Self { health, metrics }
    }
}

impl PlainAnswer for Monitor {
    fn answer(&self, method: &Method, path: &str, query: Option<&str>) -> Option<Response<Body>> {
        if path == METRICS {
            let failed = |error| Status::from(RouteError::from(error)).into_response();
            return Some(self.metrics.answer().unwrap_or_else(failed));
        }
        Some(self.health.answer(method, HealthPath::of(path)?, query, true))
    }
}
