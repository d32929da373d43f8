//! What is shown of a ShadowResource: its items as they are, each as far as whoever asks may read it.

use futures::future::join_all;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Kept, Shadow,
    fields::{Item, digest_of},
    object::{Reference, as_item, list, set_list, states},
    phase::{self, Phase},
    world::{Place, Seen},
};
use crate::access::MASTERS;
use kubefold_apiserver::kinds::{Composed, Reading};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    access::{items, number, text, texts},
    status::Status,
};

/// An item as it is shown, and its state as kubefold sees it.
struct Look {
    shown: Value,
    /// Absent where nobody has looked.
    state: Option<Value>,
    /// What the caller sees.
    seen: Seen,
    /// What kubefold sees, where that is not the same.
    own: Option<Seen>,
}

impl Look {
    /// The item as kubefold sees it.
    fn own_item<'a>(&'a self, reference: &'a Reference) -> Item<'a> {
        Item { reference, seen: self.own.as_ref().unwrap_or(&self.seen) }
    }
}

impl Shadow {
    pub(super) async fn composed(&self, caller: &Caller, stored: Value, reading: Reading) -> Result<Composed, Status> {
        let references: Vec<Reference> = list(&stored).iter().map(Reference::of).collect();
        let before = states(&stored);
        let looks = references.iter().enumerate().map(|(at, reference)| {
            let state = before.get(at).cloned().unwrap_or_default();
            self.look(caller, reading, reference, state)
        });
        let looks = join_all(looks).await;
        let mut shown = stored.clone();
        let mut new = None;
        let fields = self.fields.load();
        if reading == Reading::Live {
            let mut states: Vec<Value> = looks.iter().filter_map(|look| look.state.clone()).collect();
            let mut changed = stored.clone();
            let kept = self.kept(&stored);
            if let Some((Kept { why, .. }, state)) =
                kept.as_ref().and_then(|kept| Some((kept, states.get_mut(kept.at)?)))
            {
                state["phase"] = Phase::Failed.name().into();
                let members: Vec<&str> = texts(state, "/members").collect();
                let place = if members.is_empty() { String::new() } else { format!(" in {}", members.join(", ")) };
                state["message"] = format!("kubefold cannot delete it{place}: {why}").into();
            }
            set_status(&mut changed, states, kept.as_ref());
            let own: Vec<Item<'_>> =
                references.iter().zip(&looks).map(|(reference, look)| look.own_item(reference)).collect();
            fields.note(&mut changed, &own);
            shown.clone_from(&changed);
            new = Some(changed).filter(|changed| *changed != stored);
        }
        let items: Vec<Item<'_>> =
            references.iter().zip(&looks).map(|(reference, look)| Item { reference, seen: &look.seen }).collect();
        fields.show(&mut shown, &items);
        set_list(&mut shown, looks.into_iter().map(|look| look.shown).collect());
        hide_digests(&mut shown);
        Ok(Composed { shown, stored: new })
    }

    async fn look(&self, caller: &Caller, reading: Reading, reference: &Reference, state: Value) -> Look {
        let is_itself = self.is_itself(caller);
        let Some(place) = self.place(reference).await else {
            let seen = self.world().of_no_kind(reference);
            let state = Some(state_of(reference, &seen, &state));
            return Look { shown: reference.item(), state, seen, own: None };
        };
        if reading == Reading::Known {
            let seen = if is_itself || caller.is_in(MASTERS) {
                self.world().kept(&place).await
            } else {
                self.asked(caller, &place, true).await
            };
            return Look {
                shown: shown(reference, &seen, &state),
                state: None,
                seen: its_own(seen, &state),
                own: None,
            };
        }
        let (seen, own) = if is_itself {
            (self.world().kept(&place).await, None)
        } else {
            let seen = self.asked(caller, &place, false).await;
            let own = if caller.is_in(MASTERS) { None } else { Some(self.world().kept(&place).await) };
            (seen, own)
        };
        let now = state_of(reference, own.as_ref().unwrap_or(&seen), &state);
        Look {
            shown: shown(reference, &seen, &state),
            seen: its_own(seen, &state),
            own: own.map(|own| its_own(own, &state)),
            state: Some(now),
        }
    }

    /// What the fleet tells somebody.
    pub(super) async fn asked(&self, caller: &Caller, place: &Place, known: bool) -> Seen {
        match self.calls.get(caller, place, known).await {
            Ok(Some(reply)) => Seen::There(Box::new(reply.object)),
            Ok(None) => Seen::Absent,
            Err(status) if status.code == StatusCode::FORBIDDEN => Seen::Hidden,
            Err(status) => Seen::Unknown(status.message),
        }
    }
}

/// Says whether an object is another one than its state is about.
fn is_other(object: &Value, state: &Value) -> bool {
    let uid = text(state, "/uid");
    !uid.is_empty() && uid != text(object, "/metadata/uid")
}

/// What is seen of an item where another object may have its name.
fn its_own(seen: Seen, state: &Value) -> Seen {
    match seen {
        Seen::There(object) if is_other(&object, state) => Seen::Absent,
        seen => seen,
    }
}

fn shown(reference: &Reference, seen: &Seen, state: &Value) -> Value {
    match seen {
        Seen::There(object) if !is_other(object, state) => as_item((**object).clone()),
        _ => reference.item(),
    }
}

/// The state of an item; what is not known of it is as it was.
fn state_of(reference: &Reference, seen: &Seen, before: &Value) -> Value {
    let (api_version, kind, name) = (&reference.api_version, &reference.kind, &reference.name);
    let mut state = json!({"apiVersion": api_version, "kind": kind, "name": name});
    let Some(fields) = state.as_object_mut() else { return state };
    let mut set = |field: &str, value: Value| {
        let is_nothing = value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty);
        if !is_nothing {
            fields.insert(field.to_owned(), value);
        }
    };
    set("namespace", reference.namespace.as_str().into());
    let as_before = |field: &str| before.get(field).cloned().unwrap_or_default();
    let (phase, message) = match seen {
        Seen::There(object) if is_other(object, before) => {
            set("uid", as_before("uid"));
            (Phase::Missing, "another object has its name".to_owned())
        }
        Seen::There(object) => {
            set("uid", text(object, "/metadata/uid").into());
            set("members", members(object));
            set("digest", digest(object).into());
            phase::of(object)
        }
        Seen::Absent => {
            set("uid", as_before("uid"));
            (Phase::Missing, "it is not there".to_owned())
        }
        Seen::Hidden => (Phase::Unknown, "kubefold may not read it".to_owned()),
        Seen::Unknown(why) => {
            ["uid", "members", "digest"].into_iter().for_each(|field| set(field, as_before(field)));
            (Phase::Unknown, why.clone())
        }
    };
    set("phase", phase.name().into());
    set("message", message.into());
    state
}

/// The members that have an object, as the fleet says it.
fn members(object: &Value) -> Value {
    let annotations = object.pointer("/metadata/annotations").unwrap_or(&Value::Null);
    let said =
        ["kubefold.io/clusters", "kubefold.io/cluster"].into_iter().find_map(|key| annotations.get(key)?.as_str());
    said.into_iter().flat_map(|said| said.split(',')).map(|member| Value::from(member.trim())).collect()
}

fn digest(object: &Value) -> String {
    let mut item = as_item(object.clone());
    // A get and a watch do not write the fields in one order.
    item.sort_all_objects();
    digest_of(&item)
}

/// Writes what the states of all items come to, and which of them is still there where all are to go.
fn set_status(shadow: &mut Value, states: Vec<Value>, kept: Option<&Kept>) {
    let phases: Vec<Phase> = states.iter().map(|state| Phase::named(text(state, "/phase"))).collect();
    let ready = phases.iter().filter(|phase| **phase == Phase::Ready).count();
    let worst = phases.iter().max().copied().unwrap_or(Phase::Ready);
    let value = match worst {
        Phase::Ready => "True",
        Phase::Unknown => "Unknown",
        _ => "False",
    };
    let about = |state: &Value| format!("{}: {}", Reference::of_state(state), text(state, "/message"));
    let blamed = states.iter().zip(&phases).filter(|(_, phase)| **phase == worst && worst != Phase::Ready);
    let told: Vec<String> = blamed.map(|(state, _)| about(state)).collect();
    let mut conditions = vec![condition(shadow, "Ready", value, worst.name(), &told.join("; "))];
    if let Some(state) = kept.and_then(|kept| states.get(kept.at)) {
        conditions.push(condition(shadow, "ItemsDeleted", "False", "Refused", &about(state)));
    }
    let mut status = shadow.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(generation) = number(shadow, "/metadata/generation") {
        status.insert("observedGeneration".to_owned(), generation.into());
    }
    status.insert("phase".to_owned(), worst.name().into());
    status.insert("ready".to_owned(), format!("{ready}/{}", phases.len()).into());
    status.insert("items".to_owned(), Value::Array(states));
    status.insert("conditions".to_owned(), conditions.into());
    put_status(shadow, status);
}

/// A condition, which has been so since it was so in the stored status.
fn condition(shadow: &Value, of: &str, value: &str, reason: &str, message: &str) -> Value {
    let before = items(shadow, "/status/conditions").iter().find(|condition| text(condition, "/type") == of);
    let since = before.filter(|before| text(before, "/status") == value);
    let since = match since.map(|before| text(before, "/lastTransitionTime")) {
        Some(since) if !since.is_empty() => since.to_owned(),
        _ => Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    };
    let mut condition = json!({
        "type": of, "status": value, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    if let (Some(generation), Some(fields)) = (number(shadow, "/metadata/generation"), condition.as_object_mut()) {
        fields.insert("observedGeneration".to_owned(), generation.into());
    }
    condition
}

/// Says which generation an object is, and its status about it.
pub(super) fn set_generation(shadow: &mut Value, generation: Option<i64>) {
    let Some(generation) = generation else { return };
    for at in ["/metadata/generation", "/status/observedGeneration", "/status/conditions/0/observedGeneration"] {
        if let Some(place) = shadow.pointer_mut(at) {
            *place = generation.into();
        }
    }
}

fn put_status(shadow: &mut Value, status: Map<String, Value>) {
    if let Some(fields) = shadow.as_object_mut() {
        fields.insert("status".to_owned(), Value::Object(status));
    }
}

/// What tells two versions of an item apart is for kubefold alone.
fn hide_digests(shown: &mut Value) {
    let states = shown.pointer_mut("/status/items").and_then(Value::as_array_mut);
    for state in states.into_iter().flatten().filter_map(Value::as_object_mut) {
        state.remove("digest");
    }
}
