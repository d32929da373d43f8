//! Whether somebody may do what a request wants, by the members' word, or the host's.

use std::sync::Arc;

use http::request::Parts;

use crate::{
    access::{Grants, Who},
    answer::RequestContext,
    config::MemberName,
    member::review::Action,
    route::{Router, connects, selected},
    stream::is_stream,
    view::Mode,
};
use kubefold_wire::{
    info::{RequestInfo, without_tail},
    resource::Gvr,
    status::Status,
};

impl Router {
    /// Asks the members whether the caller may have what is no resource: discovery, schemas.
    ///
    /// Errors: 403 where no member allows it.
    pub(super) async fn allow_path(&self, who: Who<'_>, parts: &Parts) -> Result<(), Status> {
        let (path, query) = (parts.uri.path(), parts.uri.query());
        if RequestInfo::of(&parts.method, without_tail(path), query).is_ok_and(|info| info.is_resource_request) {
            return Ok(());
        }
        let verb = parts.method.as_str().to_ascii_lowercase();
        let action = Action { verb, path: path.to_owned(), ..Action::default() };
        // No member knows the host's own components: its aggregator, which asks for discovery and schemas.
        if self.access.is_of_host(who.caller)
            && let Some(decided) = self.access.host_allows(who, &action).await
        {
            return Ok(decided?);
        }
        // Most often the first that is asked allows it: of 200 members not all have to be.
        let members = self.stores.registry().members();
        let first = members.iter().find(|member| member.usable() && member.health().is_reachable());
        if let Some(first) = first
            && self.access.grant(who, &action, Some(first.name())).await.check(Mode::Lenient).is_ok()
        {
            return Ok(());
        }
        Ok(self.access.grant(who, &action, None).await.check(Mode::Lenient)?)
    }

    /// Asks every member whether somebody may be whom he asks to be, for a question that all of them answer.
    ///
    /// Errors: 403 where one does not allow it, 503 where one does not say.
    pub(super) async fn impersonates(&self, who: Who<'_>) -> Result<Box<Grants>, Status> {
        let Some(original) = who.through else { return Ok(Box::default()) };
        for part in &original.parts {
            let grant = self.access.grant(Who { caller: &original.caller, through: None }, part, None).await;
            grant.check(Mode::Strict)?;
        }
        Ok(Box::default())
    }

    /// Asks the members what they allow of a request.
    ///
    /// Errors: 403 where no member allows it, 503 where one that decides does not say.
    pub(super) async fn grants(
        &self,
        info: &RequestInfo,
        gvr: &Gvr,
        who: Who<'_>,
        asked: RequestContext<'_>,
        parts: &Parts,
    ) -> Result<Box<Grants>, Status> {
        let naming = Arc::clone(&self.stores.shared().naming);
        let (own, member) = naming.split_of(gvr, &info.name).unzip();
        let action = |verb: &str, subresource: &str| Action {
            verb: verb.to_owned(),
            subresource: subresource.to_owned(),
            name: own.as_deref().unwrap_or(&info.name).to_owned(),
            ..action_of(info, gvr)
        };
        let grant = async |action: &Action| self.access.grant(who, action, member).await;
        let of_asked = action(&info.verb, &info.subresource);
        let the_asked = match selected::selectors(info, gvr, asked.query, &naming) {
            None => grant(&of_asked).await,
            Some(in_member) => {
                let selected = |member: &MemberName| {
                    in_member(member).map(|(fields, labels)| Action { fields, labels, ..of_asked.clone() })
                };
                self.access.grant_selected(who, &of_asked, member, selected).await
            }
        };
        // The host's controllers empty a namespace in each group, and follow all kinds: of the fleet they see nothing.
        let is_of_many = matches!(info.verb.as_str(), "list" | "watch" | "deletecollection");
        if is_of_many && self.access.is_of_no_member(who.caller) {
            return Ok(Box::new(Grants { asked: the_asked, ..Grants::default() }));
        }
        if info.is_read() || is_stream(gvr, &info.subresource) || connects(info, parts) {
            let for_people = info.verb == "list" && asked.wanted().is_ok_and(|wanted| asked.is_for_people(wanted));
            the_asked.check(if for_people { Mode::Lenient } else { asked.mode })?;
            return Ok(Box::new(Grants { asked: the_asked, ..Grants::default() }));
        }
        the_asked.check_write()?;
        let mut grants = Box::new(Grants { asked: the_asked, ..Grants::default() });
        if info.verb == "create" && info.name.is_empty() {
            grants.create = grants.asked.clone();
        } else if !info.name.is_empty() && member.is_none() {
            grants.get = grant(&action("get", "")).await;
            if info.subresource.is_empty() && matches!(info.verb.as_str(), "update" | "patch") {
                grants.create = grant(&action("create", "")).await;
            }
        }
        Ok(grants)
    }
}

/// What a request wants to do, in its own terms.
pub(super) fn action_of(info: &RequestInfo, gvr: &Gvr) -> Action {
    Action {
        verb: info.verb.clone(),
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        resource: gvr.resource.to_string(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        ..Action::default()
    }
}
