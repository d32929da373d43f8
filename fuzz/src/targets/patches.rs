//! Patches of objects, and sets of fields.

use serde_json::Value;

use kubefold_apiserver::{
    patch::{
        Apply, OneVersion, Subject, apply,
        fields::{Set, same},
        json, managed, merge, strategic,
    },
    schema::builtin,
};

/// Reads a set of fields: what is printed of it is read as the same set.
pub fn fields(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let Ok(set) = Set::from_json(&value) else { return };
    let printed = set.to_json();
    assert_eq!(Set::from_json(&printed).expect("what was printed"), set, "{printed}");
    assert!(set.difference(&set).is_empty());
    assert!(set.union(&set) == set && set.intersection(&set) == set);
    assert!(set.paths().iter().all(|path| set.has(path)));
}

/// Patches an object in each way: an object on the first line, a patch on those that follow.
pub fn patch(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (live, patch) = data.split_at(at);
    let Ok(live) = serde_json::from_slice::<Value>(live) else { return };
    if !live.is_object() {
        return;
    }
    if let Ok(once) = merge(&live, patch) {
        let twice = merge(&once, patch).expect("a merge patch of one object is one of another");
        // Nulls in a list that takes the place of an object stay the first time and go the second.
        assert!(merge(&twice, patch).is_ok_and(|third| same(&twice, &third)), "a merge patch says what is to be");
    }
    let _ = json(&live, patch);
    let types = builtin();
    let Some(of) = types.named("io.k8s.api.apps.v1.Deployment") else { return };
    let _ = strategic(&live, patch, of);
    let Ok(applied) = serde_json::from_slice::<Value>(patch) else { return };
    for (schema, custom) in [(Some(of), false), (None, true)] {
        let subject = Subject {
            api_version: "apps/v1",
            kind: "Deployment",
            schema,
            custom,
            subresource: "",
            reset: &[&["status"]],
            versions: &OneVersion,
        };
        let now = "2026-11-21T15:00:00Z";
        let mut tracked = applied.clone();
        managed::track(managed::Track { live: Some(&live), manager: "fuzz", now, subject }, &mut tracked);
        let write = Apply { live: Some(&live), applied: &applied, manager: "fuzz", force: true, now, subject };
        let _ = apply(write);
    }
}
