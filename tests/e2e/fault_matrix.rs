//! Every way in which a member may answer wrongly, to a list, a watch and a get: one table, one member for each row, and
//! what must hold for all of them at once. A fault stays its member's.

use std::{collections::BTreeMap, time::Duration};

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use testbed::{
    Api, FleetFile, Informer, Kind, Kubefold, Lie, Member, MemberOptions, Saboteur, Testbed, eventually, figure,
    objects::{CONFIG_MAPS, IN_DEFAULT, Objects, create, held, listed, objects, same, update},
};

const SOON: Duration = Duration::from_secs(40);

/// One row: a member that lies.
struct Row {
    name: &'static str,
    kind: Kind,
    lie: Lie,
    /// As metrics and the log call it.
    cause: &'static str,
    /// What its Warning says; of a get, nothing where the answer passes through.
    warning: &'static str,
}

const fn row(name: &'static str, kind: Kind, lie: Lie, cause: &'static str, warning: &'static str) -> Row {
    Row { name, kind, lie, cause, warning }
}

const HTML: &[u8] = b"<!DOCTYPE html><html><body>Please log in</body></html>";
const HTML_PAGE: Lie = Lie::Answer(200, &[("content-type", "text/html")], HTML);
/// The first bytes of a compressed list.
const GZIP: Lie =
    Lie::Answer(200, &[("content-encoding", "gzip")], b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xaa\x56\xca\xce\xcc\x4b");
const THROTTLED: Lie = Lie::Answer(
    429,
    &[("retry-after", "4")],
    br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"slow down","reason":"TooManyRequests","code":429}"#,
);
const GONE: Lie = Lie::Answer(
    410,
    &[],
    br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}"#,
);
const FAILED: Lie = Lie::Answer(500, &[], br#"{"kind":"Status","message":"etcdserver: leader changed","code":500}"#);
const NO_JSON: Lie = Lie::Answer(200, &[], b"{\"kind\":\"ConfigMapList\",\"items\":[{]}\n");
const NO_UID: Lie = Lie::Answer(
    200,
    &[],
    br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"99999999"},"items":[{"metadata":{"name":"x","namespace":"default"}}]}"#,
);
const NO_UID_EVENT: Lie =
    Lie::Broken(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"x\",\"namespace\":\"default\"}}}\n");
const NO_EVENT: Lie = Lie::Broken(b"{\"type\":\"NEWS\",\"object\":{}}\n");
const GONE_EVENT: Lie = Lie::Broken(
    b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"message\":\"too old\",\"reason\":\"Expired\",\"code\":410}}\n",
);
const HALF_EVENT: Lie = Lie::Broken(b"{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"one\",");
const HALF_LINE: Lie = Lie::Answer(200, &[], b"{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"one\",");
const ENDLESS: Lie = Lie::Endless(b"x");

/// All of them.
const ROWS: &[Row] = &[
    row("list-cut", Kind::List, Lie::Half, "cut", "the answer broke off"),
    row("list-gzip", Kind::List, GZIP, "unexpected", "with gzip, not JSON"),
    row("list-gone", Kind::List, GONE, "expired", "is gone"),
    row("list-throttled", Kind::List, THROTTLED, "throttled", "429"),
    row("list-failed", Kind::List, FAILED, "http_5xx", "leader changed"),
    row("list-no-json", Kind::List, NO_JSON, "undecodable", "its list cannot be read"),
    row("list-html", Kind::List, HTML_PAGE, "unexpected", "with text/html, not JSON"),
    row("list-no-uid", Kind::List, NO_UID, "bad_object", "cannot be taken in"),
    row("list-endless", Kind::List, ENDLESS, "too_large", "larger than"),
    row("watch-cut", Kind::Watch, HALF_EVENT, "cut", "the answer broke off"),
    row("watch-half-line", Kind::Watch, HALF_LINE, "cut", "broke inside an event"),
    row("watch-gzip", Kind::Watch, GZIP, "unexpected", "with gzip, not JSON"),
    row("watch-gone", Kind::Watch, GONE, "expired", "is gone"),
    row("watch-gone-later", Kind::Watch, GONE_EVENT, "expired", "is gone"),
    row("watch-throttled", Kind::Watch, THROTTLED, "throttled", "429"),
    row("watch-failed", Kind::Watch, FAILED, "http_5xx", "leader changed"),
    row("watch-no-event", Kind::Watch, NO_EVENT, "undecodable", "its watch cannot be read"),
    row("watch-html", Kind::Watch, HTML_PAGE, "unexpected", "with text/html, not JSON"),
    row("watch-no-uid", Kind::Watch, NO_UID_EVENT, "bad_object", "cannot be taken in"),
    row("watch-endless", Kind::Watch, ENDLESS, "too_large", "an event of more than"),
    row("get-cut", Kind::Get, Lie::Half, "cut", "the answer broke off"),
    row("get-gzip", Kind::Get, GZIP, "bad_object", "not an object"),
    row("get-throttled", Kind::Get, THROTTLED, "throttled", ""),
    row("get-failed", Kind::Get, FAILED, "http_5xx", "leader changed"),
    row("get-no-json", Kind::Get, NO_JSON, "bad_object", "not an object"),
    row("get-html", Kind::Get, HTML_PAGE, "bad_object", "not an object"),
    row("get-endless", Kind::Get, ENDLESS, "too_large", "larger than"),
];

/// What the fleet must show: east's own objects, and west's under every name that it is a member by.
async fn wanted(east: &Member, west: &Member) -> Objects {
    let under = |all: &Value, name: &str| -> Objects {
        objects(all).into_iter().map(|(key, object)| (format!("{key}@{name}"), object)).collect()
    };
    let mut all = under(&east.api().await.get(CONFIG_MAPS).await, "east");
    let west = west.api().await.get(CONFIG_MAPS).await;
    ROWS.iter().for_each(|row| all.extend(under(&west, row.name)));
    all
}

/// The samples of a scrape: name with labels, to value.
async fn scrape(api: &Api) -> BTreeMap<String, f64> {
    let answer = api.request(Method::GET, "/metrics", "").await;
    assert_eq!(answer.status, StatusCode::OK, "{answer}");
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// How often a member failed, by cause.
fn failures(samples: &BTreeMap<String, f64>, member: &str) -> BTreeMap<String, f64> {
    let of = format!("kubefold_member_failures_total{{member=\"{member}\",cause=\"");
    let cause = |(name, value): (&String, &f64)| {
        let cause = name.strip_prefix(&of)?.strip_suffix("\"}")?;
        Some((cause.to_owned(), *value))
    };
    samples.iter().filter_map(cause).collect()
}

/// The fleet's events, as `TYPE name`, from a watch that the test opens before the faults.
struct WatchedEvents {
    watch: testbed::Watch,
}

impl WatchedEvents {
    async fn from(api: &Api) -> Self {
        let list = api.get(CONFIG_MAPS).await;
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
        Self { watch: api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).await }
    }

    /// That the next events are these, in any order.
    async fn are(&mut self, mut wanted: Vec<String>) {
        let mut told = Vec::new();
        while told.len() < wanted.len() {
            let event = self.watch.next(SOON).await.expect("the watch is open");
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            told.push(format!("{} {name}", event["type"].as_str().unwrap()));
        }
        told.sort();
        wanted.sort();
        assert_eq!(told, wanted);
    }
}

/// What a get meets while its member lies, and that it is told.
async fn gets(api: &Api) {
    for row in ROWS.iter().filter(|row| row.kind == Kind::Get) {
        let one = api.request(Method::GET, &format!("{IN_DEFAULT}/one@{}", row.name), "").await;
        if row.warning.is_empty() {
            assert_eq!(
                (one.status, one.headers["retry-after"].to_str().unwrap()),
                (StatusCode::TOO_MANY_REQUESTS, "4")
            );
            assert_eq!(one.json()["message"], "slow down", "{}", row.name);
            continue;
        }
        assert_eq!(one.ok()["data"]["is"], "first", "{}", row.name);
        let told = one.warnings();
        assert!(
            told.len() == 1 && told[0].contains(row.name) && told[0].contains(row.warning),
            "{}: {told:?}",
            row.name
        );
    }
}

/// That every fault is seen by member and cause, and nothing else is.
fn counted(samples: &BTreeMap<String, f64>) {
    assert_eq!(failures(samples, "east"), BTreeMap::new());
    for row in ROWS {
        let mut causes = failures(samples, row.name);
        // A list is made to happen by a watch that is cut and told that it is too old.
        let provoked: &[&str] = match row.kind {
            Kind::List => &["cut", "expired"],
            Kind::Watch => &["cut"],
            Kind::Get | Kind::Review => &[],
        };
        assert!(causes.remove(row.cause).is_some_and(|count| count >= 1.0), "{}: {causes:?}", row.name);
        causes.retain(|cause, _| !provoked.contains(&cause.as_str()));
        assert!(causes.is_empty(), "{}: {causes:?}", row.name);
        let ready = format!("kubefold_member_health{{member=\"{}\",state=\"ready\"}}", row.name);
        assert_eq!(samples.get(&ready), Some(&1.0), "{}", row.name);
        if row.kind == Kind::List {
            let lists = format!("kubefold_member_lists_total{{member=\"{}\",reason=\"expired\"}}", row.name);
            assert!(samples.get(&lists).is_some_and(|count| *count >= 1.0), "{lists}");
        }
    }
}

/// That a member that lies is left in peace: asked again ever less often, and when it says how long, no sooner.
fn calm(saboteur: &Saboteur, row: &Row, since: Instant) {
    let seen = saboteur.seen_since(since);
    assert!(seen.iter().all(|seen| seen.accept_encoding.is_none()), "kubefold asks for no encoding");
    let seconds = usize::try_from(since.elapsed().as_secs()).unwrap();
    // Pauses of 0.1, 0.2, ... 5 s between sessions, each of which asks for a revision, a list of up to four sizes of
    // pages, and a watch.
    let sessions = 8 + seconds / 4;
    let most = if row.name == "list-endless" { sessions * 6 } else { sessions * 3 };
    assert!(row.kind == Kind::Get || seen.len() <= most, "{}: {} requests in {seconds} s", row.name, seen.len());
    if row.cause == "throttled" && row.kind != Kind::Get {
        let lied: Vec<_> = seen.iter().filter(|seen| seen.kind == row.kind).collect();
        let gaps: Vec<_> = lied.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(
            !gaps.is_empty() && gaps.iter().all(|gap| *gap >= Duration::from_millis(3900)),
            "{}: {gaps:?}",
            row.name
        );
    }
}

/// The names under which an event of each row's member is told: of those whose lists and watches are true, or of the rest.
fn under(what: &str, true_watches: bool) -> Vec<String> {
    let is_it = |row: &&Row| (row.kind == Kind::Get) == true_watches;
    ROWS.iter().filter(is_it).map(|row| format!("{what}@{}", row.name)).collect()
}

/// That the fleet shows all that its members hold, and warns of nothing.
async fn exact(api: &Api, east: &Member, west: &Member) -> Result<(), String> {
    let (shown, warnings) = listed(api).await?;
    same(&shown, &wanted(east, west).await)?;
    if warnings.is_empty() { Ok(()) } else { Err(format!("{warnings:?}")) }
}

/// Waits until a list warns of every member that cannot be listed or watched, with the cause. A watch that stands for a
/// moment ends the warning for as long.
async fn all_warned(api: &Api) {
    let mut missing: Vec<&Row> = ROWS.iter().filter(|row| row.kind != Kind::Get).collect();
    eventually(SOON, async || {
        let (_, warnings) = listed(api).await?;
        let of = |row: &Row, text: &str| text.contains(&format!("member {} ", row.name)) && text.contains(row.warning);
        missing.retain(|row| !warnings.iter().any(|text| of(row, text)));
        let names: Vec<_> = missing.iter().map(|row| row.name).collect();
        if names.is_empty() { Ok(()) } else { Err(format!("no warning of {names:?} in {warnings:#?}")) }
    })
    .await;
}

/// Waits long enough for pauses to be seen: a member that throttles has been asked again.
async fn asked_again(saboteurs: &[Saboteur], since: Instant) {
    let throttles = |row: &Row| row.cause == "throttled" && row.kind != Kind::Get;
    eventually(SOON, async || {
        let mut of_throttling = saboteurs.iter().zip(ROWS).filter(|(_, row)| throttles(row));
        let again = of_throttling
            .all(|(saboteur, row)| saboteur.seen_since(since).iter().filter(|seen| seen.kind == row.kind).count() > 2);
        if again { Ok(()) } else { Err("a member that throttles was not asked again") }
    })
    .await;
}

/// That the log has one line for each cause, however often it was met.
fn told_once(log: &str) {
    for row in ROWS.iter().filter(|row| row.kind != Kind::Get) {
        let (member, cause) = (format!("member={} ", row.name), format!("cause=\"{}\"", row.cause));
        let lines: Vec<_> = log.lines().filter(|line| line.contains(&member) && line.contains(&cause)).collect();
        assert_eq!(lines.len(), 1, "{}: {lines:#?}", row.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_answer_is_its_members_own_and_is_told_by_member_and_cause() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create(east, "one", "east").await;
    create(west, "one", "first").await;
    create(west, "two", "first").await;
    let saboteurs = futures::future::join_all(ROWS.iter().map(|row| Saboteur::before(west, row.name))).await;
    let file = saboteurs.iter().fold(FleetFile::default().member(east, 1), |file, saboteur| {
        file.entry(saboteur.name(), saboteur.kubeconfig(), 1, "")
    });
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    eventually(SOON, async || exact(&api, east, west).await).await;
    let mut informer = Informer::start(&fleet.kubeconfig(), None, "configmaps", true);
    informer.synced(SOON).await;
    let mut told = WatchedEvents::from(&api).await;

    // All at once: whatever one member does, the others' objects and events flow on.
    let began = Instant::now();
    saboteurs.iter().zip(ROWS).for_each(|(saboteur, row)| saboteur.lie(row.kind, row.lie));
    all_warned(&api).await;
    figure(&format!("every fault warned of after {:?}; {} MiB", began.elapsed(), fleet.resident_bytes() >> 20));
    create(east, "meanwhile", "east").await;
    told.are(vec!["ADDED meanwhile@east".into()]).await;
    same(&listed(&api).await.unwrap().0, &wanted(east, west).await).unwrap();
    Box::pin(gets(&api)).await;

    // What those miss that cannot be listed or watched comes once they can.
    create(west, "three", "later").await;
    told.are(under("ADDED three", true)).await;
    update(west, "one", "changed").await;
    told.are(under("MODIFIED one", true)).await;
    asked_again(&saboteurs, began).await;
    counted(&scrape(&api).await);
    saboteurs.iter().zip(ROWS).for_each(|(saboteur, row)| calm(saboteur, row, began));
    assert!(fleet.resident_bytes() < 2 << 30, "{} MiB", fleet.resident_bytes() >> 20);

    let repented = Instant::now();
    saboteurs.iter().for_each(Saboteur::repent);
    eventually(SOON, async || exact(&api, east, west).await).await;
    figure(&format!("exact {:?} after the last fault", repented.elapsed()));
    told.are([under("ADDED three", false), under("MODIFIED one", false)].concat()).await;
    create(east, "end", "east").await;
    told.are(vec!["ADDED end@east".into()]).await;
    eventually(SOON, async || same(&held(&informer.dump().await), &wanted(east, west).await)).await;
    assert_eq!(informer.events_of("DELETE"), Vec::<Value>::new());
    let idle = informer.events_of("UPDATE").iter().filter(|event| event["changed"] == false).count();
    assert_eq!(idle, 0, "the informer has relisted");
    told_once(&fleet.log());
}

/// What stands for eight MiB on the way through the relay: a kube-apiserver takes no more than three in one request.
const SMALL: &str = "eight-mebibytes";

fn large() -> String {
    "x".repeat(8 << 20)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_eight_mebibytes_goes_through_list_watch_and_get() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for number in 0..3 {
        create(west, &format!("large-{number}"), SMALL).await;
    }
    let saboteur = Saboteur::before(west, "wide").await;
    saboteur.lie_always(Lie::Replaced(SMALL, large));
    let file = FleetFile::default().member(east, 1).entry("wide", saboteur.kubeconfig(), 1, "");
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let is = |object: &Value, end: &str| {
        let text = object["data"]["is"].as_str().unwrap_or_default();
        assert!(text.len() == (8 << 20) + end.len() && text.starts_with("xxx") && text.ends_with(end));
    };

    let list = api.get(IN_DEFAULT).await;
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    items.iter().for_each(|item| is(item, ""));
    is(&api.get(&format!("{IN_DEFAULT}/large-1@wide")).await, "");
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).await;
    update(west, "large-1", &format!("{SMALL} and more")).await;
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&"MODIFIED".into(), &"large-1@wide".into()));
    is(&event["object"], " and more");
    let mut informer = Informer::start(&fleet.kubeconfig(), None, "configmaps", true);
    informer.synced(SOON).await;
    let held = held(&informer.dump().await);
    is(&held["default/large-1@wide"], " and more");
    create(east, "small", "east").await;
    assert_eq!(watch.next(SOON).await.unwrap()["object"]["metadata"]["name"], "small@east");
}
