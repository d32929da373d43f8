//! HorizontalPodAutoscalers: which members have a part, and its bounds.

use crate::{
    config::{MemberName, Weight},
    placement::{
        companions::{Limit, Limits, Shares},
        divided::{MAX_REPLICAS, MIN_REPLICAS},
        division::{Share, divide},
    },
};

/// A member that has a part of an autoscaler, or could have one.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<'a> {
    /// The member.
    pub member: &'a MemberName,
    /// It has a part: that one stays.
    pub has_part: bool,
}

/// The parts of an autoscaler, in the order of `members`; `None` where it has none.
///
/// The minimum is divided by the shares of the target. Of the maximum the parts have together what the replicas leave that
/// nobody scales. While there is no target, the first member has all: the target, when it comes, goes there too.
pub fn autoscaler(whole: &Limits, members: &[Scaled<'_>], shares: &Shares, uid: &str) -> Vec<Option<Limits>> {
    let all = |one: &Scaled<'_>| one.has_part.then(|| whole.clone());
    let (Some(least), Some(most)) = (whole.number(&MIN_REPLICAS), whole.number(&MAX_REPLICAS)) else {
        return with_first(members.iter().map(all).collect(), whole);
    };
    let own = |one: &Scaled<'_>| shares.get(one.member).copied().unwrap_or(0);
    let sum = members.iter().map(own).fold(0_u32, u32::saturating_add);
    // What is no autoscaler a member refuses in its own words.
    if least > most || sum == 0 && !members.iter().any(|one| one.has_part) {
        return with_first(members.iter().map(all).collect(), whole);
    }
    let weight = |one: &Scaled<'_>| Weight(if sum == 0 { u32::from(one.has_part) } else { own(one) });
    let claims = members.iter().map(|one| Share {
        min: u32::from(one.has_part),
        max: (weight(one).0 == 0 && !one.has_part).then_some(0),
        ..Share::by_weight(one.member, weight(one))
    });
    // At least one part has a share.
    let leasts = divide(least.max(1), &claims.collect::<Vec<_>>(), uid);
    let has = |(one, least): (&Scaled<'_>, u32)| (one.has_part || least > 0).then(|| least.max(1));
    let leasts: Vec<Option<u32>> = members.iter().zip(leasts).map(has).collect();
    let fixed = members.iter().zip(&leasts).filter(|(_, least)| least.is_none()).map(|(one, _)| own(one));
    let left = most.saturating_sub(fixed.fold(0, u32::saturating_add));
    let claims = members.iter().zip(&leasts).map(|(one, least)| Share {
        min: least.unwrap_or(0),
        max: least.is_none().then_some(0),
        ..Share::by_weight(one.member, Weight(if least.is_some() { weight(one).0.max(1) } else { 0 }))
    });
    let mosts = divide(left, &claims.collect::<Vec<_>>(), uid);
    let part = |(own_least, own_most): (Option<u32>, u32)| {
        let (mut part, own_least) = (whole.clone(), own_least?);
        // 0 is what only some clusters take, and means the whole.
        part.set(&MIN_REPLICAS, Some(Limit::Number(if least == 0 { 0 } else { own_least })));
        part.set(&MAX_REPLICAS, Some(Limit::Number(own_most.max(own_least))));
        Some(part)
    };
    leasts.into_iter().zip(mosts).map(part).collect()
}

/// The parts, with one in the first member if there is none.
fn with_first(mut parts: Vec<Option<Limits>>, whole: &Limits) -> Vec<Option<Limits>> {
    if parts.iter().all(Option::is_none) {
        parts.iter_mut().take(1).for_each(|first| *first = Some(whole.clone()));
    }
    parts
}
