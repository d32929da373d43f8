//! The endpoint that is driven: its clients, and how requests are sent to it.

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::{Client, Config, client::Body};
use serde::Deserialize;

use crate::{
    cli::{bench::record::Failure, client::cause},
    status::{FleetStatus, STATUS_PATH},
};

/// A page or an object that is read whole may not be larger.
const READ_BYTES_MAX: usize = 256 << 20;

/// An endpoint with clients.
pub(super) struct Target {
    url: String,
    version: String,
    /// The members, where it is a kubefold that tells them.
    members: Vec<String>,
    /// At least one; each has connections of its own.
    clients: Vec<Client>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

impl Target {
    /// Connects, and asks the endpoint what it is.
    ///
    /// Errors: it is not reached, or answers no Kubernetes version; each says why in one sentence.
    pub(super) async fn open(mut config: Config, clients: u16) -> anyhow::Result<Self> {
        // Each failure is one: a retry would hide it, and its time.
        config.default_retry = false;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = || Client::try_from(config.clone()).with_context(|| format!("cannot connect to {url}"));
        let clients = (0..clients.max(1)).map(|_| client()).collect::<Result<_, _>>()?;
        let mut target = Self { url, version: String::new(), members: Vec::new(), clients };
        let (_, version) = target.must("read the version", Method::GET, "/version", Bytes::new()).await?;
        let no_version =
            || format!("{} answers /version, but not as Kubernetes does: is it an API server?", target.url);
        target.version = serde_json::from_slice::<Version>(&version).with_context(no_version)?.git_version;
        if let Ok(answer) = target.read(0, get(STATUS_PATH)).await
            && let Ok(status) = serde_json::from_slice::<FleetStatus>(&answer)
        {
            target.members = status.members.into_iter().map(|member| member.name).collect();
        }
        Ok(target)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn members(&self) -> &[String] {
        &self.members
    }

    /// Sends a request by the client of this number, and gives the answer when its head is there. Clients come in turn.
    pub(super) async fn send(&self, number: u64, request: Request<Bytes>) -> Result<Response<Body>, Failure> {
        let clients = self.clients.len() as u64;
        let client = usize::try_from(number % clients).ok().and_then(|index| self.clients.get(index));
        let client = client.ok_or(Failure::Connection)?;
        let answer = client.send(request.map(Body::from)).await.map_err(|error| {
            tracing::debug!(error = cause(&error), "a request failed");
            Failure::Connection
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        // Read to its end, so that the connection can be used again.
        let _refused = drain(answer.into_body()).await;
        Err(Failure::Status(status))
    }

    /// Sends a request, and reads the answer to its end. Gives the number of its bytes.
    pub(super) async fn pass(&self, number: u64, request: Request<Bytes>) -> Result<u64, Failure> {
        drain(self.send(number, request).await?.into_body()).await
    }

    /// Sends a request, and keeps the answer's body.
    pub(super) async fn read(&self, number: u64, request: Request<Bytes>) -> Result<Bytes, Failure> {
        collect(self.send(number, request).await?.into_body()).await
    }

    /// Sends a request that the run cannot go on without. 404 and 409 are answers; `doing` says what it is for.
    ///
    /// Errors: it is not answered, or refused in another way; each says why in one sentence.
    pub(super) async fn must(
        &self,
        doing: &str,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let url = &self.url;
        let request =
            Request::builder().method(method).uri(path).header("content-type", "application/json").body(body)?;
        let Some(client) = self.clients.first() else { bail!("there is no client") };
        let answer = match client.send(request.map(Body::from)).await {
            Ok(answer) => answer,
            Err(error) => bail!(
                "cannot {doing} at {url}: {}; does an API server run there, and is the kubeconfig its own?",
                cause(&error)
            ),
        };
        let status = answer.status();
        let body = collect(answer.into_body()).await.map_err(|failure| {
            anyhow::anyhow!(
                "cannot {doing} at {url}: the answer is {failure}; the server or a proxy before it cut it off"
            )
        })?;
        if status.is_success() || matches!(status, StatusCode::NOT_FOUND | StatusCode::CONFLICT) {
            return Ok((status, body));
        }
        let said = said(&body);
        let to_do = match status {
            StatusCode::UNAUTHORIZED => "; the server does not know this login: use another kubeconfig or context",
            StatusCode::FORBIDDEN => "; give this login the rights of docs/benchmarking.md, or use another context",
            _ => "",
        };
        bail!("cannot {doing} at {url}: {} {said}{to_do}", status.as_u16())
    }
}

/// A GET of a path.
pub(super) fn get(path: &str) -> Request<Bytes> {
    asked(Method::GET, path, "application/json", Bytes::new())
}

/// A request. `accept` is what the answer is to be.
pub(super) fn asked(method: Method, path: &str, accept: &str, body: Bytes) -> Request<Bytes> {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap_or_default();
    for (name, value) in [(http::header::ACCEPT, accept), (http::header::CONTENT_TYPE, content)] {
        if let Ok(value) = value.parse() {
            request.headers_mut().insert(name, value);
        }
    }
    request
}

/// What a `Status` says; at most a line of anything else.
fn said(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    match serde_json::from_slice::<Said>(body) {
        Ok(said) => said.message,
        Err(_) => String::from_utf8_lossy(body).lines().next().unwrap_or_default().chars().take(200).collect(),
    }
}

async fn drain(mut body: Body) -> Result<u64, Failure> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Incomplete)?;
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
    }
    Ok(bytes)
}

async fn collect(mut body: Body) -> Result<Bytes, Failure> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Incomplete)?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
        if bytes.len() > READ_BYTES_MAX {
            return Err(Failure::Unreadable);
        }
    }
    Ok(bytes.freeze())
}
