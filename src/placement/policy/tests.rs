//! Which policy holds for which object.

use std::fs;

use super::*;

const FLEET: &str = "members:
- {name: east, inCluster: true, labels: {region: eu, tier: gold}}
- {name: west, inCluster: true, labels: {region: us}, taints: [{key: gpu}]}
- {name: north, inCluster: true}
";

fn rules(policies: &str) -> Rules {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clusters.yaml");
    fs::write(&file, format!("{FLEET}{policies}")).unwrap();
    Rules::new(&crate::config::load(&file).unwrap())
}

fn gvk(group: &str, kind: &str) -> Gvk {
    Gvk::new(group, "v1", kind)
}

fn subject<'a>(gvk: &'a Gvk, namespace: &'a str) -> Subject<'a> {
    Subject { gvk, namespace, name: "web", labels: None, annotations: None, shared: false, policy: None }
}

fn excluded(policy: &Policy) -> Vec<(&str, &str)> {
    policy.terms.iter().filter_map(|(name, terms)| Some((name.as_str(), terms.excluded.as_deref()?))).collect()
}

#[test]
fn defaults_are_those_of_the_design() {
    let rules = rules("");
    let strategy = |group: &str, kind: &str, namespace: &str| {
        rules.rule_for(&subject(&gvk(group, kind), namespace)).unwrap().strategy
    };
    assert_eq!(strategy("apps", "Deployment", "a"), Strategy::Divide);
    for (group, kind) in [
        ("", "ConfigMap"),
        ("", "Secret"),
        ("", "Service"),
        ("", "ServiceAccount"),
        ("", "ResourceQuota"),
        ("", "LimitRange"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
        ("networking.k8s.io", "Ingress"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("apps", "DaemonSet"),
    ] {
        assert_eq!(strategy(group, kind, "a"), Strategy::Duplicate, "{kind}");
    }
    // Their integers divide; their parts are in every member all the same.
    assert_eq!(strategy("policy", "PodDisruptionBudget", "a"), Strategy::Divide);
    assert_eq!(strategy("autoscaling", "HorizontalPodAutoscaler", "a"), Strategy::Divide);
    for (group, kind) in [
        ("", "Pod"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("apps", "StatefulSet"),
        ("apps", "ReplicaSet"),
        ("", "ReplicationController"),
        ("", "PersistentVolumeClaim"),
        ("coordination.k8s.io", "Lease"),
        ("", "Endpoints"),
        ("example.com", "Widget"),
        ("example.com", "Service"),
    ] {
        assert_eq!(strategy(group, kind, "a"), Strategy::One, "{kind}");
    }
    for (group, kind) in [("scheduling.k8s.io", "PriorityClass"), ("rbac.authorization.k8s.io", "ClusterRole")] {
        assert_eq!(strategy(group, kind, ""), Strategy::Duplicate, "{kind}");
    }
    for (group, kind) in [
        ("", "Node"),
        ("", "PersistentVolume"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("example.com", "Big"),
    ] {
        assert_eq!(strategy(group, kind, ""), Strategy::One, "{kind}");
    }
}

#[test]
fn the_first_that_matches_holds() {
    let rules = rules(
        "policies:
- {name: gold, match: {labels: tier=gold}, strategy: one}
- {name: teams, match: {kinds: [Deployment], namespaces: [\"team-*\"]}, members: [east]}
- {name: shop, match: {namespaces: [shop], annotations: {a: b}}, memberSelector: region in (eu)}
- {name: widgets, match: {kinds: [Widget.example.com]}, strategy: duplicate}
- {name: everything, match: {namespaces: [\"*\"]}, max: 3}
- {name: hidden, strategy: divide}
",
    );
    let deployment = gvk("apps", "Deployment");
    let chosen = |subject: Subject<'_>| rules.rule_for(&subject).unwrap().name.unwrap_or_default();
    let plain = subject(&deployment, "default");
    assert_eq!(chosen(Subject { labels: Some(r#"{"tier":"gold"}"#), ..plain }), "gold");
    assert_eq!(chosen(subject(&deployment, "team-a")), "teams");
    assert_eq!(chosen(subject(&gvk("", "Pod"), "team-a")), "everything");
    assert_eq!(chosen(Subject { annotations: Some(r#"{"a":"b"}"#), ..subject(&deployment, "shop") }), "shop");
    assert_eq!(chosen(subject(&deployment, "shop")), "everything");
    assert_eq!(chosen(subject(&gvk("example.com", "Widget"), "shop")), "widgets");
    assert_eq!(chosen(subject(&gvk("other.com", "Widget"), "shop")), "everything");
    assert_eq!(chosen(subject(&gvk("example.com", "Deployment"), "team-a")), "everything", "not the built-in kind");
    assert_eq!(chosen(subject(&gvk("", "Node"), "")), "", "it is in no namespace");
    assert_eq!(chosen(Subject { policy: Some("hidden"), ..plain }), "hidden", "as its marker says");
    assert_eq!(chosen(Subject { policy: Some("gone"), ..plain }), "everything");
    let teams = rules.rule_for(&subject(&deployment, "team-a")).unwrap();
    assert_eq!(teams.strategy, Strategy::Divide, "the default of the kind");
    let why = "policy teams does not place there";
    assert_eq!(excluded(&teams), [("north", why), ("west", why)]);
}

#[test]
fn an_object_may_name_its_policy_and_its_members() {
    let rules = rules("policies:\n- {name: small, strategy: one}\n- {name: split, strategy: divide}\n");
    let deployment = gvk("apps", "Deployment");
    let asked =
        |annotations: &str| rules.rule_for(&Subject { annotations: Some(annotations), ..subject(&deployment, "a") });
    let refused = |annotations: &str| asked(annotations).unwrap_err().to_string();
    let small = asked(r#"{"kubefold.io/placement-policy":"small"}"#).unwrap();
    assert_eq!((small.name.as_deref(), small.strategy), (Some("small"), Strategy::One));
    let on = |text: &str| format!(r#"{{"kubefold.io/place-on":"{text}"}}"#);
    let named = asked(&on("east, west")).unwrap();
    assert_eq!(excluded(&named), [("north", "the object is to be placed on east, west")]);
    for (selector, out) in [
        ("region in (eu,us)", vec!["north"]),
        ("region=eu", vec!["north", "west"]),
        ("!tier", vec!["east"]),
        ("kubefold.io/cluster in (west)", vec!["east", "north"]),
    ] {
        let policy = asked(&on(selector)).unwrap();
        assert_eq!(excluded(&policy).iter().map(|(member, _)| *member).collect::<Vec<_>>(), out, "{selector}");
    }
    assert_eq!(
        refused(r#"{"kubefold.io/placement-policy":"large"}"#),
        "metadata.annotations[kubefold.io/placement-policy]: Invalid value: \"large\": there is no such policy; use one \
         of: small, split"
    );
    assert_eq!(
        refused(&on("east,south")),
        "metadata.annotations[kubefold.io/place-on]: Invalid value: \"east,south\": there is no member \"south\"; the \
         members are east, west, north"
    );
    assert!(refused(&on("region in eu")).ends_with("unable to parse requirement: found 'eu' expected: '('"));
    assert!(refused(&on("")).contains("Invalid value: \"\": write members (east, west, north) or a selector"));
    let map = gvk("", "ConfigMap");
    let unfit = Subject { annotations: Some(r#"{"kubefold.io/placement-policy":"split"}"#), ..subject(&map, "a") };
    assert_eq!(
        rules.rule_for(&unfit).unwrap_err().to_string(),
        "placement policy \"split\" does not fit: a ConfigMap has nothing to divide"
    );
}

#[test]
fn what_every_cluster_has_is_placed_by_nothing() {
    let rules = rules("policies:\n- {name: all, match: {kinds: [Namespace]}, strategy: one}\n");
    let namespace = gvk("", "Namespace");
    let shared = Subject { shared: true, ..subject(&namespace, "") };
    let policy = rules.rule_for(&shared).unwrap();
    assert_eq!((policy.name, policy.strategy, policy.terms.len()), (None, Strategy::Duplicate, 0));
    let asks = Subject { annotations: Some(r#"{"kubefold.io/place-on":"east"}"#), ..shared };
    assert_eq!(
        rules.rule_for(&asks).unwrap_err().to_string(),
        "metadata.annotations[kubefold.io/place-on]: Forbidden: every member has this object"
    );
}

#[test]
fn terms_come_from_policy_member_and_labels() {
    let rules = rules(
        "policies:
- name: p
  match: {kinds: [Deployment]}
  min: 1
  max: 9
  spread: region
  tolerations: [{key: gpu, operator: Exists}]
  perMember:
    east: {weight: 5, max: 4, registry: mirror.example}
",
    );
    let policy = rules.rule_for(&subject(&gvk("apps", "Deployment"), "a")).unwrap();
    let terms = |name: &str| policy.terms(&MemberName::new(name).unwrap());
    let east = terms("east");
    assert_eq!(
        (east.weight, east.min, east.max, &*east.domains),
        (Some(Weight(5)), 1, Some(4), &["eu".to_owned()][..])
    );
    assert_eq!(east.overrides.registry.as_deref(), Some("mirror.example"));
    assert_eq!((terms("west").max, terms("west").taints.len()), (Some(9), 1));
    assert!(policy.tolerations.iter().any(|one| one.tolerates(&terms("west").taints[0])));
    assert_eq!(terms("north").excluded.as_deref(), Some("it has no label region, over which policy p spreads"));
}

#[test]
fn members_are_in_the_first_group_that_names_them_and_by_themselves() {
    let rules = rules(
        "policies:
- name: p
  match: {kinds: [Deployment]}
  groups: [{members: [west]}, {memberSelector: \"region in (eu,us)\"}]
  spread: [{label: region}, {label: kubefold.io/cluster}]
",
    );
    let policy = rules.rule_for(&subject(&gvk("apps", "Deployment"), "a")).unwrap();
    let terms = |name: &str| policy.terms(&MemberName::new(name).unwrap());
    assert_eq!((policy.groups, terms("west").ranks, terms("east").ranks), (2, vec![0], vec![1]));
    assert_eq!(terms("east").domains, ["eu", "east"]);
    assert_eq!(excluded(&policy), [("north", "policy p does not place there")]);
}
