//! What happens to ShadowResources, as Events beside them.
//!
//! An Event names items and how far they are. Why an item is not ready is in the conditions, which whoever may not read the item is not
//! shown.

use serde_json::Value;

use super::{
    KIND,
    object::{Reference, states},
};
use crate::own::{Referent, events::Told};
use kubefold_wire::access::{items, text};

/// Items that are named one by one.
const NAMED_MAX: usize = 10;

/// As much of a ShadowResource as Events tell of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    uid: String,
    /// Such as Ready.
    phase: String,
    /// How many items are ready.
    ready: String,
    /// Each item that is not ready, and how far it is.
    unready: Vec<String>,
    /// All items.
    all: Vec<String>,
    /// A deletion cannot go on.
    is_kept: bool,
}

impl State {
    /// Of what is stored.
    pub(super) fn of(shadow: &Value) -> Self {
        let told = |state: &Value| format!("{} is {}", Reference::of_state(state), text(state, "/phase"));
        let is_kept =
            |condition: &Value| (text(condition, "/type"), text(condition, "/status")) == ("ItemsDeleted", "False");
        Self {
            uid: text(shadow, "/metadata/uid").to_owned(),
            phase: text(shadow, "/status/phase").to_owned(),
            ready: text(shadow, "/status/ready").to_owned(),
            unready: states(shadow).iter().filter(|state| text(state, "/phase") != "Ready").map(told).collect(),
            all: states(shadow).iter().map(|state| Reference::of_state(state).to_string()).collect(),
            is_kept: items(shadow, "/status/conditions").iter().any(is_kept),
        }
    }

    /// What Events refer to.
    pub(super) fn referent(&self, namespace: &str, name: &str) -> Referent {
        Referent { kind: KIND, namespace: namespace.to_owned(), name: name.to_owned(), uid: self.uid.clone() }
    }

    /// What it is to be told of when it is gone.
    pub(super) fn deleted() -> Told {
        Told::normal("Deleted", "deleted, and its items before it")
    }
}

/// What has happened between two states. Before the first one there was nothing.
pub(super) fn between(before: Option<&State>, now: &State) -> Vec<Told> {
    let before = before.filter(|before| before.uid == now.uid);
    let mut all = Vec::new();
    match before {
        None => all.push(Told::normal("Created", format!("made {}", named(&now.all)))),
        Some(before) if before.all != now.all => {
            all.push(Told::normal("ItemsChanged", format!("its items are {}", named(&now.all))));
        }
        Some(_) => {}
    }
    let is_news = before.is_none_or(|before| (&before.phase, &before.unready) != (&now.phase, &now.unready));
    let message = || format!("{} items are ready: {}", now.ready, named(&now.unready));
    match now.phase.as_str() {
        _ if !is_news => {}
        "Ready" => all.push(Told::normal("Ready", format!("{} items are ready", now.ready))),
        // Everything begins so.
        "Progressing" if before.is_none() => {}
        "Progressing" => all.push(Told::normal("Progressing", message())),
        "" => {}
        phase => all.push(Told::warning(phase, message())),
    }
    if now.is_kept && !before.is_some_and(|before| before.is_kept) {
        let why = "an item cannot be deleted; the condition ItemsDeleted says which, and why";
        all.push(Told::warning("DeletionRefused", why));
    }
    all
}

fn named(texts: &[String]) -> String {
    let more = texts.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let first: Vec<&str> = texts.iter().take(NAMED_MAX).map(String::as_str).collect();
    format!("{}{more}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shadow(uid: &str, phases: &[&str]) -> Value {
        let item = |(at, phase): (usize, &&str)| {
            json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": format!("p{at}"), "phase": phase,
                "message": "a secret of the item"})
        };
        let states: Vec<Value> = phases.iter().enumerate().map(item).collect();
        let ready = phases.iter().filter(|phase| **phase == "Ready").count();
        let worst = phases.iter().find(|phase| **phase != "Ready").unwrap_or(&"Ready");
        json!({"metadata": {"uid": uid},
            "status": {"phase": worst, "ready": format!("{ready}/{}", phases.len()), "items": states}})
    }

    #[test]
    fn each_thing_that_happens_to_a_shadow_resource_has_its_reason() {
        let told = |before: Option<&Value>, now: &Value| {
            let (before, now) = (before.map(State::of), State::of(now));
            between(before.as_ref(), &now).iter().map(|told| format!("{told:?}")).collect::<Vec<_>>().join("\n")
        };
        let (new, ready) = (shadow("a", &["Progressing", "Ready"]), shadow("a", &["Ready", "Ready"]));
        let made = told(None, &new);
        assert!(made.contains("made Pod default/p0, Pod default/p1") && !made.contains("Progressing"), "{made}");
        assert!(told(Some(&new), &ready).contains("2/2 items are ready"));
        assert_eq!(told(Some(&ready), &ready), "");
        assert!(told(Some(&ready), &new).contains("Progressing"));
        let failed = told(Some(&ready), &shadow("a", &["Ready", "Failed"]));
        assert!(
            failed.contains("Warning") && failed.contains("1/2 items are ready: Pod default/p1 is Failed"),
            "{failed}"
        );
        // Why is for those who may read the item.
        assert!(!failed.contains("secret"), "{failed}");
        assert!(told(Some(&ready), &shadow("a", &["Ready"])).contains("ItemsChanged"));
        // Another object of the name is another one.
        assert!(told(Some(&ready), &shadow("b", &["Ready", "Ready"])).contains("Created"));
        let mut kept = ready.clone();
        kept["status"]["conditions"] = json!([{"type": "ItemsDeleted", "status": "False"}]);
        assert!(told(Some(&ready), &kept).contains("DeletionRefused"));
        assert_eq!(told(Some(&kept), &kept), "");
    }

    #[test]
    fn many_items_are_named_up_to_a_bound() {
        let many = State::of(&shadow("a", &["Failed"; 12]));
        let told = format!("{:?}", between(None, &many));
        assert!(told.contains("Pod default/p9 is Failed, and 2 more") && !told.contains("p10"), "{told}");
    }
}
