//! Ownership of the wanted number, between an object and its `/scale`.
//!
//! Source: kubernetes/apimachinery `pkg/util/managedfields/scalehandler.go`.

use serde_json::Value;

use super::{
    fields::{Element, Set},
    managed::{Managed, ManagedError, Owned},
};

const SCALE_VERSION: &str = "autoscaling/v1";
const IN_SCALE: &[&str] = &["spec", "replicas"];

/// Where the wanted number is, in a version of the object. `None`: that version has no `/scale`.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// Such as `apps/v1`.
    pub api_version: &'a str,
    /// Such as `["spec", "replicas"]`.
    pub replicas: Option<&'a [&'a str]>,
}

/// The entries that a `Scale` shows, of an object's.
///
/// Errors: why an entry can't be read.
pub fn to_scale(entries: Option<&Value>, mappings: &[Mapping<'_>]) -> Result<Option<Value>, ManagedError> {
    let managed = Managed::decode(entries)?;
    let mut scale = Managed::default();
    for (owner, owned) in managed.fields {
        let Some(path) = mapped(mappings, &owned.api_version).flatten() else { continue };
        if owned.set.has(&path) {
            let set = Set::of(&[IN_SCALE]);
            scale.times.extend(managed.times.get(&owner).map(|time| (owner.clone(), time.clone())));
            scale.fields.insert(owner, Owned { set, api_version: SCALE_VERSION.to_owned(), applied: owned.applied });
        }
    }
    Ok(scale.encode())
}

/// The entries of an object after a write of its `Scale`, in the version of the request.
///
/// Errors: why an entry can't be read.
pub fn to_object(
    entries: Option<&Value>,
    scale: Option<&Value>,
    mappings: &[Mapping<'_>],
    api_version: &str,
) -> Result<Option<Value>, ManagedError> {
    let (object, mut scale) = (Managed::decode(entries)?, Managed::decode(scale)?);
    let mut all = Managed::default();
    for (owner, mut owned) in object.fields {
        let Some(path) = mapped(mappings, &owned.api_version) else { continue };
        if let Some(path) = path.filter(|path| owned.set.has(path)) {
            // An update by the object's own version is not the same owner as one by the scale's: so it goes there, too.
            if scale.fields.remove(&owner).is_none() {
                owned.set = owned.set.difference(&one(&path));
            }
        }
        if !owned.set.is_empty() {
            all.times.extend(object.times.get(&owner).map(|time| (owner.clone(), time.clone())));
            all.fields.insert(owner, owned);
        }
    }
    let path = mapped(mappings, api_version).flatten().unwrap_or_default();
    for (owner, owned) in scale.fields {
        if !owned.set.has(&names(IN_SCALE)) {
            continue;
        }
        all.times.extend(object.times.get(&owner).map(|time| (owner.clone(), time.clone())));
        let owned = Owned { set: one(&path), api_version: api_version.to_owned(), applied: owned.applied };
        all.fields.insert(owner, owned);
    }
    Ok(all.encode())
}

/// `None`: the version is not known.
fn mapped(mappings: &[Mapping<'_>], api_version: &str) -> Option<Option<Vec<Element>>> {
    let mapping = mappings.iter().find(|mapping| mapping.api_version == api_version)?;
    Some(mapping.replicas.map(names))
}

fn names(path: &[&str]) -> Vec<Element> {
    path.iter().map(|name| Element::Field((*name).to_owned())).collect()
}

fn one(path: &[Element]) -> Set {
    let mut set = Set::default();
    set.insert(path);
    set
}
