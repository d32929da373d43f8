//! Whether a caller may be somebody else in a member: the member says, for each part of whom it would be.

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::{
    member::{
        Member,
        call::{Answer, Call},
    },
    respond::ImpersonationRefused,
};
use kubefold_serving::{caller::Caller, impersonation::Impersonation};
use kubefold_wire::{golang::Quoted, path::ApiPath, resource::Gvr};

/// The group of everything about an identity but its user and groups.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// One thing that has to be allowed.
struct Part<'a> {
    group: &'static str,
    resource: &'static str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

/// Asks a member whether `caller` may be whom it asks to be.
///
/// Cancel: safe; nothing is stored.
pub async fn permit(member: &Member, caller: &Caller, wanted: &Impersonation) -> Result<(), ImpersonationRefused> {
    let parts = parts(wanted);
    let asked = parts.iter().map(|part| async move {
        let call = Call {
            method: Method::POST,
            path: ApiPath::of(&Gvr::new("authorization.k8s.io", "v1", "selfsubjectaccessreviews")),
            query: String::new(),
            body: Bytes::from(part.review().to_string()),
            content_type: String::new(),
            user_agent: None,
        };
        part.judge(member, caller, member.call(Some(caller), call).await)
    });
    // The first of them in their order: the same question has the same answer.
    join_all(asked).await.into_iter().collect()
}

fn parts(wanted: &Impersonation) -> Vec<Part<'_>> {
    let plain = |resource, name| Part { group: "", resource, subresource: "", namespace: "", name };
    let user = match wanted.service_account() {
        Some((namespace, name)) => Part { namespace, ..plain("serviceaccounts", name) },
        None => plain("users", wanted.user.as_str()),
    };
    let groups = wanted.groups.iter().map(|group| plain("groups", group.as_str()));
    let uid = wanted.uid.iter().map(|uid| Part { group: AUTHENTICATION, ..plain("uids", uid) });
    let extras = wanted.extra.iter().flat_map(|(key, values)| {
        let of = move |value| Part { group: AUTHENTICATION, subresource: key, ..plain("userextras", value) };
        values.iter().map(move |value| of(value))
    });
    std::iter::once(user).chain(groups).chain(uid).chain(extras).collect()
}

impl Part<'_> {
    fn review(&self) -> Value {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
            "verb": "impersonate", "group": self.group, "resource": self.resource, "subresource": self.subresource,
            "namespace": self.namespace, "name": self.name,
        }}})
    }

    fn judge(&self, member: &Member, caller: &Caller, answer: Answer) -> Result<(), ImpersonationRefused> {
        let unknown = |cause: String| Err(ImpersonationRefused::Unknown { member: member.name().clone(), cause });
        let is_allowed = match answer {
            Answer::Answered { code, body, .. } if code.is_success() => {
                let review: Value = serde_json::from_slice(&body).unwrap_or_default();
                match review["status"]["allowed"].as_bool() {
                    Some(is_allowed) => is_allowed,
                    None => return unknown("its answer is no review".to_owned()),
                }
            }
            // Whoever may not even ask.
            Answer::Answered { code, .. } if code == http::StatusCode::FORBIDDEN => false,
            Answer::Answered { code, .. } => return unknown(format!("it answered {code}")),
            Answer::NotSent(cause) | Answer::Unknown(cause) => return unknown(cause),
        };
        if is_allowed {
            return Ok(());
        }
        let place = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", Quoted(namespace)),
        };
        let resource = match self.subresource {
            "" => self.resource.to_owned(),
            key => format!("{}/{key}", self.resource),
        };
        let (user, name) = (caller.user.clone(), self.name.to_owned());
        Err(ImpersonationRefused::Forbidden { user, resource, group: self.group, name, place })
    }
}
