//! `proxy` of a pod and of a service: a request that goes on to a port of a pod.
//!
//! Source: kubernetes `pkg/registry/core/pod/strategy.go`, `pkg/registry/core/service/storage/storage.go` (`ResourceLocation`);
//! apimachinery `pkg/util/net/port_split.go`, `pkg/util/proxy/upgradeaware.go`.

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header, request::Parts};
use serde_json::Value;

use crate::serve::{ApiServer, answer::no_kubelet, context::Target};
use kubefold_wire::{
    access::text,
    body::{Body, empty},
    golang::Quoted,
    status::{Reason, Status},
};

/// `name`, `name:port` or `scheme:name:port`, as clients name what they want to reach.
struct Identifier<'a> {
    scheme: &'a str,
    name: &'a str,
    /// A number, the name of a service's port, or empty.
    port: &'a str,
}

impl<'a> Identifier<'a> {
    fn of(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        let is_valid = !name.is_empty() && matches!(scheme, "" | "http" | "https");
        is_valid.then_some(Self { scheme, name, port })
    }
}

impl ApiServer {
    /// Hands a request to a port of a pod.
    ///
    /// Errors: 400, 404 and 503, as a kube-apiserver says them; 501 where nothing runs in pods.
    pub(super) async fn proxy(&self, target: &Target, parts: &Parts, body: Body) -> Result<Response<Body>, Status> {
        let is_pod = match target.kind.plural.as_str() {
            "pods" => true,
            "services" => false,
            _ => return Err(no_kubelet(&target.subresource)),
        };
        let Some(id) = Identifier::of(&target.name) else {
            let what = if is_pod { "pod" } else { "service" };
            return Err(Status::bad_request(format!("invalid {what} request {}", Quoted(&target.name))));
        };
        let (pod, port) = match is_pod {
            true => pod_port(target, &id).await?,
            false => self.service_port(target, &id).await?,
        };
        // `/api/v1/namespaces/NAMESPACE/pods/NAME/proxy`, and the path that the pod sees.
        let tail = parts.uri.path().splitn(9, '/').nth(8);
        let Some(tail) = tail else {
            if matches!(parts.method, Method::GET | Method::HEAD) {
                return moved(parts);
            }
            return self.reached(&pod, port, id.scheme, "", parts, body).await;
        };
        self.reached(&pod, port, id.scheme, tail, parts, body).await
    }

    async fn reached(
        &self,
        pod: &Value,
        port: u16,
        scheme: &str,
        tail: &str,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        if scheme == "https" {
            // Nothing in a pod of ours speaks TLS.
            return Err(unreachable("http: server gave HTTP response to HTTPS client"));
        }
        let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let uri = format!("/{tail}{query}").parse::<Uri>();
        let uri = uri.map_err(|error| Status::bad_request(error.to_string()))?;
        let mut request = Request::from_parts(parts.clone(), body);
        *request.uri_mut() = uri;
        self.inner.settings.pods.request(pod, port, request).await
    }

    /// A pod behind a service, by chance, and its port.
    async fn service_port(&self, target: &Target, id: &Identifier<'_>) -> Result<(Value, u16), Status> {
        let mut wanted = id.port.to_owned();
        if let Ok(number) = id.port.parse::<i64>() {
            let service = target.registry.get(&target.kind, &target.namespace, id.name).await?.value();
            let port = array(&service, "/spec/ports").iter().find(|port| port["port"].as_i64() == Some(number));
            let port = port.ok_or_else(|| {
                unavailable(format!("no service port {number} found for service {}", Quoted(id.name)))
            })?;
            text(port, "/name").clone_into(&mut wanted);
        }
        let registry = &self.inner.registry;
        let kind = |name: &str| registry.kind("", name).ok_or_else(Status::no_such_path);
        let endpoints = registry.get(&*kind("Endpoints")?, &target.namespace, id.name).await;
        let endpoints = endpoints.map_err(|status| match status.reason {
            Reason::NotFound => Status::not_found("", "services", id.name),
            _ => status,
        });
        let endpoints = endpoints?.value();
        let mut found = Vec::new();
        for subset in array(&endpoints, "/subsets") {
            let named = array(subset, "/ports").iter().find(|port| text(port, "/name") == wanted);
            let port = named.and_then(|port| port["port"].as_u64()).and_then(|port| u16::try_from(port).ok());
            found
                .extend(port.into_iter().flat_map(|port| array(subset, "/addresses").iter().map(move |at| (at, port))));
        }
        let chance = usize::try_from(registry.env().random()).unwrap_or_default();
        let Some((address, port)) = chance.checked_rem(found.len()).and_then(|at| found.get(at)) else {
            let asked = if array(&endpoints, "/subsets").is_empty() { id.name } else { &target.name };
            return Err(unavailable(format!("no endpoints available for service {}", Quoted(asked))));
        };
        let refused = |_| refused(text(address, "/ip"), *port);
        let name = text(address, "/targetRef/name");
        let pod = registry.get(&*kind("Pod")?, &target.namespace, name).await.map_err(refused)?;
        Ok((pod.value(), *port))
    }
}

/// The pod that is asked for, and its port: the first that it declares, unless one is named.
async fn pod_port(target: &Target, id: &Identifier<'_>) -> Result<(Value, u16), Status> {
    let pod = target.registry.get(&target.kind, &target.namespace, id.name).await?.value();
    if text(&pod, "/status/podIP").is_empty() {
        return Err(Status::bad_request("address not allowed"));
    }
    let port = match id.port {
        "" => {
            let containers = array(&pod, "/spec/containers").iter();
            let first = containers.filter_map(|container| container.pointer("/ports/0/containerPort")?.as_u64()).next();
            u16::try_from(first.unwrap_or(80)).unwrap_or_default()
        }
        named => named.parse().map_err(|_| unreachable(&format!("dial tcp: lookup tcp/{named}: unknown port")))?,
    };
    Ok((pod, port))
}

/// The same path with a `/` behind it, below which a page's own links lead.
fn moved(parts: &Parts) -> Result<Response<Body>, Status> {
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let to = HeaderValue::from_str(&format!("{}/{query}", parts.uri.path()));
    let to = to.map_err(|error| Status::bad_request(error.to_string()))?;
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, to);
    Ok(response)
}

fn array<'v>(value: &'v Value, at: &str) -> &'v [Value] {
    value.pointer(at).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn unavailable(message: String) -> Status {
    Status::unavailable(message)
}

/// What a proxy says of a pod that it cannot speak with.
fn unreachable(why: &str) -> Status {
    unavailable(format!("error trying to reach service: {why}"))
}

/// What a proxy says where nothing listens.
pub(crate) fn refused(ip: &str, port: u16) -> Status {
    unreachable(&format!("dial tcp {ip}:{port}: connect: connection refused"))
}
