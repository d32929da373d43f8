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
    /// The groups of members (region, zone) that it is in, each within the one before. Groups share alike; members share
    /// within theirs.
    pub domains: &'a [String],
}

impl<'a> Share<'a> {
    /// A claim by weight alone.
    pub fn by_weight(member: &'a MemberName, weight: Weight) -> Self {
        Self { member, weight, min: 0, max: None, domains: &[] }
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
    let mut seats = vec![0; shares.len()];
    Division { shares, claims, uid }.among(total, &(0..shares.len()).collect::<Vec<_>>(), 0, &mut seats);
    seats
}

/// Has what goes to the fewest members go to those that have the most already, then to those that must have the most, then to
/// the largest: the others get nothing more, and give first.
///
/// Shape: as [`redivide`], whose `shares` these are.
pub fn fewest(total: u32, current: &[u32], shares: &mut [Share<'_>], uid: &str) {
    let now = |at: usize| current.get(at).copied().unwrap_or(0);
    let room = |at: usize, share: &Share<'_>| share.max.unwrap_or(u32::MAX).max(now(at));
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_cached_key(|at| {
        shares.get(*at).map(|share| {
            let size = (room(*at, share).min(total), share.weight, tie(uid, share.member));
            std::cmp::Reverse((now(*at).min(total), share.min, size))
        })
    });
    let mut carried = 0_u64;
    for at in order {
        let Some(share) = shares.get_mut(at) else { continue };
        if carried < u64::from(total) {
            carried += u64::from(room(at, share));
        } else {
            (share.weight, share.min) = (Weight(0), 0);
        }
    }
}

/// What is divided over whom.
struct Division<'s, 'a> {
    shares: &'s [Share<'a>],
    claims: Vec<Claim>,
    uid: &'s str,
}

impl Division<'_, '_> {
    /// Divides among members that are in the same groups at the levels before this.
    fn among(&self, total: u64, of: &[usize], level: usize, seats: &mut [u32]) {
        let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for at in of {
            let name = self.shares.get(*at).and_then(|share| share.domains.get(level));
            groups.entry(name.map(String::as_str)).or_default().push(*at);
        }
        if groups.keys().all(Option::is_none) {
            let members: Vec<Claim> = of.iter().filter_map(|at| self.claims.get(*at).copied()).collect();
            for (at, given) in of.iter().zip(fill(total, &members)) {
                if let Some(seats) = seats.get_mut(*at) {
                    *seats = u32::try_from(given).unwrap_or(u32::MAX);
                }
            }
            return;
        }
        let whole: Vec<Claim> =
            groups.iter().map(|(name, of)| Claim::of_group(*name, of, &self.claims, self.uid)).collect();
        for (of, total) in groups.values().zip(fill(total, &whole)) {
            self.among(total, of, level + 1, seats);
        }
    }
}

/// What decides between equal quotients: even over objects, the same for one object whatever the order of members.
pub fn tie(uid: &str, member: &MemberName) -> u64 {
    tie_of(uid, member.as_str())
}

/// The same between groups of members, by their names.
pub fn tie_of(uid: &str, name: &str) -> u64 {
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
        let mut group = Self { weight: 0, tie: tie_of(uid, name.unwrap_or_default()), levels: [0; 3] };
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
    between(total, claims.iter().map(seat).collect())
}

/// Fills `total` seats between where each claim is and the most that it may have.
fn between(total: u64, mut seats: Vec<Seat>) -> Vec<u64> {
    give(total, &mut seats);
    // Where even those without a weight are to have some, the others are full.
    let full = seats.iter().all(|seat| seat.weight == 0 || seat.seats == seat.high);
    if full {
        seats.iter_mut().for_each(|seat| (seat.weight, seat.low) = (u128::from(seat.weight == 0), seat.seats));
        give(total, &mut seats);
    }
    seats.into_iter().map(|seat| seat.seats).collect()
}

/// One member's claim to an amount that is given level by level: all get up to their first level before any gets more.
#[derive(Clone, Copy, Debug)]
pub struct Climb<'a> {
    /// The member.
    pub member: &'a MemberName,
    /// What is free is divided by it; zero takes no more than the levels, unless all are zero: then all are equal.
    pub weight: u64,
    /// What it gets at least, the most urgent first. One that is below the one before it counts as that.
    pub levels: [u64; 3],
    /// It gets of what is left above the levels.
    pub is_open: bool,
}

/// The most that is divided level by level: more has no exact quotients. Units: those of the amount.
const CLIMB_MAX: u64 = 1 << 53;
/// The most that a weight counts: weights are compared, and a millionth is fine enough.
const CLIMB_WEIGHT_BITS: u32 = 20;

/// Divides an amount (bytes, thousandths of a CPU, a count) level by level, and by weight within a level and above them.
///
/// Shape: N claims -> N amounts in the same order. Their sum is `total` (at most 2^53), or less if nobody is open and all
/// levels are full. A larger total takes nothing from anybody.
pub fn climb(total: u64, claims: &[Climb<'_>], uid: &str) -> Vec<u64> {
    let total = total.min(CLIMB_MAX);
    let largest = claims.iter().map(|claim| claim.weight).max().unwrap_or(0);
    let shift = (u64::BITS - largest.leading_zeros()).saturating_sub(CLIMB_WEIGHT_BITS);
    let weight = |claim: &Climb<'_>| u128::from((claim.weight >> shift).max(u64::from(claim.weight > 0)));
    let is_weighty = claims.iter().any(|claim| claim.is_open && claim.weight > 0);
    let mut low = vec![0; claims.len()];
    for level in 0..=3 {
        let highs = claims.iter().zip(&low).map(|(claim, low)| match claim.levels.get(level) {
            Some(level) => (*level).min(total).max(*low),
            None if claim.is_open && (claim.weight > 0 || !is_weighty) => total,
            None => *low,
        });
        let highs: Vec<u64> = highs.collect();
        if level == 3 || highs.iter().copied().map(u128::from).sum::<u128>() > u128::from(total) {
            let seats = claims.iter().zip(low).zip(highs).map(|((claim, low), high)| {
                let weight = if high > low { weight(claim) } else { 0 };
                Seat { weight, tie: tie(uid, claim.member), low, high, seats: low }
            });
            return between(total, seats.collect());
        }
        low = highs;
    }
    low
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

    /// The groups of a path like `eu/a`.
    fn domains(path: Option<&'static str>) -> &'static [String] {
        let names: Vec<String> = path.iter().flat_map(|path| path.split('/')).map(str::to_owned).collect();
        Box::leak(names.into())
    }

    /// Weight, min, max, group.
    type Terms = (u32, u32, Option<u32>, Option<&'static str>);

    fn shares<'a>(names: &'a [MemberName], claims: &[Terms]) -> Vec<Share<'a>> {
        let share = |(member, (weight, min, max, group)): (&'a MemberName, &Terms)| Share {
            member,
            weight: Weight(*weight),
            min: *min,
            max: *max,
            domains: domains(*group),
        };
        names.iter().zip(claims).map(share).collect()
    }

    fn all(total: u32, claims: &[Terms]) -> Vec<u32> {
        divide(total, &shares(&names(claims.len()), claims), "uid")
    }

    fn weights(total: u32, weights: &[u32]) -> Vec<u32> {
        all(total, &weights.iter().map(|weight| (*weight, 0, None, None)).collect::<Vec<_>>())
    }

    fn sum(seats: &[u32]) -> u64 {
        seats.iter().map(|seats| u64::from(*seats)).sum()
    }

    /// The rule as it is written, one seat at a time, of members without groups and minima.
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
        assert_eq!(sum(&weights(u32::MAX, &[u32::MAX, u32::MAX, u32::MAX])), u64::from(u32::MAX));
    }

    #[test]
    fn caps_hold_and_their_rest_goes_to_others() {
        assert_eq!(all(10, &[(8, 0, Some(2), None), (1, 0, None, None), (1, 0, None, None)]), [2, 4, 4]);
        assert_eq!(all(10, &[(8, 0, Some(2), None), (1, 0, Some(3), None), (0, 0, None, None)]), [2, 3, 0]);
        assert_eq!(all(10, &[(1, 0, Some(0), None), (1, 0, None, None), (0, 0, None, None)]), [0, 10, 0]);
    }

    #[test]
    fn minima_come_first() {
        let claims = [(10, 0, None, None), (1, 3, None, None), (0, 2, None, None)];
        assert_eq!(all(20, &claims), [15, 3, 2]);
        assert_eq!(all(5, &claims), [0, 3, 2]);
        assert_eq!(sum(&all(4, &claims)), 4);
        assert_eq!(all(0, &claims), [0, 0, 0]);
    }

    #[test]
    fn groups_share_alike_and_members_within_theirs() {
        let claims = [(9, 0, None, Some("eu")), (3, 0, None, Some("eu")), (1, 0, None, Some("us"))];
        assert_eq!(all(8, &claims), [3, 1, 4]);
        let capped = [claims[0], claims[1], (1, 0, Some(1), Some("us"))];
        assert_eq!(all(8, &capped), [5, 2, 1]);
    }

    #[test]
    fn groups_within_groups_share_alike_at_each_level() {
        let claims = [
            (1, 0, None, Some("eu/a")),
            (1, 0, None, Some("eu/a")),
            (1, 0, None, Some("eu/b")),
            (9, 0, None, Some("us/a")),
        ];
        assert_eq!(all(16, &claims), [2, 2, 4, 8]);
        let capped = [claims[0], claims[1], (1, 0, Some(1), Some("eu/b")), claims[3]];
        assert_eq!(sum(&all(16, &capped)[..3]), 8, "what one zone does not take, its region does");
    }

    #[test]
    fn the_fewest_are_those_that_have_some_then_the_largest() {
        let names = names(3);
        let divided = |total: u32, current: [u32; 3], room: [u32; 3]| {
            let claims = room.map(|room| (room, 0, Some(room), None));
            let mut shares = shares(&names, &claims);
            fewest(total, &current, &mut shares, "uid");
            redivide(total, &current, &shares, "uid")
        };
        assert_eq!(divided(5, [0, 0, 0], [4, 9, 6]), [0, 5, 0]);
        assert_eq!(divided(5, [2, 0, 0], [6, 9, 6]), [5, 0, 0], "it stays where it is while it fits");
        assert_eq!(divided(8, [2, 0, 0], [6, 9, 6])[2], 0);
        assert_eq!(divided(5, [6, 2, 0], [9, 9, 9]), [5, 0, 0], "the smaller part gives first");
        assert_eq!(divided(0, [6, 2, 0], [9, 9, 9]), [0, 0, 0]);
        assert_eq!(divided(30, [0, 0, 0], [4, 9, 6]), [4, 9, 6]);
    }

    #[test]
    fn only_the_difference_moves() {
        let names = names(2);
        let even = shares(&names, &[(1, 0, None, None), (1, 0, None, None)]);
        // An autoscaler in a member had moved one.
        assert_eq!(redivide(8, &[6, 0], &even, "uid"), [6, 2]);
        assert_eq!(redivide(6, &[6, 0], &even, "uid"), [6, 0]);
        assert_eq!(redivide(4, &[6, 0], &even, "uid"), [4, 0]);
        assert_eq!(redivide(5, &[6, 2], &even, "uid"), [3, 2]);
        // A maximum that came later moves nothing by itself.
        let capped = shares(&names, &[(1, 0, Some(2), None), (1, 3, None, None)]);
        assert_eq!(redivide(7, &[6, 0], &capped, "uid"), [6, 1]);
        assert_eq!(redivide(3, &[6, 2], &capped, "uid"), [1, 2]);
        assert_eq!(redivide(0, &[6, 2], &capped, "uid"), [0, 0]);
    }

    #[test]
    fn ties_fall_by_uid_and_are_even_over_objects() {
        let names = names(2);
        let shares = shares(&names, &[(1, 0, None, None), (1, 0, None, None)]);
        let first = (0..1000).filter(|n| divide(1, &shares, &n.to_string()) == [1, 0]).count();
        assert!((400..600).contains(&first), "{first}");
    }

    fn claims(min: u32, groups: &'static [Option<&'static str>]) -> impl Strategy<Value = Vec<Terms>> {
        let weight = prop_oneof![0..4_u32, 0..1000_u32, any::<u32>()];
        let claim = (weight, 0..=min, prop::option::weighted(0.2, min..min + 40), prop::sample::select(groups));
        prop::collection::vec(claim, 1..8)
    }

    const ONE: &[Option<&str>] = &[None];
    const THREE: &[Option<&str>] = &[None, Some("eu/a"), Some("eu/b"), Some("us")];

    #[test]
    fn levels_come_one_after_the_other() {
        let names = names(3);
        let of = |total: u64, claims: [(u64, [u64; 3], bool); 3]| {
            let claims = names.iter().zip(claims);
            let claims = claims.map(|(member, (weight, levels, is_open))| Climb { member, weight, levels, is_open });
            climb(total, &claims.collect::<Vec<_>>(), "uid")
        };
        let alike = |levels: [[u64; 3]; 3]| levels.map(|levels| (1, levels, true));
        assert_eq!(of(12, alike([[0; 3]; 3])), [4, 4, 4]);
        assert_eq!(of(12, alike([[8, 8, 0], [0; 3], [0; 3]])), [8, 2, 2]);
        assert_eq!(
            of(12, alike([[2, 9, 0], [2, 2, 6], [1, 1, 6]])),
            [9, 2, 1],
            "what is asked comes before what it has"
        );
        assert_eq!(of(4, alike([[2, 9, 0], [2, 2, 6], [0, 0, 6]])), [2, 2, 0], "and what is used before what is asked");
        assert_eq!(of(12, [(1, [5; 3], false), (1, [0; 3], true), (3, [0; 3], true)]), [5, 2, 5]);
        assert_eq!(of(9, [(0, [2; 3], true), (0, [0; 3], true), (3, [0; 3], true)]), [2, 0, 7]);
        assert_eq!(of(9, [(0, [2; 3], false), (0, [0; 3], false), (3, [0; 3], false)]), [2, 0, 0]);
    }

    proptest! {
        #[test]
        fn an_amount_is_divided_exactly_and_monotonically(
            total in prop_oneof![0..40_u64, 0..1_u64 << 54], more in 0..1000_u64,
            claims in prop::collection::vec(
                (prop_oneof![0..4_u64, any::<u64>()], prop::array::uniform3(prop_oneof![0..30_u64, any::<u64>()]), any::<bool>()), 1..7),
            uid in "[a-f]{4}",
        ) {
            let names = names(claims.len());
            let claims: Vec<_> = names.iter().zip(&claims)
                .map(|(member, (weight, levels, is_open))| Climb { member, weight: *weight, levels: *levels, is_open: *is_open })
                .collect();
            let (before, after) = (climb(total, &claims, &uid), climb(total + more, &claims, &uid));
            let sum: u64 = before.iter().sum();
            prop_assert!(sum <= total);
            if claims.iter().any(|claim| claim.is_open) {
                prop_assert_eq!(sum, total.min(CLIMB_MAX));
            }
            prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?} {after:?}");
            let least: u128 = claims.iter().map(|claim| u128::from(claim.levels[0])).sum();
            let all_have_it = before.iter().zip(&claims).all(|(share, claim)| *share >= claim.levels[0]);
            prop_assert!(all_have_it || least > u128::from(total.min(CLIMB_MAX)), "{before:?}");
        }

        #[test]
        fn agrees_with_the_rule_one_seat_at_a_time(total in 0..300_u32, claims in claims(0, ONE), uid in "[a-f]{4}") {
            let names = names(claims.len());
            let shares = shares(&names, &claims);
            prop_assert_eq!(divide(total, &shares, &uid), one_by_one(total, &shares, &uid));
        }

        #[test]
        fn sums_are_exact_and_bounds_hold(total in 0..5_000_000_u32, claims in claims(9, THREE), uid in "[a-f]{4}") {
            let names = names(claims.len());
            let seats = divide(total, &shares(&names, &claims), &uid);
            let all_zero = claims.iter().all(|(weight, ..)| *weight == 0);
            let takes = |weight: u32, min: u32, max: Option<u32>| {
                u64::from(if all_zero || weight > 0 { max.unwrap_or(u32::MAX) } else { min })
            };
            let room: u64 = claims.iter().map(|(weight, min, max, _)| takes(*weight, *min, *max)).sum();
            let least: u64 = claims.iter().map(|(_, min, ..)| u64::from(*min)).sum();
            prop_assert_eq!(sum(&seats), u64::from(total).min(room));
            for (seats, (_, min, max, _)) in seats.iter().zip(&claims) {
                prop_assert!(max.is_none_or(|max| *seats <= max));
                let good = if u64::from(total) < least { seats <= min } else { seats >= min };
                prop_assert!(good, "{seats} {min}");
            }
        }

        #[test]
        fn a_larger_total_shrinks_nobody(total in 0..100_000_u32, more in 0..50_u32, claims in claims(9, THREE), uid in "[a-f]{4}") {
            let names = names(claims.len());
            let shares = shares(&names, &claims);
            let (before, after) = (divide(total, &shares, &uid), divide(total + more, &shares, &uid));
            prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?} {after:?}");
        }

        #[test]
        fn a_change_of_what_was_divided_is_as_if_divided_anew(
            (from, to) in (0..400_u32, 0..400_u32), claims in claims(9, THREE), uid in "[a-f]{4}",
        ) {
            let names = names(claims.len());
            let shares = shares(&names, &claims);
            let current = divide(from, &shares, &uid);
            prop_assert_eq!(redivide(to, &current, &shares, &uid), divide(to, &shares, &uid), "from {:?}", current);
        }

        #[test]
        fn a_change_moves_only_its_difference(
            to in 0..400_u32,
            (claims, current) in claims(9, THREE).prop_flat_map(|claims| {
                let count = claims.len();
                (Just(claims), prop::collection::vec(0..60_u32, count))
            }),
            uid in "[a-f]{4}",
        ) {
            let names = names(claims.len());
            let shares = shares(&names, &claims);
            let after = redivide(to, &current, &shares, &uid);
            let grows = u64::from(to) >= sum(&current);
            let least: u64 = current.iter().zip(&claims).map(|(now, (_, min, ..))| u64::from(*now.min(min))).sum();
            for ((before, after), (_, min, max, _)) in current.iter().zip(&after).zip(&claims) {
                let moved = if grows { after >= before } else { after <= before };
                prop_assert!(moved && max.is_none_or(|max| *after <= max.max(*before)));
                prop_assert!(u64::from(to) < least || after >= min.min(before));
            }
            if grows {
                prop_assert!(sum(&after) <= u64::from(to));
            } else {
                prop_assert_eq!(sum(&after), u64::from(to));
            }
            prop_assert_eq!(redivide(to, &after, &shares, &uid), after, "the same total again moves nothing");
        }

        #[test]
        fn the_order_of_members_is_nothing(total in 0..1000_u32, claims in claims(9, THREE), uid in "[a-f]{4}", turn in 0..8_usize) {
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
