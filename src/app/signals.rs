//! The signals that end a server.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that are followed from here on.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Follows them. One that comes before [`Signals::serve`] is not lost.
    pub(super) fn follow() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
            hangup: signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?,
        })
    }

    /// Until SIGTERM or SIGINT.
    pub(super) async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Until SIGTERM, SIGINT, or something else that ends it, and then until the drain is done; a second signal cuts it short.
    /// SIGHUP reloads.
    pub(super) async fn serve(
        mut self,
        reload: impl Fn(),
        ended: impl Future<Output = ()>,
        drain: impl Future<Output = ()>,
    ) {
        tokio::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
                _ = self.hangup.recv() => reload(),
            }
        }
        tokio::select! {
            () = drain => {}
            _ = self.terminate.recv() => tracing::warn!("second signal: closing all connections"),
            _ = self.interrupt.recv() => tracing::warn!("second signal: closing all connections"),
        }
    }
}
