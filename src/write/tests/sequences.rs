//! Each verb followed by each other one, of another field manager, while a member is behind; then the member returns, or is
//! no longer what it was. In the end all parts are equal or the difference is shown, and answers have told the truth.

use std::{collections::BTreeMap, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    answer::reply::Reply,
    placement::{
        fingerprint::{Fingerprint, Mask},
        fold::FoldKind,
    },
    write::{
        fleet::{Fleet, Key},
        request::Request,
        tests::{
            Process,
            late::{CONFIG_MAP, of},
            message, request,
            scripted::{Scripted, member},
            update::{MERGE, bare, by, down, patch},
        },
        update::{APPLY_PATCH, SCALE},
    },
};

const DEPLOYMENT: (&str, &str, &str) = ("apps", "Deployment", "deployments");
type Kind = (&'static str, &'static str, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    Update,
    Apply,
    Scale,
    Delete,
}

/// What of a sequence happens while the member is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed {
    Both,
    TheSecond,
}

/// What becomes of the member that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Returns,
    /// To what it held before the first verb.
    Restored,
    /// Another cluster, which holds an object of the same name.
    Rebuilt,
    Renamed,
    Removed,
}

const ENDINGS: [Ending; 5] = [Ending::Returns, Ending::Restored, Ending::Rebuilt, Ending::Renamed, Ending::Removed];
const MANAGERS: [&str; 2] = ["first", "second"];

/// The object as one cluster would hold it: its labels, and its replicas where it has some.
type Model = Option<(BTreeMap<String, String>, u64)>;

fn body(kind: Kind, labels: &Value) -> Value {
    let mut body = json!({"apiVersion": if kind == DEPLOYMENT { "apps/v1" } else { "v1" }, "kind": kind.1});
    body["metadata"] = json!({"name": "web", "labels": labels});
    body
}

fn created(kind: Kind, manager: &str) -> Request {
    let mut body = body(kind, &json!({"made-by": manager}));
    if kind == DEPLOYMENT {
        body["spec"] = json!({"replicas": 4});
    }
    by(manager, "", of(kind, request("", &body)))
}

/// Has a manager do a verb. Each sets a label of its own, or a total of its own.
async fn act(process: &Process, kind: Kind, verb: Verb, manager: &str) -> Reply {
    let labels = json!({manager: "was-here"});
    let change = match verb {
        Verb::Create => return process.writer.create(created(kind, manager)).await,
        Verb::Delete => {
            let delete = Request { method: Method::DELETE, ..request("", &Value::Null) };
            return process.writer.delete(by(manager, "", of(kind, delete)), "web".into()).await;
        }
        Verb::Update => patch(MERGE, &json!({"metadata": {"labels": labels}})),
        Verb::Apply => patch(APPLY_PATCH, &body(kind, &labels)),
        Verb::Scale => {
            let scale = patch(MERGE, &json!({"spec": {"replicas": total(manager)}}));
            Request { subresource: SCALE.to_owned(), ..scale }
        }
    };
    process.writer.update(by(manager, "", of(kind, change)), "web".into()).await
}

fn total(manager: &str) -> u64 {
    if manager == "first" { 8 } else { 12 }
}

/// What one cluster makes of a verb that succeeds.
fn after(model: Model, verb: Verb, manager: &str) -> Model {
    let labelled = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    match (verb, model) {
        (Verb::Create, None) => Some((labelled("made-by", manager), 4)),
        // It leaves the number out, and these members have no defaults.
        (Verb::Apply, None) => Some((labelled(manager, "was-here"), 0)),
        (Verb::Update | Verb::Apply, Some((mut labels, replicas))) => {
            labels.insert(manager.to_owned(), "was-here".to_owned());
            Some((labels, replicas))
        }
        (Verb::Scale, Some((labels, _))) => Some((labels, total(manager))),
        (Verb::Delete, Some(_)) => None,
        (verb, model) => panic!("{verb:?} succeeded on {model:?}"),
    }
}

/// One sequence.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    verbs: [Verb; 2],
    missed: Missed,
    ending: Ending,
}

fn stranger(kind: Kind) -> Value {
    let mut own = body(kind, &json!({"own": "yes"}));
    merge(&mut own, json!({"metadata": {"uid": "a-stranger", "resourceVersion": "3", "generation": 1}}));
    own
}

fn merge(object: &mut Value, patch: Value) {
    kubefold_wire::patch::merge_into(object, patch);
}

impl Case {
    fn key(&self) -> Key {
        of(self.kind, request("", &Value::Null)).key("web")
    }

    async fn play(self) {
        let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]);
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(fleet.clone(), &directory);
        let mut model = None;
        if self.verbs[0] != Verb::Create {
            assert_eq!(process.writer.create(created(self.kind, "maker")).await.code, 201, "{self:?}");
            model = after(model, Verb::Create, "maker");
        }
        let backup = fleet.world.lock().members[&member("east")].objects.clone();
        for (at, (verb, manager)) in self.verbs.into_iter().zip(MANAGERS).enumerate() {
            if (at == 0) == (self.missed == Missed::Both) {
                self.loses_east(&fleet);
            }
            let reply = act(&process, self.kind, verb, manager).await;
            match reply.code.as_u16() {
                200 | 201 => model = after(model, verb, manager),
                404 | 409 | 503 => {}
                code => panic!("{self:?}: {verb:?} is {code}: {}", message(&reply)),
            }
            // What is wrong for one cluster is, and nothing else but that the home cannot be reached.
            let is_possible = at == 0 || self.verbs[0] != Verb::Delete;
            let fails = verb == Verb::Create && at == 1 && self.verbs[0] != Verb::Delete;
            assert!(!is_possible || reply.code.is_success() != fails, "{self:?}: {verb:?}: {}", message(&reply));
        }
        let before = fleet.world.lock().members[&member("east")].objects.get("web").cloned();
        self.end(&fleet, &backup);
        process.writer.replay();
        sleep(Duration::from_secs(1_000)).await;
        let open = process.writer.journal().open_entries();
        assert!(open.is_empty(), "{self:?}: {open:#?}");
        self.judge(&fleet, model, before.as_ref());
    }

    fn loses_east(&self, fleet: &Scripted) {
        down(fleet, "east", true);
        let mut world = fleet.world.lock();
        world.members.get_mut(&member("east")).unwrap().standing =
            Some(crate::placement::plan::Standing::Down("cut off".into()));
    }

    fn end(&self, fleet: &Scripted, backup: &BTreeMap<String, Value>) {
        down(fleet, "east", false);
        let mut world = fleet.world.lock();
        let mut east = world.members.remove(&member("east")).unwrap();
        east.standing = None;
        let name = match self.ending {
            Ending::Removed => return,
            Ending::Renamed => "orient",
            Ending::Returns | Ending::Restored | Ending::Rebuilt => "east",
        };
        match self.ending {
            Ending::Restored => east.objects.clone_from(backup),
            Ending::Rebuilt => {
                east.uid = "another".into();
                east.objects = BTreeMap::from([("web".to_owned(), stranger(self.kind))]);
            }
            _ => {}
        }
        world.members.insert(member(name), east);
    }

    /// The home is as one cluster is, or gone; each other part is as the home, or shown to differ; what is nobody's is as it was.
    fn judge(&self, fleet: &Scripted, model: Model, before: Option<&Value>) {
        let of = |name: &str| {
            let world = fleet.world.lock();
            world.members.get(&member(name)).and_then(|cluster| cluster.objects.get("web")).cloned()
        };
        let (home, north) = (of("west"), of("north"));
        let Some((labels, replicas)) = model else {
            assert!(home.is_none() && north.is_none(), "{self:?}: it is deleted: {home:?} {north:?}");
            return self.judge_east(fleet, None, before);
        };
        let home = home.unwrap_or_else(|| panic!("{self:?}: the home is gone"));
        for part in [Some(home.clone()), north].into_iter().flatten() {
            let mut held: BTreeMap<String, String> =
                serde_json::from_value(part["metadata"]["labels"].clone()).unwrap();
            held.remove("kubefold.io/placement");
            assert_eq!(held, labels, "{self:?}");
        }
        self.judge_east(fleet, Some(&home), before);
        if self.kind == DEPLOYMENT && matches!(self.ending, Ending::Returns | Ending::Renamed) {
            let sum: u64 = fleet.standing("web").iter().map(|(_, replicas)| replicas).sum();
            assert_eq!(sum, replicas, "{self:?}");
        }
    }

    fn judge_east(&self, fleet: &Scripted, home: Option<&Value>, before: Option<&Value>) {
        let name = if self.ending == Ending::Renamed { "orient" } else { "east" };
        let east = {
            let world = fleet.world.lock();
            world.members.get(&member(name)).and_then(|cluster| cluster.objects.get("web")).cloned()
        };
        if self.ending == Ending::Rebuilt {
            assert_eq!(east, Some(stranger(self.kind)), "{self:?}: a stranger was touched");
            return;
        }
        let placement = |part: &Value| part["metadata"]["labels"]["kubefold.io/placement"].clone();
        let Some(east) = east else {
            // A part that is gone is shown by what the marker says of the parts that were made.
            let is_expected = matches!(self.ending, Ending::Returns | Ending::Renamed) && before.is_some();
            assert!(home.is_none() || !is_expected, "{self:?}: the part in {name} is gone");
            return;
        };
        match home {
            Some(home) if placement(home) == placement(&east) => {
                let gvr = self.key().gvr;
                let kind = FoldKind::known(fleet.rules().kinds(), &gvr, &self.key().gvk);
                let print = |part: &Value| Fingerprint::of(&part.to_string(), &gvr, kind, &Mask::default()).unwrap();
                if self.ending == Ending::Restored && print(home).differs(&print(&east)) {
                    return;
                }
                assert_eq!(bare(&east), bare(home), "{self:?}");
            }
            // The part of an earlier object of that name, that a backup brought back: nobody owns it, and it stays.
            _ => assert_eq!(self.ending, Ending::Restored, "{self:?}: {east} is left"),
        }
    }
}

/// All ordered pairs of verbs, and the endings.
async fn all(kind: Kind, missed: Missed) {
    let verbs = [Verb::Create, Verb::Update, Verb::Apply, Verb::Scale, Verb::Delete];
    let verbs = || verbs.into_iter().filter(|verb| *verb != Verb::Scale || kind == DEPLOYMENT);
    for (first, second) in verbs().flat_map(|first| verbs().map(move |second| (first, second))) {
        for ending in ENDINGS {
            Case { kind, verbs: [first, second], missed, ending }.play().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_two_verbs_that_a_part_of_a_deployment_has_missed() {
    all(DEPLOYMENT, Missed::Both).await;
}

#[tokio::test(start_paused = true)]
async fn any_two_verbs_that_a_part_of_a_config_map_has_missed() {
    all(CONFIG_MAP, Missed::Both).await;
}

#[tokio::test(start_paused = true)]
async fn any_verb_after_which_a_part_of_a_deployment_has_missed_another() {
    all(DEPLOYMENT, Missed::TheSecond).await;
}

#[tokio::test(start_paused = true)]
async fn any_verb_after_which_a_part_of_a_config_map_has_missed_another() {
    all(CONFIG_MAP, Missed::TheSecond).await;
}
