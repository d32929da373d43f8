//! Lists and watches that a standby answers from its watch caches. Whether it may, the holder has said: docs/design/members.md#watch-caches.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Method, Response, Uri, header};
use tokio_util::sync::CancellationToken;

use crate::{
    access::Grants,
    answer::{RequestContext, table::Tables},
    read::{
        bodies::{Bodies, Selected},
        filter::Filter,
        watcher::Telling,
    },
    search::searches,
    store::Revision,
    stores::{Shown, WatchCache, WatchCaches},
    view::{ListOptions, Mode, View, list_options},
};
use kubefold_serving::{
    caller::Caller,
    replica::{CLIENT_CERT, CacheAnswer, CacheAsked},
};
use kubefold_sql::MayTell;
use kubefold_wire::{
    body::Body,
    form::OFFERS,
    info::RequestInfo,
    media::{self, Negotiated},
    resource::Gvr,
};

/// How long it waits for what the holder has. Then that one answers.
const REACHED_WITHIN: Duration = Duration::from_secs(2);

/// Answers from watch caches.
pub struct CachedReader {
    caches: Arc<WatchCaches>,
    bodies: Bodies,
}

/// A list or watch that may be answered from a watch cache.
pub struct ForCache {
    gvr: Gvr,
    namespace: String,
    is_watch: bool,
    query: String,
    /// Who asks, as far as that is known without the holder: by his credentials.
    caller: Caller,
    /// The holder has judged them.
    grants: Grants,
    options: ListOptions,
    wanted: Negotiated,
    tables: Tables,
    suffixed: bool,
    /// That of its kind, once there is one.
    cache: Option<Arc<WatchCache>>,
}

/// A watch cache as a request reads it.
struct Reached {
    shown: Arc<Shown>,
    /// The latest revision of any kind.
    last: Revision,
    /// As in [`CacheAnswer::At`].
    members: Option<u64>,
}

/// A watch that is answered from a watch cache.
pub struct CachedWatch {
    /// The answer, with the events.
    pub response: Response<Body>,
    /// The members that there are, if its caller sees theirs and no others: as in [`CacheAnswer::At`].
    pub members: Option<u64>,
}

impl ForCache {
    /// Its kind.
    pub fn gvr(&self) -> &Gvr {
        &self.gvr
    }

    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.is_watch
    }

    /// How long a watch lasts at most, if it says so.
    pub fn lasts(&self) -> Option<Duration> {
        self.options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
    }

    /// What the holder is to be asked.
    pub fn asks(&self) -> CacheAsked {
        match &self.cache {
            Some(cache) if cache.is_filled() => CacheAsked::Begins,
            _ => CacheAsked::Eligible,
        }
    }

    /// Waits until the cache has what the holder has. `None`: it does not come to it, or has the objects of other members.
    async fn reached(&self, answer: CacheAnswer) -> Option<Reached> {
        let CacheAnswer::At { head, last, members } = answer else { return None };
        let shown = self.cache.as_ref()?.at(Revision(head), REACHED_WITHIN).await?;
        shown.store.knows_of(Revision(last));
        let is_of_these = members.is_none_or(|members| members == shown.members);
        is_of_these.then_some(Reached { shown, last: Revision(last), members })
    }

    fn selected<'a>(&'a self, headers: &'a HeaderMap, reached: &'a Reached) -> Selected<'a> {
        let Self { query, caller, grants, options, wanted, tables, .. } = self;
        let (store, last) = (&reached.shown.store, reached.last);
        let spec = store.spec();
        Selected {
            store,
            options,
            filter: Filter {
                namespace: self.namespace.clone(),
                labels: options.labels.clone(),
                fields: options.fields.clone(),
                suffixed: self.suffixed,
                echo: None,
                limit: None,
            },
            tables,
            wanted: wanted.of_kind(&spec.gvr.api_version(), &spec.gvk.kind),
            asked: RequestContext { caller, query, headers, mode: Mode::Whole, grants, cache: None },
            last,
        }
    }
}

/// A caller that stands for these credentials.
fn caller_of(headers: &HeaderMap) -> Caller {
    let mut hasher = DefaultHasher::new();
    for name in [header::AUTHORIZATION.as_str(), CLIENT_CERT.as_str(), "x-remote-user", "impersonate-user"] {
        headers.get(name).hash(&mut hasher);
    }
    Caller { user: hasher.finish().to_string(), ..Caller::default() }
}

impl CachedReader {
    /// From these, until `drain` is cancelled.
    pub fn new(caches: Arc<WatchCaches>, drain: CancellationToken) -> Self {
        // The holder says of each watch whether it may go on.
        let telling = Telling { drain, may_tell: Arc::new(|| MayTell::Yes) };
        Self { caches, bodies: Bodies::new(telling) }
    }

    /// Its watch caches.
    pub fn caches(&self) -> &Arc<WatchCaches> {
        &self.caches
    }

    /// What a request is, as a list or watch of the fleet view. `None`: it is nothing that a watch cache has.
    pub fn of(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<ForCache> {
        let target = uri.path_and_query()?.as_str();
        if *method != Method::GET
            || headers.contains_key(header::UPGRADE)
            || !matches!(View::of(target), Ok(View::Fleet(Mode::Whole)))
        {
            return None;
        }
        let query = uri.query().unwrap_or_default();
        let info = RequestInfo::of(method, uri.path(), uri.query()).ok()?;
        let is_watch = info.verb == "watch";
        let is_of_many = info.is_resource_request && info.parts.len() == 1 && (is_watch || info.verb == "list");
        if !is_of_many || searches(query) {
            return None;
        }
        let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
        let naming = Arc::clone(&self.caches.shared().naming);
        let options = list_options(query, is_watch, &gvr, |name| naming.is_member(name)).ok()?;
        let wanted = media::negotiate(headers, Some(query), OFFERS).ok()?;
        let is_cacheable = options.limit.is_none() && options.token.is_none() && !Tables::are_wanted(wanted.transform);
        is_cacheable.then(|| ForCache {
            cache: self.caches.of(&gvr),
            gvr,
            namespace: info.namespace,
            is_watch,
            query: query.to_owned(),
            caller: caller_of(headers),
            grants: Grants::default(),
            options,
            wanted,
            tables: Tables::default(),
            suffixed: !naming.is_plain(),
        })
    }

    /// Answers a list with these headers. `None`: the cache does not have what it asks for, and the holder is to answer.
    pub async fn list(&self, read: &ForCache, headers: &HeaderMap, answer: CacheAnswer) -> Option<Response<Body>> {
        let reached = read.reached(answer).await?;
        Box::pin(self.bodies.list(read.selected(headers, &reached))).await.ok()
    }

    /// Answers a watch. `None`: as for a list.
    pub async fn watch(&self, read: &ForCache, headers: &HeaderMap, answer: CacheAnswer) -> Option<CachedWatch> {
        let reached = read.reached(answer).await?;
        let selected = read.selected(headers, &reached);
        if !selected.watch_begins() {
            return None;
        }
        let cache = read.cache.clone()?;
        let response = self.bodies.watch(selected, None, Box::new(move || cache.stale()));
        Some(CachedWatch { response, members: reached.members })
    }
}
