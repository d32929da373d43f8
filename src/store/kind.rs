//! What a store knows about its kind: names, and the fields by which objects of it refer to others.

use crate::placement::children::{are_labelled, parents};
use kubefold_wire::{
    locate::Paths,
    resource::{Gvk, Gvr},
};

pub(super) mod id {
    //! Numbers of the paths that every document is walked along.
    pub(in crate::store) const KIND: u16 = 0;
    pub(in crate::store) const NAME: u16 = 1;
    pub(in crate::store) const NAMESPACE: u16 = 2;
    pub(in crate::store) const UID: u16 = 3;
    pub(in crate::store) const RESOURCE_VERSION: u16 = 4;
    pub(in crate::store) const LABELS: u16 = 5;
    pub(in crate::store) const ANNOTATIONS: u16 = 6;
    pub(in crate::store) const DELETION: u16 = 7;
    pub(in crate::store) const CREATION: u16 = 8;
    /// Mark: the whole metadata.
    pub(in crate::store) const METADATA: u16 = 9;
    /// Marks: an owner reference or an object reference begins.
    pub(in crate::store) const OWNER: u16 = 10;
    pub(in crate::store) const OBJECT: u16 = 11;
    /// Fields of the reference that began last.
    pub(in crate::store) const REF_API_VERSION: u16 = 12;
    pub(in crate::store) const REF_KIND: u16 = 13;
    pub(in crate::store) const REF_NAMESPACE: u16 = 14;
    pub(in crate::store) const REF_NAME: u16 = 15;
    pub(in crate::store) const REF_UID: u16 = 16;
    /// References that are a bare name.
    pub(in crate::store) const NODE: u16 = 20;
    pub(in crate::store) const VOLUME: u16 = 21;
    /// The same of the node that a pod runs on.
    pub(in crate::store) const POD_NODE: u16 = 24;
    /// The service account of a token Secret, and its UID.
    pub(in crate::store) const ACCOUNT: u16 = 22;
    pub(in crate::store) const ACCOUNT_UID: u16 = 23;
    /// What a fold adds up.
    pub(in crate::store) const GENERATION: u16 = 25;
    pub(in crate::store) const SPEC: u16 = 26;
    pub(in crate::store) const STATUS: u16 = 27;
}

/// A path of keys; `*` is every element of an array.
type Path = &'static [&'static str];

/// The joins of one kind: docs/design/identity.md#joins. Owner references are every kind's.
struct Joins {
    group: &'static str,
    resource: &'static str,
    objects: &'static [Path],
    nodes: &'static [Path],
    volumes: &'static [Path],
}

/// The closed table of fields that carry visible names and UIDs.
const JOINS: &[Joins] = &[
    Joins { group: "", resource: "events", objects: &[&["involvedObject"], &["related"]], nodes: &[], volumes: &[] },
    Joins {
        group: "events.k8s.io",
        resource: "events",
        objects: &[&["regarding"], &["related"]],
        nodes: &[],
        volumes: &[],
    },
    Joins {
        group: "",
        resource: "pods",
        objects: &[],
        nodes: &[
            // Names of nodes: Kubernetes knows no other field there.
            &[
                "spec",
                "affinity",
                "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
                "nodeSelectorTerms",
                "*",
                "matchFields",
                "*",
                "values",
                "*",
            ],
        ],
        volumes: &[],
    },
    Joins {
        group: "",
        resource: "endpoints",
        objects: &[
            &["subsets", "*", "addresses", "*", "targetRef"],
            &["subsets", "*", "notReadyAddresses", "*", "targetRef"],
        ],
        nodes: &[
            &["subsets", "*", "addresses", "*", "nodeName"],
            &["subsets", "*", "notReadyAddresses", "*", "nodeName"],
        ],
        volumes: &[],
    },
    Joins {
        group: "discovery.k8s.io",
        resource: "endpointslices",
        objects: &[&["endpoints", "*", "targetRef"]],
        nodes: &[&["endpoints", "*", "nodeName"]],
        volumes: &[],
    },
    Joins { group: "", resource: "persistentvolumes", objects: &[&["spec", "claimRef"]], nodes: &[], volumes: &[] },
    Joins {
        group: "",
        resource: "persistentvolumeclaims",
        objects: &[],
        nodes: &[],
        volumes: &[&["spec", "volumeName"]],
    },
    Joins {
        group: "storage.k8s.io",
        resource: "volumeattachments",
        objects: &[],
        nodes: &[&["spec", "nodeName"]],
        volumes: &[&["spec", "source", "persistentVolumeName"]],
    },
];

/// One kind as a store holds it.
#[derive(Debug)]
pub struct KindSpec {
    /// Which resource.
    pub gvr: Gvr,
    /// Its kind.
    pub gvk: Gvk,
    /// Namespaced, or cluster-scoped.
    pub namespaced: bool,
    /// `"kind":"Pod","apiVersion":"v1",`: how a built-in kind's document begins, but for items of lists.
    pub(super) type_meta: String,
    /// The kinds, of its own group, whose children its objects may be.
    pub(super) parents: &'static [&'static str],
    /// Its objects have the labels of what they are made of.
    pub(super) is_labelled: bool,
    /// Its objects are events, which are called after others.
    pub(super) is_event: bool,
    pub(super) paths: Paths,
}

impl KindSpec {
    /// Compiles what is known about a kind.
    pub fn new(gvr: Gvr, gvk: Gvk, namespaced: bool) -> Self {
        let type_meta = format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", gvk.kind, gvk.api_version());
        let paths = paths(&gvr);
        let parents = parents(&gvr);
        let (is_labelled, is_event) = (are_labelled(&gvr), gvr.is_event());
        Self { gvr, gvk, namespaced, type_meta, parents, is_labelled, is_event, paths }
    }

    /// Says whether objects of it may be children of placed objects: those have no label by which they could be asked for.
    pub fn has_children(&self) -> bool {
        !self.parents.is_empty()
    }

    /// Says whether controllers may make objects of it of placed ones.
    pub fn is_made_of_placed(&self) -> bool {
        self.has_children() || self.is_labelled
    }

    /// `v1/pods`: how tokens and logs name the kind.
    pub fn label(&self) -> String {
        self.gvr.label()
    }
}

fn paths(gvr: &Gvr) -> Paths {
    const COMMON: &[(u16, Path)] = &[
        (id::KIND, &["kind"]),
        (id::NAME, &["metadata", "name"]),
        (id::NAMESPACE, &["metadata", "namespace"]),
        (id::UID, &["metadata", "uid"]),
        (id::RESOURCE_VERSION, &["metadata", "resourceVersion"]),
        (id::LABELS, &["metadata", "labels"]),
        (id::ANNOTATIONS, &["metadata", "annotations"]),
        (id::DELETION, &["metadata", "deletionTimestamp"]),
        (id::CREATION, &["metadata", "creationTimestamp"]),
    ];
    let has_account = (&*gvr.group, &*gvr.resource) == ("", "secrets");
    let common = COMMON.iter().filter(|(number, _)| !has_account || *number != id::ANNOTATIONS);
    let mut paths = Paths::new(common.copied());
    if has_account {
        // Its annotations are looked into.
        paths.mark(id::ANNOTATIONS, &["metadata", "annotations"]);
        paths.add(id::ACCOUNT, &["metadata", "annotations", "kubernetes.io/service-account.name"]);
        paths.add(id::ACCOUNT_UID, &["metadata", "annotations", "kubernetes.io/service-account.uid"]);
    }
    paths.mark(id::METADATA, &["metadata"]);
    if (&*gvr.group, &*gvr.resource) == ("", "pods") {
        paths.add(id::POD_NODE, &["spec", "nodeName"]);
    }
    reference(&mut paths, id::OWNER, &["metadata", "ownerReferences", "*"]);
    for joins in JOINS.iter().filter(|joins| *joins.group == *gvr.group && *joins.resource == *gvr.resource) {
        for path in joins.objects {
            reference(&mut paths, id::OBJECT, path);
        }
        for (number, bare) in [(id::NODE, joins.nodes), (id::VOLUME, joins.volumes)] {
            for path in bare {
                paths.add(number, path);
            }
        }
    }
    let numbers: [(u16, Path); 3] =
        [(id::GENERATION, &["metadata", "generation"]), (id::SPEC, &["spec"]), (id::STATUS, &["status"])];
    numbers.iter().for_each(|(number, path)| paths.note(*number, path));
    paths
}

fn reference(paths: &mut Paths, mark: u16, path: Path) {
    paths.mark(mark, path);
    for (number, field) in [
        (id::REF_API_VERSION, "apiVersion"),
        (id::REF_KIND, "kind"),
        (id::REF_NAMESPACE, "namespace"),
        (id::REF_NAME, "name"),
        (id::REF_UID, "uid"),
    ] {
        let whole: Vec<&str> = path.iter().copied().chain([field]).collect();
        paths.add(number, &whole);
    }
}
