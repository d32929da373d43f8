//! In which fields the parts of one object differ, and why.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::placement::{
    fingerprint::{is_assigned_annotation, is_assigned_label, without_assigned},
    fold::FoldKind,
    marker::{MARKER_KEY, WHOLE_KEY},
    merge::{Change, Step, difference},
    noted::Note,
};
use kubefold_wire::resource::Gvr;

/// What one member holds of an object.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) member: String,
    /// As the member itself shows it.
    pub(super) document: Value,
}

/// What is compared.
pub(super) struct Parts<'a> {
    pub(super) gvr: &'a Gvr,
    /// The object in the fleet view.
    pub(super) whole: &'a Value,
    pub(super) home: &'a Held,
    pub(super) others: &'a [Held],
    /// The members whose part an unfinished write has not reached.
    pub(super) behind: &'a [String],
}

/// Which fields are compared, beside those that the author of an object writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Also {
    /// Those that servers and controllers assign.
    pub(super) assigned: bool,
    /// The status.
    pub(super) status: bool,
}

/// A field in which parts differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// `.spec.template.spec.containers[name="web"].image`.
    pub(super) field: String,
    pub(super) why: Why,
    /// The members in which it is not as it is to be; empty unless `why` is `edited`, `behind` or `differs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) members: Vec<String>,
    /// What is to be there: of what was edited in every part, of what is divided in all parts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wanted: Option<Value>,
    /// What each member has there. A member without the field is left out.
    pub(super) values: Map<String, Value>,
}

/// Why parts differ in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Why {
    /// Each part has a share of a number.
    Divided,
    /// A policy, or a name of a node, has it otherwise in a member.
    Overridden,
    /// An unfinished write has not reached the part.
    Behind,
    /// Somebody wrote it in the member.
    Edited,
    /// The object is shared: each member's is its own affair.
    Differs,
    /// A server or controller assigned it.
    Assigned,
    /// It is in the status.
    Status,
}

impl Why {
    /// Says whether the parts are not what they are to be.
    pub(super) fn is_difference(self) -> bool {
        matches!(self, Self::Behind | Self::Edited | Self::Differs)
    }
}

/// Compares the parts. Values of a Secret are replaced by numbers: the same number is the same value.
pub(super) fn compare(parts: &Parts<'_>, also: Also) -> Vec<Row> {
    let views = |held: &Held| Views::of(&held.document, parts.gvr);
    let comparison = Comparison { parts, home: views(parts.home), others: parts.others.iter().map(views).collect() };
    let authored = comparison.authored();
    let assigned = if also.assigned || also.status { comparison.assigned(also) } else { Vec::new() };
    let places: Vec<&[Step]> = authored.iter().chain(&assigned).map(|change| change.at.as_slice()).collect();
    // A part may lack a whole of which another one has parts.
    let is_covered = |at: &[Step]| places.iter().any(|above| above.len() < at.len() && at.starts_with(above));
    let mut known = BTreeSet::new();
    let mut is_new = |change: &Change| !is_covered(&change.at) && known.insert(change.path());
    let mut rows = Vec::new();
    for change in authored.iter().filter(|change| is_new(change)) {
        rows.extend(comparison.authored_row(change));
    }
    for change in assigned.iter().filter(|change| is_new(change)) {
        let why = if change.is_within(&["status"]) { Why::Status } else { Why::Assigned };
        rows.extend(comparison.row(change, why, Vec::new()));
    }
    rows
}

/// The parts, and what of them is their author's.
struct Comparison<'a> {
    parts: &'a Parts<'a>,
    home: Views,
    others: Vec<Views>,
}

impl Comparison<'_> {
    fn authored(&self) -> Vec<Change> {
        let all = self.others.iter().flat_map(|other| difference(&self.home.authored, &other.authored));
        all.filter(|change| !is_of_one(change)).collect()
    }

    fn assigned(&self, also: Also) -> Vec<Change> {
        let home = &self.parts.home.document;
        let all = self.parts.others.iter().flat_map(|held| difference(home, &held.document));
        all.filter(|change| if change.is_within(&["status"]) { also.status } else { also.assigned }).collect()
    }

    fn authored_row(&self, change: &Change) -> Option<Row> {
        if self.is_divided(change) {
            return self.row(change, Why::Divided, Vec::new());
        }
        let wanted = change.value_in(&self.home.said);
        let all = self.parts.others.iter().zip(&self.others);
        let edited: Vec<String> = all
            .filter(|(_, view)| change.value_in(&view.said) != wanted)
            .map(|(held, _)| held.member.clone())
            .collect();
        let why = match edited.as_slice() {
            [] => Why::Overridden,
            _ if annotation(&self.parts.home.document, MARKER_KEY).is_none() => Why::Differs,
            some if some.iter().all(|member| self.parts.behind.contains(member)) => Why::Behind,
            _ => Why::Edited,
        };
        self.row(change, why, edited)
    }

    /// `None`: all have nothing there, in other forms.
    fn row(&self, change: &Change, why: Why, members: Vec<String>) -> Option<Row> {
        let all = std::iter::once(self.parts.home).chain(self.parts.others);
        let values = all.filter_map(|held| Some((held.member.clone(), change.value_in(&held.document)?)));
        let wanted = match why {
            Why::Divided => change.value_in(self.parts.whole),
            Why::Behind | Why::Edited => change.value_in(&self.home.said),
            Why::Overridden | Why::Differs | Why::Assigned | Why::Status => None,
        };
        let mut row = Row { field: change.path(), why, members, wanted, values: values.collect() };
        if is_secret(self.parts.gvr, change) {
            row.mask();
        }
        Some(row).filter(|row| row.values.values().any(|value| !is_nothing(value)))
    }

    /// Says whether each part has a share here. What the configuration declares of custom resources is not known here: a number
    /// that the fleet view shows as the sum is divided.
    fn is_divided(&self, change: &Change) -> bool {
        let Parts { gvr, whole, home, others, .. } = self.parts;
        let kind = FoldKind::of(&gvr.group, &gvr.resource);
        if kind.divided().iter().any(|path| change.is_within(&[&["spec"], *path].concat())) {
            return true;
        }
        if kind == FoldKind::ResourceQuota && annotation(&home.document, WHOLE_KEY).is_some() {
            return change.is_within(&["spec", "hard"]);
        }
        let all = std::iter::once(*home).chain(*others);
        let sum: Option<i64> = all.map(|held| change.value_in(&held.document)?.as_i64()).sum();
        let shown = change.value_in(whole).and_then(|value| value.as_i64());
        kind == FoldKind::Other && change.is_within(&["spec"]) && sum.is_some() && sum == shown
    }
}

impl Row {
    fn mask(&mut self) {
        let mut known: Vec<Value> = Vec::new();
        let mut masked = |value: &mut Value| {
            let at = known.iter().position(|one| one == value).unwrap_or_else(|| {
                known.push(value.clone());
                known.len() - 1
            });
            *value = Value::from(format!("*** ({})", at + 1));
        };
        self.values.values_mut().for_each(&mut masked);
        self.wanted.iter_mut().for_each(&mut masked);
    }
}

/// A document, and what of it is its author's.
struct Views {
    /// Without what servers and controllers assign.
    authored: Value,
    /// The same, without overrides.
    said: Value,
}

impl Views {
    fn of(document: &Value, gvr: &Gvr) -> Self {
        let said = Note::read(document).map(|note| note.said(document, document, &[]));
        let authored = authored(document.clone(), gvr);
        let said = said.map_or_else(|| authored.clone(), |said| self::authored(said, gvr));
        Self { authored, said }
    }
}

/// What of a document is its author's: what kubefold compares when it says that a part differs.
fn authored(mut document: Value, gvr: &Gvr) -> Value {
    without_assigned(&mut document, gvr);
    let Value::Object(fields) = &mut document else { return document };
    ["kind", "apiVersion", "status"].iter().for_each(|name| drop(fields.remove(*name)));
    let Some(Value::Object(metadata)) = fields.get_mut("metadata") else { return document };
    metadata.retain(|name, _| ["labels", "annotations"].contains(&name.as_str()));
    for (name, is_assigned) in
        [("labels", is_assigned_label as fn(&str) -> bool), ("annotations", is_assigned_annotation)]
    {
        if let Some(Value::Object(texts)) = metadata.get_mut(name) {
            texts.retain(|key, _| !is_assigned(key));
        }
    }
    document
}

/// An annotation that only one has is its member's own: cloud controllers leave notes.
fn is_of_one(change: &Change) -> bool {
    change.is_within(&["metadata", "annotations"]) && (change.before().is_none() || change.wanted().is_none())
}

fn annotation<'a>(document: &'a Value, key: &str) -> Option<&'a str> {
    document.pointer("/metadata/annotations")?.get(key)?.as_str()
}

fn is_secret(gvr: &Gvr, change: &Change) -> bool {
    let is_value = ["data", "stringData"].iter().any(|field| change.is_within(&[field]));
    // The whole manifest stands in that annotation.
    let is_manifest = change.is_within(&["metadata", "annotations"]);
    gvr.group.is_empty() && &*gvr.resource == "secrets" && (is_value || is_manifest)
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::placement::noted::OVERRIDES_KEY;

    fn held(member: &str, document: Value) -> Held {
        Held { member: member.to_owned(), document }
    }

    fn deployment(member: &str, replicas: u32, image: &str) -> Held {
        let document = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "uid": member, "resourceVersion": member, "labels": {"app": "web"},
                "annotations": {MARKER_KEY: format!("{{\"member\":\"{member}\"}}"), "deployment.kubernetes.io/revision": member},
            },
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}},
            "status": {"replicas": replicas},
        });
        held(member, document)
    }

    fn compared(resource: (&str, &str), whole: &Value, all: &[Held], behind: &[&str], also: Also) -> Vec<Row> {
        let (home, others) = all.split_first().unwrap();
        let behind: Vec<String> = behind.iter().map(|name| (*name).to_owned()).collect();
        let gvr = Gvr::new(resource.0, "v1", resource.1);
        compare(&Parts { gvr: &gvr, whole, home, others, behind: &behind }, also)
    }

    const DEPLOYMENTS: (&str, &str) = ("apps", "deployments");

    #[test]
    fn what_was_edited_is_told_from_what_is_divided() {
        let all = [deployment("east", 3, "a:1"), deployment("west", 2, "a:2"), deployment("north", 3, "a:1")];
        let whole = json!({"spec": {"replicas": 8}});
        let rows = compared(DEPLOYMENTS, &whole, &all, &[], Also::default());
        let image = ".spec.template.spec.containers[name=\"web\"].image";
        assert_eq!(
            serde_json::to_value(&rows).unwrap(),
            json!([
                {"field": ".spec.replicas", "why": "divided", "wanted": 8, "values": {"east": 3, "west": 2, "north": 3}},
                {"field": image, "why": "edited", "members": ["west"], "wanted": "a:1",
                 "values": {"east": "a:1", "west": "a:2", "north": "a:1"}},
            ])
        );
        let why = |behind: &[&str]| compared(DEPLOYMENTS, &whole, &all, behind, Also::default())[1].why;
        assert_eq!((why(&["west"]), why(&["north"])), (Why::Behind, Why::Edited));
        assert!(Why::Behind.is_difference() && !Why::Divided.is_difference());
    }

    #[test]
    fn what_servers_assign_is_shown_where_it_is_asked_for() {
        let all = [deployment("east", 3, "a:1"), deployment("west", 3, "a:1")];
        let fields = |also: Also| -> Vec<(String, Why)> {
            compared(DEPLOYMENTS, &json!({}), &all, &[], also).into_iter().map(|row| (row.field, row.why)).collect()
        };
        assert_eq!(fields(Also::default()), []);
        let assigned = fields(Also { assigned: true, status: false });
        assert!(assigned.contains(&(".metadata.uid".to_owned(), Why::Assigned)), "{assigned:?}");
        let more = [deployment("east", 3, "a:1"), deployment("west", 2, "a:1")];
        let also = Also { assigned: false, status: true };
        let rows = compared(DEPLOYMENTS, &json!({}), &more, &[], also);
        assert_eq!(rows.iter().map(|row| row.why).collect::<Vec<_>>(), [Why::Divided, Why::Status]);
    }

    #[test]
    fn an_override_is_no_difference_and_an_edit_beside_it_is_one() {
        let mut west = deployment("west", 3, "mirror/a:1");
        let at = json!(["spec", "template", "spec", "containers", {"name": "web"}, "image"]);
        let note = json!({"of": "1", "was": [{"at": at, "was": "a:1"}]}).to_string();
        west.document["metadata"]["annotations"][OVERRIDES_KEY] = note.into();
        let mut all = vec![deployment("east", 3, "a:1"), west];
        let why = |all: &[Held]| -> Vec<Why> {
            compared(DEPLOYMENTS, &json!({}), all, &[], Also::default()).iter().map(|row| row.why).collect()
        };
        assert_eq!(why(&all), [Why::Overridden]);
        all.push(deployment("north", 3, "b:1"));
        assert_eq!(why(&all), [Why::Edited]);
    }

    #[test]
    fn a_whole_that_a_part_lacks_is_one_row() {
        let config = |member: &str, data: Value| {
            held(member, json!({"metadata": {"annotations": {MARKER_KEY: "x"}}, "data": data}))
        };
        let all = [
            config("east", json!({"a": "1", "b": "2"})),
            config("west", json!({"a": "1", "b": "3"})),
            config("north", Value::Null),
        ];
        let rows = compared(("", "configmaps"), &json!({}), &all, &[], Also::default());
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!((rows[0].field.as_str(), rows[0].members.len()), (".data", 2));
        assert_eq!(rows[0].values.get("north"), None);
    }

    #[test]
    fn values_of_a_secret_are_not_shown() {
        let secret = |member: &str, key: &str| {
            held(member, json!({"metadata": {"annotations": {MARKER_KEY: "x"}}, "data": {"key": key}}))
        };
        let all = [secret("east", "b25l"), secret("west", "dHdv"), secret("north", "b25l")];
        let rows = compared(("", "secrets"), &json!({}), &all, &[], Also::default());
        assert_eq!(
            Value::from(rows[0].values.clone()),
            json!({"east": "*** (1)", "west": "*** (2)", "north": "*** (1)"})
        );
        assert_eq!(rows[0].wanted, Some("*** (1)".into()));
    }

    #[test]
    fn shared_objects_and_declared_kinds() {
        let shared = |member: &str, team: &str| held(member, json!({"metadata": {"labels": {"team": team}}}));
        let all = [shared("east", "a"), shared("west", "b")];
        let rows = compared(("", "namespaces"), &json!({}), &all, &[], Also::default());
        assert_eq!((rows[0].why, rows[0].wanted.clone()), (Why::Differs, None));
        let widget = |member: &str, size: u32| {
            held(member, json!({"metadata": {"annotations": {MARKER_KEY: "x"}}, "spec": {"size": size}}))
        };
        let all = [widget("east", 2), widget("west", 1)];
        let why = |size: u32| {
            let whole = json!({"spec": {"size": size}});
            compared(("example.com", "widgets"), &whole, &all, &[], Also::default())[0].why
        };
        assert_eq!((why(3), why(2)), (Why::Divided, Why::Edited));
    }
}
