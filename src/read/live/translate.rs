//! Selectors as one member understands them: values that name a member, and the virtual label, are kubefold's own.

use crate::{config::MemberName, store::Naming, wire::selector::CLUSTER_LABEL};

/// A label selector, which was parsed before, for one member. `None`: nothing in that member can match.
pub(super) fn labels(selector: &str, naming: &Naming, member: &MemberName) -> Option<String> {
    let terms = requirements(selector).into_iter().map(|term| label_term(term, naming, member));
    let kept: Vec<String> = terms.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
    Some(kept.join(","))
}

/// The terms between commas outside of parentheses.
fn requirements(selector: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0_u32, 0, Vec::new());
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.extend(selector.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.extend(selector.get(start..));
    terms.into_iter().map(str::trim).filter(|term| !term.is_empty()).collect()
}

/// `Some(None)`: the term says nothing about this member's objects.
fn label_term(term: &str, naming: &Naming, member: &MemberName) -> Option<Option<String>> {
    let unchanged = Some(Some(term.to_owned()));
    let Some((key, is_in, values)) = label_values(term) else {
        return match term.trim_start_matches('!').trim() {
            CLUSTER_LABEL if term.starts_with('!') => None,
            CLUSTER_LABEL => Some(None),
            // `>` and `<` compare numbers, and a member's name is none.
            other if other.starts_with(CLUSTER_LABEL) => None,
            _ => unchanged,
        };
    };
    if key == CLUSTER_LABEL {
        return (values.contains(&member.as_str()) == is_in).then_some(None);
    }
    let own: Vec<&str> = values
        .iter()
        .filter_map(|value| match naming.split(value) {
            Some((own, of)) => (of == member).then_some(own),
            None => Some(*value),
        })
        .collect();
    if own == values {
        return unchanged;
    }
    match (own.as_slice(), is_in) {
        ([], true) => None,
        ([], false) => Some(None),
        ([one], true) => Some(Some(format!("{key}={one}"))),
        ([one], false) => Some(Some(format!("{key}!={one}"))),
        (several, true) => Some(Some(format!("{key} in ({})", several.join(",")))),
        (several, false) => Some(Some(format!("{key} notin ({})", several.join(",")))),
    }
}

/// Key, whether the value has to be among the values, and those. `None` for a term without values, and one that compares.
fn label_values(term: &str) -> Option<(&str, bool, Vec<&str>)> {
    if let Some((head, set)) = term.split_once('(') {
        let values = set.trim_end().trim_end_matches(')').split(',').map(str::trim).collect();
        let head = head.trim_end();
        return match head.strip_suffix("notin") {
            Some(key) => Some((key.trim(), false, values)),
            None => Some((head.strip_suffix("in")?.trim(), true, values)),
        };
    }
    let (key, is_in, value) = match term.split_once("!=") {
        Some((key, value)) => (key, false, value),
        None => term.split_once("==").or_else(|| term.split_once('=')).map(|(key, value)| (key, true, value))?,
    };
    Some((key.trim(), is_in, vec![value.trim()]))
}

/// A field selector, which was parsed before, for one member. `None`: nothing in that member can match.
pub(super) fn fields(selector: &str, naming: &Naming, member: &MemberName) -> Option<String> {
    let mut kept = Vec::new();
    for term in terms(selector) {
        let (field, operator, value) = split_field(term);
        match naming.split(value) {
            None => kept.push(term.to_owned()),
            Some((own, of)) if of == member => kept.push(format!("{field}{operator}{own}")),
            Some(_) if operator == "!=" => {}
            Some(_) => return None,
        }
    }
    Some(kept.join(","))
}

fn split_field(term: &str) -> (&str, &str, &str) {
    for operator in ["!=", "==", "="] {
        if let Some((field, value)) = term.split_once(operator) {
            return (field, operator, value);
        }
    }
    (term, "", "")
}

/// The terms between commas that no backslash stands before.
fn terms(selector: &str) -> Vec<&str> {
    let (mut escaped, mut start, mut terms) = (false, 0, Vec::new());
    for (at, c) in selector.char_indices() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            ',' if !escaped => {
                terms.extend(selector.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
        escaped = false;
    }
    terms.extend(selector.get(start..));
    terms.into_iter().filter(|term| !term.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Names;

    fn naming() -> Naming {
        let members = ["east", "west"].map(|name| MemberName::new(name).unwrap());
        Naming::of(Names::Suffixed, Vec::new(), members.to_vec())
    }

    fn in_each(of: fn(&str, &Naming, &MemberName) -> Option<String>, selector: &str) -> [Option<String>; 2] {
        let naming = naming();
        [0, 1].map(|at| of(selector, &naming, &naming.members()[at]))
    }

    fn both<'a>(east: impl Into<Option<&'a str>>, west: impl Into<Option<&'a str>>) -> [Option<String>; 2] {
        [east.into().map(str::to_owned), west.into().map(str::to_owned)]
    }

    #[test]
    fn label_values_that_name_a_member_are_that_members() {
        for (selector, east, west) in [
            ("", Some(""), Some("")),
            ("a=b,!c,d in (e, f),g>5", Some("a=b,!c,d in (e, f),g>5"), Some("a=b,!c,d in (e, f),g>5")),
            ("a=b@east", Some("a=b"), None),
            ("a==b@west,x", None, Some("a=b,x")),
            ("a!=b@east", Some("a!=b"), Some("")),
            ("a in (b@east,c)", Some("a in (b,c)"), Some("a=c")),
            ("a notin (b@east,c@east)", Some("a notin (b,c)"), Some("")),
            ("a=b@elsewhere", Some("a=b@elsewhere"), Some("a=b@elsewhere")),
        ] {
            assert_eq!(in_each(labels, selector), both(east, west), "{selector}");
        }
    }

    #[test]
    fn the_virtual_label_picks_members() {
        for (selector, east, west) in [
            ("kubefold.io/cluster=east", Some(""), None),
            ("kubefold.io/cluster!=east,a=b", None, Some("a=b")),
            ("kubefold.io/cluster in (east,west)", Some(""), Some("")),
            ("kubefold.io/cluster notin (west)", Some(""), None),
            ("kubefold.io/cluster", Some(""), Some("")),
            ("!kubefold.io/cluster", None, None),
            ("kubefold.io/cluster>1", None, None),
        ] {
            assert_eq!(in_each(labels, selector), both(east, west), "{selector}");
        }
    }

    #[test]
    fn field_values_that_name_a_member_are_that_members() {
        for (selector, east, west) in [
            ("metadata.name=a@east", Some("metadata.name=a"), None),
            (
                "metadata.name!=a@east,metadata.namespace=b",
                Some("metadata.name!=a,metadata.namespace=b"),
                Some("metadata.namespace=b"),
            ),
            ("metadata.name==a", Some("metadata.name==a"), Some("metadata.name==a")),
            (r"x=a\,b@east", Some(r"x=a\,b"), None),
        ] {
            assert_eq!(in_each(fields, selector), both(east, west), "{selector}");
        }
    }
}
