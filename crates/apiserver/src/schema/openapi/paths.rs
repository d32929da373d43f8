//! What can be done where.

use serde_json::{Map, Value, json};

use super::{JSON, Served, Spec};

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCHES: [&str; 4] =
    ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json", STRATEGIC];

const WRITING: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCHING: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETING: &[&str] = &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
const LISTING: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// The paths of kinds, with their operations.
pub(super) fn paths(spec: Spec, served: &[Served<'_>]) -> Value {
    let mut paths = Map::new();
    for one in served {
        let base = format!("/{}", one.root());
        let collection = if one.namespaced {
            let all = Writer { spec, served: one, scope: "", below: None };
            let operations = all.operations(&[("list", "get")]);
            paths.insert(format!("{base}/{}", one.plural), all.path(operations, false));
            format!("{base}/namespaces/{{namespace}}/{}", one.plural)
        } else {
            format!("{base}/{}", one.plural)
        };
        let scope = if one.namespaced { "Namespaced" } else { "" };
        let writer = Writer { spec, served: one, scope, below: None };
        let operations = writer.operations(&[("list", "get"), ("create", "post"), ("deletecollection", "delete")]);
        paths.insert(collection.clone(), writer.path(operations, false));
        let verbs = [("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete")];
        paths.insert(format!("{collection}/{{name}}"), writer.path(writer.operations(&verbs), true));
        for (name, verbs_there) in one.subresources {
            let writer = Writer { spec, served: one, scope, below: Some((name, verbs_there)) };
            let verbs = [("get", "get"), ("create", "post"), ("update", "put"), ("patch", "patch")];
            paths.insert(format!("{collection}/{{name}}/{name}"), writer.path(writer.operations(&verbs), true));
        }
    }
    paths.retain(|_, operations| operations.as_object().is_some_and(|path| path.keys().any(|key| key != "parameters")));
    Value::Object(paths)
}

struct Writer<'a> {
    spec: Spec,
    served: &'a Served<'a>,
    /// `Namespaced` or nothing.
    scope: &'static str,
    /// A subresource with its verbs.
    below: Option<(&'a str, &'a [String])>,
}

impl Writer<'_> {
    fn path(&self, mut operations: Map<String, Value>, named: bool) -> Value {
        let mut parameters = Vec::new();
        let mut parameter = |name: &str| {
            parameters.push(match self.spec {
                Spec::V2 => json!({"in": "path", "name": name, "required": true, "type": "string"}),
                Spec::V3 => json!({"in": "path", "name": name, "required": true, "schema": {"type": "string"}}),
            });
        };
        if named {
            parameter("name");
        }
        if !self.scope.is_empty() {
            parameter("namespace");
        }
        if !operations.is_empty() && !parameters.is_empty() {
            operations.insert("parameters".to_owned(), parameters.into());
        }
        Value::Object(operations)
    }

    /// Those of some verbs that there are, by their methods.
    fn operations(&self, verbs: &[(&str, &str)]) -> Map<String, Value> {
        let known = self.below.map_or(self.served.verbs, |(_, verbs)| verbs);
        let there = verbs.iter().filter(|(verb, _)| known.iter().any(|known| known == verb));
        there.map(|(verb, method)| ((*method).to_owned(), self.operation(verb, method))).collect()
    }

    fn operation(&self, verb: &str, method: &str) -> Value {
        let (words, names): (&str, &[&str]) = match verb {
            "list" => ("list", LISTING),
            "create" => ("create", WRITING),
            "deletecollection" => ("deleteCollection", DELETING),
            "update" => ("replace", WRITING),
            "patch" => ("patch", PATCHING),
            "delete" => ("delete", DELETING),
            _ => ("read", &[]),
        };
        let answer = match verb {
            "list" => self.served.list_name(),
            "delete" | "deletecollection" => STATUS.to_owned(),
            _ => self.served.type_name.to_owned(),
        };
        let body = match verb {
            "create" | "update" => Some(self.served.type_name),
            "delete" | "deletecollection" => Some(DELETE_OPTIONS),
            _ => None,
        };
        let mut parameters: Vec<Value> = names.iter().map(|name| self.query(name)).collect();
        let mut out = Map::new();
        let tag = self.tag();
        let action = match verb {
            "create" => "post",
            "update" => "put",
            other => other,
        };
        out.insert("operationId".to_owned(), self.id(words).into());
        out.insert("tags".to_owned(), json!([tag]));
        self.body(body, verb, &mut parameters, &mut out);
        out.insert("parameters".to_owned(), parameters.into());
        out.insert("responses".to_owned(), self.responses(&answer, method));
        out.insert("x-kubernetes-action".to_owned(), action.into());
        out.insert("x-kubernetes-group-version-kind".to_owned(), self.served.kind_value());
        Value::Object(out)
    }

    fn body(&self, body: Option<&str>, verb: &str, parameters: &mut Vec<Value>, out: &mut Map<String, Value>) {
        let schema = match body {
            Some(name) => json!({"$ref": self.spec.reference(name)}),
            None if verb == "patch" => json!({"type": "object"}),
            None => return,
        };
        match self.spec {
            Spec::V2 => parameters.insert(0, json!({"in": "body", "name": "body", "schema": schema})),
            Spec::V3 => {
                // kubectl applies by what it reads here: a custom resource has no strategic merge patch.
                let is_custom = self.served.schema.is_some();
                let patches = PATCHES.into_iter().filter(|media| !is_custom || *media != STRATEGIC);
                let media: Vec<&str> = if verb == "patch" { patches.collect() } else { vec!["*/*"] };
                let content: Map<_, _> =
                    media.into_iter().map(|media| (media.to_owned(), json!({"schema": schema}))).collect();
                out.insert("requestBody".to_owned(), json!({"content": content}));
            }
        }
    }

    fn query(&self, name: &str) -> Value {
        let kind = match name {
            "allowWatchBookmarks" | "force" | "orphanDependents" | "sendInitialEvents" | "watch" => "boolean",
            "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
            _ => "string",
        };
        match self.spec {
            Spec::V2 => json!({"in": "query", "name": name, "type": kind, "uniqueItems": true}),
            Spec::V3 => json!({"in": "query", "name": name, "schema": {"type": kind, "uniqueItems": true}}),
        }
    }

    fn responses(&self, answer: &str, method: &str) -> Value {
        let schema = json!({"$ref": self.spec.reference(answer)});
        let of = |words: &str| match self.spec {
            Spec::V2 => json!({"description": words, "schema": schema}),
            Spec::V3 => json!({"description": words, "content": {JSON: {"schema": schema}}}),
        };
        let mut out = Map::from_iter([("200".to_owned(), of("OK"))]);
        if matches!(method, "post" | "put" | "patch") {
            out.insert("201".to_owned(), of("Created"));
        }
        out.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        Value::Object(out)
    }

    /// Such as `apps_v1`, `core_v1`.
    fn tag(&self) -> String {
        format!("{}_{}", lower_first(&self.group_words()), self.served.version)
    }

    /// `RbacAuthorization` of `rbac.authorization.k8s.io`.
    fn group_words(&self) -> String {
        let group = self.served.group.strip_suffix(".k8s.io").unwrap_or(self.served.group);
        let group = if group.is_empty() { "core" } else { group };
        group.split(['.', '-']).map(upper_first).collect()
    }

    /// Such as `createAppsV1NamespacedDeployment`.
    fn id(&self, words: &str) -> String {
        let below = self.below.map(|(name, _)| upper_first(name)).unwrap_or_default();
        let version = upper_first(self.served.version);
        let everywhere =
            if words == "list" && self.served.namespaced && self.scope.is_empty() { "ForAllNamespaces" } else { "" };
        format!("{words}{}{version}{}{}{below}{everywhere}", self.group_words(), self.scope, self.served.kind)
    }
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
