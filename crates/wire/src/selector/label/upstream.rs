//! What a member is asked for in place of a label selector of the fleet.

use super::{LabelSelector, Labels, Operator, Requirement, Value};
use crate::selector::CLUSTER_LABEL;

impl LabelSelector {
    /// A selector that every member understands, and that leaves out nothing that this one selects: no member knows the
    /// virtual label, nor whose a value with a member behind it is.
    pub fn upstream(&self) -> String {
        let terms: Vec<String> = self.requirements.iter().filter_map(Requirement::upstream).collect();
        terms.join(",")
    }

    /// A selector that selects in one member just what this one selects there. `None`: nothing.
    pub fn in_member(&self, member: &str) -> Option<String> {
        let terms: Option<Vec<Option<String>>> = self.requirements.iter().map(|one| one.in_member(member)).collect();
        Some(terms?.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

impl Requirement {
    /// `None`: nothing in the member matches. `Some(None)`: everything does.
    fn in_member(&self, member: &str) -> Option<Option<String>> {
        if self.key == CLUSTER_LABEL {
            return self.matches(&Labels::new(), &[member]).then_some(None);
        }
        let theirs = |value: &&Value| value.member.as_deref().is_none_or(|of| of == member);
        let values = self.values.iter().filter(theirs).cloned().collect();
        let own = Self { key: self.key.clone(), operator: self.operator, values };
        match (&own.operator, own.values.as_slice()) {
            (Operator::In, []) => None,
            (Operator::NotIn, []) => Some(None),
            (Operator::In, [one]) => Some(Some(format!("{}={}", own.key, one.text))),
            _ => Some(own.written(true)),
        }
    }

    fn upstream(&self) -> Option<String> {
        if self.key == CLUSTER_LABEL {
            return None;
        }
        self.written(false)
    }

    /// The requirement without members. Those that values are bound to count for exclusion if `all` do.
    fn written(&self, all: bool) -> Option<String> {
        let key = &self.key;
        let texts = |bound: bool| -> Vec<&str> {
            let values = self.values.iter().filter(|value| bound || value.member.is_none());
            values.map(|value| value.text.as_str()).collect()
        };
        Some(match self.operator {
            Operator::In => format!("{key} in ({})", texts(true).join(",")),
            Operator::NotIn => {
                let texts = texts(all);
                // `notin ()` would be about the empty value.
                if texts.is_empty() {
                    return None;
                }
                format!("{key} notin ({})", texts.join(","))
            }
            Operator::Exists => key.clone(),
            Operator::NotExists => format!("!{key}"),
            Operator::Greater => format!("{key}>{}", texts(true).first()?),
            Operator::Less => format!("{key}<{}", texts(true).first()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_asked_for_no_less_than_is_selected() {
        for (selector, asked) in [
            ("", ""),
            ("a=b", "a in (b)"),
            ("a=", "a in ()"),
            ("a in (b,c@east),!d,e", "a in (b,c),!d,e"),
            ("a notin (b,c@east)", "a notin (b)"),
            ("a!=c@east,x>5,y<7", "x>5,y<7"),
            ("kubefold.io/cluster in (east),a=b", "a in (b)"),
            ("kubefold.io/cluster=east", ""),
        ] {
            let parsed = LabelSelector::parse(selector, |name| name == "east").unwrap();
            assert_eq!(parsed.upstream(), asked, "{selector}");
            let again = LabelSelector::parse(asked, |_| false).unwrap();
            assert_eq!(again.upstream(), asked, "{asked}");
        }
    }
    #[test]
    fn one_member_is_asked_for_what_is_selected_there() {
        for (selector, east, west) in [
            ("", Some(""), Some("")),
            ("a=b,!c,d in (e,f),g>5", Some("a=b,!c,d in (e,f),g>5"), Some("a=b,!c,d in (e,f),g>5")),
            ("a=b@east", Some("a=b"), None),
            ("a==b@west,x", None, Some("a=b,x")),
            ("a!=b@east", Some("a notin (b)"), Some("")),
            ("a in (b@east,c)", Some("a in (b,c)"), Some("a=c")),
            ("a notin (b@east,c@east)", Some("a notin (b,c)"), Some("")),
            ("kubefold.io/cluster=east", Some(""), None),
            ("kubefold.io/cluster!=east,a=b", None, Some("a=b")),
            ("kubefold.io/cluster in (east,west)", Some(""), Some("")),
            ("kubefold.io/cluster notin (west)", Some(""), None),
            ("kubefold.io/cluster", Some(""), Some("")),
            ("!kubefold.io/cluster", None, None),
        ] {
            let parsed = LabelSelector::parse(selector, |name| name == "east" || name == "west").unwrap();
            assert_eq!(parsed.in_member("east").as_deref(), east, "{selector}");
            assert_eq!(parsed.in_member("west").as_deref(), west, "{selector}");
        }
    }
}
