//! Which requests are in the audit log: a kube-apiserver's `--audit-policy-file`.
//!
//! Source: kubernetes/apiserver `pkg/audit/policy/checker.go` and `reader.go`.

use serde::Deserialize;

use super::event::Stage;
use crate::caller::Caller;
use kubefold_wire::info::RequestInfo;

const API_VERSION: &str = "audit.k8s.io/v1";
/// Paths that only say that the server lives; without a file they are not logged.
const PROBES: [&str; 6] = ["/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"];

/// Which requests are logged, and at which stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum PolicyError {
    #[error("the audit policy cannot be read: {0}")]
    Form(Box<serde_saphyr::Error>),
    #[error("the audit policy is {kind} of {api_version}; write kind: Policy and apiVersion: {API_VERSION}")]
    Kind { kind: String, api_version: String },
    #[error("the audit policy has no rules; without a rule nothing would be logged")]
    Empty,
    #[error(
        "rule {number} of the audit policy has level {level}: bodies are not logged here; write None or Metadata, and have the \
         members' own audit logs keep bodies"
    )]
    Level { number: usize, level: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPolicy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde::de::IgnoredAny,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    // Of bodies, which are not logged.
    #[serde(default, rename = "omitManagedFields")]
    _omit_managed_fields: serde::de::IgnoredAny,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Rule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Resources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Default for Policy {
    /// Every request but probes, when it is over.
    fn default() -> Self {
        let probes =
            Rule { level: "None".to_owned(), non_resource_urls: PROBES.map(str::to_owned).into(), ..Rule::default() };
        let all = Rule { level: "Metadata".to_owned(), ..Rule::default() };
        Self { rules: vec![probes, all], omit_stages: vec![Stage::RequestReceived] }
    }
}

impl Policy {
    /// Reads a policy in YAML.
    ///
    /// Errors: it is none, or asks for what is not logged here.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let raw: RawPolicy = serde_saphyr::from_str(text).map_err(|error| PolicyError::Form(Box::new(error)))?;
        if raw.kind != "Policy" || raw.api_version != API_VERSION {
            return Err(PolicyError::Kind { kind: raw.kind, api_version: raw.api_version });
        }
        if raw.rules.is_empty() {
            return Err(PolicyError::Empty);
        }
        let is_known = |rule: &Rule| matches!(rule.level.as_str(), "None" | "Metadata");
        if let Some((at, rule)) = raw.rules.iter().enumerate().find(|(_, rule)| !is_known(rule)) {
            return Err(PolicyError::Level { number: at + 1, level: rule.level.clone() });
        }
        Ok(Self { rules: raw.rules, omit_stages: raw.omit_stages })
    }

    /// The stages of a request that are not logged; `None`: nothing of it is. The first rule that matches decides.
    pub(super) fn omitted(&self, caller: Option<&Caller>, info: &RequestInfo) -> Option<Vec<Stage>> {
        let rule = self.rules.iter().find(|rule| rule.matches(caller, info))?;
        (rule.level != "None").then(|| self.omit_stages.iter().chain(&rule.omit_stages).copied().collect())
    }
}

fn has(all: &[String], one: &str) -> bool {
    all.iter().any(|item| item == one)
}

impl Rule {
    fn matches(&self, caller: Option<&Caller>, info: &RequestInfo) -> bool {
        let user = caller.map_or("", |caller| caller.user.as_str());
        let groups = caller.map_or(&[][..], |caller| &caller.groups);
        if !self.users.is_empty() && !has(&self.users, user) {
            return false;
        }
        if !self.user_groups.is_empty() && !groups.iter().any(|group| has(&self.user_groups, group)) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, &info.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return self.is_about(info);
        }
        self.non_resource_urls.is_empty()
            || (!info.is_resource_request && self.non_resource_urls.iter().any(|spec| is_path(&info.path, spec)))
    }

    fn is_about(&self, info: &RequestInfo) -> bool {
        let in_namespace = self.namespaces.is_empty() || has(&self.namespaces, &info.namespace);
        info.is_resource_request
            && in_namespace
            && (self.resources.is_empty() || self.resources.iter().any(|resources| resources.have(info)))
    }
}

impl Resources {
    fn have(&self, info: &RequestInfo) -> bool {
        let RequestInfo { resource, subresource, name, .. } = info;
        if self.group != info.api_group {
            return false;
        }
        let is_it = |pattern: &String| match pattern.split_once('/') {
            _ if pattern == "*" => true,
            None => subresource.is_empty() && pattern == resource,
            Some(("*", wanted)) => !subresource.is_empty() && wanted == subresource,
            Some((wanted, "*")) => wanted == resource,
            Some((wanted, below)) => wanted == resource && below == subresource,
        };
        let is_named = self.resource_names.is_empty() || has(&self.resource_names, name);
        self.resources.is_empty() || (is_named && self.resources.iter().any(is_it))
    }
}

fn is_path(path: &str, spec: &str) -> bool {
    spec == "*" || spec == path || spec.strip_suffix('*').is_some_and(|beginning| path.starts_with(beginning))
}
