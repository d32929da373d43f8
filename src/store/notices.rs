//! Notices about a folded object: which parts are behind, which parts somebody changed, and which other placement has the
//! same name and is another's.

use std::{collections::HashSet, sync::Arc};

use crate::{
    config::MemberName,
    placement::fold::FoldKind,
    store::{
        audience::Audience,
        part::Part,
        sequencer::{MemberState, Sequencer},
    },
};
use kubefold_wire::golang::Quoted;

/// Annotation that names the members that an unfinished write has not reached.
pub(super) const BEHIND: &str = "kubefold.io/behind";
/// Annotation that names the members whose part was edited, deleted or restored by somebody.
pub(super) const DIFFERS: &str = "kubefold.io/differs";

/// Notices on one folded object. Lists of members are in configuration order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// An unfinished write has not reached these.
    pub behind: Vec<MemberName>,
    /// Somebody edited, deleted or restored these parts in their members.
    pub differs: Vec<MemberName>,
    /// These hold a younger placement of the name, whose parts are shown as member-local objects.
    pub others: Vec<MemberName>,
    /// It is a quota of several members that is not divided: what is `hard` holds in each.
    pub is_quota: bool,
}

impl Notices {
    /// What of it is about members that may be seen.
    #[must_use]
    pub fn told_to(mut self, audience: &Audience) -> Self {
        for members in [&mut self.behind, &mut self.differs, &mut self.others] {
            members.retain(|member| audience.sees_member(member));
        }
        self
    }

    /// Says whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The notices as people read them, about `what` of the plain name `name`.
    pub fn sentences(&self, what: &str, name: &str) -> Vec<String> {
        let mut out = Vec::new();
        let list = |members: &[MemberName]| members.iter().map(MemberName::as_str).collect::<Vec<_>>().join(", ");
        if !self.behind.is_empty() {
            out.push(format!(
                "{what} {name} is behind in member {}: an unfinished write has not reached it; kubefold goes on trying \
                 (see kubefold status)",
                list(&self.behind),
                name = Quoted(name)
            ));
        }
        if !self.differs.is_empty() {
            out.push(format!(
                "{what} {name} differs in member {}: its part there was edited, deleted or restored; kubefold repairs \
                 nothing unasked (see kubefold status)",
                list(&self.differs),
                name = Quoted(name)
            ));
        }
        for member in &self.others {
            out.push(format!(
                "member {member} holds a part of another, younger placement of {what} {}: it is shown as {name}@{member}", Quoted(name)));
        }
        if self.is_quota {
            out.push(format!(
                "{what} {name}: the hard limits apply in each member, not to the sum",
                name = Quoted(name)
            ));
        }
        out
    }
}

impl Sequencer {
    /// What is to be said of the object under a plain key.
    pub(super) fn notices(&self, key: &str) -> Notices {
        let Some(fold) = self.folds.get(key) else { return Notices::default() };
        let chosen = fold.chosen();
        let behind = self.behind_of(key, &chosen);
        let differs = match fold.shape(self.members_epoch) {
            Some(shape) if behind.is_empty() => shape.differs.clone(),
            None if behind.is_empty() => self.in_order(self.differing(&chosen)),
            _ => self.in_order(edited(&chosen, &behind)),
        };
        let summand = chosen.first().and_then(|home| home.summand.as_ref());
        let is_whole = || summand.is_none_or(|home| !home.has_whole());
        let is_quota = self.fold_kind() == FoldKind::ResourceQuota && chosen.len() > 1 && is_whole();
        Notices { behind, differs, others: self.in_order(fold.exposed().to_vec()), is_quota }
    }

    fn behind_of(&self, key: &str, chosen: &[&Arc<Part>]) -> Vec<MemberName> {
        let Some((uid, members)) = self.behind.get(key) else { return Vec::new() };
        let is_it = chosen
            .first()
            .is_some_and(|home| home.marker.as_ref().is_none_or(|marker| self.visible_uid(key, marker) == *uid));
        if is_it { self.in_order(members.clone()) } else { Vec::new() }
    }

    pub(super) fn in_order(&self, mut members: Vec<MemberName>) -> Vec<MemberName> {
        members.sort_by_key(|name| self.index_of(name).unwrap_or(usize::MAX));
        members.dedup();
        members
    }

    /// Parts that somebody touched, those that are gone included. While an unfinished write knows of parts that are not
    /// there, none counts as gone.
    pub(super) fn differing(&self, chosen: &[&Arc<Part>]) -> Vec<MemberName> {
        let mut out = edited(chosen, &[]);
        let Some((home, marker)) = chosen.first().and_then(|home| Some((home, home.marker.as_ref()?))) else {
            return out;
        };
        // A controller makes a child when and where it likes.
        if home.deleting || marker.is_child {
            return out;
        }
        // Those listed after them had a share of 0.
        let there: HashSet<&MemberName> = chosen.iter().map(|part| &part.member).collect();
        for (name, cluster) in marker.members.iter().take(marker.made) {
            // Of a member that has left, was never read, or is another cluster by now nothing is expected.
            let is_known = |member: &&MemberState| member.filled && !member.left && *member.cluster_uid == **cluster;
            let by_name = self.member(name).filter(is_known);
            let known = by_name.or_else(|| self.members.iter().find(is_known));
            out.extend(known.map(|member| &member.name).filter(|name| !there.contains(name)).cloned());
        }
        out
    }
}

/// Parts that are not what the home is, but for those that are behind. Shared objects are each member's own affair.
fn edited(chosen: &[&Arc<Part>], behind: &[MemberName]) -> Vec<MemberName> {
    let Some((home, others)) = chosen.split_first() else { return Vec::new() };
    if home.deleting || home.marker.as_ref().is_none_or(|marker| marker.is_child) {
        return Vec::new();
    }
    let is_edited = |part: &&&Arc<Part>| {
        let fingerprints = home.fingerprint.as_ref().zip(part.fingerprint.as_ref());
        part.deleting || is_unknown(part) || fingerprints.is_some_and(|(home, part)| home.differs(part))
    };
    let others = others.iter().filter(|part| !behind.contains(&part.member));
    let home = std::slice::from_ref(home).iter().filter(|home| is_unknown(home));
    home.chain(others.filter(is_edited)).map(|part| part.member.clone()).collect()
}

/// Somebody wrote a marker of a move that kubefold did not make.
fn is_unknown(part: &Part) -> bool {
    part.marker.as_ref().is_some_and(|marker| marker.is_unknown)
}
