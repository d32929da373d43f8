//! Searches among what was deleted: over the mirror, which keeps it for a time.

use std::{collections::HashSet, sync::Arc};

use http::Response;
use jiff::Timestamp;

use super::{
    Counted, Searched,
    document::{Annotation, CLUSTER_ANNOTATION, DELETED_ANNOTATION, metadata_of, shadow},
    head,
    owners::{Kinds, Level},
    tables::{FoundRow, KindInTables, rows_of_kinds},
    too_old,
};
use crate::{
    answer::form::Form,
    mirror::{FoundObject, Mirror, MirrorError},
    read::{Reader, answer::json_response, ask_again},
    respond::SearchRefused,
    search::{Condition, Owner, OwnerBy, Paged, Query, Top},
    store::{Audience, Naming, Revision},
    stores::Target,
};
use kubefold_wire::{
    body::{Body, full},
    status::Status,
    warning::Warnings,
};

/// Objects that one answer has at most, whatever it is asked for: they are in no memory before.
pub(super) const PAGE_MAX: usize = 500;

impl Reader {
    /// A kind of which what was deleted is to be searched. It is followed from now on, if it was not before.
    ///
    /// Errors: what is deleted of it is not kept; as a list.
    pub fn deleted_kind(&self, target: &Target, audience: &Audience) -> Result<KindInTables, Status> {
        let mirror = self.stores.mirror().ok_or(SearchRefused::Mirror(MirrorError::Off))?;
        if let Some(why) = mirror.forgets_deleted(&target.gvr) {
            return Err(SearchRefused::NotKept { resource: target.gvr.qualified(), why }.into());
        }
        let running = self.stores.followed(&target.gvr).map_err(|error| ask_again(error.into()))?;
        let (spec, namespace) = (running.store.spec_arc(), target.namespace.clone());
        Ok(KindInTables { spec, audience: audience.clone(), namespace })
    }

    /// Answers a search among what was deleted with a list.
    ///
    /// Errors: 503 where the mirror cannot be read.
    pub async fn search_deleted(&self, mut searched: Searched<'_>) -> Result<Response<Body>, Status> {
        let asked = searched.asked;
        let wanted = asked.wanted()?;
        let kinds = std::mem::take(&mut searched.deleted);
        let spec = kinds.first().map(|kind| &*kind.spec);
        let form = self.form(&searched, spec, wanted, false).await?;
        let mut warnings = Warnings::default();
        let unknown = self.unknown_clusters(&searched.query);
        searched.warnings.iter().chain(&unknown).for_each(|warning| warnings.add(warning));
        let page = &mut searched.query.page;
        page.limit = Some(page.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX));
        page.with_continue = true;
        let owners = match &searched.query.owner {
            Some(owner) => Some(self.deleted_owners(owner, &searched).await?),
            None => None,
        };
        let (query, of) = (searched.query.clone(), kinds.clone());
        let found = self.ask_mirror(move |mirror| find(mirror, &query, &of, owners.as_ref())).await?;
        let revision = self.stores.shared().revisions.last();
        let next = found.next.map(|next| next.encode());
        let counted = Counted { next: next.as_deref(), remaining: found.remaining };
        let mut out = head(&searched, spec, &form, counted, revision);
        let is_empty = found.rows.is_empty();
        for (at, FoundRow { object, .. }) in found.rows.iter().enumerate() {
            out.push(if at == 0 { b'[' } else { b',' });
            item(&form, object, searched.query.only_metadata, revision, &mut out);
        }
        form.end_items(is_empty, &mut out);
        let mut response = asked.encoded(json_response(full(out)), wanted.encoding).await;
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// Who has to control what is found, whether it exists or was deleted, too.
    async fn deleted_owners(&self, owner: &Owner, searched: &Searched<'_>) -> Result<HashSet<String>, Status> {
        let naming = Arc::clone(&self.stores.shared().naming);
        let (query, living) = (&searched.query, &searched.owners);
        let of = Kinds { owner, query, kinds: living, naming: &naming };
        let kinds: Vec<KindInTables> = living
            .iter()
            .map(|source| KindInTables {
                spec: source.ready.store().spec_arc(),
                audience: source.audience.clone(),
                namespace: source.namespace.clone(),
            })
            .collect();
        let clusters = query.clusters.clone();
        let base = Query { clusters, deleted: true, ..Query::default() };
        let mut level: Level = of.owner().await.map_err(too_old)?;
        if let OwnerBy::Name { name, resource } = &owner.by {
            let named = named(name, &naming, &base);
            let is_it = |kind: &&KindInTables| resource.as_ref().is_none_or(|wanted| wanted.is_of(&kind.spec.gvr));
            let fits: Vec<KindInTables> = kinds.iter().filter(is_it).cloned().collect();
            level.join(self.ask_mirror(move |mirror| uids(mirror, &named, &fits, None)).await?);
        }
        for _ in 0..owner.seniority {
            let mut next = of.controlled_by(&level).map_err(too_old)?;
            let (base, kinds) = (base.clone(), kinds.clone());
            next.join(self.ask_mirror(move |mirror| uids(mirror, &base, &kinds, Some(&level.uids))).await?);
            level = next;
        }
        Ok(level.uids)
    }
}

/// The query for what has a name, its own or that of the fleet view.
fn named(name: &str, naming: &Naming, base: &Query) -> Query {
    let (own, member) = naming.split(name).map_or((name, None), |(own, member)| (own, Some(member)));
    let mut query = Query { names: vec![Condition::one_of([own.to_owned()])], ..base.clone() };
    query.clusters.extend(member.map(|member| Condition::one_of([member.to_string()])));
    query
}

/// Finds one page over all kinds.
fn find(
    mirror: &Mirror,
    query: &Query,
    kinds: &[KindInTables],
    owners: Option<&HashSet<String>>,
) -> Result<Paged<FoundRow>, MirrorError> {
    let mut top = Top::new(&query.order, query.page.room());
    rows_of_kinds(mirror, query, kinds, owners, &mut top)?;
    Ok(top.into_page(&query.page))
}

/// The UIDs of all that match, of whatever kind.
fn uids(
    mirror: &Mirror,
    query: &Query,
    kinds: &[KindInTables],
    owners: Option<&HashSet<String>>,
) -> Result<Vec<String>, MirrorError> {
    let mut all = Vec::new();
    let kept = kinds.iter().filter(|kind| mirror.keeps_deleted(&kind.spec.gvr));
    for kind in kept {
        all.extend(kind.select(owners, |selection| mirror.uids(query, selection))?);
    }
    Ok(all)
}

/// Appends an object with the time at which it was deleted.
fn item(form: &Form, object: &FoundObject, only_metadata: bool, revision: Revision, out: &mut Vec<u8>) {
    let member = object.member.as_str();
    let at = Timestamp::from_second(object.deleted_us / 1_000_000).unwrap_or_default().to_string();
    let given =
        [Annotation { name: CLUSTER_ANNOTATION, value: member }, Annotation { name: DELETED_ANNOTATION, value: &at }];
    let document = shadow(&object.document, &given, revision);
    let document = if only_metadata { metadata_of(&document) } else { document };
    form.member_item(&document, member, out);
}
