//! Kubernetes' own sample API server, unmodified.

use std::time::Duration;

use super::{Api, Member, Port, Process, client, eventually};

/// The server, run by itself beside a member: with the member's etcd, its authority, its namespaces.
///
/// Source: the README of kubernetes/sample-apiserver, "Running it stand-alone".
pub struct SampleApiServer {
    api: Api,
    _process: Process,
    _port: Port,
}

impl SampleApiServer {
    /// Starts it and waits until it is ready.
    pub async fn beside(member: &Member) -> Self {
        let (port, place) = (Port::reserve(), &member.place);
        let kubeconfig = place.path("admin.kubeconfig");
        let args = [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", port.number()),
            format!("--etcd-servers={}", place.etcd_url()),
            format!("--client-ca-file={}", place.path("ca.crt")),
            format!("--tls-cert-file={}", place.path("server.crt")),
            format!("--tls-private-key-file={}", place.path("server.key")),
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
        ];
        let log = place.dir.join("sample-apiserver.log");
        let mut process = Process::spawn("sample-apiserver", &client("sample-apiserver"), &args, &log);
        let server = format!("https://{}", port.addr());
        let own = place.write_kubeconfig_to("sample-apiserver", "admin", Some("system:masters"), &server);
        let api = Api::from_kubeconfig(&own, None).await;
        eventually(Duration::from_secs(90), async || {
            assert!(process.exited().is_none(), "the sample API server has ended: {}", process.tail());
            let answer = api.try_request(http::Method::GET, "/readyz", "").await?;
            if answer.status == 200 { Ok(()) } else { Err(format!("{answer}\n{}", process.tail())) }
        })
        .await;
        Self { api, _process: process, _port: port }
    }

    /// A client of it, as its administrator.
    pub fn api(&self) -> Api {
        self.api.clone()
    }
}
