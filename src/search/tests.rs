use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use kubefold_wire::selector::Operator;

/// 2026-03-14T09:26:40Z
const NOW: i64 = 1_773_480_400_000_000;

fn read(query: &str) -> Result<Query, SearchError> {
    Parameters { query, now: NOW }.read()
}

fn labelled(labels: &str) -> Result<Query, SearchError> {
    let encoded: String = form_urlencoded::Serializer::new(String::new()).append_pair("labelSelector", labels).finish();
    read(&encoded)
}

fn fields(selector: &str) -> Result<Vec<FieldTerm>, SearchError> {
    FieldTerm::parse_all(selector)
}

fn one_of(values: &[&str]) -> Vec<Condition> {
    vec![Condition::one_of(values.iter().map(ToString::to_string))]
}

const POD: &str = r#"{"kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":"u1","creationTimestamp":"2026-03-14T08:00:00Z","annotations":{"test.io":"value1","a/b":"c"},"ownerReferences":[{"kind":"Node","name":"n","uid":"o0"},{"kind":"ReplicaSet","name":"web","uid":"o1","controller":true}]},"spec":{"replicas":3,"nodeName":"","paused":false,"nothing":null,"containers":[{"name":"a","image":"nginx:1.19"},{"name":"b","image":"proxy","ports":[{"containerPort":80}]}]},"status":{"phase":"Running"}}"#;

fn selects(selector: &str) -> bool {
    fields(selector).unwrap().iter().all(|term| term.matches(POD))
}

#[test]
fn fields_are_selected_with_every_operator_of_label_selectors() {
    for selector in [
        "status.phase=Running",
        ".status.phase==Running",
        "status['phase']!=Pending",
        ".status.phase notin (Pending,Succeeded)",
        "status.phase in (Running, Failed)",
        "metadata.annotations['test.io'] in (value1,value2),spec.replicas=3",
        "metadata.annotations[\"a/b\"]=c",
        r"metadata.annotations.test\.io=value1",
        "spec.paused=false",
        "spec.containers",
        "spec.containers[].image=nginx:1.19",
        "spec.containers[*].image in ('proxy')",
        "spec.containers[1].name in (a,b)",
        "spec.containers[].ports[].containerPort=80",
        "spec.containers[].name!=c",
        "!spec.volumes,spec.replicas",
        "!spec.nothing",
        "",
    ] {
        assert!(selects(selector), "{selector}");
    }
    for selector in [
        "status.phase=running",
        "status.phase!=Running",
        "spec.containers[].name!=a",
        "spec.containers[].name notin (b,x)",
        "spec.containers[2].name in (a,b)",
        "spec.containers=nginx",
        "spec.replicas=3.0",
        "!spec.replicas",
        "spec.nothing",
        "spec.volumes",
    ] {
        assert!(!selects(selector), "{selector}");
    }
}

#[test]
fn an_absent_field_is_not_an_empty_text() {
    assert!(selects("spec.nodeName=") && !selects("spec.absent=") && !selects("spec.nothing="));
    assert!(selects("spec.absent!=x") && selects("spec.absent!=") && !selects("spec.nodeName!="));
}

#[test]
fn what_a_field_selector_does_not_understand_is_said_with_its_term() {
    for (selector, term) in [
        ("spec.replicas>3", "spec.replicas>3"),
        ("a=b,spec.replicas ~ 3", "spec.replicas ~ 3"),
        ("status.phase in Running", "status.phase in Running"),
        ("status.phase in (a", "status.phase in (a"),
        ("a..b=c", "a..b=c"),
        ("a=b=c", "a=b=c"),
        ("[=x", "[=x"),
        ("=x", "=x"),
        ("a;drop table=x", "a;drop table=x"),
    ] {
        match fields(selector) {
            Err(SearchError::Field { term: found, .. }) => assert_eq!(found, term),
            other => panic!("{selector}: {other:?}"),
        }
    }
}

#[test]
fn search_labels_are_honoured_with_their_operators() {
    let query = labelled(
        "search.clusterpedia.io/clusters in (east,west),search.clusterpedia.io/namespaces notin (kube-system),\
         search.clusterpedia.io/names!=web,internalstorage.clusterpedia.io/fuzzy-name=shop,app=web,!old",
    )
    .unwrap();
    assert_eq!(query.clusters, one_of(&["east", "west"]));
    let facts = Facts {
        cluster: "east",
        namespace: "shop",
        name: "my-Shop-0",
        labels: Some(r#"{"app":"web"}"#),
        ..Facts::default()
    };
    assert!(query.admits(&facts));
    for other in [
        Facts { cluster: "north", ..facts },
        Facts { namespace: "kube-system", ..facts },
        Facts { name: "web", ..facts },
        Facts { labels: None, ..facts },
        Facts { labels: Some(r#"{"app":"web","old":""}"#), ..facts },
    ] {
        assert!(!query.admits(&other), "{other:?}");
    }
    let namespaced = labelled("search.clusterpedia.io/namespaces").unwrap();
    assert!(namespaced.admits(&facts) && !namespaced.admits(&Facts { namespace: "", ..facts }));
}

#[test]
fn parameters_of_a_url_are_the_same_as_labels() {
    let query = read("clusters=east,west&namespaces=a&names=x,y&fuzzyName=z&ownerName=web&ownerGR=deployments.apps&ownerSeniority=1&since=2026-03-14&before=1773480400&withRemainingCount&onlyMetadata=true").unwrap();
    assert_eq!(query.clusters, one_of(&["east", "west"]));
    assert_eq!((query.namespaces, query.names), (one_of(&["a"]), one_of(&["x", "y"])));
    let resource = Some(GroupResource { group: "apps".into(), resource: "deployments".into() });
    assert_eq!(query.owner, Some(Owner { by: OwnerBy::Name { name: "web".into(), resource }, seniority: 1 }));
    assert_eq!(query.created, Created { since: Some(1_773_446_400_000_000), before: Some(NOW) });
    assert!(query.page.with_remaining && query.only_metadata && !query.page.with_continue);
    assert_eq!(
        labelled("internalstorage.clusterpedia.io/owner-uid=o1,internalstorage.clusterpedia.io/owner-seniority=1")
            .unwrap()
            .owner,
        Some(Owner { by: OwnerBy::Uid("o1".into()), seniority: 1 })
    );
}

#[test]
fn what_is_not_understood_is_refused_and_never_left_out() {
    for (labels, message) in [
        ("search.clusterpedia.io/sice=1", "search.clusterpedia.io/sice: there is no such search parameter"),
        ("search.clusterpedia.io/clusters>5", "the operator > is not understood here"),
        ("search.clusterpedia.io/orderby notin (name)", "the operator notin or != is not understood here"),
        ("search.clusterpedia.io/orderby=color", "\"color\" is no field to order by"),
        ("search.clusterpedia.io/since in (2026-01-01,2026-01-02)", "it has 2 values, and may have one"),
        ("search.clusterpedia.io/since=yesterday", "is no time"),
        ("search.clusterpedia.io/limit=ten", "no number of objects"),
        ("search.clusterpedia.io/with-continue=yes", "neither true nor false"),
        ("search.clusterpedia.io/owner-seniority=1", "ownerSeniority says whose"),
        ("search.clusterpedia.io/owner-uid=a,search.clusterpedia.io/owner-name=b", "the owner is given twice"),
        ("search.clusterpedia.io/since=2026-02-01,search.clusterpedia.io/before=2026-01-01", "since is after before"),
        ("a in (", "unable to parse requirement"),
    ] {
        let error = labelled(labels).unwrap_err().to_string();
        assert!(error.contains(message), "{labels}: {error}");
    }
    for query in [
        "whereSQL=1%3D1",
        "whereSQLStatement=a",
        "orderby=name/**/desc",
        "orderby=name%3Bdrop",
        "continue=%25%25",
        "orderby=.a/**/b",
    ] {
        assert!(read(query).is_err(), "{query}");
    }
    assert_eq!(read("whereSQL=1").unwrap_err(), SearchError::Sql("whereSQL".into()));
}

#[test]
fn the_order_is_as_it_is_written() {
    let fields = |query: &Query| {
        let each = query.order.fields().iter().map(|by| (by.field.clone(), by.descending));
        each.collect::<Vec<_>>()
    };
    let up = |field| (field, false);
    let query = labelled("search.clusterpedia.io/orderby in (namespace_desc, cluster, name)").unwrap();
    let expected = [(OrderField::Namespace, true), up(OrderField::Cluster), up(OrderField::Name), up(OrderField::Uid)];
    assert_eq!(fields(&query), expected);
    let query = read("orderby=namespace%20desc,cluster").unwrap();
    assert_eq!(fields(&query), expected);
    let query = read("orderby=.status.phase,created_at desc").unwrap();
    assert!(matches!(fields(&query).as_slice(), [(OrderField::Path(_), false), (OrderField::Created, true), ..]));
}

#[test]
fn times_in_every_form() {
    for (text, expected) in [
        ("1773480400", NOW),
        ("1773480400000", NOW),
        ("2026-03-14T09:26:40Z", NOW),
        ("2026-03-14T17:26:40+08:00", NOW),
        ("2026-03-14 09:26:40", NOW),
        ("2026-03-14", 1_773_446_400_000_000),
        ("2h", NOW - 7_200_000_000),
    ] {
        assert_eq!(micros("since", text, NOW), Ok(expected), "{text}");
    }
    for text in ["", "177348040", "-2h", "tomorrow", "2026-13-01", "17734804000000"] {
        assert!(micros("since", text, NOW).is_err(), "{text}");
    }
}

#[test]
fn owners_and_times_are_judged_by_the_document() {
    let facts = Facts::default();
    let owners = |uid: &str| HashSet::from([uid.to_owned()]);
    let query = read("ownerUID=o1").unwrap();
    assert!(query.needs_document() && query.admits_document(&facts, POD, Some(&owners("o1"))));
    assert!(!query.admits_document(&facts, POD, Some(&owners("o0"))), "an owner that does not control it");
    let query = read("since=2026-03-14T08:00:00Z&before=2026-03-14T08:00:01Z").unwrap();
    assert!(query.admits_document(&facts, POD, None));
    assert!(!read("before=2026-03-14T08:00:00Z").unwrap().admits_document(&facts, POD, None));
    assert!(!read("since=3h").unwrap().admits_document(&facts, r#"{"metadata":{}}"#, None), "no time of creation");
}

#[test]
fn pages_by_parameters_and_by_labels() {
    let page = |query: &str| read(query).unwrap().page;
    assert!(
        page("limit=500").with_continue && !page("").with_continue && !page("limit=5&withContinue=false").with_continue
    );
    assert_eq!(page("limit=10&continue=5").offset, 5);
    let label = |label: &str, rest: &str| {
        let labels = format!("search.clusterpedia.io/{label}");
        page(&format!("labelSelector={}{rest}", labels.replace('=', "%3D")))
    };
    let limited = label("limit=10", "");
    assert_eq!((limited.limit, limited.total, limited.with_continue), (Some(10), None, false));
    let limited = label("limit=700", "&limit=500");
    assert_eq!((limited.limit, limited.total, limited.with_continue), (Some(500), Some(700), true));
    assert_eq!(label("size=3", "").size(), Some(3));
    assert_eq!(label("offset=10", "&limit=10").offset, 10);
}

#[test]
fn a_place_is_of_its_order_alone() {
    let (by_name, by_phase) = (read("orderby=name").unwrap().order, read("orderby=.status.phase").unwrap().order);
    let key = vec![Value::Text("a".into()), Value::Absent, Value::Integer(3), Value::Number(0.5)];
    let token = Position::behind(&by_name, key.clone(), 7).encode();
    let back = Position::decode(&token, &by_name).unwrap();
    assert_eq!((back.key(), back.given()), (key.as_slice(), 7));
    assert_eq!(Position::decode(&token, &by_phase), None);
    assert_eq!(Position::decode("bm9uZQ", &by_name), None);
}

#[test]
fn numbers_are_ordered_as_numbers_and_what_is_absent_comes_first() {
    let raw = [r#""a""#, "10", "9", "null", "true", "9.5", "false", "-1", r#""10""#, r#""9""#, "{}"];
    let mut values: Vec<Value> = raw.iter().map(|raw| Value::of_json(raw)).collect();
    values.sort_by(Value::compare);
    let text = |text: &str| Value::Text(text.into());
    let (whole, absent) = (Value::Integer, Value::Absent);
    let expected = [
        absent.clone(),
        absent,
        Value::Bool(false),
        Value::Bool(true),
        whole(-1),
        whole(9),
        Value::Number(9.5),
        whole(10),
        text("10"),
        text("9"),
        text("a"),
    ];
    assert_eq!(values, expected);
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Absent),
        any::<bool>().prop_map(Value::Bool),
        (-3_i64..3).prop_map(Value::Integer),
        (-3.0..3.0).prop_map(Value::Number),
        "[ab]{0,2}".prop_map(Value::Text),
    ]
}

proptest! {
    /// Whatever is shown to it in whatever order: the first rows of all, and the pages behind them, without one lost or twice.
    #[test]
    fn pages_of_the_first_rows_are_the_sorted_whole(
        keys in prop::collection::vec((value(), value()), 0..40),
        directions in (any::<bool>(), any::<bool>()),
        size in 1..7_usize,
    ) {
        let field = |field, descending| OrderBy { field, descending };
        let order = Order::new(vec![field(OrderField::Kind, directions.0), field(OrderField::Revision, directions.1)]).unwrap();
        let rows: Vec<Vec<Value>> = keys
            .into_iter()
            .enumerate()
            .map(|(at, (one, two))| {
                let uid = Value::Text(format!("{at:03}"));
                vec![one, two, Value::Absent, Value::Absent, Value::Absent, uid]
            })
            .collect();
        let mut whole = rows.clone();
        whole.sort_by(|one, other| order.compare(one, other));
        let (mut paged, mut after): (Vec<Vec<Value>>, Option<Vec<Value>>) = (Vec::new(), None);
        loop {
            let mut top = Top::new(&order, Some(size));
            for row in &rows {
                if after.as_ref().is_none_or(|after| order.compare(row, after).is_gt()) {
                    top.take(row.clone(), ());
                }
            }
            let page: Vec<Vec<Value>> = top.into_rows().into_iter().map(|ranked| ranked.key).collect();
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            paged.extend(page);
        }
        prop_assert_eq!(paged, whole);
    }

    /// No text is more than the parsers take.
    #[test]
    fn no_text_ends_a_parser(text in "[a-z.,'\"()\\[\\]!=<> \\\\*/0-9]{0,40}") {
        if let Ok(terms) = fields(&text) {
            let _either = terms.iter().all(|term| term.matches(POD));
        }
        let _any = (labelled(&text).is_ok(), read(&text).is_ok(), OrderField::parse(&text).is_ok());
        let of_none = Condition { operator: Operator::NotIn, values: vec![] };
        prop_assert!(of_none.is_met(&text));
    }
}
