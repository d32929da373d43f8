//! Bodies and patches in a member's own words: references are put back, and every other byte stays.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{
    config::{MemberName, Names},
    store::{KindSpec, Naming, localize},
};
use kubefold_wire::resource::{Gvk, Gvr};

fn member(name: &str) -> MemberName {
    MemberName::new(name).unwrap()
}

fn naming() -> Naming {
    Naming::of(Names::Suffixed, Vec::new(), vec![member("east"), member("west")])
}

fn pods() -> KindSpec {
    KindSpec::new(Gvr::new("", "v1", "pods"), Gvk::new("", "v1", "Pod"), true)
}

fn local(document: &str) -> String {
    // Of what is folded, `placed` alone has a part in the member.
    let own_uid = |named: crate::store::Named<'_>| (named.name == "placed").then(|| "own".to_owned());
    let out = localize(&pods(), &naming(), &member("east"), "shop", document, own_uid).unwrap();
    String::from_utf8(out).unwrap()
}

/// What it should be, by a tree.
fn wanted(document: &mut Value) {
    let own = |name: &mut Value| {
        let split = name.as_str().and_then(|text| text.strip_suffix("@east")).map(str::to_owned);
        let is_own = split.is_some();
        if let Some(plain) = split {
            *name = plain.into();
        }
        is_own
    };
    if let Some(node) = document.pointer_mut("/spec/nodeName") {
        own(node);
    }
    let owners = document.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        let is_own = own(&mut owner["name"]);
        if !is_own && owner["name"] == "placed" {
            owner["uid"] = "own".into();
        }
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("placed".to_owned()),
        "[a-z]{1,3}",
        "[a-z]{1,3}@(east|west|north)",
        // A name in a name, and what JSON escapes.
        Just("a@west@east".to_owned()),
        Just("\u{e9}\"\\@east".to_owned()),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        name().prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("(name|uid|nodeName|ownerReferences|kind|x)", inner), 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

prop_compose! {
    fn owner()(name in name(), uid in "[0-9a-f]{4}", kind in "(Site|Node)", more in prop::option::of(anything())) -> Value {
        let mut owner = json!({"apiVersion": "example.com/v1", "kind": kind, "name": name, "uid": uid});
        if let Some(more) = more {
            owner["more"] = more;
        }
        owner
    }
}

prop_compose! {
    /// A whole object, or a merge patch of one: it may say little, and `null` of what is to go.
    fn document()(
        owners in prop::option::of(prop::collection::vec(owner(), 0..3)),
        node in prop::option::of(prop_oneof![name().prop_map(Value::from), Just(Value::Null)]),
        labels in anything(), spec in anything(), more in anything(),
    ) -> Value {
        let mut document = json!({"metadata": {"labels": labels}, "spec": {"containers": spec}, "data": more});
        if let Some(owners) = owners {
            document["metadata"]["ownerReferences"] = owners.into();
        }
        if let Some(node) = node {
            document["spec"]["nodeName"] = node;
        }
        document
    }
}

proptest! {
    #[test]
    fn references_are_put_back_and_nothing_else_changes(document in document(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&document).unwrap() } else { document.to_string() };
        let mut want = document.clone();
        wanted(&mut want);
        let out = local(&text);
        prop_assert_eq!(&serde_json::from_str::<Value>(&out).unwrap(), &want);
        if want == document {
            prop_assert_eq!(&out, &text, "bytes stay");
        }
        // A UID may be set again; a name that was put back may look like another member's, and is not: once is enough.
        if !text.contains("@west@east") {
            prop_assert_eq!(local(&out), out);
        }
    }
}
