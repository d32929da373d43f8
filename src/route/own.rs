//! Requests for kubefold's own objects.

use http::{Request, Response, request::Parts};

use crate::{
    access::{Own, Who},
    member::review::Action,
    own::Policies,
    respond::OwnError,
    route::Router,
};
use kubefold_serving::request::drain;
use kubefold_wire::{body::Body, info::RequestInfo, resource::Gvr, status::Status};

impl Router {
    /// One of kubefold's own objects, which belong to the fleet as a whole: whoever is no administrator of kubefold needs every
    /// member's word for it.
    ///
    /// Errors: 403 where a member does not allow it, 503 where one does not say.
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
            && let Err(status) = self.members_allow(info, gvr, who).await
        {
            Box::pin(drain(body)).await;
            return Err(status);
        }
        let answer = self.own.answer(who.caller, Request::from_parts(parts.clone(), body)).await?;
        if !is_read && Policies::are(gvr) {
            // Whoever wrote a policy finds it in force with the next request.
            self.policies.settled(self.own.registry()).await;
        }
        Ok(answer)
    }

    /// Asks every member whether somebody may do something with an object of the whole fleet.
    ///
    /// Errors: 403 where one does not allow it, 503 where one does not say.
    async fn members_allow(&self, info: &RequestInfo, gvr: &Gvr, who: Who<'_>) -> Result<(), Status> {
        if who.through.is_some() {
            return Err(OwnError::Impersonated { user: who.caller.user.clone(), resource: gvr.clone() }.into());
        }
        let action = |verb: &str| Action {
            verb: verb.to_owned(),
            group: gvr.group.to_string(),
            version: gvr.version.to_string(),
            resource: gvr.resource.to_string(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            ..Action::default()
        };
        self.access.grant(who, &action(&info.verb), None).await.check_everywhere()?;
        // An apply, and a PUT, of what is not there make it.
        if matches!(info.verb.as_str(), "update" | "patch") && info.subresource.is_empty() {
            self.access.grant(who, &action("create"), None).await.check_everywhere()?;
        }
        Ok(())
    }
}
