//! Streams of the fleet view: whose the object is.

use std::sync::Arc;

use http::{Method, Request, Response, request::Parts};

use crate::{
    config::MemberName,
    member::{Member, catalog::MergedResource},
    read::Target,
    route::{METHODS, NOT_ALLOWED, Router, has_route},
    stream::{self, Identifier, Stream},
    wire::{
        body::Body,
        caller::Caller,
        info::{RequestInfo, proxied},
        mode::Mode,
        request::drain,
        resource::Gvr,
        status::Status,
    },
};

/// What a `proxy` subresource takes beyond what all others do.
const PROXY_METHODS: [Method; 2] = [Method::HEAD, Method::OPTIONS];

impl Router {
    /// Answers a request to `log`, `exec`, `attach`, `portforward` or `proxy`.
    ///
    /// Errors: of a plain name as a get; 503 while its member is down: there is no last known state of a stream.
    pub(super) async fn stream(
        &self,
        info: &RequestInfo,
        known: Option<&MergedResource>,
        (mode, caller): (Mode, &Caller),
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let is_proxy = info.subresource == "proxy";
        let allowed = match is_proxy {
            // A proxied application's own methods: discovery names those that have a verb.
            true => METHODS.contains(&parts.method) || PROXY_METHODS.contains(&parts.method),
            false => METHODS.contains(&parts.method) && known.is_none_or(|resource| has_route(info, resource)),
        };
        if !allowed {
            drain(body).await;
            return Err(Status::method_not_allowed(NOT_ALLOWED));
        }
        // `proxy` in other letters (`pro%78y`): where its own part of the path begins two readers might not agree.
        if is_proxy && proxied(parts.uri.path()).is_none() {
            return Err(Status::no_such_path());
        }
        let visible = if is_proxy { Identifier::read(&info.name)? } else { Identifier::plain(&info.name) };
        let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
        let target = Target { gvr, namespace: info.namespace.clone(), name: visible.name.clone() };
        let (own, member) = self.holder(&target, mode).await?;
        let stream = Stream {
            gvr: &target.gvr,
            namespace: &target.namespace,
            visible: &visible,
            own: &own,
            subresource: &info.subresource,
        };
        let request = Request::from_parts(parts.clone(), body);
        Ok(stream::pass(&member, caller, request, &stream).await)
    }

    /// The object's own name and the member that is asked for it.
    ///
    /// `name@member` is that member's, which says itself what it does not have: also a part of a placed object. Of a placed
    /// pod its home is asked. A service leads to the same application in every member: the first that is not down.
    async fn holder(&self, target: &Target, mode: Mode) -> Result<(String, Arc<Member>), Status> {
        let naming = Arc::clone(&self.stores.shared().naming);
        let registry = self.stores.registry();
        let of = |name: &MemberName| {
            let gone = || Status::unavailable(format!("member {name} is being removed from the configuration"));
            registry.get(name.as_str()).ok_or_else(gone)
        };
        if let Some((own, member)) = naming.split(&target.name) {
            return Ok((own.to_owned(), of(member)?));
        }
        if let (true, [only]) = (naming.is_plain(), naming.members()) {
            return Ok((target.name.clone(), of(only)?));
        }
        let ready = self.stores.ready_in(&target.gvr, None, mode).await?;
        let entry = self.reader.named(&ready, target)?;
        let own = naming.own(entry.name()).to_owned();
        let anywhere = entry.folded && &*target.gvr.resource == "services";
        let up = entry.holders.iter().filter(|name| {
            anywhere && registry.get(name.as_str()).is_some_and(|member| !member.health().is_down() && member.usable())
        });
        let holder = up.chain(entry.holders.first()).next();
        match holder {
            Some(member) => Ok((own, of(member)?)),
            None => Err(Status::not_found(&target.gvr.group, &target.gvr.resource, &target.name)),
        }
    }
}
