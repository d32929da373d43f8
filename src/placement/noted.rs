//! What a part notes of its overrides: by which it was made, and what the object says in their place. Plain names of nodes, which
//! stand for visible ones, are noted as overrides are.
//!
//! The note is an annotation of the part, [`OVERRIDES_KEY`]. It is written by the same request as the values, so that no kill
//! comes between them, and a lost state directory loses nothing of it. With it overrides that have changed are brought to a
//! part, and those that are gone are taken back, whatever else differs there.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    config::{MemberName, Overrides},
    placement::{
        marker::OWN_PREFIX,
        merge::{Change, Step, Take, What, difference, take},
        overrides::{Kind, OverrideError, overridden, overridden_value},
    },
};
use kubefold_wire::{patch::merge_into, resource::Gvk};

/// The annotation of a part that has overrides.
pub const OVERRIDES_KEY: &str = "kubefold.io/overrides";
/// What the object says is noted up to this size; above it is read from another part. Units: bytes of JSON, of one value and
/// of all. A kube-apiserver takes 256 KiB of annotations.
const VALUE_MAX: usize = 4 << 10;
const NOTE_MAX: usize = 64 << 10;
/// The pod template of a workload, which its ReplicaSets have, too.
const TEMPLATE: [&str; 2] = ["spec", "template"];
/// Stands where it is not known what the object says.
const UNKNOWN: &str = "\u{1}kubefold.io/unknown";
/// What digests are of.
const DIGESTS: Uuid = Uuid::from_u128(0x6b75_6265_666f_6c64_6f76_6572_7269_6465);

/// What a part notes of its overrides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Note {
    /// The digest of the overrides that the whole part has; `None`: writes have brought some values alone.
    of: Option<String>,
    places: Vec<Place>,
}

/// A place that is overridden.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    at: Vec<Step>,
    was: Was,
    /// Names of nodes alone make it differ, and no policy.
    names: bool,
}

/// What the object says at a place that is overridden.
#[derive(Clone, Debug, PartialEq)]
enum Was {
    /// This; `None` is nothing.
    Value(Option<Value>),
    /// What a part says that has no override there: it is secret, or too large for a note.
    Elsewhere,
}

/// Why a part cannot be brought to other overrides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BringError {
    /// They do not go with it.
    #[error(transparent)]
    Override(#[from] OverrideError),
    /// An override is gone, and what the object says in its place is known nowhere.
    #[error("what the object says at {0} is not known, since every part has an override there: apply its manifest")]
    Unknown(String),
}

/// The other parts of an object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Others<'a> {
    /// Their documents.
    pub documents: &'a [&'a Value],
    /// One of them that has no overrides, and is to have none.
    pub bare: Option<&'a Value>,
}

/// An apply of a part.
#[derive(Clone, Copy)]
pub struct Apply<'a> {
    /// The part as the object says it was.
    pub base: &'a Value,
    /// What is applied.
    pub said: &'a Value,
    /// What is sent to the part's member for it.
    pub applied: &'a Value,
    /// Says whether its manager alone has what stands at a path of fields: it goes where the apply leaves it out.
    pub owns: &'a dyn Fn(&[&str]) -> bool,
}

/// Makes the body of a part with its overrides and the note of them. Bytes stay where there are none.
///
/// Errors: as [`overridden_value`].
pub fn made(
    body: Vec<u8>,
    overrides: &Overrides,
    of: &Kind<'_>,
    policy: &str,
    member: &MemberName,
) -> Result<Vec<u8>, OverrideError> {
    if overrides.is_empty() && memchr::memchr(b'@', &body).is_none() {
        return Ok(body);
    }
    let Ok(before) = serde_json::from_slice::<Value>(&body) else {
        return overridden(body, overrides, of, policy, member);
    };
    if overrides.is_empty() && of.nodes.named(&before).is_empty() {
        return Ok(body);
    }
    let mut after = overridden_value(before.clone(), overrides, of, policy, member)?;
    let note = Note::of(of, member, overrides, &before, &after);
    put(&mut after, note.as_ref());
    Ok(after.to_string().into_bytes())
}

/// What a part is to be with these overrides, in place of those that it has: all else of it stays.
///
/// Errors: they do not go with it, or what one that is gone has replaced is not known.
pub fn brought(
    part: &Value,
    others: Others<'_>,
    overrides: &Overrides,
    of: &Kind<'_>,
    policy: &str,
    member: &MemberName,
) -> Result<Value, BringError> {
    let base = match Note::read(part) {
        Some(note) => note.base(part, others.documents),
        None => unnoted_base(part, others.bare, overrides, of, member),
    };
    let mut after = overridden_value(base.clone(), overrides, of, policy, member)?;
    if let Some(path) = unknown(&after) {
        return Err(BringError::Unknown(path));
    }
    let note = Note::of(of, member, overrides, &base, &after);
    put(&mut after, note.as_ref());
    Ok(after)
}

/// A part of before there were notes: where it has what it would have now, a part without overrides tells what is replaced.
fn unnoted_base(
    part: &Value,
    bare: Option<&Value>,
    overrides: &Overrides,
    of: &Kind<'_>,
    member: &MemberName,
) -> Value {
    let mut base = part.clone();
    let made = bare.and_then(|bare| Some((bare, overridden_value(bare.clone(), overrides, of, "", member).ok()?)));
    if let Some((bare, made)) = made {
        take(&difference(&made, bare), Take::WhereOld, &mut base);
    }
    base
}

/// A part's document as the object's author wrote it, without its overrides. `None`: it has none.
///
/// What an override replaced stays overridden where the part does not note it, and an item of a list that an override removed stays
/// away: a strategic merge patch of it, which the home's member is asked about, would make another item.
///
/// A part that `is_child` is what a controller made of the object: its pod template alone is the object's.
pub fn as_written(document: &str, is_child: bool) -> Option<String> {
    memchr::memmem::find(document.as_bytes(), OVERRIDES_KEY.as_bytes())?;
    let mut part: Value = serde_json::from_str(document).ok()?;
    let note = Note::read(&part)?;
    let places = note.places.iter().filter(|place| !is_child || place.is_of_template(&part));
    let changes: Vec<Change> = places.filter_map(|place| place.written(&part)).collect();
    if changes.is_empty() {
        return None;
    }
    take(&changes, Take::Always, &mut part);
    Some(part.to_string())
}

/// Says whether a part has these overrides, as far as it notes.
pub fn has(part: &Value, overrides: &Overrides) -> bool {
    match Note::read(part) {
        Some(note) => note.is_of(overrides),
        None => overrides.is_empty(),
    }
}

/// Has a document note this, or nothing.
pub fn put(document: &mut Value, note: Option<&Note>) {
    take(&[change(None, note)], Take::Always, document);
}

/// The change of a note.
pub fn change(before: Option<&Note>, after: Option<&Note>) -> Change {
    let text = |note: Option<&Note>| note.map(|note| Value::from(note.to_text()));
    let at = ["metadata", "annotations", OVERRIDES_KEY].map(|name| Step::Field(name.to_owned())).to_vec();
    Change { at, what: What::Value { old: text(before), new: text(after) } }
}

impl Note {
    /// What a document notes. What is malformed is nothing.
    pub fn read(document: &Value) -> Option<Self> {
        let text = document.pointer("/metadata/annotations")?.get(OVERRIDES_KEY)?.as_str()?;
        let written: Value = serde_json::from_str(text).ok()?;
        let places = written.get("was")?.as_array()?.iter().map(Place::read).collect::<Option<_>>()?;
        Some(Self { of: written.get("of").and_then(Value::as_str).map(str::to_owned), places })
    }

    /// What a part in `member` notes that was made of `base` with all of the overrides. `None`: nothing differs.
    pub fn of(
        kind: &Kind<'_>,
        member: &MemberName,
        overrides: &Overrides,
        base: &Value,
        overridden: &Value,
    ) -> Option<Self> {
        Self::unless_empty(digest(overrides), places(kind, member, base, overridden))
    }

    /// What a part in `member` notes after a write. `before`: its note of then. `None`: no value of it is overridden, nor was.
    pub fn after_write(
        before: Option<&Self>,
        kind: &Kind<'_>,
        member: &MemberName,
        base: &Value,
        overridden: &Value,
    ) -> Option<Self> {
        Self::unless_empty(before.and_then(|before| before.of.clone()), places(kind, member, base, overridden))
    }

    fn unless_empty(of: Option<String>, places: Vec<Place>) -> Option<Self> {
        (of.is_some() || !places.is_empty()).then_some(Self { of, places })
    }

    /// The annotation's value.
    pub fn to_text(&self) -> String {
        let mut written = Map::new();
        written.extend(self.of.iter().map(|of| ("of".to_owned(), Value::from(of.as_str()))));
        written.insert("was".to_owned(), self.places.iter().map(Place::to_json).collect());
        Value::Object(written).to_string()
    }

    /// Says whether the part has these overrides and no others.
    pub fn is_of(&self, overrides: &Overrides) -> bool {
        self.of == digest(overrides) && (self.of.is_some() || self.places.iter().all(|place| place.names))
    }

    /// The places that are overridden, by a policy or by the names of nodes.
    pub fn places(&self) -> impl Iterator<Item = &[Step]> {
        self.places.iter().map(|place| place.at.as_slice())
    }

    /// The part as the object says it is, without its overrides. What is known nowhere stands as a mark, which
    /// [`brought`] refuses.
    pub fn base(&self, part: &Value, others: &[&Value]) -> Value {
        let mut base = part.clone();
        for place in self.places.iter().filter(|place| place.is_reached(part)) {
            let was = place.was_in(others).unwrap_or_else(|| Some(UNKNOWN.into()));
            take(&[place.change(was)], Take::Always, &mut base);
        }
        base
    }

    /// What the object says in a document `after` a write that began with `before`: both with the overrides of this note. What
    /// the write did not change is as the object said it before, where that is known.
    pub fn said(&self, before: &Value, after: &Value, others: &[&Value]) -> Value {
        let mut said = after.clone();
        for place in self.places.iter().filter(|place| place.is_reached(after)) {
            let is_written = place.change(None).value_in(before) != place.change(None).value_in(after);
            if let Some(was) = place.was_in(others).filter(|_| !is_written) {
                take(&[place.change(was)], Take::Always, &mut said);
            }
        }
        said
    }

    /// What a part notes after an apply.
    pub fn after_apply(before: Option<&Self>, kind: &Kind<'_>, member: &MemberName, apply: &Apply<'_>) -> Option<Self> {
        let Apply { base, said, applied, owns } = apply;
        let now = places(kind, member, said, applied).into_iter().map(|place| {
            let is_said = place.change(None).value_in(said).is_some();
            let was = place.change(None).value_in(base);
            if is_said { place } else { Place::of(kind.gvk, place.at, was, place.names) }
        });
        let mut places: Vec<Place> = now.collect();
        let earlier = before.into_iter().flat_map(|before| &before.places);
        let kept: Vec<Place> = earlier
            .filter(|place| place.change(None).value_in(said).is_none())
            .filter(|place| !places.iter().any(|now| overlap(&now.at, &place.at)))
            .filter(|place| !place.names || !place.is_gone(kind, said, owns))
            .cloned()
            .collect();
        places.extend(kept);
        Self::unless_empty(before.and_then(|before| before.of.clone()), places)
    }
}

impl Place {
    /// What is secret, large or unknown is not noted. Lists of names are, since no other part tells what they are.
    fn of(gvk: &Gvk, at: Vec<Step>, was: Option<Value>, names: bool) -> Self {
        let place = Self { at, was: Was::Elsewhere, names };
        let is_secret = (&*gvk.group, &*gvk.kind) == ("", "Secret")
            && ["data", "stringData"].iter().any(|field| place.change(None).is_within(&[field]));
        let is_small = |was: &Value| names || was.to_string().len() <= VALUE_MAX;
        let is_noted = was.as_ref().is_none_or(|was| !is_unknown(was) && is_small(was));
        if is_noted && !is_secret { Self { was: Was::Value(was), ..place } } else { place }
    }

    /// Says whether an apply takes away what names nodes here: it says the field that this lies in otherwise, or leaves it out and
    /// its manager alone has it.
    fn is_gone(&self, kind: &Kind<'_>, said: &Value, owns: &dyn Fn(&[&str]) -> bool) -> bool {
        let change = self.change(None);
        let path: Vec<&str> = change.fields().collect();
        let Some(root) = kind.nodes.root(&path) else { return false };
        root.iter().try_fold(said, |at, key| at.get(*key)).is_some() || owns(root)
    }

    /// What the object says there. `None`: that is known nowhere.
    fn was_in(&self, others: &[&Value]) -> Option<Option<Value>> {
        match &self.was {
            Was::Value(was) => Some(was.clone()),
            Was::Elsewhere => {
                let other = others.iter().find(|other| !is_overridden(other, &self.at))?;
                Some(self.change(None).value_in(other))
            }
        }
    }

    /// The change of a part to what the object's author wrote there, where that is noted.
    fn written(&self, part: &Value) -> Option<Change> {
        let Was::Value(was) = &self.was else { return None };
        let change = self.change(was.clone());
        let is_removed_item = matches!(self.at.last(), Some(Step::Item(_))) && change.value_in(part).is_none();
        (!is_removed_item && self.is_reached(part) && change.value_in(part) != *was).then_some(change)
    }

    /// Says whether it lies in the pod template, and the document has one.
    fn is_of_template(&self, document: &Value) -> bool {
        self.change(None).is_within(&TEMPLATE) && document.pointer("/spec/template").is_some()
    }

    fn change(&self, to: Option<Value>) -> Change {
        change_at(&self.at, to)
    }

    /// Says whether the list items that it lies in are there still: somebody may have removed them.
    fn is_reached(&self, document: &Value) -> bool {
        let within = self.at.iter().enumerate().skip(1).filter(|(at, _)| {
            at.checked_sub(1).and_then(|at| self.at.get(at)).is_some_and(|step| matches!(step, Step::Item(_)))
        });
        let mut items = within.filter_map(|(at, _)| self.at.get(..at));
        items.all(|item| change_at(item, None).value_in(document).is_some())
    }

    fn read(json: &Value) -> Option<Self> {
        let at = json.get("at")?.as_array()?.iter().map(read_step).collect::<Option<_>>()?;
        let was = match json.get("elsewhere") {
            Some(_) => Was::Elsewhere,
            None => Was::Value(json.get("was").cloned()),
        };
        Some(Self { at, was, names: json.get("names").is_some() })
    }

    fn to_json(&self) -> Value {
        let at: Value = self.at.iter().map(step_to_json).collect();
        let mut written = match &self.was {
            Was::Value(Some(was)) => json!({"at": at, "was": was}),
            Was::Value(None) => json!({ "at": at }),
            Was::Elsewhere => json!({"at": at, "elsewhere": true}),
        };
        if self.names {
            merge_into(&mut written, json!({"names": true}));
        }
        written
    }
}

fn change_at(at: &[Step], to: Option<Value>) -> Change {
    Change { at: at.to_vec(), what: What::Value { old: None, new: to } }
}

/// A field is a text, an item an object of its keys, a text of a set a list with it.
fn step_to_json(step: &Step) -> Value {
    match step {
        Step::Field(name) => name.as_str().into(),
        Step::Item(keys) => Value::Object(keys.iter().cloned().collect()),
        Step::Text(text) => json!([text]),
    }
}

fn read_step(json: &Value) -> Option<Step> {
    Some(match json {
        Value::String(name) => Step::Field(name.clone()),
        Value::Object(keys) => Step::Item(keys.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
        Value::Array(texts) => Step::Text(texts.first()?.as_str()?.to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) => return None,
    })
}

/// The places at which a part in `member` differs from what the object says.
fn places(kind: &Kind<'_>, member: &MemberName, base: &Value, overridden: &Value) -> Vec<Place> {
    let (mut size, named) = (0, kind.nodes.localized(base.clone(), member));
    let values = difference(base, overridden).into_iter().filter_map(|change| match change.what {
        What::Value { old, .. } => Some((change.at, old)),
        What::Order(_) => None,
    });
    let is_own = |at: &[Step]| at.iter().any(|step| matches!(step, Step::Field(name) if name.starts_with(OWN_PREFIX)));
    let noted = values.filter(|(at, _)| !is_own(at)).map(|(at, was)| {
        let here = change_at(&at, None);
        let names = here.value_in(&named) != was && here.value_in(&named) == here.value_in(overridden);
        let place = Place::of(kind.gvk, at, was, names);
        size += place.to_json().to_string().len();
        if size > NOTE_MAX { Place { was: Was::Elsewhere, ..place } } else { place }
    });
    noted.collect()
}

/// Names overrides in a few bytes. `None`: there are none.
fn digest(overrides: &Overrides) -> Option<String> {
    let text = serde_json::to_vec(overrides).ok().filter(|_| !overrides.is_empty())?;
    Some(Uuid::new_v5(&DIGESTS, &text).simple().to_string())
}

fn is_overridden(part: &Value, at: &[Step]) -> bool {
    Note::read(part).is_some_and(|note| note.places.iter().any(|place| overlap(&place.at, at)))
}

fn overlap(one: &[Step], other: &[Step]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn is_unknown(value: &Value) -> bool {
    value.as_str() == Some(UNKNOWN)
}

/// The path of the first place of which it is not known what the object says.
fn unknown(value: &Value) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, field)| Some(format!(".{name}{}", unknown(field)?))),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, item)| Some(format!("[{at}]{}", unknown(item)?)))
        }
        value => is_unknown(value).then(String::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{nodes::NodeNames, policy::Rules, visible::VisibleNames};

    const IMAGE: &str = "/spec/template/spec/containers/0/image";

    fn overrides(registry: Option<&str>, patch: Option<Value>) -> Overrides {
        let patch = patch.map(|patch| serde_json::from_value(patch).unwrap());
        Overrides { patch, registry: registry.map(str::to_owned), edits: Vec::new() }
    }

    fn deployment() -> Gvk {
        Gvk::new("apps", "v1", "Deployment")
    }

    fn web() -> Value {
        json!({
            "kind": "Deployment", "metadata": {"name": "web", "labels": {"tier": "core"}, "annotations": {"kubefold.io/x": "y"}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "web", "image": "quay.io/lib/web:1", "args": ["-a"]}, {"name": "side", "image": "side:1"}
            ]}}}
        })
    }

    fn made_of(object: &Value, by: &Overrides, gvk: &Gvk) -> Value {
        let east = MemberName::new("east").unwrap();
        let rules = Rules::default();
        let kind = Kind::of(gvk, &rules, None);
        let made = made(object.to_string().into_bytes(), by, &kind, "shop", &east).unwrap();
        serde_json::from_slice(&made).unwrap()
    }

    fn brought_to(part: &Value, others: Others<'_>, by: &Overrides, gvk: &Gvk) -> Result<Value, BringError> {
        let east = MemberName::new("east").unwrap();
        brought(part, others, by, &Kind::of(gvk, &Rules::default(), None), "shop", &east)
    }

    fn all_ops() -> Overrides {
        overrides(
            Some("mirror.example/x"),
            Some(json!([
                {"op": "replace", "path": "/metadata/labels/tier", "value": "edge"},
                {"op": "add", "path": "/metadata/labels/edge", "value": "yes"},
                {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "-b"},
                {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "extra", "image": "e"}},
                {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"disk": "ssd"}},
                {"op": "remove", "path": "/spec/template/spec/containers/1"},
            ])),
        )
    }

    #[test]
    fn what_overrides_made_is_taken_back_and_all_else_stays() {
        let by = all_ops();
        let mut part = made_of(&web(), &by, &deployment());
        assert!(has(&part, &by) && !has(&part, &Overrides::default()));
        assert_eq!(part.pointer(IMAGE), Some(&json!("mirror.example/x/lib/web:1")));
        // Somebody edited it in its member, beside the overrides.
        part["spec"]["paused"] = true.into();
        part["spec"]["template"]["spec"]["containers"][0]["tty"] = true.into();
        let bare = brought_to(&part, Others::default(), &Overrides::default(), &deployment()).unwrap();
        let mut expected = web();
        expected["spec"]["paused"] = true.into();
        expected["spec"]["template"]["spec"]["containers"][0]["tty"] = true.into();
        assert_eq!(bare, expected);
        assert!(has(&bare, &Overrides::default()));
    }

    #[test]
    fn changed_overrides_are_as_if_the_part_was_made_now() {
        for (from, to) in [
            (all_ops(), overrides(Some("two.example/y"), None)),
            (overrides(None, None), all_ops()),
            (overrides(Some("one.example/deep/path"), None), all_ops()),
        ] {
            let part = made_of(&web(), &from, &deployment());
            let now = brought_to(&part, Others::default(), &to, &deployment()).unwrap();
            assert_eq!(now, made_of(&web(), &to, &deployment()));
            assert_eq!(
                brought_to(&now, Others::default(), &to, &deployment()).unwrap(),
                now,
                "once more changes nothing"
            );
        }
    }

    #[test]
    fn a_container_that_somebody_removed_does_not_come_back() {
        let by = overrides(Some("mirror.example"), None);
        let mut part = made_of(&web(), &by, &deployment());
        part["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().remove(1);
        let bare = brought_to(&part, Others::default(), &Overrides::default(), &deployment()).unwrap();
        assert_eq!(bare["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_part_of_before_there_were_notes_learns_from_one_without_overrides() {
        let by = overrides(Some("mirror.example"), None);
        let mut part = made_of(&web(), &by, &deployment());
        put(&mut part, None);
        assert!(!has(&part, &by));
        let bare = web();
        let others = Others { documents: &[&bare], bare: Some(&bare) };
        let noted = brought_to(&part, others, &by, &deployment()).unwrap();
        assert_eq!(noted, made_of(&web(), &by, &deployment()), "the values stay, and are noted");
    }

    #[test]
    fn what_is_secret_or_large_is_not_noted_but_read_from_another_part() {
        let secret = Gvk::new("", "v1", "Secret");
        let object = json!({"kind": "Secret", "metadata": {"name": "s", "annotations": {}}, "data": {"password": "aGVtbGlnaA=="}});
        let by = overrides(None, Some(json!([{"op": "replace", "path": "/data/password", "value": "ZWFzdA=="}])));
        let part = made_of(&object, &by, &secret);
        assert!(!part["metadata"].to_string().contains("aGVtbGlnaA"), "{part}");
        let others = Others { documents: &[&part, &object], bare: None };
        let bare = brought_to(&part, others, &Overrides::default(), &secret).unwrap();
        assert_eq!(bare["data"], object["data"]);
        // Every part has the override: nobody knows.
        let others = Others { documents: &[&part], bare: None };
        let error = brought_to(&part, others, &Overrides::default(), &secret).unwrap_err();
        assert_eq!(error, BringError::Unknown(".data.password".to_owned()));
        let other = overrides(None, Some(json!([{"op": "replace", "path": "/data/password", "value": "d2VzdA=="}])));
        let changed = brought_to(&part, others, &other, &secret).unwrap();
        assert_eq!(changed["data"]["password"], "d2VzdA==", "what the object says does not matter here");
        let large =
            json!({"kind": "ConfigMap", "metadata": {"annotations": {}}, "data": {"a": "x".repeat(VALUE_MAX + 1)}});
        let by = overrides(None, Some(json!([{"op": "replace", "path": "/data/a", "value": "y"}])));
        let part = made_of(&large, &by, &Gvk::new("", "v1", "ConfigMap"));
        assert!(part["metadata"].to_string().len() < 500);
    }

    #[test]
    fn as_written_it_has_no_overrides_but_for_what_cannot_be_shown() {
        let part = made_of(&web(), &all_ops(), &deployment());
        let shown = |part: &Value, is_child| {
            let text = as_written(&part.to_string(), is_child);
            text.map(|text| serde_json::from_str::<Value>(&text).unwrap())
        };
        let mut whole = shown(&part, false).unwrap();
        put(&mut whole, None);
        // The container that an override removed stays away: a strategic merge patch of it would make another one.
        let mut expected = web();
        expected["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().remove(1);
        assert_eq!(whole, expected);
        assert_eq!(shown(&web(), false), None);

        // Of a ReplicaSet, which has a copy of the annotations, the template alone is the Deployment's.
        let child = shown(&part, true).unwrap();
        assert_eq!((&child["spec"], &child["metadata"]["labels"]), (&expected["spec"], &part["metadata"]["labels"]));
        let mut revision = part;
        let template = revision["spec"].take();
        revision["data"] = json!({"spec": template});
        revision.as_object_mut().unwrap().shift_remove("spec");
        assert_eq!(shown(&revision, true), None);

        let secret = json!({"kind": "Secret", "metadata": {"annotations": {}}, "data": {"password": "aGVtbGlnaA=="}});
        let by = overrides(None, Some(json!([{"op": "replace", "path": "/data/password", "value": "ZWFzdA=="}])));
        let part = made_of(&secret, &by, &Gvk::new("", "v1", "Secret"));
        assert_eq!(shown(&part, false), None, "it is nowhere in this part");
    }

    #[test]
    fn plain_names_of_nodes_are_noted_and_are_no_override() {
        let host = "/spec/template/spec/nodeSelector/kubernetes.io~1hostname";
        let [east, west] = ["east", "west"].map(|name| MemberName::new(name).unwrap());
        let names = VisibleNames::of(crate::config::Names::Suffixed, vec![east.clone(), west]);
        let gvk = deployment();
        let kind = Kind { gvk: &gvk, divided: &[], nodes: NodeNames::of(&gvk, &names) };
        let mut written = web();
        written["spec"]["template"]["spec"]["nodeSelector"] =
            json!({"kubernetes.io/hostname": "n0@east", "disk": "ssd"});
        let (none, registry) = (Overrides::default(), overrides(Some("mirror.example"), None));
        let make = |by: &Overrides| -> Value {
            let made = made(written.to_string().into_bytes(), by, &kind, "shop", &east).unwrap();
            serde_json::from_slice(&made).unwrap()
        };
        let bring = |part: &Value, by: &Overrides| brought(part, Others::default(), by, &kind, "shop", &east).unwrap();
        let part = make(&none);
        assert_eq!(part.pointer(host), Some(&json!("n0")));
        assert!(has(&part, &none) && !has(&part, &registry), "no policy has it differ");
        let mut shown: Value = serde_json::from_str(&as_written(&part.to_string(), false).unwrap()).unwrap();
        put(&mut shown, None);
        assert_eq!(shown, written);
        // Overrides come and go beside it.
        assert_eq!(bring(&part, &registry), make(&registry));
        assert_eq!(bring(&make(&registry), &none), part);
        assert_eq!(bring(&part, &none), part);
        // An apply that leaves the name out takes it away where nobody else has it.
        let noted = Note::read(&part).unwrap();
        let after = |said: &Value, owns: bool| {
            let applied = kind.nodes.localized(said.clone(), &east);
            let apply = Apply { base: &written, said, applied: &applied, owns: &|_: &[&str]| owns };
            Note::after_apply(Some(&noted), &kind, &east, &apply)
        };
        let paused = json!({"spec": {"paused": true}});
        assert_eq!((after(&paused, false), after(&paused, true)), (Some(noted.clone()), None));
        assert_eq!(after(&written, false), Some(noted.clone()));
        let disk = json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}});
        assert_eq!(after(&disk, false), None, "a selector is applied as a whole");
    }

    /// A digest that changed with the version would have every part brought anew.
    #[test]
    fn digests_are_the_same_in_every_version() {
        let by = overrides(Some("m"), Some(json!([{"op": "add", "path": "/a", "value": {"b": 1, "a": [null, "x"]}}])));
        assert_eq!(digest(&by).unwrap(), "5f1e9a1bb73f5c4c802dbaabf8b483ef");
        assert_eq!(digest(&Overrides::default()), None);
    }

    #[test]
    fn a_note_that_is_malformed_is_none_and_one_of_nothing_is_of_no_overrides() {
        let with = |text: &str| json!({"metadata": {"annotations": {OVERRIDES_KEY: text}}});
        for text in ["", "{}", r#"{"was":[{"at":[7]}]}"#, r#"{"was":7}"#] {
            assert_eq!(Note::read(&with(text)), None, "{text}");
        }
        assert!(has(&with(r#"{"was":[]}"#), &Overrides::default()));
        let by = all_ops();
        let part = made_of(&web(), &by, &deployment());
        let note = Note::read(&part).unwrap();
        assert_eq!(Note::read(&with(&note.to_text())), Some(note));
    }
}
