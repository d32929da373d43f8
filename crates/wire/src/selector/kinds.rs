//! The closed table of fields that Kubernetes itself selects by, where its answer is not what stands in the object's JSON
//! under that name.
//!
//! Source: kubernetes 1.36 `pkg/apis/*/*/conversion.go` (`AddFieldLabelConversionFunc`) for the names, and
//! `pkg/registry/*/*/strategy.go` (`ToSelectableFields`) for the values. The fields that are missing here are what their
//! path says, and empty where it leads to nothing: of pods `spec.nodeName`, `spec.restartPolicy`, `spec.schedulerName`,
//! `spec.serviceAccountName`, `status.phase`, `status.podIP`, `status.nominatedNodeName`; of events `involvedObject.*`,
//! `reason`, `type`, `reportingComponent` (in `events.k8s.io` `regarding.*`, `reason`, `type`, `reportingController`); of
//! secrets `type`; of namespaces `status.phase`; of services `spec.clusterIP`, `spec.type`; of certificate signing requests
//! and cluster trust bundles `spec.signerName`; of pod certificate requests `spec.signerName`, `spec.podName`,
//! `spec.nodeName`; of resource slices `spec.nodeName`, `spec.driver`; the `selectableFields` of custom resources.

/// How a selectable field's value comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The first of these paths that leads to a text which is not empty. None of them: always empty.
    pub(super) paths: &'static [&'static str],
    /// The value where there is none.
    pub(super) unset: &'static str,
}

const fn field(paths: &'static [&'static str], unset: &'static str) -> Field {
    Field { paths, unset }
}

/// The field of that label in objects of that resource, in any of its versions.
pub(super) fn field_of(group: &str, resource: &str, label: &str) -> Option<Field> {
    let known = match (group, resource, label) {
        // What clients of a time before v1 send.
        ("", "pods", "spec.host") => field(&["spec.nodeName"], ""),
        ("", "pods", "spec.hostNetwork") => field(&["spec.hostNetwork"], "false"),
        // Accepted, and never filled in.
        ("", "pods", "status.podIPs") => field(&[], ""),
        ("", "events", "source") => field(&["source.component", "reportingComponent"], ""),
        ("", "nodes", "spec.unschedulable") => field(&["spec.unschedulable"], "false"),
        ("", "replicationcontrollers", "status.replicas") | ("apps", "replicasets", "status.replicas") => {
            field(&["status.replicas"], "0")
        }
        ("batch", "jobs", "status.successful") => field(&["status.succeeded"], "0"),
        _ => return None,
    };
    Some(known)
}

/// The labels that name what an event is about, with those of its UID.
pub(super) fn joins_of(group: &str, resource: &str) -> Option<(&'static str, &'static str)> {
    match (group, resource) {
        ("", "events") => Some(("involvedObject.name", "involvedObject.uid")),
        ("events.k8s.io", "events") => Some(("regarding.name", "regarding.uid")),
        _ => None,
    }
}
