//! `/livez`, `/readyz`, `/healthz`: in Kubernetes' words, with the cause where a check fails.
//!
//! Source: kubernetes/apiserver `pkg/server/healthz/healthz.go`. It withholds the reason of a failure; this says it
//! to those who logged in, since it is what they came for.

use std::collections::BTreeSet;

use http::{HeaderValue, Response, StatusCode, header};

use kubefold_wire::{
    body::{Body, full},
    golang::Quoted,
};

/// One thing that readiness depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name in `?verbose`, `?exclude=` and `/readyz/<name>`.
    pub name: String,
    /// Whether it stands in the way of being ready.
    pub ready: bool,
    /// Cause and age, such as `down for 12s: connection refused`; empty where all is well.
    pub note: String,
    /// It never fails, so `/livez` has it, too.
    pub informs: bool,
}

impl Check {
    /// One that says whether something is ready.
    pub fn of(name: &str, ready: bool, note: String) -> Self {
        Self { name: name.to_owned(), ready, note, informs: false }
    }

    /// One that informs, and never fails.
    pub fn information(name: String, note: String) -> Self {
        Self { name, ready: true, note, informs: true }
    }
}

/// What readiness depends on; `app` knows.
pub trait Readiness: Send + Sync + 'static {
    /// Every check as of now, in the order to show.
    fn checks(&self) -> Vec<Check>;
}

impl<F: Fn() -> Vec<Check> + Send + Sync + 'static> Readiness for F {
    fn checks(&self) -> Vec<Check> {
        self()
    }
}

/// Which of the health paths a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthPath<'a> {
    /// `livez`, `readyz` or `healthz`.
    pub group: &'a str,
    /// The one check asked for, if one is.
    pub check: Option<&'a str>,
}

impl<'a> HealthPath<'a> {
    /// Reads a path; `None` where it is none of these.
    pub fn of(path: &'a str) -> Option<Self> {
        let inner = path.strip_prefix('/')?;
        let (group, check) = inner.split_once('/').map_or((inner, None), |(group, check)| (group, Some(check)));
        matches!(group, "livez" | "readyz" | "healthz").then_some(Self { group, check })
    }

    /// Probes come without a certificate; they see `ok` or not, and no names.
    pub fn open_to_anonymous(&self, query: Option<&str>) -> bool {
        self.check.is_none() && query.unwrap_or_default().is_empty()
    }
}

/// The checks that a query does not exclude.
pub fn included<'a>(query: Option<&str>, checks: &'a [Check]) -> impl Iterator<Item = &'a Check> {
    let excluded = parameters(query.unwrap_or_default()).0;
    checks.iter().filter(move |check| !excluded.contains(&check.name))
}

/// Answers a health path.
///
/// `known` is false for an anonymous caller, who is told no names.
pub fn answer(path: HealthPath<'_>, query: Option<&str>, checks: &[Check], known: bool) -> Response<Body> {
    let HealthPath { group, check } = path;
    if let Some(name) = check {
        return match checks.iter().find(|check| check.name == name) {
            Some(check) if check.ready => {
                let mut response = text(StatusCode::OK, "ok".to_owned());
                response.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
                response
            }
            Some(check) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{name} failed: {}\n", check.note)),
            None => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        };
    }
    let (excluded, verbose) = parameters(query.unwrap_or_default());
    let is_excluded = |check: &Check| excluded.contains(&check.name);
    let passed = checks.iter().all(|check| check.ready || is_excluded(check));
    let code = if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    if passed && !verbose {
        return text(code, "ok".to_owned());
    }
    if !known {
        return text(code, format!("{group} check failed\n"));
    }
    let mut shown = String::new();
    for check in checks {
        let note = if check.note.is_empty() { String::new() } else { format!(": {}", check.note) };
        match (is_excluded(check), check.ready) {
            (true, _) => shown.push_str(&format!("[+]{} excluded: ok\n", check.name)),
            (false, true) => shown.push_str(&format!("[+]{} ok{note}\n", check.name)),
            (false, false) => shown.push_str(&format!("[-]{} failed{note}\n", check.name)),
        }
    }
    let unknown = excluded.iter().filter(|name| !checks.iter().any(|check| check.name == **name));
    let unknown: Vec<String> = unknown.map(|name| Quoted(name).to_string()).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        shown.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"));
    }
    shown.push_str(&format!("{group} check {}\n", if passed { "passed" } else { "failed" }));
    text(code, shown)
}

/// What is excluded, in order, and whether all checks are to be shown. Each `exclude` names one check.
fn parameters(query: &str) -> (BTreeSet<String>, bool) {
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (mut excluded, mut verbose) = (BTreeSet::new(), false);
    for pair in query.split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            ("exclude", name) => {
                excluded.insert(decode(name));
            }
            ("verbose", _) => verbose = true,
            _ => {}
        }
    }
    (excluded, verbose)
}

fn text(code: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn ask(target: &str, known: bool) -> (u16, String) {
        let checks = [
            Check::of("ping", true, String::new()),
            Check::of("east", true, "degraded for 3s: slow".into()),
            Check::of("west", false, "not tried yet".into()),
        ];
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let response = answer(HealthPath::of(path).unwrap(), query, &checks, known);
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn answers_read_as_those_of_a_kube_apiserver() {
        let failed =
            "[+]ping ok\n[+]east ok: degraded for 3s: slow\n[-]west failed: not tried yet\nreadyz check failed\n";
        assert_eq!(ask("/readyz", true).await, (500, failed.to_owned()));
        assert_eq!(ask("/readyz", false).await, (500, "readyz check failed\n".to_owned()));
        assert_eq!(ask("/readyz?exclude=west", true).await, (200, "ok".to_owned()));
        let excluded = "[+]ping ok\n[+]east ok: degraded for 3s: slow\n[+]west excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"north\",\"south\"\nreadyz check passed\n";
        assert_eq!(
            ask("/readyz?verbose&exclude=west&exclude=south&exclude=north", true).await,
            (200, excluded.to_owned())
        );
        assert_eq!(ask("/readyz/east", true).await, (200, "ok".to_owned()));
        assert_eq!(ask("/readyz/west", true).await, (500, "west failed: not tried yet\n".to_owned()));
        assert_eq!(ask("/readyz/north", true).await.0, 404);
    }

    #[test]
    fn only_bare_paths_are_open_to_anonymous() {
        let open = |path, query| HealthPath::of(path).is_some_and(|path| path.open_to_anonymous(query));
        assert!(open("/livez", None) && open("/readyz", None) && open("/healthz", Some("")));
        assert!(!open("/readyz", Some("verbose")) && !open("/readyz/east", None) && !open("/readyzz", None));
        assert!(HealthPath::of("/clusters/east/readyz").is_none() && HealthPath::of("/metrics").is_none());
    }
}
