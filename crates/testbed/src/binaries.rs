//! The real programs, built once per machine by `tests/testbed/build.sh`, `tests/clients/build.sh` and `tests/before/build.sh`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The path of a program of the testbed: `etcd`, `kube-apiserver`, `kubectl`, `informer`, ...
pub fn binary(name: &str) -> PathBuf {
    let path = directory().join(name);
    assert!(path.exists(), "the testbed has no {name}: {} is missing", path.display());
    path
}

/// The path of a client program of `tests/clients`: `go`, `kube-rs`, `python`, `node`, `kubectl-oldest`, `kubectl-newest`,
/// and `oidc`, a provider of OpenID Connect.
pub fn client(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/build.sh");
    let path = DIRECTORY.get_or_init(|| built_by(script)).join(name);
    assert!(path.exists(), "no client {name}: {} is missing", path.display());
    path
}

/// What there is of the version before, by `tests/before`: `kubefold`, and `chart`, its Helm chart.
pub fn before(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/before/build.sh");
    DIRECTORY.get_or_init(|| built_by(script)).join(name)
}

/// The stage files from which kwok knows the life of a node and of a pod.
pub(crate) fn kwok_stages() -> Vec<PathBuf> {
    let folder = directory().parent().expect("bin has a parent").join("kwok");
    let mut stages: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("kwok's stages").map(|entry| entry.unwrap().path()).collect();
    stages.sort();
    stages
}

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| built_by(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/testbed/build.sh")))
}

/// Builds what is missing; the first call of all on a machine takes minutes, and says so on stderr.
fn built_by(script: &str) -> PathBuf {
    let built = Command::new(script).stderr(Stdio::inherit()).output().expect("run the script");
    assert!(built.status.success(), "{script} failed: {}", built.status);
    PathBuf::from(String::from_utf8(built.stdout).expect("a path").trim())
}
