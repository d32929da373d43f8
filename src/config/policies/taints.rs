//! Taints of members, and what policies tolerate.

use serde_saphyr::Spanned;

use super::refuse;
use crate::config::{
    MemberTaint, MemberToleration, PolicyProblem, Problem, TaintEffect,
    checked::{Checked, fault},
    raw::{RawTaint, RawToleration},
};
use kubefold_wire::names::{label_value, qualified_name};

/// Reads the taints of a member.
pub(in crate::config) fn taints(raw: &[Spanned<RawTaint>]) -> Checked<Vec<MemberTaint>> {
    let taint = |at: &Spanned<RawTaint>| {
        let RawTaint { key, value, effect } = &at.value;
        if !qualified_name(&key.value).is_empty() {
            return fault(key, Problem::LabelKey { key: key.value.clone() });
        }
        let value = match value {
            Some(at) if !label_value(&at.value).is_empty() => {
                return fault(at, Problem::LabelValue { key: key.value.clone(), value: at.value.clone() });
            }
            other => other.as_ref().map(|at| at.value.clone()).unwrap_or_default(),
        };
        let effect = effect.as_ref().map(named).transpose()?.unwrap_or(TaintEffect::NoSchedule);
        Ok(MemberTaint { key: key.value.clone(), value, effect })
    };
    raw.iter().map(taint).collect()
}

fn named(at: &Spanned<String>) -> Checked<TaintEffect> {
    match TaintEffect::named(&at.value) {
        Some(effect) => Ok(effect),
        None => refuse(at, PolicyProblem::Effect { effect: at.value.clone() }),
    }
}

pub(super) fn toleration(at: &Spanned<RawToleration>) -> Checked<MemberToleration> {
    let RawToleration { key, operator, value, effect, toleration_seconds } = &at.value;
    let effect = effect.as_ref().map(named).transpose()?;
    // As in a pod: of a taint that nothing is evicted for, there is no time.
    if let Some(at) = toleration_seconds.as_ref().filter(|_| effect != Some(TaintEffect::NoExecute)) {
        return refuse(at, PolicyProblem::TolerationSeconds);
    }
    let exists = match operator.as_ref().map(|at| at.value.as_str()) {
        None | Some("Equal") => false,
        Some("Exists") => true,
        Some(other) => return refuse(at, PolicyProblem::Operator { operator: other.to_owned() }),
    };
    // As Kubernetes has it: `Equal` without a value has the taint without one; `Exists` has none.
    let value = match (exists, value) {
        (true, Some(value)) => return refuse(value, PolicyProblem::ExistsValue),
        (true, None) => None,
        (false, value) => Some(value.as_ref().map(|at| at.value.clone()).unwrap_or_default()),
    };
    let seconds = toleration_seconds.as_ref().map(|at| at.value);
    match key {
        Some(key) if !qualified_name(&key.value).is_empty() => fault(key, Problem::LabelKey { key: key.value.clone() }),
        None if !exists => refuse(at, PolicyProblem::NoKey),
        key => Ok(MemberToleration { key: key.as_ref().map(|at| at.value.clone()), value, effect, seconds }),
    }
}
