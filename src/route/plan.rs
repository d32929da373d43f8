//! What a create would come to, at a path of kubefold's own: `kubefold plan` asks it.

use http::{Method, Response, request::Parts};

use crate::{
    member::catalog::Scope,
    read::{Asked, Target},
    route::{NOT_ALLOWED, Router, writes::request},
    view::Mode,
};
use kubefold_serving::{
    caller::Caller,
    request::{drain, read_json},
};
use kubefold_wire::{
    body::Body,
    locate::Paths,
    resource::split_api_version,
    status::{Reason, Status},
};

/// Where `kubefold plan` asks. The body is one object, as it would be posted.
pub const PLAN_PATH: &str = "/kubefold/v1/plan";

impl Router {
    /// Answers a `POST`; `?namespace=` is for an object that names none.
    ///
    /// Errors: as a create of the object.
    pub(super) async fn plan(
        &self,
        (mode, caller): (Mode, &Caller),
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        if parts.method != Method::POST {
            drain(body).await;
            return Err(Status::method_not_allowed(NOT_ALLOWED));
        }
        let body = read_json(&parts.headers, body).await?;
        let text = std::str::from_utf8(&body).map_err(|error| Status::bad_request(error.to_string()))?;
        let [api_version, kind, namespace] = words(text)?;
        let (group, version) = split_api_version(&api_version)
            .ok_or_else(|| Status::bad_request(format!("{api_version:?} is no apiVersion of an object")))?;
        let catalogue = self.stores.catalogue();
        let Some(resource) = catalogue.by_kind(group, version, &kind) else {
            // In kubectl's words.
            let message = format!("no matches for kind {kind:?} in version {api_version:?}");
            return Err(match catalogue.complete() {
                true => Status::new(http::StatusCode::NOT_FOUND, Reason::NotFound, message),
                false => Status::unavailable(format!("{message} yet: not every member has told what it serves")),
            });
        };
        if !resource.allows("create") {
            return Err(Status::method_not_allowed(format!("{} cannot be created", resource.gvr.qualified())));
        }
        let query = parts.uri.query().unwrap_or_default();
        let namespace = match resource.scope {
            Scope::Cluster => String::new(),
            Scope::Namespaced if !namespace.is_empty() => namespace,
            Scope::Namespaced => asked_namespace(query).unwrap_or_else(|| "default".to_owned()),
        };
        self.stores.ready(&resource.gvr, None).await?;
        let target = Target { gvr: resource.gvr.clone(), namespace, name: String::new() };
        let asked = Asked { caller, query: "", headers: &parts.headers, mode };
        let request = request(&target, &resource.gvk, (asked, &parts.method), body);
        Ok(self.writer.plan(&request).await.into_response())
    }
}

fn asked_namespace(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("namespace="))?;
    percent_encoding::percent_decode_str(value).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// `apiVersion`, `kind` and `metadata.namespace`.
fn words(json: &str) -> Result<[String; 3], Status> {
    let mut found = Vec::new();
    Paths::new([(0, ["apiVersion"].as_slice()), (1, &["kind"]), (2, &["metadata", "namespace"])])
        .locate(json, &mut found)
        .map_err(|error| Status::bad_request(format!("the body is no object: {error}")))?;
    let word = |id: u16| {
        let place = found.iter().find(|place| place.id == id)?;
        serde_json::from_str(json.get(place.range.clone())?).ok()
    };
    match (word(0), word(1)) {
        (Some(api_version), Some(kind)) => Ok([api_version, kind, word(2).unwrap_or_default()]),
        _ => Err(Status::bad_request("the body is no object: it has no apiVersion and kind")),
    }
}
