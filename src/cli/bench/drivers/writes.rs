//! Requests that change objects of the run's own namespace.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use serde_json::json;

use crate::cli::bench::{
    drivers::Ground,
    record::{Failure, Outcome},
    space::SENT,
    target::asked,
};

/// A patch of one object after the other.
pub(super) async fn change(ground: Arc<Ground>, number: u64) -> Outcome {
    let path = ground.space.object(number);
    Outcome { measure: "patch", result: ground.target.pass(number, patch(&path, &format!("write-{number}"))).await }
}

/// Makes an object, changes it, and deletes it.
pub(super) async fn churn(ground: Arc<Ground>, number: u64) -> Outcome {
    Outcome { measure: "create-patch-delete", result: one_life(&ground, number).await }
}

async fn one_life(ground: &Ground, number: u64) -> Result<u64, Failure> {
    let (space, target) = (&ground.space, &ground.target);
    let name = space.short_lived(number);
    let path = format!("{}/{name}", space.path());
    let body = space.body(&name, number).to_string();
    let made = target.pass(number, asked(Method::POST, &space.path(), "application/json", body.into())).await?;
    let changed = target.pass(number, patch(&path, "changed")).await?;
    let delete = asked(Method::DELETE, &format!("{path}?gracePeriodSeconds=0"), "application/json", Bytes::new());
    Ok(made + changed + target.pass(number, delete).await?)
}

/// Writes a value into an object's annotations. It differs from what is there, since otherwise there is no event.
pub(super) fn patch(path: &str, value: &str) -> Request<Bytes> {
    let body = json!({"metadata": {"annotations": {SENT: value}}}).to_string();
    asked(Method::PATCH, path, "application/json", body.into())
}
