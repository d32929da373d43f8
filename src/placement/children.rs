//! What controllers make of placed objects and mark by a label alone.
//!
//! The endpoints controller gives the Endpoints of a Service the Service's labels, the marker's label among them, and no
//! annotations. So an Endpoints object that has the label is the Service's, and nothing tells in which members there are
//! others: those of one name and label are one object.
//!
//! Source: kubernetes `pkg/controller/endpoint/endpoints_controller.go` `syncService`.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    config::MemberName,
    placement::marker::{Marker, placement_uid},
};
use kubefold_wire::resource::{Gvk, Gvr};

/// Says whether the objects of a resource get the labels of the objects that they are made of.
pub fn are_labelled(gvr: &Gvr) -> bool {
    gvr.group.is_empty() && &*gvr.resource == "endpoints"
}

impl Marker {
    /// The marker of an object of a kind whose objects [`are_labelled`], by its labels. It names its own place alone.
    pub fn of_labelled(
        labels_json: &str,
        gvk: &Gvk,
        namespace: &str,
        name: &str,
        member: &MemberName,
        cluster_uid: &str,
    ) -> Option<Self> {
        let placement = Uuid::parse_str(&placement_uid(labels_json)?).ok()?;
        Some(Self {
            uid: Uuid::new_v5(&placement, format!("{}/{}/{name}", gvk.group, gvk.kind).as_bytes()).to_string(),
            group: gvk.group.to_string(),
            kind: gvk.kind.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            member: member.clone(),
            members: Arc::new([(member.clone(), cluster_uid.to_owned())]),
            made: 1,
            policy: None,
            is_child: true,
        })
    }

    /// Says whether the marker names its own place alone: other parts are known by its UID.
    pub fn is_of_labels(&self) -> bool {
        self.is_child && self.group.is_empty() && self.kind == "Endpoints"
    }
}
