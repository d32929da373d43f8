//! Division of a total over members by weight: Webster's method (Sainte-Laguë).
//!
//! Seats are given one by one to the highest `weight / (2 * seats + 1)`. That is monotone: a larger total shrinks nobody,
//! so scaling up moves no pods. Integers only; quotients are compared by cross-multiplication.

use std::{cmp::Ordering, collections::BTreeMap};

use sha2::{Digest, Sha256};

use crate::config::{MemberName, Weight};

/// One member's claim.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// The member.
    pub member: &'a MemberName,
    /// Its weight; zero takes no more than `min`, unless all are zero: then all are equal.
    pub weight: Weight,
    /// At least so many, as far as the total goes.
    pub min: u32,
    /// At most so many.
    pub max: Option<u32>,
    /// Groups (regions, zones) share alike; members share within theirs.
    pub group: Option<&'a str>,
}

impl<'a> Share<'a> {
    /// A claim by weight alone.
    pub fn by_weight(member: &'a MemberName, weight: Weight) -> Self {
        Self { member, weight, min: 0, max: None, group: None }
    }
}

/// Divides `total` over `shares`. Ties fall by `uid`, whatever the order of the shares.
///
/// Shape: N shares -> N numbers in the same order. Their sum is `total`, or less if the members that take any are all at
/// their `max`. None is above its `max`; none is below its `min` unless the total is below the sum of them.
pub fn divide(total: u32, shares: &[Share<'_>], uid: &str) -> Vec<u32> {
    redivide(total, &vec![0; shares.len()], shares, uid)
}

/// Divides what has become `total` over members that have `current`: only the difference moves.
///
/// More is given seat by seat from where each stands; less is taken seat by seat from the smallest quotient. So nobody
/// loses when the total grows and nobody gains when it shrinks, whatever `min` and `max` have become meanwhile.
///
/// Shape: as [`divide`]; `current` is in the order of `shares`.
pub fn redivide(total: u32, current: &[u32], shares: &[Share<'_>], uid: &str) -> Vec<u32> {
    let total = u64::from(total);
    let grows = total >= current.iter().copied().map(u64::from).sum();
    let all_zero = shares.iter().all(|share| share.weight.0 == 0);
    let claims = shares.iter().zip(current.iter().copied().chain(std::iter::repeat(0)));
    let claims: Vec<Claim> = claims.map(|(share, current)| Claim::of(share, current, grows, all_zero, uid)).collect();
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (at, share) in shares.iter().enumerate() {
        groups.entry(share.group).or_default().push(at);
    }
    let whole: Vec<Claim> = groups.iter().map(|(name, of)| Claim::of_group(*name, of, &claims, uid)).collect();
    let mut seats = vec![0; shares.len()];
    for (of, total) in groups.values().zip(fill(total, &whole)) {
        let members: Vec<Claim> = of.iter().filter_map(|at| claims.get(*at).copied()).collect();
        for (at, given) in of.iter().zip(fill(total, &members)) {
            if let Some(seats) = seats.get_mut(*at) {
                *seats = u32::try_from(given).unwrap_or(u32::MAX);
            }
        }
    }
    seats
}

/// What decides between equal quotients: even over objects, the same for one object whatever the order of members.
pub fn tie(uid: &str, member: &MemberName) -> u64 {
    hash(uid, member.as_str())
}

fn hash(uid: &str, name: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(uid.as_bytes());
    hash.update([0]);
    hash.update(name.as_bytes());
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    weight: u128,
    tie: u64,
    /// What it has at least; what it has before any other goes above theirs; what it may have.
    levels: [u64; 3],
}

impl Claim {
    fn of(share: &Share<'_>, current: u32, grows: bool, all_zero: bool, uid: &str) -> Self {
        let max = share.max.unwrap_or(u32::MAX);
        let min = share.min.min(max);
        let weight = if all_zero { 1 } else { share.weight.0 };
        let wanted = current.max(min);
        let levels = match (grows, weight) {
            (false, _) => [0, min.min(current), current],
            (true, 0) => [current, wanted, wanted],
            (true, _) => [current, wanted, wanted.max(max)],
        };
        Self { weight: weight.into(), tie: tie(uid, share.member), levels: levels.map(u64::from) }
    }

    fn of_group(name: Option<&str>, of: &[usize], claims: &[Self], uid: &str) -> Self {
        let mut group = Self { weight: 0, tie: hash(uid, name.unwrap_or_default()), levels: [0; 3] };
        for claim in of.iter().filter_map(|at| claims.get(*at)) {
            group.weight |= u128::from(claim.weight > 0);
            for (sum, level) in group.levels.iter_mut().zip(claim.levels) {
                *sum += level;
            }
        }
        group
    }
}

/// A claim with the seats that it has and the most that it may have.
struct Seat {
    weight: u128,
    tie: u64,
    low: u64,
    high: u64,
    seats: u64,
}

impl Seat {
    /// Orders by who gets the next seat.
    fn compare(&self, other: &Self) -> Ordering {
        let (mine, theirs) = (2 * u128::from(self.seats) + 1, 2 * u128::from(other.seats) + 1);
        (self.weight * theirs).cmp(&(other.weight * mine)).then(self.tie.cmp(&other.tie))
    }
}

/// Fills `total` seats: up to everybody's second level first, and what is left up to the third.
fn fill(total: u64, claims: &[Claim]) -> Vec<u64> {
    let second: u64 = claims.iter().map(|claim| claim.levels[1]).sum();
    let from = usize::from(total > second);
    let seat = |claim: &Claim| {
        let (low, high) = match claim.levels {
            [low, high, _] if from == 0 => (low, high),
            [_, low, high] => (low, high),
        };
        Seat { weight: claim.weight, tie: claim.tie, low, high, seats: low }
    };
    let mut seats: Vec<Seat> = claims.iter().map(seat).collect();
    give(total, &mut seats);
    // Where even those without a weight are to have some, the others are full.
    let full = seats.iter().all(|seat| seat.weight == 0 || seat.seats == seat.high);
    if full {
        seats.iter_mut().for_each(|seat| (seat.weight, seat.low) = (u128::from(seat.weight == 0), seat.seats));
        give(total, &mut seats);
    }
    seats.into_iter().map(|seat| seat.seats).collect()
}

/// Gives seats until there are `total`, or all who have a weight are full.
///
/// The seat numbered `b` (from 1) of weight `w` has quotient `w / (2b - 1)`, so the quotient `W / d` admits
/// `floor((w * d + W) / 2W)` seats. The largest `d` that admits no more than the total is searched; a step of `d` gives
/// each at most one more, so that fewer seats than claims are left to the one-by-one rule.
fn give(total: u64, seats: &mut [Seat]) {
    let weights: u128 = seats.iter().map(|seat| seat.weight).sum();
    if weights == 0 {
        return;
    }
    let admitted = |seat: &Seat, d: u128| {
        let admitted = u64::try_from((seat.weight * d + weights) / (2 * weights)).unwrap_or(u64::MAX);
        admitted.clamp(seat.low, seat.high)
    };
    let largest = seats.iter().map(|seat| u128::from(seat.high)).max().unwrap_or(0);
    let (mut good, mut above) = (0, 2 * weights * (largest + 1) + 1);
    while above - good > 1 {
        let middle = good + (above - good) / 2;
        let sum: u64 =
            seats.iter().map(|seat| if seat.weight == 0 { seat.seats } else { admitted(seat, middle) }).sum();
        *(if sum <= total { &mut good } else { &mut above }) = middle;
    }
    for seat in seats.iter_mut().filter(|seat| seat.weight > 0) {
        seat.seats = admitted(seat, good);
    }
    let mut left = total.saturating_sub(seats.iter().map(|seat| seat.seats).sum());
    while left > 0 {
        let open = seats.iter_mut().filter(|seat| seat.weight > 0 && seat.seats < seat.high);
        let Some(next) = open.max_by(|a, b| a.compare(b)) else { break };
        next.seats += 1;
        left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<MemberName> {
        (0..count).map(|at| MemberName::new(&format!("m{at}")).unwrap()).collect()
    }

    fn shares<'a>(names: &'a [MemberName], claims: &[(u32, Option<u32>)]) -> Vec<Share<'a>> {
        names
            .iter()
            .zip(claims)
            .map(|(member, (weight, max))| Share { max: *max, ..Share::by_weight(member, Weight(*weight)) })
            .collect()
    }

    fn weights(total: u32, weights: &[u32]) -> Vec<u32> {
        let claims: Vec<_> = weights.iter().map(|weight| (*weight, None)).collect();
        divide(total, &shares(&names(weights.len()), &claims), "uid")
    }

    /// The rule as it is written, one seat at a time.
    fn one_by_one(total: u32, shares: &[Share<'_>], uid: &str) -> Vec<u32> {
        let all_zero = shares.iter().all(|share| share.weight.0 == 0);
        let mut seats = vec![0_u32; shares.len()];
        for _ in 0..total {
            let open = (0..shares.len()).filter(|at| {
                (all_zero || shares[*at].weight.0 > 0) && shares[*at].max.is_none_or(|max| seats[*at] < max)
            });
            let quotient =
                |at: usize| (if all_zero { 1 } else { u128::from(shares[at].weight.0) }, 2 * u128::from(seats[at]) + 1);
            let Some(best) = open.max_by(|a, b| {
                let ((wa, da), (wb, db)) = (quotient(*a), quotient(*b));
                (wa * db).cmp(&(wb * da)).then(tie(uid, shares[*a].member).cmp(&tie(uid, shares[*b].member)))
            }) else {
                break;
            };
            seats[best] += 1;
        }
        seats
    }

    #[test]
    fn known_divisions() {
        assert_eq!(weights(3, &[1, 2]), [1, 2]);
        assert_eq!(weights(9, &[1, 2]), [3, 6]);
        assert_eq!(weights(9, &[1, 3]), [2, 7]);
        assert_eq!(weights(2, &[2, 1]), [1, 1]);
        assert_eq!(weights(5, &[0, 1]), [0, 5]);
        assert_eq!(weights(4, &[0, 0]), [2, 2]);
        assert_eq!(weights(0, &[1, 2]), [0, 0]);
        assert!(weights(7, &[]).is_empty());
        assert_eq!(weights(3_000_000, &[1, 2]), [1_000_000, 2_000_000]);
        assert_eq!(
            weights(u32::MAX, &[u32::MAX, u32::MAX, u32::MAX]).iter().map(|n| u64::from(*n)).sum::<u64>(),
            u64::from(u32::MAX)
        );
    }

    #[test]
    fn caps_hold_and_their_rest_goes_to_others() {
        let names = names(3);
        let all = |claims: &[(u32, Option<u32>)]| divide(10, &shares(&names, claims), "uid");
        assert_eq!(all(&[(8, Some(2)), (1, None), (1, None)]), [2, 4, 4]);
        assert_eq!(all(&[(8, Some(2)), (1, Some(3)), (0, None)]), [2, 3, 0]);
        assert_eq!(all(&[(1, Some(0)), (1, None), (0, None)]), [0, 10, 0]);
    }

    #[test]
    fn ties_fall_by_uid_and_are_even_over_objects() {
        let names = names(2);
        let shares = shares(&names, &[(1, None), (1, None)]);
        let first = (0..1000).filter(|n| divide(1, &shares, &n.to_string()) == [1, 0]).count();
        assert!((400..600).contains(&first), "{first}");
    }

    fn claims() -> impl Strategy<Value = Vec<(u32, Option<u32>)>> {
        let weight = prop_oneof![0..4_u32, 0..1000_u32, any::<u32>()];
        prop::collection::vec((weight, prop::option::weighted(0.2, 0..40_u32)), 1..8)
    }

    proptest! {
        #[test]
        fn agrees_with_the_rule_one_seat_at_a_time(total in 0..300_u32, claims in claims(), uid in "[a-f]{4}") {
            let names = names(claims.len());
            let shares = shares(&names, &claims);
            prop_assert_eq!(divide(total, &shares, &uid), one_by_one(total, &shares, &uid));
        }

        #[test]
        fn sums_are_exact_and_caps_hold(total in 0..5_000_000_u32, claims in claims(), uid in "[a-f]{4}") {
            let names = names(claims.len());
            let seats = divide(total, &shares(&names, &claims), &uid);
            let all_zero = claims.iter().all(|(weight, _)| *weight == 0);
            let takes = claims.iter().filter(|(weight, _)| all_zero || *weight > 0);
            let room: u64 = takes.map(|(_, max)| u64::from(max.unwrap_or(u32::MAX))).sum();
            prop_assert_eq!(seats.iter().map(|n| u64::from(*n)).sum::<u64>(), u64::from(total).min(room));
            for (seats, (_, max)) in seats.iter().zip(&claims) {
                prop_assert!(max.is_none_or(|max| *seats <= max));
            }
        }

        #[test]
        fn a_larger_total_shrinks_nobody(total in 0..100_000_u32, more in 0..50_u32, claims in claims(), uid in "[a-f]{4}") {
            let names = names(claims.len());
            let shares = shares(&names, &claims);
            let (before, after) = (divide(total, &shares, &uid), divide(total + more, &shares, &uid));
            prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after));
        }

        #[test]
        fn the_order_of_members_is_nothing(total in 0..1000_u32, claims in claims(), uid in "[a-f]{4}", turn in 0..8_usize) {
            let names = names(claims.len());
            let mut shares = shares(&names, &claims);
            let before: BTreeMap<_, _> =
                shares.iter().map(|share| share.member.clone()).zip(divide(total, &shares, &uid)).collect();
            let count = shares.len();
            shares.rotate_left(turn % count);
            shares.reverse();
            let after: BTreeMap<_, _> =
                shares.iter().map(|share| share.member.clone()).zip(divide(total, &shares, &uid)).collect();
            prop_assert_eq!(before, after);
        }
    }
}
