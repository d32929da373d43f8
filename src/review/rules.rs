//! What several lists of rules allow together: pure.
//!
//! Source: kubernetes/api `authorization/v1/types.go`, `ResourceRule` and `NonResourceRule`.

use serde_json::{Map, Value, json};

/// Rules of one answer at most; what is beyond is left out, as the answer is incomplete anyway.
const RULES_MAX: usize = 1000;

/// The fields of a rule that are lists; in each `*` stands for everything.
const RESOURCE: [&str; 3] = ["verbs", "apiGroups", "resources"];
const NON_RESOURCE: [&str; 2] = ["verbs", "nonResourceURLs"];

/// What every list of resource rules allows.
pub(super) fn intersect_resource(lists: &[Value]) -> Value {
    intersect(lists, |a, b| {
        let mut rule = common(a, b, &RESOURCE, |x, y| (x == "*" || x == y).then(|| y.to_owned()))?;
        // No names are all names.
        let names = match (words(a, "resourceNames"), words(b, "resourceNames")) {
            (none, some) | (some, none) if none.is_empty() => some,
            (a, b) => {
                let both: Vec<String> = a.into_iter().filter(|name| b.contains(name)).collect();
                if both.is_empty() {
                    return None;
                }
                both
            }
        };
        if !names.is_empty() {
            rule.insert("resourceNames".into(), json!(names));
        }
        Some(rule)
    })
}

/// What every list of rules for paths allows; in them a path may end in `*`.
pub(super) fn intersect_non_resource(lists: &[Value]) -> Value {
    intersect(lists, |a, b| {
        common(a, b, &NON_RESOURCE, |x, y| {
            (x == y || x.strip_suffix('*').is_some_and(|start| y.starts_with(start))).then(|| y.to_owned())
        })
    })
}

type Rule = Map<String, Value>;

fn intersect(lists: &[Value], both: impl Fn(&Rule, &Rule) -> Option<Rule>) -> Value {
    let mut lists =
        lists.iter().map(|list| list.as_array().into_iter().flatten().filter_map(Value::as_object).cloned().collect());
    let mut kept: Vec<Rule> = lists.next().unwrap_or_default();
    for list in lists {
        let list: Vec<Rule> = list;
        let mut next: Vec<Rule> = Vec::new();
        for (a, b) in kept.iter().flat_map(|a| list.iter().map(move |b| (a, b))) {
            if next.len() >= RULES_MAX {
                break;
            }
            next.extend(both(a, b).filter(|rule| !next.contains(rule)));
        }
        kept = next;
    }
    json!(kept)
}

/// The rule that both allow in these fields. `covers` gives what is common to two words, if the first covers the second.
fn common(a: &Rule, b: &Rule, fields: &[&str], covers: impl Fn(&str, &str) -> Option<String>) -> Option<Rule> {
    let mut rule = Rule::new();
    for field in fields {
        let mut both: Vec<String> = Vec::new();
        let (ours, theirs) = (words(a, field), words(b, field));
        for (x, y) in ours.iter().flat_map(|x| theirs.iter().map(move |y| (x, y))) {
            let word = covers(x, y).or_else(|| covers(y, x));
            both.extend(word.filter(|word| !both.contains(word)));
        }
        if both.is_empty() {
            return None;
        }
        rule.insert((*field).to_owned(), json!(both));
    }
    Some(rule)
}

fn words(rule: &Rule, field: &str) -> Vec<String> {
    rule.get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
        let mut rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    }

    #[test]
    fn only_what_all_members_allow_is_left() {
        let all = rule(&["*"], &["*"], &["*"], &[]);
        let read = rule(&["get", "list"], &["", "apps"], &["pods", "deployments"], &[]);
        let some = rule(&["get", "delete"], &[""], &["pods", "secrets"], &["a", "b"]);
        let of = |lists: &[Vec<&Value>]| intersect_resource(&lists.iter().map(|list| json!(list)).collect::<Vec<_>>());
        assert_eq!(of(&[vec![&all], vec![&read]]), json!([read]));
        assert_eq!(of(&[vec![&read], vec![&all]]), json!([read]));
        assert_eq!(of(&[vec![&read], vec![&some]]), json!([rule(&["get"], &[""], &["pods"], &["a", "b"])]));
        let b = rule(&["get"], &[""], &["pods"], &["b"]);
        assert_eq!(of(&[vec![&all], vec![&some], vec![&b]]), json!([b]));
        assert_eq!(of(&[vec![&some], vec![&rule(&["get"], &[""], &["pods"], &["c"])]]), json!([]));
        assert_eq!(of(&[vec![&read], vec![]]), json!([]));
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let path = |urls: &[&str]| json!([{"verbs": ["get"], "nonResourceURLs": urls}]);
        let of = |a: &[&str], b: &[&str]| intersect_non_resource(&[path(a), path(b)]);
        assert_eq!(of(&["*"], &["/api", "/api/*"]), path(&["/api", "/api/*"]));
        assert_eq!(of(&["/api/*", "/healthz"], &["/api/v1", "/livez"]), path(&["/api/v1"]));
        assert_eq!(of(&["/a"], &["/b"]), json!([]));
    }
}
