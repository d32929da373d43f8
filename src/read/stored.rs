//! Kinds whose objects are in the mirror's tables, and in no memory: lists page by page from there, gets from the member.
//!
//! The order of a list is that of namespace, own name and member. A page begins behind a place in it, so that what comes and goes
//! between two pages moves nothing.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::{
    answer::{RequestContext, form::Form, table::Tables},
    catalog::MergedResource,
    mirror::{FoundObject, Mirror, MirrorError},
    read::{
        Reader,
        answer::json_response,
        ask_again,
        filter::Filter,
        list::write_head,
        search::{KindInTables, ask_tables, facts, rows_of_kinds},
    },
    respond::{ReadError, StoresError},
    search::{Condition, Page, Paged, Position, Query, Top},
    store::{Entry, KindSpec, Revision, Shared, key, unstored},
    stores::{Ready, Target},
    view::{ListOptions, Mode, list_options},
};
use kubefold_wire::{
    body::{Body, BodyError, full},
    options::{At, Match},
    selector::LabelSelector,
    status::Status,
    token::ContinueToken,
    warning::Warnings,
};

/// Rows that are in memory at once for an answer, and objects of one page, whatever the client asks for.
const PAGE_ROWS: usize = 500;
/// Objects of a Table that is shown in another order than the tables have, and has no limit.
const SORTED_MAX: usize = 10_000;

/// A walk over the rows of one kind that a reader selects.
struct Walk {
    kind: KindInTables,
    query: Query,
    filter: Filter,
    shared: Arc<Shared>,
    mirror: Arc<Mirror>,
    /// Rows that were read and not looked at.
    rows: VecDeque<FoundObject>,
    /// No row follows those.
    is_over: bool,
    /// How many rows follow those, where that was asked for.
    following: u64,
}

/// An object of a list, and the place behind it.
struct Listed {
    entry: Arc<Entry>,
    place: Position,
}

impl Walk {
    /// The next object that is selected.
    async fn next(&mut self) -> Result<Option<Listed>, Status> {
        loop {
            let Some(row) = self.rows.pop_front() else {
                if self.is_over {
                    return Ok(None);
                }
                self.read().await?;
                continue;
            };
            let place = place_behind(&self.query, &self.kind.spec, &row);
            let entry = unstored(&self.kind.spec, &self.shared, &row.member, &row.document);
            let entry = entry.map_err(|_| self.damaged(&row))?;
            if self.filter.selected(&entry).is_some() {
                return Ok(Some(Listed { entry, place }));
            }
        }
    }

    async fn read(&mut self) -> Result<(), Status> {
        let (query, kinds) = (self.query.clone(), vec![self.kind.clone()]);
        let gvr = self.kind.spec.gvr.clone();
        let found = ask_tables(&self.mirror, &gvr, move |mirror| {
            let mut top = Top::new(&query.order, query.page.room());
            rows_of_kinds(mirror, &query, &kinds, None, &mut top)?;
            Ok(top.into_page(&query.page))
        });
        let Paged { rows, next, remaining } = found.await?;
        self.rows = rows.into_iter().map(|found| found.object).collect();
        self.following = remaining;
        self.is_over = next.is_none();
        self.query.page.after = next;
        self.query.page.with_remaining = false;
        Ok(())
    }

    fn damaged(&self, row: &FoundObject) -> Status {
        let (resource, member) = (self.kind.spec.gvr.qualified(), row.member.clone());
        let why = MirrorError::Damaged { key: row.key.clone(), resource, member };
        StoresError::Tables { gvr: self.kind.spec.gvr.clone(), why }.into()
    }
}

fn place_behind(query: &Query, spec: &KindSpec, row: &FoundObject) -> Position {
    Position::behind(&query.order, query.order.key(&facts(spec, row), &row.document), 0)
}

impl Reader {
    /// Answers a list of a kind in the tables.
    ///
    /// Errors: as a list; 503 where the tables cannot be read.
    pub async fn stored_list(&self, target: &Target, asked: RequestContext<'_>) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let naming = Arc::clone(&self.stores.shared().naming);
        let options = list_options(asked.query, false, &target.gvr, |name| naming.is_member(name))?;
        let tables = Tables::of(&self.stores, &target.gvr, wanted.transform, asked.query).await;
        let revision = self.stores.shared().revisions.last();
        match options.at {
            At::Revision(asked) if asked > revision.0 => {
                return Err(ReadError::TooLarge { asked, current: revision.0 }.into());
            }
            // What was at a revision is not known of what no memory had.
            At::Revision(asked) if options.matching == Match::Exact && asked < revision.0 => {
                return Err(ReadError::ListTooOld.into());
            }
            _ => {}
        }
        let only = options.fields.name().and_then(|name| naming.split_of(&target.gvr, name));
        let only = only.map(|(_, member)| member.clone());
        let for_people = asked.for_people(wanted);
        let ready = self.stores.ready_in_tables(&target.gvr, for_people.reading(only.as_ref())).await;
        let ready = ready.map_err(|error| ask_again(error.into()))?;
        let spec = ready.store().spec_arc();
        let form = Form::of_list(wanted.transform, &spec, &tables)?;
        let walk = self.walk(target, &options, &ready, asked)?;
        let list = OneList { walk, form, spec, revision };
        let is_sorted = list.form.is_sorted(&list.spec);
        let response = match options.limit.map(|limit| limit.min(PAGE_ROWS)).or_else(|| is_sorted.then_some(SORTED_MAX))
        {
            Some(limit) => list.page(limit).await.map_err(ask_again)?,
            None => list.whole().await.map_err(ask_again)?,
        };
        let mut response = asked.encoded(response, wanted.encoding.without_protobuf()).await;
        let mut warnings = Warnings::default();
        asked.grants.asked.warnings().iter().chain(&ready.warnings).for_each(|warning| warnings.add(warning));
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// The walk of a list. What SQL can select by is selected there, and the rest is judged on each object.
    fn walk(
        &self,
        target: &Target,
        options: &ListOptions,
        ready: &Ready,
        asked: RequestContext<'_>,
    ) -> Result<Walk, Status> {
        let shared = self.stores.shared();
        let filter = Filter {
            namespace: target.namespace.clone(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            suffixed: !shared.naming.is_plain(),
            echo: None,
            limit: None,
        };
        let namespace = filter.sought_namespace().to_owned();
        let mirror = self.tables(&target.gvr)?;
        let kind = self.kind_in_tables(ready, asked.audience(), namespace);
        // It was written by the selector that was read.
        let labels = LabelSelector::parse(&options.labels.upstream()).unwrap_or_default().into_requirements();
        let mut query = Query { labels, ..Query::default() };
        if let Some(name) = options.fields.name() {
            let own = shared.naming.own(&target.gvr, name).into_owned();
            query.names = vec![Condition::one_of([own])];
        }
        let after = options.token.as_ref().map(|token| Position::decode(&token.after, &query.order));
        if let Some(None) = after {
            return Err(ReadError::ListTooOld.into());
        }
        let size = options.limit.map_or(PAGE_ROWS, |limit| limit.min(PAGE_ROWS) + 1);
        query.page = Page {
            limit: Some(size),
            after: after.flatten(),
            with_continue: true,
            with_remaining: options.limit.is_some() && filter.is_countable(),
            ..Page::default()
        };
        Ok(Walk { kind, query, filter, shared, mirror, rows: VecDeque::new(), is_over: false, following: 0 })
    }

    /// Answers a get of a kind in the tables: from the member, or with what the tables have of one that does not answer.
    ///
    /// Errors: as a get.
    pub async fn stored_get(
        &self,
        resource: &MergedResource,
        target: &Target,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let unanswered = match Box::pin(self.live_get(resource, target, asked)).await {
            Err(status) if status.code == StatusCode::SERVICE_UNAVAILABLE && asked.mode != Mode::Strict => status,
            answer => return answer,
        };
        let shared = self.stores.shared();
        let Some((own, member)) = shared.naming.split_of(&target.gvr, &target.name) else { return Err(unanswered) };
        if !asked.audience().sees_member(member) {
            return Err(unanswered);
        }
        let wanted = asked.wanted()?;
        let ready = self.stores.ready_in_tables(&target.gvr, asked.reading(Some(member))).await;
        let ready = ready.map_err(|error| ask_again(error.into()))?;
        let spec = ready.store().spec();
        let tables = Tables::of(&self.stores, &target.gvr, wanted.transform, asked.query).await;
        let form = Form::of_object(wanted.transform, spec, &tables)?;
        let entry = self.entry_in_tables(spec, member, &key(&target.namespace, &own)).await?;
        let Some(entry) = entry else { return Err(unanswered) };
        let mut out = Vec::new();
        form.object(&entry, Some(target.name.as_str()).filter(|name| *name != entry.name()), entry.revision, &mut out);
        out.push(b'\n');
        let mut warnings = ready.to_warnings();
        if ready.warnings.is_empty() {
            warnings.add(&format!("{}; its last known state is shown", unanswered.message));
        }
        let mut response = asked.encoded(json_response(full(out)), wanted.encoding).await;
        warnings.write_to(response.headers_mut());
        Ok(response)
    }
}

/// A list on its way out.
struct OneList {
    walk: Walk,
    form: Form,
    spec: Arc<KindSpec>,
    revision: Revision,
}

impl OneList {
    /// One page, and where the next one begins.
    async fn page(mut self, limit: usize) -> Result<Response<Body>, Status> {
        let counts = self.walk.query.page.with_remaining;
        let (mut items, mut last, mut goes_on) = (Vec::new(), None, false);
        while let Some(Listed { entry, place }) = self.walk.next().await? {
            if items.len() == limit {
                goes_on = true;
                break;
            }
            items.push(entry);
            last = Some(place);
        }
        let token =
            |place: Position| ContinueToken::new(self.spec.label(), self.revision.0, place.encode(), None).encode();
        let next = last.filter(|_| goes_on).map(token);
        // With the one that was looked at to know that rows follow.
        let remaining = counts.then(|| self.walk.following + self.walk.rows.len() as u64 + u64::from(goes_on));
        self.form.sort(&self.spec, &mut items);
        let mut out = Vec::new();
        write_head(&self.spec, &self.form, self.revision, next.as_deref(), remaining, &mut out);
        for (at, entry) in items.iter().enumerate() {
            out.push(if at == 0 { b'[' } else { b',' });
            self.form.item(entry, None, &mut out);
        }
        self.form.end_items(items.is_empty(), &mut out);
        Ok(json_response(full(out)))
    }

    /// All of it, read as it goes out. What cannot be read any more cuts the answer off: it is no shorter list.
    async fn whole(mut self) -> Result<Response<Body>, Status> {
        // A refusal has a status only before the answer begins.
        self.walk.read().await?;
        let mut out = Vec::new();
        write_head(&self.spec, &self.form, self.revision, None, None, &mut out);
        let going = Some(Going { list: self, out, is_empty: true });
        let chunks = stream::unfold(going, |going| async move {
            let (chunk, going) = going?.chunk().await;
            Some((chunk.map(Frame::data), going))
        });
        Ok(json_response(StreamBody::new(chunks).boxed_unsync()))
    }
}

/// A whole list that is going out.
struct Going {
    list: OneList,
    out: Vec<u8>,
    is_empty: bool,
}

impl Going {
    async fn chunk(mut self) -> (Result<Bytes, BodyError>, Option<Self>) {
        let mut out = std::mem::take(&mut self.out);
        loop {
            match self.list.walk.next().await {
                Err(status) => return (Err(status.message.into()), None),
                Ok(None) => {
                    self.list.form.end_items(self.is_empty, &mut out);
                    return (Ok(out.into()), None);
                }
                Ok(Some(listed)) => {
                    out.push(if std::mem::take(&mut self.is_empty) { b'[' } else { b',' });
                    self.list.form.item(&listed.entry, None, &mut out);
                }
            }
            if out.len() >= super::answer::CHUNK_BYTES {
                return (Ok(out.into()), Some(self));
            }
        }
    }
}
