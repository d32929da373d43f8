//! A body that names something of one member, `node-0@east`, can only go there.

use crate::{
    config::MemberName,
    respond::{InvalidField, WriteError},
    write::{Writer, fleet::Fleet, request::Request},
};
use kubefold_wire::{locate::Paths, resource::Gvk};

type Path = &'static [&'static str];

/// Where bodies name nodes, volumes and pods by a bare name: a part of the store's table of joins. What owns an object
/// binds it, too, and is looked up by its UID. What names nodes for pods is in `placement/nodes.rs`.
const PATHS: &[(&str, &str, &[Path])] = &[
    ("", "PersistentVolumeClaim", &[&["spec", "volumeName"]]),
    ("", "PersistentVolume", &[&["spec", "claimRef", "name"]]),
    ("storage.k8s.io", "VolumeAttachment", &[&["spec", "nodeName"], &["spec", "source", "persistentVolumeName"]]),
    ("discovery.k8s.io", "EndpointSlice", &[&["endpoints", "*", "nodeName"], &["endpoints", "*", "targetRef", "name"]]),
];

/// A name of one member, as the client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::write) struct Pin {
    /// `node-0@east`.
    pub(in crate::write) named: String,
    /// Whose it is.
    pub(in crate::write) member: MemberName,
}

/// Everything of some member that a body names.
pub(in crate::write) fn pins<F: Fleet>(fleet: &F, gvk: &Gvk, json: &str) -> Vec<Pin> {
    let mut names: Vec<String> = Vec::new();
    for (_, _, paths) in PATHS.iter().filter(|(group, kind, _)| *group == &*gvk.group && *kind == &*gvk.kind) {
        let mut found = Vec::new();
        let located = Paths::new(paths.iter().map(|path| (0, *path))).locate(json, &mut found);
        let raw = found.iter().filter(|_| located.is_ok()).filter_map(|place| json.get(place.range.clone()));
        names.extend(raw.filter_map(|raw| serde_json::from_str(raw).ok()));
    }
    names.into_iter().filter_map(|named| Some(Pin { member: fleet.split(&named)?.1, named })).collect()
}

/// Refuses a name with an `@` that is followed by no member.
pub(in crate::write) fn refuse_what_is_no_pin<F: Fleet>(
    writer: &Writer<F>,
    request: &Request,
    name: &str,
) -> Result<(), WriteError> {
    // RBAC names are paths to Kubernetes, in which an `@` is legal.
    if !name.contains('@') || &*request.gvr.group == "rbac.authorization.k8s.io" {
        return Ok(());
    }
    Err(request.invalid(name, InvalidField::NoPin { name: name.to_owned(), members: writer.fleet.members() }))
}
