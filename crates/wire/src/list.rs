//! Splits a Kubernetes list into its items without parsing them further.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// What surrounds the items.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// The server's revision that the list stands for.
    pub resource_version: String,
    /// More pages follow where this is not empty.
    #[serde(rename = "continue")]
    pub continue_token: String,
    /// How many objects the pages after this one have; absent where the server does not count them.
    pub remaining_item_count: Option<i64>,
}

/// The body is not a Kubernetes list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Not UTF-8.
    #[error("the list is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    /// Not JSON, or not shaped as a list.
    #[error("not a Kubernetes list: {0}")]
    Shape(#[from] serde_json::Error),
    /// A list without `items` would read as empty, and empty means deleted.
    #[error("a list without items")]
    NoItems,
}

/// Splits `body` into its metadata and the text of each item, borrowed from it.
///
/// Shape: one list -> its items, in the order that they came.
pub fn split(body: &[u8]) -> Result<(ListMeta, Vec<&str>), ListError> {
    let text = std::str::from_utf8(body)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let (meta, items) = deserializer.deserialize_map(List)?;
    deserializer.end()?;
    Ok((meta, items.ok_or(ListError::NoItems)?))
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = (ListMeta, Option<Vec<&'de str>>);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut meta = ListMeta::default();
        let mut items = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match key.as_ref() {
                "metadata" => meta = map.next_value::<Option<ListMeta>>()?.unwrap_or_default(),
                "items" => items = Some(map.next_value_seed(Items)?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok((meta, items))
    }
}

struct Items;

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<&'de str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of items")
    }

    // Old servers print an empty list's items as null.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::with_capacity(512);
        while let Some(item) = seq.next_element::<&'de RawValue>()? {
            items.push(item.get());
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_list_whatever_the_order_of_its_fields() {
        let (meta, items) = split(
            br#"{"items":[{"a":1},{"b":[{}]}],"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x","remainingItemCount":3}}"#,
        )
        .unwrap();
        assert_eq!((meta.resource_version.as_str(), meta.continue_token.as_str()), ("7", "x"));
        assert_eq!(items, [r#"{"a":1}"#, r#"{"b":[{}]}"#]);
    }

    #[test]
    fn what_is_no_list_is_never_an_empty_one() {
        for bad in ["", "{}", "[]", r#"{"kind":"Status"}"#, r#"{"items":[{}"#, r#"{"items":{}}"#, r#"{"items":[]} x"#] {
            assert!(split(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(split(br#"{"items":null,"metadata":null}"#).unwrap().1.is_empty());
        assert!(split(b"{\"items\":[\"\xff\"]}").is_err());
    }
}
