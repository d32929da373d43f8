//! Label selectors of the fleet view: Kubernetes' own, the virtual label that names an object's member, and values that
//! are bound to a member (`value@member`).

use kubefold_wire::{
    options::Options,
    resource::Gvr,
    selector::{LabelSelector, Labels, Operator, Requirement, SelectorError},
    status::Status,
};

/// The virtual label that names an object's member.
pub const CLUSTER_LABEL: &str = "kubefold.io/cluster";

/// Options of a list or watch of the fleet view.
pub type ListOptions = Options<FleetSelector>;

/// Reads the query of a list or watch, as [`Options::parse`] does. `is_member` says which names are members.
///
/// Errors: as [`Options::parse`].
pub fn list_options(
    query: &str,
    watch: bool,
    gvr: &Gvr,
    is_member: impl Fn(&str) -> bool,
) -> Result<ListOptions, Status> {
    Options::parse_with(query, watch, gvr, |text| FleetSelector::parse(text, is_member))
}

/// A label selector of the fleet view. All terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSelector {
    terms: Vec<Term>,
}

/// A requirement of labels, some of whose values are bound to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    /// The values are without their members.
    requirement: Requirement,
    /// For each value its member. Empty if no value is bound.
    members: Vec<Option<String>>,
}

impl FleetSelector {
    /// Parses a label selector. `is_member` says which names after a value's last `@` are members.
    ///
    /// Errors: in Kubernetes' own words.
    pub fn parse(text: &str, is_member: impl Fn(&str) -> bool) -> Result<Self, SelectorError> {
        let parsed = LabelSelector::parse_extended(text, |value| split(value, &is_member).0)?;
        let terms = parsed.into_requirements().into_iter().map(|requirement| Term::new(requirement, &is_member));
        Ok(Self { terms: terms.collect() })
    }

    /// Says whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Says whether an object that this member alone holds may match, whatever its labels are.
    pub fn may_match(&self, member: &str) -> bool {
        self.terms.iter().filter(|term| term.is_virtual()).all(|term| term.names_one_of(&[member]))
    }

    /// Matches an object by the text of its labels (`None` or `null` where it has none) and the members that hold it.
    pub fn matches(&self, labels: Option<&str>, members: &[&str]) -> bool {
        if self.is_everything() {
            return true;
        }
        let labels = labels.map(Labels::read).unwrap_or_default();
        self.terms.iter().all(|term| term.matches(&labels, members))
    }

    /// A selector that every member understands, and that leaves out nothing that this one selects: no member knows the
    /// virtual label, nor whose a value with a member behind it is.
    pub fn upstream(&self) -> String {
        let terms: Vec<String> = self.terms.iter().filter_map(Term::upstream).collect();
        terms.join(",")
    }

    /// A selector that selects in one member just what this one selects there. `None`: nothing.
    pub fn in_member(&self, member: &str) -> Option<String> {
        let terms: Option<Vec<Option<String>>> = self.terms.iter().map(|term| term.in_member(member)).collect();
        Some(terms?.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// A value without its member, and the member if it is bound to one.
fn split<'v>(value: &'v str, is_member: &impl Fn(&str) -> bool) -> (&'v str, Option<&'v str>) {
    match value.rsplit_once('@') {
        Some((text, member)) if is_member(member) => (text, Some(member)),
        _ => (value, None),
    }
}

impl Term {
    fn new(mut requirement: Requirement, is_member: &impl Fn(&str) -> bool) -> Self {
        let mut members = Vec::with_capacity(requirement.values.len());
        for value in &mut requirement.values {
            let (text, member) = split(value, is_member);
            let (text, member) = (text.len(), member.map(str::to_owned));
            value.truncate(text);
            members.push(member);
        }
        if members.iter().all(Option::is_none) {
            members.clear();
        }
        Self { requirement, members }
    }

    fn is_virtual(&self) -> bool {
        self.requirement.key == CLUSTER_LABEL
    }

    /// The member that a value is bound to.
    fn member_of(&self, at: usize) -> Option<&str> {
        self.members.get(at)?.as_deref()
    }

    /// Says whether a term about the virtual label holds for an object of these members.
    fn names_one_of(&self, members: &[&str]) -> bool {
        let named = || self.requirement.values.iter().any(|value| members.contains(&value.as_str()));
        match self.requirement.operator {
            Operator::In => named(),
            Operator::NotIn => !named(),
            Operator::Exists => true,
            Operator::NotExists | Operator::Greater | Operator::Less => false,
        }
    }

    fn matches(&self, labels: &Labels<'_>, members: &[&str]) -> bool {
        if self.is_virtual() {
            return self.names_one_of(members);
        }
        let label = labels.get(&self.requirement.key);
        let among =
            |label: &str| {
                self.requirement.values.iter().enumerate().any(|(at, value)| {
                    value == label && self.member_of(at).is_none_or(|member| members.contains(&member))
                })
            };
        match self.requirement.operator {
            Operator::In if !self.members.is_empty() => label.is_some_and(among),
            Operator::NotIn if !self.members.is_empty() => !label.is_some_and(among),
            _ => self.requirement.matches(label),
        }
    }

    /// `None`: nothing in the member matches. `Some(None)`: everything does.
    fn in_member(&self, member: &str) -> Option<Option<String>> {
        if self.is_virtual() {
            return self.names_one_of(&[member]).then_some(None);
        }
        let values = self.values(|of| of.is_none_or(|of| of == member));
        let key = &self.requirement.key;
        match (self.requirement.operator, values.as_slice()) {
            (Operator::In, []) => None,
            (Operator::NotIn, []) => Some(None),
            (Operator::In, [one]) => Some(Some(format!("{key}={one}"))),
            (operator, values) => Some(written(key, operator, values)),
        }
    }

    /// `None`: a member cannot be asked for less than everything.
    fn upstream(&self) -> Option<String> {
        if self.is_virtual() {
            return None;
        }
        let operator = self.requirement.operator;
        // What is left out in one member alone is not to be left out in all.
        let values = self.values(|of| operator != Operator::NotIn || of.is_none());
        written(&self.requirement.key, operator, &values)
    }

    /// The values whose member, or none, `takes` takes.
    fn values(&self, takes: impl Fn(Option<&str>) -> bool) -> Vec<&str> {
        let values = self.requirement.values.iter().enumerate();
        values.filter(|(at, _)| takes(self.member_of(*at))).map(|(_, value)| value.as_str()).collect()
    }
}

/// A requirement as text. `None`: everything meets it.
fn written(key: &str, operator: Operator, values: &[&str]) -> Option<String> {
    Some(match operator {
        Operator::In => format!("{key} in ({})", values.join(",")),
        // `notin ()` would be about the empty value.
        Operator::NotIn if values.is_empty() => return None,
        Operator::NotIn => format!("{key} notin ({})", values.join(",")),
        Operator::Exists => key.to_owned(),
        Operator::NotExists => format!("!{key}"),
        Operator::Greater => format!("{key}>{}", values.first()?),
        Operator::Less => format!("{key}<{}", values.first()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(selector: &str) -> Result<FleetSelector, SelectorError> {
        FleetSelector::parse(selector, |name| name == "east" || name == "west")
    }

    fn matches(selector: &str, labels: &str, members: &[&str]) -> bool {
        parse(selector).unwrap().matches(Some(labels), members)
    }

    #[test]
    fn the_virtual_label_and_values_bound_to_a_member() {
        assert!(matches("kubefold.io/cluster in (east,north)", "{}", &["east"]));
        assert!(matches("kubefold.io/cluster=west", "{}", &["east", "west"]));
        assert!(!matches("kubefold.io/cluster!=west", "{}", &["east", "west"]));
        assert!(matches("app=web@east", r#"{"app":"web"}"#, &["east"]));
        assert!(!matches("app=web@west", r#"{"app":"web"}"#, &["east"]));
        assert!(matches("app!=web@west", r#"{"app":"web"}"#, &["east"]));
        assert!(parse("a=b@nowhere").is_err() && parse("a=b@east@west").is_err());
        assert_eq!(
            parse("x>a@east").unwrap_err().to_string(),
            "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer"
        );
    }

    proptest! {
        /// One more requirement narrows what a selector matches by just that, and a member is asked for what is selected there.
        #[test]
        fn a_selector_selects_in_a_member_what_it_asks_the_member_for(text in "[ab]( in | notin |=|!=|)[(),ab@est!w ]{0,12}") {
            if let Ok(selector) = parse(&text) {
                let narrowed = parse(&format!("{text} ,zz"));
                for labels in ["{}", r#"{"a":"b"}"#, r#"{"a":"","b":"a"}"#, r#"{"b":"ab","zz":""}"#] {
                    for member in ["east", "west"] {
                        let matched = selector.matches(Some(labels), &[member]);
                        if let Ok(narrowed) = &narrowed {
                            prop_assert_eq!(narrowed.matches(Some(labels), &[member]), matched && labels.contains("zz"));
                        }
                        let asks = |text: &str| LabelSelector::parse(text).unwrap().matches(Some(labels));
                        prop_assert_eq!(selector.in_member(member).is_some_and(|text| asks(&text)), matched, "{}", text);
                        prop_assert!(!matched || asks(&selector.upstream()), "{}", text);
                    }
                }
            }
        }
    }

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
            let parsed = FleetSelector::parse(selector, |name| name == "east").unwrap();
            assert_eq!(parsed.upstream(), asked, "{selector}");
            let again = FleetSelector::parse(asked, |_| false).unwrap();
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
            let parsed = FleetSelector::parse(selector, |name| name == "east" || name == "west").unwrap();
            assert_eq!(parsed.in_member("east").as_deref(), east, "{selector}");
            assert_eq!(parsed.in_member("west").as_deref(), west, "{selector}");
        }
    }
}
