//! What the API server answers once the gate has let a request in: metrics, and the API as whoever asks.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::{
    app::apiserver::watches::{Watches, counted},
    observe::{Exposed, Metrics},
    respond::RouteError,
    serve::{Handler, authority::ADMIN_GROUP},
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
    fn metrics(&self, exposed: Exposed, request: &Request<Incoming>, caller: &Caller) -> Response<Body> {
        if !caller.is_in(ADMIN_GROUP) {
            let path = request.uri().path();
            let message = format!("forbidden: User \"{}\" cannot get path \"{path}\"", caller.user);
            return Status::forbidden(message).into_response();
        }
        let failed = |error| Status::from(RouteError::from(error)).into_response();
        self.metrics.answer(exposed, request.headers()).unwrap_or_else(failed)
    }
}

impl Handler for Api {
    async fn handle(self: Arc<Self>, mut request: Request<Incoming>) -> Response<Body> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let caller = match request.extensions().get::<Impersonation>() {
            None => caller,
            Some(wanted) if caller.is_in(ADMIN_GROUP) => wanted.caller(&caller),
            Some(wanted) => {
                let message = format!(
                    "users \"{}\" is forbidden: User \"{}\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                    wanted.user, caller.user
                );
                return Status::forbidden(message).about("", "users", &wanted.user).into_response();
            }
        };
        if let Some(exposed) = Exposed::at(request.uri().path()) {
            return self.metrics(exposed, &request, &caller);
        }
        request.extensions_mut().insert(caller);
        let watch = self.watches.of(&request);
        let request = request.map(|body| body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync());
        counted(self.server.answer(request).await, watch)
    }
}
