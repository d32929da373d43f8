//! kubefold killed in the middle of a write: what it finds after its restart it finishes or takes back.

use http::Method;
use parking_lot::Mutex;

use super::*;
use testbed::{Admission, FleetFile, Held, Informer, Kubefold, MemberOptions, Relay, Testbed, Verdict, Which};

/// A kube-apiserver may work on a write for so long, and kubefold waits as long before it takes absence for an answer.
const SETTLED: Duration = Duration::from_secs(75);

/// Three members with shares 1, 2 and 4: `north` is the home. The way to each can be blocked, and each asks a webhook.
struct Stage {
    bed: Testbed,
    fleet: Kubefold,
    west: (Relay, Admission),
    north: (Relay, Admission),
    /// Requests that are never let go on: they end when their member sees that kubefold is gone.
    kept: Mutex<Vec<Held>>,
}

impl Stage {
    async fn set() -> Self {
        let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
        let [west, north] = [&bed["west"], &bed["north"]];
        let (west_relay, north_relay, west_gate, north_gate) =
            tokio::join!(Relay::before(west), Relay::before(north), Admission::before(west), Admission::before(north));
        let file = FleetFile::default()
            .member(&bed["east"], 1)
            .entry("west", &west.kubeconfig_through(&west_relay), 2, "")
            .entry("north", &north.kubeconfig_through(&north_relay), 4, "");
        let fleet = Kubefold::start(&file).await;
        Self { bed, fleet, west: (west_relay, west_gate), north: (north_relay, north_gate), kept: Mutex::default() }
    }

    fn all(&self) -> [&Member; 3] {
        ["east", "west", "north"].map(|name| &self.bed[name])
    }

    /// Begins a write; when the member's webhook has the request, `then` happens, and kubefold is killed.
    async fn kill_at(&self, verb: Method, name: &'static str, mut held: Held, then: impl AsyncFnOnce(Held)) {
        let api = self.fleet.api().await;
        let (path, body) = match verb {
            Method::POST => (DEPLOYMENTS.to_owned(), deployment(name, 7).to_string()),
            _ => (format!("{DEPLOYMENTS}/{name}"), String::new()),
        };
        let write = api.try_request(verb, &path, body);
        let kill = async {
            held.arrived().await;
            then(held).await;
            self.fleet.kill9();
        };
        let (answer, ()) = tokio::join!(write, kill);
        assert!(answer.is_err(), "nobody was told of {name}: {}", answer.unwrap());
        eprintln!("{name}: {:?} at the kill", shares(&self.all(), name).await);
    }

    /// As [`Self::kill_at`], but the member does what it was asked, and its answer is lost.
    async fn kill_unheard(&self, verb: Method, name: &'static str, member: &str, held: Held) {
        let (relay, _) = if member == "west" { &self.west } else { &self.north };
        let stands = verb == Method::POST;
        let lost = async |held: Held| {
            relay.hang();
            held.answer(Verdict::Allow);
            eventually(SOON, async || {
                let there = part(&self.bed[member], name).await.is_some();
                (there == stands).then_some(()).ok_or_else(|| format!("{name} has not landed in {member}"))
            })
            .await;
        };
        self.kill_at(verb, name, held, lost).await;
        relay.restore().await;
    }

    /// What the fleet view says of a name: its total, if it is there.
    async fn shown(&self, name: &str) -> Result<Option<i64>, String> {
        let answer = self.fleet.api().await.try_request(Method::GET, &format!("{DEPLOYMENTS}/{name}"), "").await?;
        match answer.status.as_u16() {
            200 => Ok(answer.json()["spec"]["replicas"].as_i64()),
            404 => Ok(None),
            _ => Err(answer.to_string()),
        }
    }
}

const fn creates(name: &'static str, dry: bool) -> Which {
    Which { name, operation: "CREATE", dry }
}

const fn deletes(name: &'static str, dry: bool) -> Which {
    Which { name, operation: "DELETE", dry }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_it_finishes_or_undoes_after_its_restart() {
    let stage = Stage::set().await;
    let (west, north) = (&stage.west.1, &stage.north.1);
    let api = stage.fleet.api().await;
    let doomed = ["del-dry-run", "del-home-asked", "del-home-unheard", "del-other-asked"];
    for name in doomed {
        post(&api, &deployment(name, 7)).await.ok();
    }
    let informer = Informer::start(&stage.fleet.kubeconfig(), Some("fleet"), "deployments.apps", true);
    informer.synced(SOON).await;
    let nothing_more = async |held: Held| stage.kept.lock().push(held);

    stage.kill_at(Method::POST, "dry-run", west.hold(creates("dry-run", true)), nothing_more).await;
    stage.fleet.restart().await;
    stage.kill_at(Method::POST, "other-asked", west.hold(creates("other-asked", false)), nothing_more).await;
    stage.fleet.restart().await;
    stage.kill_unheard(Method::POST, "other-unheard", "west", west.hold(creates("other-unheard", false))).await;
    stage.fleet.restart().await;
    stage.kill_at(Method::POST, "home-asked", north.hold(creates("home-asked", false)), nothing_more).await;
    assert_eq!(shares(&stage.all(), "home-asked").await, split(&[("east", 1), ("west", 2)]), "half of it stands");
    stage.fleet.restart().await;
    assert_eq!(stage.shown("home-asked").await, Ok(None), "and is not shown");
    stage.kill_unheard(Method::POST, "home-unheard", "north", north.hold(creates("home-unheard", false))).await;
    stage.fleet.restart().await;

    stage.kill_at(Method::DELETE, "del-dry-run", west.hold(deletes("del-dry-run", true)), nothing_more).await;
    stage.fleet.restart().await;
    stage.kill_at(Method::DELETE, "del-home-asked", north.hold(deletes("del-home-asked", false)), nothing_more).await;
    stage.fleet.restart().await;
    stage
        .kill_unheard(Method::DELETE, "del-home-unheard", "north", north.hold(deletes("del-home-unheard", false)))
        .await;
    stage.fleet.restart().await;
    stage.kill_at(Method::DELETE, "del-other-asked", west.hold(deletes("del-other-asked", false)), nothing_more).await;

    lands_late(&stage).await;
    the_end(&stage, &informer).await;
}

/// The home has the request, cannot be asked about it after the restart, and does it then.
async fn lands_late(stage: &Stage) {
    let (relay, gate) = &stage.north;
    stage.fleet.restart().await;
    let mut caught = None;
    // The member must not hear that kubefold is gone: it would give the request up.
    let silence = async |held: Held| {
        relay.hang();
        caught = Some(held);
    };
    stage.kill_at(Method::POST, "home-late", gate.hold(creates("home-late", false)), silence).await;
    stage.fleet.restart().await;
    caught.unwrap().answer(Verdict::Allow);
    eventually(SOON, async || part(&stage.bed["north"], "home-late").await.ok_or("it has not landed")).await;
    let again = post(&stage.fleet.api().await, &deployment("home-late", 7)).await;
    assert_eq!(again.status.as_u16(), 503, "the name is neither free nor taken: {again}");
    relay.restore().await;
}

async fn the_end(stage: &Stage, informer: &Informer) {
    let whole = split(&[("east", 1), ("west", 2), ("north", 4)]);
    let made = ["home-unheard", "home-late", "del-dry-run", "del-home-asked"];
    let gone = ["dry-run", "other-asked", "other-unheard", "home-asked", "del-home-unheard", "del-other-asked"];
    eventually(SETTLED, async || {
        for name in made.iter().chain(&gone) {
            let wanted = if made.contains(name) { (whole.clone(), Some(7)) } else { (split(&[]), None) };
            let is = (shares(&stage.all(), name).await, stage.shown(name).await?);
            if is != wanted {
                return Err(format!("{name}: {is:?}"));
            }
        }
        Ok(())
    })
    .await;
    let list = stage.fleet.api().await.get(DEPLOYMENTS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), made.len());
    // Nobody was ever shown what was taken back. The informer rests between its attempts, for up to half a minute.
    let seen = eventually(SETTLED, async || {
        let events = informer.events().into_iter();
        let seen: Vec<_> = events.filter_map(|event| Some(event["key"].as_str()?.to_owned())).collect();
        if seen.iter().any(|key| key == "default/home-late") { Ok(seen) } else { Err(format!("{seen:?}")) }
    })
    .await;
    for name in ["dry-run", "other-asked", "other-unheard", "home-asked"] {
        assert!(!seen.contains(&format!("default/{name}")), "{name} was shown: {seen:?}");
    }
    // Every name is free or taken as it should be, and the next create of each works or is refused.
    let api = stage.fleet.api().await;
    for name in made {
        refused(&post(&api, &deployment(name, 7)).await, 409, "AlreadyExists", &[]);
    }
    for name in gone {
        post(&api, &deployment(name, 7)).await.ok();
        assert_eq!(shares(&stage.all(), name).await, whole);
    }
}
