//! `matches`, `find` and `findAll`.

use std::sync::Arc;

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::{
        types::{CelBool, CelInt, CelList, CelString},
        value::Val,
    },
};

use super::no;
use crate::patterns::Pattern;

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>, id = "matches")?;
    add_member_overload!(env, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>)?;
    add_member_overload!(env, fn find: (CelString<'_>, CelString<'_>) -> Result<CelString<'_>>)?;
    add_member_overload!(env, fn find_all: (CelString<'_>, CelString<'_>) -> Result<CelList<'_>>)?;
    add_member_overload!(env, fn find_some: (CelString<'_>, CelString<'_>, CelInt) -> Result<CelList<'_>>, name = "findAll")
}

fn matches(text: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let pattern = Pattern::kept(pattern.inner()).map_err(|error| no("matches", error))?;
    Ok(CelBool::from(pattern.regex().is_match(text.inner())))
}

fn pattern(written: &CelString<'_>) -> Result<Arc<Pattern>, ExecutionError> {
    Pattern::kept(written.inner()).map_err(|error| no("find", format_args!("Illegal regex: {error}")))
}

fn find(text: &CelString<'_>, written: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let found = pattern(written)?.regex().find(text.inner()).map(|found| found.as_str().to_owned());
    Ok(CelString::from(found.unwrap_or_default()))
}

fn find_all(text: &CelString<'_>, written: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    some(text, written, usize::MAX)
}

/// All of them where the number is below zero.
fn find_some(text: &CelString<'_>, written: &CelString<'_>, most: &CelInt) -> Result<CelList<'static>, ExecutionError> {
    some(text, written, usize::try_from(*most.inner()).unwrap_or(usize::MAX))
}

fn some(text: &CelString<'_>, written: &CelString<'_>, most: usize) -> Result<CelList<'static>, ExecutionError> {
    let pattern = pattern(written)?;
    let found = pattern.regex().find_iter(text.inner()).take(most);
    let found = found.map(|found| Box::new(CelString::from(found.as_str().to_owned())) as Box<dyn Val>);
    Ok(CelList::from(found.collect::<Vec<_>>()))
}
