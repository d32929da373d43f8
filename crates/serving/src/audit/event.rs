//! An event of the audit log: `audit.k8s.io/v1`, level `Metadata`.
//!
//! Source: kubernetes/apiserver `pkg/apis/audit/v1/types.go`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::caller::Caller;
use kubefold_wire::{info::RequestInfo, status::Failure};

/// When in a request's life an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(super) enum Stage {
    /// It has come, and its caller is known.
    RequestReceived,
    /// The head of the answer to a watch, a log or a tunnel goes out.
    ResponseStarted,
    /// The answer is over.
    ResponseComplete,
    /// The code that should have answered panicked.
    Panic,
}

/// An event, as it is written.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User>,
    #[serde(rename = "sourceIPs")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus>,
    pub(super) request_received_timestamp: Micros,
    pub(super) stage_timestamp: Micros,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

impl Event {
    pub(super) fn new(audit_id: &str, request_uri: String, info: &RequestInfo, source_ips: Vec<String>) -> Self {
        let now = Micros::now();
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: audit_id.to_owned(),
            stage: Stage::RequestReceived,
            request_uri,
            verb: info.verb.clone(),
            user: User::default(),
            impersonated_user: None,
            source_ips,
            user_agent: String::new(),
            object_ref: ObjectRef::of(info),
            response_status: None,
            request_received_timestamp: now,
            stage_timestamp: now,
            annotations: BTreeMap::new(),
        }
    }
}

/// Who asks.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl From<&Caller> for User {
    fn from(caller: &Caller) -> Self {
        let Caller { user, groups, uid, extra, domain: _ } = caller;
        Self { username: user.clone(), uid: uid.clone(), groups: groups.clone(), extra: extra.clone() }
    }
}

/// The object that a request is about.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef {
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

impl ObjectRef {
    fn of(info: &RequestInfo) -> Option<Self> {
        info.is_resource_request.then(|| Self {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            api_group: info.api_group.clone(),
            api_version: info.api_version.clone(),
            subresource: info.subresource.clone(),
        })
    }
}

/// How it was answered.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ResponseStatus {
    metadata: BTreeMap<(), ()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    code: u16,
}

impl ResponseStatus {
    /// `failure` is the `Status` in the answer, where this server wrote it.
    pub(super) fn new(code: u16, failure: Option<&Failure>) -> Self {
        let is_failure = code >= 400;
        Self {
            metadata: BTreeMap::new(),
            status: is_failure.then_some("Failure"),
            message: failure.map(|failure| failure.message.clone()),
            reason: failure.map(|failure| failure.reason.clone()).filter(|reason| !reason.is_empty()),
            code,
        }
    }
}

/// A `metav1.MicroTime`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(Timestamp);

impl Micros {
    pub(super) fn now() -> Self {
        Self(Timestamp::now())
    }
}

impl Serialize for Micros {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
    }
}
