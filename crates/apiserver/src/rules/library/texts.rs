//! `find` and `findAll`.

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload,
    common::{
        types::{CelList, CelString},
        value::Val,
    },
};

use super::no;
use crate::schema::pattern_fault;

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    add_member_overload!(env, fn find: (CelString<'_>, CelString<'_>) -> Result<CelString<'_>>)?;
    add_member_overload!(env, fn find_all: (CelString<'_>, CelString<'_>) -> Result<CelList<'_>>)
}

fn regex(pattern: &str) -> Result<regex::Regex, ExecutionError> {
    regex::Regex::new(pattern).map_err(|error| no("find", pattern_fault(pattern).unwrap_or_else(|| error.to_string())))
}

fn find(text: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let found = regex(pattern.inner())?.find(text.inner()).map(|found| found.as_str().to_owned());
    Ok(CelString::from(found.unwrap_or_default()))
}

fn find_all(text: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    let pattern = regex(pattern.inner())?;
    let all = pattern.find_iter(text.inner());
    let all = all.map(|found| Box::new(CelString::from(found.as_str().to_owned())) as Box<dyn Val>);
    Ok(CelList::from(all.collect::<Vec<_>>()))
}
