//! Moves over HTTP, at a path of kubefold's own: `kubefold drain` and its like ask it.

use http::{Method, Response, StatusCode};

use crate::{
    answer::{RequestContext, reply::Reply},
    respond::{RouteError, WriteError},
    write::{
        Writer,
        live::LiveFleet,
        moves::{Command, MovesReport},
    },
};
use kubefold_serving::request::{drain, read_json};
use kubefold_wire::{body::Body, options::query_value, status::Status, warning::Warnings};

/// Where moves are asked for and ordered.
pub const MOVES_PATH: &str = "/kubefold/v1/moves";

impl Writer<LiveFleet> {
    /// Answers a `GET` of [`MOVES_PATH`] with what is moving, and a `POST` of a [`Command`] with what it comes to.
    ///
    /// Errors: the body is no command, it names no member, or the disk refuses.
    pub async fn moves(
        self: &std::sync::Arc<Self>,
        asked: RequestContext<'_>,
        method: &Method,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        if *method == Method::GET {
            let mut report = self.report();
            // Who waits for moves need not have every object looked at.
            if query_value(asked.query, "outdated").as_deref() != Some("false") {
                report.outdated = self.all_outdated().await;
            }
            return Ok(answer(&report));
        }
        if *method != Method::POST {
            Box::pin(drain(body)).await;
            return Err(RouteError::Method.into());
        }
        let body = read_json(asked.headers, body).await?;
        let command: Command = serde_json::from_slice(&body)
            .map_err(|error| WriteError::Body { what: "command", cause: error.to_string() })?;
        self.may_write()?;
        let by = asked.caller.user.clone();
        let this = std::sync::Arc::clone(self);
        // A client that hangs up does not cut it in two.
        let ordered = self.tasks.spawn(async move { this.order(command, &by).await }).await;
        let report = ordered.map_err(|error| {
            tracing::error!(%error, "an order to move broke off");
            WriteError::Internal("the order broke off; see kubefold moves")
        })??;
        Ok(answer(&report))
    }
}

fn answer(report: &MovesReport) -> Response<Body> {
    // Strings and numbers: serialization has no way to fail.
    let body = serde_json::to_vec(report).unwrap_or_default().into();
    Reply { code: StatusCode::OK, warnings: Warnings::default(), body }.into_response()
}
