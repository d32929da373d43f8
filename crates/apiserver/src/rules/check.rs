//! What is wrong with an expression before it ever runs: names of fields, variables and functions that do not exist.
//!
//! Types of arguments are not checked here: a call that no function takes fails when the rule runs.
//!
//! Source: google/cel-go `checker/checker.go`, for the words.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo, StructExpr, operators};
use kubefold_wire::access::text;
use serde_json::Value;

use super::{
    patches::{ESCAPE_KEY, JSON_PATCH, JSON_PATCH_FIELDS, JSON_PATCHES, OBJECT, is_patch_type},
    values::escaped,
};

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
    "allowed",
    "asApproximateFloat",
    "asInteger",
    "charAt",
    "check",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "distinct",
    "endsWith",
    "error",
    "errored",
    "family",
    "fieldSelector",
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
    "group",
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
    "labelSelector",
    "last",
    "lastIndexOf",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "name",
    "namespace",
    "or",
    "orValue",
    "patch",
    "path",
    "prefixLength",
    "reason",
    "replace",
    "resource",
    "reverse",
    "serviceAccount",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "sub",
    "subresource",
    "substring",
    "sum",
    "trim",
    "unwrapOpt",
    "upperAscii",
    "validate",
    "value",
];

/// In a schema whose properties have their own names in expressions, `namespace` too.
pub(super) const PLAIN_NAMES: &str = "x-plain-names";
/// What a field of an object is constructed as. Its type has a name of its own.
const OBJECT_FIELD: &str = "Object.*";
/// The type of a schema of what nothing is known of here.
const UNKNOWN: &str = "unknown";

/// What is known of the type of an expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    /// Nothing, here and in cel-go: it is found out when the expression runs.
    Dyn,
    /// Nothing, while cel-go may know it.
    Unknown,
    /// Truth.
    Bool,
    /// A text.
    Text,
    /// Another type without fields, by its name in cel-go.
    Plain(&'static str),
    /// As a schema says.
    Of(&'a Value),
    /// A whole object.
    Root(&'a Value),
    /// An object with these fields, by their names in expressions, each as a schema says.
    Fields(&'a [(String, Value)]),
}

impl<'a> Known<'a> {
    /// The value at a place of a schema. One at the root is a whole object, and so is an embedded one.
    pub(super) fn at(schema: &'a Value, is_root: bool) -> Self {
        let is_embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        if is_root || is_embedded { Self::Root(schema) } else { Self::Of(schema) }
    }

    /// Its name, as cel-go says it; empty where cel-go alone knows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dyn => "dyn",
            Self::Unknown => "",
            Self::Bool => "bool",
            Self::Text => "string",
            Self::Plain(name) => name,
            Self::Root(_) | Self::Fields(_) => "object",
            Self::Of(schema) => match text(schema, "/type") {
                "boolean" => "bool",
                "string" => match text(schema, "/format") {
                    "byte" => "bytes",
                    "date" | "date-time" => "google.protobuf.Timestamp",
                    "duration" => "google.protobuf.Duration",
                    _ => "string",
                },
                "integer" => "int",
                "number" => "double",
                "array" => "list",
                "object" => "object",
                UNKNOWN => "",
                _ => "dyn",
            },
        }
    }

    /// Says whether its values may be of any type, as far as is known here.
    pub(super) fn is_open(self) -> bool {
        matches!(self.name(), "" | "dyn")
    }

    /// A schema of which the same is known.
    pub(super) fn schema(self) -> Value {
        match self {
            Self::Of(schema) | Self::Root(schema) => schema.clone(),
            Self::Fields(_) => serde_json::json!({"type": UNKNOWN}),
            _ => match self.name() {
                "bool" => serde_json::json!({"type": "boolean"}),
                "string" => serde_json::json!({"type": "string"}),
                "int" => serde_json::json!({"type": "integer"}),
                "double" => serde_json::json!({"type": "number"}),
                "dyn" => serde_json::json!({}),
                _ => serde_json::json!({"type": UNKNOWN}),
            },
        }
    }
}

/// What an expression may name.
pub(super) struct Names<'a> {
    /// Variables, with what is known of their types.
    pub(super) variables: Vec<(String, Known<'a>)>,
    /// Whether it may say how an object is changed.
    pub(super) has_patch_types: bool,
}

/// What is wrong, and where: units are characters.
struct Fault {
    offset: usize,
    shown: String,
}

/// One expression's check.
pub(super) struct Check<'s, 'a> {
    source: &'s SourceInfo,
    scopes: Vec<(String, Known<'a>)>,
    found: Vec<Fault>,
    has_patch_types: bool,
    /// Whether `oldSelf` is used.
    pub(super) uses_old: bool,
}

impl<'s, 'a> Check<'s, 'a> {
    pub(super) fn new(source: &'s SourceInfo, names: Names<'a>) -> Self {
        let Names { variables, has_patch_types } = names;
        Self { source, scopes: variables, found: Vec::new(), has_patch_types, uses_old: false }
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
    pub(super) fn expression(&mut self, expression: &IdedExpr) -> Known<'a> {
        match &expression.expr {
            Expr::Literal(LiteralValue::Boolean(_)) => Known::Bool,
            Expr::Literal(LiteralValue::String(_)) => Known::Text,
            Expr::Literal(literal) => Known::Plain(match literal {
                LiteralValue::Int(_) => "int",
                LiteralValue::UInt(_) => "uint",
                LiteralValue::Double(_) => "double",
                LiteralValue::Bytes(_) => "bytes",
                LiteralValue::Null => "null_type",
                LiteralValue::Boolean(_) => "bool",
                LiteralValue::String(_) => "string",
            }),
            Expr::Unspecified => Known::Unknown,
            Expr::Ident(name) => self.variable(expression.id, name),
            Expr::Select(select) => {
                let operand = self.expression(&select.operand);
                let field = self.field(expression.id, operand, &select.field);
                if select.test { Known::Bool } else { field }
            }
            Expr::Call(call) => self.call(expression.id, call),
            Expr::List(list) => {
                let items: Vec<Known<'a>> = list.elements.iter().map(|element| self.expression(element)).collect();
                self.check_patches(&list.elements, &items);
                list_of(&items)
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.expression(&entry.key);
                        self.expression(&entry.value);
                    }
                }
                Known::Unknown
            }
            Expr::Struct(made) => self.made(expression.id, made),
            Expr::Comprehension(fold) => {
                let range = self.expression(&fold.iter_range);
                let item = self.item(expression.id, range);
                let start = self.expression(&fold.accu_init);
                let length = self.scopes.len();
                self.scopes.push((fold.accu_var.clone(), if let Known::Bool = start { start } else { Known::Unknown }));
                self.scopes.push((fold.iter_var.clone(), item));
                self.expression(&fold.loop_cond);
                self.expression(&fold.loop_step);
                let result = self.expression(&fold.result);
                self.scopes.truncate(length);
                result
            }
        }
    }

    /// A list of operations has nothing else.
    fn check_patches(&mut self, elements: &[IdedExpr], items: &[Known<'a>]) {
        if !matches!(items.first(), Some(Known::Plain(JSON_PATCH))) {
            return;
        }
        for (element, known) in elements.iter().zip(items) {
            if !known.is_open() && known.name() != JSON_PATCH {
                let why = format!("expected type '{JSON_PATCH}' but found '{}'", known.name());
                self.fault(element.id, &why);
            }
        }
    }

    fn made(&mut self, at: u64, made: &StructExpr) -> Known<'a> {
        let name = made.type_name.as_str();
        if !(self.has_patch_types && is_patch_type(name)) {
            self.fault(at, &format!("undeclared reference to '{name}' (in container '')"));
            return Known::Dyn;
        }
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let given = self.expression(&field.value);
            if name != JSON_PATCH {
                continue;
            }
            if !JSON_PATCH_FIELDS.contains(&field.field.as_str()) {
                self.fault(entry.id, &format!("undefined field '{}'", field.field));
            } else if field.field != "value" && !given.is_open() && given.name() != "string" {
                let (field, given) = (&field.field, given.name());
                self.fault(
                    entry.id,
                    &format!("expected type of field '{field}' is 'string' but provided type is '{given}'"),
                );
            }
        }
        Known::Plain(match name {
            JSON_PATCH => JSON_PATCH,
            OBJECT => OBJECT,
            _ => OBJECT_FIELD,
        })
    }

    fn variable(&mut self, at: u64, name: &str) -> Known<'a> {
        self.uses_old |= name == "oldSelf";
        match self.scopes.iter().rev().find(|(known, _)| known == name) {
            Some((_, known)) => *known,
            None if TYPES.contains(&name) => Known::Plain("type"),
            None if self.has_patch_types && is_patch_type(name) => Known::Plain("type"),
            None => {
                self.fault(at, &format!("undeclared reference to '{name}' (in container '')"));
                Known::Dyn
            }
        }
    }

    fn field(&mut self, at: u64, operand: Known<'a>, name: &str) -> Known<'a> {
        let schema = match operand {
            Known::Dyn | Known::Unknown => return operand,
            Known::Plain(OBJECT | OBJECT_FIELD) => return Known::Dyn,
            Known::Plain(JSON_PATCH) if name == "value" => return Known::Dyn,
            Known::Plain(JSON_PATCH) => return Known::Text,
            Known::Fields(fields) => {
                let Some((_, of)) = fields.iter().find(|(known, _)| known == name) else {
                    self.fault(at, &format!("undefined field '{name}'"));
                    return Known::Dyn;
                };
                return Known::Of(of);
            }
            Known::Root(_) if matches!(name, "apiVersion" | "kind") => return Known::Text,
            Known::Root(_) if name == "metadata" => return Known::Of(metadata()),
            Known::Of(schema) | Known::Root(schema) => schema,
            Known::Bool | Known::Text | Known::Plain(_) => &Value::Null,
        };
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return Known::Of(values);
        }
        let is_object = matches!(operand.name(), "object");
        if operand.is_open() {
            return if operand.name().is_empty() { Known::Unknown } else { Known::Dyn };
        }
        if !is_object {
            self.fault(at, &format!("type '{}' does not support field selection", operand.name()));
            return Known::Dyn;
        }
        let mut properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let typed = |of: &Value| !text(of, "/type").is_empty() || of.get("x-kubernetes-int-or-string").is_some();
        let is_plain = schema.get(PLAIN_NAMES).is_some();
        let is_named = |property: &str| match is_plain {
            true => property == name,
            false => escaped(property).is_some_and(|known| known == name),
        };
        match properties.find(|(property, of)| typed(of) && is_named(property)) {
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
            Known::Plain(name) if name.starts_with("list(") => Known::Unknown,
            other if other.is_open() => {
                if other.name().is_empty() {
                    Known::Unknown
                } else {
                    Known::Dyn
                }
            }
            other => {
                let why = "cannot be range of a comprehension (must be list, map, or dynamic)";
                self.fault(at, &format!("expression of type '{}' {why}", other.name()));
                Known::Dyn
            }
        }
    }

    fn call(&mut self, at: u64, call: &cel::common::ast::CallExpr) -> Known<'a> {
        let name = call.func_name.as_str();
        let qualified = call.target.as_ref().and_then(|target| match &target.expr {
            Expr::Ident(room) => Some(format!("{room}.{name}")),
            _ => None,
        });
        let is_qualified = qualified
            .is_some_and(|name| FUNCTIONS.contains(&name.as_str()) || (self.has_patch_types && name == ESCAPE_KEY));
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
        result(name, target, &args)
    }
}

/// A list, by what is known of its items.
fn list_of<'a>(items: &[Known<'a>]) -> Known<'a> {
    let first = items.first().map_or("dyn", |first| first.name());
    let is_alike = items.iter().all(|item| item.name() == first);
    Known::Plain(match first {
        "int" if is_alike => "list(int)",
        "string" if is_alike => "list(string)",
        "bool" if is_alike => "list(bool)",
        "double" if is_alike => "list(double)",
        JSON_PATCH if is_alike => JSON_PATCHES,
        _ => "list(dyn)",
    })
}

/// What is known of what a call gives.
fn result<'a>(name: &str, target: Option<Known<'a>>, args: &[Known<'a>]) -> Known<'a> {
    match (name, args) {
        (operators::INDEX, [Known::Of(schema), _]) => {
            let of = schema.get("items").or_else(|| schema.get("additionalProperties").filter(|of| of.is_object()));
            of.map_or(Known::Dyn, Known::Of)
        }
        (operators::INDEX, [Known::Dyn, _]) => Known::Dyn,
        (operators::CONDITIONAL, [_, yes, no]) if yes.name() == no.name() => *yes,
        (operators::ADD, [Known::Text, _] | [_, Known::Text]) | ("string", _) => Known::Text,
        (
            "escapeKey" | "format" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "join" | "find",
            _,
        ) => Known::Text,
        (operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO, args)
            if args.iter().any(|arg| matches!(arg.name(), "int" | "uint" | "double")) =>
        {
            // Both sides are of one type.
            args.iter().copied().find(|arg| matches!(arg.name(), "int" | "uint" | "double")).unwrap_or(Known::Unknown)
        }
        ("size" | "int" | "indexOf" | "lastIndexOf", _) => Known::Plain("int"),
        ("uint", _) => Known::Plain("uint"),
        ("double", _) => Known::Plain("double"),
        ("type", _) => Known::Plain("type"),
        ("duration", _) => Known::Plain("google.protobuf.Duration"),
        ("timestamp", _) => Known::Plain("google.protobuf.Timestamp"),
        (
            "startsWith" | "endsWith" | "contains" | "matches" | "hasValue" | "isSorted" | "isQuantity" | "isIP"
            | "isCIDR" | "isSemver" | "isGreaterThan" | "isLessThan" | "isInteger" | "bool",
            _,
        ) => Known::Bool,
        ("split" | "findAll", _) if target.is_some() => Known::Plain("list(string)"),
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
        _ => Known::Unknown,
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
