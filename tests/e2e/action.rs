//! The GitHub Action of `.github/actions/fleet`: what it does in a job, here without GitHub.

use std::{fs, path::Path, process::Output};

use tempfile::TempDir;

use testbed::{Kubectl, Testbed, binary, program};

/// A job's files, and the end of what it started.
struct Job(TempDir);

impl Job {
    async fn start(&self, inputs: &[(&str, &str)]) -> Output {
        let file = |name: &str| self.0.path().join(name);
        let action = concat!(env!("CARGO_MANIFEST_DIR"), "/.github/actions/fleet/start");
        let mut command = tokio::process::Command::new(action);
        command.envs([("GITHUB_ENV", file("env")), ("GITHUB_OUTPUT", file("output")), ("GITHUB_PATH", file("path"))]);
        command.env("RUNNER_TEMP", self.0.path()).env("KUBEFOLD", program()).envs(inputs.iter().copied());
        command.output().await.unwrap()
    }

    /// kubectl of the steps that follow.
    fn kubectl(&self) -> Kubectl {
        let env = fs::read_to_string(self.0.path().join("env")).unwrap();
        let kubeconfig = env.trim().strip_prefix("KUBECONFIG=").unwrap();
        Kubectl::new(Path::new(kubeconfig), self.0.path())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.0.path().join("kubefold/kubefold.pid")) {
            let _ended = std::process::Command::new("kill").arg(pid.trim()).status();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_a_fleet_of_embedded_clusters() {
    let job = Job(tempfile::tempdir().unwrap());
    let said = job.start(&[("CLUSTERS", "2")]).await;
    assert!(said.status.success(), "{said:?}");
    let members = job.kubectl().run(&["get", "members", "-o", "name"]).await;
    assert_eq!(members.ok().lines().count(), 2, "{members}");
    let path = fs::read_to_string(job.0.path().join("path")).unwrap();
    assert!(
        Path::new(path.trim()).join(program().file_name().unwrap()).exists(),
        "the steps that follow find kubefold: {path}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_a_fleet_of_its_own_clusters() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let job = Job(tempfile::tempdir().unwrap());
    let both = ["east", "west"].map(|name| bed[name].kubeconfig().display().to_string()).join(":");
    let view = ["config", "view", "--flatten"];
    let mut merge = tokio::process::Command::new(binary("kubectl"));
    let merged = merge.args(view).env("KUBECONFIG", both).output().await.unwrap();
    assert!(merged.status.success(), "{merged:?}");
    let kubeconfig = job.0.path().join("clusters.kubeconfig");
    fs::write(&kubeconfig, merged.stdout).unwrap();
    let inputs = [("CONTEXTS", "east west"), ("FROM_KUBECONFIG", kubeconfig.to_str().unwrap())];
    let said = job.start(&inputs).await;
    assert!(said.status.success(), "{said:?}");
    let nodes = job.kubectl().run(&["get", "members", "-o", "name"]).await;
    assert_eq!(nodes.ok().lines().count(), 2, "{nodes}");
    let said = Job(tempfile::tempdir().unwrap()).start(&[("CONTEXTS", "nowhere"), inputs[1]]).await;
    assert!(!said.status.success() && String::from_utf8_lossy(&said.stderr).contains("nowhere"), "{said:?}");
}
