//! A value of the configuration that was checked, or the fault that refuses it.

use serde_saphyr::Spanned;

use crate::config::{MemberConfig, MemberName, Problem, Weight};
use kubefold_wire::names::{is_dns_subdomain, qualified_name};

const WEIGHT_MAX: u32 = 1_000_000;

/// A problem and the line that it is on; the caller adds file and member.
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) problem: Box<Problem>,
}

/// A value, or the fault that refuses it.
pub(super) type Checked<T> = Result<T, Fault>;

/// Refuses the value at `at`.
pub(super) fn fault<T, V>(at: &Spanned<V>, problem: Problem) -> Checked<T> {
    Err(Fault { line: at.referenced.line(), problem: Box::new(problem) })
}

/// A weight; 1 where none is given.
pub(super) fn weight(raw: Option<&Spanned<i64>>) -> Checked<Weight> {
    let Some(at) = raw else { return Ok(Weight(1)) };
    match u32::try_from(at.value) {
        Ok(weight) if weight <= WEIGHT_MAX => Ok(Weight(weight)),
        Ok(_) | Err(_) => fault(at, Problem::Weight { weight: at.value, max: WEIGHT_MAX }),
    }
}

/// The key of a label that is not kubefold's own.
pub(super) fn label_key<V>(at: &Spanned<V>, key: &str) -> Checked<()> {
    if !qualified_name(key).is_empty() {
        return fault(at, Problem::LabelKey { key: key.to_owned() });
    }
    let prefix = key.split_once('/').map(|(prefix, _)| prefix);
    if prefix.is_some_and(|prefix| prefix == "kubefold.io" || prefix.ends_with(".kubefold.io")) {
        return fault(at, Problem::LabelReserved { key: key.to_owned() });
    }
    Ok(())
}

/// The member of a name.
pub(super) fn known_member(at: &Spanned<String>, members: &[MemberConfig]) -> Checked<MemberName> {
    match members.iter().find(|member| member.name.as_str() == at.value) {
        Some(member) => Ok(member.name.clone()),
        None => {
            let known = members.iter().map(|member| member.name.to_string()).collect();
            fault(at, Problem::UnknownMember { member: at.value.clone(), known })
        }
    }
}

/// The kind and the group that a text names; `None` where it names no kind.
pub(super) fn kind_name(text: &str) -> Option<(&str, Option<&str>)> {
    let (kind, group) = text.split_once('.').map_or((text, None), |(kind, group)| (kind, Some(group)));
    let is_kind = kind.bytes().next().is_some_and(|first| first.is_ascii_uppercase())
        && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_kind && group.is_none_or(is_dns_subdomain)).then_some((kind, group))
}
