//! The two evaluators of a query: over rows in memory, and over the same rows in SQL.

use std::{collections::HashSet, path::Path};

use kubefold_sql::rusqlite::params;
use kubefold_wire::{
    resource::Gvr,
    selector::{FieldPath, LabelSelector, Operator},
};
use proptest::{prelude::*, sample::select, test_runner::TestRunner};

use super::*;
use crate::{
    mirror::{
        deleted::index,
        file::{digest_of, signed},
    },
    search::{
        Condition, Created, Facts, FieldOperator, FieldTerm, Order, OrderBy, OrderField, Page, Paged, Position, Top,
        Value as Ordered, sql::Indexed,
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

/// A file with these objects, ready to be searched.
fn file(directory: &Path, objects: &[Object]) -> File {
    let file = File::open(&directory.join("mirror.db"), None, true).unwrap();
    let objects = objects.to_vec();
    file.write(move |sql| {
        for (id, member) in [(1, "east"), (2, "west")] {
            sql.execute(
                "INSERT INTO feeds VALUES (?1, '', 'v1', 'pods', ?2, 'u', 7, 0, 0, 1)",
                params![id, member],
            )?;
        }
        for (at, object) in (1_i64..).zip(&objects) {
            let feed = if object.member == "east" { 1 } else { 2 };
            sql.execute(
                "INSERT INTO objects (id, feed, key, uid, revision, digest, document) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    at,
                    feed,
                    object.key(),
                    object.uid,
                    signed(object.revision),
                    digest_of(object.json.as_bytes()),
                    object.json.as_bytes()
                ],
            )?;
            index(sql, at, &object.key(), &object.json)?;
        }
        Ok(())
    })
    .unwrap();
    file
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
    let FoundPage { objects: found, goes_on, remaining } = found;
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
        select(vec![-0.5, 3.0, 2.5, 1e30]).prop_map(Ordered::Number),
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
        let file = file(directory.path(), &asked.objects);
        asked.agrees(|query, of| file.search(query, of).unwrap())?;
    }
}

/// The tables as PostgreSQL has them.
const POSTGRES: &str = r#"
CREATE TABLE feeds (id BIGINT, "group" TEXT, version TEXT, resource TEXT, member TEXT, revision BIGINT);
INSERT INTO feeds VALUES (1, '', 'v1', 'pods', 'east', 7), (2, '', 'v1', 'pods', 'west', 7);
CREATE TABLE objects (id BIGINT, feed BIGINT, key TEXT, uid TEXT, revision BIGINT, digest BIGINT, document BYTEA,
    deleted_us BIGINT, namespace TEXT, name TEXT, created_us BIGINT, owner TEXT);
CREATE TABLE labels (object BIGINT, key TEXT, value TEXT, number BIGINT, PRIMARY KEY (object, key));
"#;

fn fill(client: &mut postgres::Client, objects: &[Object]) {
    client.batch_execute("TRUNCATE objects, labels").unwrap();
    for (at, object) in (1_i64..).zip(objects) {
        let feed = if object.member == "east" { 1_i64 } else { 2 };
        let Indexed { created_us, owner, labels } = Indexed::of(&object.json);
        let statement = "INSERT INTO objects VALUES ($1, $2, $3, $4, $5, 0, $6, 0, $7, $8, $9, $10)";
        let (key, revision, document) = (object.key(), signed(object.revision), object.json.as_bytes());
        let (namespace, name) = (object.namespace, &object.name);
        client
            .execute(
                statement,
                &[&at, &feed, &key, &object.uid, &revision, &document, &namespace, &name, &created_us, &owner],
            )
            .unwrap();
        for label in labels {
            let statement = "INSERT INTO labels VALUES ($1, $2, $3, $4)";
            client.execute(statement, &[&at, &label.key, &label.value, &label.number]).unwrap();
        }
    }
}

/// Asks a statement with numbered parameters, which PostgreSQL writes with a dollar sign.
fn asked_of(client: &mut postgres::Client, statement: &Statement) -> Vec<postgres::Row> {
    use postgres::types::ToSql;
    let values: Vec<Box<dyn ToSql + Sync>> = statement
        .parameters
        .iter()
        .map(|parameter| -> Box<dyn ToSql + Sync> {
            match parameter.clone() {
                Parameter::Text(text) => Box::new(text),
                Parameter::Integer(whole) => Box::new(whole),
                Parameter::Number(number) => Box::new(number),
            }
        })
        .collect();
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value).collect();
    let text = statement.text.replace('?', "$");
    client.query(&text, &values).unwrap_or_else(|error| panic!("{error}: {text}: {:?}", statement.parameters))
}

fn in_postgres(client: &mut postgres::Client, query: &Query, of: &Selection<'_>) -> FoundPage {
    let rows = asked_of(client, &query.page_statement(of, Dialect::Postgres));
    let count: i64 = asked_of(client, &query.count_statement(of, Dialect::Postgres))[0].get(0);
    let size = query.page.size().unwrap_or(usize::MAX);
    let objects: Vec<FoundObject> = rows
        .iter()
        .take(size)
        .map(|row| FoundObject {
            member: MemberName::new(row.get(0)).unwrap(),
            key: row.get(1),
            uid: row.get(2),
            revision: unsigned(row.get(3)),
            deleted_us: row.get(4),
            document: String::from_utf8(row.get(6)).unwrap(),
        })
        .collect();
    let remaining = unsigned(count).saturating_sub((query.page.offset + objects.len()) as u64);
    FoundPage { objects, goes_on: rows.len() > size, remaining }
}

#[test]
fn postgresql_gives_the_same_rows_in_the_same_order_and_pages() {
    let server = testbed::PostgresServer::start();
    let mut client = postgres::Client::connect(&server.schema("search"), postgres::NoTls).unwrap();
    client.batch_execute(POSTGRES).unwrap();
    let client = std::cell::RefCell::new(client);
    let mut runner = TestRunner::new(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() });
    let all = runner.run(&asked(), |asked| {
        fill(&mut client.borrow_mut(), &asked.objects);
        asked.agrees(|query, of| in_postgres(&mut client.borrow_mut(), query, of))
    });
    all.unwrap_or_else(|error| panic!("{error}"));
}
