use super::*;

fn matches(selector: &str, labels: &str) -> bool {
    LabelSelector::parse(selector).unwrap().matches(Some(labels))
}

#[test]
fn label_selectors_as_kubernetes() {
    let labels = r#"{"app":"web","tier":"","n":"5"}"#;
    for yes in [
        "",
        " ",
        "app=web",
        "app==web",
        "app",
        "!zone",
        "zone!=a",
        "app!=db",
        "app in (db, web)",
        "zone notin (a)",
        "tier=",
        "tier in ()",
        "tier in (,a)",
        "tier in (a,)",
        "tier in (a,,b)",
        "n>4",
        "n<6",
        "app=web,tier",
        "app in (web),n",
    ] {
        assert!(matches(yes, labels), "{yes}");
    }
    assert!(matches("in=x,x", r#"{"in":"x","x":""}"#));
    assert!(matches("notin", r#"{ "notin" : "" }"#) && matches("in in (in)", r#"{"in":"in"}"#));
    assert!(matches("a=b", r#"{"\u0061":"\u0062"}"#));
    for no in ["app=db", "zone", "!app", "app!=web", "app notin (web)", "n>5", "zone>1", "zone in (a)", "tier=a"] {
        assert!(!matches(no, labels), "{no}");
    }
    assert!(matches("!app", "{}") && matches("!app", "null") && matches("!app", ""));
}

/// The words were taken down from a kube-apiserver 1.36; the end-to-end tests ask it again.
#[test]
fn bad_label_selectors_are_refused_in_kubernetes_words() {
    for (bad, words) in [
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        (
            "x<",
            "unable to parse requirement: values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        let error = LabelSelector::parse(bad).unwrap_err();
        assert_eq!(error.to_string(), words, "{bad}");
    }
    for bad in ["=a", "a>x", "a=b@nowhere", "-a", "a/b/c", "A/b", "a=b,", "a=$", "a.b..c/d=e", "/a"] {
        assert!(LabelSelector::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_selector_of_more_than_labels_checks_the_part_that_is_a_label() {
    let part = |value: &str| -> usize { value.find('@').unwrap_or(value.len()) };
    let parse = |text: &str| LabelSelector::parse_extended(text, |value| value.get(..part(value)).unwrap_or_default());
    let values = |text: &str| parse(text).unwrap().into_requirements().remove(0).values;
    assert_eq!(values("a in (c@east,b)"), ["b", "c@east"]);
    assert_eq!(values("x>5@east"), ["5@east"]);
    assert_eq!(
        parse("a=$@east").unwrap_err().to_string().split(": a valid").next().unwrap(),
        "unable to parse requirement: values[0][a]: Invalid value: \"$@east\""
    );
}

fn of(resource: &str, selector: &str, json: &str) -> bool {
    let (group, resource) = resource.split_once('/').unwrap_or(("", resource));
    let selector =
        FieldSelector::parse(selector, group, resource).unwrap_or_else(|error| panic!("{selector}: {error}"));
    selector.matches(&Subject { namespace: "shop", name: "web-0@east", json: json.as_bytes(), suffix: ["@", "east"] })
}

#[test]
fn names_and_escapes() {
    let selector = FieldSelector::parse(r"metadata.name=web-0@east,metadata.namespace!=b\,c", "", "pods").unwrap();
    assert_eq!((selector.name(), selector.namespace()), (Some("web-0@east"), None));
    assert!(of("pods", r"metadata.name=web-0@east,metadata.namespace!=b\,c", "{}"));
    assert!(of("pods", "metadata.namespace==shop,", "{}") && !of("pods", "metadata.name!=web-0@east", "{}"));
    assert!(of("pods", r"spec.a=x\,y\=\\z", r#"{"spec":{"a":"x,y=\\z"}}"#));
    assert!(!FieldSelector::parse("metadata.name=x", "", "pods").unwrap().with_name("y").is_everything());
}

#[test]
fn bad_field_selectors_are_refused_in_kubernetes_words() {
    for (bad, words) in [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("spec.nodeName>3", "invalid selector: 'spec.nodeName>3'; can't understand 'spec.nodeName>3'"),
        ("metadata.name in (a)", "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
        (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
        ("=x", "field label not supported: "),
        (" metadata.name=x", "field label not supported:  metadata.name"),
        ("z..z=1,a..a=2", "field label not supported: a..a"),
    ] {
        let error = FieldSelector::parse(bad, "", "pods").unwrap_err();
        assert_eq!(error.to_string(), words, "{bad}");
    }
    for bad in [".spec", "spec.", "a[", "a[x]", "a[-1]", "a['b]", "a['b'", "a[0]b", "[0]", "a\\", "{.a}", "a[?(@.b)]"] {
        assert!(FieldSelector::parse(&format!("{bad}=1"), "", "pods").is_err(), "{bad}");
    }
    assert!(FieldSelector::parse(&format!("{}a=1", "a.".repeat(100)), "", "pods").is_err());
}

#[test]
fn what_kubernetes_selects_by_has_its_values() {
    let pod = r#"{"metadata":{},"spec":{"nodeName":"n1@east","hostNetwork":true},"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}"#;
    for yes in [
        "spec.nodeName=n1@east,status.phase!=Failed",
        "spec.host=n1@east",
        "spec.hostNetwork=true",
        "status.podIP=10.0.0.1",
        "status.podIPs=",
        "status.podIPs!=10.0.0.1",
        "spec.schedulerName=",
    ] {
        assert!(of("pods", yes, pod), "{yes}");
    }
    for no in [
        "spec.nodeName=n1",
        "spec.nodeName=",
        "spec.hostNetwork=false",
        "status.podIPs=10.0.0.1",
        "status.phase!=Running",
    ] {
        assert!(!of("pods", no, pod), "{no}");
    }
    assert!(of("pods", "spec.hostNetwork=false,spec.nodeName=", r#"{"spec":{}}"#));
    assert!(of("nodes", "spec.unschedulable=false", "{}") && of("nodes", "spec.unschedulable!=true", "{}"));
    assert!(of("nodes", "spec.unschedulable=true", r#"{"spec":{"unschedulable":true}}"#));
    assert!(of("batch/jobs", "status.successful=0", r#"{"status":{}}"#));
    assert!(of("batch/jobs", "status.successful=3", r#"{"status":{"succeeded":3}}"#));
    assert!(of("apps/replicasets", "status.replicas=0", "{}"));
    assert!(of("secrets", "type=Opaque", r#"{"type":"Opaque","data":{"x":"Opaque"}}"#));
}

#[test]
fn events_by_what_they_are_about() {
    let event = |name: &str, uid: &str| {
        format!(
            r#"{{"metadata":{{"name":"e"}},"involvedObject":{{"kind":"Pod","name":"{name}","uid":"{uid}"}},"reason":"Started","source":{{}},"reportingComponent":"kubelet"}}"#
        )
    };
    let pod = event("web-0@east", "u-1");
    assert!(of("events", "involvedObject.name=web-0@east,involvedObject.kind=Pod", &pod));
    assert!(!of("events", "involvedObject.name=web-0", &pod));
    // What `kubectl describe pod web-0` asks, the short name having been echoed.
    assert!(of("events", "involvedObject.name=web-0,involvedObject.uid=u-1", &pod));
    assert!(!of("events", "involvedObject.name=web-0,involvedObject.uid=u-2", &pod));
    assert!(!of("events", "involvedObject.name=web,involvedObject.uid=u-1", &pod));
    // What a kubelet says of its node, and what `kubectl describe node` asks then.
    assert!(of("events", "involvedObject.name=n@east,involvedObject.uid=n@east", &event("n@east", "n")));
    assert!(!of("events", "involvedObject.name=n@east,involvedObject.uid=n@west", &event("n@east", "n")));
    assert!(of("events", "source=kubelet", &pod) && !of("events", "source=", &pod));
    let old = r#"{"source":{"component":"scheduler"},"reportingComponent":""}"#;
    assert!(of("events", "source=scheduler,reportingComponent=", old) && !of("events", "source!=scheduler", old));
    let new = r#"{"regarding":{"name":"web-0@east","uid":"u-1"},"reportingController":"kubelet"}"#;
    assert!(of("events.k8s.io/events", "regarding.name=web-0,regarding.uid=u-1,reportingController=kubelet", new));
}

#[test]
fn any_path_of_the_json() {
    let json = r#"{ "metadata" : {"labels": {"app.kubernetes.io/name": "x", "a.b": "y"}}, "spec": {"replicas": 3, "on": true, "off": null,
        "containers": [{"image": "i1", "ports": [1, 2]}, {"image": "i2"}], "o": {}, "t": "\u0061<", "f": 1.5, "e": [] } }"#;
    for yes in [
        "spec.replicas=3",
        "spec.on=true",
        "spec.off=",
        "spec.none=",
        "spec.none.deeper=,spec.replicas.deeper=",
        "spec.containers[0].image=i1",
        "spec.containers[1].image=i2",
        "spec.containers[2].image=",
        "spec.containers[*].image=i2",
        "spec.containers[*].image=i1,spec.containers[0].image=i1,spec.containers[1].image!=i1",
        "spec.containers[*].image!=i3",
        "spec.containers[*].ports[1]=2",
        "spec.containers[*].ports[*]=1",
        "spec.e[*].x=",
        "spec.containers.image=",
        r"metadata.labels.app\.kubernetes\.io/name=x",
        "metadata.labels['app.kubernetes.io/name']=x",
        "metadata.labels[\"a.b\"]=y",
        "spec.o!=,spec.o!=x",
        "spec.t=a<",
        "spec.f=1.5",
        "spec.replicas=3,spec.on=true,metadata.labels.zone=",
        "kind=",
    ] {
        assert!(of("example.com/widgets", yes, json), "{yes}");
    }
    for no in [
        "spec.replicas=30",
        "spec.replicas!=3",
        "spec.on!=true",
        "spec.none!=",
        "spec.none=x",
        "spec.o=",
        "spec.o={}",
        "spec.containers[*].image!=i2",
        "spec.containers[*].image=i3",
        "spec.containers[*].image=",
        "spec.containers[0].image=i2",
        "metadata.labels.app.kubernetes.io/name=x",
    ] {
        assert!(!of("example.com/widgets", no, json), "{no}");
    }
}

mod property {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3u8).prop_map(Value::from),
            "[a-c\"\\\\<é]{0,2}".prop_map(Value::from),
        ];
        let tree = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map("[ab]", inner, 0..3).prop_map(|map| json!(map)),
            ]
        });
        prop::collection::hash_map("[ab]", tree, 0..3).prop_map(|map| json!(map))
    }

    fn path() -> impl Strategy<Value = String> {
        let step = prop_oneof![4 => "\\.[ab]", 1 => Just("[*]".to_owned()), 1 => "\\[[01]\\]"];
        ("[ab]", prop::collection::vec(step, 0..3)).prop_map(|(first, rest)| first + &rest.concat())
    }

    /// The same, over a tree.
    fn oracle(object: &Value, path: &str, value: &str, equals: bool) -> bool {
        let steps = path.replace('[', ".[").split('.').map(str::to_owned).collect::<Vec<_>>();
        let found = steps.iter().fold(vec![object.clone()], |values, step| {
            let of = |value: Value| match step.as_str() {
                "[*]" => value.as_array().cloned().unwrap_or_default(),
                "[0]" | "[1]" => {
                    let at = usize::from(step == "[1]");
                    value.as_array().and_then(|all| all.get(at)).cloned().into_iter().collect()
                }
                key => value.as_object().and_then(|all| all.get(key)).cloned().into_iter().collect(),
            };
            values.into_iter().flat_map(of).collect()
        });
        let set: Vec<&Value> = found.iter().filter(|found| !found.is_null() && **found != "").collect();
        let is = |found: &Value| match found {
            Value::String(text) => text == value,
            Value::Object(_) | Value::Array(_) => false,
            Value::Null | Value::Bool(_) | Value::Number(_) => format!("{found}") == value,
        };
        (if set.is_empty() { value.is_empty() } else { set.iter().any(|found| is(found)) }) == equals
    }

    proptest! {
        #[test]
        fn paths_select_as_over_a_tree(
            object in object(),
            terms in prop::collection::vec((path(), "[a-c0-2]{0,2}|true|false|null", any::<bool>()), 1..4),
        ) {
            let written = |(path, value, equals): &(String, String, bool)| {
                format!("{path}{}{value}", if *equals { "=" } else { "!=" })
            };
            let selector = terms.iter().map(written).collect::<Vec<_>>().join(",");
            let expected = terms.iter().all(|(path, value, equals)| oracle(&object, path, value, *equals));
            prop_assert_eq!(of("x/y", &selector, &object.to_string()), expected, "{} on {}", selector, object);
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "[a-c.=!,\\\\\\[\\]'*0-9() ]{0,24}", json in ".{0,24}") {
            if let Ok(selector) = FieldSelector::parse(&text, "", "events") {
                let suffix = ["@", "east"];
                selector.matches(&Subject { namespace: "", name: "", json: json.as_bytes(), suffix });
            }
            if let Ok(selector) = LabelSelector::parse(&text) {
                selector.matches(Some(&json));
            }
        }
    }
}

#[test]
fn a_selector_has_a_bounded_number_of_terms_and_values() {
    let terms = |count: usize, term: &str| (0..count).map(|at| format!("k{at}{term}")).collect::<Vec<_>>().join(",");
    let values = |count: usize| format!("a in ({})", terms(count, ""));
    assert!(LabelSelector::parse(&terms(TERMS_MAX, "=v")).is_ok() && LabelSelector::parse(&values(VALUES_MAX)).is_ok());
    let error = LabelSelector::parse(&terms(TERMS_MAX + 1, "!=v")).unwrap_err();
    assert_eq!(error.to_string(), "invalid selector: it has 129 terms, and may have 128");
    let error = LabelSelector::parse(&format!("{},b notin (x)", values(VALUES_MAX))).unwrap_err();
    assert_eq!(error.to_string(), "invalid selector: it has 1025 values, and may have 1024");
    assert!(FieldSelector::parse(&terms(TERMS_MAX, "!=v"), "", "pods").is_ok());
    let error = FieldSelector::parse(&terms(TERMS_MAX + 1, "!=v"), "", "pods").unwrap_err();
    assert_eq!(error.to_string(), "invalid selector: it has 129 terms, and may have 128");
}

#[test]
fn the_node_of_pods_is_known_where_it_is_asked_for() {
    let node = |text, resource| FieldSelector::parse(text, "", resource).unwrap().node().map(str::to_owned);
    assert_eq!(node("status.phase=Running,spec.nodeName=n1@east", "pods").as_deref(), Some("n1@east"));
    for (text, resource) in [("spec.nodeName!=n1", "pods"), ("spec.nodeName=", "pods"), ("spec.nodeName=n1", "volumes")]
    {
        assert_eq!(node(text, resource), None, "{text}");
    }
}
