//! `kubefold apiserver` with its objects in etcd, and the way of objects there.

use std::time::Duration;

use testbed::{ApiServer, EtcdServer, eventually, program};

use crate::apiserver::{objects_outlive_the_process, run};

const SOON: Duration = Duration::from_secs(30);

/// Both sides of the connection show certificates, and both are checked.
#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_the_process_in_etcd() {
    let etcd = tokio::task::spawn_blocking(EtcdServer::start_with_tls).await.unwrap();
    let file = |name| etcd.path(name).display().to_string();
    let (ca, certificate, key) = (file("ca.crt"), file("client.crt"), file("client.key"));
    let port = etcd.address().rsplit_once(':').unwrap().1.to_owned();
    let url = format!("etcd://localhost:{port}/kubefold?tls=true");
    let folder = tempfile::tempdir().unwrap();
    let at = ["apiserver", "--state-dir", "state", "--listen", "127.0.0.1:0", "--storage"];
    let elsewhere = format!("etcd://127.0.0.1:{port}/kubefold");
    for (url, more, words) in [
        (&url, vec![], "UnknownIssuer"),
        (&url, vec!["--storage-ca-file", &ca], "etcd does not answer"),
        (&elsewhere, vec!["--storage-ca-file", &ca], "not valid for name"),
    ] {
        let (code, _, error) = run(&[&at[..], &[url.as_str()], &more[..]].concat(), folder.path()).await;
        assert!(code == Some(1) && error.contains(words), "no {words:?} in {error}");
    }
    let with = ["--storage", &url, "--storage-ca-file", &ca, "--storage-cert-file", &certificate];
    objects_outlive_the_process(ApiServer::start(&[&with[..], &["--storage-key-file", &key]].concat()).await).await;
    let kept = etcd.ctl(&["get", "--print-value-only", "/kubefold/configmaps/default/kept"]);
    assert!(kept.starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"kept""#), "{kept}");
    let widgets = etcd.ctl(&["get", "--prefix", "--keys-only", "/kubefold/e2e.kubefold.io/widgets/"]);
    assert_eq!(widgets.trim(), "/kubefold/e2e.kubefold.io/widgets/default/first");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_move_from_a_file_to_etcd() {
    let etcd = tokio::task::spawn_blocking(EtcdServer::start).await.unwrap();
    let mut server = ApiServer::start(&[]).await;
    server.as_admin().run(&["create", "configmap", "kept", "--from-literal=to=world"]).await.ok();
    let (file, to) = (format!("sqlite:{}", server.state_dir().display()), format!("etcd://{}", etcd.address()));
    let folder = tempfile::tempdir().unwrap();
    let migrate = ["apiserver", "migrate", "--from", &file, "--to", &to];
    let (code, _, error) = run(&migrate, folder.path()).await;
    assert!(code == Some(1) && error.contains("another process serves"), "{error}");
    assert!(server.terminate(SOON).await.success());
    // Interrupted, wherever it is; then it goes on.
    let mut interrupted = tokio::process::Command::new(program()).args(migrate).kill_on_drop(true).spawn().unwrap();
    eventually(
        SOON,
        async || if etcd.ctl(&["get", "--prefix", "/registry"]).is_empty() { Err("nothing yet") } else { Ok(()) },
    )
    .await;
    interrupted.kill().await.unwrap();
    let (code, out, error) = run(&migrate, folder.path()).await;
    let is_done_before = error.contains("has objects already");
    assert!(is_done_before || (code == Some(0) && out.contains("objects are in both storages")), "{out}{error}");
    let (code, _, error) = run(&migrate, folder.path()).await;
    assert!(code == Some(1) && error.contains("has objects already"), "{error}");
    let nowhere = run(&["apiserver", "migrate", "--from", "memory:", "--to", &to], folder.path()).await;
    assert!(nowhere.0 == Some(64) && nowhere.2.contains("ends with the process"), "{nowhere:?}");
    let moved = ApiServer::start(&["--storage", &to]).await;
    let kept = moved.as_admin().run(&["get", "configmap", "kept", "-o", "jsonpath={.data.to}"]).await;
    assert_eq!(kept.ok(), "world");
}
