//! What is wrong with an expression before it ever runs: names of fields, variables and functions that do not exist.
//!
//! Types of arguments are not checked here: a call that no function takes fails when the rule runs.
//!
//! Source: google/cel-go `checker/checker.go`, for the words.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};
use kubefold_wire::access::text;
use serde_json::Value;

use super::values::escaped;

/// Names of types, which are values, too.
const TYPES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "cidr",
    "double",
    "duration",
    "dyn",
    "format.byte",
    "format.date",
    "format.datetime",
    "format.dns1035Label",
    "format.dns1035LabelPrefix",
    "format.dns1123Label",
    "format.dns1123LabelPrefix",
    "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix",
    "format.labelValue",
    "format.named",
    "format.qualifiedName",
    "format.uri",
    "format.uuid",
    "int",
    "ip",
    "ip.isCanonical",
    "isCIDR",
    "isIP",
    "isQuantity",
    "isSemver",
    "lists.range",
    "matches",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "optional.unwrap",
    "quantity",
    "semver",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "sign",
    "size",
    "string",
    "strings.quote",
    "timestamp",
    "type",
    "uint",
];

const METHODS: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "charAt",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "distinct",
    "endsWith",
    "family",
    "find",
    "findAll",
    "first",
    "flatten",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "indexOf",
    "ip",
    "isGlobalUnicast",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isSorted",
    "isUnspecified",
    "join",
    "last",
    "lastIndexOf",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "or",
    "orValue",
    "patch",
    "prefixLength",
    "replace",
    "reverse",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "sub",
    "substring",
    "sum",
    "trim",
    "unwrapOpt",
    "upperAscii",
    "validate",
    "value",
];

/// What is known of the type of an expression.
#[derive(Clone, Copy)]
pub(super) enum Known<'a> {
    /// Nothing.
    Dyn,
    /// Truth.
    Bool,
    /// A text.
    Text,
    /// Neither of the above, and without fields.
    Other,
    /// As a schema says.
    Of(&'a Value),
    /// A whole object.
    Root(&'a Value),
}

impl<'a> Known<'a> {
    /// The value at a place of a schema. One at the root is a whole object, and so is an embedded one.
    pub(super) fn at(schema: &'a Value, is_root: bool) -> Self {
        let is_embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        if is_root || is_embedded { Self::Root(schema) } else { Self::Of(schema) }
    }

    /// Its name, as cel-go says it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dyn => "dyn",
            Self::Bool => "bool",
            Self::Text => "string",
            Self::Other => "other",
            Self::Root(_) => "object",
            Self::Of(schema) => match text(schema, "/type") {
                "boolean" => "bool",
                "string" if matches!(text(schema, "/format"), "byte" | "date" | "date-time" | "duration") => "other",
                "string" => "string",
                "integer" => "int",
                "number" => "double",
                "array" => "list",
                "object" => "object",
                _ => "dyn",
            },
        }
    }
}

/// What is wrong, and where: units are characters.
struct Fault {
    offset: usize,
    shown: String,
}

/// One expression's check.
pub(super) struct Check<'a> {
    source: &'a SourceInfo,
    scopes: Vec<(String, Known<'a>)>,
    found: Vec<Fault>,
    /// Whether `oldSelf` is used.
    pub(super) uses_old: bool,
}

impl<'a> Check<'a> {
    pub(super) fn new(source: &'a SourceInfo, variables: Vec<(String, Known<'a>)>) -> Self {
        Self { source, scopes: variables, found: Vec::new(), uses_old: false }
    }

    /// All that is wrong; `None`: nothing.
    pub(super) fn wrong(&mut self) -> Option<String> {
        self.found.sort_by_key(|fault| fault.offset);
        let all: Vec<&str> = self.found.iter().map(|fault| fault.shown.as_str()).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    fn fault(&mut self, at: u64, why: &str) {
        let offset = self.source.offset_for(at).map_or(0, |(start, _)| start as usize);
        self.found.push(Fault { offset, shown: located(&self.source.source, offset, why) });
    }

    /// Checks an expression, and says what is known of its type.
    pub(super) fn expression(&mut self, expression: &'a IdedExpr) -> Known<'a> {
        match &expression.expr {
            Expr::Literal(LiteralValue::Boolean(_)) => Known::Bool,
            Expr::Literal(LiteralValue::String(_)) => Known::Text,
            Expr::Literal(_) | Expr::Unspecified => Known::Other,
            Expr::Ident(name) => self.variable(expression.id, name),
            Expr::Select(select) => {
                let operand = self.expression(&select.operand);
                let field = self.field(expression.id, operand, &select.field);
                if select.test { Known::Bool } else { field }
            }
            Expr::Call(call) => self.call(expression.id, call),
            Expr::List(list) => {
                for element in &list.elements {
                    self.expression(element);
                }
                Known::Other
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.expression(&entry.key);
                        self.expression(&entry.value);
                    }
                }
                Known::Dyn
            }
            Expr::Struct(made) => {
                self.fault(expression.id, &format!("undeclared reference to '{}' (in container '')", made.type_name));
                Known::Dyn
            }
            Expr::Comprehension(fold) => {
                let range = self.expression(&fold.iter_range);
                let item = self.item(expression.id, range);
                let start = self.expression(&fold.accu_init);
                let length = self.scopes.len();
                self.scopes.push((fold.accu_var.clone(), if let Known::Bool = start { start } else { Known::Dyn }));
                self.scopes.push((fold.iter_var.clone(), item));
                self.expression(&fold.loop_cond);
                self.expression(&fold.loop_step);
                let result = self.expression(&fold.result);
                self.scopes.truncate(length);
                result
            }
        }
    }

    fn variable(&mut self, at: u64, name: &str) -> Known<'a> {
        self.uses_old |= name == "oldSelf";
        match self.scopes.iter().rev().find(|(known, _)| known == name) {
            Some((_, known)) => *known,
            None if TYPES.contains(&name) => Known::Other,
            None => {
                self.fault(at, &format!("undeclared reference to '{name}' (in container '')"));
                Known::Dyn
            }
        }
    }

    fn field(&mut self, at: u64, operand: Known<'a>, name: &str) -> Known<'a> {
        let schema = match operand {
            Known::Dyn => return Known::Dyn,
            Known::Root(_) if matches!(name, "apiVersion" | "kind") => return Known::Text,
            Known::Root(_) if name == "metadata" => return Known::Of(metadata()),
            Known::Of(schema) | Known::Root(schema) => schema,
            Known::Bool | Known::Text | Known::Other => &Value::Null,
        };
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return Known::Of(values);
        }
        let is_object = matches!(operand.name(), "object");
        if operand.name() == "dyn" {
            return Known::Dyn;
        }
        if !is_object {
            self.fault(at, &format!("type '{}' does not support field selection", operand.name()));
            return Known::Dyn;
        }
        let mut properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let typed = |of: &Value| !text(of, "/type").is_empty() || of.get("x-kubernetes-int-or-string").is_some();
        match properties.find(|(property, of)| typed(of) && escaped(property).is_some_and(|known| known == name)) {
            Some((_, of)) => Known::Of(of),
            None => {
                self.fault(at, &format!("undefined field '{name}'"));
                Known::Dyn
            }
        }
    }

    fn item(&mut self, at: u64, range: Known<'a>) -> Known<'a> {
        match range {
            Known::Of(schema) if schema.get("items").is_some() => schema.get("items").map_or(Known::Dyn, Known::Of),
            Known::Of(schema) if schema.get("additionalProperties").is_some_and(Value::is_object) => Known::Text,
            Known::Dyn | Known::Other => Known::Dyn,
            other if other.name() == "dyn" => Known::Dyn,
            other => {
                let why = "cannot be range of a comprehension (must be list, map, or dynamic)";
                self.fault(at, &format!("expression of type '{}' {why}", other.name()));
                Known::Dyn
            }
        }
    }

    fn call(&mut self, at: u64, call: &'a cel::common::ast::CallExpr) -> Known<'a> {
        let name = call.func_name.as_str();
        let qualified = call.target.as_ref().and_then(|target| match &target.expr {
            Expr::Ident(room) => Some(format!("{room}.{name}")),
            _ => None,
        });
        let is_qualified = qualified.is_some_and(|name| FUNCTIONS.contains(&name.as_str()));
        let target = match &call.target {
            Some(target) if !is_qualified => Some(self.expression(target)),
            _ => None,
        };
        let args: Vec<Known<'a>> = call.args.iter().map(|arg| self.expression(arg)).collect();
        // No rule can write such a name; it stands for `a + b`, and the like.
        let is_operator = !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let is_there =
            is_qualified || is_operator || if target.is_some() { METHODS } else { FUNCTIONS }.contains(&name);
        if !is_there {
            self.fault(at, &format!("undeclared reference to '{name}' (in container '')"));
            return Known::Dyn;
        }
        if name == "reverse" && target.is_some_and(|target| target.name() == "string") {
            self.fault(at, "found no matching overload for 'reverse' applied to 'string.()'");
        }
        match (name, args.as_slice()) {
            (operators::INDEX, [Known::Of(schema), _]) => {
                let of = schema.get("items").or_else(|| schema.get("additionalProperties").filter(|of| of.is_object()));
                of.map_or(Known::Dyn, Known::Of)
            }
            (operators::CONDITIONAL, [_, yes, no]) if yes.name() == no.name() => *yes,
            (operators::ADD, [Known::Text, _] | [_, Known::Text]) | ("string", _) => Known::Text,
            ("format" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "join" | "find", _) => {
                Known::Text
            }
            (operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO, _) => Known::Other,
            ("size" | "int" | "uint" | "double" | "indexOf" | "lastIndexOf", _) => Known::Other,
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | operators::IN
                | operators::NOT_STRICTLY_FALSE,
                _,
            ) => Known::Bool,
            _ => Known::Dyn,
        }
    }
}

/// What rules see of the metadata of a whole object.
fn metadata() -> &'static Value {
    static METADATA: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| {
        let text = serde_json::json!({"type": "string"});
        serde_json::json!({"type": "object", "properties": {"name": text, "generateName": text}})
    });
    &METADATA
}

/// A fault with its place in the source, as cel-go shows it.
pub(super) fn located(source: &str, offset: usize, why: &str) -> String {
    let mut before = 0;
    for (index, line) in source.split('\n').enumerate() {
        let length = line.chars().count();
        if offset <= before + length {
            let column = offset - before;
            let dots = ".".repeat(column);
            return format!("ERROR: <input>:{}:{}: {why}\n | {line}\n | {dots}^", index + 1, column + 1);
        }
        before += length + 1;
    }
    format!("ERROR: <input>:1:1: {why}\n | {source}\n | ^")
}
