//! One stream, passed to the member that has the object.

use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};

use crate::{
    member::{Member, view},
    stream::{identifier::Identifier, refusal::in_visible_names},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{body::Body, info::proxied, path::ApiPath, resource::Gvr};

/// The subresources of the core group that are streams.
const SUBRESOURCES: [(&str, &[&str]); 3] =
    [("pods", &["attach", "exec", "log", "portforward", "proxy"]), ("services", &["proxy"]), ("nodes", &["proxy"])];

/// Says whether a subresource is a stream.
pub fn is_stream(gvr: &Gvr, subresource: &str) -> bool {
    let streams = SUBRESOURCES.iter().find(|(resource, _)| *resource == &*gvr.resource);
    gvr.group.is_empty() && streams.is_some_and(|(_, subresources)| subresources.contains(&subresource))
}

/// What is streamed, and for whom its name is which.
#[derive(Clone, Debug)]
pub(super) struct Stream<'a> {
    /// Of what.
    pub gvr: &'a Gvr,
    /// Empty for what is in none.
    pub namespace: &'a str,
    /// The name as it was asked for.
    pub visible: &'a Identifier,
    /// The name in the member.
    pub own: &'a str,
    /// `log`, `exec`, ...
    pub subresource: &'a str,
    /// Segments of the path behind the subresource, but for `proxy`, whose path is the application's.
    pub below: &'a [String],
}

/// Passes a request to the member that has the object, as `caller`. Its URI is the client's.
///
/// Cancel: safe; the request to the member is reset. An answer 101 has what is to be done with the connection.
pub(super) async fn pass(
    member: &Member,
    caller: &Caller,
    request: Request<Body>,
    stream: &Stream<'_>,
) -> Response<Body> {
    let mut request = request;
    let proxied = proxied(request.uri().path()).map(|(_, tail)| tail.to_owned());
    let is_proxy = proxied.is_some();
    let path = stream.path(proxied.as_deref(), request.uri());
    if !is_proxy {
        read_refusals(request.headers_mut());
    }
    let response = Box::pin(view::pass_body(member, caller, request, &path)).await;
    in_visible_names(response, stream.own, &stream.visible.name, is_proxy).await
}

impl Stream<'_> {
    /// `tail` is the path of a proxied application, which stays as it is.
    fn path(&self, tail: Option<&str>, asked: &Uri) -> String {
        let own = self.visible.with_name(self.own);
        let path = ApiPath::within(self.gvr, self.namespace).then(&own).then(self.subresource);
        let below = if tail.is_some() { &[] } else { self.below };
        let path = below.iter().fold(path, |path, segment| path.then(segment));
        let query = asked.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{path}{}{query}", tail.unwrap_or_default())
    }
}

/// What a member refuses is read, for the names in it: it must not come as protobuf. The stream itself has no media type
/// of Kubernetes'.
fn read_refusals(headers: &mut HeaderMap) {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("protobuf") || accepts.contains("cbor") || accepts.contains("yaml") {
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*"));
    }
    // A compressed stream would come in gulps, and a compressed refusal could not be read.
    headers.remove(header::ACCEPT_ENCODING);
}
