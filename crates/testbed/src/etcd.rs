//! What can happen to a member's data under its API server.

use std::{path::Path, process::Stdio};

use serde_json::Value;

use super::{Member, binary};

impl Member {
    /// Where the member's etcd is, such as `http://127.0.0.1:2379`.
    pub fn etcd_url(&self) -> String {
        self.place.etcd_url()
    }

    /// Runs etcdctl against the member's etcd and returns its stdout.
    pub async fn etcdctl(&self, args: &[&str]) -> String {
        let endpoint = format!("--endpoints={}", self.place.etcd_url());
        run("etcdctl", &[&[endpoint.as_str()], args].concat()).await
    }

    /// The revision of the last write, to anything.
    pub async fn etcd_revision(&self) -> i64 {
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"]).await;
        let status: Value = serde_json::from_str(&status).expect("JSON from etcdctl");
        status[0]["Status"]["header"]["revision"].as_i64().unwrap_or_else(|| panic!("no revision in {status}"))
    }

    /// Forgets all history in etcd up to now, and returns the revision now.
    ///
    /// A running kube-apiserver still answers from its watch cache; see [`Self::forget_history`].
    pub async fn compact_etcd(&self) -> i64 {
        self.assert_own();
        let revision = self.etcd_revision().await;
        self.etcdctl(&["compact", "--physical", &revision.to_string()]).await;
        revision
    }

    /// Compacts etcd and empties the watch cache, by a restart of kube-apiserver: a watch from before is 410 now.
    pub async fn forget_history(&self) {
        self.compact_etcd().await;
        self.stop_apiserver();
        self.start_apiserver().await;
    }

    /// Saves etcd's data to a file.
    pub async fn snapshot_etcd(&self, path: &Path) {
        self.etcdctl(&["snapshot", "save", path.to_str().expect("UTF-8")]).await;
    }

    /// Restores etcd's data from a file, as an operator does after a disaster: revisions go backwards, and every server
    /// of the member starts anew.
    pub async fn restore_etcd(&self, path: &Path) {
        self.wipe();
        let identity = self.place.etcd_identity();
        let mut args = vec!["snapshot", "restore", path.to_str().expect("UTF-8")];
        args.extend(identity.iter().map(String::as_str));
        run("etcdutl", &args).await;
        self.restart().await;
    }

    /// Puts another cluster in the member's place, with its address and its authority but none of its data.
    pub async fn replace_cluster(&self) {
        self.wipe();
        self.restart().await;
    }

    fn wipe(&self) {
        self.stop_all();
        std::fs::remove_dir_all(self.place.path("etcd")).expect("etcd's data");
    }
}

async fn run(program: &str, args: &[&str]) -> String {
    let mut command = tokio::process::Command::new(binary(program));
    let ended = command.args(args).stdin(Stdio::null()).kill_on_drop(true).output().await.expect("run it");
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{program} {}: {}\n{stdout}\n{stderr}", args.join(" "), ended.status);
    stdout.into_owned()
}
