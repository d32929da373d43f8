//! Requests to the fleet's own API, in somebody's name.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::{
    own::shadow::{
        object::Reference,
        world::{Place, World},
    },
    respond::OwnError,
};
use kubefold_apiserver::schema::FieldValidation;
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    body::{Body, empty, full},
    path::ApiPath,
    status::Status,
    warning::warning_text,
};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What the fleet answers.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) code: StatusCode,
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// Why an item is not as it was to be, as the fleet says it.
pub(super) type Refusal = Box<Status>;

/// Who writes an item, and whether nothing is to be left of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct By<'a> {
    pub(super) caller: &'a Caller,
    pub(super) dry_run: bool,
    /// What becomes of unknown fields.
    pub(super) validation: FieldValidation,
}

impl<'a> By<'a> {
    /// What is no dry run, of somebody who says nothing of unknown fields.
    pub(super) fn doing(caller: &'a Caller) -> Self {
        Self { caller, dry_run: false, validation: FieldValidation::default() }
    }

    fn query(self, more: &[(&str, &str)]) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(more).append_pair("fieldValidation", self.validation.name());
        if self.dry_run {
            query.append_pair("dryRun", "All");
        }
        query.finish()
    }
}

/// Asks the fleet.
pub(super) struct Calls(pub(super) Arc<dyn World>);

impl Calls {
    /// Reads an item; `None`: it is not there. `known`: what kubefold has of it already is enough.
    pub(super) async fn get(&self, caller: &Caller, place: &Place, known: bool) -> Result<Option<Reply>, Refusal> {
        let query = if known { "resourceVersion=0" } else { "" };
        let got = self.send(caller, Method::GET, &place.object(), query, None).await;
        absent(got)
    }

    /// Makes an item.
    pub(super) async fn create(&self, by: By<'_>, place: &Place, item: &Value) -> Result<Reply, Refusal> {
        let collection = ApiPath::within(&place.gvr, &place.namespace);
        let body = Some((JSON, item.to_string()));
        self.send(by.caller, Method::POST, &collection, &by.query(&[]), body).await
    }

    /// Applies an item.
    pub(super) async fn apply(
        &self,
        by: By<'_>,
        place: &Place,
        item: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Reply, Refusal> {
        let mut query = vec![("fieldManager", manager)];
        if force {
            query.push(("force", "true"));
        }
        let body = Some((APPLY, item.to_string()));
        self.send(by.caller, Method::PATCH, &place.object(), &by.query(&query), body).await
    }

    /// Changes an item.
    pub(super) async fn patch(&self, by: By<'_>, place: &Place, patch: &Value) -> Result<Reply, Refusal> {
        let body = Some((MERGE, patch.to_string()));
        self.send(by.caller, Method::PATCH, &place.object(), &by.query(&[]), body).await
    }

    /// Deletes an item, if it is the one of that UID. `None`: it is not there.
    pub(super) async fn delete(
        &self,
        by: By<'_>,
        place: &Place,
        uid: &str,
        propagation: &str,
    ) -> Result<Option<Reply>, Refusal> {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation});
        if !uid.is_empty() {
            options["preconditions"] = json!({"uid": uid});
        }
        // A kube-apiserver reads no options of the query where there is a body.
        if by.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let body = Some((JSON, options.to_string()));
        absent(self.send(by.caller, Method::DELETE, &place.object(), "", body).await)
    }

    async fn send(
        &self,
        caller: &Caller,
        method: Method,
        path: &ApiPath,
        query: &str,
        body: Option<(&'static str, String)>,
    ) -> Result<Reply, Refusal> {
        let mut request = Request::new(empty());
        if let Some((content_type, body)) = body {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            *request.body_mut() = full(body);
        }
        let uri = if query.is_empty() { path.to_string() } else { format!("{path}?{query}") };
        *request.uri_mut() = uri.parse().map_err(|_| Box::new(OwnError::Address(path.to_string()).into()))?;
        *request.method_mut() = method;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(JSON));
        request.extensions_mut().insert(caller.clone());
        let response = self.0.answer(request).await.ok_or_else(|| Box::new(OwnError::NoFleet.into()))?;
        let (parts, body) = response.into_parts();
        let texts = parts.headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok());
        let warnings = texts.map(warning_text).collect();
        let object = whole(body).await.map_err(|error| Box::new(error.into()))?;
        if parts.status.is_success() {
            Ok(Reply { code: parts.status, object, warnings })
        } else {
            Err(refused(parts.status, &object))
        }
    }
}

async fn whole(body: Body) -> Result<Value, OwnError> {
    let bytes = body.collect().await.map_err(|error| OwnError::BrokenOff(error.to_string()))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| OwnError::BrokenOff(error.to_string()))
}

fn refused(code: StatusCode, answer: &Value) -> Refusal {
    Box::new(OwnError::Refused { code, answer: answer.clone() }.into())
}

fn absent(answer: Result<Reply, Refusal>) -> Result<Option<Reply>, Refusal> {
    match answer {
        Ok(reply) => Ok(Some(reply)),
        Err(status) if status.code == StatusCode::NOT_FOUND => Ok(None),
        Err(status) => Err(status),
    }
}

/// Marks an item as one that a ShadowResource of this UID has made.
pub(super) fn marked(item: &Value, uid: &str) -> Value {
    let mut item = item.clone();
    let annotations = item
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
    if let Some(Value::Object(annotations)) = annotations {
        annotations.insert(super::object::MADE_BY.to_owned(), uid.into());
    }
    item
}

/// The same in a namespace, if it says none.
pub(super) fn placed(item: &Value, reference: &Reference) -> Value {
    let mut item = item.clone();
    if !reference.namespace.is_empty()
        && let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), reference.namespace.as_str().into());
    }
    item
}
