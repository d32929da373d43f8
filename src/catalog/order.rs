//! How several members' orders become one.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
};

/// Merges lists into one in which each keeps its relative order.
///
/// Items between which no list decides stand by `tie`. Where lists contradict each other, the earlier list wins.
/// Shape: N lists of distinct items -> their union, each item once.
/// Source: KEP-4020; kubernetes/apimachinery `pkg/util/sort` `MergePreservingRelativeOrder`, which gives up with a
/// plain sort of everything where lists contradict each other: one member's odd priority would reorder the whole fleet.
pub(super) fn merge_preserving_relative_order<'a>(
    lists: &[Vec<&'a str>],
    tie: fn(&str, &str) -> Ordering,
) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    // Rank by `tie`, and the order of first mention, which settles contradictions.
    let mentioned: Vec<&str> = lists.iter().flatten().copied().filter(|item| seen.insert(*item)).collect();
    if let Some(whole) = lists.iter().find(|list| list.len() == mentioned.len()) {
        return whole.clone();
    }
    let mut ranked = mentioned.clone();
    ranked.sort_by(|a, b| tie(a, b).then_with(|| a.cmp(b)));
    let rank: HashMap<&str, usize> = ranked.iter().enumerate().map(|(at, item)| (*item, at)).collect();

    let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ranked.len()];
    let mut waits_for = vec![0_usize; ranked.len()];
    for pair in lists.iter().flat_map(|list| list.windows(2)) {
        let [Some(&first), Some(&second)] = [rank.get(pair[0]), rank.get(pair[1])] else { continue };
        if after[first].insert(second) {
            waits_for[second] += 1;
        }
    }
    let mut ready: BTreeSet<usize> = (0..ranked.len()).filter(|at| waits_for[*at] == 0).collect();
    let mut by_mention = mentioned.iter().filter_map(|item| rank.get(item).copied());
    let mut placed = vec![false; ranked.len()];
    let mut merged = Vec::with_capacity(ranked.len());
    // With nothing ready and something left, lists contradict each other: the earliest mention goes first.
    while let Some(next) = ready.pop_first().or_else(|| by_mention.find(|at| !placed[*at])) {
        placed[next] = true;
        merged.push(ranked[next]);
        for &follower in &after[next] {
            waits_for[follower] -= 1;
            if waits_for[follower] == 0 && !placed[follower] {
                ready.insert(follower);
            }
        }
    }
    merged
}

/// Compares version names by priority, the higher first: `v2`, `v1`, `v1beta2`, `v1alpha1`, `other`.
///
/// Source: kubernetes/apimachinery `pkg/version/helpers.go` `CompareKubeAwareVersionStrings`.
pub(super) fn by_version_priority(a: &str, b: &str) -> Ordering {
    match (kube_version(a), kube_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    Alpha,
    Beta,
    Stable,
}

/// Stability, major and minor of `v1`, `v1beta2` and the like.
fn kube_version(name: &str) -> Option<(Stability, u64, u64)> {
    let digits = name.strip_prefix('v')?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (major, rest) = digits.split_at(end);
    let (stability, minor) = if rest.is_empty() {
        (Stability::Stable, 0)
    } else if let Some(minor) = rest.strip_prefix("beta") {
        (Stability::Beta, number(minor)?)
    } else {
        (Stability::Alpha, number(rest.strip_prefix("alpha")?)?)
    };
    Some((stability, number(major)?, minor))
}

fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merge(lists: &[&[&'static str]]) -> Vec<&'static str> {
        merge_preserving_relative_order(&lists.iter().map(|list| list.to_vec()).collect::<Vec<_>>(), str::cmp)
    }

    #[test]
    fn the_examples_of_kubernetes_hold() {
        assert_eq!(merge(&[&["a", "b", "c"], &["b", "c"]]), ["a", "b", "c"]);
        assert_eq!(merge(&[&["a", "c"], &["b", "c"]]), ["a", "b", "c"]);
        assert_eq!(merge(&[]), [""; 0]);
    }

    #[test]
    fn the_earlier_list_wins_a_contradiction_and_the_rest_keeps_its_order() {
        assert_eq!(merge(&[&["a", "b"], &["b", "a"]]), ["a", "b"]);
        assert_eq!(merge(&[&["z", "b", "a", "y"], &["z", "a", "b", "x"]]), ["z", "b", "a", "x", "y"]);
    }

    #[test]
    fn versions_stand_by_stability_then_number() {
        let mut versions = ["v1alpha1", "foo10", "v2", "v11beta2", "v10", "v3beta1", "v12alpha1", "v1", "foo1"];
        versions.sort_by(|a, b| by_version_priority(a, b));
        // The example of the CRD versioning page.
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"]);
    }

    proptest! {
        #[test]
        fn members_that_agree_each_keep_their_order_and_nothing_is_lost(
            picks in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 12), 1..5),
            truth in Just(["k", "c", "x", "a", "m", "b", "z", "d", "y", "e", "q", "f"]).prop_map(|all| all.to_vec()).prop_shuffle(),
        ) {
            let lists: Vec<Vec<&str>> = picks
                .iter()
                .map(|pick| truth.iter().zip(pick).filter(|(_, in_it)| **in_it).map(|(item, _)| *item).collect())
                .collect();
            let merged = merge_preserving_relative_order(&lists, str::cmp);
            for list in &lists {
                let kept: Vec<&str> = merged.iter().copied().filter(|item| list.contains(item)).collect();
                prop_assert_eq!(&kept, list);
            }
            let union: BTreeSet<&str> = lists.iter().flatten().copied().collect();
            prop_assert_eq!(merged.len(), union.len());
            prop_assert_eq!(merged.into_iter().collect::<BTreeSet<_>>(), union);
        }

        #[test]
        fn members_that_contradict_each_other_lose_nothing(
            lists in proptest::collection::vec(
                Just(vec!["a", "b", "c", "d", "e", "f"]).prop_shuffle().prop_flat_map(|all| {
                    (0..=all.len()).prop_map(move |take| all[..take].to_vec())
                }), 0..5),
        ) {
            let merged = merge_preserving_relative_order(&lists, str::cmp);
            let union: BTreeSet<&str> = lists.iter().flatten().copied().collect();
            prop_assert_eq!(merged.len(), union.len());
            prop_assert_eq!(merged.into_iter().collect::<BTreeSet<_>>(), union);
        }
    }
}
