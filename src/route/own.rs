//! Requests for kubefold's own objects.

use http::{Request, Response, Uri, request::Parts};

use crate::{
    access::{Own, Who},
    member::review::Action,
    own::{Members, Policies, shadow::PLURAL},
    respond::OwnError,
    route::{OwnRooms, Router, allowed::action_of, system::not_admin},
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
        let is_read = info.is_read();
        if let Err(status) = self.allow_own_object(info, gvr, who).await {
            Box::pin(drain(body)).await;
            return Err(status);
        }
        let makes = matches!(info.verb.as_str(), "create" | "update" | "patch");
        if makes
            && Policies::are(gvr)
            && let Err(status) = Box::pin(self.own.policies.has_namespace(&info.namespace)).await
        {
            Box::pin(drain(body)).await;
            return Err(status);
        }
        let mut parts = parts.clone();
        let is_of_many = matches!(info.verb.as_str(), "list" | "deletecollection");
        if is_of_many && self.access.empties_namespaces_of_host(who.caller) {
            // A namespace of the host that goes is none of the fleet's, whose objects are not the host's to delete.
            parts.uri = of_none(&parts.uri);
        }
        let answer = self.own.objects.answer(who.caller, Request::from_parts(parts, body)).await?;
        if !is_read && Policies::are(gvr) {
            // Whoever wrote a policy finds it in force with the next request.
            self.own.policies.settled(self.own.objects.registry()).await;
        }
        if !is_read && Members::are(gvr) {
            self.own.refreshed().await;
        }
        Ok(answer)
    }

    /// Says whether somebody may do something with one of kubefold's own objects. Who is in the fleet, and with which credential,
    /// only administrators of kubefold say, or who may by the host's word.
    ///
    /// Errors: 403, or 503 where a member or the host does not say.
    async fn allow_own_object(&self, info: &RequestInfo, gvr: &Gvr, who: Who<'_>) -> Result<(), Status> {
        let is_read = info.is_read();
        let own = if is_read { Own::View } else { Own::Administer };
        let of_fleet = !is_read && Members::are(gvr);
        if self.access.allows_own(who, own) {
        } else if of_fleet {
            for action in actions(info, gvr) {
                match self.access.host_allows(who, &action).await {
                    Some(decided) => decided?,
                    None => return Err(not_admin(who)),
                }
            }
        } else {
            self.host_or_members_allow(gvr, who, actions(info, gvr)).await?;
        }
        match of_fleet && !info.name.is_empty() {
            true => self.own.members.check_change(&self.own.objects, &info.name).await,
            false => Ok(()),
        }
    }

    /// Asks the host, or every member where there is none, whether somebody may do something with an object of the whole fleet.
    ///
    /// Errors: 403 where one does not allow it, 503 where one does not say.
    pub(super) async fn host_or_members_allow(
        &self,
        gvr: &Gvr,
        who: Who<'_>,
        actions: impl IntoIterator<Item = Action>,
    ) -> Result<(), Status> {
        let refused = || OwnError::Impersonated { user: who.caller.user.clone(), resource: gvr.clone() };
        // Its items are asked for as whoever asks for it, and members judge impersonation one by one.
        if who.through.is_some() && *gvr.resource == *PLURAL {
            return Err(refused().into());
        }
        for action in actions {
            match self.access.host_allows(who, &action).await {
                Some(decided) => decided?,
                None if who.through.is_some() => return Err(refused().into()),
                None => self.access.grant(who, &action, None).await.check_everywhere()?,
            }
        }
        Ok(())
    }
}

impl OwnRooms {
    /// Whoever wrote a member, or the Secret of one, finds it in force with the next request.
    pub(super) async fn refreshed(&self) {
        if let Err(status) = self.members.refresh(&self.objects).await {
            tracing::warn!(error = status.message, "a member or a Secret was written and is not in force yet");
        }
    }
}

/// What somebody has to be allowed for a request.
fn actions(info: &RequestInfo, gvr: &Gvr) -> impl Iterator<Item = Action> + use<> {
    let asked = action_of(info, gvr);
    // An apply, and a PUT, of what is not there make it.
    let makes = matches!(info.verb.as_str(), "update" | "patch") && info.subresource.is_empty();
    let create = makes.then(|| Action { verb: "create".to_owned(), ..asked.clone() });
    std::iter::once(asked).chain(create)
}

/// The same request about objects of a name that none has.
fn of_none(uri: &Uri) -> Uri {
    let query = uri.query().map(|query| format!("{query}&")).unwrap_or_default();
    let path_and_query = format!("{}?{query}fieldSelector=metadata.name%3D-", uri.path());
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = path_and_query.try_into().ok();
    Uri::from_parts(parts).unwrap_or_default()
}
