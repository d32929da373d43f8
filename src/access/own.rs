//! Who may use what kubefold itself tells and does. No member can allow that: it is about all of them.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::{access::Who, config::OwnRights};

/// Whoever may do everything in every member.
pub const MASTERS: &str = "system:masters";
/// Whoever may see what kubefold tells of itself. Only its own authority and its token file name groups that begin so.
const VIEWERS: &str = "kubefold:viewers";
/// Whoever may use what kubefold does by itself.
const ADMINS: &str = "kubefold:admins";

/// What of kubefold's own somebody wants to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Metrics, status.
    View,
    /// Plans.
    Administer,
}

impl Own {
    /// The group that may.
    pub fn group(self) -> &'static str {
        match self {
            Self::View => VIEWERS,
            Self::Administer => ADMINS,
        }
    }
}

/// The rights to kubefold's own, as configured.
#[derive(Debug, Default)]
pub(super) struct Policy(ArcSwap<OwnRights>);

impl Policy {
    pub(super) fn configure(&self, rights: &OwnRights) {
        self.0.store(Arc::new(rights.clone()));
    }

    pub(super) fn allows(&self, who: Who<'_>, own: Own) -> bool {
        allows(&self.0.load(), who, own)
    }
}

/// Says whether somebody may use it, by these rights. Whoever acts as somebody else has none of them.
pub fn allows(rights: &OwnRights, who: Who<'_>, own: Own) -> bool {
    if who.is_of(&[MASTERS, ADMINS, own.group()]) {
        return true;
    }
    // A member's word about who somebody is says nothing about kubefold.
    if who.through.is_some() || who.caller.domain.is_some() {
        return false;
    }
    let has = |subjects: &crate::config::OwnSubjects| {
        subjects.users.contains(&who.caller.user)
            || subjects.groups.iter().any(|group| who.caller.groups.contains(group))
    };
    has(&rights.admins) || (own == Own::View && has(&rights.viewers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OwnSubjects;
    use kubefold_serving::caller::Caller;

    fn caller(user: &str, group: &str) -> Caller {
        Caller { user: user.to_owned(), groups: vec![group.to_owned()], ..Caller::default() }
    }

    #[test]
    fn groups_of_single_sign_on_get_rights_by_the_configuration() {
        let policy = Policy::default();
        let both = |caller: &Caller| {
            let who = Who { caller, through: None };
            [Own::View, Own::Administer].map(|own| policy.allows(who, own))
        };
        assert_eq!(both(&caller("jane", "oidc:platform")), [false, false]);
        let subjects =
            |user: &str, group: &str| OwnSubjects { users: vec![user.to_owned()], groups: vec![group.to_owned()] };
        policy
            .configure(&OwnRights { admins: subjects("root", "oidc:platform"), viewers: subjects("prom", "oidc:dev") });
        for (one, wanted) in [
            (caller("jane", "oidc:platform"), [true, true]),
            (caller("root", "x"), [true, true]),
            (caller("ann", "oidc:dev"), [true, false]),
            (caller("prom", "x"), [true, false]),
            (caller("eve", "x"), [false, false]),
            (caller("eve", VIEWERS), [true, false]),
            (caller("eve", ADMINS), [true, true]),
            (caller("eve", MASTERS), [true, true]),
            (Caller { domain: Some("east".to_owned()), ..caller("root", "oidc:platform") }, [false, false]),
        ] {
            assert_eq!(both(&one), wanted, "{one:?}");
        }
    }
}
