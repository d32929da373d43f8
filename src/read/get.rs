//! Get: live from the owner, taken into the store, answered from it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};

use crate::{
    answer::{RequestContext, form::Form},
    config::MemberName,
    member::Member,
    read::{
        Freshness,
        answer::{json_response, protobuf_response},
        fresh::{Due, Need, prove, wants_no_cache},
    },
    respond::{ReadError, StoresError},
    store::{Audience, Entry, FleetStore, KindSpec, Notices, Part, Revision, key},
    stores::{
        Patience, Ready, Scope, Stores, Target,
        names::{Named, not_found, resolve},
    },
    upstream::{Class, Failure, Outgoing, UpstreamError, cause::Cause, collect},
    view::Mode,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    body::{Body, empty, full},
    locate::Paths,
    options::{At, at, query_value},
    path::ApiPath,
    splice::{Edit, ObjectEdits, splice, string},
    status::Status,
    warning::Warnings,
};

/// Who leads is decided by them.
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");
/// Largest object that is read.
const OBJECT_BYTES_MAX: usize = 64 << 20;

/// Answers a get. `form` makes what is asked for of the kind.
pub(super) async fn get(
    stores: &Stores,
    of: &Of<'_>,
    asked: RequestContext<'_>,
    freshness: Freshness,
    form: impl FnOnce(&KindSpec) -> Result<Form, Status>,
) -> Result<Response<Body>, Status> {
    let naming = Arc::clone(&stores.shared().naming);
    let split = naming.split_of(&of.target.gvr, &of.target.name);
    let split = split.map(|(own, member)| (own.into_owned(), member.clone()));
    let only = split.as_ref().map(|(_, member)| member);
    let mut ready = stores.ready_for(&of.target.gvr, asked.reading(only)).await?;
    // One that does not fit is refused when there is an object that it does not fit.
    let form = form(ready.store().spec());
    if from_store(stores, asked)? && !wants_no_cache(asked.headers) {
        let mut warnings = ready.to_warnings();
        return match shown(stores, &ready, of.target, only, asked.audience())? {
            Some(answer) => {
                notice(stores, &ready, of.target, asked.audience(), &answer, &mut warnings);
                Ok(answer.response(of.target, form?, ready.store(), warnings))
            }
            None => Ok(missing(&ready, of.target, asked.audience(), &warnings)),
        };
    }
    match split {
        Some((own, member)) => pinned(stores, &ready, of, asked, form, &own, &member).await,
        None => {
            // Which members are to be asked the store says: it must know of what was made a moment ago.
            let scope = Scope {
                namespace: of.target.namespace.clone(),
                name: Some(of.target.name.clone()),
                ..Scope::default()
            };
            let due = Due { need: Need::of_get(asked.headers, freshness), scope };
            Box::pin(prove(stores, &mut ready, due, None, asked)).await?;
            plain(stores, &ready, of, asked, form).await
        }
    }
}

/// What a get is about.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) target: &'a Target,
    /// `status`; empty for none. Members answer with the whole object, to whoever may read that alone, too.
    pub(super) subresource: &'a str,
}

/// Says whether the caller takes what is at hand: a revision is set.
fn from_store(stores: &Stores, asked: RequestContext<'_>) -> Result<bool, Status> {
    let last = stores.shared().revisions.last();
    match at(&query_value(asked.query, "resourceVersion").unwrap_or_default())? {
        At::Newest => Ok(false),
        At::Revision(revision) if revision > last.0 => {
            Err(ReadError::TooLarge { asked: revision, current: last.0 }.into())
        }
        At::Any | At::Revision(_) => Ok(true),
    }
}

/// `web-0@east`: one member decides.
async fn pinned(
    stores: &Stores,
    ready: &Ready,
    of: &Of<'_>,
    asked: RequestContext<'_>,
    form: Result<Form, Status>,
    own: &str,
    name: &MemberName,
) -> Result<Response<Body>, Status> {
    let live = match stores.registry().get(name.as_str()) {
        Some(member) => Question::new(ready, of, asked, own).ask(&member).await,
        None => leaving(name),
    };
    let mut warnings = Warnings::default();
    match live {
        Live::Taken => {}
        Live::NotFound => return Err(not_found(ready.store(), of.target, asked.audience()).into()),
        Live::Refused(response) => return Ok(*response),
        Live::Failed(why) => last_known(of.target, asked, &mut warnings, why)?,
    }
    match shown(stores, ready, of.target, Some(name), asked.audience())? {
        Some(answer) => {
            notice(stores, ready, of.target, asked.audience(), &answer, &mut warnings);
            Ok(answer.response(of.target, form?, ready.store(), warnings))
        }
        None => Ok(missing(ready, of.target, asked.audience(), &warnings)),
    }
}

/// 404 of an object that the store does not have. The last known state of a member that is down may lack what the member
/// holds by now: the warnings say so here, too.
fn missing(ready: &Ready, target: &Target, audience: &Audience, warnings: &Warnings) -> Response<Body> {
    let mut response = Status::from(not_found(ready.store(), target, audience)).into_response();
    warnings.write_to(response.headers_mut());
    response
}

/// A plain name: of a folded object all its holders are asked, of a member-local object the one that it is short for.
async fn plain(
    stores: &Stores,
    ready: &Ready,
    of: &Of<'_>,
    asked: RequestContext<'_>,
    form: Result<Form, Status>,
) -> Result<Response<Body>, Status> {
    let naming = Arc::clone(&stores.shared().naming);
    let audience = asked.audience();
    let entry = match resolve(&naming, ready.store(), of.target, audience)? {
        Named::Visible(entry) | Named::Shorthand(entry) => entry,
        Named::Nothing => {
            return Ok(missing(ready, of.target, audience, &ready.to_warnings()));
        }
    };
    let own = naming.own(&of.target.gvr, entry.name()).into_owned();
    // Of a shared object the first holder supplies everything; a placed one is made of all its parts.
    let parts = ready.store().shown_parts(&key(&of.target.namespace, &own));
    let placed = parts.iter().any(|part| part.marker.is_some());
    let asked_of = if entry.folded && !placed { 1 } else { entry.holders.len() };
    let question = Question::new(ready, of, asked, &own);
    let lives = question.ask_holders(stores, &entry.holders[..asked_of], entry.holders.len() == 1, asked).await;
    let mut warnings = Warnings::default();
    let only_one = entry.holders.len() == 1;
    for live in lives {
        match live {
            Live::Taken => {}
            Live::NotFound if only_one => return Err(not_found(ready.store(), of.target, audience).into()),
            // One part of several is gone: its member's watch will say so.
            Live::NotFound => {}
            Live::Refused(response) => return Ok(*response),
            Live::Failed(why) => last_known(of.target, asked, &mut warnings, why)?,
        }
    }
    match shown(stores, ready, of.target, None, audience)? {
        Some(answer) => {
            notice(stores, ready, of.target, audience, &answer, &mut warnings);
            Ok(answer.response(of.target, form?, ready.store(), warnings))
        }
        None => Err(not_found(ready.store(), of.target, audience).into()),
    }
}

/// Says what the object itself has no place for: who is behind, whose part differs, who else has the name.
fn notice(
    stores: &Stores,
    ready: &Ready,
    target: &Target,
    audience: &Audience,
    answer: &Answer,
    warnings: &mut Warnings,
) {
    let naming = Arc::clone(&stores.shared().naming);
    let (own, member) = naming.split_of(&target.gvr, &target.name).unzip();
    let own = own.unwrap_or_else(|| target.name.as_str().into());
    let mut notices = ready.store().notices(&key(&target.namespace, &own)).told_to(audience);
    match answer {
        Answer::Entry(entry) if entry.folded => {}
        // Of a member-local object only that another placement has its plain name.
        Answer::Entry(_) | Answer::Part(..) => {
            notices.others.retain(|other| Some(other) == member);
            notices = Notices { others: notices.others, ..Notices::default() };
        }
    }
    for sentence in notices.sentences(&target.gvr.qualified(), &own) {
        warnings.add(&sentence);
    }
}

/// The last known state is shown with a warning. In the strict view it is not, and that of a Lease never: who leads is decided
/// by it.
fn last_known(target: &Target, asked: RequestContext<'_>, warnings: &mut Warnings, why: String) -> Result<(), Status> {
    if asked.mode == Mode::Strict {
        return Err(StoresError::NotCurrent(vec![why]).into());
    }
    if (&*target.gvr.group, &*target.gvr.resource) == LEASES {
        return Err(ReadError::LeaseUnknown { name: target.name.clone(), why }.into());
    }
    warnings.add(&format!("{why}; its last known state is shown"));
    Ok(())
}

/// What one member said.
enum Live {
    /// The object, now in the store.
    Taken,
    /// There is none. That removes nothing: the watch will.
    NotFound,
    /// Another answer, for the caller as it is.
    Refused(Box<Response<Body>>),
    /// No answer, and why: the last known state is what there is.
    Failed(String),
}

fn leaving(name: &MemberName) -> Live {
    Live::Failed(format!("member {name} is being removed"))
}

/// A get of one object, for as many members as hold it. It may outlive the request.
struct Question {
    store: Arc<FleetStore>,
    target: Target,
    subresource: String,
    /// The members' own name of the object.
    own: String,
    caller: Caller,
    agent: Option<HeaderValue>,
}

impl Question {
    fn new(ready: &Ready, of: &Of<'_>, asked: RequestContext<'_>, own: &str) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(ready.store()),
            target: of.target.clone(),
            subresource: of.subresource.to_owned(),
            own: own.to_owned(),
            caller: asked.caller.clone(),
            agent: asked.headers.get(header::USER_AGENT).cloned(),
        })
    }

    /// Asks some of the holders of an object, or its only one. That one is waited for, as it is about nothing else; of several
    /// none, longer than another takes.
    async fn ask_holders(
        self: &Arc<Self>,
        stores: &Stores,
        holders: &[MemberName],
        is_only: bool,
        asked: RequestContext<'_>,
    ) -> Vec<Live> {
        let members: Vec<Option<Arc<Member>>> =
            holders.iter().map(|name| stores.registry().get(name.as_str())).collect();
        if let (true, [Some(member)]) = (is_only, members.as_slice()) {
            return vec![self.ask(member).await];
        }
        let known: Vec<Arc<Member>> = members.iter().flatten().cloned().collect();
        let wants_now = asked.mode == Mode::Strict || wants_no_cache(asked.headers);
        let patience = if wants_now { Patience::Much } else { Patience::Little };
        let ask = |member: Arc<Member>| {
            let question = Arc::clone(self);
            async move { question.ask(&member).await }
        };
        let is_answer = |live: &Live| !matches!(live, Live::Failed(_));
        let mut said = stores.ask_all(&known, patience, is_answer, ask).await.into_iter();
        let each = holders.iter().zip(members).map(|(name, member)| match member {
            Some(_) => said.next().flatten().unwrap_or_else(|| late(name)),
            None => leaving(name),
        });
        each.collect()
    }

    async fn ask(&self, member: &Member) -> Live {
        let name = member.name();
        let incarnation = self.store.incarnation(name);
        match self.fetch(member).await {
            Ok((StatusCode::OK, _, body)) => {
                let document = std::str::from_utf8(&body).unwrap_or_default();
                match self.store.ingest_live(name, incarnation, document) {
                    Ok(_) => Live::Taken,
                    Err(error) => {
                        member.meter().failed(Cause::BadObject);
                        Live::Failed(format!("member {name} answered with something that is not an object ({error})"))
                    }
                }
            }
            Ok((StatusCode::NOT_FOUND, _, _)) => Live::NotFound,
            // Neither is about the caller: a 401 is kubefold's own credential, with a 5xx the member says that it cannot say,
            // and a redirect is some proxy's.
            Ok((code, _, body)) if code == StatusCode::UNAUTHORIZED || !code.is_client_error() => {
                Live::Failed(format!("member {name} answered {code}{}", told(&body)))
            }
            Ok((code, headers, body)) => {
                let mut response = Response::new(full(body));
                *response.status_mut() = code;
                for kept in [header::CONTENT_TYPE, header::RETRY_AFTER] {
                    if let Some(value) = headers.get(&kept) {
                        response.headers_mut().insert(kept, value.clone());
                    }
                }
                Live::Refused(Box::new(response))
            }
            // Nothing was asked: what the caller may see is not known, and is not shown.
            Err(error) if matches!(error.failure, Failure::Request(_) | Failure::Saturated { .. }) => {
                Live::Refused(Box::new(Status::from(error).into_response()))
            }
            Err(error) => Live::Failed(format!("member {}: {}", name, error.cause())),
        }
    }

    async fn fetch(&self, member: &Member) -> Result<(StatusCode, HeaderMap, Bytes), UpstreamError> {
        let Target { gvr, namespace, .. } = &self.target;
        let path = ApiPath::within(gvr, namespace).then(&self.own).then(&self.subresource);
        let fault = |text: String| UpstreamError::new(member.name(), Failure::Request(text.into()));
        let mut request = Request::builder()
            .method(Method::GET)
            // Compact, whoever asks: to curl a kube-apiserver indents, and the store judges changes by bytes.
            .uri(format!("{path}?pretty=0"))
            .body(empty())
            .map_err(|error| fault(error.to_string()))?;
        if let Some(agent) = &self.agent {
            request.headers_mut().insert(header::USER_AGENT, agent.clone());
        }
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let request = Outgoing::of_caller(request, &self.caller, member.name());
        let request = request.map_err(|error| fault(error.to_string()))?;
        let (head, body) = member.send(request, Class::Read).await?.into_parts();
        Ok((head.status, head.headers, collect(body, OBJECT_BYTES_MAX).await?))
    }
}

fn late(name: &MemberName) -> Live {
    Live::Failed(format!("member {name} has not answered in time"))
}

/// What a `Status` says, with a colon before it.
fn told(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct StatusMessage {
        message: String,
    }
    serde_json::from_slice::<StatusMessage>(body).map(|told| format!(": {}", told.message)).unwrap_or_default()
}

/// What the store shows under a name.
enum Answer {
    Entry(Arc<Entry>),
    /// One part of a placed object, asked for by `name@member`.
    Part(Arc<Part>, Revision),
}

fn shown(
    stores: &Stores,
    ready: &Ready,
    target: &Target,
    only: Option<&MemberName>,
    audience: &Audience,
) -> Result<Option<Answer>, Status> {
    let naming = Arc::clone(&stores.shared().naming);
    match resolve(&naming, ready.store(), target, audience)? {
        Named::Visible(entry) | Named::Shorthand(entry) => return Ok(Some(Answer::Entry(entry))),
        Named::Nothing => {}
    }
    let (Some(only), Some((own, _))) = (only, naming.split(&target.name)) else { return Ok(None) };
    let plain = key(&target.namespace, own);
    let Some(whole) = ready.store().get(&plain).filter(|entry| entry.folded && audience.sees_member(only)) else {
        return Ok(None);
    };
    let part = ready.store().parts(&plain).into_iter().find(|part| part.member == *only);
    Ok(part.map(|part| Answer::Part(part, whole.revision)))
}

impl Answer {
    fn response(self, target: &Target, form: Form, store: &FleetStore, warnings: Warnings) -> Response<Body> {
        let mut out = Vec::new();
        if let Some(message) = self.message(target, &form, store) {
            let mut response = protobuf_response(full(form.envelope(&message)));
            warnings.write_to(response.headers_mut());
            return response;
        }
        match self {
            Self::Entry(entry) => {
                let echo = Some(target.name.as_str()).filter(|name| *name != entry.name());
                form.object(&entry, echo, entry.revision, &mut out);
            }
            Self::Part(part, revision) => {
                let mut whole = Vec::new();
                write_part(&part, &target.name, revision, &mut whole);
                form.document(&whole, store.spec(), &mut out);
            }
        }
        out.push(b'\n');
        let mut response = json_response(full(out));
        warnings.write_to(response.headers_mut());
        response
    }

    /// The message of an object, if protobuf is wanted and has a form for it.
    fn message(&self, target: &Target, form: &Form, store: &FleetStore) -> Option<Bytes> {
        let Self::Entry(entry) = self else { return None };
        if !form.is_protobuf() {
            return None;
        }
        let echo = Some(target.name.as_str()).filter(|name| *name != entry.name());
        let made = match form.own_message(echo) {
            Some(of) => store.message(entry, of),
            None => {
                let mut message = Vec::new();
                form.message(entry, echo, entry.revision, &mut message).map(|()| message.into())
            }
        };
        made.inspect_err(|_| store.count_unfit()).ok()
    }
}

/// A part as its member holds it, under the name asked for and with a revision of the fleet.
fn write_part(part: &Part, name: &str, revision: Revision, out: &mut Vec<u8>) {
    let paths = Paths::new([
        (0, ["metadata", "name"].as_slice()),
        (1, ["metadata", "resourceVersion"].as_slice()),
        (2, ["metadata", "annotations"].as_slice()),
    ]);
    let (document, mut found) = (part.document.text(), Vec::new());
    // It was walked when it came in.
    let _known_good = paths.locate(&document, &mut found);
    let mut edits: Vec<Edit<'_>> = Vec::new();
    for at in found {
        match at.id {
            0 => edits.push(Edit::new(at.range, string(name))),
            1 => edits.push(Edit::new(at.range, string(&revision.to_string()))),
            _ => {
                let text = document.get(at.range.clone()).unwrap_or_default();
                if let Ok(mut object) = ObjectEdits::new(text, at.range.start) {
                    object.remove(|key| key.starts_with("kubefold.io/"));
                    object.set("kubefold.io/cluster", string(part.member.as_str()));
                    edits.extend(object.finish());
                }
            }
        }
    }
    splice(document.as_bytes(), &mut edits, out);
}
