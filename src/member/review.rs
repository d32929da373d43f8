//! What a member says of what a caller may do: a `SelfSubjectAccessReview` in that caller's name.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    member::{
        Member,
        call::{Answer, Call},
    },
    upstream::Class,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{path::ApiPath, resource::Gvr};

/// Something that somebody wants to do, in a member's terms: the attributes of a `SubjectAccessReview`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Action {
    /// `list`.
    pub verb: String,
    /// The group; empty is core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural resource.
    pub resource: String,
    /// `log`; empty for none.
    pub subresource: String,
    /// Empty for all, and for cluster-scoped kinds.
    pub namespace: String,
    /// The name in the member; empty for all.
    pub name: String,
    /// The path of what is no resource; empty for resources.
    pub path: String,
    /// The field selector of a list or watch, in the member's terms; empty for none.
    pub fields: String,
    /// The label selector, likewise.
    pub labels: String,
}

const VERSION: &str = "authorization.k8s.io/v1";
const NO_REVIEW: &str = "its answer is no review of what it was asked";
/// Questions to one member at once; others wait for their turn.
pub(super) const REVIEWS_MAX: usize = 64;

/// A member's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is allowed.
    Allowed,
    /// It is not. The text says why, if the member does; it may be empty.
    Denied(Arc<str>),
    /// The member did not say. The text says what it did instead.
    Unknown(Arc<str>),
}

impl Action {
    /// The same with all names, where it names one. `None`: it names nothing, or whom somebody wants to be.
    pub fn of_all_names(&self) -> Option<Self> {
        let has_name = !self.name.is_empty() && self.verb != "impersonate";
        let all = Self { name: String::new(), fields: String::new(), labels: String::new(), ..self.clone() };
        has_name.then_some(all)
    }

    /// Says whether a review is one of this: a kube-apiserver repeats what it was asked. Whatever stands before one may answer
    /// with a page of its own, or with what another question was answered.
    fn is_of(&self, review: &Value, asked: &Value) -> bool {
        let attributes = ["resourceAttributes", "nonResourceAttributes"];
        let same = |what: &str| {
            let (asked, told) = (&asked["spec"][what], &review["spec"][what]);
            // Selectors are for members that know them.
            let asked = asked.as_object().into_iter().flatten().filter(|(key, _)| !key.ends_with("Selector"));
            asked.into_iter().all(|(key, value)| told.get(key).map_or(*value == "", |told| told == value))
        };
        review["kind"] == asked["kind"] && attributes.into_iter().all(same)
    }

    fn review(&self) -> Value {
        json!({"apiVersion": VERSION, "kind": "SelfSubjectAccessReview", "spec": self.attributes()})
    }

    /// The question whether somebody else may do that, for whoever may ask about others.
    pub fn review_of(&self, caller: &Caller) -> Value {
        let mut spec = self.attributes();
        spec["user"] = json!(caller.user);
        spec["groups"] = json!(caller.groups);
        spec["uid"] = json!(caller.uid.as_deref().unwrap_or_default());
        spec["extra"] = json!(caller.extra);
        json!({"apiVersion": VERSION, "kind": "SubjectAccessReview", "spec": spec})
    }

    fn attributes(&self) -> Value {
        let mut resource = json!({
            "verb": self.verb, "group": self.group, "version": self.version, "resource": self.resource,
            "subresource": self.subresource, "namespace": self.namespace, "name": self.name,
        });
        // The member reads them as it reads those of a list, and gives its authorizers the requirements in them.
        // Source: kubernetes/kubernetes `pkg/registry/authorization/util/helpers.go` (KEP-4601).
        for (what, selector) in [("fieldSelector", &self.fields), ("labelSelector", &self.labels)] {
            if !selector.is_empty() {
                resource[what] = json!({"rawSelector": selector});
            }
        }
        match self.path.as_str() {
            "" => json!({"resourceAttributes": resource}),
            path => json!({"nonResourceAttributes": {"verb": self.verb, "path": path}}),
        }
    }

    /// What the answer to a question about this says.
    pub fn judged(&self, asked: &Value, body: &[u8]) -> Judgement {
        let review: Value = serde_json::from_slice(body).unwrap_or_default();
        if !self.is_of(&review, asked) {
            return Judgement::Unknown(NO_REVIEW.into());
        }
        let status = &review["status"];
        let text = |what: &str| status[what].as_str().unwrap_or_default();
        match (status["allowed"].as_bool(), status["denied"].as_bool().unwrap_or_default()) {
            (Some(true), false) => Judgement::Allowed,
            // Who decides could not be asked, in part: a request itself would be an internal error.
            (Some(false), false) if !text("evaluationError").is_empty() => {
                Judgement::Unknown(text("evaluationError").into())
            }
            (Some(_), _) => Judgement::Denied(text("reason").into()),
            (None, _) => Judgement::Unknown(NO_REVIEW.into()),
        }
    }
}

/// Asks a member whether it lets `caller` do that.
///
/// Cancel: safe; nothing is stored.
pub async fn judge(member: &Member, caller: &Caller, action: &Action) -> Judgement {
    let asked = action.review();
    let call = Call {
        method: Method::POST,
        path: ApiPath::of(&Gvr::new("authorization.k8s.io", "v1", "selfsubjectaccessreviews")),
        query: String::new(),
        body: Bytes::from(asked.to_string()),
        content_type: String::new(),
        user_agent: None,
    };
    let Ok(_turn) = member.reviews.acquire().await else { return Judgement::Unknown("kubefold is going".into()) };
    match member.call_in(Class::Review, Some(caller), call).await {
        Answer::Answered { code, body, .. } if code.is_success() => action.judged(&asked, &body),
        // Whoever may not even ask, and whom kubefold may not impersonate there.
        Answer::Answered { code: StatusCode::FORBIDDEN, body, .. } => {
            let status: Value = serde_json::from_slice(&body).unwrap_or_default();
            Judgement::Denied(status["message"].as_str().unwrap_or_default().into())
        }
        Answer::Answered { code, .. } => Judgement::Unknown(format!("it answered {code}").into()),
        Answer::NotSent(cause) | Answer::Unknown(cause) => Judgement::Unknown(cause.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(action: &Action, body: &[u8]) -> Judgement {
        action.judged(&action.review(), body)
    }

    fn pods() -> Action {
        let text = str::to_owned;
        Action { verb: text("list"), version: text("v1"), resource: text("pods"), ..Action::default() }
    }

    #[test]
    fn only_a_clear_yes_allows() {
        let of = |status: Value| {
            let mut review = pods().review();
            review["status"] = status;
            said(&pods(), review.to_string().as_bytes())
        };
        let unknown = |why: &str| Judgement::Unknown(why.into());
        assert_eq!(of(json!({"allowed": true, "reason": "RBAC"})), Judgement::Allowed);
        assert_eq!(of(json!({"allowed": true, "denied": true, "reason": "no"})), Judgement::Denied("no".into()));
        assert_eq!(of(json!({"allowed": false})), Judgement::Denied("".into()));
        assert_eq!(of(json!({"allowed": false, "evaluationError": "webhook"})), unknown("webhook"));
        let in_part = json!({"allowed": false, "reason": "RBAC: no rule", "evaluationError": "webhook"});
        assert_eq!(of(in_part), unknown("webhook"));
        assert_eq!(of(json!({"allowed": false, "reason": "no rule"})), Judgement::Denied("no rule".into()));
        for nonsense in [json!({}), json!({"allowed": "yes"}), json!(null)] {
            assert_eq!(of(nonsense), unknown(NO_REVIEW));
        }
        assert_eq!(said(&pods(), b"<html>"), unknown(NO_REVIEW));
    }

    #[test]
    fn a_yes_to_another_question_is_none() {
        let path = Action { verb: "get".to_owned(), path: "/metrics".to_owned(), ..Action::default() };
        let named = Action { name: "web".to_owned(), fields: "metadata.name=web".to_owned(), ..pods() };
        for (asked, told) in [
            (pods(), Action { resource: "secrets".to_owned(), ..pods() }),
            (pods(), Action { namespace: "shop".to_owned(), ..pods() }),
            (named.clone(), pods()),
            (path.clone(), Action { path: "/healthz".to_owned(), ..path.clone() }),
            (pods(), path.clone()),
            (path, pods()),
        ] {
            let mut review = told.review();
            review["status"] = json!({"allowed": true});
            assert!(matches!(said(&asked, review.to_string().as_bytes()), Judgement::Unknown(_)), "{told:?}");
            assert_eq!(said(&told, review.to_string().as_bytes()), Judgement::Allowed);
            review["kind"] = json!("SelfSubjectRulesReview");
            assert!(matches!(said(&told, review.to_string().as_bytes()), Judgement::Unknown(_)));
        }
        // A member leaves out empty fields. One that does not know selectors does not repeat them.
        let mut review = json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": true}});
        review["spec"]["resourceAttributes"] =
            json!({"verb": "list", "version": "v1", "resource": "pods", "name": "web"});
        assert_eq!(said(&named, review.to_string().as_bytes()), Judgement::Allowed);
    }
}
