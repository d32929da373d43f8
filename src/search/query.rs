//! What is searched for, as one typed value.

use std::{borrow::Cow, collections::HashSet, sync::LazyLock};

use crate::search::{Facts, FieldTerm, Order, OrderBy, OrderField, Page, facts::first, time};
use kubefold_wire::{
    locate::{self, Paths},
    resource::Gvr,
    selector::{Labels, Operator, Requirement, text_of},
};

/// A search over rows: all conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The members.
    pub clusters: Vec<Condition>,
    /// The namespaces; a cluster-scoped object has none, and so is in none.
    pub namespaces: Vec<Condition>,
    /// The objects' own names.
    pub names: Vec<Condition>,
    /// Texts that each stand somewhere in the name, without regard to ASCII case.
    pub fuzzy: Vec<String>,
    /// Who controls them.
    pub owner: Option<Owner>,
    /// When they were created; of what was [deleted](Self::deleted), when that was.
    pub created: Created,
    /// What was deleted is looked for, in SQL alone; and not what exists.
    pub deleted: bool,
    /// Their labels, as Kubernetes selects by them.
    pub labels: Vec<Requirement>,
    /// Their other fields.
    pub fields: Vec<FieldTerm>,
    /// The order.
    pub order: Order,
    /// Which of them.
    pub page: Page,
    /// Only the metadata of each is wanted.
    pub only_metadata: bool,
}

/// A condition of one text. It is compared as a label is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// How; never [`Operator::Greater`] or [`Operator::Less`].
    pub operator: Operator,
    /// With what.
    pub values: Vec<String>,
}

/// When objects were created, or deleted. What has no such time is in no such range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// At this time or later. Units: microseconds of Unix time.
    pub since: Option<i64>,
    /// Before this time. Units: microseconds of Unix time.
    pub before: Option<i64>,
}

/// An owner, and how far above its objects it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Who it is.
    pub by: OwnerBy,
    /// 0: it controls the objects. 1: it controls what controls them, and so on.
    pub seniority: u32,
}

/// Who an owner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerBy {
    /// By its UID, in any member.
    Uid(String),
    /// By its own name, in each member and namespace, or by its name in the fleet view.
    Name {
        /// Its own name.
        name: String,
        /// Its resource; absent for any.
        resource: Option<GroupResource>,
    },
}

/// `deployments.apps`; a core resource has no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResource {
    /// The group, empty for the core.
    pub group: String,
    /// The plural, in lower case.
    pub resource: String,
}

/// The UIDs of whoever has to control a row, once the owner was looked up. `None`: whoever, or nobody.
pub type Owners<'a> = Option<&'a HashSet<String>>;

impl Condition {
    /// One of these.
    pub fn one_of(values: impl IntoIterator<Item = String>) -> Self {
        Self { operator: Operator::In, values: values.into_iter().collect() }
    }

    /// Says whether a text meets it; an empty one is none.
    pub fn is_met(&self, text: &str) -> bool {
        self.operator.is_met(Some(text).filter(|text| !text.is_empty()), &self.values)
    }

    /// Says whether a text meets all of these.
    pub fn all_met(conditions: &[Self], text: &str) -> bool {
        conditions.iter().all(|condition| condition.is_met(text))
    }
}

impl Created {
    /// Says whether every time is in it.
    pub fn is_ever(self) -> bool {
        self == Self::default()
    }

    /// Says whether a time is in it.
    pub fn has(self, at: i64) -> bool {
        self.since.is_none_or(|since| at >= since) && self.before.is_none_or(|before| at < before)
    }
}

impl GroupResource {
    /// Reads `deployments.apps`.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group: group.to_owned(), resource: resource.to_lowercase() }
    }

    /// Says whether a kind is it, in whatever version.
    pub fn is_of(&self, gvr: &Gvr) -> bool {
        self.group == *gvr.group && self.resource == *gvr.resource
    }
}

impl Query {
    /// Says whether a member's rows may match.
    pub fn admits_cluster(&self, name: &str) -> bool {
        Condition::all_met(&self.clusters, name)
    }

    /// Of a query that looks into documents, or compares names by more than their bytes, what columns alone decide: more rows match
    /// it, in any order. `None`: columns decide all of it.
    pub fn for_columns(&self) -> Option<Self> {
        let is_of_path = |by: &OrderBy| matches!(by.field, OrderField::Path(_));
        let (plain, other): (Vec<_>, Vec<_>) =
            self.fuzzy.iter().cloned().partition(|part| part.is_ascii() && !part.contains('?'));
        let is_all = self.fields.is_empty() && other.is_empty() && !self.order.fields().iter().any(is_of_path);
        let rest = || Self { fuzzy: plain, fields: Vec::new(), page: Page::default(), ..self.clone() };
        (!is_all).then(rest)
    }

    /// Says whether a row that [`Self::for_columns`] finds matches, by its document, which a JSON parser has accepted.
    pub fn admits_found(&self, facts: &Facts<'_>, json: &str) -> bool {
        self.fuzzy.iter().all(|part| contains(facts.name, part)) && self.fields.iter().all(|term| term.matches(json))
    }

    /// Says whether a row may match, by what is known without its document.
    pub fn admits(&self, facts: &Facts<'_>) -> bool {
        if !Condition::all_met(&self.namespaces, facts.namespace)
            || !Condition::all_met(&self.names, facts.name)
            || !self.admits_cluster(facts.cluster)
            || !self.fuzzy.iter().all(|part| contains(facts.name, part))
        {
            return false;
        }
        if self.labels.is_empty() {
            return true;
        }
        let labels = facts.labels.map(Labels::read).unwrap_or_default();
        self.labels.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }

    /// Says whether more of a row decides than [`Self::admits`] looks at.
    pub fn needs_document(&self) -> bool {
        self.owner.is_some() || !self.created.is_ever() || !self.fields.is_empty()
    }

    /// Says whether a row's document, which a JSON parser has accepted, matches; [`Self::admits`] has looked at the rest.
    pub fn admits_document(&self, facts: &Facts<'_>, json: &str, owners: Owners<'_>) -> bool {
        if !self.created.is_ever() {
            let created = facts.created(json).and_then(|text| time::of_object(&text));
            if !created.is_some_and(|at| self.created.has(at)) {
                return false;
            }
        }
        if let Some(owners) = owners
            && !controller(json).is_some_and(|uid| owners.contains(&uid))
        {
            return false;
        }
        self.fields.iter().all(|term| term.matches(json))
    }
}

/// The UID of the owner that controls an object, as its document says.
pub fn controller(json: &str) -> Option<String> {
    static OWNERS: LazyLock<Paths> = LazyLock::new(|| Paths::new([(0, ["metadata", "ownerReferences"].as_slice())]));
    let owners = first(&OWNERS, json)?;
    let references: Vec<&serde_json::value::RawValue> = serde_json::from_str(owners).ok()?;
    references.into_iter().find_map(|reference| {
        let is_controller = locate::value_at(reference.get(), &["controller"]) == Some("true");
        let uid = locate::value_at(reference.get(), &["uid"]).filter(|_| is_controller)?;
        text_of(uid).map(Cow::into_owned)
    })
}

/// Says whether a name has a text in it, without regard to ASCII case.
fn contains(name: &str, part: &str) -> bool {
    let (name, part) = (name.as_bytes(), part.as_bytes());
    part.is_empty() || name.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}
