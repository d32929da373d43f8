//! Decoders of what stands in URLs and headers.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use kubefold_wire::{
    accept::{PARTIAL_OBJECT, TABLE_V1, negotiate as choose, parse_accept},
    info::RequestInfo,
    path::{ApiPath, may_lead_elsewhere},
    resource::Gvr,
    selector::{FieldSelector, LabelSelector, Subject},
    token::ContinueToken,
    warning::Warnings,
};

/// Reads a continue token: what is read is written and read again as the same, and every token survives its way.
pub fn token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(token) = ContinueToken::decode(&text) {
        assert_eq!(ContinueToken::decode(&token.encode()).as_ref(), Some(&token));
    }
    let (head, tail) = data.split_at(data.len().min(9));
    let number = head.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let tail = String::from_utf8_lossy(tail);
    let (resource, after) = tail.split_once('\n').unwrap_or((&tail, ""));
    let remaining = (number % 3 > 0).then_some(number);
    let token = ContinueToken::new(resource.to_owned(), number >> 3, after.to_owned(), remaining);
    assert_eq!(ContinueToken::decode(&token.encode()), Some(token));
}

/// Reads a path, builds the path for a member from what was read, and reads that: both are about the same. Then builds one of
/// any namespace and name, which a server that decodes once reads as it was put in.
pub fn path(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = |path: &str| RequestInfo::of(&Method::POST, path, None);
    if let Ok(info) = read(&text)
        && info.verb == "create"
        && !info.resource.is_empty()
    {
        let same = read(path_of(&info).as_str()).expect("a path that was built is one");
        // Of a namespace there is nothing below but these: whatever else is there is a collection in it.
        let is_namespace = info.resource == "namespaces";
        if !is_namespace || matches!(info.subresource.as_str(), "" | "status" | "finalize") {
            let about = |info: &RequestInfo| (info.api_group.clone(), info.api_version.clone(), info.parts.clone());
            assert_eq!(about(&same), about(&info));
            assert!(is_namespace || same.namespace == info.namespace);
        }
        assert!(!may_lead_elsewhere(path_of(&info).as_str()) || may_lead_elsewhere(&text));
    }
    let (namespace, name) = text.split_at(text.floor_char_boundary(text.len() / 2));
    if namespace.is_empty() || name.is_empty() {
        return;
    }
    let built = ApiPath::within(&Gvr::new("", "v1", "pods"), namespace).then(name);
    let segments: Vec<_> = built.as_str().split('/').map(|raw| percent_decode_str(raw).decode_utf8_lossy()).collect();
    assert_eq!(segments, ["", "api", "v1", "namespaces", namespace, "pods", name]);
    assert!(built.as_str().parse::<Uri>().is_ok());
}

/// As kubefold builds the path of a request to a member.
fn path_of(info: &RequestInfo) -> ApiPath {
    let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
    let namespace = if info.resource == "namespaces" { "" } else { &info.namespace };
    let path = ApiPath::within(&gvr, namespace);
    info.parts.iter().skip(1).fold(path, |path, part| path.then(part))
}

const LABELS: [Option<&str>; 5] = [
    None,
    Some("null"),
    Some("{}"),
    Some(r#"{"app":"web","tier":"","n":"5","zz":"1"}"#),
    Some(r#"{"\u0061pp":"db","a/b":"x","zz":"-7","broken":1}"#),
];

/// Parses the bytes as both kinds of selector: one more requirement narrows what a selector matches by just that.
pub fn selectors(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parse = LabelSelector::parse;
    if let Ok(selector) = parse(&text) {
        assert_eq!(parse(&format!(" {text}\t")).as_ref(), Ok(&selector), "space around it means nothing");
        let narrowed = if text.trim_ascii().is_empty() { "zz".to_owned() } else { format!("{text},zz") };
        // `a=` takes what follows a comma for no part of its value.
        let narrowed = parse(&narrowed).expect("one more requirement");
        for labels in LABELS {
            let has_zz = labels.is_some_and(|labels| labels.contains("zz"));
            assert_eq!(narrowed.matches(labels), selector.matches(labels) && has_zz);
        }
    }
    field_selector(&text);
}

/// As visible objects go; a JSON parser has accepted them.
const OBJECTS: [&str; 3] = [
    r#"{"metadata":{"name":"x","labels":{"app":"web"}},"spec":{"nodeName":"n1@east","replicas":3,"on":true,"none":null}}"#,
    r#"{"metadata":{"name":"web-0@east"},"spec":{"containers":[{"name":"a,b"},{"name":"c\u0064"}]},"status":{"phase":""}}"#,
    "{}",
];

fn field_selector(text: &str) {
    let parse = |text: &str| FieldSelector::parse(text, "", "pods");
    let Ok(selector) = parse(text) else { return };
    let padded = parse(&format!("{text},")).expect("an empty term means nothing");
    let narrowed = parse(&format!("{text},metadata.name=x")).ok().filter(|_| !text.ends_with('\\'));
    for json in OBJECTS {
        for (namespace, name) in [("", "x"), ("default", "x"), ("default", "web-0@east"), ("b,c", "x")] {
            let subject = Subject { namespace, name, json: json.as_bytes(), suffix: ["@east", "@east"] };
            let matches = selector.matches(&subject);
            assert_eq!(padded.matches(&subject), matches);
            if let Some(narrowed) = &narrowed {
                assert_eq!(narrowed.matches(&subject), matches && name == "x");
            }
        }
    }
}

/// Quotes any text as a warning: every header is legal, and client-go reads the text back.
pub fn warning(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut warnings = Warnings::default();
    text.split('\n').for_each(|line| warnings.add(line));
    let values = warnings.values();
    assert_eq!(values.is_empty(), warnings.is_empty());
    let mut total = 0;
    for value in &values {
        let value = std::str::from_utf8(value.as_bytes()).expect("UTF-8");
        let read = as_client_go_reads(value).expect("a warning that client-go takes");
        assert!(!read.is_empty() && !read.chars().any(char::is_control));
        total += read.chars().count();
    }
    assert!(total <= 4 * 1024 + 256, "{total}");
    if total < 4 * 1024 {
        let mut seen = Vec::new();
        for line in text.split('\n').map(|line| line.replace(char::is_control, " ")) {
            if !line.is_empty() && !seen.contains(&line) {
                seen.push(line);
            }
        }
        let read: Vec<String> =
            values.iter().filter_map(|value| as_client_go_reads(std::str::from_utf8(value.as_bytes()).ok()?)).collect();
        if seen.iter().map(|line| line.chars().count()).sum::<usize>() <= 4 * 1024 {
            assert_eq!(read, seen);
        }
    }
}

/// `parseQuotedString` of kubernetes/apimachinery `pkg/util/net/http.go`.
fn as_client_go_reads(value: &str) -> Option<String> {
    let (mut text, mut chars) = (String::new(), value.strip_prefix("299 - \"")?.chars());
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(text),
            '\\' => text.push(chars.next()?),
            c => text.push(c),
        }
    }
}

/// Negotiates any `Accept` header: bounded, and one who takes anything is answered.
pub fn negotiate(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let offers = [TABLE_V1, PARTIAL_OBJECT];
    let clauses = parse_accept(&text);
    assert!(clauses.len() <= 64);
    assert!(clauses.iter().all(|clause| clause.media_type.contains('/')));
    let chosen = choose(&text, &offers);
    if let Some(kind) = chosen.and_then(|chosen| chosen.transform) {
        assert!(offers.contains(&kind));
    }
    if text.matches(',').count() < 60 {
        assert!(choose(&format!("{text},*/*"), &offers).is_some());
    }
}
