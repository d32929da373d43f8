//! `spread` of a policy: one label, or several with numbers of groups.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

use crate::{
    config::{
        PolicyProblem, Problem, SpreadLevel,
        checked::{Checked, fault},
    },
    view::CLUSTER_LABEL,
};
use kubefold_wire::names::qualified_name;

/// More groups than this no fleet has.
const GROUPS_MAX: u32 = 256;

/// What is written.
#[derive(Debug)]
pub(super) enum RawSpread {
    /// `region`
    Label(String),
    /// `[{label: region, minGroups: 2}]`
    Levels(Vec<Spanned<RawSpreadLevel>>),
}

/// A member label that divided numbers are spread over. The members with one value of it are a group.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSpreadLevel {
    /// The label. `kubefold.io/cluster` is the member itself: each member is a group.
    #[schemars(with = "String")]
    pub(super) label: Spanned<String>,
    /// The minimum of groups that can take something, within each group of the label before. kubefold refuses a create with 422 if
    /// there are fewer. Default: none.
    #[schemars(with = "Option<i64>")]
    pub(super) min_groups: Option<Spanned<i64>>,
    /// The maximum of groups that get parts, within each group of the label before: those with room for the most come first,
    /// then those with the largest weight. Default: all.
    #[schemars(with = "Option<i64>")]
    pub(super) max_groups: Option<Spanned<i64>>,
}

impl<'de> Deserialize<'de> for RawSpread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawSpread;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member label, or a list of labels")
            }

            fn visit_str<E>(self, label: &str) -> Result<RawSpread, E> {
                Ok(RawSpread::Label(label.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawSpread, A::Error> {
                let mut levels = Vec::new();
                while let Some(level) = list.next_element()? {
                    levels.push(level);
                }
                Ok(RawSpread::Levels(levels))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// Reads it; nothing where it is not given.
pub(super) fn spread(raw: Option<&Spanned<RawSpread>>) -> Checked<Vec<SpreadLevel>> {
    let Some(at) = raw else { return Ok(Vec::new()) };
    match &at.value {
        RawSpread::Label(text) => {
            is_label(at, text)?;
            Ok(vec![SpreadLevel { label: text.clone(), min: 0, max: None }])
        }
        RawSpread::Levels(levels) if levels.is_empty() => fault(at, Problem::Empty { field: "spread" }),
        RawSpread::Levels(levels) => {
            let mut read: Vec<SpreadLevel> = Vec::new();
            for at in levels {
                let next = level(&at.value)?;
                if read.iter().any(|before| before.label == next.label) {
                    let problem = PolicyProblem::SpreadTwice { label: next.label };
                    return fault(&at.value.label, Problem::Policy(problem));
                }
                read.push(next);
            }
            Ok(read)
        }
    }
}

fn level(raw: &RawSpreadLevel) -> Checked<SpreadLevel> {
    is_label(&raw.label, &raw.label.value)?;
    let min = groups("minGroups", raw.min_groups.as_ref())?;
    let max = groups("maxGroups", raw.max_groups.as_ref())?;
    match (&raw.min_groups, min, max) {
        (Some(at), Some(min), Some(max)) if min > max => {
            fault(at, Problem::Policy(PolicyProblem::MinAboveMaxGroups { min, max }))
        }
        _ => Ok(SpreadLevel { label: raw.label.value.clone(), min: min.unwrap_or(0), max }),
    }
}

fn is_label<T>(at: &Spanned<T>, label: &str) -> Checked<()> {
    if !qualified_name(label).is_empty() {
        return fault(at, Problem::LabelKey { key: label.to_owned() });
    }
    // No member can have another.
    if label.starts_with("kubefold.io/") && label != CLUSTER_LABEL {
        return fault(at, Problem::LabelReserved { key: label.to_owned() });
    }
    Ok(())
}

fn groups(field: &'static str, at: Option<&Spanned<i64>>) -> Checked<Option<u32>> {
    let Some(at) = at else { return Ok(None) };
    match u32::try_from(at.value) {
        Ok(number) if (1..=GROUPS_MAX).contains(&number) => Ok(Some(number)),
        Ok(_) | Err(_) => fault(at, Problem::Policy(PolicyProblem::Groups { field, value: at.value, max: GROUPS_MAX })),
    }
}
