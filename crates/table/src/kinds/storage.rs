//! Volumes and what provides them.

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    kinds::{Annotated, Print, joined},
    object::{Count, List, Map, Object, Text},
};

pub(super) fn of(group: &str, kind: &str) -> Option<Print> {
    Some(match (group, kind) {
        ("", "PersistentVolume") => persistent_volume,
        ("", "PersistentVolumeClaim") => persistent_volume_claim,
        ("storage.k8s.io", "CSIDriver") => csi_driver,
        ("storage.k8s.io", "CSINode") => csi_node,
        ("storage.k8s.io", "StorageClass") => storage_class,
        ("storage.k8s.io", "VolumeAttachment") => volume_attachment,
        ("storage.k8s.io", "VolumeAttributesClass") => volume_attributes_class,
        _ => return None,
    })
}

/// Where a class stood before it had a field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Volume<'a> {
    spec: VolumeSpec<'a>,
    status: VolumeStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct VolumeSpec<'a> {
    capacity: Map<'a>,
    access_modes: List<Text<'a>>,
    persistent_volume_reclaim_policy: Text<'a>,
    claim_ref: Option<ClaimRef<'a>>,
    storage_class_name: Text<'a>,
    volume_mode: Option<Text<'a>>,
    volume_attributes_class_name: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ClaimRef<'a> {
    namespace: Text<'a>,
    name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct VolumeStatus<'a> {
    phase: Text<'a>,
    reason: Text<'a>,
}

/// `printPersistentVolume`
fn persistent_volume(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Volume { spec, status } = object.read()?;
    let metadata: Annotated<'_> = object.read_metadata()?;
    cells.name();
    cells.text(spec.capacity.get("storage").unwrap_or("0"));
    cells.text(&access_modes(&spec.access_modes));
    cells.text(spec.persistent_volume_reclaim_policy.as_str());
    cells.text(if object.is_deleting() { "Terminating" } else { status.phase.as_str() });
    match &spec.claim_ref {
        Some(claim) => cells.print(format_args!("{}/{}", claim.namespace.0, claim.name.0)),
        None => cells.text(""),
    }
    cells.text(metadata.annotations.get(CLASS_ANNOTATION).unwrap_or(spec.storage_class_name.as_str()));
    cells.text(spec.volume_attributes_class_name.as_ref().map_or("<unset>", Text::as_str));
    cells.text(status.reason.as_str());
    cells.age();
    cells.text(spec.volume_mode.as_ref().map_or("<unset>", Text::as_str));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Claim<'a> {
    spec: ClaimSpec<'a>,
    status: ClaimStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ClaimSpec<'a> {
    volume_name: Text<'a>,
    storage_class_name: Text<'a>,
    volume_mode: Option<Text<'a>>,
    volume_attributes_class_name: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ClaimStatus<'a> {
    phase: Text<'a>,
    access_modes: List<Text<'a>>,
    capacity: Map<'a>,
}

/// `printPersistentVolumeClaim`
fn persistent_volume_claim(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Claim { spec, status } = object.read()?;
    let metadata: Annotated<'_> = object.read_metadata()?;
    cells.name();
    cells.text(if object.is_deleting() { "Terminating" } else { status.phase.as_str() });
    cells.text(spec.volume_name.as_str());
    if spec.volume_name.is_empty() {
        cells.text("");
        cells.text("");
    } else {
        cells.text(status.capacity.get("storage").unwrap_or("0"));
        cells.text(&access_modes(&status.access_modes));
    }
    cells.text(metadata.annotations.get(CLASS_ANNOTATION).unwrap_or(spec.storage_class_name.as_str()));
    cells.text(spec.volume_attributes_class_name.as_ref().map_or("<unset>", Text::as_str));
    cells.age();
    cells.text(spec.volume_mode.as_ref().map_or("<unset>", Text::as_str));
    Ok(())
}

/// `GetAccessModesAsString`
fn access_modes(modes: &[Text<'_>]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |name: &str| modes.iter().any(|mode| mode.as_str() == name);
    joined(known.into_iter().filter(|(name, _)| has(name)).map(|(_, short)| short), ",")
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct StorageClass<'a> {
    provisioner: Text<'a>,
    reclaim_policy: Option<Text<'a>>,
    volume_binding_mode: Option<Text<'a>>,
    allow_volume_expansion: Option<bool>,
}

/// `printStorageClass`
fn storage_class(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let class: StorageClass<'_> = object.read()?;
    let metadata: Annotated<'_> = object.read_metadata()?;
    let says = |key: &str| metadata.annotations.get(key) == Some("true");
    let is_default =
        says("storageclass.kubernetes.io/is-default-class") || says("storageclass.beta.kubernetes.io/is-default-class");
    cells.print(format_args!("{}{}", object.name(), if is_default { " (default)" } else { "" }));
    cells.text(class.provisioner.as_str());
    cells.text(class.reclaim_policy.as_ref().map_or("Delete", Text::as_str));
    cells.text(class.volume_binding_mode.as_ref().map_or("Immediate", Text::as_str));
    cells.bool(class.allow_volume_expansion.unwrap_or_default());
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct VolumeAttributesClass<'a> {
    driver_name: Text<'a>,
}

/// `printVolumeAttributesClass`
fn volume_attributes_class(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let class: VolumeAttributesClass<'_> = object.read()?;
    cells.name();
    cells.text(class.driver_name.as_str());
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Attachment<'a> {
    spec: AttachmentSpec<'a>,
    status: AttachmentStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct AttachmentSpec<'a> {
    attacher: Text<'a>,
    source: AttachmentSource<'a>,
    node_name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct AttachmentSource<'a> {
    persistent_volume_name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AttachmentStatus {
    attached: bool,
}

/// `printVolumeAttachment`
fn volume_attachment(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Attachment { spec, status } = object.read()?;
    cells.name();
    cells.text(spec.attacher.as_str());
    cells.text(spec.source.persistent_volume_name.as_str());
    cells.text(spec.node_name.as_str());
    cells.bool(status.attached);
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CsiNode {
    spec: CsiNodeSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CsiNodeSpec {
    drivers: Count,
}

/// `printCSINode`
fn csi_node(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let CsiNode { spec } = object.read()?;
    cells.name();
    cells.number(spec.drivers.0);
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct CsiDriver<'a> {
    spec: CsiDriverSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct CsiDriverSpec<'a> {
    attach_required: Option<bool>,
    pod_info_on_mount: Option<bool>,
    storage_capacity: Option<bool>,
    token_requests: Option<Vec<TokenRequest<'a>>>,
    requires_republish: Option<bool>,
    volume_lifecycle_modes: List<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TokenRequest<'a> {
    audience: Text<'a>,
}

/// `printCSIDriver`
fn csi_driver(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let CsiDriver { spec } = object.read()?;
    cells.name();
    cells.bool(spec.attach_required.unwrap_or(true));
    cells.bool(spec.pod_info_on_mount.unwrap_or_default());
    cells.bool(spec.storage_capacity.unwrap_or_default());
    match &spec.token_requests {
        Some(requests) => cells.text(&joined(requests.iter().map(|request| request.audience.as_str()), ",")),
        None => cells.text("<unset>"),
    }
    cells.bool(spec.requires_republish.unwrap_or_default());
    let modes = joined(spec.volume_lifecycle_modes.iter().map(Text::as_str), ",");
    cells.text(if modes.is_empty() { "<none>" } else { &modes });
    cells.age();
    Ok(())
}
