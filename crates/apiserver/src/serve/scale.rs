//! `/scale`: one number of an object, whatever its kind.
//!
//! Source: kubernetes `pkg/registry/apps/deployment/storage/storage.go`, apiextensions-apiserver
//! `pkg/registry/customresource/etcd.go`.

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::{
    kinds::{Kind, Scale},
    patch,
    registry::{Facet, Part, Patch, check_name},
    serve::{
        ApiServer,
        answer::answered,
        context::{RequestContext, Target},
        options::{Of, RequestOptions},
        write::read_of_patch,
    },
};
use kubefold_serving::request::read_json;
use kubefold_wire::{
    body::Body,
    info::RequestInfo,
    matching::{self, Printed},
    media::Negotiated,
    status::{Cause, Status},
};

const SCALE: &str = "scale";

impl ApiServer {
    pub(super) async fn get_scale(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
    ) -> Result<Response<Body>, Status> {
        let object = target.registry.get(&target.kind, &target.namespace, &target.name).await?;
        self.scale_response(&target.kind, &object.value(), asked, wanted)
    }

    fn scale_response(
        &self,
        kind: &Kind,
        object: &Value,
        asked: RequestContext<'_>,
        wanted: Negotiated,
    ) -> Result<Response<Body>, Status> {
        let scale = scale_of(kind, object)?;
        let form = self.form(kind, asked, wanted, false)?;
        let mut out = Vec::new();
        form.document(scale.to_string().as_bytes(), 0, &mut out);
        Ok(answered(out, StatusCode::OK, &[]))
    }

    /// A put or a patch of the number.
    pub(super) async fn write_scale(
        &self,
        info: &RequestInfo,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let (put, patch, mut said) = if info.verb == "update" {
            let body = read_json(asked.headers, body).await?;
            let said = RequestOptions::read(asked.query, asked.headers, Of::Update, Part::Whole)?;
            let put: Value = serde_json::from_slice(&body).map_err(|error| Status::bad_request(error.to_string()))?;
            check_name(&put, &target.namespace, &target.name)?;
            (Some(put), None, said)
        } else {
            let read = read_of_patch(asked, Part::Whole, body).await?;
            (None, Some(read.patch), read.options)
        };
        let kind = &target.kind;
        if let Some(Patch::Apply { .. }) = &patch {
            let why = "server-side apply of /scale is not served; use a merge patch of spec.replicas";
            return Err(Status::bad_request(why));
        }
        said.write.part = Part::Whole;
        SCALE.clone_into(&mut said.write.subresource);
        said.write.facet = Some(Facet { object_type: ["autoscaling", "v1", "Scale"], of: scale_of, set });
        let change = |object: &mut Value| {
            let present = scale_of(kind, object)?;
            let new = match (&put, &patch) {
                (Some(put), _) => put.clone(),
                (None, Some(patch)) => patched(&present, patch)?,
                (None, None) => present,
            };
            set(kind, object, &new)
        };
        let (namespace, name) = (&target.namespace, &target.name);
        let written = target.registry.modify(kind, namespace, name, &said.write, change).await?;
        self.scale_response(kind, &written.object.value(), asked, wanted)
    }
}

fn patched(present: &Value, patch: &Patch) -> Result<Value, Status> {
    Ok(match patch {
        Patch::Json(patch) => patch::json(present, patch)?,
        // A scale has no lists: both merge alike.
        Patch::Merge(patch) | Patch::Strategic(patch) => patch::merge(present, patch)?,
        Patch::Apply { .. } => present.clone(),
    })
}

fn paths(kind: &Kind) -> Result<&Scale, Status> {
    kind.scale.as_ref().ok_or_else(Status::no_such_path)
}

/// A value at a path such as `.spec.replicas`.
fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(object, |value, name| value.get(name))
}

fn scale_of(kind: &Kind, object: &Value) -> Result<Value, Status> {
    let paths = paths(kind)?;
    let metadata: Map<String, Value> = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), object.pointer(&format!("/metadata/{name}"))?.clone())))
        .collect();
    let mut spec = Map::new();
    if let Some(replicas) = at(object, &paths.spec_replicas).filter(|value| value.as_i64() != Some(0)) {
        spec.insert("replicas".into(), replicas.clone());
    }
    let replicas = at(object, &paths.status_replicas).and_then(Value::as_i64).unwrap_or_default();
    let mut status = json!({"replicas": replicas});
    let selector = paths.selector.as_deref().and_then(|path| at(object, path)).map(selector_text);
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}))
}

/// A selector as text: it may be one already, a map of labels, or a `LabelSelector`.
pub(super) fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let Some(fields) = selector.as_object() else { return String::new() };
    let is_selector = fields.contains_key("matchLabels") || fields.contains_key("matchExpressions");
    let labels = if is_selector { fields.get("matchLabels").and_then(Value::as_object) } else { Some(fields) };
    let labels = labels.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    let expressions = fields.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    matching::selector_text(labels, expressions.map(printed))
}

fn printed(expression: &Value) -> Printed<'_> {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    Printed { key: text("key"), operator: text("operator"), values: values.filter_map(Value::as_str).collect() }
}

/// Takes the number of a scale over into the object.
///
/// Errors: 409, 422.
fn set(kind: &Kind, object: &mut Value, scale: &Value) -> Result<(), Status> {
    let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| 0.into());
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if replicas.as_i64().is_none_or(|number| number < 0) {
        let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
        let cause = Cause::new("FieldValueInvalid", "spec.replicas", message);
        return Err(Status::invalid("autoscaling", "Scale", &name, vec![cause]));
    }
    // Whose number it is, and which: what the scale says of the object must hold of it.
    for field in ["resourceVersion", "uid"] {
        let said = scale.pointer(&format!("/metadata/{field}")).filter(|said| said.as_str() != Some(""));
        if let (Some(said), Some(metadata)) = (said, object.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert(field.to_owned(), said.clone());
        }
    }
    let paths = paths(kind)?;
    let mut names: Vec<&str> = paths.spec_replicas.split('.').filter(|name| !name.is_empty()).collect();
    let last = names.pop().unwrap_or_default();
    let mut place = object;
    for name in names {
        let Some(fields) = place.as_object_mut() else { return Ok(()) };
        place = fields.entry(name.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(fields) = place.as_object_mut() {
        fields.insert(last.to_owned(), replicas);
    }
    Ok(())
}
