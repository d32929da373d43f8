use std::{fs, path::Path};

use futures::stream;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;

use super::{log::Output, *};
use crate::caller::Caller;
use kubefold_wire::{
    body::{Body, BodyError, full},
    info::RequestInfo,
    status::Status,
};

fn jane() -> Caller {
    Caller { user: "jane".to_owned(), groups: vec!["dev".to_owned()], ..Caller::default() }
}

fn file(path: &Path) -> LogFile {
    LogFile { path: path.to_path_buf(), bytes_max: 1 << 20, backups_max: 2, age_max: None }
}

/// A log with room for so many events.
fn log(path: &Path, policy: Policy, queue_max: usize) -> (Arc<AuditLog>, LogWriter) {
    let proxies = vec!["10.0.0.0/8".parse().unwrap()];
    AuditLog::with_queue(Output { file: file(path), current: None }, policy, proxies, queue_max)
}

/// Begins the trail of a request.
fn begun(log: &Arc<AuditLog>, method: &Method, uri: &str, headers: &HeaderMap) -> Result<Option<Trail>, Full> {
    let (id, uri) = (HeaderValue::from_static("id-1"), uri.parse::<http::Uri>().unwrap());
    let path = uri.path().strip_prefix("/clusters/east").unwrap_or_else(|| uri.path()).to_owned();
    let peer = Some([10, 0, 0, 7].into());
    let arrival = Arrival { id: &id, method, uri: &uri, path: &path, headers, peer };
    log.begin(arrival, Some(&jane()), None)
}

fn trail(log: &Arc<AuditLog>, method: &Method, uri: &str) -> Option<Trail> {
    begun(log, method, uri, &HeaderMap::new()).unwrap()
}

fn events(path: &Path, log: Arc<AuditLog>, writer: LogWriter) -> Vec<Value> {
    drop(log);
    std::thread::scope(|scope| scope.spawn(|| writer.run()).join().unwrap());
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_event_says_who_did_what_and_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let (log, writer) = log(&path, Policy::default(), 10);
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", HeaderValue::from_static("kubectl/v1.36.3"));
    headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.9, nonsense"));
    let begun =
        begun(&log, &Method::POST, "/clusters/east/apis/apps/v1/namespaces/shop/deployments?dryRun=All", &headers);
    let trail = begun.unwrap().unwrap();
    let notes = trail.notes();
    notes.name("web");
    notes.annotate("authorization.kubefold.io/create", "allow: east".to_owned());
    drop(trail.answered(Status::forbidden("no").into_response()));
    let [event] = events(&path, log, writer).try_into().unwrap();
    assert_eq!(event["kind"], "Event");
    assert_eq!(event["apiVersion"], "audit.k8s.io/v1");
    assert_eq!((&event["level"], &event["stage"]), (&"Metadata".into(), &"ResponseComplete".into()));
    assert_eq!(event["auditID"], "id-1");
    assert_eq!(event["verb"], "create");
    assert_eq!(event["requestURI"], "/clusters/east/apis/apps/v1/namespaces/shop/deployments?dryRun=All");
    assert_eq!(event["user"], serde_json::json!({"username": "jane", "groups": ["dev"]}));
    assert_eq!(event["sourceIPs"], serde_json::json!(["192.0.2.9", "10.0.0.7"]));
    assert_eq!(event["userAgent"], "kubectl/v1.36.3");
    let object = serde_json::json!({"resource": "deployments", "namespace": "shop", "name": "web", "apiGroup": "apps", "apiVersion": "v1"});
    assert_eq!(event["objectRef"], object);
    let status =
        serde_json::json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403});
    assert_eq!(event["responseStatus"], status);
    assert_eq!(event["annotations"]["authorization.kubefold.io/create"], "allow: east");
    let at = event["stageTimestamp"].as_str().unwrap();
    assert!(at.len() == "2026-11-24T20:17:00.123456Z".len() && at.ends_with('Z'), "{at}");
}

#[tokio::test]
async fn a_watch_has_two_events_and_the_second_comes_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let (log, writer) = log(&path, Policy::default(), 10);
    let watch = trail(&log, &Method::GET, "/api/v1/pods?watch=1").unwrap();
    let notes = watch.notes();
    let body: Body = StreamBody::new(stream::empty::<Result<_, BodyError>>()).boxed_unsync();
    let mut answer = watch.answered(Response::new(body));
    let list = trail(&log, &Method::GET, "/api/v1/pods").unwrap();
    drop(list.answered(Response::new(full("whole"))));
    notes.annotate("kubefold.io/ended", "a right was withdrawn".to_owned());
    assert!(answer.body_mut().frame().await.is_none());
    drop(answer);
    let events = events(&path, log, writer);
    let stages: Vec<_> =
        events.iter().map(|event| (event["verb"].as_str().unwrap(), event["stage"].as_str().unwrap())).collect();
    assert_eq!(stages, [("watch", "ResponseStarted"), ("list", "ResponseComplete"), ("watch", "ResponseComplete")]);
    assert_eq!(events[2]["annotations"]["kubefold.io/ended"], "a right was withdrawn");
    assert_eq!(events[2]["responseStatus"]["code"], 200);
}

#[test]
fn a_full_queue_refuses_writes_and_counts_reads_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let (log, writer) = log(&path, Policy::default(), 2);
    let write = || begun(&log, &Method::DELETE, "/api/v1/namespaces/shop/pods/web", &HeaderMap::new());
    let held = [write().unwrap(), write().unwrap()];
    assert_eq!(write().unwrap_err(), Full);
    drop(trail(&log, &Method::GET, "/api/v1/pods"));
    assert_eq!(log.counts().lost(), 1);
    drop(held);
    let counts = Arc::clone(&log.counts);
    // Of a write that was let in the event has its place.
    assert_eq!(events(&path, log, writer).len(), 2);
    assert_eq!(counts.written(), 2);
}

#[test]
fn a_policy_chooses_by_its_first_rule() {
    let policy = Policy::parse(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nmetadata: {name: ours}\nomitStages: [RequestReceived]\nrules:\n\
         - {level: None, users: [robot]}\n\
         - {level: None, verbs: [get, list, watch], resources: [{group: coordination.k8s.io, resources: [leases]}]}\n\
         - {level: Metadata, userGroups: [dev], omitStages: [ResponseStarted], resources: [{group: '', resources: [pods/log, configmaps]}]}\n\
         - {level: Metadata, resources: [{group: '', resources: ['*/status']}, {group: apps}], namespaces: [shop]}\n\
         - {level: Metadata, nonResourceURLs: ['/version', '/kubefold/*']}\n",
    )
    .unwrap();
    let omitted = |caller: Option<&Caller>, method: &Method, path: &str| {
        policy.omitted(caller, &RequestInfo::of(method, path, None).unwrap())
    };
    let (get, robot) = (&Method::GET, Caller { user: "robot".to_owned(), ..jane() });
    let jane = jane();
    let is_logged = |method: &Method, path: &str| omitted(Some(&jane), method, path).is_some();
    assert_eq!(omitted(Some(&robot), get, "/api/v1/configmaps"), None);
    assert_eq!(omitted(Some(&jane), get, "/api/v1/configmaps").map(|stages| stages.len()), Some(2));
    assert!(omitted(None, get, "/api/v1/configmaps").is_none());
    assert!(is_logged(get, "/api/v1/namespaces/a/pods/b/log") && !is_logged(get, "/api/v1/namespaces/a/pods/b"));
    let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
    assert!(!is_logged(get, leases) && !is_logged(&Method::PUT, leases), "no rule is about it");
    assert!(is_logged(get, "/api/v1/namespaces/shop/services/web/status"));
    assert!(!is_logged(get, "/api/v1/namespaces/other/services/web/status"));
    assert!(
        is_logged(get, "/apis/apps/v1/namespaces/shop/deployments") && !is_logged(get, "/apis/apps/v1/deployments")
    );
    assert!(is_logged(get, "/version") && is_logged(get, "/kubefold/v1/status") && !is_logged(get, "/openapi/v3"));
}

#[test]
fn a_policy_that_cannot_be_kept_is_refused() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    for (text, why) in [
        (format!("{head}rules: []\n"), "no rules"),
        (
            format!("{head}rules: [{{level: Metadata}}, {{level: RequestResponse}}]\n"),
            "rule 2 of the audit policy has level",
        ),
        (format!("{head}rules: [{{level: Metadata, verb: get}}]\n"), "verb"),
        ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]\n".to_owned(), "is Policy of"),
    ] {
        let error = Policy::parse(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn probes_are_not_logged_without_a_policy() {
    let omitted = |path: &str| Policy::default().omitted(None, &RequestInfo::of(&Method::GET, path, None).unwrap());
    for path in ["/healthz", "/livez/ping", "/readyz"] {
        assert_eq!(omitted(path), None, "{path}");
    }
    assert!(omitted("/version").is_some() && omitted("/api/v1/pods").is_some());
}

#[test]
fn a_full_file_is_set_aside_and_few_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let mut output = Output { file: LogFile { bytes_max: 10, ..file(&path) }, current: None };
    for line in ["first\n", "second\n", "third\n", "fourth\n"] {
        let (written, result) = output.write(line.as_bytes());
        assert_eq!((written, result.is_ok()), (line.len(), true));
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "fourth\n");
    let mut aside: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).filter(|one| *one != path).collect();
    aside.sort();
    let texts: Vec<String> = aside.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert_eq!(texts, ["second\n", "third\n"], "{aside:?}");
}

#[test]
fn what_could_not_be_written_is_written_when_the_disk_takes_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gone").join("audit.log");
    let mut output = Output { file: file(&path), current: None };
    let (written, result) = output.write(b"x\n");
    assert_eq!((written, result.is_err()), (0, true));
    fs::create_dir(folder.path().join("gone")).unwrap();
    assert!(output.write(b"x\n").1.is_ok());
    assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
}

#[tokio::test]
async fn an_id_and_notes_go_with_the_work() {
    assert_eq!(current(), None);
    let (id, to) = (HeaderValue::from_static("a1"), Notes::default());
    let carried =
        scoped(id.clone(), Some(to.clone()), async { (current(), carried(async { (current(), notes()) })) }).await;
    assert_eq!(carried.0, Some(id.clone()));
    let (known, noting) = tokio_util::task::TaskTracker::new().spawn(carried.1).await.unwrap();
    assert_eq!(known, Some(id));
    noting.unwrap().name("web");
    assert_eq!(to.0.lock().name, "web");
}
