//! `kubefold state`: what is done with the state of a kubefold that does not run.

use std::path::PathBuf;

use anyhow::Context;

use crate::{
    app::{self, StateMove, StateMoved, StateSource, StateUrl},
    cli::{help, print},
    observe::{self, LogFormat},
};

/// What is worth a word on the terminal: a database that cannot be reached, records that cannot be read.
const LOGGED: &str = "warn";

/// Where the state is, if not in the state directory.
#[derive(Debug, clap::Args)]
pub(super) struct DatabaseFlags {
    /// A database for unfinished writes, kubefold's own objects and the mirror: postgres://USER@HOST/DATABASE, or
    /// mysql://USER@HOST/DATABASE for MySQL and MariaDB.
    /// With a key file, a further process waits until it can take over, and hands requests on until then. Default: files in the
    /// state directory.
    #[arg(
        long,
        value_name = "URL",
        env = "KUBEFOLD_STATE_URL",
        hide_env_values = true,
        conflicts_with = "state_url_file"
    )]
    state: Option<StateUrl>,
    /// A file with that URL, for one with a password, which other users of the machine see in a command line.
    #[arg(long, value_name = "FILE")]
    state_url_file: Option<PathBuf>,
    /// The authority of the database's certificate (PEM). Default: the authorities that this machine trusts.
    #[arg(long, value_name = "FILE")]
    state_ca_file: Option<PathBuf>,
}

impl DatabaseFlags {
    /// `None`: the state is in the state directory.
    pub(super) fn source(self) -> Option<StateSource> {
        self.state_url_file.map(StateSource::File).or_else(|| self.state.map(StateSource::Url))
    }

    pub(super) fn authority(&self) -> Option<PathBuf> {
        self.state_ca_file.clone()
    }
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum State {
    /// Bring the unfinished writes, the records of moves and kubefold's own objects into a database, for `kubefold serve --state`.
    #[command(
        after_help = help::STATE_MOVE,
        mut_arg("state", |arg| {
            arg.help("The database, which no kubefold has used: postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE")
                .long_help(None)
                .required_unless_present("state_url_file")
        })
    )]
    Move(Move),
}

#[derive(Debug, clap::Args)]
pub(super) struct Move {
    /// The state directory of `kubefold serve`, which does not run.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    #[command(flatten)]
    database: DatabaseFlags,
    /// The --state-key-file of `kubefold serve`, if it has one. The database needs the same key.
    #[arg(long, value_name = "FILE")]
    state_key_file: Option<PathBuf>,
}

pub(super) fn run(command: State) -> anyhow::Result<()> {
    let State::Move(Move { state_dir, database, state_key_file }) = command;
    observe::init(LogFormat::Text, LOGGED);
    let state_ca = database.authority();
    // clap asks for one of both.
    let state = database.source().context("--state or --state-url-file is missing")?;
    let options = StateMove { state_dir, state, state_ca, state_key_file };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let StateMoved { place, unfinished, objects } = runtime.block_on(app::move_state(options))?;
    print(&format!(
        "{place} has the state (unfinished writes: {unfinished}, own objects: {objects}). Start kubefold with --state. \
         The files that had it are called .moved now; remove them once it works\n"
    ))
}
