//! Questions that are answered and not stored: who am I, may I. Without an authorizer everybody may everything.
//!
//! Source: kubernetes `pkg/registry/authentication/`, `pkg/registry/authorization/`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admission::user_info,
    kinds::{Kind, put},
    rbac::{Attributes, On, Resource, Rule},
    schema::Types,
    serve::ApiServer,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    access::{items, text, texts},
    golang::quoted,
    status::{Cause, Status},
};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const KINDS: [(&str, &str, &str, bool); 6] = [
    (AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", false),
    (AUTHENTICATION, "tokenreviews", "TokenReview", false),
    (AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview", true),
    (AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
    (AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
    (AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview", false),
];

/// The kinds of questions, and bindings, which are not stored either.
pub(super) fn kinds(types: &Arc<Types>) -> Vec<Kind> {
    let kind = |group: &str, plural: &str, kind: &str, namespaced: bool| {
        let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
        Kind {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            namespaced,
            verbs: vec!["create".to_owned()],
            types: Arc::clone(types),
            type_name: format!("io.k8s.api.{package}.v1.{kind}"),
            ..Kind::default()
        }
    };
    let mut kinds: Vec<Kind> =
        KINDS.iter().map(|(group, plural, name, namespaced)| kind(group, plural, name, *namespaced)).collect();
    kinds.push(kind("", "bindings", "Binding", true));
    kinds
}

impl ApiServer {
    /// Answers a question of somebody; `None`: the kind is none of questions.
    ///
    /// Errors: 400, 422.
    pub(super) fn review(
        &self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        caller: &Caller,
    ) -> Result<Option<Value>, Status> {
        if !matches!(kind.group.as_str(), AUTHENTICATION | AUTHORIZATION) {
            return Ok(None);
        }
        let status = match kind.kind.as_str() {
            "SelfSubjectReview" => json!({"userInfo": user_info(caller)}),
            "SelfSubjectRulesReview" => {
                let status = self.rules(caller, text(&object, "/spec/namespace"))?;
                // As a kube-apiserver: the answer does not say what was asked.
                for field in ["metadata", "spec"] {
                    put(&mut object, field, Some(json!({})));
                }
                status
            }
            "LocalSubjectAccessReview" | "SelfSubjectAccessReview" | "SubjectAccessReview" => {
                let said = text(&object, "/metadata/namespace");
                if kind.namespaced && !said.is_empty() && said != namespace {
                    return Err(Status::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
                let causes = faults(kind, namespace, &object);
                if !causes.is_empty() {
                    // A kube-apiserver says no kind here.
                    return Err(Status::invalid(&kind.group, "", "", causes));
                }
                self.access(kind, &object, caller)
            }
            _ => return Ok(None),
        };
        let mut metadata = object.get("metadata").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        if kind.namespaced {
            put(&mut metadata, "namespace", Some(namespace.into()));
        }
        put(&mut object, "metadata", Some(metadata));
        put(&mut object, "status", Some(status));
        Ok(Some(object))
    }

    /// May somebody do that? Of the caller himself, or of whom the question names.
    fn access(&self, kind: &Kind, object: &Value, caller: &Caller) -> Value {
        let Some(authorizer) = &self.inner.settings.authorizer else { return json!({"allowed": true}) };
        let named;
        let whose = if kind.kind == "SelfSubjectAccessReview" {
            caller
        } else {
            let groups = texts(object, "/spec/groups").map(str::to_owned).collect();
            named = Caller { user: text(object, "/spec/user").to_owned(), groups, ..Caller::default() };
            &named
        };
        let resource = |field: &str| text(object, &format!("/spec/resourceAttributes/{field}"));
        let attributes = if object.pointer(RESOURCE).is_some_and(Value::is_object) {
            let of = Resource {
                group: resource("group"),
                resource: resource("resource"),
                subresource: resource("subresource"),
                namespace: resource("namespace"),
                name: resource("name"),
            };
            Attributes::resource(resource("verb"), of)
        } else {
            let path = |field: &str| text(object, &format!("{PATH}/{field}"));
            Attributes { verb: path("verb"), on: On::Path(path("path")) }
        };
        let decision = authorizer.decide(whose, &attributes);
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            put(&mut status, "reason", Some(decision.reason.into()));
        }
        status
    }

    /// All that somebody may do in a namespace.
    ///
    /// Errors: 400.
    ///
    /// Source: kubernetes `pkg/registry/authorization/selfsubjectrulesreview/rest.go`.
    fn rules(&self, caller: &Caller, namespace: &str) -> Result<Value, Status> {
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let Some(authorizer) = &self.inner.settings.authorizer else {
            return Ok(json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }));
        };
        let (rules, error) = authorizer.rules_for(caller, namespace);
        let paths = rules.iter().filter(|rule| !rule.non_resource_urls.is_empty());
        let paths: Vec<Value> =
            paths.map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls})).collect();
        let resources = rules.iter().filter(|rule| !rule.resources.is_empty());
        let resources: Vec<Rule> =
            resources.map(|rule| Rule { non_resource_urls: Vec::new(), ..rule.clone() }).collect();
        let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
        if !error.is_empty() {
            put(&mut status, "evaluationError", Some(error.into()));
        }
        Ok(status)
    }
}

const RESOURCE: &str = "/spec/resourceAttributes";
const PATH: &str = "/spec/nonResourceAttributes";

/// What is wrong with a question about access.
///
/// Source: kubernetes `pkg/apis/authorization/validation/validation.go`.
fn faults(kind: &Kind, namespace: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut invalid = |field: &str, value: &str, why: &str| causes.push(Cause::invalid(field, value, why));
    let (resource, path) = (object.pointer(RESOURCE), object.pointer(PATH));
    let (resource, path) = (resource.filter(|value| value.is_object()), path.filter(|value| value.is_object()));
    // Go's own type of it, which has no names for JSON.
    let shown = |path: &Value| json!({"Path": text(path, "/path"), "Verb": text(path, "/verb")}).to_string();
    match (resource, path) {
        (Some(_), Some(path)) => {
            let why = "cannot be specified in combination with resourceAttributes";
            invalid("spec.nonResourceAttributes", &shown(path), why);
        }
        (None, None) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            invalid("spec.resourceAttributes", "null", why);
        }
        _ => {}
    }
    let of_somebody = kind.kind != "SelfSubjectAccessReview";
    if of_somebody && text(object, "/spec/user").is_empty() && items(object, "/spec/groups").is_empty() {
        invalid("spec.user", "\"\"", "at least one of user or group must be specified");
    }
    let may_say = |field: &String| field == "managedFields" || (kind.namespaced && field == "namespace");
    let says = object.get("metadata").and_then(Value::as_object).into_iter().flatten();
    if says.filter(|(_, value)| !value.is_null()).any(|(field, _)| !may_say(field)) {
        let why = if kind.namespaced { "must be empty except for namespace" } else { "must be empty" };
        invalid("metadata", &object.get("metadata").cloned().unwrap_or_default().to_string(), why);
    }
    if !kind.namespaced {
        return causes;
    }
    if let Some(said) = resource.map(|resource| text(resource, "/namespace")).filter(|said| *said != namespace) {
        invalid("spec.resourceAttributes.namespace", &quoted(said), "must match metadata.namespace");
    }
    if let Some(path) = path {
        invalid("spec.nonResourceAttributes", &shown(path), "disallowed on this kind of request");
    }
    causes
}
