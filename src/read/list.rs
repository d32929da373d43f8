//! Lists: one revision over all pages, streamed in chunks straight from the store's bytes.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt;

use crate::{
    answer::form::Form,
    read::{answer::json_response, filter::Filter},
    respond::ReadError,
    store::{Entry, FleetStore, KindSpec, Revision, Snapshot},
    view::ListOptions,
};
use kubefold_wire::{
    body::{Body, BodyError, full},
    form::list_metadata,
    options::{At, Match},
    status::Status,
    token::ContinueToken,
};

/// Chunks of a list: large enough that HTTP/2 frames cost nothing, small enough to be all that a list takes.
pub(super) const CHUNK_BYTES: usize = 128 << 10;
/// Objects of one page, whatever the client asks for.
const PAGE_ITEMS_MAX: usize = 100_000;
/// In a token: the list goes on at whatever is newest.
const NEWEST: u64 = 0;

/// Answers a list.
pub(super) fn list(
    store: &Arc<FleetStore>,
    options: &ListOptions,
    filter: Filter,
    form: Form,
    last: Revision,
) -> Result<Response<Body>, Status> {
    let spec = store.spec();
    let token = options.token.as_ref();
    let snapshot = snapshot(store, options, token, last)?;
    let Some(limit) = options.limit.or_else(|| form.is_sorted(spec).then_some(PAGE_ITEMS_MAX)) else {
        let after = token.map(|token| token.after.clone()).unwrap_or_default();
        return Ok(whole(spec, snapshot, filter, form, after));
    };
    let mut page = Page::collect(&snapshot, &filter, token, limit.min(PAGE_ITEMS_MAX));
    form.sort(spec, &mut page.items);
    Ok(page.response(store, &snapshot, filter, form))
}

/// Answers a list as [`list`] does, and gives the objects in it.
pub(super) fn collected(
    store: &Arc<FleetStore>,
    options: &ListOptions,
    filter: Filter,
    form: Form,
    last: Revision,
) -> Result<(Response<Body>, Vec<Arc<Entry>>), Status> {
    let token = options.token.as_ref();
    let snapshot = snapshot(store, options, token, last)?;
    let page = Page::collect(&snapshot, &filter, token, options.limit.unwrap_or(usize::MAX));
    let items = page.items.clone();
    Ok((page.response(store, &snapshot, filter, form), items))
}

fn snapshot(
    store: &FleetStore,
    options: &ListOptions,
    token: Option<&ContinueToken>,
    last: Revision,
) -> Result<Snapshot, ReadError> {
    if let Some(token) = token {
        if token.revision == NEWEST {
            return Ok(store.snapshot());
        }
        return store.retained(Revision(token.revision)).ok_or_else(|| expired(store, token));
    }
    let At::Revision(asked) = options.at else { return Ok(store.snapshot()) };
    let asked = Revision(asked);
    if asked > last {
        return Err(ReadError::TooLarge { asked: asked.0, current: last.0 });
    }
    // Source: kubernetes/apiserver `storage/cacher/delegator/interface.go`; a limit without a match is a legacy of it.
    let exact = options.matching == Match::Exact || (options.matching == Match::Unset && options.limit.is_some());
    if !exact {
        return Ok(store.snapshot_from(asked));
    }
    store.snapshot_at(asked).ok_or(ReadError::ListTooOld)
}

/// A list that cannot go on at its revision: it may go on at the newest.
fn expired(store: &FleetStore, token: &ContinueToken) -> ReadError {
    let fresh = ContinueToken::new(store.spec().label(), NEWEST, token.after.clone(), None).encode();
    ReadError::ContinueTooOld { fresh }
}

/// `{"kind":"PodList",...,"items":`
fn write_head(
    spec: &KindSpec,
    form: &Form,
    revision: Revision,
    next: Option<&str>,
    remaining: Option<u64>,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    form.list_type(spec, out);
    out.push(b',');
    list_metadata(revision.0, next, remaining, out);
    out.push(b',');
    form.begin_items(out);
}

/// The objects of one page, and where the next one begins.
struct Page {
    items: Vec<Arc<Entry>>,
    next: Option<String>,
    remaining: Option<u64>,
}

impl Page {
    /// Costs O(log n + page): a seek, and a walk over what is given. With selectors it walks on to the next match, so
    /// that no page is empty and the last one says so.
    fn collect(snapshot: &Snapshot, filter: &Filter, token: Option<&ContinueToken>, limit: usize) -> Self {
        let after = token.map_or("", |token| token.after.as_str());
        let range = || snapshot.range(&filter.namespace, after.as_bytes());
        let mut matching = range().filter(|entry| filter.matches(entry));
        let items: Vec<Arc<Entry>> = matching.by_ref().take(limit).cloned().collect();
        let more = matching.next().is_some();
        let left = || match token {
            None => snapshot.count(&filter.namespace),
            // A token that goes on at another revision than its list began at does not know: they are counted, once.
            Some(token) => token.remaining.unwrap_or_else(|| range().count() as u64),
        };
        let remaining = filter.is_namespace_only().then(|| left().saturating_sub(items.len() as u64));
        let last = items.last().map(|entry| String::from_utf8_lossy(entry.key()).into_owned());
        Self { next: last.filter(|_| more), remaining, items }
    }

    fn response(self, store: &FleetStore, snapshot: &Snapshot, filter: Filter, form: Form) -> Response<Body> {
        let spec = store.spec();
        let next = self.next.as_ref().map(|after| {
            store.retain(snapshot);
            ContinueToken::new(spec.label(), snapshot.revision.0, after.clone(), self.remaining).encode()
        });
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        write_head(spec, &form, snapshot.revision, next.as_deref(), self.remaining, &mut out);
        let body = PageBody { out, items: self.items.into_iter(), filter, form, first: true, done: false };
        json_response(body.boxed_unsync())
    }
}

/// A page as it goes out.
struct PageBody {
    out: Vec<u8>,
    items: std::vec::IntoIter<Arc<Entry>>,
    filter: Filter,
    form: Form,
    first: bool,
    done: bool,
}

impl http_body::Body for PageBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        let mut out = std::mem::take(&mut this.out);
        out.reserve(CHUNK_BYTES.saturating_sub(out.len()));
        while out.len() < CHUNK_BYTES {
            let Some(entry) = this.items.next() else {
                this.form.end_items(this.first, &mut out);
                this.done = true;
                break;
            };
            out.push(if std::mem::take(&mut this.first) { b'[' } else { b',' });
            this.form.item(&entry, this.filter.echo.as_deref(), &mut out);
        }
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }
}

/// A list without objects.
pub(super) fn empty(spec: &KindSpec, form: &Form, revision: Revision) -> Response<Body> {
    let mut out = Vec::new();
    write_head(spec, form, revision, None, None, &mut out);
    form.end_items(true, &mut out);
    json_response(full(out))
}

/// A whole list, straight from the snapshot: one chunk is all the memory that it takes.
fn whole(spec: &KindSpec, snapshot: Snapshot, filter: Filter, form: Form, after: String) -> Response<Body> {
    let mut head = Vec::with_capacity(256);
    write_head(spec, &form, snapshot.revision, None, None, &mut head);
    let walk = Walk { snapshot, filter, form, after: after.into_bytes(), first: true };
    let state = (Some(head), Some(walk));
    let chunks = futures::stream::unfold(state, |(head, walk)| async move {
        let mut walk = walk?;
        let mut out = head.unwrap_or_default();
        out.reserve(CHUNK_BYTES);
        let more = walk.fill(&mut out);
        if !more {
            walk.form.end_items(walk.first, &mut out);
        }
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(out))), (None, more.then_some(walk))))
    });
    let body = http_body_util::StreamBody::new(chunks).map_err(|never| match never {});
    json_response(body.boxed_unsync())
}

/// A walk over a snapshot that stops whenever a chunk is full.
struct Walk {
    snapshot: Snapshot,
    filter: Filter,
    form: Form,
    after: Vec<u8>,
    first: bool,
}

impl Walk {
    /// Appends items until the chunk is full; says whether more may follow. Each call seeks once.
    fn fill(&mut self, out: &mut Vec<u8>) -> bool {
        for entry in self.snapshot.range(&self.filter.namespace, &self.after) {
            if self.filter.matches(entry) {
                out.push(if std::mem::take(&mut self.first) { b'[' } else { b',' });
                self.form.item(entry, self.filter.echo.as_deref(), out);
            }
            if out.len() >= CHUNK_BYTES {
                self.after = entry.key().to_vec();
                return true;
            }
        }
        false
    }
}
