//! What the end of an owner takes out of an object.

use serde_json::Value;

use super::{fields::text, view::Uid};

/// An object without one of its finalizers.
pub(super) fn without_finalizer(mut tree: Value, name: &str) -> Value {
    if let Some(finalizers) = tree["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|finalizer| finalizer != name);
        if finalizers.is_empty()
            && let Some(metadata) = tree["metadata"].as_object_mut()
        {
            metadata.shift_remove("finalizers");
        }
    }
    tree
}

/// An object without some of its owner references.
pub(super) fn without_owners(mut tree: Value, drops: impl Fn(Uid) -> bool) -> Value {
    if let Some(references) = tree["metadata"]["ownerReferences"].as_array_mut() {
        references.retain(|reference| !drops(Uid::of(text(reference, "/uid"))));
        if references.is_empty()
            && let Some(metadata) = tree["metadata"].as_object_mut()
        {
            metadata.shift_remove("ownerReferences");
        }
    }
    tree
}
