//! Heads of answers.

use http::{HeaderValue, Response, header};

use kubefold_wire::body::Body;

/// 200 with JSON, and the headers that a kube-apiserver puts on every answer.
pub(super) fn json_response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
