//! The fleet view, read: get, list and watch.
//!
//! May name: what is below it; not its peers `discovery`, `write`, `review` and `stream`.

mod answer;
mod blocks;
mod bodies;
mod cached;
mod differences;
mod filter;
mod fresh;
mod get;
mod list;
mod live;
mod messages;
mod search;
mod stored;
mod turns;
mod walk;
mod watch;
mod watcher;
mod websocket;

use std::{pin::pin, sync::Arc};

use http::{Response, StatusCode};
use tokio_util::sync::CancellationToken;

use crate::{
    answer::{Collection, RequestContext, form::Form, table::Tables},
    config::MemberName,
    read::{
        bodies::{Bodies, Selected},
        filter::{Filter, Limit},
        fresh::{Due, Need, prove, scope_of},
        get::Of,
        watcher::{Stale, Telling},
    },
    respond::ReadError,
    store::{Audience, Entry, KindSpec, Revision},
    stores::{
        Ready, Stores, Target,
        names::{Named, resolve},
    },
    view::{ListOptions, Mode, list_options},
};
use kubefold_serving::replica::CacheAnswer;
use kubefold_wire::{
    body::Body,
    media::{self, Media, Negotiated},
    options::At,
    resource::{Gvk, Gvr},
    status::Status,
    warning::Warnings,
};

pub use {
    cached::{CachedReader, CachedWatch, ForCache},
    fresh::Freshness,
    live::fields as fields_in_member,
    search::{Collected, KindInTables, Searched, Source, ToldKind},
    websocket::over_websocket,
};

/// When to ask again for what is not known yet, as a kube-apiserver whose cache is not filled says it.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Answers reads.
pub struct Reader {
    stores: Arc<Stores>,
    freshness: Freshness,
    bodies: Bodies,
}

impl Reader {
    /// Makes a reader.
    pub fn new(stores: Arc<Stores>, freshness: Freshness, drain: CancellationToken) -> Self {
        let of_stores = Arc::clone(&stores);
        let telling = Telling { drain, may_tell: Arc::new(move || of_stores.may_tell()) };
        Self { stores, freshness, bodies: Bodies::new(telling) }
    }

    /// Answers a get of an object, or of a subresource that is the whole object to a kube-apiserver; `""` is none.
    ///
    /// Errors: as a kube-apiserver, and 503 while a member that decides is unknown.
    pub async fn get(
        &self,
        target: &Target,
        subresource: &str,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted_of(&target.gvr, subresource)?;
        let tables = Tables::of(&self.stores, &target.gvr, wanted.transform, asked.query).await;
        let form = |spec: &KindSpec| {
            let form = Form::of_object(wanted.transform, spec, &tables)?;
            Ok(if wanted.encoding.media == Media::Protobuf { form.in_protobuf(spec) } else { form })
        };
        let response = get::get(&self.stores, &Of { target, subresource }, asked, self.freshness, form).await?;
        Ok(asked.encoded(response, wanted.encoding).await)
    }

    /// Answers a list or a watch.
    ///
    /// Errors: as a kube-apiserver, and 503 while a member is unknown.
    pub async fn list_or_watch(
        &self,
        target: &Target,
        watch: bool,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let naming = Arc::clone(&self.stores.shared().naming);
        let mut options = list_options(asked.query, watch, &target.gvr, |name| naming.is_member(name))?;
        // `/api/v1/watch/.../<name>`: the path says what a field selector would.
        if !target.name.is_empty() {
            match options.fields.name() {
                None if options.fields.is_everything() => options.fields = options.fields.with_name(&target.name),
                Some(name) if name == target.name => {}
                _ => return Err(ReadError::OtherName.into()),
            }
        }
        if watch && !wanted.encoding.media.streams() {
            return Err(media::no_stream());
        }
        let tables = Tables::of(&self.stores, &target.gvr, wanted.transform, asked.query).await;
        if watch {
            tables.included()?;
        }
        let for_people = asked.for_people(wanted);
        let ready = match self.prepare(target, &options, watch, for_people).await {
            Err(status) if status.code == StatusCode::NOT_FOUND && !watch && for_people.mode == Mode::Lenient => {
                return self.of_nobody(target, wanted, &tables, asked, status).await;
            }
            ready => ready.map_err(ask_again)?,
        };
        let spec = ready.store().spec();
        let wanted = wanted.of_kind(&spec.gvr.api_version(), &spec.gvk.kind);
        let filter = self.filter(target, &options, &ready, asked.audience())?;
        let last = self.stores.shared().revisions.last();
        let read = Selected { store: ready.store(), options: &options, filter, tables: &tables, wanted, asked, last };
        let known = if watch { self.known(&target.gvr, &options) } else { None };
        let of_cache = asked.cache.filter(|_| known.is_none()).and_then(|cache| read.of_cache(cache, watch));
        let mut response = match of_cache {
            Some(at @ CacheAnswer::At { .. }) => self.bodies.elsewhere(&read, at, watch),
            of_cache => {
                let mut response = if watch {
                    let stale = self.stale(&ready, asked.audience());
                    self.bodies.watch(read, known, stale)
                } else {
                    Box::pin(self.bodies.list(read)).await?
                };
                if let Some(answer) = of_cache {
                    response.extensions_mut().insert(answer);
                }
                response
            }
        };
        let mut warnings = Warnings::default();
        asked.grants.asked.warnings().iter().chain(&ready.warnings).for_each(|warning| warnings.add(warning));
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// A list of a kind that no member is known to serve: as rows for people, who are told whom that leaves out.
    ///
    /// Errors: `status`, for any other form, or where every member has said what it serves.
    async fn of_nobody(
        &self,
        target: &Target,
        wanted: Negotiated,
        tables: &Tables,
        asked: RequestContext<'_>,
        status: Status,
    ) -> Result<Response<Body>, Status> {
        let left_out = self.stores.left_out_unseen(&target.gvr.resource);
        if left_out.is_empty() || !Tables::are_wanted(wanted.transform) {
            return Err(status);
        }
        let Gvr { group, version, .. } = &target.gvr;
        let spec = KindSpec::new(target.gvr.clone(), Gvk::new(group, version, ""), !target.namespace.is_empty());
        let form = Form::of_list(wanted.transform, &spec, tables)?;
        let response = list::empty(&spec, &form, self.stores.shared().revisions.last());
        let mut response = asked.encoded(response, wanted.encoding).await;
        let mut warnings = Warnings::default();
        left_out.iter().for_each(|sentence| warnings.add(sentence));
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// The list that the deletion of a collection is answered with, and the objects in it.
    ///
    /// Errors: as a list; 503 while a member cannot be asked that may hold what matches.
    pub async fn collection(&self, target: &Target, asked: RequestContext<'_>) -> Result<Collection, Status> {
        let wanted = asked.wanted()?;
        let naming = Arc::clone(&self.stores.shared().naming);
        let options = list_options(asked.query, false, &target.gvr, |name| naming.is_member(name))?;
        let ready = self.prepare(target, &options, false, asked).await?;
        let only = options
            .fields
            .name()
            .and_then(|name| naming.split_of(&target.gvr, name))
            .map(|(_, member)| member.as_str());
        let may_hold = |name: &MemberName| {
            only.is_none_or(|only| only == name.as_str())
                && options.labels.may_match(name.as_str())
                && asked.audience().sees_member(name)
        };
        let stale: Vec<String> =
            self.stores.stale(&ready.running).iter().filter(|name| may_hold(name)).map(ToString::to_string).collect();
        if !stale.is_empty() {
            let causes = ready.warnings.iter().map(ToString::to_string).collect();
            return Err(ReadError::CollectionUnknown { gvr: target.gvr.clone(), stale, causes }.into());
        }
        let filter = self.filter(target, &options, &ready, asked.audience())?;
        let tables = Tables::of(&self.stores, &target.gvr, wanted.transform, asked.query).await;
        let form = Form::of_list(wanted.transform, ready.store().spec(), &tables)?;
        let last = self.stores.shared().revisions.last();
        let mut pace = self.bodies.turns.pace(asked.caller);
        let (list, entries) = pace.run(pin!(list::collected(ready.store(), &options, filter, form, last))).await?;
        Ok(Collection { ready, list, entries })
    }

    /// The store, once all that the answer rests on is in it.
    async fn prepare(
        &self,
        target: &Target,
        options: &ListOptions,
        watch: bool,
        asked: RequestContext<'_>,
    ) -> Result<Ready, Status> {
        let naming = Arc::clone(&self.stores.shared().naming);
        let split = options.fields.name().and_then(|name| naming.split_of(&target.gvr, name));
        let only = split.as_ref().map(|(_, member)| (*member).clone());
        let mut ready = self.stores.ready_for(&target.gvr, asked.reading(only.as_ref())).await?;
        let own = split.as_ref().map(|(own, _)| &**own).or_else(|| options.fields.name());
        let need = Need::of_options(options, watch, asked.headers, self.freshness);
        if need != Need::Nothing {
            let due = Due { need, scope: scope_of(target, options, own) };
            Box::pin(prove(&self.stores, &mut ready, due, only.as_ref(), asked)).await?;
        }
        Ok(ready)
    }

    /// A list or watch of one name selects and names the same object for its whole life.
    fn filter(
        &self,
        target: &Target,
        options: &ListOptions,
        ready: &Ready,
        audience: &Audience,
    ) -> Result<Filter, Status> {
        let naming = Arc::clone(&self.stores.shared().naming);
        let limit = || Limit {
            audience: audience.clone(),
            is_all: naming.members().iter().all(|member| audience.sees_member(member)),
            store: Arc::clone(ready.store()),
        };
        let mut filter = Filter {
            namespace: target.namespace.clone(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            suffixed: !naming.is_plain(),
            echo: None,
            limit: (!audience.is_everyone()).then(limit),
        };
        let Some(name) = options.fields.name().map(str::to_owned) else { return Ok(filter) };
        let namespace = options.fields.namespace().unwrap_or(&target.namespace);
        let asked = Target { namespace: namespace.to_owned(), name: name.clone(), ..target.clone() };
        if let Named::Shorthand(entry) = resolve(&naming, ready.store(), &asked, audience)? {
            filter.fields = filter.fields.with_name(entry.name());
            filter.echo = Some(name);
        }
        Ok(filter)
    }

    /// The object that a watch's revision told of, where it was given out for another version of the kind: each version
    /// tells of it at a revision of its own, and to a kube-apiserver they are one.
    fn known(&self, gvr: &Gvr, options: &ListOptions) -> Option<Arc<Entry>> {
        let At::Revision(revision) = options.at else { return None };
        let revision = Revision(revision);
        if options.send_initial_events == Some(true) {
            return None;
        }
        let twins = self.stores.twins(gvr);
        twins.iter().skip(1).find_map(|twin| twin.store.told_at(revision))
    }

    fn stale(&self, ready: &Ready, audience: &Audience) -> Stale {
        let (stores, running) = (Arc::clone(&self.stores), Arc::clone(&ready.running));
        let audience = audience.clone();
        let seen = move |name: &MemberName| audience.sees_member(name).then(|| name.to_string());
        Box::new(move || stores.stale(&running).iter().filter_map(&seen).collect())
    }
}

/// A member may be back in a moment, and this is a read. Without a word about when to ask again, Python's informer makes
/// no pause at all (`informer/informer.py`), and client-go's doubles its own (`rest/with_retry.go`).
fn ask_again(mut status: Status) -> Status {
    if status.code == StatusCode::SERVICE_UNAVAILABLE {
        status.details.retry_after_seconds = Some(RETRY_AFTER_SECONDS);
    }
    status
}
