//! Kinds that cannot be watched, and so are in no store: every read asks the members, and nothing is kept.
//!
//! `metrics.k8s.io`, component statuses, aggregated APIs that only get and list. Names, references and annotations are those
//! of the store's objects; there are no revisions, as no watch could begin at one.

mod translate;

pub use translate::fields;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use crate::{
    answer::{RequestContext, form::Form, table::Tables},
    catalog::{Freshness, MergedResource, Scope},
    config::MemberName,
    member::Member,
    read::{Reader, answer::json_response},
    respond::ReadError,
    store::{BadObject, Entry, KindSpec, Naming, Shared, unstored},
    stores::{Target, names::names},
    upstream::{Class, ImpersonateError, Outgoing, UpstreamError, collect},
    view::{ListOptions, Mode, list_options},
};
use kubefold_wire::{
    body::{Body, empty, full},
    list::split,
    locate::Paths,
    options::query_value,
    path::ApiPath,
    splice::push_string,
    status::Status,
    warning::{Warnings, warning_text},
};

/// A member that takes longer is left out.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer of one member.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Objects of one answer, which is whole: there is no revision to page at.
const ITEMS_MAX: usize = 100_000;

/// What one member said.
enum MemberAnswer {
    /// Objects.
    Objects(Vec<Arc<Entry>>),
    /// Another answer than 200.
    Refused(StatusCode, HeaderMap, Bytes),
    /// No answer; why.
    Failed(String),
}

/// Why a member gave no answer: one sentence that names it.
#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error("member {member} is the same cluster as {twin}")]
    Twin { member: MemberName, twin: String },
    #[error("member {member}: no answer in {}s", MEMBER_TIMEOUT.as_secs())]
    Late { member: MemberName },
    #[error("member {member}: {source}")]
    Request { member: MemberName, source: http::Error },
    #[error("member {member}: {source}")]
    Caller { member: MemberName, source: ImpersonateError },
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// What all members said that can be asked.
#[derive(Default)]
struct Round {
    objects: Vec<Arc<Entry>>,
    refused: Vec<(MemberName, StatusCode, HeaderMap, Bytes)>,
    /// One sentence per member whose objects are not there.
    missing: Vec<String>,
    warnings: Warnings,
    /// Kind and API version of a list, as a member wrote them.
    type_meta: Option<(String, String)>,
    answered: bool,
}

/// One read on its way to members.
struct Live<'a> {
    reader: &'a Reader,
    resource: &'a MergedResource,
    target: &'a Target,
    asked: RequestContext<'a>,
    spec: KindSpec,
    shared: Arc<Shared>,
}

impl Reader {
    /// Answers a get of a kind that cannot be watched.
    ///
    /// Errors: as a kube-apiserver, and 503 while a member that decides does not answer.
    pub async fn live_get(
        &self,
        resource: &MergedResource,
        target: &Target,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let live = Live::new(self, resource, target, asked);
        let tables = Tables::of(&self.stores, &resource.gvr, wanted.transform, asked.query).await;
        let form = Form::of_object(wanted.transform, &live.spec, &tables);
        Ok(asked.encoded(live.get(form).await?, wanted.encoding).await)
    }

    /// Answers a list of a kind that cannot be watched: whole, whatever limit is asked for. Members that do not answer are
    /// left out with a warning; the strict view refuses then.
    ///
    /// Errors: as a kube-apiserver; no member answers (503).
    pub async fn live_list(
        &self,
        resource: &MergedResource,
        target: &Target,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let live = Live::new(self, resource, target, asked);
        let tables = Tables::of(&self.stores, &resource.gvr, wanted.transform, asked.query).await;
        let form = Form::of_list(wanted.transform, &live.spec, &tables)?;
        Ok(asked.encoded(live.list(form).await?, wanted.encoding).await)
    }
}

impl<'a> Live<'a> {
    fn new(reader: &'a Reader, resource: &'a MergedResource, target: &'a Target, asked: RequestContext<'a>) -> Self {
        let namespaced = resource.scope == Scope::Namespaced;
        let spec = KindSpec::new(resource.gvr.clone(), resource.gvk.clone(), namespaced);
        Self { reader, resource, target, asked, spec, shared: reader.stores.shared() }
    }

    fn naming(&self) -> &Naming {
        &self.shared.naming
    }

    async fn get(&self, form: Result<Form, Status>) -> Result<Response<Body>, Status> {
        let split = self.naming().split_of(&self.target.gvr, &self.target.name);
        let own = split.as_ref().map_or(self.target.name.as_str(), |(own, _)| own);
        let path = format!("{}?pretty=0", self.collection().then(own));
        let asks: Vec<(MemberName, String)> = match &split {
            Some((_, member)) if !self.resource.members.contains(member) => return Err(self.not_found(&[]).into()),
            Some((_, member)) => vec![((*member).clone(), path)],
            None => self.resource.members.iter().map(|member| (member.clone(), path.clone())).collect(),
        };
        let round = self.round(asks, false).await;
        let real = round.refused.iter().position(|(_, code, ..)| *code != StatusCode::NOT_FOUND);
        let is_exact = split.is_some() || self.naming().is_plain();
        match round.objects.as_slice() {
            [one] if is_exact || (self.is_short() && round.missing.is_empty()) => {
                let mut out = Vec::new();
                form?.object(one, Some(&self.target.name), one.revision, &mut out);
                out.push(b'\n');
                let mut response = json_response(full(out));
                round.warnings.write_to(response.headers_mut());
                Ok(response)
            }
            // Whether the name is another member's as well is not known.
            _ if !round.missing.is_empty() => Err(self.unanswered(round.missing).into()),
            [] => match real.and_then(|at| round.refused.into_iter().nth(at)) {
                Some((_, code, headers, body)) => Ok(passed(code, &headers, body)),
                None => Err(self.not_found(&[]).into()),
            },
            several if self.is_short() => {
                let (gvr, name) = (self.resource.gvr.clone(), self.target.name.clone());
                Err(ReadError::Ambiguous { gvr, name, member_locals: names(several) }.into())
            }
            member_locals => Err(self.not_found(member_locals).into()),
        }
    }

    /// A plain name may be short for an object that nobody can create or change by it.
    fn is_short(&self) -> bool {
        !["create", "update", "patch"].iter().any(|verb| self.resource.allows(verb))
    }

    async fn list(&self, form: Form) -> Result<Response<Body>, Status> {
        let options = list_options(self.asked.query, false, &self.resource.gvr, |name| self.naming().is_member(name))?;
        if options.token.is_some() {
            return Err(ReadError::NoPages.into());
        }
        let fields = query_value(self.asked.query, "fieldSelector").unwrap_or_default();
        let asks: Vec<(MemberName, String)> = self
            .resource
            .members
            .iter()
            .filter_map(|member| {
                let labels = options.labels.in_member(member.as_str())?;
                let fields = translate::fields(&fields, self.naming(), member)?;
                Some((member.clone(), self.list_path(&labels, &fields)))
            })
            .collect();
        let nobody_matches = asks.is_empty();
        let mut round = self.round(asks, true).await;
        round.missing.extend(self.absent());
        if !round.answered && !nobody_matches {
            return match round.refused.into_iter().next() {
                // All refuse: the first one's word is as good as any.
                Some((_, code, headers, body)) if !code.is_server_error() => Ok(passed(code, &headers, body)),
                Some((member, code, ..)) => {
                    Err(self.unanswered(vec![format!("member {member} answered {code}")]).into())
                }
                None => Err(self.unanswered(round.missing).into()),
            };
        }
        let refused = round.refused.iter().map(|(member, code, ..)| format!("member {member} answered {code}"));
        round.missing.extend(refused);
        if self.asked.mode == Mode::Strict && !round.missing.is_empty() {
            return Err(self.unanswered(round.missing).into());
        }
        if round.objects.len() > ITEMS_MAX {
            let (gvr, count) = (self.resource.gvr.clone(), round.objects.len());
            return Err(ReadError::TooMany { gvr, count, max: ITEMS_MAX }.into());
        }
        let what = self.resource.gvr.qualified();
        round.missing.iter().for_each(|why| round.warnings.add(&format!("{why}; its {what} are left out")));
        self.asked.grants.asked.warnings().iter().for_each(|warning| round.warnings.add(warning));
        round.objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        let mut response = json_response(full(self.write(&round, &options, &form)));
        round.warnings.write_to(response.headers_mut());
        Ok(response)
    }

    fn write(&self, round: &Round, options: &ListOptions, form: &Form) -> Vec<u8> {
        let mut out = vec![b'{'];
        match &round.type_meta {
            Some((kind, api_version)) if form.is_whole() => {
                out.extend_from_slice(b"\"kind\":");
                push_string(kind, &mut out);
                out.extend_from_slice(b",\"apiVersion\":");
                push_string(api_version, &mut out);
            }
            _ => form.list_type(&self.spec, &mut out),
        }
        out.extend_from_slice(b",\"metadata\":{},");
        form.begin_items(&mut out);
        // As for a get: whoever asked for a plain name gets that name.
        let asked_for = options.fields.name().filter(|name| self.naming().split(name).is_none() && self.is_short());
        for (at, entry) in round.objects.iter().enumerate() {
            out.push(if at == 0 { b'[' } else { b',' });
            form.item(entry, asked_for.filter(|_| round.objects.len() == 1), &mut out);
        }
        form.end_items(round.objects.is_empty(), &mut out);
        out
    }

    fn collection(&self) -> ApiPath {
        ApiPath::within(&self.resource.gvr, &self.target.namespace)
    }

    fn list_path(&self, labels: &str, fields: &str) -> String {
        let mut path = format!("{}?pretty=0", self.collection());
        for (name, selector) in [("labelSelector", labels), ("fieldSelector", fields)] {
            if !selector.is_empty() {
                path = format!("{path}&{name}={}", utf8_percent_encode(selector, NON_ALPHANUMERIC));
            }
        }
        path
    }

    /// Asks members, all at once, each within its own time.
    async fn round(&self, asks: Vec<(MemberName, String)>, is_list: bool) -> Round {
        let asked = asks.iter().map(|(name, path)| async move {
            let registry = self.reader.stores.registry();
            let is_asked =
                |member: &Arc<Member>| !member.config().absent && self.asked.audience().sees_member(member.name());
            let member = registry.get(name.as_str()).filter(is_asked)?;
            if let Some(twin) = member.twin_of() {
                let (member, twin) = (name.clone(), twin.to_string());
                return Some((name, Err(Silence::Twin { member, twin })));
            }
            let answer = timeout(MEMBER_TIMEOUT, self.fetch(&member, path)).await;
            let late = |_| Err(Silence::Late { member: name.clone() });
            Some((name, answer.unwrap_or_else(late)))
        });
        let mut round = Round::default();
        for (name, answer) in join_all(asked).await.into_iter().flatten() {
            let said = match answer {
                Ok((code, headers, body)) => {
                    let values = headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok());
                    values.for_each(|value| round.warnings.add(&warning_text(value)));
                    self.read(name, code, headers, body, is_list, &mut round.type_meta)
                }
                Err(silence) => MemberAnswer::Failed(silence.to_string()),
            };
            match said {
                MemberAnswer::Objects(objects) => {
                    round.answered = true;
                    round.objects.extend(objects);
                }
                MemberAnswer::Refused(code, headers, body) => round.refused.push((name.clone(), code, headers, body)),
                MemberAnswer::Failed(cause) => round.missing.push(cause),
            }
        }
        round
    }

    async fn fetch(&self, member: &Member, path: &str) -> Result<(StatusCode, HeaderMap, Bytes), Silence> {
        let name = || member.name().clone();
        let request = Request::builder().method(Method::GET).uri(path).body(empty());
        let mut request = request.map_err(|source| Silence::Request { member: name(), source })?;
        let headers = request.headers_mut();
        if let Some(agent) = self.asked.headers.get(header::USER_AGENT) {
            headers.insert(header::USER_AGENT, agent.clone());
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let request = Outgoing::of_caller(request, self.asked.caller, member.name())
            .map_err(|source| Silence::Caller { member: name(), source })?;
        let (head, body) = member.send(request, Class::Read).await?.into_parts();
        Ok((head.status, head.headers, collect(body, ANSWER_BYTES_MAX).await?))
    }

    fn read(
        &self,
        member: &MemberName,
        code: StatusCode,
        headers: HeaderMap,
        body: Bytes,
        is_list: bool,
        type_meta: &mut Option<(String, String)>,
    ) -> MemberAnswer {
        // A 401 is about kubefold's own credential, and with a 5xx the member says that it cannot say.
        if code == StatusCode::UNAUTHORIZED || (code.is_server_error() && !is_list) {
            return MemberAnswer::Failed(format!("member {member} answered {code}"));
        }
        if code != StatusCode::OK {
            return MemberAnswer::Refused(code, headers, body);
        }
        let bad = |error: &dyn std::fmt::Display| {
            MemberAnswer::Failed(format!("kubefold cannot parse the answer of member {member} ({error})"))
        };
        let rewrite = |document: &str| unstored(&self.spec, &self.shared, member, document);
        if !is_list {
            let object = std::str::from_utf8(&body).map_err(|error| error.to_string());
            let object = object.and_then(|text| rewrite(text).map_err(|error| error.to_string()));
            return object.map_or_else(|error| bad(&error), |object| MemberAnswer::Objects(vec![object]));
        }
        let items = match split(&body) {
            Ok((_, items)) => items,
            Err(error) => return bad(&error),
        };
        match items.into_iter().map(rewrite).collect::<Result<Vec<_>, BadObject>>() {
            Ok(objects) => {
                *type_meta = type_meta.take().or_else(|| list_type(&body));
                MemberAnswer::Objects(objects)
            }
            Err(error) => bad(&error),
        }
    }

    /// Members that may have such objects, and cannot be asked in this version.
    fn absent(&self) -> Vec<String> {
        let catalog = self.reader.stores.catalog();
        let gvr = &self.resource.gvr;
        let unknown = catalog.unknown.iter().filter_map(|name| self.reader.stores.registry().get(name.as_str()));
        let others = catalog.members_serving_other_version(gvr);
        unknown
            .filter(|member| !member.config().absent)
            .map(|member| format!("it is unknown whether member {} has some", member.describe()))
            .chain(others.iter().map(|(member, version)| format!("member {member} serves version {version} only")))
            .chain(self.unavailable_apis())
            .chain(self.resource.conflicting.iter().map(|member| format!("member {member} has another kind there")))
            .collect()
    }

    /// Members that have the API, and could not say yet what is in it: whoever serves it there is away.
    fn unavailable_apis(&self) -> impl Iterator<Item = String> {
        let (stores, gvr) = (&self.reader.stores, &self.resource.gvr);
        let members = stores.registry().members();
        let is_away = |member: &&Arc<Member>| {
            let catalog = stores.member_catalog(member.name())?;
            let version = catalog.group(&gvr.group)?.version(&gvr.version)?;
            Some(version.freshness == Freshness::Stale && version.resource(&gvr.resource).is_none())
        };
        let away: Vec<String> = members
            .iter()
            .filter(|member| is_away(member).unwrap_or_default())
            .map(|member| format!("member {}: its API {} is not available", member.name(), gvr.api_version()))
            .collect();
        away.into_iter()
    }

    fn not_found(&self, member_locals: &[Arc<Entry>]) -> ReadError {
        let (gvr, name) = (self.resource.gvr.clone(), self.target.name.clone());
        ReadError::NotFound { gvr, name, member_locals: names(member_locals) }
    }

    fn unanswered(&self, causes: Vec<String>) -> ReadError {
        ReadError::Unanswered { gvr: self.resource.gvr.clone(), causes }
    }
}

/// A member's own answer, as it is.
fn passed(code: StatusCode, headers: &HeaderMap, body: Bytes) -> Response<Body> {
    let mut response = json_response(full(body));
    *response.status_mut() = code;
    for kept in [header::CONTENT_TYPE, header::RETRY_AFTER] {
        if let Some(value) = headers.get(&kept) {
            response.headers_mut().insert(kept, value.clone());
        }
    }
    response
}

/// `kind` and `apiVersion` of a list.
fn list_type(body: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(body).ok()?;
    let mut found = Vec::new();
    Paths::new([(0, ["kind"].as_slice()), (1, ["apiVersion"].as_slice())]).locate_valid(text, &mut found).ok()?;
    let value = |id: u16| {
        let at = found.iter().find(|found| found.id == id)?.range.clone();
        serde_json::from_str::<String>(text.get(at)?).ok()
    };
    Some((value(0)?, value(1)?))
}
