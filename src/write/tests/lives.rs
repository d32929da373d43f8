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
        killed::Kill,
        late::{CONFIG_MAP, of},
        message, request,
        scripted::{Fault, Scripted, member},
        update::{MERGE, bare, by, down, patch},
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
    /// In the next write.
    Kill(Kill),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3u8).prop_map(Act::Create),
        3 => Just(Act::Delete),
        3 => (0..3u8).prop_map(Act::Label),
        2 => (0..3u8).prop_map(Act::Apply),
        2 => any::<bool>().prop_map(Act::Down),
        3 => Kill::any(8).prop_map(Act::Kill),
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
    kill: Option<Kill>,
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

    fn body(&self, value: &u8) -> Value {
        let api_version = if self.kind == DEPLOYMENT { "apps/v1" } else { "v1" };
        let metadata = json!({"name": "web", "labels": {"tier": format!("v{value}")}});
        let mut body = json!({"apiVersion": api_version, "kind": self.kind.1, "metadata": metadata});
        if self.kind == DEPLOYMENT {
            body["spec"] = json!({"replicas": 3});
        }
        body
    }

    async fn act(mut self, act: &Act) -> Self {
        let (request, wanted) = match act {
            Act::Create(value) => (request("", &self.body(value)), Some(format!("v{value}"))),
            Act::Delete => (request("", &Value::Null), None),
            Act::Label(value) => {
                let change = json!({"metadata": {"labels": {"tier": format!("v{value}")}}});
                (by("ann", "", patch(MERGE, &change)), Some(format!("v{value}")))
            }
            Act::Apply(value) => {
                (by("ci", "&force=true", patch(APPLY_PATCH, &self.body(value))), Some(format!("v{value}")))
            }
            Act::Down(is) => {
                down(&self.fleet, "east", *is);
                self.pause(Duration::from_secs(100)).await;
                return self;
            }
            Act::Kill(kill) => {
                self.kill = Some(*kill);
                return self;
            }
        };
        let request = of(self.kind, request);
        self.write(request, wanted).await
    }

    async fn write(mut self, request: Request, wanted: Held) -> Self {
        let asked = async |process: &Process| match request.method {
            Method::POST => process.writer.create(request).await,
            Method::DELETE => process.writer.delete(request, "web".into()).await,
            _ => process.writer.update(request, "web".into()).await,
        };
        let (process, reply) = Kill::in_write(self.kill.take(), self.process, &self.directory, asked).await;
        self.process = process;
        match reply.as_ref().map(|reply| reply.code) {
            Some(StatusCode::OK | StatusCode::CREATED) => {
                self.possible = [wanted].into();
                self.possible.extend(self.late.iter().cloned());
            }
            // It is not there, or it is there already.
            Some(StatusCode::NOT_FOUND | StatusCode::CONFLICT) => {}
            // Nobody can say.
            None | Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) => {
                self.possible.insert(wanted.clone());
                self.late.insert(wanted);
            }
            Some(code) => panic!("{code}: {}", reply.as_ref().map(message).unwrap_or_default()),
        }
        self
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
            play = play.act(act).await;
        }
        play.judge(acts).await;
        // It goes on.
        for last in [Act::Create(7), Act::Label(8), Act::Delete] {
            play = play.act(&last).await;
            play.judge(acts).await;
        }
        assert_eq!(play.possible, [None].into(), "{acts:?}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: ProptestConfig::default().cases / 3, ..ProptestConfig::default() })]

    #[test]
    fn what_was_answered_stays_and_all_members_hold_the_same(
        kind in prop::sample::select(vec![DEPLOYMENT, CONFIG_MAP]),
        acts in prop::collection::vec(act(), 1..16),
    ) {
        play(kind, &acts);
    }
}

#[test]
fn what_killed_deletes_left_is_no_object_to_write() {
    use Act::{Apply, Create, Delete, Down, Label};
    let kill = |call, fault| Act::Kill(Kill::new(call, fault, false));
    for acts in [
        // East still has its part.
        vec![Create(0), kill(3, Fault::CrashLate), Delete, Apply(0)],
        vec![Create(0), kill(3, Fault::CrashBefore), Delete, Label(1)],
        // East has not got the change, and the home stays.
        vec![Create(0), Down(true), Label(1), kill(2, Fault::CrashBefore), Delete],
        vec![Create(0), Down(true), Label(1), kill(2, Fault::CrashBefore), Delete, Label(2)],
    ] {
        for kind in [DEPLOYMENT, CONFIG_MAP] {
            play(kind, &acts);
        }
    }
}
