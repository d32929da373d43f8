//! Writes of the fleet view: whose the object is, one member's or several parts', and who writes it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};

use crate::{
    config::MemberName,
    member::{catalog::MergedResource, stores::Ready},
    read::{Asked, Target},
    route::{Router, debugger::named_after_its_node},
    store::{Remarks, key},
    view::Mode,
    write::{Selected, makes, request::Request, review::is_review},
};
use kubefold_serving::request::{body_name, body_subject, drain, read_json, read_patch};
use kubefold_wire::{
    body::Body,
    info::RequestInfo,
    resource::{Gvk, Gvr},
    status::Status,
    warning::Warnings,
};

/// Whose a named object is.
enum Aim {
    /// It is folded: placed or shared. Its visible name.
    Whole(String),
    /// It is one member's, by its own name there.
    Native { own: String, member: MemberName },
}

impl Router {
    /// Answers what is neither a get, nor a list, nor a watch.
    pub(super) async fn write(
        &self,
        info: &RequestInfo,
        known: Option<&MergedResource>,
        target: &Target,
        (asked, method): (Asked<'_>, &Method),
        body: Body,
    ) -> Result<Response<Body>, Status> {
        match (info.verb.as_str(), info.subresource.as_str()) {
            ("create", "") if is_review(&target.gvr) => self.review(known, target, (asked, method), body).await,
            ("create", "") if is_binding(&target.gvr) => self.binding(target, (asked, method), body).await,
            // What cannot be watched is in no store, by which its name could be promised.
            ("create", "") if known.is_some_and(|known| !known.watchable) => {
                drain(body).await;
                Err(self.not_built(info))
            }
            ("create", "") => self.create(target, (asked, method), body).await,
            ("deletecollection", "") => self.delete_collection(target, (asked, method), body).await,
            ("create" | "update" | "patch" | "delete", _) => self.named(info, target, (asked, method), body).await,
            _ => Err(self.not_built(info)),
        }
    }

    /// A `POST` of a question, of which nothing is stored.
    async fn review(
        &self,
        known: Option<&MergedResource>,
        target: &Target,
        (asked, method): (Asked<'_>, &Method),
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let Some(resource) = known else {
            return Err(Status::unavailable("no member has told yet what it serves; see /readyz?verbose"));
        };
        let body = read_json(asked.headers, body).await?;
        let request = request(target, &resource.gvk, (asked, method), body);
        let registry = self.stores.registry();
        let present = |name: &&MemberName| {
            registry.get(name.as_str()).is_some_and(|member| !member.config().absent && member.twin_of().is_none())
        };
        let members: Vec<MemberName> = resource.members.iter().filter(present).cloned().collect();
        Ok(self.writer.review(&request, &members).await.into_response())
    }

    /// A `POST` to a collection. What the writer does not build yet it refuses itself.
    async fn create(
        &self,
        target: &Target,
        (asked, method): (Asked<'_>, &Method),
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let mut body = read_json(asked.headers, body).await?;
        let naming = Arc::clone(&self.stores.shared().naming);
        if target.gvr.group.is_empty() && &*target.gvr.resource == "pods" {
            body = named_after_its_node(body, &naming);
        }
        let pin = |name: Option<String>| name.and_then(|name| naming.split(&name).map(|(_, member)| member.clone()));
        // A pin waits for its own member, everything else for all: a name is promised once. An event goes with its object,
        // and its name is nobody else's.
        let only = match target.gvr.is_event() {
            true => pin(body_subject(&body)).or_else(|| self.somebody()),
            false => pin(body_name(&body)),
        };
        let ready = self.stores.ready(&target.gvr, only.as_ref()).await?;
        let request = request(target, &ready.store().spec().gvk, (asked, method), body);
        let name = body_name(&request.body).unwrap_or_default();
        let mut response = self.writer.create(request).await.into_response();
        if response.status().is_success() {
            remark(&ready, target, &name, &mut response);
        }
        asked.written(response, wanted, ready.store().spec(), &self.stores).await
    }

    /// A write to one object by its name, or to a subresource of it.
    async fn named(
        &self,
        info: &RequestInfo,
        target: &Target,
        (asked, method): (Asked<'_>, &Method),
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let body = match *method {
            Method::PATCH => read_patch(asked.headers, body).await?,
            _ => read_json(asked.headers, body).await?,
        };
        // Source: kubernetes/apiserver `pkg/endpoints/handlers/namer.go`. Only custom resources have such routes.
        if target.name.is_empty() {
            return Err(Status::bad_request("name must be provided"));
        }
        self.aimed(info, target, (asked, method), body).await
    }

    /// A `POST` of a binding that names its pod in its body alone: `bindings` is an older way to say `pods/<name>/binding`.
    async fn binding(
        &self,
        target: &Target,
        (asked, method): (Asked<'_>, &Method),
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let body = read_json(asked.headers, body).await?;
        let name = body_name(&body).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Status::bad_request("Name parameter required."))?;
        let target = Target { gvr: Gvr::new("", "v1", "pods"), name, ..target.clone() };
        let info = RequestInfo { verb: "create".into(), subresource: "binding".into(), ..RequestInfo::default() };
        self.aimed(&info, &target, (asked, method), body).await
    }

    /// A write to one object, with its body as JSON; or a read of a subresource, which has none.
    async fn aimed(
        &self,
        info: &RequestInfo,
        target: &Target,
        (asked, method): (Asked<'_>, &Method),
        body: Bytes,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let naming = Arc::clone(&self.stores.shared().naming);
        let only = naming.split(&target.name).map(|(_, member)| member.clone());
        let ready = self.stores.ready(&target.gvr, only.as_ref()).await?;
        let mut request = request(target, &ready.store().spec().gvk, (asked, method), body);
        request.subresource.clone_from(&info.subresource);
        let is_read = *method == Method::GET;
        let response = match self.aim(&ready, target, &request)? {
            Aim::Whole(name) if info.verb == "delete" && info.subresource.is_empty() => {
                self.writer.delete(request, name).await.into_response()
            }
            Aim::Whole(name) if is_read => self.writer.update(request, name).await.into_response(),
            Aim::Whole(name) => {
                let mut response = self.writer.update(request, name.clone()).await.into_response();
                remark(&ready, target, &name, &mut response);
                response
            }
            Aim::Native { own, member } if is_read => self.writer.read(&request, &own, &member).await.into_response(),
            Aim::Native { own, member } => self.writer.forward(request, own, member).await.into_response(),
        };
        asked.written(response, wanted, ready.store().spec(), &self.stores).await
    }

    /// A read of a subresource that is no view of the whole object: live, as a write to it.
    pub(super) async fn subresource(
        &self,
        info: &RequestInfo,
        target: &Target,
        asked: Asked<'_>,
    ) -> Result<Response<Body>, Status> {
        self.aimed(info, target, (asked, &Method::GET), Bytes::new()).await
    }

    /// A `DELETE` of a collection: answered with the list of what was in it.
    async fn delete_collection(
        &self,
        target: &Target,
        (asked, method): (Asked<'_>, &Method),
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let body = read_json(asked.headers, body).await?;
        // Whichever view asks: what is left out would stay, and nobody would know.
        let whole = Asked { mode: Mode::Whole, ..asked };
        let (ready, mut list, entries) = Box::pin(self.reader.collection(target, whole)).await?;
        let naming = Arc::clone(&self.stores.shared().naming);
        let selected = entries.iter().map(|entry| {
            let member = entry.holders.first().filter(|_| !entry.folded);
            Selected {
                name: entry.name().to_owned(),
                namespace: entry.namespace().to_owned(),
                uid: entry.uid().to_owned(),
                native: member.map(|member| (naming.own(entry.name()).to_owned(), member.clone())),
            }
        });
        let mut request = request(target, &ready.store().spec().gvk, (asked, method), body);
        request.name.clear();
        match self.writer.delete_collection(request, selected.collect()).await {
            Ok(warnings) => {
                warnings.write_to(list.headers_mut());
                Ok(asked.encoded(list, wanted.encoding).await)
            }
            Err(refused) => Ok(asked.encoded(refused.into_response(), wanted.encoding).await),
        }
    }

    /// A member that is up.
    fn somebody(&self) -> Option<MemberName> {
        let members = self.stores.registry().members();
        members.iter().find(|member| !member.health().is_down()).map(|member| member.name().clone())
    }

    /// Says whose an object is.
    ///
    /// Errors: 404 or 409 as a get answers; 409 for the part of a placed object.
    fn aim(&self, ready: &Ready, target: &Target, request: &Request) -> Result<Aim, Status> {
        let naming = Arc::clone(&self.stores.shared().naming);
        if let Some((own, member)) = naming.split(&target.name) {
            let whole = key(&target.namespace, own);
            let parts = ready.store().shown_parts(&whole);
            let native = || Aim::Native { own: own.to_owned(), member: member.clone() };
            // A token is of one member's account, and changes nothing in the object.
            if request.subresource == "token" && parts.iter().any(|part| part.member == *member) {
                return Ok(native());
            }
            if parts.iter().any(|part| part.marker.is_some() && part.member == *member) {
                let gvr = &target.gvr;
                let message = format!(
                    "{:?} is the part in member {member} of {} {own:?}: write to {own:?} as a whole, or to the part in \
                     its member (kubectl --context fleet-{member})",
                    target.name,
                    gvr.qualified()
                );
                return Err(Status::conflict(&gvr.group, &gvr.resource, &target.name, message));
            }
            let gvr = &target.gvr;
            // The member says itself what it does not have, and may make it: a lease is made by a PUT, anything by an apply.
            if !naming.is_shared(&gvr.group, &gvr.resource, &target.namespace, own) {
                return Ok(native());
            }
        }
        if !ready.store().shown_parts(&key(&target.namespace, &target.name)).is_empty() {
            return Ok(Aim::Whole(target.name.clone()));
        }
        let entry = match (self.reader.named(ready, target), naming.members()) {
            (Err(status), _) if makes(request) && status.code == StatusCode::NOT_FOUND => {
                return Ok(Aim::Whole(target.name.clone()));
            }
            // Where names are plain there is one member, which says so itself.
            (Err(_), [only]) if naming.is_plain() => {
                return Ok(Aim::Native { own: target.name.clone(), member: only.clone() });
            }
            (entry, _) => entry?,
        };
        let own = naming.own(entry.name()).to_owned();
        match entry.holders.first() {
            Some(member) if !entry.folded => Ok(Aim::Native { own, member: member.clone() }),
            _ => Ok(Aim::Whole(entry.name().to_owned())),
        }
    }
}

/// `bindings` of the core group, which can only be posted.
fn is_binding(gvr: &Gvr) -> bool {
    gvr.group.is_empty() && &*gvr.resource == "bindings"
}

/// Says of what was written what a read of it would say. Who is behind, and why, its writer has said.
fn remark(ready: &Ready, target: &Target, name: &str, response: &mut Response<Body>) {
    let remarks = ready.store().remarks(&key(&target.namespace, name));
    let remarks = Remarks { behind: Vec::new(), ..remarks };
    let mut warnings = Warnings::default();
    remarks.sentences(&target.gvr.qualified(), name).iter().for_each(|sentence| warnings.add(sentence));
    warnings.write_to(response.headers_mut());
}

/// The write as its room takes it.
pub(super) fn request(target: &Target, gvk: &Gvk, (asked, method): (Asked<'_>, &Method), body: Bytes) -> Request {
    let text = |name: header::HeaderName| asked.headers.get(name).and_then(|value| value.to_str().ok());
    let content_type = text(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
    Request {
        caller: asked.caller.clone(),
        method: method.clone(),
        gvr: target.gvr.clone(),
        gvk: gvk.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        subresource: String::new(),
        query: asked.query.to_owned(),
        content_type: content_type.unwrap_or_default().trim().to_owned(),
        user_agent: text(header::USER_AGENT).map(str::to_owned),
        body,
    }
}
