//! What makes parts different, whichever policy places them: which objects, which members, and what is changed there.

use crate::config::{Alteration, Chosen, Match};

/// What makes parts different, whichever policy places them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideConfig {
    /// What people call it: `OverridePolicy shop/mirror`.
    pub name: String,
    /// It applies after those that are not.
    pub is_namespaced: bool,
    /// It applies to objects that one of these matches.
    pub matches: Vec<Match>,
    /// What it does, in order.
    pub rules: Vec<OverrideRule>,
}

/// What is different in some members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideRule {
    /// In these members.
    pub members: Chosen,
    /// What is changed, in order.
    pub alterations: Vec<Alteration>,
}
