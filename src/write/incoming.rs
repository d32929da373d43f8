//! Writes as they arrive: of what sort each is, and whose the object is, one member's or several parts'.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};

use crate::{
    access::Grants,
    answer::{Collection, RequestContext, unbuilt::request_not_built},
    catalog::MergedResource,
    config::MemberName,
    respond::{AccessError, NotBuilt, ObjectRef, WriteError},
    store::{Audience, Notices, key},
    stores::{Ready, Target},
    write::{
        Selected, Writer,
        debugger::named_after_its_node,
        live::LiveFleet,
        makes,
        once::{Decoding, Once, once, warn_first},
        request::Request,
        update::APPLY_PATCH,
    },
};
use kubefold_serving::request::{body_name, body_subject, drain, read_json, read_object, read_patch};
use kubefold_wire::{
    body::Body,
    info::RequestInfo,
    resource::{Gvk, Gvr},
    status::Status,
    warning::Warnings,
};

/// A write as it came, and what is known of it. Its body comes beside it.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    /// Who asks, and for what answer.
    pub asked: RequestContext<'a>,
    /// The method of HTTP.
    pub method: &'a Method,
    /// The verb, the subresource, and the path for refusals.
    pub info: &'a RequestInfo,
    /// What is written to.
    pub target: &'a Target,
    /// What the members serve of it; absent while no member is known to serve it.
    pub known: Option<&'a MergedResource>,
}

impl Incoming<'_> {
    /// The write as its steps take it: of this kind, with its body as JSON.
    fn request(&self, gvk: &Gvk, body: Bytes) -> Request {
        Request::of(self.asked, self.method, self.target, gvk, body)
    }
}

/// Whose a named object is.
enum Aim {
    /// It is folded: placed or shared. Its visible name.
    Whole(String),
    /// It is one member's, by its own name there.
    MemberLocal { own: String, member: MemberName },
}

impl Writer<LiveFleet> {
    /// Answers what is neither a get, nor a list, nor a watch, nor the deletion of a collection.
    pub async fn answer(self: &Arc<Self>, write: Incoming<'_>, body: Body) -> Result<Response<Body>, Status> {
        if let Err(error) = self.may_write() {
            drain(body).await;
            return Err(error.into());
        }
        match (write.info.verb.as_str(), write.info.subresource.as_str()) {
            ("create", "") if is_binding(&write.target.gvr) => Box::pin(self.binding(write, body)).await,
            // What cannot be watched is in no store, by which its name could be promised.
            ("create", "") if write.known.is_some_and(|known| !known.watchable) => {
                drain(body).await;
                Err(self.not_built(write).into())
            }
            ("create", "") => self.posted(write, body).await,
            ("create" | "update" | "patch" | "delete", _) => Box::pin(self.named(write, body)).await,
            _ => Err(self.not_built(write).into()),
        }
    }

    /// Errors: another process may have the state by now.
    pub(super) fn may_write(&self) -> Result<(), WriteError> {
        self.journal.check().map_err(|error| WriteError::Journal(Box::new(error)))
    }

    fn not_built(&self, write: Incoming<'_>) -> NotBuilt {
        request_not_built(write.info, &self.fleet.stores.shared().naming)
    }

    /// A `POST` to a collection. What the writer does not build yet it refuses itself.
    async fn posted(self: &Arc<Self>, write: Incoming<'_>, body: Body) -> Result<Response<Body>, Status> {
        let Incoming { asked, target, .. } = write;
        let wanted = asked.wanted()?;
        let Once { json: mut body, warnings } =
            once(read_object(asked.headers, body).await?, asked.query, Decoding::Object)?;
        let naming = Arc::clone(&self.fleet.stores.shared().naming);
        if target.gvr.group.is_empty() && &*target.gvr.resource == "pods" {
            body = named_after_its_node(body, &naming);
        }
        let pin = |name: Option<String>| {
            name.and_then(|name| naming.split_of(&target.gvr, &name).map(|(_, member)| member.clone()))
        };
        // A pin waits for its own member, everything else for all: a name is promised once. An event goes with its object,
        // and its name is nobody else's.
        let only = match target.gvr.is_event() {
            true => pin(body_subject(&body)).or_else(|| self.somebody()),
            false => pin(body_name(&body)),
        };
        let ready = self.fleet.stores.ready(&target.gvr, only.as_ref()).await?;
        let request = write.request(&ready.store().spec().gvk, body);
        let name = body_name(&request.body).unwrap_or_default();
        let mut response = self.create(request).await.into_response();
        if response.status().is_success() {
            notice(&ready, target, &name, &mut response);
        }
        warn_first(&warnings, response.headers_mut());
        asked.written(response, wanted, ready.store().spec(), &self.fleet.stores).await
    }

    /// A write to one object by its name, or to a subresource of it.
    async fn named(self: &Arc<Self>, write: Incoming<'_>, body: Body) -> Result<Response<Body>, Status> {
        let Incoming { asked, method, target, .. } = write;
        let Once { json: body, warnings } = match *method {
            Method::PATCH => {
                let read = read_patch(asked.headers, body).await?;
                let is_applied = asked.headers.get(header::CONTENT_TYPE).and_then(|of| of.to_str().ok());
                let is_applied = is_applied.is_some_and(|of| of.starts_with(APPLY_PATCH));
                // Other patches are the members' to judge.
                if is_applied { once(read, asked.query, Decoding::Applied)? } else { read.json.into() }
            }
            // What a body of a DELETE says twice a kube-apiserver does not tell.
            Method::DELETE => read_json(asked.headers, body).await?.into(),
            _ => once(read_object(asked.headers, body).await?, asked.query, Decoding::Object)?,
        };
        // Source: kubernetes/apiserver `pkg/endpoints/handlers/namer.go`. Only custom resources have such routes.
        if target.name.is_empty() {
            return Err(WriteError::NameMissing.into());
        }
        let mut response = self.aimed(write, body).await?;
        warn_first(&warnings, response.headers_mut());
        Ok(response)
    }

    /// A `POST` of a binding that names its pod in its body alone: `bindings` is an older way to say `pods/<name>/binding`.
    async fn binding(self: &Arc<Self>, write: Incoming<'_>, body: Body) -> Result<Response<Body>, Status> {
        let Incoming { asked, target, .. } = write;
        let body = read_json(asked.headers, body).await?;
        let name = body_name(&body).filter(|name| !name.is_empty());
        let name = name.ok_or(WriteError::BindingNameMissing)?;
        let target = Target { gvr: Gvr::new("", "v1", "pods"), name, ..target.clone() };
        let info = RequestInfo { verb: "create".into(), subresource: "binding".into(), ..RequestInfo::default() };
        self.aimed(Incoming { info: &info, target: &target, ..write }, body).await
    }

    /// A write to one object, with its body as JSON; or a read of a subresource, which has none.
    async fn aimed(self: &Arc<Self>, write: Incoming<'_>, body: Bytes) -> Result<Response<Body>, Status> {
        let Incoming { asked, method, info, target, .. } = write;
        let wanted = asked.wanted_of(&target.gvr, &info.subresource)?;
        let naming = Arc::clone(&self.fleet.stores.shared().naming);
        let only = naming.split_of(&target.gvr, &target.name).map(|(_, member)| member.clone());
        let ready = self.fleet.stores.ready_for(&target.gvr, asked.reading(only.as_ref())).await?;
        let mut request = write.request(&ready.store().spec().gvk, body);
        request.subresource.clone_from(&info.subresource);
        let is_read = *method == Method::GET;
        let seen = asked.audience().and(asked.grants.get.audience());
        let aim = self.aim(&ready, target, &request, &seen)?;
        if let Aim::Whole(name) = &aim {
            check_whole(&ready, asked.grants, &key(&target.namespace, name))?;
        }
        let response = match aim {
            Aim::Whole(name) if info.verb == "delete" && info.subresource.is_empty() => {
                self.delete(request, name).await.into_response()
            }
            Aim::Whole(name) if is_read => self.update(request, name).await.into_response(),
            Aim::Whole(name) => {
                let mut response = self.update(request, name.clone()).await.into_response();
                notice(&ready, target, &name, &mut response);
                response
            }
            Aim::MemberLocal { own, member } if is_read => self.read(&request, &own, &member).await.into_response(),
            Aim::MemberLocal { own, member } => self.forward(request, own, member).await.into_response(),
        };
        asked.written(response, wanted, ready.store().spec(), &self.fleet.stores).await
    }

    /// A read of a subresource that is no view of the whole object: live, as a write to it.
    pub async fn read_subresource(self: &Arc<Self>, read: Incoming<'_>) -> Result<Response<Body>, Status> {
        self.aimed(read, Bytes::new()).await
    }

    /// A `DELETE` of a collection: answered with the list of what was in it, which `listed` gives once the body was read.
    pub async fn answer_for_all(
        self: &Arc<Self>,
        write: Incoming<'_>,
        listed: impl Future<Output = Result<Collection, Status>>,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let asked = write.asked;
        let wanted = asked.wanted()?;
        let body = read_json(asked.headers, body).await?;
        self.may_write()?;
        let Collection { ready, mut list, entries } = listed.await?;
        for entry in entries.iter().filter(|entry| entry.folded) {
            check_whole(&ready, asked.grants, &key(entry.namespace(), entry.name()))?;
        }
        let naming = Arc::clone(&self.fleet.stores.shared().naming);
        let selected = entries.iter().map(|entry| {
            let member = entry.holders.first().filter(|_| !entry.folded);
            Selected {
                name: entry.name().to_owned(),
                namespace: entry.namespace().to_owned(),
                uid: entry.uid().to_owned(),
                member_local: member
                    .map(|member| (naming.own(&write.target.gvr, entry.name()).into_owned(), member.clone())),
            }
        });
        let mut request = write.request(&ready.store().spec().gvk, body);
        request.name.clear();
        match self.delete_collection(request, selected.collect()).await {
            Ok(warnings) => {
                warnings.write_to(list.headers_mut());
                Ok(asked.encoded(list, wanted.encoding).await)
            }
            Err(refused) => Ok(asked.encoded(refused.into_response(), wanted.encoding).await),
        }
    }

    /// A member that is up.
    fn somebody(&self) -> Option<MemberName> {
        let members = self.fleet.stores.registry().members();
        members.iter().find(|member| !member.health().is_down()).map(|member| member.name().clone())
    }

    /// Says whose an object is, to those who see these members.
    ///
    /// Errors: 404 or 409 as a get answers; 409 for the part of a placed object.
    fn aim(&self, ready: &Ready, target: &Target, request: &Request, seen: &Audience) -> Result<Aim, Status> {
        let naming = Arc::clone(&self.fleet.stores.shared().naming);
        if let Some((own, member)) = naming.split_of(&target.gvr, &target.name) {
            let whole = key(&target.namespace, &own);
            let parts = ready.store().shown_parts(&whole);
            let member_local = || Aim::MemberLocal { own: own.to_string(), member: member.clone() };
            // A token is of one member's account, and changes nothing in the object.
            if request.subresource == "token" && parts.iter().any(|part| part.member == *member) {
                return Ok(member_local());
            }
            if parts.iter().any(|part| part.marker.is_some() && part.member == *member) {
                let part = ObjectRef { gvr: target.gvr.clone(), name: target.name.clone() };
                return Err(WriteError::PartAlone { part, own: own.to_string(), member: member.clone() }.into());
            }
            let gvr = &target.gvr;
            // The member says itself what it does not have, and may make it: a lease is made by a PUT, anything by an apply.
            if !naming.is_shared(&gvr.group, &gvr.resource, &target.namespace, &own) {
                return Ok(member_local());
            }
        }
        if !ready.store().shown_parts(&key(&target.namespace, &target.name)).is_empty() {
            return Ok(Aim::Whole(target.name.clone()));
        }
        let entry = match (self.fleet.stores.named(ready, target, seen), naming.members()) {
            (Err(status), _) if makes(request) && status.code == StatusCode::NOT_FOUND => {
                return Ok(Aim::Whole(target.name.clone()));
            }
            // Where names are plain there is one member, which says so itself.
            (Err(_), [only]) if naming.is_plain() => {
                return Ok(Aim::MemberLocal { own: target.name.clone(), member: only.clone() });
            }
            (entry, _) => entry?,
        };
        let own = naming.own(&target.gvr, entry.name()).into_owned();
        match entry.holders.first() {
            Some(member) if !entry.folded => Ok(Aim::MemberLocal { own, member: member.clone() }),
            _ => Ok(Aim::Whole(entry.name().to_owned())),
        }
    }
}

/// Refuses a change of an object that the caller may not read, or not change, in a member that has a part: he would write
/// back a sum of which he sees a half.
fn check_whole(ready: &Ready, grants: &Grants, key: &str) -> Result<(), AccessError> {
    let Some(entry) = ready.store().get(key) else { return Ok(()) };
    grants.asked.check_whole(&entry)?;
    grants.get.check_whole(&entry)
}

/// `bindings` of the core group, which can only be posted.
fn is_binding(gvr: &Gvr) -> bool {
    gvr.group.is_empty() && &*gvr.resource == "bindings"
}

/// Says of what was written what a read of it would say. Who is behind, and why, its writer has said.
fn notice(ready: &Ready, target: &Target, name: &str, response: &mut Response<Body>) {
    let notices = ready.store().notices(&key(&target.namespace, name));
    let notices = Notices { behind: Vec::new(), ..notices };
    let mut warnings = Warnings::default();
    notices.sentences(&target.gvr.qualified(), name).iter().for_each(|sentence| warnings.add(sentence));
    warnings.write_to(response.headers_mut());
}

impl Request {
    /// The write of `asked` to a target of this kind, with its body as JSON.
    pub(super) fn of(asked: RequestContext<'_>, method: &Method, target: &Target, gvk: &Gvk, body: Bytes) -> Self {
        let text = |name: header::HeaderName| asked.headers.get(name).and_then(|value| value.to_str().ok());
        let content_type = text(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
        Self {
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
            refusing: asked.grants.create.refusing(),
            body,
        }
    }
}
