//! Objects that no store holds, as they come from a member: of kinds that cannot be watched.

use std::sync::Arc;

use crate::{
    config::MemberName,
    store::{
        entry::{Draft, Edits, Entry, Holders},
        incoming::CLUSTER,
        kind::KindSpec,
        references::{References, ReferredKinds},
        rewrite::{BadObject, Facts, Note, Rewriter},
        sequencer::Shared,
    },
};
use kubefold_wire::locate::validate;

/// Gives a member's object its visible form: name, references and annotation as in a store. It has no revision, as no
/// watch could begin there.
///
/// Errors: it is no object with a name.
pub fn unstored(
    spec: &KindSpec,
    shared: &Shared,
    member: &MemberName,
    document: &str,
) -> Result<Arc<Entry>, BadObject> {
    let document = document.trim_ascii();
    validate(document)?;
    let (mut found, mut edits) = (Vec::new(), Edits::default());
    let facts = Facts::read_unstored(spec, document, &mut found)?;
    let kinds = ReferredKinds::default();
    let mut rewriter = Rewriter {
        naming: &shared.naming,
        identities: &shared.identities,
        member,
        refs: &mut References::new(&kinds, member),
        referent: &mut Vec::new(),
    };
    rewriter.name(spec.is_event, &facts, &mut edits);
    let cluster = Note { key: CLUSTER, members: std::slice::from_ref(member) };
    Rewriter::annotate(document, &facts, &[cluster], &mut edits);
    rewriter.references(document, &facts, &found, &mut edits);
    if !facts.resource_version_at.is_empty() {
        edits.put(facts.resource_version_at.clone(), |out| out.extend_from_slice(b"\"\""));
    }
    let lead = if facts.kind.is_some() { "" } else { spec.type_meta.as_str() };
    let [name, at, suffix, end] = shared.naming.pieces(spec.is_event, &facts.name, member);
    let draft = Draft {
        name,
        suffix: [at, suffix, end],
        lead,
        type_meta_len: lead.len(),
        ..facts.draft(document, Holders::from([member.clone()]))
    };
    Ok(Arc::new(draft.build(&mut edits)))
}
