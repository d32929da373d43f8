//! An embedded API server by itself, for trying it out by hand: writes `/tmp/embedded.kubeconfig`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]
use std::sync::Arc;

use kubefold::apiserver::{
    endpoint::Endpoint,
    faults::Faults,
    registry::Env,
    serve::{ApiServer, Settings, bootstrap, built_in},
    storage::Memory,
};

#[tokio::main]
async fn main() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    let server = ApiServer::new(registry, Settings::new("v1.36.2"));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into()).parse().unwrap();
    let endpoint = Endpoint::start(address, "t".into(), Arc::new(server), Faults::default()).await.unwrap();
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(endpoint.certificate());
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'https://{}', certificate-authority-data: '{ca}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
        endpoint.address()
    );
    std::fs::write("/tmp/embedded.kubeconfig", config).unwrap();
    println!("{}", endpoint.address());
    tokio::signal::ctrl_c().await.unwrap();
}
