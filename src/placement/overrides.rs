//! How the part in one member differs from the others: a JSON patch and another registry for its images, by policy; and the
//! names of nodes, which are its member's own.

use serde_json::{Value, json};

use crate::{
    config::{MemberName, Overrides},
    placement::{
        divided::{Division, Field},
        edits::{edit_applied, edited, pointer, registry_of},
        marker::OWN_PREFIX,
        merge::{is_keyed, position_of},
        nodes::NodeNames,
        policy::Rules,
        scheduling::pod_spec,
    },
};
use kubefold_wire::{
    golang::Quoted,
    patch::{Action, JsonPatch, Operation, index, merge_into, path_of, steps},
    resource::Gvk,
};

/// An override that does not go with an object. The policy's fault, shown to the client: 422.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{by} for member {member} that does not go with this object: {why}")]
pub struct OverrideError {
    /// Whose override it is, and what it is: `placement policy "web" has a patch`.
    pub by: String,
    /// The member.
    pub member: MemberName,
    /// Why the patch does not apply.
    pub why: String,
}

/// The kind of an object that is overridden.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    /// The kind.
    pub gvk: &'a Gvk,
    /// The fields of it that are divided.
    pub divided: &'static [Field],
    /// Where it names nodes.
    pub nodes: NodeNames<'a>,
}

impl<'a> Kind<'a> {
    /// With what is divided of it, as configured. `whole` is what its parts note of the whole.
    pub fn of(gvk: &'a Gvk, rules: &'a Rules, whole: Option<&str>) -> Self {
        let by_policy = || Division::by_policy(&gvk.group, &gvk.kind).filter(|_| whole.is_some());
        let division = rules.kinds().division(gvk).or_else(by_policy);
        Self::divided(gvk, rules, division.map_or(&[], Division::fields))
    }

    /// With these divided fields.
    pub fn divided(gvk: &'a Gvk, rules: &'a Rules, divided: &'static [Field]) -> Self {
        Self { gvk, divided, nodes: NodeNames::of(gvk, rules.names()) }
    }
}

/// Applies overrides to a stamped body. Bytes stay where nothing differs.
///
/// Errors: the patch does not apply, or changes what kubefold goes by: identity, marker, divided numbers.
pub fn overridden(
    body: Vec<u8>,
    overrides: &Overrides,
    of: &Kind<'_>,
    policy: &str,
    member: &MemberName,
) -> Result<Vec<u8>, OverrideError> {
    if overrides.is_empty() {
        return Ok(body);
    }
    let wrong = |error: serde_json::Error| failed(policy, member, error.to_string());
    let object = serde_json::from_slice(&body).map_err(wrong)?;
    serde_json::to_vec(&overridden_value(object, overrides, of, policy, member)?).map_err(wrong)
}

/// The same of a document.
///
/// Errors: as [`overridden`].
pub fn overridden_value(
    mut object: Value,
    overrides: &Overrides,
    of: &Kind<'_>,
    policy: &str,
    member: &MemberName,
) -> Result<Value, OverrideError> {
    if let (Some(registry), Some(path)) = (&overrides.registry, pod_spec(&of.gvk.group, &of.gvk.kind)) {
        let spec = path.iter().try_fold(&mut object, |at, key| at.get_mut(*key));
        spec.into_iter().for_each(|spec| move_images(spec, registry));
    }
    if let Some(patch) = &overrides.patch {
        let wrong = |why: String| failed(policy, member, why);
        let before = kept(&object, of);
        object = patch.apply(object).map_err(|error| wrong(error.to_string()))?;
        if let Some(why) = changed(&before, &object, of) {
            return Err(wrong(why));
        }
    }
    for edit in &overrides.edits {
        let by = || format!("{} has an override", edit.by);
        let wrong = |why: String| OverrideError { by: by(), member: member.clone(), why };
        let before = kept(&object, of);
        object = edited(object, edit, of.gvk).map_err(|error| wrong(error.to_string()))?;
        if let Some(why) = changed(&before, &object, of) {
            return Err(wrong(why));
        }
    }
    Ok(of.nodes.localized(object, member))
}

fn failed(policy: &str, member: &MemberName, why: String) -> OverrideError {
    OverrideError { by: format!("placement policy {} has a patch", Quoted(policy)), member: member.clone(), why }
}

/// Applies overrides to what a client applies to a part, which need not say everything: each operation for itself, and in
/// the list item that the part has at the operation's index. An operation whose place does not exist is skipped, unless the client
/// alone `owns` what it made.
pub fn applied(
    mut body: Value,
    part: &Value,
    overrides: &Overrides,
    of: &Kind<'_>,
    member: &MemberName,
    owns: impl Fn(&[&str]) -> bool,
) -> Value {
    if let (Some(registry), Some(path)) = (&overrides.registry, pod_spec(&of.gvk.group, &of.gvk.kind)) {
        let spec = path.iter().try_fold(&mut body, |at, key| at.get_mut(*key));
        spec.into_iter().for_each(|spec| move_images(spec, registry));
    }
    for operation in overrides.patch.iter().flat_map(|patch| &patch.0) {
        operate(&mut body, part, operation, of, &owns);
    }
    for edit in &overrides.edits {
        let tokens = pointer(edit).map(steps);
        let here = tokens.and_then(|tokens| place(&tokens, part, &body, false)).map(|here| path_of(&here));
        let mut after = body.clone();
        let operations = edit_applied(&mut after, here.as_deref(), part, edit, of.gvk);
        if kept(&body, of) == kept(&after, of) {
            body = after;
        }
        operations.iter().for_each(|operation| operate(&mut body, part, operation, of, &owns));
    }
    of.nodes.localized(body, member)
}

/// Does one operation on what is applied to a part, if its place is there.
fn operate(body: &mut Value, part: &Value, operation: &Operation, of: &Kind<'_>, owns: &impl Fn(&[&str]) -> bool) {
    let tokens = steps(&operation.path);
    let here = place(&tokens, part, body, matches!(operation.action, Action::Add(_)));
    let made = here
        .and_then(|here| moved(operation, &here))
        .and_then(|operation| JsonPatch(vec![operation]).apply(body.clone()).ok());
    let after = made.or_else(|| {
        let Action::Add(value) = &operation.action else { return None };
        let path: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let nested = || path.iter().rev().fold(value.clone(), |value, field| json!({*field: value}));
        owns(&path).then(|| {
            let mut after = body.clone();
            merge_into(&mut after, nested());
            after
        })
    });
    if let Some(after) = after.filter(|after| kept(body, of) == kept(after, of)) {
        *body = after;
    }
}

/// Where an operation on the part is one on what is applied.
fn place(tokens: &[String], part: &Value, body: &Value, adds: bool) -> Option<Vec<String>> {
    let (mut of_part, mut of_body, mut field) = (Some(part), Some(body), "");
    let mut out = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        let mut here = token.clone();
        if let Some(list) = of_body.and_then(Value::as_array)
            && is_keyed(field)
        {
            here = if adds && at + 1 == tokens.len() {
                "-".to_owned()
            } else {
                let items = of_part?.as_array()?;
                let item = items.get(index(token, items.len())?)?;
                position_of(field, item, list)?.to_string()
            };
        }
        (of_part, of_body) = (step(of_part, token), step(of_body, &here));
        field = token;
        out.push(here);
    }
    Some(out)
}

fn step<'v>(value: Option<&'v Value>, token: &str) -> Option<&'v Value> {
    match value? {
        Value::Array(list) => list.get(index(token, list.len())?),
        value => value.get(token),
    }
}

/// The same operation elsewhere. Those of two places stay as they are.
fn moved(operation: &Operation, tokens: &[String]) -> Option<Operation> {
    match &operation.action {
        action @ (Action::Add(_) | Action::Remove | Action::Replace(_)) => {
            Some(Operation { path: path_of(tokens), action: action.clone() })
        }
        Action::Move { .. } | Action::Copy { .. } | Action::Test(_) => None,
    }
}

/// What no override may change.
fn kept(object: &Value, of: &Kind<'_>) -> Vec<(String, Option<Value>)> {
    let fixed = ["/apiVersion", "/kind", "/metadata/name", "/metadata/generateName", "/metadata/namespace"];
    let pointers =
        fixed.into_iter().chain(of.divided.iter().map(|field| field.pointer)).chain(["/spec/ordinals/start"]);
    let mut kept: Vec<_> =
        pointers.map(|at| (at.trim_start_matches('/').replace('/', "."), object.pointer(at).cloned())).collect();
    for map in ["labels", "annotations"] {
        let own = object.pointer(&format!("/metadata/{map}")).and_then(Value::as_object);
        let own = own.map(|map| map.iter().filter(|(key, _)| key.starts_with(OWN_PREFIX)));
        let own =
            own.map(|own| own.map(|(key, value)| (key.clone(), value.clone())).collect::<serde_json::Map<_, _>>());
        kept.push((format!("metadata.{map} of {OWN_PREFIX}"), own.filter(|own| !own.is_empty()).map(Value::Object)));
    }
    kept
}

/// What has changed of what no override may change.
fn changed(before: &[(String, Option<Value>)], object: &Value, of: &Kind<'_>) -> Option<String> {
    let after = kept(object, of);
    let changed = before.iter().zip(&after).find(|(before, after)| before != after);
    changed.map(|((what, _), _)| format!("it changes {what}"))
}

fn move_images(spec: &mut Value, registry: &str) {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for image in containers.into_iter().flatten().filter_map(|container| container.get_mut("image")) {
            if let Some(moved) = image.as_str().map(|text| from_registry(text, registry)) {
                *image = Value::String(moved);
            }
        }
    }
}

/// The image with its registry replaced, or put before it where none is written. One that is from there already stays.
fn from_registry(image: &str, registry: &str) -> String {
    if image.strip_prefix(registry).is_some_and(|rest| rest.starts_with('/')) {
        return image.to_owned();
    }
    let own = registry_of(image).map_or(0, |own| own.len() + 1);
    let path = image.get(own..).unwrap_or_default();
    if path.is_empty() { image.to_owned() } else { format!("{registry}/{path}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overrides(patch: Option<Value>, registry: Option<&str>) -> Overrides {
        Overrides {
            patch: patch.map(|patch| serde_json::from_value(patch).unwrap()),
            registry: registry.map(str::to_owned),
            edits: Vec::new(),
        }
    }

    fn applied(body: &Value, what: &Overrides, gvk: &Gvk) -> Result<Value, OverrideError> {
        let east = MemberName::new("east").unwrap();
        let out =
            overridden(body.to_string().into_bytes(), what, &Kind::of(gvk, &Rules::default(), None), "shop", &east);
        out.map(|out| serde_json::from_slice(&out).unwrap())
    }

    fn deployment() -> Gvk {
        Gvk::new("apps", "v1", "Deployment")
    }

    fn web() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"kubefold.io/placement": "u", "app": "web"}},
            "spec": {"replicas": 2, "template": {"spec": {
                "initContainers": [{"name": "i", "image": "busybox"}],
                "containers": [{"name": "c", "image": "quay.io/org/app:1@sha256:aa"}, {"name": "d"}]
            }}}
        })
    }

    #[test]
    fn registries_are_replaced_as_container_tools_read_them() {
        for (image, moved) in [
            ("nginx", "mirror.example/x/nginx"),
            ("nginx:1.27", "mirror.example/x/nginx:1.27"),
            ("library/nginx", "mirror.example/x/library/nginx"),
            ("quay.io/org/app:1", "mirror.example/x/org/app:1"),
            ("localhost/app", "mirror.example/x/app"),
            ("localhost:5000/a/b", "mirror.example/x/a/b"),
            ("Host/app", "mirror.example/x/app"),
            ("[::1]:5000/app@sha256:aa", "mirror.example/x/app@sha256:aa"),
            ("mirror.example/x/lib/nginx:1", "mirror.example/x/lib/nginx:1"),
            ("mirror.example/xy/nginx:1", "mirror.example/x/xy/nginx:1"),
        ] {
            assert_eq!(from_registry(image, "mirror.example/x"), moved);
        }
    }

    #[test]
    fn every_image_moves_and_nothing_else() {
        let moved = applied(&web(), &overrides(None, Some("mirror.example")), &deployment()).unwrap();
        let mut want = web();
        want["spec"]["template"]["spec"]["initContainers"][0]["image"] = "mirror.example/busybox".into();
        want["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/org/app:1@sha256:aa".into();
        assert_eq!(moved, want);
        let map = json!({"kind": "ConfigMap", "data": {"image": "nginx"}});
        assert_eq!(applied(&map, &overrides(None, Some("mirror.example")), &Gvk::new("", "v1", "ConfigMap")), Ok(map));
    }

    #[test]
    fn a_patch_applies_or_says_whose_it_is() {
        let patch = |value| overrides(Some(value), None);
        let labelled = json!([{"op": "add", "path": "/metadata/labels/tier", "value": "edge"}]);
        assert_eq!(applied(&web(), &patch(labelled), &deployment()).unwrap()["metadata"]["labels"]["tier"], "edge");
        let gone = applied(&web(), &patch(json!([{"op": "remove", "path": "/spec/paused"}])), &deployment())
            .unwrap_err()
            .to_string();
        assert!(
            gone.starts_with(
                "placement policy \"shop\" has a patch for member east that does not go with this object: "
            ),
            "{gone}"
        );
        let label = |at: &str| json!([{"op": "replace", "path": at, "value": "edge"}]);
        let added = applied(&web(), &patch(label("/metadata/labels/tier")), &deployment()).unwrap();
        assert_eq!(added["metadata"]["labels"]["tier"], "edge", "as a kube-apiserver does");
        let last = applied(&web(), &patch(label("/spec/template/spec/containers/-1/image")), &deployment()).unwrap();
        assert_eq!(last["spec"]["template"]["spec"]["containers"][1]["image"], "edge");
        for (path, what) in [
            ("/metadata/name", "metadata.name"),
            ("/spec/replicas", "spec.replicas"),
            ("/metadata/labels", "metadata.labels of kubefold.io/"),
            ("/kind", "kind"),
        ] {
            let error = applied(&web(), &patch(json!([{"op": "remove", "path": path}])), &deployment())
                .unwrap_err()
                .to_string();
            assert!(error.ends_with(&format!("it changes {what}")), "{error}");
        }
    }

    #[test]
    fn what_is_applied_is_dressed_as_far_as_it_says_something() {
        let patch = json!([
            {"op": "add", "path": "/metadata/annotations/note", "value": "w"},
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "west:9"},
            {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "side", "image": "s"}},
        ]);
        let what = overrides(Some(patch), Some("mirror.example"));
        let (part, east) = (applied_whole(&what), MemberName::new("east").unwrap());
        let spec = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let dress = |body: Value, owned: &[&str]| {
            let owns = |path: &[&str]| path == owned;
            super::applied(body, &part, &what, &Kind::of(&deployment(), &Rules::default(), None), &east, owns)
        };
        // In another order, and without what the patch adds to.
        let said = dress(spec(json!([{"name": "d", "image": "d:1"}, {"name": "c", "image": "app:2"}])), &[]);
        let side = json!({"name": "side", "image": "s"});
        let want = json!([{"name": "d", "image": "mirror.example/d:1"}, {"name": "c", "image": "west:9"}, side]);
        assert_eq!(said, spec(want));
        // Of the container that the patch is about nothing is said.
        let said = dress(spec(json!([{"name": "d", "image": "d:1"}])), &[]);
        assert_eq!(said, spec(json!([{"name": "d", "image": "mirror.example/d:1"}, side])));
        assert_eq!(dress(json!({"spec": {"paused": true}}), &[]), json!({"spec": {"paused": true}}));
        // Left out, it would be taken away.
        let said = dress(json!({"spec": {"paused": true}}), &["metadata", "annotations", "note"]);
        assert_eq!(said, json!({"metadata": {"annotations": {"note": "w"}}, "spec": {"paused": true}}));
        let counted = overrides(Some(json!([{"op": "add", "path": "/spec/replicas", "value": 9}])), None);
        let body = json!({"spec": {"replicas": 2}});
        assert_eq!(
            super::applied(
                body.clone(),
                &part,
                &counted,
                &Kind::of(&deployment(), &Rules::default(), None),
                &east,
                |_: &[&str]| true
            ),
            body
        );
    }

    fn applied_whole(what: &Overrides) -> Value {
        let mut whole = web();
        whole["metadata"]["annotations"] = json!({});
        applied(&whole, what, &deployment()).unwrap()
    }

    #[test]
    fn without_overrides_bytes_stay() {
        let body = b"{ \"a\" : 1 }".to_vec();
        let east = MemberName::new("east").unwrap();
        assert_eq!(
            overridden(
                body.clone(),
                &Overrides::default(),
                &Kind::of(&deployment(), &Rules::default(), None),
                "",
                &east
            ),
            Ok(body)
        );
    }
}
