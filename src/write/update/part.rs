//! One part's update: its member's document, what changes in it, and the request that makes it.

use std::{borrow::Cow, slice, sync::Arc};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    config::MemberName,
    member::call::{Answer, Call, Document},
    placement::{
        divided::{Division, Field, REPLICAS},
        marker::{MARKER_KEY, Marker, OWN_PREFIX, WHOLE_KEY},
        merge::{Change, Take, merge_patch, take},
        noted::OVERRIDES_KEY,
    },
    write::{
        Writer,
        fleet::{Fleet, Key},
        journal::Step,
        request::{OWN_MANAGER, with_dry_run},
        steps::{Outcome, Seen, Silent},
        update::desired::{APPLY_PATCH, MERGE_PATCH, set, without_managers},
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{golang::Quoted, path::ApiPath, warning::Warnings};

/// The subresource of scales.
pub(in crate::write) const SCALE: &str = "scale";
/// How often a part is read again because it changed meanwhile.
const CONFLICTS_MAX: u32 = 8;

/// How an update reaches members: with the client's own verb, so that their rules for who may do what hold, and their
/// records say what was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Manner {
    /// The client's own verb, and of what kind its patch is.
    pub(super) how: How,
    /// Empty for none.
    pub(super) subresource: String,
    /// The client changes `metadata.managedFields` into this.
    pub(super) managed_fields: Option<Value>,
}

impl Manner {
    /// A merge patch of the object itself.
    pub(super) const fn merge_patch() -> Self {
        Self { how: How::Patch, subresource: String::new(), managed_fields: None }
    }

    /// Says whether members are told more than what changes.
    fn is_of_whole(&self) -> bool {
        self.how == How::Put || self.subresource == SCALE
    }
}

/// Which fields of a part change their managers with an apply beyond what its member does by itself. Each is a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ownership {
    /// What the apply leaves out, and takes part in only for the default not to come in its place: its manager does not have it.
    #[serde(default)]
    pub(super) disowns: Vec<Vec<String>>,
    /// What the apply changes in the whole and not in this part: no other manager has it any more.
    #[serde(default)]
    pub(super) takes: Vec<Vec<String>>,
}

impl Ownership {
    pub(super) fn is_empty(&self) -> bool {
        self.disowns.is_empty() && self.takes.is_empty()
    }
}

/// What a request to a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    Put,
    /// A merge patch, whatever kind of patch the client sent.
    Patch,
    /// A server-side apply, as the client sent it.
    Apply,
}

/// Who asks, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pub(super) key: &'a Key,
    pub(super) caller: &'a Caller,
    pub(super) user_agent: Option<&'a str>,
    pub(super) query: &'a str,
    pub(super) manner: &'a Manner,
}

impl Asking<'_> {
    fn path(&self) -> ApiPath {
        self.key.object().then(&self.manner.subresource)
    }

    /// The query of what is no apply: `force` is for applies alone.
    pub(super) fn unforced(&self, dry: bool) -> String {
        let kept = self.query.split('&').filter(|pair| *pair != "force" && !pair.starts_with("force="));
        let query = kept.collect::<Vec<_>>().join("&");
        if dry { with_dry_run(&query) } else { query }
    }
}

/// What a request makes of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rewrite<'a> {
    pub(super) before: &'a Value,
    pub(super) after: &'a Value,
    /// The revision that it must have; `None` for any.
    pub(super) revision: Option<&'a str>,
}

/// A part as it is known, in its member's own words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) member: MemberName,
    pub(super) cluster_uid: String,
    pub(super) uid: String,
    pub(super) document: Arc<Value>,
}

impl Held {
    /// Its revision.
    pub(super) fn revision(&self) -> &str {
        revision_of(&self.document)
    }
}

/// The revision that a document is of.
pub(super) fn revision_of(document: &Value) -> &str {
    document.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

/// What is applied, where it must be of `before`, of `now`.
fn with_revision(body: &Value, before: &str, now: String) -> Bytes {
    let mut body = body.clone();
    if let Some(wanted) = body.pointer_mut("/metadata/resourceVersion").filter(|wanted| *wanted == before) {
        *wanted = now.into();
    }
    body.to_string().into()
}

/// What came of bringing a part to what it shall be.
#[derive(Debug)]
pub(super) enum Brought {
    /// It was so already.
    Same,
    /// The member was asked.
    Answered(Outcome),
    /// It is not there any more: somebody deleted it in its member.
    Gone,
}

impl Brought {
    /// How the journal has it. One that is gone has nothing left to get.
    pub(super) fn step(&self) -> Step {
        match self {
            Self::Same | Self::Gone => Step::Done { uid: None },
            Self::Answered(outcome) => outcome.step(),
        }
    }
}

/// The document of a member, with the words that an item of a list does not have.
pub(super) fn document(key: &Key, json: &[u8]) -> Option<Value> {
    let mut document: Value = serde_json::from_slice(json).ok().filter(Value::is_object)?;
    let group = &key.gvk.group;
    let api_version =
        if group.is_empty() { key.gvk.version.to_string() } else { format!("{group}/{}", key.gvk.version) };
    for (field, text) in [("kind", key.gvk.kind.to_string()), ("apiVersion", api_version)] {
        if document.get(field).is_none() {
            set(&mut document, field, text.into());
        }
    }
    Some(document)
}

/// The marker that a part has.
pub(super) fn marker_of(document: &Value) -> Option<Marker> {
    let map = |name: &str| document.pointer(name).map(Value::to_string);
    Marker::read(map("/metadata/labels").as_deref(), map("/metadata/annotations").as_deref())
}

/// A part's document with changes made. Gives what it did not take, too.
pub(super) fn changed<'c>(before: &Value, changes: &'c [Change], how: Take) -> (Value, Vec<&'c Change>) {
    changed_in(before.clone(), before, changes, how)
}

/// The same in `after`, which is what the changes are about of a copy of `before`.
pub(super) fn changed_in<'c>(
    mut after: Value,
    before: &Value,
    changes: &'c [Change],
    how: Take,
) -> (Value, Vec<&'c Change>) {
    let (noted, left): (Vec<_>, Vec<_>) = take(changes, how, &mut after).into_iter().partition(|left| is_note(left));
    for note in noted {
        take(slice::from_ref(note), Take::Always, &mut after);
    }
    keep_marker(before, &mut after);
    (after, left)
}

/// What a document holds in the fields that lie around changes, down to two levels: enough to make them, and to make a merge patch of
/// them. The rest of a document costs more than that.
fn excerpt<'d>(document: &'d Value, changes: &[Change]) -> Cow<'d, Value> {
    let Value::Object(fields) = document else { return Cow::Borrowed(document) };
    let mut around: Vec<(&str, Option<&str>)> = Vec::new();
    for change in changes {
        let mut path = change.fields();
        match (path.next(), path.next()) {
            (Some(field), inner) => around.push((field, inner)),
            (None, _) => return Cow::Borrowed(document),
        }
    }
    let mut kept = Map::new();
    for (name, value) in fields {
        let inner: Vec<Option<&str>> =
            around.iter().filter(|(field, _)| field == name).map(|(_, inner)| *inner).collect();
        let copy = match value {
            _ if inner.is_empty() => continue,
            Value::Object(fields) if inner.iter().all(Option::is_some) => {
                let is_around = |name: &String| inner.contains(&Some(name.as_str()));
                let held = fields.iter().filter(|(name, _)| is_around(name));
                held.map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            value => value.clone(),
        };
        kept.insert(name.clone(), copy);
    }
    Cow::Owned(Value::Object(kept))
}

/// Says whether a change is of a note that is each part's own: kubefold's of its overrides, or kubectl's of what it applied. A
/// server-side apply has each server write its part's share into that, so that nobody edited a part where it differs.
///
/// Source: kubernetes/apimachinery `pkg/util/managedfields/internal/lastappliedupdater.go`.
fn is_note(change: &Change) -> bool {
    let notes = [OVERRIDES_KEY, "kubectl.kubernetes.io/last-applied-configuration"];
    notes.into_iter().any(|note| change.fields().eq(["metadata", "annotations", note]))
}

/// Whatever a client wants, a part stays a part.
fn keep_marker(before: &Value, after: &mut Value) {
    for map in ["labels", "annotations"] {
        let Some(mark) = before.pointer(&format!("/metadata/{map}")).and_then(|map| map.get(MARKER_KEY)) else {
            continue;
        };
        let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let held = metadata.entry(map).or_insert_with(|| Value::Object(Map::new()));
        set(held, MARKER_KEY, mark.clone());
    }
}

/// What a member is told of a part's scale.
fn scale_body(key: &Key, after: &Value, field: Field, whole: bool) -> Value {
    let replicas = after.pointer(field.pointer).cloned().unwrap_or_default();
    if !whole {
        return json!({"metadata": {}, "spec": {"replicas": replicas}});
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": after.pointer("/metadata/uid")},
        "spec": {"replicas": replicas},
    })
}

impl<F: Fleet> Writer<F> {
    /// Has a member rewrite its part, or dry-runs that.
    pub(super) async fn write_part(
        &self,
        asking: Asking<'_>,
        member: &MemberName,
        rewrite: Rewrite<'_>,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Outcome {
        let (manner, Rewrite { before, after, revision }) = (asking.manner, rewrite);
        let whole = manner.how == How::Put;
        let mut body = match (manner.subresource.as_str(), whole) {
            (SCALE, whole) => {
                let field = self.division(asking.key).and_then(Division::scaled);
                scale_body(asking.key, after, field.unwrap_or(REPLICAS), whole)
            }
            (_, true) => without_managers(after),
            (_, false) => merge_patch(before, after),
        };
        let metadata =
            body.as_object_mut().map(|body| body.entry("metadata").or_insert_with(|| Value::Object(Map::new())));
        if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
            // A member keeps those that it is not told.
            metadata.shift_remove("managedFields");
            metadata.shift_remove("resourceVersion");
            if let Some(fields) = &manner.managed_fields {
                metadata.insert("managedFields".to_owned(), fields.clone());
            }
            if let Some(revision) = revision {
                metadata.insert("resourceVersion".to_owned(), revision.into());
            }
        }
        let call = Call {
            method: if whole { Method::PUT } else { Method::PATCH },
            path: asking.path(),
            query: asking.unforced(dry),
            content_type: (if whole { "application/json" } else { MERGE_PATCH }).to_owned(),
            body: Bytes::from(body.to_string()),
            user_agent: asking.user_agent.map(str::to_owned),
        };
        self.mutate(member, asking.caller, call, dry, warnings).await
    }

    /// Sends a patch as it is, or dry-runs that.
    pub(super) async fn send_patch(
        &self,
        asking: Asking<'_>,
        member: &MemberName,
        content_type: &str,
        body: Bytes,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Outcome {
        let call = Call {
            method: Method::PATCH,
            path: asking.path(),
            query: if dry { with_dry_run(asking.query) } else { asking.query.to_owned() },
            content_type: content_type.to_owned(),
            body,
            user_agent: asking.user_agent.map(str::to_owned),
        };
        self.mutate(member, asking.caller, call, dry, warnings).await
    }

    /// Has a part's member apply what its task says, or dry-runs that.
    pub(super) async fn apply_part(
        &self,
        asking: Asking<'_>,
        part: &Held,
        body: &Value,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Brought {
        self.apply_and_own(asking, part, body, &Ownership::default(), dry, warnings).await
    }

    /// The same, after which fields have the managers that they have on one cluster.
    pub(super) async fn apply_and_own(
        &self,
        asking: Asking<'_>,
        part: &Held,
        body: &Value,
        ownership: &Ownership,
        dry: bool,
        warnings: &mut Warnings,
    ) -> Brought {
        if self.fleet.cluster_uid(&part.member).is_some_and(|uid| uid != part.cluster_uid) {
            return Brought::Gone;
        }
        let mut patch = Bytes::from(body.to_string());
        match self.keep_marker(asking, part, dry, warnings).await {
            Ok(None) => {}
            Ok(Some(revision)) => patch = with_revision(body, part.revision(), revision),
            Err(outcome) => return Brought::Answered(*outcome),
        }
        let mut outcome = self.send_patch(asking, &part.member, APPLY_PATCH, patch.clone(), dry, warnings).await;
        if matches!(&outcome, Outcome::Refused { code: StatusCode::CONFLICT, body } if is_with_kubefold(body)) {
            // It was refused: nothing came of it. What kubefold divided is whoever's that writes the whole.
            let forced = asking.unforced(false);
            let query = if forced.is_empty() { "force=true".to_owned() } else { format!("{forced}&force=true") };
            let asking = Asking { query: &query, ..asking };
            outcome = self.send_patch(asking, &part.member, APPLY_PATCH, patch, dry, warnings).await;
        }
        match outcome {
            Outcome::Refused { code: StatusCode::CONFLICT, body } if is_another(&body) => Brought::Gone,
            Outcome::Done { code, body } if !dry && !ownership.is_empty() => {
                let body = Box::pin(self.own(asking, &part.member, ownership, body, warnings)).await;
                Brought::Answered(Outcome::Done { code, body })
            }
            outcome => Brought::Answered(outcome),
        }
    }

    /// Has a part's member apply what its task says to the version that is known, so that it cannot land late on what later writes
    /// made, nor make anew what somebody deleted.
    pub(super) async fn apply_to(
        &self,
        asking: Asking<'_>,
        part: &Held,
        body: &Value,
        ownership: &Ownership,
        warnings: &mut Warnings,
    ) -> Brought {
        let mut body = body.clone();
        let metadata =
            body.as_object_mut().map(|body| body.entry("metadata").or_insert_with(|| Value::Object(Map::new())));
        if let Some(metadata) = metadata {
            set(metadata, "uid", part.uid.clone().into());
            set(metadata, "resourceVersion", part.revision().into());
        }
        self.apply_and_own(asking, part, &body, ownership, false, warnings).await
    }

    /// The same for a part that is not the home: one that changed meanwhile is read again.
    pub(super) async fn apply_other(
        &self,
        asking: Asking<'_>,
        part: &mut Held,
        body: &Value,
        ownership: &Ownership,
        warnings: &mut Warnings,
    ) -> Brought {
        let mut tries_left = CONFLICTS_MAX;
        loop {
            tries_left -= 1;
            match self.apply_to(asking, part, body, ownership, warnings).await {
                Brought::Answered(Outcome::Refused { code: StatusCode::CONFLICT, body })
                    if is_stale(&body) && tries_left > 0 => {}
                Brought::Answered(Outcome::Refused { code: StatusCode::NOT_FOUND, .. }) => return Brought::Gone,
                other => return other,
            }
            match self.read_part(asking.key, part).await {
                Ok(Some(document)) => part.document = document.into(),
                Ok(None) => return Brought::Gone,
                Err(Silent(cause)) => return Brought::Answered(Outcome::NotSent(cause)),
            }
        }
    }

    /// Brings a part that is not the home to what it shall be: each value only where it still holds the old one. One that
    /// changed meanwhile is read again. Gives what it did not take, too.
    pub(super) async fn bring<'c>(
        &self,
        asking: Asking<'_>,
        part: &mut Held,
        changes: &'c [Change],
        dry: bool,
        warnings: &mut Warnings,
    ) -> (Brought, Vec<&'c Change>) {
        let mut tries_left = CONFLICTS_MAX;
        loop {
            tries_left -= 1;
            if self.fleet.cluster_uid(&part.member).is_some_and(|uid| uid != part.cluster_uid) {
                return (Brought::Gone, Vec::new());
            }
            let mut before = excerpt(&part.document, changes);
            let (mut after, left) = changed(&before, changes, Take::WhereOld);
            if after == *before && asking.manner.managed_fields.is_none() {
                return (Brought::Same, left);
            }
            if asking.manner.is_of_whole() {
                after = changed_in(without_managers(&part.document), &part.document, changes, Take::WhereOld).0;
                before = Cow::Borrowed(&*part.document);
            }
            let rewrite = Rewrite { before: &before, after: &after, revision: Some(part.revision()) };
            let outcome = self.write_part(asking, &part.member, rewrite, dry, warnings).await;
            match &outcome {
                Outcome::Refused { code: StatusCode::NOT_FOUND, .. } => return (Brought::Gone, left),
                Outcome::Refused { code: StatusCode::CONFLICT, body } if is_stale(body) && tries_left > 0 => {}
                Outcome::Refused { code: StatusCode::CONFLICT, body } if is_another(body) => {
                    return (Brought::Gone, left);
                }
                _ => return (Brought::Answered(outcome), left),
            }
            match self.read_part(asking.key, part).await {
                Ok(Some(document)) => part.document = document.into(),
                Ok(None) => return (Brought::Gone, left),
                Err(Silent(cause)) => return (Brought::Answered(Outcome::NotSent(cause)), left),
            }
        }
    }

    /// Reads a part anew, as kubefold: what it sees goes to nobody. `None`: it is gone, or another object.
    ///
    /// Errors: nobody can tell.
    pub(super) async fn read_part(&self, key: &Key, part: &Held) -> Result<Option<Value>, Silent> {
        match self.look(key, part).await? {
            Some(body) => Ok(document(key, &body)),
            None => Ok(None),
        }
    }

    /// The same, as the member sent it. In a member that is not configured any more, or is another cluster, there is none.
    pub(super) async fn look(&self, key: &Key, part: &Held) -> Result<Option<Document>, Silent> {
        let is_it = self.fleet.cluster_uid(&part.member).map(|uid| uid == part.cluster_uid);
        if !is_it.unwrap_or_else(|| self.fleet.members().contains(&part.member)) {
            return Ok(None);
        }
        match self.fleet.look(&part.member, key).await {
            Answer::Answered { code: StatusCode::OK, body, .. } => {
                let is_it = Seen::of(&body).uid.as_ref() == Some(&part.uid);
                Ok(is_it.then_some(body))
            }
            Answer::Answered { code: StatusCode::NOT_FOUND, .. } => Ok(None),
            Answer::Answered { code, body, .. } => {
                Err(Silent(format!("it answered {code} {}", Seen::of(&body).message.unwrap_or_default())))
            }
            Answer::NotSent(cause) | Answer::Unknown(cause) => Err(Silent(cause)),
        }
    }
}

/// Says whether a 409 of an apply is about fields alone that kubefold itself has divided.
///
/// Source: kubernetes/apimachinery `pkg/util/managedfields/internal/conflict.go` `NewConflictError`.
fn is_with_kubefold(body: &Bytes) -> bool {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let causes = status.pointer("/details/causes").and_then(Value::as_array);
    let own = format!("conflict with {}", Quoted(OWN_MANAGER));
    // Whoever wrote the whole had a part note it.
    let is_noted = |cause: &Value| cause["field"].as_str().is_some_and(|field| field.contains(OWN_PREFIX));
    let is_own = |cause: &Value| {
        cause["reason"] == "FieldManagerConflict"
            && (is_noted(cause) || cause["message"].as_str().is_some_and(|message| message.starts_with(&own)))
    };
    causes.is_some_and(|causes| !causes.is_empty() && causes.iter().all(is_own))
}

/// Says whether a 409 is about the UID.
///
/// Source: kubernetes/apiserver `pkg/storage/interfaces.go`; of an apply of what is not there `pkg/endpoints/handlers/patch.go`.
fn is_another(body: &Bytes) -> bool {
    let words = ["UID in precondition", "uid mismatch: the provided object specified uid"];
    Seen::of(body).message.is_some_and(|said| words.iter().any(|words| said.contains(words)))
}

/// Says whether a 409 is about the revision: an apply's is about other managers, and a name's about who has it.
pub(in crate::write) fn is_stale(body: &Bytes) -> bool {
    let seen = Seen::of(body);
    seen.reason.as_deref() == Some("Conflict")
        && seen.message.is_some_and(|said| said.contains("the object has been modified"))
}

/// What a part notes of the whole.
pub(in crate::write) fn note(part: &Value) -> Option<&str> {
    part.pointer("/metadata/annotations")?.get(WHOLE_KEY)?.as_str()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placement::merge::difference;

    fn field() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["metadata", "labels", "annotations", MARKER_KEY, "spec", "containers", "finalizers"])
            .prop_map(str::to_owned)
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!("x")), Just(json!(1)), Just(Value::Null), Just(json!([{"name": "a"}]))];
        leaf.prop_recursive(4, 32, 5, |inner| {
            let item = inner.clone().prop_map(|value| json!({"name": "a", "value": value}));
            prop_oneof![
                3 => prop::collection::btree_map(field(), inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
                1 => prop::collection::vec(item, 0..3).prop_map(Value::from),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map(field(), tree(), 0..6)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    proptest! {
        /// Whatever lies around the changes, and whether they fit.
        #[test]
        fn an_excerpt_takes_changes_as_the_whole_does(before in object(), after in object(), part in object()) {
            let changes = difference(&before, &after);
            for how in [Take::WhereOld, Take::Always] {
                let cut = excerpt(&part, &changes);
                let (of_whole, left_of_whole) = changed(&part, &changes, how);
                let (of_cut, left_of_cut) = changed(&cut, &changes, how);
                prop_assert_eq!(merge_patch(&cut, &of_cut), merge_patch(&part, &of_whole));
                prop_assert_eq!(of_cut == *cut, of_whole == part);
                prop_assert_eq!(left_of_cut, left_of_whole);
            }
        }
    }

    #[test]
    fn an_excerpt_leaves_out_what_no_change_is_near() {
        let document = json!({
            "metadata": {"annotations": {"a": "1"}, "managedFields": [{"manager": "x"}]},
            "spec": {"replicas": 1, "template": {"spec": {}}},
            "status": {"replicas": 1},
        });
        let mut after = document.clone();
        after["metadata"]["annotations"]["a"] = json!("2");
        after["spec"]["replicas"] = json!(2);
        let cut = excerpt(&document, &difference(&document, &after)).into_owned();
        assert_eq!(cut, json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"replicas": 1}}));
    }
}
