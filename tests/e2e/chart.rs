//! The Helm chart, from nothing to production: rendered and applied to a real kube-apiserver by Helm, and its pod's command line run
//! here as a process, with the pod's volumes as folders.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use testbed::{
    Api, Kubectl, Member, MemberOptions, Port, Process, Testbed, before, client, eventually, program,
    samples::{config_map, keys, namespace},
};

use crate::provider::Provider;

const SOON: Duration = Duration::from_secs(60);
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/kubefold");
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/fleet/deployments/kubefold";
const MAPS: &str = "/api/v1/namespaces/crew/configmaps";

/// Helm of a cluster's administrator.
fn helm(host: &Member) -> Kubectl {
    host.as_admin().by(client("helm"))
}

/// The pod of the chart's Deployment, as a process of this machine.
struct Pod {
    /// Of its image.
    program: PathBuf,
    dir: TempDir,
    https: Port,
    metrics: Port,
    process: Option<Process>,
}

impl Pod {
    fn new(program: PathBuf) -> Self {
        let (dir, https, metrics) = (tempfile::tempdir().unwrap(), Port::reserve(), Port::reserve());
        Self { program, dir, https, metrics, process: None }
    }

    /// What a path in the container is here.
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// A text of the pod, with this machine's paths and ports.
    fn here(&self, text: &str) -> String {
        let folder = |path: &str| self.at(path).display().to_string();
        text.replace("/etc/kubefold", &folder("etc/kubefold"))
            .replace("/var/lib/kubefold", &folder("var/lib/kubefold"))
            .replace("0.0.0.0:6443", &self.https.addr())
            .replace("0.0.0.0:9090", &self.metrics.addr())
    }

    /// Does what a kubelet does for the Deployment that the cluster has: the old process ends, then the new one starts.
    async fn run(&mut self, host: &Member) {
        if let Some(mut old) = self.process.take() {
            assert!(old.terminate(SOON).await.success(), "{}", old.tail());
        }
        let api = host.api().await;
        let spec = api.get(DEPLOYMENT).await["spec"]["template"]["spec"].clone();
        let container = &spec["containers"][0];
        for volume in spec["volumes"].as_array().unwrap() {
            let mounts = container["volumeMounts"].as_array().unwrap();
            let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).expect("every volume is mounted");
            let folder = self.at(mount["mountPath"].as_str().unwrap());
            fs::create_dir_all(&folder).unwrap();
            let (kind, name) = match (&volume["secret"], &volume["configMap"]) {
                (Value::Null, Value::Null) => continue,
                (Value::Null, map) => ("configmap", map["name"].as_str().unwrap()),
                (secret, _) => ("secret", secret["secretName"].as_str().unwrap()),
            };
            let object = host.kubectl(&["get", kind, name, "-n", "fleet", "-o", "json"]).await;
            let object: Value = serde_json::from_str(object.ok()).unwrap();
            for (file, text) in object["data"].as_object().unwrap() {
                let text = match kind {
                    "secret" => decoded(text.as_str().unwrap()),
                    _ => text.as_str().unwrap().to_owned(),
                };
                fs::write(folder.join(file), self.here(&text)).unwrap();
            }
        }
        let args: Vec<String> =
            container["args"].as_array().unwrap().iter().map(|arg| self.here(arg.as_str().unwrap())).collect();
        self.process = Some(Process::spawn("kubefold", &self.program, &args, &self.dir.path().join("log")));
        // As the probe of readiness asks, which is how a rollout knows.
        let ready = Api::of_plain_server(&format!("http://{}", self.metrics.addr()));
        eventually(SOON, async || {
            let process = self.process.as_mut().expect("it was started");
            assert_eq!(process.exited(), None, "{}", process.tail());
            let answer = ready.try_request(Method::GET, "/readyz", "").await?;
            if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
    }

    /// Runs a command in the container.
    async fn exec(&self, args: &[&str]) -> (bool, String) {
        let args: Vec<String> = args.iter().map(|arg| self.here(arg)).collect();
        let said = tokio::process::Command::new(&self.program).args(&args).output().await.unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        (said.status.success(), text)
    }

    async fn kubeconfig(&self) -> PathBuf {
        let (made, text) = self.exec(&["kubeconfig", "--state-dir", "/var/lib/kubefold/state"]).await;
        assert!(made, "{text}");
        // The name of the Service is the cluster's.
        let text: String = text
            .lines()
            .map(|line| match line.trim().strip_prefix("server: https://kubefold.fleet.svc:443") {
                Some(path) => format!("    server: https://{}{path}\n", self.https.addr()),
                None => format!("{line}\n"),
            })
            .collect();
        let path = self.dir.path().join("fleet.kubeconfig");
        fs::write(&path, text).unwrap();
        path
    }
}

fn decoded(text: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

/// `kubefold join` for each cluster: rights in it, and its credential in a folder. Answers `clusters.yaml`.
async fn join(bed: &Testbed, folder: &Path) -> PathBuf {
    let config = folder.join("clusters.yaml");
    for member in bed.members() {
        let mut command = tokio::process::Command::new(program());
        command.args(["join", "--name", member.name(), "--token-life", "8760h", "--config"]).arg(&config);
        let said = command.arg("--kubeconfig").arg(member.kubeconfig()).output().await.unwrap();
        assert!(said.status.success(), "{said:?}");
    }
    config
}

/// Members in which developers may read ConfigMaps.
async fn with_developers(bed: &Testbed) {
    for member in bed.members() {
        namespace(member, "crew").await;
        member.api().await.create(MAPS, &config_map("own", json!({}))).await;
        for args in [
            &["create", "role", "reader", "-n", "crew", "--verb=get,list,watch", "--resource=configmaps"][..],
            &["create", "rolebinding", "reader", "-n", "crew", "--role=reader", "--group=oidc:dev"],
        ] {
            member.kubectl(args).await.ok();
        }
    }
}

/// Credentials of the members, and clusters.yaml, as Secrets of the host; and the values of the chart.
async fn values(bed: &Testbed, host: &Member, provider: &Provider, folder: &Path) -> String {
    let config = join(bed, folder).await;
    namespace(host, "fleet").await;
    let mut text = fs::read_to_string(&config).unwrap();
    for member in bed.members() {
        let name = member.name();
        let from = format!("--from-file={}", folder.join("members").join(name).display());
        host.kubectl(&["create", "secret", "generic", name, "-n", "fleet", &from]).await.ok();
        text = text.replace(&format!("members/{name}/"), &format!("/etc/kubefold/credentials/{name}/"));
    }
    fs::write(&config, text.replace("renewTokens: true", "renewTokens: false")).unwrap();
    let from = format!("--from-file={}", config.display());
    host.kubectl(&["create", "secret", "generic", "clusters", "-n", "fleet", &from]).await.ok();
    let indented: String =
        provider.configuration(host).lines().fold(String::new(), |text, line| text + "  " + line + "\n");
    let values = folder.join("values.yaml");
    let text = format!(
        "existingConfigSecret: clusters\ncredentials: [east, west, north]\nauthentication:\n{indented}networkPolicy: {{enabled: true}}\n"
    );
    fs::write(&values, text).unwrap();
    values.display().to_string()
}

/// `kubefold release`, as the docs say: members keep what runs in them, and no mark.
async fn release(bed: &Testbed, pod: &Pod, folder: &Path) {
    let administrators = bed.members().iter().fold("members:\n".to_owned(), |text, member| {
        text + &format!("  - {{name: {}, kubeconfig: {}}}\n", member.name(), member.kubeconfig().display())
    });
    let file = folder.join("administrators.yaml");
    fs::write(&file, administrators).unwrap();
    let release = ["release", "--config", file.to_str().unwrap(), "--state-dir", "/var/lib/kubefold/state"];
    let (done, said) = pod.exec(&release).await;
    assert!(done, "{said}");
    for member in bed.members() {
        let marked =
            member.kubectl(&["get", "all,configmaps", "-A", "-l", "kubefold.io/placement", "-o", "name"]).await;
        assert_eq!(marked.ok(), "", "{}", member.name());
        member.kubectl(&["get", "deployment", "web", "-n", "crew"]).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_brings_a_fleet_to_production() {
    let options = MemberOptions { controllers: true, ..MemberOptions::default() };
    let bed = Testbed::start(&["east", "west", "north"], options).await;
    let host = &bed["east"];
    let folder = tempfile::tempdir().unwrap();
    let mut provider = Provider::start(host).await;
    with_developers(&bed).await;
    let values = values(&bed, host, &provider, folder.path()).await;
    let with = ["-n", "fleet", "-f", &values];
    let chart_before = before("chart");
    let of_before = ["kubefold", chart_before.to_str().unwrap()];
    helm(host).run(&[&["install"], &of_before[..], &with[..]].concat()).await.ok();

    let mut pod = Pod::new(before("kubefold"));
    pod.run(host).await;
    let (fine, said) = pod.exec(&["doctor", "--config", "/etc/kubefold/config/clusters.yaml"]).await;
    assert!(fine, "{said}");
    let admin = pod.kubeconfig().await;
    let api = Api::from_kubeconfig(&admin, None).await;
    let all = ["crew/own@east", "crew/own@north", "crew/own@west"];
    let own = |list: &Value| keys(list).into_iter().filter(|key| key.contains("/own@")).collect::<Vec<_>>();
    assert_eq!(own(&api.get(MAPS).await), all);
    // Single sign-on: people see what the members allow them.
    let authority = fs::read_to_string(pod.at("/var/lib/kubefold/state/ca.crt")).unwrap();
    let jane = Api::of_server(&format!("https://{}", pod.https.addr()), &authority);
    let jane = jane.with_token(&provider.token("jane", "dev").await);
    assert_eq!(own(&jane.get(MAPS).await), all);
    let secrets = jane.request(Method::GET, "/api/v1/namespaces/crew/secrets", "").await;
    assert_eq!(secrets.status, StatusCode::FORBIDDEN, "{secrets}");
    // Prometheus has no login.
    let scraped = Api::of_plain_server(&format!("http://{}", pod.metrics.addr()));
    let metrics = scraped.request(Method::GET, "/metrics", "").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(metrics.contains("kubefold_member_health{member=\"west\",state=\"ready\"} 1"), "{metrics}");
    let kubectl = Kubectl::new(&admin, folder.path());
    kubectl.run(&["create", "deployment", "web", "-n", "crew", "--image=web:1", "--replicas=3"]).await.ok();

    // An upgrade from the version before, back, and again: another pod on the same state. Kubeconfigs and what was placed go on.
    let upgrade = [&["upgrade", "kubefold", CHART], &with[..], &["--set", "auditLog=true"]].concat();
    for (args, program) in [
        (&upgrade[..], program()),
        (&["rollback", "kubefold", "1", "-n", "fleet"], before("kubefold")),
        (&upgrade[..], program()),
    ] {
        helm(host).run(args).await.ok();
        pod.program = program;
        pod.run(host).await;
        assert_eq!(own(&api.get(MAPS).await), all);
        assert_eq!(own(&jane.get(MAPS).await), all);
        let web = kubectl.run(&["get", "deployment", "web", "-n", "crew", "-o", "jsonpath={.spec.replicas}"]).await;
        assert_eq!(web.ok(), "3");
    }

    let mut process = pod.process.take().unwrap();
    assert!(process.terminate(SOON).await.success());
    helm(host).run(&["uninstall", "kubefold", "-n", "fleet"]).await.ok();
    let kept = host.kubectl(&["get", "pvc", "-n", "fleet", "-o", "name"]).await;
    assert_eq!(kept.ok().trim(), "persistentvolumeclaim/kubefold-state", "the state outlives the release");
    release(&bed, &pod, folder.path()).await;
}

/// Each switch of the chart, in front of a kube-apiserver with strict validation.
#[tokio::test(flavor = "multi_thread")]
async fn every_value_of_the_chart_makes_objects_that_kubernetes_takes() {
    let bed = Testbed::shared(&["east"]).await;
    let east = &bed["east"];
    namespace(east, "charts").await;
    let member = "config.members[0].name=home,config.members[0].inCluster=true";
    let render = async |sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["template", "kubefold", CHART, "-n", "charts"].into_iter().chain(sets).collect();
        helm(east).run(&args).await
    };
    let all = [
        member,
        "inClusterMember=true,ingress.enabled=true,ingress.host=fleet.example.com,ingress.className=nginx",
        "networkPolicy.enabled=true,networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.a=b",
        "podDisruptionBudget.enabled=true,auditLog=true,stateKey.secretName=key,tls.secretName=tls,credentials[0]=west",
        "metrics.dashboard.enabled=true,service.type=LoadBalancer,persistence.storageClass=fast,extraArgs[0]=--freshness=strict",
    ];
    let replicas = [member, "statePostgres.secretName=db,stateKey.secretName=key,networkPolicy.enabled=true"];
    for (sets, count) in [(&all[..1], 6), (&all[..], 16), (&replicas, 7)] {
        let rendered = render(sets).await;
        let dry = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let taken = east.as_admin().run_with_input(&dry, rendered.ok()).await;
        assert_eq!(taken.ok().lines().count(), count, "{taken}");
        assert!(!taken.stderr.contains("Warning"), "{taken}");
    }
    let rendered = render(&replicas).await;
    for text in [
        "replicas: 2",
        "type: RollingUpdate",
        "--advertise=$(POD_IP):6443",
        "fieldPath: status.podIP",
        "podAntiAffinity",
        "maxUnavailable: 1",
        "emptyDir: {}",
    ] {
        assert!(rendered.ok().contains(text), "no {text}: {rendered}");
    }
    for (sets, words) in [
        (&[][..], "kubefold needs members"),
        (&[member, "replicas=2"], "additional properties 'replicas' not allowed"),
        (&[member, "existingConfigSecret=x"], "keep one of them"),
        (&[member, "ingress.enabled=true"], "the name by which clients reach kubefold"),
        (&[member, "externalUrl=http://x"], "externalUrl"),
    ] {
        let refused = render(sets).await;
        assert!(!refused.succeeded() && refused.stderr.contains(words), "no {words:?}: {refused}");
    }
}

/// What the chart has for operators: their kinds as they define them, with strict validation.
#[tokio::test(flavor = "multi_thread")]
async fn operators_find_what_the_chart_has_for_them() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let east = &bed["east"];
    let define = async |file: &str, kind: &str| {
        let file = client("operators").join(file);
        // The descriptions of some are too long for the annotation of a client-side apply.
        east.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()]).await.ok();
        let known = ["api-resources", "--cached=false", "-o", "name"];
        eventually(SOON, async || {
            let known = east.kubectl(&known).await;
            known.stdout.lines().any(|line| line.starts_with(kind)).then_some(()).ok_or_else(|| known.to_string())
        })
        .await;
    };
    for kind in ["certificates", "servicemonitors", "prometheusrules"] {
        define(&format!("{kind}.yaml"), kind).await;
    }
    let chart = async |command: &[&str], namespace: &str| {
        let sets = [
            "config.members[0].name=home,config.members[0].inCluster=true",
            "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true",
            "gateway.enabled=true,gateway.host=a.b,gateway.parentRefs[0].name=edge",
            "statePostgres.secretName=db,statePostgres.caKey=ca.crt",
            "tls.certManager.enabled=true,tls.certManager.issuerRef.name=ca",
        ];
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args = command.iter().copied().chain(["kubefold", CHART, "-n", namespace]).chain(sets);
        helm(east).run(&args.collect::<Vec<_>>()).await
    };
    let made = async |namespace: &str, kinds: &str| {
        east.kubectl(&["get", kinds, "-n", namespace, "-o", "name"]).await.ok().lines().count()
    };
    tokio::join!(namespace(east, "older"), namespace(east, "newer"));
    // Of a version that is served where the Gateway API is old, and where it is new.
    define("tlsroutes-of-before.yaml", "tlsroutes").await;
    chart(&["install"], "older").await.ok();
    assert_eq!(made("older", "certificates,servicemonitors,prometheusrules").await, 3);
    assert_eq!(made("older", "tlsroutes.v1alpha3.gateway.networking.k8s.io").await, 1);
    define("tlsroutes.yaml", "tlsroutes").await;
    let rendered = chart(&["template"], "newer").await;
    let dry = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
    let taken = east.as_admin().run_with_input(&dry, rendered.ok()).await;
    assert_eq!(taken.ok().lines().count(), 10, "{taken}");
    assert!(!taken.stderr.contains("Warning"), "{taken}");
    eventually(SOON, async || {
        let installed = chart(&["upgrade", "--install"], "newer").await;
        installed.succeeded().then_some(()).ok_or_else(|| installed.to_string())
    })
    .await;
    assert_eq!(made("newer", "tlsroutes.v1.gateway.networking.k8s.io").await, 1);
    for text in [
        "alert: KubefoldMemberDown",
        "--tls-cert-file=/etc/kubefold/tls/tls.crt",
        "--state-url-file=/etc/kubefold/state-postgres/url",
        "--state-ca-file=/etc/kubefold/state-postgres/ca.crt",
        "mountPath: /etc/kubefold/state-postgres",
        "secretName: \"db\"",
    ] {
        assert!(rendered.ok().contains(text), "no {text}: {rendered}");
    }
}
