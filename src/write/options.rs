//! `DeleteOptions`, from a body or a query, and what each part's own request says instead.

use bytes::Bytes;
use serde::Deserialize;

use crate::{
    respond::WriteError,
    write::request::{Request, dry_run, values},
};
use kubefold_wire::{
    locate::entries,
    splice::{Edit, ObjectEdits, splice, string},
};

const KIND: &str = "DeleteOptions";

/// What a client says about a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The options without preconditions and `dryRun`, which differ from part to part and from step to step.
    pub(super) base: String,
    /// The UID that the client expects, in the fleet view.
    pub(super) uid: Option<String>,
    /// The revision that the client expects, in the fleet view.
    pub(super) resource_version: Option<String>,
    /// Nothing is to be changed.
    pub(super) dry: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptionsFields {
    preconditions: Option<Preconditions>,
    dry_run: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Options {
    /// Reads the body, or if there is none the query, as a kube-apiserver does.
    ///
    /// Errors: 400, 422. Source: kubernetes/apiserver `pkg/endpoints/handlers/delete.go`.
    pub(super) fn read(request: &Request) -> Result<Self, WriteError> {
        if request.body.trim_ascii().is_empty() {
            return Self::of_query(request);
        }
        let bad = |error: &dyn std::fmt::Display| WriteError::Body { what: KIND, cause: error.to_string() };
        let text = std::str::from_utf8(&request.body).map_err(|error| bad(&error))?;
        let said: DeleteOptionsFields = serde_json::from_str(text).map_err(|error| bad(&error))?;
        let mut edits = ObjectEdits::new(text, 0).map_err(|error| bad(&error))?;
        edits.remove(|key| key == "preconditions" || key == "dryRun");
        let preconditions = said.preconditions.unwrap_or_default();
        Ok(Self {
            base: spliced(text, edits.finish()),
            uid: preconditions.uid,
            resource_version: preconditions.resource_version,
            dry: dry_run(said.dry_run.unwrap_or_default().into_iter(), KIND)?,
        })
    }

    fn of_query(request: &Request) -> Result<Self, WriteError> {
        let query = &request.query;
        let mut base = format!(r#"{{"kind":"{KIND}","apiVersion":"v1""#);
        for name in ["gracePeriodSeconds", "orphanDependents", "ignoreStoreReadErrorWithClusterBreakingPotential"] {
            let Some(value) = values(query, name).next() else { continue };
            let good =
                if name == "gracePeriodSeconds" { value.parse::<i64>().is_ok() } else { value.parse::<bool>().is_ok() };
            if !good {
                return Err(WriteError::Parameter { name, value });
            }
            base.push_str(&format!(",\"{name}\":{value}"));
        }
        if let Some(value) = values(query, "propagationPolicy").next() {
            base.push_str(",\"propagationPolicy\":");
            base.push_str(&String::from_utf8_lossy(&string(&value)));
        }
        base.push('}');
        Ok(Self {
            base,
            uid: values(query, "uid").next(),
            resource_version: None,
            dry: dry_run(values(query, "dryRun"), KIND)?,
        })
    }
}

/// The options as one part's member gets them. It deletes that very part or nothing.
pub(super) fn of_part(base: &str, own_uid: &str, resource_version: Option<&str>, dry: bool) -> Bytes {
    let Ok(mut edits) = ObjectEdits::new(base, 0) else { return Bytes::new() };
    let mut preconditions = b"{\"uid\":".to_vec();
    preconditions.extend(string(own_uid));
    if let Some(revision) = resource_version {
        preconditions.extend_from_slice(b",\"resourceVersion\":");
        preconditions.extend(string(revision));
    }
    preconditions.push(b'}');
    edits.set("preconditions", preconditions);
    if dry {
        edits.set("dryRun", b"[\"All\"]".to_vec());
    }
    let named = entries(base).is_ok_and(|all| all.iter().any(|entry| entry.name == "kind"));
    if !named {
        edits.set("kind", string(KIND));
        edits.set("apiVersion", string("v1"));
    }
    spliced(base, edits.finish()).into()
}

fn spliced(json: &str, mut edits: Vec<Edit<'_>>) -> String {
    let mut out = Vec::with_capacity(json.len() + 128);
    splice(json.as_bytes(), &mut edits, &mut out);
    String::from_utf8(out).unwrap_or_default()
}
