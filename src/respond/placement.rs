//! Placement: objects for which no member is found.

use crate::{
    placement::plan::PlanError,
    respond::{ApiError, Blame, Retry},
};
use kubefold_wire::{
    golang::Quoted,
    resource::{Gvk, Gvr},
    status::{Cause, Status, qualified},
};

/// An object that cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {name} cannot be placed: {error}", qualified(&gvr.group, &gvr.resource), name = Quoted(.name))]
pub struct Unplaced {
    /// Its resource.
    pub gvr: Gvr,
    /// Its kind.
    pub gvk: Gvk,
    /// Its namespace; empty where the kind has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The cause.
    #[source]
    pub error: PlanError,
}

impl ApiError for Unplaced {
    fn blame(&self) -> Blame {
        match &self.error {
            PlanError::NoNamespace
            | PlanError::NoCandidate(_)
            | PlanError::NoRoom { .. }
            | PlanError::TooFewGroups(_)
            | PlanError::TooFewMembers { .. }
            | PlanError::NoGroup { .. } => Blame::Downstream,
            PlanError::AllDown(members) | PlanError::Unknown(members) => {
                members.first().map_or(Blame::Kubefold, |(member, _)| Blame::Member(member.clone()))
            }
        }
    }

    fn retry(&self) -> Retry {
        match &self.error {
            PlanError::NoNamespace
            | PlanError::NoCandidate(_)
            | PlanError::NoRoom { .. }
            | PlanError::TooFewGroups(_)
            | PlanError::TooFewMembers { .. }
            | PlanError::NoGroup { .. } => Retry::Never,
            // Nothing was sent.
            PlanError::AllDown(_) | PlanError::Unknown(_) => Retry::Always,
        }
    }
}

impl From<Unplaced> for Status {
    fn from(unplaced: Unplaced) -> Self {
        let Unplaced { gvr, gvk, namespace, name, error } = &unplaced;
        match error {
            // A namespace that is nowhere is what a kube-apiserver says it is.
            PlanError::NoNamespace => {
                let mut status = Self::not_found("", "namespaces", namespace);
                status.message.push_str(": no member holds it");
                status
            }
            PlanError::NoCandidate(_)
            | PlanError::NoRoom { .. }
            | PlanError::TooFewGroups(_)
            | PlanError::TooFewMembers { .. }
            | PlanError::NoGroup { .. } => {
                Self::invalid(&gvr.group, &gvk.kind, name, vec![Cause::of(&error.to_string())])
            }
            PlanError::AllDown(_) | PlanError::Unknown(_) => {
                Self::unavailable(unplaced.to_string()).about(&gvr.group, &gvr.resource, name)
            }
        }
    }
}
