//! How fresh a read wants to be, and what is proven for it.

use http::{HeaderMap, header};

use crate::{
    answer::RequestContext,
    config::MemberName,
    respond::StoresError,
    stores::{Ready, Scope, Stores, Target, Unproven},
    view::{ListOptions, Mode},
};
use kubefold_wire::{
    options::{At, Match},
    status::Status,
};

/// How fresh an answer is that names no revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// It holds every write that went through kubefold, and of others what the members' watches have told.
    #[default]
    Watched,
    /// Each member is asked what it holds now.
    Strict,
}

/// What has to be proven for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// What went through the member views.
    Marked,
    /// All that the read is about.
    All,
}

impl Need {
    pub(super) fn of_options(options: &ListOptions, watch: bool, headers: &HeaderMap, freshness: Freshness) -> Self {
        let is_exact = options.matching == Match::Exact || options.token.is_some();
        let begins_now = !watch || options.at != At::Any && options.send_initial_events != Some(false);
        match options.at {
            At::Revision(_) if watch => Self::Nothing,
            _ if is_exact || !begins_now => Self::Nothing,
            _ if wants_no_cache(headers) => Self::All,
            At::Newest if freshness == Freshness::Strict => Self::All,
            At::Newest => Self::Marked,
            At::Any | At::Revision(_) => Self::Nothing,
        }
    }

    pub(super) fn of_get(headers: &HeaderMap, freshness: Freshness) -> Self {
        if wants_no_cache(headers) || freshness == Freshness::Strict { Self::All } else { Self::Marked }
    }
}

/// `Cache-Control: no-cache`, among whatever else the header says.
pub(super) fn wants_no_cache(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|directive| directive.trim().eq_ignore_ascii_case("no-cache"))
}

/// What a list or watch is about, as far as members can be asked for it.
pub(super) fn scope_of(target: &Target, options: &ListOptions, own: Option<&str>) -> Scope {
    let namespace = match target.namespace.is_empty() {
        true => options.fields.namespace().unwrap_or_default(),
        false => &target.namespace,
    };
    Scope { namespace: namespace.to_owned(), labels: options.labels.clone(), name: own.map(str::to_owned) }
}

/// A proof that a read needs, and of which objects.
pub(super) struct Due {
    pub(super) need: Need,
    pub(super) scope: Scope,
}

/// Proves what is needed, and adds a warning for each member of which that was not possible.
///
/// Errors: 503 in the strict view, if there is one.
pub(super) async fn prove(
    stores: &Stores,
    ready: &mut Ready,
    due: Due,
    only: Option<&MemberName>,
    asked: RequestContext<'_>,
) -> Result<(), Status> {
    let Due { need, scope } = due;
    let unproven = match need {
        Need::Nothing => return Ok(()),
        Need::Marked => stores.prove_marked(&ready.running, only, &scope.namespace).await,
        Need::All => stores.prove(&ready.running, only, &scope).await,
    };
    let unproven: Vec<Unproven> =
        unproven.into_iter().filter(|unproven| asked.audience().sees_member(&unproven.member)).collect();
    if asked.mode == Mode::Strict && !unproven.is_empty() {
        let sentences: Vec<String> = unproven.into_iter().map(|unproven| unproven.sentence).collect();
        return Err(StoresError::NotCurrent(sentences).into());
    }
    for Unproven { member, sentence } in unproven {
        let prefix = format!("member {member} ");
        if !ready.warnings.iter().any(|warning| warning.starts_with(&prefix)) {
            ready.warnings.push(sentence);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::list_options;
    use kubefold_wire::{resource::Gvr, token::ContinueToken};

    fn need(query: &str, watch: bool, cache_control: &str, freshness: Freshness) -> Need {
        let options = list_options(query, watch, &Gvr::new("", "v1", "pods"), |_| false).unwrap();
        let mut headers = HeaderMap::new();
        if !cache_control.is_empty() {
            headers.insert(header::CACHE_CONTROL, cache_control.parse().unwrap());
        }
        Need::of_options(&options, watch, &headers, freshness)
    }

    #[test]
    fn only_reads_of_now_are_proven() {
        let end = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let later_page = format!("continue={}", ContinueToken::new("v1/pods".into(), 7, "a/b".into(), None).encode());
        for (query, watch, default, strict, no_cache) in [
            ("", false, Need::Marked, Need::All, Need::All),
            ("limit=5", false, Need::Marked, Need::All, Need::All),
            ("resourceVersion=0", false, Need::Nothing, Need::Nothing, Need::All),
            ("resourceVersion=7", false, Need::Nothing, Need::Nothing, Need::All),
            (later_page.as_str(), false, Need::Nothing, Need::Nothing, Need::Nothing),
            ("resourceVersion=7&resourceVersionMatch=Exact", false, Need::Nothing, Need::Nothing, Need::Nothing),
            ("", true, Need::Marked, Need::All, Need::All),
            (end, true, Need::Marked, Need::All, Need::All),
            ("resourceVersion=0", true, Need::Nothing, Need::Nothing, Need::Nothing),
            ("resourceVersion=7", true, Need::Nothing, Need::Nothing, Need::Nothing),
        ] {
            assert_eq!(need(query, watch, "", Freshness::Watched), default, "{query}");
            assert_eq!(need(query, watch, "", Freshness::Strict), strict, "{query}");
            assert_eq!(need(query, watch, "max-age=0, No-Cache", Freshness::Watched), no_cache, "{query}");
        }
    }
}
