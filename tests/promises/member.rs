//! An embedded member: its storage, its server with what can go wrong with it, what it was asked, and what it went through.

use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture};
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kubefold_apiserver::{
    Service,
    endpoint::Endpoint,
    faults::Faults,
    kinds::Kind as ServedKind,
    registry::{Env, Event, From, Object, Registry, Selection},
    serve::{ApiServer, Settings, bootstrap, built_in},
    sim::TokioClock,
    storage::{Backup, Memory},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::body::{Body, full};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    chance::Clock,
    history::{Change, Changed, Heard, Seen},
    kinds::{KINDS, Kind},
};

/// What kubefold logs in with: whoever comes with it and names nobody else is kubefold itself.
pub(crate) const TOKEN: &str = "kubefold-own";

/// A running member.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) endpoint: Endpoint,
    registry: Registry,
    memory: Memory,
    server: ApiServer,
    record: Arc<Record>,
}

/// What is known about a member's past.
pub(crate) struct Record {
    clock: Clock,
    changes: Mutex<Vec<Change>>,
    heard: Mutex<Vec<Heard>>,
}

impl Member {
    /// Starts one. Its clock is tokio's.
    pub(crate) async fn start(
        name: &'static str,
        seed: u64,
        clock: Clock,
        (tasks, stop): (&TaskTracker, &CancellationToken),
    ) -> Self {
        let memory = Memory::default();
        let time = Arc::new(TokioClock::starting(Timestamp::now()));
        let registry = built_in(Arc::new(memory.clone()), Env::seeded(seed, time));
        bootstrap(&registry).await.unwrap_or_else(|status| panic!("{name}: {}", status.message));
        let settings = Settings { drain: stop.clone(), ..Settings::new("v1.36.3") };
        let server = ApiServer::new(registry.clone(), settings);
        let record = Arc::new(Record { clock, changes: Mutex::default(), heard: Mutex::default() });
        for kind in KINDS {
            tasks.spawn(stop.clone().run_until_cancelled_owned(follow(kind, registry.clone(), Arc::clone(&record))));
        }
        let service = Arc::new(Recorded { server: server.clone(), record: Arc::clone(&record) });
        // Of its own: while it is killed, no other socket takes its port.
        let local = ([127, 0, 0, 2], 0).into();
        let endpoint = Endpoint::start(local, TOKEN.into(), service, Faults::default()).await.expect("a free port");
        Self { name, endpoint, registry, memory, server, record }
    }

    /// Asks it as a program of its own cluster does: past the listener, and past all faults. Gives the code and the answer.
    pub(crate) async fn ask(&self, method: Method, path: &str, content: &str, body: String) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content);
        let mut request = request.body(full(body)).expect("a request");
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        request.extensions_mut().insert(Caller { user: "native".into(), groups, ..Caller::default() });
        let (parts, body) = self.server.answer(request).await.into_parts();
        let bytes = body.collect().await.expect("a whole answer").to_bytes();
        (parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Its objects of a kind, in a namespace.
    pub(crate) async fn objects(&self, kind: &Kind, namespace: &str) -> Vec<Seen> {
        let served = served(&self.registry, kind);
        let list = self.registry.list(&served, namespace, &Default::default()).await.expect("a list");
        list.objects.iter().map(seen).collect()
    }

    /// A copy of all that it holds.
    pub(crate) fn backup(&self) -> Backup {
        self.memory.backup()
    }

    /// Goes back to what it held. Only while it is killed: as nobody restores an etcd under a running server.
    pub(crate) fn restore(&self, backup: &Backup) {
        assert!(!self.endpoint.is_alive(), "{} runs", self.name);
        self.memory.restore(backup);
    }

    /// What happened in it since this was last asked.
    pub(crate) fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.record.changes.lock())
    }

    /// What it was asked since this was last asked.
    pub(crate) fn take_heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.record.heard.lock())
    }
}

fn served(registry: &Registry, kind: &Kind) -> Arc<ServedKind> {
    registry.resource(kind.group, kind.version, kind.plural).expect("a built-in kind")
}

fn seen(object: &Object) -> Seen {
    Seen::of(&String::from_utf8(object.json()).expect("JSON"))
}

/// Writes down what happens to the objects of one kind.
async fn follow(kind: &'static Kind, registry: Registry, record: Arc<Record>) {
    let served = served(&registry, kind);
    loop {
        let mut events =
            registry.watch(&served, "", Selection::default(), From::Start).await.expect("a watch of what is there");
        record.push(kind, Changed::Afresh);
        while let Some(Ok(event)) = events.next().await {
            match event {
                Event::Added(object) => record.push(kind, Changed::Added(seen(&object))),
                Event::Modified(object) => record.push(kind, Changed::Modified(seen(&object))),
                Event::Deleted(object) => record.push(kind, Changed::Deleted(seen(&object))),
                Event::Synced(_) => record.push(kind, Changed::Synced),
                Event::Progress(_) => {}
            }
        }
    }
}

impl Record {
    fn push(&self, kind: &'static Kind, changed: Changed) {
        self.changes.lock().push(Change { at: self.clock.now(), kind, changed });
    }
}

/// Notes each request before it is answered.
struct Recorded {
    server: ApiServer,
    record: Arc<Record>,
}

impl Service for Recorded {
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Response<Body>> {
        Box::pin(async move {
            let heard = Heard {
                at: self.record.clock.now(),
                method: request.method().clone(),
                path: percent_encoding::percent_decode_str(request.uri().path()).decode_utf8_lossy().into_owned(),
                caller: request.extensions().get::<Caller>().cloned(),
            };
            self.record.heard.lock().push(heard);
            self.server.answer(request).await
        })
    }
}
