//! Reads what a request is about, and picks who answers it.
//!
//! It answers nothing itself but refusals of what no room has a route for. May name: `discovery`, `read`, `write`, `review`,
//! `stream`, `status`, and what is below them.

mod allowed;
mod own;
mod searchable;
mod searched;
mod selected;
mod system;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, header, request::Parts};

use crate::{
    access::{Access, Grants, Impersonator, MASTERS, Own, Who},
    answer::{RequestContext, unbuilt::request_not_built},
    catalog::{MergedResource, Scope},
    discovery::{Discovery, OpenApi, OwnDocuments, is_discovery_path, is_openapi_path},
    member::{
        Member,
        impersonation::{parts, permit},
        view,
    },
    observe::{Exposed, Metrics},
    own::{Fleet, Members, OwnObjects, Policies},
    read::{Reader, over_websocket},
    respond::{RouteError, StoresError, ViewError},
    review::{self, is_review},
    route::searchable::Searchable,
    search::{self, PathOf},
    status::{self, STATUS_PATH},
    store::unix_micros,
    stores::{Marking, Stores, Target},
    stream::{self, StreamAsked, is_stream},
    view::{Mode, View},
    write::{Incoming, Writer, live::LiveFleet, moves::MOVES_PATH, preview::PLAN_PATH},
};
use kubefold_serving::{
    caller::Caller,
    encode::encode,
    impersonation::Impersonation,
    request::drain,
    upgrade::{UpgradeAsked, WebSocketAsked},
};
use kubefold_wire::{
    body::Body,
    deadline,
    info::{RequestInfo, without_tail},
    media, options,
    resource::Gvr,
    status::Status,
};

/// A kube-apiserver has routes for these; HEAD and OPTIONS it answers with 405, wherever the path leads.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// What a `proxy` subresource takes beyond what all others do.
const PROXY_METHODS: [Method; 2] = [Method::HEAD, Method::OPTIONS];
/// Subresources that are no streams, whatever else a request for one says.
const ANSWERED: [&str; 10] = [
    "approval",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "finalize",
    "resize",
    "rollback",
    "scale",
    "status",
    "token",
];

/// Picks who answers a request.
pub struct Router {
    stores: Arc<Stores>,
    access: Arc<Access>,
    discovery: Discovery,
    openapi: OpenApi,
    reader: Reader,
    writer: Arc<Writer<LiveFleet>>,
    metrics: Arc<Metrics>,
    own: OwnRooms,
    searched: Searchable,
}

/// What answers for kubefold's own objects, and what is to know of their writes.
#[derive(Clone)]
pub struct OwnRooms {
    /// All of them.
    pub objects: Arc<OwnObjects>,
    /// Those that are policies.
    pub policies: Arc<Policies>,
    /// Those that are members.
    pub members: Arc<Members>,
}

impl Fleet for Router {
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Response<Body>> {
        Box::pin(self.route(request))
    }
}

/// As whom somebody acts, and who it is if that is somebody else.
struct Acting {
    caller: Caller,
    through: Option<Arc<Impersonator>>,
}

impl Router {
    /// Routes to these rooms.
    pub fn new(
        access: Arc<Access>,
        reader: Reader,
        writer: Arc<Writer<LiveFleet>>,
        metrics: Arc<Metrics>,
        own: OwnRooms,
    ) -> Self {
        let stores = Arc::clone(access.stores());
        let (discovery, openapi) = (Discovery::default(), OpenApi::default());
        let searched = Searchable::default();
        Self { stores, access, discovery, openapi, reader, writer, metrics, own, searched }
    }

    /// Answers a request that was let in; its `Caller` is in its extensions.
    pub async fn route(&self, request: Request<Body>) -> Response<Body> {
        // One allocation a request, in place of a future of 8 KiB in every task.
        Box::pin(self.answer(request)).await.unwrap_or_else(Status::into_response)
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        // Nobody comes here without an identity; who would, has none.
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let view = View::of(target).map_err(RouteError::from)?;
        let acting = match request.extensions().get::<Impersonation>().cloned() {
            None => Acting { caller, through: None },
            Some(wanted) => Box::pin(self.impersonated(&view, caller, wanted)).await?,
        };
        let who = Who { caller: &acting.caller, through: acting.through.as_ref() };
        match view {
            View::Member { name, rest } => self.member_view(&name, &rest, who.caller, request).await,
            View::Fleet(Mode::Whole) => self.fleet_view(Mode::Whole, who, request).await,
            View::Fleet(mode) => {
                let rest = Mode::split(target).1;
                let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
                let uri = http::Uri::try_from(rest).map_err(RouteError::from)?;
                let mut request = request;
                // Over HTTP/2 the host stands nowhere else.
                let host = request.uri().authority().and_then(|host| header::HeaderValue::from_str(host.as_str()).ok());
                if let Some(host) = host {
                    request.headers_mut().entry(header::HOST).or_insert(host);
                }
                *request.uri_mut() = uri;
                // For whoever tells the client a path.
                request.extensions_mut().insert(mode);
                self.fleet_view(mode, who, request).await
            }
        }
    }

    /// As whom a caller acts who asks to be somebody else.
    ///
    /// Errors: in a member view, the member's refusal.
    async fn impersonated(&self, view: &View, caller: Caller, wanted: Impersonation) -> Result<Acting, Status> {
        match view {
            View::Member { name, .. } => {
                // Nobody's member is said to be missing later.
                if let Some(member) = self.stores.registry().get(name) {
                    permit(&member, &caller, &wanted).await.map_err(ViewError::from)?;
                }
                Ok(Acting { caller: wanted.caller(&caller), through: None })
            }
            // Whoever is an administrator of every member may be anybody there.
            View::Fleet(_) if caller.is_in(MASTERS) => Ok(Acting { caller: wanted.caller(&caller), through: None }),
            // Each member is asked when it is known what of it is wanted.
            View::Fleet(_) => {
                let through = Arc::new(Impersonator { caller, parts: parts(&wanted) });
                Ok(Acting { caller: wanted.caller(&through.caller), through: Some(through) })
            }
        }
    }

    /// The member's own API answers.
    async fn member_view(
        &self,
        name: &str,
        rest: &str,
        caller: &Caller,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        if let Some(member) = self.stores.registry().get(name) {
            let marking = self.marking(&member, request.method(), rest);
            let response = Box::pin(view::pass_body(&member, caller, request, rest)).await;
            if let Some(marking) = marking {
                marking.answered(response.status());
            }
            return Ok(response);
        }
        let members = self.stores.registry().members();
        let members = members.iter().map(|member| member.name().to_string()).collect();
        Err(RouteError::NoMember { name: name.to_owned(), members }.into())
    }

    /// What a write through a member's own API makes the next read of the fleet view make sure of.
    fn marking(&self, member: &Member, method: &Method, rest: &str) -> Option<Marking> {
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return None;
        }
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::of(method, path, query).ok().filter(|info| info.is_resource_request)?;
        Some(self.stores.marking(member.name(), &info))
    }

    /// Discovery, read and write answer.
    async fn fleet_view(&self, mode: Mode, who: Who<'_>, request: Request<Body>) -> Result<Response<Body>, Status> {
        let of_own = match request.uri().path() {
            path if path == STATUS_PATH || Exposed::at(path).is_some() => Some(Own::View),
            MOVES_PATH if request.method() == Method::GET => Some(Own::View),
            PLAN_PATH | MOVES_PATH => Some(Own::Administer),
            _ => None,
        };
        if let Some(own) = of_own.filter(|own| !self.access.allows_own(who, *own)) {
            return Ok(refuse(who.caller, own.group(), request.headers()));
        }
        if let Some(exposed) = Exposed::at(request.uri().path()) {
            return match *request.method() {
                Method::GET | Method::HEAD => {
                    Ok(self.metrics.answer(exposed, request.headers()).map_err(RouteError::from)?)
                }
                _ => Err(RouteError::Method.into()),
            };
        }
        if request.uri().path() == STATUS_PATH {
            return match *request.method() {
                Method::GET => Ok(status::answer(&self.stores, self.writer.journal(), unix_micros() / 1_000_000)),
                _ => Err(RouteError::Method.into()),
            };
        }
        let (parts, body) = request.into_parts();
        let grants = &Grants::default();
        let query = parts.uri.query().unwrap_or_default();
        let cache = parts.extensions.get().copied();
        let asked = RequestContext { caller: who.caller, query, headers: &parts.headers, mode, grants, cache };
        match self.fleet(who, asked, &parts, body).await {
            Ok(response) => Ok(response),
            Err(status) => {
                let encoding = media::of_failure(&parts.headers, parts.uri.query());
                Ok(encode(status.into_response(), encoding).await)
            }
        }
    }

    async fn fleet(
        &self,
        who: Who<'_>,
        asked: RequestContext<'_>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        if let Err(status) = deadline::check(&parts.method, parts.uri.path(), parts.uri.query()) {
            Box::pin(drain(body)).await;
            return Err(status);
        }
        if !is_admin(who) && ![PLAN_PATH, MOVES_PATH].contains(&parts.uri.path()) {
            Box::pin(self.allow_path(who, parts)).await?;
        }
        if parts.uri.path() == "/openapi/v2" {
            Box::pin(self.stores.definitions_are_described()).await;
        } else if is_openapi_path(parts.uri.path()) {
            Box::pin(self.stores.definitions_are_published()).await;
        } else if is_discovery_path(parts.uri.path()) {
            Box::pin(self.stores.definitions_are_served()).await;
        }
        if is_openapi_path(parts.uri.path()) {
            // Boxed, as all that follow a head to a member: the future of every request is as large as its largest part.
            let document = parts.uri.path().strip_prefix("/openapi/v3/").unwrap_or_default();
            if self.own.objects.owns_document(document) && parts.method == Method::GET {
                return Ok(Box::pin(self.own.objects.document(parts)).await);
            }
            let own = OwnDocuments { index: self.own.objects.documents(), swagger: self.own.objects.swagger() };
            return Ok(Box::pin(self.openapi.answer(&self.stores, own, parts)).await?);
        }
        let (path, query) = (parts.uri.path(), parts.uri.query());
        if path == PLAN_PATH {
            if parts.method != Method::POST {
                Box::pin(drain(body)).await;
                return Err(RouteError::Method.into());
            }
            return Box::pin(self.writer.preview(asked, body)).await;
        }
        if path == MOVES_PATH {
            return Box::pin(self.writer.moves(asked, &parts.method, body)).await;
        }
        let is_discovery = is_discovery_path(path);
        if is_discovery && !METHODS.contains(&parts.method) {
            return Err(RouteError::Method.into());
        }
        if let Some(asked_path) = PathOf::read(path) {
            return Box::pin(self.clusterpedia(who, asked, parts, asked_path, body)).await;
        }
        if is_discovery {
            return Box::pin(self.discovery(parts)).await;
        }
        let info = RequestInfo::of(&parts.method, without_tail(path), query).map_err(RouteError::from)?;
        if !info.is_resource_request || info.resource.is_empty() {
            return Err(RouteError::NoSuchPath.into());
        }
        self.resource(&info, who, asked, parts, body).await
    }

    async fn discovery(&self, parts: &Parts) -> Result<Response<Body>, Status> {
        let (path, query) = (parts.uri.path(), parts.uri.query());
        let mut headers = parts.headers.clone();
        // HTTP/2 names the host in its pseudo header; discovery tells clients the address that they used.
        if let (None, Some(host)) = (headers.get(header::HOST), parts.uri.authority())
            && let Ok(host) = header::HeaderValue::from_str(host.as_str())
        {
            headers.insert(header::HOST, host);
        }
        let catalog = self.stores.catalog();
        let hashes = self.discovery.storage_hashes(&self.stores, path, &catalog).await;
        let answer = self.discovery.handle(&parts.method, path, query, &headers, &catalog, &hashes);
        answer.ok_or_else(|| RouteError::NoSuchPath.into())
    }

    async fn resource(
        &self,
        info: &RequestInfo,
        who: Who<'_>,
        asked: RequestContext<'_>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
        if self.own.objects.serves(&gvr.group) {
            return Box::pin(self.own_object(info, &gvr, who, parts, body)).await;
        }
        if let Some(of) = self.of_system(info, &gvr, parts).await? {
            return Box::pin(self.system_object(of, info, &gvr, who, parts, body)).await;
        }
        let mut catalog = self.stores.catalog();
        if catalog.get(&gvr).is_none() {
            Box::pin(self.stores.definitions_are_served()).await;
            catalog = self.stores.catalog();
        }
        let connects = connects(info, parts);
        // Before anything else is looked at: whoever may not ask learns nothing.
        let grants = match () {
            () if is_admin(who) => Box::default(),
            // A question to the members themselves.
            () if is_review(&gvr) => Box::pin(self.impersonates(who)).await?,
            () => Box::pin(self.grants(info, &gvr, who, asked, parts)).await?,
        };
        // Boxed, as what follows is the path of every read.
        let grants: &Grants = &grants;
        let asked = RequestContext { grants, ..asked };
        if catalog.get(&gvr).is_none() && !catalog.complete() && self.stores.is_stored(&gvr) {
            // What is in the tables alone is read in a way of its own, so a read waits here for members that have never answered.
            let _waited = Box::pin(self.stores.ready_for(&gvr, asked.reading(None))).await;
            catalog = self.stores.catalog();
        }
        let known = catalog.get(&gvr);
        match known {
            // Whether it is one of the object's, whoever has the object says.
            Some(_) if connects => {}
            Some(resource) => fits(info, resource)?,
            // A read waits for members that have never answered; only they might serve it.
            None if catalog.complete() => return Err(RouteError::NoSuchPath.into()),
            None => {}
        }
        let watches = info.verb == "watch";
        // `/api/v1/proxy/...` is long gone.
        if (watches && !info.subresource.is_empty()) || info.verb == "proxy" {
            return Err(RouteError::NoSuchPath.into());
        }
        if connects || is_stream(&gvr, &info.subresource) {
            return Box::pin(self.stream(StreamAsked { info, asked }, known, parts, body)).await;
        }
        if known.is_some_and(|known| known.stored) && !matches!(info.verb.as_str(), "get" | "list") {
            Box::pin(drain(body)).await;
            return Err(StoresError::InTables { gvr }.into());
        }
        // A path with `watch` in it is for reading.
        let routed = known.is_none_or(|resource| has_route(info, resource));
        if !METHODS.contains(&parts.method) || (watches && parts.method != Method::GET) || !routed {
            Box::pin(drain(body)).await;
            return Err(RouteError::Method.into());
        }
        let whole = watches || info.parts.len() <= 1;
        let negotiated = media::routable(&gvr.group, &parts.method, whole, &parts.headers).and_then(|()| {
            // A read does that itself.
            if parts.method == Method::GET { Ok(()) } else { asked.wanted_of(&gvr, &info.subresource).map(drop) }
        });
        if let Err(status) = negotiated {
            Box::pin(drain(body)).await;
            return Err(status);
        }
        // A request for one namespace names it twice: as itself, and as the namespace that it is in.
        let cluster_scoped = known.is_some_and(|resource| resource.scope == Scope::Cluster);
        let namespace = if cluster_scoped { String::new() } else { info.namespace.clone() };
        let target = Target { gvr, namespace, name: info.name.clone() };
        match (info.verb.as_str(), info.subresource.as_str()) {
            ("get" | "list" | "watch", _) => self.read(info, who, known, &target, asked, parts).await,
            // Writes are rarer than reads and their futures larger: boxed, so that the path of every read stays small.
            _ => {
                let write = Incoming { asked, method: &parts.method, info, target: &target, known };
                Box::pin(self.write(write, body)).await
            }
        }
    }

    /// What is neither a get, nor a list, nor a watch.
    async fn write(&self, write: Incoming<'_>, body: Body) -> Result<Response<Body>, Status> {
        let Incoming { asked, target, known, .. } = write;
        match (write.info.verb.as_str(), write.info.subresource.as_str()) {
            ("create", "") if is_review(&target.gvr) => review::answer(&self.stores, asked, target, known, body).await,
            ("deletecollection", "") => {
                // Whichever view asks: what is left out would stay, and nobody would know.
                let whole = RequestContext { mode: Mode::Whole, ..asked };
                let listed = Box::pin(self.reader.collection(target, whole));
                self.writer.answer_for_all(write, listed, body).await
            }
            _ => Box::pin(self.writer.answer(write, body)).await,
        }
    }

    /// Logs, exec, attach, port-forward, proxies, and what else speaks another protocol below an object.
    async fn stream(
        &self,
        stream: StreamAsked<'_>,
        known: Option<&MergedResource>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        let info = stream.info;
        let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
        let allowed = match info.subresource == "proxy" && is_stream(&gvr, "proxy") {
            // A proxied application's own methods: discovery names those that have a verb.
            true => METHODS.contains(&parts.method) || PROXY_METHODS.contains(&parts.method),
            false => {
                let known = known.filter(|_| is_stream(&gvr, &info.subresource));
                METHODS.contains(&parts.method) && known.is_none_or(|resource| has_route(info, resource))
            }
        };
        if !allowed {
            drain(body).await;
            return Err(RouteError::Method.into());
        }
        stream::answer(&self.stores, stream, Request::from_parts(parts.clone(), body)).await
    }

    async fn read(
        &self,
        info: &RequestInfo,
        who: Who<'_>,
        known: Option<&MergedResource>,
        target: &Target,
        asked: RequestContext<'_>,
        parts: &Parts,
    ) -> Result<Response<Body>, Status> {
        // What cannot be listed and watched no store can hold (reviews, bindings, component statuses), nor what has
        // revisions by which nothing can be ordered. The latter only a first list shows.
        if info.verb == "get"
            && let Err(status) = options::no_export(asked.query)
        {
            // What cannot be written is refused first.
            asked.wanted()?;
            return Err(status);
        }
        if let Some(stored) = known.filter(|known| known.stored && info.subresource.is_empty()) {
            return match info.verb.as_str() {
                "get" => Box::pin(self.reader.stored_get(stored, target, asked)).await,
                _ if search::searches(asked.query) => Box::pin(self.search_fleet(info, who, target, asked)).await,
                _ => Box::pin(self.reader.stored_list(target, asked)).await,
            };
        }
        let unstorable = || known.filter(|known| !known.watchable || self.stores.is_unordered(&target.gvr));
        if let Some(resource) = unstorable() {
            return Box::pin(self.unwatchable(info, resource, target, asked)).await;
        }
        let answer = match (info.verb.as_str(), info.subresource.as_str()) {
            // A kube-apiserver answers a get of these with the whole object, too.
            ("get", subresource @ ("" | "approval" | "ephemeralcontainers" | "resize" | "status")) => {
                self.reader.get(target, subresource, asked).await
            }
            ("get", "scale") => {
                let read = Incoming { asked, method: &parts.method, info, target, known };
                Box::pin(self.writer.read_subresource(read)).await
            }
            ("list" | "watch", "") if search::searches(asked.query) => {
                Box::pin(self.search_fleet(info, who, target, asked)).await
            }
            ("list", "") => self.reader.list_or_watch(target, false, asked).await,
            ("watch", "") => {
                let over_http = parts.extensions.get::<WebSocketAsked>().is_none();
                let response = self.reader.list_or_watch(target, true, asked).await;
                response.map(|watch| if over_http { watch } else { over_websocket(&parts.headers, watch) })
            }
            _ => Err(request_not_built(info, &self.stores.shared().naming).into()),
        };
        if let (Err(_), Some(resource)) = (&answer, unstorable()) {
            return Box::pin(self.unwatchable(info, resource, target, asked)).await;
        }
        let deprecations = self.stores.deprecations(&target.gvr, asked.audience());
        if deprecations.is_empty() { answer } else { Box::pin(asked.warned(answer, &deprecations)).await }
    }

    /// A read of what no store can hold.
    async fn unwatchable(
        &self,
        info: &RequestInfo,
        resource: &MergedResource,
        target: &Target,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        match info.verb.as_str() {
            _ if !info.subresource.is_empty() => Err(request_not_built(info, &self.stores.shared().naming).into()),
            "get" if resource.allows("get") => self.reader.live_get(resource, target, asked).await,
            "list" if resource.allows("list") => self.reader.live_list(resource, target, asked).await,
            "watch" if resource.allows("list") => Err(RouteError::Unwatchable(resource.gvr.clone()).into()),
            _ => Err(RouteError::Method.into()),
        }
    }
}

/// Says whether somebody may do everything in every member. Whoever acts as such a one may, where the members let him.
fn is_admin(who: Who<'_>) -> bool {
    who.is_of(&[MASTERS])
}

/// 403, and what to do instead.
fn refuse(caller: &Caller, group: &'static str, headers: &HeaderMap) -> Response<Body> {
    Status::from(RouteError::NotAdmin { user: caller.user.clone(), group, admins: MASTERS }).into_response_to(headers)
}

/// Says whether a client asks for another protocol below an object, in what is none of the subresources that kubefold
/// answers: a console of an aggregated API, or whatever comes.
fn connects(info: &RequestInfo, parts: &Parts) -> bool {
    let asks = parts.extensions.get::<UpgradeAsked>().is_some() && !info.name.is_empty();
    // What stands below a namespace is a collection in it.
    let below = !info.subresource.is_empty() && info.resource != "namespaces";
    asks && below && !ANSWERED.contains(&info.subresource.as_str())
}

/// Says whether a kube-apiserver has such a path: it makes one for each scope, and for each subresource.
fn fits(info: &RequestInfo, resource: &MergedResource) -> Result<(), RouteError> {
    let names_one = info.parts.len() > 1;
    let scope_fits = match resource.scope {
        Scope::Namespaced => !info.namespace.is_empty() || !names_one,
        // `namespaces/x` is about the namespace itself.
        Scope::Cluster => info.namespace.is_empty() || (info.resource == "namespaces" && info.namespace == info.name),
    };
    // What can only be posted has no names: a review, a binding.
    let by_name = ["get", "update", "patch", "delete"].iter().any(|verb| resource.allows(verb));
    let only_posted = names_one && info.subresource.is_empty() && resource.allows("create") && !by_name;
    let subresource_fits = info.subresource.is_empty() || resource.subresource(&info.subresource).is_some();
    // Below a subresource there is something only where it proxies.
    let too_deep = info.parts.len() > 3 && info.subresource != "proxy";
    if scope_fits && subresource_fits && !only_posted && !too_deep { Ok(()) } else { Err(RouteError::NoSuchPath) }
}

/// Says whether a kube-apiserver has a route for this method: one for each that a collection, an object or a subresource
/// allows. Of custom resources it looks at the method last, so that other refusals come first.
fn has_route(info: &RequestInfo, resource: &MergedResource) -> bool {
    if !media::is_built_in(&info.api_group) {
        return true;
    }
    if !info.subresource.is_empty() {
        let subresource = resource.subresource(&info.subresource);
        return subresource.is_none_or(|one| one.verbs.iter().any(|verb| **verb == *info.verb));
    }
    let in_one_place = resource.scope == Scope::Cluster || !info.namespace.is_empty();
    match (info.verb.as_str(), info.parts.len() > 1) {
        ("update" | "patch", named) => named,
        ("create", named) => !named && in_one_place,
        ("deletecollection", _) => in_one_place && resource.allows("deletecollection"),
        _ => true,
    }
}
