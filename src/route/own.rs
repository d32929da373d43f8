//! Requests for kubefold's own objects.

use http::{Request, Response, request::Parts};

use crate::{
    access::{Own, Who},
    member::review::Action,
    respond::OwnError,
    route::{Router, allowed::action_of},
};
use kubefold_serving::request::drain;
use kubefold_wire::{body::Body, info::RequestInfo, resource::Gvr, status::Status};

impl Router {
    /// One of kubefold's own objects, which belong to the fleet as a whole: whoever is no administrator of kubefold needs the
    /// host's word for it, or every member's where there is no host.
    ///
    /// Errors: 403 where the host or a member does not allow it, 503 where one does not say.
    pub(super) async fn own_object(
        &self,
        info: &RequestInfo,
        gvr: &Gvr,
        who: Who<'_>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let is_read = matches!(info.verb.as_str(), "get" | "list" | "watch");
        let own = if is_read { Own::View } else { Own::Administer };
        if !self.access.allows_own(who, own)
            && let Err(status) = self.host_or_members_allow(info, gvr, who).await
        {
            Box::pin(drain(body)).await;
            return Err(status);
        }
        Ok(self.own.answer(who.caller, Request::from_parts(parts.clone(), body)).await?)
    }

    async fn host_or_members_allow(&self, info: &RequestInfo, gvr: &Gvr, who: Who<'_>) -> Result<(), Status> {
        match self.access.host_allows(who, &action_of(info, gvr)).await {
            Some(decided) => Ok(decided?),
            None => self.members_allow(info, gvr, who).await,
        }
    }

    /// Asks every member whether somebody may do something with an object of the whole fleet.
    ///
    /// Errors: 403 where one does not allow it, 503 where one does not say.
    async fn members_allow(&self, info: &RequestInfo, gvr: &Gvr, who: Who<'_>) -> Result<(), Status> {
        if who.through.is_some() {
            return Err(OwnError::Impersonated { user: who.caller.user.clone(), resource: gvr.clone() }.into());
        }
        let action = |verb: &str| Action { verb: verb.to_owned(), ..action_of(info, gvr) };
        self.access.grant(who, &action(&info.verb), None).await.check_everywhere()?;
        // An apply, and a PUT, of what is not there make it.
        if matches!(info.verb.as_str(), "update" | "patch") && info.subresource.is_empty() {
            self.access.grant(who, &action("create"), None).await.check_everywhere()?;
        }
        Ok(())
    }
}
