//! `stringData` of a Secret: a kube-apiserver takes it, stores it as `data`, and never shows it. So no part ever has it, and what a part has
//! cannot be compared with it.
//!
//! Source: kubernetes `pkg/apis/core/v1/conversion.go` `Convert_v1_Secret_To_core_Secret`.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::write::fleet::Key;

type Fields = Map<String, Value>;

const TEXTS: &str = "stringData";
const STORED: &str = "data";
/// What a strategic merge patch says to a map.
const DIRECTIVE: &str = "$patch";

/// Has an object say in `data` what it says in `stringData`. What is no map of texts stays, and members refuse it.
pub(super) fn store(key: &Key, object: &mut Value) {
    store_in(key, object, false);
}

/// The same of a strategic merge patch.
pub(super) fn store_in_patch(key: &Key, patch: &mut Value) {
    store_in(key, patch, true);
}

fn store_in(key: &Key, object: &mut Value, is_patch: bool) {
    let Some((fields, texts)) = taken(key, object, is_patch).filter(|(_, texts)| !texts.is_empty()) else { return };
    let data = fields.entry(STORED).or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        // In a patch it takes all of `data` away.
        let replaces = is_patch.then(|| (DIRECTIVE.to_owned(), "replace".into()));
        *data = Value::Object(replaces.into_iter().collect());
    }
    if let Value::Object(data) = data {
        data.extend(texts);
    }
}

/// Takes `stringData` away, and gives what is left and what it says, as `data` would.
fn taken<'a>(key: &Key, object: &'a mut Value, is_patch: bool) -> Option<(&'a mut Fields, Fields)> {
    let is_secret = key.gvr.group.is_empty() && &*key.gvr.resource == "secrets";
    let fields = object.as_object_mut().filter(|_| is_secret)?;
    let texts = match fields.get(TEXTS)? {
        Value::Null => Map::new(),
        Value::Object(texts) => stored(texts, is_patch)?,
        _ => return None,
    };
    fields.shift_remove(TEXTS);
    Some((fields, texts))
}

/// `None`: one of them is no text. A null is an empty text in an object; in a patch it takes away what is not there.
fn stored(texts: &Fields, is_patch: bool) -> Option<Fields> {
    let said = texts.iter().filter(|(name, text)| !is_patch || (*name != DIRECTIVE && !text.is_null()));
    said.map(|(name, text)| {
        let text = if text.is_null() { "" } else { text.as_str()? };
        Some((name.clone(), STANDARD.encode(text).into()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use kubefold_wire::resource::{Gvk, Gvr};
    use serde_json::json;

    use super::*;

    fn key(resource: &str) -> Key {
        let (gvr, gvk) = (Gvr::new("", "v1", resource), Gvk::new("", "v1", "Any"));
        Key { gvr, gvk, namespace: "default".into(), name: "one".into() }
    }

    fn stored(object: Value) -> Value {
        let mut object = object;
        store(&key("secrets"), &mut object);
        object
    }

    #[test]
    fn what_a_secret_says_in_texts_it_says_in_data() {
        for (said, expected) in [
            (json!({"stringData": {"a": "é"}}), json!({"data": {"a": "w6k="}})),
            (json!({"data": null, "stringData": {"a": "1"}}), json!({"data": {"a": "MQ=="}})),
            (
                json!({"data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"a": ""}}),
                json!({"data": {"a": "", "b": "Mg=="}}),
            ),
            (json!({"data": {"a": "MQ=="}, "stringData": null}), json!({"data": {"a": "MQ=="}})),
            (json!({"stringData": {}}), json!({})),
            (json!({"stringData": {"a": null, "$patch": "1"}}), json!({"data": {"a": "", "$patch": "MQ=="}})),
        ] {
            assert_eq!(stored(said), expected);
        }
        for refused in [json!({"stringData": {"a": 1}}), json!({"stringData": "a"}), json!([])] {
            assert_eq!(stored(refused.clone()), refused);
        }
        let mut other = json!({"stringData": {"a": "1"}});
        store(&key("configmaps"), &mut other);
        assert_eq!(other, json!({"stringData": {"a": "1"}}));
    }

    #[test]
    fn so_does_a_patch_of_it() {
        for (said, expected) in [
            (json!({"stringData": {"a": "1", "b": null}}), json!({"data": {"a": "MQ=="}})),
            (json!({"data": {"b": null}, "stringData": {"a": "1"}}), json!({"data": {"b": null, "a": "MQ=="}})),
            (json!({"data": null, "stringData": {"a": "1"}}), json!({"data": {"$patch": "replace", "a": "MQ=="}})),
            (json!({"data": null, "stringData": null}), json!({"data": null})),
            (json!({"stringData": {"$patch": "replace", "a": "1"}}), json!({"data": {"a": "MQ=="}})),
        ] {
            let mut patch = said;
            store_in_patch(&key("secrets"), &mut patch);
            assert_eq!(patch, expected);
        }
    }
}
