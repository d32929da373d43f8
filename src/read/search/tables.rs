//! Searches over the mirror's tables: which rows of which kinds, in the order of a query.

use std::{collections::HashSet, sync::Arc};

use super::{
    Searched,
    body::Written,
    find::{Controllers, Hit, OF_TABLES, Stored},
};
use crate::{
    answer::{RequestContext, form::Form, table::Tables},
    config::MemberName,
    mirror::{FoundObject, Mirror, MirrorError, MirroredKind},
    read::{Reader, answer::json_response, ask_again},
    respond::{SearchRefused, StoresError},
    search::{Facts, Page, Query, Ranked, Top, sql::Selection},
    store::{Audience, Entry, KindSpec, Row, key, unstored},
    stores::{Reading, Ready, Target},
};
use http::Response;
use kubefold_wire::{
    body::{Body, full},
    resource::Gvr,
    status::Status,
    warning::Warnings,
};

/// A kind whose rows are searched in the tables.
#[derive(Clone, Debug)]
pub struct KindInTables {
    /// What it is.
    pub spec: Arc<KindSpec>,
    /// The members whose objects of it the reader may see; of what exists, those whose rows must all be there.
    pub audience: Audience,
    /// The one namespace that is searched; empty for all.
    pub namespace: String,
}

/// A kind in the tables, and what its reader must be told of its members.
#[derive(Debug)]
pub struct ToldKind {
    /// The kind.
    pub kind: KindInTables,
    /// One sentence per member whose last known state is shown, or that is left out.
    pub warnings: Vec<String>,
}

/// A row that was found, of the kind with that number.
#[derive(Debug)]
pub(in crate::read) struct FoundRow {
    pub(in crate::read) kind: usize,
    pub(in crate::read) object: FoundObject,
}

impl KindInTables {
    /// Gives what may be found of it.
    pub(super) fn select<T>(&self, owners: Option<&HashSet<String>>, ask: impl FnOnce(&Selection<'_>) -> T) -> T {
        let gvr: &Gvr = &self.spec.gvr;
        let seen: Option<Vec<&str>> = match &self.audience {
            Audience::Everyone => None,
            Audience::Members(members) => Some(members.iter().map(|member| member.as_str()).collect()),
        };
        let (kind, namespace) = (&*self.spec.gvk.kind, self.namespace.as_str());
        ask(&Selection { gvr, kind, members: seen.as_deref(), namespace, owners })
    }

    /// Says whether all rows of what exists are there.
    fn is_whole(&self, members: &[String]) -> Result<(), MirrorError> {
        let Audience::Members(wanted) = &self.audience else { return Ok(()) };
        let missing: Vec<&str> =
            wanted.iter().map(|name| name.as_str()).filter(|name| !members.iter().any(|has| has == name)).collect();
        if missing.is_empty() { Ok(()) } else { Err(MirrorError::Incomplete { members: missing.join(", ") }) }
    }

    /// The parts of which each is asked for alone: of what exists, one member, whose rows the indexes have in the order of a list.
    fn parts(&self, query: &Query) -> Vec<Self> {
        match &self.audience {
            Audience::Members(members) if !query.deleted => {
                let one = |name| Self { audience: Audience::of([name]), ..self.clone() };
                members.iter().cloned().map(one).collect()
            }
            _ => vec![self.clone()],
        }
    }
}

/// Shows the first rows of all kinds to `top`, and says how many follow.
///
/// Errors: rows that should be there are not; the database refuses.
pub(in crate::read) fn rows_of_kinds(
    mirror: &Mirror,
    query: &Query,
    kinds: &[KindInTables],
    owners: Option<&HashSet<String>>,
    top: &mut Top<'_, FoundRow>,
) -> Result<(), MirrorError> {
    let page = &query.page;
    // Of each kind all that may be in the page: what is left out of the whole may be of any. One more says whether rows follow.
    let limit = page.room().map(|room| room.saturating_add(1));
    let of_kind = Page { limit, after: page.after.clone(), with_remaining: page.with_remaining, ..Page::default() };
    let of_kind = Query { page: of_kind, ..query.clone() };
    for (kind, of) in kinds.iter().enumerate() {
        for part in of.parts(query) {
            let found = part.select(owners, |selection| mirror.search(&of_kind, selection))?;
            if !query.deleted {
                part.is_whole(&found.members)?;
            }
            for object in found.objects {
                let key = query.order.key(&facts(&of.spec, &object), &object.document);
                top.take(key, FoundRow { kind, object });
            }
            top.pass(found.remaining);
        }
    }
    Ok(())
}

/// What is known of a row.
pub(in crate::read) fn facts<'r>(spec: &'r KindSpec, object: &'r FoundObject) -> Facts<'r> {
    let (namespace, name) = object.key.split_once('/').unwrap_or(("", &object.key));
    Facts {
        cluster: object.member.as_str(),
        namespace,
        name,
        uid: &object.uid,
        kind: &spec.gvk.kind,
        group: &spec.gvk.group,
        labels: None,
        revision: object.revision,
        deleted_us: object.deleted_us,
    }
}

impl Reader {
    /// A kind in the tables as somebody reads it, in that namespace (empty for all).
    pub(in crate::read) fn kind_in_tables(
        &self,
        ready: &Ready,
        audience: &Audience,
        namespace: String,
    ) -> KindInTables {
        let audience = Audience::of(self.stores.members_in_tables(ready, audience));
        KindInTables { spec: ready.store().spec_arc(), audience, namespace }
    }

    /// A kind in the tables to be searched, once they have all that its members had told; and what its reader must be told.
    ///
    /// Errors: as a list.
    pub async fn stored_kind(
        &self,
        target: &Target,
        audience: &Audience,
        only: Option<&MemberName>,
        asked: RequestContext<'_>,
    ) -> Result<ToldKind, Status> {
        let for_people = asked.for_people(asked.wanted()?);
        let reading = Reading { audience, ..for_people.reading(only) };
        let ready = self.stores.ready_in_tables(&target.gvr, reading).await;
        let ready = ready.map_err(|error| ask_again(error.into()))?;
        let mut kind = self.kind_in_tables(&ready, audience, target.namespace.clone());
        if let (Some(only), Audience::Members(members)) = (only, &kind.audience) {
            kind.audience = Audience::of(members.iter().filter(|member| *member == only).cloned());
        }
        Ok(ToldKind { kind, warnings: ready.warnings })
    }

    /// Answers with one member's object of a kind in the tables, of that own name.
    ///
    /// Errors: 404; as a list.
    pub async fn stored_one(
        &self,
        target: &Target,
        audience: &Audience,
        member: &MemberName,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let ToldKind { kind, warnings: told } = self.stored_kind(target, audience, Some(member), asked).await?;
        let wanted = asked.wanted_of(&target.gvr, "")?;
        let tables = Tables::of(&self.stores, &target.gvr, wanted.transform, asked.query).await;
        let form = Form::of_object(wanted.transform, &kind.spec, &tables)?;
        let entry = match kind.audience.sees_member(member) {
            true => self.entry_in_tables(&kind.spec, member, &key(&target.namespace, &target.name)).await?,
            false => None,
        };
        let Some(entry) = entry else {
            let (gvr, name, member) = (target.gvr.clone(), target.name.clone(), member.to_string());
            return Err(SearchRefused::NotFound { gvr, name, member }.into());
        };
        let at = self.stores.shared().revisions.last();
        let mut out = Vec::new();
        Written { form, is_of_fleet: false, only_metadata: false, at }.object(&Row::visible(entry), at, &mut out);
        out.push(b'\n');
        let mut response = asked.encoded(json_response(full(out)), wanted.encoding).await;
        let mut warnings = Warnings::default();
        let of_rights = asked.grants.asked.warnings();
        told.iter().chain(&of_rights).for_each(|warning| warnings.add(warning));
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// The first rows of a search that the tables have.
    pub(super) async fn rows_in_tables(
        &self,
        searched: &Searched<'_>,
        controllers: Option<&Controllers>,
    ) -> Result<Stored, Status> {
        let Some(first) = searched.stored.first() else { return Ok(Stored::default()) };
        let gvr = first.spec.gvr.clone();
        let (query, kinds) = (searched.query.clone(), searched.stored.clone());
        let owners = controllers.map(|controllers| controllers.uids.clone());
        let mirror = self.tables(&gvr)?;
        let found = ask_tables(&mirror, &gvr, move |mirror| {
            let mut top = Top::new(&query.order, query.page.room());
            rows_of_kinds(mirror, &query, &kinds, owners.as_ref(), &mut top)?;
            let seen = top.seen();
            Ok((top.into_rows(), seen))
        });
        let (rows, seen) = found.await?;
        let shared = self.stores.shared();
        let following = seen.saturating_sub(rows.len() as u64);
        let hit = |Ranked { key, row: FoundRow { kind, object } }: Ranked<FoundRow>| {
            let spec = &searched.stored.get(kind)?.spec;
            let entry = unstored(spec, &shared, &object.member, &object.document).ok()?;
            Some(Ranked { key, row: Hit { source: OF_TABLES, row: Row::visible(entry) } })
        };
        let count = rows.len();
        let rows: Vec<Ranked<Hit>> = rows.into_iter().filter_map(hit).collect();
        // They were objects when they were written.
        if rows.len() < count {
            return Err(refused(&gvr, MirrorError::Off));
        }
        Ok(Stored { rows, following })
    }

    /// One object of a kind in the tables, as its member gave it last, by its key in its member.
    pub(in crate::read) async fn entry_in_tables(
        &self,
        spec: &KindSpec,
        member: &MemberName,
        own_key: &str,
    ) -> Result<Option<Arc<Entry>>, Status> {
        let feed = MirroredKind { gvr: spec.gvr.clone(), member: member.clone() };
        let (mirror, own_key) = (self.tables(&spec.gvr)?, own_key.to_owned());
        let found = ask_tables(&mirror, &spec.gvr, move |mirror| mirror.stored(&feed, &own_key)).await?;
        let shared = self.stores.shared();
        Ok(found.and_then(|document| unstored(spec, &shared, member, &document).ok()))
    }

    /// The tables that have a kind.
    pub(in crate::read) fn tables(&self, gvr: &Gvr) -> Result<Arc<Mirror>, Status> {
        self.stores.mirror().cloned().ok_or_else(|| refused(gvr, MirrorError::Off))
    }

    /// Asks the mirror where a wait for the disk holds up nobody.
    pub(super) async fn ask_mirror<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Mirror) -> Result<T, MirrorError> + Send + 'static,
    ) -> Result<T, Status> {
        let mirror = self.stores.mirror().ok_or(SearchRefused::Mirror(MirrorError::Off))?;
        Ok(mirror.ask(ask).await.map_err(SearchRefused::Mirror)?)
    }
}

/// The same about a kind whose objects are in the tables alone.
pub(in crate::read) async fn ask_tables<T: Send + 'static>(
    mirror: &Arc<Mirror>,
    gvr: &Gvr,
    ask: impl FnOnce(&Mirror) -> Result<T, MirrorError> + Send + 'static,
) -> Result<T, Status> {
    mirror.ask(ask).await.map_err(|why| refused(gvr, why))
}

fn refused(gvr: &Gvr, why: MirrorError) -> Status {
    ask_again(StoresError::Tables { gvr: gvr.clone(), why }.into())
}
