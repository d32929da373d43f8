//! What is refused, by field.

use super::*;

#[allow(clippy::too_many_lines, reason = "a table")]
#[test]
fn what_is_not_honoured_is_refused_by_field() {
    let of_spec = |rest: &str| {
        refused(&policy(&format!(
            "{{resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}], placement: {{clusterAffinity: \
             {{clusterNames: [member1]}}}}, {rest}}}"
        )))
    };
    let of_placement = |placement: &str| refused(&of_maps(&format!("{{{placement}}}")));
    for (spec, field) in [
        ("association: true", "spec.association"),
        ("preemption: Always", "spec.preemption"),
        ("dependentOverrides: [mirror]", "spec.dependentOverrides"),
        ("schedulerName: mine", "spec.schedulerName"),
        ("conflictResolution: Overwrite", "spec.conflictResolution"),
        ("suspension: {dispatching: true}", "spec.suspension"),
        ("suspension: {dispatchingOnClusters: {clusterNames: [member1]}}", "spec.suspension"),
        ("preserveResourcesOnDeletion: true", "spec.preserveResourcesOnDeletion"),
        (
            "schedulePriority: {priorityClassSource: KubePriorityClass, priorityClassName: high}",
            "spec.schedulePriority",
        ),
        ("failover: {application: {decisionConditions: {tolerationSeconds: 3}}}", "spec.failover.application"),
        ("failover: {cluster: {purgeMode: Directly}}", "spec.failover.cluster.purgeMode"),
        ("failover: {cluster: {statePreservation: {rules: []}}}", "spec.failover.cluster.statePreservation"),
    ] {
        let causes = of_spec(spec);
        assert_eq!(causes.len(), 1, "{spec}: {causes:?}");
        assert!(causes[0].starts_with(&format!("{field}: ")), "{spec}: {causes:?}");
    }
    for taken in [
        "association: false",
        "preemption: Never",
        "schedulerName: default-scheduler",
        "conflictResolution: Abort",
        "suspension: {dispatching: false}",
        "preserveResourcesOnDeletion: false",
    ] {
        assert_eq!(of_spec(taken), Vec::<String>::new(), "{taken}");
    }
    let at = "spec.placement";
    for (placement, field) in [
        ("workloadAffinity: {affinity: {groupByLabelKey: app.group}}", format!("{at}.workloadAffinity")),
        ("clusterTolerations: [{key: a, effect: PreferNoSchedule}]", format!("{at}.clusterTolerations[0].effect")),
        ("clusterTolerations: [{value: a}]", format!("{at}.clusterTolerations[0].operator")),
        ("clusterTolerations: [{key: a, tolerationSeconds: 3}]", format!("{at}.clusterTolerations[0].effect")),
        ("clusterTolerations: [{key: a, operator: Lt}]", format!("{at}.clusterTolerations[0].operator")),
        (
            "clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: Exists}]}}",
            format!("{at}.clusterAffinity.fieldSelector.matchExpressions[0].operator"),
        ),
        (
            "clusterAffinity: {fieldSelector: {matchExpressions: [{key: tier, operator: In, values: [a]}]}}",
            format!("{at}.clusterAffinity.fieldSelector.matchExpressions[0].key"),
        ),
        (
            "clusterAffinity: {labelSelector: {matchExpressions: [{key: a, operator: In}]}}",
            format!("{at}.clusterAffinity.labelSelector.matchExpressions[0].values"),
        ),
        ("clusterAffinity: {}, clusterAffinities: [{affinityName: a}]", format!("{at}.clusterAffinity")),
        (
            "clusterAffinities: [{affinityName: a}, {affinityName: a}]",
            format!("{at}.clusterAffinities[1].affinityName"),
        ),
        ("spreadConstraints: [{spreadByField: region, maxGroups: 2}]", format!("{at}.spreadConstraints")),
        (
            "spreadConstraints: [{spreadByField: cluster, spreadByLabel: a}]",
            format!("{at}.spreadConstraints[0].spreadByLabel"),
        ),
        ("spreadConstraints: [{maxGroups: 1, minGroups: 2}]", format!("{at}.spreadConstraints[0].maxGroups")),
        ("spreadConstraints: [{maxGroups: 1}, {maxGroups: 2}]", format!("{at}.spreadConstraints[1]")),
        ("spreadConstraints: [{spreadByLabel: a}, {spreadByLabel: b}]", format!("{at}.spreadConstraints")),
        (
            "spreadConstraints: [{maxGroups: 2}], replicaScheduling: {replicaDivisionPreference: Aggregated}",
            format!("{at}.spreadConstraints"),
        ),
        (
            "replicaScheduling: {replicaDivisionPreference: Aggregated, weightPreference: {}}",
            format!("{at}.replicaScheduling.weightPreference"),
        ),
        (
            "replicaScheduling: {weightPreference: {staticWeightList: [{targetCluster: {}, weight: 0}]}}",
            format!("{at}.replicaScheduling.weightPreference.staticWeightList[0].weight"),
        ),
    ] {
        let causes = of_placement(placement);
        let own: Vec<_> = causes.iter().filter(|cause| cause.starts_with(&format!("{field}: "))).collect();
        assert!(!own.is_empty(), "{placement}: {causes:?}");
    }
}

#[test]
fn replicas_are_not_duplicated_to_several_clusters() {
    let duplicated = "{clusterAffinity: {clusterNames: [member1, member2]}}";
    assert_eq!(
        refused(&of_deployments(duplicated)),
        [
            "spec.placement.replicaScheduling: Forbidden: a Deployment cannot be duplicated: the fleet view shows the sum over its \
          parts, so that applying it again would shrink them; use divide, with min for a number in each member; say \
          replicaSchedulingType: Divided, or choose one cluster (spec.placement.clusterAffinity) for Deployment"
        ]
    );
    let one =
        "{spreadConstraints: [{maxGroups: 1, minGroups: 1}], clusterAffinity: {clusterNames: [member1, member2]}}";
    assert_eq!(parts(&rules(&of_deployments(one)), &nginx(3)), of(&[("member1", 3)]));
    let lease = |cluster: &str| {
        policy(&format!(
            "{{resourceSelectors: [{{apiVersion: coordination.k8s.io/v1, kind: Lease}}], placement: {{clusterAffinity: \
             {{clusterNames: [{cluster}]}}}}}}"
        ))
    };
    assert_eq!(refused(&lease("member1, member2")).len(), 1);
    assert_eq!(members(&rules(&lease("member1")), &object("coordination.k8s.io/v1", "Lease", None)), ["member1"]);
}

#[test]
fn selectors_are_checked() {
    let of_selector =
        |selector: &str| refused(&policy(&format!("{{resourceSelectors: [{selector}], placement: {{}}}}")));
    let map = "apiVersion: v1, kind: ConfigMap";
    assert_eq!(
        of_selector(&format!("{{{map}, namespace: shop}}")),
        [
            "spec.resourceSelectors[0].namespace: Invalid value: \"shop\": the policy is in the namespace default, and selects objects \
          of it alone"
        ]
    );
    let wrong = of_selector("{apiVersion: a/b/c, kind: ConfigMap}");
    assert!(wrong[0].starts_with("spec.resourceSelectors[0].apiVersion: Invalid value: "), "{wrong:?}");
    let none = refused(&policy("{resourceSelectors: []}"));
    assert!(none[0].starts_with("spec.resourceSelectors: Required value"), "{none:?}");
    // What every member has is not chosen for.
    let definition = |placement: &str| {
        format!(
            "kind: ClusterPropagationPolicy\nmetadata: {{name: crd}}\nspec: {{resourceSelectors: [{{apiVersion: \
             apiextensions.k8s.io/v1, kind: CustomResourceDefinition, name: guestbooks.webapp.my.domain}}], placement: {placement}}}"
        )
    };
    assert_eq!(
        refused(&definition("{clusterAffinity: {clusterNames: [member1]}}")),
        [
            "spec.resourceSelectors[0]: Forbidden: every member has each CustomResourceDefinition: leave it out, or choose all members"
        ]
    );
    assert_eq!(refused(&definition("{}")), Vec::<String>::new());
}
