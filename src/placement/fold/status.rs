//! The status of the logical object.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::placement::fold::{
    hide::spliced,
    integer,
    kind::{FoldKind, Polarity},
    quota,
};
use kubefold_wire::{
    locate::{Member, NotAnObject, entries},
    splice::ObjectEdits,
};

const OBSERVED: &str = "observedGeneration";
const CONDITIONS: &str = "conditions";

/// The entries of one part's `status`.
type Status<'a> = Vec<Member<'a>>;

/// Makes the home's status, whose edits these are, that of all. `statuses` are the parts', the home's first.
///
/// Errors: a status is no object.
pub(super) fn fold(home: &mut ObjectEdits<'_>, statuses: &[&str], kind: FoldKind) -> Result<(), NotAnObject> {
    let parts: Vec<Status<'_>> = statuses.iter().map(|status| entries(status)).collect::<Result<_, _>>()?;
    // A kind has a status before its controllers have written one: `{}`; one without any is left without.
    for key in kind.counters().iter().copied().chain([OBSERVED]) {
        let sum = parts.iter().filter_map(|part| integer(raw(part, key)?)).fold(0_i64, i64::saturating_add);
        // Go omits most of these when they are 0; where the home shows a 0 it stays.
        let wanted = sum.to_string();
        if home.member(key).map_or(sum != 0, |now| now.raw != wanted) {
            home.set(key, wanted.into_bytes());
        }
    }
    if let Some(conditions) = conditions(&parts, kind) {
        if conditions.is_empty() {
            home.remove(|key| key == CONDITIONS);
        } else {
            home.set(CONDITIONS, format!("[{}]", conditions.join(",")).into_bytes());
        }
    }
    match kind {
        FoldKind::Job => job(home, &parts),
        FoldKind::StatefulSet => revisions(home, &parts),
        FoldKind::ResourceQuota => {
            let used: Vec<&str> = parts.iter().filter_map(|part| raw(part, "used")).collect();
            if let Some(used) = quota::used(&used) {
                home.set("used", used);
            }
        }
        FoldKind::Deployment
        | FoldKind::ReplicaSet
        | FoldKind::ReplicationController
        | FoldKind::DaemonSet
        | FoldKind::PodDisruptionBudget
        | FoldKind::HorizontalPodAutoscaler
        | FoldKind::Other => {}
    }
    Ok(())
}

fn raw<'a>(part: &Status<'a>, key: &str) -> Option<&'a str> {
    part.iter().find(|entry| entry.name == key).map(|entry| entry.raw).filter(|raw| *raw != "null")
}

fn text(part: &Status<'_>, key: &str) -> Option<String> {
    serde_json::from_str(raw(part, key)?).ok()
}

/// One condition of one part.
struct Condition<'a> {
    raw: &'a str,
    about: About,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct About {
    r#type: String,
    status: String,
    reason: String,
    observed_generation: Option<i64>,
}

impl Condition<'_> {
    /// How far a part is: lower is worse.
    fn rank(&self) -> u8 {
        match &*self.about.status {
            "False" => 0,
            "True" if self.about.r#type == "Progressing" && self.about.reason != "NewReplicaSetAvailable" => 3,
            "True" => 4,
            _ => 1,
        }
    }
}

fn conditions_of<'a>(part: &Status<'a>) -> Vec<Condition<'a>> {
    let elements: Vec<&RawValue> =
        raw(part, CONDITIONS).and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let read = |element: &'a RawValue| {
        Some(Condition { raw: element.get(), about: serde_json::from_str(element.get()).ok()? })
    };
    elements.into_iter().filter_map(read).collect()
}

/// The folded conditions, in the home's order; `None` where they are the home's own bytes.
fn conditions(parts: &[Status<'_>], kind: FoldKind) -> Option<Vec<String>> {
    let all: Vec<Vec<Condition<'_>>> = parts.iter().map(conditions_of).collect();
    let home = all.first()?;
    let mut out = Vec::new();
    for condition in home {
        let name = &condition.about.r#type;
        // `None`: a part has not said it yet.
        let said: Vec<Option<&Condition<'_>>> =
            all.iter().map(|part| part.iter().find(|other| other.about.r#type == *name)).collect();
        let shown = match kind.polarity(name) {
            Polarity::Home => Some(condition),
            Polarity::Any => {
                Some(said.iter().flatten().find(|other| other.about.status == "True").map_or(condition, |on| on))
            }
            Polarity::All => {
                let worst = said.iter().flatten().min_by_key(|other| other.rank()).copied();
                // What a part has not said does not hold of all.
                worst.filter(|worst| worst.rank() < 2 || said.iter().all(Option::is_some))
            }
        };
        out.extend(shown.map(|shown| observed(shown, &said)));
    }
    // What holds somewhere and the home does not speak of.
    let mut known: Vec<&str> = home.iter().map(|condition| &*condition.about.r#type).collect();
    for other in all.iter().skip(1).flatten() {
        let name = &*other.about.r#type;
        if kind.polarity(name) == Polarity::Any && other.about.status == "True" && !known.contains(&name) {
            known.push(name);
            out.push(other.raw.to_owned());
        }
    }
    let same = out.len() == home.len() && out.iter().zip(home).all(|(shown, home)| shown == home.raw);
    (!same).then_some(out)
}

/// A condition that says which generation it is of says so of all parts: `kubectl wait` compares it with the object's.
fn observed(shown: &Condition<'_>, said: &[Option<&Condition<'_>>]) -> String {
    let Some(now) = shown.about.observed_generation else { return shown.raw.to_owned() };
    let sum = said.iter().flatten().filter_map(|part| part.about.observed_generation).fold(0_i64, i64::saturating_add);
    let Ok(mut object) = ObjectEdits::new(shown.raw, 0) else { return shown.raw.to_owned() };
    if sum != now {
        object.set(OBSERVED, sum.to_string().into_bytes());
    }
    String::from_utf8(spliced(shown.raw, object)).unwrap_or_default()
}

/// A Job is complete when its last part is, and accounts for the pods of all.
fn job(home: &mut ObjectEdits<'_>, parts: &[Status<'_>]) {
    // RFC 3339 in UTC sorts as text.
    let times = |key: &str| parts.iter().filter_map(|part| text(part, key)).collect::<Vec<_>>();
    if let Some(start) = times("startTime").into_iter().min() {
        set_text(home, "startTime", &start);
    }
    let ends = times("completionTime");
    match ends.iter().max() {
        Some(end) if ends.len() == parts.len() => set_text(home, "completionTime", end),
        _ if home.member("completionTime").is_some() => home.remove(|key| key == "completionTime"),
        _ => {}
    }
    uncounted_pods(home, parts);
}

/// The pods that the parts' controllers are about to count.
fn uncounted_pods(home: &mut ObjectEdits<'_>, parts: &[Status<'_>]) {
    const UNCOUNTED: &str = "uncountedTerminatedPods";
    let mut lists: [(&str, Vec<&str>); 2] = [("succeeded", Vec::new()), ("failed", Vec::new())];
    for part in parts.iter().filter_map(|part| raw(part, UNCOUNTED)) {
        let Ok(part) = entries(part) else { continue };
        for (key, pods) in &mut lists {
            let theirs: Vec<&RawValue> =
                raw(&part, key).and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
            pods.extend(theirs.into_iter().map(RawValue::get));
        }
    }
    let said: Vec<String> = lists
        .iter()
        .filter(|(_, pods)| !pods.is_empty())
        .map(|(key, pods)| format!("\"{key}\":[{}]", pods.join(",")))
        .collect();
    if !said.is_empty() {
        set(home, UNCOUNTED, format!("{{{}}}", said.join(",")).into_bytes());
    }
}

/// A StatefulSet is at its revision when every part is at its own.
fn revisions(home: &mut ObjectEdits<'_>, parts: &[Status<'_>]) {
    let pair = |part: &Status<'_>| Some((text(part, "currentRevision")?, text(part, "updateRevision")?));
    let is_rolling = |pair: &(String, String)| pair.0 != pair.1;
    if parts.first().and_then(pair).is_some_and(|pair| is_rolling(&pair)) {
        return;
    }
    if let Some((current, update)) = parts.iter().filter_map(pair).find(is_rolling) {
        set_text(home, "currentRevision", &current);
        set_text(home, "updateRevision", &update);
    }
}

fn set_text(home: &mut ObjectEdits<'_>, key: &str, value: &str) {
    set(home, key, kubefold_wire::splice::string(value));
}

/// Sets what is not so already: bytes that stay are no edit.
fn set(home: &mut ObjectEdits<'_>, key: &str, value: Vec<u8>) {
    if home.member(key).is_none_or(|now| now.raw.as_bytes() != value) {
        home.set(key, value);
    }
}
