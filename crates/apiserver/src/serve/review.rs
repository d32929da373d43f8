//! Questions that are answered and not stored: who am I, may I. Everybody may everything here.
//!
//! Source: kubernetes `pkg/registry/authentication/`, `pkg/registry/authorization/`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kinds::{Kind, put},
    schema::Types,
    serve::{ApiServer, context::RequestContext},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::status::Status;

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
    /// Answers a question; `None`: the kind is none of questions.
    ///
    /// Errors: 400.
    pub(super) fn review(
        &self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        asked: RequestContext<'_>,
    ) -> Result<Option<Value>, Status> {
        if !matches!(kind.group.as_str(), AUTHENTICATION | AUTHORIZATION) {
            return Ok(None);
        }
        let caller = asked.parts.extensions.get::<Caller>().cloned().unwrap_or_default();
        let user = json!({"username": caller.user, "groups": caller.groups});
        let status = match kind.kind.as_str() {
            "SelfSubjectReview" => json!({"userInfo": user}),
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            "LocalSubjectAccessReview" | "SelfSubjectAccessReview" | "SubjectAccessReview" => {
                if kind.namespaced {
                    let said = object.pointer("/spec/resourceAttributes/namespace").and_then(Value::as_str);
                    if said != Some(namespace) {
                        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
                        return Err(Status::bad_request(message));
                    }
                }
                json!({"allowed": true})
            }
            _ => return Ok(None),
        };
        let metadata = object.get("metadata").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        put(&mut object, "metadata", Some(metadata));
        put(&mut object, "status", Some(status));
        Ok(Some(object))
    }
}
