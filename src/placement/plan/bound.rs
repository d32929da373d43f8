//! How much of an object one member takes.

use crate::{
    config::Weight,
    placement::{
        divided::Division,
        plan::{order::Order, taker::Taker},
    },
};

/// How many ordinals each part of a StatefulSet has to itself.
pub(super) const ORDINAL_STRIDE: u32 = 1000;

/// What a member takes at most, with its words.
pub(super) struct Bound {
    pub(super) weight: Weight,
    pub(super) max: Option<u32>,
    pub(super) why: String,
}

/// What a member takes of an object.
pub(super) fn bound(order: &Order<'_>, taker: &Taker<'_>) -> Bound {
    let mut bound =
        Bound { weight: taker.weight(), max: taker.terms.max, why: "it takes all that it is given".to_owned() };
    if let Some(max) = bound.max {
        bound.why = format!("policy {} places at most {max} there", order.policy.name.as_deref().unwrap_or_default());
    } else if bound.weight.0 == 0 {
        bound.why = "its weight is 0".to_owned();
    }
    let mut cap = |max: u32, why: String| {
        if bound.max.is_none_or(|now| max < now) {
            (bound.max, bound.why) = (Some(max), why);
        }
    };
    if order.wholes.division == Some(Division::Ordinals) {
        cap(ORDINAL_STRIDE, format!("a part of a StatefulSet has at most {ORDINAL_STRIDE} replicas"));
    }
    if order.policy.weights.are_measured() {
        let capacity = taker.candidate.capacity.unwrap_or_default();
        let fits = capacity.replicas;
        cap(fits, format!("{fits} fit on its nodes"));
        bound.weight = Weight(capacity.weight(order.policy.weights));
    }
    bound
}
