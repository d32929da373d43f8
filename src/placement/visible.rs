//! Names of member-local objects as the fleet view shows them: `web-0@east`.

use crate::config::{Config, MemberName, Names};

/// How member-local objects are named in a fleet of these members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleNames {
    names: Names,
    /// In configuration order.
    members: Vec<MemberName>,
}

/// No name is visible as a member's.
impl Default for VisibleNames {
    fn default() -> Self {
        Self::of(Names::Suffixed, Vec::new())
    }
}

impl VisibleNames {
    /// Takes what the configuration says about names.
    pub fn new(config: &Config) -> Self {
        Self::of(config.names, config.members.iter().map(|member| member.name.clone()).collect())
    }

    /// Takes it in its parts.
    pub fn of(names: Names, members: Vec<MemberName>) -> Self {
        Self { names, members }
    }

    /// The members, in configuration order.
    pub fn members(&self) -> &[MemberName] {
        &self.members
    }

    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&MemberName> {
        self.members.iter().find(|member| member.as_str() == name)
    }

    /// Says whether member-local objects keep their own names.
    pub fn is_plain(&self) -> bool {
        self.names == Names::Plain
    }

    /// Splits `web-0@east` at its last `@` when a member's name follows.
    pub fn split<'a>(&self, visible: &'a str) -> Option<(&'a str, &MemberName)> {
        if self.is_plain() {
            return None;
        }
        let (own, member) = visible.rsplit_once('@')?;
        (!own.is_empty()).then_some(())?;
        Some((own, self.member(member)?))
    }
}
