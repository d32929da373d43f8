//! The two evaluators of a query: over rows in memory, and over the same rows in SQL.

use std::{
    collections::HashSet,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use kubefold_sql::{Database, RemoteState, Server, mysql::MysqlTls, params};
use kubefold_wire::{
    resource::Gvr,
    selector::{FieldPath, LabelSelector, Operator},
};
use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use rustls::{ClientConfig, RootCertStore};
use testbed::{MariadbServer, PostgresServer};

use super::*;
use crate::{
    mirror::{
        deleted::index,
        file::{digest_of, signed},
        stored::held_statement,
        tables::REMOTE_MIGRATIONS,
    },
    search::{
        Condition, Created, Facts, FieldOperator, FieldTerm, Order, OrderBy, OrderField, Page, Paged, Parameters,
        Position, Top, Value as Ordered,
    },
};

/// A row as a member has it.
#[derive(Clone, Debug)]
struct Object {
    member: &'static str,
    namespace: &'static str,
    name: String,
    uid: String,
    revision: u64,
    json: String,
}

impl Object {
    fn key(&self) -> String {
        crate::store::key(self.namespace, &self.name)
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            cluster: self.member,
            namespace: self.namespace,
            name: &self.name,
            uid: &self.uid,
            kind: "Pod",
            group: "",
            labels: Facts::labels_of(&self.json),
            revision: self.revision,
            deleted_us: 0,
        }
    }
}

fn gvr() -> Gvr {
    Gvr::new("", "v1", "pods")
}

/// A database with these objects, ready to be searched, in the place of those that it had.
fn filled(file: &File, objects: &[Object]) {
    let objects = objects.to_vec();
    let fill = move |sql: Sql<'_>| {
        sql.execute("DELETE FROM feeds", &[])?;
        for (id, member) in [(1_i64, "east"), (2, "west")] {
            sql.execute(
                "INSERT INTO feeds VALUES (?1, '', 'v1', 'pods', ?2, 'u', 7, 0, 0, 1, 0, 0)",
                params![id, member],
            )?;
        }
        for (at, object) in (1_i64..).zip(&objects) {
            let feed = if object.member == "east" { 1_i64 } else { 2 };
            let (key, revision) = (object.key(), signed(object.revision));
            let json = object.json.as_bytes();
            sql.execute(
                "INSERT INTO objects (id, feed, key, uid, revision, digest, document) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![at, feed, &key, &object.uid, revision, digest_of(json), json],
            )?;
            index(sql, at, &key, &object.json)?;
        }
        Ok(())
    };
    file.write(fill).unwrap();
}

/// One page: UIDs, how many rows follow, and where a next page begins.
#[derive(Debug, PartialEq)]
struct Seen {
    uids: Vec<String>,
    remaining: u64,
    next: Option<Position>,
}

/// As `crate::read::search` walks a snapshot.
fn in_memory(objects: &[Object], query: &Query, of: &Selection<'_>) -> Seen {
    let (page, order) = (&query.page, &query.order);
    let mut top = Top::new(order, page.room());
    for object in objects {
        let facts = object.facts();
        let is_seen = of.members.is_none_or(|members| members.contains(&object.member))
            && (of.namespace.is_empty() || of.namespace == object.namespace);
        if !is_seen || !query.admits(&facts) || !query.admits_document(&facts, &object.json, of.owners) {
            continue;
        }
        let after = page.after.as_ref();
        if after.is_none_or(|after| order.compare_row(&facts, &object.json, after.key()).is_gt()) {
            top.offer(&facts, &object.json, || object.uid.clone());
        }
    }
    let Paged { rows: uids, next, remaining } = top.into_page(page);
    Seen { uids, remaining, next }
}

fn in_sql(found: FoundPage, objects: &[Object], query: &Query) -> Seen {
    let FoundPage { objects: found, goes_on, remaining, .. } = found;
    assert!(!query.page.with_remaining || query.page.size() == Some(0) || goes_on == (remaining > 0));
    let given = query.page.after.as_ref().map_or(0, Position::given) + found.len();
    let last = found.last().filter(|_| goes_on && query.page.may_go_on(found.len()));
    let next = last.map(|last| {
        let object = objects.iter().find(|object| object.uid == last.uid).unwrap();
        assert_eq!(
            (&last.document, last.member.as_str(), last.key.clone()),
            (&object.json, object.member, object.key())
        );
        Position::behind(&query.order, query.order.key(&object.facts(), &object.json), given)
    });
    Seen { uids: found.into_iter().map(|found| found.uid).collect(), remaining, next }
}

/// A value of JSON, as it may be written.
fn value() -> impl Strategy<Value = &'static str> {
    select(vec![
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "3",
        "3.0",
        "3e0",
        "2.5",
        "-0.0",
        "10",
        "9",
        "1e2",
        "9007199254740993",
        "9007199254740992.0",
        "9223372036854775807",
        "9223372036854775808",
        "9223372036854775809",
        "-9223372036854775808",
        "-9223372036854775809",
        "4611686018427387904",
        "4611686018427387904.0",
        "4611686018427387904.5",
        "9007199254740993.0",
        "12345678901234567890123",
        "0.1",
        "\"\"",
        "\"a\"",
        "\"\\u0041\"",
        "\"A\"",
        "\"é\"",
        "\"a\\\"b\"",
        "\"1\"",
        "\"true\"",
        "{}",
        "{\"x\":1}",
        "[]",
        "[1,\"x\"]",
    ])
}

/// The fields that are looked for, and those that are like them.
fn spec() -> impl Strategy<Value = String> {
    let list = prop::collection::vec(prop::option::of(value()), 0..4);
    let rows = prop::collection::vec(prop::collection::vec(value(), 0..3), 0..3);
    (prop::option::of(value()), list, rows, value(), any::<bool>()).prop_map(|(one, list, rows, quoted, is_list)| {
        let mut fields = vec![format!(r#""k\"x":{quoted}"#)];
        fields.extend(one.map(|one| format!(r#""v":{one}"#)));
        let elements = list.iter().map(|value| match value {
            Some(value) => format!(r#"{{"v":{value}}}"#),
            None => "7".to_owned(),
        });
        let elements = elements.collect::<Vec<_>>().join(",");
        fields.push(if is_list {
            format!(r#""list":[{elements}]"#)
        } else {
            r#""list":{"v":3,"w":{"v":1}}"#.to_owned()
        });
        let rows = rows.iter().map(|row| format!("[{}]", row.join(",")));
        fields.push(format!(r#""rows":[{}]"#, rows.collect::<Vec<_>>().join(",")));
        format!("{{{}}}", fields.join(","))
    })
}

fn metadata() -> impl Strategy<Value = String> {
    let created = select(vec!["", "2026-03-14T08:00:00Z", "2026-03-14T09:00:00Z", "never"]);
    let label = select(vec!["x", "y", "", "5", "07", "-3", "99999999999999999999"]);
    let labels = prop::collection::btree_map(select(vec!["app", "a.io/tier", "n"]), label, 0..3);
    let owner = prop::option::of((select(vec!["o1", "o2"]), any::<bool>()));
    (created, labels, owner).prop_map(|(created, labels, owner)| {
        let mut fields = vec![format!(r#""labels":{}"#, serde_json::to_string(&labels).unwrap())];
        if !created.is_empty() {
            fields.push(format!(r#""creationTimestamp":"{created}""#));
        }
        if let Some((uid, controls)) = owner {
            let other = r#"{"uid":"o1"}"#;
            fields.push(format!(r#""ownerReferences":[{other},{{"uid":"{uid}","controller":{controls}}}]"#));
        }
        fields.join(",")
    })
}

fn objects() -> impl Strategy<Value = Vec<Object>> {
    let one = (select(vec!["east", "west"]), select(vec!["", "a", "b"]), "[abB]{1,2}é?", 1..4_u64, metadata(), spec());
    prop::collection::vec(one, 0..14).prop_map(|all| {
        let mut objects: Vec<Object> = Vec::new();
        for (at, (member, namespace, name, revision, metadata, spec)) in all.into_iter().enumerate() {
            let uid = format!("u{at:02}");
            let json = format!(r#"{{"kind":"Pod","metadata":{{"uid":"{uid}",{metadata}}},"spec":{spec}}}"#);
            let object = Object { member, namespace, name, uid, revision, json };
            if !objects.iter().any(|other| other.member == member && other.key() == object.key()) {
                objects.push(object);
            }
        }
        objects
    })
}

fn path() -> impl Strategy<Value = FieldPath> {
    let texts = [
        "spec.v",
        "spec.v[0]",
        "spec.v.x",
        "spec.list",
        "spec.list[]",
        "spec.list[].v",
        "spec.list[1].v",
        "spec.list.v",
        "spec.rows[][]",
        "spec.rows[0][]",
        "spec.rows[]",
        "spec['k\"x']",
        "spec.none",
        "metadata.labels['a.io/tier']",
    ];
    select(texts.to_vec()).prop_map(|text| FieldPath::parse(text).unwrap())
}

fn condition(values: &[&'static str]) -> impl Strategy<Value = Vec<Condition>> {
    let operator = select(vec![Operator::In, Operator::NotIn, Operator::Exists, Operator::NotExists]);
    let values = prop::collection::vec(select(values.to_vec()).prop_map(str::to_owned), 0..3);
    let one = (operator, values).prop_map(|(operator, values)| Condition { operator, values });
    prop::collection::vec(one, 0..2)
}

fn labels() -> impl Strategy<Value = LabelSelector> {
    let terms = [
        "app=x",
        "app!=x",
        "app in (x,y)",
        "app notin (x,5)",
        "app",
        "!app",
        "n>4",
        "n<6",
        "n>0",
        "a.io/tier=",
        "n=07",
    ];
    let one = prop::collection::vec(select(terms.to_vec()), 0..3);
    one.prop_map(|terms| LabelSelector::parse(&terms.join(",")).unwrap())
}

fn term() -> impl Strategy<Value = FieldTerm> {
    let operator =
        select(vec![FieldOperator::In, FieldOperator::NotIn, FieldOperator::Exists, FieldOperator::NotExists]);
    let value = select(vec!["", "a", "A", "é", "a\"b", "1", "3", "3.0", "3e0", "true", "-0.0", "100", "{}", "7"]);
    let values = prop::collection::vec(value.prop_map(str::to_owned), 0..4);
    (path(), operator, values).prop_map(|(path, operator, values)| FieldTerm { path, operator, values })
}

fn order() -> impl Strategy<Value = Order> {
    use OrderField::{Cluster, Created, Deleted, Kind, Name, Namespace, Revision, Uid};
    let typed = select(vec![Cluster, Namespace, Name, Kind, Created, Deleted, Revision, Uid]);
    let field = prop_oneof![typed, path().prop_map(OrderField::Path)];
    let one = (field, any::<bool>()).prop_map(|(field, descending)| OrderBy { field, descending });
    prop::collection::vec(one, 0..4).prop_map(|fields| Order::new(fields).unwrap())
}

fn ordered() -> impl Strategy<Value = Ordered> {
    prop_oneof![
        Just(Ordered::Absent),
        any::<bool>().prop_map(Ordered::Bool),
        (-2_i64..10).prop_map(Ordered::Integer),
        select(vec![-0.5, 3.0, 2.5, 1e30, 4_611_686_018_427_387_904.0, 9_223_372_036_854_775_808.0])
            .prop_map(Ordered::Number),
        select(vec!["", "a", "east", "Pod.", "b"]).prop_map(|text| Ordered::Text(text.to_owned())),
    ]
}

fn page() -> impl Strategy<Value = Page> {
    let limit = prop::option::weighted(0.8, 1..5_usize);
    (limit, 0..3_usize, any::<bool>(), prop::option::weighted(0.2, 0..7_usize)).prop_map(
        |(limit, offset, with_continue, total)| Page {
            limit,
            offset,
            with_continue,
            with_remaining: true,
            total,
            after: None,
        },
    )
}

/// 2026-03-14T08:00:00Z, and an hour later.
const HOUR: [i64; 2] = [1_773_475_200_000_000, 1_773_478_800_000_000];

fn query() -> impl Strategy<Value = Query> {
    let time = || prop::option::weighted(0.2, select(vec![HOUR[0], HOUR[0] + 1, HOUR[1]]));
    let created = (time(), time()).prop_map(|(since, before)| Created { since, before });
    let fuzzy = prop::collection::vec(select(vec!["", "a", "B", "b", "é", "É"]).prop_map(str::to_owned), 0..2);
    let texts = (condition(&["east", "west", "north"]), condition(&["a", "b", ""]), condition(&["a", "b", "ab"]));
    let fields = prop::collection::vec(term(), 0..2);
    let made_up = prop::option::weighted(0.2, prop::collection::vec(ordered(), 8));
    (texts, fuzzy, created, labels(), fields, order(), page(), made_up).prop_map(
        |((clusters, namespaces, names), fuzzy, created, labels, fields, order, mut page, made_up)| {
            // A place that nobody gave out.
            page.after = made_up.map(|mut key| {
                key.truncate(order.fields().len());
                Position::behind(&order, key, 0)
            });
            let labels = labels.into_requirements();
            Query { clusters, namespaces, names, fuzzy, created, labels, fields, order, page, ..Query::default() }
        },
    )
}

/// What is asked of the objects of one file, and how.
#[derive(Debug)]
struct Asked {
    objects: Vec<Object>,
    queries: Vec<Query>,
    members: Option<Vec<&'static str>>,
    namespace: &'static str,
    owners: Option<HashSet<String>>,
}

fn asked() -> impl Strategy<Value = Asked> {
    let members = prop::option::of(prop::collection::vec(select(vec!["east", "west"]), 0..2));
    let owner = select(vec!["o1", "o2"]).prop_map(str::to_owned);
    let owners = prop::option::weighted(0.3, prop::collection::hash_set(owner, 0..3));
    let queries = prop::collection::vec(query(), 1..8);
    (objects(), queries, members, select(vec!["", "", "a"]), owners).prop_map(
        |(objects, queries, members, namespace, owners)| Asked { objects, queries, members, namespace, owners },
    )
}

impl Asked {
    /// Asks for every page of every query.
    fn agrees(self, mut search: impl FnMut(&Query, &Selection<'_>) -> FoundPage) -> Result<(), TestCaseError> {
        let gvr = gvr();
        let (members, namespace, owners) = (self.members.as_deref(), self.namespace, self.owners.as_ref());
        let of = Selection { gvr: &gvr, kind: "Pod", members, namespace, owners };
        for mut query in self.queries {
            loop {
                let expected = in_memory(&self.objects, &query, &of);
                let found = in_sql(search(&query, &of), &self.objects, &query);
                prop_assert_eq!(&found, &expected, "{:?}", query);
                let Some(next) = expected.next else { break };
                query.page.offset = 0;
                query.page.after = Some(next);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn both_evaluators_give_the_same_rows_in_the_same_order_and_pages(asked in asked()) {
        let directory = tempfile::tempdir().unwrap();
        let file = File::open(&directory.path().join("mirror.db"), None, true).unwrap();
        filled(&file, &asked.objects);
        asked.agrees(|query, of| file.search(query, of).unwrap())?;
    }
}

#[test]
fn postgresql_gives_the_same_rows_in_the_same_order_and_pages() {
    let (server, folder) = (PostgresServer::start(), tempfile::tempdir().unwrap());
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let tls = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let file = tables(Server::postgres(&server.database("search", None), tls).unwrap(), folder.path());
    looks_keys_up_without_statistics(&file);
    let mut runner = TestRunner::new(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() });
    let all = runner.run(&asked(), |asked| {
        filled(&file, &asked.objects);
        asked.agrees(|query, of| file.search(query, of).unwrap())
    });
    all.unwrap_or_else(|error| panic!("{error}"));
    finds_by_indexes(&file, |plan, index| {
        plan.contains(&format!("using {index}").to_lowercase()) || plan.contains(&format!("on {index}"))
    });
    let (gvr, owners) = (gvr(), HashSet::from(["o1".to_owned()]));
    let of = Selection { gvr: &gvr, kind: "Pod", members: Some(&["east"]), namespace: "", owners: Some(&owners) };
    let by_owner =
        plan(&file, &Parameters { query: "labelSelector=app%3Dweb,!old", now: HOUR[1] }.read().unwrap(), &of);
    assert!(by_owner.contains("objects_owner") && by_owner.contains("SubPlan 2"), "a label of each row: {by_owner}");
    // PostgreSQL has no text with a NUL: an object that has one is found all the same.
    let json = r#"{"metadata":{"name":"nul","namespace":"a"},"spec":{"key":"x\u0000y"}}"#.to_owned();
    let nul = Object { member: "east", namespace: "a", name: "nul".into(), uid: "nul".into(), revision: 8, json };
    filled(&file, &[nul]);
    let of = Selection { gvr: &gvr, kind: "Pod", members: Some(&["east"]), namespace: "", owners: None };
    let query = Parameters { query: "fieldSelector=spec.key!%3Dx", now: HOUR[1] }.read().unwrap();
    assert_eq!(file.search(&query, &of).unwrap().objects.len(), 1);
    waits_for_no_write(file);
}

#[test]
fn mysql_gives_the_same_rows_in_the_same_order_and_pages() {
    let (server, folder) = (MariadbServer::start(), tempfile::tempdir().unwrap());
    let file = tables(Server::mysql(&server.url("search"), MysqlTls::default()).unwrap(), folder.path());
    let mut runner = TestRunner::new(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() });
    let all = runner.run(&asked(), |asked| {
        filled(&file, &asked.objects);
        asked.agrees(|query, of| file.search(query, of).unwrap())
    });
    all.unwrap_or_else(|error| panic!("{error}"));
    finds_by_indexes(&file, |plan, index| plan.contains(index));
    // MariaDB reads no JSON that is nested so deep.
    let json = format!(
        r#"{{"metadata":{{"name":"deep"}},"spec":{{"key":"x"}},"deep":{}1{}}}"#,
        "[".repeat(90),
        "]".repeat(90)
    );
    let deep = Object { member: "east", namespace: "a", name: "deep".into(), uid: "deep".into(), revision: 8, json };
    filled(&file, &[deep]);
    let gvr = gvr();
    let owners: HashSet<String> = (0..1500).map(|at| format!("o{at}")).collect();
    let of = Selection { gvr: &gvr, kind: "Pod", members: Some(&["east"]), namespace: "", owners: None };
    let query = Parameters { query: "fieldSelector=spec.key%3Dx&fuzzy=EE", now: HOUR[1] }.read().unwrap();
    assert_eq!(file.search(&query, &of).unwrap().objects.len(), 1);
    assert_eq!(file.uids(&query, &of).unwrap(), ["deep"]);
    // More than stand in a statement one by one.
    assert_eq!(file.uids(&query, &Selection { owners: Some(&owners), ..of }).unwrap().len(), 0);
    waits_for_no_write(file);
}

/// That what exists is found by the indexes; `names` says whether a plan goes by one.
fn finds_by_indexes(file: &File, names: impl Fn(&str, &str) -> bool) {
    let indexes = ["objects_living", "objects_named", "objects_living", "labels_value"];
    for (plan, index) in living_plans(file).iter().zip(indexes) {
        assert!(names(plan, index), "{index}: {plan}");
    }
}

/// The tables of a server.
fn tables(server: Server, folder: &std::path::Path) -> File {
    let state = RemoteState::open(server, &["kubefold", "kubefold_mirror"], folder.join("mark")).unwrap();
    File::of(Database::open_in(&state, "kubefold_mirror", REMOTE_MIGRATIONS).unwrap(), None, true)
}

/// That PostgreSQL, which has counted nothing yet, looks up what is there under the keys of a report.
fn looks_keys_up_without_statistics(file: &File) {
    let explain = format!("EXPLAIN (COSTS OFF) {}", held_statement(Words::Postgres));
    let steps = file.database.read(|sql| sql.rows(&explain, params![1_i64, r#"["a/b"]"#], |row| row.get::<String>(0)));
    let plan = steps.unwrap().join("\n");
    assert!(plan.contains("(key = wanted.key)"), "{plan}");
}

/// That a search finds what was written while a write keeps the connection that writes. In a thread, since it would wait for ever
/// otherwise.
fn waits_for_no_write(file: File) {
    filled(&file, &many()[..10]);
    let file = Arc::new(file);
    let searching = Arc::clone(&file);
    let found = file.write(move |sql| {
        sql.execute("DELETE FROM objects", &[])?;
        let (tell, told) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let gvr = gvr();
            let of = Selection { gvr: &gvr, kind: "Pod", members: Some(&["east"]), namespace: "", owners: None };
            let found = searching.search(&Query::default(), &of).map(|page| page.objects.len());
            tell.send(found.map_err(|error| error.to_string())).unwrap();
        });
        Ok(told.recv_timeout(Duration::from_secs(60)))
    });
    assert_eq!(found.unwrap(), Ok(Ok(5)));
}

#[test]
fn a_search_and_a_write_do_not_wait_for_each_other() {
    let directory = tempfile::tempdir().unwrap();
    waits_for_no_write(File::open(&directory.path().join("mirror.db"), None, true).unwrap());
}

/// How the database goes about a statement.
fn plan(file: &File, query: &Query, of: &Selection<'_>) -> String {
    let steps = file.database.read(|sql| {
        let dialect = dialect(sql);
        let mut statement = query.page_statement(of, dialect);
        statement.text = match dialect {
            Dialect::Sqlite => format!("EXPLAIN QUERY PLAN {}", statement.text),
            Dialect::Postgres => format!("EXPLAIN (COSTS OFF) {}", statement.text),
            Dialect::Mysql => format!("EXPLAIN {}", statement.text),
        };
        rows(sql, &statement, |row| match dialect {
            Dialect::Sqlite => row.get::<String>(3),
            Dialect::Postgres => row.get(0),
            // Which table, and by which index.
            Dialect::Mysql => Ok(format!("{:?} by {:?}", row.get::<Option<String>>(2)?, row.get::<Option<String>>(5)?)),
        })
    });
    steps.unwrap().join("\n")
}

/// Many objects of two members, some of them with a label that few have.
fn many() -> Vec<Object> {
    let object = |at: usize| {
        let (member, namespace) = (["east", "west"][at % 2], ["a", "b"][at / 2 % 2]);
        let (name, uid) = (format!("pod-{at:05}"), format!("u-{at}"));
        let app = if at.is_multiple_of(500) { "rare" } else { "web" };
        let json = format!(r#"{{"kind":"Pod","metadata":{{"uid":"{uid}","labels":{{"app":"{app}"}}}}}}"#);
        Object { member, namespace, name, uid, revision: 1, json }
    };
    (0..8000).map(object).collect()
}

/// That what exists is found by the indexes: `[by namespace, by name, by the place of a page, by a label]`.
fn living_plans(file: &File) -> [String; 4] {
    filled(file, &many());
    let analyze = match file.database.read(|sql| Ok(sql.words())).unwrap() {
        Words::Sqlite => "",
        Words::Postgres => "ANALYZE objects; ANALYZE labels; ANALYZE feeds",
        Words::Mysql => "ANALYZE TABLE objects; ANALYZE TABLE labels; ANALYZE TABLE feeds",
    };
    file.database.read(|sql| sql.batch(analyze)).unwrap();
    let gvr = gvr();
    let of = Selection { gvr: &gvr, kind: "Pod", members: Some(&["east"]), namespace: "", owners: None };
    let read = |query: &str| Parameters { query, now: HOUR[1] }.read().unwrap();
    let mut behind = read("limit=10");
    let key = ["b", "pod-00100", "east", "u-100"].map(|text| Ordered::Text(text.to_owned()));
    behind.page.after = Some(Position::behind(&behind.order, key.into(), 0));
    let in_namespace = Selection { namespace: "a", ..of };
    [
        plan(file, &read("limit=10"), &in_namespace),
        plan(file, &read("names=pod-00002"), &of),
        plan(file, &behind, &of),
        plan(file, &read("labelSelector=app%3Drare"), &of),
    ]
}

#[test]
fn what_exists_is_found_by_indexes_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let file = File::open(&directory.path().join("mirror.db"), None, true).unwrap();
    let [namespace, name, place, label] = living_plans(&file);
    assert!(namespace.contains("SEARCH o USING INDEX objects_living (feed=? AND namespace=?"), "{namespace}");
    assert!(name.contains("SEARCH o USING INDEX objects_named (feed=? AND name=?)"), "{name}");
    assert!(place.contains("SEARCH o USING INDEX objects_living (feed=? AND (namespace,name)>(?,?))"), "{place}");
    assert!(label.contains("SEARCH l USING COVERING INDEX labels_value (key=? AND value=?)"), "{label}");
}

#[test]
fn what_few_objects_have_is_looked_up_and_not_looked_for() {
    let directory = tempfile::tempdir().unwrap();
    let file = File::open(&directory.path().join("mirror.db"), None, true).unwrap();
    let gvr = gvr();
    let owners = HashSet::from(["o1".to_owned(), "o2".to_owned()]);
    let of = Selection { gvr: &gvr, kind: "Pod", members: Some(&["east"]), namespace: "", owners: None };
    let read = |query: &str| Parameters { query, now: HOUR[1] }.read().unwrap();
    let by_label = plan(&file, &read("labelSelector=!old,app%3Dweb"), &of);
    assert!(by_label.contains("SEARCH l USING COVERING INDEX labels_value (key=? AND value=?)"), "{by_label}");
    assert!(by_label.contains("SEARCH o USING INTEGER PRIMARY KEY"), "{by_label}");
    let by_owner = plan(&file, &read("labelSelector=app%3Dweb"), &Selection { owners: Some(&owners), ..of });
    assert!(by_owner.contains("SEARCH o USING INDEX objects_owner (owner=?)"), "{by_owner}");
    assert!(by_owner.contains("SEARCH l USING PRIMARY KEY (object=? AND key=?)"), "{by_owner}");
    let deleted = plan(&file, &read("deleted=true&since=1h"), &of);
    assert!(deleted.contains("SEARCH o USING INDEX objects_deleted (feed=? AND deleted_us>?)"), "{deleted}");
}
