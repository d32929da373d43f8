use proptest::prelude::*;

use super::*;

fn yaml(json: &str) -> String {
    String::from_utf8(from_json(json.as_bytes()).unwrap()).unwrap()
}

/// A custom resource's spec, and what Kubernetes 1.36.3 answered of it in `application/yaml`.
const ASKED: &str = r#"{"spec":{"a":1,"f":1.5,"exp":1e30,"big":9007199254740993,"s":"yes","t":"1e3","n":null,"multi":"a\nb\n","u":"\u2028 é \u0000","long":"only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf and more","empty":"","el":[],"eo":{},"tab":"a\tb","date":"2001-01-01","num":"0o7","col":"a: b","hash":"a #b","dash":"- a","tr":"a ","tilde":"~","bool":"true","y":"y","nul":"null","star":"*a","amp":"&a","bang":"!a","at":"@a","q":"a'b","dq":"a\"b","colend":"a:","pct":"%a","nested":[[1,2],[{"a":1,"b":[{}]}]],"ml2":"a\n\n  b","ml3":"\na","ml4":"a\nb","ml5":" a\nb\n\n","f2":-0.25,"f3":100000000000000000000,"f4":1}}"#;
const TOLD: &str = include_str!("told.yaml");

#[test]
fn yaml_is_written_as_kubernetes_writes_it() {
    assert_eq!(yaml(ASKED), TOLD);
}

#[test]
fn keys_are_in_gos_order() {
    let keys = ["a10", "a2", "a02", "b", "a", "a.b", "a-b", "A", "1", "é", "a1b", "a/b", "_"];
    let object: serde_json::Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
    let order: Vec<&String> = sorted(object.iter().collect()).into_iter().map(|(key, _)| key).collect();
    assert_eq!(order, ["_", "1", "A", "a", "a-b", "a.b", "a/b", "a1b", "a2", "a02", "a10", "b", "é"]);
}

proptest! {
    // Without U+2028 and U+2029. Kubernetes writes them as YAML 1.1 does, where they end a line; the reader here is one of YAML 1.2.
    #[test]
    fn what_is_written_is_read_again(texts in prop::collection::vec(r#"([a-z:#'"\\\-? ,0-9.~\t\n@é]|yes|null|1e3|[^\p{C}\p{Zl}\p{Zp}]){0,100}"#, 1..6)) {
        let object: serde_json::Map<String, Value> =
            texts.iter().enumerate().map(|(at, text)| (format!("k{at}"), text.clone().into())).collect();
        let value = serde_json::json!({"list": texts, "map": object});
        let text = yaml(&value.to_string());
        let read: Value = serde_saphyr::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(read, value, "{}", text);
    }

    #[test]
    fn any_keys_sort_and_none_is_lost(keys in prop::collection::hash_set("[a-c0-2._-]{0,6}", 0..40)) {
        let object: serde_json::Map<String, Value> = keys.iter().map(|key| (key.clone(), Value::Null)).collect();
        let mut order: Vec<&String> = sorted(object.iter().collect()).into_iter().map(|(key, _)| key).collect();
        order.sort();
        prop_assert_eq!(order.len(), keys.len());
    }
}
