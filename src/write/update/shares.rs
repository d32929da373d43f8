//! The divided fields of a write: a new total changes the parts by the difference alone.

use serde_json::Value;

use crate::{
    config::{MemberName, Weight},
    placement::{
        division::tie,
        fold::FoldKind,
        merge::{Change, Step, What},
    },
    write::fleet::Key,
};

/// One divided field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divided {
    pub(super) path: &'static [&'static str],
    pub(super) pointer: &'static str,
    /// What Kubernetes makes of an unset one.
    pub(super) unset: u32,
}

/// `spec.replicas`.
pub(super) const REPLICAS: Divided = Divided { path: &["spec", "replicas"], pointer: "/spec/replicas", unset: 1 };

/// The divided fields of a kind.
pub(super) fn divided(key: &Key) -> &'static [Divided] {
    match FoldKind::of(&key.gvr.group, &key.gvr.resource) {
        FoldKind::Deployment | FoldKind::ReplicaSet | FoldKind::ReplicationController | FoldKind::StatefulSet => {
            &[REPLICAS]
        }
        _ => &[],
    }
}

/// What has become of a divided field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) field: Divided,
    pub(super) total: u32,
}

/// The total that a document asks for; `None` where it holds no number that Kubernetes would take.
pub(super) fn total(document: &Value, field: Divided) -> Option<u32> {
    match document.pointer(field.pointer) {
        None | Some(Value::Null) => Some(field.unset),
        Some(value) => {
            value.as_i64().and_then(|number| i32::try_from(number).ok()).and_then(|number| u32::try_from(number).ok())
        }
    }
}

/// The change of each part's share, in the order of the parts; `None` where it stays.
pub(super) fn changes(of: Total, parts: &[(&MemberName, Weight, u32)], uid: &str) -> Vec<Option<Change>> {
    let at = || of.field.path.iter().map(|name| Step::Field((*name).to_owned())).collect::<Vec<_>>();
    let shares = redivide(of.total, parts, uid);
    let change = |(old, new): (u32, u32)| Change {
        at: at(),
        what: What::Value { old: Some(old.into()), new: Some(new.into()) },
    };
    parts.iter().zip(shares).map(|((_, _, old), new)| (*old != new).then(|| change((*old, new)))).collect()
}

/// Divides what has become `total` over parts that have so much: only the difference moves.
fn redivide(total: u32, parts: &[(&MemberName, Weight, u32)], uid: &str) -> Vec<u32> {
    let mut shares: Vec<u32> = parts.iter().map(|(_, _, share)| *share).collect();
    let all_zero = parts.iter().all(|(_, weight, _)| weight.0 == 0);
    let weight =
        |at: usize| -> u128 { if all_zero { 1 } else { parts.get(at).map_or(0, |(_, weight, _)| weight.0.into()) } };
    let tied = |at: usize| parts.get(at).map_or(0, |(member, ..)| tie(uid, member));
    loop {
        let sum: u64 = shares.iter().copied().map(u64::from).sum();
        let next = match u64::from(total).cmp(&sum) {
            std::cmp::Ordering::Equal => return shares,
            std::cmp::Ordering::Greater => (0..shares.len()).filter(|at| weight(*at) > 0).max_by(|a, b| {
                let quotient = |at: usize| 2 * u128::from(shares.get(at).copied().unwrap_or(0)) + 1;
                (weight(*a) * quotient(*b)).cmp(&(weight(*b) * quotient(*a))).then(tied(*a).cmp(&tied(*b)))
            }),
            std::cmp::Ordering::Less => {
                (0..shares.len()).filter(|at| shares.get(*at).is_some_and(|n| *n > 0)).min_by(|a, b| {
                    let quotient = |at: usize| 2 * u128::from(shares.get(at).copied().unwrap_or(0)) - 1;
                    (weight(*a) * quotient(*b)).cmp(&(weight(*b) * quotient(*a))).then(tied(*a).cmp(&tied(*b)))
                })
            }
        };
        let grows = u64::from(total) > sum;
        match next.and_then(|at| shares.get_mut(at)) {
            Some(share) if grows => *share += 1,
            Some(share) => *share -= 1,
            None => return shares,
        }
    }
}
