//! `kubefold top`: members and kinds with what happens in them now.

mod page;

use std::time::Duration;

use tokio::time::Instant;

use self::page::{Column, Sample, Top as Page};
use crate::cli::{
    client::{Connection, Output},
    live::{Live, interval},
    paint, print as print_text, status,
};

#[derive(Debug, clap::Args)]
pub(super) struct Top {
    /// How often it is drawn, and the time that rates are over, such as 500ms or 5s.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Print one table, also on a terminal.
    #[arg(long)]
    once: bool,
    /// By what kinds are ordered.
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t)]
    sort_by: Column,
    /// Print one answer, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints it on standard output.
pub(super) fn run(flags: &Top) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(flags.run()))
}

impl Top {
    async fn run(&self) -> anyhow::Result<()> {
        let session = self.connection.open().await?;
        let sample =
            async || Ok::<_, anyhow::Error>(Sample { status: status::ask(&session).await?, at: Instant::now() });
        // Whoever cannot be asked at the start is told so, and no screen is drawn.
        let first = sample().await?;
        if !self.once
            && self.output.is_none()
            && let Some(mut live) = Live::on_stdout()?
        {
            let mut last = None;
            return live
                .repeat(self.interval, async |screen| match sample().await {
                    Ok(now) => {
                        let page = Page::of(&now, last.as_ref(), self.sort_by);
                        last = Some(now);
                        screen.draw(&page.render(paint::on_stdout()))
                    }
                    Err(error) => screen.note(&format!("{error:#}")),
                })
                .await;
        }
        // A rate is over a time.
        tokio::time::sleep(self.interval).await;
        let page = Page::of(&sample().await?, Some(&first), self.sort_by);
        print_text(&match self.output {
            None => page.render(paint::on_stdout()),
            Some(output) => output.text(&page)?,
        })
    }
}
