//! Searches over the stores: lists and watches of one kind or of several, in the order and the pages of a query.
//!
//! A search is about rows, each an object of one member; what the fleet view makes one object of is several. Its list has the
//! newest revision that was given out when it began: all that is below it is in it, of every kind, so that a watch of all its
//! kinds goes on there.

mod body;
mod deleted;
mod document;
mod find;
mod lineage;
mod owners;
mod tables;
mod watch;

use std::{pin::pin, sync::Arc};

use http::Response;
use http_body_util::BodyExt;

pub(super) use self::tables::{ask_tables, facts, rows_of_kinds};
use self::{
    body::{RowsBody, Written},
    find::{Found, Search},
};
pub use self::{
    find::Source,
    tables::{KindInTables, ToldKind},
};
use crate::{
    access::Renewal,
    answer::{RequestContext, form::Form, table::Tables},
    config::MemberName,
    read::{
        Reader,
        answer::json_response,
        ask_again,
        fresh::{Due, Need, prove, scope_of},
    },
    respond::{ReadError, SearchRefused, StoresError},
    search::{Collection, CollectionKinds, Page, Query},
    store::{Audience, Expired, KindSpec, Naming, Revision, Row},
    stores::Target,
    view::list_options,
};
use kubefold_serving::{delivery::DeliverWithin, encode::encode_watch};
use kubefold_table::TypeMeta;
use kubefold_wire::{
    body::{Body, full},
    media::{self, Negotiated},
    options::At,
    resource::Gvr,
    splice::push_string,
    status::Status,
    warning::Warnings,
};
use serde_json::{Value, json};
use std::io::Write as _;

/// What is searched, and how the answer is written.
pub struct Searched<'a> {
    /// The kinds, each with the members whose objects may be seen.
    pub sources: Vec<Source>,
    /// The kinds of which what was deleted is searched, where the query is about that; and not [`Self::sources`].
    pub deleted: Vec<KindInTables>,
    /// The kinds that are searched in the mirror's tables, which have their objects.
    pub stored: Vec<KindInTables>,
    /// The kinds that may own what is found; empty where no owner is asked for, or where a watch needs none.
    pub owners: Vec<Source>,
    /// What of them.
    pub query: Query,
    /// As visible objects of the fleet, each once; and not as members' rows.
    pub is_of_fleet: bool,
    /// The collection that is answered with; `None` for a list of one kind.
    pub collection: Option<Collected>,
    /// What becomes of the caller's rights while a watch is open: those to each source, then those to each kind of owners.
    pub renewals: Vec<Renewal>,
    /// Of members whose rights are missing.
    pub warnings: Vec<String>,
    /// Who asks, for which form.
    pub asked: RequestContext<'a>,
}

/// A collection as an answer.
#[derive(Clone, Debug)]
pub struct Collected {
    /// Its name.
    pub name: String,
    /// `[{"group":...,"version":...,"resource":...}]`.
    pub types: String,
}

/// The group and kind of a collection, and its type.
const COLLECTION: (&str, &str) = ("clusterpedia.io", "CollectionResource");
const COLLECTION_TYPE: TypeMeta<'static> = TypeMeta { kind: COLLECTION.1, api_version: "clusterpedia.io/v1beta1" };

impl Reader {
    /// A kind to be searched, once every member's objects of it are known, in this namespace (empty for all).
    ///
    /// Errors: as a list.
    pub async fn source(
        &self,
        target: &Target,
        audience: &Audience,
        only: Option<&MemberName>,
        asked: RequestContext<'_>,
    ) -> Result<Source, Status> {
        let wanted = asked.wanted()?;
        let for_people = asked.for_people(wanted);
        let reading = crate::stores::Reading { audience, ..for_people.reading(only) };
        let mut ready = self.stores.ready_for(&target.gvr, reading).await.map_err(|error| ask_again(error.into()))?;
        let naming = Arc::clone(&self.stores.shared().naming);
        let options = list_options("", false, &target.gvr, |name| naming.is_member(name))?;
        let need = Need::of_options(&options, false, asked.headers, self.freshness);
        if need != Need::Nothing {
            let due = Due { need, scope: scope_of(target, &options, None) };
            Box::pin(prove(&self.stores, &mut ready, due, only, asked)).await?;
        }
        // With all that was given out of any kind: several kinds are searched at one revision.
        let revision = self.stores.shared().revisions.last();
        let snapshot = ready.store().snapshot_from(revision);
        Ok(Source { audience: audience.clone(), namespace: target.namespace.clone(), snapshot, revision, ready })
    }

    /// Answers a search with a list, or with a watch.
    ///
    /// Errors: 405 for a watch that cannot be; as a list.
    pub async fn search(&self, mut searched: Searched<'_>, watch: bool) -> Result<Response<Body>, Status> {
        let asked = searched.asked;
        let wanted = asked.wanted()?;
        if watch && !wanted.encoding.media.streams() {
            return Err(media::no_stream());
        }
        let naming = Arc::clone(&self.stores.shared().naming);
        if let (true, Some(stored)) = (watch, searched.stored.first()) {
            return Err(StoresError::InTables { gvr: stored.spec.gvr.clone() }.into());
        }
        if !searched.stored.is_empty() {
            // They are in no memory before.
            let page = &mut searched.query.page;
            page.limit = Some(page.limit.unwrap_or(deleted::PAGE_MAX).min(deleted::PAGE_MAX));
            page.with_continue = true;
        }
        let of_tables = searched.stored.first().map(|stored| Arc::clone(&stored.spec));
        let in_memory = searched.sources.first().map(|source| source.ready.store().spec_arc());
        let spec = in_memory.or(of_tables);
        let spec = spec.as_deref();
        let form = self.form(&searched, spec, wanted, watch).await?;
        let at = self.stores.shared().revisions.last();
        let only_metadata = searched.query.only_metadata;
        let written = Written { form, is_of_fleet: searched.is_of_fleet, only_metadata, at };
        let mut warnings = Warnings::default();
        let of_kinds = searched.sources.iter().flat_map(|source| &source.ready.warnings);
        searched.warnings.iter().chain(of_kinds).for_each(|warning| warnings.add(warning));
        for unknown in self.unknown_clusters(&searched.query) {
            warnings.add(&unknown);
        }
        let mut response = if watch {
            let response = Box::pin(self.watch_search(searched, written)).await?;
            encode_watch(response, wanted.encoding.without_protobuf())
        } else {
            let mut pace = self.bodies.turns.pace(asked.caller);
            let sources = at_one_revision(&mut searched, at)?;
            let found = pace.run(pin!(Box::pin(self.find(&searched, &sources, &naming)))).await?;
            let revision = sources.iter().map(|source| source.revision).min().unwrap_or(at);
            let counted = Counted { next: found.next.as_deref(), remaining: found.remaining };
            let out = head(&searched, spec, &written.form, counted, revision);
            let body = RowsBody { out, hits: found.hits.into_iter(), written, first: true, done: false };
            let response = json_response(body.boxed_unsync());
            asked.encoded(response, wanted.encoding).await.map(|body| pace.body(body))
        };
        warnings.write_to(response.headers_mut());
        if !watch {
            response.extensions_mut().insert(DeliverWithin(crate::store::RETAINED_FOR));
        }
        Ok(response)
    }

    /// Looks up the owner, then what it controls: in memory, and in the tables.
    async fn find(&self, searched: &Searched<'_>, sources: &[Source], naming: &Naming) -> Result<Found, Status> {
        let query = &searched.query;
        let controllers = match &query.owner {
            None => None,
            Some(owner) => {
                let kinds = owners::Kinds { owner, query, kinds: &searched.owners, naming };
                let levels = owners::levels(kinds).await.map_err(too_old)?;
                let of_last = levels.last().map(|level| owners::controllers(level, sources));
                of_last.transpose().map_err(too_old)?
            }
        };
        let stored = self.rows_in_tables(searched, controllers.as_ref()).await?;
        let owners = controllers.as_ref();
        Ok(Search { sources, query, owners, naming, is_of_fleet: searched.is_of_fleet }.find(stored).await)
    }

    /// Answers with the collections that there are.
    ///
    /// Errors: 406.
    pub async fn collections(&self, known: &[Collection], asked: RequestContext<'_>) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted()?;
        let objects = known.iter().map(|one| {
            let kinds: Vec<Value> = match &one.kinds {
                CollectionKinds::Listed(listed) => {
                    listed.iter().map(|kind| json!({"group": kind.group, "resource": kind.resource})).collect()
                }
                CollectionKinds::BuiltIn | CollectionKinds::Named => Vec::new(),
            };
            json!({
                "kind": COLLECTION_TYPE.kind, "apiVersion": COLLECTION_TYPE.api_version,
                "metadata": {"name": one.name}, "resourceTypes": kinds,
            })
        });
        let mut answer = json!({
            "kind": format!("{}List", COLLECTION_TYPE.kind), "apiVersion": COLLECTION_TYPE.api_version,
            "metadata": {}, "items": objects.collect::<Vec<_>>(),
        });
        if let Some(version) = wanted.transform.filter(|_| Tables::are_wanted(wanted.transform)).map(|it| it.version) {
            let column = |name: &str, format: &str| json!({"name": name, "type": "string", "format": format, "description": "", "priority": 0});
            let rows = known
                .iter()
                .zip(answer["items"].as_array().into_iter().flatten())
                .map(|(one, object)| json!({"cells": [one.name, resources_of(one)], "object": object}));
            answer = json!({
                "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": {},
                "columnDefinitions": [column("Name", "name"), column("Resources", "")],
                "rows": rows.collect::<Vec<_>>(),
            });
        }
        Ok(asked.encoded(json_response(full(format!("{answer}\n"))), wanted.encoding).await)
    }

    /// Answers with one member's object, of that own name.
    ///
    /// Errors: 404; as a list.
    pub async fn search_one(
        &self,
        target: &Target,
        source: &Source,
        member: &MemberName,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let wanted = asked.wanted_of(&target.gvr, "")?;
        let tables = Tables::of(&self.stores, &target.gvr, wanted.transform, asked.query).await;
        let spec = source.ready.store().spec();
        let form = Form::of_object(wanted.transform, spec, &tables)?;
        let own_key = crate::store::key(&target.namespace, &target.name);
        let store = source.ready.store();
        let local = store.member_local(&own_key, member).map(|local| local.entry);
        let entry = local.or_else(|| store.get(&own_key).filter(|entry| entry.folded));
        let rows = entry.map(|entry| Row::all_of(&entry)).unwrap_or_default();
        let row = rows.iter().find(|row| row.member() == Some(member) && source.audience.sees_member(member));
        let Some(row) = row else {
            let refused = SearchRefused::NotFound {
                gvr: target.gvr.clone(),
                name: target.name.clone(),
                member: member.to_string(),
            };
            return Err(refused.into());
        };
        let written = Written { form, is_of_fleet: false, only_metadata: false, at: row.revision() };
        let mut out = Vec::new();
        written.object(row, row.revision(), &mut out);
        out.push(b'\n');
        let response = json_response(full(out));
        let mut response = asked.encoded(response, wanted.encoding).await;
        let mut warnings = Warnings::default();
        let of_rights = asked.grants.asked.warnings();
        source.ready.warnings.iter().chain(&of_rights).for_each(|warning| warnings.add(warning));
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// The form of an answer; `spec` is the kind of which it is, if it is of one.
    async fn form(
        &self,
        searched: &Searched<'_>,
        spec: Option<&KindSpec>,
        wanted: Negotiated,
        watch: bool,
    ) -> Result<Form, Status> {
        let query = searched.asked.query;
        match (&searched.collection, spec) {
            (None, Some(spec)) => {
                let tables = Tables::of(&self.stores, &spec.gvr, wanted.transform, query).await;
                if watch {
                    Form::of_object(wanted.transform, spec, &tables)
                } else {
                    Form::of_list(wanted.transform, spec, &tables)
                }
            }
            _ => {
                let core = Gvr::new("", "v1", "pods");
                let tables = Tables::of(&self.stores, &core, wanted.transform, query).await;
                Form::of_kinds(wanted.transform, COLLECTION, &tables)
            }
        }
    }

    /// A sentence for each cluster that a query names and that is none.
    fn unknown_clusters(&self, query: &Query) -> Vec<String> {
        let naming = &self.stores.shared().naming;
        let named = query.clusters.iter().flat_map(|condition| &condition.values);
        let unknown = named.filter(|name| !naming.is_member(name));
        unknown.map(|name| format!("there is no member {}", kubefold_wire::golang::Quoted(name))).collect()
    }

    async fn watch_search(&self, mut searched: Searched<'_>, written: Written) -> Result<Response<Body>, Status> {
        let query = &searched.query;
        if query.page.total.is_some() || query.page.offset > 0 {
            return Err(SearchRefused::Unwatchable("a limit or an offset").into());
        }
        // As Kubernetes: a watch has no pages.
        searched.query.page = Page::default();
        // Selectors are the search's own.
        let own = |key: &str| matches!(key, "labelSelector" | "fieldSelector" | "limit" | "continue");
        let pairs = form_urlencoded::parse(searched.asked.query.as_bytes()).filter(|(key, _)| !own(key));
        let rest: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let options = list_options(&rest, true, &Gvr::new("", "v1", "pods"), |_| false)?;
        let last = self.stores.shared().revisions.last();
        if let At::Revision(asked) = options.at
            && asked > last.0
        {
            let error = ReadError::WatchTooOld { asked: Revision(asked), known: last };
            let line = super::watcher::error_frame(error);
            return Ok(super::answer::watch_response(media::Media::Json, full(line)));
        }
        let around = watch::Around { shared: self.stores.shared(), drain: self.bodies.drain().clone() };
        let mut pace = self.bodies.turns.pace(searched.asked.caller);
        Ok(pace.run(pin!(watch::watch(searched, written, &options, around))).await)
    }
}

/// The sources of a search, which are searched with the kinds of its owners at one revision where it has an owner.
///
/// Errors: 410 once so much has happened since that a log does not reach back to it.
fn at_one_revision(searched: &mut Searched<'_>, at: Revision) -> Result<Vec<Source>, Status> {
    let mut sources = std::mem::take(&mut searched.sources);
    if searched.query.owner.is_some() {
        let all = sources.iter_mut().chain(&mut searched.owners);
        all.into_iter().try_for_each(|source| source.move_to(at)).map_err(too_old)?;
    }
    Ok(sources)
}

/// A log does not reach back to the revision at which a search began.
fn too_old(_: Expired) -> Status {
    ReadError::ListTooOld.into()
}

/// `deployments.apps,daemonsets.apps`
fn resources_of(collection: &Collection) -> String {
    match &collection.kinds {
        CollectionKinds::Listed(listed) => {
            let each = listed.iter().map(|kind| kubefold_wire::status::qualified(&kind.group, &kind.resource));
            each.collect::<Vec<_>>().join(",")
        }
        CollectionKinds::BuiltIn => "*".to_owned(),
        CollectionKinds::Named => "of groups= and resources=".to_owned(),
    }
}

/// What a list says of what follows.
#[derive(Clone, Copy)]
struct Counted<'a> {
    /// The token of the next page.
    next: Option<&'a str>,
    /// How many rows follow.
    remaining: u64,
}

/// What is before the items of a list; `spec` is the kind of which it is, if it is of one.
fn head(
    searched: &Searched<'_>,
    spec: Option<&KindSpec>,
    form: &Form,
    counted: Counted<'_>,
    revision: Revision,
) -> Vec<u8> {
    let mut out = vec![b'{'];
    let mut metadata = Vec::new();
    // Writing to memory has no way to fail.
    let _infallible = write!(metadata, "\"resourceVersion\":\"{revision}\"");
    if let Some(next) = counted.next {
        let _infallible = write!(metadata, ",\"continue\":\"{next}\"");
    }
    if searched.query.page.with_remaining {
        let _infallible = write!(metadata, ",\"remainingItemCount\":{}", counted.remaining);
    }
    match (&searched.collection, spec) {
        (None, Some(spec)) => form.list_type(spec, &mut out),
        (collection, _) => {
            form.collection_type(COLLECTION_TYPE, &mut out);
            if let Some(Collected { name, types }) = collection.as_ref().filter(|_| form.is_whole()) {
                let mut named = b"\"name\":".to_vec();
                push_string(name, &mut named);
                named.push(b',');
                metadata.splice(0..0, named);
                let _infallible = write!(out, ",\"resourceTypes\":{types}");
            }
        }
    }
    let _infallible = write!(out, ",\"metadata\":{{");
    out.append(&mut metadata);
    out.extend_from_slice(b"},");
    form.begin_items(&mut out);
    out
}
