//! `url` and `isURL`.
//!
//! Source: `pkg/cel/library/urls.go`, `pkg/cel/url.go`.

use std::collections::HashMap;

use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::{
        types::{CelBool, CelList, CelMap, CelMapKey, CelString, Type},
        value::Val,
    },
};

use super::{Kind, Of, go_urls::Url, no};

static TYPE: Type = Type::new_unspecified_type("kubernetes.URL");

type Link = Of<Url>;

impl Kind for Url {
    fn of() -> &'static Type {
        &TYPE
    }
}

pub(super) fn add_to(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn url: (CelString<'_>) -> Result<Link>)?;
    add_overload!(env, fn is_url: (CelString<'_>) -> CelBool, name = "isURL")?;
    add_member_overload!(env, fn get_scheme: (Link) -> CelString<'_>)?;
    add_member_overload!(env, fn get_host: (Link) -> CelString<'_>)?;
    add_member_overload!(env, fn get_hostname: (Link) -> CelString<'_>)?;
    add_member_overload!(env, fn get_port: (Link) -> CelString<'_>)?;
    add_member_overload!(env, fn get_escaped_path: (Link) -> CelString<'_>)?;
    add_member_overload!(env, fn get_query: (Link) -> CelMap<'_>)
}

fn url(text: &CelString<'_>) -> Result<Link, ExecutionError> {
    let read = Url::read(text.inner());
    read.map(Of).map_err(|error| no("url", format!("URL parse error during conversion from string: {error}")))
}

fn is_url(text: &CelString<'_>) -> CelBool {
    CelBool::from(Url::is_one(text.inner()))
}

fn get_scheme(url: &Link) -> CelString<'static> {
    CelString::from(url.0.scheme.clone())
}

fn get_host(url: &Link) -> CelString<'static> {
    CelString::from(url.0.host.clone())
}

fn get_hostname(url: &Link) -> CelString<'static> {
    CelString::from(url.0.host_and_port().0.to_owned())
}

fn get_port(url: &Link) -> CelString<'static> {
    CelString::from(url.0.host_and_port().1.to_owned())
}

fn get_escaped_path(url: &Link) -> CelString<'static> {
    CelString::from(url.0.escaped_path.clone())
}

fn get_query(url: &Link) -> CelMap<'static> {
    let mut all: HashMap<String, Vec<Box<dyn Val>>> = HashMap::new();
    for (name, value) in url.0.parameters() {
        all.entry(name).or_default().push(Box::new(CelString::from(value)));
    }
    let entry = |(name, values): (String, Vec<Box<dyn Val>>)| {
        (CelMapKey::from(name), Box::new(CelList::from(values)) as Box<dyn Val>)
    };
    CelMap::from(all.into_iter().map(entry).collect::<HashMap<_, _>>())
}
