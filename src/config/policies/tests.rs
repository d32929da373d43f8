//! Every refusal of a policy by its text and line, and one policy that says everything.

use std::{fs, time::Duration};

use super::*;
use crate::config::{CarriedKind, Failover, MemberTaint, Rebalance, SpreadLevel, TaintEffect, load};

/// Policies begin on line 4.
const MEMBERS: &str =
    "members:\n- {name: east, inCluster: true, labels: {region: eu}}\n- {name: west, inCluster: true}\n";

fn loaded(policies: &str) -> Result<Vec<PolicyConfig>, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clusters.yaml");
    fs::write(&file, format!("{MEMBERS}{policies}")).unwrap();
    let result = load(&file).map(|config| config.policies);
    result.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

#[allow(clippy::too_many_lines, reason = "a table")]
#[test]
fn refusals_say_line_policy_and_remedy() {
    // The policy's name stands on line 5, what follows on line 6 and on.
    let cases = [
        (
            "  strategy: split",
            "6: policy \"p\": \"strategy: split\" is unknown; use \"duplicate\", \"divide\" or \"one\", or remove it for the default of each kind",
        ),
        ("  weights: free", "6: policy \"p\": \"weights: free\" is unknown; use \"static\", \"capacity\" or \"use\""),
        (
            "  strategy: one\n  max: 3",
            "7: policy \"p\": \"max\" has no meaning with \"strategy: one\"; remove it, or use \"strategy: divide\"",
        ),
        (
            "  strategy: duplicate\n  spread: region",
            "7: policy \"p\": \"spread\" has no meaning with \"strategy: duplicate\"; remove it, or use \"strategy: divide\"",
        ),
        (
            "  strategy: duplicate\n  partial: true",
            "7: policy \"p\": \"partial\" has no meaning with \"strategy: duplicate\"; remove it, or use \"strategy: divide\"",
        ),
        (
            "  strategy: duplicate\n  perMember:\n    east:\n      weight: 2",
            "9: policy \"p\": \"weight\" has no meaning with \"strategy: duplicate\"; remove it, or use \"strategy: divide\"",
        ),
        (
            "  match: {}",
            "6: policy \"p\": \"match\" is empty; give kinds, namespaces, labels or annotations, or remove it: then only objects that name the policy have it",
        ),
        (
            "  match:\n    kinds: [deployments]",
            "7: policy \"p\": \"deployments\" is not a kind; write it like \"Deployment\", or with its group like \"Widget.example.com\"",
        ),
        (
            "  match:\n    namespaces: [\"a*b\"]",
            "7: policy \"p\": \"a*b\" is not a namespace; write a DNS label, with a last \"*\" for a prefix",
        ),
        (
            "  match:\n    labels: a in b",
            "7: policy \"p\": \"labels: a in b\" is not a label selector (unable to parse requirement: found 'b' expected: '('); write it like \"region in (eu,us)\"",
        ),
        (
            "  strategy: divide\n  match:\n    kinds: [ConfigMap]",
            "8: policy \"p\": a ConfigMap has nothing to divide; change the strategy or the kinds",
        ),
        (
            "  strategy: duplicate\n  match:\n    kinds: [Lease]",
            "8: policy \"p\": a Lease must have one arbiter, so it cannot be duplicated; change the strategy or the kinds",
        ),
        ("  members: [north]", "6: policy \"p\": there is no member \"north\"; use one of: east, west"),
        ("  members: []", "6: policy \"p\": \"members\" is empty; give it a value or remove it"),
        (
            "  members: [east]\n  memberSelector: region=eu",
            "7: policy \"p\": both \"members\" and \"memberSelector\" are given; keep one of the two",
        ),
        ("  memberSelector: ''", "6: policy \"p\": \"memberSelector\" is empty; give it a value or remove it"),
        ("  min: -1", "6: policy \"p\": min -1 is out of range; use a whole number from 0 to 2147483647"),
        ("  min: 3\n  max: 2", "6: policy \"p\": min 3 is above max 2; lower the one or raise the other"),
        (
            "  max: 2\n  perMember:\n    west:\n      min: 3",
            "9: policy \"p\": min 3 is above max 2; lower the one or raise the other",
        ),
        (
            "  perMember:\n    north:\n      min: 3",
            "8: policy \"p\": there is no member \"north\"; use one of: east, west",
        ),
        (
            "  weights: capacity\n  perMember:\n    west:\n      weight: 3",
            "9: policy \"p\": \"weight\" has no meaning with \"weights: capacity\"; remove one of the two",
        ),
        (
            "  perMember:\n    west:\n      registry: https://x",
            "8: policy \"p\": \"registry: https://x\" is not one; write a host, perhaps with port and path, like \"mirror.example/x\"",
        ),
        (
            "  spread: a b",
            "6: policy \"p\": label key \"a b\" is not valid; use an optional DNS prefix and \"/\", then at most 63 letters, digits, \"-\", \"_\", \".\"",
        ),
        (
            "  carry: [Secret, Service]",
            "6: policy \"p\": \"carry\" has the kind \"Service\", which is not carried; use \"ConfigMap\" or \"Secret\"",
        ),
        (
            "  spread:\n  - label: kubefold.io/policy",
            "7: policy \"p\": label key \"kubefold.io/policy\" is kubefold's own; use a prefix other than kubefold.io",
        ),
        (
            "  spread:\n  - {label: region, minGroups: 3, maxGroups: 2}",
            "7: policy \"p\": minGroups 3 is above maxGroups 2; lower the one or raise the other",
        ),
        (
            "  spread:\n  - {label: region, minGroups: 0}",
            "7: policy \"p\": minGroups 0 is out of range; use a whole number from 1 to 256",
        ),
        (
            "  spread:\n  - {label: region}\n  - {label: region}",
            "8: policy \"p\": \"spread\" has the label \"region\" twice; keep one of the two",
        ),
        ("  spread: []", "6: policy \"p\": \"spread\" is empty; give it a value or remove it"),
        (
            "  groups:\n  - {members: [east]}\n  members: [west]",
            "8: policy \"p\": both \"groups\" and \"members\" are given; keep one of the two",
        ),
        (
            "  groups:\n  - {members: [east]}\n  - {members: [north]}",
            "8: policy \"p\": there is no member \"north\"; use one of: east, west",
        ),
        (
            "  groups:\n  - {members: [east]}\n  - {}",
            "8: policy \"p\": a group without members; give \"members\" or \"memberSelector\", or remove the group",
        ),
        ("  groups: []", "6: policy \"p\": \"groups\" is empty; give it a value or remove it"),
        (
            "  weights: capacity\n  prefer: few",
            "7: policy \"p\": \"prefer: few\" is unknown; use \"all\" or \"fewest\"",
        ),
        (
            "  prefer: fewest",
            "6: policy \"p\": \"prefer: fewest\" has no meaning without \"weights: capacity\"; remove it, or add \"weights: capacity\"",
        ),
        (
            "  weights: capacity\n  prefer: fewest\n  spread: region",
            "8: policy \"p\": both \"spread\" and \"prefer: fewest\" are given; keep one of the two",
        ),
        (
            "  tolerations:\n  - {key: a, effect: PreferNoSchedule}",
            "7: policy \"p\": effect \"PreferNoSchedule\" means nothing for members; use \"NoSchedule\" or \"NoExecute\", or leave it out",
        ),
        (
            "  tolerations:\n  - {key: a, operator: Exists, tolerationSeconds: 5}",
            "7: policy \"p\": \"tolerationSeconds\" has a meaning with \"effect: NoExecute\" alone; remove it, or set the effect",
        ),
        (
            "  failover: {after: 500ms}",
            "6: policy \"p\": \"after: 500ms\" is not a duration from 1s to 168h; write it like \"90s\" or \"5m\"",
        ),
        (
            "  rebalance: {every: often}",
            "6: policy \"p\": \"every: often\" is not a duration from 1s to 168h; write it like \"90s\" or \"5m\"",
        ),
        (
            "  rebalance: {every: 10m, threshold: 0.2}",
            "6: policy \"p\": \"threshold: 0.2\" is not a percentage from 0% to 100%; write it like \"20%\"",
        ),
        (
            "  tolerations:\n  - {key: a, operator: In}",
            "7: policy \"p\": operator \"In\" is unknown; use \"Exists\" or \"Equal\"",
        ),
        (
            "  tolerations:\n  - {key: a, operator: Exists, value: b}",
            "7: policy \"p\": \"value\" has no meaning with \"operator: Exists\"; remove one of the two",
        ),
        (
            "  tolerations:\n  - {value: b}",
            "7: policy \"p\": a toleration without a key tolerates every taint and needs \"operator: Exists\"; add it, or add a key",
        ),
        ("- name: p", "6: policy \"p\": the name is taken by the policy on line 5; give each policy its own name"),
    ];
    for (body, expected) in cases {
        let error = loaded(&format!("policies:\n- name: p\n{body}\n")).expect_err(body);
        let line = format!("clusters.yaml:{expected}");
        // A nested value may begin on the line after its key.
        assert_eq!(error, line, "{body}");
    }
    let patch =
        loaded("policies:\n- name: p\n  perMember:\n    west:\n      patch: [{op: put, path: /a}]\n").unwrap_err();
    assert!(patch.starts_with("clusters.yaml:8: policy \"p\": \"patch\" is not a JSON patch ("), "{patch}");
    let duplicate =
        loaded("policies:\n- name: p\n  strategy: duplicate\n  match:\n    kinds: [Deployment]\n").unwrap_err();
    assert!(duplicate.contains("a Deployment cannot be duplicated: the fleet view shows the sum"), "{duplicate}");
    let unknown = loaded("policies:\n- name: p\n  colour: red\n").unwrap_err();
    assert!(
        unknown.starts_with("clusters.yaml:6: unknown field \"colour\"; remove it, or use one of: name, match,"),
        "{unknown}"
    );
    assert!(
        loaded("policies:\n- name: P\n")
            .unwrap_err()
            .contains("clusters.yaml:5: policy \"P\": \"P\" is not a valid name")
    );
}

#[test]
fn taints_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clusters.yaml");
    let load = |taint: &str| {
        fs::write(&file, format!("members:\n- name: east\n  inCluster: true\n  taints:\n  - {taint}\n")).unwrap();
        load(&file).map(|config| config.members[0].taints.clone()).map_err(|error| error.to_string())
    };
    assert_eq!(
        load("{key: gpu, effect: NoSchedule}"),
        Ok(vec![MemberTaint { key: "gpu".into(), value: String::new(), effect: TaintEffect::NoSchedule }])
    );
    assert_eq!(load("{key: gpu, effect: NoExecute}").unwrap()[0].effect, TaintEffect::NoExecute);
    let effect = load("{key: gpu, effect: Evict}").unwrap_err();
    assert!(effect.ends_with(
        ":5: member \"east\": effect \"Evict\" means nothing for members; use \"NoSchedule\" or \"NoExecute\", or leave it out"
    ));
    assert!(load("{key: a b}").unwrap_err().contains("label key \"a b\" is not valid"));
    assert!(load("{key: a, value: -x}").unwrap_err().contains("label value \"-x\" of \"a\" is not valid"));
    assert!(load("{value: x}").unwrap_err().contains("the field \"key\" is missing"));
}

#[test]
fn a_policy_that_says_everything() {
    let yaml = "policies:
- name: shop
  match:
    kinds: [Deployment, StatefulSet.apps]
    namespaces: [shop, \"team-*\"]
    labels: tier=web
    annotations: {team: web}
  strategy: divide
  memberSelector: region in (eu,us)
  min: 1
  max: 20
  perMember:
    east:
      weight: 3
      max: 5
      registry: mirror.example:5000/x
      patch: [{op: add, path: /metadata/labels/tier, value: edge}]
  spread: region
  partial: true
  carry: [Secret, ConfigMap, Secret]
  tolerations: [{key: gpu, operator: Exists}, {key: a, value: b, effect: NoExecute, tolerationSeconds: 60}]
  failover: {after: 5m, force: true}
  rebalance: {every: 10m, threshold: 20%}
- {name: named, weights: capacity, prefer: fewest, rebalance: {every: 1h}}
- name: wide
  groups: [{members: [west]}, {memberSelector: region=eu}]
  spread: [{label: region, minGroups: 2, maxGroups: 3}, {label: kubefold.io/cluster}]
";
    let policies = loaded(yaml).unwrap();
    let shop = &policies[0];
    let kinds: Vec<_> = shop.matches.iter().flat_map(|rule| &rule.kinds).map(|kind| kind.group.as_deref()).collect();
    assert_eq!(kinds, [None, Some("apps")]);
    assert_eq!((shop.strategy, shop.partial, shop.weights), (Some(Strategy::Divide), true, Weights::Static));
    assert_eq!(shop.each, Bounds { min: Some(1), max: Some(20) });
    let east = &shop.per_member[&MemberName::new("east").unwrap()];
    assert_eq!((east.weight.map(|weight| weight.0), east.bounds.max), (Some(3), Some(5)));
    assert_eq!(east.overrides.registry.as_deref(), Some("mirror.example:5000/x"));
    assert_eq!(east.overrides.patch.as_ref().map(|patch| patch.0.len()), Some(1));
    assert!(matches!(&shop.groups[0], Chosen::Selected(_, text) if text == "region in (eu,us)"));
    let borne: Vec<_> = shop.tolerations.iter().map(|one| (one.key.as_deref(), one.value.as_deref())).collect();
    assert_eq!(borne, [(Some("gpu"), None), (Some("a"), Some("b"))]);
    assert_eq!(shop.tolerations[1].seconds, Some(60));
    assert_eq!(shop.failover, Some(Failover { after: Duration::from_mins(5), force: true }));
    assert_eq!(shop.rebalance, Some(Rebalance { every: Duration::from_mins(10), threshold: 20 }));
    assert_eq!(policies[1].rebalance.map(|rebalance| rebalance.threshold), Some(10), "the default");
    assert_eq!(shop.carry, [CarriedKind::Secret, CarriedKind::ConfigMap]);
    assert!(policies[1].carry.is_empty());
    assert_eq!(shop.spread, [SpreadLevel { label: "region".into(), min: 0, max: None }]);
    assert_eq!(policies[1].weights, Weights::Capacity);
    assert!(policies[1].fewest && policies[1].matches.is_none());
    let wide = &policies[2];
    assert!(matches!(&wide.groups[..], [Chosen::Named(_), Chosen::Selected(..)]), "{:?}", wide.groups);
    let levels: Vec<_> = wide.spread.iter().map(|level| (level.label.as_str(), level.min, level.max)).collect();
    assert_eq!(levels, [("region", 2, Some(3)), ("kubefold.io/cluster", 0, None)]);
}

#[test]
fn registries_are_hosts_with_paths() {
    for good in ["mirror.example", "mirror.example:5000", "localhost:5000/a/b_c", "Mirror.example/x"] {
        assert!(is_registry(good), "{good}");
    }
    for bad in ["", "/x", "a b", "mirror.example/", "mirror.example/X", "a:b", "https://a", "a@b"] {
        assert!(!is_registry(bad), "{bad}");
    }
}

#[test]
fn a_policy_that_is_an_object_has_the_fields_of_an_entry() {
    let config = crate::config::load_text(MEMBERS, std::path::Path::new("clusters.yaml")).unwrap();
    let read = |spec: serde_json::Value| {
        let spec: PolicySpec = serde_json::from_value(spec).unwrap();
        policy_of("p", &spec, &config).map_err(|error| error.to_string())
    };
    let entry =
        loaded("policies:\n- {name: p, match: {kinds: [Deployment]}, members: [east], max: 3, spread: region}\n")
            .unwrap();
    let object =
        serde_json::json!({"match": {"kinds": ["Deployment"]}, "members": ["east"], "max": 3, "spread": "region"});
    assert_eq!(read(object).unwrap(), entry[0]);
    assert_eq!(read(serde_json::Value::Null).unwrap(), loaded("policies:\n- {name: p}\n").unwrap()[0]);
    let unknown = read(serde_json::json!({"members": ["south"]})).unwrap_err();
    assert_eq!(unknown, "there is no member \"south\"; use one of: east, west");
    assert!(read(serde_json::json!({"weight": 3})).unwrap_err().contains("unknown field"));
    let schema = serde_json::to_value(schemars::schema_for!(PolicySpec)).unwrap();
    assert!(schema["properties"]["name"].is_null() && !schema["properties"]["perMember"].is_null(), "{schema}");
}
