//! A write with one target, on its way.

use crate::{
    config::MemberName,
    respond::WriteError,
    write::{
        fleet::{Fleet, Key, Native, Part, Visible},
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
    pub(super) native: Option<Native>,
    /// Of a folded object its only part that is asked: of a subresource, as the whole is no one member's.
    pub(super) part: Option<Part>,
}

impl<'a, F: Fleet> To<'a, F> {
    pub(super) fn new(fleet: &'a F, request: &'a Request, own: &str, member: &'a MemberName) -> Self {
        let key = request.key(own);
        let native = fleet.native(&key, member);
        let visible = native.as_ref().map_or_else(|| request.name.clone(), |native| native.name.clone());
        Self { fleet, request, member, key, visible, native, part: None }
    }

    /// The object's UID in the member.
    pub(super) fn uid(&self) -> Option<&str> {
        let native = self.native.as_ref().map(|native| native.shown.uid.as_str());
        self.part.as_ref().map(|part| part.uid.as_str()).or(native)
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
