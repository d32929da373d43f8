//! Answers, reduced to what must agree.

use std::{collections::BTreeMap, fmt};

use http::header;
use serde_json::{Map, Value, json};

use crate::target::Target;
use kubefold_wire::protobuf::{self, Payload, Records};
use testbed::Answer;

/// Headers that say nothing about the answer: framing, clocks and ids.
const HEADERS_PASSED: [&str; 4] = ["date", "content-length", "transfer-encoding", "connection"];
/// Headers of which only the presence counts.
const HEADERS_OPAQUE: [&str; 2] = ["audit-id", "etag"];
/// Characters of a value in a report.
const SHOWN_MAX: usize = 300;

/// An answer without what differs by nature: revisions, tokens, kubefold's annotations and, where the target adds it,
/// the suffix of names.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, Vec<String>>,
    pub(crate) body: Body,
    /// The body as it came.
    pub(crate) raw: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Empty,
    /// With how it is laid out.
    Json(Value, &'static str),
    /// One event per line.
    Events(Vec<Value>),
    Yaml(Value),
    Text(String),
    /// That it is such is all that is compared.
    Binary,
}

/// One aspect in which two answers differ.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    pub(crate) aspect: String,
    pub(crate) said: String,
    pub(crate) told: String,
}

impl Mismatch {
    pub(crate) fn new(aspect: &str, said: String, told: String) -> Self {
        Self { aspect: aspect.to_owned(), said, told }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alike = self.said.bytes().zip(self.told.bytes()).take_while(|(said, told)| said == told).count();
        let [said, told] = [&self.said, &self.told].map(|text| shortened(text, alike));
        write!(f, "{}:\n      said {said}\n      told {told}", self.aspect)
    }
}

/// As much of a text as can be shown, from a little before it differs.
fn shortened(text: &str, alike: usize) -> String {
    let from = if text.len() > SHOWN_MAX { alike.saturating_sub(SHOWN_MAX / 2) } else { 0 };
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let cut: String = text[from..].chars().take(SHOWN_MAX).collect();
    let before = if from > 0 { "..." } else { "" };
    if cut.len() + from < text.len() {
        format!("{before}{cut}... ({} bytes)", text.len())
    } else {
        format!("{before}{cut}")
    }
}

impl Seen {
    pub(crate) fn of(target: &Target, answer: Result<&Answer, &String>) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let body = Body::Text(error.clone());
                return Self { status: 0, headers: BTreeMap::new(), raw: body.clone(), body };
            }
        };
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in &answer.headers {
            let value = if HEADERS_OPAQUE.contains(&name.as_str()) { "..." } else { value.to_str().unwrap_or("?") };
            if !HEADERS_PASSED.contains(&name.as_str()) {
                headers.entry(name.to_string()).or_default().push(value.to_owned());
            }
        }
        let mut raw = body(answer);
        raw.documents().for_each(without_ages);
        let body = raw.clone().map(&mut |value| normalise(value, &target.suffix));
        Self { status: answer.status.as_u16(), headers, body, raw }
    }

    /// The same with objects in the order of their own names: those that a suffix is behind have another.
    pub(crate) fn sorted(mut self) -> Self {
        let name = |object: &Value| format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
        match &mut self.body {
            Body::Json(Value::Object(list), _) | Body::Yaml(Value::Object(list)) => {
                if let Some(Value::Array(items)) = list.get_mut("items") {
                    items.sort_by_key(name);
                }
                if let Some(Value::Array(rows)) = list.get_mut("rows") {
                    rows.sort_by_key(|row| name(&row["object"]));
                }
            }
            Body::Events(events) => {
                // The first has the columns.
                let columns =
                    events.first().map(|event| event["object"]["columnDefinitions"].clone()).unwrap_or_default();
                for event in events.iter_mut().filter(|event| event["object"]["kind"] == "Table") {
                    event["object"]["columnDefinitions"] = columns.clone();
                }
                events.sort_by_key(|event| name(of_row(&event["object"])));
            }
            _ => {}
        }
        self
    }

    /// The body as it came, where it is one document.
    pub(crate) fn document(&self) -> Option<&Value> {
        if let Body::Json(value, _) | Body::Yaml(value) = &self.raw { Some(value) } else { None }
    }

    /// The body, for reports.
    pub(crate) fn shown(&self) -> String {
        shortened(&self.body.shown(), 0)
    }
}

fn body(answer: &Answer) -> Body {
    let content_type = answer.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = content_type.split(';').next().unwrap_or_default();
    if media_type == protobuf::MEDIA_TYPE && !answer.body.is_empty() {
        return of_protobuf(&answer.body, content_type.ends_with(";stream=watch")).unwrap_or(Body::Binary);
    }
    let Ok(text) = std::str::from_utf8(&answer.body) else { return Body::Binary };
    match media_type {
        _ if text.is_empty() => Body::Empty,
        "application/json" if text.starts_with("{\"type\":\"") => events(text),
        "application/json" => match serde_json::from_str(text) {
            Ok(value) => Body::Json(value, layout(text)),
            Err(_) => Body::Text(text.to_owned()),
        },
        "application/yaml" => serde_saphyr::from_str(text).map_or_else(|_| Body::Text(text.to_owned()), Body::Yaml),
        _ => Body::Text(text.to_owned()),
    }
}

/// What protobuf says, as JSON: that Go writes the same bytes is proved in the crate that writes them.
fn of_protobuf(body: &[u8], is_stream: bool) -> Option<Body> {
    let read = |object: &[u8]| serde_json::from_slice::<Value>(&protobuf::to_json(object).ok()?).ok();
    if !is_stream {
        let mut document = read(body)?;
        let of = document["apiVersion"].clone();
        if document["kind"] == "PartialObjectMetadataList" {
            // Protobuf does not say the type of each item.
            for item in document["items"].as_array_mut().into_iter().flatten() {
                let metadata = item["metadata"].take();
                *item = json!({"kind": "PartialObjectMetadata", "apiVersion": of, "metadata": metadata});
            }
        }
        return Some(Body::Json(document, "protobuf"));
    }
    let (mut rest, mut events) = (body, Vec::new());
    while let Some((length, frame)) = rest.split_first_chunk() {
        let (event, behind) = frame.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let [kind, raw] = fields(event)?;
        let [object, _] = fields(raw)?;
        events.push(json!({"type": String::from_utf8_lossy(kind), "object": read(object)?}));
        rest = behind;
    }
    Some(of_events(events))
}

/// The first two fields of a message, both of bytes.
fn fields(message: &[u8]) -> Option<[&[u8]; 2]> {
    let mut found: [&[u8]; 2] = [b"", b""];
    for record in Records::new(message) {
        let Ok((number, Payload::Bytes(bytes))) = record else { return None };
        *found.get_mut(number as usize - 1)? = bytes;
    }
    Some(found)
}

fn events(text: &str) -> Body {
    let events: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    events.map_or_else(|_| Body::Text(text.to_owned()), of_events)
}

fn of_events(mut events: Vec<Value>) -> Body {
    // When one comes is a matter of clocks; that behind the beginning is none.
    let ends = |event: &Value| event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
    events.retain(|event| event["type"] != "BOOKMARK" || ends(event));
    if events.is_empty() { Body::Empty } else { Body::Events(events) }
}

fn layout(text: &str) -> &'static str {
    match (text.starts_with("{\n  \""), text.ends_with('\n')) {
        (true, true) => "indented, with a newline",
        (true, false) => "indented",
        (false, true) => "compact, with a newline",
        (false, false) => "compact",
    }
}

impl Body {
    /// The same without the column that is kubefold's own, where it is a Table that has it.
    pub(crate) fn without_cluster(&self) -> Self {
        let mut own = self.clone();
        let is_ours = own.documents().next().is_some_and(|table| is_cluster(&table["columnDefinitions"][1]));
        // Of a watch only the first event has columns.
        for table in own.documents().filter(|_| is_ours) {
            if let Some(columns) = table["columnDefinitions"].as_array_mut() {
                columns.remove(1);
            }
            for row in table["rows"].as_array_mut().into_iter().flatten() {
                assert!(row["cells"].as_array_mut().unwrap().remove(1).is_string(), "{row}");
            }
        }
        own
    }

    /// The document, or those that a watch tells of.
    fn documents(&mut self) -> Box<dyn Iterator<Item = &mut Value> + '_> {
        match self {
            Self::Json(value, _) | Self::Yaml(value) => Box::new(std::iter::once(value)),
            Self::Events(events) => Box::new(events.iter_mut().filter_map(|event| event.get_mut("object"))),
            Self::Empty | Self::Text(_) | Self::Binary => Box::new(std::iter::empty()),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Empty => "(empty)".into(),
            Self::Json(value, _) => value.to_string(),
            Self::Events(events) => format!("(events) {}", json!(events)),
            Self::Yaml(value) => format!("(YAML) {value}"),
            Self::Text(text) => format!("{text:?}"),
            Self::Binary => "(binary)".into(),
        }
    }

    fn map(mut self, change: &mut impl FnMut(&mut Value)) -> Self {
        match &mut self {
            Self::Json(value, _) | Self::Yaml(value) => change(value),
            Self::Events(events) => events.iter_mut().for_each(change),
            Self::Empty | Self::Text(_) | Self::Binary => {}
        }
        self
    }
}

/// The object of a Table of one row, or what is none.
fn of_row(object: &Value) -> &Value {
    if object["kind"] == "Table" { &object["rows"][0]["object"] } else { object }
}

/// Says whether a column of a Table is the one that is kubefold's: to the letter, but for its description.
fn is_cluster(column: &Value) -> bool {
    let mut bare = column.clone();
    let described = bare.as_object_mut().and_then(|column| column.shift_remove("description"));
    described.is_some() && bare == json!({"name": "Cluster", "type": "string", "format": "", "priority": 0})
}

/// Of ages, which clocks change, that they are some is what counts here: `tests/e2e/table.rs` compares them.
fn without_ages(table: &mut Value) {
    let Some(rows) = table["rows"].as_array_mut().filter(|rows| !rows.is_empty()) else { return };
    for cell in rows.iter_mut().flat_map(|row| row["cells"].as_array_mut().into_iter().flatten()) {
        let is_age = cell.as_str().is_some_and(|text| {
            text.ends_with(['s', 'm', 'h']) && text.chars().all(|c| c.is_ascii_digit() || "smh".contains(c))
        });
        if is_age {
            *cell = "(age)".into();
        }
    }
}

/// A kube-apiserver renews the Lease of its own identity each ten seconds, also between two answers that are compared. A review, which
/// has no name, is made by each of them.
fn without_renewals(object: &mut Map<String, Value>) {
    let metadata = object.get("metadata");
    let of_a_server = metadata.is_some_and(|metadata| {
        metadata["namespace"] == "kube-system"
            && metadata["name"].as_str().is_some_and(|name| name.starts_with("apiserver-"))
    });
    let is_review = metadata.is_some_and(|metadata| metadata["name"].is_null() && metadata["managedFields"].is_array());
    if !of_a_server && !is_review {
        return;
    }
    if let Some(Value::Array(entries)) =
        object.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"))
    {
        entries.iter_mut().for_each(|entry| entry["time"] = "(renewed)".into());
    }
    if let Some(renewed) = object.get_mut("spec").and_then(|spec| spec.get_mut("renewTime")) {
        *renewed = "(renewed)".into();
    }
}

/// Takes out what differs by nature.
pub(crate) fn normalise(value: &mut Value, suffix: &str) {
    match value {
        Value::Object(map) => {
            without_annotations(map);
            without_renewals(map);
            // A kube-apiserver lists custom kinds in the order of a hash map.
            if let Some(Value::Array(resources)) = map.get_mut("resources") {
                resources.sort_by_key(|one| format!("{}{}", one["name"], one["resource"]));
            }
            for (key, value) in map.iter_mut() {
                match (key.as_str(), value) {
                    ("resourceVersion", Value::String(text)) if is_revision(text) => "(revision)".clone_into(text),
                    ("continue", Value::String(text)) if !text.is_empty() => "(token)".clone_into(text),
                    ("message", Value::String(text)) => *text = without_revisions(text, suffix),
                    (_, value) => normalise(value, suffix),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| normalise(value, suffix)),
        Value::String(text) if !suffix.is_empty() => {
            if let Some(own) = without_suffix(text, suffix) {
                *text = own;
            }
        }
        _ => {}
    }
}

/// The own name behind a visible one. In that of an event the suffix comes before the last dot.
fn without_suffix(text: &str, suffix: &str) -> Option<String> {
    let of_event = || {
        let (object, end) = text.rsplit_once('.')?;
        Some(format!("{}.{end}", object.strip_suffix(suffix)?))
    };
    text.strip_suffix(suffix).map(str::to_owned).or_else(of_event)
}

fn is_revision(text: &str) -> bool {
    text.parse::<u64>().is_ok_and(|number| number > 0 && number < 1 << 53) && !text.starts_with('0')
}

/// The annotations that kubefold adds; and the map, where they were all.
fn without_annotations(map: &mut Map<String, Value>) {
    let Some(Value::Object(annotations)) = map.get_mut("annotations") else { return };
    let before = annotations.len();
    annotations.retain(|key, _| key != "kubefold.io/cluster" && key != "kubefold.io/clusters");
    if annotations.is_empty() && before > 0 {
        map.shift_remove("annotations");
    }
}

/// In words about revisions their numbers, and everywhere the suffix.
fn without_revisions(text: &str, suffix: &str) -> String {
    let text = if suffix.is_empty() { text.to_owned() } else { text.replace(suffix, "") };
    if !text.contains("resource version: ") {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// Everything in which the second differs from the first.
pub(crate) fn mismatches(said: &Seen, told: &Seen) -> Vec<Mismatch> {
    let mut out = Vec::new();
    let mut differ = |aspect: String, said: &str, told: &str| {
        if said != told {
            out.push(Mismatch { aspect, said: said.to_owned(), told: told.to_owned() });
        }
    };
    differ("status".into(), &said.status.to_string(), &told.status.to_string());
    let none = Vec::new();
    let mut names: Vec<_> = said.headers.keys().chain(told.headers.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let of = |seen: &Seen| seen.headers.get(name).unwrap_or(&none).join(" | ");
        differ(format!("header {name}"), &of(said), &of(told));
    }
    let without = told.body.without_cluster();
    if without.shown() != told.body.shown() {
        differ("column".into(), "", "Cluster");
    }
    bodies(&said.body, &without, &mut differ);
    out
}

fn bodies(said: &Body, told: &Body, differ: &mut impl FnMut(String, &str, &str)) {
    match (said, told) {
        (Body::Json(said, first), Body::Json(told, second)) => {
            differ("format".into(), first, second);
            values("body", said, told, differ);
        }
        (Body::Yaml(said), Body::Yaml(told)) => values("body", said, told, differ),
        (Body::Events(said), Body::Events(told)) => {
            let (said, told) = (json!(said), json!(told));
            differ("events".into(), &at_difference(&said, &told).0, &at_difference(&said, &told).1);
        }
        (said, told) => differ("body".into(), &said.shown(), &told.shown()),
    }
}

fn values(aspect: &str, said: &Value, told: &Value, differ: &mut impl FnMut(String, &str, &str)) {
    let (Value::Object(first), Value::Object(second)) = (said, told) else {
        let (said, told) = at_difference(said, told);
        return differ(aspect.to_owned(), &said, &told);
    };
    if said == told {
        // Only the order of keys can be left.
        return differ("order".into(), &said.to_string(), &told.to_string());
    }
    let mut keys: Vec<_> = first.keys().chain(second.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let none = Value::Null;
        let (said, told) = (first.get(key).unwrap_or(&none), second.get(key).unwrap_or(&none));
        if said != told {
            let (said, told) = at_difference(said, told);
            differ(format!("{aspect}.{key}"), &said, &told);
        }
    }
}

/// The innermost pair of values that differ, with where they are.
fn at_difference(said: &Value, told: &Value) -> (String, String) {
    if said == told {
        return (String::new(), String::new());
    }
    match (said, told) {
        (Value::Object(first), Value::Object(second)) => {
            for key in first.keys().chain(second.keys()) {
                let (said, told) = (first.get(key), second.get(key));
                if said != told {
                    let none = Value::Null;
                    let (said, told) = at_difference(said.unwrap_or(&none), told.unwrap_or(&none));
                    return (format!(".{key}{said}"), format!(".{key}{told}"));
                }
            }
            (String::new(), String::new())
        }
        (Value::Array(first), Value::Array(second)) if first.len() == second.len() => {
            let at = first.iter().zip(second).position(|(said, told)| said != told).unwrap_or_default();
            let (said, told) = at_difference(&first[at], &second[at]);
            (format!("[{at}]{said}"), format!("[{at}]{told}"))
        }
        (Value::Array(first), Value::Array(second)) => {
            (format!(" {} items: {said}", first.len()), format!(" {} items: {told}", second.len()))
        }
        (said, told) => (format!(" = {said}"), format!(" = {told}")),
    }
}
