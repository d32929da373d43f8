use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

mod oracle;

fn find(paths: &[(u16, &[&str])], json: &str) -> Vec<(u16, String)> {
    let mut found = Vec::new();
    Paths::new(paths.iter().map(|(id, path)| (*id, *path))).locate(json, &mut found).unwrap();
    found.into_iter().map(|f| (f.id, json[f.range].to_owned())).collect()
}

#[test]
fn an_object_says_what_it_is_wherever_it_says_it() {
    let of = |json| {
        let TypeOf { kind, api_version } = type_of(json);
        (kind, api_version)
    };
    assert_eq!(of(r#"{"spec":{"kind":"No"},"apiVersion":"apps/v1","kind":"Deployment"}"#), ("Deployment", "apps/v1"));
    for json in ["{}", "[]", "", r#"{"kind":7,"apiVersion":null}"#, "kind"] {
        assert_eq!(of(json), ("", ""), "{json}");
    }
}

#[test]
fn finds_values_whatever_the_order_of_keys() {
    let paths: &[(u16, &[&str])] =
        &[(1, &["metadata", "name"]), (2, &["metadata", "labels"]), (3, &["ends", "*", "nodeName"])];
    let json = r#" {"ends":[{"nodeName":"a"},{"x":[1,{"nodeName":0}]},{"nodeName":"b"}],"spec":{"name":"no"},
        "metadata":{"labels":{"a":"}"},"n\u0061me":"we\"b"}}"#;
    assert_eq!(
        find(paths, json),
        [(3, "\"a\"".into()), (3, "\"b\"".into()), (2, r#"{"a":"}"}"#.into()), (1, r#""we\"b""#.into())]
    );
}

#[test]
fn null_is_nothing_and_other_shapes_are_refused() {
    let paths: &[(u16, &[&str])] = &[(1, &["metadata", "name"])];
    assert!(find(paths, r#"{"metadata":null}"#).is_empty());
    let compiled = Paths::new([(1, ["metadata", "name"].as_slice())]);
    for bad in ["[]", "{", r#"{"metadata":[]}"#, r#"{"metadata":{}} x"#, r#"{"metadata":3}"#, ""] {
        assert!(compiled.locate(bad, &mut Vec::new()).is_err(), "{bad}");
    }
}

#[test]
fn entries_give_keys_and_places() {
    let json = r#"{"a": "x\ny", "b\"": {"c":[]}}"#;
    let all = entries(json).unwrap();
    assert_eq!(all[0].text().as_deref(), Some("x\ny"));
    assert_eq!((all[1].name.as_str(), &json[all[1].value.clone()]), ("b\"", r#"{"c":[]}"#));
}

#[test]
fn what_is_no_object_is_refused_with_the_place() {
    let compiled = Paths::new([(1, ["a", "b"].as_slice()), (2, ["c", "*", "d"].as_slice())]);
    let cases = [
        ("null", "no object, at byte 0"),
        (r#"[{"a":1}]"#, "no object, at byte 0"),
        ("{} {}", "more than one value, at byte 3"),
        (r#"{"a":[]}"#, "an array where an object belongs, at byte 5"),
        (r#"{"c":{}}"#, "an object where an array belongs, at byte 5"),
        (r#"{"a": 3}"#, "neither an object nor an array where one belongs, at byte 6"),
        (r#"{"a":{"\ud800":1}}"#, "a key that is no text, at byte 15"),
        (r#"{"a":{"b":1}"#, "neither a comma nor an end where one belongs, at byte 12"),
        (r#"{"a":{"b":"}}"#, "a value that does not end, at byte 10"),
        (r#"{"a" 1}"#, "a key without a colon, at byte 5"),
        (r#"{"a":,}"#, "neither an object nor an array where one belongs, at byte 5"),
        (r#"{"x":,}"#, "no value where one belongs, at byte 5"),
        ("{1:2}", "no key where one belongs, at byte 1"),
    ];
    for (bad, why) in cases {
        let error = compiled.locate_valid(bad, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), format!("not a JSON object as Kubernetes writes it: {why}"), "{bad}");
        assert!(compiled.locate(bad, &mut Vec::new()).is_err(), "{bad}");
    }
}

#[test]
fn no_nesting_is_too_deep_to_skip() {
    let deep = format!(
        r#"{{"x":{}{}, "a":{{"b":1}}}}"#,
        "[{\"y\":".repeat(100_000),
        "}]".repeat(100_000).replacen('}', "0}", 1)
    );
    assert_eq!(find(&[(1, &["a", "b"])], &deep), [(1, "1".into())]);
}

/// Keys as documents write them: plain, escaped, beyond ASCII, long, and half a surrogate pair.
const KEYS: &[&str] = &[
    "a",
    "b",
    "c",
    "a",
    "b",
    "\\u0061",
    "\\u0062",
    "é",
    "\\u00e9",
    "😀",
    "\\ud83d\\ude00",
    "\\\"",
    "*",
    "\\\\",
    "}",
    "",
    "a key that is so long that its end is searched for, 🚀",
    "\\ud800",
];
const PATH_KEYS: &[&str] = &["a", "b", "c", "a", "b", "*", "*", "é", "😀", "\"", "\\", "}", ""];

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t ")]
}

/// An object or array of what `member` writes.
fn braced(braces: [char; 2], member: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (space(), member, space()).prop_map(|(before, member, after)| [before, &member, after].concat());
    (vec(member, 0..5), space()).prop_map(move |(members, inside)| {
        let inside = if members.is_empty() { inside.to_owned() } else { members.join(",") };
        format!("{}{inside}{}", braces[0], braces[1])
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (select(KEYS), space(), space(), value);
    braced(['{', '}'], member.prop_map(|(key, before, after, value)| format!("\"{key}\"{before}:{after}{value}")))
}

fn value() -> impl Strategy<Value = String> {
    let string =
        vec(prop_oneof![4 => select(KEYS), 1 => select(&["\\n", "{", "]", "\\/", "ü, :", "\\\\\\\""][..])], 0..6);
    let leaf = prop_oneof![
        4 => string.prop_map(|pieces| format!("\"{}\"", pieces.concat())),
        2 => Just("null".to_owned()),
        1 => select(&["true", "false", "0", "-1.5e+300", "1e999", "12345678901234567890123"][..]).prop_map(str::to_owned),
        1 => any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| prop_oneof![3 => object(inner.clone()), 2 => braced(['[', ']'], inner)])
}

fn document() -> impl Strategy<Value = String> {
    (space(), object(value()), space()).prop_map(|(before, object, after)| [before, &object, after].concat())
}

fn paths() -> impl Strategy<Value = Paths> {
    vec((vec(select(PATH_KEYS), 1..5), prop::bool::weighted(0.2)), 0..7).prop_map(|all| {
        let mut paths = Paths::new([]);
        for ((path, is_mark), number) in all.iter().zip(0..) {
            if *is_mark { paths.mark(number, path) } else { paths.add(number, path) }
        }
        paths
    })
}

/// One change of a document, at a share of its length.
#[derive(Clone, Debug)]
enum Change {
    Cut,
    Remove,
    Insert(char),
    Replace(char),
}

fn change() -> impl Strategy<Value = (prop::sample::Index, Change)> {
    let any_char = || select(&['{', '}', '[', ']', '"', '\\', ',', ':', ' ', '0', 'n', 'u', 'é', '\u{1}', '😀'][..]);
    let change = prop_oneof![
        1 => Just(Change::Cut),
        3 => Just(Change::Remove),
        3 => any_char().prop_map(Change::Insert),
        3 => any_char().prop_map(Change::Replace),
    ];
    (any::<prop::sample::Index>(), change)
}

fn changed(document: &str, changes: Vec<(prop::sample::Index, Change)>) -> String {
    let mut chars: Vec<char> = document.chars().collect();
    for (at, change) in changes {
        let at = at.index(chars.len() + 1);
        match change {
            Change::Cut => chars.truncate(at),
            Change::Insert(new) => chars.insert(at, new),
            _ if at == chars.len() => {}
            Change::Remove => drop(chars.remove(at)),
            Change::Replace(new) => chars[at] = new,
        }
    }
    chars.into_iter().collect()
}

/// What was found, with the ranges of marks taken out, which the oracle cannot know; they hold whole objects.
fn unmarked(paths: &Paths, json: &str, found: &[Found], complete: bool) -> Result<Vec<Found>, TestCaseError> {
    let mut out = found.to_vec();
    for found in out.iter_mut().filter(|found| paths.nodes.iter().any(|node| node.mark == Some(found.id))) {
        if complete {
            let text = &json[found.range.clone()];
            prop_assert!(text.starts_with('{') && validate(text).is_ok(), "{} in {}", text, json);
        }
        found.range = 0..0;
    }
    Ok(out)
}

/// Asserts that a document is walked as serde_json walks it, and one that is not JSON at least ends well.
fn compare(paths: &Paths, json: &str) -> Result<(), TestCaseError> {
    let (mut found, mut trusting) = (Vec::new(), Vec::new());
    let outcome = paths.locate(json, &mut found);
    let trusted = paths.locate_valid(json, &mut trusting);
    let (wanted, wanted_found) = oracle::locate(paths, json);
    let is_json = validate(json).is_ok();
    if is_json && json.trim_ascii_start().starts_with('{') {
        prop_assert_eq!(outcome.is_ok(), wanted.is_ok(), "{:?} {:?}", outcome, wanted);
        prop_assert_eq!(trusted.is_ok(), wanted.is_ok());
        prop_assert_eq!(&unmarked(paths, json, &found, outcome.is_ok())?, &wanted_found);
        prop_assert_eq!(&unmarked(paths, json, &trusting, outcome.is_ok())?, &wanted_found);
        return Ok(());
    }
    // The oracle takes a null, and an array where a path begins with `*`: neither is an object.
    prop_assert!(outcome.is_err() && (is_json || wanted.is_err()), "{:?} {:?}", outcome, wanted);
    prop_assert!(found.is_empty() && (!is_json || trusted.is_err()));
    prop_assert!(trusting.into_iter().all(|at| json.get(at.range).is_some()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_document_is_walked_as_serde_json_walks_it(paths in paths(), json in document()) {
        prop_assert!(validate(&json).is_ok(), "{}", json);
        compare(&paths, &json)?;
    }

    #[test]
    fn a_damaged_document_is_refused_or_walked_alike(
        paths in paths(), json in document(), changes in vec(change(), 1..4),
    ) {
        compare(&paths, &changed(&json, changes))?;
    }

    #[test]
    fn any_text_ends_well(paths in paths(), pieces in vec(select(&["{", "}", "[", "]", "\"", "\\", ",", ":", "a", "é", " ", "null", "\"a\":{", "\"b\":["][..]), 0..60)) {
        compare(&paths, &pieces.concat())?;
    }
}
