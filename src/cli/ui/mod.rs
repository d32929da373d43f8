//! `kubefold ui`: a page on this machine that shows the fleet with the rights of a kubeconfig.
//!
//! `gate` decides who may ask, `answer` what is answered, `forward` sends reads, and the orders of `order`, to kubefold, `assets` has the page, and
//! `server` listens. The page itself is in `page/`; nothing is needed to build it.

mod answer;
mod assets;
mod forward;
mod gate;
mod order;
mod server;

#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, bail};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use self::{
    answer::Site,
    forward::Upstream,
    gate::{Gate, Secrets},
};
use crate::cli::{client::Connection, login::open_browser, print, say};

#[derive(Debug, clap::Args)]
pub(super) struct Ui {
    /// The address and port to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Listen on an address that other machines reach, too. The connection is not encrypted: whoever reads along has your rights.
    #[arg(long)]
    allow_network: bool,
    /// Open no browser.
    #[arg(long)]
    no_browser: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Serves the page until it is interrupted.
pub(super) fn run(flags: &Ui) -> anyhow::Result<()> {
    if !flags.listen.ip().is_loopback() && !flags.allow_network {
        bail!(
            "{} is no loopback address, so other machines could reach the page, which has your rights; listen on \
             127.0.0.1:0, or add --allow-network",
            flags.listen
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(Box::pin(serve(flags)))
}

async fn serve(flags: &Ui) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let upstream = Upstream::new(flags.connection.config().await?)?;
    let listener = TcpListener::bind(flags.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; name another address with --listen, or leave it out for a free port",
            flags.listen
        )
    })?;
    let address = listener.local_addr()?;
    let secrets = Secrets::random()?;
    let (page, first) = (secrets.address(address), secrets.first_address(address));
    let shown = format!("{page}\n");
    let from = upstream.url().to_owned();
    let site = Arc::new(Site { gate: Gate::new(address, secrets), upstream });
    print(&shown)?;
    let opened = !flags.no_browser && open_browser(&first);
    let what_to_do = if opened { "a browser opens it" } else { "open it in a browser" };
    say(&format!("shows {from} with your rights; {what_to_do}, and end it with Ctrl-C"));
    tokio::select! {
        () = server::serve(listener, site) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
