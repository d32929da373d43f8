//! The selectors of a list or watch, as the members that are asked about them know them.

use crate::{config::MemberName, read::fields_in_member, store::Naming, view::list_options};
use kubefold_wire::{info::RequestInfo, options::query_value, resource::Gvr};

/// The field and label selector of a list or watch in a member's words. `None`: it has none, or what it has is refused later.
pub(super) fn selectors<'a>(
    info: &RequestInfo,
    gvr: &Gvr,
    query: &str,
    naming: &'a Naming,
) -> Option<impl Fn(&MemberName) -> Option<(String, String)> + use<'a>> {
    if !matches!(info.verb.as_str(), "list" | "watch") {
        return None;
    }
    let options = list_options(query, info.verb == "watch", gvr, |name| naming.is_member(name)).ok()?;
    let fields = query_value(query, "fieldSelector").unwrap_or_default();
    (!fields.is_empty() || !options.labels.is_everything()).then_some(move |member: &MemberName| {
        Some((fields_in_member(&fields, naming, member)?, options.labels.in_member(member.as_str())?))
    })
}
