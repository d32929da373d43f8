//! What a create body becomes before a member sees it.

use crate::placement::{
    divided::{Amount, Value},
    marker::{INPUT_ANNOTATIONS, MARKER_KEY, Marker, OWN_PREFIX, WHOLE_KEY},
};
use kubefold_wire::{
    locate::{NotAnObject, Paths, entries},
    patch::steps,
    splice::{Edit, ObjectEdits, splice, string},
};

/// What is set in a create body. Everything else of it stays, but for `kubefold.io/*`, which never reaches a member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp<'a> {
    /// The part's marker; `None` for a member-local object.
    pub marker: Option<&'a Marker>,
    /// `metadata.name`, where kubefold minted it or took the pin off it.
    pub name: Option<&'a str>,
    /// What is set in this part alone: its shares.
    pub values: &'a [Value],
    /// What the divided fields of a companion are as they were written: [`WHOLE_KEY`].
    pub whole: Option<&'a str>,
}

/// The edits that stamp a create body.
///
/// Errors: it is no JSON object, or `metadata` or `spec` is none.
pub fn stamp(body: &str, stamp: Stamp<'_>) -> Result<Vec<Edit<'static>>, NotAnObject> {
    const METADATA: u16 = 0;
    const SPEC: u16 = 1;
    let paths = Paths::new([(METADATA, ["metadata"].as_slice()), (SPEC, ["spec"].as_slice())]);
    let mut found = Vec::new();
    paths.locate(body, &mut found)?;
    let mut edits = Vec::new();
    for place in found {
        let json = body.get(place.range.clone()).unwrap_or_default();
        let mut object = ObjectEdits::new(json, place.range.start)?;
        if place.id == METADATA {
            let marker = stamp.marker;
            let whole = stamp.whole.map(|whole| (WHOLE_KEY, string(whole)));
            let mark = |value: fn(&Marker) -> Vec<u8>| marker.map(|marker| (MARKER_KEY, value(marker)));
            stamp_map(&mut object, "labels", mark(Marker::label_json))?;
            stamp_map(&mut object, "annotations", mark(Marker::annotation_json).into_iter().chain(whole))?;
            if let Some(name) = stamp.name {
                object.set("name", string(name));
            }
        } else {
            for value in stamp.values {
                let path = steps(&value.pointer);
                let mut path = path.iter().map(String::as_str).skip(1);
                set(&mut object, &mut path, &value.number)?;
            }
        }
        edits.extend(object.finish());
    }
    Ok(edits)
}

/// [`stamp`], made.
///
/// Errors: as [`stamp`].
pub fn stamped(body: &str, what: Stamp<'_>) -> Result<Vec<u8>, NotAnObject> {
    let mut out = Vec::with_capacity(body.len() + 512);
    splice(body.as_bytes(), &mut stamp(body, what)?, &mut out);
    Ok(out)
}

/// The input annotations that a create body has.
pub fn inputs(annotations_json: &str) -> Vec<String> {
    let all = entries(annotations_json).unwrap_or_default();
    all.into_iter().map(|entry| entry.name).filter(|name| INPUT_ANNOTATIONS.contains(&name.as_str())).collect()
}

/// Sets a share below an object; what stands between is made if it is not there.
fn set(object: &mut ObjectEdits<'_>, path: &mut dyn Iterator<Item = &str>, share: &Amount) -> Result<(), NotAnObject> {
    let Some(name) = path.next() else { return Ok(()) };
    let mut rest = path.peekable();
    if rest.peek().is_none() {
        object.set(name, share.to_json().to_string().into_bytes());
        return Ok(());
    }
    let json = object.member(name).map_or("null", |member| member.raw);
    let mut inner = ObjectEdits::new(json, 0)?;
    set(&mut inner, &mut rest, share)?;
    let mut out = Vec::with_capacity(json.len() + 32);
    splice(json.as_bytes(), &mut inner.finish(), &mut out);
    object.set(name, out);
    Ok(())
}

/// Drops kubefold's own keys from a string map of `metadata`, then sets these.
fn stamp_map(
    metadata: &mut ObjectEdits<'_>,
    field: &str,
    values: impl IntoIterator<Item = (&'static str, Vec<u8>)>,
) -> Result<(), NotAnObject> {
    let json = metadata.member(field).map_or("null", |member| member.raw);
    let mut map = ObjectEdits::new(json, 0)?;
    map.remove(|key| key.starts_with(OWN_PREFIX));
    values.into_iter().for_each(|(key, value)| map.set(key, value));
    if map.is_unchanged() {
        return Ok(());
    }
    let mut out = Vec::with_capacity(json.len() + 256);
    splice(json.as_bytes(), &mut map.finish(), &mut out);
    metadata.set(field, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MemberName;

    fn marker() -> Marker {
        let east = MemberName::new("east").unwrap();
        let members = std::sync::Arc::new([(east.clone(), "c-e".into())]);
        let gvk = kubefold_wire::resource::Gvk::new("apps", "v1", "Deployment");
        Marker::new("6f1c2d5e-0b1a-4c3d-8e9f-001122334455".into(), &gvk, "default", "web", east, members)
    }

    fn read_back(json: &str) -> Option<Marker> {
        let tree: serde_json::Value = serde_json::from_str(json).unwrap();
        let text = |key: &str| tree["metadata"][key].is_object().then(|| tree["metadata"][key].to_string());
        Marker::read(text("labels").as_deref(), text("annotations").as_deref())
    }

    #[test]
    fn stamps_whatever_metadata_holds() {
        for body in [
            r#"{"metadata":{"name":"web"},"spec":{"replicas":3}}"#,
            r#"{"metadata":{"name":"web","labels":null,"annotations":{}},"spec":{}}"#,
            r#"{"spec":{"replicas":null},"metadata":{"labels":{"kubefold.io/placement":"forged","app":"web"},
                "annotations":{"kubefold.io/clusters":"a,b","kubefold.io/place-on":"west","x":"\u003c"}}}"#,
        ] {
            let marker = marker();
            let values = [Value { pointer: "/spec/replicas".into(), number: 2.into() }];
            let what = Stamp { marker: Some(&marker), name: Some("web"), values: &values, whole: None };
            let out = String::from_utf8(stamped(body, what).unwrap()).unwrap();
            assert_eq!(read_back(&out).as_ref(), Some(&marker), "{out}");
            let tree: serde_json::Value = serde_json::from_str(&out).unwrap();
            assert_eq!((&tree["spec"]["replicas"], &tree["metadata"]["name"]), (&2.into(), &"web".into()));
            assert_eq!(out.matches("kubefold.io/").count(), 2, "{out}");
            assert_eq!(body.contains(r"\u003c"), out.contains(r#""x":"\u003c""#), "bytes stay");
        }
    }

    #[test]
    fn without_a_marker_only_kubefolds_own_keys_go() {
        let body = r#"{"metadata": {"name":"x","annotations":{"kubefold.io/cluster":"east"}}, "data": {"a": "1"}}"#;
        let out = stamped(body, Stamp::default()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"metadata": {"name":"x","annotations":{}}, "data": {"a": "1"}}"#
        );
        let plain = r#"{"metadata": {"name":"x"}}"#;
        assert_eq!(stamped(plain, Stamp::default()).unwrap(), plain.as_bytes());
        assert!(stamped("[]", Stamp::default()).is_err());
    }

    #[test]
    fn inputs_are_found() {
        assert_eq!(inputs(r#"{"kubefold.io/place-on":"a","kubefold.io/clusters":"b"}"#), ["kubefold.io/place-on"]);
    }
}
