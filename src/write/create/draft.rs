//! What a create body says, as far as placing it is concerned.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    placement::{
        companions::{Limits, Subject, claims},
        divided::{Division, Kinds, Wholes},
        scheduling::PodRequirements,
    },
    respond::WriteError,
    write::{fleet::Owner, request::Request},
};
use kubefold_wire::locate::Paths;

/// A body that is to be created.
pub(in crate::write) struct Draft<'a> {
    pub(in crate::write) json: &'a str,
    /// `metadata.name`; empty if there is none.
    pub(in crate::write) name: String,
    /// `metadata.generateName`; empty if there is none.
    pub(in crate::write) base: String,
    /// As JSON text.
    pub(in crate::write) labels: Option<&'a str>,
    /// As JSON text.
    pub(in crate::write) annotations: Option<&'a str>,
    pub(in crate::write) owners: Vec<Owner>,
    pub(in crate::write) wholes: Wholes,
    /// `None` of a kind that makes no pods.
    pub(in crate::write) pod: Option<PodRequirements>,
    /// The claims that its pods mount.
    pub(in crate::write) claims: Vec<String>,
    /// What a companion is for, and what it is to be as a whole.
    pub(in crate::write) companion: Option<(Subject, Limits)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    name: Option<String>,
    generate_name: Option<String>,
    owner_references: Option<Vec<Owner>>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

impl<'a> Draft<'a> {
    /// Reads a request's body.
    ///
    /// Errors: 400 where it is no object with metadata, 422 where a number that is to be divided is none.
    pub(in crate::write) fn read(request: &'a Request, kinds: &Kinds) -> Result<Self, WriteError> {
        let json = std::str::from_utf8(&request.body)?;
        let bad = |error: &dyn std::fmt::Display| {
            let what = "object to create";
            WriteError::Body { what, cause: error.to_string() }
        };
        let mut found = Vec::new();
        Paths::new([(0, ["metadata"].as_slice())]).locate(json, &mut found).map_err(|error| bad(&error))?;
        let metadata = found.first().and_then(|place| json.get(place.range.clone()));
        let metadata = metadata.ok_or_else(|| bad(&"it has no metadata"))?;
        let metadata: Metadata<'a> = serde_json::from_str(metadata).map_err(|error| bad(&error))?;
        let name = metadata.name.unwrap_or_default();
        let (group, kind) = (&*request.gvk.group, &*request.gvk.kind);
        let division = kinds.division(&request.gvk).or_else(|| Division::by_policy(group, kind));
        let wholes = Wholes::read(division, json).map_err(|error| request.invalid(&name, error.into()))?;
        Ok(Self {
            json,
            name,
            base: metadata.generate_name.unwrap_or_default(),
            labels: metadata.labels.map(RawValue::get),
            annotations: metadata.annotations.map(RawValue::get),
            owners: metadata.owner_references.unwrap_or_default(),
            companion: companion(wholes.division, json),
            wholes,
            claims: claims(group, kind, json),
            pod: PodRequirements::of(group, kind, json).map_err(|error| bad(&error))?,
        })
    }
}

/// What is no limit a member refuses in its own words: until then it limits nothing.
fn companion(division: Option<Division>, json: &str) -> Option<(Subject, Limits)> {
    let subject = Subject::of(division, json)?;
    let document = serde_json::from_str(json).unwrap_or_default();
    Some((subject, Limits::of(division?, &document).unwrap_or_default()))
}
