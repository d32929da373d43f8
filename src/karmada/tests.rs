//! The samples of Karmada's documentation, with the outcome that it states, and what is refused.
//!
//! Source: karmada.io `docs/userguide/scheduling/{propagation-policy,resource-propagating,override-policy,propagate-dependencies}`,
//! karmada `samples`.

mod overriding;
mod refusals;

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::{
    config::{CarriedKind, MemberName, Weights, load_text},
    placement::{
        capacity::Capacity,
        divided::Wholes,
        plan::{Candidate, Order, Plan, plan, tests::candidate},
        policy::{Policy, Rules, Subject},
        scheduling::PodRequirements,
    },
};
use kubefold_wire::resource::{Gvk, split_api_version};

/// Four members in two regions.
const MEMBERS: &str = "members:
- {name: member1, inCluster: true, labels: {location: us, provider: aws, region: us-east-1}}
- {name: member2, inCluster: true, labels: {location: us, provider: aws, region: us-west-1}}
- {name: member3, inCluster: true, labels: {location: eu, provider: gcp, region: us-east-1}}
- {name: member4, inCluster: true, labels: {location: eu, provider: huawei, region: us-west-1}, taints: [{key: dedicated, value: special-user}]}
kinds:
- {kind: Widget.example.com, replicasPath: .spec.replicas}
";

fn fleet() -> Config {
    load_text(MEMBERS, Path::new("clusters.yaml")).unwrap()
}

/// Reads policies; those with a namespace are in `default`.
fn objects(yaml: &str) -> Objects {
    let mut all = Objects::default();
    for document in yaml.split("\n---\n") {
        let mut policy: Value = serde_saphyr::from_str(document).unwrap();
        let kind = policy["kind"].as_str().unwrap().to_owned();
        if !kind.starts_with("Cluster") {
            policy["metadata"]["namespace"] = "default".into();
        }
        match kind.as_str() {
            "PropagationPolicy" => all.propagation.push(serde_json::from_value(policy).unwrap()),
            "ClusterPropagationPolicy" => all.cluster_propagation.push(serde_json::from_value(policy).unwrap()),
            "OverridePolicy" => all.overriding.push(serde_json::from_value(policy).unwrap()),
            "ClusterOverridePolicy" => all.cluster_overriding.push(serde_json::from_value(policy).unwrap()),
            other => panic!("{other}"),
        }
    }
    all
}

/// A policy `web` with this spec, as one line of YAML.
fn policy(spec: &str) -> String {
    format!("kind: PropagationPolicy\nmetadata: {{name: web}}\nspec: {spec}")
}

/// A policy for the ConfigMaps, which each member that is chosen gets, with this placement.
fn of_maps(placement: &str) -> String {
    policy(&format!("{{resourceSelectors: [{{apiVersion: v1, kind: ConfigMap}}], placement: {placement}}}"))
}

/// A policy for the Deployments with this placement.
fn of_deployments(placement: &str) -> String {
    policy(&format!("{{resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}], placement: {placement}}}"))
}

fn rules(yaml: &str) -> Rules {
    let config = fleet();
    let compiled = compile(&objects(yaml), Fleet::from(&config));
    assert_eq!(compiled.refused, []);
    Rules::new(&Config { policies: compiled.policies, overrides: compiled.overrides, ..config })
}

/// What is refused of a policy: field and sentence.
fn refused(yaml: &str) -> Vec<String> {
    let config = fleet();
    let compiled = compile(&objects(yaml), Fleet::from(&config));
    compiled.refused.iter().flat_map(|one| &one.causes).map(Cause::text).collect()
}

fn object(api_version: &str, kind: &str, replicas: Option<u32>) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": "nginx", "namespace": "default", "labels": {"app": "nginx"}},
    });
    if let Some(replicas) = replicas {
        let pod = json!({"spec": {"containers": [{"name": "nginx", "image": "nginx"}]}});
        object["spec"] = json!({"replicas": replicas, "template": pod});
    }
    object
}

fn nginx(replicas: u32) -> Value {
    object("apps/v1", "Deployment", Some(replicas))
}

fn config_map() -> Value {
    object("v1", "ConfigMap", None)
}

/// The policy that holds for an object.
fn policy_of(rules: &Rules, object: &Value) -> Policy {
    let (group, version) = split_api_version(object["apiVersion"].as_str().unwrap()).unwrap();
    let gvk = Gvk::new(group, version, object["kind"].as_str().unwrap());
    let labels = object["metadata"]["labels"].to_string();
    let subject = Subject {
        gvk: &gvk,
        namespace: object["metadata"]["namespace"].as_str().unwrap_or_default(),
        name: object["metadata"]["name"].as_str().unwrap(),
        labels: Some(&labels),
        annotations: None,
        shared: false,
        policy: None,
    };
    rules.rule_for(&subject).unwrap()
}

/// The members, with room for so many replicas each.
fn candidates(room: [u32; 4]) -> Vec<Candidate> {
    let with_room = |(name, replicas): (&str, u32)| Candidate {
        capacity: Some(Capacity { replicas, ..Capacity::default() }),
        ..candidate(name, 1)
    };
    ["member1", "member2", "member3", "member4"].into_iter().zip(room).map(with_room).collect()
}

fn planned(rules: &Rules, object: &Value, candidates: &[Candidate]) -> Result<Plan, String> {
    let policy = policy_of(rules, object);
    let (group, version) = split_api_version(object["apiVersion"].as_str().unwrap()).unwrap();
    let gvk = Gvk::new(group, version, object["kind"].as_str().unwrap());
    let body = object.to_string();
    let wholes = Wholes::read(rules.kinds().division(&gvk), &body).unwrap();
    let pod = PodRequirements::of(group, &gvk.kind, &body).unwrap();
    let order = Order {
        uid: "u",
        policy: &policy,
        wholes: &wholes,
        pod: pod.as_ref(),
        sticky: None,
        drawn: None,
        orphans: None,
        claims: &[],
        companion: None,
        is_revision: false,
    };
    plan(&order, candidates).map_err(|error| error.to_string())
}

/// The members that get a part, with its replicas.
fn parts_in(rules: &Rules, object: &Value, room: [u32; 4]) -> Result<Vec<(String, u32)>, String> {
    let plan = planned(rules, object, &candidates(room))?;
    let made = plan.targets.iter().filter(|target| target.made);
    let mut parts: Vec<_> =
        made.map(|target| (target.member.to_string(), target.share().unwrap_or_default())).collect();
    parts.sort();
    Ok(parts)
}

fn parts(rules: &Rules, object: &Value) -> Vec<(String, u32)> {
    parts_in(rules, object, [100; 4]).unwrap()
}

/// The members that get a part.
fn members(rules: &Rules, object: &Value) -> Vec<String> {
    parts(rules, object).into_iter().map(|(member, _)| member).collect()
}

fn of(parts: &[(&str, u32)]) -> Vec<(String, u32)> {
    parts.iter().map(|(member, share)| ((*member).to_owned(), *share)).collect()
}

#[test]
fn a_deployment_goes_to_the_cluster_that_is_named_and_after_a_change_to_the_other() {
    let to = |member: &str| {
        policy(&format!(
            "{{resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: nginx}}], \
             placement: {{clusterAffinity: {{clusterNames: [{member}]}}}}}}"
        ))
    };
    let first = rules(&to("member1"));
    assert_eq!(parts(&first, &nginx(2)), of(&[("member1", 2)]));
    assert_eq!(parts(&rules(&to("member2")), &nginx(2)), of(&[("member2", 2)]));
    // Karmada moves it at once, and a later scale stays there.
    let policy = policy_of(&first, &nginx(2));
    assert_eq!(policy.name.as_deref(), Some("propagationpolicy/default/web"));
    assert_eq!(policy.rebalance.unwrap().threshold, 0);
    let mut other = nginx(2);
    other["metadata"]["name"] = "other".into();
    assert_eq!(policy_of(&first, &other).name, None, "another name");
    let mut elsewhere = nginx(2);
    elsewhere["metadata"]["namespace"] = "shop".into();
    assert_eq!(policy_of(&first, &elsewhere).name, None, "another namespace");
}

#[test]
fn cluster_affinities_are_what_karmada_says() {
    let chosen = |affinity: &str| members(&rules(&of_maps(&format!("{{clusterAffinity: {affinity}}}"))), &config_map());
    assert_eq!(chosen("{labelSelector: {matchLabels: {location: us}}}"), ["member1", "member2"]);
    let expression = "{labelSelector: {matchExpressions: [{key: location, operator: In, values: [us]}]}}";
    assert_eq!(chosen(expression), ["member1", "member2"]);
    let fields = "{fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [aws]}, \
                  {key: region, operator: NotIn, values: [us-west-1]}]}}";
    assert_eq!(chosen(fields), ["member1"]);
    assert_eq!(chosen("{clusterNames: [member1, member2]}"), ["member1", "member2"]);
    assert_eq!(chosen("{exclude: [member1, member3]}"), ["member2", "member4"]);
    let all =
        "{clusterNames: [member1, member2, gone], exclude: [member1], labelSelector: {matchLabels: {location: us}}}";
    assert_eq!(chosen(all), ["member2"], "all that is given must hold");
    assert_eq!(members(&rules(&of_maps("{}")), &config_map()).len(), 4);
}

#[test]
fn a_group_of_clusters_takes_what_the_one_before_cannot() {
    let by_room = "replicaScheduling: {replicaDivisionPreference: Weighted, \
                   weightPreference: {dynamicWeight: AvailableReplicas}}";
    let affinities = |backup: &str| {
        of_deployments(&format!(
            "{{clusterAffinities: [{{affinityName: primary, clusterNames: [member1]}}, \
             {{affinityName: backup, clusterNames: [{backup}]}}], {by_room}}}"
        ))
    };
    let apart = rules(&affinities("member2, member3"));
    assert_eq!(parts_in(&apart, &nginx(4), [4, 9, 9, 0]).unwrap(), of(&[("member1", 4)]));
    assert_eq!(parts_in(&apart, &nginx(6), [4, 9, 9, 0]).unwrap(), of(&[("member2", 3), ("member3", 3)]));
    // A cluster may be in both.
    let both = rules(&affinities("member1, member2"));
    assert_eq!(parts_in(&both, &nginx(8), [4, 4, 9, 9]).unwrap(), of(&[("member1", 4), ("member2", 4)]));
    let plan = planned(&both, &nginx(8), &candidates([4, 4, 9, 9])).unwrap();
    assert!(!plan.left_out.iter().any(|(member, _)| member.as_str() == "member1"), "{:?}", plan.left_out);
    let error = parts_in(&both, &nginx(9), [4, 4, 9, 9]).unwrap_err();
    assert!(error.starts_with("no group of policy propagationpolicy/default/web can take it"), "{error}");
}

#[test]
fn a_tainted_cluster_gets_what_tolerates_it() {
    let divided = "replicaScheduling: {replicaSchedulingType: Divided}";
    assert_eq!(parts(&rules(&of_deployments(&format!("{{{divided}}}"))), &nginx(6)).len(), 3);
    let tolerating =
        format!("{{clusterTolerations: [{{key: dedicated, value: special-user, effect: NoSchedule}}], {divided}}}");
    assert_eq!(parts(&rules(&of_deployments(&tolerating)), &nginx(8)).len(), 4);
}

#[test]
fn spread_constraints_pick_clusters_of_regions() {
    // Two regions, two clusters: one in each.
    let both = |clusters: u32| {
        of_maps(&format!(
            "{{replicaScheduling: {{replicaSchedulingType: Duplicated}}, spreadConstraints: \
             [{{spreadByField: region, maxGroups: 2, minGroups: 2}}, \
             {{spreadByField: cluster, maxGroups: {clusters}, minGroups: {clusters}}}]}}"
        ))
    };
    assert_eq!(members(&rules(&both(2)), &config_map()), ["member1", "member2"]);
    assert_eq!(members(&rules(&both(3)), &config_map()), ["member1", "member2", "member3"]);
    let only = |constraint: &str| of_maps(&format!("{{spreadConstraints: [{constraint}]}}"));
    assert_eq!(members(&rules(&only("{maxGroups: 2, minGroups: 2}")), &config_map()), ["member1", "member2"]);
    let by_label = rules(&only("{spreadByLabel: location, minGroups: 2, maxGroups: 2}"));
    assert_eq!(members(&by_label, &config_map()).len(), 4, "two groups, and all of their members");
    let too_many = rules(&only("{spreadByLabel: location, minGroups: 3}"));
    let error = parts_in(&too_many, &config_map(), [1; 4]).unwrap_err();
    assert!(error.contains("at least 3 groups of the member label location, and 2 can take it"), "{error}");
    let five = rules(&only("{spreadByField: cluster, minGroups: 5}"));
    let error = parts_in(&five, &config_map(), [1; 4]).unwrap_err();
    assert_eq!(error, "policy propagationpolicy/default/web picks at least 5 members, and 4 can take it");
    // What is divided goes where most fits.
    let one = "{spreadConstraints: [{spreadByField: cluster, maxGroups: 1}], replicaScheduling: \
               {replicaDivisionPreference: Weighted, weightPreference: {dynamicWeight: AvailableReplicas}}}";
    assert_eq!(parts_in(&rules(&of_deployments(one)), &nginx(3), [2, 5, 4, 9]).unwrap(), of(&[("member2", 3)]));
}

#[test]
fn static_weights_divide_replicas() {
    let weighted = |second: u32, rest: &str| {
        of_deployments(&format!(
            "{{replicaScheduling: {{replicaDivisionPreference: Weighted, replicaSchedulingType: Divided, weightPreference: \
             {{staticWeightList: [{{targetCluster: {{clusterNames: [member1]}}, weight: 1}}, \
             {{targetCluster: {{clusterNames: [member2]}}, weight: {second}}}]}}}}{rest}}}"
        ))
    };
    assert_eq!(parts(&rules(&weighted(1, "")), &nginx(4)), of(&[("member1", 2), ("member2", 2)]));
    assert_eq!(parts(&rules(&weighted(2, "")), &nginx(3)), of(&[("member1", 1), ("member2", 2)]));
    let spread = ", clusterAffinity: {clusterNames: [member1, member2]}, \
                  spreadConstraints: [{spreadByField: cluster, maxGroups: 2, minGroups: 2}]";
    let (config, yaml) = (fleet(), weighted(2, spread));
    assert_eq!(parts(&rules(&yaml), &nginx(3)), of(&[("member1", 1), ("member2", 2)]));
    let all = objects(&yaml);
    let checked = check_propagation(&all.propagation[0].metadata, &all.propagation[0].spec, Fleet::from(&config));
    assert_eq!(checked.warnings, ["spec.placement.spreadConstraints has no effect with static weights"]);
    let even = "{replicaScheduling: {replicaDivisionPreference: Weighted}, clusterAffinity: {clusterNames: [member1, member3]}}";
    assert_eq!(parts(&rules(&of_deployments(even)), &nginx(4)), of(&[("member1", 2), ("member3", 2)]));
}

#[test]
fn available_replicas_are_weights_and_aggregated_takes_the_fewest() {
    let scheduling = |text: &str| {
        rules(&of_deployments(&format!("{{clusterAffinity: {{exclude: [member4]}}, replicaScheduling: {{{text}}}}}")))
    };
    let dynamic =
        scheduling("replicaDivisionPreference: Weighted, weightPreference: {dynamicWeight: AvailableReplicas}");
    let divided = parts_in(&dynamic, &nginx(12), [6, 12, 18, 0]).unwrap();
    assert_eq!(divided, of(&[("member1", 2), ("member2", 4), ("member3", 6)]));
    assert!(parts_in(&dynamic, &nginx(40), [6, 12, 18, 0]).unwrap_err().starts_with("only 36 of 40 fit"));
    let aggregated = scheduling("replicaDivisionPreference: Aggregated");
    assert_eq!(parts_in(&aggregated, &nginx(12), [6, 12, 18, 0]).unwrap(), of(&[("member3", 12)]));
    let two = parts_in(&aggregated, &nginx(10), [8, 8, 1, 0]).unwrap();
    assert_eq!(two, of(&[("member1", 5), ("member2", 5)]));
    let policy = policy_of(&aggregated, &nginx(1));
    assert_eq!((policy.weights, policy.fewest, policy.rebalance.unwrap().threshold), (Weights::Capacity, true, 20));
}

#[test]
fn dependencies_come_along() {
    let spec = "{propagateDeps: true, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: nginx}], \
                placement: {clusterAffinity: {clusterNames: [member1, member2]}, replicaScheduling: \
                {replicaDivisionPreference: Weighted, replicaSchedulingType: Divided}}}";
    let rules = rules(&policy(spec));
    assert_eq!(parts(&rules, &nginx(2)), of(&[("member1", 1), ("member2", 1)]));
    assert_eq!(policy_of(&rules, &nginx(2)).carry, [CarriedKind::ConfigMap, CarriedKind::Secret]);
}

/// A policy that sends the selected objects to one member.
fn sending(kind: &str, name: &str, selector: &str, to: &str) -> String {
    format!(
        "kind: {kind}\nmetadata: {{name: {name}}}\nspec: {{resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment{selector}}}], \
         placement: {{clusterAffinity: {{clusterNames: [{to}]}}}}"
    )
}

#[test]
fn priorities_choose_the_policy() {
    let (labels, named) = (", labelSelector: {matchLabels: {app: nginx}}", ", name: nginx");
    let one = |name: &str, selector: &str, to: &str, priority: Option<i32>| {
        let priority = priority.map(|priority| format!(", priority: {priority}")).unwrap_or_default();
        sending("PropagationPolicy", name, selector, to) + &priority + "}"
    };
    let chosen = |policies: &[String]| members(&rules(&policies.join("\n---\n")), &nginx(1));
    let explicit =
        [one("a", labels, "member3", None), one("b", labels, "member2", Some(1)), one("c", labels, "member1", Some(2))];
    assert_eq!(chosen(&explicit), ["member1"]);
    let implicit = [one("a", "", "member1", None), one("b", labels, "member2", None), one("c", named, "member3", None)];
    assert_eq!(chosen(&implicit), ["member3"], "by name before by labels before by kind");
    assert_eq!(chosen(&implicit[..2]), ["member2"]);
    let same = [one("labels", labels, "member1", Some(3)), one("name", named, "member3", Some(3))];
    assert_eq!(chosen(&same), ["member3"]);
    let alphabetical =
        [one("propagation-b-higher", named, "member1", Some(3)), one("propagation-a-lower", named, "member2", Some(3))];
    assert_eq!(chosen(&alphabetical), ["member2"]);
    // A higher priority counts before a more precise selector, and a namespaced policy before both.
    assert_eq!(chosen(&[one("a", named, "member1", Some(5)), one("b", "", "member2", Some(10))]), ["member2"]);
    let cluster = sending("ClusterPropagationPolicy", "z", named, "member2") + ", priority: 9}";
    assert_eq!(chosen(&[cluster.clone(), one("a", "", "member1", None)]), ["member1"]);
    assert_eq!(chosen(&[cluster]), ["member2"], "in every namespace");
}

#[test]
fn what_has_no_replicas_goes_to_each_chosen_cluster() {
    let spec = "{resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: Service}, \
                {apiVersion: v1, kind: Pod}, {apiVersion: example.com/v1, kind: Gadget}, {apiVersion: example.com/v1, kind: Widget}], \
                placement: {clusterAffinity: {clusterNames: [member1, member2]}, replicaScheduling: {}}}";
    let rules = rules(&policy(spec));
    assert_eq!(parts(&rules, &nginx(4)), of(&[("member1", 2), ("member2", 2)]));
    for (api_version, kind) in [("v1", "Service"), ("example.com/v1", "Gadget")] {
        assert_eq!(members(&rules, &object(api_version, kind, None)), ["member1", "member2"], "{kind}");
    }
    assert_eq!(members(&rules, &object("v1", "Pod", None)).len(), 1, "one replica");
    let widget = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
                        "spec": {"replicas": 4}});
    assert_eq!(parts(&rules, &widget), of(&[("member1", 2), ("member2", 2)]), "in every version");
}

#[test]
fn a_cluster_that_is_lost_is_left_after_its_toleration() {
    let failover = |tolerations: &str| {
        let yaml = policy(&format!(
            "{{resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}], failover: {{cluster: {{purgeMode: Gracefully}}}}, \
             placement: {{clusterTolerations: [{tolerations}], replicaScheduling: {{}}}}}}"
        ));
        policy_of(&rules(&yaml), &nginx(1)).failover.unwrap()
    };
    assert_eq!(failover("").after.as_secs(), 300);
    let soon = "{key: cluster.karmada.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 60}";
    let soon = failover(soon);
    assert_eq!((soon.after.as_secs(), soon.force), (60, false));
}

#[test]
fn a_lazy_policy_moves_nothing() {
    let lazy = policy(
        "{activationPreference: Lazy, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], \
         placement: {clusterAffinity: {clusterNames: [member1]}}}",
    );
    assert_eq!(policy_of(&rules(&lazy), &nginx(1)).rebalance, None);
}

#[test]
fn what_no_policy_selects_is_placed_by_default_or_refused() {
    let named = sending("PropagationPolicy", "web", ", name: other", "member1") + "}";
    let mut config = fleet();
    config.policies = compile(&objects(&named), Fleet::from(&config)).policies;
    let admitted = |config: &Config| {
        let rules = Rules::new(config);
        rules.admit(&policy_of(&rules, &nginx(1))).map_err(|error| error.to_string())
    };
    assert_eq!(admitted(&config), Ok(()));
    config.unmatched = crate::config::Unmatched::Refuse;
    assert_eq!(
        admitted(&config).unwrap_err(),
        "metadata: Forbidden: no policy selects it, and the configuration says `unmatched: refuse`; have a policy select it, or name \
         one in the annotation kubefold.io/placement-policy: use one of: propagationpolicy/default/web"
    );
    config.policies.clear();
    assert!(admitted(&config).unwrap_err().ends_with("placement-policy: none is configured"));
}
