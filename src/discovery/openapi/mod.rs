//! OpenAPI, v2 and v3, of the fleet: for clients that explain kinds, validate manifests and merge patches.
//!
//! A document that all members have alike is passed through, under the hash that they give. Where they differ, the answer is
//! their union, under a hash of their hashes: the same on every replica and after every restart.
//!
//! Source: kubernetes/kube-openapi `pkg/handler`, `pkg/handler3`; kube-aggregator `pkg/controllers/openapiv3/aggregator`.

mod cache;
mod merge;
mod own;
mod sources;
mod urls;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Map, Value};
use sha2::{Digest, Sha512};
use tokio::{sync::OnceCell, time::Instant};

use self::{
    cache::Key,
    merge::{Encoding, Spec, merge},
    own::OwnSwagger,
    sources::{DocumentRequest, Index, LastAnswer, Missing, Sources},
    urls::{V2, V3, parameter, upper_hex, versioned},
};
use crate::{member::Member, respond::DiscoveryError, stores::Stores};
use kubefold_wire::{
    accept::{accept_header, choose},
    body::{Body, empty, full},
    protobuf::{OPENAPI_V2, OPENAPI_V2_ASKED},
    warning::Warnings,
};

/// How often an answer is begun again because members' documents changed under it.
const ATTEMPTS_MAX: usize = 3;
/// What the hash of a union begins with: another way to unite would be other content.
const UNION: &str = "kubefold union 1";

const JSON: &str = "application/json";
const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// As clients ask for it, and servers before 1.27 know it only so.
const PROTOBUF_V3_ASKED: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// Says whether [`OpenApi::answer`] answers this path.
pub fn is_openapi_path(path: &str) -> bool {
    path == V2 || path == V3 || path.strip_prefix(V3).is_some_and(|rest| rest.starts_with('/'))
}

/// Answers for OpenAPI; holds what members said of it.
#[derive(Default)]
pub struct OpenApi {
    sources: Arc<Sources>,
    /// kubefold's own document of v2, which is the same as long as the process lives.
    own: OnceCell<Option<OwnSwagger>>,
}

/// The documents that kubefold has itself, each read where it is asked for.
#[derive(Debug)]
pub struct OwnDocuments<I, S> {
    /// Those of v3, as an index lists them.
    pub index: I,
    /// That of v2, in JSON, which is the same as long as the process lives. `None`: it has none.
    pub swagger: S,
}

/// What is asked of a document.
struct Question<'a> {
    spec: Spec,
    /// The whole path.
    path: &'a str,
    /// The hash that the client has from an index.
    hash: Option<String>,
    encoding: Encoding,
    headers: &'a HeaderMap,
}

/// Who has a document, by the hash of it.
type Holders = Vec<(Arc<Member>, Arc<str>)>;

/// A document as it is served.
struct Document {
    bytes: Bytes,
    /// What is not in it, though it should be.
    left_out: Vec<String>,
}

impl OpenApi {
    /// Answers a request for a path of OpenAPI. `own` gives the documents that kubefold has itself.
    ///
    /// Errors: a document that nobody has (404); no member answers (503). Cancel: safe.
    pub async fn answer(
        &self,
        stores: &Stores,
        own: OwnDocuments<impl Future<Output = BTreeMap<String, Value>>, impl Future<Output = Option<Bytes>>>,
        request: &Parts,
    ) -> Result<Response<Body>, DiscoveryError> {
        if request.method != Method::GET && request.method != Method::HEAD {
            return Err(DiscoveryError::Method);
        }
        let members: Vec<Arc<Member>> =
            stores.registry().members().iter().filter(|member| !member.config().absent).cloned().collect();
        self.sources.retain(&members);
        let path = request.uri.path();
        if path == V3 {
            return self.index(stores, &members, own.index.await).await;
        }
        let spec = if path == V2 { Spec::V2 } else { Spec::V3 };
        let Some(encoding) = encoding(spec, &request.headers) else {
            return Ok(bare(StatusCode::NOT_ACCEPTABLE, spec));
        };
        let hash = parameter(request.uri.query().unwrap_or_default(), "hash").filter(|_| spec == Spec::V3);
        let question = Question { spec, path, hash, encoding, headers: &request.headers };
        match spec {
            Spec::V2 => {
                let read = || async { own.swagger.await.and_then(OwnSwagger::of) };
                let own = self.own.get_or_init(read).await.as_ref();
                self.swagger(stores, &members, &question, own).await
            }
            Spec::V3 => self.document(stores, &members, &question).await,
        }
    }

    /// Every document that any member has, and the hash under which it is served.
    async fn index(
        &self,
        stores: &Stores,
        members: &[Arc<Member>],
        own: BTreeMap<String, Value>,
    ) -> Result<Response<Body>, DiscoveryError> {
        let told = self.sources.indexes(stores, members, stores.definitions_changed()).await;
        let warnings = warnings(&told);
        let paths: BTreeSet<&String> =
            told.iter().filter_map(|told| told.last.as_ref()).flat_map(|index| index.hashes.keys()).collect();
        if told.iter().all(|told| told.last.is_none()) {
            return Err(none_told(&told));
        }
        let at = |path: &String| {
            let url = versioned(&format!("{V3}/{path}"), &fleet_hash(&holders(&told, path)));
            (path.clone(), Value::Object(Map::from_iter([("serverRelativeURL".to_owned(), Value::String(url))])))
        };
        let mut paths: Map<String, Value> = paths.into_iter().map(at).collect();
        // Whatever members have under these names is not served.
        paths.extend(own);
        let document = Value::Object(Map::from_iter([("paths".to_owned(), Value::Object(paths))]));
        let mut response = Response::new(full(document.to_string()));
        let headers = response.headers_mut();
        let content_type = told.iter().find_map(|told| told.last.as_ref()?.content_type.clone());
        headers.insert(header::CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static(JSON)));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        warnings.write_to(headers);
        Ok(response)
    }

    /// One document of v3.
    async fn document(
        &self,
        stores: &Stores,
        members: &[Arc<Member>],
        question: &Question<'_>,
    ) -> Result<Response<Body>, DiscoveryError> {
        let name = question.path.strip_prefix(V3).unwrap_or_default().trim_start_matches('/');
        // What a hash names does not change: nobody has to be asked for what is here.
        let known: Holders = members
            .iter()
            .filter_map(|member| Some((Arc::clone(member), self.sources.last_index(member)?.hashes.get(name)?.clone())))
            .collect();
        let known_hash = fleet_hash(&known);
        if question.hash.as_deref() == Some(&*known_hash)
            && let Some(bytes) = self.sources.cache.get(&key(question, &known_hash))
        {
            return Ok(respond(question, &known_hash, Document { bytes, left_out: Vec::new() }));
        }
        for attempt in 1..=ATTEMPTS_MAX {
            let told = self.sources.indexes(stores, members, asked_since(stores, attempt)).await;
            let holders = holders(&told, name);
            let hash = fleet_hash(&holders);
            let is_other = question.hash.as_deref().is_some_and(|asked| asked != &*hash);
            if attempt == 1 && (holders.is_empty() || is_other) {
                // What is known may be old.
                continue;
            }
            if holders.is_empty() {
                return Err(if told.iter().all(|told| told.last.is_none()) {
                    none_told(&told)
                } else {
                    DiscoveryError::NoSuchPath
                });
            }
            if is_other {
                return Ok(redirect(question, &hash));
            }
            if let Some(document) = self.unite(stores, question, &holders, attempt == ATTEMPTS_MAX).await? {
                return Ok(respond(question, &hash, document));
            }
        }
        Err(DiscoveryError::Changing)
    }

    /// The swagger document, with kubefold's own.
    async fn swagger(
        &self,
        stores: &Stores,
        members: &[Arc<Member>],
        question: &Question<'_>,
        own: Option<&OwnSwagger>,
    ) -> Result<Response<Body>, DiscoveryError> {
        for attempt in 1..=ATTEMPTS_MAX {
            let told = self.sources.swaggers(stores, members, asked_since(stores, attempt)).await;
            let holders: Holders =
                told.iter().filter_map(|told| Some((Arc::clone(&told.member), told.last.clone()?))).collect();
            if holders.is_empty() {
                return Err(none_told(&told));
            }
            let warnings = warnings(&told);
            let hash = own.map_or_else(|| fleet_hash(&holders), |own| with_own_hash(&fleet_hash(&holders), own));
            if warnings.is_empty() && is_unchanged(question.headers, &hash) {
                return Ok(not_modified(question, &hash));
            }
            if let Some(document) = self.unite(stores, question, &holders, attempt == ATTEMPTS_MAX).await? {
                let document = match own {
                    Some(own) => self.with_own(question, &hash, document, own),
                    None => document,
                };
                let mut response = respond(question, &hash, document);
                warnings.write_to(response.headers_mut());
                if !warnings.is_empty() {
                    // A client that keeps the answer would repeat the warning with it.
                    response.headers_mut().remove(header::ETAG);
                }
                return Ok(response);
            }
        }
        Err(DiscoveryError::Changing)
    }

    /// The members' swagger document with kubefold's own.
    fn with_own(&self, question: &Question<'_>, hash: &Arc<str>, members: Document, own: &OwnSwagger) -> Document {
        let Document { bytes, mut left_out } = members;
        let whole = key(question, hash);
        if left_out.is_empty()
            && let Some(bytes) = self.sources.cache.get(&whole)
        {
            return Document { bytes, left_out };
        }
        match merge(Spec::V2, question.encoding, &[&bytes, own.bytes(question.encoding)]) {
            Ok(merged) => {
                let bytes = Bytes::from(merged);
                if left_out.is_empty() {
                    self.sources.cache.put(whole, bytes.clone());
                }
                Document { bytes, left_out }
            }
            Err(error) => {
                left_out.push(format!("kubefold cannot merge its own groups into the members' document ({error})"));
                Document { bytes, left_out }
            }
        }
    }

    /// The document that holders have together. `None`: one has changed, and the holders should be asked again.
    ///
    /// Errors: nobody gives it.
    async fn unite(
        &self,
        stores: &Stores,
        question: &Question<'_>,
        holders: &Holders,
        is_last_attempt: bool,
    ) -> Result<Option<Document>, DiscoveryError> {
        let whole = key(question, &fleet_hash(holders));
        if let Some(bytes) = self.sources.cache.get(&whole) {
            return Ok(Some(Document { bytes, left_out: Vec::new() }));
        }
        let hashes = distinct(holders);
        let fetches = hashes.iter().map(|hash| async move {
            let having: Vec<Arc<Member>> =
                holders.iter().filter(|(_, theirs)| theirs == hash).map(|(member, _)| Arc::clone(member)).collect();
            let wanted =
                DocumentRequest { url: question.path, accept: media_type_asked(question), key: key(question, hash) };
            self.sources.document(stores, &wanted, &having).await
        });
        let (mut documents, mut left_out) = (Vec::new(), Vec::new());
        for fetched in join_all(fetches).await {
            match fetched {
                Ok(bytes) => documents.push(bytes),
                Err(Missing::Changed) if !is_last_attempt => return Ok(None),
                Err(Missing::Changed) => left_out.push("a member's document keeps changing".to_owned()),
                Err(Missing::Failed { cause, last: None }) => left_out.push(cause),
                Err(Missing::Failed { cause, last: Some(bytes) }) => {
                    documents.push(bytes);
                    left_out.push(format!("{cause}; its last known document is shown"));
                }
            }
        }
        let Some(first) = documents.first().cloned() else {
            return Err(DiscoveryError::DocumentMissing { path: question.path.to_owned(), causes: left_out });
        };
        if documents.len() == 1 {
            return Ok(Some(Document { bytes: first, left_out }));
        }
        let turn = self.sources.turn(&whole).await;
        if let Some(bytes) = self.sources.cache.get(&whole) {
            return Ok(Some(Document { bytes, left_out: Vec::new() }));
        }
        let parts: Vec<&[u8]> = documents.iter().map(|bytes| &**bytes).collect();
        let bytes = match merge(question.spec, question.encoding, &parts) {
            Ok(merged) => Bytes::from(merged),
            Err(error) => {
                left_out
                    .push(format!("kubefold cannot merge the members' documents ({error}) and shows the first one"));
                first
            }
        };
        if left_out.is_empty() {
            self.sources.cache.put(whole, bytes.clone());
        }
        drop(turn);
        Ok(Some(Document { bytes, left_out }))
    }
}

/// Since when members must have been asked: at the first attempt since definitions changed, and then anew.
fn asked_since(stores: &Stores, attempt: usize) -> Option<Instant> {
    if attempt == 1 { stores.definitions_changed() } else { Some(Instant::now()) }
}

fn key(question: &Question<'_>, hash: &Arc<str>) -> Key {
    Key { path: question.path.into(), encoding: question.encoding, hash: Arc::clone(hash) }
}

/// Who has a document, in configuration order.
fn holders(told: &[LastAnswer<Arc<Index>>], name: &str) -> Holders {
    told.iter()
        .filter_map(|told| Some((Arc::clone(&told.member), told.last.as_ref()?.hashes.get(name)?.clone())))
        .collect()
}

/// The hashes that holders give, each once, in configuration order.
fn distinct(holders: &Holders) -> Vec<Arc<str>> {
    let mut hashes: Vec<Arc<str>> = Vec::new();
    for (_, hash) in holders {
        if !hashes.contains(hash) {
            hashes.push(Arc::clone(hash));
        }
    }
    hashes
}

/// The hash under which the fleet serves what these holders have.
fn fleet_hash(holders: &Holders) -> Arc<str> {
    let hashes = distinct(holders);
    match hashes.as_slice() {
        [] => "".into(),
        [only] => Arc::clone(only),
        several => upper_hex(&Sha512::digest(format!("{UNION}\n{}", several.join("\n")))).into(),
    }
}

/// The hash of the members' document with kubefold's own.
fn with_own_hash(members: &str, own: &OwnSwagger) -> Arc<str> {
    upper_hex(&Sha512::digest(format!("{UNION}\n{members}\n{}", own.hash()))).into()
}

/// The first encoding that the client takes; JSON where it does not say.
fn encoding(spec: Spec, headers: &HeaderMap) -> Option<Encoding> {
    let offers = match spec {
        Spec::V2 => [JSON, OPENAPI_V2, OPENAPI_V2_ASKED],
        Spec::V3 => [JSON, PROTOBUF_V3, PROTOBUF_V3_ASKED],
    };
    choose(accept_header(headers), &offers).map(|chosen| match chosen {
        JSON => Encoding::Json,
        _ => Encoding::Protobuf,
    })
}

fn media_type_asked(question: &Question<'_>) -> &'static str {
    match (question.encoding, question.spec) {
        (Encoding::Json, _) => JSON,
        (Encoding::Protobuf, Spec::V2) => OPENAPI_V2_ASKED,
        (Encoding::Protobuf, Spec::V3) => PROTOBUF_V3_ASKED,
    }
}

fn warnings<T>(told: &[LastAnswer<T>]) -> Warnings {
    let mut warnings = Warnings::default();
    for told in told {
        let Some(trouble) = &told.trouble else { continue };
        let what = if told.last.is_some() { "its last known OpenAPI is shown" } else { "its OpenAPI is left out" };
        warnings.add(&format!("member {}: {trouble}; {what}", told.member.name()));
    }
    warnings
}

fn none_told<T>(told: &[LastAnswer<T>]) -> DiscoveryError {
    let each: Vec<String> = told
        .iter()
        .map(|told| format!("{}: {}", told.member.name(), told.trouble.as_deref().unwrap_or("not asked")))
        .collect();
    DiscoveryError::NoOpenApi(each)
}

/// An answer without a body, which these endpoints give where others give a `Status`.
fn bare(code: StatusCode, spec: Spec) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if spec == Spec::V2 {
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn quoted(hash: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("\"{hash}\"")).ok().filter(|_| !hash.is_empty())
}

/// Says whether the client has this very document. Source: RFC 9110 section 13.1.2.
fn is_unchanged(headers: &HeaderMap, hash: &str) -> bool {
    let wanted = format!("\"{hash}\"");
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.flat_map(|value| value.split(',')).any(|tag| {
        let tag = tag.trim();
        tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == wanted
    })
}

fn not_modified(question: &Question<'_>, hash: &str) -> Response<Body> {
    let mut response = bare(StatusCode::NOT_MODIFIED, question.spec);
    tag(question, hash, response.headers_mut());
    response
}

/// Another hash than the one asked for: the client's index is old.
fn redirect(question: &Question<'_>, hash: &str) -> Response<Body> {
    let mut response = bare(StatusCode::MOVED_PERMANENTLY, question.spec);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type(question));
    headers.extend(quoted(hash).map(|tag| (header::ETAG, tag)));
    headers.extend(HeaderValue::from_str(&versioned(question.path, hash)).map(|at| (header::LOCATION, at)));
    response
}

fn respond(question: &Question<'_>, hash: &str, document: Document) -> Response<Body> {
    let is_whole = document.left_out.is_empty();
    if is_whole && is_unchanged(question.headers, hash) {
        return not_modified(question, hash);
    }
    let mut response = bare(StatusCode::OK, question.spec);
    *response.body_mut() = full(document.bytes);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type(question));
    if is_whole {
        tag(question, hash, headers);
        return response;
    }
    // Nobody is to keep it under this hash.
    let mut warnings = Warnings::default();
    document.left_out.iter().for_each(|cause| warnings.add(&format!("the OpenAPI document is incomplete: {cause}")));
    warnings.write_to(headers);
    response
}

/// Entity tag and, for who asked by hash, leave to keep the document.
fn tag(question: &Question<'_>, hash: &str, headers: &mut HeaderMap) {
    headers.extend(quoted(hash).map(|tag| (header::ETAG, tag)));
    if question.hash.is_some() {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        headers.extend(in_a_year().map(|date| (header::EXPIRES, date)));
    }
}

fn content_type(question: &Question<'_>) -> HeaderValue {
    HeaderValue::from_static(match (question.encoding, question.spec) {
        (Encoding::Json, _) => JSON,
        (Encoding::Protobuf, Spec::V2) => OPENAPI_V2,
        (Encoding::Protobuf, Spec::V3) => PROTOBUF_V3,
    })
}

/// `Sun, 21 Nov 2027 06:31:36 UTC`, as Go's `time.RFC1123` has it.
fn in_a_year() -> Option<HeaderValue> {
    use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
    let date = Timestamp::now().to_zoned(TimeZone::UTC).checked_add(1.year()).ok()?;
    HeaderValue::from_str(&date.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn encodings_are_chosen_as_kube_openapi_does() {
        let of = |spec, accept: &str| encoding(spec, &headers(header::ACCEPT, accept));
        assert_eq!(encoding(Spec::V3, &HeaderMap::new()), Some(Encoding::Json));
        for accept in ["*/*", "application/*", "application/json", "text/html, application/json;q=0.1"] {
            assert_eq!(of(Spec::V3, accept), Some(Encoding::Json), "{accept}");
        }
        assert_eq!(of(Spec::V2, OPENAPI_V2_ASKED), Some(Encoding::Protobuf));
        assert_eq!(of(Spec::V3, PROTOBUF_V3), Some(Encoding::Protobuf));
        for accept in ["text/html", "application/vnd.kubernetes.protobuf", OPENAPI_V2_ASKED] {
            assert_eq!(of(Spec::V3, accept), None, "{accept}");
        }
    }

    #[test]
    fn tags_are_compared_weakly() {
        for (tags, same) in [("\"A\"", true), ("W/\"A\"", true), ("\"B\", \"A\"", true), ("*", true), ("\"B\"", false)]
        {
            assert_eq!(is_unchanged(&headers(header::IF_NONE_MATCH, tags), "A"), same, "{tags}");
        }
        assert!(!is_unchanged(&HeaderMap::new(), "A"));
    }

    #[test]
    fn paths_of_openapi_are_known() {
        for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/"] {
            assert!(is_openapi_path(path), "{path}");
        }
        for path in ["/openapi", "/openapi/v2/", "/openapi/v30", "/openapi/v4"] {
            assert!(!is_openapi_path(path), "{path}");
        }
    }

    #[test]
    fn dates_are_those_of_kube_openapi() {
        let date = in_a_year().unwrap();
        let date = date.to_str().unwrap();
        assert!(date.len() == 29 && date.ends_with(" UTC") && &date[3..5] == ", ", "{date}");
    }
}
