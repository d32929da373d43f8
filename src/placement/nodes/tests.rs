use proptest::prelude::*;

use super::*;
use crate::config::Names;

const KINDS: [(&str, &str); 9] = [
    ("", "Pod"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("", "ReplicationController"),
    ("batch", "Job"),
    ("", "PodTemplate"),
    ("batch", "CronJob"),
];

fn member(name: &str) -> MemberName {
    MemberName::new(name).unwrap()
}

fn fleet() -> VisibleNames {
    VisibleNames::of(Names::Suffixed, ["east", "west", "north"].map(member).into())
}

fn object(gvk: &Gvk, spec: &Value) -> Value {
    let path = pod_spec(&gvk.group, &gvk.kind).unwrap();
    let nested = path.iter().rev().fold(spec.clone(), |inner, key| json!({*key: inner, "kept": "x@east"}));
    json!({"metadata": {"name": "web", "annotations": {"note": "node-0@east"}}, path[0]: nested[path[0]]})
}

fn deployment() -> Gvk {
    Gvk::new("apps", "v1", "Deployment")
}

/// What a pod spec comes to in a member; `Err`: it has no node of it.
fn local(spec: &Value, name: &str) -> (Value, bool) {
    let (names, gvk) = (fleet(), deployment());
    let mut object = object(&gvk, spec);
    let fits = NodeNames::of(&gvk, &names).localize(&mut object, &member(name)).is_ok();
    (object["spec"]["template"]["spec"].clone(), fits)
}

fn required(terms: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}})
}

fn host(operator: &str, values: &[&str]) -> Value {
    json!({"key": HOSTNAME, "operator": operator, "values": values})
}

fn field(operator: &str, value: &str) -> Value {
    json!({"key": NODE_NAME, "operator": operator, "values": [value]})
}

fn ssd() -> Value {
    json!({"key": "disk", "operator": "In", "values": ["ssd@east"]})
}

#[test]
fn a_node_is_named_plainly_in_its_member_in_every_kind() {
    let names = fleet();
    let spec = |node: &str| {
        json!({
            "nodeName": node, "nodeSelector": {HOSTNAME: node, "disk": "ssd"}, "hostname": "node-0@east",
            "affinity": {"podAffinity": {"x": "node-0@east"}, "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [
                    {"matchExpressions": [host("In", &[node]), ssd()], "matchFields": [field("In", node)]}]},
                PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [host("NotIn", &[node])]}}],
            }},
        })
    };
    for (group, kind) in KINDS {
        let gvk = Gvk::new(group, "v1", kind);
        let nodes = NodeNames::of(&gvk, &names);
        let mut written = object(&gvk, &spec("node-0@east"));
        assert_eq!(nodes.named(&written), [("node-0@east".to_owned(), member("east"))].into());
        assert_eq!(nodes.localize(&mut written, &member("east")), Ok(()), "{kind}");
        assert_eq!(written, object(&gvk, &spec("node-0")), "{kind}: nothing else changes");
        assert_eq!(nodes.localize(&mut written, &member("west")), Ok(()), "a plain name is every member's");
        let mut elsewhere = object(&gvk, &spec("node-0@east"));
        let error = nodes.localize(&mut elsewhere, &member("west")).unwrap_err();
        assert_eq!((error.nodes, error.field), (vec!["node-0@east".to_owned()], nodes.spec.unwrap()), "{kind}");
    }
    let map = json!({"spec": {"nodeName": "node-0@east"}});
    assert!(NodeNames::of(&Gvk::new("", "v1", "ConfigMap"), &names).named(&map).is_empty());
    let plain = VisibleNames::of(Names::Plain, vec![member("east")]);
    assert!(NodeNames::of(&Gvk::new("", "v1", "Pod"), &plain).named(&map).is_empty());
}

#[test]
fn a_term_reaches_each_member_with_its_own_nodes() {
    let both = required(json!([{"matchExpressions": [host("In", &["n0@east", "n1@west", "n2"]), ssd()]}]));
    for (name, left) in [("east", vec!["n0", "n2"]), ("west", vec!["n1", "n2"]), ("north", vec!["n2"])] {
        let wanted = required(json!([{"matchExpressions": [host("In", &left), ssd()]}]));
        assert_eq!(local(&both, name), (wanted, true), "{name}");
    }
    let terms = required(json!([
        {"matchFields": [field("In", "n0@east")]}, {"matchFields": [field("In", "n1@west")]}, {"matchExpressions": [ssd()]}
    ]));
    let wanted = required(json!([{"matchFields": [field("In", "n0")]}, {"matchExpressions": [ssd()]}]));
    assert_eq!(local(&terms, "east"), (wanted, true));
    assert_eq!(local(&terms, "north"), (required(json!([{"matchExpressions": [ssd()]}])), true));
    let alone = required(json!([{"matchExpressions": [host("In", &["n0@east"])]}]));
    assert_eq!(local(&alone, "west"), (required(json!([{}])), false), "an empty term takes no node");
    // Both must be met, and no node is of two members.
    let torn = required(json!([{"matchExpressions": [host("In", &["n@east"]), host("In", &["n@west"])]}]));
    assert!(!local(&torn, "east").1 && !local(&torn, "west").1);
}

#[test]
fn what_keeps_away_from_nodes_of_others_asks_nothing() {
    let term = json!({"matchExpressions": [host("NotIn", &["n0@east", "n1@west"]), ssd()]});
    let wanted = json!({"matchExpressions": [host("NotIn", &["n0"]), ssd()]});
    assert_eq!(local(&required(json!([term])), "east").0, required(json!([wanted])));
    assert_eq!(local(&required(json!([term])), "north").0, required(json!([{"matchExpressions": [ssd()]}])));
    // Without requirements a term would take no node, where it takes every one.
    let away = json!({"matchFields": [field("NotIn", "n0@east")]});
    let everywhere = json!({"affinity": {"nodeAffinity": {}}});
    assert_eq!(local(&required(json!([away])), "west"), (everywhere.clone(), true));
    assert_eq!(local(&required(json!([away, {"matchExpressions": [ssd()]}])), "west"), (everywhere, true));
    assert_eq!(local(&required(json!([away])), "east").0, required(json!([{"matchFields": [field("NotIn", "n0")]}])));
}

#[test]
fn a_preference_chooses_no_member() {
    let prefers = |terms: Value| json!({"affinity": {"nodeAffinity": {PREFERRED: terms}}});
    let of = |value: &str| json!({"weight": 5, "preference": {"matchExpressions": [host("In", &[value])]}});
    let both = prefers(json!([of("n@east"), of("m@west")]));
    assert_eq!(local(&both, "west"), (prefers(json!([of("m")])), true));
    assert_eq!(local(&both, "north"), (json!({"affinity": {"nodeAffinity": {}}}), true));
}

#[test]
fn what_is_no_name_of_this_fleet_and_what_is_malformed_stays() {
    for spec in [
        json!({"nodeName": "n@nowhere", "nodeSelector": {HOSTNAME: "@east"}}),
        json!({"nodeName": 7, "nodeSelector": ["n@east"], "affinity": "n@east"}),
        json!({"nodeName": null, "nodeSelector": null, "affinity": {"nodeAffinity": null}}),
        required(json!([{}])),
        required(json!([])),
        required(
            json!([null, "n@east", {"matchFields": {"values": ["n@east"]}}, {"matchExpressions": [{"key": "disk", "values": ["n@east"]}]}]),
        ),
        json!(null),
    ] {
        assert_eq!(local(&spec, "east"), (spec.clone(), true));
        assert_eq!(local(&spec, "west"), (spec, true));
    }
    // Which operator it is the member says.
    let odd = required(json!([{"matchExpressions": [host("Gt", &["n@east"])]}]));
    assert_eq!(local(&odd, "west"), (odd, true));
}

#[test]
fn pods_ask_in_each_member_for_its_own_nodes() {
    let (names, gvk) = (fleet(), deployment());
    let terms = json!([{"matchExpressions": [host("In", &["n0@east"])]}, {"matchFields": [field("In", "n1@west")]}]);
    let body = object(&gvk, &required(terms)).to_string();
    let pods = PodsByMember::of(&gvk, &names, &body).unwrap().unwrap();
    let labels = |key: &str| (key == HOSTNAME).then_some("n0");
    let takes = |name: &str| pods.in_member(&member(name)).map(|pod| pod.nodes.select("n0", labels));
    assert_eq!((takes("east"), takes("west")), (Ok(true), Ok(false)));
    let none = Misfit::NotHeld(vec!["n0@east".to_owned(), "n1@west".to_owned()]);
    assert_eq!(takes("north"), Err(none));
    assert_eq!(PodsByMember::of(&Gvk::new("", "v1", "Secret"), &names, &body).unwrap(), None);
    let plain = PodsByMember::of(&gvk, &names, "{}").unwrap().unwrap();
    let asks = PodRequirements::of("apps", "Deployment", "{}").unwrap().unwrap();
    assert_eq!(plain.in_member(&member("north")), Ok(&asks));
}

#[test]
fn names_are_hidden_from_a_member_and_come_back() {
    let (names, gvk) = (fleet(), deployment());
    let nodes = NodeNames::of(&gvk, &names);
    let written = object(&gvk, &required(json!([{"matchExpressions": [host("In", &["n0@east", "n1@west", "n2@x"])]}])));
    let mut sent = written.clone();
    let hidden = nodes.hide(&mut sent, &member("east"));
    let values = sent.pointer("/spec/template/spec/affinity/nodeAffinity").unwrap().to_string();
    assert!(values.contains(r#""n0""#) && values.contains("n2@x") && !values.contains("n1"), "{values}");
    let token = hidden.names.keys().find(|name| name.starts_with("kubefold-")).unwrap().clone();
    assert!(token.len() <= 63 && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    assert_eq!(hidden.reveal_in(&format!("Invalid value: {token:?}")), r#"Invalid value: "n1@west""#);
    nodes.reveal(&hidden, &mut sent);
    assert_eq!(sent, written);
    // A plain name beside the visible one of the same node stays apart from it.
    let written = object(&gvk, &required(json!([{"matchExpressions": [host("In", &["n0@east", "n0"])]}])));
    let mut sent = written.clone();
    let hidden = nodes.hide(&mut sent, &member("east"));
    nodes.reveal(&hidden, &mut sent);
    assert_eq!(sent, written);
}

#[test]
fn an_apply_has_what_names_nodes_as_a_whole() {
    let (names, gvk) = (fleet(), deployment());
    let nodes = NodeNames::of(&gvk, &names);
    let path = ["spec", "template", "spec", "nodeSelector", HOSTNAME];
    assert_eq!(nodes.root(&path), Some(&path[..4]));
    let path = ["spec", "template", "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"];
    assert_eq!(nodes.root(&path), Some(&path[..6]));
    assert_eq!(nodes.root(&path[..5]), None);
    assert_eq!(nodes.root(&["spec", "replicas"]), None);
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("n0@east"), Just("n1@east"), Just("n0@west"), Just("n2@west"), Just("n0"), Just("n3@x")]
        .prop_map(str::to_owned)
}

fn requirement() -> impl Strategy<Value = Value> {
    let of = |(key, operator, values): (&str, &str, Vec<String>)| json!({"key": key, "operator": operator, "values": values});
    let keys = prop_oneof![Just(HOSTNAME), Just("disk")];
    (keys, prop_oneof![Just("In"), Just("NotIn")], prop::collection::vec(name(), 1..4)).prop_map(of)
}

fn spec() -> impl Strategy<Value = Value> {
    let term = prop::collection::vec(requirement(), 0..3).prop_map(|all| json!({"matchExpressions": all}));
    prop::collection::vec(term, 1..4).prop_map(|terms| required(terms.into()))
}

/// A term as the author means it: the nodes of all members, each with its visible name beside its own.
fn means(terms: &Value, node: &str, holder: &str) -> bool {
    let visible = format!("{node}@{holder}");
    let is = |value: &Value| value == node || *value == visible.as_str();
    let met = |one: &Value| {
        let values = one["values"].as_array().unwrap();
        let has =
            if one["key"] == HOSTNAME { values.iter().any(is) } else { values.iter().any(|value| value == "ssd") };
        has == (one["operator"] == "In")
    };
    let takes = |term: &Value| {
        let all = term["matchExpressions"].as_array().cloned().unwrap_or_default();
        !all.is_empty() && all.iter().all(met)
    };
    terms.as_array().unwrap().iter().any(takes)
}

proptest! {
    #[test]
    fn a_member_takes_the_nodes_that_the_author_means(spec in spec(), node in prop_oneof![Just("n0"), Just("n1"), Just("n2")], holder in prop_oneof![Just("east"), Just("west"), Just("north")]) {
        let (here, fits) = local(&spec, holder);
        let terms = |spec: &Value| spec.pointer(&format!("/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms")).cloned();
        let wanted = means(&terms(&spec).unwrap(), node, holder);
        prop_assert_eq!(terms(&here).is_none_or(|terms| means(&terms, node, holder)), wanted, "{}", here);
        prop_assert!(fits || !wanted);
        // Once more changes nothing, and no name of a member is left.
        let again = local(&here, holder);
        prop_assert_eq!(again, (here, true));
    }
}
