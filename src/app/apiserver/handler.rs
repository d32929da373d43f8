//! What the API server answers once the gate has let a request in: metrics, and the API as whoever asks.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::{
    app::apiserver::watches::{Watches, counted},
    observe::{Exposed, Metrics},
    respond::RouteError,
    serve::Handler,
};
use kubefold_apiserver::serve::ApiServer;
use kubefold_serving::{caller::Caller, impersonation::Impersonation};
use kubefold_wire::{
    body::{Body, BodyError},
    status::Status,
};

/// Answers requests.
pub(super) struct Api {
    pub(super) server: ApiServer,
    pub(super) metrics: Arc<Metrics>,
    pub(super) watches: Watches,
}

impl Api {
    /// Answers as whoever asks, or as whom he asks to be.
    async fn answer(&self, mut request: Request<Body>) -> Result<Response<Body>, Status> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let caller = match request.extensions_mut().remove::<Impersonation>() {
            None => caller,
            Some(wanted) => self.server.impersonate(&caller, &wanted, request.method(), request.uri())?,
        };
        request.extensions_mut().insert(caller);
        if let Some(exposed) = Exposed::at(request.uri().path()) {
            let (parts, _) = request.into_parts();
            self.server.authorize(&parts)?;
            return self.metrics.answer(exposed, &parts.headers).map_err(|error| RouteError::from(error).into());
        }
        let watch = self.watches.of(&request);
        Ok(counted(self.server.answer(request).await, watch))
    }
}

impl Handler for Api {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let request = request.map(|body| body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync());
        let headers = request.headers().clone();
        self.answer(request).await.unwrap_or_else(|status| status.into_response_to(&headers))
    }
}
