//! A holder that is stopped in the middle of each step of each verb, and goes on when another one has finished what it had begun.

use std::{fmt, fs, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use testbed::{
    Api, FleetFile, Kept, Kubefold, MemberOptions, Place, Saboteur, StateEngine, StateServer, Testbed, eventually,
};
use tokio::{task::JoinSet, time::Instant};

use crate::standby::{key_file, serves};

const SOON: Duration = Duration::from_secs(60);
/// For the new holder to be sure that nothing of the former one arrives any more, and to finish.
const FINISHED: Duration = Duration::from_secs(150);
const APPLY: &str = "application/apply-patch+yaml";

/// The kinds: one that every member has, and one that is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ConfigMap,
    Deployment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    Update,
    Apply,
    Scale,
    Delete,
}

/// Where the write is when its holder stops: on the way to a member, or on the way back. East has the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    DryRun,
    BeforeHome,
    AfterHome,
    BeforeOther,
    AfterOther,
}

/// A write of an object of its own.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    verb: Verb,
    step: Step,
    /// What is on its way arrives when the new holder has finished, or before it begins.
    is_late: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = if self.is_late { "late" } else { "soon" };
        let name = format!("{:?}-{:?}-{:?}-{late}", self.kind, self.verb, self.step);
        f.write_str(&name.to_lowercase())
    }
}

impl Case {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for kind in [Kind::ConfigMap, Kind::Deployment] {
            for verb in [Verb::Create, Verb::Update, Verb::Apply, Verb::Scale, Verb::Delete] {
                for step in [Step::DryRun, Step::BeforeHome, Step::AfterHome, Step::BeforeOther, Step::AfterOther] {
                    all.extend([false, true].map(|is_late| Self { kind, verb, step, is_late }));
                }
            }
        }
        all.retain(|case| (case.kind, case.verb) != (Kind::ConfigMap, Verb::Scale));
        all
    }

    fn path(self) -> &'static str {
        match self.kind {
            Kind::ConfigMap => "/api/v1/namespaces/default/configmaps",
            Kind::Deployment => "/apis/apps/v1/namespaces/default/deployments",
        }
    }

    fn body(self, value: &str, replicas: u32) -> Value {
        let name = self.to_string();
        let metadata = json!({"name": name, "namespace": "default", "annotations": {"value": value}});
        match self.kind {
            Kind::ConfigMap => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
            Kind::Deployment => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {
                    "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
                    },
                },
            }),
        }
    }

    fn request(self) -> Request<Bytes> {
        let (path, one) = (self.path(), format!("{}/{self}", self.path()));
        let json = "application/json";
        let (method, path, accepted, body) = match self.verb {
            Verb::Create => (Method::POST, path.to_owned(), json, self.body("1", 6)),
            Verb::Update => (Method::PUT, one, json, self.body("2", 9)),
            Verb::Apply => (Method::PATCH, format!("{one}?fieldManager=one&force=true"), APPLY, self.body("2", 9)),
            Verb::Scale => (
                Method::PATCH,
                format!("{one}/scale"),
                "application/merge-patch+json",
                json!({"spec": {"replicas": 9}}),
            ),
            Verb::Delete => (Method::DELETE, one, json, json!({})),
        };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, accepted);
        request.body(Bytes::from(body.to_string())).unwrap()
    }

    /// How it ends, before and after what is late has arrived: what the home has is everywhere.
    fn end(self, has_arrived: bool) -> &'static str {
        let [before, asked] = self.before_and_asked();
        match (self.verb, self.step) {
            (_, Step::DryRun) => before,
            // The home of a create is made last, and was not asked.
            (Verb::Create, Step::BeforeOther | Step::AfterOther) => before,
            (_, Step::BeforeHome) if self.is_late && !has_arrived => before,
            _ => asked,
        }
    }

    /// What was there before, and what was asked for.
    fn before_and_asked(self) -> [&'static str; 2] {
        match (self.kind, self.verb) {
            (Kind::ConfigMap, Verb::Create) => ["nothing", "1"],
            (Kind::ConfigMap, Verb::Delete) => ["1", "nothing"],
            (Kind::ConfigMap, _) => ["1", "2"],
            (Kind::Deployment, Verb::Create) => ["nothing", "1 of 6"],
            (Kind::Deployment, Verb::Delete) => ["1 of 6", "nothing"],
            (Kind::Deployment, Verb::Scale) => ["1 of 6", "1 of 9"],
            (Kind::Deployment, _) => ["1 of 6", "2 of 9"],
        }
    }

    /// What a body says; `numbers` are the replicas of all its parts.
    fn told(self, value: &str, numbers: u64) -> String {
        if self.kind == Kind::Deployment { format!("{value} of {numbers}") } else { value.to_owned() }
    }

    /// Says whether the members and the fleet view have this, and all of it.
    async fn stands(self, fleet: &Api, members: &[Api], wanted: &str) -> Result<(), String> {
        let path = format!("{}/{self}", self.path());
        let shown = fleet.try_request(Method::GET, &path, "").await?;
        let parts = join_all(members.iter().map(|member| member.request(Method::GET, &path, ""))).await;
        let found: Vec<Value> =
            parts.iter().filter(|part| part.status == StatusCode::OK).map(|part| part.json()).collect();
        let say = |body: &Value, numbers: u64| {
            self.told(body["metadata"]["annotations"]["value"].as_str().unwrap_or_default(), numbers)
        };
        let numbers: u64 = found.iter().filter_map(|part| part["spec"]["replicas"].as_u64()).sum();
        let mut said: Vec<String> = found.iter().map(|part| say(part, numbers)).collect();
        said.dedup();
        let stands = match (found.len(), said.as_slice()) {
            (0, _) => "nothing".to_owned(),
            (2, [one]) => one.clone(),
            _ => return Err(format!("{self}: the parts are {found:?}")),
        };
        let shown = match shown.status {
            StatusCode::NOT_FOUND => "nothing".to_owned(),
            StatusCode::OK => {
                let body = shown.json();
                let marks = ["kubefold.io/behind", "kubefold.io/differs"];
                if let Some(mark) = marks.iter().find(|mark| !body["metadata"]["annotations"][mark].is_null()) {
                    return Err(format!("{self}: {mark} in {body}"));
                }
                say(&body, body["spec"]["replicas"].as_u64().unwrap_or_default())
            }
            _ => return Err(format!("{self}: {shown}")),
        };
        let is_so = shown == wanted && stands == wanted;
        is_so
            .then_some(())
            .ok_or_else(|| format!("{self}: {stands} in the members, {shown} in the fleet view, not {wanted}"))
    }

    /// Keeps its write at its step.
    fn keep(self, east: &Saboteur, west: &Saboteur) -> Kept {
        let name = self.to_string();
        match self.step {
            Step::DryRun => east.keep(&name, true, Place::After),
            Step::BeforeHome => east.keep(&name, false, Place::Before),
            Step::AfterHome => east.keep(&name, false, Place::After),
            Step::BeforeOther => west.keep(&name, false, Place::Before),
            Step::AfterOther => west.keep(&name, false, Place::After),
        }
    }
}

/// Waits until nothing is unfinished, and every write has ended.
async fn ended(fleet: &Api, members: &[Api], cases: &[Case], has_arrived: bool) {
    eventually(FINISHED, async || {
        let unfinished = fleet.get("/kubefold/v1/status").await["unfinished"].take();
        if unfinished.as_array().is_none_or(|all| !all.is_empty()) {
            return Err(format!("unfinished: {unfinished}"));
        }
        let ends = cases.iter().map(|case| case.stands(fleet, members, case.end(has_arrived)));
        let wrong: Vec<String> = join_all(ends).await.into_iter().filter_map(Result::err).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_stops_in_any_step_leaves_what_one_writer_leaves() {
    stops_in_any_step(StateEngine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_mysql_a_holder_that_stops_in_any_step_leaves_what_one_writer_leaves() {
    stops_in_any_step(StateEngine::Mysql).await;
}

async fn stops_in_any_step(engine: StateEngine) {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = tokio::join!(Saboteur::before(&bed["east"], "east"), Saboteur::before(&bed["west"], "west"));
    let members = [bed["east"].api().await, bed["west"].api().await];
    let server = StateServer::start(engine);
    let folder = tempfile::tempdir().unwrap();
    let (url, key) = (folder.path().join("url"), folder.path().join("key"));
    fs::write(&url, server.url()).unwrap();
    let flags = ["--state-url-file", url.to_str().unwrap(), "--state-key-file", key_file(&key)];
    let file = FleetFile::default().entry("east", east.kubeconfig(), 2, "").entry("west", west.kubeconfig(), 1, "");
    let first = Kubefold::start_with(&file, &flags).await;
    let second = Kubefold::launch_with(&file, &flags);
    second.ready().await;

    let cases = Case::all();
    let api = first.api().await;
    let standing = cases.iter().filter(|case| case.verb != Verb::Create);
    join_all(standing.map(async |case| api.create(case.path(), &case.body("1", 6)).await)).await;

    // Each is at its step, and the holder stops.
    let kept: Vec<(Case, Kept)> = cases.iter().map(|case| (*case, case.keep(&east, &west))).collect();
    let mut writing = JoinSet::new();
    for case in cases.iter().copied() {
        let api = api.clone();
        writing.spawn(async move { api.send(case.request()).await });
    }
    for (case, kept) in &kept {
        tokio::time::timeout(SOON, kept.reached()).await.unwrap_or_else(|_| panic!("{case}: {}", first.log()));
    }
    first.pause();
    let began = Instant::now();
    let soon = kept.iter().filter(|(case, _)| !case.is_late);
    join_all(soon.map(|(_, kept)| kept.release())).await;
    serves(&second, "SIGSTOP in every step", began).await;
    let api = second.api().await;
    ended(&api, &members, &cases, false).await;

    // It goes on, has its answers, and what it sent arrives.
    let late = kept.iter().filter(|(case, _)| case.is_late);
    join_all(late.map(|(_, kept)| kept.release())).await;
    first.resume();
    let status = first.ended().await;
    assert!(!status.success() && first.log().contains("since; this process writes nothing more"), "{}", first.log());
    drop(writing);
    ended(&api, &members, &cases, true).await;

    // Nothing keeps a name: who writes again is answered, and everybody has it.
    let again = cases.iter().map(async |case| {
        let path = format!("{}/{case}?fieldManager=one&force=true", case.path());
        let answer = api.send(apply(&path, &case.body("3", 3))).await.unwrap();
        assert!(answer.status.is_success(), "{case}: {answer}");
        let wanted = case.told("3", 3);
        eventually(SOON, async || case.stands(&api, &members, &wanted).await).await;
    });
    join_all(again).await;
}

fn apply(path: &str, body: &Value) -> Request<Bytes> {
    let request = Request::patch(path).header(header::CONTENT_TYPE, APPLY);
    request.body(Bytes::from(body.to_string())).unwrap()
}
