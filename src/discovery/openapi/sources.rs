//! What members say of their OpenAPI: asked for anew where somebody wants to know, kept for when they are away.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest, Sha512};
use tokio::time::{Instant, sleep, timeout};

use super::{
    cache::{Cache, Key},
    merge::Encoding,
    urls::{V2, V3, parameter, upper_hex},
};
use crate::{
    member::{Member, MemberId},
    stores::{Patience, Stores},
    upstream::{Class, Outgoing, OutgoingError, OwnPath, UpstreamError, collect},
};
use kubefold_wire::body::empty;

/// Largest index that is read; that of a large cluster has 100 KiB.
const INDEX_BYTES_MAX: usize = 16 << 20;
/// Largest document that is read; Kubernetes' own swagger has 2 MiB.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;
/// A member that takes longer for its index is left out, or counts with what it said last.
const INDEX_TIMEOUT: Duration = Duration::from_secs(5);
/// The first document after a change of a CRD is built when it is asked for.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The same of a member that is slow already: somebody else waits.
const SLOW_TIMEOUT: Duration = Duration::from_secs(1);
/// When another member is asked for the same document, while one takes its time.
const NEXT_AFTER: Duration = Duration::from_secs(1);
/// What a member said is asked for again when it is older than that, for whoever comes later.
const REFRESH_AFTER: Duration = Duration::from_secs(1);
/// Documents that are fetched or merged at once; whoever wants the same one waits and finds it.
const FETCHES_MAX: usize = 16;

/// A member's index of OpenAPI v3.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// As the member gives it.
    pub(super) content_type: Option<HeaderValue>,
    /// Documents, such as `apis/apps/v1`, and the hash of each.
    pub(super) hashes: BTreeMap<String, Arc<str>>,
}

/// A member, and what it says; that is not new where it did not answer.
#[derive(Clone)]
pub(super) struct LastAnswer<T> {
    pub(super) member: Arc<Member>,
    /// `None` where it has never said anything.
    pub(super) last: Option<T>,
    /// Why `last` may be old.
    pub(super) trouble: Option<Arc<str>>,
}

/// A document that is wanted from members, by the hash that they give.
pub(super) struct DocumentRequest<'a> {
    /// Path and media type to ask with.
    pub(super) url: &'a str,
    pub(super) accept: &'static str,
    pub(super) key: Key,
}

/// Why a document is not there.
pub(super) enum Missing {
    /// The member has another one by now.
    Changed,
    /// It did not give it; `last` is what a holder gave before.
    Failed { cause: String, last: Option<Bytes> },
}

/// Why a member did not say.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("no answer in {}s", .0.as_secs())]
    Late(Duration),
    #[error(transparent)]
    Request(#[from] OutgoingError),
    #[error("{}", .0.cause())]
    Upstream(#[from] UpstreamError),
    #[error("it answered {0}")]
    Code(StatusCode),
    #[error("its index: {0}")]
    Index(#[from] serde_json::Error),
}

/// All members' OpenAPI. One per process.
pub(super) struct Sources {
    known: Mutex<HashMap<MemberId, Arc<Source>>>,
    pub(super) cache: Cache,
    fetching: [tokio::sync::Mutex<()>; FETCHES_MAX],
}

/// One member's.
#[derive(Default)]
struct Source {
    index: Slot<Arc<Index>>,
    swagger: Slot<Arc<str>>,
    given: Mutex<Given>,
}

/// The newest documents that a member gave: its index may name newer ones that nobody has fetched.
#[derive(Default)]
struct Given {
    /// Whose they are.
    incarnation: u64,
    hashes: HashMap<(Arc<str>, Encoding), Arc<str>>,
}

/// Something that a member says.
struct Slot<T> {
    /// Held while the member is asked.
    turn: tokio::sync::Mutex<()>,
    known: Mutex<Known<T>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        let known = Known { began: None, incarnation: 0, last: None, trouble: None };
        Self { turn: tokio::sync::Mutex::default(), known: Mutex::new(known) }
    }
}

#[derive(Clone)]
struct Known<T> {
    /// When it was asked last.
    began: Option<Instant>,
    incarnation: u64,
    last: Option<T>,
    trouble: Option<Arc<str>>,
}

impl<T: Clone> Slot<T> {
    /// What the member said last. It is another cluster by now: nothing.
    fn last(&self, member: &Member) -> Option<T> {
        let known = self.known.lock();
        known.last.clone().filter(|_| known.incarnation == member.incarnation())
    }

    /// The same, if it answered when it was asked last, and was asked since then.
    fn answered_since(&self, member: &Member, since: Option<Instant>) -> Option<(T, Instant)> {
        let known = self.known.lock();
        let began = known.began.filter(|began| known.trouble.is_none() && since.is_none_or(|since| *began >= since))?;
        known.last.clone().filter(|_| known.incarnation == member.incarnation()).map(|last| (last, began))
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            cache: Cache::default(),
            fetching: std::array::from_fn(|_| tokio::sync::Mutex::default()),
        }
    }
}

impl Sources {
    /// Forgets members that are no more.
    pub(super) fn retain(&self, members: &[Arc<Member>]) {
        self.known.lock().retain(|id, _| members.iter().any(|member| member.id() == *id));
    }

    fn source(&self, member: &Member) -> Arc<Source> {
        Arc::clone(self.known.lock().entry(member.id()).or_default())
    }

    /// The index as it is known, without asking.
    pub(super) fn last_index(&self, member: &Member) -> Option<Arc<Index>> {
        self.source(member).index.last(member)
    }

    /// Members' indexes: see [`Self::told`].
    pub(super) async fn indexes(
        self: &Arc<Self>,
        stores: &Stores,
        members: &[Arc<Member>],
        since: Option<Instant>,
    ) -> Vec<LastAnswer<Arc<Index>>> {
        let read = |member: Arc<Member>| async move { read_index(&member).await };
        self.told(stores, members, since, |source| &source.index, read).await
    }

    /// Hashes of members' swagger documents: see [`Self::told`].
    pub(super) async fn swaggers(
        self: &Arc<Self>,
        stores: &Stores,
        members: &[Arc<Member>],
        since: Option<Instant>,
    ) -> Vec<LastAnswer<Arc<str>>> {
        let read = |member: Arc<Member>| async move { read_swagger_hash(&member).await };
        self.told(stores, members, since, |source| &source.swagger, read).await
    }

    /// What members say. Who has said it since then is asked again for later readers only; of the others, none is waited for
    /// much longer than another takes, and none that is late.
    async fn told<T, F>(
        self: &Arc<Self>,
        stores: &Stores,
        members: &[Arc<Member>],
        since: Option<Instant>,
        slot: fn(&Source) -> &Slot<T>,
        read: impl Fn(Arc<Member>) -> F + Copy + Send + 'static,
    ) -> Vec<LastAnswer<T>>
    where
        T: Clone + Send + Sync + 'static,
        F: Future<Output = Result<T, AskError>> + Send + 'static,
    {
        let mut told: Vec<LastAnswer<T>> = Vec::with_capacity(members.len());
        let (mut asked, mut places) = (Vec::new(), Vec::new());
        for (at, member) in members.iter().enumerate() {
            let source = self.source(member);
            let known = slot(&source).answered_since(member, since);
            match &known {
                Some((_, began)) if began.elapsed() >= REFRESH_AFTER && slot(&source).turn.try_lock().is_ok() => {
                    let member = Arc::clone(member);
                    stores.do_later(async move { drop(ask(slot(&source), &member, read(Arc::clone(&member))).await) });
                }
                Some(_) => {}
                None => {
                    asked.push(Arc::clone(member));
                    places.push(at);
                }
            }
            told.push(LastAnswer { member: Arc::clone(member), last: known.map(|(last, _)| last), trouble: None });
        }
        if asked.is_empty() {
            return told;
        }
        let sources = Arc::clone(self);
        let ask_one = move |member: Arc<Member>| {
            let source = sources.source(&member);
            async move { ask(slot(&source), &member, read(Arc::clone(&member))).await }
        };
        let is_answer = |answer: &LastAnswer<T>| answer.trouble.is_none();
        let answers = stores.ask_all(&asked, Patience::Little, is_answer, ask_one).await;
        for ((at, member), answer) in places.into_iter().zip(asked).zip(answers) {
            told[at] = answer.unwrap_or_else(|| LastAnswer {
                last: slot(&self.source(&member)).last(&member),
                member,
                trouble: Some("no answer in time".into()),
            });
        }
        told
    }

    /// A document of one of `holders`, all of whom gave it the hash in `wanted`.
    pub(super) async fn document(
        &self,
        stores: &Stores,
        wanted: &DocumentRequest<'_>,
        holders: &[Arc<Member>],
    ) -> Result<Bytes, Missing> {
        let fetched = self.fetch(stores, wanted, holders).await;
        if fetched.is_ok() {
            holders.iter().for_each(|member| self.remember(member, &wanted.key));
        }
        fetched
    }

    fn remember(&self, member: &Member, key: &Key) {
        let source = self.source(member);
        let mut given = source.given.lock();
        if given.incarnation != member.incarnation() {
            *given = Given { incarnation: member.incarnation(), hashes: HashMap::new() };
        }
        given.hashes.insert((Arc::clone(&key.path), key.encoding), Arc::clone(&key.hash));
    }

    /// What one of `holders` gave last for the path of `key`, whatever its hash was, while it is at hand.
    fn last_document(&self, key: &Key, holders: &[Arc<Member>]) -> Option<Bytes> {
        holders.iter().find_map(|member| {
            let source = self.source(member);
            let given = source.given.lock();
            let hash = given.hashes.get(&(Arc::clone(&key.path), key.encoding))?;
            let was = Key { hash: Arc::clone(hash), ..key.clone() };
            self.cache.get(&was).filter(|_| given.incarnation == member.incarnation())
        })
    }

    async fn fetch(
        &self,
        stores: &Stores,
        wanted: &DocumentRequest<'_>,
        holders: &[Arc<Member>],
    ) -> Result<Bytes, Missing> {
        if let Some(known) = self.cache.get(&wanted.key) {
            return Ok(known);
        }
        let _turn = self.turn(&wanted.key).await;
        if let Some(known) = self.cache.get(&wanted.key) {
            return Ok(known);
        }
        let failed = |cause| Missing::Failed { cause, last: self.last_document(&wanted.key, holders) };
        let mut missing = failed("no member has it".to_owned());
        let fetch = async |member: &Arc<Member>| {
            let within = if stores.is_slow(member) { SLOW_TIMEOUT } else { DOCUMENT_TIMEOUT };
            let fetched = timeout(within, get(member, wanted.url, wanted.accept, DOCUMENT_BYTES_MAX)).await;
            (Arc::clone(member), fetched.unwrap_or(Err(AskError::Late(within))))
        };
        let mut asked: Vec<&Arc<Member>> = holders.iter().collect();
        asked.sort_by_key(|member| stores.is_slow(member));
        let mut asked = asked.into_iter();
        let mut fetches = FuturesUnordered::new();
        loop {
            // The next one is asked when one fails, and when one takes long.
            let fetched = tokio::select! {
                fetched = fetches.next() => fetched,
                () = sleep(NEXT_AFTER), if asked.len() > 0 => None,
            };
            let Some((member, fetched)) = fetched else {
                match asked.next() {
                    Some(member) => fetches.push(fetch(member)),
                    None => return Err(missing),
                }
                continue;
            };
            match fetched {
                Ok((headers, body)) if hash_of(&headers, &body) == wanted.key.hash => {
                    self.cache.put(wanted.key.clone(), body.clone());
                    return Ok(body);
                }
                Ok(_) => missing = Missing::Changed,
                Err(error) => missing = failed(format!("member {}: {error}", member.name())),
            }
        }
    }

    /// Waits until nobody else makes what this key names.
    pub(super) async fn turn(&self, key: &Key) -> tokio::sync::MutexGuard<'_, ()> {
        let at = key.stripe() % FETCHES_MAX;
        // The remainder is always inside.
        self.fetching.get(at).unwrap_or(&self.fetching[0]).lock().await
    }
}

/// Asks, unless somebody has asked since this call began: then that answer is as new. Cancel: safe.
async fn ask<T: Clone>(
    slot: &Slot<T>,
    member: &Arc<Member>,
    read: impl Future<Output = Result<T, AskError>>,
) -> LastAnswer<T> {
    let arrived = Instant::now();
    let _turn = slot.turn.lock().await;
    let mut known = slot.known.lock().clone();
    if known.began.is_none_or(|began| began < arrived) {
        let (began, incarnation) = (Instant::now(), member.incarnation());
        let answer = timeout(INDEX_TIMEOUT, read).await.unwrap_or(Err(AskError::Late(INDEX_TIMEOUT)));
        if known.incarnation != incarnation {
            // It was another cluster that said that.
            known.last = None;
        }
        (known.began, known.incarnation) = (Some(began), incarnation);
        match answer {
            Ok(last) => (known.last, known.trouble) = (Some(last), None),
            Err(error) => known.trouble = Some(error.to_string().into()),
        }
        *slot.known.lock() = known.clone();
    }
    LastAnswer { member: Arc::clone(member), last: known.last, trouble: known.trouble }
}

async fn read_index(member: &Member) -> Result<Arc<Index>, AskError> {
    #[derive(Deserialize)]
    struct Document {
        paths: BTreeMap<String, At>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct At {
        #[serde(rename = "serverRelativeURL")]
        server_relative_url: String,
    }
    let (headers, body) = get(member, V3, "application/json", INDEX_BYTES_MAX).await?;
    let document: Document = serde_json::from_slice(&body)?;
    let hash = |at: &At| {
        let query = at.server_relative_url.split_once('?').map_or("", |(_, query)| query);
        // An index without hashes is legal; its URLs tell nothing of changes.
        parameter(query, "hash").unwrap_or_default().into()
    };
    let hashes = document.paths.iter().map(|(path, at)| (path.clone(), hash(at))).collect();
    Ok(Arc::new(Index { content_type: headers.get(header::CONTENT_TYPE).cloned(), hashes }))
}

/// Its entity tag, or, of a server that gives none, a hash of the document.
async fn read_swagger_hash(member: &Member) -> Result<Arc<str>, AskError> {
    match send(member, Method::HEAD, V2, "application/json", 0).await {
        Ok((headers, _)) => {
            if let Some(hash) = entity_tag(&headers) {
                return Ok(hash.into());
            }
        }
        // A rule of RBAC that allows `get` of a path does not allow `head`: deploy/member-rbac.yaml has such a rule.
        Err(AskError::Code(StatusCode::FORBIDDEN)) => {}
        Err(error) => return Err(error),
    }
    let (headers, body) = get(member, V2, "application/json", DOCUMENT_BYTES_MAX).await?;
    Ok(hash_of(&headers, &body))
}

fn hash_of(headers: &HeaderMap, body: &[u8]) -> Arc<str> {
    entity_tag(headers).map_or_else(|| upper_hex(&Sha512::digest(body)).into(), Into::into)
}

fn entity_tag(headers: &HeaderMap) -> Option<&str> {
    let tag = headers.get(header::ETAG)?.to_str().ok()?;
    Some(tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')).filter(|tag| !tag.is_empty())
}

async fn get(member: &Member, path: &str, accept: &'static str, max: usize) -> Result<(HeaderMap, Bytes), AskError> {
    send(member, Method::GET, path, accept, max).await
}

/// As kubefold itself, as for discovery: what comes back is shared by all callers.
async fn send(
    member: &Member,
    method: Method,
    path: &str,
    accept: &'static str,
    bytes_max: usize,
) -> Result<(HeaderMap, Bytes), AskError> {
    let request = Outgoing::own(method, OwnPath::of_document(path)?, "", empty())?;
    let request = request.with(header::ACCEPT, HeaderValue::from_static(accept));
    let (head, body) = member.send(request, Class::Read).await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(AskError::Code(head.status));
    }
    Ok((head.headers, collect(body, bytes_max).await?))
}
