//! Requests for the namespace `kubefold-system`, which kubefold stores itself, and for the Events about its own objects.

use http::{Request, Response, Uri, request::Parts};

use crate::{
    access::{MASTERS, Own, Who},
    config::OWN_NAMESPACE,
    member::review::Action,
    own::{
        GROUP, Members, VERSION,
        shadow::{KIND, PLURAL},
    },
    respond::{OwnError, RouteError},
    route::Router,
};
use kubefold_serving::request::drain;
use kubefold_wire::{
    body::Body,
    info::RequestInfo,
    options::query_value,
    resource::Gvr,
    selector::{FieldSelector, Subject},
    status::Status,
};

/// The fields of Events that say what kind of object they are about.
const KIND_OF: [&str; 2] = ["involvedObject.kind", "regarding.kind"];

/// What of the namespace is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfSystem {
    /// The namespace itself.
    Namespace,
    /// Its Secrets.
    Secrets,
    /// Its Events, by whichever path.
    Events,
    /// Events about ShadowResources, which are beside them and which members do not have either.
    ShadowEvents,
    /// What it does not have.
    Nothing,
}

impl Router {
    /// Says whether a request is about the namespace. `None`: it is the fleet's.
    ///
    /// Errors: the storage's.
    pub(super) async fn of_system(
        &self,
        info: &RequestInfo,
        gvr: &Gvr,
        parts: &Parts,
    ) -> Result<Option<OfSystem>, Status> {
        let is_core = gvr.group.is_empty();
        let is_served = self.own.objects.system().serves(gvr);
        let is_read = info.is_read();
        match () {
            () if is_core && &*gvr.resource == "namespaces" && info.name == OWN_NAMESPACE => {
                Ok(Some(OfSystem::Namespace))
            }
            () if info.namespace == OWN_NAMESPACE && is_served => {
                Ok(Some(if gvr.is_event() { OfSystem::Events } else { OfSystem::Secrets }))
            }
            // Members have no such namespace: a list of anything else is empty, and says so.
            () if info.namespace == OWN_NAMESPACE => Ok((!is_read).then_some(OfSystem::Nothing)),
            () if info.name.is_empty() && gvr.is_event() && is_read && is_served => {
                let query = parts.uri.query().unwrap_or_default();
                if is_about_shadow_resources(query) {
                    return Ok(Some(OfSystem::ShadowEvents));
                }
                if !info.namespace.is_empty() {
                    return Ok(None);
                }
                Ok(Box::pin(self.is_about_members(gvr, query)).await?.then_some(OfSystem::Events))
            }
            () => Ok(None),
        }
    }

    /// Says whether a selector of Events asks for those about a Member of kubefold's own: `kubectl describe` asks so, in all
    /// namespaces, of a kind whose objects lie in none.
    ///
    /// Errors: the storage's.
    async fn is_about_members(&self, gvr: &Gvr, query: &str) -> Result<bool, Status> {
        let Some(text) = query_value(query, "fieldSelector") else { return Ok(false) };
        if !FieldSelector::labels(&text).any(|label| KIND_OF.contains(&label)) {
            return Ok(false);
        }
        let Ok(selector) = FieldSelector::parse(&text, &gvr.group, &gvr.resource) else { return Ok(false) };
        let selects = |json: Vec<u8>| {
            selector.matches(&Subject { namespace: OWN_NAMESPACE, name: "", json: &json, suffix: ["", ""] })
        };
        Ok(Members::as_referents(&self.own.objects).await?.into_iter().any(|referent| selects(referent.event(gvr))))
    }

    /// Answers for the namespace. Its Secrets are for kubefold's administrators; its Events for whoever may read members, and those
    /// about ShadowResources for whoever may read these.
    ///
    /// Errors: 403.
    pub(super) async fn system_object(
        &self,
        of: OfSystem,
        info: &RequestInfo,
        gvr: &Gvr,
        who: Who<'_>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let allowed = self.allow_system(of, info, gvr, who).await;
        if let Err(status) = allowed {
            Box::pin(drain(body)).await;
            return Err(status);
        }
        let mut parts = parts.clone();
        if of == OfSystem::Events && info.namespace.is_empty() {
            parts.uri = in_own_namespace(gvr, &parts.uri);
        }
        let answer = self.own.objects.answer_of_system(who.caller, Request::from_parts(parts, body)).await?;
        if of == OfSystem::Secrets && !info.is_read() {
            self.own.refreshed().await;
        }
        Ok(answer)
    }

    async fn allow_system(&self, of: OfSystem, info: &RequestInfo, gvr: &Gvr, who: Who<'_>) -> Result<(), Status> {
        let is_read = info.is_read();
        let refused = || -> Status {
            let name = if info.name.is_empty() { OWN_NAMESPACE } else { &info.name };
            OwnError::OfSystem { resource: gvr.clone(), name: name.to_owned() }.into()
        };
        match of {
            OfSystem::Events | OfSystem::ShadowEvents if is_read => {
                if self.access.allows_own(who, Own::View) {
                    return Ok(());
                }
                let (resource, namespace) = match of {
                    OfSystem::ShadowEvents => (PLURAL, info.namespace.clone()),
                    _ => ("members", String::new()),
                };
                let action = Action {
                    verb: info.verb.clone(),
                    group: GROUP.to_owned(),
                    version: VERSION.to_owned(),
                    resource: resource.to_owned(),
                    namespace,
                    ..Action::default()
                };
                self.host_or_members_allow(gvr, who, [action]).await
            }
            _ if !self.access.allows_own(who, Own::Administer) => Err(not_admin(who)),
            OfSystem::Secrets => Ok(()),
            OfSystem::Namespace if is_read => Ok(()),
            OfSystem::Namespace | OfSystem::Events | OfSystem::ShadowEvents | OfSystem::Nothing => Err(refused()),
        }
    }
}

/// Says whether a selector of Events wants those about ShadowResources, and no others: `kubectl describe` asks so, and `kubectl events
/// --for`. One request and the next are answered alike, so that a watch goes on where its list ended.
fn is_about_shadow_resources(query: &str) -> bool {
    let wants = |text: &str, field| FieldSelector::wanted(text, field).is_some_and(|kind| kind == KIND);
    query_value(query, "fieldSelector").is_some_and(|text| KIND_OF.iter().any(|field| wants(&text, field)))
}

/// The same list in the one namespace that has such Events.
fn in_own_namespace(gvr: &Gvr, uri: &Uri) -> Uri {
    let root = if gvr.group.is_empty() { "/api" } else { "/apis" };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{root}/{}/namespaces/{OWN_NAMESPACE}/{}{query}", gvr.api_version(), gvr.resource);
    Uri::try_from(path).unwrap_or_else(|_| uri.clone())
}

/// The refusal of what only administrators of kubefold may do.
pub(super) fn not_admin(who: Who<'_>) -> Status {
    RouteError::NotAdmin { user: who.caller.user.clone(), group: Own::Administer.group(), admins: MASTERS }.into()
}
