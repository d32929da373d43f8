//! Short ways to the fields of an object, and the forms of times and amounts.

use std::net::Ipv4Addr;

use jiff::{Span, Timestamp};
use serde_json::{Value, json};

pub(super) use crate::registry::time_text;
pub(super) use kubefold_wire::access::{is_true, items, number, text};

/// The number at a JSON pointer; 0 if there is none.
pub(super) fn count(object: &Value, pointer: &str) -> i64 {
    number(object, pointer).unwrap_or(0)
}

/// An annotation; empty if there is none.
pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

/// Sets an annotation.
pub(super) fn annotate(object: &mut Value, name: &str, value: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][name] = value.into();
}

/// A time as `MicroTime` fields have it.
pub(super) fn stamp_micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The time at a JSON pointer.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// So many milliseconds later.
pub(super) fn later(at: Timestamp, millis: i64) -> Timestamp {
    at.checked_add(Span::new().milliseconds(millis)).unwrap_or(Timestamp::MAX)
}

/// So many seconds later.
pub(super) fn seconds_later(at: Timestamp, seconds: i64) -> Timestamp {
    later(at, seconds.clamp(-100_000_000_000, 100_000_000_000) * 1000)
}

/// A number, or a part of a whole such as `25%`.
pub(super) fn share(value: &Value, of: i64, round_up: bool) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    let part = percent.unwrap_or(0) * of;
    if round_up { (part + 99).div_euclid(100) } else { part.div_euclid(100) }
}

/// The address at a place of a range.
pub(super) fn address(first: [u8; 4], place: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from_be_bytes(first).wrapping_add(place))
}

/// A reference to an object as its dependents have it, as their controller.
pub(super) fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// What a condition of a type says.
pub(super) fn condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Puts a condition at the end, unless one of its type says the same (status and reason). The time of its last
/// transition stays where its status does.
///
/// Source: kubernetes `pkg/controller/deployment/util/deployment_util.go`, `SetDeploymentCondition`.
pub(super) fn set_condition(conditions: &mut Vec<Value>, mut condition: Value) {
    let present = conditions.iter().position(|present| present["type"] == condition["type"]);
    if let Some(present) = present {
        let before = conditions.remove(present);
        if before["status"] == condition["status"] {
            if before["reason"] == condition["reason"] {
                conditions.insert(present, before);
                return;
            }
            condition["lastTransitionTime"] = before["lastTransitionTime"].clone();
        }
    }
    conditions.push(condition);
}

/// Removes a condition.
pub(super) fn remove_condition(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| condition["type"] != kind);
}
