//! Random rights in three members: the fleet answers each user as the members themselves answer `kubectl --as`.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, FleetFile, Kubefold, Member, Testbed,
    samples::{deployment, keys, name, namespace},
};

const SOON: Duration = Duration::from_secs(60);

async fn fleet_api(fleet: &Kubefold, user: &str) -> Api {
    Api::from_kubeconfig(&fleet.kubeconfig_for(user, None), None).await
}

async fn get(api: &Api, path: &str) -> Answer {
    api.request(Method::GET, path, "").await
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    /// A number below `sides` (xorshift64*).
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % sides
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

/// The last two are accounts.
const USERS: [&str; 6] =
    ["dice-0", "dice-1", "dice-2", "dice-3", "system:serviceaccount:dice-a:x", "system:serviceaccount:dice-b:y"];
const PLACES: [&str; 2] = ["dice-a", "dice-b"];
const KINDS: [&str; 5] = ["configmaps", "secrets", "serviceaccounts", "deployments", "pods"];
const NAMES: [&str; 3] = ["x", "y", "z"];
/// What a rule may be about, beside the kinds.
const SUBRESOURCES: [&str; 4] = ["deployments/scale", "deployments/status", "pods/log", "*"];
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];
/// Rules in a member.
const RULES: usize = 64;

/// The path of a kind in a namespace, or in all.
fn collection(kind: &str, place: Option<&str>) -> String {
    let group = if kind == "deployments" { "/apis/apps/v1" } else { "/api/v1" };
    place.map_or_else(|| format!("{group}/{kind}"), |place| format!("{group}/namespaces/{place}/{kind}"))
}

fn subject(user: &str) -> Value {
    match user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':')) {
        Some((namespace, name)) => json!([{"kind": "ServiceAccount", "namespace": namespace, "name": name}]),
        None => json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]),
    }
}

fn sample(kind: &str, name: &str) -> Value {
    match kind {
        "deployments" => deployment(name, 1),
        "pods" => {
            json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}})
        }
        _ => json!({"metadata": {"name": name}}),
    }
}

/// Rights at random in one member: roles, cluster roles bound in a namespace and everywhere, single names, aggregation.
async fn throw_rights(api: &Api, dice: &mut Dice) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for at in 0..RULES {
        let what = if dice.roll(3) == 0 { dice.pick(&SUBRESOURCES) } else { dice.pick(&KINDS) };
        let mut rule = json!({"apiGroups": ["", "apps"], "resources": [what]});
        let first = dice.roll(VERBS.len());
        rule["verbs"] = json!(VERBS[if dice.roll(2) == 0 { 0 } else { first }..].to_vec());
        if dice.roll(3) == 0 {
            rule["resourceNames"] = json!([dice.pick(&NAMES)]);
        }
        let name = format!("dice-{at}");
        let subject = subject(dice.pick(&USERS));
        let place = dice.pick(&PLACES);
        let [roles, bindings] = ["roles", "rolebindings"].map(|what| format!("{rbac}/namespaces/{place}/{what}"));
        let how = dice.roll(4);
        let (kind, role) = if how == 0 { ("Role", &roles) } else { ("ClusterRole", &format!("{rbac}/clusterroles")) };
        let mut metadata = json!({"name": name});
        if how == 1 {
            // What is bound then is another role, into which this one is gathered.
            metadata["labels"] = json!({"dice": name});
            let selector = json!([{"matchLabels": {"dice": name}}]);
            let all = json!({"metadata": {"name": format!("{name}-all")}, "aggregationRule": {"clusterRoleSelectors": selector}, "rules": [rule]});
            api.create(role, &all).await;
        }
        api.create(role, &json!({"metadata": metadata, "rules": [rule]})).await;
        let bound = if how == 1 { format!("{name}-all") } else { name.clone() };
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": bound});
        let binding = json!({"metadata": {"name": name}, "subjects": subject, "roleRef": role});
        let everywhere = format!("{rbac}/clusterrolebindings");
        api.create(if how == 3 { &everywhere } else { &bindings }, &binding).await;
    }
}

/// What a member itself answers that user.
async fn of_member(api: &Api, user: &str, path: &str) -> Answer {
    as_user(api, user, Method::GET, path, "").await
}

async fn as_user(api: &Api, user: &str, method: Method, path: &str, body: &str) -> Answer {
    let groups = [("Impersonate-User", user), ("Impersonate-Group", "system:authenticated")];
    let request = typed(method, path, body);
    let request = groups.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    api.send(request.body(body.to_owned().into()).unwrap()).await.unwrap()
}

fn typed(method: Method, path: &str, body: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(path);
    if body.is_empty() { request } else { request.header(header::CONTENT_TYPE, MERGE_PATCH) }
}

const MERGE_PATCH: &str = "application/merge-patch+json";

/// The fleet shows each user the union of what the members show him, and refuses what all refuse.
#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_shows_what_the_members_show_whatever_the_rights_are() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    let members = [&bed["east"], &bed["west"], &bed["north"]];
    let (mut dice, mut file, mut apis) = (Dice(0x5EED), FleetFile::default(), Vec::new());
    for member in members {
        let api = member.api().await;
        for place in PLACES {
            namespace(member, place).await;
            for kind in KINDS {
                for name in &NAMES[..=dice.roll(3)] {
                    api.create(&collection(kind, Some(place)), &sample(kind, name)).await;
                }
            }
        }
        throw_rights(&api, &mut dice).await;
        file = file.member(member, 1);
        apis.push(api);
    }
    let fleet = Kubefold::start(&file).await;
    let (mut outcomes, mut asked) = ([0; 3], 0);
    let mut logs = BTreeSet::new();
    for user in USERS {
        let jane = fleet_api(&fleet, user).await;
        for kind in KINDS {
            for place in [Some(PLACES[0]), Some(PLACES[1]), None] {
                let path = collection(kind, place);
                let one = format!("{path}?fieldSelector=metadata.name%3Dx");
                outcomes[compare_list(&apis, &members, &jane, user, &path).await] += 1;
                compare_watch(&apis, &members, &jane, user, &path).await;
                if place.is_none() {
                    continue;
                }
                for (at, (api, member)) in apis.iter().zip(members).enumerate() {
                    for name in NAMES {
                        let theirs = of_member(api, user, &format!("{path}/{name}")).await;
                        let ours = get(&jane, &format!("{path}/{name}@{}", member.name())).await;
                        assert_eq!(
                            ours.status, theirs.status,
                            "{user} {path}/{name} in member {at}: {ours} and {theirs}"
                        );
                    }
                    let answers = compare_one(api, member, &jane, user, kind, &path).await;
                    asked += answers.len();
                    logs.extend(answers.iter().filter(|(what, _)| *what == "/log").map(|(_, status)| status.as_u16()));
                    let named = format!("{one}%40{}", member.name());
                    let (theirs, ours) = (of_member(api, user, &one).await, get(&jane, &named).await);
                    assert_eq!(ours.status, theirs.status, "{user} {named}: {ours} and {theirs}");
                }
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 1), "refused, some and all: {outcomes:?}");
    assert!(asked > 1_000, "{asked} questions beside lists");
    assert_eq!(logs, [204, 403, 404].into(), "empty logs, those that a user may not read, and of which there are none");
}

/// Asks the fleet and a member for the same of single objects, and says for what, and what both answered.
async fn compare_one(
    api: &Api,
    member: &Member,
    fleet: &Api,
    user: &str,
    kind: &str,
    path: &str,
) -> Vec<(&'static str, StatusCode)> {
    let mut answers = Vec::new();
    let (dry, patch) = ("?dryRun=All", r#"{"metadata":{"labels":{"dice":"1"}}}"#);
    let mut all = Vec::new();
    for name in NAMES {
        all.push((Method::PATCH, format!("/{name}"), dry, patch.to_owned()));
        all.push((Method::DELETE, format!("/{name}"), dry, String::new()));
        if kind == "deployments" {
            all.push((Method::GET, format!("/{name}"), "/scale", String::new()));
            all.push((Method::GET, format!("/{name}"), "/status", String::new()));
        }
        if kind == "pods" {
            // No node has it, and so nothing is in its log.
            all.push((Method::GET, format!("/{name}"), "/log", String::new()));
        }
    }
    for (method, name, rest, body) in &all {
        let theirs = as_user(api, user, method.clone(), &format!("{path}{name}{rest}"), body).await;
        let of_fleet = format!("{path}{name}@{}{rest}", member.name());
        let request = typed(method.clone(), &of_fleet, body);
        let ours = fleet.send(request.body(body.clone().into()).unwrap()).await.unwrap();
        assert_eq!(ours.status, theirs.status, "{user} {method} {of_fleet}: {ours} and {theirs}");
        answers.push((*rest, ours.status));
    }
    let made = |name: &str| sample(kind, name).to_string();
    let theirs = api.send(created(user, path, made("new"))).await.unwrap();
    let pinned = made(&format!("new@{}", member.name()));
    let ours = fleet.request(Method::POST, &format!("{path}{dry}"), pinned).await;
    assert_eq!(ours.status, theirs.status, "{user} creates {path} in {}: {ours} and {theirs}", member.name());
    answers.push((dry, ours.status));
    answers
}

/// A create of which nothing is done, by a user of a member.
fn created(user: &str, path: &str, body: String) -> Request<bytes::Bytes> {
    let request = Request::post(format!("{path}?dryRun=All")).header(header::CONTENT_TYPE, "application/json");
    let request = request.header("Impersonate-User", user).header("Impersonate-Group", "system:authenticated");
    request.body(body.into()).unwrap()
}

/// Says whether none, some or all of the members let the user list that.
async fn compare_list(apis: &[Api], members: &[&Member], fleet: &Api, user: &str, path: &str) -> usize {
    let ours = get(fleet, path).await;
    let (mut wanted, mut allowing) = (BTreeSet::new(), 0);
    for (api, member) in apis.iter().zip(members) {
        let theirs = of_member(api, user, path).await;
        if theirs.status == StatusCode::FORBIDDEN {
            let is_told = ours.status == StatusCode::FORBIDDEN
                || ours
                    .warnings()
                    .iter()
                    .any(|warning| warning.contains(&format!("member {} does not allow", member.name())));
            assert!(is_told, "{user} {path}: {ours}");
            continue;
        }
        allowing += 1;
        wanted.extend(keys(&theirs.ok()).into_iter().map(|key| format!("{key}@{}", member.name())));
    }
    if allowing == 0 {
        let (status, theirs) = (ours.status, of_member(&apis[0], user, path).await);
        assert_eq!(
            (status, &ours.json()["message"]),
            (StatusCode::FORBIDDEN, &theirs.json()["message"]),
            "{user} {path}"
        );
        assert_eq!(ours.json()["details"], theirs.json()["details"], "{user} {path}");
        return 0;
    }
    // Every cluster has some objects of its own in namespaces of its own.
    let is_ours = |key: &String| key.starts_with("dice-") && !key.contains("/default");
    let wanted: BTreeSet<String> = wanted.into_iter().filter(is_ours).collect();
    let shown: BTreeSet<String> = keys(&ours.ok()).into_iter().filter(is_ours).collect();
    assert_eq!(shown, wanted, "{user} {path}");
    if allowing == members.len() { 2 } else { 1 }
}

/// A watch is refused where all members refuse it, and begins with what they let the user watch.
async fn compare_watch(apis: &[Api], members: &[&Member], fleet: &Api, user: &str, path: &str) {
    let allowed = join_all(apis.iter().map(async |api| {
        let request = Request::get(format!("{path}?watch=true&resourceVersion=0")).header("Impersonate-User", user);
        let request = request.header("Impersonate-Group", "system:authenticated").body("".into()).unwrap();
        api.open(request).await.unwrap().status() == StatusCode::OK
    }))
    .await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    if !allowed.contains(&true) {
        let ours = get(fleet, &format!("{path}?{query}")).await;
        assert_eq!(ours.status, StatusCode::FORBIDDEN, "{user} {path}: {ours}");
        return;
    }
    let mut watch = fleet.watch(&format!("{path}?{query}")).await;
    let mut shown = BTreeSet::new();
    loop {
        let event = watch.next(SOON).await.expect("the initial events");
        if event["type"] == "BOOKMARK" {
            break;
        }
        shown.insert(name(&event["object"]).rsplit('@').next().unwrap().to_owned());
    }
    for (member, allowed) in members.iter().zip(allowed) {
        assert!(allowed || !shown.contains(member.name()), "{user} {path}: {shown:?}");
    }
}
