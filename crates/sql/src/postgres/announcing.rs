//! What the process that has the database tells the others: where it can be reached.

use std::sync::Arc;

use rustls::ClientConfig;
use tokio::time::{Instant, sleep};
use tokio_postgres::Config;

use super::{
    lease::prompt,
    link::{Driven, connect},
    replicas::{ANNOUNCE_EVERY, Announcement, FORGET, FORGET_OLD, Known, all, announce},
    standing::Standing,
};
use crate::error::SqlError;

/// Renews the row of the process that has the database until it has it no more, by a connection of its own: nothing here holds up
/// the lease.
pub(super) async fn keep(epoch: i64, config: Config, tls: ClientConfig, standing: Arc<Standing>) {
    let mut driven = None;
    let until = standing.is_over();
    tokio::pin!(until);
    loop {
        if let Some(of) = standing.announced()
            && let Err(error) = renew(&mut driven, &of, epoch, &config, &tls, &standing).await
        {
            // The lease says it aloud.
            tracing::debug!(%error, "other replicas are not told where this one is");
            driven = None;
        }
        tokio::select! {
            () = sleep(ANNOUNCE_EVERY) => {}
            () = standing.has_announced() => {}
            _why = &mut until => break,
        }
    }
    if let (Some(driven), Some(of)) = (&driven, standing.announced()) {
        let client = &driven.client;
        let _forgotten = prompt(async { Ok(client.execute(FORGET, &[&of.id]).await?) }).await;
    }
}

async fn renew(
    driven: &mut Option<Driven>,
    of: &Announcement,
    epoch: i64,
    config: &Config,
    tls: &ClientConfig,
    standing: &Standing,
) -> Result<(), SqlError> {
    let driven = match driven {
        Some(driven) => driven,
        None => driven.insert(prompt(connect(config, tls)).await?),
    };
    let client = &driven.client;
    let known = prompt(async {
        announce(client, of, epoch).await?;
        client.execute(FORGET_OLD, &[]).await?;
        Ok(Known { at: Instant::now(), replicas: all(client).await? })
    });
    standing.knows(known.await?);
    Ok(())
}
