//! Whatever a member does in place of answering whether somebody may do something: what he sees and does over HTTP is never
//! more than the member allows, and he is told in time.

use std::time::Duration;

use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use testbed::{
    Answer, Api, FleetFile, Kind, Kubefold, Lie, Member, MemberOptions, Relay, Saboteur, Testbed, eventually,
    samples::{config_map, keys, name, namespace},
};

const SOON: Duration = Duration::from_secs(60);
/// Longer than kubefold waits for a review, and for a request to that member behind it.
const BOUND: Duration = Duration::from_secs(15);
const MAPS: &str = "/api/v1/namespaces/matrix/configmaps";
const WATCH: &str = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
/// Of the faulty member, so that a hung one is known to hang before long.
const DEADLINES: &str = "deadlines: {connect: 1s, read: 3s, write: 3s, probe: 1s}";

/// What a member's word comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// What its rules are.
    True,
    /// No, whatever its rules are.
    No,
    /// None.
    None,
}

const JSON: (&str, &str) = ("content-type", "application/json");
/// A review of something else, with a yes: what a cache before the member may answer.
const OF_ANOTHER: &[u8] = br#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get","version":"v1","resource":"namespaces","name":"matrix"}},"status":{"allowed":true}}"#;
const OF_ANOTHER_KIND: &[u8] =
    br#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}"#;

/// What goes wrong, and what it comes to.
const FAULTS: &[(&str, Lie, Word)] = &[
    ("late", Lie::Late(Duration::from_secs(1)), Word::True),
    ("failed", Lie::Answer(500, &[JSON], br#"{"kind":"Status","message":"etcd"}"#), Word::None),
    ("unavailable", Lie::Answer(503, &[JSON, ("retry-after", "600")], b"{}"), Word::None),
    ("throttled", Lie::Answer(429, &[JSON, ("retry-after", "600")], b"{}"), Word::None),
    ("garbage", Lie::Answer(201, &[("content-type", "text/html")], b"<html>Please log in</html>"), Word::None),
    ("empty", Lie::Answer(201, &[JSON], b""), Word::None),
    ("redirected", Lie::Answer(302, &[("location", "http://127.0.0.1:1/yes")], OF_ANOTHER), Word::None),
    ("lost", Lie::Answer(404, &[JSON], br#"{"kind":"Status","code":404}"#), Word::None),
    ("cut", Lie::Broken(br#"{"kind":"SelfSubjectAccessReview","status":{"allowed":true"#), Word::None),
    ("half", Lie::Half, Word::None),
    ("endless", Lie::Endless(b" "), Word::None),
    ("hung", Lie::Hangs, Word::None),
    ("of-another-kind", Lie::Answer(201, &[JSON], OF_ANOTHER_KIND), Word::None),
    ("of-another", Lie::Answer(201, &[JSON], OF_ANOTHER), Word::None),
    ("undecided", Lie::Says(r#"{"allowed":false,"evaluationError":"webhook"}"#), Word::None),
    ("a-word-for-yes", Lie::Says(r#"{"allowed":"true"}"#), Word::None),
    ("both", Lie::Says(r#"{"allowed":true,"denied":true,"reason":"both"}"#), Word::No),
    ("refused", Lie::Answer(403, &[JSON], br#"{"kind":"Status","message":"no basic user"}"#), Word::No),
];

async fn fleet_api(fleet: &Kubefold, user: &str, group: &str) -> Api {
    Api::from_kubeconfig(&fleet.kubeconfig_for(user, Some(group)), None).await
}

/// Lets a group do all with config maps in the namespace.
async fn allow(member: &Member, group: &str) {
    let (role, verbs) = (format!("all-{group}"), "--verb=get,list,watch,create,delete");
    member.kubectl(&["create", "role", &role, "-n", "matrix", verbs, "--resource=configmaps"]).await.ok();
    let (of, to) = (format!("--role={role}"), format!("--group={group}"));
    member.kubectl(&["create", "rolebinding", &role, "-n", "matrix", &of, &to]).await.ok();
}

/// What somebody is answered.
#[derive(Debug)]
struct Seen {
    status: StatusCode,
    /// The objects of the answer, or its message.
    shown: Vec<String>,
    text: String,
}

impl Seen {
    fn of(answer: &Answer) -> Self {
        let body = answer.json();
        let shown = if body["items"].is_array() {
            keys(&body).iter().map(|key| key.trim_start_matches("matrix/").to_owned()).collect()
        } else {
            body["metadata"]["name"].as_str().into_iter().map(str::to_owned).collect()
        };
        Self { status: answer.status, shown, text: format!("{answer} {:?}", answer.warnings()) }
    }

    /// A refusal says what it is, in the words of the API, and names the member that cannot say, or who may not.
    fn check(&self, user: &str, what: &str) {
        if self.status.is_success() {
            return;
        }
        assert!([403, 503].contains(&self.status.as_u16()), "{what}: {}", self.text);
        assert!(self.shown.is_empty(), "{what}: {}", self.text);
        assert!(self.text.contains("\"kind\":\"Status\""), "{what}: {}", self.text);
        assert!(self.text.contains("west") || self.text.contains(user), "{what}: {}", self.text);
    }
}

/// The first objects of a watch, or its refusal.
async fn watched(api: &Api) -> Seen {
    let path = format!("{MAPS}?{WATCH}");
    let request = http::Request::get(&path).body("".into()).unwrap();
    let response = api.open(request).await.unwrap();
    if response.status() != StatusCode::OK {
        return Seen::of(&api.request(Method::GET, &path, "").await);
    }
    let mut watch = api.watch(&path).await;
    let mut shown = Vec::new();
    loop {
        let event = watch.next(SOON).await.expect("the initial events");
        match event["type"].as_str().unwrap() {
            "ADDED" => shown.push(name(&event["object"]).to_owned()),
            "BOOKMARK" => return Seen { status: StatusCode::OK, shown, text: String::new() },
            _ => return Seen { status: status_of(&event), shown: Vec::new(), text: event.to_string() },
        }
    }
}

fn status_of(event: &Value) -> StatusCode {
    StatusCode::from_u16(u16::try_from(event["object"]["code"].as_u64().unwrap()).unwrap()).unwrap()
}

/// What somebody sees and does, whom the faulty member was never asked about: a get, a list, a watch and a create there.
async fn all(api: &Api, user: &str) -> [Seen; 4] {
    let get = async { Seen::of(&api.request(Method::GET, &format!("{MAPS}/own@west"), "").await) };
    let list = async { Seen::of(&api.request(Method::GET, MAPS, "").await) };
    let created = async {
        let body = config_map(&format!("{user}@west"), json!({})).to_string();
        Seen::of(&api.request(Method::POST, MAPS, body).await)
    };
    let within = async |what: &str, seen: Seen| {
        seen.check(user, &format!("{user} {what}"));
        seen
    };
    let bound = |what: &'static str| move |_| panic!("{user}: no answer to the {what} within {BOUND:?}");
    let (get, list, watch, created) =
        tokio::join!(timeout(BOUND, get), timeout(BOUND, list), timeout(BOUND, watched(api)), timeout(BOUND, created));
    [
        within("get", get.unwrap_or_else(bound("get"))).await,
        within("list", list.unwrap_or_else(bound("list"))).await,
        within("watch", watch.unwrap_or_else(bound("watch"))).await,
        within("create", created.unwrap_or_else(bound("create"))).await,
    ]
}

/// What somebody sees whom both members allow all, with this word of the second one.
fn of_both(fault: &str, word: Word, seen: &[Seen; 4]) {
    let [get, list, watch, created] = seen;
    match word {
        Word::True => {
            assert_eq!((get.status.as_u16(), created.status.as_u16()), (200, 201), "{fault}: {seen:#?}");
            assert!(list.shown.contains(&"own@west".to_owned()), "{fault}: {list:#?}");
            assert!(watch.shown.contains(&"own@west".to_owned()), "{fault}: {watch:#?}");
        }
        // Its word is no: the objects are left out, and he is told. A create it judges itself, when it comes.
        Word::No => {
            assert_eq!((get.status.as_u16(), created.status.as_u16()), (403, 201), "{fault}: {seen:#?}");
            assert_eq!(list.shown, ["own@east"], "{fault}: {list:#?}");
            assert_eq!(watch.shown, ["own@east"], "{fault}: {watch:#?}");
            assert!(list.text.contains("member west does not allow"), "{fault}: {list:#?}");
        }
        // Unknown is not no: a program is not shown half of what there is.
        Word::None => {
            for seen in seen {
                assert_eq!(seen.status, StatusCode::SERVICE_UNAVAILABLE, "{fault}: {seen:#?}");
            }
        }
    }
}

/// Somebody whom the first member alone allows it.
fn of_half(fault: &str, seen: &[Seen; 4]) {
    let [get, list, watch, created] = seen;
    for refused in [get, created] {
        assert!(!refused.status.is_success(), "{fault}: {refused:#?}");
    }
    for seen in [list, watch] {
        assert!(seen.shown.iter().all(|name| name == "own@east"), "{fault}: {seen:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_member_does_with_a_review_nobody_sees_or_does_more_than_it_allows() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in [east, west] {
        namespace(member, "matrix").await;
        member.api().await.create(MAPS, &config_map("own", json!({}))).await;
        allow(member, "both").await;
    }
    allow(east, "half").await;
    let saboteur = Saboteur::before(west, "west").await;
    let relay = Relay::to(&saboteur.address().to_string()).await;
    let text = std::fs::read_to_string(saboteur.kubeconfig()).unwrap();
    let through = west.dir().join("through.kubeconfig");
    std::fs::write(&through, text.replace(&saboteur.address().to_string(), &relay.addr().to_string())).unwrap();
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).entry("west", &through, 1, DEADLINES)).await;
    let knows = fleet_api(&fleet, "knows", "both").await;
    eventually(SOON, async || {
        let answer = knows.request(Method::GET, MAPS, "").await;
        let shown = Seen::of(&answer).shown;
        if shown == ["own@east", "own@west"] { Ok(()) } else { Err(answer) }
    })
    .await;

    let mut made: Vec<String> = Vec::new();
    for (fault, lie, word) in FAULTS {
        saboteur.lie(Kind::Review, *lie);
        let users = [format!("{fault}-both"), format!("{fault}-half")];
        let (both, half) = (fleet_api(&fleet, &users[0], "both").await, fleet_api(&fleet, &users[1], "half").await);
        let (both, half) = tokio::join!(all(&both, &users[0]), all(&half, &users[1]));
        of_both(fault, *word, &both);
        of_half(fault, &half);
        made.extend(users.into_iter().take(1).filter(|_| *word != Word::None));
        let held = west.api().await.get(MAPS).await;
        let ours: Vec<String> = keys(&held).iter().map(|key| key.trim_start_matches("matrix/").to_owned()).collect();
        assert_eq!(ours.iter().filter(|name| *name != "own").collect::<Vec<_>>(), made.iter().collect::<Vec<_>>());
        // What is made is seen by those who come later.
        for name in &made {
            west.kubectl(&["delete", "configmap", name, "-n", "matrix"]).await.ok();
        }
        made.clear();
    }
    saboteur.repent();

    // The member itself hangs, and then is gone.
    for fault in ["member-hung", "member-down"] {
        if fault == "member-hung" {
            relay.hang()
        } else {
            relay.cut().await
        }
        let users = ["both", "half"].map(|group| (format!("{fault}-{group}"), group));
        let seen =
            join_all(users.iter().map(async |(user, group)| all(&fleet_api(&fleet, user, group).await, user).await))
                .await;
        of_both(fault, Word::None, &seen[0]);
        of_half(fault, &seen[1]);
    }
    relay.restore().await;
    let later = fleet_api(&fleet, "later", "both").await;
    eventually(SOON, async || {
        let answer = later.request(Method::GET, MAPS, "").await;
        if Seen::of(&answer).shown.contains(&"own@west".to_owned()) { Ok(()) } else { Err(answer) }
    })
    .await;
}
