//! Objects of a definition that a webhook converts from one version to another.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    future::BoxFuture,
    stream::{self, StreamExt, TryStreamExt},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

use super::review::{Review, ReviewError};
use crate::{
    kinds::{Converter, Services},
    patch::kind_shown,
    registry::Env,
    webhook::{Client, ClientConfig, ClientError},
};
use kubefold_wire::{
    access::{self, text},
    status::{Reason, Status},
};

/// As a kube-apiserver waits for each call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Objects that are sent in one call, so that the answer stays below what is read of one. One that is larger is sent alone. Units:
/// bytes of their JSON.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// Calls for one list that are under way at once.
const AT_ONCE: usize = 4;
/// Calls of one webhook that are under way at once. Others wait, within their time.
const CALLS_MAX: usize = 64;

/// The webhook of a definition.
struct Webhook {
    client: Client,
    /// The version of the `ConversionReview` that it is sent; `None`: it knows none of this server's.
    version: Option<&'static str>,
    /// The `apiVersion` that is stored.
    stored: String,
    env: Env,
    calls: Semaphore,
}

/// Objects of one call.
struct Batch {
    /// Their places in the list.
    places: Vec<usize>,
    objects: Vec<Value>,
    /// The same in JSON, with commas between.
    json: String,
}

/// An object that was converted, and its place in the list.
struct Converted {
    place: usize,
    object: Value,
}

/// What converts the objects of a definition; `None`: no webhook does.
pub(super) fn converter(definition: &Value, env: &Env) -> Option<Arc<dyn Converter>> {
    if text(definition, "/spec/conversion/strategy") != "Webhook" {
        return None;
    }
    let config = definition.pointer("/spec/conversion/webhook/clientConfig");
    let config = config.and_then(|config| ClientConfig::deserialize(config).ok()).unwrap_or_default();
    let mut versions = access::texts(definition, "/spec/conversion/webhook/conversionReviewVersions");
    let mut all = access::items(definition, "/spec/versions").iter();
    let storage = all.find(|version| version.get("storage") == Some(&Value::Bool(true)));
    let stored = storage.map(|version| text(version, "/name")).unwrap_or_default();
    Some(Arc::new(Webhook {
        client: Client::new(config),
        version: versions.find_map(Review::known),
        stored: format!("{}/{stored}", text(definition, "/spec/group")),
        env: env.clone(),
        calls: Semaphore::new(CALLS_MAX),
    }))
}

impl Converter for Webhook {
    fn stored(&self) -> &str {
        &self.stored
    }

    fn convert<'a>(
        &'a self,
        services: &'a dyn Services,
        objects: Vec<Value>,
        api_version: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, Box<Status>>> {
        Box::pin(async move {
            let mut out = objects;
            let batches = batches(&out, api_version);
            let calls = stream::iter(batches).map(|batch| self.batch_converted(services, batch, api_version));
            let mut calls = calls.buffered(AT_ONCE);
            while let Some(converted) = calls.try_next().await? {
                for Converted { place, object } in converted {
                    if let Some(there) = out.get_mut(place) {
                        *there = object;
                    }
                }
            }
            drop(calls);
            Ok(out)
        })
    }
}

impl Webhook {
    async fn batch_converted(
        &self,
        services: &dyn Services,
        batch: Batch,
        api_version: &str,
    ) -> Result<Vec<Converted>, Box<Status>> {
        let of = batch.objects.first().map(|first| kind_shown(text(first, "/apiVersion"), text(first, "/kind")));
        let Batch { places, objects, json } = batch;
        let converted = self.asked(services, &objects, &json, api_version).await;
        let converted = converted.map_err(|error| failed(&of.unwrap_or_default(), &error))?;
        Ok(places.into_iter().zip(converted).map(|(place, object)| Converted { place, object }).collect())
    }

    /// The objects as the webhook converts them.
    ///
    /// Errors: it does not answer, or not what may be answered.
    async fn asked(
        &self,
        services: &dyn Services,
        objects: &[Value],
        json: &str,
        api_version: &str,
    ) -> Result<Vec<Value>, ReviewError> {
        let version = self.version.ok_or(ReviewError::Version)?;
        let uid = self.env.uid();
        let review = Review { version, uid: &uid, api_version };
        let call = async {
            let _call = self.calls.acquire().await;
            self.client.post(services, review.body(json), TIMEOUT).await
        };
        let answer: Bytes = timeout(TIMEOUT, call).await.unwrap_or_else(|_| Err(late()))?;
        review.read(objects, &answer)
    }
}

/// It was not its turn, or it did not answer.
fn late() -> ClientError {
    ClientError::Failed("context deadline exceeded".to_owned())
}

/// 500 without a reason, as a kube-apiserver answers what it has no status for.
fn failed(of: &str, error: &ReviewError) -> Box<Status> {
    let message = match error {
        ReviewError::Version | ReviewError::Kind(_) => error.to_string(),
        error => format!("conversion webhook for {of} {error}"),
    };
    Box::new(Status::new(StatusCode::INTERNAL_SERVER_ERROR, Reason::Unknown, message))
}

/// The objects that are not in a version yet, in calls of bounded size.
fn batches(objects: &[Value], api_version: &str) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let others = objects.iter().enumerate().filter(|(_, object)| text(object, "/apiVersion") != api_version);
    for (place, object) in others {
        let json = object.to_string();
        match batches.last_mut().filter(|batch| batch.json.len() + json.len() < BATCH_BYTES) {
            Some(batch) => {
                batch.json.push(',');
                batch.json.push_str(&json);
                batch.places.push(place);
                batch.objects.push(object.clone());
            }
            None => batches.push(Batch { places: vec![place], objects: vec![object.clone()], json }),
        }
    }
    batches
}
