//! Create, update, patch and delete over HTTP.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/{create,update,patch,delete}.go`.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    kinds::Kind,
    registry::{Deleted, Part, Patch, WriteOptions, Written, check_name},
    schema::{Expected, FieldValidation, StrictError, read_body},
    serve::{
        ApiServer, NOT_ALLOWED,
        answer::answered,
        context::{RequestContext, Target},
        options::{Of, RequestOptions, of_delete},
        read::{list_options, respond, selectable},
    },
};
use kubefold_serving::{
    audit,
    request::{ReadBody, read_json, read_object, read_patch},
};
use kubefold_wire::{
    access::text,
    body::Body,
    golang::Quoted,
    info::RequestInfo,
    media::{Negotiated, is_built_in},
    options::Options,
    resource::{Gvk, Gvr},
    status::Status,
};

/// Kinds whose delete is answered with the object, though it is gone.
///
/// Source: kubernetes `pkg/registry/*/*/storage/storage.go`, `ReturnDeletedObject`.
const SHOWN_WHEN_GONE: [(&str, &str); 9] = [
    ("", "pods"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "persistentvolumes"),
    ("", "persistentvolumeclaims"),
    ("policy", "podsecuritypolicies"),
    ("storage.k8s.io", "csinodes"),
];
const SHOWN_WHEN_GONE_TOO: [&str; 4] = ["storageclasses", "csidrivers", "volumeattachments", "volumeattributesclasses"];

impl ApiServer {
    pub(super) async fn write(
        &self,
        info: &RequestInfo,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        match (info.verb.as_str(), info.subresource.as_str()) {
            ("create", "") => self.create(target, asked, wanted, body).await,
            ("create", "binding") => self.bind(target, asked, body).await,
            ("create", "eviction") => self.evict(target, asked, body).await,
            ("create", "token") => self.token(target, asked, body).await,
            ("update" | "patch", "scale") => self.write_scale(info, target, asked, wanted, body).await,
            ("update", "" | "status" | "finalize" | "approval" | "ephemeralcontainers" | "resize") => {
                self.update(target, asked, wanted, body).await
            }
            ("patch", "" | "status" | "approval" | "ephemeralcontainers" | "resize") => {
                self.patch(target, asked, wanted, body).await
            }
            ("delete", "") => self.delete(target, asked, wanted, body).await,
            ("deletecollection", "") => self.delete_collection(target, asked, wanted, body).await,
            (_, "attach" | "exec" | "portforward") => self.stream(target, asked).await,
            _ => Err(Status::method_not_allowed(NOT_ALLOWED)),
        }
    }

    async fn create(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = &target.kind;
        let body = read_object(asked.headers, body).await?;
        let said = RequestOptions::read(asked.query, asked.headers, Of::Create, Part::Whole)?;
        let (object, mut warnings) = decoded(kind, &body.json, said.validation)?;
        warnings.splice(..0, repeated(kind, body.repeated, said.validation)?);
        let object = self.admit_question(target, object, &said.write).await?;
        let answer = match self.review_token(kind, &object).await? {
            None => self.review(kind, &target.namespace, object.clone(), target.registry.caller())?,
            reviewed => reviewed,
        };
        if let Some(answer) = answer {
            let form = self.form(kind, asked, wanted, false)?;
            let mut out = Vec::new();
            form.document(answer.to_string().as_bytes(), 0, &mut out);
            return Ok(answered(out, StatusCode::CREATED, &warnings));
        }
        if kind.plural == "bindings" && kind.group.is_empty() {
            return self.bind_object(target, &object, &said.write).await;
        }
        warnings.extend(owner_warnings(&object));
        if let Some(notes) = audit::notes() {
            notes.name(text(&object, "/metadata/name"));
        }
        let written = target.registry.create(kind, &target.namespace, object, &said.write).await?;
        warnings.extend(written.warnings);
        self.object_response(kind, &written.object, asked, wanted, StatusCode::CREATED, &warnings)
    }

    async fn update(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = &target.kind;
        let body = read_object(asked.headers, body).await?;
        let mut said = RequestOptions::read(asked.query, asked.headers, Of::Update, part(target))?;
        said.write.subresource.clone_from(&target.subresource);
        let (object, mut warnings) = decoded(kind, &body.json, said.validation)?;
        warnings.splice(..0, repeated(kind, body.repeated, said.validation)?);
        if kind.namespaced {
            let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            if !namespace.is_empty() && namespace != target.namespace {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
        check_name(&object, &target.namespace, &target.name)?;
        let registry = &target.registry;
        let (namespace, name) = (&target.namespace, &target.name);
        let written = match target.subresource.as_str() {
            "finalize" => registry.finalize(kind, name, object, &said.write).await?,
            _ => registry.update(kind, namespace, name, object, &said.write).await?,
        };
        warnings.extend(written.warnings.iter().cloned());
        self.written_response(kind, &written, asked, wanted, &warnings)
    }

    fn written_response(
        &self,
        kind: &Kind,
        written: &Written,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
        self.object_response(kind, &written.object, asked, wanted, code, warnings)
    }

    async fn patch(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let ReadPatch { patch, options: mut said, mut warnings } = read_of_patch(asked, part(target), body).await?;
        said.write.subresource.clone_from(&target.subresource);
        let kind = &target.kind;
        let registry = &target.registry;
        let (namespace, name) = (&target.namespace, &target.name);
        let written = registry.patch(kind, namespace, name, &patch, said.validation, &said.write).await?;
        warnings.extend_from_slice(&written.warnings);
        self.written_response(kind, &written, asked, wanted, &warnings)
    }

    async fn delete(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = &target.kind;
        let body = read_json(asked.headers, body).await?;
        let (options, accepts) = of_delete(asked.query, &body)?;
        let deleted = target.registry.delete(kind, &target.namespace, &target.name, &options).await?;
        let code = if !deleted.gone && accepts { StatusCode::ACCEPTED } else { StatusCode::OK };
        if !deleted.gone || is_shown_when_gone(kind) {
            return self.object_response(kind, &deleted.object, asked, wanted, code, &[]);
        }
        Ok(answered(success(kind, &deleted).to_string().into_bytes(), code, &[]))
    }

    async fn delete_collection(
        &self,
        target: &Target,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let kind = &target.kind;
        let gvr = Gvr::new(&kind.group, &kind.version, &kind.plural);
        let body = read_json(asked.headers, body).await?;
        let which = Options::parse(asked.query, false, &gvr)?;
        selectable(kind, asked.query)?;
        let (options, _) = of_delete(asked.query, &body)?;
        let form = self.form(kind, asked, wanted, true)?;
        let which = list_options(&which, &target.name);
        let list = target.registry.delete_collection(kind, &target.namespace, &which, &options).await?;
        Ok(respond(list, &form, &gvr))
    }
}

impl ApiServer {
    /// Admits a question; another object is admitted when it is made.
    ///
    /// Errors: the whole answer.
    async fn admit_question(&self, target: &Target, object: Value, options: &WriteOptions) -> Result<Value, Status> {
        let kind = &target.kind;
        let is_question = kind.verbs == ["create"] && kind.plural != "bindings" && is_built_in(&kind.group);
        if !is_question {
            return Ok(object);
        }
        let object_type = Gvk::new(&kind.group, &kind.version, &kind.kind);
        Box::pin(target.registry.admit_posted(kind, &target.namespace, object_type, object, options)).await
    }
}

/// What of the object a path is about.
fn part(target: &Target) -> Part {
    if target.subresource == "status" { Part::Status } else { Part::Whole }
}

/// An object out of a body, with warnings.
///
/// Errors: 400.
pub(super) fn decoded(kind: &Kind, body: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>), Status> {
    let Some(typed) = kind.types.named(&kind.type_name) else {
        return Err(Status::internal(format!("the type {} is not known", Quoted(&kind.type_name))));
    };
    let expected = Expected { group: &kind.group, version: &kind.version, kind: &kind.kind, typed };
    let decoded = read_body(expected, body, validation).map_err(|error| Status::bad_request(error.to_string()))?;
    Ok((decoded.object, decoded.findings))
}

/// The warnings of keys that stand twice in YAML.
///
/// Errors: 400 where that is forbidden.
fn repeated(kind: &Kind, keys: Vec<String>, validation: FieldValidation) -> Result<Vec<String>, Status> {
    validation.judge(keys).map_err(|StrictError(keys)| {
        let all = StrictError(vec![unmarshal_errors(&keys)]);
        let (kind, version) = (&kind.kind, Quoted(&kind.version));
        Status::bad_request(format!("{kind} in version {version} cannot be handled as a {kind}: {all}"))
    })
}

fn unmarshal_errors(keys: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", keys.join("\n  "))
}

/// Source: kubernetes/apiserver `pkg/endpoints/handlers/rest.go`, `dedupOwnerReferencesAndAddWarning`.
fn owner_warnings(object: &Value) -> Option<String> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let mut doubled = Vec::new();
    for (at, owner) in owners.iter().enumerate() {
        let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
        if owners.iter().take(at).any(|other| other == owner) && !doubled.contains(&uid) {
            doubled.push(uid);
        }
    }
    (!doubled.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            doubled.join(", ")
        )
    })
}

/// A patch with what the request says of it.
pub(super) struct ReadPatch {
    pub(super) patch: Patch,
    pub(super) options: RequestOptions,
    /// Of keys that stand twice in YAML.
    warnings: Vec<String>,
}

/// Errors: 400, 413, 415, 422.
pub(super) async fn read_of_patch(asked: RequestContext<'_>, part: Part, body: Body) -> Result<ReadPatch, Status> {
    let media = media_type(asked.headers);
    let of = if media == "application/apply-patch+yaml" { Of::Apply } else { Of::Patch };
    let ReadBody { json: body, repeated } = read_patch(asked.headers, body).await?;
    let options = RequestOptions::read(asked.query, asked.headers, of, part)?;
    let warnings = options.validation.judge(repeated).map_err(|StrictError(keys)| {
        let why = unmarshal_errors(&keys);
        Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {why}"))
    })?;
    let patch = match media {
        "application/json-patch+json" => Patch::Json(body),
        "application/merge-patch+json" => Patch::Merge(body),
        "application/strategic-merge-patch+json" => Patch::Strategic(body),
        _ => Patch::Apply { object: applied(&body)?, force: options.force },
    };
    Ok(ReadPatch { patch, options, warnings })
}

fn media_type(headers: &HeaderMap) -> &str {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim()
}

fn applied(body: &Bytes) -> Result<Value, Status> {
    let object: Value =
        serde_json::from_slice(body).map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
    if object.is_object() {
        return Ok(object);
    }
    Err(Status::bad_request(
        "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
    ))
}

fn is_shown_when_gone(kind: &Kind) -> bool {
    SHOWN_WHEN_GONE.contains(&(kind.group.as_str(), kind.plural.as_str()))
        || (kind.group == "storage.k8s.io" && SHOWN_WHEN_GONE_TOO.contains(&kind.plural.as_str()))
}

/// What a kube-apiserver says of an object that is gone.
fn success(kind: &Kind, deleted: &Deleted) -> Value {
    let value = deleted.object.value();
    let text = |name: &str| value.pointer(&format!("/metadata/{name}")).cloned().unwrap_or_default();
    let mut details = json!({"name": text("name")});
    if !kind.group.is_empty() {
        details["group"] = kind.group.as_str().into();
    }
    details["kind"] = kind.plural.as_str().into();
    details["uid"] = text("uid");
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// 201 of what makes no object.
pub(super) fn created() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    answered(status.to_string().into_bytes(), StatusCode::CREATED, &[])
}
