//! `kubefold status`: the members, and everything that is unfinished or differs, once or whenever it changes.

mod facts;
mod page;

use std::time::Duration;

use anyhow::Context;
use http::Method;

use self::{
    facts::{Fact, changes, facts},
    page::render,
};
use crate::{
    cli::{
        client::{Ask, Connection, Output, Session},
        live::{self, Live, interval},
        paint, print as print_text,
    },
    status::{FleetStatus, STATUS_PATH},
};

pub(super) use self::page::{Columns, age, colour_of, name, size, table};

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    connection: Connection,
    /// Print it again when it changes, until interrupted: on a terminal in place, else a line for each change.
    #[arg(short, long)]
    watch: bool,
    /// How often a watch asks, such as 500ms or 5s.
    #[arg(long, value_name = "DURATION", requires = "watch", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Print the whole answer, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Prints it on standard output.
pub(super) fn print(flags: &Status) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(async {
        let session = flags.connection.open().await?;
        let status = ask(&session).await?;
        if flags.watch { flags.follow(&session, status).await } else { flags.once(&status) }
    }))
}

/// Asks for the fleet's status.
///
/// Errors: kubefold does not give it.
pub(super) async fn ask(session: &Session) -> anyhow::Result<FleetStatus> {
    let ask = Ask { method: Method::GET, path: STATUS_PATH, headers: &[], body: Vec::new() };
    let answer = live::in_time(session.ask(ask)).await?;
    serde_json::from_str(&answer).context("the server is not a kubefold of this version")
}

impl Status {
    fn once(&self, status: &FleetStatus) -> anyhow::Result<()> {
        print_text(&match self.output {
            None => render(status, paint::on_stdout()),
            Some(output) => output.text(status)?,
        })
    }

    async fn follow(&self, session: &Session, first: FleetStatus) -> anyhow::Result<()> {
        if self.output.is_none()
            && let Some(mut live) = Live::on_stdout()?
        {
            return live
                .repeat(self.interval, async |screen| {
                    let asked = ask(session).await;
                    let page = match asked {
                        Ok(status) => render(&status, paint::on_stdout()),
                        Err(error) => return screen.note(&format!("{error:#}")),
                    };
                    screen.draw(&page)
                })
                .await;
        }
        self.once(&first)?;
        let mut known = facts(&first);
        loop {
            tokio::time::sleep(self.interval).await;
            let asked = ask(session).await;
            let now = match &asked {
                Ok(status) => facts(status),
                // What was known last is not over: nobody says so.
                Err(error) => {
                    known.iter().filter(|fact| !fact.is_of_server()).cloned().chain([Fact::server(error)]).collect()
                }
            };
            let changed = changes(&known, &now);
            known = now;
            match (&asked, self.output) {
                _ if changed.is_empty() => {}
                (_, None) => print_text(&stamped(&changed))?,
                (Ok(status), Some(Output::Yaml)) => print_text(&format!("---\n{}", Output::Yaml.text(status)?))?,
                (Ok(status), Some(output)) => print_text(&output.text(status)?)?,
                (Err(error), Some(_)) => super::say(&format!("{error:#}")),
            }
        }
    }
}

/// Lines with the time before them.
fn stamped(lines: &[String]) -> String {
    let now = live::now();
    lines.iter().map(|line| format!("{now}   {line}\n")).collect()
}
