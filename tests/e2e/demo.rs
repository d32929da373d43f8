//! `kubefold demo`, as a newcomer meets it: the program alone in an empty folder, and real kubectl.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use testbed::{Kubectl, Port, Process, eventually, program};

/// For a demo in a debug build on a busy machine.
const SOON: Duration = Duration::from_secs(60);
pub(crate) const SECOND_PASS: &[&str] = &["--pods", "60", "--churn", "0", "--calm"];

/// A demo in a folder of its own.
pub(crate) struct Demo {
    process: Process,
    port: Port,
    folder: TempDir,
}

impl Demo {
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), Port::reserve());
        let mut demo = Self { process: launch(&folder, &port, flags), port, folder };
        eventually(SOON, async || {
            let ended = demo.process.exited();
            assert!(ended.is_none(), "{ended:?}\n{}", demo.process.output());
            demo.process.output().contains("Ctrl-C").then_some(()).ok_or("no next steps yet")
        })
        .await;
        demo
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubefold-demo.kubeconfig")
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig(), self.folder.path())
    }

    /// What `kubefold demo ...` says in this folder, and whether it succeeded.
    async fn tell(&self, args: &[&str]) -> (bool, String) {
        let mut command = tokio::process::Command::new(program());
        command.arg("demo").args(args).current_dir(self.folder.path()).kill_on_drop(true);
        let said = command.output().await.unwrap();
        (said.status.success(), String::from_utf8([said.stdout, said.stderr].concat()).unwrap())
    }
}

fn launch(folder: &TempDir, port: &Port, flags: &[&str]) -> Process {
    let address = port.addr();
    let args = [&["demo", "--listen", &address], flags].concat();
    let log = folder.path().join("demo.log");
    let home = folder.path().to_owned();
    let stderr = log.clone();
    Process::spawn_with("demo", &program(), &args, &log, move |command| {
        command.current_dir(home).stderr(fs::OpenOptions::new().create(true).append(true).open(stderr).unwrap());
    })
}

/// Names of pods, as kubectl prints them.
fn names(list: &str) -> Vec<&str> {
    list.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_sees_a_fleet_kills_a_member_and_divides_a_deployment() {
    let mut demo = Demo::start(SECOND_PASS).await;
    let (kubectl, first) = (demo.kubectl(), demo.process.output());
    assert!(first.contains("$ kubectl get pods -A") && first.contains("@east") && first.contains("CLUSTER"), "{first}");
    let list = ["get", "pods", "-A", "--no-headers", "-o", "custom-columns=NAME:.metadata.name"];
    let before = kubectl.run(&list).await;
    for member in ["@east", "@west", "@north"] {
        assert!(before.ok().contains(member), "{}", before.stdout);
    }

    // One that is away changes no list, and is named.
    assert_eq!(
        demo.tell(&["kill", "west"]).await,
        (true, "west is down; lists show its last known state, with a Warning\n".into())
    );
    eventually(SOON, async || {
        let during = kubectl.run(&list).await;
        assert_eq!(names(during.ok()), names(before.ok()));
        during.stderr.contains("west").then_some(()).ok_or(during.stderr)
    })
    .await;
    assert_eq!(demo.tell(&["revive", "west"]).await, (true, "west is up\n".into()));
    eventually(SOON, async || {
        let after = kubectl.run(&list).await;
        assert_eq!(names(after.ok()), names(before.ok()));
        after.stderr.is_empty().then_some(()).ok_or(after.stderr)
    })
    .await;

    // What the first page says to paste.
    kubectl.run(&["-n", "shop", "create", "deployment", "web", "--image=nginx", "--replicas=8"]).await.ok();
    kubectl.run(&["-n", "shop", "rollout", "status", "deployment", "web", "--timeout=60s"]).await.ok();
    let pods = kubectl.run(&["-n", "shop", "get", "pods", "-l", "app=web", "--no-headers"]).await;
    let in_member = |member: &str| pods.stdout.lines().filter(|line| line.contains(member)).count();
    assert_eq!(["@east", "@west", "@north"].map(in_member), [2, 4, 2], "{}", pods.stdout);
    pods_are_reached(&kubectl.in_namespace("shop"), &pods.stdout, demo.folder()).await;
    kubectl.run(&["-n", "shop", "scale", "deployment", "web", "--replicas=12"]).await.ok();
    eventually(SOON, async || {
        let ready =
            kubectl.run(&["-n", "shop", "get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"]).await;
        (ready.ok() == "12").then_some(()).ok_or(ready.stdout)
    })
    .await;
    kubectl.run(&["-n", "shop", "delete", "deployment", "web", "--timeout=30s"]).await.ok();
    eventually(SOON, async || {
        let left = kubectl.run(&["-n", "shop", "get", "pods", "-l", "app=web", "--no-headers"]).await;
        left.ok().is_empty().then_some(()).ok_or(left.stdout)
    })
    .await;

    // kubectl checks a list by OpenAPI v2 in protobuf.
    let map =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [map("one"), map("two")]}).to_string();
    let applied = kubectl.run_with_input(&["apply", "-f", "-"], &list).await;
    assert_eq!(applied.ok(), "configmap/one created\nconfigmap/two created\n");
    let refused = kubectl.run_with_input(&["apply", "-f", "-"], &list.replace("\"metadata\"", "\"metadat\"")).await;
    assert!(refused.stderr.contains("unknown field \"metadat\""), "{refused}");

    demo.process.signal(Signal::INT);
    eventually(SOON, async || demo.process.exited().map(|code| assert!(code.success(), "{code}")).ok_or("still there"))
        .await;
    assert!(!demo.kubeconfig().exists());
}

/// Commands, files, ports, logs and metrics of a simulated pod, by both protocols that kubectl has for streams.
async fn pods_are_reached(kubectl: &Kubectl, pods: &str, folder: &Path) {
    let pod = *names(pods).iter().find(|name| name.ends_with("@east")).unwrap();
    let own = pod.strip_suffix("@east").unwrap();
    let spdy =
        kubectl.with("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false").with("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false");
    for (kubectl, how) in [(kubectl, "WebSocket"), (&spdy, "SPDY")] {
        let exec = async |words: &[&str]| kubectl.run(&[&["exec", pod, "--"], words].concat()).await;
        assert_eq!(exec(&["cat", "/etc/hostname"]).await.ok(), format!("{own}\n"), "{how}");
        let failed = exec(&["sh", "-c", "echo out; echo err >/dev/null; ls /none; exit 3"]).await;
        assert_eq!((failed.code, failed.stdout.as_str()), (Some(3), "out\n"), "{how}: {failed}");
        assert!(
            failed.stderr.contains("ls: /none: No such file") && failed.stderr.contains("exit code 3"),
            "{how}: {failed}"
        );
        for (word, code, why) in
            [("nosuch", 127, "executable file not found in $PATH"), ("/etc/hostname", 126, "permission denied")]
        {
            let refused = exec(&[word]).await;
            assert_eq!(refused.code, Some(code), "{how}: {refused}");
            assert!(refused.stdout.contains(why), "{how}: {refused}");
            assert!(refused.stderr.contains(&format!("command terminated with exit code {code}")), "{how}: {refused}");
        }
        let much = "a line of input\n".repeat(20_000);
        let copied = kubectl.run_with_input(&["exec", "-i", pod, "--", "cat"], &much).await;
        assert!(copied.ok() == much, "{how}: {} bytes", copied.stdout.len());
        let shell = kubectl.run_with_input(&["exec", "-i", "deploy/web", "--", "sh"], "cd /etc\npwd\nexit 4\n").await;
        assert_eq!((shell.code, shell.stdout.as_str()), (Some(4), "/etc\n"), "{how}: {shell}");

        files_are_copied(kubectl, pod, folder, how).await;
        let forward = kubectl.start(&["port-forward", pod, ":8080"]);
        let page = visited(&forward, "/visited", how).await;
        assert!(page.contains(&format!("pod {own} of cluster east\nnamespace: shop\n")), "{how}: {page}");
    }
    pages_are_proxied(kubectl, pod).await;
    let wrong = kubectl.run(&["exec", pod, "-c", "side", "--", "true"]).await;
    assert!(wrong.refused().contains("side"), "{wrong}");
    let logs = kubectl.start(&["logs", "-f", pod, "--since=10s"]);
    let attached = kubectl.start(&["attach", pod]);
    let forward = kubectl.start(&["port-forward", pod, ":8080"]);
    eventually(SOON, async || {
        visited(&forward, "/visited", "again").await;
        let seen = |process: &Process| {
            process.output().contains("GET /visited 200").then_some(()).ok_or_else(|| process.output())
        };
        seen(&logs).and_then(|()| seen(&attached))
    })
    .await;
    let used = kubectl.run(&["top", "pods", "-l", "app=web", "--no-headers"]).await;
    assert!(used.ok().lines().count() == 8 && used.stdout.contains(pod) && used.stdout.contains("Mi"), "{used}");
    let explained = kubectl.run(&["explain", "deployment.spec.replicas"]).await;
    assert!(explained.ok().contains("Number of desired pods."), "{explained}");
    let nodes = kubectl.run(&["top", "nodes", "--no-headers"]).await;
    assert!(nodes.ok().contains("@west") && !nodes.stdout.contains("unknown"), "{nodes}");
}

/// Files go into a pod and come out again as they were; what has no room there is said.
async fn files_are_copied(kubectl: &Kubectl, pod: &str, folder: &Path, how: &str) {
    let (site, back) = (folder.join(how), folder.join(format!("{how}-back")));
    let bytes: Vec<u8> = (0..1_500_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::create_dir_all(site.join("deep")).unwrap();
    fs::write(site.join("deep/large.bin"), &bytes).unwrap();
    fs::write(site.join("index.html"), "hello\n").unwrap();
    let copy = async |from: &str, to: &str| kubectl.run(&["cp", from, to]).await;
    let [site, back] = [&site, &back].map(|path| path.to_str().unwrap());
    copy(site, &format!("{pod}:/tmp")).await.ok();
    let page = format!("/tmp/{how}/index.html");
    assert_eq!(kubectl.run(&["exec", pod, "--", "cat", &page]).await.ok(), "hello\n", "{how}");
    copy(&format!("{pod}:tmp/{how}"), back).await.ok();
    assert!(fs::read(Path::new(back).join("deep/large.bin")).unwrap() == bytes, "{how}");
    assert_eq!(fs::read_to_string(Path::new(back).join("index.html")).unwrap(), "hello\n", "{how}");
    let large = folder.join("too-large");
    fs::write(&large, vec![0; 5 << 20]).unwrap();
    let refused = copy(large.to_str().unwrap(), &format!("{pod}:/root/")).await;
    assert!(refused.refused().contains("tar: can't open 'too-large': No space left on device"), "{how}: {refused}");
    // kubectl cp ends with the archive, and may not wait for what tar says.
    let missing = kubectl.run(&["exec", pod, "--", "tar", "cf", "-", "/none"]).await;
    assert_eq!(missing.code, Some(1), "{how}");
    assert!(missing.stderr.contains("tar: /none: No such file or directory"), "{how}: {}", missing.stderr);
}

/// The page of a pod through the API server's `proxy`, of the pod and of a service, and through `kubectl proxy`.
async fn pages_are_proxied(kubectl: &Kubectl, pod: &str) {
    let own = pod.strip_suffix("@east").unwrap();
    let page = format!("pod {own} of cluster east\nnamespace: shop\n");
    let path = format!("/api/v1/namespaces/shop/pods/{pod}:8080/proxy/visited");
    let raw = kubectl.run(&["get", "--raw", &path]).await;
    assert!(raw.ok().starts_with(&page), "{raw}");
    kubectl.run(&["expose", "deployment", "web", "--port=80", "--target-port=8080"]).await.ok();
    let service = "/api/v1/namespaces/shop/services/web:80/proxy/";
    eventually(SOON, async || {
        let answer = kubectl.run(&["get", "--raw", service]).await;
        answer.stdout.starts_with("pod web-").then_some(()).ok_or_else(|| answer.to_string())
    })
    .await;
    let proxy = kubectl.start(&["proxy", "--port=0"]);
    let answer = visited(&proxy, &path, "proxy").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&page), "{answer}");
    let root = visited(&proxy, path.strip_suffix("/visited").unwrap(), "proxy").await;
    assert!(root.starts_with("HTTP/1.1 301 ") && root.contains("/proxy/\r\n"), "{root}");
    kubectl.run(&["delete", "service", "web"]).await.ok();
}

/// What a page says at a port that kubectl listens at.
async fn visited(forward: &Process, path: &str, how: &str) -> String {
    let port: u16 = eventually(SOON, async || {
        let output = forward.output();
        let port =
            output.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(char::is_whitespace)?.0.parse().ok());
        port.ok_or(output)
    })
    .await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = timeout(SOON, stream.read_to_string(&mut answer)).await;
    read.unwrap_or_else(|_| panic!("{how}: {}", forward.output())).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_said() {
    let demo = Demo::start(SECOND_PASS).await;
    // The port: in another folder, for the kubeconfig here is the demo's own.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut second = launch(&elsewhere, &demo.port, SECOND_PASS);
    let code = eventually(SOON, async || second.exited().ok_or("still there")).await;
    assert_eq!(code.code(), Some(1));
    assert!(second.output().contains("another demo or kubefold may be running"), "{}", second.output());
    assert!(!elsewhere.path().join("kubefold-demo.kubeconfig").exists());

    // Somebody's file.
    fs::write(elsewhere.path().join("kubefold-demo.kubeconfig"), "mine").unwrap();
    let mut third = launch(&elsewhere, &Port::reserve(), SECOND_PASS);
    let code = eventually(SOON, async || third.exited().ok_or("still there")).await;
    assert_eq!(code.code(), Some(1));
    assert!(third.output().contains("was not written by a demo"), "{}", third.output());
    assert_eq!(fs::read_to_string(elsewhere.path().join("kubefold-demo.kubeconfig")).unwrap(), "mine");

    // Commands to it.
    let (done, said) = demo.tell(&["kill", "nowhere"]).await;
    assert!(!done && said.contains("it has east, north, west"), "{said}");
    let (done, said) = demo.tell(&["fault", "east", "{}"]).await;
    assert!(!done && said.contains("this is not a valid rule"), "{said}");
    let (done, said) = demo.tell(&["fault", "east", r#"{"fault":{"status":{"code":503}}}"#]).await;
    assert!(done && said.contains("active faults: 1"), "{said}");
    assert_eq!(demo.tell(&["calm", "east"]).await, (true, "east is up\n".into()));
}

/// The same seed, the same fleet.
#[tokio::test(flavor = "multi_thread")]
async fn a_seed_makes_the_same_fleet_again() {
    let mut lists = Vec::new();
    for _ in 0..2 {
        let demo = Demo::start(&["--pods", "60", "--churn", "0", "--calm", "--seed", "7", "--members", "2"]).await;
        let list = ["get", "pods,deployments,services", "-A", "--no-headers", "-o"];
        let columns = "custom-columns=NS:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid,NODE:.spec.nodeName";
        lists.push(demo.kubectl().run(&[&list[..], &[columns]].concat()).await.ok().to_owned());
    }
    assert!(lists[0].lines().count() > 60, "{}", lists[0]);
    assert_eq!(lists[0], lists[1]);
}
