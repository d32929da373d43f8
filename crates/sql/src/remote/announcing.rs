//! What the process that has the database tells the others: where it can be reached.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::{
    lease::prompt,
    replicas::{ANNOUNCE_EVERY, Known},
    standing::Standing,
};
use crate::{
    backend::{Announcement, Keeper},
    error::SqlError,
    server::Server,
};

/// Renews the row of the process that has the database until it has it no more, by a connection of its own: nothing here holds up
/// the lease.
pub(super) async fn keep(epoch: i64, server: Server, standing: Arc<Standing>) {
    let mut keeper = None;
    let until = standing.is_over();
    tokio::pin!(until);
    loop {
        if let Some(of) = standing.announced()
            && let Err(error) = renew(&mut keeper, &of, epoch, &server, &standing).await
        {
            // The lease says it aloud.
            tracing::debug!(%error, "other replicas are not told where this one is");
            keeper = None;
        }
        tokio::select! {
            () = sleep(ANNOUNCE_EVERY) => {}
            () = standing.has_announced() => {}
            _why = &mut until => break,
        }
    }
    if let (Some(keeper), Some(of)) = (&keeper, standing.announced()) {
        let _forgotten = prompt(keeper.forget(Some(&of.id))).await;
    }
}

async fn renew(
    keeper: &mut Option<Box<dyn Keeper>>,
    of: &Announcement,
    epoch: i64,
    server: &Server,
    standing: &Standing,
) -> Result<(), SqlError> {
    let keeper = match keeper {
        Some(keeper) => keeper,
        None => keeper.insert(prompt(server.keeper()).await?),
    };
    let known = prompt(async {
        keeper.announce(of, epoch).await?;
        keeper.forget(None).await?;
        Ok(Known { at: Instant::now(), replicas: keeper.replicas().await? })
    });
    standing.knows(known.await?);
    Ok(())
}
