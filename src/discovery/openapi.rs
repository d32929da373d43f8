//! OpenAPI v3: one index over all members; each document behind it is one member's own, verbatim.
//!
//! kubectl reads it to explain kinds, and to learn before a create that the server validates fields itself.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value};

use crate::{
    member::{Class, Member, collect, impersonate, stores::Stores, view},
    wire::{
        body::{Body, empty, full},
        caller::Caller,
        status::Status,
        warning::Warnings,
    },
};

const ROOT: &str = "/openapi/v3";
/// Largest index that is read; that of a large cluster has 100 KiB.
const INDEX_BYTES_MAX: usize = 16 << 20;
/// A member that takes longer is left out, with a warning.
const INDEX_TIMEOUT: Duration = Duration::from_secs(5);

/// Says whether [`openapi`] answers this path.
pub fn is_openapi_path(path: &str) -> bool {
    path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request for a path of OpenAPI v3.
///
/// Errors: a document that nobody has (404); no member answers (503).
pub async fn openapi(stores: &Stores, caller: &Caller, request: Request<Body>) -> Result<Response<Body>, Status> {
    if *request.method() != Method::GET {
        return Err(Status::method_not_allowed("the server does not allow this method on the requested resource"));
    }
    let path = request.uri().path().to_owned();
    let document = path.strip_prefix(ROOT).unwrap_or_default().trim_matches('/');
    if document.is_empty() {
        return index(stores, caller).await;
    }
    let member = owner(stores, document).ok_or_else(Status::no_such_path)?;
    // Without the hash of the query: where it is another member's, the answer would be a redirect.
    Ok(view::pass_body(&member, caller, request, &path).await)
}

/// The first member in configuration order that answers and serves what `apis/apps/v1` names; for what is no group
/// and version, the first that answers.
fn owner(stores: &Stores, document: &str) -> Option<Arc<Member>> {
    let catalogue = stores.catalogue();
    let version = match *document.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => catalogue.version("", version),
        ["apis", group, version] => catalogue.version(group, version),
        _ => None,
    };
    let serves = |member: &Arc<Member>| {
        version.is_none_or(|version| version.resources.iter().any(|one| one.members.contains(member.name())))
    };
    stores.registry().members().iter().find(|member| answers(member) && serves(member)).cloned()
}

fn answers(member: &Arc<Member>) -> bool {
    !member.config().absent && !member.health().is_down()
}

/// Every document that any member has; of one that several have, the first one's.
async fn index(stores: &Stores, caller: &Caller) -> Result<Response<Body>, Status> {
    let members = stores.registry().members();
    let asked: Vec<&Arc<Member>> = members.iter().filter(|member| answers(member)).collect();
    let told = join_all(asked.iter().map(|member| tokio::time::timeout(INDEX_TIMEOUT, read(member, caller)))).await;
    let (mut paths, mut warnings) = (Map::new(), Warnings::default());
    for (member, told) in asked.iter().zip(told) {
        match told.unwrap_or_else(|_| Err(format!("no answer in {}s", INDEX_TIMEOUT.as_secs()))) {
            Ok(theirs) => theirs.into_iter().for_each(|(path, at)| {
                paths.entry(path).or_insert(at);
            }),
            Err(cause) => warnings.add(&format!("member {}: {cause}; its OpenAPI is left out", member.name())),
        }
    }
    if paths.is_empty() {
        return Err(Status::unavailable("no member has told its OpenAPI; see /readyz?verbose for the causes"));
    }
    let document = Value::Object(Map::from_iter([("paths".to_owned(), Value::Object(paths))]));
    let mut response = Response::new(full(document.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    warnings.write_to(response.headers_mut());
    Ok(response)
}

/// One member's index, as the caller may see it.
async fn read(member: &Member, caller: &Caller) -> Result<Map<String, Value>, String> {
    let request = Request::get(ROOT).header(header::ACCEPT, "application/json").body(empty());
    let mut request = request.map_err(|error| error.to_string())?;
    impersonate(request.headers_mut(), caller).map_err(|error| error.to_string())?;
    let response = member.send(request, Class::Read).await.map_err(|error| error.cause())?;
    if response.status() != StatusCode::OK {
        return Err(format!("it answered {}", response.status()));
    }
    let body = collect(response.into_body(), INDEX_BYTES_MAX).await.map_err(|error| error.cause())?;
    let index: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    match index {
        Value::Object(mut index) => match index.remove("paths") {
            Some(Value::Object(paths)) => Ok(paths),
            _ => Err("its index has no paths".to_owned()),
        },
        _ => Err("its index is no object".to_owned()),
    }
}
