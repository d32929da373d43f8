//! Division of a total over members by weight: Webster's method (Sainte-Laguë).
//!
//! Seats are given one by one to the highest `weight / (2 * seats + 1)`. That is monotone: a larger total shrinks nobody,
//! so scaling up moves no pods. Integers only; quotients are compared by cross-multiplication.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use crate::config::{MemberName, Weight};

/// One member's claim.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// The member.
    pub member: &'a MemberName,
    /// Its weight; zero takes none, unless all are zero: then all are equal.
    pub weight: Weight,
    /// At most so many.
    pub max: Option<u32>,
}

/// Divides `total` over `shares`. Ties fall by `uid`, whatever the order of the shares.
///
/// Shape: N shares -> N numbers in the same order. Their sum is `total`, or less if the members that take any are all at
/// their `max`.
pub fn divide(total: u32, shares: &[Share<'_>], uid: &str) -> Vec<u32> {
    let all_zero = shares.iter().all(|share| share.weight.0 == 0);
    let mut claims: Vec<_> = shares
        .iter()
        .map(|share| Claim {
            weight: if all_zero { 1 } else { share.weight.0.into() },
            max: share.max.unwrap_or(u32::MAX),
            tie: tie(uid, share.member),
            seats: 0,
        })
        .collect();
    let mut left = total - start(total, &mut claims);
    while left > 0 {
        let Some(next) = claims.iter_mut().filter(|claim| claim.is_open()).max_by(|a, b| a.compare(b)) else { break };
        next.seats += 1;
        left -= 1;
    }
    claims.into_iter().map(|claim| claim.seats).collect()
}

/// What decides between equal quotients: even over objects, the same for one object whatever the order of members.
pub fn tie(uid: &str, member: &MemberName) -> u64 {
    let mut hash = Sha256::new();
    hash.update(uid.as_bytes());
    hash.update([0]);
    hash.update(member.as_str().as_bytes());
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

struct Claim {
    weight: u128,
    max: u32,
    tie: u64,
    seats: u32,
}

impl Claim {
    fn is_open(&self) -> bool {
        self.weight > 0 && self.seats < self.max
    }

    /// Orders by who gets the next seat.
    fn compare(&self, other: &Self) -> Ordering {
        let (mine, theirs) = (2 * u128::from(self.seats) + 1, 2 * u128::from(other.seats) + 1);
        (self.weight * theirs).cmp(&(other.weight * mine)).then(self.tie.cmp(&other.tie))
    }
}

/// Gives at once the seats whose quotient is at least `W / (2 * total - n)`, and says how many those are.
///
/// The seat numbered `b` (from 1) of weight `w` has quotient `w / (2b - 1)`, so such a quotient admits
/// `floor((w * (2 * total - n) + W) / 2W)` seats, and all of them together are at most `total`: they are the first that
/// the one-by-one rule gives, and fewer than `2n` are left to it. (The floor of the quota would be wrong: Webster's method
/// may give less.) A member at its `max` takes no further part, so the rest is started anew without it.
fn start(total: u32, claims: &mut [Claim]) -> u32 {
    loop {
        let full: u128 = claims.iter().filter(|claim| !claim.is_open()).map(|claim| u128::from(claim.seats)).sum();
        let open = || claims.iter().filter(|claim| claim.weight > 0 && claim.seats < claim.max);
        let (count, weights) = open().fold((0_u128, 0_u128), |(count, sum), claim| (count + 1, sum + claim.weight));
        let rest = u128::from(total).saturating_sub(full);
        let mut filled = false;
        if weights > 0 {
            let factor = (2 * rest).saturating_sub(count);
            for claim in claims.iter_mut().filter(|claim| claim.is_open()) {
                let seats = if factor == 0 { 0 } else { (claim.weight * factor + weights) / (2 * weights) };
                claim.seats = u32::try_from(seats).unwrap_or(u32::MAX).min(claim.max);
                filled |= claim.seats == claim.max;
            }
        }
        if !filled {
            return claims.iter().map(|claim| claim.seats).sum();
        }
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
            .map(|(member, (weight, max))| Share { member, weight: Weight(*weight), max: *max })
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
            let before: std::collections::BTreeMap<_, _> =
                shares.iter().map(|share| share.member.clone()).zip(divide(total, &shares, &uid)).collect();
            let count = shares.len();
            shares.rotate_left(turn % count);
            shares.reverse();
            let after: std::collections::BTreeMap<_, _> =
                shares.iter().map(|share| share.member.clone()).zip(divide(total, &shares, &uid)).collect();
            prop_assert_eq!(before, after);
        }
    }
}
