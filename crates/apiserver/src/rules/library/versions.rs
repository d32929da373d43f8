//! `semver` and `isSemver`.
//!
//! Source: `pkg/cel/library/semverlib.go`.

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::types::{CelBool, CelInt, CelString, Type},
};
use semver::Version;

use super::{Kind, Of, no};

static TYPE: Type = Type::new_unspecified_type("kubernetes.Semver");

type Semver = Of<Version>;

impl Kind for Version {
    fn of() -> &'static Type {
        &TYPE
    }
}

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn strict: (CelString<'_>) -> Result<Semver>, name = "semver")?;
    add_overload!(env, fn lenient: (CelString<'_>, CelBool) -> Result<Semver>, name = "semver")?;
    add_overload!(env, fn is_strict: (CelString<'_>) -> CelBool, name = "isSemver")?;
    add_overload!(env, fn is_lenient: (CelString<'_>, CelBool) -> CelBool, name = "isSemver")?;
    add_member_overload!(env, fn major: (Semver) -> CelInt)?;
    add_member_overload!(env, fn minor: (Semver) -> CelInt)?;
    add_member_overload!(env, fn patch: (Semver) -> CelInt)?;
    add_member_overload!(env, fn is_less_than: (Semver, Semver) -> CelBool)?;
    add_member_overload!(env, fn is_greater_than: (Semver, Semver) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Semver, Semver) -> CelInt)
}

/// What a text means that is not quite a version: `v1.2` is 1.2.0, `01.2.3` is 1.2.3.
fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        let digits = part.trim_start_matches('0');
        *part = if digits.starts_with(|first: char| first.is_ascii_digit()) { digits.into() } else { part.clone() };
    }
    while parts.len() < 3 && !text.contains(['+', '-']) {
        parts.push("0".to_owned());
    }
    parts.join(".")
}

fn read(text: &str, is_lenient: bool) -> Result<Version, semver::Error> {
    if is_lenient { Version::parse(&normalized(text)) } else { Version::parse(text) }
}

fn strict(text: &CelString<'_>) -> Result<Semver, ExecutionError> {
    read(text.inner(), false).map(Of).map_err(|error| no("semver", error))
}

fn lenient(text: &CelString<'_>, is_lenient: &CelBool) -> Result<Semver, ExecutionError> {
    read(text.inner(), *is_lenient.inner()).map(Of).map_err(|error| no("semver", error))
}

fn is_strict(text: &CelString<'_>) -> CelBool {
    CelBool::from(read(text.inner(), false).is_ok())
}

fn is_lenient(text: &CelString<'_>, is_lenient: &CelBool) -> CelBool {
    CelBool::from(read(text.inner(), *is_lenient.inner()).is_ok())
}

fn number(of: u64) -> CelInt {
    CelInt::from(i64::try_from(of).unwrap_or(i64::MAX))
}

fn major(version: &Semver) -> CelInt {
    number(version.0.major)
}

fn minor(version: &Semver) -> CelInt {
    number(version.0.minor)
}

fn patch(version: &Semver) -> CelInt {
    number(version.0.patch)
}

fn is_less_than(one: &Semver, other: &Semver) -> CelBool {
    CelBool::from(one.0.cmp_precedence(&other.0).is_lt())
}

fn is_greater_than(one: &Semver, other: &Semver) -> CelBool {
    CelBool::from(one.0.cmp_precedence(&other.0).is_gt())
}

fn compare_to(one: &Semver, other: &Semver) -> CelInt {
    CelInt::from(one.0.cmp_precedence(&other.0) as i64)
}
