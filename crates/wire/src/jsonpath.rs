//! `JSONPath` as kubectl and custom resource definitions write it, and what it leads to.
//!
//! One parser serves two dialects: that of client-go, for columns, and that of field selectors, whose paths name fields and
//! elements of arrays alone. `jsonpath/vectors.txt` is what client-go finds; `tests/testbed/jsonpath` writes it.
//!
//! Source: kubernetes/client-go `util/jsonpath/parser.go`, `jsonpath.go`.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde_json::Value;

use crate::scan::value_of;

/// Steps and nested paths of one path.
const NODES_MAX: usize = 256;
/// How deep `..` looks.
const DEPTH_MAX: usize = 64;

/// One path, in client-go's dialect.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    nodes: Vec<Node>,
    /// The keys, if it is nothing but keys.
    keys: Option<Vec<String>>,
}

/// What differs between the uses of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// client-go's. A key between `['` and `']` is a path of its own; spaces, `@` and `$` between steps mean nothing.
    ClientGo,
    /// A field selector's. A key between quotes in brackets is one key as it is written; nothing means nothing.
    Selector,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Field(String),
    Array(Slice),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Self>>),
    Filter(Vec<Self>, String, Vec<Self>),
    Literal(Value),
    /// A word of templates, as `range`, with which nothing is found.
    Word,
}

/// `[from:to:step]`; of `[3]` the end is derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) from: Option<i64>,
    pub(crate) to: Option<i64>,
    pub(crate) derived: bool,
    pub(crate) step: Option<i64>,
}

impl JsonPath {
    /// Reads what stands between the braces. `None`: it is not understood.
    pub fn parse(text: &str) -> Option<Self> {
        let nodes = parse(text, Dialect::ClientGo)?;
        let key = |node: &Node| match node {
            Node::Field(name) => Some(name.clone()),
            _ => None,
        };
        let keys = nodes.iter().map(key).collect();
        Some(Self { nodes, keys })
    }

    /// The first value that it leads to in an object. The object is read as a whole only if it must be, and is `whole` then.
    pub fn first(&self, json: &str, whole: &mut Option<Value>) -> Option<Value> {
        if let Some(keys) = &self.keys {
            let mut at = json;
            for key in keys {
                at = at.get(value_of(at, 0, key)?)?;
            }
            return serde_json::from_str(at).ok();
        }
        let whole = whole.get_or_insert_with(|| serde_json::from_str(json).unwrap_or_default());
        self.first_in(whole).cloned()
    }

    /// The first value that it leads to in an object that is read already.
    pub fn first_in<'v>(&'v self, whole: &'v Value) -> Option<&'v Value> {
        walk(vec![whole], &self.nodes).ok()?.first().copied()
    }
}

/// The steps of a path. `None`: it is not understood.
pub(crate) fn parse(text: &str, dialect: Dialect) -> Option<Vec<Node>> {
    Parser { dialect, count: 0 }.nodes(text)
}

struct Parser {
    dialect: Dialect,
    /// Nodes so far, those of nested paths included.
    count: usize,
}

impl Parser {
    fn nodes(&mut self, text: &str) -> Option<Vec<Node>> {
        let mut nodes = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            self.count += 1;
            if self.count > NODES_MAX {
                return None;
            }
            rest = self.node(rest, &mut nodes)?;
        }
        Some(nodes)
    }

    /// Reads one node; what follows it is left.
    fn node<'t>(&mut self, text: &'t str, nodes: &mut Vec<Node>) -> Option<&'t str> {
        if text.starts_with("[?(") {
            return self.filter(text, nodes);
        }
        if let Some(rest) = text.strip_prefix("..") {
            if nodes.last() == Some(&Node::Recursive) {
                return None;
            }
            nodes.push(Node::Recursive);
            return if rest.starts_with(is_word) { self.field(rest, nodes) } else { Some(rest) };
        }
        let first = text.chars().next()?;
        let rest = text.get(first.len_utf8()..).unwrap_or_default();
        match first {
            ' ' | '@' | '$' if self.dialect == Dialect::ClientGo => Some(rest),
            '.' => self.field(rest, nodes),
            '[' => self.bracket(rest, nodes),
            '"' | '\'' => {
                let (inner, rest) = quoted(rest, first)?;
                nodes.push(Node::Literal(Value::String(inner)));
                Some(rest)
            }
            '+' | '-' | '0'..='9' => {
                let is_number = |c: char| c.is_ascii_digit() || c == '.';
                let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
                let (digits, rest) = text.split_at_checked(1 + end)?;
                let digits = digits.trim_start_matches('+');
                let number = match digits.parse::<i64>() {
                    Ok(number) => Value::from(number),
                    Err(_) => Value::from(digits.parse::<f64>().ok()?),
                };
                nodes.push(Node::Literal(number));
                Some(rest)
            }
            _ if is_word(first) => {
                let end = text.find(is_end).unwrap_or(text.len());
                let (word, rest) = text.split_at_checked(end)?;
                nodes.push(word.parse().map_or(Node::Word, |bool| Node::Literal(Value::Bool(bool))));
                Some(rest)
            }
            _ => None,
        }
    }

    /// A key up to the next end that no backslash stands before.
    fn field<'t>(&self, text: &'t str, nodes: &mut Vec<Node>) -> Option<&'t str> {
        let is_foreign = |c: char| self.dialect == Dialect::Selector && (c.is_whitespace() || "'\"()<>!?".contains(c));
        let mut chars = text.char_indices();
        let mut end = text.len();
        while let Some((at, c)) = chars.next() {
            if c == '\\' {
                // One at the end takes the closing brace for a part of the key.
                chars.next()?;
            } else if is_end(c) {
                end = at;
                break;
            } else if is_foreign(c) {
                return None;
            }
        }
        let (name, rest) = text.split_at_checked(end)?;
        nodes.push(if name == "*" { Node::Wildcard } else { Node::Field(name.replace('\\', "")) });
        Some(rest)
    }

    /// What follows an opening bracket.
    fn bracket<'t>(&mut self, text: &'t str, nodes: &mut Vec<Node>) -> Option<&'t str> {
        if self.dialect == Dialect::Selector
            && let Some(quote @ ('\'' | '"')) = text.chars().next()
        {
            let (key, rest) = text.get(1..)?.split_once(quote)?;
            nodes.push(Node::Field(key.to_owned()));
            return rest.strip_prefix(']');
        }
        let (inner, rest) = text.split_once(']')?;
        if inner.contains(',') {
            let each = inner.split(',').map(|one| self.nodes(&format!("[{}]", one.trim_matches(' '))));
            nodes.push(Node::Union(each.collect::<Option<_>>()?));
        } else if let Some(key) = inner.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\'')) {
            if key.contains('\'') {
                return None;
            }
            nodes.extend(self.nodes(&format!(".{key}"))?);
        } else {
            nodes.push(Node::Array(Slice::parse(inner)?));
        }
        Some(rest)
    }

    /// `[?(@.a == "b")]`
    fn filter<'t>(&mut self, text: &'t str, nodes: &mut Vec<Node>) -> Option<&'t str> {
        let inner = text.strip_prefix("[?(")?;
        let (mut quote, mut closed, mut last) = (None, false, ' ');
        let end = inner.char_indices().find_map(|(at, c)| {
            match (c, quote) {
                ('"' | '\'', None) => quote = Some(c),
                (_, Some(open)) if c == open && last != '\\' => closed = true,
                (')', _) if quote.is_some() == closed => return Some(at),
                _ => {}
            }
            last = c;
            None
        })?;
        let rest = inner.get(end + 1..)?.strip_prefix(']')?;
        let condition = inner.get(..end).filter(|condition| !condition.contains('\n'))?;
        let is_operator = |c: char| "!<>=".contains(c);
        let split = condition.find(is_operator).filter(|at| *at > 0).and_then(|at| {
            let (left, after) = condition.split_at_checked(at)?;
            // Of operators alone the last is compared with, and refused.
            let behind = || after.len().checked_sub(1).filter(|len| *len > 0);
            let len = after.find(|c| !is_operator(c)).or_else(behind)?;
            let (operator, right) = after.split_at_checked(len)?;
            Some((left, operator, right))
        });
        nodes.push(match split {
            Some((left, operator, right)) => Node::Filter(self.nodes(left)?, operator.to_owned(), self.nodes(right)?),
            None => Node::Filter(self.nodes(condition)?, String::new(), Vec::new()),
        });
        Some(rest)
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_end(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// A text up to its closing quote, and what follows.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut last = ' ';
    let end = text.char_indices().find_map(|(at, c)| {
        let ends = c == '\n' || c == quote && last != '\\';
        last = c;
        ends.then_some(at)
    })?;
    let (inner, rest) = text.split_at_checked(end)?;
    Some((unquoted(inner, quote)?, rest.strip_prefix(quote)?))
}

/// Source: Go `strconv/quote.go`, `UnquoteChar`. A byte that is no character of its own is read as Latin-1.
fn unquoted(text: &str, quote: char) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..)?;
        if c != '\\' {
            out.push(c);
            continue;
        }
        let escaped = rest.chars().next()?;
        let (digits, radix) = match escaped {
            'x' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='7' => (3, 8),
            _ => {
                out.push(match escaped {
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\u{b}',
                    '\\' => '\\',
                    _ if escaped == quote => quote,
                    _ => return None,
                });
                rest = rest.get(1..)?;
                continue;
            }
        };
        let start = usize::from(radix == 16);
        let number = rest.get(start..start + digits).filter(|digits| !digits.starts_with('+'))?;
        let code = u32::from_str_radix(number, radix).ok().filter(|code| radix == 16 || *code < 256)?;
        out.push(char::from_u32(code)?);
        rest = rest.get(start + digits..)?;
    }
    Some(out)
}

/// A step that fails, as an index beyond the end.
struct Failed {
    /// Whether client-go holds values when it fails: to a filter that asks for a path's presence the path is present then.
    has_values: bool,
}

const FAILED: Failed = Failed { has_values: true };

/// Walks on from some values.
fn walk<'v>(mut at: Vec<&'v Value>, nodes: &'v [Node]) -> Result<Vec<&'v Value>, Failed> {
    for node in nodes {
        at = step(at, node)?;
    }
    Ok(at)
}

fn step<'v>(at: Vec<&'v Value>, node: &'v Node) -> Result<Vec<&'v Value>, Failed> {
    let mut found = Vec::new();
    match node {
        Node::Literal(value @ Value::String(_)) => found.push(value),
        Node::Literal(value) => found.resize(at.len(), value),
        Node::Word => return Err(Failed { has_values: !at.is_empty() }),
        Node::Field(name) => found.extend(at.into_iter().filter_map(|value| value.as_object()?.get(name))),
        Node::Wildcard => found.extend(at.into_iter().flat_map(children)),
        Node::Recursive => at.into_iter().for_each(|value| descend(value, DEPTH_MAX, &mut found)),
        Node::Union(paths) => {
            for path in paths {
                found.extend(walk(at.clone(), path).map_err(|_| FAILED)?);
            }
        }
        Node::Array(slice) => {
            for value in at.into_iter().filter(|value| !value.is_null()) {
                match slice.of(value.as_array().ok_or(FAILED)?).ok_or(FAILED)? {
                    // client-go looks at no value behind one of which it wants nothing.
                    [] => break,
                    some => found.extend(some.iter().step_by(slice.step()?)),
                }
            }
        }
        Node::Filter(left, operator, right) => {
            for value in at {
                for element in value.as_array().ok_or(FAILED)? {
                    if fits(element, left, operator, right, !found.is_empty())? {
                        found.push(element);
                    }
                }
            }
        }
    }
    Ok(found)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Object(entries) => entries.values().collect(),
        _ => Vec::new(),
    }
}

/// A value and all below it, but for what has nothing below. To client-go a text has its bytes below.
fn descend<'v>(value: &'v Value, depth: usize, found: &mut Vec<&'v Value>) {
    let below = children(value);
    let is_text = value.as_str().is_some_and(|text| !text.is_empty());
    if below.is_empty() && !is_text || depth == 0 {
        return;
    }
    found.push(value);
    below.into_iter().for_each(|child| descend(child, depth - 1, found));
}

impl Slice {
    /// Reads what stands between brackets.
    fn parse(text: &str) -> Option<Self> {
        let text = if text == "*" { ":" } else { text };
        let parts: Vec<&str> = text.split(':').collect();
        let number = |at: usize| match parts.get(at).copied().unwrap_or_default() {
            "" => Some(None),
            text => text.parse::<i64>().ok().filter(|_| !text.starts_with('+')).map(Some),
        };
        let (from, to, step) = (number(0)?, number(1)?, number(2)?);
        match parts.len() {
            1 => Some(Self { from, to: Some(from.unwrap_or_default() + 1), derived: true, step }),
            2 | 3 => Some(Self { from, to, derived: false, step }),
            _ => None,
        }
    }

    /// The elements between the ends. `None`: they are out of bounds.
    fn of<'v>(&self, elements: &'v [Value]) -> Option<&'v [Value]> {
        let len = i64::try_from(elements.len()).ok()?;
        let mut from = self.from.unwrap_or_default();
        if from < 0 {
            from += len;
        }
        let mut to = self.to.unwrap_or(len);
        if to < 0 || (to == 0 && self.derived) {
            to += len;
        }
        if from == to {
            return Some(&[]);
        }
        if from >= len || from < 0 || to > len || to < 0 || from > to {
            return None;
        }
        elements.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
    }

    fn step(&self) -> Result<usize, Failed> {
        usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0).ok_or(FAILED)
    }
}

/// Says whether an element passes a filter, behind other elements that did, or none.
fn fits(element: &Value, left: &[Node], operator: &str, right: &[Node], has_values: bool) -> Result<bool, Failed> {
    let left = walk(vec![element], left);
    if operator.is_empty() {
        return Ok(left.map_or_else(|failed| failed.has_values, |found| !found.is_empty()));
    }
    let left = left.map_err(|_| FAILED)?;
    if left.is_empty() {
        return Ok(false);
    }
    let [left] = left.as_slice() else { return Err(FAILED) };
    let right = walk(vec![element], right).map_err(|_| FAILED)?;
    if right.is_empty() {
        return Ok(false);
    }
    let [right] = right.as_slice() else { return Err(FAILED) };
    let failed = || Failed { has_values };
    let order = compare(left, right).ok_or_else(failed)?;
    let is_ordered = !matches!(left, Value::Bool(_));
    match operator {
        "==" => Ok(order == Ordering::Equal),
        "!=" => Ok(order != Ordering::Equal),
        "<" if is_ordered => Ok(order == Ordering::Less),
        ">" if is_ordered => Ok(order == Ordering::Greater),
        "<=" if is_ordered => Ok(order != Ordering::Greater),
        ">=" if is_ordered => Ok(order != Ordering::Less),
        _ => Err(failed()),
    }
}

/// Only values of one type can be compared, and whole numbers are another type than others.
fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
            _ => None,
        },
        _ => None,
    }
}
