//! PodDisruptionBudgets: what each part allows, what all together do, and whether a pod may be evicted by the whole.

use crate::{
    config::{MemberName, Weight},
    placement::{
        companions::{Limit, Limits, Shares},
        divided::{MAX_UNAVAILABLE, MIN_AVAILABLE},
        division::{Share, divide},
    },
};

/// The parts of a budget, in the order of `members`.
///
/// A part allows its share of what the whole allows, and one at least where the whole allows any: else nobody could drain a
/// node there. A member without pods of it, and each of them while there are none, has the whole: it holds back whatever
/// comes.
pub fn budget(whole: &Limits, members: &[&MemberName], shares: &Shares, uid: &str) -> Vec<Limits> {
    let pods: u32 = shares.values().fold(0, |sum, share| sum.saturating_add(*share));
    let Some(allows) = disruptions(whole, pods) else { return vec![whole.clone(); members.len()] };
    let own = |member: &MemberName| shares.get(member).copied().unwrap_or(0);
    let is_least = whole.get(&MIN_AVAILABLE).is_some();
    let claims = members.iter().map(|member| Share {
        min: u32::from(own(member) > 0 && allows > 0),
        max: is_least.then(|| own(member)),
        ..Share::by_weight(member, Weight(own(member)))
    });
    let allowed = divide(allows, &claims.collect::<Vec<_>>(), uid);
    let required = whole.number(&MIN_AVAILABLE).unwrap_or(0);
    let claims =
        members.iter().map(|member| Share { min: own(member), ..Share::by_weight(member, Weight(own(member))) });
    let required = divide(required, &claims.collect::<Vec<_>>(), uid);
    let part = |((member, allowed), required): ((&&MemberName, u32), u32)| {
        let (mut part, pods) = (whole.clone(), own(member));
        if pods == 0 {
            return part;
        }
        let allowed = allowed.max(u32::from(allows > 0));
        match (whole.get(&MIN_AVAILABLE), whole.get(&MAX_UNAVAILABLE)) {
            (Some(Limit::Number(_)), _) if allows == 0 => part.set(&MIN_AVAILABLE, Some(Limit::Number(required))),
            (Some(Limit::Number(_)), _) => part.set(&MIN_AVAILABLE, Some(Limit::Number(pods.saturating_sub(allowed)))),
            // It rounds up: of one pod in two nobody may go.
            (Some(percent), _) if allows > 0 && percent.of(pods) >= pods => {
                part.set(&MIN_AVAILABLE, Some(Limit::Number(pods - 1)));
            }
            (None, Some(Limit::Number(_))) => part.set(&MAX_UNAVAILABLE, Some(Limit::Number(allowed))),
            _ => {}
        }
        part
    };
    members.iter().zip(allowed).zip(required).map(part).collect()
}

/// What the parts allow together, and the whole: what a client is warned of where they allow more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// By the parts.
    pub parts: u32,
    /// By the whole.
    pub whole: u32,
}

/// Adds up what these parts allow at a time, each in its member, and what the whole does. `None`: nothing is known of pods.
pub fn allowed(whole: &Limits, parts: &[(&MemberName, &Limits)], shares: &Shares) -> Option<Allowed> {
    let pods = shares.values().fold(0_u32, |sum, share| sum.saturating_add(*share));
    let allows = |(member, part): &(&MemberName, &Limits)| {
        let share = shares.get(*member).copied().filter(|share| *share > 0)?;
        Some(disruptions(part, share)?.min(share))
    };
    let parts = parts.iter().filter_map(allows).fold(0_u32, u32::saturating_add);
    Some(Allowed { parts, whole: disruptions(whole, pods)?.min(pods) })
}

/// How many of so many pods may be away at a time; of a number that is written, that. `None`: there are none, or it says
/// nothing.
fn disruptions(limits: &Limits, pods: u32) -> Option<u32> {
    let least = limits.get(&MIN_AVAILABLE).map(|least| pods.saturating_sub(least.of(pods)));
    let most = || limits.get(&MAX_UNAVAILABLE).map(|most| most.of(pods));
    least.or_else(most).filter(|_| pods > 0)
}

/// What a part's status counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `disruptionsAllowed`.
    pub allowed: i64,
    /// `currentHealthy`.
    pub healthy: i64,
    /// `desiredHealthy`.
    pub desired: i64,
    /// `expectedPods`.
    pub expected: i64,
}

/// What the whole allows now, by the status of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// So many more pods may be evicted.
    pub allowed: i64,
    /// So many must be healthy.
    pub desired: i64,
    /// So many are, without those whose eviction is under way.
    pub healthy: i64,
}

/// Judges the whole. A kube-apiserver takes one from `disruptionsAllowed` as it evicts a pod, and the controller takes the
/// pod from `currentHealthy` a moment later: until then the difference says that it is going.
///
/// Source: kubernetes `pkg/registry/core/pod/storage/eviction.go` `checkAndDecrement`,
/// `pkg/controller/disruption/disruption.go` `updatePdbStatus`.
pub fn evicts(whole: &Limits, parts: impl Iterator<Item = Counts>) -> Eviction {
    let (mut healthy, mut expected) = (0_i64, 0_i64);
    for part in parts {
        let going = if part.expected > 0 { (part.healthy - part.desired).max(0) - part.allowed } else { 0 };
        healthy = healthy.saturating_add(part.healthy - going.max(0));
        expected = expected.saturating_add(part.expected);
    }
    let pods = u32::try_from(expected).unwrap_or(0);
    let least = whole.get(&MIN_AVAILABLE).map(|least| i64::from(least.of(pods)));
    let most = || whole.get(&MAX_UNAVAILABLE).map(|most| (expected - i64::from(most.of(pods))).max(0));
    let desired = least.or_else(most).unwrap_or(0);
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    Eviction { allowed, desired, healthy }
}
