//! `carry` of a policy: which kinds of objects are carried along with the workloads that name them.

use serde_saphyr::Spanned;

use crate::config::{
    PolicyProblem, Problem,
    checked::{Checked, fault},
};

/// A kind of objects that pods read, and that can be carried along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum CarriedKind {
    ConfigMap,
    Secret,
}

/// Reads the list; each kind counts once.
pub(super) fn carried(raw: &[Spanned<String>]) -> Checked<Vec<CarriedKind>> {
    let mut kinds = Vec::new();
    for at in raw {
        let kind = match at.value.as_str() {
            "ConfigMap" => CarriedKind::ConfigMap,
            "Secret" => CarriedKind::Secret,
            other => return fault(at, Problem::Policy(PolicyProblem::Carry { kind: other.to_owned() })),
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}
