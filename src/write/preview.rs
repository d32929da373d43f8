//! What a create would come to, at a path of kubefold's own: `kubefold plan` asks it.

use http::{Method, Response};

use crate::{
    answer::RequestContext,
    catalog::Scope,
    respond::WriteError,
    stores::Target,
    write::{Writer, live::LiveFleet, request::Request},
};
use kubefold_serving::request::read_json;
use kubefold_wire::{body::Body, locate::Paths, resource::split_api_version, status::Status};

/// Where `kubefold plan` asks. The body is one object, as it would be posted.
pub const PLAN_PATH: &str = "/kubefold/v1/plan";

impl Writer<LiveFleet> {
    /// Answers a `POST` to [`PLAN_PATH`]; `?namespace=` is for an object that names none.
    ///
    /// Errors: as a create of the object.
    pub async fn preview(&self, asked: RequestContext<'_>, body: Body) -> Result<Response<Body>, Status> {
        let body = read_json(asked.headers, body).await?;
        let text = std::str::from_utf8(&body).map_err(WriteError::from)?;
        let [api_version, kind, namespace] = words(text)?;
        let (group, version) =
            split_api_version(&api_version).ok_or_else(|| WriteError::ApiVersion(api_version.clone()))?;
        let catalog = self.fleet.stores.catalog();
        let Some(resource) = catalog.by_kind(group, version, &kind) else {
            let error = match catalog.complete() {
                true => WriteError::NoMatch { kind, api_version },
                false => WriteError::NoMatchYet { kind, api_version },
            };
            return Err(error.into());
        };
        if !resource.allows("create") {
            return Err(WriteError::NotCreatable(resource.gvr.clone()).into());
        }
        let namespace = match resource.scope {
            Scope::Cluster => String::new(),
            Scope::Namespaced if !namespace.is_empty() => namespace,
            Scope::Namespaced => asked_namespace(asked.query).unwrap_or_else(|| "default".to_owned()),
        };
        self.fleet.stores.ready(&resource.gvr, None).await?;
        let target = Target { gvr: resource.gvr.clone(), namespace, name: String::new() };
        let asked = RequestContext { query: "", ..asked };
        let request = Request::of(asked, &Method::POST, &target, &resource.gvk, body);
        Ok(self.plan(&request).await.into_response())
    }
}

fn asked_namespace(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("namespace="))?;
    percent_encoding::percent_decode_str(value).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// `apiVersion`, `kind` and `metadata.namespace`.
fn words(json: &str) -> Result<[String; 3], WriteError> {
    let mut found = Vec::new();
    Paths::new([(0, ["apiVersion"].as_slice()), (1, &["kind"]), (2, &["metadata", "namespace"])])
        .locate(json, &mut found)
        .map_err(|error| WriteError::Body { what: "object", cause: error.to_string() })?;
    let word = |id: u16| {
        let place = found.iter().find(|place| place.id == id)?;
        serde_json::from_str(json.get(place.range.clone())?).ok()
    };
    match (word(0), word(1)) {
        (Some(api_version), Some(kind)) => Ok([api_version, kind, word(2).unwrap_or_default()]),
        _ => Err(WriteError::NoKind),
    }
}
