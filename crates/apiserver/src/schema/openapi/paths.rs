//! What can be done where.

use serde_json::{Map, Value, json};

use super::{JSON, Part, Served, Spec};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Answers of a list that is a watch.
const WATCHES: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PATCHES: [&str; 4] =
    ["application/json-patch+json", "application/merge-patch+json", STRATEGIC, "application/apply-patch+yaml"];

const WRITING: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCHING: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETING: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const SELECTING: &[&str] = &[
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];
const WATCHING: &[&str] = &["allowWatchBookmarks", "watch"];

/// The paths of kinds, with their operations.
pub(super) fn paths(spec: Spec, served: &[Served<'_>]) -> Value {
    let mut paths = Map::new();
    for one in served {
        let base = format!("/{}", one.root());
        let collection = if one.namespaced {
            let all = Writer { spec, served: one, scope: "", below: None };
            paths.insert(format!("{base}/{}", one.plural), all.path(&[("list", "get")], false));
            format!("{base}/namespaces/{{namespace}}/{}", one.plural)
        } else {
            format!("{base}/{}", one.plural)
        };
        let scope = if one.namespaced { "Namespaced" } else { "" };
        let writer = Writer { spec, served: one, scope, below: None };
        let verbs = [("list", "get"), ("create", "post"), ("deletecollection", "delete")];
        paths.insert(collection.clone(), writer.path(&verbs, false));
        let verbs = [("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete")];
        paths.insert(format!("{collection}/{{name}}"), writer.path(&verbs, true));
        for part in one.subresources {
            let writer = Writer { spec, served: one, scope, below: Some(part) };
            let verbs = [("get", "get"), ("create", "post"), ("update", "put"), ("patch", "patch")];
            paths.insert(format!("{collection}/{{name}}/{}", part.name), writer.path(&verbs, true));
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
    below: Option<&'a Part<'a>>,
}

impl Writer<'_> {
    /// The operations of a path, by their methods. What all of them take stands beside them.
    fn path(&self, verbs: &[(&str, &str)], named: bool) -> Value {
        let known = self.below.map_or(self.served.verbs, |part| part.verbs);
        let there = verbs.iter().filter(|(verb, _)| known.iter().any(|known| known == verb));
        let mut operations: Vec<_> =
            there.map(|(verb, method)| (*method, self.operation(verb), self.parameters(verb, named))).collect();
        let Some((_, _, first)) = operations.first() else { return json!({}) };
        let in_all = |one: &&Value| operations.iter().all(|(_, _, parameters)| parameters.contains(one));
        let common: Vec<Value> = first.iter().filter(in_all).cloned().collect();
        let mut path = Map::new();
        for (method, operation, parameters) in &mut operations {
            parameters.retain(|one| !common.contains(one));
            if !parameters.is_empty() {
                operation.insert("parameters".to_owned(), std::mem::take(parameters).into());
            }
            path.insert((*method).to_owned(), Value::Object(std::mem::take(operation)));
        }
        path.insert("parameters".to_owned(), common.into());
        Value::Object(path)
    }

    /// Says whether a definition made the kind: a kube-apiserver has other writers for these.
    fn is_custom(&self) -> bool {
        self.served.schema.is_some()
    }

    /// In the order of their names.
    fn parameters(&self, verb: &str, named: bool) -> Vec<Value> {
        let mut names: Vec<&str> = vec!["pretty"];
        match verb {
            "list" => names.extend(SELECTING.iter().chain(WATCHING)),
            "deletecollection" if self.is_custom() => names.extend(SELECTING.iter().chain(WATCHING)),
            "deletecollection" => names.extend(SELECTING.iter().chain(DELETING)),
            "create" | "update" => names.extend(WRITING),
            "patch" => names.extend(PATCHING),
            "delete" => names.extend(DELETING),
            _ if self.is_custom() => names.push("resourceVersion"),
            _ => {}
        }
        let of_path = [("name", named), ("namespace", !self.scope.is_empty())].into_iter().filter(|(_, there)| *there);
        let mut out: Vec<(&str, Value)> = of_path.map(|(name, _)| (name, self.parameter(name, "path"))).collect();
        out.extend(names.into_iter().map(|name| (name, self.parameter(name, "query"))));
        if let (Spec::V2, Some(schema)) = (self.spec, self.body(verb)) {
            let mut body = json!({"in": "body", "name": "body", "schema": schema});
            if !is_deletion(verb) {
                body["required"] = true.into();
            }
            out.push(("body", body));
        }
        out.sort_by_key(|(name, _)| *name);
        out.into_iter().map(|(_, parameter)| parameter).collect()
    }

    fn parameter(&self, name: &str, place: &str) -> Value {
        let kind = match name {
            "allowWatchBookmarks"
            | "force"
            | "ignoreStoreReadErrorWithClusterBreakingPotential"
            | "orphanDependents"
            | "sendInitialEvents"
            | "watch" => "boolean",
            "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
            _ => "string",
        };
        let mut out = match self.spec {
            Spec::V2 => json!({"in": place, "name": name, "type": kind, "uniqueItems": true}),
            Spec::V3 => json!({"in": place, "name": name, "schema": {"type": kind, "uniqueItems": true}}),
        };
        if place == "path" {
            out["required"] = true.into();
        }
        out
    }

    /// All but the parameters.
    fn operation(&self, verb: &str) -> Map<String, Value> {
        let action = match verb {
            "create" => "post",
            "update" => "put",
            other => other,
        };
        let part = self.below.filter(|_| !self.is_custom());
        let kind = part.map_or_else(|| self.served.kind_value(), Part::kind_value);
        let mut out = Map::from_iter([
            ("description".to_owned(), self.description(verb).into()),
            ("operationId".to_owned(), self.id(verb).into()),
            ("tags".to_owned(), json!([self.tag()])),
            ("responses".to_owned(), self.responses(verb)),
            ("x-kubernetes-action".to_owned(), action.into()),
            ("x-kubernetes-group-version-kind".to_owned(), kind),
        ]);
        match (self.spec, self.body(verb)) {
            (Spec::V2, _) => {
                out.insert("consumes".to_owned(), self.consumed(verb).into());
                out.insert("produces".to_owned(), self.produced(verb).into());
                out.insert("schemes".to_owned(), json!(["https"]));
            }
            (Spec::V3, Some(schema)) => {
                let content = contents(&self.consumed(verb), &schema);
                let mut body = json!({"content": content});
                if !is_deletion(verb) {
                    body["required"] = true.into();
                }
                out.insert("requestBody".to_owned(), body);
            }
            (Spec::V3, None) => {}
        }
        out
    }

    /// Source: kubernetes/apiextensions-apiserver `pkg/controller/openapi/builder/builder.go`, `descriptionFor`.
    fn description(&self, verb: &str) -> String {
        let kind = self.served.kind;
        let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
        let part = self.below.map(|part| format!("{} of ", part.name)).unwrap_or_default();
        match verb {
            "list" if self.is_custom() => format!("list objects of kind {kind}"),
            "list" => format!("list or watch objects of kind {kind}"),
            "create" => format!("create {part}{article} {kind}"),
            "deletecollection" => format!("delete collection of {kind}"),
            "delete" => format!("delete {article} {kind}"),
            "update" => format!("replace {part}the specified {kind}"),
            "patch" => format!("partially update {part}the specified {kind}"),
            _ => format!("read {part}the specified {kind}"),
        }
    }

    /// The schema of what is sent.
    fn body(&self, verb: &str) -> Option<Value> {
        let name = match verb {
            "create" | "update" => self.type_name().to_owned(),
            "patch" => format!("{META}Patch"),
            "deletecollection" if self.is_custom() => return None,
            "delete" | "deletecollection" => format!("{META}DeleteOptions"),
            _ => return None,
        };
        Some(json!({"$ref": self.spec.reference(&name)}))
    }

    fn type_name(&self) -> &str {
        self.below.map_or(self.served.type_name, |part| part.type_name)
    }

    /// kubectl applies by what it reads here: a custom resource has no strategic merge patch.
    fn consumed(&self, verb: &str) -> Vec<&'static str> {
        match verb {
            "patch" => PATCHES.into_iter().filter(|media| !self.is_custom() || *media != STRATEGIC).collect(),
            _ if self.is_custom() => vec![JSON, YAML],
            _ => vec!["*/*"],
        }
    }

    fn produced(&self, verb: &str) -> Vec<&'static str> {
        match verb {
            _ if self.is_custom() => vec![JSON, YAML],
            "list" => [JSON, YAML, PROTOBUF].into_iter().chain(WATCHES).collect(),
            _ => vec![JSON, YAML, PROTOBUF],
        }
    }

    fn responses(&self, verb: &str) -> Value {
        let name = match verb {
            "list" => self.served.list_name(),
            "delete" | "deletecollection" => format!("{META}Status"),
            _ => self.type_name().to_owned(),
        };
        let schema = json!({"$ref": self.spec.reference(&name)});
        let of = |words: &str| match self.spec {
            Spec::V2 => json!({"description": words, "schema": schema}),
            Spec::V3 => json!({"description": words, "content": contents(&self.produced(verb), &schema)}),
        };
        let mut out = Map::from_iter([("200".to_owned(), of("OK"))]);
        if matches!(verb, "create" | "update") || (verb == "patch" && !self.is_custom()) {
            out.insert("201".to_owned(), of("Created"));
        }
        if matches!(verb, "create" | "delete") {
            out.insert("202".to_owned(), of("Accepted"));
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
    fn id(&self, verb: &str) -> String {
        let words = match verb {
            "list" | "create" | "patch" => verb,
            "update" => "replace",
            "delete" | "deletecollection" => "delete",
            _ => "read",
        };
        let below = self.below.map(|part| upper_first(part.name)).unwrap_or_default();
        let collection = if verb == "deletecollection" { "Collection" } else { "" };
        let version = upper_first(self.served.version);
        let everywhere =
            if verb == "list" && self.served.namespaced && self.scope.is_empty() { "ForAllNamespaces" } else { "" };
        let Self { scope, served: Served { kind, .. }, .. } = self;
        format!("{words}{}{version}{collection}{scope}{kind}{below}{everywhere}", self.group_words())
    }
}

fn is_deletion(verb: &str) -> bool {
    matches!(verb, "delete" | "deletecollection")
}

fn contents(media: &[&str], schema: &Value) -> Map<String, Value> {
    media.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect()
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
