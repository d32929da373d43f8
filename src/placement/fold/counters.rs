//! The way back of a status: written counters become the parts' own.

use crate::placement::fold::{FoldKind, status::counter_paths};

/// What the counters of each part become so that they add up to `totals`, as near to what the parts hold as that can be. None
/// is negative, and none says what no kube-apiserver takes: more ready pods than there are. What cannot be so is the first
/// part's, whose member says why.
///
/// Shape: totals and the counters of each part in the order of [`counter_paths`] -> the same for each part.
pub fn divided_counters(kind: FoldKind, totals: &[i64], held: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let names: Vec<&str> = counter_paths(kind).filter_map(|path| path.last().copied()).collect();
    let mut parts: Vec<Vec<i64>> = held.to_vec();
    for (at, total) in totals.iter().copied().enumerate() {
        let caps: Vec<i64> = parts.iter().map(|part| cap(&names, at, part)).collect();
        let mut values: Vec<i64> =
            parts.iter().zip(&caps).map(|(part, cap)| part.get(at).copied().unwrap_or(0).clamp(0, *cap)).collect();
        let mut left = total.saturating_sub(values.iter().copied().fold(0, i64::saturating_add));
        for (value, cap) in values.iter_mut().zip(&caps) {
            let step = left.clamp(-*value, cap - *value);
            *value += step;
            left -= step;
        }
        if let Some(first) = values.first_mut() {
            *first = first.saturating_add(left);
        }
        for (part, value) in parts.iter_mut().zip(values) {
            if let Some(slot) = part.get_mut(at) {
                *slot = value;
            }
        }
    }
    parts
}

/// What a counter of a part may be at most, by those before it.
///
/// Source: kubernetes `pkg/apis/apps/validation/validation.go` `ValidateDeploymentStatus`, `ValidateReplicaSetStatus`,
/// `ValidateStatefulSetStatus`; `pkg/apis/core/validation/validation.go` `ValidateReplicationControllerStatusUpdate`.
fn cap(names: &[&str], at: usize, part: &[i64]) -> i64 {
    let of = |name: &str| {
        let place = names.iter().position(|known| *known == name)?;
        part.get(place).filter(|_| place < at).copied()
    };
    let most = match names.get(at).copied() {
        Some("availableReplicas") => of("readyReplicas"),
        Some("updatedReplicas" | "readyReplicas" | "fullyLabeledReplicas" | "currentReplicas") => of("replicas"),
        _ => None,
    };
    most.unwrap_or(i64::MAX).max(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(parts: &[Vec<i64>]) -> Vec<i64> {
        (0..parts[0].len()).map(|at| parts.iter().map(|part| part[at]).sum()).collect()
    }

    #[test]
    fn the_difference_is_the_firsts_and_what_it_has_not_is_the_next_ones() {
        // replicas, updated, ready, available, unavailable, terminating, observed generation.
        let held = vec![vec![2, 2, 2, 2, 0, 0, 3], vec![2, 2, 1, 1, 1, 0, 4], vec![2, 2, 0, 0, 2, 0, 1]];
        let divided = |totals: [i64; 7]| divided_counters(FoldKind::Deployment, &totals, &held);
        assert_eq!(divided([6, 6, 3, 3, 3, 0, 8]), held, "nothing is written");
        // No part has more ready pods than pods.
        let all = divided([6, 6, 6, 6, 0, 0, 8]);
        assert_eq!(all.iter().map(|part| part[2]).collect::<Vec<_>>(), [2, 2, 2]);
        let one = divided([1, 1, 1, 1, 0, 0, 8]);
        assert_eq!(one, [[0, 0, 0, 0, 0, 0, 3], [0, 0, 0, 0, 0, 0, 4], [1, 1, 1, 1, 0, 0, 1]]);
        let more = divided([9, 9, 3, 3, 6, 0, 9]);
        assert_eq!((more[0][0], more[1][0], more[0][4], more[0][6]), (5, 2, 3, 4));
        // A member says itself what is wrong with it.
        assert_eq!(divided([-1, 0, 0, 0, 0, 0, 8])[0][0], -1);
        let odd = divided([6, 7, 0, 0, 0, 0, 8]);
        assert_eq!(odd.iter().map(|part| part[1]).collect::<Vec<_>>(), [3, 2, 2]);
    }

    proptest! {
        /// What one cluster takes, each part's member takes, and the sum is what was written.
        #[test]
        fn sums_are_what_was_written(
            held in prop::collection::vec(prop::array::uniform7(0..9_i64), 1..6),
            replicas in 0..30_i64, shares in prop::array::uniform3(0..=100_i64), rest in prop::array::uniform3(0..30_i64),
        ) {
            let [updated, ready, available] = shares;
            let (updated, ready) = (replicas * updated / 100, replicas * ready / 100);
            let totals = [replicas, updated, ready, ready * available / 100, rest[0], rest[1], rest[2]];
            let held: Vec<Vec<i64>> = held.into_iter().map(Vec::from).collect();
            let parts = divided_counters(FoldKind::Deployment, &totals, &held);
            prop_assert_eq!(sums(&parts), totals.to_vec());
            for part in &parts {
                prop_assert!(part.iter().all(|value| *value >= 0), "{:?}", part);
                prop_assert!(part[1] <= part[0] && part[2] <= part[0] && part[3] <= part[2], "{:?}", part);
            }
        }
    }
}
