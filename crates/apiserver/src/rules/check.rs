//! What is wrong with an expression before it ever runs: names that do not exist, and types that do not fit.
//!
//! Source: google/cel-go `checker/checker.go`, `cel/validator.go`, for the words, too.

use cel::{
    Env,
    common::{
        ast::{
            CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
            SourceInfo, StructExpr, operators,
        },
        types::CelString,
        value::CowVal,
    },
};

use super::{
    clauses::{self, Wrong},
    found::Found,
    functions::{VARS_MAX, overloads, type_named},
    patches::{ESCAPE_KEY, JSON_PATCH, JSON_PATCH_FIELDS, is_patch_type},
    schemas,
    sizes::Sizes,
    types::{Bindings, Fields, Object, Type},
};
use crate::patterns::Pattern;

/// What an expression may name.
pub(super) struct Names<'a> {
    /// Variables and their types.
    pub(super) variables: Vec<(String, Type<'a>)>,
    /// Whether it may say how an object is changed.
    pub(super) has_patch_types: bool,
    /// By which its cost is estimated; `None`: nobody asks.
    pub(super) sizes: Option<Sizes<'a>>,
}

/// What is wrong, and where. Units: bytes.
struct Fault {
    offset: usize,
    shown: String,
}

/// Something that is written down in a list or a map, and its type.
#[derive(Clone)]
struct Written<'a> {
    id: u64,
    of: Type<'a>,
}

/// A text that is written down as the time, the duration or the regular expression that it is to be.
struct ReadText {
    id: u64,
    function: &'static str,
    text: String,
}

/// Functions that read a text: the first that they take.
const READING: [&str; 3] = ["duration", "timestamp", MATCHES];
const MATCHES: &str = "matches";

/// One expression's check.
pub(super) struct Check<'s, 'a> {
    env: &'s Env,
    source: &'s SourceInfo,
    scopes: Vec<(String, Type<'a>)>,
    bindings: Bindings<'a>,
    vars: usize,
    found: Vec<Fault>,
    /// What must be of one type: the items of each list, the keys and the values of each map.
    alike: Vec<Vec<Written<'a>>>,
    read: Vec<ReadText>,
    has_patch_types: bool,
    parts: Found<'a>,
    /// Why an expression that is right in itself cannot be made ready to run.
    pub(super) unusable: Option<String>,
    /// Whether somebody asks for the parts.
    is_estimated: bool,
    /// Whether `oldSelf` is used.
    pub(super) uses_old: bool,
}

impl<'s, 'a> Check<'s, 'a> {
    pub(super) fn new(env: &'s Env, source: &'s SourceInfo, names: Names<'a>) -> Self {
        let Names { variables, has_patch_types, sizes } = names;
        Self {
            env,
            source,
            scopes: variables,
            bindings: Bindings::default(),
            vars: 0,
            found: Vec::new(),
            alike: Vec::new(),
            read: Vec::new(),
            has_patch_types,
            parts: Found::default(),
            unusable: None,
            is_estimated: sizes.is_some(),
            uses_old: false,
        }
    }

    /// Checks a whole expression, and says its type.
    pub(super) fn whole(&mut self, expression: &IdedExpr) -> Type<'a> {
        let of = self.expression(expression);
        if self.found.is_empty() {
            self.check_alike();
            self.check_read();
            self.parts.settle(|of| self.bindings.last(of));
            for Wrong { at, why } in clauses::wrong(expression, &self.parts) {
                self.fault(at, &why);
            }
        }
        self.bindings.last(&of)
    }

    /// What was found out of an expression whose types fit, where somebody asks for it.
    pub(super) fn parts(&mut self) -> Option<Found<'a>> {
        self.is_estimated.then(|| std::mem::take(&mut self.parts))
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

    fn mismatch(&mut self, at: u64, expected: &Type<'a>, found: &Type<'a>) {
        self.fault(at, &format!("expected type '{expected}' but found '{found}'"));
    }

    fn new_var(&mut self) -> Type<'a> {
        self.vars += 1;
        Type::Var(self.vars - 1)
    }

    fn fits(&mut self, wanted: &Type<'a>, given: &Type<'a>) -> bool {
        self.bindings.fit(std::slice::from_ref(wanted), std::slice::from_ref(given))
    }

    fn expression(&mut self, expression: &IdedExpr) -> Type<'a> {
        let of = self.type_of(expression);
        self.parts.note_type(expression, of.clone());
        of
    }

    fn type_of(&mut self, expression: &IdedExpr) -> Type<'a> {
        let at = expression.id;
        match &expression.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::UInt(_) => Type::Uint,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Null => Type::Null,
            },
            Expr::Unspecified => Type::Dyn,
            Expr::Ident(name) => self.variable(at, name),
            Expr::Select(select) => self.select(at, select),
            Expr::Call(call) => self.call(at, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(made) => self.made(at, made),
            Expr::Comprehension(fold) => self.comprehension(fold),
        }
    }

    /// The type of a name; `None`: there is no such name.
    fn named(&self, name: &str) -> Option<Type<'a>> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((_, of)) = self.scopes.iter().rev().find(|(known, _)| known == name) {
            return Some(of.clone());
        }
        if let Some(of) = type_named(name) {
            return Some(Type::of(of));
        }
        (self.has_patch_types && is_patch_type(name)).then(|| Type::of(patch_type(name)))
    }

    fn variable(&mut self, at: u64, name: &str) -> Type<'a> {
        self.uses_old |= name == "oldSelf";
        if let Some(of) = self.named(name) {
            return of;
        }
        self.fault(at, &format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn select(&mut self, at: u64, select: &SelectExpr) -> Type<'a> {
        if !select.test
            && let Some(of) = qualified(&select.operand, &select.field).and_then(|name| self.named(&name))
        {
            return of;
        }
        let operand = self.expression(&select.operand);
        let field = self.field(at, &operand, &select.field);
        if select.test { Type::Bool } else { self.bindings.known(&field) }
    }

    fn field(&mut self, at: u64, operand: &Type<'a>, name: &str) -> Type<'a> {
        let (of, is_optional) = self.bindings.known(operand).unwrapped();
        let field = match of {
            Type::Map(_, value) => *value,
            Type::Object(object) => self.field_of(at, &object, name),
            of @ Type::Var(_) => {
                self.fits(&Type::Dyn, &of);
                Type::Dyn
            }
            of => {
                if !of.is_open() {
                    self.fault(at, &format!("type '{of}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional { Type::optional(field) } else { field }
    }

    fn field_of(&mut self, at: u64, object: &Object<'a>, name: &str) -> Type<'a> {
        let field = match object.fields {
            Fields::Any => Some(Type::Dyn),
            Fields::JsonPatch if name == "value" => Some(Type::Dyn),
            Fields::JsonPatch => JSON_PATCH_FIELDS.contains(&name).then_some(Type::Text),
            Fields::Variables(all) => all.iter().find(|(known, _)| known == name).map(|(_, of)| of.clone()),
            Fields::Schema { schema, is_root } => schemas::field(schema, is_root, &object.name, name),
            Fields::None => {
                self.fault(at, &format!("unexpected failed resolution of '{}'", object.name));
                return Type::Error;
            }
        };
        field.unwrap_or_else(|| {
            self.fault(at, &format!("undefined field '{name}'"));
            Type::Error
        })
    }

    fn list(&mut self, list: &ListExpr) -> Type<'a> {
        let (mut joined, mut items) = (None, Vec::new());
        for (index, item) in list.elements.iter().enumerate() {
            let mut of = self.expression(item);
            if list.optional_indices.contains(&index) {
                of = self.optional(item.id, of);
            }
            items.push(Written { id: item.id, of: of.clone() });
            joined = Some(self.joined(joined, of));
        }
        self.alike.push(items);
        Type::list(joined.unwrap_or_else(|| self.new_var()))
    }

    fn map(&mut self, map: &MapExpr) -> Type<'a> {
        let (mut key, mut value, mut keys, mut values) = (None, None, Vec::new(), Vec::new());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let of = self.expression(&entry.key);
            keys.push(Written { id: entry.key.id, of: of.clone() });
            key = Some(self.joined(key, of));
            let mut of = self.expression(&entry.value);
            if entry.optional {
                of = self.optional(entry.value.id, of);
            }
            values.push(Written { id: entry.value.id, of: of.clone() });
            value = Some(self.joined(value, of));
        }
        for written in [keys, values] {
            // Each is told by itself, of a list the first one.
            let Some((first, others)) = written.split_first() else { continue };
            self.alike.extend(others.iter().map(|other| vec![first.clone(), other.clone()]));
        }
        let key = key.unwrap_or_else(|| self.new_var());
        Type::map(key, value.unwrap_or_else(|| self.new_var()))
    }

    /// What an optional value has that is written down with a question mark.
    fn optional(&mut self, at: u64, of: Type<'a>) -> Type<'a> {
        let (of, is_optional) = of.unwrapped();
        if !is_optional && of != Type::Dyn {
            self.mismatch(at, &Type::optional(of.clone()), &of);
        }
        of
    }

    fn joined(&mut self, before: Option<Type<'a>>, of: Type<'a>) -> Type<'a> {
        let Some(before) = before else { return of };
        if self.fits(&before, &of) { before.most_general(of) } else { Type::Dyn }
    }

    /// What is written down in a list, or as keys or values of a map, is of one type, which is not found out later.
    fn check_alike(&mut self) {
        for written in std::mem::take(&mut self.alike) {
            let mut types = written.into_iter().map(|one| (one.id, self.bindings.last(&one.of)));
            let Some((_, first)) = types.next() else { continue };
            if let Some((id, other)) = types.find(|(_, of)| *of != first) {
                self.mismatch(id, &first, &other);
            }
        }
    }

    /// A time, a duration or a regular expression that is written down is one.
    fn check_read(&mut self) {
        for ReadText { id, function, text } in std::mem::take(&mut self.read) {
            let is_read = if function == MATCHES {
                Pattern::kept(&text).is_ok()
            } else {
                let args = vec![CowVal::owned(CelString::from(text))];
                self.env.find_overload(function, &args).is_none_or(|make| make(args).is_ok())
            };
            if !is_read {
                self.fault(id, &format!("invalid {function} argument"));
            }
        }
    }

    fn made(&mut self, at: u64, made: &StructExpr) -> Type<'a> {
        let name = made.type_name.as_str();
        if !(self.has_patch_types && is_patch_type(name)) {
            match self.named(name) {
                None => self.fault(at, &format!("undeclared reference to '{name}' (in container '')")),
                Some(Type::Of(of)) if matches!(*of, Type::Duration | Type::Timestamp | Type::Null) => return *of,
                Some(Type::Of(_)) => self.fault(at, &format!("'{name}' is not a message type")),
                Some(other) => self.fault(at, &format!("'{}' is not a type", other.declared())),
            }
            return Type::Error;
        }
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let mut given = self.expression(&field.value);
            if field.optional {
                given = self.optional(field.value.id, given);
            }
            let is_text = name == JSON_PATCH && field.field != "value";
            let given = self.bindings.known(&given);
            if is_text && !JSON_PATCH_FIELDS.contains(&field.field.as_str()) {
                self.fault(entry.id, &format!("undefined field '{}'", field.field));
            } else if is_text && !self.fits(&Type::Text, &given) {
                let why =
                    format!("expected type of field '{}' is 'string' but provided type is '{given}'", field.field);
                self.fault(entry.id, &why);
            }
        }
        patch_type(name)
    }

    fn comprehension(&mut self, fold: &ComprehensionExpr) -> Type<'a> {
        let range = self.expression(&fold.iter_range);
        let result = self.expression(&fold.accu_init);
        let range = self.bindings.known(&range);
        let [item, second] = match &range {
            Type::List(of) if fold.iter_var2.is_some() => [Type::Int, (**of).clone()],
            Type::List(of) => [(**of).clone(), Type::Error],
            Type::Map(key, value) => [(**key).clone(), (**value).clone()],
            Type::Dyn | Type::Error | Type::Var(_) => {
                self.fits(&Type::Dyn, &range);
                [Type::Dyn, Type::Dyn]
            }
            other => {
                let why = "cannot be range of a comprehension (must be list, map, or dynamic)";
                self.fault(fold.iter_range.id, &format!("expression of type '{other}' {why}"));
                [Type::Error, Type::Error]
            }
        };
        let length = self.scopes.len();
        self.scopes.push((fold.accu_var.clone(), result.clone()));
        self.scopes.push((fold.iter_var.clone(), item));
        self.scopes.extend(fold.iter_var2.clone().map(|name| (name, second)));
        self.checked_as(&fold.loop_cond, &Type::Bool);
        self.checked_as(&fold.loop_step, &result);
        self.scopes.truncate(length + 1);
        let of = self.expression(&fold.result);
        self.scopes.truncate(length);
        self.bindings.known(&of)
    }

    fn checked_as(&mut self, expression: &IdedExpr, wanted: &Type<'a>) {
        let of = self.expression(expression);
        if !self.fits(wanted, &of) {
            self.mismatch(expression.id, wanted, &of);
        }
    }

    fn call(&mut self, at: u64, call: &CallExpr) -> Type<'a> {
        let name = call.func_name.as_str();
        let written = self.alike.len();
        if let (operators::OPT_SELECT, [operand, field]) = (name, call.args.as_slice()) {
            let operand = self.expression(operand);
            let Expr::Literal(LiteralValue::String(field)) = &field.expr else { return Type::Dyn };
            let (field, _) = self.field(at, &operand, field.inner()).unwrapped();
            return Type::optional(self.bindings.known(&field));
        }
        let mut args: Vec<Type<'a>> = call.args.iter().map(|arg| self.expression(arg)).collect();
        if name == "format" {
            // What is put into a text may be of several types.
            self.alike.truncate(written);
        }
        if let (operators::LOGICAL_AND | operators::LOGICAL_OR, [_, _]) = (name, args.as_slice()) {
            if let Some([overload]) = overloads(name) {
                self.parts.note_call(at, name, overload);
            }
            return self.logical(&call.args, &args);
        }
        self.note_read(name, &call.args);
        let Some(target) = &call.target else {
            self.note_pattern(name, call);
            return self.resolved(at, name, false, &args);
        };
        if let Some(name) = qualified(target, name).filter(|name| self.has_function(name)) {
            return self.resolved(at, &name, false, &args);
        }
        args.insert(0, self.expression(target));
        self.note_pattern(name, call);
        self.resolved(at, name, true, &args)
    }

    fn note_read(&mut self, name: &str, args: &[IdedExpr]) {
        let function = READING.into_iter().find(|function| *function == name);
        if let (Some(function), Some(IdedExpr { id, expr: Expr::Literal(LiteralValue::String(text)) })) =
            (function, args.first())
        {
            self.read.push(ReadText { id: *id, function, text: text.inner().to_owned() });
        }
    }

    /// A pattern that is written down is compiled before the expression runs, that of an inner call first.
    fn note_pattern(&mut self, name: &str, call: &CallExpr) {
        let ((MATCHES | "find" | "findAll", Some(_), [pattern, ..]) | (MATCHES, None, [_, pattern])) =
            (name, &call.target, call.args.as_slice())
        else {
            return;
        };
        if let (None, Expr::Literal(LiteralValue::String(pattern))) = (&self.unusable, &pattern.expr) {
            self.unusable = Pattern::kept(pattern.inner()).err().map(|why| why.to_string());
        }
    }

    /// Both sides of `&&` and `||` are told by themselves.
    fn logical(&mut self, args: &[IdedExpr], types: &[Type<'a>]) -> Type<'a> {
        let mut of = Type::Bool;
        for (arg, given) in args.iter().zip(types) {
            if !self.fits(given, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, given);
                of = Type::Error;
            }
        }
        of
    }

    fn has_function(&self, name: &str) -> bool {
        overloads(name).is_some() && (self.has_patch_types || name != ESCAPE_KEY)
    }

    /// What a call gives. Of a method the first argument stands before the dot.
    fn resolved(&mut self, at: u64, name: &str, is_method: bool, args: &[Type<'a>]) -> Type<'a> {
        let Some(all) = overloads(name).filter(|_| self.has_function(name)) else {
            self.fault(at, &format!("undeclared reference to '{name}' (in container '')"));
            return Type::Error;
        };
        let mut gives = None;
        for overload in all.iter().filter(|overload| overload.is_method == is_method) {
            let first = self.vars;
            self.vars += VARS_MAX;
            let mut renamed = |index: usize| Type::Var(first + index);
            let takes: Vec<Type<'a>> = overload.takes.iter().map(|of| of.mapped(&mut renamed)).collect();
            let result: Type<'a> = overload.gives.mapped(&mut renamed);
            if !self.bindings.fit(args, &takes) {
                continue;
            }
            self.parts.note_call(at, name, overload);
            let result = self.bindings.known(&result);
            gives = Some(match gives {
                None => result,
                Some(Type::Dyn) => Type::Dyn,
                Some(before) if before == result => before,
                Some(_) => Type::Dyn,
            });
        }
        gives.unwrap_or_else(|| {
            let mut shown: Vec<String> = args.iter().map(|arg| self.bindings.last(arg).to_string()).collect();
            let target = if is_method { format!("{}.", shown.remove(0)) } else { String::new() };
            let why = format!("found no matching overload for '{name}' applied to '{target}({})'", shown.join(", "));
            self.fault(at, &why);
            Type::Error
        })
    }
}

/// A type with which an expression says how an object is changed.
fn patch_type<'a>(name: &str) -> Type<'a> {
    Type::object(name, if name == JSON_PATCH { Fields::JsonPatch } else { Fields::Any })
}

/// `a.b.c`, where an expression may be a name.
fn qualified(operand: &IdedExpr, field: &str) -> Option<String> {
    match &operand.expr {
        Expr::Ident(name) => Some(format!("{name}.{field}")),
        Expr::Select(select) if !select.test => Some(format!("{}.{field}", qualified(&select.operand, &select.field)?)),
        _ => None,
    }
}

/// A fault with its place in the source, as cel-go shows it. Units: bytes.
///
/// Source: google/cel-go `common/error.go` `ToDisplayString`.
pub(super) fn located(source: &str, offset: usize, why: &str) -> String {
    let mut before = 0;
    for (index, line) in source.split('\n').enumerate() {
        if offset <= before + line.len() {
            let (passed, rest) = line.split_at_checked(offset - before).unwrap_or((line, ""));
            let is_wide = |letter: char| letter.len_utf8() > 1;
            let dots: String = passed.chars().map(|letter| if is_wide(letter) { '\u{ff0e}' } else { '.' }).collect();
            let mark = if rest.starts_with(is_wide) { '\u{ff3e}' } else { '^' };
            let (line, column) = (line.replace('\t', " "), passed.chars().count() + 1);
            return format!("ERROR: <input>:{}:{column}: {why}\n | {line}\n | {dots}{mark}", index + 1);
        }
        before += line.len() + 1;
    }
    format!("ERROR: <input>:1:1: {why}\n | {source}\n | ^")
}
