//! A write with one target, on its way.

use crate::{
    config::MemberName,
    respond::WriteError,
    write::{
        fleet::{Fleet, Key, MemberLocal, Part, Visible},
        request::Request,
    },
};

/// A write and whom it is for.
pub(super) struct To<'a, F> {
    pub(super) fleet: &'a F,
    pub(super) request: &'a Request,
    pub(super) member: &'a MemberName,
    /// By its own name.
    pub(super) key: Key,
    /// Its visible name, which the client may have shortened.
    pub(super) visible: String,
    /// As the store holds it.
    pub(super) member_local: Option<MemberLocal>,
    /// Of a folded object its only part that is asked: of a subresource, as the whole is no one member's.
    pub(super) part: Option<Part>,
}

impl<'a, F: Fleet> To<'a, F> {
    pub(super) fn new(fleet: &'a F, request: &'a Request, own: &str, member: &'a MemberName) -> Self {
        let key = request.key(own);
        let member_local = fleet.member_local(&key, member);
        let visible =
            member_local.as_ref().map_or_else(|| request.name.clone(), |member_local| member_local.name.clone());
        Self { fleet, request, member, key, visible, member_local, part: None }
    }

    /// The object's UID in the member.
    pub(super) fn uid(&self) -> Option<&str> {
        let member_local = self.member_local.as_ref().map(|member_local| member_local.shown.uid.as_str());
        self.part.as_ref().map(|part| part.uid.as_str()).or(member_local)
    }
}

/// A folded object as it is shown, and its parts as they made that.
///
/// Errors: another write has it.
pub(in crate::write) async fn paired<F: Fleet>(
    fleet: &F,
    key: &Key,
) -> Result<Option<(Visible, Vec<Part>)>, WriteError> {
    let hold = fleet.hold(key).await.ok_or_else(|| WriteError::Taken(key.to_ref()))?;
    Ok(fleet.whole(&hold, key))
}
