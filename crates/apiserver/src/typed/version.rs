//! Further versions of a kind.

use std::fmt::Display;

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{codec::Codec, schema};
use crate::kinds::put;
use kubefold_wire::access;

type MakeCodec<T> = Box<dyn FnOnce(String) -> Codec<T>>;

/// One more version of a kind: its Rust type, and how it becomes the hub's type `T` and comes of it.
///
/// Its scope, names and subresources are the hub's; so are its columns if it has none of its own.
#[must_use = "a version is served once a kind has it"]
pub struct Version<T> {
    pub(super) definition: Value,
    pub(super) codec: MakeCodec<T>,
}

impl<T: 'static> Version<T> {
    /// A version by its name, such as `v1alpha1`. A conversion that fails refuses a write with 400, and a read with 500; its
    /// text reaches the client. `metadata` need not be converted; labels and annotations that a conversion sets are taken
    /// over.
    pub fn new<V, E, F>(
        name: &str,
        to_hub: impl Fn(V) -> Result<T, E> + Send + Sync + 'static,
        from_hub: impl Fn(T) -> Result<V, F> + Send + Sync + 'static,
    ) -> Self
    where
        V: Serialize + DeserializeOwned + 'static,
        E: Display + 'static,
        F: Display + 'static,
    {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "name": name, "served": true, "storage": false, "schema": {"openAPIV3Schema": open},
        });
        Self { definition, codec: Box::new(|api_version| Codec::of_version(api_version, to_hub, from_hub)) }
    }

    /// Takes the schema that the version's type derives with schemars.
    pub fn schema<V: JsonSchema>(self) -> Self {
        self.schema_value(schema::structural::<V>())
    }

    /// Takes a structural schema.
    pub fn schema_value(mut self, schema: Value) -> Self {
        put(&mut self.definition, "schema", Some(json!({"openAPIV3Schema": schema})));
        self
    }

    /// One more column behind the name. As of the kind.
    pub fn column(mut self, name: &str, kind: &str, path: &str) -> Self {
        let column = json!({"name": name, "type": kind, "jsonPath": path});
        super::push(&mut self.definition, "additionalPrinterColumns", column);
        self
    }

    /// Is read out of the storage and not served: a version that is on its way out.
    pub fn not_served(mut self) -> Self {
        put(&mut self.definition, "served", Some(false.into()));
        self
    }

    pub(super) fn name(&self) -> &str {
        access::text(&self.definition, "/name")
    }
}

/// Gives the versions of a definition what they have of the hub's.
pub(super) fn inherit(definition: &mut Value, hub: &str) {
    let versions = access::items(definition, "/spec/versions");
    let Some(from) = versions.iter().find(|version| access::text(version, "/name") == hub).cloned() else { return };
    for version in definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut).into_iter().flatten() {
        for shared in ["subresources", "additionalPrinterColumns", "selectableFields"] {
            if let (None, Some(value)) = (version.get(shared), from.get(shared)) {
                put(version, shared, Some(value.clone()));
            }
        }
    }
}

/// Adds a subresource to a version of a definition.
pub(super) fn subresource(version: &mut Value, name: &str, value: Value) {
    let Some(fields) = version.as_object_mut() else { return };
    let all = fields.entry("subresources").or_insert_with(|| json!({}));
    put(all, name, Some(value));
}
