//! From the version before (`tests/before`) to this one: what it has begun is ended, what it stored is there, and clients go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use testbed::{
    Api, FleetFile, Informer, Kubefold, MemberOptions, PostgresServer, Relay, Testbed, before, eventually, figure,
    objects::{CONFIG_MAPS, Cluster, create_many, exact},
    program,
    samples::namespace,
};

use crate::{
    informer::{EACH, churn, replay, settled},
    replicas::calm,
    standby::key_file,
    state::{SPACE, caught_up, fill, is_there},
};

const SOON: Duration = Duration::from_secs(90);
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// Objects that are written through the fleet view, again and again.
const WRITTEN: usize = 40;

/// Another program goes on with the state, at the same address.
async fn replaced(fleet: &Kubefold, by: PathBuf) {
    assert!(fleet.terminate(SOON).await.success(), "{}", fleet.log());
    fleet.becomes(by);
    fleet.relaunch();
    fleet.ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_version_before_began_and_stored_is_this_ones() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    tokio::join!(namespace(east, SPACE), namespace(west, SPACE), create_many(east, "many", EACH, 100));
    let to_west = Relay::before(west).await;
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&to_west), 1, "");
    let fleet = Kubefold::launch_of(before("kubefold"), &file, &[]);
    fleet.ready().await;
    let kubeconfig = fleet.kubeconfig();
    let handed_out = fs::read(&kubeconfig).unwrap();
    let mut informer = Informer::start(&kubeconfig, None, "configmaps", false);
    informer.synced(SOON).await;
    let revision = fill(&fleet, &to_west).await;

    replaced(&fleet, program()).await;
    is_there(&fleet, &revision).await;
    assert_eq!(fs::read(&kubeconfig).unwrap(), handed_out, "kubeconfigs stay as they are");
    // Back, as somebody does who finds a defect in it, and on again.
    replaced(&fleet, before("kubefold")).await;
    is_there(&fleet, &revision).await;
    replaced(&fleet, program()).await;
    is_there(&fleet, &revision).await;
    to_west.restore().await;
    caught_up(west).await;
    let api = fleet.api().await;
    eventually(SOON, async || {
        let shown = api.get(CONFIG_MAPS).await;
        let held = informer.dump().await.as_object().unwrap().len();
        let all = shown["items"].as_array().unwrap().len();
        (held == all).then_some(()).ok_or_else(|| format!("{held} of {all}: {}", informer.errors()))
    })
    .await;
    // Nothing was told that did not happen.
    let held = informer.dump().await.as_object().unwrap().len();
    assert_eq!(replay(&informer).len(), held);
    assert_eq!((informer.events_of("DELETE").len(), informer.events_of("ADD").len()), (0, held));
}

fn secret(name: &str, value: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"value": value.to_string()}})
}

/// Changes of a Secret in the ways in which clients make them, one after the other.
fn change(name: &str, number: usize) -> Request<Bytes> {
    let data = json!({"data": {"value": STANDARD.encode(number.to_string())}});
    let (method, content_type, body) = match number / WRITTEN % 4 {
        0 => (Method::PUT, "application/json", secret(name, number)),
        1 => (Method::PATCH, "application/merge-patch+json", data),
        2 => (Method::PATCH, "application/strategic-merge-patch+json", data),
        _ => (Method::PATCH, "application/apply-patch+yaml", secret(name, number)),
    };
    let query = if content_type.contains("apply") { "?fieldManager=test&force=true" } else { "" };
    let request = Request::builder().method(method).uri(format!("{SECRETS}/{name}{query}"));
    request.header(header::CONTENT_TYPE, content_type).body(body.to_string().into()).unwrap()
}

/// Secrets of all members that are written through the fleet view.
#[derive(Default)]
pub(crate) struct Written {
    /// The values that each may have: the last one that was answered to be stored, and those that were asked for since. `None` is that there
    /// is no such object, which none of them was answered to be yet: a create whose process was killed is taken back.
    values: Mutex<BTreeMap<String, Vec<Option<usize>>>>,
    stored: AtomicUsize,
}

impl Written {
    /// Makes and changes them until told to end.
    pub(crate) async fn write(&self, fleet: &Api, until: &CancellationToken) {
        for number in 0.. {
            if until.is_cancelled() {
                return;
            }
            let name = format!("written-{:02}", number % WRITTEN);
            let mut asked = fleet.send(change(&name, number)).await;
            if asked.as_ref().is_ok_and(|answer| answer.status == StatusCode::NOT_FOUND) {
                let body = secret(&name, number).to_string();
                asked = fleet.try_request(Method::POST, SECRETS, body).await;
            }
            let mut values = self.values.lock();
            let values = values.entry(name).or_insert_with(|| vec![None]);
            match asked {
                Ok(answer) if answer.status.is_success() => {
                    *values = vec![Some(number)];
                    self.stored.fetch_add(1, Ordering::Relaxed);
                }
                // Nobody has the state for a moment, whoever had it did not answer, or a create that had no answer is done only now.
                Ok(answer) => {
                    let known = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT, StatusCode::CONFLICT];
                    assert!(known.contains(&answer.status), "{answer}");
                    values.push(Some(number));
                }
                // Whoever was asked has ended.
                Err(_) => values.push(Some(number)),
            }
        }
    }

    /// Waits until more are stored.
    pub(crate) async fn goes_on(&self) {
        let before = self.stored.load(Ordering::Relaxed);
        eventually(SOON, async || {
            let now = self.stored.load(Ordering::Relaxed);
            (now > before + WRITTEN).then_some(()).ok_or_else(|| format!("{before} were stored, and now {now}"))
        })
        .await;
    }

    /// What is stored is in every member, one value in all.
    pub(crate) async fn are_stored(&self, members: [&impl Cluster; 2]) {
        let values = self.values.lock().clone();
        eventually(SOON, async || {
            let [one, other] = members.map(|member| async { held(member).await });
            let (one, other) = tokio::join!(one, other);
            let wrong: Vec<_> = values
                .iter()
                .filter(|(name, may_have)| {
                    one.get(*name) != other.get(*name) || !may_have.contains(&one.get(*name).copied())
                })
                .map(|(name, may_have)| {
                    format!("{name}: {:?} and {:?}, of {may_have:?}", one.get(name), other.get(name))
                })
                .collect();
            wrong.is_empty().then_some(()).ok_or_else(|| wrong.join("\n"))
        })
        .await;
    }
}

/// What a member has of them.
async fn held(member: &impl Cluster) -> BTreeMap<String, usize> {
    let list = member.api().await.get(SECRETS).await;
    let value =
        |item: &Value| String::from_utf8(STANDARD.decode(item["data"]["value"].as_str()?).ok()?).ok()?.parse().ok();
    let of = |item: &Value| Some((item["metadata"]["name"].as_str()?.to_owned(), value(item)?));
    list["items"].as_array().unwrap().iter().filter_map(of).collect()
}

/// Two replicas are replaced one after the other while objects are written through a load balancer before them, and at the members, and
/// informers watch.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_upgraded_one_after_the_other_under_load() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let members = [&bed["east"], &bed["west"]];
    futures::future::join_all(members.map(|member| create_many(member, "churn", EACH, 100))).await;
    let (server, folder) = (PostgresServer::start(), tempfile::tempdir().unwrap());
    let (url, key) = (folder.path().join("url"), folder.path().join("key"));
    fs::write(&url, server.database("upgrade", None)).unwrap();
    let flags = ["--state-url-file", url.to_str().unwrap(), "--state-key-file", key_file(&key)];
    let file = FleetFile::default().member(members[0], 1).member(members[1], 1);
    let holder = Kubefold::launch_of(before("kubefold"), &file, &flags);
    holder.ready().await;
    let standby = Kubefold::launch_of(before("kubefold"), &file, &flags);
    standby.ready().await;
    let balancer = Relay::among(&[holder.addr(), standby.addr()]).await;
    let kubeconfig = holder.kubeconfig_through(&balancer);
    let mut informers = [true, false].map(|list| Informer::start(&kubeconfig, None, "configmaps", list));
    for informer in &informers {
        informer.synced(SOON).await;
    }

    let (written, until, fleet) =
        (Written::default(), CancellationToken::new(), Api::from_kubeconfig(&kubeconfig, None).await);
    let upgrade = async {
        written.goes_on().await;
        for replica in [&standby, &holder] {
            calm(&informers).await;
            let began = Instant::now();
            replaced(replica, program()).await;
            written.goes_on().await;
            figure(&format!("replaced after {:?}", began.elapsed()));
        }
        calm(&informers).await;
        until.cancel();
    };
    let (east, west, (), ()) =
        tokio::join!(churn(members[0], &until), churn(members[1], &until), written.write(&fleet, &until), upgrade);
    let deleted: BTreeSet<String> = east.into_iter().chain(west).collect();
    for informer in &mut informers {
        settled(informer, &members, &deleted).await;
    }
    written.are_stored(members).await;

    // And back: both formats of what was written are as they were. The mirror's is not, and is left alone.
    holder.kill9();
    standby.kill9();
    let older = Kubefold::launch_of(before("kubefold"), &file, &flags);
    older.ready().await;
    let api = older.api().await;
    eventually(SOON, async || exact(&api, &members).await).await;
    let until = CancellationToken::new();
    let again = async {
        written.goes_on().await;
        until.cancel();
    };
    tokio::join!(written.write(&api, &until), again);
    written.are_stored(members).await;
    assert!(older.log().contains("there is no mirror"), "{}", older.log());
}
