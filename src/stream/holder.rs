//! Streams of the fleet view: whose the object is.

use std::sync::Arc;

use http::{Request, Response};

use crate::{
    answer::RequestContext,
    config::MemberName,
    member::Member,
    respond::StreamError,
    store::Naming,
    stores::{Reading, Stores, Target},
    stream::{
        identifier::Identifier,
        pass::{Stream, is_stream, pass},
    },
};
use kubefold_wire::{
    body::Body,
    info::{RequestInfo, proxied},
    resource::Gvr,
    status::Status,
};

/// A request for a stream, and what was read of it.
#[derive(Clone, Copy)]
pub struct StreamAsked<'a> {
    /// What its path says.
    pub info: &'a RequestInfo,
    /// Who asks, through which view.
    pub asked: RequestContext<'a>,
}

/// Answers a request to `log`, `exec`, `attach`, `portforward` or `proxy`, or for another protocol below any object.
///
/// Errors: those of a get for a plain name; 503 while the member is down, because a stream has no last known state.
pub async fn answer(
    stores: &Stores,
    stream: StreamAsked<'_>,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let StreamAsked { info, asked } = stream;
    let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
    let is_proxy = info.subresource == "proxy" && is_stream(&gvr, "proxy");
    // `proxy` in other letters (`pro%78y`): where its own part of the path begins two readers might not agree.
    if is_proxy && proxied(request.uri().path()).is_none() {
        return Err(StreamError::NoSuchPath.into());
    }
    let visible = if is_proxy { Identifier::read(&info.name)? } else { Identifier::plain(&info.name) };
    let target = Target { gvr, namespace: info.namespace.clone(), name: visible.name.clone() };
    let (own, member) = holder(stores, &target, asked).await?;
    let stream = Stream {
        gvr: &target.gvr,
        namespace: &target.namespace,
        visible: &visible,
        own: &own,
        subresource: &info.subresource,
        below: info.parts.get(3..).unwrap_or_default(),
    };
    Ok(pass(&member, asked.caller, request, &stream).await)
}

/// The object's own name and the member that is asked for it.
///
/// `name@member` is that member's, which says itself what it does not have: also a part of a placed object. Of a placed
/// pod its home is asked. A service leads to the same application in every member: the first that is not down.
async fn holder(stores: &Stores, target: &Target, asked: RequestContext<'_>) -> Result<(String, Arc<Member>), Status> {
    let naming = Arc::clone(&stores.shared().naming);
    let registry = stores.registry();
    let of = |name: &MemberName| {
        let gone = || StreamError::Removed(name.clone());
        registry.get(name.as_str()).ok_or_else(gone)
    };
    if let Some((own, member)) = naming.split(&target.name) {
        return Ok((own.to_owned(), of(member)?));
    }
    if let (true, [only]) = (naming.is_plain(), naming.members()) {
        return Ok((target.name.clone(), of(only)?));
    }
    let named = Target { gvr: named_in(stores, target, &naming)?, ..target.clone() };
    let reading = Reading { audience: asked.audience(), mode: asked.mode, ..Reading::default() };
    let ready = stores.ready_for(&named.gvr, reading).await?;
    let entry = stores.named(&ready, &named, asked.audience())?;
    let own = naming.own(&named.gvr, entry.name()).into_owned();
    let anywhere = entry.folded && &*target.gvr.resource == "services";
    let up = entry.holders.iter().filter(|name| {
        anywhere && registry.get(name.as_str()).is_some_and(|member| !member.health().is_down() && member.usable())
    });
    let holder = up.chain(entry.holders.first()).next();
    match holder {
        Some(member) => Ok((own, of(member)?)),
        None => Err(StreamError::NotFound { gvr: target.gvr.clone(), name: target.name.clone() }.into()),
    }
}

/// Where the objects are whose subresource this is: an aggregated API may serve subresources in a group of its own
/// (`subresources.kubevirt.io`), below the one of the objects.
///
/// Errors: 404 that asks for the member, if no kind with names is known.
fn named_in(stores: &Stores, target: &Target, naming: &Naming) -> Result<Gvr, StreamError> {
    let (catalog, gvr) = (stores.catalog(), &target.gvr);
    if catalog.get(gvr).is_none_or(|resource| resource.watchable) {
        return Ok(gvr.clone());
    }
    let mut kinds = catalog.resources().filter(|one| one.watchable && one.gvr.resource == gvr.resource);
    let above = kinds.find(|one| gvr.group.strip_suffix(&*one.gvr.group).is_some_and(|rest| rest.ends_with('.')));
    above.map(|one| one.gvr.clone()).ok_or_else(|| {
        let members = naming.members().to_vec();
        StreamError::Unlisted { gvr: gvr.clone(), name: target.name.clone(), members }
    })
}
