//! What clients reach in simulated pods: logs, commands, and ports.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture, stream};
use http::{Request, Response, StatusCode, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    activity::Activity,
    fields::text,
    logs::{LogOptions, container, status},
    page::Page,
    shell::{Container, Disks, Shell},
};
use crate::{
    registry::{Env, Registry},
    serve::{Pods, refused},
    streaming::{Ports, Program, StreamOptions, Written, forwarded, remote},
};
use kubefold_serving::request::drain;
use kubefold_wire::{
    body::{Body, BodyError, full},
    options::query_values,
    status::{Reason, Status},
};

/// How often a follower of a log looks for more.
const LOOK: Duration = Duration::from_secs(1);

/// What runs in the pods of a simulated cluster.
#[derive(Clone)]
pub struct Containers {
    registry: Registry,
    cluster: String,
    pub(super) activity: Activity,
    disks: Disks,
}

impl Containers {
    /// Those of the pods of a registry, in a cluster of this name.
    pub fn new(registry: Registry, cluster: &str) -> Self {
        Self { registry, cluster: cluster.to_owned(), activity: Activity::default(), disks: Disks::default() }
    }

    fn env(&self) -> &Env {
        self.registry.env()
    }

    /// A pod as it is now. `None`: it is gone, or another one has its name.
    async fn now(&self, pod: &Value) -> Option<Value> {
        let kind = self.registry.kind("", "Pod")?;
        let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        let now = self.registry.get(&kind, namespace, name).await.ok()?.value();
        (text(&now, "/metadata/uid") == text(pod, "/metadata/uid")).then_some(now)
    }

    fn page(&self, pod: &Value) -> Page {
        let (env, activity) = (self.env().clone(), self.activity.clone());
        Page { env, activity, cluster: self.cluster.clone(), pod: pod.clone() }
    }

    fn exec(&self, pod: &Value, request: &Parts) -> Result<Response<Body>, Status> {
        let query = request.uri.query().unwrap_or_default();
        let container = running(pod, query)?;
        let words = query_values(query, "command");
        if words.is_empty() {
            return Err(Status::bad_request("you must specify at least one command for the container"));
        }
        let wanted = StreamOptions::of(query)?;
        // A container that starts again has the files of its image.
        let name = text(container, "/name");
        let life = status(pod, name)["restartCount"].as_i64().unwrap_or_default();
        let disk = self.disks.of(format!("{}/{name}/{life}", text(pod, "/metadata/uid")));
        let container = Container::new(pod, container, &self.cluster, disk);
        remote(&request.headers, wanted, Shell::new(container, self.env().clone(), &words, wanted))
    }

    fn attach(&self, pod: &Value, request: &Parts) -> Result<Response<Body>, Status> {
        let query = request.uri.query().unwrap_or_default();
        running(pod, query)?;
        let asked = LogOptions::of(pod, query, self.env().now())?;
        let attached = Attached { of: self.clone(), pod: pod.clone(), asked, told: self.env().now() };
        remote(&request.headers, StreamOptions::of(query)?, attached)
    }
}

impl Pods for Containers {
    fn log<'a>(&'a self, pod: &'a Value, query: &'a str) -> BoxFuture<'a, Result<Body, Status>> {
        let begun = || {
            let now = self.env().now();
            let asked = LogOptions::of(pod, query, now)?;
            let lines = asked.lines(pod, &self.activity, now)?;
            if !asked.follow {
                return Ok(full(Bytes::from(lines)));
            }
            let follower = Follower { of: self.clone(), pod: pod.clone(), asked, told: now, ended: false };
            let first = stream::iter([Ok::<_, BodyError>(Frame::data(Bytes::from(lines)))]);
            let rest = stream::unfold(follower, async |mut follower| {
                let lines = follower.next().await?;
                Some((Ok(Frame::data(Bytes::from(lines))), follower))
            });
            Ok(StreamBody::new(Box::pin(futures::StreamExt::chain(first, rest))).boxed_unsync())
        };
        let begun = begun();
        Box::pin(async move { begun })
    }

    fn stream<'a>(
        &'a self,
        pod: &'a Value,
        subresource: &'a str,
        request: &'a Parts,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        let answer = match subresource {
            "exec" => self.exec(pod, request),
            "attach" => self.attach(pod, request),
            _ => forwarded(&request.headers, Arc::new(self.page(pod))),
        };
        Box::pin(async move { answer })
    }

    fn request<'a>(
        &'a self,
        pod: &'a Value,
        port: u16,
        request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            drain(body).await;
            let page = self.page(pod);
            match page.listens(port) {
                true => Ok(page.answer(port, &parts).map(|page| full(page.into_inner().unwrap_or_default()))),
                false => Err(refused(text(pod, "/status/podIP"), port)),
            }
        })
    }
}

/// The container that is asked for, which runs.
///
/// Errors: 400 about the container, 404 if it does not run, as a kubelet says it.
fn running<'p>(pod: &'p Value, query: &str) -> Result<&'p Value, Status> {
    let container = container(pod, query)?;
    let name = text(container, "/name");
    if text(pod, "/spec/nodeName").is_empty() {
        let message = format!("pod {} does not have a host assigned", text(pod, "/metadata/name"));
        return Err(Status::bad_request(message));
    }
    match status(pod, name)["state"]["running"].is_object() {
        true => Ok(container),
        false => {
            let message = format!("container not found (\"{name}\")");
            Err(Status::new(StatusCode::NOT_FOUND, Reason::NotFound, message))
        }
    }
}

/// Somebody who follows a log.
struct Follower {
    of: Containers,
    pod: Value,
    asked: LogOptions,
    /// All lines up to here were told.
    told: Timestamp,
    ended: bool,
}

impl Follower {
    /// The next lines; `None` once the container has ended.
    async fn next(&mut self) -> Option<String> {
        while !self.ended {
            let news = self.of.activity.news();
            let restarts = |pod: &Value| status(pod, &self.asked.container)["restartCount"].as_i64();
            let now = self.of.env().now();
            let lines = match self.of.now(&self.pod).await {
                Some(pod) if restarts(&pod) == restarts(&self.pod) => {
                    let next = self.asked.next(&pod, &self.of.activity, self.told, now);
                    self.ended = next.is_none();
                    next.unwrap_or_else(|| self.asked.last(&pod, self.told, now))
                }
                _ => {
                    self.ended = true;
                    String::new()
                }
            };
            self.told = now;
            if !lines.is_empty() {
                return Some(lines);
            }
            let _whichever = tokio::time::timeout(LOOK, news).await;
        }
        None
    }
}

/// A client that sees what a container writes, and whose input nobody reads.
struct Attached {
    of: Containers,
    pod: Value,
    asked: LogOptions,
    told: Timestamp,
}

impl Program for Attached {
    fn start(&mut self, _: &mut Written) {}

    fn input(&mut self, _: &[u8], _: &mut Written) {}

    fn end_of_input(&mut self, _: &mut Written) {}

    fn sleeps(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn woken(&mut self, out: &mut Written) {
        let now = self.of.env().now();
        // A storage in memory, as a simulated cluster has it, answers at once.
        let Some(pod) = self.of.now(&self.pod).now_or_never() else { return };
        match pod.and_then(|pod| self.asked.next(&pod, &self.of.activity, self.told, now)) {
            Some(lines) => out.stdout.extend_from_slice(lines.as_bytes()),
            None => out.exit = Some(0),
        }
        self.told = now;
    }
}
