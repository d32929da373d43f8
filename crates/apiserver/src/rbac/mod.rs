//! Kubernetes' role-based access control over a registry: who may do what, by the roles and bindings that it stores.
//!
//! [`start`] puts the roles in that every cluster has, and answers an [`Authorizer`], which follows roles and bindings by
//! watches. `serve` asks it for each request, and `server` starts it. What is called in this process is not asked about.
//!
//! - `rule`, `index`, `attributes`, `names`: rules, bindings by whom they are for, what a request is about. Pure
//! - `authorizer`: an index that follows a registry
//! - `escalation`: nobody grants what he does not have, or creates by an update what he may not create
//! - `impersonation`: who may act as somebody else
//! - `aggregation`: cluster roles that have the rules of others
//! - `bootstrap`: the roles and bindings that every cluster has
//!
//! May name: `registry`, `kinds`.
//!
//! Source: kubernetes `plugin/pkg/auth/authorizer/rbac/`, `pkg/registry/rbac/`.

mod aggregation;
mod attributes;
mod authorizer;
mod bootstrap;
mod escalation;
mod impersonation;
mod index;
mod names;
mod rule;
#[cfg(test)]
mod tests;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use attributes::{Attributes, On, Resource};
pub use authorizer::{Authorizer, RbacError};
pub use index::Decision;
pub use names::{GROUP, MASTERS, RESOURCES};
pub use rule::{Rule, TooManyParts, uncovered};

use crate::registry::Registry;
use aggregation::Aggregation;

/// Puts the roles and bindings in that every cluster has, and follows all of them until `stop`.
///
/// Errors: the registry does not serve roles, or its storage does not answer.
pub async fn start(
    registry: &Registry,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Authorizer, RbacError> {
    let (authorizer, follower) = Authorizer::new(registry)?;
    bootstrap::reconcile(registry).await?;
    let mut aggregation = Aggregation::new(registry)?;
    aggregation.settle().await?;
    let loaded = follower.load().await?;
    tasks.spawn(follower.follow_until(loaded, stop.clone()));
    tasks.spawn(aggregation.follow_until(stop.clone()));
    Ok(authorizer)
}
