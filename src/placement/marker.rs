//! The marker: what tells a part of a placed object from a member-local object.
//!
//! A label `kubefold.io/placement: <uid>`, to find parts by, and an annotation of the same key that names its bearer and
//! the members. It is static: nothing in it ages. People copy whole manifests, so a marker counts only on the object that
//! it names, in the member and cluster it names.
//!
//! Kubernetes copies annotations, but no labels, to what it makes of a workload: a Deployment's to its ReplicaSets, a
//! StatefulSet's or DaemonSet's to its ControllerRevisions. Such a copy says whose child an object is, where the bearer that
//! it names is the object's controller: [`Marker::of_child`].

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::config::MemberName;
use kubefold_wire::{locate::entries, resource::Gvk, splice::string};

/// Label and annotation that every part has, and nothing else that kubefold puts into a member.
pub const MARKER_KEY: &str = "kubefold.io/placement";
/// Annotation of the parts of what is divided by more than a sum: the divided fields as they were written, as JSON. The fleet
/// view hides it.
pub const WHOLE_KEY: &str = "kubefold.io/whole";

/// Prefix of the keys that are kubefold's own, in labels and annotations.
pub const OWN_PREFIX: &str = "kubefold.io/";

/// Input annotations: what a client may say about placement. They never reach a member.
pub const INPUT_ANNOTATIONS: [&str; 2] = ["kubefold.io/placement-policy", "kubefold.io/place-on"];

/// A placement marker as one part has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The placed object's minted UID.
    pub uid: String,
    /// API group of the bearer; empty is core.
    pub group: String,
    /// Kind of the bearer.
    pub kind: String,
    /// Namespace of the bearer; empty if it is cluster-scoped.
    pub namespace: String,
    /// Name of the bearer, plain.
    pub name: String,
    /// The member whose part has this marker.
    pub member: MemberName,
    /// The members of the placement, in order, each with its cluster's UID. Parts of one placement may share them.
    pub members: Arc<[(MemberName, String)]>,
    /// How many of those got a part at creation: the others may get one by a later scale, and are not missed before.
    pub made: usize,
    /// How often the placement had moved when this was written.
    pub epoch: u64,
    /// It is of a move that the state does not know.
    pub is_unknown: bool,
    /// The policy that the object named: a later scale goes by it.
    pub policy: Option<String>,
    /// The members, or the selector over their labels, that the object was limited to when it was made.
    pub place_on: Option<String>,
    /// The placement whose orphans this one took over: its children are known by the UID of that one.
    pub adopts: Option<String>,
    /// It is not written on the object: it is what a copy of its controller's marker makes of it.
    pub is_child: bool,
}

/// Who controls an object: the `ownerReference` that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    /// API group; empty is core.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Own name, in the object's namespace.
    pub name: &'a str,
}

/// The annotation's JSON. The label has the UID, too: where the two disagree there is no marker.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    /// Markers of earlier versions lack it, and so say nothing of children.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    member: Cow<'a, str>,
    #[serde(borrow)]
    members: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    policy: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "on", skip_serializing_if = "Option::is_none")]
    place_on: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    adopts: Option<Cow<'a, str>>,
}

impl Marker {
    /// The marker of a part in `member`, where each of the members is to have one and no more is to be said.
    pub fn new(
        uid: String,
        gvk: &Gvk,
        namespace: &str,
        name: &str,
        member: MemberName,
        members: Arc<[(MemberName, String)]>,
    ) -> Self {
        Self {
            uid,
            group: gvk.group.to_string(),
            kind: gvk.kind.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            member,
            made: members.len(),
            members,
            epoch: 0,
            is_unknown: false,
            policy: None,
            place_on: None,
            adopts: None,
            is_child: false,
        }
    }

    /// Reads the marker from an object's `metadata.labels` and `metadata.annotations`, as JSON text.
    ///
    /// One that is malformed in any way is none. Whether it counts is what [`Marker::belongs_to`] says.
    pub fn read(labels_json: Option<&str>, annotations_json: Option<&str>) -> Option<Self> {
        let (labels, annotations) = (labels_json?, annotations_json?);
        let uid = placement_uid(labels)?;
        let (noted, marker) = Self::noted(annotations)?;
        noted.is_none_or(|noted| noted == uid).then_some(Self { uid, ..marker })
    }

    /// The marker of a child of that kind and name, by the copy of its controller's that it has as an annotation.
    ///
    /// All children of one placed object that have one name are one object in the fleet, as its parts are. Whether the copy
    /// counts is what [`Marker::belongs_to`] says of the controller, here, and of the child's own place.
    ///
    /// Gives the placement's UID, too: the child has one of its own.
    pub fn of_child(
        annotations_json: Option<&str>,
        gvk: &Gvk,
        name: &str,
        controller: Controller<'_>,
    ) -> Option<(String, Self)> {
        let (uid, marker) = Self::noted(annotations_json?)?;
        let is_of =
            marker.group == controller.group && marker.kind == controller.kind && marker.name == controller.name;
        let uid = uid.filter(|_| is_of)?;
        let child = marker.child(&uid, gvk, name)?;
        Some((uid, child))
    }

    /// The marker of a child of the placement of that UID, of which this is the marker.
    pub(super) fn child(self, uid: &str, gvk: &Gvk, name: &str) -> Option<Self> {
        let family = uuid::Uuid::parse_str(self.adopts.as_deref().unwrap_or(uid)).ok()?;
        Some(Self {
            uid: uuid::Uuid::new_v5(&family, format!("{}/{}/{name}", gvk.group, gvk.kind).as_bytes()).to_string(),
            group: gvk.group.to_string(),
            kind: gvk.kind.to_string(),
            name: name.to_owned(),
            made: self.members.len(),
            policy: None,
            place_on: None,
            adopts: None,
            is_child: true,
            ..self
        })
    }

    /// The UID of the visible object in its `life`: a child that its controller made again, after all parts of it were gone,
    /// is another object.
    pub fn visible_uid(&self, life: u32) -> Cow<'_, str> {
        match uuid::Uuid::parse_str(&self.uid) {
            Ok(uid) if life > 0 => uuid::Uuid::new_v5(&uid, &life.to_be_bytes()).to_string().into(),
            Ok(_) | Err(_) => Cow::Borrowed(&self.uid),
        }
    }

    /// What the annotation says: the UID, if it does, and a marker without one.
    pub(super) fn noted(annotations: &str) -> Option<(Option<String>, Self)> {
        let json = text_of(annotations)?;
        let written: Written<'_> = serde_json::from_str(&json).ok()?;
        let members = written
            .members
            .into_iter()
            .map(|(name, cluster)| Some((MemberName::new(&name)?, cluster.into_owned())))
            .collect::<Option<Arc<[_]>>>()?;
        let distinct: BTreeSet<_> = members.iter().map(|(name, _)| name).collect();
        let member = MemberName::new(&written.member)?;
        if distinct.len() != members.len() || !distinct.contains(&member) {
            return None;
        }
        let marker = Self {
            uid: String::new(),
            group: written.group.into_owned(),
            kind: written.kind.into_owned(),
            namespace: written.namespace.into_owned(),
            name: written.name.into_owned(),
            member,
            made: written.made.unwrap_or(members.len()),
            epoch: written.epoch.unwrap_or_default(),
            is_unknown: false,
            members,
            policy: written.policy.map(Cow::into_owned),
            place_on: written.place_on.map(Cow::into_owned),
            adopts: written.adopts.map(Cow::into_owned),
            is_child: false,
        };
        Some((written.uid.map(Cow::into_owned), marker))
    }

    /// The marker as it is to be read in that member and cluster: the cluster decides, and a member may have been renamed
    /// since it was written. `None`: it is not of that cluster.
    #[must_use]
    pub fn seen_in(mut self, member: &MemberName, cluster_uid: &str) -> Option<Self> {
        let (then, _) = self.members.iter().find(|(_, cluster)| cluster == cluster_uid)?;
        if self.member != *then {
            return None;
        }
        if *then != *member {
            let then = then.clone();
            let renamed = |(name, cluster): &(MemberName, String)| {
                let name = match name {
                    _ if cluster == cluster_uid => member,
                    // Two members may have changed names with each other.
                    name if name == member => &then,
                    name => name,
                };
                (name.clone(), cluster.clone())
            };
            self.members = self.members.iter().map(renamed).collect();
            self.member = member.clone();
        }
        Some(self)
    }

    /// The UID of a listed member's cluster.
    pub fn cluster_of(&self, member: &MemberName) -> Option<&str> {
        self.members.iter().find(|(name, _)| name == member).map(|(_, cluster)| cluster.as_str())
    }

    /// Says whether this marker counts on the object that was found bearing it.
    pub fn belongs_to(
        &self,
        group: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        member: &MemberName,
        cluster_uid: &str,
    ) -> bool {
        self.group == group
            && self.kind == kind
            && self.namespace == namespace
            && self.name == name
            && self.member == *member
            && self.members.iter().any(|(listed, cluster)| listed == member && cluster == cluster_uid)
    }

    /// The home: the first listed member for which `holds` says that it is configured, not declared absent, and holds a
    /// part, healthy or not.
    pub fn home(&self, holds: impl Fn(&MemberName) -> bool) -> Option<&MemberName> {
        self.members.iter().map(|(name, _)| name).find(|name| holds(name))
    }

    /// The label's value as a JSON string.
    pub(crate) fn label_json(&self) -> Vec<u8> {
        string(&self.uid)
    }

    /// The annotation's value as a JSON string.
    pub(crate) fn annotation_json(&self) -> Vec<u8> {
        let written = Written {
            uid: Some(Cow::Borrowed(&self.uid)),
            group: Cow::Borrowed(&self.group),
            kind: Cow::Borrowed(&self.kind),
            namespace: Cow::Borrowed(&self.namespace),
            name: Cow::Borrowed(&self.name),
            member: Cow::Borrowed(self.member.as_str()),
            members: self
                .members
                .iter()
                .map(|(name, cluster)| (Cow::Borrowed(name.as_str()), Cow::Borrowed(cluster.as_str())))
                .collect(),
            made: (self.made < self.members.len()).then_some(self.made),
            epoch: (self.epoch > 0).then_some(self.epoch),
            policy: self.policy.as_deref().map(Cow::Borrowed),
            place_on: self.place_on.as_deref().map(Cow::Borrowed),
            adopts: self.adopts.as_deref().map(Cow::Borrowed),
        };
        // Strings only: serialization has no way to fail.
        string(&serde_json::to_string(&written).unwrap_or_default())
    }
}

/// The UID that the label says.
pub(super) fn placement_uid(labels: &str) -> Option<String> {
    memchr::memmem::find(labels.as_bytes(), MARKER_KEY.as_bytes())?;
    let uid = text_of(labels)?;
    (uuid::Uuid::parse_str(&uid).ok()?.as_hyphenated().to_string() == uid).then_some(uid)
}

/// The marker's value in a string map. A key that stands twice makes it ambiguous: none.
fn text_of(map: &str) -> Option<String> {
    let entries = entries(map).ok()?;
    let mut found = entries.iter().filter(|entry| entry.name == MARKER_KEY);
    let text = found.next()?.text()?;
    found.next().is_none().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";

    fn member(name: &str) -> MemberName {
        MemberName::new(name).unwrap()
    }

    fn marker() -> Marker {
        let members = Arc::new([(member("east"), "c-e".into()), (member("west"), "c-w".into())]);
        Marker::new(UID.into(), &Gvk::new("apps", "v1", "Deployment"), "default", "web", member("west"), members)
    }

    fn maps(marker: &Marker) -> (String, String) {
        let map = |value: Vec<u8>| format!(r#"{{"a":"b","{MARKER_KEY}":{}}}"#, String::from_utf8(value).unwrap());
        (map(marker.label_json()), map(marker.annotation_json()))
    }

    #[test]
    fn reads_what_it_writes() {
        let (labels, annotations) = maps(&marker());
        assert_eq!(Marker::read(Some(&labels), Some(&annotations)), Some(marker()));
        let by_policy = Marker { policy: Some("shop".into()), adopts: Some(UID.into()), made: 1, ..marker() };
        let (labels, annotations) = maps(&by_policy);
        assert_eq!(Marker::read(Some(&labels), Some(&annotations)), Some(by_policy));
    }

    #[test]
    fn the_annotation_alone_is_no_marker() {
        let (_, annotations) = maps(&marker());
        assert_eq!(Marker::read(None, Some(&annotations)), None);
        assert_eq!(Marker::read(Some(r#"{"app":"web"}"#), Some(&annotations)), None);
    }

    #[test]
    fn a_malformed_one_is_none() {
        let (labels, annotations) = maps(&marker());
        assert_eq!(Marker::read(Some(&labels.replace("6f1c", "XXXX")), Some(&annotations)), None);
        assert_eq!(Marker::read(Some(&labels.replace("6f1c", "6F1C")), Some(&annotations)), None);
        assert_eq!(Marker::read(Some(&labels), Some(&annotations.replace(r#"\"kind\""#, r#"\"kinds\""#))), None);
        assert_eq!(Marker::read(Some(&labels), Some(&annotations.replace(r#"\"east\""#, r#"\"west\""#))), None);
        let elsewhere = Marker { member: member("north"), ..marker() };
        let (labels, annotations) = maps(&elsewhere);
        assert_eq!(Marker::read(Some(&labels), Some(&annotations)), None);
    }

    #[test]
    fn it_counts_only_on_the_object_it_names() {
        let m = marker();
        assert!(m.belongs_to("apps", "Deployment", "default", "web", &member("west"), "c-w"));
        assert!(!m.belongs_to("apps", "ReplicaSet", "default", "web", &member("west"), "c-w"));
        assert!(!m.belongs_to("apps", "Deployment", "other", "web", &member("west"), "c-w"));
        assert!(!m.belongs_to("apps", "Deployment", "default", "web-2", &member("west"), "c-w"));
        assert!(
            !m.belongs_to("apps", "Deployment", "default", "web", &member("east"), "c-e"),
            "copied between members"
        );
        assert!(!m.belongs_to("apps", "Deployment", "default", "web", &member("west"), "c-new"), "another cluster");
    }

    #[test]
    fn a_renamed_member_keeps_its_part() {
        let renamed = marker().seen_in(&member("oost"), "c-w").unwrap();
        assert!(renamed.belongs_to("apps", "Deployment", "default", "web", &member("oost"), "c-w"));
        assert_eq!(renamed.members.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["east", "oost"]);
        let swapped = marker().seen_in(&member("east"), "c-w").unwrap();
        assert_eq!(swapped.members.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["west", "east"]);
        assert_eq!(marker().seen_in(&member("west"), "c-w"), Some(marker()));
        assert_eq!(marker().seen_in(&member("east"), "c-e"), None, "copied between members");
        assert_eq!(marker().seen_in(&member("west"), "c-new"), None, "another cluster");
    }

    #[test]
    fn a_copy_says_whose_child_an_object_is() {
        let (labels, annotations) = maps(&marker());
        let replica_set = Gvk::new("apps", "v1", "ReplicaSet");
        let of = |annotations: &str, group: &str, kind: &str, name: &str| {
            Marker::of_child(Some(annotations), &replica_set, "web-1", Controller { group, kind, name })
        };
        let (placement, child) = of(&annotations, "apps", "Deployment", "web").unwrap();
        assert_eq!(placement, UID);
        assert!(child.belongs_to("apps", "ReplicaSet", "default", "web-1", &member("west"), "c-w"));
        assert!(!child.belongs_to("apps", "ReplicaSet", "default", "web-1", &member("east"), "c-e"));
        let of_east = maps(&Marker { member: member("east"), ..marker() }).1;
        assert_eq!(of(&of_east, "apps", "Deployment", "web").unwrap().1.uid, child.uid, "one object");
        assert_ne!(child.uid, UID);
        for (group, kind, name) in
            [("", "Deployment", "web"), ("apps", "StatefulSet", "web"), ("apps", "Deployment", "db")]
        {
            assert_eq!(of(&annotations, group, kind, name), None);
        }
        // A marker of before the annotation had the UID is one still, and has no children.
        let old = annotations.replace(&format!(r#"\"uid\":\"{UID}\","#), "");
        assert!(old.len() < annotations.len());
        assert_eq!(of(&old, "apps", "Deployment", "web"), None);
        assert_eq!(Marker::read(Some(&labels), Some(&old)), Some(marker()));
        // Label and annotation of two placements are no marker.
        assert_eq!(Marker::read(Some(&labels), Some(&annotations.replace("6f1c", "6f1d"))), None);
    }

    #[test]
    fn each_life_of_a_child_has_its_own_uid() {
        let marker = marker();
        let uids: BTreeSet<_> = (0..3).map(|life| marker.visible_uid(life)).collect();
        assert!(uids.len() == 3 && uids.contains(UID));
    }

    #[test]
    fn home_is_the_first_that_holds() {
        let m = marker();
        assert_eq!(m.home(|_| true), Some(&member("east")));
        assert_eq!(m.home(|name| name.as_str() == "west"), Some(&member("west")));
        assert_eq!(m.home(|_| false), None);
    }
}
