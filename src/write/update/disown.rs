//! Who has a field by a server-side apply, and how it is taken from its manager.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    config::MemberName,
    member::call::Document,
    write::{
        Writer,
        fleet::Fleet,
        request::{OWN_MANAGER, values},
        steps::Outcome,
        update::{
            desired::MERGE_PATCH,
            part::{Asking, How, Manner, document},
        },
    },
};
use kubefold_wire::{golang::Quoted, warning::Warnings};

impl<F: Fleet> Writer<F> {
    /// Takes fields from the manager of an apply that was just made: on one cluster it would not have them, since it left
    /// them out. Gives the part as it is then; where that cannot be done, as it was.
    pub(super) async fn disown(
        &self,
        asking: Asking<'_>,
        member: &MemberName,
        paths: &[Vec<String>],
        applied: Document,
        said: &mut Warnings,
    ) -> Document {
        let manager = values(asking.query, "fieldManager").next().unwrap_or_default();
        let Some(document) = document(asking.key, &applied) else { return applied };
        let Some(managers) = without(&document, &manager, paths) else { return applied };
        let metadata = &document["metadata"];
        let body = json!({"metadata": {"resourceVersion": metadata["resourceVersion"], "managedFields": managers}});
        let manner = Manner { how: How::Patch, subresource: String::new(), managed_fields: None };
        let query = asking.unforced(false);
        let asking = Asking { manner: &manner, query: &query, ..asking };
        let patch = Bytes::from(body.to_string());
        match self.send_patch(asking, member, MERGE_PATCH, patch, false, said).await {
            Outcome::Done { body, .. } => body,
            Outcome::Refused { .. } | Outcome::NotSent(_) | Outcome::Unknown(_) => {
                let fields: Vec<String> = paths.iter().map(|path| path.join(".")).collect();
                let (key, fields) = (asking.key, fields.join(", "));
                said.add(&format!(
                    "manager {manager} keeps {fields} of the part of {key} in member {member}",
                    manager = Quoted(manager)
                ));
                applied
            }
        }
    }
}

/// The managers of a document, when the fields at these paths are taken from the applies of one. `None`: it has none of them.
fn without(document: &Value, manager: &str, paths: &[Vec<String>]) -> Option<Value> {
    let mut managers = document.pointer("/metadata/managedFields")?.clone();
    let mut taken = false;
    for entry in managers.as_array_mut()?.iter_mut().filter(|entry| is_apply_of(entry, manager)) {
        let Some(fields) = entry.get_mut("fieldsV1") else { continue };
        for path in paths {
            let path: Vec<String> = path.iter().map(|name| format!("f:{name}")).collect();
            taken |= remove(fields, &path);
        }
    }
    taken.then_some(managers)
}

/// Removes a path, and what is empty above it.
fn remove(fields: &mut Value, path: &[String]) -> bool {
    let (Some((first, rest)), Some(map)) = (path.split_first(), fields.as_object_mut()) else { return false };
    if rest.is_empty() {
        return map.shift_remove(first).is_some();
    }
    let Some(inner) = map.get_mut(first) else { return false };
    let removed = remove(inner, rest);
    if inner.as_object().is_some_and(serde_json::Map::is_empty) {
        map.shift_remove(first);
    }
    removed
}

fn is_apply_of(entry: &Value, manager: &str) -> bool {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    text("manager") == manager && text("operation") == "Apply" && text("subresource").is_empty()
}

/// Says whether an apply of that manager set a field, and nobody else has it: one that leaves it out takes it away.
///
/// Source: kubernetes-sigs/structured-merge-diff `merge/update.go` `Updater.prune`.
pub(super) fn owns_alone(document: &Value, manager: &str, path: &[&str]) -> bool {
    let managers = document.pointer("/metadata/managedFields").and_then(Value::as_array);
    let has = |entry: &&Value| {
        let fields = entry.get("fieldsV1");
        path.iter().try_fold(fields?, |at, name| at.get(format!("f:{name}"))).map(|_| ())
    };
    let mut owners = managers.into_iter().flatten().filter(|entry| has(entry).is_some());
    owners.next().is_some_and(|entry| is_apply_of(entry, manager)) && owners.next().is_none()
}

/// Says whether another manager than that one, and than kubefold, set a field.
pub(super) fn has_other_owner(document: &Value, manager: &str, path: &[&str]) -> bool {
    let managers = document.pointer("/metadata/managedFields").and_then(Value::as_array);
    managers.into_iter().flatten().any(|entry| {
        let name = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
        let fields = entry.get("fieldsV1");
        let has = path.iter().try_fold(fields, |at, name| Some(at?.get(format!("f:{name}"))));
        !is_apply_of(entry, manager) && name != OWN_MANAGER && has.flatten().is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::placement::divided::REPLICAS;

    #[test]
    fn only_its_own_apply_loses_a_field() {
        let entry =
            |manager: &str, fields: Value| json!({"manager": manager, "operation": "Apply", "fieldsV1": fields});
        let with = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        let document = json!({"metadata": {"managedFields": [entry("ci", with.clone()), entry("cd", with.clone())]}});
        let paths = [vec!["spec".to_owned(), "replicas".to_owned()]];
        let left = without(&document, "ci", &paths).unwrap();
        assert_eq!(left, json!([entry("ci", json!({"f:spec": {"f:paused": {}}})), entry("cd", with)]));
        let alone = json!({"metadata": {"managedFields": [entry("ci", json!({"f:spec": {"f:replicas": {}}}))]}});
        assert_eq!(without(&alone, "ci", &paths).unwrap()[0]["fieldsV1"], json!({}));
        assert_eq!(without(&alone, "cd", &paths), None);
    }

    #[test]
    fn a_field_is_dropped_by_the_apply_that_alone_has_it() {
        let one = |manager: &str, operation: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": {"f:spec": fields}});
        let (has, other) = (json!({"f:replicas": {}}), json!({"f:paused": {}}));
        let mine = one("ci", "Apply", "", has.clone());
        for (managers, alone) in [
            (vec![mine.clone(), one("kubectl", "Update", "", other.clone())], true),
            (vec![mine, one("kubectl", "Update", "scale", has.clone())], false),
            (vec![one("ci", "Update", "", has.clone())], false),
            (vec![one("ci", "Apply", "scale", has)], false),
            (vec![one("ci", "Apply", "", other)], false),
            (vec![], false),
        ] {
            let document = json!({"metadata": {"managedFields": managers}});
            assert_eq!(owns_alone(&document, "ci", REPLICAS.path), alone, "{document}");
        }
    }
}
