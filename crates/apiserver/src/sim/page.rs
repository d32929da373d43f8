//! What answers at a simulated pod's ports: a page that says where one is.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use serde_json::Value;

use super::{
    activity::Activity,
    fields::{items, text, time_text},
};
use crate::{
    registry::Env,
    streaming::{NotListening, Ports},
};

/// The ports of one pod.
pub(super) struct Page {
    pub(super) env: Env,
    pub(super) activity: Activity,
    pub(super) cluster: String,
    pub(super) pod: Value,
}

impl Ports for Page {
    fn connect(&self, port: u16) -> Result<(), NotListening> {
        match self.listens(port) {
            true => Ok(()),
            false => Err(NotListening(format!(
                "error forwarding port {port} to pod {}, uid : failed to connect to localhost:{port} inside the pod: \
                 connect: connection refused",
                text(&self.pod, "/metadata/name")
            ))),
        }
    }

    fn answer(&self, port: u16, request: &Parts) -> Response<Full<Bytes>> {
        let (method, path, now) = (&request.method, request.uri.path(), self.env.now());
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let code = if is_read { StatusCode::OK } else { StatusCode::METHOD_NOT_ALLOWED };
        let shown: String = path.chars().take(200).filter(|letter| !letter.is_control()).collect();
        let line = format!("{} INFO  {method} {shown} {} 1ms", time_text(now), code.as_u16());
        self.activity.note(text(&self.pod, "/metadata/uid"), now, line);
        let accept = request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_browser = accept.is_some_and(|accept| accept.contains("text/html"));
        let body = if is_browser { self.html(port) } else { self.text(port) };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = code;
        let kind = if is_browser { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

impl Page {
    /// A pod listens at the ports that its containers declare, or at all if they declare none.
    pub(super) fn listens(&self, port: u16) -> bool {
        let containers = items(&self.pod, "/spec/containers").iter();
        let mut declared = containers.flat_map(|container| items(container, "/ports")).peekable();
        let listens = declared.peek().is_none() || declared.any(|known| known["containerPort"] == port);
        listens && text(&self.pod, "/status/phase") == "Running"
    }

    fn title(&self) -> String {
        format!("pod {} of cluster {}", text(&self.pod, "/metadata/name"), self.cluster)
    }

    fn facts(&self, port: u16) -> [(&'static str, String); 5] {
        let of_pod = |at: &str| text(&self.pod, at).to_owned();
        [
            ("namespace", of_pod("/metadata/namespace")),
            ("node", of_pod("/spec/nodeName")),
            ("image", of_pod("/spec/containers/0/image")),
            ("port", port.to_string()),
            ("time", time_text(self.env.now())),
        ]
    }

    fn text(&self, port: u16) -> String {
        let facts = self.facts(port).map(|(name, value)| format!("{name}: {value}\n"));
        format!("{}\n{}", self.title(), facts.concat())
    }

    fn html(&self, port: u16) -> String {
        let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
        let facts = self.facts(port).map(|(name, value)| format!("<tr><th>{name}<td>{}", safe(&value)));
        let title = safe(&self.title());
        format!(
            "<!doctype html><title>{title}</title><style>body{{font:16px sans-serif;margin:3em}}th{{text-align:left;\
             padding-right:1em}}</style><h1>{title}</h1><table>{}</table>\n<p>A simulated pod of kubefold demo.\n",
            facts.concat()
        )
    }
}
