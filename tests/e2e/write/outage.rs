//! Members that are down, hang or change their mind in the middle of a write: what the client is told, and what stands
//! in the end.

use http::Method;
use parking_lot::Mutex;
use serde_json::json;

use super::{plan::planned, *};
use testbed::{Admission, FleetFile, Held, Kubefold, MemberOptions, Relay, Testbed, Verdict, Which};

/// A kube-apiserver may work on a write for so long, and kubefold waits as long before it takes absence for an answer.
const SETTLED: Duration = Duration::from_secs(75);
/// How long kubefold waits for an answer to a write here, in place of 40 s.
const DEADLINES: &str = "deadlines: {write: 3s}";

/// Three members with shares 1, 2 and 4: `north` is the home. The way to two can be blocked, and they ask a webhook.
struct Stage {
    bed: Testbed,
    fleet: Kubefold,
    api: Api,
    west: (Relay, Admission),
    north: (Relay, Admission),
    /// Requests that are never let go on: they end when kubefold gives them up.
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
            .entry("west", &west.kubeconfig_through(&west_relay), 2, DEADLINES)
            .entry("north", &north.kubeconfig_through(&north_relay), 4, DEADLINES);
        let fleet = Kubefold::start(&file).await;
        let api = fleet.api().await;
        Self {
            bed,
            fleet,
            api,
            west: (west_relay, west_gate),
            north: (north_relay, north_gate),
            kept: Mutex::default(),
        }
    }

    fn all(&self) -> [&Member; 3] {
        ["east", "west", "north"].map(|name| &self.bed[name])
    }

    fn of(&self, member: &str) -> &(Relay, Admission) {
        if member == "west" { &self.west } else { &self.north }
    }

    async fn create(&self, name: &str) -> Answer {
        post(&self.api, &deployment(name, 7)).await
    }

    async fn delete(&self, name: &str) -> Answer {
        self.api.request(Method::DELETE, &format!("{DEPLOYMENTS}/{name}"), "").await
    }

    async fn shares(&self, name: &str) -> BTreeMap<String, i64> {
        shares(&self.all(), name).await
    }

    /// What the fleet view says of a name: its total, if it is there.
    async fn shown(&self, name: &str) -> Option<i64> {
        let answer = self.api.request(Method::GET, &format!("{DEPLOYMENTS}/{name}"), "").await;
        match answer.status.as_u16() {
            200 => answer.json()["spec"]["replicas"].as_i64(),
            404 => None,
            _ => panic!("{answer}"),
        }
    }

    /// The member hangs over the create, in its dry run or for real, and gives it up when kubefold does.
    async fn hangs(&self, name: &'static str, member: &str, dry: bool) -> Answer {
        let mut held = self.of(member).1.hold(Which { name, operation: "CREATE", dry });
        let answer = self.create(name).await;
        held.arrived().await;
        self.kept.lock().push(held);
        answer
    }

    /// The member does what it was asked, and its answer is lost.
    async fn unheard(&self, write: impl Future<Output = Answer>, member: &str, mut held: Held) -> Answer {
        let relay = &self.of(member).0;
        let lose = async {
            held.arrived().await;
            relay.hang();
            held.answer(Verdict::Allow);
        };
        let (answer, ()) = tokio::join!(write, lose);
        answer
    }

    /// Waits until the members and the fleet view agree on this.
    async fn settles(&self, name: &str, parts: &[(&str, i64)]) {
        let total = parts.iter().map(|(_, replicas)| replicas).sum();
        let wanted = (split(parts), if parts.is_empty() { None } else { Some(total) });
        eventually(SETTLED, async || {
            let is = (self.shares(name).await, self.shown(name).await);
            if is == wanted { Ok(()) } else { Err(format!("{name}: {is:?}")) }
        })
        .await;
    }

    /// Waits until kubefold has noticed how a member is.
    async fn noticed(&self, member: &str, is: &str) {
        let line = format!("{member} is {is}");
        eventually(SETTLED, async || {
            let text = self.api.try_request(Method::GET, "/readyz?verbose", "").await?;
            let text = String::from_utf8_lossy(&text.body).into_owned();
            text.contains(&line).then_some(()).ok_or(text)
        })
        .await;
    }
}

const WHOLE: &[(&str, i64)] = &[("east", 1), ("west", 2), ("north", 4)];

const fn creates(name: &'static str) -> Which {
    Which { name, operation: "CREATE", dry: false }
}

const fn deletes(name: &'static str) -> Which {
    Which { name, operation: "DELETE", dry: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_fails_a_write_leaves_it_whole_or_undone() {
    let stage = Box::pin(Stage::set()).await;
    hanging(&stage).await;
    unheard(&stage).await;
    taken_back(&stage).await;
    down(&stage).await;
    for name in ["other-hangs", "home-hangs", "other-unheard"] {
        stage.settles(name, &[]).await;
        stage.create(name).await.ok();
        stage.settles(name, WHOLE).await;
    }
    unknown(&stage).await;
}

/// A member that does not answer in time: nothing is known to be made, and nothing is in the end.
async fn hanging(stage: &Stage) {
    let told = stage.hangs("dry-run-hangs", "west", true).await;
    refused(&told, 503, "ServiceUnavailable", &["member west", "dry run", "nothing was made", "no answer in 3 s"]);
    assert_eq!(stage.shares("dry-run-hangs").await, split(&[]));
    stage.create("dry-run-hangs").await.ok();

    for (name, member) in [("other-hangs", "west"), ("home-hangs", "north")] {
        let told = stage.hangs(name, member, false).await;
        let text = format!("member {member}: no answer in 3 s");
        refused(&told, 504, "Timeout", &["the outcome of creating deployments.apps", &text, "within 40 s"]);
        assert!(told.headers.get("retry-after").is_none());
        assert_eq!(stage.shown(name).await, None, "half of it is not shown");
    }
    let again = stage.create("home-hangs").await;
    refused(&again, 503, "ServiceUnavailable", &["another write to deployments.apps \"home-hangs\" is under way"]);
    assert!(again.headers.get("retry-after").is_none());
}

/// A member that did what it was asked, and could not say so.
async fn unheard(stage: &Stage) {
    let held = stage.west.1.hold(creates("other-unheard"));
    let told = stage.unheard(stage.create("other-unheard"), "west", held).await;
    refused(&told, 504, "Timeout", &["member west"]);
    assert_eq!(stage.shares("other-unheard").await, split(&[("east", 1), ("west", 2)]));
    stage.west.0.restore().await;
    stage.noticed("west", "ready").await;

    let mut watch = stage.api.watch(&format!("{DEPLOYMENTS}?watch=true")).await;
    let held = stage.north.1.hold(creates("home-unheard"));
    let told = stage.unheard(stage.create("home-unheard"), "north", held).await;
    refused(&told, 504, "Timeout", &["member north"]);
    stage.north.0.restore().await;
    stage.settles("home-unheard", WHOLE).await;
    let (type_, added) = event(&mut watch, "home-unheard").await;
    assert_eq!((type_.as_str(), &added["spec"]["replicas"]), ("ADDED", &json!(7)), "once, and whole");
    refused(&stage.create("home-unheard").await, 409, "AlreadyExists", &[]);

    stage.noticed("north", "ready").await;
    let held = stage.north.1.hold(deletes("home-unheard"));
    let told = stage.unheard(stage.delete("home-unheard"), "north", held).await;
    refused(&told, 504, "Timeout", &["the outcome of deleting deployments.apps", "member north"]);
    stage.north.0.restore().await;
    stage.settles("home-unheard", &[]).await;
    assert_eq!(event(&mut watch, "home-unheard").await.0, "DELETED");
    stage.noticed("north", "ready").await;
}

/// A commit that fails: the others' parts go, at once or when they can be reached.
async fn taken_back(stage: &Stage) {
    stage.north.1.answer(creates("home-refuses"), Verdict::Deny("not today"));
    let told = stage.create("home-refuses").await;
    let texts = ["not today (member north; ", "member east: removed again", "member west: removed again"];
    refused(&told, 403, "Forbidden", &texts);
    assert_eq!(stage.shares("home-refuses").await, split(&[]));

    let mut held = stage.north.1.hold(creates("cut-off"));
    let cut = async {
        held.arrived().await;
        stage.west.0.cut().await;
        held.answer(Verdict::Deny("not today"));
    };
    let (told, ()) = tokio::join!(stage.create("cut-off"), cut);
    let texts = ["not today", "member east: removed again", "member west: not removed yet, kubefold goes on trying"];
    refused(&told, 403, "Forbidden", &texts);
    assert_eq!(stage.shares("cut-off").await, split(&[("west", 2)]));
    stage.west.0.restore().await;
    stage.settles("cut-off", &[]).await;
    stage.noticed("west", "ready").await;
}

/// A member that is known to be down.
async fn down(stage: &Stage) {
    for name in ["behind", "homeless"] {
        stage.create(name).await.ok();
    }
    stage.west.0.cut().await;
    stage.noticed("west", "down").await;
    let told = stage.create("without-west").await;
    assert_eq!(told.ok()["spec"]["replicas"], 7);
    assert_eq!(stage.shares("without-west").await, split(&[("east", 1), ("north", 6)]), "the total is exact");
    let warnings = told.warnings().join("\n");
    assert!(warnings.contains("member west is down") && warnings.contains("without it"), "{warnings}");

    let (good, out, error) = planned(&stage.fleet, &deployment("plan", 7), &[]).await;
    let row = out.lines().find(|line| line.starts_with("west ")).unwrap_or_else(|| panic!("{out}{error}"));
    assert!(good && row.contains("down") && !row.contains("yes"), "the plan says what the create did: {out}");
    let told = stage.delete("behind").await;
    told.ok();
    let warnings = told.warnings().join("\n");
    assert!(warnings.contains("not deleted in member west yet, kubefold goes on trying"), "{warnings}");
    assert_eq!(stage.shares("behind").await, split(&[("west", 2)]));
    stage.north.0.cut().await;
    stage.noticed("north", "down").await;
    let told = stage.delete("homeless").await;
    refused(&told, 503, "ServiceUnavailable", &["its home, member north, cannot be reached"]);
    stage.north.0.restore().await;
    stage.west.0.restore().await;
    stage.settles("behind", &[]).await;
    assert_eq!(stage.shares("homeless").await, split(WHOLE));
    stage.noticed("north", "ready").await;
    stage.noticed("west", "ready").await;
    assert_eq!(stage.shown("without-west").await, Some(7), "nothing is moved when it returns");
}

/// A member that kubefold has never seen: no name can be promised, but a pin needs its own member alone.
async fn unknown(stage: &Stage) {
    stage.west.0.cut().await;
    stage.fleet.restart_without_mirror().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let pin =
        |member: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("a@{member}")}});
    let (pinned, told, unreached) = tokio::join!(
        stage.api.request(Method::POST, maps, pin("east").to_string()),
        stage.create("unpromised"),
        stage.api.request(Method::POST, maps, pin("west").to_string()),
    );
    assert_eq!(pinned.ok()["metadata"]["name"], "a@east");
    refused(&told, 503, "ServiceUnavailable", &["west"]);
    assert_eq!(stage.shares("unpromised").await, split(&[]));
    refused(&unreached, 503, "ServiceUnavailable", &["west"]);
    let (good, out, error) = planned(&stage.fleet, &deployment("plan", 7), &[]).await;
    let said = "the deployments of west have not been read since kubefold started";
    assert!(!good && out.is_empty() && error.contains(said), "{out}{error}");
    stage.west.0.restore().await;
    stage.noticed("west", "ready").await;
    stage.create("unpromised").await.ok();
    stage.settles("unpromised", WHOLE).await;
}
