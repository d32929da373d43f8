//! What a kubefold knows that starts again: what the earlier one was told, and what is new in the members that answer.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use http::{Method, StatusCode};
use kubefold_apiserver::{
    endpoint::Endpoint,
    faults::{Fault, Faults, Matching, Rule},
    registry::Env,
    serve::{ApiServer, Settings, bootstrap, built_in},
    storage::Memory,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{
    Api, FleetFile, Informer, Kubefold, Member, MemberOptions, Testbed, eventually,
    objects::{CONFIG_MAPS, Objects, create, create_many, exact, held, listed, objects, same, union},
};

const SOON: Duration = Duration::from_secs(60);

/// A number of kubefold's metrics.
pub(crate) async fn metric(api: &Api, name: &str) -> f64 {
    let answer = api.request(Method::GET, "/metrics", "").await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Waits until everything that kubefold has now is in the mirror.
pub(crate) async fn mirrored(api: &Api) {
    let since = Instant::now();
    eventually(SOON, async || {
        let (lag, age) = (metric(api, "kubefold_mirror_lag_seconds").await, since.elapsed().as_secs_f64());
        // It was begun and ended after the wait began.
        (age - lag > 1.0).then_some(()).ok_or_else(|| format!("{lag} s behind after {age} s"))
    })
    .await;
}

/// Lets a user read all config maps of a member.
async fn let_read(member: &Member, user: &str) {
    let role = ["create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=configmaps"];
    member.kubectl(&role).await.ok();
    let of = format!("--user={user}");
    member.kubectl(&["create", "clusterrolebinding", "reader", "--clusterrole=reader", &of]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_while_a_member_is_down_shows_what_was_known_of_it() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let all: Vec<&Member> = bed.members().iter().collect();
    for member in &all {
        create_many(member, "many", 50, 100).await;
        let_read(member, "jane").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    eventually(SOON, async || exact(&api, &all).await).await;
    let mut informer = Informer::start(&fleet.kubeconfig_for("jane", None), None, "configmaps", true);
    informer.synced(SOON).await;
    mirrored(&api).await;
    eventually(SOON, async || {
        let kept = fs::read_to_string(fleet.state_dir().join("decisions.json")).unwrap_or_default();
        (kept.len() > 10).then_some(()).ok_or(kept)
    })
    .await;
    let known = union(&all).await;

    west.pause();
    fleet.kill9();
    create(east, "meanwhile", "east").await;
    fleet.restart().await;
    let api = fleet.api().await;
    let meanwhile = |shown: &Objects| {
        let mut shown = shown.clone();
        (shown.remove("default/meanwhile@east").is_some(), shown)
    };
    let warned = eventually(SOON, async || {
        let (shown, warnings) = listed(&api).await?;
        let (is_there, rest) = meanwhile(&shown);
        assert!(is_there, "a read does not miss what a member that answers was told before it");
        same(&rest, &known)?;
        warnings.into_iter().find(|warning| warning.contains("member west")).ok_or_else(|| "no warning".to_owned())
    })
    .await;
    assert!(warned.contains("its last known state is shown, of "), "{warned}");
    eventually(SOON, async || {
        let (is_there, rest) = meanwhile(&held(&informer.dump().await));
        if is_there { same(&rest, &known) } else { Err(informer.errors()) }
    })
    .await;

    west.resume();
    create(west, "after", "west").await;
    eventually(SOON, async || exact(&api, &all).await).await;
    let whole = union(&all).await;
    eventually(SOON, async || same(&held(&informer.dump().await), &whole)).await;
    assert_eq!(informer.events_of("DELETE"), Vec::<Value>::new());
}

/// A member in this process.
async fn embedded() -> Endpoint {
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap_or_else(|status| panic!("{}", status.message));
    let (server, local) = (ApiServer::new(registry, Settings::new("v1.36.3")), ([127, 0, 0, 1], 0).into());
    Endpoint::start(local, "mirror".into(), Arc::new(server), Faults::default()).await.unwrap()
}

async fn api_of(member: &Endpoint) -> Api {
    let url = format!("https://{}", member.address());
    Api::of_server(&url, member.certificate()).with_token(member.token())
}

/// Embedded members, and a kubefold before them.
struct Stage {
    members: Vec<Endpoint>,
    fleet: Kubefold,
    /// Config maps that were written, for their names.
    written: Arc<AtomicUsize>,
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

impl Stage {
    async fn new() -> Self {
        let members = join_all((0..3).map(|_| embedded())).await;
        let fleet = Kubefold::start(&file(&members)).await;
        let this = Self { members, fleet, written: Arc::default() };
        this.write(60).await;
        this.is_whole().await;
        mirrored(&this.fleet.api().await).await;
        this
    }

    /// Creates, changes and deletes in all members at once, as many of them as that.
    async fn write(&self, writes: usize) {
        join_all(self.members.iter().map(|member| write(member, Arc::clone(&self.written), writes))).await;
    }

    /// Has kubefold killed in the middle of many writes.
    async fn is_killed(&self, after: usize) {
        let until = self.written.load(Ordering::Relaxed) + after;
        let killing = async {
            while self.written.load(Ordering::Relaxed) < until {
                tokio::task::yield_now().await;
            }
            self.fleet.kill9();
        };
        tokio::join!(self.write(after), killing);
    }

    /// All that the members hold, by the names of the fleet.
    async fn truth(&self) -> Objects {
        let mut all = Objects::new();
        for (at, member) in self.members.iter().enumerate() {
            let list = api_of(member).await.get(CONFIG_MAPS).await;
            all.extend(objects(&list).into_iter().map(|(key, object)| (format!("{key}@{}", name(at)), object)));
        }
        all
    }

    /// That the first answer has exactly what the members hold.
    async fn is_whole(&self) {
        let answer = self.fleet.api().await.request(Method::GET, CONFIG_MAPS, "").await;
        assert_eq!(answer.status, StatusCode::OK, "{answer}");
        assert_eq!(answer.warnings(), Vec::<String>::new());
        same(&shown(&answer.json()), &self.truth().await).unwrap();
    }
}

/// Without what is shared.
fn shown(list: &Value) -> Objects {
    objects(list).into_iter().filter(|(key, _)| key.contains('@')).collect()
}

fn name(at: usize) -> String {
    format!("member-{at:03}")
}

fn file(members: &[Endpoint]) -> FleetFile {
    let entry = |file: FleetFile, at: usize| {
        let (address, token) = (members[at].address(), members[at].token());
        let certificate = members[at].certificate().replace('\n', "\n  ");
        let access = format!("server: https://{address}\ntoken: {token}\ncertificateAuthorityData: |\n  {certificate}");
        file.written(&name(at), access.trim_end())
    };
    (0..members.len()).fold(FleetFile::default(), entry)
}

async fn write(member: &Endpoint, written: Arc<AtomicUsize>, writes: usize) {
    let api = api_of(member).await;
    for _ in 0..writes {
        let at = written.fetch_add(1, Ordering::Relaxed);
        let map = json!({"metadata": {"name": format!("cm-{at}")}, "data": {"k": "1"}});
        let map = api.create(MAPS, &map).await;
        match at % 3 {
            0 => {}
            1 => drop(api.request(Method::DELETE, &format!("{MAPS}/cm-{at}"), "").await.ok()),
            _ => {
                let mut changed = map;
                changed["data"]["k"] = "2".into();
                api.request(Method::PUT, &format!("{MAPS}/cm-{at}"), changed.to_string()).await.ok();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_at_any_moment_the_first_answer_misses_nothing() {
    let stage = Stage::new().await;
    for after in [1, 40, 90] {
        stage.is_killed(after).await;
        stage.fleet.restart().await;
        stage.is_whole().await;
    }
    assert!(stage.fleet.log().contains("restored from the mirror"));
    // A position that a member has no more.
    stage.is_killed(10).await;
    let on = Matching { watch: Some(true), path: Some("/configmaps".to_owned()), method: None };
    let expired = Rule { on, fault: Fault::Expired, times: Some(1), every: None };
    stage.members.iter().for_each(|member| member.faults().add(expired.clone()).unwrap());
    stage.fleet.restart().await;
    stage.is_whole().await;
    // A member whose first answer is lost is waited for: it is not known to be down yet.
    stage.is_killed(10).await;
    let on = Matching { watch: None, path: Some("/readyz".to_owned()), method: None };
    stage.members[1].faults().add(Rule { on, fault: Fault::Hang, times: Some(1), every: None }).unwrap();
    stage.fleet.restart().await;
    stage.is_whole().await;
    // What was known of a member that is down stays as it was, and is said; then it is brought up to date.
    mirrored(&stage.fleet.api().await).await;
    let known = stage.truth().await;
    let down = &stage.members[1];
    down.kill();
    stage.fleet.kill9();
    stage.fleet.restart().await;
    let api = stage.fleet.api().await;
    let warnings = eventually(SOON, async || {
        let answer = api.request(Method::GET, CONFIG_MAPS, "").await;
        let is_it = answer.status == StatusCode::OK && !answer.warnings().is_empty();
        is_it
            .then(|| same(&shown(&answer.json()), &known).map(|()| answer.warnings()))
            .ok_or_else(|| answer.to_string())?
    })
    .await;
    assert!(warnings[0].contains("member member-001 is down") && warnings[0].contains(", of "), "{warnings:?}");
    down.revive().await.unwrap();
    stage.write(20).await;
    eventually(SOON, async || {
        let answer = api.request(Method::GET, CONFIG_MAPS, "").await;
        same(&shown(&answer.json()), &stage.truth().await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_a_damaged_or_a_strange_mirror_does_no_harm() {
    let mut stage = Stage::new().await;
    let (path, copy) = (stage.fleet.state_dir().join("mirror.db"), stage.fleet.state_dir().join("mirror.old"));
    stage.fleet.terminate(SOON).await;
    fs::copy(&path, &copy).unwrap();
    stage.write(30).await;
    stage.fleet.restart().await;
    stage.is_whole().await;
    mirrored(&stage.fleet.api().await).await;
    stage.fleet.terminate(SOON).await;
    // An old copy of it.
    fs::rename(&copy, &path).unwrap();
    stage.fleet.restart().await;
    stage.is_whole().await;
    mirrored(&stage.fleet.api().await).await;
    stage.fleet.terminate(SOON).await;
    // Damaged in the middle.
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 8..bytes.len();
    bytes[middle].fill(7);
    fs::write(&path, bytes).unwrap();
    stage.fleet.restart().await;
    stage.is_whole().await;
    let log = stage.fleet.log();
    assert!(log.contains("the mirror is damaged and set aside") || log.contains("the mirror is not used"), "{log}");
    mirrored(&stage.fleet.api().await).await;
    stage.fleet.terminate(SOON).await;
    // Another cluster under the name of one of them.
    stage.members[2] = embedded().await;
    stage.fleet.configure(&file(&stage.members));
    stage.fleet.restart().await;
    stage.write(5).await;
    eventually(SOON, async || {
        let answer = stage.fleet.api().await.request(Method::GET, CONFIG_MAPS, "").await;
        same(&shown(&answer.json()), &stage.truth().await)
    })
    .await;
}
