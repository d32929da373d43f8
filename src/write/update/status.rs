//! A status that a client writes is shown as it was written, until a controller corrects it: what is a sum is divided over the
//! parts, and conditions are every part's.

use serde_json::Value;

use crate::{
    placement::{
        divided::Path,
        fold::{FoldKind, counter_paths, divided_counters},
        merge::{Change, Step, What},
    },
    write::{
        fleet::Fleet,
        update::{task::PartTask, work::Work},
    },
};

impl<F: Fleet> Work<'_, F> {
    /// Has each part get its own of what is written to the status. The home's task comes first.
    pub(super) fn divide_status(&self, tasks: &mut [PartTask]) {
        self.divide_counters(tasks);
        let Some((home, others)) = tasks.split_first_mut() else { return };
        for (at, change) in home.shared.iter().enumerate().filter(|(_, change)| is_condition(change)) {
            for (other, part) in others.iter_mut().zip(&self.others) {
                if let Some(told) = other.shared.get_mut(at) {
                    hold(told, change, &part.document);
                }
            }
        }
    }

    fn divide_counters(&self, tasks: &mut [PartTask]) {
        let kind = FoldKind::known(self.writer.fleet.rules().kinds(), &self.key.gvr, &self.key.gvk);
        let paths: Vec<Path> = counter_paths(kind).collect();
        let pointer = |path: &Path| format!("/status/{}", path.join("/"));
        let held: Vec<Vec<i64>> = self
            .parts()
            .map(|part| paths.iter().map(|path| number(part.document.pointer(&pointer(path)))).collect())
            .collect();
        let written = |path: &Path| {
            let home = tasks.first()?;
            let (at, change) = home.shared.iter().enumerate().find(|(_, change)| counts(change, path))?;
            let What::Value { new, .. } = &change.what else { return None };
            Some((at, number(new.as_ref())))
        };
        let written: Vec<Option<(usize, i64)>> = paths.iter().map(written).collect();
        if written.iter().all(Option::is_none) {
            return;
        }
        let sum = |at: usize| held.iter().filter_map(|part| part.get(at)).copied().fold(0, i64::saturating_add);
        let totals: Vec<i64> =
            written.iter().enumerate().map(|(at, told)| told.map_or_else(|| sum(at), |(_, total)| total)).collect();
        let divided = divided_counters(kind, &totals, &held);
        for (at, path) in paths.iter().enumerate() {
            let own: Vec<(i64, i64)> = held
                .iter()
                .zip(&divided)
                .map(|(held, divided)| (held.get(at).copied().unwrap_or(0), divided.get(at).copied().unwrap_or(0)))
                .collect();
            let place = written.get(at).copied().flatten().map(|(place, _)| place);
            if place.is_none() && own.iter().all(|(held, divided)| held == divided) {
                continue;
            }
            for (index, ((task, part), (held, divided))) in tasks.iter_mut().zip(self.parts()).zip(own).enumerate() {
                let told = place.and_then(|place| task.shared.get_mut(place));
                let now = part.document.pointer(&pointer(path)).cloned();
                let names = ["status"].iter().chain(*path);
                let at = names.map(|name| Step::Field((*name).to_owned())).collect();
                let new = if held == divided { now.clone() } else { Some(divided.into()) };
                let mut change = Change { at, what: What::Value { old: now, new } };
                // A change stands at the same place in all lists. The home's is made whatever it holds.
                if held == divided && index > 0 {
                    change.clear();
                }
                match told {
                    Some(told) => *told = change,
                    None => task.shared.push(change),
                }
            }
        }
    }
}

fn number(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or(0)
}

/// Says whether a change is one of that number in the status.
fn counts(change: &Change, counter: &[&str]) -> bool {
    let What::Value { old, new } = &change.what else { return false };
    let is_it = change.at.iter().map(|step| match step {
        Step::Field(name) => Some(name.as_str()),
        Step::Item(_) | Step::Text(_) => None,
    });
    is_it.eq(["status"].iter().chain(counter).map(|name| Some(*name)))
        && [old, new].into_iter().flatten().all(|value| value.is_i64() || value.is_null())
}

fn is_condition(change: &Change) -> bool {
    change.is_within(&["status", "conditions"]) && matches!(change.what, What::Value { .. })
}

/// Has a part take a change over whatever it holds there, if it has the place at all.
fn hold(told: &mut Change, change: &Change, document: &Value) {
    let What::Value { new, .. } = &change.what else { return };
    let is_whole = matches!(change.at.last(), Some(Step::Item(_)));
    let old = change.value_in(document);
    if is_whole || old.is_some() {
        told.what = What::Value { old, new: new.clone() };
    }
}
