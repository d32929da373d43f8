//! The reflector: per member and kind, the list and watch that feed a fleet store.
//!
//! It resumes where its watch broke; only when the member says 410, is another or a restored cluster, or was not ready
//! in between does it list again, and then that member only. What it does not know it never calls a deletion.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    member::{
        Class, Failure, Health, Member, UpResponseBody, UpstreamError, cause::Cause, collect, metrics::ListReason,
    },
    placement::marker::MARKER_KEY,
    store::{FleetStore, SLICE_ITEMS_MAX},
};
use kubefold_wire::{
    body::empty,
    list::split,
    watch::{Event, EventType, Lines},
};

/// Items asked for in one page of a member's list. Source: client-go's pager.
const PAGE_ITEMS: usize = 500;
/// Largest page that is taken. A larger one is asked for in smaller pages, down to [`PAGE_ITEMS_MIN`].
const PAGE_BYTES_MAX: usize = 256 << 20;
const PAGE_ITEMS_MIN: usize = 8;
/// By how much a page that was too large is made smaller.
const PAGE_SHRINKS: usize = 8;
/// Pause after a failure; it doubles up to the second one, and begins anew once a watch stands. A member that is ready
/// again ends it.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A member that says 429 is left alone for as long as it says, but not for longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// A definition's metadata. Managed fields make it large.
const DEFINITION_BYTES_MAX: usize = 4 << 20;
/// A session shorter than this was none.
const SESSION_MIN: Duration = Duration::from_secs(5);
/// A member ends our watches after this, each a little later than the one before, so that they do not all end at once.
const WATCH_SECONDS: u64 = 300;

/// An object's metadata alone; all of it where a server does not know that.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same of a list's items.
pub(super) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Why a reflector does not follow its member now.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// For operators.
    pub cause: Arc<str>,
    /// Since when.
    pub since: Instant,
}

/// What a reflector says about itself.
#[derive(Debug, Default)]
pub(crate) struct ReflectorState {
    trouble: Mutex<Option<Trouble>>,
    /// Causes that the log has since the member was last followed for long: retries say nothing.
    told: Mutex<Vec<Cause>>,
    /// A watch has stood before.
    watched: AtomicBool,
    /// The member's revisions of this kind are no decimal numbers.
    unordered: AtomicBool,
    /// The generation of the definition by which its objects were listed; 0 where it has none.
    definition: AtomicU64,
}

impl ReflectorState {
    /// Why it does not follow its member now; `None` while it does.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone()
    }

    /// Says whether no store can hold what the member has of this kind: nothing orders it.
    pub(crate) fn is_unordered(&self) -> bool {
        self.unordered.load(Ordering::Relaxed)
    }

    fn fail(&self, cause: &str) {
        let mut trouble = self.trouble.lock();
        let since = trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
        *trouble = Some(Trouble { cause: cause.into(), since });
    }

    fn heal(&self) {
        *self.trouble.lock() = None;
        self.unordered.store(false, Ordering::Relaxed);
    }

    /// True if the log should have a line about this cause.
    fn tell(&self, cause: Cause) -> bool {
        let mut told = self.told.lock();
        let is_new = !told.contains(&cause);
        if is_new {
            told.push(cause);
        }
        is_new
    }

    /// Forgets what was told; true if anything was.
    fn settle(&self) -> bool {
        !std::mem::take(&mut *self.told.lock()).is_empty()
    }

    fn is_settled(&self) -> bool {
        self.told.lock().is_empty()
    }
}

/// Feeds one member's objects of one kind to their store, until it is cancelled.
pub(super) struct Reflector {
    pub(super) member: Arc<Member>,
    pub(super) store: Arc<FleetStore>,
    /// Only parts are followed, by what of them says who they are.
    pub(super) of_parts: bool,
    pub(super) state: Arc<ReflectorState>,
    pub(super) cancel: CancellationToken,
}

/// Why one session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("{}", .0.cause())]
    Upstream(#[from] UpstreamError),
    #[error("it answered {code} to a {what}: {message}")]
    Status { code: StatusCode, what: &'static str, message: String, retry_after: Option<Duration> },
    #[error("it answered a {what} with {content}, not JSON: is there a proxy or a login page in between?")]
    Content { what: &'static str, content: String },
    #[error("its list cannot be read: {0}")]
    List(#[from] kubefold_wire::list::ListError),
    #[error("its watch cannot be read: {0}")]
    Watch(#[from] kubefold_wire::watch::WatchError),
    #[error("it sent an object that cannot be taken in: {0}")]
    Object(#[from] crate::store::BadObject),
    #[error("its list bears the revision {0:?}, which is no decimal number")]
    Revision(String),
    #[error("its list at revision {list} is older than what its watch has told up to {position}")]
    OldList { list: u64, position: u64 },
    #[error("its watch broke inside an event")]
    Torn,
    #[error("its history up to {0} is gone: it is listed again")]
    Expired(u64),
    #[error("{0}")]
    Down(Arc<str>),
}

/// What the next session begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// With a full list: nothing is known, or what is known cannot be continued.
    List(ListReason),
    /// With a full list whose bytes decide, since revisions of before may belong to another history.
    ///
    /// A restored etcd is often past our position before we hear of it: kube-apiserver writes as it starts. Such a member
    /// resumes a watch without a word and never tells what the restoring undid. But nobody restores etcd under a
    /// kube-apiserver that stays ready.
    Afresh,
    /// With a watch from this member revision.
    Resume(u64),
}

impl Reflector {
    /// Runs until cancelled. Cancel: safe at any point; the store keeps what it has.
    pub(super) async fn run(self) {
        let mut begin = Begin::List(ListReason::First);
        let mut incarnation = 0;
        let mut pause = PAUSE_MIN;
        let mut outages = self.member.outages();
        loop {
            let began = Instant::now();
            // An outage may begin and end while this pauses.
            let outages_now = self.member.outages();
            if std::mem::replace(&mut outages, outages_now) != outages_now && incarnation != 0 {
                begin = Begin::Afresh;
            }
            // A member that goes down ends the session, though its connection may not know yet: what comes after an
            // outage is a watch begun anew, which asks first whether it still is the same cluster.
            let outcome = tokio::select! {
                () = self.cancel.cancelled() => return,
                outcome = self.session(&mut begin, &mut incarnation) => outcome,
                cause = self.member.goes_down() => Err(SessionError::Down(cause)),
            };
            // Only a session that lasted begins the pauses anew: a member that says 410 to everything, or ends every watch
            // at once, is not asked for full lists in a storm.
            if began.elapsed() >= SESSION_MIN {
                pause = PAUSE_MIN;
            }
            let Err(error) = outcome else {
                // A watch that its member ended at its deadline is no trouble.
                if began.elapsed() < SESSION_MIN {
                    self.rest(&mut pause, Duration::ZERO).await;
                }
                continue;
            };
            self.note(&error);
            if self.member.health() != Health::Ready || matches!(error, SessionError::Down(_)) {
                begin = Begin::Afresh;
            } else if let (Some(reason), true) = (error.lists_again(), begin != Begin::Afresh) {
                begin = Begin::List(reason);
            }
            self.rest(&mut pause, error.retry_after().min(RETRY_AFTER_MAX)).await;
        }
    }

    /// Says why the member is not followed: to readers at once, to the log once for each cause, to the metrics every time.
    fn note(&self, error: &SessionError) {
        let cause = error.cause();
        // What failed on its way was counted there.
        if !matches!(error, SessionError::Upstream(_) | SessionError::Down(_)) && Some(cause) != error.counted() {
            self.member.meter().failed(cause);
            self.member.note(&format!("{}: {error}", self.store.spec().label()));
        }
        if self.state.tell(cause) {
            let (member, kind) = (self.member.name(), self.store.spec().label());
            tracing::warn!(%member, %kind, cause = cause.as_str(), %error, "the member is not followed");
        }
        self.state.fail(&error.to_string());
        if error.is_about_order() && !self.state.unordered.swap(true, Ordering::Relaxed) {
            // Who waits for the first list need not.
            self.store.wake();
        }
    }

    /// Pauses, and makes the next pause longer. Ends early when cancelled, and no sooner than the member asked for.
    async fn rest(&self, pause: &mut Duration, at_least: Duration) {
        let resting = async {
            let asked_for = Instant::now() + at_least;
            self.pause((*pause).max(at_least)).await;
            sleep_until(asked_for).await;
        };
        self.cancel.run_until_cancelled(resting).await;
        *pause = (*pause * 2).min(PAUSE_MAX);
    }

    /// Waits; while the member is down until it is not, otherwise no longer than until it becomes ready.
    async fn pause(&self, pause: Duration) {
        let mut health = self.member.health_changes();
        if health.borrow_and_update().is_down() {
            // While it is down, asking is useless: the probe says when it is not.
            let _closed = health.wait_for(|health| !health.is_down()).await;
            return;
        }
        let becomes_ready = async {
            while health.changed().await.is_ok() {
                if *health.borrow_and_update() == Health::Ready {
                    return;
                }
            }
        };
        // Either end of the wait will do.
        let _elapsed = timeout(pause, becomes_ready).await;
    }

    async fn session(&self, begin: &mut Begin, incarnation: &mut u64) -> Result<(), SessionError> {
        let name = self.member.name();
        let now = self.member.check_identity().await?;
        self.store.join(name, &self.member.cluster_uid().unwrap_or_default());
        if *incarnation != now {
            if *incarnation != 0 {
                let cause = Cause::OtherCluster;
                self.member.meter().failed(cause);
                tracing::warn!(member = %name, cause = cause.as_str(), "the member is another cluster than before");
                self.store.reset(name);
            }
            let reason = if *incarnation == 0 { ListReason::First } else { ListReason::OtherCluster };
            *incarnation = now;
            *begin = Begin::List(reason);
        }
        if *begin == Begin::Afresh {
            self.store.reset(name);
            *begin = Begin::List(ListReason::Outage);
        }
        let position = self.store.position(name);
        if position > 0 && self.revision().await? < position {
            // A restored kube-apiserver says nothing and skips events for ever (docs/design/revisions.md#resume).
            let (kind, cause) = (self.store.spec().label(), Cause::RevisionsBackwards);
            self.member.meter().failed(cause);
            tracing::warn!(member = %name, %kind, cause = cause.as_str(), "the member's revisions went backwards: it was restored from a backup");
            self.store.reset(name);
            *begin = Begin::List(ListReason::RevisionsBackwards);
        }
        if self.is_redefined().await && matches!(*begin, Begin::Resume(_)) {
            *begin = Begin::List(ListReason::Redefined);
        }
        if let Begin::List(reason) = *begin {
            self.member.meter().listed(reason);
            *begin = Begin::Resume(self.list().await?);
        }
        let Begin::Resume(from) = *begin else { return Ok(()) };
        self.watch(from, begin).await
    }

    /// Says whether the kind is a custom resource whose definition changed since this was last asked.
    ///
    /// Then its objects may read differently at the same revision, by other defaults. A kube-apiserver tells no event of that,
    /// but it ends every watch of the kind a second later, or when requests under way are done, in two minutes at most
    /// (kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go`, `tearDown`). What cannot be read has
    /// not changed.
    async fn is_redefined(&self) -> bool {
        let Some(now) = self.definition().await else { return false };
        let before = self.state.definition.swap(now, Ordering::Relaxed);
        before > 0 && before != now
    }

    /// The generation of the definition of a custom resource; `None` where there is none to be read.
    async fn definition(&self) -> Option<u64> {
        #[derive(serde::Deserialize)]
        struct Definition {
            metadata: Generation,
        }
        #[derive(serde::Deserialize)]
        struct Generation {
            generation: u64,
        }
        let gvr = &self.store.spec().gvr;
        // Groups of custom resources are domains, and so are most of Kubernetes' own.
        if !gvr.group.contains('.') {
            return None;
        }
        let request = Request::builder()
            .uri(format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}", gvr.resource, gvr.group))
            .header(header::ACCEPT, METADATA)
            .body(empty())
            .ok()?;
        let response =
            self.member.send(request, Class::Read).await.ok().filter(|answer| answer.status().is_success())?;
        let body = collect(response.into_body(), DEFINITION_BYTES_MAX).await.ok()?;
        serde_json::from_slice::<Definition>(&body).ok().map(|definition| definition.metadata.generation)
    }

    /// A current revision of the member: a consistent list of one item.
    async fn revision(&self) -> Result<u64, SessionError> {
        let body = self.read_list("?limit=1").await?;
        revision(&split(&body)?.0.resource_version)
    }

    /// Lists everything, page by page, at one revision.
    async fn list(&self) -> Result<u64, SessionError> {
        let name = self.member.name();
        let mut token = String::new();
        let mut at = None;
        let mut page_items = PAGE_ITEMS;
        loop {
            let body = self.page(&token, &mut page_items).await?;
            let (meta, items) = split(&body)?;
            let list = revision(&meta.resource_version)?;
            if *at.get_or_insert(list) != list {
                return Err(SessionError::Revision(meta.resource_version));
            }
            if token.is_empty() {
                let position = self.store.position(name);
                if list < position {
                    return Err(SessionError::OldList { list, position });
                }
                self.store.begin_list(name);
            }
            for slice in items.chunks(SLICE_ITEMS_MAX) {
                self.room().await;
                if let Some(bad) = self.store.list_slice(name, slice).into_iter().next() {
                    // Left out it would read as deleted: the list as a whole does not count.
                    return Err(bad.into());
                }
                tokio::task::yield_now().await;
            }
            token = meta.continue_token;
            if token.is_empty() {
                let doomed = self.store.end_list(name, list);
                for slice in doomed.chunks(SLICE_ITEMS_MAX) {
                    self.room().await;
                    self.store.remove_slice(slice);
                    tokio::task::yield_now().await;
                }
                return Ok(list);
            }
        }
    }

    /// One page; the pages become smaller where one is too large.
    async fn page(&self, token: &str, items: &mut usize) -> Result<bytes::Bytes, SessionError> {
        let token = utf8_percent_encode(token, NON_ALPHANUMERIC).to_string();
        let after = if token.is_empty() { token } else { format!("&continue={token}") };
        loop {
            match self.read_list(&format!("?limit={items}{after}")).await {
                Err(SessionError::Upstream(error))
                    if *items > PAGE_ITEMS_MIN && matches!(error.failure, Failure::BodyTooLarge { .. }) =>
                {
                    *items = (*items / PAGE_SHRINKS).max(PAGE_ITEMS_MIN);
                }
                answer => return answer,
            }
        }
    }

    /// Waits until no watcher that still moves is more than half a ring behind.
    async fn room(&self) {
        while !self.store.has_room() {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn watch(&self, from: u64, begin: &mut Begin) -> Result<(), SessionError> {
        let name = self.member.name();
        let seconds = WATCH_SECONDS + from % WATCH_SECONDS;
        let query = format!("?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}");
        let response = self.ask(&query, Class::Watch).await?;
        if response.status() == StatusCode::GONE {
            return Err(SessionError::Expired(from));
        }
        let mut body = ok(response, "watch").await?;
        self.state.heal();
        if self.state.watched.swap(true, Ordering::Relaxed) {
            self.member.meter().watch_restarted();
        }
        let mut lines = Lines::default();
        let lasts = Instant::now() + SESSION_MIN;
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = sleep_until(lasts), if !self.state.is_settled() => {
                    self.settled();
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            let Ok(chunk) = frame?.into_data() else { continue };
            lines.push(&chunk)?;
            while let Some(line) = lines.next_line() {
                self.take(&Event::parse(&line)?, begin)?;
            }
        }
        if lines.is_mid_line() {
            return Err(SessionError::Torn);
        }
        tracing::debug!(member = %name, kind = %self.store.spec().label(), "the member ended the watch");
        Ok(())
    }

    /// The watch has lasted: what went wrong before it is over.
    fn settled(&self) {
        if self.state.settle() {
            tracing::info!(member = %self.member.name(), kind = %self.store.spec().label(), "the member is followed again");
        }
    }

    fn take(&self, event: &Event<'_>, begin: &mut Begin) -> Result<(), SessionError> {
        let name = self.member.name();
        match event.event_type {
            EventType::Added | EventType::Modified | EventType::Deleted => self.store.watch_event(name, event)?,
            EventType::Bookmark => self.store.bookmark(name, bookmark(event.object)?),
            EventType::Error => {
                let status: Told = serde_json::from_str(event.object).unwrap_or_default();
                if status.code == StatusCode::GONE.as_u16() {
                    return Err(SessionError::Expired(self.store.position(name)));
                }
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return Err(SessionError::Status { code, what: "watch", message: status.message, retry_after: None });
            }
        }
        *begin = Begin::Resume(self.store.position(name));
        Ok(())
    }

    async fn read_list(&self, query: &str) -> Result<bytes::Bytes, SessionError> {
        let response = self.ask(query, Class::Read).await?;
        if response.status() == StatusCode::GONE {
            return Err(SessionError::Expired(0));
        }
        Ok(collect(ok(response, "list").await?, PAGE_BYTES_MAX).await?)
    }

    async fn ask(&self, query: &str, class: Class) -> Result<http::Response<UpResponseBody>, SessionError> {
        let spec = self.store.spec();
        // Children bear no label.
        let selected = (self.of_parts && !spec.has_children())
            .then(|| format!("&labelSelector={}", utf8_percent_encode(MARKER_KEY, NON_ALPHANUMERIC)));
        let accept = match (self.of_parts, query.starts_with("?watch")) {
            (false, _) => "application/json",
            (true, false) => METADATA_LIST,
            (true, true) => METADATA,
        };
        let request = Request::builder()
            .method(Method::GET)
            .uri(format!("{}{query}{}", spec.gvr.path(), selected.unwrap_or_default()))
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, concat!("kubefold/", env!("CARGO_PKG_VERSION"), " reflector"))
            .body(empty())
            .map_err(|error| UpstreamError::new(self.member.name(), Failure::Request(error.to_string().into())))?;
        Ok(self.member.send(request, class).await?)
    }
}

impl SessionError {
    /// Says whether it comes of a revision that is no decimal number.
    fn is_about_order(&self) -> bool {
        use crate::store::BadObject::{Missing, Revision};
        matches!(self, Self::Revision(_) | Self::Object(Revision(_) | Missing("resourceVersion")))
    }

    /// Why the next session has to list again; `None` where it may resume where this one stopped.
    fn lists_again(&self) -> Option<ListReason> {
        match self {
            Self::Upstream(_) | Self::Status { .. } | Self::Content { .. } | Self::Torn | Self::Down(_) => None,
            Self::Expired(_) => Some(ListReason::Expired),
            Self::OldList { .. } => Some(ListReason::RevisionsBackwards),
            Self::List(_) | Self::Watch(_) | Self::Object(_) | Self::Revision(_) => Some(ListReason::Unreadable),
        }
    }

    fn cause(&self) -> Cause {
        match self {
            Self::Upstream(error) => Cause::of_failure(&error.failure).unwrap_or(Cause::Unexpected),
            Self::Status { code, .. } => Cause::of_status(*code).unwrap_or(Cause::Unexpected),
            Self::Content { .. } => Cause::Unexpected,
            Self::List(_) | Self::Revision(_) => Cause::Undecodable,
            Self::Watch(kubefold_wire::watch::WatchError::TooLarge) => Cause::TooLarge,
            Self::Watch(_) => Cause::Undecodable,
            Self::Object(_) => Cause::BadObject,
            Self::OldList { .. } => Cause::RevisionsBackwards,
            Self::Torn => Cause::Cut,
            Self::Expired(_) => Cause::Expired,
            Self::Down(_) => Cause::Down,
        }
    }

    /// The cause that was counted where the answer came in.
    fn counted(&self) -> Option<Cause> {
        match self {
            Self::Status { code, .. } => Cause::of_anybodys(*code),
            _ => None,
        }
    }

    /// How long the member asked to be left alone.
    fn retry_after(&self) -> Duration {
        match self {
            Self::Status { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

/// The fields of a `Status` that decide.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Told {
    code: u16,
    message: String,
}

async fn ok(response: http::Response<UpResponseBody>, what: &'static str) -> Result<UpResponseBody, SessionError> {
    let (head, body) = response.into_parts();
    let code = head.status;
    let text = |name| head.headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    if code.is_success() {
        let content = text(header::CONTENT_TYPE).filter(|content| !content.contains("json"));
        // kubefold asks for no encoding: what comes encoded all the same was not made by a kube-apiserver.
        let encoding = text(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity");
        return match encoding.or(content) {
            Some(content) => Err(SessionError::Content { what, content: content.to_owned() }),
            None => Ok(body),
        };
    }
    let retry_after = text(header::RETRY_AFTER).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let told = collect(body, 1 << 20).await.unwrap_or_default();
    let message = serde_json::from_slice::<Told>(&told).map(|status| status.message);
    Err(SessionError::Status { code, what, message: message.unwrap_or_default(), retry_after })
}

fn revision(text: &str) -> Result<u64, SessionError> {
    text.parse().map_err(|_| SessionError::Revision(text.to_owned()))
}

fn bookmark(object: &str) -> Result<u64, SessionError> {
    #[derive(serde::Deserialize)]
    struct Bookmark {
        metadata: kubefold_wire::list::ListMeta,
    }
    let bookmark: Bookmark = serde_json::from_str(object).map_err(kubefold_wire::watch::WatchError::from)?;
    revision(&bookmark.metadata.resource_version)
}
