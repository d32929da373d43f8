//! `JSONPath` as kubectl and custom resource definitions write it, and Go's words for what it finds.
//!
//! Source: kubernetes/client-go `util/jsonpath/parser.go`, `jsonpath.go`.

use std::cmp::Ordering;

use serde_json::Value;

use crate::object::member;

/// Steps and nested paths of one path.
const NODES_MAX: usize = 256;
/// How deep `..` looks.
const DEPTH_MAX: usize = 64;

/// One path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonPath {
    nodes: Vec<Node>,
    /// The keys, if it is nothing but keys.
    keys: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Field(String),
    Array(Slice),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Self>>),
    Filter(Vec<Self>, String, Vec<Self>),
    Literal(Value),
}

/// `[from:to:step]`; of `[3]` the end is derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    derived: bool,
    step: Option<i64>,
}

impl JsonPath {
    /// Reads what stands between the braces. `None`: it is not understood.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let nodes = parse(text, &mut 0)?;
        let key = |node: &Node| match node {
            Node::Field(name) => Some(name.clone()),
            _ => None,
        };
        let keys = nodes.iter().map(key).collect();
        Some(Self { nodes, keys })
    }

    /// The first value that it leads to in an object, which is read as a whole only if it must be.
    pub(super) fn first(&self, json: &str, whole: &mut Option<Value>) -> Option<Value> {
        if let Some(keys) = &self.keys {
            let mut at = json;
            for key in keys {
                at = at.get(member(at, 0, key)?)?;
            }
            return serde_json::from_str(at).ok();
        }
        let whole = whole.get_or_insert_with(|| serde_json::from_str(json).unwrap_or_default());
        walk(vec![whole], &self.nodes)?.first().map(|found| (*found).clone())
    }
}

fn parse(text: &str, count: &mut usize) -> Option<Vec<Node>> {
    let mut nodes = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        *count += 1;
        if *count > NODES_MAX {
            return None;
        }
        rest = node(rest, &mut nodes, count)?;
    }
    Some(nodes)
}

/// Reads one node; what follows it is left.
fn node<'t>(text: &'t str, nodes: &mut Vec<Node>, count: &mut usize) -> Option<&'t str> {
    if text.starts_with("[?(") {
        return filter(text, nodes, count);
    }
    if let Some(rest) = text.strip_prefix("..") {
        if nodes.last() == Some(&Node::Recursive) {
            return None;
        }
        nodes.push(Node::Recursive);
        return if rest.starts_with(is_word) { Some(field(rest, nodes)) } else { Some(rest) };
    }
    let first = text.chars().next()?;
    let rest = text.get(first.len_utf8()..).unwrap_or_default();
    match first {
        ' ' | '@' | '$' => Some(rest),
        '.' => Some(field(rest, nodes)),
        '[' => {
            let (inner, rest) = rest.split_once(']')?;
            bracket(inner, nodes, count)?;
            Some(rest)
        }
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
            // Other words, `range` and `end`, belong to templates.
            nodes.push(Node::Literal(Value::Bool(word.parse().ok()?)));
            Some(rest)
        }
        _ => None,
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_end(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// A key up to the next end that no backslash stands before.
fn field<'t>(text: &'t str, nodes: &mut Vec<Node>) -> &'t str {
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if is_end(c) {
            end = at;
            break;
        }
    }
    let (name, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    nodes.push(if name == "*" { Node::Wildcard } else { Node::Field(name.replace('\\', "")) });
    rest
}

fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => return None,
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                other => out.push(other),
            },
            _ if c == quote => return Some((out, text.get(at + 1..).unwrap_or_default())),
            _ => out.push(c),
        }
    }
    None
}

fn bracket(inner: &str, nodes: &mut Vec<Node>, count: &mut usize) -> Option<()> {
    if inner.contains(',') {
        let each = inner.split(',').map(|one| parse(&format!("[{}]", one.trim_matches(' ')), count));
        nodes.push(Node::Union(each.collect::<Option<_>>()?));
        return Some(());
    }
    if let Some(key) = inner.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\'')) {
        if key.contains('\'') {
            return None;
        }
        nodes.extend(parse(&format!(".{key}"), count)?);
        return Some(());
    }
    let inner = if inner == "*" { ":" } else { inner };
    let parts: Vec<&str> = inner.split(':').collect();
    let number = |at: usize| match parts.get(at).copied().unwrap_or_default() {
        "" => Some(None),
        text => text.parse::<i64>().ok().filter(|_| !text.starts_with('+')).map(Some),
    };
    let (from, to, step) = (number(0)?, number(1)?, number(2)?);
    let slice = match parts.len() {
        1 => Slice { from, to: Some(from.unwrap_or_default() + 1), derived: true, step },
        2 | 3 => Slice { from, to, derived: false, step },
        _ => return None,
    };
    nodes.push(Node::Array(slice));
    Some(())
}

/// `[?(@.a == "b")]`
fn filter<'t>(text: &'t str, nodes: &mut Vec<Node>, count: &mut usize) -> Option<&'t str> {
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
    let condition = inner.get(..end)?;
    let is_operator = |c: char| "!<>=".contains(c);
    let split = condition.find(is_operator).filter(|at| *at > 0).and_then(|at| {
        let (left, after) = condition.split_at_checked(at)?;
        let len = after.find(|c| !is_operator(c))?;
        let (operator, right) = after.split_at_checked(len)?;
        Some((left, operator, right))
    });
    nodes.push(match split {
        Some((left, operator, right)) => Node::Filter(parse(left, count)?, operator.to_owned(), parse(right, count)?),
        None => Node::Filter(parse(condition, count)?, String::new(), Vec::new()),
    });
    Some(rest)
}

/// Walks on from some values. `None`: a fault, as an index beyond the end.
fn walk<'v>(mut at: Vec<&'v Value>, nodes: &'v [Node]) -> Option<Vec<&'v Value>> {
    for node in nodes {
        at = step(at, node)?;
    }
    Some(at)
}

fn step<'v>(at: Vec<&'v Value>, node: &'v Node) -> Option<Vec<&'v Value>> {
    Some(match node {
        Node::Literal(value) => vec![value; at.len().max(1)],
        Node::Field(name) => at.into_iter().filter_map(|value| value.as_object()?.get(name)).collect(),
        Node::Wildcard => at.into_iter().flat_map(children).collect(),
        Node::Recursive => {
            let mut found = Vec::new();
            at.into_iter().for_each(|value| descend(value, DEPTH_MAX, &mut found));
            found
        }
        Node::Union(paths) => {
            let mut found = Vec::new();
            for path in paths {
                found.extend(walk(at.clone(), path)?);
            }
            found
        }
        Node::Array(slice) => {
            let mut found = Vec::new();
            for value in at.into_iter().filter(|value| !value.is_null()) {
                found.extend(slice.of(value.as_array()?)?);
            }
            found
        }
        Node::Filter(left, operator, right) => {
            let mut found = Vec::new();
            for value in at {
                for element in value.as_array()? {
                    if fits(element, left, operator, right)? {
                        found.push(element);
                    }
                }
            }
            found
        }
    })
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Object(entries) => entries.values().collect(),
        _ => Vec::new(),
    }
}

/// A value and all below it, but for what has nothing below.
fn descend<'v>(value: &'v Value, depth: usize, found: &mut Vec<&'v Value>) {
    let below = children(value);
    if below.is_empty() || depth == 0 {
        return;
    }
    found.push(value);
    below.into_iter().for_each(|child| descend(child, depth - 1, found));
}

impl Slice {
    /// `None`: it is out of bounds.
    fn of<'v>(&self, elements: &'v [Value]) -> Option<Vec<&'v Value>> {
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
            return Some(Vec::new());
        }
        if from >= len || from < 0 || to > len || to < 0 || from > to {
            return None;
        }
        let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        Some(elements.get(from..to)?.iter().step_by(step).collect())
    }
}

/// Says whether an element passes a filter. `None`: what is compared cannot be.
fn fits(element: &Value, left: &[Node], operator: &str, right: &[Node]) -> Option<bool> {
    let left = walk(vec![element], left);
    if operator.is_empty() {
        return Some(left.is_some_and(|found| !found.is_empty()));
    }
    let left = left?;
    let right = walk(vec![element], right)?;
    let (left, right) = match (left.as_slice(), right.as_slice()) {
        ([], _) | (_, []) => return Some(false),
        ([left], [right]) => (*left, *right),
        _ => return None,
    };
    let order = compare(left, right)?;
    let is_ordered = !matches!(left, Value::Bool(_));
    match operator {
        "==" => Some(order == Ordering::Equal),
        "!=" => Some(order != Ordering::Equal),
        "<" if is_ordered => Some(order == Ordering::Less),
        ">" if is_ordered => Some(order == Ordering::Greater),
        "<=" if is_ordered => Some(order != Ordering::Greater),
        ">=" if is_ordered => Some(order != Ordering::Less),
        _ => None,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str) -> Option<Value> {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "dot"}, "name": "x"},
            "spec": {"list": [{"type": "A", "n": 1}, {"type": "Ready", "status": "True", "n": 2}], "empty": [], "f": 1.5},
        });
        JsonPath::parse(path)?.first(&object.to_string(), &mut None)
    }

    #[test]
    fn paths_of_definitions_lead_where_client_go_is_led() {
        for (path, wanted) in [
            (".metadata.name", Some(json!("x"))),
            ("metadata.name", None),
            ("$.metadata.name", Some(json!("x"))),
            (r".metadata.labels.a\.b/c", Some(json!("dot"))),
            (r".metadata.labels['a\.b/c']", Some(json!("dot"))),
            (".spec.list[0].type", Some(json!("A"))),
            (".spec.list[-1].type", Some(json!("Ready"))),
            (".spec.list[2].type", None),
            (".spec.list[*].n", Some(json!(1))),
            (".spec.list[0:1].n", Some(json!(1))),
            (".spec.empty[0]", None),
            (".spec.empty[*]", None),
            (".spec.list[?(@.type==\"Ready\")].status", Some(json!("True"))),
            (".spec.list[?(@.type == 'Ready')].n", Some(json!(2))),
            (".spec.list[?(@.n>1)].type", Some(json!("Ready"))),
            (".spec.list[?(@.status)].n", Some(json!(2))),
            (".spec.list[?(@.n>1.5)].type", None),
            (".spec.list[0,1].n", Some(json!(1))),
            ("..type", Some(json!("A"))),
            (".spec.nothing.below", None),
            (".spec.f", Some(json!(1.5))),
        ] {
            assert_eq!(found(path), wanted, "{path}");
        }
    }
}
