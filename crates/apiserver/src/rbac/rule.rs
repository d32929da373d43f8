//! Rules of roles: what one allows, and what of one is covered by others.
//!
//! Source: kubernetes `pkg/apis/rbac/v1/evaluation_helpers.go`, `pkg/registry/rbac/validation/policy_compact.go`;
//! component-helpers `auth/rbac/validation/policy_comparator.go`.

use std::{collections::BTreeSet, fmt};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::rbac::attributes::{Attributes, On};
use kubefold_wire::{golang::Quoted, matching::nullable};

/// Stands for every verb, API group, resource and URL.
const ALL: &str = "*";
/// Combinations of verb, group, resource and name that rules are taken apart into: a role of a megabyte has billions.
const PARTS_MAX: usize = 1 << 16;

/// Rules that are too many to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the rules have more than {PARTS_MAX} combinations of verb, group, resource and name; divide them among several roles"
)]
pub struct TooManyParts;

/// `PolicyRule` of `rbac.authorization.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Such as `get`; `*` is every verb.
    #[serde(deserialize_with = "nullable")]
    pub verbs: Vec<String>,
    /// Empty is core; `*` is every group.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Such as `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Only objects of these names; none is every name.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are no resources. `*` at the end stands for whatever follows.
    #[serde(rename = "nonResourceURLs", deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == wanted)
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == ALL || one == wanted)
}

/// Says whether a URL of a rule takes a path.
fn url_takes(url: &str, path: &str) -> bool {
    url == path || (url.ends_with(ALL) && path.starts_with(url.trim_end_matches('*')))
}

impl Rule {
    /// Says whether it allows a request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, attributes.verb) {
            return false;
        }
        match attributes.on {
            On::Path(path) => self.non_resource_urls.iter().any(|url| url_takes(url, path)),
            On::Resource(of) => {
                has_or_all(&self.api_groups, of.group)
                    && self.resources.iter().any(|one| resource_takes(one, of.resource, of.subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, of.name))
            }
        }
    }

    /// How many parts it has.
    fn count(&self) -> usize {
        let objects =
            [&self.api_groups, &self.resources].iter().fold(1_usize, |count, list| count.saturating_mul(list.len()));
        let things =
            objects.saturating_mul(self.resource_names.len().max(1)).saturating_add(self.non_resource_urls.len());
        things.saturating_mul(self.verbs.len())
    }

    /// The same as rules of at most one verb, group, resource, name or URL each.
    fn parts(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = || Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part());
                    }
                    parts.extend(self.resource_names.iter().map(|name| Self { resource_names: one(name), ..part() }));
                }
            }
        }
        for url in &self.non_resource_urls {
            let of_url = |verb| Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() };
            parts.extend(self.verbs.iter().map(of_url));
        }
        parts
    }

    /// Says whether it allows all that a part of a rule allows.
    fn covers(&self, part: &Self) -> bool {
        let names = &self.resource_names;
        part.verbs.iter().all(|verb| has_or_all(&self.verbs, verb))
            && part.api_groups.iter().all(|group| has_or_all(&self.api_groups, group))
            && part.resources.iter().all(|resource| self.covers_resource(resource))
            && part.non_resource_urls.iter().all(|path| self.non_resource_urls.iter().any(|url| url_takes(url, path)))
            && (names.is_empty()
                || (!part.resource_names.is_empty() && part.resource_names.iter().all(|name| has(names, name))))
    }

    fn covers_resource(&self, wanted: &str) -> bool {
        has_or_all(&self.resources, wanted)
            || wanted.split_once('/').is_some_and(|(_, below)| {
                self.resources.iter().any(|one| one.strip_prefix("*/").is_some_and(|rest| rest == below))
            })
    }

    /// The group, the resource and perhaps a name, where it says nothing else but verbs.
    fn simple(&self) -> Option<Simple<'_>> {
        match (self.api_groups.as_slice(), self.resources.as_slice(), self.resource_names.as_slice()) {
            ([group], [resource], [] | [_]) if self.non_resource_urls.is_empty() => {
                Some(Simple { group, resource, name: self.resource_names.first().map(String::as_str) })
            }
            _ => None,
        }
    }
}

/// What a rule is about that is about one thing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Simple<'a> {
    group: &'a str,
    resource: &'a str,
    name: Option<&'a str>,
}

/// Says whether a resource of a rule takes one of a request.
fn resource_takes(of_rule: &str, resource: &str, subresource: &str) -> bool {
    if of_rule == ALL {
        return true;
    }
    if subresource.is_empty() {
        return of_rule == resource;
    }
    let of_one = of_rule.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/'));
    let of_all = of_rule.strip_prefix("*/");
    of_one == Some(subresource) || of_all == Some(subresource)
}

/// What of some rules is not covered by others, in parts of one verb each.
///
/// Errors: the rules have too many parts.
pub fn uncovered(held: &[Rule], wanted: &[Rule]) -> Result<Vec<Rule>, TooManyParts> {
    let count = wanted.iter().map(Rule::count).fold(0, usize::saturating_add);
    if count > PARTS_MAX {
        return Err(TooManyParts);
    }
    let parts = wanted.iter().flat_map(Rule::parts);
    Ok(parts.filter(|part| !held.iter().any(|rule| rule.covers(part))).collect())
}

/// Rules as a refusal lists them: the verbs of one resource together, a line each.
pub(super) fn listed(parts: &[Rule]) -> String {
    let mut rules: Vec<Rule> = Vec::new();
    let mut places: HashMap<Simple<'_>, usize> = HashMap::new();
    for part in parts {
        let place = part.simple().map(|of| *places.entry(of).or_insert(rules.len()));
        match place.and_then(|place| rules.get_mut(place)) {
            Some(rule) => rule.verbs.extend(part.verbs.iter().cloned()),
            None => rules.push(part.clone()),
        }
    }
    let lines: BTreeSet<String> = rules.iter().map(|rule| Shown(rule).to_string()).collect();
    Vec::from_iter(lines).join("\n")
}

/// Texts as Go prints a slice of strings with `%q`.
pub(super) fn quoted_list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| Quoted(text).to_string()).collect();
    format!("[{}]", texts.join(" "))
}

/// A rule in a refusal.
struct Shown<'a>(&'a Rule);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.0.api_groups),
            ("Resources", &self.0.resources),
            ("NonResourceURLs", &self.0.non_resource_urls),
            ("ResourceNames", &self.0.resource_names),
            ("Verbs", &self.0.verbs),
        ];
        let said = fields.iter().filter(|(_, list)| !list.is_empty());
        let said: Vec<String> = said.map(|(name, list)| format!("{name}:{}", quoted_list(list))).collect();
        write!(f, "{{{}}}", said.join(", "))
    }
}
