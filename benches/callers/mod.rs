//! A caller of whom every member has said what he may do: what benches share. The members are one server of this process.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubefold::{
    access::{Access, Grant, Who},
    config::{self, Config, Deadlines, MemberConfig, MemberName, Names, OwnRights, ServerAccess, Weight},
    member::{registry::Registry, review::Action},
    store::{Identities, LogLimits, Naming, Revisions, Shared},
    stores::Stores,
    view::Mode,
};
use kubefold_serving::caller::Caller;
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// A caller, and what all members allow him.
pub(crate) struct Known {
    access: Arc<Access>,
    caller: Caller,
    action: Action,
    /// Ends the members, and what asks them.
    _until: DropGuard,
}

impl Known {
    /// Waits until so many members have said.
    pub(crate) async fn by(count: usize) -> Self {
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tasks.clone();
        tasks.spawn(cancel.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.spawn(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // Whoever goes away has what he came for.
                    let _ended = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        }));
        let members: Vec<_> =
            (0..count).map(|at| member(&format!("m{at}"), &format!("http://{address}/m{at}"))).collect();
        let config = Config {
            members,
            names: Names::Suffixed,
            shared: Vec::new(),
            policies: Vec::new(),
            overrides: Vec::new(),
            unmatched: Default::default(),
            kinds: Vec::new(),
            subjects: Vec::new(),
            client_authorities: Vec::new(),
            aliases: Vec::new(),
            mirror: Default::default(),
            aggregation: None,
            own: OwnRights::default(),
        };
        let registry = Registry::new(tasks.clone(), cancel.clone());
        registry.apply(&config).unwrap();
        let shared = Shared {
            naming: Arc::new(Naming::new(&config)),
            identities: Arc::new(Identities::default()),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::default(),
        };
        let stores = Stores::new(Arc::new(registry), shared, tasks.clone(), cancel.clone());
        let access = Access::new(stores, tasks, cancel.clone());
        let groups = (0..10).map(|at| format!("group-{at}")).collect();
        let caller = Caller { user: "jane@example.com".to_owned(), groups, ..Caller::default() };
        let action = Action {
            verb: "list".to_owned(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            namespace: "shop".to_owned(),
            ..Action::default()
        };
        let known = Self { access, caller, action, _until: cancel.drop_guard() };
        while known.grant().await.check(Mode::Strict).is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        known
    }

    /// One look-up.
    pub(crate) async fn grant(&self) -> Grant {
        self.access.grant(Who { caller: &self.caller, through: None }, &self.action, None).await
    }
}

fn member(name: &str, server: &str) -> MemberConfig {
    let access = ServerAccess { server: server.to_owned(), token: Some("own".into()), ..ServerAccess::default() };
    MemberConfig {
        name: MemberName::new(name).unwrap(),
        access: config::Access::Server(Box::new(access)),
        weight: Weight(1),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        impersonator: None,
        renew_tokens: false,
        absent: false,
        rebuilt: false,
        deadlines: Deadlines::default(),
        in_flight_max: 200,
    }
}

/// Each member has a folder of its own, and a UID by it.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let whole = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body = match path.trim_start_matches('/').split_once('/') {
        Some((_, "readyz")) => "ok".to_owned(),
        Some((name, "api/v1/namespaces/kube-system")) => format!(r#"{{"metadata":{{"uid":"{name}"}}}}"#),
        // What was asked, and a yes to it.
        Some((_, path)) if path.ends_with("selfsubjectaccessreviews") => {
            let asked = std::str::from_utf8(&whole).unwrap().trim_end_matches('}');
            let ends = whole.len() - asked.len();
            format!("{asked}{},\"status\":{{\"allowed\":true}}}}", "}".repeat(ends - 1))
        }
        _ => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
    };
    Ok(Response::new(Full::new(body.into())))
}
