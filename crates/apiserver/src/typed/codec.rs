//! Objects as JSON in one version, and as the Rust type that a kind's rules are written in.

use std::fmt::Display;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::kinds::{ConversionError, put};

/// Why an object in JSON is none of a Rust type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It has another shape, in serde's words.
    Shape(String),
    /// It cannot be converted, in the words of the conversion.
    Conversion(String),
}

type Read<T> = Box<dyn Fn(Value) -> Result<T, Unread> + Send + Sync>;
type Write<T> = Box<dyn Fn(T) -> Result<Value, Unread> + Send + Sync>;
type Reread = Box<dyn Fn(Value) -> Result<Value, Unread> + Send + Sync>;

/// One version of a kind: how its JSON is read into the hub's type, and written of it.
pub(super) struct Codec<T> {
    /// Such as `blog.example.com/v1`.
    pub(super) api_version: String,
    read: Read<T>,
    write: Write<T>,
    /// What the version's own type knows of an object.
    reread: Reread,
}

fn shape(error: &serde_json::Error) -> Unread {
    Unread::Shape(error.to_string())
}

impl<T: Serialize + DeserializeOwned + 'static> Codec<T> {
    /// The hub itself.
    pub(super) fn of_hub(api_version: String) -> Self {
        let read = Box::new(|value| serde_json::from_value(value).map_err(|error| shape(&error)));
        let write = Box::new(|object: T| serde_json::to_value(object).map_err(|error| shape(&error)));
        Self { api_version, read, write, reread: reread::<T>() }
    }
}

fn reread<V: Serialize + DeserializeOwned>() -> Reread {
    let known = |value| serde_json::to_value(serde_json::from_value::<V>(value)?);
    Box::new(move |value| known(value).map_err(|error| shape(&error)))
}

impl<T: 'static> Codec<T> {
    /// A version with a type of its own.
    pub(super) fn of_version<V, E, F>(
        api_version: String,
        to_hub: impl Fn(V) -> Result<T, E> + Send + Sync + 'static,
        from_hub: impl Fn(T) -> Result<V, F> + Send + Sync + 'static,
    ) -> Self
    where
        V: Serialize + DeserializeOwned + 'static,
        E: Display,
        F: Display,
    {
        let reread = reread::<V>();
        let read = Box::new(move |value| {
            let version: V = serde_json::from_value(value).map_err(|error| shape(&error))?;
            to_hub(version).map_err(|error| Unread::Conversion(error.to_string()))
        });
        let write = Box::new(move |object| {
            let version = from_hub(object).map_err(|error| Unread::Conversion(error.to_string()))?;
            serde_json::to_value(version).map_err(|error| shape(&error))
        });
        Self { api_version, read, write, reread }
    }

    pub(super) fn read(&self, object: &Value) -> Result<T, Unread> {
        (self.read)(object.clone())
    }

    /// Takes over what the conversions to the hub and back change. What the version's type does not know stays as it is, and
    /// so does the metadata, which conversions need not carry.
    pub(super) fn settle(&self, object: &mut Value) -> Result<(), Unread> {
        let mut before = (self.reread)(object.clone())?;
        let mut after = (self.write)(self.read(object)?)?;
        for side in [&mut before, &mut after] {
            for field in ["apiVersion", "kind", "metadata"] {
                put(side, field, None);
            }
        }
        take_over(object, &before, after);
        Ok(())
    }

    /// Lets the hub's object be changed, and takes over what was changed: what the type does not know stays as it is.
    pub(super) fn edit(&self, object: &mut Value, change: impl FnOnce(&mut T)) -> Result<(), Unread> {
        let before = (self.write)(self.read(object)?)?;
        let mut typed = self.read(object)?;
        change(&mut typed);
        take_over(object, &before, (self.write)(typed)?);
        Ok(())
    }

    /// The same object in another version. What metadata says is alike in all; labels and annotations that the conversion
    /// sets are taken over.
    pub(super) fn convert(&self, object: &Value, to: &Self) -> Result<Value, ConversionError> {
        let failed = |unread| {
            let (Unread::Shape(why) | Unread::Conversion(why)) = unread;
            ConversionError { from: self.api_version.clone(), to: to.api_version.clone(), why }
        };
        let mut made = (to.write)(self.read(object).map_err(failed)?).map_err(failed)?;
        let said = made.get_mut("metadata").map(Value::take).unwrap_or_default();
        let mut metadata = object.get("metadata").cloned().unwrap_or_default();
        for field in ["labels", "annotations"] {
            if let Some(value) = said.get(field).filter(|value| !value.is_null()) {
                put(&mut metadata, field, Some(value.clone()));
            }
        }
        put(&mut made, "kind", object.get("kind").cloned());
        put(&mut made, "apiVersion", Some(to.api_version.as_str().into()));
        put(&mut made, "metadata", Some(metadata));
        Ok(made)
    }
}

/// Makes the difference between two documents in a third.
fn take_over(object: &mut Value, before: &Value, after: Value) {
    if *before == after {
        return;
    }
    let (Some(fields), Some(old)) = (object.as_object_mut(), before.as_object()) else {
        *object = after;
        return;
    };
    let Value::Object(new) = after else {
        *object = after;
        return;
    };
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        fields.shift_remove(name);
    }
    for (name, value) in new {
        match (fields.get_mut(&name), old.get(&name)) {
            (Some(there), Some(before)) => take_over(there, before, value),
            (None, Some(before)) if *before == value => {}
            _ => {
                fields.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Post {
        spec: Spec,
    }

    #[derive(Serialize, Deserialize)]
    struct Spec {
        title: String,
        author: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    }

    #[test]
    fn only_what_was_changed_is_taken_over() {
        let codec = Codec::<Post>::of_hub("example.com/v1".into());
        let mut object = json!({
            "kind": "Post", "metadata": {"name": "a"}, "spec": {"unknown": 1, "title": "t", "tags": ["x"]}, "more": true,
        });
        let change = |post: &mut Post| {
            post.spec.title.push('!');
            post.spec.tags.clear();
        };
        codec.edit(&mut object, change).unwrap();
        let wanted = json!({
            "kind": "Post", "metadata": {"name": "a"}, "spec": {"unknown": 1, "title": "t!"}, "more": true,
        });
        assert_eq!(object, wanted);
    }

    #[test]
    fn a_shape_that_does_not_fit_changes_nothing() {
        let codec = Codec::<Post>::of_hub("example.com/v1".into());
        let mut object = json!({"spec": {"title": 7}});
        let unread = codec.edit(&mut object, |post| post.spec.title.clear()).unwrap_err();
        assert_eq!(unread, Unread::Shape("invalid type: integer `7`, expected a string".into()));
        assert_eq!(object, json!({"spec": {"title": 7}}));
    }
}
