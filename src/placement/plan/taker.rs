//! Which members can take a part, and which of them comes first.

use crate::{
    config::{MemberName, Weight},
    placement::{
        divided::Value,
        division::tie,
        plan::order::{Candidate, Order, Standing, Target},
        policy::{Strategy, Terms, UNSCHEDULABLE},
    },
};
use kubefold_wire::{
    golang::Quoted,
    matching::{Taint, Toleration},
};

/// Why a member that does not let the caller create the object has no part.
pub(super) const NOT_ALLOWED: &str = "the caller may not create it there";

/// A member that can take a part.
#[derive(Clone)]
pub(super) struct Taker<'a> {
    pub(super) candidate: &'a Candidate,
    cluster_uid: &'a str,
    pub(super) terms: Terms,
    /// Why its part can only be made later.
    pub(super) behind: Option<String>,
}

impl Taker<'_> {
    pub(super) fn name(&self) -> &MemberName {
        &self.candidate.name
    }

    pub(super) fn weight(&self) -> Weight {
        self.terms.weight.unwrap_or(self.candidate.weight)
    }

    pub(super) fn target(&self, values: Vec<Value>, made: bool) -> Target {
        Target {
            member: self.candidate.name.clone(),
            cluster_uid: self.cluster_uid.to_owned(),
            values,
            made,
            behind: self.behind.clone(),
            overrides: self.terms.overrides.clone(),
            whole: None,
            why: None,
        }
    }
}

/// Why a member can take no part.
pub(super) struct Refusal {
    pub(super) why: String,
    /// It may when it is back.
    pub(super) down: bool,
}

/// A member that can take a part, perhaps `later`; or why it cannot.
pub(super) fn taker<'a>(
    order: &Order<'_>,
    strategy: Strategy,
    later: bool,
    candidate: &'a Candidate,
) -> Result<Taker<'a>, Refusal> {
    let terms = order.policy.terms(&candidate.name);
    let no = |why: String| Err(Refusal { why, down: false });
    if candidate.absent {
        return no("it is declared absent".to_owned());
    }
    if !candidate.serves_kind {
        return no("it does not serve the kind".to_owned());
    }
    if let Some(why) = terms.excluded {
        return no(why);
    }
    if !candidate.allowed {
        return no(NOT_ALLOWED.to_owned());
    }
    let lacks = lacks(order, strategy, candidate, &terms);
    let behind = match &candidate.standing {
        Standing::Down(why) if !later || lacks.is_some() => {
            return Err(Refusal { why: format!("it is down: {why}"), down: true });
        }
        Standing::Down(why) => Some(format!("it is down: {why}")),
        Standing::Ready | Standing::Unknown(_) => None,
    };
    if let Some(why) = lacks {
        return no(why);
    }
    let Some(cluster_uid) = &candidate.cluster_uid else {
        return Err(Refusal { why: "kubefold has not read which cluster it is".to_owned(), down: true });
    };
    if order.policy.weights.are_measured() && strategy == Strategy::Divide && candidate.capacity.is_none() {
        return Err(Refusal { why: "its free capacity is not known".to_owned(), down: true });
    }
    Ok(Taker { candidate, cluster_uid, terms, behind })
}

/// What keeps a part away from a member that answers.
fn lacks(order: &Order<'_>, strategy: Strategy, candidate: &Candidate, terms: &Terms) -> Option<String> {
    if !candidate.has_namespace {
        return Some("it does not hold the namespace".to_owned());
    }
    if !candidate.missing_owners.is_empty() {
        return Some(format!("it does not hold the owner {}", candidate.missing_owners.join(", ")));
    }
    if strategy == Strategy::One && !candidate.missing_claims.is_empty() {
        let claims: Vec<String> = candidate.missing_claims.iter().map(|claim| Quoted(claim).to_string()).collect();
        return Some(format!("it does not hold the claim {}, which its pods mount", claims.join(", ")));
    }
    if let Err(why) = &candidate.fits {
        return Some(why.to_string());
    }
    // What is everywhere and runs no pods (a ConfigMap) takes nothing that a taint keeps for others.
    let repelled = order.pod.is_some() || strategy != Strategy::Duplicate;
    let own: &[Toleration] = order.pod.map_or(&[], |pod| &pod.nodes.tolerations);
    let borne = |taint: &Taint| own.iter().chain(&order.policy.tolerations).any(|one| one.tolerates(taint));
    let taint = terms.taints.iter().find(|taint| repelled && !borne(taint))?;
    if taint.key == UNSCHEDULABLE {
        return Some("it is cordoned".to_owned());
    }
    Some(format!("it has the taint {}, which nothing tolerates", taint.text()))
}

/// Says whether a member does not draw an object: what came before it and belongs to it is elsewhere, or nowhere.
pub(super) fn draws_not(order: &Order<'_>, name: &MemberName) -> bool {
    let orphans = order.orphans.and_then(|orphans| orphans.shares.iter().max_by_key(|(_, share)| **share));
    order.drawn != Some(name) && orphans.is_none_or(|(holder, _)| holder != name)
}

/// Sorts by who is listed first: who is up, then who draws it, then the sticky member, then the largest.
pub(super) fn sort(order: &Order<'_>, takers: &mut [Taker<'_>], size: impl Fn(&Taker<'_>) -> u32) {
    takers.sort_by_key(|taker| {
        let name = &taker.candidate.name;
        let later = (taker.behind.is_some(), draws_not(order, name), order.sticky != Some(name));
        (later, std::cmp::Reverse((size(taker), taker.weight(), tie(order.uid, name))))
    });
}
