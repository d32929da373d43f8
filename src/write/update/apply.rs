//! Server-side apply of a folded object: the apply itself goes to every part, with that part's share and marker.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    placement::{
        companions::Limit,
        divided::{Division, Field, REPLICAS},
        fold::{FoldKind, counter_paths},
        marker::{MARKER_KEY, WHOLE_KEY},
        merge::{Change, Take, What, difference, take},
        noted::{self, Note, OVERRIDES_KEY},
        overrides::{Kind, applied},
    },
    write::{
        fleet::Fleet,
        journal::Entry,
        request::values,
        update::{
            desired::{self, Desired, check_preconditions, object, plain_of, set},
            draft::{Plan, overrides_in},
            own::{has_other_owner, owns_alone},
            part::{Held, Ownership, SCALE, note as note_of},
            shares::{DesiredReplicas, Total},
            task::{PartTask, Task, applies_in, apply_in, is_by},
            work::{Stop, Work},
        },
    },
};
use kubefold_wire::patch::{merge_into, path_of};

/// What a client applies, as far as one part is concerned.
struct Apply<'a> {
    patch: &'a Value,
    /// Its text, where members may have other words for it.
    text: Option<&'a Bytes>,
    /// The divided fields that it sets.
    said: &'a [Field],
    /// Those that it leaves out and that its manager alone had in this part.
    unsaid: &'a [Field],
    /// The part's own, where the client names the revision that it changes.
    revision: Option<&'a str>,
    is_home: bool,
}

impl<F: Fleet> Work<'_, F> {
    /// Plans an apply.
    pub(super) async fn plan_apply(&self) -> Result<Plan, Stop> {
        let mut patch = object(&self.request.body)?;
        let (revision, uid) = desired::strip(&mut patch);
        check_preconditions(self.key, &self.visible, revision.as_deref(), uid.as_deref())?;
        self.hold_owners(&patch).await?;
        let (scale, scaled) = (self.subresource() == SCALE, [self.scaled_field()]);
        let fields: &[Field] = if scale { &scaled } else { self.divided() };
        let said =
            fields.iter().filter(|field| patch.pointer(self.said_at(field)).is_some_and(|value| !value.is_null()));
        let said: Vec<Field> = said.copied().collect();
        let manager = values(&self.request.query, "fieldManager").next().unwrap_or_default();
        let is_quota = self.division() == Some(Division::Quota);
        let read = |field: &Field| {
            if let Some(said) = patch.pointer(field.pointer).filter(|_| is_quota) {
                let asked = DesiredReplicas::Same(Some(self.applied_hard(said, &manager)));
                return Some(Total { field: *field, asked });
            }
            let at = if scale { REPLICAS } else { *field };
            Some(Total { field: *field, ..Total::read(&patch, at)? })
        };
        let mut asked: Vec<Total> = said.iter().filter_map(read).collect();
        // What it leaves out and nobody else has becomes the default of the whole.
        let left_out = fields.iter().filter(|field| field.unset.is_some() && !scale && !said.contains(field));
        let left_out: Vec<Field> = left_out.copied().collect();
        let dropped = left_out.iter().filter(|field| self.has_whole(&manager, field));
        asked.extend(dropped.filter_map(|field| Total::read(&Value::Null, *field)));
        let coming = if fields.is_empty() { Vec::new() } else { self.coming() };
        // What the parts have together already stays as they have it.
        let is_new = |total: &&Total| match &total.asked {
            DesiredReplicas::Number(number) => self.awaited_whole(&coming, total.field) != u64::from(*number),
            DesiredReplicas::Same(_) => true,
        };
        let is_companion = self.companion().is_some();
        let mut totals: Vec<Total> = asked.iter().filter(|total| is_companion || is_new(total)).cloned().collect();
        if is_companion {
            // What has no default goes with the only manager that had it.
            let gone = fields.iter().filter(|field| field.unset.is_none() && !said.contains(field));
            let gone = gone.filter(|field| owns_alone(&self.home.document, &manager, field.path));
            totals.extend(gone.map(|field| Total { field: *field, asked: DesiredReplicas::Same(None) }));
        }
        let as_shown = plain_of(&self.shown);
        let wanted =
            Desired { before: as_shown.clone(), after: as_shown, guarded: revision.is_some(), managed_fields: None };
        let mut plan = Box::pin(self.draft(&wanted, None, &totals)).await;
        plan.said.clone_from(&patch);
        plan.scale = asked.iter().find_map(|total| match total.asked {
            DesiredReplicas::Number(number) if scale => Some(number),
            _ => None,
        });
        let text = self.referring(&patch);
        let of = |part: &Held, task: &mut PartTask, is_home: bool| {
            let revision = revision.as_ref().map(|_| part.revision());
            let alone = left_out.iter().filter(|field| self.has_share(part, &manager, field));
            let unsaid: Vec<Field> = alone.copied().collect();
            let changed = totals.iter().filter(|total| matches!(total.asked, DesiredReplicas::Number(_)));
            let changed: Vec<Field> = changed.map(|total| total.field).filter(|field| said.contains(field)).collect();
            task.ownership = ownership(&part.document, task, &manager, &unsaid, &changed);
            let apply = Apply { patch: &patch, text: text.as_ref(), said: &said, unsaid: &unsaid, revision, is_home };
            task.apply = Some(self.apply_body(part, task, apply));
        };
        if is_companion {
            // What is applied is in none of them yet: they are made when the companion is placed anew, after it.
            plan.missing.clear();
            plan.body = None;
        }
        of(&self.home, &mut plan.home, true);
        for (task, part) in plan.others.iter_mut().zip(&self.others) {
            of(part, task, false);
        }
        Ok(plan)
    }

    /// What the parts will have of a divided number together, with those that are coming.
    fn awaited_whole(&self, coming: &[Held], field: Field) -> u64 {
        let of = |part: &Held| self.awaited(part).pointer(field.pointer).and_then(Value::as_u64).unwrap_or(0);
        self.parts().chain(coming).map(of).sum()
    }

    /// Says whether a divided field is that manager's by an apply, and nobody else's. Who changes the number of the whole has it in the
    /// parts alone whose shares change.
    fn has_whole(&self, manager: &str, field: &Field) -> bool {
        owns_alone(&self.home.document, manager, field.path)
            && !self.others.iter().any(|part| self.is_elses(part, manager, field))
    }

    /// Says whether another manager has a part's share, once what waits for the part is there.
    fn is_elses(&self, part: &Held, manager: &str, field: &Field) -> bool {
        let earlier = self.earlier_in(&part.member);
        let changes = |entry: &&Entry| {
            let its = Task::of(entry).and_then(|task| task.in_part(entry, &part.member).cloned());
            its.is_some_and(|its| {
                its.own.iter().any(|change| change.is_within(field.path))
                    || its.ownership.takes.iter().any(|path| path == field.path)
            })
        };
        match earlier.iter().rev().find(changes) {
            Some(last) => !(applies_in(last, &part.member) && is_by(last, manager)),
            None => has_other_owner(&part.document, manager, field.path),
        }
    }

    /// Says whether a part's share is that manager's by an apply, and nobody else's, once what waits for the part is there.
    fn has_share(&self, part: &Held, manager: &str, field: &Field) -> bool {
        let earlier = self.earlier_in(&part.member);
        let mut applied = earlier.iter().rev().filter(|entry| is_by(entry, manager));
        let waits = applied.find_map(|entry| apply_in(entry, &part.member));
        waits.map_or_else(
            || owns_alone(&part.document, manager, field.path),
            |body| body.pointer(field.pointer).is_some(),
        )
    }

    /// Where what is applied says a divided field.
    fn said_at(&self, field: &Field) -> &'static str {
        if self.subresource() == SCALE { REPLICAS.pointer } else { field.pointer }
    }

    fn apply_body(&self, part: &Held, task: &PartTask, apply: Apply<'_>) -> Value {
        let Apply { patch, text, said, unsaid, revision, is_home } = apply;
        let mut body = match text {
            Some(text) => {
                let local = self.writer.fleet.localize(self.key, &part.member, text);
                serde_json::from_slice(&local).unwrap_or_else(|_| patch.clone())
            }
            None => patch.clone(),
        };
        let awaited = self.awaited(part);
        let share = |field: &Field| share_in(&awaited, &task.own, field);
        for field in unsaid {
            // Each part would take the default for itself.
            if let Some(share) = share(field) {
                merge_into(&mut body, desired::nested(field.path, share));
            }
        }
        let noted = task.own.iter().find(|change| change.is_within(&WHOLE)).and_then(Change::wanted);
        let note = noted.or_else(|| note_of(&awaited).map(Value::from));
        for field in said {
            let share = share(field);
            if let (Some(place), Some(share)) = (body.pointer_mut(self.said_at(field)), share) {
                // What is no number is refused in the member's own words.
                let is_percent = note.is_some() && Limit::read(place).is_some();
                if let (Value::Object(said), Value::Object(share)) = (&mut *place, &share) {
                    for (amount, share) in said.iter_mut().filter_map(|(name, amount)| Some((amount, share.get(name)?)))
                    {
                        amount.clone_from(share);
                    }
                } else if is_percent || place.as_i64().is_some_and(|number| number >= 0) {
                    *place = share;
                }
            }
        }
        if let Some(note) = note {
            merge_into(&mut body, desired::nested(&WHOLE, note));
        }
        if self.subresource().is_empty() {
            let own = overrides_in(self.policy(), &part.member);
            let manager = values(&self.request.query, "fieldManager").next().unwrap_or_default();
            let owns = |path: &[&str]| owns_alone(&part.document, &manager, path);
            let rules = self.writer.fleet.rules();
            let kind = Kind::divided(&self.key.gvk, &rules, self.divided());
            mark(&part.document, &manager, &mut body);
            let said = body.clone();
            body = applied(body, &part.document, &own, &kind, &part.member, owns);
            let noted = Note::read(&awaited);
            let base = noted.as_ref().map(|noted| noted.base(&awaited, &[]));
            let apply =
                noted::Apply { base: base.as_ref().unwrap_or(&awaited), said: &said, applied: &body, owns: &owns };
            let after = Note::after_apply(noted.as_ref(), &kind, &part.member, &apply);
            // It says what the part notes where that changes, or where only its manager has it.
            if after != noted || noted.is_some() && owns(&NOTE) {
                noted::put(&mut body, Some(&after.unwrap_or_default()));
            }
            if !is_home {
                self.own_last_applied(part, &mut body);
            }
        }
        if self.subresource() == "status" && !is_home {
            let kind = FoldKind::known(self.writer.fleet.rules().kinds(), &self.key.gvr, &self.key.gvk);
            drop_counters(kind, &mut body);
        }
        if let (Some(revision), Some(metadata)) = (revision, body.get_mut("metadata")) {
            set(metadata, "resourceVersion", revision.into());
        }
        body
    }

    /// Each server writes down what was applied to its part, so that these differ by shares: who applies what the home has
    /// (kubectl does, as it changes to server-side apply) means each part's own.
    fn own_last_applied(&self, part: &Held, body: &mut Value) {
        let home = self.home.document.pointer(LAST_APPLIED);
        if let (Some(said), Some(own)) = (body.pointer_mut(LAST_APPLIED), part.document.pointer(LAST_APPLIED))
            && Some(&*said) == home
        {
            said.clone_from(own);
        }
    }

    /// Notes what an apply makes of the home: while it holds that, a part that is behind may have the same.
    pub(super) fn note_applied(&self, plan: &mut Plan, after: &Value) {
        if self.subresource() == SCALE {
            return;
        }
        let mut changes = difference(&plain_of(&self.home.document), &plain_of(after));
        let is_divided = |change: &Change| self.divided().iter().any(|field| change.is_within(field.path));
        let without_status = self.is_without_status();
        changes.retain(|change| !(is_divided(change) || without_status && change.is_within(&["status"])));
        for task in &mut plan.others {
            task.shared.clone_from(&changes);
        }
        plan.shown.clone_from(&changes);
        // The home may be rewritten by policy; a part that is made later is not made in its rewrite.
        let patch: Value = serde_json::from_slice(&self.request.body).unwrap_or_default();
        for change in &mut plan.shown {
            let said = change.value_in(&patch);
            if let (What::Value { new: Some(new), .. }, Some(said)) = (&mut change.what, said) {
                *new = said;
            }
        }
        if plan.body.is_some() {
            let before = plain_of(&self.shown);
            let mut after = before.clone();
            take(&plan.shown, Take::Always, &mut after);
            let wanted = Desired { before, after, guarded: plan.guarded, managed_fields: None };
            plan.body = Some(self.body_of_missing(&wanted, self.policy()));
        }
        plan.home.shared = changes;
    }
}

/// What a part has in a divided field once its own changes are made.
fn share_in(part: &Value, own: &[Change], field: &Field) -> Option<Value> {
    // The field alone is enough where it is: a whole part costs more than all else that an apply does here.
    let now = part.pointer(field.pointer).cloned();
    let mut share = now.map_or_else(|| part.clone(), |now| desired::nested(field.path, now));
    take(own, Take::Always, &mut share);
    share.pointer(field.pointer).cloned()
}

/// Which fields of a part change their managers with an apply: those that are `unsaid`, and those of which the whole is `changed`
/// and the part's share is not.
fn ownership(part: &Value, task: &PartTask, manager: &str, unsaid: &[Field], changed: &[Field]) -> Ownership {
    let path = |field: &Field| field.path.iter().map(|name| (*name).to_owned()).collect();
    let stays = |field: &&Field| !task.own.iter().any(|change| change.is_within(field.path));
    let taken = changed.iter().filter(stays).filter(|field| has_other_owner(part, manager, field.path));
    Ownership { disowns: unsaid.iter().map(path).collect(), takes: taken.map(path).collect() }
}

/// The body of an apply with other values of fields that it changes in the whole and not in this part: what refuses it would on one
/// cluster refuse the apply itself.
pub(super) fn with_other_values(body: &Value, fields: &[Vec<String>]) -> Value {
    let mut body = body.clone();
    for path in fields {
        let pointer = path_of(path);
        if let Some(place) = body.pointer_mut(&pointer) {
            *place = place.as_u64().map_or(0, |number| number + 1).into();
        }
    }
    body
}

/// What a companion's part notes of the whole: who applies a part has it, as he has the part's own numbers.
const WHOLE: [&str; 3] = ["metadata", "annotations", WHOLE_KEY];

/// What a part notes of its overrides.
const NOTE: [&str; 3] = ["metadata", "annotations", OVERRIDES_KEY];

/// kubectl's own note of what it applied.
const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// A manager that leaves the marker out takes it away, if it is the one that applied it. Others shall not have it: a
/// kube-apiserver notes for kubectl what was applied.
fn mark(part: &Value, manager: &str, body: &mut Value) {
    for map in ["labels", "annotations"] {
        if !owns_alone(part, manager, &["metadata", map, MARKER_KEY]) {
            continue;
        }
        let Some(mark) = part.pointer(&format!("/metadata/{map}")).and_then(|map| map.get(MARKER_KEY)) else {
            continue;
        };
        let patch = desired::nested(&["metadata", map, MARKER_KEY], mark.clone());
        merge_into(body, patch);
    }
}

/// Counters go to the home alone.
fn drop_counters(kind: FoldKind, body: &mut Value) {
    let Some(status) = body.get_mut("status") else { return };
    if matches!(kind, FoldKind::Declared(_)) {
        for path in counter_paths(kind) {
            desired::take_at(status, path);
        }
        return;
    }
    let summed = kind != FoldKind::Other;
    if let Some(status) = status.as_object_mut() {
        status.retain(|name, value| !value.is_i64() || !(summed || name == "observedGeneration"));
    }
}
