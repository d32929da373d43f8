//! What a member is asked for in place of a label selector of the fleet.

use super::{LabelSelector, Operator, Requirement};
use crate::wire::selector::CLUSTER_LABEL;

impl LabelSelector {
    /// A selector that every member understands, and that leaves out nothing that this one selects: no member knows the
    /// virtual label, nor whose a value with a member behind it is.
    pub fn upstream(&self) -> String {
        let terms: Vec<String> = self.requirements.iter().filter_map(Requirement::upstream).collect();
        terms.join(",")
    }
}

impl Requirement {
    fn upstream(&self) -> Option<String> {
        if self.key == CLUSTER_LABEL {
            return None;
        }
        let key = &self.key;
        let texts = |bound: bool| -> Vec<&str> {
            let values = self.values.iter().filter(|value| bound || value.member.is_none());
            values.map(|value| value.text.as_str()).collect()
        };
        Some(match self.operator {
            Operator::In => format!("{key} in ({})", texts(true).join(",")),
            Operator::NotIn => {
                let texts = texts(false);
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
}
