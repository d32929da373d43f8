//! Who has a field by a server-side apply, and how it is taken from its managers.

use std::{collections::BTreeMap, fmt::Display};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    config::MemberName,
    member::call::Document,
    placement::{
        marker::MARKER_KEY,
        merge::{Change, Step as Place},
    },
    write::{
        Writer,
        fleet::Fleet,
        journal::{Entry, EntryTarget, Step},
        request::{OWN_MANAGER, values},
        steps::{Found, Outcome},
        update::{
            desired::{APPLY_PATCH, MERGE_PATCH, nested, set},
            part::{Asking, Held, Manner, Ownership, document, revision_of},
        },
    },
};
use kubefold_wire::{
    patch::{merge_into, steps},
    warning::Warnings,
};

impl<F: Fleet> Writer<F> {
    /// Has kubefold itself have the marker where an apply of this manager would take it away with the map that it lies in: what
    /// another manager has stays. Gives the part's revision since, if anything was to be done.
    ///
    /// Errors: what the member said instead. Nothing is applied.
    pub(super) async fn keep_marker(
        &self,
        asking: Asking<'_>,
        part: &Held,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Result<Option<String>, Box<Outcome>> {
        if dry || !asking.manner.subresource.is_empty() {
            return Ok(None);
        }
        let manager = values(asking.query, "fieldManager").next().unwrap_or_default();
        let maps = ["labels", "annotations"].map(|map| ["metadata", map, MARKER_KEY]);
        if !maps.iter().any(|at| goes_with_map(&part.document, &manager, at)) {
            return Ok(None);
        }
        let mut kept = json!({});
        for at in maps {
            // Both: what kubefold applied before and leaves out now would go.
            if let Some(mark) = at.iter().try_fold(&*part.document, |value, key| value.get(*key)) {
                merge_into(&mut kept, nested(&at, mark.clone()));
            }
        }
        let key = asking.key;
        let (api_version, kind) = (&part.document["apiVersion"], &part.document["kind"]);
        let of = json!({"apiVersion": api_version, "kind": kind, "metadata": {"uid": part.uid}});
        merge_into(&mut kept, of);
        let query = format!("fieldManager={OWN_MANAGER}&force=true");
        let asking = Asking { query: &query, ..asking };
        match self.send_patch(asking, &part.member, APPLY_PATCH, kept.to_string().into(), dry, warnings).await {
            Outcome::Done { body, .. } => Ok(document(key, &body).map(|part| revision_of(&part).to_owned())),
            outcome => Err(Box::new(outcome)),
        }
    }

    /// Has the fields of a part that was just made belong to the managers that would have them on one cluster: those of another
    /// part, where one stands already; else not to one whose apply left them out. Gives the part as it is then.
    pub(in crate::write) async fn own_made(
        &self,
        entry: &Entry,
        target: &EntryTarget,
        made: Document,
        said: &mut Warnings,
    ) -> Document {
        let other = self.other_part(entry, target).await;
        if other.is_none() && !entry.applied {
            return made;
        }
        let Some(document) = document(&entry.key, &made) else { return made };
        let managers = match other {
            Some(other) => managers_as(&document, &other).map(|mut managers| {
                for share in target.values.iter().filter(|_| entry.owns_shares) {
                    own_like(&mut managers, managers_of(&document), &field_names(steps(&share.pointer)));
                }
                managers.into()
            }),
            None => {
                let body: Value = serde_json::from_str(&entry.body).unwrap_or_default();
                let shares = target.values.iter().map(|share| &share.pointer);
                let left_out = shares.filter(|share| body.pointer(share).is_none_or(Value::is_null));
                let ownership = Ownership { disowns: left_out.map(|share| steps(share)).collect(), takes: Vec::new() };
                owned(&document, values(&entry.query, "fieldManager").next().unwrap_or_default().as_str(), &ownership)
            }
        };
        let Some(managers) = managers else { return made };
        let manner = Manner::merge_patch();
        let Entry { key, caller, user_agent, query, .. } = entry;
        let asking = Asking { key, caller, user_agent: user_agent.as_deref(), query, manner: &manner };
        self.set_managers(asking, &target.member, &document, managers, said).await.unwrap_or(made)
    }

    /// The document of another part, the home's if that is not this one: as it is shown, or as its member has it. What an
    /// earlier process left unfinished is not shown before it is settled.
    async fn other_part(&self, entry: &Entry, target: &EntryTarget) -> Option<Value> {
        let is_shown = self.fleet.visible(&entry.key).is_some_and(|visible| visible.uid == entry.uid);
        let shown = self.fleet.parts(&entry.key).into_iter().find(|part| is_shown && part.member != target.member);
        if let Some(shown) = shown {
            return document(&entry.key, &shown.json);
        }
        for other in entry.targets.iter().filter(|other| other.member != target.member) {
            if matches!(other.step, Step::Done { .. })
                && let Found::Part { body, .. } = self.find(entry, other).await
            {
                return document(&entry.key, &body);
            }
        }
        None
    }

    /// Has the fields of a part that was just applied belong to the managers that would have them on one cluster. Gives the part
    /// as it is then; where that cannot be done, as it was.
    pub(super) async fn own(
        &self,
        asking: Asking<'_>,
        member: &MemberName,
        ownership: &Ownership,
        applied: Document,
        said: &mut Warnings,
    ) -> Document {
        let manager = values(asking.query, "fieldManager").next().unwrap_or_default();
        let Some(document) = document(asking.key, &applied) else { return applied };
        let Some(managers) = owned(&document, &manager, ownership) else { return applied };
        match self.set_managers(asking, member, &document, managers, said).await {
            Some(owned) => owned,
            None => {
                let (key, all) = (asking.key, ownership.disowns.iter().chain(&ownership.takes));
                let fields = all.map(|path| path.join(".")).collect::<Vec<_>>().join(", ");
                said.add(&format!(
                    "the managers of {fields} stay as they were in the part of {key} in member {member}"
                ));
                applied
            }
        }
    }

    /// Has places of a part that hold again what they held be of the managers that the home has for them: who changed them
    /// meanwhile is not known to the part's member.
    pub(super) async fn own_as_home(
        &self,
        asking: Asking<'_>,
        part: &Held,
        home: &Value,
        level: &[&Change],
        said: &mut Warnings,
    ) -> Option<Document> {
        let managers = owned_as(&part.document, home, level)?;
        self.set_managers(asking, &part.member, &part.document, managers, said).await
    }

    /// `None`: that cannot be done.
    async fn set_managers(
        &self,
        asking: Asking<'_>,
        member: &MemberName,
        document: &Value,
        managers: Value,
        said: &mut Warnings,
    ) -> Option<Document> {
        let revision = &document["metadata"]["resourceVersion"];
        let body = json!({"metadata": {"resourceVersion": revision, "managedFields": managers}});
        let manner = Manner::merge_patch();
        let query = asking.unforced(false);
        let asking = Asking { manner: &manner, query: &query, ..asking };
        match self.send_patch(asking, member, MERGE_PATCH, Bytes::from(body.to_string()), false, said).await {
            Outcome::Done { body, .. } => Some(body),
            Outcome::Refused { .. } | Outcome::NotSent(_) | Outcome::Unknown(_) => None,
        }
    }
}

/// The managers that another part has, but for those of its status. `None`: the part has them, or the object has owners, of which
/// each part has others.
fn managers_as(part: &Value, other: &Value) -> Option<Vec<Value>> {
    let of_spec = |document: &Value| -> Vec<Value> {
        managers_of(document).iter().filter(|entry| entry["subresource"] != "status").cloned().collect()
    };
    let without_time = |entry: &Value| {
        let mut entry = entry.clone();
        entry.as_object_mut().and_then(|entry| entry.shift_remove("time"));
        entry.to_string()
    };
    let (has, wanted) = (of_spec(part), of_spec(other));
    let owned = |entry: &Value| entry.pointer("/fieldsV1/f:metadata/f:ownerReferences").is_some();
    let is_same = has.iter().map(without_time).eq(wanted.iter().map(without_time));
    (!is_same && !wanted.is_empty() && !wanted.iter().any(owned)).then_some(wanted)
}

/// The managers of a document after an apply of one. `None`: they are so.
fn owned(document: &Value, manager: &str, ownership: &Ownership) -> Option<Value> {
    let mut managers = document.pointer("/metadata/managedFields")?.clone();
    let mut is_changed = false;
    for entry in managers.as_array_mut()? {
        let paths = if is_apply_of(entry, manager) { &ownership.disowns } else { &ownership.takes };
        let Some(fields) = entry.get_mut("fieldsV1") else { continue };
        for path in paths {
            is_changed |= remove(fields, &field_names(path));
        }
    }
    is_changed.then_some(managers)
}

/// The managers of a part where each of these places is of those that have it in the home. `None`: it is.
fn owned_as(part: &Value, home: &Value, places: &[&Change]) -> Option<Value> {
    let before = managers_of(part);
    let mut after = before.to_vec();
    for place in places {
        own_like(&mut after, managers_of(home), &field_path(&place.at));
    }
    (after != *before).then(|| after.into())
}

fn managers_of(document: &Value) -> &[Value] {
    let managers = document.pointer("/metadata/managedFields").and_then(Value::as_array);
    managers.map(Vec::as_slice).unwrap_or_default()
}

/// Has a place be of those managers alone that have it in other entries of `managedFields`.
fn own_like(managers: &mut Vec<Value>, like: &[Value], path: &[String]) {
    for fields in managers.iter_mut().filter_map(|entry| entry.get_mut("fieldsV1")) {
        remove(fields, path);
    }
    for (entry, held) in like.iter().filter_map(|entry| Some((entry, look(entry.get("fieldsV1")?, path)?))) {
        let at = managers.iter().position(|one| is_same_manager(one, entry)).unwrap_or_else(|| {
            let mut fresh = entry.clone();
            set(&mut fresh, "fieldsV1", json!({}));
            managers.push(fresh);
            managers.len() - 1
        });
        let fields = managers.get_mut(at).and_then(|entry| entry.get_mut("fieldsV1"));
        fields.into_iter().for_each(|fields| insert(fields, path, held));
    }
    managers.retain(|entry| entry["fieldsV1"].as_object().is_none_or(|fields| !fields.is_empty()));
}

/// A path of fields as `fieldsV1` writes it.
fn field_names(path: impl IntoIterator<Item = impl Display>) -> Vec<String> {
    path.into_iter().map(|name| format!("f:{name}")).collect()
}

/// A place as `fieldsV1` writes it.
///
/// Source: kubernetes-sigs/structured-merge-diff `fieldpath/serialize-pe.go`.
fn field_path(at: &[Place]) -> Vec<String> {
    let element = |step: &Place| match step {
        Place::Field(name) => format!("f:{name}"),
        Place::Item(keys) => {
            let keys: BTreeMap<_, _> = keys.iter().map(|(key, value)| (key, value)).collect();
            format!("k:{}", json!(keys))
        }
        Place::Text(text) => format!("v:{}", json!(text)),
    };
    at.iter().map(element).collect()
}

fn is_same_manager(one: &Value, other: &Value) -> bool {
    ["manager", "operation", "subresource", "apiVersion"].into_iter().all(|field| one.get(field) == other.get(field))
}

fn look<'a>(fields: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(fields, |at, name| at.get(name))
}

/// Puts what is held at a path there.
fn insert(fields: &mut Value, path: &[String], held: &Value) {
    let (Some((first, rest)), Some(map)) = (path.split_first(), fields.as_object_mut()) else { return };
    if rest.is_empty() {
        map.insert(first.clone(), held.clone());
        return;
    }
    insert(map.entry(first).or_insert_with(|| json!({})), rest, held);
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
    let mut owners = owners(document, path);
    owners.next().is_some_and(|entry| is_apply_of(entry, manager)) && owners.next().is_none()
}

/// Says whether a key of a map that nobody has goes with the map: an apply of that manager has the map itself, and takes all of it
/// where it leaves it out. So it is after kubectl has given what it applied client-side to a server-side apply.
///
/// Source: kubernetes-sigs/structured-merge-diff `typed/remove.go` `removingWalker.doMap`; client-go `util/csaupgrade`.
fn goes_with_map(document: &Value, manager: &str, path: &[&str]) -> bool {
    let Some((_, map)) = path.split_last() else { return false };
    owners(document, path).next().is_none() && owners(document, map).any(|entry| is_apply_of(entry, manager))
}

/// Says whether another manager than that one, and than kubefold, set a field.
pub(super) fn has_other_owner(document: &Value, manager: &str, path: &[&str]) -> bool {
    owners(document, path).any(|entry| !is_apply_of(entry, manager) && entry["manager"] != OWN_MANAGER)
}

/// Who have a field, of the entries of `managedFields`.
fn owners<'a>(document: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    let has = move |entry: &&Value| {
        let fields = entry.get("fieldsV1");
        fields.and_then(|fields| path.iter().try_fold(fields, |at, name| at.get(format!("f:{name}")))).is_some()
    };
    managers_of(document).iter().filter(has)
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
        let paths = vec![vec!["spec".to_owned(), "replicas".to_owned()]];
        let disowns = Ownership { disowns: paths.clone(), ..Ownership::default() };
        let left = owned(&document, "ci", &disowns).unwrap();
        assert_eq!(left, json!([entry("ci", json!({"f:spec": {"f:paused": {}}})), entry("cd", with)]));
        let alone = json!({"metadata": {"managedFields": [entry("ci", json!({"f:spec": {"f:replicas": {}}}))]}});
        assert_eq!(owned(&alone, "ci", &disowns).unwrap()[0]["fieldsV1"], json!({}));
        assert_eq!(owned(&alone, "cd", &disowns), None);
        let takes = Ownership { takes: paths, ..Ownership::default() };
        assert_eq!(owned(&alone, "ci", &takes), None, "it keeps its own");
        assert_eq!(owned(&alone, "cd", &takes).unwrap()[0]["fieldsV1"], json!({}));
    }

    #[test]
    fn what_nobody_has_goes_with_the_map_of_an_apply() {
        let one = |manager: &str, operation: &str, keys: Value| json!({"manager": manager, "operation": operation, "fieldsV1": {"f:metadata": {"f:annotations": keys}}});
        let path = ["metadata", "annotations", "k"];
        for (managers, goes) in [
            (vec![one("ci", "Apply", json!({".": {}, "f:x": {}}))], true),
            (vec![one("cd", "Apply", json!({".": {}, "f:x": {}}))], false),
            (vec![one("ci", "Update", json!({".": {}, "f:x": {}}))], false),
            (vec![one("ci", "Apply", json!({".": {}})), one("a", "Update", json!({"f:k": {}}))], false),
            (vec![], false),
        ] {
            let document = json!({"metadata": {"managedFields": managers}});
            assert_eq!(goes_with_map(&document, "ci", &path), goes, "{document}");
        }
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
