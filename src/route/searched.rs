//! Searches: Clusterpedia's API, and the same in the fleet view. What somebody may find is what he may list, kind by kind.

use std::sync::Arc;

use http::{Method, Response, Uri, request::Parts};

use crate::{
    access::{Grant, Grants, Renewal, Who},
    answer::RequestContext,
    catalog::{Catalog, MergedResource, Scope},
    config::MemberName,
    discovery::{Discovery, StorageHashes, is_discovery_path, is_openapi_path},
    read::{Collected, KindInTables, Searched, Source},
    respond::{RouteError, SearchRefused, StoresError},
    route::{Router, allowed::action_of, is_admin, searchable::Shown},
    search::{
        Collection, CollectionKinds, Condition, GroupResource, KindName, Owner, OwnerBy, Parameters, PathOf, Query,
    },
    store::{Audience, KindSpec, unix_micros},
    stores::Target,
    view::Mode,
};
use kubefold_serving::request::drain;
use kubefold_wire::{
    body::Body,
    info::RequestInfo,
    media::is_built_in,
    options::query_value,
    resource::Gvr,
    selector::{FieldSelector, Operator},
    status::Status,
};

/// Kinds that one collection may have.
const KINDS_MAX: usize = 128;
/// Who controls objects in Kubernetes: the levels of an owner that is not the objects' own are looked for among these.
const CONTROLLERS: [(&str, &str); 7] = [
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("", "replicationcontrollers"),
];

/// A kind that is asked for, and what its members allow.
struct Allowed {
    target: Target,
    grant: Grant,
}

impl Router {
    /// Answers a request below Clusterpedia's group.
    ///
    /// Errors: 405 for whatever is no read; as a list.
    pub(super) async fn clusterpedia(
        &self,
        who: Who<'_>,
        asked: RequestContext<'_>,
        parts: &Parts,
        path: PathOf,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        if parts.method != Method::GET {
            Box::pin(drain(body)).await;
            return Err(SearchRefused::ReadOnly.into());
        }
        match path {
            PathOf::Collections(name) => Box::pin(self.collections(who, asked, name)).await,
            PathOf::Resources { cluster, rest } => {
                let mut inner = parts.clone();
                let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
                inner.uri = Uri::try_from(format!("{rest}{query}")).map_err(RouteError::from)?;
                Box::pin(self.resources(who, asked, &inner, cluster.as_deref())).await
            }
        }
    }

    /// The API of all members together, or of one.
    async fn resources(
        &self,
        who: Who<'_>,
        asked: RequestContext<'_>,
        parts: &Parts,
        cluster: Option<&str>,
    ) -> Result<Response<Body>, Status> {
        let only = cluster.map(|name| self.member(name)).transpose()?;
        let (path, query) = (parts.uri.path(), parts.uri.query());
        let catalog = self.searched_catalog(only.as_ref());
        if is_discovery_path(path) && !is_openapi_path(path) {
            if !is_admin(who) {
                Box::pin(self.allow_path(who, parts)).await?;
            }
            let (method, headers) = (&parts.method, &parts.headers);
            let of_one = Discovery::default();
            let discovery = if only.is_none() { &self.searched.discovery } else { &of_one };
            let answer = discovery.handle(method, path, query, headers, &catalog, &StorageHashes::new());
            return answer.ok_or_else(|| RouteError::NoSuchPath.into());
        }
        let info = RequestInfo::of(&parts.method, path, query).map_err(RouteError::from)?;
        if !info.is_resource_request || info.resource.is_empty() || !info.subresource.is_empty() {
            return Err(RouteError::NoSuchPath.into());
        }
        let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
        let known = match catalog.get(&gvr) {
            Some(known) => known,
            None if catalog.complete() => return Err(RouteError::NoSuchPath.into()),
            None => return Err(SearchRefused::NoKind(gvr.qualified()).into()),
        };
        let is_one = info.verb == "get";
        let is_of_cluster = known.scope == Scope::Cluster;
        let mut namespace = if is_of_cluster { String::new() } else { info.namespace.clone() };
        let name = if is_one { info.name.clone() } else { String::new() };
        if !is_one {
            let mut query = self.query(asked)?;
            query.clusters.extend(cluster.map(|name| Condition::one_of([name.to_owned()])));
            if namespace.is_empty() && !is_of_cluster {
                // Who names one namespace needs no right to all.
                namespace = only_namespace(&query);
            }
            let info = RequestInfo { namespace: namespace.clone(), ..info };
            let target = Target { gvr, namespace, name };
            return self.search_kind(&info, who, asked, Kind { target, query, only, is_of_fleet: false }).await;
        }
        let target = Target { gvr, namespace, name };
        let Some(only) = only else {
            return Err(SearchRefused::NoCluster { gvr: target.gvr, name: target.name }.into());
        };
        let grant = self.searches(who, asked, &info, &target.gvr, Some(&only)).await?;
        let grants = Grants { asked: grant, ..Grants::default() };
        let asked = RequestContext { grants: &grants, ..asked };
        let audience = asked.audience().and(&Audience::of([only.clone()]));
        if self.stores.is_stored(&target.gvr) {
            return self.reader.stored_one(&target, &audience, &only, asked).await;
        }
        let source = self.reader.source(&target, &audience, Some(&only), asked).await?;
        self.reader.search_one(&target, &source, &only, asked).await
    }

    /// A list or watch of the fleet view that has a search in it. Its rights were asked for.
    pub(super) async fn search_fleet(
        &self,
        info: &RequestInfo,
        who: Who<'_>,
        target: &Target,
        asked: RequestContext<'_>,
    ) -> Result<Response<Body>, Status> {
        let query = self.query(asked)?;
        if query.deleted {
            return Err(SearchRefused::DeletedElsewhere.into());
        }
        let only = self.only(&query);
        let target = Target { name: String::new(), ..target.clone() };
        let kind = Kind { target, query, only, is_of_fleet: true };
        self.search_allowed(info.verb == "watch", who, asked, kind, asked.grants.asked.clone()).await
    }

    async fn search_kind(
        &self,
        info: &RequestInfo,
        who: Who<'_>,
        asked: RequestContext<'_>,
        kind: Kind,
    ) -> Result<Response<Body>, Status> {
        let only = kind.only.clone().or_else(|| self.only(&kind.query));
        let grant = self.searches(who, asked, info, &kind.target.gvr, only.as_ref()).await?;
        self.search_allowed(info.verb == "watch", who, asked, Kind { only, ..kind }, grant).await
    }

    async fn search_allowed(
        &self,
        watch: bool,
        who: Who<'_>,
        asked: RequestContext<'_>,
        kind: Kind,
        grant: Grant,
    ) -> Result<Response<Body>, Status> {
        let Kind { target, query, only, is_of_fleet } = kind;
        if query.deleted && watch {
            return Err(SearchRefused::DeletedElsewhere.into());
        }
        if query.deleted {
            let deleted = self.reader.deleted_kind(&target, grant.audience())?;
            let of = Deleted { kinds: vec![deleted], namespace: target.namespace, only, collection: None };
            return self.search_deleted(who, asked, query, of, grant.warnings()).await;
        }
        let mut warnings = grant.warnings();
        let allowed = [Allowed { target, grant }];
        let SearchedKinds { sources, stored } =
            self.searched_kinds(&allowed, only.as_ref(), asked, &mut warnings).await?;
        let [Allowed { target, grant }] = allowed;
        let owners = match &query.owner {
            Some(owner) => {
                let within = Within { namespace: &target.namespace, only: only.as_ref(), watch };
                self.owners(owner, who, asked, within, &mut warnings).await?
            }
            None => Owners::default(),
        };
        let renewals = grant.renewal().cloned().into_iter().chain(owners.renewals).collect();
        let owners = owners.sources;
        let deleted = Vec::new();
        let searched = Searched {
            sources,
            deleted,
            stored,
            owners,
            query,
            is_of_fleet,
            collection: None,
            renewals,
            warnings,
            asked,
        };
        self.reader.search(searched, watch).await
    }

    /// Kinds to be searched, wherever their objects are.
    async fn searched_kinds(
        &self,
        allowed: &[Allowed],
        only: Option<&MemberName>,
        asked: RequestContext<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<SearchedKinds, Status> {
        let mut kinds = SearchedKinds::default();
        for Allowed { target, grant } in allowed {
            if self.stores.is_stored(&target.gvr) {
                let told = self.reader.stored_kind(target, grant.audience(), only, asked).await?;
                warnings.extend(told.warnings);
                kinds.stored.push(told.kind);
            } else {
                kinds.sources.push(self.reader.source(target, grant.audience(), only, asked).await?);
            }
        }
        Ok(kinds)
    }

    /// Answers a search among what was deleted.
    async fn search_deleted(
        &self,
        who: Who<'_>,
        asked: RequestContext<'_>,
        query: Query,
        of: Deleted,
        mut warnings: Vec<String>,
    ) -> Result<Response<Body>, Status> {
        let Deleted { kinds: deleted, namespace, only, collection } = of;
        let owners = match &query.owner {
            Some(owner) => {
                let within = Within { namespace: &namespace, only: only.as_ref(), watch: false };
                self.owners(owner, who, asked, within, &mut warnings).await?.sources
            }
            None => Vec::new(),
        };
        let (sources, stored, renewals, is_of_fleet) = (Vec::new(), Vec::new(), Vec::new(), false);
        let searched =
            Searched { sources, deleted, stored, owners, query, is_of_fleet, collection, renewals, warnings, asked };
        self.reader.search_deleted(searched).await
    }

    /// The kinds that may own what is found, as far as their asker may list them. A watch by the UID of an owner of its own
    /// objects needs none.
    ///
    /// Errors: 405 for a watch that would have to follow a kind in the tables; as a list.
    async fn owners(
        &self,
        owner: &Owner,
        who: Who<'_>,
        asked: RequestContext<'_>,
        within: Within<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Owners, Status> {
        let Within { namespace, only, watch } = within;
        let mut found = Owners::default();
        if watch && owner.seniority == 0 && matches!(owner.by, OwnerBy::Uid(_)) {
            return Ok(found);
        }
        let catalog = self.searched_catalog(None);
        let controllers = || {
            CONTROLLERS
                .iter()
                .map(|(group, resource)| GroupResource { group: (*group).to_owned(), resource: (*resource).to_owned() })
        };
        let wanted: Vec<GroupResource> = match (&owner.by, owner.seniority) {
            (OwnerBy::Name { resource: Some(resource), .. }, 0) => vec![resource.clone()],
            (OwnerBy::Name { resource: Some(resource), .. }, _) => {
                let others = controllers().filter(|other| other != resource);
                std::iter::once(resource.clone()).chain(others).collect()
            }
            _ => controllers().collect(),
        };
        for GroupResource { group, resource } in wanted {
            let Some(known) = catalog.versions_of(&group, &resource).next() else { continue };
            let target = in_namespace(known, namespace);
            let grant = self.lists(who, &target, only).await;
            if grant.check(Mode::Lenient).is_err() {
                warnings.push(format!(
                    "owners among {} are not looked for: they may not be listed",
                    target.gvr.qualified()
                ));
                continue;
            }
            if watch && self.stores.is_stored(&target.gvr) {
                return Err(StoresError::InTables { gvr: target.gvr }.into());
            }
            if self.stores.is_stored(&target.gvr) {
                warnings.push(format!(
                    "owners among {} are not looked for: they are in the mirror's tables alone",
                    target.gvr.qualified()
                ));
                continue;
            }
            found.sources.push(self.reader.source(&target, grant.audience(), only, asked).await?);
            found.renewals.extend(grant.renewal().cloned());
        }
        Ok(found)
    }

    /// All collections, or what one has.
    async fn collections(
        &self,
        who: Who<'_>,
        asked: RequestContext<'_>,
        name: Option<String>,
    ) -> Result<Response<Body>, Status> {
        let watch = query_value(asked.query, "watch").is_some_and(|value| !matches!(value.as_str(), "false" | "0"));
        // kubectl watches one object as a list of it.
        let named = || {
            let text = query_value(asked.query, "fieldSelector").unwrap_or_default();
            let fields = FieldSelector::parse(&text, "", "").ok()?;
            fields.name().filter(|_| watch).map(str::to_owned)
        };
        let known: Vec<Collection> =
            Collection::built_in().into_iter().chain(self.stores.collections().iter().cloned()).collect();
        let Some(name) = name.or_else(named) else {
            return self.reader.collections(&known, asked).await;
        };
        let Some(collection) = known.iter().find(|one| one.name == name) else {
            let known = known.into_iter().map(|one| one.name).collect();
            return Err(SearchRefused::NoCollection { name, known }.into());
        };
        let query = self.query(RequestContext { query: &without_name(asked.query, watch), ..asked })?;
        let only = self.only(&query);
        let mut allowed = Vec::new();
        let (mut warnings, mut refused) = (Vec::new(), None);
        let namespace = only_namespace(&query);
        for target in self.kinds_of(collection, asked.query, &namespace)? {
            let grant = self.lists(who, &target, only.as_ref()).await;
            warnings.extend(grant.warnings());
            match grant.check(Mode::Lenient) {
                Ok(()) => allowed.push(Allowed { target, grant }),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused.filter(|_| allowed.is_empty() || asked.mode == Mode::Strict) {
            return Err(error.into());
        }
        if query.deleted {
            if watch {
                return Err(SearchRefused::DeletedElsewhere.into());
            }
            let (mut kinds, mut not_kept) = (Vec::new(), None);
            for Allowed { target, grant } in &allowed {
                match self.reader.deleted_kind(target, grant.audience()) {
                    Ok(kind) => kinds.push(kind),
                    Err(error) => not_kept = not_kept.or(Some(error)),
                }
            }
            warnings.extend(not_kept.iter().map(|error| error.message.clone()));
            if let Some(error) = not_kept.filter(|_| kinds.is_empty()) {
                return Err(error);
            }
            let types = types_of(kinds.iter().map(|kind| &*kind.spec));
            let collection = Some(Collected { name, types });
            let of = Deleted { kinds, namespace, only, collection };
            return self.search_deleted(who, asked, query, of, warnings).await;
        }
        let SearchedKinds { sources, stored } =
            self.searched_kinds(&allowed, only.as_ref(), asked, &mut warnings).await?;
        let mut owners = Owners::default();
        if let Some(owner) = &query.owner {
            let within = Within { namespace: &namespace, only: only.as_ref(), watch };
            owners = self.owners(owner, who, asked, within, &mut warnings).await?;
        }
        let of_sources = allowed.iter().filter_map(|allowed| allowed.grant.renewal().cloned());
        let renewals: Vec<Renewal> = of_sources.chain(owners.renewals).collect();
        let owners = owners.sources;
        let in_memory = sources.iter().map(|source| source.ready.store().spec());
        let types = types_of(in_memory.chain(stored.iter().map(|stored| &*stored.spec)));
        let collection = Some(Collected { name, types });
        let (deleted, is_of_fleet) = (Vec::new(), false);
        let searched =
            Searched { sources, deleted, stored, owners, query, is_of_fleet, collection, renewals, warnings, asked };
        self.reader.search(searched, watch).await
    }

    /// The kinds of a collection, each in the version that most members have.
    ///
    /// Errors: a kind that is named and that nobody serves.
    fn kinds_of(&self, collection: &Collection, query: &str, namespace: &str) -> Result<Vec<Target>, SearchRefused> {
        let catalog = self.searched_catalog(None);
        let mut kinds: Vec<Target> = Vec::new();
        let mut add = |one: &MergedResource| {
            let is_it = |known: &Target| known.gvr.group == one.gvr.group && known.gvr.resource == one.gvr.resource;
            if !kinds.iter().any(is_it) {
                kinds.push(in_namespace(one, namespace));
            }
        };
        match &collection.kinds {
            CollectionKinds::Listed(listed) => {
                let found = listed.iter().filter_map(|kind| catalog.versions_of(&kind.group, &kind.resource).next());
                found.for_each(add);
            }
            CollectionKinds::BuiltIn => {
                // Events are one kind in two groups.
                let is_again = |resource: &MergedResource| *resource.gvr.group == *"events.k8s.io";
                let built_in = catalog.resources().filter(|one| is_built_in(&one.gvr.group) && !is_again(one));
                built_in.for_each(add);
            }
            CollectionKinds::Named => {
                let names = |parameter: &str, read: fn(&str) -> Vec<KindName>| {
                    query_value(query, parameter).map(|text| read(&text)).unwrap_or_default()
                };
                let mut named = names("groups", KindName::groups);
                named.extend(names("resources", KindName::resources));
                if named.is_empty() {
                    return Err(SearchRefused::NoKinds(collection.name.clone()));
                }
                for name in named {
                    let fits = |one: &&MergedResource| {
                        *one.gvr.group == *name.group
                            && name.version.as_ref().is_none_or(|version| *one.gvr.version == **version)
                            && name.resource.as_ref().is_none_or(|resource| *one.gvr.resource == **resource)
                    };
                    let mut found = catalog.resources().filter(fits).peekable();
                    if found.peek().is_none() {
                        return Err(SearchRefused::NoKind(name.text));
                    }
                    found.for_each(&mut add);
                }
            }
        }
        if kinds.len() > KINDS_MAX {
            return Err(SearchRefused::TooManyKinds { found: kinds.len(), max: KINDS_MAX });
        }
        Ok(kinds)
    }

    fn query(&self, asked: RequestContext<'_>) -> Result<Query, Status> {
        let now = i64::try_from(unix_micros()).unwrap_or(i64::MAX);
        Ok(Parameters { query: asked.query, now }.read().map_err(SearchRefused::from)?)
    }

    /// The one member that a query is about, if it is one.
    fn only(&self, query: &Query) -> Option<MemberName> {
        let named = query.clusters.iter().find(|condition| condition.operator == Operator::In)?;
        let [one] = named.values.as_slice() else { return None };
        self.stores.shared().naming.member(one).cloned()
    }

    fn member(&self, name: &str) -> Result<MemberName, RouteError> {
        let naming = Arc::clone(&self.stores.shared().naming);
        let members = || naming.members().iter().map(ToString::to_string).collect();
        naming.member(name).cloned().ok_or_else(|| RouteError::NoMember { name: name.to_owned(), members: members() })
    }

    /// What can be searched in all members, or in one.
    fn searched_catalog(&self, only: Option<&MemberName>) -> Arc<Catalog> {
        if let Some(only) = only {
            return Arc::new(self.stores.catalog_of(only).for_search());
        }
        let of = self.stores.catalog();
        if let Some(kept) = self.searched.catalog.load_full().filter(|kept| Arc::ptr_eq(&kept.of, &of)) {
            return Arc::clone(&kept.shown);
        }
        let shown = Arc::new(of.for_search());
        self.searched.catalog.store(Some(Arc::new(Shown { of, shown: Arc::clone(&shown) })));
        shown
    }

    /// What members allow of a read.
    ///
    /// Errors: 403 where none allows it, 503 where one does not say.
    async fn searches(
        &self,
        who: Who<'_>,
        asked: RequestContext<'_>,
        info: &RequestInfo,
        gvr: &Gvr,
        only: Option<&MemberName>,
    ) -> Result<Grant, Status> {
        if is_admin(who) {
            return Ok(Grant::default());
        }
        let grant = self.access.grant(who, &action_of(info, gvr), only).await;
        let for_people = info.verb == "list" && asked.wanted().is_ok_and(|wanted| asked.is_for_people(wanted));
        grant.check(if for_people { Mode::Lenient } else { asked.mode })?;
        Ok(grant)
    }

    /// What members allow of a list of a kind, in one namespace or in all.
    async fn lists(&self, who: Who<'_>, target: &Target, only: Option<&MemberName>) -> Grant {
        if is_admin(who) {
            return Grant::default();
        }
        let namespace = target.namespace.clone();
        let info = RequestInfo { verb: "list".to_owned(), namespace, ..RequestInfo::default() };
        self.access.grant(who, &action_of(&info, &target.gvr), only).await
    }
}

/// Kinds that are searched.
#[derive(Default)]
struct SearchedKinds {
    /// In memory.
    sources: Vec<Source>,
    /// In the mirror's tables.
    stored: Vec<KindInTables>,
}

/// Kinds of owners.
#[derive(Default)]
struct Owners {
    sources: Vec<Source>,
    /// What becomes of the rights to each.
    renewals: Vec<Renewal>,
}

/// In which namespace, empty for all, and in which member, absent for all; and for a list or for a watch.
#[derive(Clone, Copy)]
struct Within<'a> {
    namespace: &'a str,
    only: Option<&'a MemberName>,
    watch: bool,
}

/// The one namespace that a query is about; empty where it is about several.
fn only_namespace(query: &Query) -> String {
    let named = query.namespaces.iter().find(|condition| condition.operator == Operator::In);
    match named.map(|condition| condition.values.as_slice()) {
        Some([one]) => one.clone(),
        _ => String::new(),
    }
}

/// A kind in a namespace, if it is in any.
fn in_namespace(kind: &MergedResource, namespace: &str) -> Target {
    let namespace = if kind.scope == Scope::Namespaced { namespace } else { "" };
    Target { gvr: kind.gvr.clone(), namespace: namespace.to_owned(), name: String::new() }
}

/// Where it is looked for what was deleted.
struct Deleted {
    kinds: Vec<KindInTables>,
    namespace: String,
    only: Option<MemberName>,
    collection: Option<Collected>,
}

/// A kind that is searched.
struct Kind {
    target: Target,
    query: Query,
    only: Option<MemberName>,
    is_of_fleet: bool,
}

/// `[{"group":"apps","version":"v1","kind":"Deployment","resource":"deployments"}]`
fn types_of<'k>(kinds: impl Iterator<Item = &'k KindSpec>) -> String {
    let each = kinds.map(|spec| {
        serde_json::json!({
            "group": *spec.gvr.group, "version": *spec.gvr.version, "kind": *spec.gvk.kind, "resource": *spec.gvr.resource,
        })
    });
    serde_json::Value::Array(each.collect()).to_string()
}

/// The query without the name by which a watched collection is selected.
fn without_name(query: &str, watch: bool) -> String {
    let pairs = form_urlencoded::parse(query.as_bytes())
        .filter(|(key, value)| !(watch && key == "fieldSelector" && value.starts_with("metadata.name=")));
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}
