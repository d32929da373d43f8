//! An object as the types of a built-in kind hold it.

use serde_json::{Map, Value};

use crate::patch::Subject;
use crate::schema::arrange;

/// The object that is there, without its managed fields; or the empty one.
///
/// A built-in kind is a struct, of which some fields are there even if they are empty: who sets such a field to
/// something adds no field. A custom resource is what it is.
pub(crate) fn present(subject: &Subject<'_>, object: Option<&Value>) -> Value {
    let mut object = object.cloned().unwrap_or_else(|| {
        let mut empty = Map::new();
        empty.insert("apiVersion".to_owned(), subject.api_version.into());
        empty.insert("kind".to_owned(), subject.kind.into());
        Value::Object(empty)
    });
    super::drop_entries(&mut object);
    match subject.schema.filter(|_| !subject.custom) {
        Some(of) => arrange(of, object),
        None => object,
    }
}
