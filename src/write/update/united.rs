//! The addresses of a placed Service's Endpoints are what the controllers of its members find: nobody else writes them.

use http::Method;
use serde_json::Value;

use crate::{
    config::MemberName,
    placement::{children::are_labelled, marker::MARKER_KEY},
    respond::{InvalidField, WriteError},
    write::{
        fleet::{Key, Part, Visible},
        request::Request,
        update::{
            desired::{self, JSON_PATCH, MERGE_PATCH},
            part::marker_of,
        },
    },
};
use kubefold_wire::status::Status;

/// Lets a write of the Endpoints of a placed Service go on that leaves the addresses as they are.
///
/// Errors: 422, and whatever is wrong with the body.
pub(super) fn check(request: &Request, key: &Key, visible: &Visible, parts: &[Part]) -> Result<(), Status> {
    if !are_labelled(&key.gvr) || !parts.first().is_some_and(is_of_service) {
        return Ok(());
    }
    let shown: Value = serde_json::from_slice(&visible.body).unwrap_or_default();
    let is_changed = match request.content_type.as_str() {
        _ if request.method == Method::PUT => differs(&desired::object(&request.body)?, &shown),
        JSON_PATCH | MERGE_PATCH => differs(&desired::patched(request, &shown)?, &shown),
        // These would set in each part what is the sum of all.
        _ => desired::object(&request.body)?.get("subsets").is_some(),
    };
    if !is_changed {
        return Ok(());
    }
    let members: Vec<MemberName> = parts.iter().map(|part| part.member.clone()).collect();
    let refused: WriteError = request.invalid(&key.name, InvalidField::Subsets { service: key.name.clone(), members });
    Err(refused.into())
}

/// Endpoints that somebody placed have the marker itself.
fn is_of_service(part: &Part) -> bool {
    let document: Value = serde_json::from_slice(&part.json).unwrap_or_default();
    let label = document.pointer("/metadata/labels").and_then(|labels| labels.get(MARKER_KEY));
    label.is_some() && marker_of(&document).is_none()
}

fn differs(after: &Value, shown: &Value) -> bool {
    let subsets = |document: &Value| document.get("subsets").and_then(Value::as_array).cloned().unwrap_or_default();
    subsets(after) != subsets(shown)
}
