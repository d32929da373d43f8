//! Whole lives of an object: it is made, changed, deleted and made anew while a member goes and comes back and the process is killed in any
//! call. Whatever was answered as done stays, and in the end all members hold the same.

use std::{collections::BTreeSet, time::Duration};

use http::{Method, StatusCode};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::write::{
    request::Request,
    tests::{
        Process, fresh,
        late::{CONFIG_MAP, of},
        message, request,
        scripted::{CRASHES, Fault, Scripted, member},
        update::{MERGE, bare, by, down, patch},
        web,
    },
    update::APPLY_PATCH,
};

#[derive(Clone, Debug)]
enum Act {
    Create(u8),
    Delete,
    Label(u8),
    Apply(u8),
    /// East goes or comes back.
    Down(bool),
    /// In the next write, in this call of it; what the next process does first is to look for what is unfinished, or to write.
    Kill(usize, Fault, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3u8).prop_map(Act::Create),
        3 => Just(Act::Delete),
        3 => (0..3u8).prop_map(Act::Label),
        2 => (0..3u8).prop_map(Act::Apply),
        2 => any::<bool>().prop_map(Act::Down),
        3 => (0..8usize, prop::sample::select(CRASHES.to_vec()), any::<bool>())
            .prop_map(|(call, fault, replays)| Act::Kill(call, fault, replays)),
    ]
}

/// The label's value; `None`: the object is not there.
type Held = Option<String>;

type Kind = (&'static str, &'static str, &'static str);
const DEPLOYMENT: Kind = ("apps", "Deployment", "deployments");

struct Play {
    kind: Kind,
    fleet: Scripted,
    directory: TempDir,
    process: Process,
    kill: Option<(usize, Fault, bool)>,
    /// What the home may hold.
    possible: BTreeSet<Held>,
    /// What killed processes have sent, and may come still.
    late: BTreeSet<Held>,
}

impl Play {
    fn start(kind: Kind) -> Self {
        let (fleet, directory, process) = fresh();
        Self { kind, fleet, directory, process, kill: None, possible: [None].into(), late: BTreeSet::new() }
    }

    /// Waits until nothing comes any more of what was sent.
    async fn pause(&mut self, pause: Duration) {
        self.process.writer.replay();
        tokio::time::sleep(pause).await;
        self.possible.append(&mut self.late);
    }

    async fn act(&mut self, act: &Act) {
        let labels = |value: &u8| json!({"tier": format!("v{value}")});
        let (request, wanted) = match act {
            Act::Create(value) => {
                let mut body = web(3);
                if self.kind != DEPLOYMENT {
                    body = json!({"metadata": {"name": "web"}});
                }
                body["metadata"]["labels"] = labels(value);
                (request("", &body), Some(format!("v{value}")))
            }
            Act::Delete => (request("", &Value::Null), None),
            Act::Label(value) => {
                let change = json!({"metadata": {"labels": labels(value)}});
                (by("ann", "", patch(MERGE, &change)), Some(format!("v{value}")))
            }
            Act::Apply(value) => {
                let body = json!({
                    "apiVersion": if self.kind == DEPLOYMENT { "apps/v1" } else { "v1" }, "kind": self.kind.1, "metadata": {"name": "web", "labels": labels(value)},
                    "spec": {"replicas": 3}
                });
                (by("ci", "&force=true", patch(APPLY_PATCH, &body)), Some(format!("v{value}")))
            }
            Act::Down(is) => {
                down(&self.fleet, "east", *is);
                return self.pause(Duration::from_secs(100)).await;
            }
            Act::Kill(call, fault, replays) => {
                self.kill = Some((*call, *fault, *replays));
                return;
            }
        };
        self.write(of(self.kind, request), wanted).await;
    }

    async fn write(&mut self, request: Request, wanted: Held) {
        let fleet = self.process.writer.fleet.clone();
        let kill = self.kill.take();
        if let Some((call, fault, _)) = kill {
            let mut world = fleet.world.lock();
            let next = world.calls.len();
            world.faults = [(next + call, fault)].into();
        }
        let writer = self.process.writer.clone();
        let asked = async {
            match request.method {
                Method::POST => writer.create(request).await,
                Method::DELETE => writer.delete(request, "web".into()).await,
                _ => writer.update(request, "web".into()).await,
            }
        };
        let answer = tokio::select! {
            reply = asked => Some(reply),
            () = fleet.killed.notified() => None,
        };
        match answer.filter(|_| !fleet.world.lock().crashed) {
            Some(reply) => {
                fleet.world.lock().faults.clear();
                match reply.code {
                    StatusCode::OK | StatusCode::CREATED => {
                        self.possible = [wanted].into();
                        self.possible.extend(self.late.iter().cloned());
                    }
                    // It is not there, it is there already, or nobody can say.
                    StatusCode::NOT_FOUND | StatusCode::CONFLICT => {}
                    StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                        self.possible.insert(wanted.clone());
                        self.late.insert(wanted);
                    }
                    code => panic!("{code}: {}", message(&reply)),
                }
            }
            None => {
                self.possible.insert(wanted.clone());
                self.late.insert(wanted);
                self.process.cancel.cancel();
                self.process = Process::start(fleet.restarted(), &self.directory);
                if kill.is_some_and(|(.., replays)| replays) {
                    self.process.writer.replay();
                }
            }
        }
    }

    fn held(&self, at: &str) -> Option<Value> {
        self.fleet.world.lock().members[&member(at)].objects.get("web").map(bare)
    }

    /// All members are there: what they hold is one thing, and one that it may be.
    async fn judge(&mut self, acts: &[Act]) {
        self.kill = None;
        down(&self.fleet, "east", false);
        self.pause(Duration::from_secs(2_000)).await;
        let open = self.process.writer.journal().open_entries();
        assert!(open.is_empty(), "{acts:?}: {open:#?}");
        let (east, west) = (self.held("east"), self.held("west"));
        assert_eq!(east, west, "{acts:?}");
        let label = west.map(|part| part["metadata"]["labels"]["tier"].as_str().unwrap_or_default().to_owned());
        assert!(self.possible.contains(&label), "{acts:?}: {label:?} is none of {:?}", self.possible);
    }
}

fn play(kind: Kind, acts: &[Act]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut play = Play::start(kind);
        for act in acts {
            play.act(act).await;
        }
        play.judge(acts).await;
        // It goes on.
        for last in [Act::Create(7), Act::Label(8), Act::Delete] {
            play.act(&last).await;
            play.judge(acts).await;
        }
        assert_eq!(play.possible, [None].into(), "{acts:?}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: ProptestConfig::default().cases / 3, ..ProptestConfig::default() })]

    #[test]
    fn what_was_answered_stays_and_all_members_hold_the_same(
        acts in prop::collection::vec(act(), 1..16)
    ) {
        play(DEPLOYMENT, &acts);
    }
}

#[test]
fn what_killed_deletes_left_is_no_object_to_write() {
    use Act::{Apply, Create, Delete, Down, Kill, Label};
    for acts in [
        // East still has its part.
        vec![Create(0), Kill(3, Fault::CrashLate, false), Delete, Apply(0)],
        vec![Create(0), Kill(3, Fault::CrashBefore, false), Delete, Label(1)],
        // East has not got the change, and the home stays.
        vec![Create(0), Down(true), Label(1), Kill(2, Fault::CrashBefore, false), Delete],
        vec![Create(0), Down(true), Label(1), Kill(2, Fault::CrashBefore, false), Delete, Label(2)],
    ] {
        for kind in [DEPLOYMENT, CONFIG_MAP] {
            play(kind, &acts);
        }
    }
}
