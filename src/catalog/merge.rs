//! Many catalogs into one: pure.
//!
//! Source: KEP-4020's merge (kubernetes/apiserver `pkg/endpoints/discovery/aggregated/peer_aggregated_handler.go`),
//! but verbs are intersected: a client calls any verb it reads here, at every member.

use std::{collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use super::{
    merged::{Catalog, MergedGroup, MergedResource, MergedVersion},
    order::{by_version_priority, merge_preserving_relative_order},
    served::{Freshness, Group, MemberCatalog, Resource, ResponseKind, Subresource, Version},
};
use crate::config::{MemberName, ResourcePattern};
use kubefold_wire::resource::{Gvk, Gvr};

/// With so many different groups of its name a group is compared.
const COMPARED_MAX: usize = 8;

/// A member and what it says of the thing being merged.
struct Holder<'a, T> {
    member: &'a MemberName,
    has: &'a T,
}

/// Members that say the same of the thing being merged, in configuration order.
struct Class<'a, T> {
    members: &'a [Place<'a>],
    has: &'a T,
}

/// A member, and where it is in the configuration order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    at: usize,
    member: &'a MemberName,
}

impl Catalog {
    /// Merges what members serve.
    ///
    /// Shape: members in configuration order, each with its last known catalog.
    /// A member that is down counts with its last known catalog, so that an outage takes no kind away.
    pub fn merge(members: &[(MemberName, Option<Arc<MemberCatalog>>)]) -> Self {
        Self::merge_storing(members, &[])
    }

    /// The same where the objects of some kinds are in the mirror's tables alone.
    pub fn merge_storing(members: &[(MemberName, Option<Arc<MemberCatalog>>)], stored: &[ResourcePattern]) -> Self {
        Self::default().merge_next(members, &[], stored)
    }

    /// The same where most is as it was: a group that has not changed in any member is taken from this catalog. The groups of
    /// `own` are kubefold's, whatever members serve under their names.
    pub(super) fn merge_next(
        &self,
        members: &[(MemberName, Option<Arc<MemberCatalog>>)],
        own: &[Arc<MergedGroup>],
        stored: &[ResourcePattern],
    ) -> Self {
        let known: Vec<Holder<'_, MemberCatalog>> =
            members.iter().filter_map(|(member, has)| Some(Holder { member, has: has.as_deref()? })).collect();
        let lists = known.iter().map(|holder| holder.has.groups.iter().map(|group| &*group.name).collect());
        let names = in_order(lists, str::cmp);
        // Clusters with a thousand groups exist; looking each up in each member's list would be felt.
        let mut holders: HashMap<&str, Vec<Holder<'_, Arc<Group>>>> = HashMap::with_capacity(names.len());
        for Holder { member, has } in &known {
            for group in has.groups.iter().filter(|group| own.iter().all(|own| own.name != group.name)) {
                holders.entry(&group.name).or_default().push(Holder { member, has: group });
            }
        }
        let is_stored_alike = self.stored == stored;
        let merged = |name: &str| {
            let holders = holders.get(name)?;
            let known = self.shared_group(name).filter(|known| is_stored_alike && is_of(known, holders));
            let anew = || Arc::new(read_only(merge_group(name, holders), stored));
            Some(known.map_or_else(anew, Arc::clone))
        };
        let groups = names.into_iter().filter_map(merged).chain(own.iter().cloned());
        let groups: Vec<Arc<MergedGroup>> = groups.collect();
        let servers = known.iter().filter_map(|holder| holder.has.server.as_ref());
        Self {
            by_group: index(groups.iter().map(|group| &group.name)),
            groups,
            unknown: members.iter().filter(|(_, has)| has.is_none()).map(|(member, _)| member.clone()).collect(),
            server: servers.min_by_key(|server| server.number).cloned(),
            stored: stored.to_vec(),
        }
    }
}

/// What a kind allows whose objects are in the mirror's tables alone.
const STORED_VERBS: [&str; 2] = ["get", "list"];

/// Marks the kinds whose objects are in the mirror's tables alone. What no store could follow stays as it is.
fn read_only(mut group: MergedGroup, stored: &[ResourcePattern]) -> MergedGroup {
    let resources = group.versions.iter_mut().flat_map(|version| &mut version.resources);
    for resource in resources.filter(|one| one.watchable && stored.iter().any(|pattern| pattern.names(&one.gvr))) {
        (resource.stored, resource.watchable) = (true, false);
        resource.verbs.retain(|verb| STORED_VERBS.contains(&&**verb));
        resource.subresources.clear();
    }
    group
}

/// A group that kubefold serves itself: its resources are of no member.
pub(super) fn own_group(group: &Arc<Group>) -> Option<Arc<MergedGroup>> {
    let nobody = MemberName::new("kubefold")?;
    let mut merged = merge_group(&group.name, &[Holder { member: &nobody, has: group }]);
    merged.sources.clear();
    for resource in merged.versions.iter_mut().flat_map(|version| &mut version.resources) {
        resource.members.clear();
    }
    Some(Arc::new(merged))
}

/// Says whether a group was merged from just this.
fn is_of(merged: &MergedGroup, holders: &[Holder<'_, Arc<Group>>]) -> bool {
    let is_same = |((member, group), holder): (&(MemberName, Arc<Group>), &Holder<'_, Arc<Group>>)| {
        Arc::ptr_eq(group, holder.has) && member == holder.member
    };
    merged.sources.len() == holders.len() && merged.sources.iter().zip(holders).all(is_same)
}

fn merge_group(name: &str, sources: &[Holder<'_, Arc<Group>>]) -> MergedGroup {
    let alike = alike(sources);
    let classes: Vec<Class<'_, Group>> = alike.iter().map(|(has, members)| Class { members, has: *has }).collect();
    let lists = classes.iter().map(|class| version_names(class.has));
    let mut names = in_order(lists, by_version_priority);
    if let Some(preferred) = preferred_version(&classes) {
        // Clients take the first version that is not stale for the preferred one.
        names.retain(|version| *version != preferred);
        names.insert(0, preferred);
    }
    let group: Arc<str> = name.into();
    let versions = names
        .into_iter()
        .map(|version| merge_version(&group, version, &narrow(&classes, |group| group.version(version))))
        .collect();
    let sources = sources.iter().map(|source| (source.member.clone(), Arc::clone(source.has))).collect();
    MergedGroup { name: group, versions, sources }
}

/// The members that have the very same group, by the first of them: see [`shared`].
fn alike<'a>(sources: &[Holder<'a, Arc<Group>>]) -> Vec<(&'a Group, Vec<Place<'a>>)> {
    let mut alike: Vec<(&Group, Vec<Place<'_>>)> = Vec::new();
    let mut known: HashMap<*const Group, usize> = HashMap::new();
    for (at, Holder { member, has }) in sources.iter().enumerate() {
        let class = *known.entry(Arc::as_ptr(has)).or_insert(alike.len());
        let place = Place { at, member };
        match alike.get_mut(class) {
            Some((_, members)) => members.push(place),
            None => alike.push((has, vec![place])),
        }
    }
    alike
}

/// A member's catalog, in which each group that another member has alike is that one's: hundreds of members of one kind are held,
/// compared and merged as one.
pub(super) fn shared<'a>(
    mut catalog: MemberCatalog,
    others: impl Iterator<Item = &'a MemberCatalog> + Clone,
) -> MemberCatalog {
    for group in &mut catalog.groups {
        let mut compared: SmallVec<[*const Group; COMPARED_MAX]> = SmallVec::new();
        for other in others.clone().filter_map(|other| other.shared_group(&group.name)) {
            if Arc::ptr_eq(other, group) || compared.len() == COMPARED_MAX {
                break;
            }
            if compared.contains(&Arc::as_ptr(other)) {
                continue;
            }
            if other == group {
                *group = Arc::clone(other);
                break;
            }
            compared.push(Arc::as_ptr(other));
        }
    }
    catalog
}

/// The version to use when none is asked for, so that the answer has every member in it.
///
/// Members that agree are followed, since an operator may have set priorities; otherwise, the highest that all
/// serve; where there is none, the highest of those that most serve.
fn preferred_version<'a>(classes: &[Class<'a, Group>]) -> Option<&'a str> {
    let all: usize = classes.iter().map(|class| class.members.len()).sum();
    let served_by = |version: &str| -> usize {
        let serving = classes.iter().filter(|class| class.has.version(version).is_some());
        serving.map(|class| class.members.len()).sum()
    };
    let mut firsts =
        classes.iter().map(|class| version_names(class.has).into_iter().find(|version| served_by(version) == all));
    if let Some(Some(first)) = firsts.next()
        && firsts.all(|other| other == Some(first))
    {
        return Some(first);
    }
    classes
        .iter()
        .flat_map(|class| version_names(class.has))
        .min_by(|a, b| served_by(b).cmp(&served_by(a)).then_with(|| by_version_priority(a, b)))
}

fn merge_version(group: &Arc<str>, version: &str, classes: &[Class<'_, Version>]) -> MergedVersion {
    let version: Arc<str> = version.into();
    // `Stale` is what a member says of a version whose server it cannot reach. A member that is down itself keeps its
    // kinds as they were: clients leave a stale version out altogether, and what is left out cannot be shown, not even
    // as the last known state.
    let current = |class: &Class<'_, Version>| class.has.freshness == Freshness::Current;
    let lists = classes.iter().map(|class| class.has.resources.iter().map(|one| &*one.resource).collect());
    let by_name: Vec<HashMap<&str, &Resource>> = classes.iter().map(|class| by_name(class.has)).collect();
    let resources: Vec<MergedResource> = in_order(lists, str::cmp)
        .into_iter()
        .filter_map(|name| {
            let gvr = Gvr { group: group.clone(), version: version.clone(), resource: name.into() };
            let holding = classes.iter().zip(&by_name);
            let holding =
                holding.filter_map(|(class, all)| Some(Class { members: class.members, has: *all.get(name)? }));
            merge_resource(gvr, &holding.collect::<Vec<_>>())
        })
        .collect();
    let mut by_kind = HashMap::new();
    for (at, resource) in resources.iter().enumerate() {
        let gvk = &resource.gvk;
        if gvk.group == *group && gvk.version == version && !gvk.kind.is_empty() {
            by_kind.entry(gvk.kind.clone()).or_insert(at);
        }
    }
    MergedVersion {
        freshness: if classes.iter().any(current) { Freshness::Current } else { Freshness::Stale },
        by_resource: index(resources.iter().map(|resource| &resource.gvr.resource)),
        by_kind,
        version,
        resources,
    }
}

/// The first of each name, as it is looked up elsewhere.
fn by_name(version: &Version) -> HashMap<&str, &Resource> {
    version.resources.iter().rev().map(|one| (&*one.resource, one)).collect()
}

fn merge_resource(gvr: Gvr, classes: &[Class<'_, Resource>]) -> Option<MergedResource> {
    let first = classes.first()?.has;
    let gvk_of = |resource: &Resource| full_kind(&gvr, resource.kind.as_ref());
    let gvk = gvk_of(first);
    // The first member in configuration order decides; those that disagree are absent for this resource.
    let (agreeing, conflicting): (Vec<_>, Vec<_>) =
        classes.iter().partition(|class| class.has.scope == first.scope && gvk_of(class.has) == gvk);
    let all: Vec<&Resource> = agreeing.iter().map(|class| class.has).collect();
    let verbs = intersection(all.iter().map(|one| &one.verbs));
    let has = |verb: &str| verbs.iter().any(|one| &**one == verb);
    Some(MergedResource {
        watchable: has("list") && has("watch"),
        stored: false,
        gvr,
        gvk,
        response_kind: first.kind.clone(),
        scope: first.scope,
        singular: first.singular.clone(),
        short_names: union(all.iter().map(|one| &one.short_names)),
        categories: union(all.iter().map(|one| &one.categories)),
        subresources: merge_subresources(&all),
        members: members_of(&agreeing),
        conflicting: members_of(&conflicting),
        verbs,
    })
}

/// In configuration order.
fn members_of<T>(classes: &[&Class<'_, T>]) -> Vec<MemberName> {
    let mut places: Vec<Place<'_>> = classes.iter().flat_map(|class| class.members).copied().collect();
    if classes.len() > 1 {
        places.sort_unstable();
    }
    places.into_iter().map(|place| place.member.clone()).collect()
}

fn merge_subresources(resources: &[&Resource]) -> Vec<Subresource> {
    let lists = resources.iter().map(|one| one.subresources.iter().map(|sub| &*sub.subresource).collect());
    let merge_one = |name: &str| {
        let all: Vec<&Subresource> = resources.iter().filter_map(|one| one.subresource(name)).collect();
        let first = *all.first()?;
        Some(Subresource { verbs: intersection(all.iter().map(|one| &one.verbs)), ..first.clone() })
    };
    in_order(lists, str::cmp).into_iter().filter_map(merge_one).collect()
}

fn full_kind(gvr: &Gvr, printed: Option<&ResponseKind>) -> Gvk {
    let empty = || Gvk { group: gvr.group.clone(), version: gvr.version.clone(), kind: "".into() };
    printed.map_or_else(empty, |kind| kind.resolve(&gvr.group, &gvr.version))
}

fn version_names(group: &Group) -> Vec<&str> {
    group.versions.iter().map(|version| &*version.version).collect()
}

/// The same members, looking at a part of what they have; those without it drop out.
fn narrow<'a, T, U>(classes: &[Class<'a, T>], part: impl Fn(&'a T) -> Option<&'a U>) -> Vec<Class<'a, U>> {
    let narrower = |class: &Class<'a, T>| Some(Class { members: class.members, has: part(class.has)? });
    classes.iter().filter_map(narrower).collect()
}

fn in_order<'a>(lists: impl Iterator<Item = Vec<&'a str>>, tie: fn(&str, &str) -> std::cmp::Ordering) -> Vec<&'a str> {
    // Most members say the same.
    let mut distinct: Vec<Vec<&str>> = Vec::new();
    for list in lists {
        if !distinct.contains(&list) {
            distinct.push(list);
        }
    }
    merge_preserving_relative_order(&distinct, tie)
}

/// What all lists have, in the first one's order.
fn intersection<'a>(mut lists: impl Iterator<Item = &'a Vec<Arc<str>>>) -> Vec<Arc<str>> {
    let mut kept = lists.next().cloned().unwrap_or_default();
    for list in lists {
        kept.retain(|word| list.contains(word));
    }
    kept
}

/// What any list has, by first mention.
fn union<'a>(lists: impl Iterator<Item = &'a Vec<Arc<str>>>) -> Vec<Arc<str>> {
    let mut all: Vec<Arc<str>> = Vec::new();
    for word in lists.flatten() {
        if !all.contains(word) {
            all.push(word.clone());
        }
    }
    all
}

fn index<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> HashMap<Arc<str>, usize> {
    names.enumerate().map(|(at, name)| (name.clone(), at)).collect()
}
