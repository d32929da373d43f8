//! Health and metrics: through the gate for those who log in, and on an address of their own for probes and scrapers.

use std::sync::Arc;

use http::{Method, Response, request::Parts};
use tokio_util::sync::CancellationToken;

use crate::{
    observe::{Exposed, Metrics, Slis},
    respond::{GateError, RouteError},
};
use kubefold_serving::{
    health::{self, Check, HealthPath, Readiness},
    plain::PlainAnswer,
};
use kubefold_wire::{body::Body, deadline, status::Status};

/// What `/livez`, `/readyz` and `/healthz` depend on.
#[derive(Clone)]
pub struct Health {
    readiness: Arc<dyn Readiness>,
    draining: CancellationToken,
    slis: Arc<Slis>,
}

impl Health {
    /// Once `draining` is cancelled kubefold is no longer ready.
    pub fn new(readiness: Arc<dyn Readiness>, draining: CancellationToken) -> Self {
        Self { readiness, draining, slis: Arc::default() }
    }

    /// Has the results of its checks counted.
    pub fn counting(self, slis: Arc<Slis>) -> Self {
        Self { slis, ..self }
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
        if let Err(status) = deadline::check(method, path.group, query) {
            return status.into_response();
        }
        let draining = self.draining.is_cancelled();
        let note = if draining { "kubefold is shutting down".to_owned() } else { String::new() };
        let mut checks = vec![Check::of("ping", true, String::new())];
        checks.extend(self.readiness.checks());
        checks.push(Check::of("shutdown", !draining, note));
        if path.group == "livez" {
            checks.retain(|check| check.informs || check.name == "ping");
        }
        if path.check.is_none() {
            let counted = health::included(query, &checks).map(|check| (check.name.as_str(), check.ready));
            self.slis.observe(path.group, counted);
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
    fn answer(&self, asked: &Parts) -> Option<Response<Body>> {
        let path = asked.uri.path();
        if let Some(exposed) = Exposed::at(path) {
            let failed = |error| Status::from(RouteError::from(error)).into_response();
            return Some(self.metrics.answer(exposed, &asked.headers).unwrap_or_else(failed));
        }
        Some(self.health.answer(&asked.method, HealthPath::of(path)?, asked.uri.query(), true))
    }
}
