//! What stands below pods: bindings, evictions, logs.
//!
//! Source: kubernetes `pkg/registry/core/pod/storage/{storage,eviction}.go`.

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    kinds::put,
    registry::{ListOptions, Part, WriteOptions},
    serve::{
        ApiServer,
        context::{RequestContext, Target},
        options::of_delete,
        write::created,
    },
};
use kubefold_serving::request::read_json;
use kubefold_wire::{
    access::text,
    body::Body,
    golang::Quoted,
    resource::Gvk,
    selector::LabelSelector,
    status::{Cause, Reason, Status},
};

impl ApiServer {
    /// Exec, attach and forwarded ports.
    pub(super) async fn stream(&self, target: &Target, asked: RequestContext<'_>) -> Result<Response<Body>, Status> {
        let pod = target.registry.get(&target.kind, &target.namespace, &target.name).await?.value();
        self.inner.settings.pods.stream(&pod, &target.subresource, asked.parts).await
    }

    pub(super) async fn get_log(&self, target: &Target, asked: RequestContext<'_>) -> Result<Response<Body>, Status> {
        let pod = target.registry.get(&target.kind, &target.namespace, &target.name).await?.value();
        let body = self.inner.settings.pods.log(&pod, asked.query).await?;
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    pub(super) async fn bind(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let mut binding = object(&read_json(asked.headers, body).await?)?;
        put(&mut binding, "metadata", Some(json!({"name": target.name, "namespace": target.namespace})));
        let options = posted(target, asked.query.contains("dryRun=All"));
        self.bind_object(target, &binding, &options).await
    }

    /// Puts a pod on a node.
    pub(super) async fn bind_object(
        &self,
        target: &Target,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<Response<Body>, Status> {
        let mut binding = binding.clone();
        put(&mut binding, "kind", Some("Binding".into()));
        put(&mut binding, "apiVersion", Some("v1".into()));
        let (kind, namespace) = (&target.kind, target.namespace.as_str());
        let object_type = Gvk::new("", "v1", "Binding");
        let admitted = target.registry.admit_posted(kind, namespace, object_type, binding, options);
        let binding = Box::pin(admitted).await?;
        let name = text(&binding, "/metadata/name").to_owned();
        let node = text(&binding, "/target/name").to_owned();
        let target_kind = text(&binding, "/target/kind");
        if !matches!(target_kind, "" | "Node") {
            let message = format!(
                "Unsupported value: {target_kind}: supported values: \"Node\", \"<empty>\"",
                target_kind = Quoted(target_kind)
            );
            return Err(invalid_binding(&name, "FieldValueNotSupported", "target.kind", message));
        }
        if node.is_empty() {
            return Err(invalid_binding(&name, "FieldValueRequired", "target.name", "Required value".into()));
        }
        let pods = self.pods()?;
        let write = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
        let now = self.inner.registry.env().now_text();
        let bind = |pod: &mut Value| {
            let there = text(pod, "/spec/nodeName");
            let conflict = |why: String| {
                let message =
                    format!("Operation cannot be fulfilled on pods/binding {name}: {why}", name = Quoted(&name));
                Err(Status::conflict("", "pods/binding", &name, message))
            };
            if pod.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
                return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
            }
            if !there.is_empty() {
                return conflict(format!("pod {name} is already assigned to node {there}", there = Quoted(there)));
            }
            if let Some(spec) = pod.get_mut("spec") {
                put(spec, "nodeName", Some(node.as_str().into()));
            }
            scheduled(pod, &now);
            Ok(())
        };
        let registry = &self.inner.registry;
        registry.modify_all(&pods, namespace, &name, &write, bind).await?;
        Ok(created())
    }

    /// Deletes a pod, if its disruption budgets allow for it.
    pub(super) async fn evict(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let eviction = object(&read_json(asked.headers, body).await?)?;
        let said = text(&eviction, "/metadata/name");
        if !said.is_empty() && said != target.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let options = eviction.get("deleteOptions").cloned().unwrap_or(Value::Null);
        let options = if options.is_null() { String::new() } else { options.to_string() };
        let (options, _) = of_delete(asked.query, &options.into())?;
        let eviction = as_eviction(eviction, target);
        let object_type = Gvk::new("policy", "v1", "Eviction");
        let posted = posted(target, options.dry_run);
        let admitted = target.registry.admit_posted(&target.kind, &target.namespace, object_type, eviction, &posted);
        Box::pin(admitted).await?;
        let pod = target.registry.get(&target.kind, &target.namespace, &target.name).await?.value();
        if !matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed" | "Pending") {
            self.disrupt(&target.namespace, &pod, options.dry_run).await?;
        }
        target.registry.delete(&target.kind, &target.namespace, &target.name, &options).await?;
        Ok(created())
    }

    /// Counts a disruption.
    ///
    /// Errors: 429 if there may be none.
    async fn disrupt(&self, namespace: &str, pod: &Value, dry_run: bool) -> Result<(), Status> {
        let registry = &self.inner.registry;
        let Some(budgets) = registry.kind("policy", "PodDisruptionBudget") else { return Ok(()) };
        let list = registry.list(&budgets, namespace, &ListOptions::default()).await?;
        let covering = list.objects.iter().map(|object| object.value()).filter(|budget| covers(budget, pod));
        let covering: Vec<Value> = covering.collect();
        let Some(budget) = covering.first() else { return Ok(()) };
        if covering.len() > 1 {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::internal(message));
        }
        let name = text(budget, "/metadata/name").to_owned();
        let write = WriteOptions { dry_run, part: Part::Status, ..WriteOptions::default() };
        let take = |budget: &mut Value| {
            let number = |at: &str| budget.pointer(at).and_then(Value::as_i64).unwrap_or_default();
            let (allowed, healthy, desired) = (
                number("/status/disruptionsAllowed"),
                number("/status/currentHealthy"),
                number("/status/desiredHealthy"),
            );
            if allowed <= 0 {
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                let mut status = Status::new(StatusCode::TOO_MANY_REQUESTS, Reason::TooManyRequests, message);
                let message =
                    format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
                status.details.causes =
                    vec![Cause { reason: "DisruptionBudget".into(), message, field: String::new() }];
                return Err(status);
            }
            if let Some(status) = budget.get_mut("status") {
                put(status, "disruptionsAllowed", Some((allowed - 1).into()));
            }
            Ok(())
        };
        registry.modify(&budgets, namespace, &name, &write, take).await.map(drop)
    }

    fn pods(&self) -> Result<std::sync::Arc<crate::kinds::Kind>, Status> {
        self.inner.registry.kind("", "Pod").ok_or_else(Status::no_such_path)
    }
}

/// How admission sees what is posted below an object.
pub(super) fn posted(target: &Target, dry_run: bool) -> WriteOptions {
    WriteOptions { dry_run, subresource: target.subresource.clone(), ..WriteOptions::default() }
}

fn as_eviction(mut eviction: Value, target: &Target) -> Value {
    put(&mut eviction, "kind", Some("Eviction".into()));
    put(&mut eviction, "apiVersion", Some("policy/v1".into()));
    put(&mut eviction, "metadata", Some(json!({"name": target.name, "namespace": target.namespace})));
    eviction
}

pub(super) fn object(body: &[u8]) -> Result<Value, Status> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    let object: Value = serde_json::from_slice(body).map_err(|error| Status::bad_request(error.to_string()))?;
    if object.is_object() { Ok(object) } else { Err(Status::bad_request("the body is no object")) }
}

fn invalid_binding(name: &str, reason: &str, field: &str, message: String) -> Status {
    let cause = Cause { reason: reason.to_owned(), message, field: field.to_owned() };
    Status::invalid("", "Binding", name, vec![cause])
}

/// Says that a pod has its node.
fn scheduled(pod: &mut Value, now: &str) {
    let Some(fields) = pod.as_object_mut() else { return };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    conditions.retain(|condition| condition.get("type").and_then(Value::as_str) != Some("PodScheduled"));
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
}

/// Says whether a budget is about a pod.
fn covers(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = budget.pointer("/spec/selector") else { return false };
    let text = super::scale::selector_text(selector);
    let labels = pod.pointer("/metadata/labels").map(Value::to_string);
    LabelSelector::parse(&text).is_ok_and(|selector| selector.matches(labels.as_deref()))
}
