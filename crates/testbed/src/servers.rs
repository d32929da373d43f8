//! The command lines of the servers of which a member is made.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    MemberOptions, Port, Process, binaries::kwok_stages, binary, kubeconfig, pki::Authority, process::guarded_line,
};

/// Where a member's servers find their files and ports. All of it outlives each of them, so that one which is started
/// again is the same one.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) options: MemberOptions,
    pub(crate) dir: PathBuf,
    pub(crate) authority: Authority,
    pub(crate) api: Port,
    etcd: Port,
    etcd_peer: Port,
    controllers: Port,
    scheduler: Port,
    kwok: Port,
}

impl Place {
    /// Reserves ports and writes certificates, keys and kubeconfigs.
    pub(crate) fn lay_out(name: &str, options: MemberOptions, dir: PathBuf) -> Self {
        let authority = Authority::new(&format!("{name}-ca"));
        let [api, etcd, etcd_peer, controllers, scheduler, kwok] = std::array::from_fn(|_| Port::reserve());
        let place =
            Self { name: name.to_owned(), options, dir, authority, api, etcd, etcd_peer, controllers, scheduler, kwok };
        place.write("ca.crt", &place.authority.cert_pem());
        place.write("ca.key", &place.authority.key_pem());
        let names =
            ["127.0.0.1", "localhost", "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let serving = place.authority.server(&names);
        place.write("server.crt", &serving.cert_pem);
        place.write("server.key", &serving.key_pem);
        let service_accounts = rcgen::KeyPair::generate().unwrap();
        place.write("service-accounts.key", &service_accounts.serialize_pem());
        place.write("service-accounts.pub", &service_accounts.public_key_pem());
        place.write_kubeconfig("admin", "admin", Some("system:masters"));
        place.write_kubeconfig("controllers", "system:kube-controller-manager", None);
        place.write_kubeconfig("scheduler", "system:kube-scheduler", None);
        place.write("kwok.yaml", &kwok_config(&place.path("pod.log")));
        // In the format of the container runtime interface, which kwok takes apart.
        place.write("pod.log", &format!("2026-01-01T00:00:00.000000000Z stdout F hello from {name}\n"));
        place.write("audit-policy.yaml", AUDIT_POLICY);
        place
    }

    /// A file in the member's directory.
    pub(crate) fn path(&self, file: &str) -> String {
        self.dir.join(file).to_str().expect("a path in UTF-8").to_owned()
    }

    pub(crate) fn server_url(&self) -> String {
        format!("https://{}", self.api.addr())
    }

    /// Writes a kubeconfig of a user of this member and returns its path.
    pub(crate) fn write_kubeconfig(&self, file: &str, user: &str, group: Option<&str>) -> PathBuf {
        self.write_kubeconfig_to(file, user, group, &self.server_url())
    }

    /// The same, with another address for the member.
    pub(crate) fn write_kubeconfig_to(&self, file: &str, user: &str, group: Option<&str>, server: &str) -> PathBuf {
        let path = self.dir.join(format!("{file}.kubeconfig"));
        let identity = self.authority.client(user, group);
        kubeconfig::write(&path, &self.name, server, &self.authority.cert_pem(), &identity);
        path
    }

    pub(crate) fn etcd_url(&self) -> String {
        format!("http://{}", self.etcd.addr())
    }

    /// etcd's idea of itself, which a restored data directory must share.
    pub(crate) fn etcd_identity(&self) -> Vec<String> {
        let peer = format!("http://{}", self.etcd_peer.addr());
        vec![
            format!("--name={}", self.name),
            format!("--initial-cluster={}={peer}", self.name),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--data-dir={}", self.path("etcd")),
        ]
    }

    pub(crate) fn etcd(&self) -> Process {
        let mut args = self.etcd_identity();
        args.extend([
            format!("--listen-peer-urls=http://{}", self.etcd_peer.addr()),
            format!("--listen-client-urls={}", self.etcd_url()),
            format!("--advertise-client-urls={}", self.etcd_url()),
            // A test needs no data after a power cut, and three members would wait for one disk.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ]);
        self.spawn("etcd", &args)
    }

    pub(crate) fn apiserver(&self) -> Process {
        let mut args = vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--secure-port={}", self.api.number()),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            // The advertised address is a loopback, which an endpoint may not hold.
            "--endpoint-reconciler-type=none".into(),
            format!("--cert-dir={}", self.path("apiserver")),
            format!("--tls-cert-file={}", self.path("server.crt")),
            format!("--tls-private-key-file={}", self.path("server.key")),
            format!("--client-ca-file={}", self.path("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-signing-key-file={}", self.path("service-accounts.key")),
            format!("--service-account-key-file={}", self.path("service-accounts.pub")),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--allow-privileged=true".into(),
            "--kubelet-preferred-address-types=InternalIP".into(),
            "--profiling=false".into(),
        ];
        if self.options.audit {
            args.push(format!("--audit-policy-file={}", self.path("audit-policy.yaml")));
            args.push(format!("--audit-log-path={}", self.path("audit.log")));
            args.push("--audit-log-mode=blocking".into());
        }
        let name = |arg: &str| arg.split_once('=').map_or(arg, |(name, _)| name).to_owned();
        let own: Vec<String> = self.options.apiserver_args.iter().map(|arg| name(arg)).collect();
        // A list would have the values of both.
        args.retain(|arg| !own.contains(&name(arg)));
        args.extend(self.options.apiserver_args.iter().cloned());
        self.spawn("kube-apiserver", &args)
    }

    pub(crate) fn controller_manager(&self) -> Process {
        let kubeconfig = self.path("controllers.kubeconfig");
        let args = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.controllers.number()),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", self.path("service-accounts.key")),
            format!("--root-ca-file={}", self.path("ca.crt")),
            format!("--cluster-signing-cert-file={}", self.path("ca.crt")),
            format!("--cluster-signing-key-file={}", self.path("ca.key")),
            // After 50 s without a sign of a node, as when a test stops its kube-apiserver, it marks the node's pods as
            // not ready. A kubelet mends that, and kwok, which only looks at pending pods, does not.
            "--node-monitor-grace-period=1h".into(),
            // Its default of 20 requests a second is for a shared cluster.
            "--kube-api-qps=200".into(),
            "--kube-api-burst=400".into(),
        ];
        self.spawn("kube-controller-manager", &args)
    }

    pub(crate) fn scheduler(&self) -> Process {
        let kubeconfig = self.path("scheduler.kubeconfig");
        let args = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.scheduler.number()),
            "--leader-elect=false".into(),
        ];
        self.spawn("kube-scheduler", &args)
    }

    pub(crate) fn kwok(&self) -> Process {
        // A map of its own that it writes from two threads ends it now and then with Go's exit code for a fatal error. A
        // node's kubelet starts again, and so does it.
        let guarded = guarded_line();
        let again =
            format!(r#"while :; do {guarded} "$$" "$0" "$@"; code=$?; [ "$code" -eq 2 ] || exit "$code"; done"#);
        let mut args = vec!["-c".to_owned(), again, binary("kwok").display().to_string()];
        args.extend([
            format!("--kubeconfig={}", self.path("admin.kubeconfig")),
            "--manage-all-nodes=true".into(),
            format!("--server-address={}", self.kwok.addr()),
            "--node-ip=127.0.0.1".into(),
            format!("--node-port={}", self.kwok.number()),
            format!("--tls-cert-file={}", self.path("server.crt")),
            format!("--tls-private-key-file={}", self.path("server.key")),
            format!("--config={}", self.path("kwok.yaml")),
        ]);
        args.extend(kwok_stages().iter().map(|stage| format!("--config={}", stage.display())));
        self.spawn_as("kwok", "sh".as_ref(), &args)
    }

    fn spawn(&self, program: &str, args: &[String]) -> Process {
        self.spawn_as(program, &binary(program), args)
    }

    /// Starts a program under a name, which its log has too.
    fn spawn_as(&self, name: &str, program: &Path, args: &[String]) -> Process {
        Process::spawn(&format!("{name} of {}", self.name), program, args, &self.dir.join(format!("{name}.log")))
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.dir.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// Who asked for what, one line when the answer has been given.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
";

/// What the kubelet of a fake node answers: logs and attach from a file, exec by running the command on this machine,
/// port-forward by an echo of what comes in.
fn kwok_config(pod_log: &str) -> String {
    let part = |kind: &str, spec: serde_json::Value| {
        json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "all"}, "spec": spec})
            .to_string()
    };
    [
        part("ClusterLogs", json!({"logs": [{"logsFile": pod_log, "follow": true}]})),
        part("ClusterAttach", json!({"attaches": [{"logsFile": pod_log}]})),
        part("ClusterExec", json!({"execs": [{"local": {}}]})),
        part("ClusterPortForward", json!({"forwards": [{"command": ["cat"]}]})),
    ]
    .join("\n---\n")
}

/// A node that kwok plays, as a kubelet would register it.
pub(crate) fn node(name: &str) -> serde_json::Value {
    let room = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok"}
        },
        "status": {"allocatable": room, "capacity": room}
    })
}
