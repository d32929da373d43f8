//! What is allowed to differ: rules here, explained to users in `docs/differences.md`, and for the embedded server in
//! `docs/embedded-differences.md`, under a heading `### <id>` each.

mod embedded;
mod rules;

use std::collections::BTreeSet;

use crate::{check::Check, seen::Mismatch};

/// One difference: in which requests it shows, and in what of their answers.
struct Rule {
    id: &'static str,
    /// Any of these in a request's label; a `^` stands for its beginning, a `$` for its end.
    requests: &'static [&'static str],
    /// Any of these at the beginning of an aspect; empty is any.
    aspects: &'static [&'static str],
    /// In what the member says there; empty is anything.
    said: &'static str,
    /// In what the fleet says there; empty is anything.
    told: &'static str,
}

/// The ids that users can read about, and those that have shown.
pub(crate) struct Differences {
    page: &'static str,
    rules: &'static [Rule],
    /// Those of another page, which hold here, too.
    shared: &'static [Rule],
    explained: BTreeSet<String>,
    shown: BTreeSet<&'static str>,
}

impl Differences {
    /// Those of kubefold.
    pub(crate) fn of_kubefold() -> Self {
        Self::read("docs/differences.md", rules::RULES, &[])
    }

    /// Those of the embedded server, which has many of kubefold's, too.
    pub(crate) fn of_embedded() -> Self {
        Self::read("docs/embedded-differences.md", embedded::RULES, rules::RULES)
    }

    fn read(page: &'static str, rules: &'static [Rule], shared: &'static [Rule]) -> Self {
        let text = std::fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))).expect(page);
        let ids: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
        let explained: BTreeSet<_> = ids.iter().cloned().collect();
        assert_eq!(explained.len(), ids.len(), "an id twice in {page}");
        Self { page, rules, shared, explained, shown: BTreeSet::new() }
    }

    /// Notes that a mismatch is declared; says whether it is.
    pub(crate) fn allow(&mut self, check: &Check, mismatch: &Mismatch) -> bool {
        let label = format!("^{}$", check.label());
        let allows = |rule: &&Rule| {
            rule.requests.iter().any(|part| label.contains(part))
                && (rule.aspects.is_empty() || rule.aspects.iter().any(|aspect| mismatch.aspect.starts_with(aspect)))
                && mismatch.said.contains(rule.said)
                && mismatch.told.contains(rule.told)
        };
        let ids: Vec<_> = self.rules.iter().filter(allows).map(|rule| rule.id).collect();
        self.shown.extend(&ids);
        !ids.is_empty() || self.shared.iter().any(|rule| allows(&rule))
    }

    /// What the page and the checks say of different differences: every one is explained, and still there.
    pub(crate) fn against(&self) -> Vec<String> {
        let ruled: BTreeSet<&str> = self.rules.iter().map(|rule| rule.id).collect();
        let explained: BTreeSet<&str> = self.explained.iter().map(String::as_str).collect();
        let unknown = ruled.difference(&explained).map(|id| format!("{} does not explain {id:?}", self.page));
        let unshown = explained.iter().filter(|id| !self.shown.contains(*id));
        unknown.chain(unshown.map(|id| format!("no check shows the difference {id:?}"))).collect()
    }
}
