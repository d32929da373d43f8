//! Field selectors as one member understands them: values that name a member are kubefold's own.

use crate::{config::MemberName, store::Naming};

/// A field selector, which was parsed before, for one member. `None`: nothing in that member can match.
pub fn fields(selector: &str, naming: &Naming, member: &MemberName) -> Option<String> {
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
