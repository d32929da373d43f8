//! Lists: one revision over all pages, streamed in chunks straight from the store's bytes.

use std::{
    ops::ControlFlow,
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
    read::{
        answer::{CHUNK_BYTES, json_response, protobuf_response},
        blocks::{Blocks, Objects},
        filter::Filter,
        messages,
        walk::Walk,
    },
    respond::ReadError,
    store::{Entry, FleetStore, KindSpec, Revision, Snapshot},
    view::ListOptions,
};
use kubefold_serving::{
    encode::in_gzip,
    packed::{self, Packer, Step},
};
use kubefold_wire::{
    body::{Body, BodyError, full},
    form::list_metadata,
    options::{At, Match},
    status::Status,
    token::ContinueToken,
};

/// Objects of one page, whatever the client asks for.
const PAGE_ITEMS_MAX: usize = 100_000;
/// Lists in protobuf up to this size are made of blocks, in JSON's bytes: half of the blocks that a process keeps.
const PLAIN_LIST_BYTES_MAX: usize = 16 << 20;
/// In a token: the list goes on at whatever is newest.
const NEWEST: u64 = 0;

/// Answers a list.
pub(super) async fn list(
    store: &Arc<FleetStore>,
    options: &ListOptions,
    filter: Filter,
    shape: Shape<'_>,
    last: Revision,
) -> Result<Response<Body>, Status> {
    let spec = store.spec();
    let token = options.token.as_ref();
    let snapshot = snapshot(store, options, &filter, last)?;
    let Shape { form, blocks, gzip } = shape;
    // What is shown under another name, and rows, which have ages, are nobody else's.
    let is_shared = filter.echo.is_none() && form.written().is_some();
    let blocks = blocks.filter(|_| is_shared && (gzip || form.is_protobuf()));
    let packer = blocks.map(|blocks| blocks.packer(form.clone(), filter.limit.is_some()).in_gzip(gzip));
    if form.is_protobuf() {
        let limit = options.limit.map_or(usize::MAX, |limit| limit.min(PAGE_ITEMS_MAX));
        let page = Page::collect(&snapshot, &filter, token, limit).await;
        return Ok(page.in_protobuf(store, &snapshot, filter, form, packer).await);
    }
    let Some(limit) = options.limit.or_else(|| form.is_sorted(spec).then_some(PAGE_ITEMS_MAX)) else {
        let after = token.map_or("", |token| token.after.as_str());
        return Ok(whole(spec, snapshot, filter, form, after, packer).await);
    };
    let mut page = Page::collect(&snapshot, &filter, token, limit.min(PAGE_ITEMS_MAX)).await;
    form.sort(spec, &mut page.items);
    let Some(packer) = packer else { return Ok(page.response(store, &snapshot, filter, form)) };
    let head = page.head(store, &snapshot, &filter, &form);
    Ok(packed::json(packer, head, page.items.into_iter()).await.response(json_response))
}

/// How a list is to be written.
pub(super) struct Shape<'a> {
    pub(super) form: Form,
    /// What it is made of, where it can be.
    pub(super) blocks: Option<&'a Blocks>,
    /// It goes out in gzip, if it is large.
    pub(super) gzip: bool,
}

/// Answers a list as [`list`] does, and gives the objects in it.
pub(super) async fn collected(
    store: &Arc<FleetStore>,
    options: &ListOptions,
    filter: Filter,
    form: Form,
    last: Revision,
) -> Result<(Response<Body>, Vec<Arc<Entry>>), Status> {
    let token = options.token.as_ref();
    let snapshot = snapshot(store, options, &filter, last)?;
    let page = Page::collect(&snapshot, &filter, token, options.limit.unwrap_or(usize::MAX)).await;
    let items = page.items.clone();
    Ok((page.response(store, &snapshot, filter, form), items))
}

fn snapshot(store: &FleetStore, options: &ListOptions, filter: &Filter, last: Revision) -> Result<Snapshot, ReadError> {
    if let Some(token) = &options.token {
        // A list of other members' objects than those that the first page showed is another list.
        if token.audience != filter.audience().digest() {
            return Err(expired(store, token, filter));
        }
        if token.revision == NEWEST {
            return Ok(store.snapshot());
        }
        return store.retained(Revision(token.revision)).ok_or_else(|| expired(store, token, filter));
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
fn expired(store: &FleetStore, token: &ContinueToken, filter: &Filter) -> ReadError {
    let fresh = ContinueToken::new(store.spec().label(), NEWEST, token.after.clone(), None);
    ReadError::ContinueTooOld { fresh: fresh.for_audience(filter.audience().digest()).encode() }
}

/// `{"kind":"PodList",...,"items":`
pub(super) fn write_head(
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
    async fn collect(snapshot: &Snapshot, filter: &Filter, token: Option<&ContinueToken>, limit: usize) -> Self {
        let after = token.map_or("", |token| token.after.as_str());
        let mut items: Vec<Arc<Entry>> = Vec::new();
        let mut walk = Walk::new(snapshot.clone(), filter.clone(), after);
        // It stops at the first object of the next page.
        let more = walk
            .run(|entry| {
                if items.len() == limit {
                    return ControlFlow::Break(());
                }
                items.push(Arc::clone(entry));
                ControlFlow::Continue(())
            })
            .await;
        let remaining = match (filter.is_countable(), token) {
            (false, _) => None,
            (true, None) => Some(snapshot.count(&filter.namespace).saturating_sub(items.len() as u64)),
            (true, Some(token)) => match token.remaining {
                Some(remaining) => Some(remaining.saturating_sub(items.len() as u64)),
                // A token that goes on at another revision than its list began at does not know: they are counted, once.
                None => {
                    let mut count = 0_u64;
                    walk.run(|_| {
                        count += 1;
                        ControlFlow::Continue(())
                    })
                    .await;
                    Some(count)
                }
            },
        };
        let last = items.last().map(|entry| String::from_utf8_lossy(entry.key()).into_owned());
        Self { next: last.filter(|_| more), remaining, items }
    }

    fn response(self, store: &FleetStore, snapshot: &Snapshot, filter: Filter, form: Form) -> Response<Body> {
        let out = self.head(store, snapshot, &filter, &form);
        let body = PageBody { out, items: self.items.into_iter(), filter, form, first: true, done: false };
        json_response(body.boxed_unsync())
    }

    /// The same in protobuf, or in JSON if an object has no form in it.
    async fn in_protobuf(
        self,
        store: &FleetStore,
        snapshot: &Snapshot,
        filter: Filter,
        form: Form,
        packer: Option<Packer<Objects>>,
    ) -> Response<Body> {
        let mut head = self.head(store, snapshot, &filter, &form);
        form.end_items(true, &mut head);
        // The messages of a smaller list are kept, and the blocks of a larger one would be made for nobody.
        let fits = || {
            let bytes = self.items.iter().map(|entry| entry.json().len()).sum::<usize>();
            bytes > messages::KEPT_LIST_BYTES_MAX && bytes <= PLAIN_LIST_BYTES_MAX
        };
        if let Some(packer) = packer.filter(|packer| packer.is_gzip() || fits()) {
            let is_gzip = packer.is_gzip();
            if let Ok(Some(body)) = packed::protobuf(packer, &head, &self.items).await {
                let response = protobuf_response(body);
                return if is_gzip { in_gzip(response) } else { response };
            }
        }
        match messages::body(store, &head, &self.items, filter.echo.clone(), &form).await {
            Ok(body) => protobuf_response(body),
            Err(_) => {
                store.count_unfit();
                self.response(store, snapshot, filter, form)
            }
        }
    }

    /// What is before the items. The snapshot is retained if there is a next page.
    fn head(&self, store: &FleetStore, snapshot: &Snapshot, filter: &Filter, form: &Form) -> Vec<u8> {
        let spec = store.spec();
        let next = self.next.as_ref().map(|after| {
            store.retain(snapshot);
            let token = ContinueToken::new(spec.label(), snapshot.revision.0, after.clone(), self.remaining);
            token.for_audience(filter.audience().digest()).encode()
        });
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        write_head(spec, form, snapshot.revision, next.as_deref(), self.remaining, &mut out);
        out
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
        while let Some(entry) = this.items.as_slice().first() {
            if !has_room(&out, entry) {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
            out.push(if std::mem::take(&mut this.first) { b'[' } else { b',' });
            this.form.item(entry, this.filter.echo.as_deref(), &mut out);
            this.items.next();
        }
        this.form.end_items(this.first, &mut out);
        this.done = true;
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}

/// A list without objects.
pub(super) fn empty(spec: &KindSpec, form: &Form, revision: Revision) -> Response<Body> {
    let mut out = Vec::new();
    write_head(spec, form, revision, None, None, &mut out);
    form.end_items(true, &mut out);
    json_response(full(out))
}

/// Says whether a chunk has room for one more object. A chunk is written into memory of its size: to exceed it would copy
/// all that is in it. An object larger than a chunk has one of its own.
pub(super) fn has_room(chunk: &[u8], entry: &Entry) -> bool {
    /// What surrounds an object.
    const AROUND: usize = 64;
    /// A chunk with no more than this has no object yet.
    const HEAD_BYTES_MAX: usize = 1024;
    chunk.len() + entry.json().len() + AROUND <= CHUNK_BYTES || chunk.len() < HEAD_BYTES_MAX
}

/// A whole list, straight from the snapshot: one chunk is all the memory that it takes.
async fn whole(
    spec: &KindSpec,
    snapshot: Snapshot,
    filter: Filter,
    form: Form,
    after: &str,
    packer: Option<Packer<Objects>>,
) -> Response<Body> {
    let mut head = Vec::with_capacity(CHUNK_BYTES);
    write_head(spec, &form, snapshot.revision, None, None, &mut head);
    let walk = Walk::new(snapshot, filter, after);
    if let Some(packer) = packer {
        return packed::json(packer, head, walk).await.response(json_response);
    }
    let body = WholeBody { out: head, walk, form, first: true, done: false };
    json_response(body.boxed_unsync())
}

/// A whole list as it goes out: a chunk at a time, and a step of the walk at most.
struct WholeBody {
    out: Vec<u8>,
    walk: Walk,
    form: Form,
    first: bool,
    done: bool,
}

impl http_body::Body for WholeBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { out, walk, form, first, done } = self.get_mut();
        if *done {
            return Poll::Ready(None);
        }
        out.reserve(CHUNK_BYTES.saturating_sub(out.len()));
        let echo = walk.filter().echo.clone();
        let step = walk.step(|entry| {
            if !has_room(out, entry) {
                return ControlFlow::Break(());
            }
            out.push(if std::mem::take(first) { b'[' } else { b',' });
            form.item(entry, echo.as_deref(), out);
            ControlFlow::Continue(())
        });
        match step {
            Step::Paused => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Step::Stopped => {}
            Step::Done => {
                form.end_items(*first, out);
                *done = true;
            }
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(out).into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}
