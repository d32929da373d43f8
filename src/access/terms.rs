//! How long a member's word holds, and how long it is waited for.

use std::time::Duration;

/// How long a yes holds, while every change of the member's RBAC is heard of. Other authorizers do not tell.
pub const FOLLOWED_FOR: Duration = Duration::from_mins(1);
/// How long it holds otherwise.
pub const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// How long a no holds.
pub const DENIED_FOR: Duration = Duration::from_secs(5);
/// A member that is up and cannot say any more is taken at its last yes for so long.
pub const GRACE: Duration = Duration::from_mins(5);
/// How long a request waits for members to say.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);
