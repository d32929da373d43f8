//! The rules of one version of a definition, and what of an object breaks them.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/validation.go`.

use std::collections::HashMap;

use kubefold_wire::{access::text, golang, status::Cause};
use serde_json::Value;

use super::{
    program::{CompileError, Failure, Program, Seen},
    rules_of, schemas,
    types::Type,
};
use crate::schema::bad_value;

/// What all rules of one object may cost. Source: kubernetes/apiserver `pkg/apis/cel/config.go` `RuntimeCELCostBudget`.
const COST_MAX: u64 = 10_000_000;
/// Units: bytes.
const MESSAGE_MAX: usize = 5 * 1024;

/// The rules of a schema and of all in it, ready to run.
pub(crate) struct Rules {
    schema: Value,
    rules: Vec<Rule>,
    properties: Vec<(String, Self)>,
    values: Option<Box<Self>>,
    items: Option<Box<Self>>,
    /// The fields by which an item of a list is the one that it was.
    keys: Vec<String>,
}

struct Rule {
    source: String,
    message: String,
    reason: String,
    field_path: Option<String>,
    is_optional: bool,
    /// One that was stored unchecked, or by another version, may not compile.
    program: Result<Program, CompileError>,
    message_program: Option<Program>,
}

/// What one object's rules have found and may still cost.
struct Run {
    found: Vec<Cause>,
    left: u64,
    is_over: bool,
}

impl Rules {
    /// The rules of a structural schema without faults; `None`: there are none.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        Self::at(schema, true)
    }

    fn at(schema: &Value, is_root: bool) -> Option<Self> {
        let inside = |name: &str| schema.get(name).filter(|of| of.is_object()).and_then(|of| Self::at(of, false));
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let rules = Self {
            rules: rules_of(schema).iter().map(|rule| Rule::of(rule, schema, is_root)).collect(),
            properties: properties.filter_map(|(name, of)| Some((name.clone(), Self::at(of, false)?))).collect(),
            values: inside("additionalProperties").map(Box::new),
            items: inside("items").map(Box::new),
            keys: match text(schema, "/x-kubernetes-list-type") {
                "map" => {
                    kubefold_wire::access::texts(schema, "/x-kubernetes-list-map-keys").map(str::to_owned).collect()
                }
                _ => Vec::new(),
            },
            schema: if rules_of(schema).is_empty() { Value::Null } else { schema.clone() },
        };
        let is_empty = rules.rules.is_empty() && rules.properties.is_empty();
        (!is_empty || rules.values.is_some() || rules.items.is_some()).then_some(rules)
    }

    /// What of an object breaks the rules. What did before and is as it was stays.
    pub(crate) fn broken(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut run = Run { found: Vec::new(), left: COST_MAX, is_over: false };
        self.run(&mut run, "", object, old, old == Some(object));
        run.found
    }

    fn run(&self, run: &mut Run, path: &str, value: &Value, old: Option<&Value>, is_same: bool) {
        if value.is_null() || run.is_over {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        let is_same = is_same || old == Some(value);
        let seen = Seen::new(&self.schema, value, old);
        for rule in &self.rules {
            rule.run(run, path, &seen, is_same);
            if run.is_over {
                return;
            }
        }
        let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Array(items) => {
                let Some(rules) = &self.items else { return };
                let before = self.by_keys(old);
                for (index, item) in items.iter().enumerate() {
                    let before = before.get(&self.keys_of(item)).copied();
                    rules.run(run, &format!("{path}[{index}]"), item, before, is_same);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let before = old.and_then(|old| old.get(name));
                    if let Some(rules) = &self.values {
                        rules.run(run, &format!("{path}[{name}]"), field, before, is_same);
                    }
                    if let Some((_, rules)) = self.properties.iter().find(|(known, _)| known == name) {
                        rules.run(run, &at(name), field, before, is_same);
                    }
                }
            }
            _ => {}
        }
    }

    /// The former items of a list by what they are told apart by; none where nothing tells them apart.
    fn by_keys<'v>(&self, old: Option<&'v Value>) -> HashMap<Vec<Option<&'v Value>>, &'v Value> {
        let items = old.filter(|_| !self.keys.is_empty()).and_then(Value::as_array);
        items.into_iter().flatten().map(|item| (self.keys_of(item), item)).collect()
    }

    fn keys_of<'v>(&self, item: &'v Value) -> Vec<Option<&'v Value>> {
        self.keys.iter().map(|key| item.get(key)).collect()
    }
}

impl Rule {
    fn of(rule: &Value, schema: &Value, is_root: bool) -> Self {
        let scope = &schemas::type_of_self(schema, is_root);
        let is_optional = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
        let expression = text(rule, "/messageExpression");
        Self {
            source: text(rule, "/rule").trim().to_owned(),
            message: text(rule, "/message").trim().to_owned(),
            reason: text(rule, "/reason").to_owned(),
            field_path: field_path(text(rule, "/fieldPath"), schema).filter(|path| !path.is_empty()),
            is_optional,
            program: Program::compile(text(rule, "/rule"), scope, is_optional, &Type::Bool),
            message_program: Program::compile(expression, scope, is_optional, &Type::Text).ok(),
        }
    }

    fn shown(&self) -> &str {
        if self.message.is_empty() { &self.source } else { &self.message }
    }

    fn run(&self, run: &mut Run, path: &str, seen: &Seen<'_>, is_same: bool) {
        let place = if path.is_empty() { "<nil>" } else { path };
        let kind = golang::quoted(text(seen.schema, "/type"));
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => {
                run.found.push(Cause::invalid(place, &kind, &format!("rule compile error: {}", error.of_rule())));
                return;
            }
        };
        if program.uses_old && seen.old.is_none() && !self.is_optional {
            return;
        }
        let shown = self.shown();
        let (holds, cost) = program.holds(seen);
        let why = match holds {
            Err(Failure::TooCostly) => {
                run.is_over = true;
                let why = "no further validation rules will be run due to call cost exceeds limit for rule";
                format!("'{}': {why}: {shown}", Failure::TooCostly)
            }
            _ if cost > run.left => {
                run.is_over = true;
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            }
            Err(Failure::NoOverload) => {
                let why = "call arguments did not match a supported operator, function or macro signature for rule";
                format!("'no such overload': {why}: {shown}")
            }
            Err(Failure::Other(why)) => format!("{why} evaluating rule: {shown}"),
            Ok(true) => String::new(),
            Ok(false) => {
                run.left -= cost;
                if program.uses_old || !is_same {
                    self.refuse(run, path, seen);
                }
                return;
            }
        };
        run.left = run.left.saturating_sub(cost);
        if !why.is_empty() {
            run.found.push(Cause::invalid(place, &kind, &why));
        }
    }

    fn refuse(&self, run: &mut Run, path: &str, seen: &Seen<'_>) {
        let made = self.message_program.as_ref().and_then(|program| {
            let (text, cost) = program.text(seen);
            run.left = run.left.saturating_sub(cost);
            let text = text.ok()?.trim().to_owned();
            (!text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n')).then_some(text)
        });
        let message = made.unwrap_or_else(|| match self.message.as_str() {
            "" => format!("failed rule: {}", self.source),
            said => said.to_owned(),
        });
        let path = match (&self.field_path, path) {
            (Some(more), "") => more.clone(),
            (Some(more), path) => format!("{path}.{more}"),
            (None, "") => "<nil>".to_owned(),
            (None, path) => path.to_owned(),
        };
        let is_whole = matches!(text(seen.schema, "/type"), "object" | "array");
        run.found.push(match self.reason.as_str() {
            "FieldValueForbidden" => Cause::forbidden(path, &message),
            "FieldValueRequired" => Cause::required(path, &message),
            "FieldValueDuplicate" => {
                let value = if is_whole { String::new() } else { format!(": {}", bad_value(seen.new)) };
                Cause::new("FieldValueDuplicate", path, format!("Duplicate value{value}"))
            }
            _ if is_whole => Cause::new("FieldValueInvalid", path, format!("Invalid value: {message}")),
            _ => Cause::invalid(path, &bad_value(seen.new), &message),
        });
    }
}

/// A path such as `.spec['my-field']` as errors show it; `None`: it leads nowhere in the schema.
pub(super) fn field_path(path: &str, schema: &Value) -> Option<String> {
    let (mut rest, mut at, mut out) = (path, schema, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            (name, rest) = quoted.split_once("']")?;
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            (name, rest) = plain.split_at(end);
        }
        if let Some(properties) = at.get("properties") {
            at = properties.get(name)?;
            out = if out.is_empty() { name.to_owned() } else { format!("{out}.{name}") };
        } else {
            at = at.get("additionalProperties").filter(|values| values.is_object())?;
            out = format!("{out}[{name}]");
        }
    }
    Some(out)
}
