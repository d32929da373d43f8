//! `docs/differences.md`: every difference has a heading `### <id>`.

use std::collections::BTreeSet;

use crate::check::Check;

/// The ids that users can read about.
pub(crate) struct Differences(BTreeSet<String>);

impl Differences {
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/differences.md"));
        let text = text.expect("docs/differences.md");
        let ids: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
        let unique: BTreeSet<_> = ids.iter().cloned().collect();
        assert_eq!(unique.len(), ids.len(), "an id twice in docs/differences.md");
        Self(unique)
    }

    /// What the page and the checks say of different differences.
    pub(crate) fn against(&self, checks: &[Check]) -> Vec<String> {
        let shown: BTreeSet<_> = checks.iter().flat_map(Check::declared).map(str::to_owned).collect();
        let unknown = shown.difference(&self.0).map(|id| format!("docs/differences.md does not explain {id:?}"));
        let unshown = self.0.difference(&shown).map(|id| format!("no check shows the difference {id:?}"));
        let unshown = unshown.filter(|_| std::env::var_os("CONTRACT").is_none());
        unknown.chain(unshown).collect()
    }
}
